"""A topic compacted by key: writers, tombstones, several keepers, and readers who build a table from it.

What is left is not what was written, so this workload has rules of its own. A reader sees for each key at
least the latest record that was acknowledged before it looked, nothing that was not committed, and no record
again whose tombstone it might have missed. It sees each key once below where the log says clean, and no
tombstone below where the log says that none is left.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, field, replace
from itertools import count
from random import Random
from typing import Any

import pyarrow as pa

from tests.simulator.applications import Application
from tests.simulator.history import Writing
from tests.simulator.kernel import HOUR, MINUTE, MS, sleep
from tests.simulator.knobs import Knobs
from tests.simulator.process import Process
from tests.simulator.workloads.common import add_background
from tests.simulator.world import Body, World
from txn_engine import Engine
from txn_engine.errors import OutcomeUnknownError, StoreUnavailableError, TxnEngineError
from txn_engine.log.topics import Topic
from txn_engine.maintain import MaintenancePolicy
from txn_engine.maintain.in_process import InProcess
from txn_engine.maintain.target import Target
from txn_engine.maintain.workers import By, Merged, Rule, Selection
from txn_engine.producer import Producer
from txn_engine.protocol.cleaning import Cleaning
from txn_engine.protocol.partition import LogFile
from txn_engine.types import RecordMetadata, TopicPartition

TOPICS: tuple[str, ...] = ()
TABLE = "table"
_KEYS = ("a", "b", "c", "d")
_RARE = tuple("klmnopqrstuvwxyz")
"""Written so seldom that a tombstone of one has its time alone."""
_CLIENTS = 3
_JOBS = ("compact", "compact", "compact", "retain", "seal", "clean", "expire_producers", "snapshot")
_HOUR_MS = 3_600_000
_SLOT = 20 * MINUTE
_DELETE_RETENTION_MS = 12 * _HOUR_MS
_BEHIND_MAX = 8 * HOUR
"""How far behind a follower may be: below `delete.retention.ms` by more than any clock is off."""

Row = tuple[int, str, str, bool]
"""A record as it was read: offset, key, id, whether it is a tombstone."""


@dataclass(slots=True)
class Put:
    """A record as its writer knows it. `offset` -1: not acknowledged."""

    writing: Writing
    partition: int
    key: str
    id: str
    is_tombstone: bool
    offset: int = -1

    @property
    def may_be_there(self) -> bool:
        """Whether its transaction was asked to commit, or its plain append was not refused."""
        outcome = self.writing.outcome
        return outcome in ("ok", "committing") or (outcome != "refused" and not self.writing.atomic)


@dataclass(frozen=True, slots=True)
class Look:
    """A read of one partition from its start to `end`, and what its log said of compaction right before."""

    who: str
    began: int
    partition: int
    end: int
    rows: tuple[Row, ...]
    cleaning: Cleaning


@dataclass(slots=True)
class Followed:
    """A table that is built by reading on. Its last round began at `began`, and went up to `positions`."""

    began: int = -1
    positions: dict[TopicPartition, int] = field(default_factory=dict)
    table: dict[tuple[int, str], Row] = field(default_factory=dict)

    def take(self, rows: Mapping[int, tuple[int, tuple[Row, ...]]]) -> None:
        """Add the records that were read of each partition, up to its end."""
        for partition, (end, read) in rows.items():
            self.positions[TopicPartition(TABLE, partition)] = end
            for row in read:
                self.table[partition, row[1]] = row

    @property
    def values(self) -> dict[tuple[int, str], Row]:
        """Without the keys whose latest record is a tombstone."""
        return {key: row for key, row in self.table.items() if not row[3]}


@dataclass(slots=True)
class Notes:
    """What the clients note together."""

    puts: list[Put] = field(default_factory=list)
    looks: list[Look] = field(default_factory=list)
    followed: Followed = field(default_factory=Followed)


def notes_of(world: World) -> Notes:
    """The notes of this run."""
    notes: Notes = world.notes.setdefault("compacted", Notes())
    return notes


def shape(knobs: Knobs) -> Knobs:
    """Hours, not days, because a follower must not fall behind for longer than tombstones stay."""
    return replace(knobs, partitions=min(knobs.partitions, 2), longest_pause=2 * HOUR)


def set_up(world: World) -> None:
    """Writers of few keys, one of them without transactions, two keepers, a reader from the start, and one
    that reads on."""

    def create(_: Process, engine: Engine) -> None:
        engine.admin.create_topic(
            TABLE,
            partitions=world.knobs.partitions,
            cleanup_policy="compact",
            delete_retention_ms=_DELETE_RETENTION_MS,
        )

    world.run_alone("setup", create)
    each = max(world.knobs.transactions // _CLIENTS, 1)
    for number in range(_CLIENTS):
        world.client(f"writer{number}", _writer(number, each))
    world.client("plain", _plain_writer(3 * each))
    world.client("looker", _looker, worker=False)
    world.client("follower", _follower, worker=False)
    for number in range(2):
        world.client(f"keeper{number}", _keeper, worker=False)
    add_background(world, (), sweepers=1, readers=0)


# --- writers ----------------------------------------------------------------------------------------------


def _writer(number: int, transactions: int) -> Body:
    def body(process: Process, engine: Engine) -> None:
        world = process.world
        app = Application(process, engine, f"writer-{number}", timeout_ms=900_000)
        for index in range(transactions):
            app.transact(f"{process.name}-{index}", lambda producer, writing: _write(app, producer, writing))
            late = world.chance.at("late", process.name, index) < 0.3
            app.rest(low=MINUTE, high=6 * HOUR if late else 20 * MINUTE)

    return body


def _write(app: Application, producer: Producer, writing: Writing) -> None:
    draw = app.world.chance.random("write", writing.name)
    count = 0
    for _ in range(draw.randint(1, 3)):
        partition = draw.randrange(app.world.knobs.partitions)
        puts = []
        for _ in range(draw.randint(1, 3)):
            puts.append(_put(writing, partition, count, *_drawn(draw)))
            count += 1
        notes_of(app.world).puts += puts
        future = producer.produce(TABLE, _records(puts), partition=partition)
        future.add_done_callback(lambda done, puts=puts: _place(puts, done))  # type: ignore[misc]
        if draw.random() < 0.3:  # keepers come by meanwhile; in the longer ones so does the time-out
            app.rest(low=MINUTE, high=draw.choice((10 * MINUTE, 3 * HOUR)))
    if draw.random() < 0.2:
        app.give_up(producer, writing, None)


def _plain_writer(batches: int) -> Body:
    def body(process: Process, engine: Engine) -> None:
        world = process.world
        for index in range(batches):
            draw = world.chance.random("plain", process.name, index)
            writing = world.history.begin(f"{process.name}-{index}", process.name, atomic=False)
            partition = draw.randrange(world.knobs.partitions)
            put = _put(writing, partition, 0, *_drawn(draw))
            notes_of(world).puts.append(put)
            try:
                put.offset = engine.partition(TABLE, partition).append(_records([put])).base_offset
            except OutcomeUnknownError as error:
                world.history.end(writing, "failed", error)
            except TxnEngineError as error:
                world.history.end(writing, "refused", error)
            else:
                world.history.end(writing, "ok")
            sleep(draw.randint(MINUTE, HOUR))

    return body


def _drawn(draw: Random) -> tuple[str, bool]:
    """A drawn key, and whether its record is a tombstone."""
    is_rare = draw.random() < 0.3
    return draw.choice(_RARE if is_rare else _KEYS), draw.random() < (0.7 if is_rare else 0.25)


def _put(writing: Writing, partition: int, number: int, key: str, is_tombstone: bool) -> Put:
    return Put(writing, partition, key, f"{writing.name}:{number}", is_tombstone)


def _records(puts: list[Put]) -> pa.Table:
    """Records in Kafka's columns. A tombstone has no value, but it has headers."""
    headers = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
    return pa.table(
        {
            "key": pa.array([put.key.encode() for put in puts], pa.binary()),
            "value": pa.array([None if put.is_tombstone else b"v" for put in puts], pa.binary()),
            "headers": pa.array([[{"key": "id", "value": put.id.encode()}] for put in puts], headers),
        }
    )


