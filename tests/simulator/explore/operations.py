"""The requests of a process to the store and the answers. A process and the world exchange nothing else."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Literal


class Failure(StrEnum):
    """An answer that says nothing about the object."""

    UNREACHABLE = "no answer"


Listing = tuple[tuple[str, int], ...]
"""(key, size) of each object found."""

Answer = bytes | None | bool | Listing | Failure
"""get: the bytes, None for nothing there. put: whether it was stored. list: what was found."""


@dataclass(frozen=True, slots=True)
class Operation:
    """One request to the store. `data` is a put's bytes, and `after` is where a listing starts."""

    kind: Literal["get", "put", "list"]
    key: str
    data: bytes = b""
    after: str | None = None
