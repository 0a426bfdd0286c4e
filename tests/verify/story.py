"""A small healthy ledger: a commit over two partitions, an abort, offsets in a transaction, snapshots in between."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tests.verify.raw_ledger import Ledger, Row, java_partition, marker

LOAD = "load"  # transactional id of producer 0
SUMS = "sums"  # transactional id of producer 1
GROUP = "readers"


@dataclass(slots=True)
class Story:
    """The ledger, and the places of its parts."""

    ledger: Ledger
    load_home: int
    sums_home: int
    group_home: int
    commit_row: int  # PrepareCommit of LOAD
    abort_row: int  # PrepareAbort of LOAD
    sums_row: int  # PrepareCommit of SUMS
    files: dict[str, Row]  # descriptor rows by name

    def path(self, name: str) -> str:
        """The key of a data file."""
        topic, partition, _ = name.split("/")
        return f"topics/{topic}/0/{partition}/{self.files[name]['data_path']}"

    def entry(self, topic: str, partition: int, base: int) -> str:
        """The key of an entry."""
        return self.ledger.entry_key(topic, partition, base)


def healthy() -> Story:
    """Build the ledger. Offsets of payments-0: 0-2 and 3-4 by producer 0, 5-6 plain, a commit at 7, 8-9
    aborted by 10, 11 plain."""
    ledger = Ledger()
    ledger.create()
    ledger.topic("payments", 2)
    ledger.topic("balances", 1)
    homes = {name: java_partition(name, ledger.internal_partitions) for name in (LOAD, SUMS, GROUP)}
    files: dict[str, Row] = {}
    commit_row = _commit_load(ledger, files)
    abort_row = _abort_load(ledger, files)
    sums_row = _commit_sums(ledger, files, homes[GROUP])
    return Story(ledger, homes[LOAD], homes[SUMS], homes[GROUP], commit_row, abort_row, sums_row, files)


def _commit_load(ledger: Ledger, files: dict[str, Row]) -> int:
    both = [("payments", 0, 0), ("payments", 0, 1)]
    ledger.transaction(LOAD, "Empty", 0, 0)
    ledger.transaction(LOAD, "Ongoing", 0, 0, partitions=both[:1])
    ledger.transaction(LOAD, "Ongoing", 0, 0, partitions=both)
    for name, partition, pid, sequence, count in (
        ("payments/0/first", 0, 0, 0, 3),
        ("payments/1/first", 1, 0, 0, 3),
        ("payments/0/second", 0, 0, 3, 2),
        ("payments/0/plain", 0, 5, 0, 2),
    ):
        files[name] = ledger.batch(
            "payments", partition, pid, 0, sequence, count=count, transactional=pid == 0
        )
        ledger.entry("payments", partition, files[name])
    _snapshot_open(ledger, files)
    ids = {"run_id": "day-1", "committed_run_ids": ["day-1"]}
    prepared = ledger.transaction(LOAD, "PrepareCommit", 0, 1, partitions=both, **ids)
    ledger.entry("payments", 0, marker(0, 1, "commit", prepared))
    ledger.entry("payments", 1, marker(0, 1, "commit", prepared))
    ledger.transaction(LOAD, "CompleteCommit", 0, 1, decision_offset=prepared, **ids)
    return prepared


def _abort_load(ledger: Ledger, files: dict[str, Row]) -> int:
    ids = {"committed_run_ids": ["day-1"]}
    places = [("payments", 0, 0)]
    ledger.transaction(LOAD, "Ongoing", 0, 1, partitions=places, **ids)
    files["payments/0/aborted"] = ledger.batch("payments", 0, 0, 1, 0, count=2, transactional=True)
    ledger.entry("payments", 0, files["payments/0/aborted"])
    prepared = ledger.transaction(LOAD, "PrepareAbort", 0, 2, partitions=places, **ids)
    ledger.entry("payments", 0, marker(0, 2, "abort", prepared))
    ledger.transaction(LOAD, "CompleteAbort", 0, 2, decision_offset=prepared, **ids)
    files["payments/0/plain2"] = ledger.batch("payments", 0, 5, 0, 2, count=1)
    ledger.entry("payments", 0, files["payments/0/plain2"])
    _snapshot_end(ledger, files, prepared)
    return prepared


def _commit_sums(ledger: Ledger, files: dict[str, Row], group_home: int) -> int:
    places = [("__consumer_offsets", 0, group_home), ("balances", 0, 0)]
    ledger.transaction(SUMS, "Empty", 1, 0)
    ledger.transaction(SUMS, "Ongoing", 1, 0, partitions=places)
    files["balances/0/first"] = ledger.batch("balances", 0, 1, 0, 0, count=2, transactional=True)
    ledger.entry("balances", 0, files["balances/0/first"])
    ledger.commit(GROUP, "payments", 0, 12, 1, 0, fetched_row=-1, fetched_end=0)
    _snapshot_pending(ledger, group_home)
    prepared = ledger.transaction(SUMS, "PrepareCommit", 1, 1, partitions=places)
    ledger.entry("balances", 0, marker(1, 1, "commit", prepared))
    ledger.entry("__consumer_offsets", group_home, marker(1, 1, "commit", prepared))
    ledger.transaction(SUMS, "CompleteCommit", 1, 1, decision_offset=prepared)
    ledger.commit(GROUP, "payments", 0, 12, fetched_row=0, member_id="me")
    _snapshot_coordinator(ledger)
    return prepared


def open_load(story: Story) -> None:
    """Begin a third transaction of LOAD, with payments-0 in it and a batch there at 12."""
    ledger = story.ledger
    ids = {"committed_run_ids": ["day-1"]}
    ledger.transaction(LOAD, "Ongoing", 0, 2, partitions=[("payments", 0, 0)], **ids)
    ledger.entry("payments", 0, ledger.batch("payments", 0, 0, 2, 0, transactional=True))


# --- snapshots, written out by hand -----------------------------------------------------------------------


def file_row(row: Row, base: int, status: str, died_ms: int = -1) -> Row:
    """A snapshot's row for a data file."""
    names = (
        "producer_id",
        "producer_epoch",
        "record_count",
        "first_timestamp",
        "data_path",
        "data_bytes",
        "checksum",
    )
    return {
        **{name: row[name] for name in names},
        "status": status,
        "died_ms": died_ms,
        "base_offset": base,
        "last_offset": base + row["record_count"] - 1,
        "max_timestamp": row["first_timestamp"],
    }


