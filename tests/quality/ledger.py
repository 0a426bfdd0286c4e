"""A small ledger made by hand: evidence in which everything is right, and functions that break one thing in
it."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

import txn_engine
from storage.memory import MemoryStore
from tests.support.internal import FEW_INTERNAL
from txn_engine import Engine
from txn_engine.quality import Amount, Declaration, Output, QualityResult, Totals
from txn_engine.quality.evidence import (
    AbortedRange,
    CommittedOffset,
    Evidence,
    GroupHistory,
    InputRows,
    PartitionEvidence,
    ReplayedFile,
    ReplayedPartition,
    SeenFile,
    TopicRows,
    TransactionState,
)
from txn_engine.quality.exactly_once import report_evidence as report_of
from txn_engine.quality.file_pass import facts_of
from txn_engine.quality.in_process import InProcess
from txn_engine.quality.input_file import read_input
from txn_engine.sql.file_parts import FilePart
from txn_engine.types import GroupOffset

SUMS = Totals(
    by={"account_id": "account_id"},
    sums={"turnover": Amount("amount", direction="type", plus=("PRIJEM",))},
    count="payments",
)
CHECK = Declaration(
    topic="payments", record_id=("trans_id",), outputs=(Output("balances", SUMS),), group_id="balances"
)

PAYMENTS = pa.schema(
    [
        ("trans_id", pa.int64()),
        ("account_id", pa.int64()),
        ("date", pa.date32()),
        ("type", pa.string()),
        ("amount", pa.decimal128(18, 2)),
        ("bank", pa.string()),
    ]
)
BALANCES = pa.schema(
    [("account_id", pa.int64()), ("turnover", pa.decimal128(28, 2)), ("payments", pa.int64())]
)

HEADER = "trans_id;account_id;date;type;amount;bank"
ROWS = [
    (101, 1, "930101", "PRIJEM", "700.00", ""),
    (102, 2, "930101", "PRIJEM", "1000.10", "AB"),
    (103, 1, "930102", "VYDAJ", "50.05", ""),
    (104, 2, "930102", "VYBER", "0.20", ""),
    (105, 3, "930103", "PRIJEM", "90071992547409.93", "YZ"),
    (106, 3, "930103", "VYDAJ", "0.01", ""),
    (107, 1, "930104", "PRIJEM", "12.00", "a | b=c\\"),
    (108, 2, "930104", "PRIJEM", "3.00", ""),
]
"""The amount of 105 is one that a float of cents cannot tell from its neighbour."""

PLACES = {
    101: (0, 0),
    103: (0, 1),
    105: (0, 6),
    106: (0, 7),
    102: (1, 0),
    104: (1, 1),
    107: (1, 3),
    108: (1, 4),
}
"""Where each record stands. Partition 0: 0-1 producer 7, 2 marker, 3-4 producer 9 (aborted), 5 its marker,
6-7 producer 7, 8 marker. Partition 1: 0-1, 2 marker, 3-4, 5 marker, all of producer 7."""


def write_input(path: Path, rows: Sequence[Sequence[object]] = ROWS, header: str = HEADER) -> Path:
    """Write the ledger's rows as their input file, separated by `;` with strings in quotes."""
    lines = [";".join(f'"{name}"' for name in header.split(";"))]
    for trans_id, account, date, kind, amount, bank in rows:
        lines.append(f'{trans_id};{account};{date};"{kind}";{amount};"{bank}"')
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def payments_table(rows: Sequence[Sequence[object]] = ROWS) -> pa.Table:
    """The rows as the topic has them: dates, decimals, and null for an empty string."""
    columns = list(zip(*rows, strict=True))
    columns[2] = tuple(
        dt.date(1900 + int(str(cell)[:2]), int(str(cell)[2:4]), int(str(cell)[4:])) for cell in columns[2]
    )
    columns[4] = tuple(Decimal(str(cell)) for cell in columns[4])
    columns[5] = tuple(cell or None for cell in columns[5])
    return pa.table(
        [pa.array(column, field.type) for column, field in zip(columns, PAYMENTS, strict=True)],
        schema=PAYMENTS,
    )


def placed(table: pa.Table, places: Sequence[tuple[int, int]]) -> pa.Table:
    """A table with the `_partition` and `_offset` columns that a read adds."""
    return table.append_column(
        "_partition", pa.array([place[0] for place in places], pa.int32())
    ).append_column("_offset", pa.array([place[1] for place in places], pa.int64()))


def offsets_table(places: Sequence[tuple[int, int]]) -> pa.Table:
    """A table with these places in `_partition` and `_offset`."""
    return pa.table(
        {
            "_partition": pa.array([place[0] for place in places], pa.int32()),
            "_offset": pa.array([place[1] for place in places], pa.int64()),
        }
    )


