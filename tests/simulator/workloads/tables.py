"""Tables under load: a reader that opens one at any moment finds a whole state of the topic at the cut that it
names, with each record once, and a follower gets each new record once. Meanwhile several clients publish,
unpublish and die, cuts are deleted, and keepers compact, trim, seal and clean."""

from __future__ import annotations

import io
import json
import re
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field, replace
from enum import Enum
from random import Random
from typing import Any

import pyarrow.parquet as pq

from tests.simulator.applications import SCHEMA, fall_asleep
from tests.simulator.checks import Final
from tests.simulator.history import RecordId
from tests.simulator.kernel import DAY, HOUR, MS, SECOND, sleep
from tests.simulator.knobs import Knobs
from tests.simulator.process import Process
from tests.simulator.workloads import cuts
from tests.simulator.workloads.common import add_background, keep
from tests.simulator.world import Body, World
from txn_engine import Cut, Engine
from txn_engine.errors import TxnEngineError
from txn_engine.maintain import MaintenancePolicy

ACCOUNTS, TRIMMED, LATEST = PUBLISHED = (cuts.ACCOUNTS, cuts.TRIMMED, cuts.LATEST)
TOPICS = (ACCOUNTS, TRIMMED)
_TELLERS = 3
_PUBLISHERS = 3
_HOUR_MS = 3_600_000
_AGE_MS = 30 * _HOUR_MS
_LONG = 5 * DAY
_STORM = 10 * 60 * SECOND
_SURELY_KEPT = HOUR
"""For so long after the next version all of one is there, however wrong the clocks: that is a day less than the policy
says.
"""

_COMMIT = re.compile(r"_delta_log/[0-9]{20}\.json")

Rows = Counter[RecordId]


@dataclass(slots=True)
class Notes:
    """What the clients note together."""

    made: list[Cut] = field(default_factory=list)
    views: dict[tuple[int, str], Rows] = field(default_factory=dict)
    files: dict[str, Rows] = field(default_factory=dict)
    commits: dict[str, tuple[bytes, dict[str, Any], list[dict[str, Any]]]] = field(default_factory=dict)
    complaints: dict[str, None] = field(default_factory=dict)
    looks: int = 0


def notes_of(world: World) -> Notes:
    """The notes of this run."""
    notes: Notes = world.notes.setdefault("tables", Notes())
    return notes


def shape(knobs: Knobs) -> Knobs:
    """The shape of the workload of cuts, with fewer transfers."""
    return replace(cuts.shape(knobs), transactions=min(knobs.transactions, 18))


def set_up(world: World) -> None:
    """Tellers, publishers, keepers with short ages, and a client that looks at the tables."""

    def create(_: Process, engine: Engine) -> None:
        for topic in (ACCOUNTS, TRIMMED):
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
        world.client(f"teller{number}", cuts._teller(number, each))
    for number in range(_PUBLISHERS):
        world.client(f"publisher{number}", _publisher(kind_of(world)), worker=False)
    if kind_of(world) is Kind.LONER:
        world.client("loner", _loner, worker=False)
        world.client("days", lambda *_: sleep(_LONG))
    for number in range(2):
        world.client(f"keeper{number}", _keeper, worker=False)
    world.client("grower", cuts._grower)
    world.client("marker", cuts._marker, worker=False)
    world.client("onlooker", _onlooker, worker=False)
    add_background(world, TOPICS, sweepers=1, readers=0)


class Kind(Enum):
    """How a run's publishers work. USUAL: each publishes any table, in its own time.

    STORMS: all publish one table at the same moment, and some stop in the middle. LONER: one table is
    published by one process alone, which stops for days in the middle of it. If there are others, they are
    faster by then.
    """

    USUAL = 0
    STORMS = 1
    LONER = 2


def kind_of(world: World) -> Kind:
    """A run without faults has the usual publishers, because stopping in the middle is a fault."""
    return Kind(world.chance.between(0, 2, "publishers")) if world.knobs.intensity > 0 else Kind.USUAL


