"""The order in which objects landed and were deleted: only a seal overwrites anything, and entries follow one
another."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterator, Sequence

import pyarrow as pa
import pyarrow.parquet as pq

_ENTRY = re.compile(r"(topics/.+/[0-9]+)/log/([0-9]{20})\.parquet")
_SNAPSHOT = re.compile(r"(topics/.+/[0-9]+)/snapshots/([0-9]{20})\.parquet")
_INCARNATION = re.compile(r"topics/([^/]+)/([0-9]+)/")
_TOPIC = re.compile(r"topics/([^/]+)/([0-9]+)\.json")
_SNAPSHOTS_KEPT = 2
_COORDINATOR = "topics/__transaction_state/"


def check_landed(landed: Sequence[tuple[int, str, bytes, str]]) -> list[str]:
    """Invariants 1 and 6, judged at the moment when each object landed.

    An entry lands exactly at the end of its log at that time, and stays as it is unless a seal replaces it. A
    snapshot is deleted only if two newer ones are there. A producer id that a transactional id begins to use
    has not been used before. Objects of a topic after its tombstone are not judged.
    """
    landed = list(_of_the_living(landed))
    found = _check_snapshots(landed)
    owners = _Owners()
    ends: dict[str, int] = {}
    first: dict[str, bytes] = {}
    for at, key, data, operation in landed:
        when = f"at {at / 1e6:.3f} s"
        match = _ENTRY.fullmatch(key)
        if match is None:
            continue
        if operation == "delete":
            found.append(f"log: {key} was deleted {when}")
            continue
        file = pq.ParquetFile(pa.BufferReader(data))
        if (file.metadata.metadata or {}).get(b"txn_engine.kind") == b"seal":
            if key not in first:
                found.append(f"log: a seal came to {key} {when}, where no entry was")
            continue
        if first.setdefault(key, data) != data:
            found.append(f"log: the entry {key} was overwritten {when}")
            continue
        partition, base = match[1], int(match[2])
        end = ends.get(partition, 0)
        if base != end:
            found.append(f"log: the entry {key} landed {when}, when the log ended at {end}")
        ends[partition] = _last_offset(file) + 1
        if partition.startswith(_COORDINATOR):
            found += [f"log: {finding} in {key} {when}" for finding in owners.add(file)]
    return found


Landed = tuple[int, str, bytes, str]


def _of_the_living(landed: Sequence[Landed]) -> Iterator[Landed]:
    dead: set[tuple[str, str]] = set()
    for each in landed:
        below, tombstone = _INCARNATION.match(each[1]), _TOPIC.fullmatch(each[1])
        if tombstone is not None and json.loads(each[2])["deleted"]:
            dead.add((tombstone[1], str(int(tombstone[2]) - 1)))
        if below is None or below.groups() not in dead:
            yield each


class _Owners:
    """The owner of each producer id, by the coordinator's rows in the order in which they landed."""

    def __init__(self) -> None:
        self._owners: dict[int, str] = {}
        self._present: dict[str, int] = {}

    def add(self, file: pq.ParquetFile) -> list[str]:
        """Add an entry. Returns what is wrong with it."""
        found = []
        for row in file.read(columns=["transaction"], use_threads=False).column(0).to_pylist():
            if row is None:
                continue
            name, producer_id = row["transactional_id"], row["producer_id"]
            if producer_id >= 0 and self._present.get(name) != producer_id:
                if producer_id in self._owners:
                    had = self._owners[producer_id]
                    found.append(f"{name} begins to use producer id {producer_id}, which {had} has used")
                self._owners[producer_id] = name
            self._present[name] = producer_id
        return found


def _check_snapshots(landed: Sequence[tuple[int, str, bytes, str]]) -> list[str]:
    found: list[str] = []
    there: dict[str, set[int]] = defaultdict(set)
    for at, key, _, operation in landed:
        match = _SNAPSHOT.fullmatch(key)
        if match is None:
            continue
        ends, end = there[match[1]], int(match[2])
        if operation != "delete":
            ends.add(end)
            continue
        ends.discard(end)
        newer = sorted(each for each in ends if each > end)
        if len(newer) < _SNAPSHOTS_KEPT:
            found.append(
                f"log: the snapshot {key} was deleted at {at / 1e6:.3f} s, with {newer} alone behind it"
            )
    return found


def _last_offset(file: pq.ParquetFile) -> int:
    return int(max(file.read(columns=["last_offset"], use_threads=False).column(0).to_pylist()))