def balances_table(rows: Sequence[tuple[int, str, int]]) -> pa.Table:
    """Rows of the output, with account, turnover and payments."""
    accounts, turnovers, counts = zip(*rows, strict=True)
    return pa.table(
        [
            pa.array(accounts, pa.int64()),
            pa.array([Decimal(t) for t in turnovers], pa.decimal128(28, 2)),
            pa.array(counts),
        ],
        schema=BALANCES,
    )


TURNOVERS = [(1, "649.95", 2), (2, "999.90", 2), (3, "90071992547409.92", 2), (1, "12.00", 1), (2, "3.00", 1)]
"""Two runs of the consumer: accounts 1 and 2 have a row of each."""


@dataclass(frozen=True, slots=True)
class LogFile:
    """A data file of the ledger: its first offset and its producer."""

    partition: int
    base_offset: int
    producer_id: int | None
    producer_epoch: int = 0


@dataclass(frozen=True, slots=True)
class HandRows(TopicRows):
    """Rows made by hand: `committed` as read_committed returns them, and `logged` places as read_uncommitted
    does, in `log_files`. The results of a look into the files are computed from these."""

    topic: str = ""
    committed: pa.Table = None
    logged: pa.Table = None
    log_files: tuple[LogFile, ...] = ()


def hand_rows(
    topic: str,
    schema: pa.Schema,
    committed: pa.Table,
    logged: pa.Table,
    log_files: tuple[LogFile, ...],
    ends: dict[int, int],
) -> HandRows:
    """The result of reading a topic with these rows."""
    seen = [_seen(topic, schema, file, part) for file, part in _by_file(committed, log_files)]
    places = set(_places(committed))
    left = [place for place in _places(logged) if place not in places]
    hidden = [
        SeenFile(
            f"topics/{topic}/0/{file.partition}/data/hidden-{file.base_offset}",
            file.partition,
            part.num_rows,
            min(part["_offset"].to_pylist()),
            max(part["_offset"].to_pylist()),
            file.producer_id,
        )
        for file, part in _by_file(offsets_table(left), log_files)
    ]
    return HandRows(
        schema=schema,
        rows=committed,
        files=tuple(seen),
        hidden=tuple(hidden),
        ends=ends,
        topic=topic,
        committed=committed,
        logged=logged,
        log_files=log_files,
    )


def _places(table: pa.Table) -> list[tuple[int, int]]:
    return list(zip(table["_partition"].to_pylist(), table["_offset"].to_pylist(), strict=True))


def _by_file(table: pa.Table, log_files: Sequence[LogFile]) -> list[tuple[LogFile, pa.Table]]:
    """The rows of each file, in the order of the files and of their rows."""
    rows: dict[LogFile, list[int]] = {}
    for row, (partition, offset) in enumerate(_places(table)):
        below = [file for file in log_files if file.partition == partition and file.base_offset <= offset]
        file = max(below, key=lambda each: each.base_offset)
        rows.setdefault(file, []).append(row)
    return [(file, table.take(found)) for file, found in rows.items()]


def _seen(topic: str, schema: pa.Schema, file: LogFile, rows: pa.Table) -> SeenFile:
    key = f"topics/{topic}/0/{file.partition}/data/{file.base_offset}"
    part = FilePart(key, 0, file.partition, file.base_offset, 0, 1 << 62, is_whole=True)
    facts = facts_of(part, [rows], "_offset", schema)
    return SeenFile(
        key,
        file.partition,
        facts.records,
        facts.first_offset,
        facts.last_offset,
        file.producer_id,
        file.producer_epoch,
        facts.falls,
        facts.repeats,
        facts.first_fault,
        facts.digest,
    )


def output_rows(rows: Sequence[tuple[int, str, int]] = TURNOVERS) -> HandRows:
    """The output topic, with one partition and one offset for each row."""
    places = [(0, offset) for offset in range(len(rows))]
    committed = placed(balances_table(rows), places)
    files = (LogFile(0, 0, 8),)
    return hand_rows("balances", BALANCES, committed, offsets_table(places), files, {0: len(rows) + 1})


COMMITS = (
    CommittedOffset(0, 0, 3, 8, 0, ""),
    CommittedOffset(1, 1, 3, 8, 0, ""),
    CommittedOffset(0, 3, 9, 8, 0, ""),
    CommittedOffset(1, 4, 6, 8, 0, ""),
)
"""What the group committed, with its output, in two steps."""


