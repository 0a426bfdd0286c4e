"""Stores that are written raw, without the engine, each with one anomaly, and the name by which the checks
have to report it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from tests.verify.raw_ledger import Ledger, Row, java_partition, marker
from tests.verify.story import file_row, partition_row, producer_row
from txn_engine.quality import Declaration, Output, SameRows, anomalies

GROUP, LOAD, SUMS = "readers", "load", "sums"
Keys = Sequence[tuple[int, int | None]]

DECLARATION = Declaration(
    "payments",
    ("account_id",),
    (Output("copies", SameRows({"account_id": "account_id", "amount": "amount"})),),
    group_id=GROUP,
)


@dataclass(slots=True)
class Books:
    """A topic of two partitions that producer 0 loads, and copies of its records by producer 1, which commits
    the group's offsets. Each step may go wrong as its arguments say."""

    ledger: Ledger = field(default_factory=Ledger)
    epochs: dict[int, int] = field(default_factory=lambda: {0: 0, 1: 0})
    rows: dict[str, Row] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.ledger.create()
        self.ledger.topic("payments", 2)
        self.ledger.topic("copies", 1)
        self.ledger.transaction(LOAD, "Empty", 0, 0)
        self.ledger.transaction(SUMS, "Empty", 1, 0)

    @property
    def group_home(self) -> int:
        return java_partition(GROUP, self.ledger.internal_partitions)

    def load(self, batches: Sequence[tuple[int, int, Keys]], **ending: str) -> None:
        """Write one transaction: batches by partition, first sequence and records. It ends as `end` says."""
        places = [("payments", 0, partition) for partition in sorted({each[0] for each in batches})]
        epoch = self.epochs[0]
        self.ledger.transaction(LOAD, "Ongoing", 0, epoch, partitions=places)
        for partition, sequence, keys in batches:
            self.add("payments", partition, 0, sequence, keys)
        self.end(LOAD, 0, places, **ending)

    def add(
        self, topic: str, partition: int, pid: int, sequence: int, keys: Keys, *, falls: bool = False
    ) -> None:
        """Write a batch of a transaction. With `falls`, its offsets fall inside the file."""
        deltas = [0, *reversed(range(1, len(keys)))] if falls else None
        row = self.ledger.batch(
            topic, partition, pid, self.epochs[pid], sequence, transactional=True, keys=keys, deltas=deltas
        )
        self.ledger.entry(topic, partition, row)
        self.rows[f"{topic}/{partition}/{self.ledger.ends[topic, partition]}"] = row

    def end(
        self,
        tid: str,
        pid: int,
        places: Sequence[tuple[str, int, int]],
        *,
        decided: str = "Commit",
        marked: str = "",
        left: str = "",
    ) -> None:
        """Decide, mark and complete a transaction. `marked` is a different marker for the first partition,
        and `left` leaves the transaction without a decision."""
        epoch = self.epochs[pid] = self.epochs[pid] + 1
        prepared = -1
        if not left:
            prepared = self.ledger.transaction(tid, f"Prepare{decided}", pid, epoch, partitions=places)
        for number, (topic, _, partition) in enumerate(places):
            control = marked if marked and not number else decided.lower()
            row = self.ledger.ends[
                "__transaction_state", java_partition(tid, self.ledger.internal_partitions)
            ]
            self.ledger.entry(
                topic, partition, marker(pid, epoch, control, row if prepared < 0 else prepared)
            )
        if not left:
            self.ledger.transaction(tid, f"Complete{decided}", pid, epoch, decision_offset=prepared)

    def copy(self, keys: Keys, offsets: Sequence[tuple[int, int]]) -> None:
        """Write the consumer's transaction: copies, and the group's offsets by partition, which may be
        empty."""
        places = [("copies", 0, 0)] + ([("__consumer_offsets", 0, self.group_home)] if offsets else [])
        epoch = self.epochs[1]
        self.ledger.transaction(SUMS, "Ongoing", 1, epoch, partitions=places)
        self.add("copies", 0, 1, 0, keys)
        for partition, offset in offsets:
            self.ledger.commit(GROUP, "payments", partition, offset, 1, epoch)
        self.end(SUMS, 1, places)


FIRST: Keys = ((1, 10), (2, 20), (3, 30))
OTHER: Keys = ((4, 40), (5, 50))
BOTH: Keys = (*FIRST, *OTHER)
_READ = ((0, 4), (1, 3))
"""Where the group stands behind `FIRST` in partition 0, `OTHER` in 1, and the markers."""


def sound() -> Books:
    """Nothing is wrong: a load of both partitions, one that was aborted, and copies with their offsets."""
    books = Books()
    books.load([(0, 0, FIRST), (1, 0, OTHER)])
    books.load([(1, 0, [(9, 90)])], decided="Abort")
    books.copy(BOTH, [(0, 4), (1, 5)])
    return books


def lost_write() -> Books:
    """A batch that was acknowledged is not in the log: its sequence numbers are missing."""
    books = Books()
    books.load([(0, 0, FIRST[:1]), (0, 2, FIRST[2:]), (1, 0, OTHER)])
    books.copy(BOTH, [(0, 3), (1, 3)])
    return books


