"""A cut as tables and pins name it: where it goes through a topic's partitions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from txn_engine.verify.descriptors import MalformedError
from txn_engine.verify.file_table import DataFile
from txn_engine.verify.store_keys import MAX_OFFSET

Visible = dict[str, DataFile]
"""Files by their paths below the incarnation's folder."""
_LISTS: Final = ("offsets", "snapshots", "slots", "log_starts")


@dataclass(frozen=True, slots=True)
class ShownCut:
    """Its number, and by partition its offset and the snapshot that says what is below."""

    number: int
    logs: tuple[tuple[int, int], ...]


def shown_cut(held: object) -> ShownCut:
    """The cut that an object says; MalformedError where it says none."""
    if not isinstance(held, Mapping):
        raise MalformedError(f"a cut {held!r}"[:200])
    number = held.get("cut")
    if type(number) is not int or not 0 <= number <= MAX_OFFSET:
        raise MalformedError(f"cut {number!r}"[:200])
    offsets, snapshots, slots, starts = (_offsets(held, name) for name in _LISTS)
    if not len(offsets) == len(snapshots) == len(slots) or len(starts) not in (0, len(offsets)):
        raise MalformedError(f"{len(offsets)} offsets, {len(snapshots)} snapshots, {len(slots)} slots")
    return ShownCut(number, tuple(zip(offsets, snapshots, strict=True)))


def _offsets(held: Mapping[str, Any], name: str) -> list[int]:
    found = held.get(name)
    if not isinstance(found, list) or not all(
        type(each) is int and 0 <= each <= MAX_OFFSET for each in found
    ):
        raise MalformedError(f"{name} {found!r}"[:200])
    return found
