"""Cuts under load: every cut shows whole transactions, with the group offsets that belong to them, and shows
the same whenever it is read, while keepers compact, trim, seal and clean."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial

import pyarrow as pa

from tests.simulator.applications import SCHEMA, Application, fall_asleep, records
from tests.simulator.checks import Final
from tests.simulator.history import RecordId, Writing
from tests.simulator.kernel import DAY, HOUR, MS, SECOND, sleep
from tests.simulator.knobs import Knobs
from tests.simulator.process import Process
from tests.simulator.workloads.common import add_background, keep
from tests.simulator.world import Body, World
from txn_engine import Engine
from txn_engine.consumer import Consumer
from txn_engine.errors import InvalidRequestError, TxnEngineError
from txn_engine.log.as_of import AsOfCut
from txn_engine.log.cut_format import Cut
from txn_engine.maintain import MaintenancePolicy
from txn_engine.producer import Producer
from txn_engine.types import TopicPartition

ACCOUNTS, TRIMMED, LATEST = "accounts", "trimmed", "latest"
PAID = ("paid0", "paid1")
"""What each of two jobs makes of the accounts, in a group of the same name."""
TOPICS = (ACCOUNTS, TRIMMED, *PAID)
_TELLERS = 3
_CUTTERS = 2
_JOBS = ("compact", "compact", "retain", "seal", "clean", "clean", "expire_producers", "snapshot")
_HOUR_MS = 3_600_000
_BURST = 10 * HOUR
"""All are busy for some seconds, at the same time; between two bursts keepers have hours."""
_A_BURST = 3

Place = tuple[str, int, int]
"""Topic, partition, offset."""


@dataclass(frozen=True, slots=True)
class View:
    """What a client read as of a cut: each record's name, key and amount by its place, and the groups'
    positions."""

    rows: dict[Place, tuple[RecordId, int, int]]
    positions: dict[tuple[str, int], int]


@dataclass(frozen=True, slots=True)
class Made:
    """A cut, and when its maker began and ended."""

    cut: Cut
    began: int
    ended: int


@dataclass(slots=True)
class Notes:
    """What the clients note together."""

    made: list[Made] = field(default_factory=list)
    views: dict[int, View] = field(default_factory=dict)
    latest: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    complaints: list[str] = field(default_factory=list)


def notes_of(world: World) -> Notes:
    """The notes of this run."""
    notes: Notes = world.notes.setdefault("cuts", Notes())
    return notes


def shape(knobs: Knobs) -> Knobs:
    """Days, because nothing is deleted before its grace period is over."""
    return replace(
        knobs,
        longest_pause=2 * DAY,
        producer_id_expiration_ms=12 * _HOUR_MS,
        partitions=max(knobs.partitions, 2),
    )


def set_up(world: World) -> None:
    """Tellers, one of them with deferred markers, a job that pays out, makers of cuts, and keepers with short
    ages."""

    def create(_: Process, engine: Engine) -> None:
        for topic in TOPICS:
            engine.admin.create_topic(
                topic,
                partitions=world.knobs.partitions,
                schema=SCHEMA,
                key="account",
                retention_ms=6 * _HOUR_MS if topic == TRIMMED else -1,
            )
        engine.admin.create_topic(
            LATEST, partitions=2, schema=SCHEMA, key="account", cleanup_policy="compact"
        )

    world.run_alone("setup", create)
    each = max(world.knobs.transactions // _TELLERS, 6)
    for number in range(_TELLERS):
        world.client(f"teller{number}", _teller(number, each))
    for topic in PAID:
        world.client(f"payer of {topic}", _payer(topic, each // _A_BURST + 1))
    for number in range(_CUTTERS):
        world.client(f"cutter{number}", _cutter, worker=False)
    for number in range(2):
        world.client(f"keeper{number}", _keeper, worker=False)
    world.client("grower", _grower)
    world.client("marker", _marker, worker=False)
    add_background(world, TOPICS, sweepers=2, readers=0)


# --- writers ----------------------------------------------------------------------------------------------------


def _teller(number: int, transfers: int) -> Body:
    def body(process: Process, engine: Engine) -> None:
        world = process.world
        app = Application(
            process,
            engine,
            f"teller-{number}",
            timeout_ms=600_000,
            markers="deferred" if number == 2 else "inline",
        )
        for index in range(transfers):
            name = f"{process.name}-{index}"
            if index % _A_BURST == 0:
                await_burst(world, process.name, index)
            app.transact(name, partial(_transfer, app, number))
            app.rest(high=300 * MS)

    return body


def _transfer(app: Application, number: int, producer: Producer, writing: Writing) -> None:
    """Write a transfer, a record that retention removes, and the teller's latest record, in a drawn order."""
    draw = app.world.chance.random("transfer", writing.name)
    count = app.engine.admin.describe_topic(ACCOUNTS).partitions
    amount = draw.randint(1, 100)
    writes = [
        partial(
            app.write,
            producer,
            writing,
            ACCOUNTS,
            draw.randrange(count),
            1,
            accounts=[number],
            amounts=[-amount],
        ),
        partial(
            app.write,
            producer,
            writing,
            ACCOUNTS,
            draw.randrange(count),
            1,
            accounts=[number],
            amounts=[amount],
        ),
        partial(app.write, producer, writing, TRIMMED, draw.randrange(app.world.knobs.partitions), 1),
        partial(_put_latest, app, number, producer, writing),
    ]
    draw.shuffle(writes)
    for write in writes:
        future = write()
        if draw.random() < 0.3:
            future.result()
        if draw.random() < 0.2:
            app.rest(high=SECOND)
    if draw.random() < 0.3:  # in the middle of the commit
        fall_asleep(app.process, draw.randint(0, 80 * MS), draw.choice((SECOND, SECOND, SECOND, HOUR)))


