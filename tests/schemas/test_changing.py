"""A topic's columns change while others use it: writers and readers with an old view, races, damage, cuts and
compaction."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from itertools import count
from unittest import mock

import pyarrow as pa
import pytest

import txn_engine
from storage import LATER_FORMAT, decode_json, encode_json
from storage.reasons import StoreReason
from tests.engine.test_field_ids import produce_as_before
from tests.loading.refusals import because
from tests.support.field_ids import field_ids
from tests.support.refusals import damaged_at, refused
from txn_engine import (
    AddColumn,
    CorruptObjectError,
    DropColumn,
    Engine,
    InvalidConfigError,
    InvalidRecordError,
    InvalidRequestError,
    MakeNullable,
    RenameColumn,
    SchemaChangedError,
    TopicPartition,
    WidenColumn,
)
from txn_engine.log.topics import Topic, TopicRegistry
from txn_engine.maintain import MaintenancePolicy
from txn_engine.reasons import Reason

EAGER = MaintenancePolicy(min_files=2, min_dirty_ratio=0.0)
SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), ("note", pa.string()), ("size", pa.int32())])
_STORES = count()


@pytest.fixture
def url() -> str:
    return f"memory://changing-{next(_STORES)}"


@pytest.fixture
def engine(url: str) -> Iterator[Engine]:
    with txn_engine.connect(url) as connected:
        connected.admin.create_topic("payments", partitions=1, schema=SCHEMA, key="id")
        yield connected


@pytest.fixture
def other(url: str, engine: Engine) -> Iterator[Engine]:
    """Another process, which has looked the topic up before and keeps that for five seconds."""
    with txn_engine.connect(url) as connected:
        connected.logs.topics.get("payments")
        yield connected


def rows(*ids: int, schema: pa.Schema = SCHEMA) -> pa.Table:
    return pa.Table.from_pylist(
        [{"id": each, "note": f"n{each}", "size": each} for each in ids], schema=schema
    )


def put(engine: Engine, *ids: int) -> None:
    engine.producer().produce("payments", rows(*ids)).result()


def seen(table: pa.Table | None) -> list[dict[str, object]]:
    assert table is not None
    return table.drop_columns(["_partition", "_offset", "_timestamp"]).to_pylist()


def test_a_writer_that_has_not_heard_of_it_goes_on_and_its_file_says_so(
    engine: Engine, other: Engine
) -> None:
    """A writer that does not know of the change goes on. Its file has the version that the writer knew, and
    is read like all others."""
    engine.admin.alter_topic(
        "payments", [DropColumn("note"), AddColumn(pa.field("kind", pa.string()), default="old")]
    )
    put(other, 1)
    engine.producer().produce("payments", pa.table({"id": [2], "size": pa.array([2], pa.int32())})).result()
    assert [file.schema_version for file in engine.scan("payments").files()] == [0, 1]
    assert seen(engine.scan("payments").to_table()) == [
        {"id": 1, "size": 1, "kind": "old"},
        {"id": 2, "size": 2, "kind": "old"},
    ]
    assert engine.admin.verify().findings == ()


def test_records_that_linger_go_into_files_of_their_own_version(engine: Engine) -> None:
    """Lingering records from before and after a change do not share a file, even if their names and types are
    the same."""
    with engine.producer(linger_ms=60_000) as producer:
        first = producer.produce("payments", rows(1))
        engine.admin.alter_topic("payments", [AddColumn(pa.field("kind", pa.string())), DropColumn("size")])
        second = producer.produce("payments", pa.table({"id": [2], "note": ["n2"], "kind": ["k"]}))
        producer.flush()
        assert [future.result()[0].base_offset for future in (first, second)] == [0, 1]
    assert [file.schema_version for file in engine.scan("payments").files()] == [0, 1]
    assert seen(engine.scan("payments").to_table()) == [
        {"id": 1, "note": "n1", "kind": None},
        {"id": 2, "note": "n2", "kind": "k"},
    ]


def test_a_writer_that_has_heard_of_it_is_told_what_became_of_its_columns(engine: Engine) -> None:
    """A writer that knows of the change is refused in one line that says what happened to its columns, and
    nothing is written."""
    engine.admin.alter_topic("payments", [DropColumn("note"), RenameColumn("size", "length")])
    with refused(InvalidRecordError, Reason.OTHER_COLUMNS) as caught:
        put(engine, 1)
    assert "'note' was dropped, 'size' is called 'length' now" in caught.value.seen
    assert engine.scan("payments").to_table().num_rows == 0


def test_records_of_before_are_completed_and_widened(engine: Engine) -> None:
    """A column that is younger than the topic is filled as in older records, and the old type of a widened
    one is cast. Any other type or missing column is refused."""
    engine.admin.alter_topic(
        "payments",
        [
            WidenColumn("size", pa.int64()),
            AddColumn(pa.field("kind", pa.string(), nullable=False), default="x"),
            AddColumn(pa.field("rate", pa.float64())),
        ],
    )
    put(engine, 1)
    assert seen(engine.scan("payments").to_table()) == [
        {"id": 1, "note": "n1", "size": 1, "kind": "x", "rate": None}
    ]
    narrow = SCHEMA.set(2, pa.field("size", pa.int8()))
    with refused(InvalidRecordError, Reason.TYPE_MISMATCH):
        engine.producer().produce("payments", rows(2, schema=narrow)).result()
    with refused(InvalidRecordError, Reason.OTHER_COLUMNS):
        engine.producer().produce("payments", rows(2).drop_columns(["note"])).result()


def test_a_column_that_is_there_twice_is_named(engine: Engine) -> None:
    """The error says which column is there twice, and nothing of columns that are missing or unknown."""
    twice = rows(1).append_column("id", pa.array([1], pa.int64()))
    with refused(InvalidRecordError, Reason.OTHER_COLUMNS) as caught:
        engine.producer().produce("payments", twice).result()
    assert caught.value.seen == "column 'id' is given twice"
    both = twice.drop_columns(["note"]).append_column("x", pa.array([1])).append_column("y", pa.array([1]))
    with refused(InvalidRecordError, Reason.OTHER_COLUMNS) as caught:
        engine.producer().produce("payments", both).result()
    assert caught.value.seen == (
        "column 'note' is missing, columns 'x' and 'y' are unknown, column 'id' is given twice"
    )


READS: dict[str, Callable[[Engine], pa.Table]] = {
    "scan": lambda engine: engine.scan("payments").to_table(),
    "batches": lambda engine: pa.Table.from_batches(engine.scan("payments").to_batches()),
    "log": lambda engine: engine.partition("payments", 0).read(0),
    "sql": lambda engine: engine.sql("SELECT * EXCLUDE (_topic) FROM payments"),
}


@pytest.mark.parametrize("read", READS.values(), ids=READS)
def test_a_reader_that_has_not_heard_of_it_looks_again(
    engine: Engine, other: Engine, read: Callable[[Engine], pa.Table]
) -> None:
    """A reader that finds a file of an unknown version looks the topic up again."""
    engine.admin.alter_topic("payments", RenameColumn("note", "text"))
    engine.producer().produce("payments", rows(1).rename_columns(["id", "text", "size"])).result()
    with mock.patch.object(TopicRegistry, "look_up", _once_from_memory(TopicRegistry.look_up)):
        assert seen(read(other)) == [{"id": 1, "text": "n1", "size": 1}]


def _once_from_memory(look_up: Callable[..., object]) -> Callable[..., object]:
    """Return the topic as it was known before, the first time only."""
    calls = count()

    def found(self: TopicRegistry, name: str) -> object:
        return self._known[name][1] if next(calls) == 0 else look_up(self, name)

    return found


def test_a_consumer_goes_on_in_the_new_columns_with_its_next_poll(engine: Engine, other: Engine) -> None:
    """A consumer has the new columns from its next poll on, even in the middle of a file. A consumer of
    another process has them when it finds a file of that version."""
    put(engine, 1, 2, 3)
    with engine.consumer() as mine, other.consumer() as theirs:
        for consumer in (mine, theirs):
            consumer.subscribe(["payments"])
            assert seen(consumer.poll(1)) == [{"id": 1, "note": "n1", "size": 1}]
        engine.admin.alter_topic("payments", [DropColumn("size"), RenameColumn("note", "text")])
        assert seen(mine.poll(1)) == [{"id": 2, "text": "n2"}]
        assert seen(theirs.poll(2)) == [
            {"id": 2, "note": "n2", "size": 2},
            {"id": 3, "note": "n3", "size": 3},
        ]  # it has not heard of it, and there is no need to
        engine.producer().produce("payments", pa.table({"id": [4], "text": ["t"]})).result()
        assert seen(theirs.poll()) == [{"id": 4, "text": "t"}]
        assert seen(mine.poll()) == [{"id": 3, "text": "n3"}, {"id": 4, "text": "t"}]


@pytest.mark.parametrize("most", [1, 2, 100])
def test_a_consumer_of_two_topics_goes_on_where_their_columns_part(engine: Engine, most: int) -> None:
    """A consumer of two topics whose columns differ returns one topic in each poll, and neither waits for the
    other."""
    engine.admin.create_topic("refunds", partitions=2, schema=SCHEMA, key="id")
    with engine.consumer() as consumer, engine.producer() as producer:
        consumer.subscribe(["payments", "refunds"])
        engine.admin.alter_topic("payments", [WidenColumn("size", pa.int64()), RenameColumn("note", "text")])
        wide = pa.table({"id": [1, 2, 3], "text": ["a", "b", "c"], "size": [1, 2**40, 3]})
        producer.produce("payments", wide).result()
        producer.produce("refunds", rows(4, 5, 6), partition=0).result()
        producer.produce("refunds", rows(7), partition=1).result()
        polls: list[pa.Table] = []
        while (table := consumer.poll(most)) is not None:
            polls.append(table)
    assert sorted(each for table in polls for each in table.column("id").to_pylist()) == [1, 2, 3, 4, 5, 6, 7]
    assert {len(set(table.column("_topic").to_pylist())) for table in polls} == {1}
    assert max(map(len, polls)) == min(most, 4)
    firsts = [table.column("_topic")[0].as_py() for table in polls]
    assert set(firsts[:3]) == {"payments", "refunds"}


def test_a_scan_of_two_topics_gives_the_wider_type(engine: Engine) -> None:
    """A scan of two topics has the wider type of a column. If neither type holds the values of the other, the
    error names the column."""
    put(engine, 1)
    engine.admin.create_topic("refunds", partitions=1, schema=SCHEMA, key="id")
    engine.admin.create_topic("texts", partitions=1, schema=SCHEMA.set(2, pa.field("size", pa.string())))
    engine.producer().produce("refunds", rows(2)).result()
    texts = pa.table({"id": [3], "note": ["n"], "size": ["s"]})
    engine.producer().produce("texts", texts).result()
    engine.admin.alter_topic("payments", WidenColumn("size", pa.int64()))
    for topics in (["payments", "refunds"], ["refunds", "payments"]):
        found = engine.scan(topics).to_table(["id", "size"])
        assert found.schema.field("size").type == pa.int64()
        assert sorted(found.column("size").to_pylist()) == [1, 2]
    with refused(InvalidRequestError, Reason.DIFFERENT_COLUMNS):
        engine.scan(["refunds", "texts"]).to_table()
    assert engine.scan(["refunds", "texts"]).to_table(["id"]).num_rows == 2


def test_partitions_of_a_topic_are_read_by_the_same_columns(engine: Engine, other: Engine) -> None:
    """The partitions of a topic are read with the same columns, even if its five seconds end between two of
    them."""
    engine.admin.create_topic("refunds", partitions=2, schema=SCHEMA, key="id")
    get, calls = TopicRegistry.get, count()

    def ending(self: TopicRegistry, name: str) -> Topic:
        found = get(self, name)
        if self is other.logs.topics and next(calls) == 1:
            engine.admin.alter_topic(name, RenameColumn("note", "text"))
            self.look_up(name)
        return found

    polls: list[pa.Table | None] = []
    with other.consumer() as consumer, mock.patch.object(TopicRegistry, "get", ending):
        consumer.subscribe(["refunds"])
        for _ in range(3):
            for number in range(2):
                names = engine.admin.describe_topic("refunds").schema.names
                renamed = rows(1).rename_columns(names)
                engine.producer().produce("refunds", renamed, partition=number).result()
            polls.append(consumer.poll())
    assert [seen(table) for table in polls] == [
        [{"id": 1, "note": "n1", "size": 1}] * 2,
        [{"id": 1, "note": "n1", "size": 1}] * 2,
        [{"id": 1, "text": "n1", "size": 1}] * 2,
    ]


def test_a_scan_that_has_given_records_does_not_change_its_columns(engine: Engine, other: Engine) -> None:
    """The first file is too large to be read together with the next one."""
    many = range(100, 200)
    put(engine, *many)
    engine.admin.alter_topic("payments", DropColumn("size"))
    engine.producer().produce("payments", pa.table({"id": [2], "note": ["t"]})).result()
    with mock.patch.object(TopicRegistry, "look_up", _once_from_memory(TopicRegistry.look_up)):
        scan = other.scan("payments")
    batches = scan.to_batches()
    assert next(batches).num_rows == len(many)
    with pytest.raises(SchemaChangedError):
        next(batches)
    found = seen(scan.to_table())
    assert found == [*({"id": each, "note": f"n{each}"} for each in many), {"id": 2, "note": "t"}]


def test_a_version_that_is_asked_for(engine: Engine) -> None:
    """A read of an older version has its names and types, over older and newer files. If a file has lost a
    column of that version, the read is refused."""
    put(engine, 1)
    engine.admin.alter_topic("payments", [RenameColumn("note", "text"), WidenColumn("size", pa.int64())])
    engine.producer().produce("payments", pa.table({"id": [2], "text": ["t"], "size": [2]})).result()
    first = engine.scan("payments", schema_version=0)
    assert seen(first.to_table()) == [{"id": 1, "note": "n1", "size": 1}, {"id": 2, "note": "t", "size": 2}]
    assert first.to_table().schema.field("size").type == pa.int32()
    engine.admin.alter_topic("payments", DropColumn("size"))
    assert seen(engine.scan("payments", schema_version=1).to_table())[1] == {"id": 2, "text": "t", "size": 2}
    with refused(InvalidRequestError, Reason.UNKNOWN_SCHEMA_VERSION):
        engine.scan("payments", schema_version=3)
    engine.maintenance.compact("payments", policy=EAGER)
    with refused(InvalidRequestError, Reason.COLUMN_DROPPED):
        engine.scan("payments", schema_version=1).to_table()
    assert seen(engine.scan("payments", schema_version=1).to_table(["id", "text", *OWN]))[0] == {
        "id": 1,
        "text": "n1",
    }


OWN = ("_partition", "_offset", "_timestamp")


def test_as_of_a_cut_the_dropped_column_is_still_there(engine: Engine) -> None:
    """A cut still has a dropped column, even if its files were merged since."""
    put(engine, 1)
    put(engine, 2)
    cut = engine.cut()
    engine.admin.alter_topic("payments", DropColumn("size"))
    engine.maintenance.compact("payments", policy=EAGER)
    assert seen(engine.scan("payments", cut=cut, schema_version=0).to_table())[1] == {
        "id": 2,
        "note": "n2",
        "size": 2,
    }
    assert seen(engine.scan("payments", cut=cut).to_table())[1] == {"id": 2, "note": "n2"}


def test_as_of_a_cut_by_the_columns_of_the_cut(engine: Engine, other: Engine) -> None:
    """A scan or SQL query with the columns of a cut has those after the changes that the cut counts, whether
    or not records were written since."""
    put(engine, 1)
    engine.admin.alter_configs({"retention.ms": 10**12}, topic="payments")
    cuts = [engine.cut()]
    for change in (RenameColumn("note", "text"), WidenColumn("size", pa.int64()), DropColumn("size")):
        engine.admin.alter_topic("payments", change)
        cuts.append(engine.cut())
        engine.admin.alter_configs({"retention.ms": 10**12 + len(cuts)}, topic="payments")
    put_now = {"id": [2], "text": ["n2"]}
    engine.producer().produce("payments", pa.table(put_now)).result()
    engine.maintenance.compact("payments", policy=EAGER)
    expected: list[dict[str, object]] = [{"id": 1, "note": "n1", "size": 1}]
    expected += [{"id": 1, "text": "n1", "size": 1}] * 2 + [{"id": 1, "text": "n1"}]
    for reader in (engine, other):
        for cut, row in zip(cuts, expected, strict=True):
            found = reader.scan("payments", cut=cut, schema_version="cut")
            assert seen(found.to_table()) == [row]
            sql = reader.sql("SELECT * FROM payments", cut=cut, schema_version="cut")
            assert seen(sql.drop_columns("_topic")) == [row]
            assert [topic.schema.names for topic in found.topics] == [list(row)]
        types = [
            reader.scan("payments", cut=cut, schema_version="cut").topics[0].schema.field(2).type
            for cut in cuts[:3]
        ]
        assert types == [pa.int32(), pa.int32(), pa.int64()]
    for read in (engine.scan, lambda topic, **asked: engine.sql(f"SELECT * FROM {topic}", **asked)):
        with refused(InvalidRequestError, Reason.NO_CUT):
            read("payments", schema_version="cut")
        with refused(InvalidRequestError, Reason.UNKNOWN_SCHEMA_VERSION):
            read("payments", schema_version="now")


def test_a_cut_that_counts_a_change_that_is_not_there(engine: Engine) -> None:
    """A cut that counts a change that does not exist, or a topic that is not in the cut, is an error of one
    line that names it."""
    put(engine, 1)
    engine.admin.alter_topic("payments", DropColumn("size"))
    cut = engine.cut()
    engine.admin.create_topic("later", partitions=1, schema=SCHEMA)
    with refused(InvalidRequestError, Reason.TOPIC_NOT_IN_CUT):
        engine.scan("later", cut=cut, schema_version="cut")
    key = f"topics/payments/0/changes/{0:020d}.json"
    engine.store.delete(key)
    with refused(CorruptObjectError, Reason.OBJECT_GONE) as caught:
        engine.scan("payments", cut=cut, schema_version="cut")
    assert caught.value.place == key


def test_the_version_at_an_offset(engine: Engine) -> None:
    """The version at an offset is the version of the file that has the record."""
    put(engine, 1)
    engine.admin.alter_topic("payments", DropColumn("size"))
    engine.producer().produce("payments", pa.table({"id": [2], "note": ["n2"]})).result()
    place = TopicPartition("payments", 0)
    versions = [
        engine.scan("payments", start={place: offset}, end={place: offset + 1}).files()[0].schema_version
        for offset in (0, 1)
    ]
    assert versions == [0, 1]
    first = engine.scan("payments", start={place: 0}, end={place: 1}, schema_version=versions[0])
    assert seen(first.to_table()) == [{"id": 1, "note": "n1", "size": 1}]


def test_files_of_before_there_were_ids_are_read_by_their_names(engine: Engine) -> None:
    produce_as_before(engine, rows(1))
    engine.admin.alter_topic("payments", [RenameColumn("note", "text"), WidenColumn("size", pa.int64())])
    engine.producer().produce("payments", pa.table({"id": [2], "text": ["t"], "size": [2]})).result()
    assert seen(engine.scan("payments").to_table()) == [
        {"id": 1, "text": "n1", "size": 1},
        {"id": 2, "text": "t", "size": 2},
    ]
    found = sorted(field_ids(engine.store).values(), key=len)
    assert found == [{}, {"id": 1, "text": 2, "size": 3}]
    assert engine.admin.verify().findings == ()


def test_compaction_by_key_goes_by_keys_and_tombstones_of_all_versions(engine: Engine) -> None:
    """Compaction by key keeps the latest record of each key, whatever its version, and tombstones of older
    versions count."""
    engine.admin.create_topic(
        "table", partitions=1, schema=SCHEMA, key="id", cleanup_policy="compact", delete_retention_ms=0
    )
    producer = engine.producer()
    producer.produce("table", rows(1, 2, 3)).result()
    dead = pa.Table.from_pylist([{"id": 2, "note": None, "size": None}], schema=SCHEMA)
    producer.produce("table", dead).result()
    engine.admin.alter_topic(
        "table", [AddColumn(pa.field("kind", pa.string())), RenameColumn("note", "text")]
    )
    now = engine.admin.describe_topic("table").schema
    new = pa.Table.from_pylist([{"id": 3, "text": "new", "size": 30, "kind": "k"}], schema=now)
    producer.produce("table", new).result()
    for _ in range(3):
        engine.maintenance.compact("table", policy=EAGER)
    assert seen(engine.scan("table").to_table()) == [
        {"id": 1, "text": "n1", "size": 1, "kind": None},
        {"id": 3, "text": "new", "size": 30, "kind": "k"},
    ]
    assert engine.admin.verify().findings == ()


def test_who_loses_the_race_is_judged_by_what_the_winner_made(engine: Engine, other: Engine) -> None:
    """If two processes add the same column at once, one is refused and the column is there once."""
    real, calls = other.store.put_if_absent, count()

    def late(key: str, data: bytes) -> bool:
        if "/changes/" in key and next(calls) == 0:
            engine.admin.alter_topic("payments", AddColumn(pa.field("kind", pa.string())))
        return real(key, data)

    with mock.patch.object(other.store, "put_if_absent", late):
        with pytest.raises(InvalidRequestError, check=because(Reason.COLUMN_EXISTS)):
            other.admin.alter_topic("payments", AddColumn(pa.field("kind", pa.int64())))
        moved = other.admin.alter_topic("payments", AddColumn(pa.field("more", pa.int64())))
    assert moved.version == 2
    assert engine.scan("payments").to_table().schema.names[:5] == [*SCHEMA.names, "kind", "more"]


def test_a_compacted_topic_keeps_its_key_and_its_tombstones(engine: Engine) -> None:
    """In a compacted topic, changes of the key or of which records are tombstones are refused. Other changes
    are made."""
    engine.admin.create_topic("table", partitions=1, schema=SCHEMA, key="id", cleanup_policy="compact")
    with pytest.raises(InvalidRequestError, check=because(Reason.TOMBSTONES_WOULD_CHANGE)):
        engine.admin.alter_topic("table", DropColumn("note"))
    with pytest.raises(InvalidRequestError, check=because(Reason.KEY_COLUMN)):
        engine.admin.alter_topic("table", MakeNullable("id"))
    assert engine.admin.alter_topic("table", RenameColumn("note", "text")).version == 1
    assert engine.logs.topics.look_up("table").is_compacted
    assert engine.admin.verify().findings == ()


def test_a_dry_run_says_the_same_and_writes_nothing(engine: Engine) -> None:
    would = engine.admin.alter_topic("payments", DropColumn("note"), dry_run=True)
    assert (would.version, would.after.names, would.dry_run) == (1, ["id", "size"], True)
    assert would.effects
    put(engine, 1)
    assert engine.logs.topics.look_up("payments").layouts == ()
    with pytest.raises(InvalidRequestError, check=because(Reason.UNKNOWN_COLUMN)):
        engine.admin.alter_topic("payments", DropColumn("nothing"), dry_run=True)


def test_older_programs_are_kept_out(engine: Engine) -> None:
    """A change writes an object of a later format where older programs look, so that they stop. The topic can
    still grow."""
    engine.admin.alter_topic("payments", AddColumn(pa.field("kind", pa.string())))
    engine.admin.add_partitions_to_topic("payments", 3)
    engine.admin.alter_topic("payments", DropColumn("kind"))
    found = [
        json.loads(engine.store.get(info.key)) for info in engine.store.list("topics/payments/0/partitions/")
    ]
    assert [(each["format"], each.get("gate", False), each["partitions"]) for each in found] == [
        (int(LATER_FORMAT), True, 1),
        (2, False, 3),
    ]
    assert engine.admin.describe_topic("payments").partitions == 3
    assert engine.admin.verify().findings == ()


@pytest.mark.parametrize(
    "damage",
    [
        lambda held: held["schema"]["change"].update(next_id=1),
        lambda held: held["schema"].update(version=7),
        lambda held: held["schema"].update(version=True),
        lambda held: held["schema"]["change"].update(arrow_schema="AAAA"),
        lambda held: held["schema"]["change"].update(retired={"note": 9}),
        lambda held: held["schema"]["change"].update(retired={"gone": "x"}),
        lambda held: held["schema"]["change"].update(dropped=[2]),
        lambda held: held["schema"]["change"].update(dropped=[17]),
        lambda held: held["schema"]["change"].update(dropped=None),
        lambda held: held["schema"]["change"].update(order=[1, 2, 3]),
        lambda held: held["schema"]["change"].update(order=[1, 2, 3, 4, 4]),
        lambda held: held["schema"]["change"].update(order=[{}]),
        lambda held: held["schema"]["change"]["columns"][0].update(id=99),
        lambda held: held["schema"]["change"]["columns"][0].update(id=1),
        lambda held: held["schema"]["change"]["columns"][0].update(name="x"),
        lambda held: held["schema"]["change"]["columns"][0].update(default=5),
        lambda held: held["schema"]["change"].pop("columns"),
        lambda held: held["schema"].pop("change"),
        lambda held: held["schema"].update(change=None),
        lambda held: held["schema"].update(change=5),
        lambda held: held.update(schema=5),
        lambda held: held.update(schema={"versions": 5}),
    ],
)
def test_versions_that_no_change_makes_are_not_believed(
    engine: Engine, url: str, damage: Callable[[dict[str, object]], object]
) -> None:
    """An object with a version that no change makes is not believed: readers and `verify` name it in one
    line."""
    engine.admin.alter_topic("payments", AddColumn(pa.field("kind", pa.string()), default="x"))
    key = f"topics/payments/0/changes/{0:020d}.json"
    held = decode_json(engine.store.get(key), key=key, kind="topic_change", formats=(LATER_FORMAT,))
    damage(held)
    engine.store.put(key, encode_json(held, "topic_change", written_format=LATER_FORMAT))
    with txn_engine.connect(url) as fresh:
        with damaged_at(key) as caught:
            fresh.scan("payments")
        assert "\n" not in str(caught.value)
        if "default': 5" not in str(held["schema"]):
            assert fresh.admin.verify().findings


def test_a_version_that_is_lost_between_others_is_named(engine: Engine, url: str) -> None:
    """If a version between others is lost, a new process and `verify` name it."""
    for name in ("one", "two", "three"):
        engine.admin.alter_topic("payments", AddColumn(pa.field(name, pa.string())))
    key = f"topics/payments/0/changes/{1:020d}.json"
    held = decode_json(engine.store.get(key), key=key, kind="topic_change", formats=(LATER_FORMAT,))
    held["schema"]["change"] = None
    engine.store.put(key, encode_json(held, "topic_change", written_format=LATER_FORMAT))
    with txn_engine.connect(url) as fresh:
        with refused(CorruptObjectError, Reason.SCHEMA_VERSION_OUT_OF_ORDER):
            fresh.admin.describe_topic("payments")
        assert any("change 1" in each.seen for each in fresh.admin.verify().findings)


def test_a_change_holds_what_it_changes(engine: Engine, url: str) -> None:
    """A change's object has only what it changes, however many columns and earlier changes there are, and all
    of them are read back."""
    wide = pa.schema([pa.field(f"column_number_{number}", pa.int64()) for number in range(400)])
    engine.admin.create_topic("wide", schema=wide)
    for number in range(12):
        engine.admin.alter_topic("wide", RenameColumn(f"column_number_{number}", f"renamed_{number}"))
    engine.admin.alter_configs({"retention.ms": 10**12}, topic="wide")
    engine.admin.alter_topic("wide", [DropColumn("renamed_0"), AddColumn(pa.field("more", pa.int8()))])
    sizes = [info.size for info in engine.store.list("topics/wide/0/changes/")]
    assert (len(sizes), max(sizes) < 1_500) == (14, True)
    known = engine.logs.topics.look_up("wide")
    with txn_engine.connect(url) as fresh:
        found = fresh.logs.topics.look_up("wide")
        assert (found, found.version) == (known, 13)
        assert found.schema.names[:2] == ["renamed_1", "renamed_2"]
        assert found.schema.names[-1] == "more"
        assert found.at_version(1).schema.names[:2] == ["renamed_0", "column_number_1"]
        assert fresh.admin.verify().findings == ()


def test_what_is_refused_leaves_nothing(engine: Engine) -> None:
    """A refused change, with a default that is too large, writes nothing, not even the object that would stop
    older programs."""
    before = {info.key for info in engine.store.list("")}
    for dry_run in (False, True):
        with refused(InvalidRequestError, StoreReason.OBJECT_TOO_LARGE):
            engine.admin.alter_topic(
                "payments", AddColumn(pa.field("c", pa.string()), default="x" * 5_000_000), dry_run=dry_run
            )
    assert {info.key for info in engine.store.list("")} == before


def test_tombstones_stay_what_they_were_whatever_the_policy_was_in_between(engine: Engine) -> None:
    """After the policy was changed away from `compact` and back, changes that would turn records into
    tombstones are still refused, because the first records would be judged differently."""
    engine.admin.create_topic("table", partitions=1, schema=SCHEMA, key="id", cleanup_policy="compact")
    engine.admin.alter_configs({"cleanup.policy": "delete"}, topic="table")
    engine.admin.alter_topic("table", RenameColumn("size", "length"))
    engine.admin.alter_configs({"cleanup.policy": "compact"}, topic="table")
    engine.admin.alter_configs({"cleanup.policy": "delete", "retention.ms": 5}, topic="table")
    engine.admin.alter_topic("table", DropColumn("note"))
    engine.admin.alter_configs({"retention.ms": -1}, topic="table")
    for policy in ("compact", "compact,delete"):
        for dry_run in (True, False):
            with refused(InvalidConfigError, Reason.TOMBSTONES_WOULD_CHANGE) as caught:
                engine.admin.alter_configs({"cleanup.policy": policy}, topic="table", dry_run=dry_run)
            assert "version 0" in caught.value.seen
            assert "topics copy" in str(caught.value.action)
            assert "\n" not in str(caught.value)
    assert not engine.logs.topics.look_up("table").is_compacted
    engine.admin.create_topic("later", partitions=1, schema=SCHEMA, key="id")
    engine.admin.alter_topic("later", DropColumn("note"))
    for policy in ("compact", "delete"):
        engine.admin.alter_configs({"cleanup.policy": policy}, topic="later")
    engine.admin.alter_topic("later", AddColumn(pa.field("more", pa.int8()), default=1))
    with refused(InvalidConfigError, Reason.TOMBSTONES_WOULD_CHANGE) as caught:
        engine.admin.alter_configs({"cleanup.policy": "compact"}, topic="later")
    assert "version 1" in caught.value.seen
    engine.admin.create_topic("never", partitions=1, schema=SCHEMA, key="id")
    engine.admin.alter_topic("never", DropColumn("note"))  # no record of it was ever judged
    engine.admin.alter_configs({"cleanup.policy": "compact"}, topic="never")
    assert engine.logs.topics.look_up("never").is_compacted
    assert engine.admin.verify().findings == ()