def not_taken() -> Books:
    """The consumer's offsets moved past one record that is not in its output."""
    books = Books()
    books.load([(0, 0, FIRST), (1, 0, OTHER)])
    books.copy(BOTH[1:], _READ)
    return books


def duplicate() -> Books:
    """A load was written again in another transaction."""
    books = Books()
    books.load([(0, 0, FIRST), (1, 0, OTHER)])
    books.load([(0, 0, FIRST[:1])])
    books.copy((*BOTH, FIRST[0]), [(0, 6), (1, 3)])
    return books


def taken_twice() -> Books:
    """The output has one record twice."""
    books = Books()
    books.load([(0, 0, FIRST), (1, 0, OTHER)])
    books.copy((*BOTH, BOTH[0]), _READ)
    return books


def aborted_read() -> Books:
    """The coordinator aborted a transaction whose marker says commit."""
    books = Books()
    books.load([(0, 0, FIRST)], decided="Abort", marked="commit")
    books.load([(1, 0, OTHER)])
    books.copy(BOTH, _READ)
    return books


def intermediate_read() -> Books:
    """The coordinator says that a transaction is open, but its partition has a commit marker."""
    books = Books()
    books.load([(1, 0, OTHER)])
    books.load([(0, 0, FIRST)], left="open")
    books.copy(BOTH, _READ)
    return books


def torn() -> Books:
    """A transaction is committed in one partition and aborted in the other."""
    books = Books()
    books.load([(0, 0, FIRST), (1, 0, OTHER)], marked="abort")
    books.copy(OTHER, _READ)
    return books


def reordered() -> Books:
    """Two batches of one producer are in the wrong order."""
    books = Books()
    books.load([(0, 1, FIRST[1:]), (0, 0, FIRST[:1]), (1, 0, OTHER)])
    books.copy(BOTH, [(0, 4), (1, 3)])
    return books


def poll_skip() -> Books:
    """A snapshot leaves out a file between two others, so readers that begin there never get it."""
    books = Books()
    books.load([(0, 0, FIRST[:1]), (0, 1, FIRST[1:2]), (0, 2, FIRST[2:]), (1, 0, OTHER)])
    books.copy(BOTH, _READ)
    ledger = books.ledger
    (mark,) = ledger.rows(ledger.entry_key("payments", 0, 3))
    files = [books.rows[f"payments/0/{end}"] for end in (1, 2, 3)]
    kept = [("file", file_row(files[at], at, "live")) for at in (0, 2)]
    time = mark["append_time"]
    ledger.snapshot(
        "payments",
        0,
        4,
        [
            ("partition", partition_row(4, time, 4)),
            ("producer", producer_row(0, 1, mark["coordinator_epoch"], (mark["max_timestamp"], time), -1)),
            *kept,
        ],
    )
    return books


def falling_offsets() -> Books:
    """Within one file the offsets fall."""
    books = Books()
    places = [("payments", 0, 0)]
    books.load([(1, 0, OTHER)])
    books.ledger.transaction(LOAD, "Ongoing", 0, books.epochs[0], partitions=places)
    books.add("payments", 0, 0, 0, FIRST, falls=True)
    books.end(LOAD, 0, places)
    books.copy(BOTH, _READ)
    return books


def moved_back() -> Books:
    """The group's offset of a partition goes back, and then forward again over the same records."""
    books = Books()
    books.load([(0, 0, FIRST), (1, 0, OTHER)])
    books.copy(FIRST, [(0, 4)])
    books.copy(OTHER, [(1, 3), (0, 2)])
    books.load([(0, 0, [(6, 60)])])
    books.copy([(6, 60)], [(0, 6)])
    return books


def without_offsets() -> Books:
    """The copies were committed in a transaction without offsets, and the group's offsets by themselves."""
    books = Books()
    books.load([(0, 0, FIRST), (1, 0, OTHER)])
    books.copy(BOTH, [])
    for partition, offset in _READ:
        books.ledger.commit(GROUP, "payments", partition, offset)
    return books


INJECTED: list[tuple[Callable[[], Books], str, str]] = [
    (lost_write, anomalies.LOST, "producers_in_order"),
    (not_taken, anomalies.LOST, "identity_in_copies"),
    (duplicate, anomalies.DUPLICATE, "record_ids_unique"),
    (taken_twice, anomalies.DUPLICATE, "identity_in_copies"),
    (aborted_read, anomalies.ABORTED_READ, "nothing_aborted_visible"),
    (intermediate_read, anomalies.INTERMEDIATE_READ, "nothing_undecided_visible"),
    (torn, anomalies.TORN, "transactions_whole"),
    (reordered, anomalies.REORDERED, "producers_in_order"),
    (poll_skip, anomalies.SKIP, "files_as_replayed"),
    (falling_offsets, anomalies.NON_MONOTONIC, "audit_clean"),
    (moved_back, anomalies.MOVED_BACK, "positions_never_fall"),
    (without_offsets, anomalies.WITHOUT_OFFSETS, "output_with_offsets"),
]
"""Each with the anomaly's name and the check that has to say it."""
