"""The bank: what its processes write, and what must hold of it as of every cut.

A transfer takes from a partition of one topic and adds to a partition of another one. It also adds a note to
a topic that retention cuts short, and becomes the latest row of its teller in a compacted topic. These are
four rows in one transaction. A payer copies each withdrawal once, with its group's position in the same
transaction.
"""

from __future__ import annotations

import random
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Final

import pyarrow as pa

from storage import ObjectStore
from txn_engine import Engine, OffsetAndMetadata, TopicPartition
from txn_engine.errors import OffsetOutOfRangeError
from txn_engine.ids import new_write_id
from txn_engine.log.as_of import AsOfCut
from txn_engine.log.cut_format import Cut
from txn_engine.log.objects import Objects
from txn_engine.log.store_config import StoreConfig, create_store_config, prove
from txn_engine.producer import Producer

SCHEMA: Final = pa.schema([("teller", pa.int64()), ("at", pa.int64()), ("amount", pa.int64())])
PARTITIONS: Final = {"taken": 3, "given": 3, "notes": 2, "latest": 2, "paid": 2}
PAYER: Final = "payer"
TIMEOUT_MS: Final = 900_000
_HOUR_MS: Final = 3_600_000
_NOTES_KEPT_MS: Final = 6 * _HOUR_MS