def _put_latest(app: Application, number: int, producer: Producer, writing: Writing):  # type: ignore[no-untyped-def]
    notes_of(app.world).latest[str(number)].append(writing.name)
    table = records([(writing.name, 0)], [number], [0])
    return producer.produce(LATEST, table, partition=number % 2)


def await_burst(world: World, *name: object) -> None:
    """Wait until the next burst begins, or a moment longer."""
    sleep(_BURST - world.kernel.now % _BURST + world.chance.between(0, 2 * SECOND, "burst", *name))


def _payer(topic: str, bursts: int) -> Body:
    """A client that consumes accounts and produces payments, with the offsets in the same transaction."""

    def body(process: Process, engine: Engine) -> None:
        world = process.world
        app = Application(
            process,
            engine,
            f"payer-{topic}",
            timeout_ms=300_000,
            markers="deferred" if topic == PAID[1] else "inline",
        )
        consumer = None
        for rounds in range(bursts * 6):
            if rounds % 6 == 0:
                await_burst(world, process.name, rounds)
            app.rest(high=SECOND)
            try:
                consumer = consumer or engine.consumer(group_id=topic)
                consumer.subscribe([ACCOUNTS])
                batch = consumer.poll(max_records=world.chance.between(1, 6, "poll", process.name, rounds))
            except TxnEngineError:
                continue
            if batch is not None:
                writing = app.transact(f"{process.name}-{rounds}", partial(_pay, app, topic, consumer, batch))
                if writing is None or writing.outcome != "ok":
                    consumer = None

    return body


def _pay(
    app: Application, topic: str, consumer: Consumer, batch: pa.Table, producer: Producer, writing: Writing
) -> None:
    offsets: dict[TopicPartition, int] = {}
    for row in batch.select(["_partition", "_offset"]).to_pylist():
        partition, offset = row["_partition"], row["_offset"]
        offsets[TopicPartition(ACCOUNTS, partition)] = offset + 1
        target = (partition + offset) % app.world.knobs.partitions
        app.write(producer, writing, topic, target, 1, accounts=[partition], amounts=[offset])
    producer.send_offsets_to_transaction(offsets, consumer.group_metadata())
    if app.world.chance.at("lingers", writing.name) < 0.4:
        app.rest(high=SECOND)


