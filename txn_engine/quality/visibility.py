"""What readers see of the log, and why they do not see the rest."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from txn_engine.quality.evidence import (
    NOT_KNOWN,
    Evidence,
    ReplayedPartition,
    TopicRows,
    need,
    replayed,
    rows_of,
)


def visible(evidence: Evidence) -> pa.Table:
    """Each record that read_committed returned, of every topic, in the order it came.

    `step`: its offset less that of the record before it in its partition (1 for the first); `aborted_by`: the producer
    whose aborted transaction it belongs to, null as it should be; `last_stable_offset` of its partition; both as the
    auditor's replay gives them.
    """
    parts = [
        _visible_part(
            topic,
            partition,
            offsets,
            rows_of(evidence, topic),
            replayed(evidence, topic, partition),
        )
        for topic in evidence.check.topics
        for partition, offsets in by_partition(rows_of(evidence, topic).committed).items()
    ]
    return pa.concat_tables(parts) if parts else _VISIBLE.empty_table()


def counted(evidence: Evidence) -> pa.Table:
    """Each partition in which all is decided: how many records read_committed returned, and how many live ones the
    auditor's replay counts.
    """
    rows: list[tuple[str, int, int, int]] = []
    for topic in evidence.check.topics:
        returned = by_partition(rows_of(evidence, topic).committed)
        need(evidence, "audit")
        rows += [
            (topic, found.partition, len(returned.get(found.partition, ())), found.live_records)
            for found in evidence.replayed
            if found.topic == topic and found.last_stable_offset == found.log_end_offset
        ]
    names = ("topic", "partition", "visible_records", "replayed_records")
    kinds = (pa.string(), pa.int32(), pa.int64(), pa.int64())
    return pa.table(
        {
            name: pa.array([row[place] for row in rows], kind)
            for place, (name, kind) in enumerate(zip(names, kinds, strict=True))
        }
    )


_VISIBLE_FIELDS: list[Any] = [
    pa.field("topic", pa.string()),
    pa.field("partition", pa.int32()),
    pa.field("offset", pa.int64()),
    pa.field("step", pa.int64()),
    pa.field("aborted_by", pa.string()),
    pa.field("last_stable_offset", pa.int64()),
]
_VISIBLE = pa.schema(_VISIBLE_FIELDS)


def _visible_part(
    topic: str, partition: int, offsets: Any, rows: TopicRows, replay: ReplayedPartition
) -> pa.Table:
    count = len(offsets)
    steps = np.diff(offsets, prepend=offsets[0] - 1) if count else offsets
    owner, known = _owners(rows, partition, offsets)
    aborted_by = np.full(count, NOT_KNOWN, np.int64)
    for transaction in replay.aborted:
        inside = (offsets >= transaction.first_offset) & (offsets <= transaction.last_offset)
        aborted_by[inside & known & (owner == transaction.producer_id)] = transaction.producer_id
    aborters = [None if producer == NOT_KNOWN else f"producer {producer}" for producer in aborted_by.tolist()]
    columns: list[Any] = [
        pa.repeat(topic, count),
        pa.array(np.full(count, partition, np.int32)),
        pa.array(offsets),
        pa.array(steps),
        pa.array(aborters, pa.string()),
        pa.array(np.full(count, replay.last_stable_offset, np.int64)),
    ]
    return pa.table(columns, schema=_VISIBLE)


def hidden(evidence: Evidence) -> pa.Table:
    """Each record that read_uncommitted returned and read_committed did not, and `reason`: why that is right.

    `aborted`: it lies in a transaction that its own producer aborted; `undecided`: it lies at or above the last stable
    offset; both by the auditor's replay. `unexplained`: neither.
    """
    parts = []
    for topic in evidence.check.topics:
        need(evidence, f"log:{topic}")
        for partition, (offsets, reasons) in hidden_offsets(evidence, topic).items():
            columns: list[Any] = [
                pa.repeat(topic, len(offsets)),
                pa.array(np.full(len(offsets), partition, np.int32)),
                pa.array(offsets),
                pa.array(reasons.tolist(), pa.string()),
            ]
            parts.append(pa.table(columns, schema=_HIDDEN))
    return pa.concat_tables(parts) if parts else _HIDDEN.empty_table()


_HIDDEN_FIELDS: list[Any] = [
    pa.field("topic", pa.string()),
    pa.field("partition", pa.int32()),
    pa.field("offset", pa.int64()),
    pa.field("reason", pa.string()),
]
_HIDDEN = pa.schema(_HIDDEN_FIELDS)


def hidden_offsets(evidence: Evidence, topic: str) -> dict[int, tuple[Any, Any]]:
    """By partition: the offsets that read_committed does not return (but those trimmed since), and why not."""
    rows = rows_of(evidence, topic)
    if rows.logged is None:
        return {}
    logged, committed = by_partition(rows.logged), by_partition(rows.committed)
    found = {}
    for partition, offsets in logged.items():
        missing = np.setdiff1d(offsets, committed.get(partition, np.array([], np.int64)))
        if not len(missing):
            continue
        replay = replayed(evidence, topic, partition)
        missing = missing[missing >= replay.log_start_offset]
        reasons = np.full(len(missing), "unexplained", dtype="<U11")
        reasons[missing >= replay.last_stable_offset] = "undecided"
        owner, known = _owners(rows, partition, missing)
        for transaction in replay.aborted:
            inside = (missing >= transaction.first_offset) & (missing <= transaction.last_offset)
            reasons[inside & (~known | (owner == transaction.producer_id))] = "aborted"
        found[partition] = (missing, reasons)
    return found


def by_partition(table: pa.Table) -> dict[int, Any]:
    """The offsets of a scan by partition, in the order they came."""
    numbers = table["_partition"].to_numpy()
    offsets = table["_offset"].to_numpy().astype(np.int64, copy=False)
    return {int(number): offsets[numbers == number] for number in np.unique(numbers)}


def _owners(rows: TopicRows, partition: int, offsets: Any) -> tuple[Any, Any]:
    """The producer of each record, as the name of its data file says it, and whether that is known."""
    files = sorted(
        (file.base_offset, NOT_KNOWN if file.producer_id is None else file.producer_id)
        for file in rows.files
        if file.partition == partition
    )
    if not files:
        return np.full(len(offsets), NOT_KNOWN, np.int64), np.zeros(len(offsets), bool)
    bases = np.array([base for base, _ in files], np.int64)
    producers = np.array([producer for _, producer in files], np.int64)
    place = np.searchsorted(bases, offsets, side="right") - 1
    owner = np.where(place >= 0, producers[np.maximum(place, 0)], NOT_KNOWN)
    return owner, owner != NOT_KNOWN