@dataclass(frozen=True, slots=True)
class FastClock:
    """A clock that runs this many times as fast as the machine's since `began_ms`, so days pass in
    minutes. The store, whose clock is not as fast, is taken to have it too."""

    stands_for_the_store: ClassVar[bool] = True
    began_ms: int
    factor: int

    def __call__(self) -> int:
        """Milliseconds since 1970."""
        return self.began_ms + (time.time_ns() // 1_000_000 - self.began_ms) * self.factor


def set_up(store: ObjectStore, clock: FastClock) -> None:
    """A store with few internal partitions, and the bank's topics."""
    objects = Objects(store)
    internal = {"__transaction_state": 4, "__consumer_offsets": 4}
    create_store_config(
        objects, StoreConfig(new_write_id(), clock(), prove(store), internal_partitions=internal)
    )
    with Engine(store, clock=clock) as engine:
        for topic, partitions in PARTITIONS.items():
            engine.admin.create_topic(
                topic,
                partitions=partitions,
                schema=SCHEMA,
                key="teller",
                cleanup_policy="compact" if topic == "latest" else "delete",
                retention_ms=_NOTES_KEPT_MS if topic == "notes" else -1,
            )


# --- what is written --------------------------------------------------------------------------------------------


def rows(*each: tuple[int, int, int]) -> pa.Table:
    """Rows of any topic, with teller, time of the transfer, and amount."""
    columns = zip(*each, strict=True)
    return pa.table([pa.array(column, pa.int64()) for column in columns], schema=SCHEMA)


def transfer(producer: Producer, teller: int, chance: random.Random) -> None:
    """Write the four rows in any order. Some of them are awaited."""
    at, amount = time.time_ns(), chance.randint(1, 100)
    writes = [
        ("taken", chance.randrange(PARTITIONS["taken"]), -amount),
        ("given", chance.randrange(PARTITIONS["given"]), amount),
        ("notes", chance.randrange(PARTITIONS["notes"]), 0),
        ("latest", teller % PARTITIONS["latest"], 0),
    ]
    chance.shuffle(writes)
    for topic, partition, value in writes:
        future = producer.produce(topic, rows((teller, at, value)), partition=partition)
        if chance.random() < 0.2:
            future.result()


def pay(engine: Engine, producer: Producer, chance: random.Random) -> bool:
    """Copy the withdrawals since the group's position in one transaction. Returns whether there were any."""
    with engine.consumer(group_id=PAYER) as consumer:
        consumer.subscribe(["taken"])
        batch = consumer.poll(max_records=chance.randint(1, 200))
        if batch is None:
            return False
        places = [
            (row["_partition"], row["_offset"]) for row in batch.select(["_partition", "_offset"]).to_pylist()
        ]
        producer.begin_transaction()
        copies = rows(*((partition, offset, 0) for partition, offset in places))
        producer.produce("paid", copies, partition=chance.randrange(PARTITIONS["paid"]))
        behind: dict[int, int] = {}
        for partition, offset in places:
            behind[partition] = max(behind.get(partition, 0), offset + 1)
        offsets = {TopicPartition("taken", at): OffsetAndMetadata(end) for at, end in behind.items()}
        producer.send_offsets_to_transaction(offsets, consumer.group_metadata())
        producer.commit_transaction()
    return True


# --- what must hold -----------------------------------------------------------------------------------------------

Row = tuple[int, int, int, int, int]
"""Partition, offset, teller, time, amount."""


@dataclass(slots=True)
class Seen:
    """The state of a reader of cuts: the next offset of each partition, the payer's positions, and each
    teller's last transfer."""

    offsets: dict[str, list[int]] = field(default_factory=lambda: {t: [0] * n for t, n in PARTITIONS.items()})
    positions: dict[str, int] = field(default_factory=dict)
    last: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Read:
    """The result of a read as of a cut: the number of rows, and the errors."""

    rows: int
    torn: list[str]


def read_since(engine: Engine, cut: Cut, seen: Seen, *, latest: bool = True) -> Read:
    """Read the rows that the cut has in addition to `seen`, judge them, and add them to `seen`.

    With an empty `seen` all rows of the cut are read. With `latest` the compacted topic is read too, as a
    whole.
    """
    positions = _positions(engine, cut)
    unpaid = [seen.positions.get(str(at), 0) for at in range(PARTITIONS["taken"])]
    withdrawn = _rows(engine, "taken", cut, unpaid)
    taken = [row for row in withdrawn if row[1] >= seen.offsets["taken"][row[0]]]
    given = _rows(engine, "given", cut, seen.offsets["given"])
    paid = _rows(engine, "paid", cut, seen.offsets["paid"])
    try:
        notes = _rows(engine, "notes", cut, seen.offsets["notes"])
    except OffsetOutOfRangeError:  # retention has come further
        notes = [row for row in _rows(engine, "notes", cut) if row[1] >= seen.offsets["notes"][row[0]]]
    newest = _rows(engine, "latest", cut) if latest else []
    for _, _, teller, at, _ in taken:
        seen.last[str(teller)] = max(seen.last.get(str(teller), 0), at)
    due = [row[:2] for row in withdrawn if row[1] < positions.get(str(row[0]), 0)]
    torn = [
        *_wrong_sums(taken, given),
        *_wrong_notes(notes, taken),
        *_differing("paid", [row[2:4] for row in paid], due),
        *(_wrong_latest(newest, seen.last) if latest else ()),
    ]
    seen.offsets = {each.topic: [log.offset for log in each.partitions] for each in cut.topics}
    seen.positions = positions
    count = sum(map(len, (taken, given, notes, paid, newest)))
    return Read(count, [f"cut {cut.number}: {wrong}" for wrong in torn])


def _rows(engine: Engine, topic: str, cut: Cut, start: Sequence[int] = ()) -> list[Row]:
    begin = {TopicPartition(topic, partition): offset for partition, offset in enumerate(start)}
    columns = ["_partition", "_offset", "teller", "at", "amount"]
    table = engine.scan(topic, cut=cut, start=begin).to_table(columns)
    return list(zip(*(column.to_pylist() for column in table.columns), strict=True))


def _positions(engine: Engine, cut: Cut) -> dict[str, int]:
    as_of = AsOfCut(engine.logs.tools, cut)
    return {
        str(key.partition): stored.commit.offset
        for number in range(len(cut.groups))
        for key, stored in as_of.group_offsets(number).committed.items()
        if (key.group_id, key.topic) == (PAYER, "taken")
    }


def _wrong_sums(taken: Sequence[Row], given: Sequence[Row]) -> Iterator[str]:
    amounts_of: dict[tuple[int, int], list[int]] = defaultdict(list)
    for _, _, teller, at, amount in (*taken, *given):
        amounts_of[teller, at].append(amount)
    for (teller, at), amounts in amounts_of.items():
        if len(amounts) != 2 or sum(amounts) != 0:
            yield f"transfer {at} of teller {teller} is there with {amounts}"


def _wrong_notes(notes: Sequence[Row], taken: Sequence[Row]) -> Iterator[str]:
    inside = {(teller, at) for _, _, teller, at, _ in taken}
    for _, _, teller, at, _ in notes:
        if (teller, at) not in inside:
            yield f"transfer {at} of teller {teller} is noted, and not inside"


def _differing(what: str, seen: Iterable[tuple[int, ...]], due: Iterable[tuple[int, ...]]) -> Iterator[str]:
    counted = Counter(seen)
    counted.subtract(due)
    for place, times in counted.items():
        if times:
            yield f"{what}: partition {place[0]}, offset {place[1]}, {times:+d} times"


def _wrong_latest(latest: Sequence[Row], last: Mapping[str, int]) -> Iterator[str]:
    """Yield an error unless each teller's latest row is its last transfer in the cut."""
    found: dict[str, int] = {}
    for _, _, teller, at, _ in latest:
        found[str(teller)] = max(found.get(str(teller), 0), at)
    if found != dict(last):
        yield f"the latest are {found}, not {dict(last)}"
