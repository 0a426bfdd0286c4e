"""A small ledger made by hand: evidence in which everything is right, and the means to break one thing of it."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from dataclasses import replace
from decimal import Decimal
from pathlib import Path

import pyarrow as pa

from txn_engine.quality import ExactlyOnceCheck
from txn_engine.quality.evidence import (
    AbortedRange,
    Evidence,
    LogFile,
    PartitionEvidence,
    ReplayedPartition,
    TopicRows,
    TransactionState,
)
from txn_engine.quality.input_file import InputRows
from txn_engine.types import GroupOffset

CHECK = ExactlyOnceCheck(
    topic="payments",
    record_id="trans_id",
    account="account_id",
    amount="amount",
    direction="type",
    credit_values=("PRIJEM",),
    output_topic="balances",
    output_account="account_id",
    output_total="turnover",
    output_count="payments",
    group_id="balances",
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
    """The ledger's rows as the file they came from: `;`-separated, strings in quotes."""
    lines = [";".join(f'"{name}"' for name in header.split(";"))]
    for trans_id, account, date, kind, amount, bank in rows:
        lines.append(f'{trans_id};{account};{date};"{kind}";{amount};"{bank}"')
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def payments_table(rows: Sequence[Sequence[object]] = ROWS) -> pa.Table:
    """Rows as the topic holds them: dates, decimals, and nothing for an empty string."""
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
    """Only the two columns."""
    return pa.table(
        {
            "_partition": pa.array([place[0] for place in places], pa.int32()),
            "_offset": pa.array([place[1] for place in places], pa.int64()),
        }
    )


def balances_table(rows: Sequence[tuple[int, str, int]]) -> pa.Table:
    """Rows of the output: account, turnover, payments."""
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


def output_rows(rows: Sequence[tuple[int, str, int]] = TURNOVERS) -> TopicRows:
    """The output topic: one partition, one offset a row."""
    places = [(0, offset) for offset in range(len(rows))]
    return TopicRows(
        committed=placed(balances_table(rows), places),
        logged=offsets_table(places),
        files=(LogFile(0, 0, 8),),
        ends={0: len(rows) + 1},
    )


def good_evidence(tmp_path: Path) -> Evidence:
    """Evidence of a ledger in which everything is right; one transaction of two records was aborted."""
    records = sorted(ROWS, key=lambda row: PLACES[row[0]])
    places = [PLACES[row[0]] for row in records]
    payments = TopicRows(
        committed=placed(payments_table(records), places),
        logged=offsets_table(sorted([*places, (0, 3), (0, 4)])),
        files=(LogFile(0, 0, 7), LogFile(0, 3, 9), LogFile(0, 6, 7), LogFile(1, 0, 7), LogFile(1, 3, 7)),
        ends={0: 9, 1: 6},
    )
    columns = {name: [str(row[at]) for row in ROWS] for at, name in enumerate(HEADER.split(";"))}
    return Evidence(
        check=CHECK,
        store="file:///srv/ledger",
        gathered_ms=1_795_000_000_000,
        input=InputRows(tmp_path / "trans.csv", columns, list(range(2, 2 + len(ROWS)))),
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
    )


def with_replayed(evidence: Evidence, topic: str, partition: int, **changes: object) -> Evidence:
    """The evidence with one partition as the auditor replayed it changed."""
    found = tuple(
        replace(state, **changes)  # type: ignore[arg-type]
        if (state.topic, state.partition) == (topic, partition)
        else state
        for state in evidence.replayed
    )
    return replace(evidence, replayed=found)


def all_visible(evidence: Evidence) -> Evidence:
    """The evidence with a log that holds as many live records as readers see, and ends where the engine says."""
    counts: dict[tuple[str, int], int] = {}
    for topic, rows in evidence.rows.items():
        for number in rows.committed["_partition"].to_pylist():
            counts[topic, number] = counts.get((topic, number), 0) + 1
    aborted = {(found.topic, found.partition): found.aborted for found in evidence.replayed}
    found = tuple(
        ReplayedPartition(
            state.topic,
            state.partition,
            state.last_stable_offset,
            state.high_watermark,
            counts.get((state.topic, state.partition), 0),
            state.log_start_offset,
            aborted=aborted.get((state.topic, state.partition), ()),
        )
        for state in evidence.partitions
    )
    return replace(evidence, replayed=found)


def with_payments(evidence: Evidence, **changes: object) -> Evidence:
    """The evidence with parts of what was read of `payments` changed."""
    rows = replace(evidence.rows["payments"], **changes)  # type: ignore[arg-type]
    return replace(evidence, rows={**evidence.rows, "payments": rows})
