"""Erasure under load: several clients that die erase one account's records again and again, while others
transfer, cut, publish, compact, trim and clean. All other records stay where they are, also as of every cut.
Once an erasure has ended without faults, no object of the topic holds a record of that account."""

from __future__ import annotations

import io
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from tests.simulator.applications import SCHEMA, Application, records
from tests.simulator.checks import Final
from tests.simulator.history import RecordId, Writing
from tests.simulator.kernel import DAY, HOUR, MINUTE, SECOND, sleep
from tests.simulator.knobs import Knobs
from tests.simulator.process import Process
from tests.simulator.workloads.common import add_background, keep
from tests.simulator.world import Body, World
from txn_engine import Engine
from txn_engine.errors import TxnEngineError
from txn_engine.log.cut_format import Cut
from txn_engine.maintain import MaintenancePolicy
from txn_engine.producer import Producer

ACCOUNTS, PERSONS = "accounts", "persons"
TOPICS = (ACCOUNTS,)
"""Of which all records stay; those of the other one are judged here."""
ERASED = 0
"""The account that is erased."""
_TELLERS = 2
_ERASERS = 2
_JOBS = ("compact", "compact", "clean", "clean", "snapshot", "seal", "retain")
_HOUR_MS = 3_600_000

_SECOND = 1
"""And one that is erased when all is over."""
_POLICY = MaintenancePolicy(orphan_age_ms=0, entries_age_ms=0, trim_step=1, min_files=2)

Rows = dict[tuple[int, int], tuple[RecordId, int]]
"""By partition and offset: a record's name, and its account."""


@dataclass(frozen=True, slots=True)
class OfOneAccount:
    """The records of one account, as an erasure is asked for them."""

    account: int = ERASED
    columns: tuple[str, ...] = ("account",)
    is_constant: bool = False

    def matches(self, found: pa.Table) -> NDArray[np.bool_]:
        """Which records are that account's."""
        return found.column("account").to_numpy() == self.account


@dataclass(slots=True)
class Notes:
    """What the clients note together."""

    written: list[tuple[str, RecordId, int]] = field(default_factory=list)
    cuts: dict[int, tuple[Cut, Rows]] = field(default_factory=dict)
    complaints: dict[str, None] = field(default_factory=dict)
    finished: int = 0


def notes_of(world: World) -> Notes:
    """The notes of this run."""
    notes: Notes = world.notes.setdefault("erasure", Notes())
    return notes


def shape(knobs: Knobs) -> Knobs:
    """Days, because nothing else is deleted before its grace period is over."""
    return replace(
        knobs,
        longest_pause=2 * DAY,
        partitions=min(knobs.partitions, 2),
        transactions=min(knobs.transactions, 20),
    )