def _publisher(kind: Kind) -> Body:
    """Publish at a new cut or at an existing one, and now and then remove a table or a cut."""
    shared = (ACCOUNTS, LATEST) if kind is Kind.LONER else PUBLISHED

    def body(process: Process, engine: Engine) -> None:
        world, rounds = process.world, 0
        notes = notes_of(world)
        while not world.stopping:
            rounds += 1
            draw = world.chance.random("publish", process.name, rounds)
            if rounds % 6 == 0:
                cuts.await_burst(world, process.name, rounds)
            topic = draw.choice(shared)
            try:
                if draw.random() < 0.7 or not notes.made:
                    keep_ms = draw.choice((None, _HOUR_MS, 30 * _HOUR_MS))
                    notes.made.append(engine.cut(shared if kind is Kind.LONER else None, keep_ms=keep_ms))
                cut = draw.choice(notes.made[-3:])
                if kind is Kind.STORMS:
                    topic = shared[world.kernel.now // _STORM % len(shared)]
                note_view(notes, engine, topic, cut)
                _stop_inside(process, kind, rounds, draw)
                if kind is Kind.STORMS and draw.random() < 0.4:
                    engine.tables.unpublish(topic, "delta")
                else:
                    engine.tables.publish(topic, "delta", cut=cut)
                if draw.random() < 0.06:
                    if world.knobs.intensity > 0 and draw.random() < 0.5:
                        fall_asleep(process, draw.randint(0, 80 * MS), draw.choice((SECOND, HOUR)))
                    engine.tables.unpublish(topic, "delta")
                if draw.random() < 0.3:
                    engine.delete_cut(cut)
            except TxnEngineError as error:
                world.kernel.note(process.name, "", "publisher", error.code, "", "")
            sleep(draw.randint(0, draw.choice((20 * MS, SECOND, 2 * HOUR))))

    return body


def _stop_inside(process: Process, kind: Kind, rounds: int, draw: Random) -> None:
    """Now and then, stop in the middle of the next step. In a storm, the step begins for all at once."""
    world = process.world
    if kind is Kind.STORMS:
        sleep(_STORM - world.kernel.now % _STORM + draw.randint(0, 20 * MS))
        stops = world.chance.random("stops", process.name, rounds)
        if stops.random() < 0.5:
            fall_asleep(process, stops.randint(20 * MS, 200 * MS), stops.choice((100 * MS, SECOND, HOUR)))
    elif world.knobs.intensity > 0 and draw.random() < 0.15:  # while the cut goes
        fall_asleep(process, draw.randint(0, 80 * MS), draw.choice((SECOND, HOUR, 30 * HOUR, 40 * HOUR)))


def _loner(process: Process, engine: Engine) -> None:
    """Publish at cuts that nobody keeps for long."""
    world, rounds = process.world, 0
    notes = notes_of(world)
    while not world.stopping:
        rounds += 1
        draw = world.chance.random("alone", process.name, rounds)
        try:
            cut = engine.cut([TRIMMED], keep_ms=_HOUR_MS // 6)
            note_view(notes, engine, TRIMMED, cut)
            if draw.random() < 0.5:
                fall_asleep(process, draw.randint(30 * MS, 200 * MS), draw.choice((36 * HOUR, 60 * HOUR)))
            engine.tables.publish(TRIMMED, "delta", cut=cut)
        except TxnEngineError as error:
            world.kernel.note(process.name, "", "loner", error.code, "", "")
        sleep(draw.randint(0, 3 * HOUR))


def note_view(notes: Notes, engine: Engine, topic: str, cut: Cut) -> None:
    """Note what a scan of the topic as of the cut reads."""
    if (cut.number, topic) not in notes.views:
        table = engine.scan(topic, cut=cut).to_table(["txn", "n"])
        names = zip(*(column.to_pylist() for column in table.columns), strict=True)
        notes.views[cut.number, topic] = Counter(names)


def _keeper(process: Process, engine: Engine) -> None:
    world, rounds = process.world, 0
    age_ms = world.chance.spread(_HOUR_MS // 6, 24 * _HOUR_MS, "age")
    policy = MaintenancePolicy(
        orphan_age_ms=age_ms,
        entries_age_ms=age_ms,
        tables_age_ms=_AGE_MS,
        trim_step=1,
        target_file_bytes=4_000,
        min_files=2,
        min_dirty_ratio=0,
    )
    while not world.stopping:
        rounds += 1
        draw = world.chance.random("keep", process.name, rounds)
        try:
            keep(engine, draw.choice(cuts._JOBS), draw.choice((None, *PUBLISHED)), policy)
        except TxnEngineError as error:
            world.kernel.note(process.name, "", "keeper", error.code, "", "")
        sleep(draw.randint(SECOND, draw.choice((10 * SECOND, 3 * HOUR))))


def _onlooker(process: Process, _: Engine) -> None:
    """Look at all tables at one moment, past every fault, because they are plain files."""
    world, rounds = process.world, 0
    while not world.stopping:
        rounds += 1
        look(world)
        draw = world.chance.random("look", process.name, rounds)
        sleep(draw.randint(0, draw.choice((100 * MS, SECOND, 2 * HOUR))))


# --- what must hold -------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Table:
    """A table as its commits describe it so far. given: what a stream got since the table was published from
    scratch."""

    files: set[str] = field(default_factory=set)
    given: Rows = field(default_factory=Counter)
    told: bool = True


def look(world: World) -> None:
    """Read the newest version of each table, and older ones whose files are surely kept."""
    notes = notes_of(world)
    notes.looks += 1
    for topic in PUBLISHED:
        root = f"topics/{topic}/0"
        keys = sorted(
            key
            for key in world.shelf.objects
            if key.startswith(f"{root}/_delta_log/0") and key.endswith("json")
        )
        table = _Table()
        for version, key in enumerate(keys):
            if key != f"{root}/_delta_log/{version:020d}.json":
                notes.complaints[f"{key}, and none of version {version}"] = None
                break
            info, actions = _commit(world, key)
            _apply(notes, world, root, key, actions, table)
            behind = (
                world.shelf.objects[keys[version + 1]][1] if version + 1 < len(keys) else world.kernel.now
            )
            withdrawn = any(_commit(world, later)[0]["at"] is None for later in keys[version + 1 :])
            if info["at"] is None:
                table = _Table()
            elif not withdrawn and world.kernel.now - behind <= _SURELY_KEPT:
                _judge(notes, world, topic, key, info, table)


def _commit(world: World, key: str) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """A commit's first line and its actions. A commit never changes. On a local disk, one that was looked at
    before it was synced may be lost in a power cut."""
    notes, (data, _) = notes_of(world), world.shelf.objects[key]
    known = notes.commits.get(key)
    if known is None or known[0] != data:
        if known is not None and world.machine is None:
            notes.complaints[f"{key} was put over another"] = None
        head, *actions = (json.loads(line) for line in data.splitlines())
        known = notes.commits[key] = data, head["commitInfo"]["txnEngine"], actions
    return known[1:]


def _apply(
    notes: Notes, world: World, root: str, key: str, actions: list[dict[str, Any]], table: _Table
) -> None:
    """What a version does to the files, and what a stream that skips changes gets from it."""
    removed = [action["remove"] for action in actions if "remove" in action]
    added = [action["add"] for action in actions if "add" in action]
    skipped = any(each["dataChange"] for each in removed)
    for each in removed:
        if each["path"] not in table.files:
            notes.complaints[f"{key} removes {each['path']}, which is not there"] = None
        table.files.discard(each["path"])
    for each in added:
        if each["path"] in table.files:
            notes.complaints[f"{key} adds {each['path']} again"] = None
        table.files.add(each["path"])
        if not skipped and each["dataChange"]:
            rows = _rows(notes, world, f"{root}/{each['path']}")
            table.given += rows or Counter()
            table.told &= rows is not None
    table.told &= not (skipped and any(each["dataChange"] for each in added))


def _rows(notes: Notes, world: World, key: str) -> Rows | None:
    """The records of a data file, or None if it was deleted before anybody looked."""
    if key not in notes.files and key in world.shelf.objects:
        found = pq.read_table(io.BytesIO(world.shelf.objects[key][0]), columns=["txn", "n"])
        notes.files[key] = Counter(zip(*(column.to_pylist() for column in found.columns), strict=True))
    return notes.files.get(key)


def _judge(notes: Notes, world: World, topic: str, key: str, info: dict[str, Any], table: _Table) -> None:
    pin = f"-{info['at']['cut']:020d}.json"
    if not any(
        each.startswith(f"topics/{topic}/0/published/delta/") and each.endswith(pin)
        for each in world.shelf.objects
    ):
        notes.complaints[f"{key} is held by no pin"] = None
    gone = sorted(path for path in table.files if f"topics/{topic}/0/{path}" not in world.shelf.objects)
    if gone:
        notes.complaints[f"{key} shows {gone[0]}, which is gone"] = None
        return
    world.judged["table versions"] += 1
    rows: Rows = Counter()
    for path in table.files:
        rows += _rows(notes, world, f"topics/{topic}/0/{path}") or Counter()
    twice = [name for name, count in rows.items() if count > 1]
    view = notes.views.get((info["at"]["cut"], topic))
    if twice:
        notes.complaints[f"{key} shows {twice[0]} twice"] = None
    if view is not None and (rows != view if info["done"] is None else view - rows):
        missing, more = sorted(view - rows), sorted(rows - view)
        notes.complaints[f"{key} is without {missing[:3]}, with {more[:3]}, at cut {info['at']['cut']}"] = (
            None
        )
    again = [name for name, count in table.given.items() if count > 1]
    if again:
        notes.complaints[f"up to {key} a stream is given {again[0]} twice"] = None
    if table.told and rows - table.given:
        notes.complaints[f"up to {key} a stream is not given {sorted(rows - table.given)[:3]}"] = None


def check(world: World, final: Final) -> list[str]:
    """Judge every look. At the end everything is shown after a publish without faults."""
    notes = notes_of(world)

    def publish_all(_: Process, engine: Engine) -> None:
        cut = engine.cut()
        for topic in PUBLISHED:
            note_view(notes, engine, topic, cut)
            engine.tables.publish(topic, "delta", cut=cut)

    world.run_alone("publisher in peace", publish_all)
    look(world)
    last = max(number for number, _ in notes.views)
    shown = {topic: notes.views[last, topic] for topic in PUBLISHED}
    found = list(notes.complaints)
    for (topic, partition), rows in final.items():
        missing = [name for _, name in rows if name not in shown[topic]]
        if missing:
            found.append(f"{topic}-{partition}: the last cut is without {missing[:3]}")
    return found


def heal(world: World) -> None:
    """Give up claims that were left behind, as in the workload of cuts."""
    with suppress(TxnEngineError):
        cuts.heal(world)
