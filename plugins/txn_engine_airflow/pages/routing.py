"""Routes for which the method of a request makes no difference to who is asked whether it may."""

from __future__ import annotations

from typing import Any

from fastapi.routing import APIRoute
from starlette.routing import Match
from starlette.types import Receive, Scope, Send


class ReadRoute(APIRoute):
    """Answers `HEAD` wherever it answers `GET`; the server sends no body then."""

    def __init__(self, path: str, endpoint: Any, *, methods: Any = None, **settings: Any) -> None:
        asked = set(methods or {"GET"})
        super().__init__(path, endpoint, methods=asked | {"HEAD"} if "GET" in asked else asked, **settings)


class AnyMethodRoute(APIRoute):
    """Answers every method, those unknown to it too: a path that takes others must ask who is there first."""

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        """A path that fits is enough."""
        match, child = super().matches(scope)
        return (Match.FULL if match is Match.PARTIAL else match), child

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer."""
        await self.app(scope, receive, send)
