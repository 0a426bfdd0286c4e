"""What is done with a column, feature by feature: each gives back what came of its values."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq

from tests.types.columns import Column, plain
from tests.types.world import EAGER, World, by_id
from txn_engine import AddColumn, RenameColumn, ReorderColumns, errors
from txn_engine import sqlite as sqlite_out
from txn_engine.cli.copying import Copy, copy_records
from txn_engine.cli.record_text import Csv, JsonLines, LateFile, ParquetFile
from txn_engine.exact import filled_below_nulls
from txn_engine.files import infer_schema
from txn_engine.held import held_type, in_a_file, nulls
from txn_engine.loading import DEAD_LETTERS, load_files, replay
from txn_engine.quality import Declaration, Output, SameRows, check_exactly_once, row_checks
from txn_engine.quality.digest import digest_of
from txn_engine.quality.file_pass import facts_of_file
from txn_engine.quality.result import CheckResult
from txn_engine.sql.file_parts import part_of
from txn_engine.value_text import plain_column

_NOT_NULL = {
    "type": "expect_column_values_to_not_be_null",
    "kwargs": {"column": "c"},
    "meta": {"on_failure": "dead_letter"},
}
Feature = Callable[[World, Column], list[Any]]
FEATURES: dict[str, Feature] = {}
"""By name what gives a column's values back, by `id`."""
TITLES: dict[str, str] = {}
"""By name what the page says of it."""


def feature(title: str) -> Callable[[Feature], Feature]:
    """Register a feature under its function's name; the title is the page's."""

    def register(function: Feature) -> Feature:
        name = function.__name__
        FEATURES[name], TITLES[name] = function, title
        return function

    return register


def typed(table: pa.Table, column: Column) -> list[Any]:
    """The values, which have the topic's own type."""
    found = table.column("c")
    assert found.type == column.kind, f"{found.type}, not {column.kind}"
    return plain(found)


# --- records ----------------------------------------------------------------------------------------------------


@feature("`create_topic`, `produce`, `scan`")
def produce(world: World, column: Column) -> list[Any]:
    """In a transaction, and read."""
    return typed(world.rows(world.topic_of(column)), column)


@feature("`produce` to partitions by a key, `consumer.poll`")
def produce_keyed(world: World, column: Column) -> list[Any]:
    """Records are split by key."""
    topic = world.topic(column.schema, key="id", partitions=3)
    world.produce(topic, column.records)
    consumer = world.engine.consumer()
    consumer.subscribe([topic])
    found = consumer.poll()
    assert found is not None
    return typed(by_id(found), column)


@feature("`append` and `read` of a partition's log")
def append(world: World, column: Column) -> list[Any]:
    """The lowest level of the API."""
    log = world.engine.partition(world.topic(column.schema), 0)
    log.append(column.records)
    return typed(log.read(0), column)


@feature("as a topic's key")
def as_key(world: World, column: Column) -> list[Any]:
    """The column decides on the partition, and on which record is a key's latest."""
    topic = world.topic(column.schema, key="c", partitions=3, cleanup_policy="compact")
    whole = column.whole
    world.produce(topic, whole, whole)
    assert not world.engine.maintenance.compact(topic, policy=EAGER).failures
    found = by_id(world.engine.scan(topic).to_table())
    assert found.num_rows == len(set(plain(whole.column("c"))))
    of_last = dict(zip(plain(whole.column("c")), whole.column("id").to_pylist(), strict=True))
    assert set(found.column("id").to_pylist()) == set(of_last.values())
    kept = dict(zip(found.column("id").to_pylist(), typed(found, column), strict=True))
    # what compaction dropped, as given: the others are as they came out
    given = enumerate(column.values)
    return [kept.get(number, value) for number, value in given]


# --- files ------------------------------------------------------------------------------------------------------


def _load(world: World, path: Path, schema: pa.Schema, **reading: Any) -> str:
    topic = world.topic(schema)
    load_files(world.engine, topic, path, run_id="1", **reading)
    return topic


def parquet_file(world: World, records: pa.Table, *, store_schema: bool = True) -> Path:
    """A file of these records."""
    path = world.file(".parquet")
    # Arrow's writer takes nulls of a struct's members for its own, where the struct is null
    held = in_a_file(records)
    columns = [filled_below_nulls(column) for column in held.columns]
    pq.write_table(pa.Table.from_arrays(columns, schema=held.schema), path, store_schema=store_schema)
    return path


@feature("Parquet files")
def parquet(world: World, column: Column) -> list[Any]:
    """A file that Arrow wrote with its own schema."""
    topic = _load(world, parquet_file(world, column.records), column.schema)
    return typed(world.rows(topic), column)