def _grower(process: Process, engine: Engine) -> None:
    """Add partitions to the accounts in the middle of bursts."""
    world = process.world
    for rounds in range(3):
        await_burst(world, process.name, rounds)
        with suppress(TxnEngineError):
            engine.admin.add_partitions_to_topic(
                ACCOUNTS, engine.admin.describe_topic(ACCOUNTS).partitions + 1
            )


def _marker(process: Process, engine: Engine) -> None:
    """Write the due markers while others make cuts, and often stop in the middle."""
    world, rounds = process.world, 0
    while not world.stopping:
        if rounds % 4 == 0:
            await_burst(world, process.name, rounds)
        rounds += 1
        if world.chance.at("stops", process.name, rounds) < 0.5:
            soon = world.chance.between(0, 80 * MS, "stops at", process.name, rounds)
            fall_asleep(
                process, soon, world.chance.between(SECOND, 5 * SECOND, "stops for", process.name, rounds)
            )
        with suppress(TxnEngineError):
            engine.coordinator.write_pending_markers()
            if world.chance.at("compacts", process.name, rounds) < 0.5:
                keep(engine, "compact", LATEST, MaintenancePolicy(min_files=2, min_dirty_ratio=0))
        sleep(world.chance.between(0, SECOND, "mark", process.name, rounds))


# --- cuts ---------------------------------------------------------------------------------------------------------


def _cutter(process: Process, engine: Engine) -> None:
    world, rounds = process.world, 0
    notes = notes_of(world)
    while not world.stopping:
        rounds += 1
        draw = world.chance.random("cut", process.name, rounds)
        if rounds % 12 == 0:
            await_burst(world, process.name, rounds)
        try:
            if draw.random() < 0.7 or not notes.made:
                _make(
                    world, engine, draw.choice((None, None, None, TOPICS)), draw.choice((None, 30 * _HOUR_MS))
                )
            else:
                _look_again(world, engine, draw.choice(notes.made).cut)
            if draw.random() < 0.05:
                engine.delete_cut(draw.choice(notes.made).cut)
        except TxnEngineError as error:
            world.kernel.note(process.name, "", "cutter", error.code, "", "")
        sleep(draw.randint(0, draw.choice((20 * MS, 300 * MS))))


def _make(world: World, engine: Engine, topics: Sequence[str] | None, keep_ms: int | None) -> None:
    notes, began = notes_of(world), world.kernel.now
    cut = engine.cut(topics, keep_ms=keep_ms)
    notes.made.append(Made(cut, began, world.kernel.now))
    _look_again(world, engine, cut)


def _look_again(world: World, engine: Engine, cut: Cut) -> None:
    notes, view = notes_of(world), read_cut(engine, cut)
    world.judged["reads of cuts"] += 1
    before = notes.views.setdefault(cut.number, view)
    if view != before:
        notes.complaints.append(f"cut {cut.number} was read as {_difference(before, view)}")


def read_cut(engine: Engine, cut: Cut) -> View:
    """Everything inside the cut."""
    rows: dict[Place, tuple[RecordId, int, int]] = {}
    columns = ["_partition", "_offset", "txn", "n", "account", "amount"]
    for topic in (each.topic for each in cut.topics):
        table = engine.scan(topic, cut=cut).to_table(columns)
        for at, offset, name, n, account, amount in zip(*(c.to_pylist() for c in table.columns), strict=True):
            rows[topic, at, offset] = ((name, n), account, amount)
    as_of = AsOfCut(engine.logs.tools, cut)
    positions = {
        (key.group_id, key.partition): stored.commit.offset
        for number in range(len(cut.groups))
        for key, stored in as_of.group_offsets(number).committed.items()
    }
    return View(rows, positions)


def _difference(before: View, after: View) -> str:
    gone, come = before.rows.keys() - after.rows.keys(), after.rows.keys() - before.rows.keys()
    return f"without {sorted(gone)[:5]}, with {sorted(come)[:5]}, at {before.positions} and {after.positions}"