def producer_row(
    pid: int, epoch: int, coordinator_epoch: int, times: tuple[int, int], opened: int, *batches: Any
) -> Row:
    """A snapshot's row for a producer. Times: last timestamp and append time. Batches: (base sequence, base
    offset, count, timestamp)."""
    return {
        "producer_id": pid,
        "producer_epoch": epoch,
        "coordinator_epoch": coordinator_epoch,
        "last_timestamp": times[0],
        "append_time": times[1],
        "open_first_offset": opened,
        "batches": [
            {
                "base_sequence": sequence,
                "last_sequence": sequence + count - 1,
                "base_offset": base,
                "last_offset": base + count - 1,
                "timestamp": stamp,
            }
            for sequence, base, count, stamp in batches
        ],
    }


def partition_row(end: int, append_time: int, stable: int) -> Row:
    """A snapshot's first row."""
    return {
        "log_end_offset": end,
        "last_append_time": append_time,
        "log_start_offset": 0,
        "entries_start": 0,
        "floor": 0,
        "last_stable_offset": stable,
        "cleaned_to": 0,
        "tombstones_to": 0,
        "horizon_to": 0,
        "horizon_ms": -1,
    }


def _snapshot_open(ledger: Ledger, files: dict[str, Row]) -> None:
    first, second, plain = (files[f"payments/0/{name}"] for name in ("first", "second", "plain"))
    stamps = [row["first_timestamp"] for row in (first, second, plain)]
    times = [(stamp, stamp + 1_000) for stamp in stamps]  # the clock moves a second with every entry
    ledger.snapshot(
        "payments",
        0,
        7,
        [
            ("partition", partition_row(7, ledger.now_ms, 0)),
            ("producer", producer_row(0, 0, -1, times[1], 0, (0, 0, 3, stamps[0]), (3, 3, 2, stamps[1]))),
            ("producer", producer_row(5, 0, -1, times[2], -1, (0, 5, 2, stamps[2]))),
            ("file", file_row(first, 0, "undecided")),
            ("file", file_row(second, 3, "undecided")),
            ("file", file_row(plain, 5, "live")),
        ],
    )


