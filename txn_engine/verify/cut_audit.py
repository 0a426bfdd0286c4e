"""Cuts: whether each is an object of the format, and what it names is there (docs/FORMAT.md, "JSON objects")."""

from __future__ import annotations

import re
from array import array
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from operator import itemgetter
from typing import Any, Final

from txn_engine.verify.cut_spans import Spans, TornCuts
from txn_engine.verify.findings import FindingLog, Place, Witness
from txn_engine.verify.held_files import Holder
from txn_engine.verify.objects import ObjectReader
from txn_engine.verify.raw_object import Damaged, RawObject
from txn_engine.verify.store_keys import MAX_OFFSET, is_topic_name, offset_in_name

_GROUPS: Final = "__consumer_offsets"
_COORDINATOR: Final = "__transaction_state"
_KINDS: Final = {"claim": "cut_claim", "cut": "cut", "deleted": "cut_deleted"}
_KEY = re.compile(r"cuts/([0-9]{20})/(claim|cut|deleted)\.json")
_MISSED_MAX: Final = 20
CLAIM_MS: Final = 3_600_000
"""After so long nobody makes the cut any more that was claimed."""
_LISTS: Final = ("offsets", "snapshots", "slots")


@dataclass(slots=True)
class _Named:
    """What the cuts name in one log, in columns: the number of each, its offset, its snapshot."""

    numbers: array[int] = field(default_factory=lambda: array("q"))
    offsets: array[int] = field(default_factory=lambda: array("q"))
    snapshots: array[int] = field(default_factory=lambda: array("q"))

    def __iter__(self) -> Iterator[array[int]]:
        return iter((self.numbers, self.offsets, self.snapshots))