def set_up(world: World) -> None:
    """Tellers, erasers, a client that cuts and publishes, and keepers with short ages."""

    def create(_: Process, engine: Engine) -> None:
        for topic in (ACCOUNTS, PERSONS):
            engine.admin.create_topic(topic, partitions=world.knobs.partitions, schema=SCHEMA, key="account")

    world.run_alone("setup", create)
    each = max(world.knobs.transactions // _TELLERS, 4)
    for number in range(_TELLERS):
        world.client(f"teller{number}", _teller(number, each))
    for number in range(_ERASERS):
        world.client(f"eraser{number}", _eraser, worker=False)
    for number in range(2):
        world.client(f"keeper{number}", _keeper, worker=False)
    world.client("cutter", _cutter, worker=False)
    world.client("publisher", _publisher, worker=False)
    add_background(world, TOPICS, sweepers=2, readers=1)


def _teller(number: int, transfers: int) -> Body:
    def body(process: Process, engine: Engine) -> None:
        app = Application(process, engine, f"teller-{number}", timeout_ms=600_000)
        for index in range(transfers):
            app.transact(f"{process.name}-{index}", partial(_transfer, app))
            app.rest(low=SECOND, high=4 * HOUR)

    return body


def _transfer(app: Application, producer: Producer, writing: Writing) -> None:
    """Write a record that the history judges, and some of persons, in one transaction."""
    draw, world = app.world.chance.random("transfer", writing.name), app.world
    notes = notes_of(world)
    app.write(producer, writing, ACCOUNTS, draw.randrange(world.knobs.partitions), 1)
    for batch in range(draw.randint(1, 2)):
        accounts = [draw.choice((ERASED, ERASED, 1, 2, 3)) for _ in range(draw.randint(1, 4))]
        ids = [(writing.name, 100 * batch + n) for n in range(len(accounts))]
        partition = draw.randrange(world.knobs.partitions)
        notes.written += [(writing.name, name, account) for name, account in zip(ids, accounts, strict=True)]
        producer.produce(PERSONS, records(ids, accounts), partition=partition)
        if draw.random() < 0.3:
            app.rest(high=20 * MINUTE)


def _eraser(process: Process, engine: Engine) -> None:
    world, rounds = process.world, 0
    while not world.stopping:
        rounds += 1
        draw = world.chance.random("erase", process.name, rounds)
        try:
            engine.erase(PERSONS, OfOneAccount(), execute=draw.random() < 0.9, everything=True)
            notes_of(world).finished += 1
        except TxnEngineError as error:
            world.kernel.note(process.name, "", "eraser", error.code, "", "")
        sleep(draw.randint(MINUTE, draw.choice((HOUR, 12 * HOUR))))


def _keeper(process: Process, engine: Engine) -> None:
    world, rounds = process.world, 0
    age_ms = world.chance.spread(_HOUR_MS // 6, 24 * _HOUR_MS, "age")
    policy = MaintenancePolicy(
        orphan_age_ms=age_ms, entries_age_ms=age_ms, trim_step=1, target_file_bytes=4_000, min_files=2
    )
    while not world.stopping:
        rounds += 1
        draw = world.chance.random("keep", process.name, rounds)
        try:
            if draw.random() < 0.2:
                engine.finish_erasures(PERSONS)
            keep(engine, draw.choice(_JOBS), draw.choice((None, PERSONS)), policy)
        except TxnEngineError as error:
            world.kernel.note(process.name, "", "keeper", error.code, "", "")
        sleep(draw.randint(10 * SECOND, 4 * HOUR))


def _cutter(process: Process, engine: Engine) -> None:
    """Make cuts, and read as of existing ones: records that nobody erases are the same as before."""
    world, rounds = process.world, 0
    notes = notes_of(world)
    while not world.stopping:
        rounds += 1
        draw = world.chance.random("cut", process.name, rounds)
        try:
            if draw.random() < 0.4 or not notes.cuts:
                cut = engine.cut()
                notes.cuts[cut.number] = cut, _read(engine, cut)
            else:
                _look_again(notes, engine, draw.choice(sorted(notes.cuts)))
        except TxnEngineError as error:
            world.kernel.note(process.name, "", "cutter", error.code, "", "")
        sleep(draw.randint(SECOND, draw.choice((MINUTE, 6 * HOUR))))


def _publisher(process: Process, engine: Engine) -> None:
    world, rounds = process.world, 0
    while not world.stopping:
        rounds += 1
        draw = world.chance.random("publish", process.name, rounds)
        try:
            engine.tables.publish(PERSONS, "delta")
            if draw.random() < 0.05:
                engine.tables.unpublish(PERSONS, "delta")
        except TxnEngineError as error:
            world.kernel.note(process.name, "", "publisher", error.code, "", "")
        sleep(draw.randint(MINUTE, draw.choice((HOUR, 12 * HOUR))))


def _read(engine: Engine, cut: Cut | None = None) -> Rows:
    table = engine.scan(PERSONS, cut=cut).to_table(["_partition", "_offset", "txn", "n", "account"])
    rows = zip(*(column.to_pylist() for column in table.columns), strict=True)
    return {(partition, offset): ((name, n), account) for partition, offset, name, n, account in rows}


def _staying(rows: Rows) -> Rows:
    return {at: row for at, row in rows.items() if row[1] != ERASED}


def _look_again(notes: Notes, engine: Engine, number: int) -> Rows:
    cut, before = notes.cuts[number]
    now = _read(engine, cut)
    if _staying(now) != _staying(before):
        gone, come = _staying(before).keys() - now.keys(), _staying(now).keys() - before.keys()
        notes.complaints[f"cut {number} is without {sorted(gone)[:5]}, with {sorted(come)[:5]}"] = None
    if not now.items() <= before.items():
        notes.complaints[f"cut {number} shows {sorted(now.items() - before.items())[:3]} anew"] = None
    return now


# --- what must hold -------------------------------------------------------------------------------------------------


def check(world: World, _final: Final) -> list[str]:
    """After an erasure without faults nothing holds a record of the account, and all other committed records
    are there once. Cuts can still be read after all dead files were cleaned up, and after their replacements
    were erased from too."""
    notes = notes_of(world)

    def erase(_: Process, engine: Engine) -> None:
        report = engine.erase(PERSONS, OfOneAccount(), execute=True, everything=True)
        empty = {each.partition for each in report.partitions if not each.searched_to}
        held = [each for each in report.still_held if not any(f"-{at} data/" in each.place for at in empty)]
        if held:
            notes.complaints[f"in peace still held: {held[0]}"] = None
        rows = _read(engine)
        _judge(world, notes, rows)
        _look_at_cuts(notes, engine, {ERASED})
        engine.admin.snapshot(PERSONS)
        sleep(2 * DAY)
        engine.maintenance.clean(PERSONS, policy=_POLICY)
        _look_at_cuts(notes, engine, {ERASED})
        engine.erase(PERSONS, OfOneAccount(_SECOND), execute=True, everything=True)
        for _, before in notes.cuts.values():
            for at in [at for at, (_, account) in before.items() if account == _SECOND]:
                del before[at]
        _look_at_cuts(notes, engine, {ERASED, _SECOND})

    world.run_alone("eraser in peace", erase)
    logs = {key.split("/log/")[0] for key in world.shelf.objects if "/log/" in key}
    for key in sorted(world.shelf.objects):
        # what was uploaded to an empty log no floor refuses
        if key.startswith(f"topics/{PERSONS}/0/") and key.split("/data/")[0] in logs and "/data/" in key:
            found = pq.read_table(io.BytesIO(world.shelf.objects[key][0]), columns=["account"])
            if ERASED in found.column("account").to_pylist():
                notes.complaints[f"{key} holds what was erased"] = None
    return list(notes.complaints)


def _look_at_cuts(notes: Notes, engine: Engine, gone: set[int]) -> None:
    for number in sorted(notes.cuts):
        if gone & {account for _, account in _look_again(notes, engine, number).values()}:
            notes.complaints[f"cut {number} shows what was erased"] = None


def _judge(world: World, notes: Notes, rows: Rows) -> None:
    seen = [name for name, _ in rows.values()]
    twice = {name for name in seen if seen.count(name) > 1}
    if twice:
        notes.complaints[f"{sorted(twice)[:3]} stand there twice"] = None
    outcomes = {name: writing.outcome for name, writing in world.history.writings.items()}
    for name, record, account in notes.written:
        if outcomes.get(name) == "ok" and account != ERASED and record not in seen:
            notes.complaints[f"{record} of account {account} was committed, and is gone"] = None
        if outcomes.get(name) in ("failed", "open", "refused") and record in seen:
            notes.complaints[f"{record} was not committed, and is there"] = None
    if ERASED in {account for _, account in rows.values()}:
        notes.complaints["a scan shows what was erased"] = None


def heal(world: World) -> None:
    """Give up claims that were left behind."""

    def tidy(_: Process, engine: Engine) -> None:
        with suppress(TxnEngineError):
            engine.maintenance.clean(ACCOUNTS)

    world.run_alone("tidy", tidy)