@feature("Parquet files of other programs")
def parquet_alone(world: World, column: Column) -> list[Any]:
    """A file that has Parquet's types alone."""
    topic = _load(world, parquet_file(world, column.records, store_schema=False), column.schema)
    return typed(world.rows(topic), column)


@feature("`topics infer` and a topic of what it says")
def infer(world: World, column: Column) -> list[Any]:
    """The topic has the columns that were inferred of a Parquet file, and takes the file."""
    path = parquet_file(world, column.records)
    return world.values(_load(world, path, infer_schema(path)))


def _consumed(world: World, column: Column, form: str) -> Path:
    path = world.file(f".{form}")
    rows = world.rows(world.topic_of(column))
    if form == "parquet":
        file = ParquetFile(path)
        file.write(rows)
        file.close()
        return path
    stream = LateFile(path)
    writer = Csv(stream, "base64") if form == "csv" else JsonLines(stream, "base64")
    writer.write(rows)
    writer.close()
    stream.close()
    return path


@feature("Parquet files, as `consume` writes them")
def parquet_consumed(world: World, column: Column) -> list[Any]:
    """Out and in again."""
    topic = _load(world, _consumed(world, column, "parquet"), column.schema)
    return typed(world.rows(topic), column)


@feature("CSV files, as `consume` writes them")
def csv(world: World, column: Column) -> list[Any]:
    """Out and in again."""
    path = _consumed(world, column, "csv")
    return typed(world.rows(_load(world, path, column.schema, binary="base64")), column)


@feature("JSON lines, as `consume` writes them")
def jsonl(world: World, column: Column) -> list[Any]:
    """Out and in again."""
    path = _consumed(world, column, "jsonl")
    return typed(world.rows(_load(world, path, column.schema, binary="base64")), column)


@feature("dead letters, and their replay")
def dead_letters(world: World, column: Column) -> list[Any]:
    """Each row comes without an `id`, becomes a letter, gets its `id` there and is replayed."""
    topic, dead = world.topic(column.schema), world.topic(DEAD_LETTERS)
    records = column.records
    bad = records.set_column(0, "id", pa.nulls(len(records), pa.int64()))
    load_files(world.engine, topic, parquet_file(world, bad), run_id="1", dead_letter_topic=dead)
    letters = world.engine.scan(dead).to_table()
    repaired = {}
    for number, letter in enumerate(letters.sort_by("source_line").to_pylist()):
        row = json.loads(letter["columns"], parse_float=str) | {"id": number}
        repaired[letter["_partition"], letter["_offset"]] = json.dumps(row)
    done = replay(world.engine, dead, repaired=repaired)
    if done.failed_again:  # then every row is a letter still, and none is lost
        assert (done.failed_again, done.records) == (len(records), 0)
        (error,) = set(
            world.engine.scan(dead).to_table(["error_class"]).column("error_class").to_pylist()[-1:]
        )
        raise getattr(errors, str(error))("letters that come back", actor="replay")
    return typed(world.rows(topic), column)


# --- upkeep -----------------------------------------------------------------------------------------------------


@feature("`erase`")
def erase(world: World, column: Column) -> list[Any]:
    """One record goes, chosen by another column; the others are as they were."""
    topic = world.topic(column.schema)
    world.produce(topic, column.records)
    nulls = world.engine.erase(topic, "c IS NULL").records
    assert nulls == column.values.count(None)
    assert world.engine.erase(topic, "id = 0", execute=True).records == 1
    return [column.values[0], *typed(world.rows(topic), column)]


@feature("compaction by size")
def compact(world: World, column: Column) -> list[Any]:
    """Two files become one."""
    topic = world.topic(column.schema)
    world.produce(topic, column.records.slice(0, 1), column.records.slice(1))
    report = world.engine.maintenance.compact(topic, policy=EAGER)
    assert (report.failures, sum(each.outputs for each in report.partitions)) == ((), 1)
    return typed(world.rows(topic), column)


@feature("compaction by key")
def compact_by_key(world: World, column: Column) -> list[Any]:
    """Of each key the latest record stays."""
    topic = world.topic(column.schema, key="id", partitions=2, cleanup_policy="compact")
    nothing = column.records.set_column(1, "c", nulls(len(column.records), column.kind))
    world.produce(topic, nothing, column.records)
    report = world.engine.maintenance.compact(topic, policy=EAGER)
    assert not report.failures
    assert world.engine.scan(topic).to_table(["id"]).num_rows == len(column.records)
    return typed(world.rows(topic), column)


