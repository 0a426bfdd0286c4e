"""Erasures that have come to their end: at which offsets a partition may hold no record any more (docs/FORMAT.md)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from txn_engine.verify.findings import FindingLog, Place
from txn_engine.verify.objects import ObjectReader
from txn_engine.verify.raw_object import Damaged
from txn_engine.verify.store_keys import ERASURES, MAX_OFFSET

_NAME: Final = re.compile(r"([0-9]{20})(-done)?\.json")
_KINDS: Final = {"": "erasure", "-done": "erasure_done"}


def erased_offsets(reader: ObjectReader, findings: FindingLog, place: Place) -> npt.NDArray[np.int64]:
    """The offsets of all finished erasures in this partition, ascending. To be asked before its files are read. One
    that is under way is judged too: whoever comes will finish it.
    """
    folder = f"topics/{place.topic}/{place.incarnation}/{ERASURES}/"
    parts: dict[int, set[str]] = {}
    for info in reader.listing(folder):
        match = _NAME.fullmatch(info.key.removeprefix(folder))
        if match is not None and int(match[1]) <= MAX_OFFSET:
            parts.setdefault(int(match[1]), set()).add(match[2] or "")
    found = [np.empty(0, np.int64)]
    for number in sorted(parts):
        if "" not in parts[number]:
            continue  # nothing that says of which offsets it is
        key = f"{folder}{number:020d}.json"
        held = reader.read(key, lambda raw: raw.json(_KINDS[""]))
        ranges = held.reason if isinstance(held, Damaged) else _ranges(held or {}, place, number)
        if isinstance(ranges, str):
            if place.partition == 0:  # every partition reads it
                findings.add("object-damaged", key, ranges, expected="an erasure as it was written")
            continue
        if "-done" in parts[number]:
            found += [np.arange(first, last + 1, dtype=np.int64) for first, last in ranges]
    return np.unique(np.concatenate(found))


def _ranges(held: Mapping[str, Any], place: Place, number: int) -> list[tuple[int, int]] | str:
    """The ranges of this partition; in words what is wrong with the object."""
    try:
        seen = (held["topic"], held["incarnation"], held["number"])
        if seen != (place.topic, place.incarnation, number):
            return f"erasure {seen!r}"[:200]
        partitions = held["partitions"]
        if not isinstance(partitions, list):
            return f"partitions {partitions!r}"[:200]
        named = [number for each in partitions for number in (each["partition"], each["to"])]
        offsets = [
            offset
            for each in partitions
            if each["partition"] == place.partition
            for offset in each["offsets"]
        ]
        if not all(type(number) is int and 0 <= number <= MAX_OFFSET for number in (*named, *offsets)):
            return f"partitions and offsets {(*named, *offsets)!r}"[:200]
        pairs = list(zip(offsets[::2], offsets[1::2], strict=True))
    except (KeyError, TypeError, ValueError) as error:
        return f"{type(error).__name__}: {error}"[:200]
    if any(last < first for first, last in pairs):
        return f"a range that ends before it begins: {pairs!r}"[:200]
    if sum(last - first + 1 for first, last in pairs) > _OFFSETS_MAX:
        return "more offsets than a partition can hold"
    return pairs


_OFFSETS_MAX: Final = 1 << 27