class CutAudit:
    """Reads the cuts of a store before its logs are read, and judges them by these: what a cut names was there then. No
    committed transaction lies half inside.
    """

    def __init__(self, reader: ObjectReader, findings: FindingLog) -> None:
        self._reader = reader
        self._findings = findings
        self._named: dict[Place, _Named] = {}
        self._torn = TornCuts()
        self._decided: dict[
            int, tuple[int, int]
        ] = {}  # of the coordinator's logs: the furthest end, and its cut
        self._told: set[int] = set()  # cuts that were said to tear something
        self._claimed: dict[int, int] = {}  # when numbers were claimed of which there is nothing else, in ms
        self._void: set[int] = set()

    def read(self) -> None:
        """Every cut, claim and tombstone."""
        parts: dict[int, set[str]] = defaultdict(set)
        infos = [info for info in self._reader.listing("cuts") if _is_part(info.key)]
        for info in infos:
            number, part = _number_and_part(info.key)
            parts[number].add(part)
        for number in sorted(parts):
            if "claim" not in parts[number]:
                self._miss(number)
        for info, held in self._reader.read_in_order(infos, _decoded):
            number, part = _number_and_part(info.key)
            if isinstance(held, Damaged):
                self._damaged(number, part, held.reason)
            elif held is not None and part == "cut":
                self._take_cut(number, held, is_deleted="deleted" in parts[number])
            elif held is not None:
                self._judge_time(number, part, held)
                if parts[number] == {"claim"} and type(held.get("created_ms")) is int:
                    self._claimed[number] = held["created_ms"]
        for number in islice(
            (each for each in range(max(parts, default=0)) if each not in parts), _MISSED_MAX
        ):
            self._miss(number)

    def see(self, place: Place, spans: Spans) -> None:
        """Where the committed transactions of a log lie. One finding for each cut that tears any."""
        for torn in self._torn.see(place, spans, _GROUPS):
            if torn.number not in self._told:
                self._told.add(torn.number)
                self._findings.add(
                    "cut-torn",
                    cut_object_key(torn.number),
                    f"rows of a committed transaction in {place}, {torn.side}",
                    expected="all of its rows below the cut, or all at or above it, in each of its logs",
                    place=place,
                    offsets=(torn.first, torn.last),
                    producer_id=torn.producer_id,
                )

    def witnesses(self) -> Iterator[tuple[Place, Witness]]:
        """How far each log went when it was cut."""
        for place, named in self._named.items():
            number, offset, _ = max(zip(*named, strict=True), key=itemgetter(1, 0))
            yield place, Witness(offset, f"cut {number}")
        for partition, (offset, number) in self._decided.items():
            yield Place(_COORDINATOR, 0, partition), Witness(offset, f"cut {number}")

    def holders(self) -> Iterator[tuple[Place, Holder]]:
        """What each cut reads of which topic's log."""
        for place, named in self._named.items():
            if place.topic != _GROUPS:
                for number, offset, snapshot in zip(*named, strict=True):
                    if snapshot > 0:
                        key, until = (cut_object_key(number, part) for part in ("cut", "deleted"))
                        yield place, Holder(snapshot, offset, f"cut {number}", key, until)

    def judge_lost(self, pinned: Mapping[int, str], now_ms: int) -> None:
        """Note the cuts whose object is gone, or may be. `pinned`: the cuts that pins name, each with such a pin: they
        were there once. Of a claim alone nobody can tell whether a cut was made.
        """
        for number in sorted({*self._claimed, *self._void}):
            key, pin = cut_object_key(number), pinned.get(number)
            is_old = now_ms - self._claimed.get(number, now_ms) >= CLAIM_MS
            if (pin is None and not is_old) or (number in self._claimed and self._is_there(key)):
                continue
            named = f"the cut that {pin} names" if pin is not None else "a cut within an hour of its claim"
            seen = "a claim that was given up" if number in self._void else "no such object"
            self._findings.add(
                "cut-lost", key, seen, expected=named, severity="error" if pin is not None else None
            )

    def judge(self, log_ends: Mapping[Place, int | None]) -> None:
        """`log_ends`: of every partition that there is, and was judged, where its log ends; None: not to its end."""
        for place, named in sorted(self._named.items()):
            end = log_ends.get(place)
            if end is not None:  # else of a topic that was deleted since, or of a damaged log
                self._judge_log(place, named, end)

    def _judge_log(self, place: Place, named: _Named, end: int) -> None:
        missing = self._missing(place, {each for each in named.snapshots if 0 < each <= end})
        for number, offset, snapshot in zip(*named, strict=True):
            key = cut_object_key(number)
            if max(offset, snapshot) > end:
                seen = f"offset {offset} and a snapshot at {snapshot} of {place}"
                self._findings.add(
                    "cut-unreadable", key, seen, expected=f"at most {end}, the log's end", place=place
                )
            elif snapshot in missing:
                seen = f"no snapshot {snapshot} of {place}"
                self._findings.add(
                    "cut-unreadable", key, seen, expected="the one that says what is inside", place=place
                )

    def _missing(self, place: Place, ends: Collection[int]) -> set[int]:
        """Those of which there is no snapshot: a listing says which there are, and that one is not only its key."""
        folder = f"{place.prefix}/snapshots/"
        listed = {offset_in_name(info.key) for info in self._reader.listing(folder)}
        return {
            end for end in ends if end not in listed and not self._is_there(f"{folder}{end:020d}.parquet")
        }

    def _judge_time(self, number: int, part: str, held: Mapping[str, Any]) -> None:
        time = held.get("created_ms" if part == "claim" else "deleted_ms")
        if held.get("number") != number or type(time) is not int:
            self._damaged(number, part, f"number {held.get('number')!r}, time {time!r}")

    def _take_cut(self, number: int, held: Mapping[str, Any], *, is_deleted: bool) -> None:
        try:
            if held["is_void"] is True and not is_deleted:
                self._void.add(number)
            if held["is_void"] is True or is_deleted:
                return
            logs, every_topic = list(logs_of_cut(held, number)), held["every_topic"]
            ends = held["coordinator_ends"]
            if not all(type(end) is int and 0 <= end <= MAX_OFFSET for end in ends):
                raise ValueError(f"coordinator_ends {ends!r:.80}")
            if type(every_topic) is not bool:
                raise ValueError(f"every_topic {every_topic!r:.20}")
        except (KeyError, TypeError, ValueError) as error:
            self._damaged(number, "cut", f"{type(error).__name__}: {error}")
            return
        for place, offset, snapshot in logs:
            named = self._named.setdefault(place, _Named())
            named.numbers.append(number)
            named.offsets.append(offset)
            named.snapshots.append(snapshot)
        for partition, end in enumerate(ends):
            self._decided[partition] = max((end, number), self._decided.get(partition, (0, number)))
        topics = (
            None
            if every_topic
            else frozenset((each["topic"], each["incarnation"]) for each in held["topics"])
        )
        self._torn.add(number, topics, ((place, offset) for place, offset, _ in logs))

    def _miss(self, number: int) -> None:
        key = cut_object_key(number, "claim")
        if self._reader.read(key, lambda raw: raw.json("cut_claim")) is None:
            self._findings.add(
                "object-missing", key, "no such object", expected="a claim to each cut's number"
            )

    def _is_there(self, key: str) -> bool:
        return self._reader.read(key, lambda _: True) is not None

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


def _is_part(key: str) -> bool:
    match = _KEY.fullmatch(key)
    return match is not None and int(match[1]) <= MAX_OFFSET


def _number_and_part(key: str) -> tuple[int, str]:
    match = _KEY.fullmatch(key)
    if match is None:
        raise ValueError(key)
    return int(match[1]), match[2]


def _decoded(raw: RawObject) -> dict[str, Any]:
    return raw.json(_KINDS[_number_and_part(raw.key)[1]])


def cut_object_key(number: int, part: str = "cut") -> str:
    """Of what there is of a number."""
    return f"cuts/{number:020d}/{part}.json"