@feature("changes of other columns")
def alter(world: World, column: Column) -> list[Any]:
    """The column is renamed and moved; records from before are read by the new columns, and merged."""
    topic = world.topic(column.schema)
    world.produce(topic, column.records.slice(0, 1))
    changes: list[Any] = [
        RenameColumn("c", "d"),
        AddColumn(pa.field("e", pa.int64())),
        ReorderColumns(["e", "d", "id"]),
    ]
    world.engine.admin.alter_topic(topic, changes)
    world.produce(topic, column.records.slice(1).rename_columns(["id", "d"]))
    before = world.values(topic, "d")
    assert not world.engine.maintenance.compact(topic, policy=EAGER).failures
    found = world.rows(topic, "d")
    assert plain(found.column("d")) == before
    return typed(found.rename_columns(["id", "c"]), column)


@feature("a column that is added")
def add_column(world: World, column: Column) -> list[Any]:
    """Older records have nulls."""
    topic = world.topic(pa.schema([column.schema.field("id")]))
    older = pa.table({"id": pa.array([10**9], pa.int64())}, schema=pa.schema([column.schema.field("id")]))
    world.produce(topic, older)
    world.engine.admin.alter_topic(topic, AddColumn(column.schema.field("c")))
    world.produce(topic, column.records)
    *found, last = typed(world.rows(topic), column)
    assert last is None
    return found


@feature("a default of a column that is added")
def default(world: World, column: Column) -> list[Any]:
    """Older records have the default: two of the values in their turn."""
    found = column.values
    for at, value in enumerate(column.records.column("c")[:2]):
        topic = world.topic(pa.schema([column.schema.field("id")]))
        world.produce(topic, column.records.select(["id"]).slice(0, 1))
        world.engine.admin.alter_topic(topic, AddColumn(column.schema.field("c"), default=value))
        world.produce(topic, column.records.select(["id"]).slice(0, 1))
        assert not world.engine.maintenance.compact(topic, policy=EAGER).failures
        one, other = typed(world.rows(topic), column)
        assert one == other == plain(world.engine.sql(f'SELECT c FROM "{topic}"').column("c"))[0]
        found[at] = one
    return found


@feature("cuts")
def cut(world: World, column: Column) -> list[Any]:
    """What was there is read as of the cut, and nothing that came later."""
    made, topics = world.cut
    return typed(by_id(world.engine.scan(topics[column], cut=made).to_table()), column)


@feature("`sql`")
def sql(world: World, column: Column) -> list[Any]:
    """A column as it stands."""
    topic = world.topic_of(column)
    empty = world.engine.sql(f'SELECT c FROM "{topic}" WHERE id < 0')
    assert empty.schema.field("c").type == column.kind
    return typed(world.engine.sql(f'SELECT id, c FROM "{topic}" ORDER BY id'), column)


@feature("digests of proofs")
def digest(world: World, column: Column) -> list[Any]:
    """Records have one digest as they were given, as they are read, and as a file of the topic has them."""
    found = world.rows(world.topic_of(column)).select(["c"])
    given = column.records.select(["c"])
    topic = world.engine.logs.topics.get(world.topic_of(column))
    (file,) = world.engine.scan(topic.name).files()
    root = file.uri[: file.uri.index("topics/")]
    facts = facts_of_file(world.engine.store, topic.schemas, part_of(file, root))
    assert digest_of(found) == digest_of(given)
    assert facts.digest == digest_of(column.records)
    assert digest_of(found.slice(1)) != digest_of(given)
    return plain(found.column("c"))


# --- other topics and checks ------------------------------------------------------------------------------------


@feature("`topics copy`")
def copy(world: World, column: Column) -> list[Any]:
    """Into a topic with the same columns."""
    topics, name = world.engine.logs.topics, world.topic(column.schema)
    wanted = Copy(topics.look_up(world.topic_of(column)), topics.look_up(name), {})
    copy_records(world.engine, wanted, f"copy-{name}", slice_records=2, progress=lambda _: None)
    return typed(world.rows(name), column)


@feature("checks of rows, as `--checks` has them")
def row_check(world: World, column: Column) -> list[Any]:
    """A row whose value is null becomes a dead letter, the others are records."""
    topic, dead = world.topic(column.schema), world.topic(DEAD_LETTERS)
    file = parquet_file(world, column.records)
    checks = row_checks({"name": "whole", "expectations": [_NOT_NULL]})
    load_files(world.engine, topic, file, run_id="1", dead_letter_topic=dead, row_checks=checks)
    kept = world.rows(topic)
    letters = world.engine.scan(dead).to_table(["source_line"]).column("source_line").to_pylist()
    at_null = {at for at, value in enumerate(column.values) if value is None}
    assert len(letters) == len(at_null) > 0
    found = dict(zip(kept.column("id").to_pylist(), typed(kept, column), strict=True))
    assert not found.keys() & at_null
    return [found.get(at) for at in range(len(column.records))]