def _place(puts: list[Put], done: Future[list[RecordMetadata]]) -> None:
    if done.cancelled() or done.exception() is not None:
        return
    places = done.result()
    offsets = [offset for place in places for offset in range(place.base_offset, place.last_offset + 1)]
    for put, offset in zip(puts, offsets, strict=True):
        put.offset = offset


# --- readers ------------------------------------------------------------------------------------------------


def _read(engine: Engine, start: Mapping[TopicPartition, int]) -> dict[int, tuple[int, tuple[Row, ...]]]:
    """The end of the read in each partition, and its records."""
    scan = engine.scan(TABLE, start=start)
    found: dict[int, list[Row]] = {tp.partition: [] for tp in scan.offsets}
    columns = scan.to_table(["_partition", "_offset", "key", "value", "headers"]).columns
    for partition, offset, key, value, headers in zip(*(c.to_pylist() for c in columns), strict=True):
        name = dict(headers)["id"] if isinstance(headers[0], tuple) else headers[0]["value"]
        found[partition].append((offset, key.decode(), name.decode(), value is None))
    return {tp.partition: (end, tuple(found[tp.partition])) for tp, end in scan.offsets.items()}


def _look(world: World, who: str, engine: Engine) -> dict[int, tuple[int, tuple[Row, ...]]]:
    began = world.kernel.now
    cleaning = [engine.partition(TABLE, number).state.cleaning for number in range(world.knobs.partitions)]
    read = _read(engine, {})
    notes_of(world).looks += [
        Look(who, began, number, end, rows, cleaning[number]) for number, (end, rows) in read.items()
    ]
    return read