def _snapshot_end(ledger: Ledger, files: dict[str, Row], prepared: int) -> None:
    aborted_at = ledger.rows(ledger.entry_key("payments", 0, 10))[0]["append_time"]
    plain, plain2 = files["payments/0/plain"], files["payments/0/plain2"]
    batches = ((0, 5, 2, plain["first_timestamp"]), (2, 11, 1, plain2["first_timestamp"]))
    ledger.snapshot(
        "payments",
        0,
        12,
        [
            ("partition", partition_row(12, ledger.now_ms, 12)),
            ("producer", producer_row(0, 2, prepared, (aborted_at, aborted_at), -1)),
            ("producer", producer_row(5, 0, -1, (plain2["first_timestamp"], ledger.now_ms), -1, *batches)),
            ("file", file_row(files["payments/0/first"], 0, "live")),
            ("file", file_row(files["payments/0/second"], 3, "live")),
            ("file", file_row(plain, 5, "live")),
            ("file", file_row(files["payments/0/aborted"], 8, "aborted", aborted_at)),
            ("file", file_row(plain2, 11, "live")),
            ("aborted", {"producer_id": 0, "first_offset": 8, "last_offset": 10, "last_stable_offset": 11}),
        ],
    )


def _snapshot_pending(ledger: Ledger, home: int) -> None:
    row = ledger.rows(ledger.entry_key("__consumer_offsets", home, 0))[0]
    ledger.snapshot(
        "__consumer_offsets",
        home,
        1,
        [
            ("partition", partition_row(1, ledger.now_ms, 0)),
            ("producer", producer_row(1, 0, -1, (row["max_timestamp"], row["append_time"]), 0)),
            (
                "offset_commit",
                {
                    "row_offset": 0,
                    "append_time": row["append_time"],
                    "pending_producer_id": 1,
                    **row["offset_commit"],
                },
            ),
        ],
    )


def _snapshot_coordinator(ledger: Ledger) -> None:
    """Write a snapshot of the latest row of LOAD."""
    home = java_partition(LOAD, ledger.internal_partitions)
    end = ledger.ends["__transaction_state", home]
    row = ledger.rows(ledger.entry_key("__transaction_state", home, end - 1))[0]
    began = ledger.rows(ledger.entry_key("__transaction_state", home, end - 3))[0]
    times = {"append_time": row["append_time"], "start_append_time": began["append_time"]}
    ledger.snapshot(
        "__transaction_state",
        home,
        end,
        [
            ("partition", partition_row(end, row["append_time"], end)),
            ("transaction", {"row_offset": end - 1, **times, **row["transaction"]}),
        ],
    )


# --- retention and compaction -----------------------------------------------------------------------------


def rewrite_of(story: Story, *names: str, **output: Any) -> dict[str, Any]:
    """A rewrite of these files of payments-0 into one: the control's value, with an output that is written
    and named correctly."""
    bases = {"payments/0/first": 0, "payments/0/second": 3, "payments/0/plain": 5, "payments/0/plain2": 11}
    spans = [(bases[name], story.files[name]) for name in names]
    first = spans[0][0]
    deltas = [base - first + delta for base, row in spans for delta in range(row["record_count"])]
    deltas = output.pop("deltas", deltas)
    stamps = [row["first_timestamp"] for _, row in spans for _ in range(row["record_count"])][: len(deltas)]
    row = story.ledger.batch("payments", 0, count=len(deltas), deltas=deltas, stamps=stamps)
    times = {"first_timestamp": min(stamps), "max_timestamp": max(stamps)}
    written = {**file_row(row, first, "live"), **times, "last_offset": first + deltas[-1], **output}
    del written["status"], written["died_ms"]
    inputs = [row["data_path"] for _, row in spans]
    return {"inputs": inputs, "outputs": [written], "tombstones_to": -1}