def _keeper(process: Process, engine: Engine) -> None:
    world, rounds = process.world, 0
    age_ms = world.chance.spread(_HOUR_MS // 6, 24 * _HOUR_MS, "age")
    policy = MaintenancePolicy(
        orphan_age_ms=age_ms,
        entries_age_ms=age_ms,
        trim_step=1,
        target_file_bytes=4_000,
        min_files=2,
        min_dirty_ratio=0,
    )
    while not world.stopping:
        rounds += 1
        draw = world.chance.random("keep", process.name, rounds)
        try:
            keep(engine, draw.choice(_JOBS), draw.choice((None, None, *TOPICS, LATEST)), policy)
        except TxnEngineError as error:
            world.kernel.note(process.name, "", "keeper", error.code, "", "")
        sleep(draw.randint(10 * SECOND, 3 * HOUR))


# --- what must hold -------------------------------------------------------------------------------------------------


def check(world: World, final: Final) -> list[str]:
    """Judge every cut that was read, by any client at any time. Each that still exists is read once more, and
    so is a new one, in which everything is inside."""
    notes = notes_of(world)

    def read_all(_: Process, engine: Engine) -> None:
        for cut in engine.cuts():
            _look_again(world, engine, cut)
        _make(world, engine, None, None)

    world.run_alone("judge of cuts", read_all)
    found = list(notes.complaints)
    for made in notes.made:
        view = notes.views.get(made.cut.number)
        if view is not None:
            world.judged["cuts"] += 1
            found += [f"cut {made.cut.number}: {wrong}" for wrong in _wrong_in(world, made.cut, view)]
    last = notes.views[notes.made[-1].cut.number]
    missing = {(*place, offset) for place, rows in final.items() for offset, _ in rows} - last.rows.keys()
    if missing:
        found.append(f"the last cut is without {sorted(missing)[:5]}")
    return found + _check_order(notes.made)


def _wrong_in(world: World, cut: Cut, view: View) -> list[str]:
    sums: dict[str, int] = defaultdict(int)
    for (topic, _, _), ((name, _), _, amount) in view.rows.items():
        if topic == ACCOUNTS:
            sums[name] += amount
    found = [f"{name} adds up to {amount}" for name, amount in sums.items() if amount]
    for group in PAID:
        done = {(key, amount) for (topic, _, _), (_, key, amount) in view.rows.items() if topic == group}
        due = {
            (at, offset)
            for topic, at, offset in view.rows
            if topic == ACCOUNTS and offset < view.positions.get((group, at), 0)
        }
        found += [f"in {group} and not in the group's offsets: {place}" for place in sorted(done - due)]
        found += [f"in the group's offsets and not in {group}: {place}" for place in sorted(due - done)]
    if cut.every_topic:
        found += _wrong_latest(world, view, inside=sums.keys())
    return found


def _wrong_latest(world: World, view: View, inside: object) -> list[str]:
    """Each teller's latest record is the one of the last transfer inside the cut."""
    last: dict[int, tuple[int, str]] = {}
    for (topic, _, offset), ((name, _), key, _) in view.rows.items():
        if topic == LATEST:
            last[key] = max(last.get(key, (-1, "")), (offset, name))
    found = []
    for number, names in notes_of(world).latest.items():
        due = [name for name in names if name in inside]  # type: ignore[operator]
        seen = last.get(int(number), (-1, None))[1]
        if seen != (due[-1] if due else None):
            found.append(f"the latest of teller {number} is {seen}, not {due[-1:]}")
    return found


def _check_order(made: Sequence[Made]) -> list[str]:
    """No cut lies below an earlier one that was complete when it was begun and has all of its topics."""
    found = []
    for later in made:
        for earlier in made:
            covers = earlier.cut.every_topic or not later.cut.every_topic
            if covers and earlier.ended < later.began:
                lower = [
                    str(at)
                    for at, offset in later.cut.offsets.items()
                    if offset < earlier.cut.offsets.get(at, 0)
                ]
                found += [f"cut {later.cut.number} is below cut {earlier.cut.number} in {at}" for at in lower]
    return found


def heal(world: World) -> None:
    """Clean up after clients that died while they deleted a cut, and give up claims that were left behind."""

    def tidy(_: Process, engine: Engine) -> None:
        with suppress(InvalidRequestError):
            engine.maintenance.clean(ACCOUNTS)

    world.run_alone("tidy", tidy)
