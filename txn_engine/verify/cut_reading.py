"""A cut as the auditor reads it: the snapshots that it names, by code of its own, and the files that they list."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from storage.store import ObjectStore
from txn_engine.verify.audited_partition import AbortedEntry, AuditedPartition, StoredCommit
from txn_engine.verify.cut_audit import cut_object_key, logs_of_cut
from txn_engine.verify.data_file_audit import DataFileAudit, FilesToRead
from txn_engine.verify.file_table import DataFile, FileTable
from txn_engine.verify.findings import Finding, FindingLog, Place
from txn_engine.verify.hashing import home_partition
from txn_engine.verify.limits import SNAPSHOT
from txn_engine.verify.objects import ObjectReader
from txn_engine.verify.raw_object import Damaged
from txn_engine.verify.report import Tally
from txn_engine.verify.snapshot_audit import restore, snapshot_rows

_GROUPS = "__consumer_offsets"
_WORKERS = 8


@dataclass(frozen=True, slots=True)
class LogAtCut:
    """A partition as of a cut: the offset below which its records are inside; the state that the cut names says the
    rest. live: the files with records below the offset; aborted: what was aborted there.
    """

    offset: int
    log_start_offset: int
    log_end_offset: int
    last_stable_offset: int
    live: tuple[DataFile, ...]
    aborted: tuple[AbortedEntry, ...]


@dataclass(frozen=True, slots=True)
class CutAsRead:
    """What the raw objects say of a cut. `logs`: of partitions whose snapshot is sound. `positions`: by partition where
    the group stood, None where its log's snapshot is not sound. `group_end`: where the cut goes through that log.
    """

    logs: Mapping[Place, LogAtCut]
    positions: Mapping[Place, int] | None
    group_end: int
    findings: tuple[Finding, ...]


def read_cut(
    store: ObjectStore,
    number: int,
    *,
    topics: Collection[str],
    group_id: str | None = None,
    known: Mapping[Place, Collection[str]],
    data_from: Mapping[Place, int],
    erased: Mapping[Place, Mapping[str, DataFile | None]],
) -> CutAsRead:
    """The cut of that number, by its raw objects; nothing of one that cannot be read.

    `known`: by partition the paths of data files that were read already: of the others each is read here, from
    `data_from` on, and held against what the snapshot says of it. `erased`: by partition what stands by now for the
    files of which records were erased. `findings`: what is wrong with them. Never raises for
    damage; errors of the store itself come as `storage.errors.StorageError`.
    """
    findings = FindingLog()
    with ObjectReader(store, Tally(), _WORKERS) as reader:
        held = reader.read(cut_object_key(number), lambda raw: raw.json("cut"))
        if held is None or isinstance(held, Damaged):
            return CutAsRead({}, None, 0, ())
        try:
            found = [*logs_of_cut(held, number)]
        except (KeyError, TypeError, ValueError):
            return CutAsRead({}, None, 0, ())
        groups = [log for log in found if log[0].topic == _GROUPS]
        logs = {}
        for place, offset, snapshot in found:
            state = _state(reader, place, snapshot) if place.topic in topics else None
            if state is not None:
                logs[place] = _log(state, offset, erased.get(place, {}))
                _judge_files(
                    reader, findings, place, logs[place], known.get(place, ()), data_from.get(place, 0)
                )
        positions, group_end = _positions(reader, held, groups, group_id) if group_id else (None, 0)
    return CutAsRead(logs, positions, group_end, tuple(findings.found))


def _state(reader: ObjectReader, place: Place, snapshot: int) -> AuditedPartition | None:
    if not snapshot:
        return AuditedPartition()
    key = f"{place.prefix}/snapshots/{snapshot:020d}.parquet"
    found = reader.read(key, lambda raw: restore(snapshot_rows(raw.parquet(SNAPSHOT))))
    if found is None or isinstance(found, Damaged):
        return None
    state, stable = found
    is_right = (state.log_end_offset, state.last_stable_offset) == (snapshot, stable)
    return state if is_right else None


def _log(state: AuditedPartition, offset: int, erased: Mapping[str, DataFile | None]) -> LogAtCut:
    live = (erased.get(file.data_path, file) for file in state.files.in_order() if file.status == "live")
    return LogAtCut(
        offset,
        state.log_start_offset,
        state.log_end_offset,
        state.last_stable_offset,
        tuple(file for file in live if file is not None and file.base_offset < offset),
        tuple(entry for entry in state.aborted if entry.first_offset < offset),
    )


def _judge_files(
    reader: ObjectReader,
    findings: FindingLog,
    place: Place,
    log: LogAtCut,
    known: Collection[str],
    data_from: int,
) -> None:
    files = FileTable()
    for file in log.live:
        if file.data_path not in known and file.last_offset >= data_from:
            files.put(file)
    if len(files):
        audit = DataFileAudit(
            place, reader, findings, None, FilesToRead(data_from), {}, np.empty(0, np.int64)
        )
        audit.run(files, now_ms=0, sound=True, progress=lambda _done, _of: None)


def _positions(
    reader: ObjectReader, held: Mapping[str, Any], groups: list[tuple[Place, int, int]], group_id: str
) -> tuple[Mapping[Place, int] | None, int]:
    """Where the group stood: by what was committed in its log's snapshot, and what was pending there and the cut names
    as committed later.
    """
    home = home_partition(group_id, len(groups))
    place, offset, snapshot = groups[home]
    state = _state(reader, place, snapshot)
    if state is None:
        return None, offset
    stored: dict[Any, StoredCommit] = dict(state.committed)
    for producer_id in held["groups"]["committed"].get(str(home), ()):
        stored |= state.pending.get(producer_id, {})
    commits = [each.commit for each in stored.values() if each.commit.group_id == group_id]
    return {
        Place(commit.topic, commit.incarnation, commit.partition): commit.offset
        for commit in commits
        if commit.offset >= 0
    }, offset