@feature("`quality run`: an output with the same rows")
def same_rows(world: World, column: Column) -> list[Any]:
    """Two topics with the same records are the same, and they are not where one has a record more."""
    topic, other = world.topic_of(column), world.topic(column.schema)
    world.produce(other, column.records)
    check = Declaration(topic, record_id=("id",), outputs=(Output(other, SameRows({"id": "id", "c": "c"})),))

    def status() -> CheckResult:
        result = check_exactly_once(world.engine, check, report_folder=world.file(""))
        return next(each for each in result.checks if each.name.startswith("identity_in"))

    assert status().status == "passed"
    world.produce(other, column.records.slice(0, 1))
    assert status().status == "failed"
    return column.values


# --- other places -----------------------------------------------------------------------------------------------


@feature("backup and restore")
def backup(world: World, column: Column) -> list[Any]:
    """All topics are in one backup, which is restored once."""
    topic = world.topic_of(column)
    found = by_id(world.restored().scan(topic).to_table())
    return typed(found, column)


@feature("the pages")
def pages(world: World, column: Column) -> list[Any]:
    """Each record is shown as `consume` shows it."""
    from txn_engine_airflow.pages.records import sample

    topic = world.topic_of(column)
    shown = sample(world.engine, topic, 0, offset=0, count=100, uncommitted=False)
    texts = [record[shown.columns.index("c")] for record in shown.records]
    rows = world.rows(topic)
    expected = plain_column(rows.column("c").slice(0, 100), "text")
    assert [text is None for text in texts] == [text is None for text in expected]
    assert len(set(map(str, texts))) == len(set(map(str, expected)))
    return plain(rows.column("c"))


@feature("SQLite, out and in")
def sqlite(world: World, column: Column) -> list[Any]:
    """A table that is made for the topic, and a topic that is loaded from it."""
    topic, again = world.topic_of(column), world.topic(column.schema)
    with closing(sqlite3.connect(":memory:")) as connection:
        consumer = world.engine.consumer(group_id=f"to-{again}")
        consumer.subscribe([topic])
        sqlite_out.consume_into(connection, consumer, sqlite_out.insert_into("t", create=True))
        sqlite_out.load_query(world.engine, connection, "SELECT * FROM t", again, run_id="1")
    return typed(world.rows(again), column)


@feature("a Delta table, read by deltalake")
def delta(world: World, column: Column) -> list[Any]:
    """Published, and read by Delta's own reader."""
    from deltalake import DeltaTable

    uri = world.on_disk().tables.publish(world.disk_topic_of(column), "delta")["delta"]
    dataset = DeltaTable(uri).to_pyarrow_dataset()
    is_null = ds.field("c").is_null()
    found = pa.concat_tables([dataset.to_table(filter=is_null), dataset.to_table(filter=~is_null)])
    for value in [] if pa.types.is_nested(held_type(column.kind)) else found.column("c").unique():
        equal = dataset.to_table(filter=ds.field("c") == value)
        assert equal.num_rows > 0 or not value.is_valid or value.as_py() != value.as_py()
    return plain(by_id(found).column("c"))


@feature("an Iceberg table, read by pyiceberg")
def iceberg(world: World, column: Column) -> list[Any]:
    """Published, and read by Iceberg's own reader."""
    from pyiceberg.table import StaticTable

    uri = world.on_disk().tables.publish(world.disk_topic_of(column), "iceberg")["iceberg"]
    table = StaticTable.from_metadata(uri)
    # its filters are on columns without parts
    filters = (
        ("id < 1", "id >= 1")
        if pa.types.is_nested(held_type(column.kind))
        else ("c IS NULL", "c IS NOT NULL")
    )
    halves = [table.scan(test, selected_fields=("id", "c")).to_arrow() for test in filters]
    found = plain(by_id(pa.concat_tables(halves)).column("c"))
    if column.shape == "nested" and pa.types.is_struct(held_type(column.inner)):
        # where a list or a map of structs is null, pyiceberg gives an empty one (docs/TABLES.md)
        given = column.values
        assert list(map(_without_empty, found)) == list(map(_without_empty, given))
        return given
    return found


def _without_empty(row: Any) -> Any:
    return row and {name: value or None for name, value in row.items()}