def good_evidence(tmp_path: Path) -> Evidence:
    """Evidence of a ledger in which everything is right. One transaction of two records was aborted."""
    records = sorted(ROWS, key=lambda row: PLACES[row[0]])
    places = [PLACES[row[0]] for row in records]
    payments = hand_rows(
        "payments",
        PAYMENTS,
        placed(payments_table(records), places),
        offsets_table(sorted([*places, (0, 3), (0, 4)])),
        (LogFile(0, 0, 7), LogFile(0, 3, 9), LogFile(0, 6, 7), LogFile(1, 0, 7), LogFile(1, 3, 7)),
        {0: 9, 1: 6},
    )
    found = Evidence(
        check=CHECK,
        store="file:///srv/ledger",
        gathered_ms=1_795_000_000_000,
        input=input_rows(tmp_path),
        rows={"payments": payments, "balances": output_rows()},
        partitions=(
            PartitionEvidence("payments", 0, 0, 9, 9, 0),
            PartitionEvidence("payments", 1, 0, 6, 6, 0),
            PartitionEvidence("balances", 0, 0, 6, 6, 0),
        ),
        replayed=(
            ReplayedPartition("payments", 0, 9, 9, 4, aborted=(AbortedRange(9, 3, 5),)),
            ReplayedPartition("payments", 1, 6, 6, 4),
            ReplayedPartition("balances", 0, 6, 6, len(TURNOVERS)),
        ),
        group=(
            GroupOffset("payments", 0, 9, -1, -1, 9, 0, "", 0),
            GroupOffset("payments", 1, 6, -1, -1, 6, 0, "", 0),
        ),
        transactions=(TransactionState("load", "CompleteCommit"), TransactionState("lost", "CompleteAbort")),
        group_history=GroupHistory(True, COMMITS, frozenset({(8, 0)})),
    )
    return all_visible(found)


def input_rows(folder: Path, rows: Sequence[Sequence[object]] = ROWS) -> InputRows:
    """The rows of an input file, as they are read."""
    file = write_input(folder / "trans.csv", rows)
    found = read_input(file, CHECK, PAYMENTS, folder / "input.parquet")
    return replace(found, rows=pq.read_table(found.rows))


def with_replayed(evidence: Evidence, topic: str, partition: int, **changes: object) -> Evidence:
    """The evidence with changes to one partition as the auditor replayed it."""
    found = tuple(
        replace(state, **changes)  # type: ignore[arg-type]
        if (state.topic, state.partition) == (topic, partition)
        else state
        for state in evidence.replayed
    )
    return replace(evidence, replayed=found)


def all_visible(evidence: Evidence) -> Evidence:
    """The evidence with a replayed log that has the records that readers see, in the same files, and the ends
    that the engine reports."""
    aborted = {(found.topic, found.partition): found.aborted for found in evidence.replayed}
    found = []
    for state in evidence.partitions:
        files = evidence.rows[state.topic].of(state.partition) if state.topic in evidence.rows else []
        live = tuple(
            ReplayedFile(file.key, file.first_offset, file.last_offset, file.records)
            for file in files
            if file.records
        )
        found.append(
            ReplayedPartition(
                state.topic,
                state.partition,
                state.last_stable_offset,
                state.high_watermark,
                sum(file.record_count for file in live),
                state.log_start_offset,
                aborted=aborted.get((state.topic, state.partition), ()),
                live=live,
            )
        )
    return replace(evidence, replayed=tuple(found))


def with_rows(evidence: Evidence, topic: str, **changes: object) -> Evidence:
    """The evidence with changes to the rows of one topic."""
    held = evidence.rows[topic]
    assert isinstance(held, HandRows)
    parts = {
        "committed": held.committed,
        "logged": held.logged,
        "log_files": held.log_files,
        "ends": held.ends,
        **changes,
    }
    rows = hand_rows(topic, held.schema, **parts)  # type: ignore[arg-type]
    return replace(evidence, rows={**evidence.rows, topic: rows})


def with_payments(evidence: Evidence, **changes: object) -> Evidence:
    """The evidence with changes to the rows of `payments`."""
    return with_rows(evidence, "payments", **changes)


def report_evidence(evidence: Evidence, **arguments: Any) -> QualityResult:
    """A complete report of the evidence."""
    with InProcess(MemoryStore()) as reducer:
        return report_of(evidence, reducer, **arguments)


def write(engine: Engine, topic: str, rows: pa.Table) -> None:
    """Append the rows in one transaction."""
    with engine.producer(transactional_id=f"load-{topic}") as producer:
        producer.init_transactions()
        with producer.transaction():
            producer.produce(topic, rows)


def create(engine: Engine, topic: str, rows: pa.Table) -> None:
    """Create a topic of one partition with these rows."""
    engine.admin.create_topic(topic, partitions=1, schema=rows.schema)
    write(engine, topic, rows)


def in_memory(name: str, *prepare: Callable[[Engine], object]) -> Iterator[Engine]:
    """An engine on a store in memory of this name, for a fixture."""
    with txn_engine.connect(f"memory://{name}", configs=FEW_INTERNAL) as engine:
        for each in prepare:
            each(engine)
        yield engine
