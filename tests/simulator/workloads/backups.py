"""Backups under load are cut off and continued, and restored: each is a whole store of one moment, in which
exactly the runs have committed whose records are there."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial

from storage import MemoryStore
from tests.simulator.applications import SCHEMA, Application, fall_asleep
from tests.simulator.checks import Final
from tests.simulator.history import Writing
from tests.simulator.kernel import HOUR, MS, SECOND, sleep
from tests.simulator.knobs import Knobs
from tests.simulator.process import Process, TaskPool
from tests.simulator.store import ClientStore, Shelf
from tests.simulator.workloads import cuts
from tests.simulator.workloads.common import add_background, keep
from tests.simulator.world import Body, World
from tests.support.faults import no_pause
from txn_engine import Engine
from txn_engine.backup import backups, restore
from txn_engine.clock import Waiting
from txn_engine.errors import InvalidRequestError, TxnEngineError
from txn_engine.log.store_config import RESTORED_KEY
from txn_engine.log.store_time import ClockAsStoreTime
from txn_engine.maintain import MaintenancePolicy
from txn_engine.producer import Producer
from txn_engine.verify import verify_store

ACCOUNTS, PAID = cuts.ACCOUNTS, cuts.PAID[0]
TOPICS = (ACCOUNTS, PAID)
_TELLERS = 2
_RESTORED_MAX = 2
_BACKUPS_MAX = 6
"""Of each who backs up, and how many of all are restored in the end: a restore takes as long as a hundred writes."""


@dataclass(slots=True)
class Notes:
    """The places of backups, and the stores that restorers fill."""

    place: Shelf
    targets: list[Shelf] = field(default_factory=list)


def notes_of(world: World) -> Notes:
    """The notes of this run."""
    notes: Notes = world.notes.setdefault("backups", Notes(Shelf(world.kernel, "sim://backups")))
    return notes


def shape(knobs: Knobs) -> Knobs:
    """Transactions over several partitions, and ids that expire while something hangs."""
    return replace(
        knobs,
        partitions=max(knobs.partitions, 2),
        transactions=min(knobs.transactions, 14),
        id_expiration_ms=60_000,
    )


def set_up(world: World) -> None:
    """Tellers whose transfers have run ids, a job that pays out, a client that writes markers and stops, and
    clients that back up, restore and compact."""

    def create(_: Process, engine: Engine) -> None:
        for topic in TOPICS:
            engine.admin.create_topic(topic, partitions=world.knobs.partitions, schema=SCHEMA, key="account")

    world.run_alone("setup", create)
    each = max(world.knobs.transactions // _TELLERS, 6)
    for number in range(_TELLERS):
        world.client(f"teller{number}", _teller(number, each))
    world.client("payer", cuts._payer(PAID, 2))
    world.client("grower", cuts._grower)
    for number in range(2):
        world.client(f"backer{number}", _backer, worker=False)
    world.client("restorer", _restorer, worker=False)
    world.client("marker", _marker, worker=False)
    world.client("merger", _merger, worker=False)
    add_background(world, TOPICS, sweepers=1, readers=0)


def _teller(number: int, transfers: int) -> Body:
    def body(process: Process, engine: Engine) -> None:
        world = process.world
        markers = "deferred" if number == 1 else "inline"
        app = Application(process, engine, f"teller-{number}", timeout_ms=600_000, markers=markers)
        for index in range(transfers):
            name = f"{process.name}-{index}"
            if index % 3 == 0:
                cuts.await_burst(world, process.name, index)
            app.transact(name, partial(_transfer, app), run_id=name)
            app.rest(high=300 * MS)

    return body


def _transfer(app: Application, producer: Producer, writing: Writing) -> None:
    """Transfer money between drawn partitions. Some clients fall asleep in the middle of it or of its
    commit."""
    draw = app.world.chance.random("transfer", writing.name)
    count = app.engine.admin.describe_topic(ACCOUNTS).partitions
    amount = draw.randint(1, 100)
    for sign in (-1, 1):
        app.write(producer, writing, ACCOUNTS, draw.randrange(count), 1, amounts=[sign * amount]).result()
        if draw.random() < 0.3:
            app.rest(high=2 * SECOND)
    if draw.random() < 0.3:
        fall_asleep(app.process, draw.randint(0, 80 * MS), draw.choice((SECOND, SECOND, HOUR)))


def _marker(process: Process, engine: Engine) -> None:
    """Write the due markers, as in the workload of cuts, and often stop in the middle."""
    world, rounds = process.world, 0
    while not world.stopping:
        if rounds % 4 == 0:
            cuts.await_burst(world, process.name, rounds)
        rounds += 1
        if world.chance.at("stops", process.name, rounds) < 0.5:
            soon = world.chance.between(0, 80 * MS, "stops at", process.name, rounds)
            fall_asleep(
                process, soon, world.chance.between(SECOND, 5 * SECOND, "stops for", process.name, rounds)
            )
        with suppress(TxnEngineError):
            engine.coordinator.write_pending_markers()
        sleep(world.chance.between(0, SECOND, "mark", process.name, rounds))


def _merger(process: Process, engine: Engine) -> None:
    """Merge files, also of transactions that have their marker here and not yet there."""
    world, rounds = process.world, 0
    policy = MaintenancePolicy(min_files=2)
    while not world.stopping:
        if rounds % 8 == 0:
            cuts.await_burst(world, process.name, rounds)
        rounds += 1
        with suppress(TxnEngineError):
            keep(engine, "compact", ACCOUNTS, policy)
        sleep(world.chance.between(0, SECOND, "merge", process.name, rounds))


# --- backups --------------------------------------------------------------------------------------------------------


def _backer(process: Process, engine: Engine) -> None:
    world, rounds = process.world, 0
    place = ClientStore(notes_of(world).place, process)
    while not world.stopping and rounds < _BACKUPS_MAX:
        rounds += 1
        draw = world.chance.random("back up", process.name, rounds)
        if rounds % 3 == 0:
            cuts.await_burst(world, process.name, rounds)
        try:
            cut = engine.cut().number if draw.random() < 0.3 else None
            if cut is not None:
                sleep(draw.randint(0, 2 * SECOND))
            engine.backup(place, cut=cut)
        except TxnEngineError as error:
            world.kernel.note(process.name, "", "backer", error.code, "", "")
        sleep(draw.randint(0, SECOND))


def _restorer(process: Process, engine: Engine) -> None:
    """Restore the last backup, into a new place or into one where a restore was cut off."""
    world, rounds = process.world, 0
    notes = notes_of(world)
    while not world.stopping:
        cuts.await_burst(world, process.name, rounds)
        rounds += 1
        open_ones = [each for each in notes.targets if RESTORED_KEY not in each.objects]
        if not open_ones and len(notes.targets) < _RESTORED_MAX:
            notes.targets.append(Shelf(world.kernel, f"sim://restored-{len(notes.targets)}"))
            open_ones = notes.targets[-1:]
        for target in open_ones:
            try:
                restore(
                    ClientStore(notes.place, process),
                    ClientStore(target, process),
                    clock=process.clock,
                    new_id=process.new_id,
                    pause=process._pause_before_try,
                    executors=lambda threads, name: TaskPool(process, threads, name),
                )
            except TxnEngineError as error:
                world.kernel.note(process.name, "", "restorer", error.code, "", "")


# --- what must hold -------------------------------------------------------------------------------------------------


def check(world: World, final: Final) -> list[str]:
    """Every backup is restored, and so is every store whose restore was cut off."""
    notes = notes_of(world)
    if not notes.place.objects:
        return []

    def judge(process: Process, engine: Engine) -> list[str]:
        engine.backup(ClientStore(notes.place, process))
        found, damaged = backups(notes.place)  # type: ignore[arg-type]
        some = world.chance.random("restored").sample(found[:-1], min(len(found) - 1, _BACKUPS_MAX))
        last = MemoryStore(clock=lambda: 0)
        targets: list[tuple[str, object, int | None]] = [("the last backup", last, None)]
        targets += [(f"backup {each.number}", MemoryStore(clock=lambda: 0), each.number) for each in some]
        targets += [(each.url, each, None) for each in notes.targets if each.objects]
        topics = {each.number: each.topics for each in found}
        wrong = [str(error) for error in damaged]
        for name, target, number in targets:
            with suppress(InvalidRequestError):  # it was finished before
                _restore(process, notes.place, target, number)
            wrong += [f"{name}: {what}" for what in _wrong_in(process, target, topics)]
            world.judged["restored stores"] += 1
        newest = _engine(process, last)
        missing = sum(map(len, final.values()))
        missing -= sum(newest.scan(topic).to_table().num_rows for topic in TOPICS)
        return wrong + ([f"the last backup is without {missing} records"] if missing else [])

    return world.run_alone("judge of backups", judge)


def _restore(process: Process, place: object, target: object, number: int | None) -> None:
    restore(
        place,  # type: ignore[arg-type]
        target,  # type: ignore[arg-type]
        number=number,
        clock=process.clock,
        new_id=process.new_id,
        pause=no_pause,
        executors=lambda threads, name: TaskPool(process, threads, name),
    )


def _engine(process: Process, store: object) -> Engine:
    return Engine(
        store,  # type: ignore[arg-type]
        clock=process.clock,
        new_id=process.new_id,
        pause=no_pause,
        waiting=Waiting(process._monotonic_ms, lambda ms: sleep(ms * MS)),
        executors=lambda threads, name: TaskPool(process, threads, name),
        store_time=ClockAsStoreTime(process.clock),
    )


def _wrong_in(process: Process, store: object, topics: Mapping[int, list[str]]) -> list[str]:
    engine = _engine(process, store)
    listed, restored = engine.admin.list_topics(), engine.config.restored
    if restored is None or listed != topics[restored.number]:
        return [f"topics {listed} of {restored}"]
    if listed != sorted(TOPICS):
        return []  # of a moment when a listing did not show them yet
    sums: dict[str, int] = defaultdict(int)
    places = set()
    table = engine.scan(ACCOUNTS).to_table(["_partition", "_offset", "txn", "amount"])
    for at, offset, name, amount in zip(*(column.to_pylist() for column in table.columns), strict=True):
        sums[name] += amount
        places.add((at, offset))
    found = [f"{name} adds up to {amount}" for name, amount in sums.items() if amount]
    paid = engine.scan(PAID).to_table(["account", "amount"])
    done = set(zip(*(column.to_pylist() for column in paid.columns), strict=True))
    positions = {
        key.partition: stored.commit.offset
        for at in engine.logs.internal("__consumer_offsets")
        for key, stored in engine.logs.of(at).refresh().group_offsets.committed.items()
        if key.group_id == PAID
    }
    due = {(at, offset) for at, offset in places if offset < positions.get(at, 0)}
    found += [f"paid, and not by the group's offsets: {sorted(done - due)[:3]}"] if done - due else []
    found += [f"by the group's offsets, and not paid: {sorted(due - done)[:3]}"] if due - done else []
    runs = {run for stored in engine.coordinator.rows() for run in stored.row.committed_run_ids}
    found += [f"committed, and not there: {sorted(runs - sums.keys())[:3]}"] if runs - sums.keys() else []
    found += [f"there, and not committed: {sorted(sums.keys() - runs)[:3]}"] if sums.keys() - runs else []
    audit = verify_store(store, workers=0)  # type: ignore[arg-type]
    return found + [f"audit: {finding}" for finding in audit.findings]
