"""The kinds of stores in the network, as far as a connection goes: made of what the engine knows of them.

Airflow reads a provider at each start, and DAG files name stores: neither waits for the engine to be imported, so what
it knows stands in `kinds.json` (`python -m tests.docs.kinds --write`).
"""

from __future__ import annotations

import functools
import json
import re
from pathlib import Path
from typing import Final, NamedTuple

KINDS_FILE: Final = Path(__file__).with_name("kinds.json")


class KindSetting(NamedTuple):
    """One thing that a store of this kind is told: `field` is "login", "password" or a name in a connection's extra."""

    keyword: str
    field: str
    label: str
    help: str
    placeholder: str
    variable: str
    secret: bool


class Kind(NamedTuple):
    """One kind, as `storage.Backend` has it."""

    name: str
    schemes: tuple[str, ...]
    example: str
    credentials: str
    authority: str
    environment: tuple[str, ...]
    identities: tuple[str, ...]
    settings: tuple[KindSetting, ...]

    def may_hold_at(self, authority: str) -> bool:
        """Whether what stands before a URL's first slash is one that names an account behind an @, and no password."""
        return bool(self.authority) and re.fullmatch(self.authority, authority) is not None


@functools.cache
def kinds() -> tuple[Kind, ...]:
    """All of them. A name without a scheme is of the first."""
    found = json.loads(KINDS_FILE.read_text(encoding="utf-8"))
    return tuple(
        Kind(
            **{
                **each,
                "schemes": tuple(each["schemes"]),
                "environment": tuple(each["environment"]),
                "identities": tuple(each["identities"]),
                "settings": tuple(KindSetting(**setting) for setting in each["settings"]),
            }
        )
        for each in found
    )


def kind_of(url: str) -> Kind | None:
    """The kind that a URL names; None for a folder, and for what names no store."""
    scheme, separator, _ = url.partition("://")
    return next((each for each in kinds() if separator and scheme in each.schemes), None)
