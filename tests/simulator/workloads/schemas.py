"""Columns change while everybody is at work: two operators at once, writers with stale views, merges and
readers.

A value says to which record it belongs and, by the column's id, to which column. So a reader knows whether it
is the value that was written, whatever the column is called by then. The chains of changes are compared with
one another as they landed.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from io import BytesIO
from random import Random
from typing import Any, Final
from zlib import crc32

import pyarrow as pa
import pyarrow.parquet as pq

from storage import ObjectNotFoundError
from tests.simulator.applications import Application, note_places
from tests.simulator.checks import Final as FinalRead
from tests.simulator.history import RecordId, Writing
from tests.simulator.kernel import MINUTE, SECOND, sleep
from tests.simulator.process import Process
from tests.simulator.workloads.common import add_background, keeper, rest
from tests.simulator.world import Body, World
from txn_engine import Cut, Engine
from txn_engine.errors import CorruptObjectError, InvalidRecordError, InvalidRequestError, TxnEngineError
from txn_engine.producer import Producer
from txn_engine.schemas.changes import (
    AddColumn,
    Change,
    DropColumn,
    MakeNullable,
    RenameColumn,
    ReorderColumns,
    WidenColumn,
)
from txn_engine.schemas.layout import Column, Layout

TOPICS = ("plain",)
TABLE: Final = "table"
_BOTH: Final = (*TOPICS, TABLE)
_CLIENTS: Final = 3
_SLOT: Final = 20 * MINUTE
_LOOKS: Final = 40
_FIXED: Final = ("key", "txn", "n")
_SCHEMA = pa.schema(
    [
        pa.field("key", pa.string(), nullable=False),
        pa.field("txn", pa.string(), nullable=False),
        ("n", pa.int64()),
        ("size", pa.int32()),
        pa.field("note", pa.string(), nullable=False),
    ]
)
"""No record can be a tombstone, so that the compacted topic takes the same changes."""
_CHANGE = re.compile(r"topics/(plain|table)/0/changes/([0-9]{20})\.json")


@dataclass(slots=True)
class Notes:
    """The columns with which each record was written, by their ids; cuts, each between two looks at the
    columns; and columns whose addition was acknowledged."""

    written: dict[RecordId, frozenset[int]] = field(default_factory=dict)
    cuts: list[tuple[Cut, str, int, int]] = field(default_factory=list)
    added: list[tuple[str, str]] = field(default_factory=list)


def notes_of(world: World) -> Notes:
    """The notes of this run."""
    notes: Notes = world.notes.setdefault("schemas", Notes())
    return notes


def set_up(world: World) -> None:
    """Two operators, writers, keepers that merge and compact by key, and readers of every kind."""

    def create(_: Process, engine: Engine) -> None:
        partitions = world.knobs.partitions
        engine.admin.create_topic("plain", partitions=partitions, schema=_SCHEMA, key="key")
        engine.admin.create_topic(
            TABLE, partitions=partitions, schema=_SCHEMA, key="key", cleanup_policy="compact"
        )

    world.run_alone("setup", create)
    each = max(world.knobs.transactions // _CLIENTS, 1)
    for number in range(_CLIENTS):
        world.client(f"writer{number}", _writer(number, each))
    for number in range(2):
        world.client(f"operator{number}", _operator)
        world.client(f"keeper{number}", keeper(("compact", "snapshot", "compact", "seal")), worker=False)
        world.client(f"looker{number}", _looker, worker=False)
    add_background(world, TOPICS)


# --- clients ----------------------------------------------------------------------------------------------


def _operator(process: Process, engine: Engine) -> None:
    """An operator that makes a change of its own in every slot, usually at the same moment as the other
    one."""
    world = process.world
    for index in range(8):
        draw = world.chance.random("alter", process.name, index)
        topic = draw.choice(_BOTH)
        with _complaints(world, process.name, InvalidRequestError):
            layout = engine.logs.topics.get(topic).schemas.layout
            change = _change(draw, layout, f"{process.name.replace('#', '_')}_{index}")
            if change is not None:
                told = engine.admin.alter_topic(topic, change)
                if engine.logs.topics.get(topic).version < told.version:
                    world.history.complain(f"schemas: {process.name} has altered {topic} and not heard of it")
                if isinstance(change, AddColumn):
                    notes_of(world).added.append((topic, change.field.name))
        slot = (world.kernel.now // _SLOT + 1) * _SLOT
        sleep(slot - world.kernel.now + draw.choice((0, 0, SECOND // 5, draw.randint(SECOND, MINUTE))))


def _change(draw: Random, layout: Layout, name: str) -> Change | None:
    """A change that the operator draws from the columns that it knows. Some of them have to be refused."""
    free = [each for each in layout.columns if each.name not in _FIXED]
    kind = draw.choice(("add", "add", "rename", "rename", "drop", "widen", "null", "reorder", "again"))
    if kind == "add":
        default = draw.choice((None, 7))
        return AddColumn(pa.field(name, draw.choice((pa.int32(), pa.int64()))), default=default)
    if kind == "again":  # a name that was a column's: refused, unless it was this one's
        names = [each for each, _ in layout.retired]
        return RenameColumn(draw.choice(free).name, draw.choice(names)) if free and names else None
    if kind == "reorder":
        names = [each.name for each in layout.columns]
        return ReorderColumns(draw.sample(names, len(names)))
    if not free:
        return None
    column = draw.choice(free)
    if kind == "rename":
        return RenameColumn(column.name, f"r_{name}")
    if kind == "widen":
        return WidenColumn(column.name, pa.int64())
    return MakeNullable(column.name) if kind == "null" else DropColumn(column.name)


def _writer(number: int, transactions: int) -> Body:
    def body(process: Process, engine: Engine) -> None:
        app = Application(process, engine, f"writer-{number}", timeout_ms=60_000)
        for index in range(transactions):
            app.transact(f"{process.name}-{index}", lambda producer, writing: _write(app, producer, writing))
            app.rest(high=10 * MINUTE)

    return body


def _write(app: Application, producer: Producer, writing: Writing) -> None:
    draw = app.world.chance.random("write", writing.name)
    for batch in range(draw.randint(1, 3)):
        topic, partition = draw.choice(_BOTH), draw.randrange(app.world.knobs.partitions)
        layout = app.engine.logs.topics.get(topic).schemas.layout
        if draw.random() < 0.2:
            app.rest(low=SECOND, high=8 * SECOND)  # a view of before
        ids = [(writing.name, batch * 10 + at) for at in range(draw.choice((1, 1, 2)))]
        for record in ids:
            notes_of(app.world).written[record] = frozenset(layout.by_id)
        try:
            future = producer.produce(topic, _records(draw, layout, ids), partition=partition)
        except InvalidRecordError:  # it has heard of a change meanwhile
            continue
        if topic in TOPICS:
            writing.records.setdefault((topic, partition), []).extend(ids)
            future.add_done_callback(lambda done, ids=ids: note_places(writing, ids, done))
        if draw.random() < 0.3:
            future.result()


def _records(draw: Random, layout: Layout, ids: Sequence[RecordId]) -> pa.Table:
    fixed: dict[str, Callable[[RecordId], Any]] = {
        "key": lambda _: draw.choice("abcd"),
        "txn": lambda record: record[0],
        "n": lambda record: record[1],
    }
    columns = [
        pa.array(
            [fixed[each.name](record) if each.name in fixed else _value(record, each) for record in ids],
            each.type,
        )
        for each in layout.columns
    ]
    return pa.table(columns, schema=layout.arrow)


def _value(record: RecordId, column: Column) -> Any:
    """The value that was written into the column, by its id, of that record."""
    mark = f"{record[0]}/{record[1]}/{column.id}"
    return mark if pa.types.is_string(column.type) else crc32(mark.encode()) & 0x7FFF_FFFF


def _looker(process: Process, engine: Engine) -> None:
    """A reader that scans with the newest columns, with those of an earlier version and of cuts, reads on
    with a consumer, and lists files."""
    world, rounds = process.world, 0
    looks = (_scan, _scan, _scan_version, _make_cut, _scan_cut, _consume, _list)
    while not world.stopping and rounds < _LOOKS:
        rounds += 1
        draw = world.chance.random("look", process.name, rounds)
        look = draw.choice(looks)
        with _complaints(world, f"{process.name} by {look.__name__}"):
            look(world, engine, draw, draw.choice(_BOTH))
        rest(process, rounds)


@contextmanager
def _complaints(world: World, who: str, *expected: type[TxnEngineError]) -> Iterator[None]:
    """Ignore errors of faults, and note errors that say that the store is damaged or that a call was
    wrong."""
    try:
        yield
    except expected:
        pass
    except (CorruptObjectError, InvalidRequestError, InvalidRecordError) as error:
        world.history.complain(f"schemas: {who}: {error}")
    except TxnEngineError:
        pass


def _scan(world: World, engine: Engine, _: Random, topic: str) -> None:
    scan = engine.scan(topic)
    table = scan.to_table()
    _judge(world, "scan", table, scan.topics[0].schemas.layout)


def _scan_version(world: World, engine: Engine, draw: Random, topic: str) -> None:
    layouts = engine.logs.topics.look_up(topic).schemas.layouts
    version = draw.randrange(len(layouts))
    with suppress(InvalidRequestError):  # a column of then may be gone
        table = engine.scan(topic, schema_version=version).to_table()
        _judge(world, f"scan of version {version}", table, layouts[version])


def _make_cut(world: World, engine: Engine, _: Random, topic: str) -> None:
    before = engine.logs.topics.look_up(topic).version
    cut = engine.cut([topic])
    notes_of(world).cuts.append((cut, topic, before, engine.logs.topics.look_up(topic).version))


def _scan_cut(world: World, engine: Engine, draw: Random, _: str) -> None:
    cuts = notes_of(world).cuts
    if not cuts:
        return
    cut, topic, before, after = draw.choice(cuts)
    scan = engine.scan(topic, cut=cut, schema_version="cut")
    table = scan.to_table()
    layout = scan.topics[0].schemas.layout
    if not before <= layout.version <= after:
        world.history.complain(
            f"schemas: cut {cut.number} is read by version {layout.version}, and was made at {before} to {after}"
        )
    _judge(world, f"scan of cut {cut.number}", table, layout)


def _consume(world: World, engine: Engine, _: Random, topic: str) -> None:
    with engine.consumer() as consumer:
        consumer.subscribe([topic])
        for _ in range(6):
            table = consumer.poll(max_records=3)
            if table is not None:
                layouts = engine.logs.topics.look_up(topic).schemas.layouts
                owners = layouts[-1].owners
                by_id = {each.id: each for layout in layouts for each in layout.columns}
                columns = [by_id[owners[name]] for name in table.schema.names if name in owners]
                _judge_columns(world, "consumer", table, {each.id: each for each in columns}, owners)


def _list(world: World, engine: Engine, _: Random, topic: str) -> None:
    """A list of files says of each file what the file itself says."""
    for file in engine.scan(topic).files():
        key = file.uri[file.uri.index("topics/") :]
        try:
            held = pq.read_metadata(BytesIO(world.shelf.get(key))).metadata or {}
        except ObjectNotFoundError:  # cleaned up since
            continue
        said = int(held.get(b"txn_engine.schema", b"0"))
        if said != file.schema_version:
            world.history.complain(
                f"schemas: {key} is listed under version {file.schema_version}, and says {said}"
            )


# --- rules --------------------------------------------------------------------------------------------------


def _judge(world: World, who: str, table: pa.Table, layout: Layout) -> None:
    _judge_columns(world, who, table, layout.by_id, {each.name: each.id for each in layout.columns})


def _judge_columns(world: World, who: str, table: pa.Table, columns: Any, owners: Any) -> None:
    written = notes_of(world).written
    for row in table.to_pylist():
        record = (row["txn"], row["n"])
        if record not in written:
            world.history.complain(f"schemas: {who} was given {record}, which nobody wrote")
            continue
        for name, value in row.items():
            if name in _FIXED or name.startswith("_"):
                continue
            column = columns[owners[name]]
            expected = None if column.default is None else column.default.as_py()
            if column.id in written[record]:
                expected = _value(record, column)
            if value != expected:
                world.history.complain(
                    f"schemas: {who} was given {value!r} as {name!r} (column {column.id}) of {record}, and "
                    f"{expected!r} is right"
                )


def _chains(world: World) -> list[str]:
    """Each change has the version of the one before it, or makes the next one."""
    found: list[str] = []
    before = dict.fromkeys(_BOTH, 0)
    for _, key, data, _ in world.shelf.landed:
        if (match := _CHANGE.fullmatch(key)) is None:
            continue
        schema = json.loads(data)["schema"]
        version = 0 if schema is None else schema["version"]
        is_new = schema is not None and schema["change"] is not None
        if version != before[match[1]] + is_new:
            found.append(f"schemas: {key} does not go on from version {before[match[1]]}")
        before[match[1]] = version
    return found


def check(world: World, _: FinalRead) -> list[str]:
    """Judge the chains, what was acknowledged, and what is read in the end, with all columns and as of every
    cut."""
    found = _chains(world)
    notes = notes_of(world)

    def last(_: Process, engine: Engine) -> None:
        for topic in _BOTH:
            _scan(world, engine, world.chance.random("last"), topic)
            owners = engine.logs.topics.look_up(topic).schemas.layout.owners
            for added in notes.added:
                if added[0] == topic and added[1] not in owners:
                    world.history.complain(
                        f"schemas: column {added[1]} of {topic}, whose addition was told, is gone"
                    )
        for cut in list(notes.cuts):
            notes.cuts[:] = [cut]
            _scan_cut(world, engine, world.chance.random("last"), "")

    before = len(world.history.complaints)
    world.run_alone("last", last)
    return found + world.history.complaints[before:]
