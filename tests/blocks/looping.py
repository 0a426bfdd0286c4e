"""Triggers run as in the triggerer, in an event loop that must never wait for a store."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


def rebuilt(trigger: Any) -> Any:
    """The trigger as another triggerer makes it from what Airflow keeps: its class and arguments, through
    JSON."""
    import json

    from airflow.sdk.module_loading import import_string

    name, arguments = trigger.serialize()
    return import_string(name)(**json.loads(json.dumps(arguments)))


async def first(trigger: Any) -> Any:
    """The payload of the first event."""
    events = trigger.run()
    try:
        return (await anext(events)).payload
    finally:
        await events.aclose()


async def nothing_within(events: AsyncIterator[Any], seconds: float) -> bool:
    """Whether no event comes within this time. The trigger is then cancelled, as when a triggerer ends."""
    waiting = asyncio.ensure_future(anext(events))
    done, _ = await asyncio.wait({waiting}, timeout=seconds)
    if done:
        return False
    waiting.cancel()
    await asyncio.wait({waiting})
    assert waiting.cancelled()
    return True


def in_a_loop(work: Coroutine[Any, Any, T], *, limit_s: float = 120.0) -> T:
    """Run it in an event loop, within a limit."""
    return asyncio.run(asyncio.wait_for(work, limit_s))


class HastyTime:
    """A replacement for the modules `time` and `asyncio` in which a sleep is over at once and advances the
    clock. `nothing_until`: whether no event comes before then."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self._end_s = math.inf
        self._is_over = asyncio.Event()

    def monotonic(self) -> float:
        return self.now_s

    async def sleep(self, seconds: float) -> None:
        self.now_s += seconds
        if self.now_s >= self._end_s:
            self._is_over.set()
            await asyncio.Event().wait()
        await asyncio.sleep(0)

    async def nothing_until(self, events: AsyncIterator[Any], end_s: float) -> bool:
        """Whether no event comes before this time. The trigger is then cancelled, as when a triggerer
        ends."""
        self._end_s = end_s
        waiting = asyncio.ensure_future(anext(events))
        over = asyncio.ensure_future(self._is_over.wait())
        done, pending = await asyncio.wait({waiting, over}, return_when=asyncio.FIRST_COMPLETED)
        for each in pending:
            each.cancel()
        await asyncio.wait({waiting, over})
        return waiting not in done


async def until(condition: Callable[[], bool]) -> None:
    """Let the loop go on until the condition holds. The caller sets the limit."""
    while not condition():  # noqa: ASYNC110
        await asyncio.sleep(0.02)  # what it asks about has no event to wait for
