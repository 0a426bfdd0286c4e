"""Cuts: whether each is an object of the format, and what it names is there (docs/FORMAT.md, "JSON objects")."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any, Final

from txn_engine.verify.findings import FindingLog, Place
from txn_engine.verify.objects import ObjectReader
from txn_engine.verify.raw_object import Damaged
from txn_engine.verify.store_keys import MAX_OFFSET, is_topic_name

_GROUPS: Final = "__consumer_offsets"
_KINDS: Final = {"claim": "cut_claim", "cut": "cut", "deleted": "cut_deleted"}
_KEY = re.compile(r"cuts/([0-9]{20})/(claim|cut|deleted)\.json")
_MISSED_MAX: Final = 20
_LISTS: Final = ("offsets", "snapshots", "slots")


class CutAudit:
    """Reads the cuts of a store before its logs are read, and judges them by these: what a cut names was there then."""

    def __init__(self, reader: ObjectReader, findings: FindingLog) -> None:
        self._reader = reader
        self._findings = findings
        self._named: list[tuple[str, Place, int, int]] = []

    def read(self) -> None:
        """Every cut, claim and tombstone."""
        parts: dict[int, set[str]] = defaultdict(set)
        for info in self._reader.listing("cuts"):
            match = _KEY.fullmatch(info.key)
            if match is not None and int(match[1]) <= MAX_OFFSET:
                parts[int(match[1])].add(match[2])
        for number in sorted(parts):
            self._judge_claim(number, parts[number])
            if "cut" in parts[number]:
                self._read_cut(number, is_deleted="deleted" in parts[number])
        for number in islice(
            (each for each in range(max(parts, default=0)) if each not in parts), _MISSED_MAX
        ):
            self._miss(number)

    def judge(self, log_ends: Mapping[Place, int | None]) -> None:
        """`log_ends`: of every partition that there is, and was judged, where its log ends; None: not to its end."""
        for key, place, offset, snapshot in self._named:
            end = log_ends.get(place)
            if end is None:
                continue  # of a topic that was deleted since, or of a damaged log
            if max(offset, snapshot) > end:
                seen = f"offset {offset} and a snapshot at {snapshot} of {place}"
                self._findings.add(
                    "cut-unreadable", key, seen, expected=f"at most {end}, the log's end", place=place
                )
            elif snapshot and not self._is_there(f"{place.prefix}/snapshots/{snapshot:020d}.parquet"):
                seen = f"no snapshot {snapshot} of {place}"
                self._findings.add(
                    "cut-unreadable", key, seen, expected="the one that says what is inside", place=place
                )

    def _judge_claim(self, number: int, parts: set[str]) -> None:
        if "claim" not in parts:
            self._miss(number)
        for part in parts - {"cut"}:
            held = self._object(number, part)
            time = None if held is None else held.get("created_ms" if part == "claim" else "deleted_ms")
            if held is not None and (held.get("number") != number or type(time) is not int):
                self._damaged(number, part, f"number {held.get('number')!r}, time {time!r}")

    def _miss(self, number: int) -> None:
        key = cut_object_key(number, "claim")
        if self._reader.read(key, lambda raw: raw.json("cut_claim")) is None:
            self._findings.add(
                "object-missing", key, "no such object", expected="a claim to each cut's number"
            )

    def _read_cut(self, number: int, *, is_deleted: bool) -> None:
        held = self._object(number, "cut")
        if held is None:
            return
        try:
            if held["is_void"] is not True and not is_deleted:
                self._named += [(cut_object_key(number, "cut"), *log) for log in logs_of_cut(held, number)]
        except (KeyError, TypeError, ValueError) as error:
            self._damaged(number, "cut", f"{type(error).__name__}: {error}")

    def _is_there(self, key: str) -> bool:
        return self._reader.read(key, lambda _: True) is not None

    def _object(self, number: int, part: str) -> dict[str, Any] | None:
        """The object's fields; None where it has gone since it was listed, or is damaged, which is noted."""
        found = self._reader.read(cut_object_key(number, part), lambda raw: raw.json(_KINDS[part]))
        if isinstance(found, Damaged):
            self._damaged(number, part, found.reason)
            return None
        return found

    def _damaged(self, number: int, part: str, seen: str) -> None:
        self._findings.add(
            "object-damaged",
            cut_object_key(number, part),
            seen,
            expected=f"a {part} of cut {number}, as it was written",
        )


def logs_of_cut(held: Mapping[str, Any], number: int) -> Iterator[tuple[Place, int, int]]:
    """Each log's place, offset and snapshot; ValueError, KeyError or TypeError for what is no cut."""
    if held["number"] != number:
        raise ValueError(f"number {held['number']!r}")
    groups = {"topic": _GROUPS, "incarnation": 0, **held["groups"]}
    for topic in [*held["topics"], groups]:
        name, incarnation = topic["topic"], topic["incarnation"]
        if type(incarnation) is not int or not (name == _GROUPS or is_topic_name(name)):
            raise ValueError(f"topic {name!r:.80}, incarnation {incarnation!r:.20}")
        for at, numbers in enumerate(zip(*(topic[each] for each in _LISTS), strict=True)):
            offset, snapshot, slot = numbers
            if not all(type(each) is int and 0 <= each <= MAX_OFFSET for each in numbers) or slot > offset:
                raise ValueError(f"offset {offset!r}, snapshot {snapshot!r}, slot {slot!r} of {name}-{at}")
            yield Place(name, incarnation, at), offset, snapshot


def cut_object_key(number: int, part: str = "cut") -> str:
    """Of what there is of a number."""
    return f"cuts/{number:020d}/{part}.json"