def _looker(process: Process, engine: Engine) -> None:
    world, rounds = process.world, 0
    while not world.stopping:
        rounds += 1
        with suppress(TxnEngineError):
            _look(world, process.name, engine)
        sleep(world.chance.spread(MINUTE, 3 * HOUR, "look", process.name, rounds))


def _follower(process: Process, engine: Engine) -> None:
    """A client that reads on from its last position. It starts again if it fell behind for too long, or after
    an error."""
    world, rounds = process.world, 0
    mine = Followed()
    while not world.stopping:
        rounds += 1
        began = world.kernel.now
        if began - mine.began > _BEHIND_MAX:
            mine = Followed()
        try:
            mine.take(_read(engine, mine.positions))
        except TxnEngineError:
            mine = Followed()
        else:
            mine.began = began
            notes_of(world).followed = mine
        sleep(world.chance.spread(MINUTE, 2 * HOUR, "follow", process.name, rounds))


def _keeper(process: Process, engine: Engine) -> None:
    """One of two schedulers that start the same jobs at almost the same times."""
    world, rounds = process.world, 0
    age_ms = world.chance.spread(_HOUR_MS, 24 * _HOUR_MS, "age")
    while not world.stopping:
        rounds += 1
        draw = world.chance.random("keep", process.name, rounds)
        policy = MaintenancePolicy(
            orphan_age_ms=age_ms,
            entries_age_ms=age_ms,
            trim_step=1,
            target_file_bytes=draw.choice((1, 4_000, 1 << 20)),
            min_files=2,
            min_dirty_ratio=draw.choice((0.0, 0.5, 1.0)),
            key_memory_bytes=draw.choice((1, 400, 1 << 20)),
        )
        try:
            slot = world.chance.random("slot", world.kernel.now // _SLOT)
            if world.chance.at("begins ahead", process.name, rounds) < 0.2:
                _set_ahead_for_a_moment(process)
            _keep(engine, slot.choice(_JOBS), policy, draw)
        except TxnEngineError as error:
            world.kernel.note(process.name, "", "keeper", error.code, "", "")
        sleep(
            _SLOT
            - world.kernel.now % _SLOT
            + draw.choice((0, draw.randint(0, 100 * MS), draw.randint(0, _SLOT)))
        )


def _set_ahead_for_a_moment(process: Process) -> None:
    """Let the clock show a time at which tombstones are due, until the process does its first request."""
    world, right_ms = process.world, process.skew_ms

    def set_right() -> None:
        if not world.is_healed:
            process.skew_ms = right_ms

    process.skew_ms += _DELETE_RETENTION_MS
    world.kernel.at(world.kernel.now, set_right)


def _keep(engine: Engine, job: str, policy: MaintenancePolicy, draw: Random) -> None:
    if job == "snapshot":
        engine.admin.snapshot(TABLE)
    elif job == "compact":
        workers = _Cluster(InProcess(policy), draw.choice((1, 2, 4)), draw.choice((1, 2, 100)))
        engine.maintenance.compact(TABLE, policy=policy, workers=workers)
    elif job in ("seal", "expire_producers"):
        getattr(engine.maintenance, job)(TABLE)
    else:
        getattr(engine.maintenance, job)(TABLE, policy=policy)


@dataclass(frozen=True, slots=True)
class _Cluster:
    """Workers that put several new files on the store before the first of them is named, like the tasks of a
    cluster. After a number of runs the cluster is taken away."""

    inner: InProcess
    at_once: int
    runs: int

    def every(
        self, target: Target, topic: Topic, files: Sequence[LogFile]
    ) -> AbstractContextManager[Selection]:
        return self._of(self.inner.every(target, topic, files))

    def latest(
        self, target: Target, topic: Topic, files: Sequence[LogFile]
    ) -> AbstractContextManager[Selection]:
        return self._of(self.inner.latest(target, topic, files))

    @contextmanager
    def _of(self, chosen: AbstractContextManager[Selection]) -> Iterator[Selection]:
        with chosen as selection:
            yield _Ahead(selection, self.at_once, self.runs)


@dataclass(frozen=True, slots=True)
class _Ahead:
    selection: Selection
    at_once: int
    runs: int

    @property
    def by(self) -> By:
        return self.selection.by

    @property
    def counts(self) -> Sequence[int]:
        return self.selection.counts

    def merge(self, runs: Sequence[tuple[int, int]], rule: Rule) -> Iterator[Merged]:
        done = count()
        for first in range(0, len(runs), self.at_once):
            for merged in list(self.selection.merge(runs[first : first + self.at_once], rule)):
                if next(done) == self.runs:
                    raise StoreUnavailableError("the cluster was taken away", actor="compact")
                yield merged


# --- rules --------------------------------------------------------------------------------------------------


def check(world: World, final: Any) -> list[str]:
    """Judge every look on the way, two looks at the end, before and after a last pass, and the follower's
    table."""
    notes = notes_of(world)
    read = world.run_alone("last", lambda process, engine: _look(world, "last", engine))
    found = list(_judge_follower(world, notes.followed, read))
    world.run_alone("pass", lambda _, engine: _last_pass(engine))
    world.run_alone("after", lambda process, engine: _look(world, "after", engine))
    by_id = {put.id: put for put in notes.puts}
    for look in notes.looks:
        found += _judge_rows(look, by_id)
        found += _judge_latest(look, notes.puts)
        found += _judge_clean(look)
    return found


def _last_pass(engine: Engine) -> None:
    report = engine.maintenance.compact(TABLE, policy=MaintenancePolicy(min_files=2, min_dirty_ratio=0.0))
    if report.failures:
        raise RuntimeError(report.failures[0].message)


def _judge_follower(
    world: World, followed: Followed, read: Mapping[int, tuple[int, tuple[Row, ...]]]
) -> Iterator[str]:
    """A reader that has read on has the same table as one that reads from the start."""
    if followed.began < 0 or world.kernel.now - followed.began > _BEHIND_MAX:
        return
    positions = dict(followed.positions)
    followed.take(world.run_alone("catch-up", lambda _, engine: _read(engine, positions)))
    fresh = Followed()
    fresh.take(read)
    if followed.values != fresh.values:
        yield f"a table that was followed differs: {followed.values}, read from the start {fresh.values}"


def _judge_rows(look: Look, by_id: Mapping[str, Put]) -> Iterator[str]:
    """Every record was written, is at the offset that its writer was told, and is not in a transaction that
    did not commit."""
    offsets = [row[0] for row in look.rows]
    if offsets != sorted(set(offsets)):
        yield f"order: {look.who} read {TABLE}-{look.partition} with offsets {offsets}"
    for offset, key, name, is_tombstone in look.rows:
        put = by_id.get(name)
        if put is None or (put.partition, put.key, put.is_tombstone) != (look.partition, key, is_tombstone):
            yield f"unknown record: {name} of key {key} at {TABLE}-{look.partition} offset {offset}"
        elif put.offset not in (-1, offset):
            yield f"wrong offset: {name} was acknowledged at {put.offset}, stands at {offset}"
        elif not put.may_be_there:
            yield f"not committed, yet seen: {name} ({put.writing.outcome}) by {look.who}"


def _judge_latest(look: Look, puts: list[Put]) -> Iterator[str]:
    """For each key at least the latest record that was acknowledged before is there, unless a tombstone
    replaced it and was removed."""
    latest = {key: offset for offset, key, _, _ in look.rows}
    for put in puts:
        known = put.writing.outcome == "ok" and put.offset >= 0 and put.writing.ended <= look.began
        if not known or put.partition != look.partition or put.offset >= look.end:
            continue
        seen = latest.get(put.key, -1)
        if seen >= put.offset:
            continue
        tombstone = put.is_tombstone or any(
            other.is_tombstone and other.may_be_there and (other.offset < 0 or other.offset > put.offset)
            for other in puts
            if (other.partition, other.key) == (put.partition, put.key)
        )
        if seen >= 0 or not tombstone:
            yield (
                f"lost: {look.who} saw of key {put.key} in {TABLE}-{look.partition} offset {seen} as the latest, at"
                f" {look.began / 1e6:.3f} s, after {put.id} was acknowledged at {put.offset}"
            )


def _judge_clean(look: Look) -> Iterator[str]:
    """What the log says of compaction holds for later readers."""
    place = f"{TABLE}-{look.partition} before offset"
    below = [row[1] for row in look.rows if row[0] < look.cleaning.cleaned_to]
    doubled = sorted({key for key in below if below.count(key) > 1})
    if doubled:
        yield f"not clean: {look.who} read keys {doubled} twice in {place} {look.cleaning.cleaned_to}"
    left = [row[0] for row in look.rows if row[3] and row[0] < look.cleaning.tombstones_to]
    if left:
        yield f"not clean: {look.who} read tombstones at {left} in {place} {look.cleaning.tombstones_to}"