def sealed(
    story: Story, *, entries_start: int = 3, log_start: int = 3, snapshots: tuple[int, ...] = (4, 7)
) -> None:
    """Run retention on payments-1: a batch at 4 to 6, snapshots, a trim at 7, and a seal over the entry at
    0."""
    ledger = story.ledger
    story.files["payments/1/later"] = ledger.batch("payments", 1, 8, 0, 0)
    ledger.entry("payments", 1, story.files["payments/1/later"])
    for end in snapshots:
        snapshot_sealed(story, end)
    if entries_start:
        value = {"log_start_offset": log_start, "entries_start": entries_start}
        ledger.control("payments", 1, "trim", value)
    ledger.seal("payments", 1, 0)


def snapshot_sealed(story: Story, end: int, **changed: Any) -> str:
    """Write the snapshot of payments-1 at 4, 7 or, after the trim, 8. Returns its key."""
    ledger = story.ledger
    times = {base: ledger.rows(story.entry("payments", 1, base))[0]["append_time"] for base in (3, 4)}
    first = file_row(story.files["payments/1/first"], 0, "live")
    rows = [("partition", partition_row(end, times[3], end))]
    rows.append(("producer", producer_row(0, 1, story.commit_row, (times[3], times[3]), -1)))
    later = story.files["payments/1/later"]
    if end > 4:
        stamp = later["first_timestamp"]
        rows[0] = ("partition", partition_row(end, times[4], end))
        rows.append(("producer", producer_row(8, 0, -1, (stamp, times[4]), -1, (0, 4, 3, stamp))))
    if end > 7:
        trimmed = ledger.rows(story.entry("payments", 1, 7))[0]["append_time"]
        first = file_row(story.files["payments/1/first"], 0, "replaced", trimmed)
        start = {"log_start_offset": 3, "entries_start": 3}
        rows[0] = ("partition", {**partition_row(end, trimmed, end), **start})
    rows.append(("file", first))
    if end > 4:
        rows.append(("file", file_row(later, 4, "live")))
    rows[0][1].update(changed)
    return ledger.snapshot("payments", 1, end, rows)


def sealed_coordinator(story: Story) -> None:
    """Seal the coordinator's log of SUMS below the two rows with which its id was taken over again. The id is
    at rest."""
    start = story.ledger.ends["__transaction_state", story.sums_home]
    for epoch in (2, 3):
        story.ledger.transaction(SUMS, "Empty", 1, epoch)
        snapshot_sums(story, began_ms=-1)
    seal_sums(story, start)


def snapshot_sums(story: Story, *, began_ms: int) -> None:
    """Write a snapshot after the latest row of SUMS, whose transaction began at this time."""
    ledger, home = story.ledger, story.sums_home
    end = ledger.ends["__transaction_state", home]
    row = ledger.rows(story.entry("__transaction_state", home, end - 1))[0]
    latest = {"row_offset": end - 1, "append_time": row["append_time"], "start_append_time": began_ms}
    rows = [
        ("partition", partition_row(end, row["append_time"], end)),
        ("transaction", {**latest, **row["transaction"]}),
    ]
    ledger.snapshot("__transaction_state", home, end, rows)


def seal_sums(story: Story, start: int) -> None:
    """Trim and seal the coordinator's log of SUMS below `start`."""
    ledger, home = story.ledger, story.sums_home
    ledger.control("__transaction_state", home, "trim", {"log_start_offset": 0, "entries_start": start})
    for base in range(start):
        ledger.seal("__transaction_state", home, base)
