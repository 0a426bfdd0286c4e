"""`topics copy` and `topics alter` on the command line."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from datetime import date, datetime
from decimal import Decimal
from itertools import count
from typing import Any
from unittest import mock

import pyarrow as pa
import pytest
from click.testing import CliRunner, Result

import txn_engine
from tests.support.refusals import refused
from txn_engine import (
    AddColumn,
    Engine,
    InvalidRecordError,
    InvalidRequestError,
    StoreUnavailableError,
    UnknownTopicOrPartitionError,
)
from txn_engine.cli.copying import Copy, copy_records
from txn_engine.cli.main import cli
from txn_engine.producer import Producer
from txn_engine.reasons import Reason

SCHEMA = pa.schema([("id", pa.int64()), ("amount", pa.decimal128(18, 2)), ("note", pa.string())])
_STORES = count()


@pytest.fixture
def url() -> str:
    return f"memory://copying-{next(_STORES)}"


@pytest.fixture
def engine(url: str) -> Iterator[Engine]:
    with txn_engine.connect(url) as connected:
        connected.admin.create_topic("old", partitions=2, schema=SCHEMA, key="id")
        yield connected


def fill(engine: Engine, *ids: int) -> None:
    for each in ids:
        row = {"id": each, "amount": Decimal(each), "note": f"n{each}"}
        engine.producer().produce(
            "old", pa.Table.from_pylist([row], schema=SCHEMA), timestamp_ms=1_000 + each
        ).result()


def run(url: str, *arguments: str) -> Result:
    return CliRunner().invoke(cli, ["topics", *arguments, "--url", url], catch_exceptions=False)


def copied(engine: Engine) -> list[tuple[int, int, int]]:
    table = engine.scan("new").to_table(["id", "cents", "_timestamp"])
    times = table.column("_timestamp").cast(pa.int64())
    return sorted(
        zip(table.column("id").to_pylist(), table.column("cents").to_pylist(), times.to_pylist(), strict=True)
    )


def test_each_record_is_copied_once_under_its_own_time(engine: Engine, url: str) -> None:
    """Each record is copied once with its own timestamp, into other types and partitions. A second run copies
    what has come since."""
    fill(engine, 1, 2, 3)
    schema = pa.schema([("id", pa.int64()), ("cents", pa.int64()), ("more", pa.string())])
    engine.admin.create_topic("new", partitions=3, schema=schema, key="id")
    first = run(url, "copy", "old", "new", "--column", "cents=amount", "--slice", "1")
    assert (first.exit_code, "copied 3 records" in first.output) == (0, True)
    fill(engine, 4)
    again = run(url, "copy", "old", "new", "--column", "cents=amount", "--json")
    assert json.loads(again.output)["records"] == 1
    assert copied(engine) == [(each, each, 1_000 + each) for each in (1, 2, 3, 4)]
    assert engine.admin.verify().findings == ()


@pytest.mark.parametrize("call", range(4))
def test_a_copy_that_is_cut_off_goes_on(engine: Engine, call: int) -> None:
    """A copy that is cut off in any slice, before its commit or after one without an answer, goes on in the
    next run."""
    fill(engine, 1, 2, 3)
    engine.admin.create_topic(
        "new", partitions=1, schema=pa.schema([("id", pa.int64()), ("cents", pa.int64())])
    )
    topics = engine.logs.topics
    copy = Copy(topics.look_up("old"), topics.look_up("new"), {"cents": "amount"})
    commit, calls = Producer.commit_transaction, count()

    def dying(producer: Producer) -> None:
        number = next(calls)
        if number == call // 2 and call % 2:
            raise StoreUnavailableError("gone")
        commit(producer)
        if number == call // 2:
            raise StoreUnavailableError("gone")

    with mock.patch.object(Producer, "commit_transaction", dying), pytest.raises(StoreUnavailableError):
        copy_records(engine, copy, "copy", slice_records=1, progress=lambda _: None)
    copy_records(engine, copy, "copy", slice_records=1, progress=lambda _: None)
    assert [each for each, _, _ in copied(engine)] == [1, 2, 3]


def test_what_cannot_be_copied_is_said_before_anything_is(engine: Engine, url: str) -> None:
    fill(engine, 1)
    engine.admin.create_topic(
        "new", partitions=1, schema=pa.schema([pa.field("x", pa.int64(), nullable=False)])
    )
    topics = engine.logs.topics
    with refused(InvalidRequestError, Reason.MISSING_COLUMN):
        Copy(topics.look_up("old"), topics.look_up("new"), {})
    with refused(InvalidRequestError, Reason.UNKNOWN_COLUMN):
        Copy(topics.look_up("old"), topics.look_up("new"), {"y": "id"})
    with refused(InvalidRequestError, Reason.COPIED_TO_ITSELF):
        Copy(topics.look_up("old"), topics.look_up("old"), {})
    engine.admin.create_topic("narrow", partitions=1, schema=pa.schema([("note", pa.int64())]))
    copy = Copy(topics.look_up("old"), topics.look_up("narrow"), {"note": "amount"})
    wide = pa.table({"id": [1], "amount": pa.array([Decimal("1.50")], pa.decimal128(18, 2)), "note": ["x"]})
    engine.producer().produce("old", wide).result()
    with refused(InvalidRecordError, Reason.INEXACT_VALUE):
        copy_records(engine, copy, "narrow", slice_records=10, progress=lambda _: None)
    assert engine.scan("narrow").to_table().num_rows == 0


@pytest.mark.parametrize(
    ("given", "kind", "wanted"),
    [
        (["007"], pa.string(), pa.int64()),
        ([2], pa.int64(), pa.bool_()),
        (
            [{"a": 1, "b": 2}],
            pa.struct([("a", pa.int64()), ("b", pa.int64())]),
            pa.struct([("a", pa.int64())]),
        ),
        ([datetime(2026, 1, 1)], pa.timestamp("ms"), pa.timestamp("ms", "UTC")),  # noqa: DTZ001
        ([date(2026, 1, 1)], pa.date32(), pa.timestamp("ms", "UTC")),
        ([7], pa.int64(), pa.date32()),
        ([7], pa.int64(), pa.binary()),
    ],
    ids=str,
)
def test_values_that_would_be_others(
    engine: Engine, url: str, given: list[Any], kind: Any, wanted: Any
) -> None:
    """If a value would change in its new type, two texts becoming one number for example, nothing is copied
    and the error is one line."""
    engine.admin.create_topic("a", partitions=1, schema=pa.schema([("x", kind)]))
    engine.admin.create_topic("b", partitions=1, schema=pa.schema([("x", wanted)]))
    engine.producer().produce("a", pa.table({"x": pa.array(given, kind)})).result()
    failed = run(url, "copy", "a", "b")
    assert failed.exit_code == 1
    assert "column 'x'" in failed.output
    assert engine.scan("b").to_table().num_rows == 0


@pytest.mark.parametrize(
    ("given", "kind", "wanted", "made"),
    [
        ("7", pa.string(), pa.int64(), 7),
        (7, pa.int64(), pa.string(), "7"),
        (Decimal("2.00"), pa.decimal128(10, 2), pa.int32(), 2),
        (7, pa.int32(), pa.decimal128(20, 2), Decimal("7.00")),
        ([7], pa.list_(pa.int32()), pa.list_(pa.int64()), [7]),
        ("a", pa.dictionary(pa.int32(), pa.string()), pa.string(), "a"),
    ],
    ids=str,
)
def test_values_in_other_types(
    engine: Engine, url: str, given: object, kind: Any, wanted: Any, made: object
) -> None:
    """Values are copied into another type if each can be converted back to the same value."""
    engine.admin.create_topic("a", partitions=1, schema=pa.schema([("x", kind)]))
    engine.admin.create_topic("b", partitions=1, schema=pa.schema([("x", wanted)]))
    engine.producer().produce("a", pa.table({"x": pa.array([given, None], kind)})).result()
    assert run(url, "copy", "a", "b").exit_code == 0
    assert engine.scan("b").to_table().column("x").to_pylist() == [made, None]


def test_alter_shows_first_and_does_it_when_told(engine: Engine, url: str) -> None:
    """Without --execute, `alter` writes nothing and shows the new columns and which readers they concern."""
    changes = (
        "--add",
        "kind string 'it''s'",
        "--add",
        "n int64 not null 5",
        "--rename",
        "note=text",
        "--drop",
        "amount",
    )
    shown = run(url, "alter", "old", *changes)
    assert shown.exit_code == 0
    assert "running Spark streams" in shown.output
    assert engine.logs.topics.look_up("old").layouts == ()
    done = run(url, "alter", "old", *changes, "--execute", "--json")
    assert json.loads(done.output)["version"] == 1
    now = engine.logs.topics.look_up("old")
    assert now.schema.names == ["id", "text", "kind", "n"]
    defaults = [each.default.as_py() for each in now.schemas.layout.columns if each.default is not None]
    assert defaults == ["it's", 5]
    assert run(url, "alter", "old", "--widen", "n=int32").exit_code != 0
    assert run(url, "alter", "old").exit_code == 2
    assert run(url, "alter", "old", "--partitions", "3", "--drop", "n").exit_code == 2
    assert run(url, "alter", "old", "--add", "x int64 many").exit_code == 2
    assert run(url, "alter", "old", "--rename", "x").exit_code == 2
    assert run(url, "alter", "old", "--partitions", "3").exit_code == 0


def test_a_target_that_was_made_again_is_filled_again(engine: Engine, url: str) -> None:
    """After the target was created again, everything is copied again. The group that says how far a copy is
    stays, even if all offsets expire."""
    fill(engine, 1, 2)
    for _ in range(2):
        engine.admin.create_topic("new", partitions=1, schema=SCHEMA)
        assert "copied 2 records" in run(url, "copy", "old", "new").output
        engine.admin.expire_group_offsets(retention_ms=0)
        assert "copied 0 records" in run(url, "copy", "old", "new").output
        assert engine.scan("new").to_table().num_rows == 2
        engine.admin.delete_topic("new")


@pytest.mark.parametrize(("remade", "held"), [("old", 1), ("new", 0)])
def test_a_topic_that_is_made_again_while_it_is_copied_ends_the_copy(
    engine: Engine, url: str, remade: str, held: int
) -> None:
    """If the source or the target is created again during a copy, the copy ends in one line. Otherwise it
    would wait for ends of the old source, or copy the last slices twice."""
    fill(engine, 1, 2, 3)
    engine.admin.create_topic("new", partitions=1, schema=SCHEMA)
    topics, told = engine.logs.topics, count()

    def remake(_left: int) -> None:
        if next(told) == 1:
            engine.admin.delete_topic(remade)
            engine.admin.create_topic(remade, partitions=2, schema=SCHEMA, key="id")

    def copy(progress: Callable[[int], None]) -> int:
        chosen = Copy(topics.look_up("old"), topics.look_up("new"), {})
        return copy_records(
            engine, chosen, f"to {chosen.target.incarnation}", slice_records=1, progress=progress
        )

    with (
        mock.patch("txn_engine.cli.copying.WAIT_MS", 0),
        refused(UnknownTopicOrPartitionError, Reason.TOPIC_MADE_AGAIN) as caught,
    ):
        copy(remake)
    assert f"topic '{remade}'" in caught.value.seen
    assert engine.scan("new").to_table().num_rows == held
    fill(engine, 4, 5)
    again = copy(lambda _: None)
    assert again == (2 if remade == "old" else 5)
    assert engine.scan("new").to_table().num_rows == held + again
    assert engine.admin.verify().findings == ()


def test_records_of_many_times_go_into_one_file(engine: Engine, url: str) -> None:
    """Records of many timestamps are copied into few files, and each keeps its own."""
    with engine.producer(linger_ms=60_000) as producer:
        for each in range(200):
            row = {"id": each, "amount": Decimal(each), "note": "n"}
            table = pa.Table.from_pylist([row], schema=SCHEMA)
            producer.produce("old", table, timestamp_ms=1_000 - each % 7)
        producer.flush()
    engine.admin.create_topic("new", partitions=2, schema=SCHEMA, key="id", max_message_bytes=3_000)
    assert "copied 200 records" in run(url, "copy", "old", "new").output
    names = [*SCHEMA.names, "_partition", "_timestamp"]
    old, new = (engine.scan(topic).to_table(names).sort_by("id") for topic in ("old", "new"))
    assert new == old
    assert 2 < len(engine.scan("new").files()) < 20
    assert engine.admin.verify().findings == ()


def test_columns_that_come_while_it_is_copied(engine: Engine, url: str) -> None:
    """A column that the source gets during a copy is not copied, and one that the target got has the value of
    its older records."""
    fill(engine, 1, 2)
    wide = SCHEMA.append(pa.field("kind", pa.string()))
    engine.admin.create_topic("new", partitions=1, schema=wide)
    strict = AddColumn(pa.field("rate", pa.int64(), nullable=False), default=7)
    engine.admin.alter_topic("new", [AddColumn(pa.field("more", pa.string()), default="m"), strict])
    topics, told = engine.logs.topics, count()

    def altering(_left: int) -> None:
        if next(told) == 1:
            with txn_engine.connect(url) as other:
                other.admin.alter_topic("old", AddColumn(pa.field("kind", pa.string()), default="k"))

    copy = Copy(topics.look_up("old"), topics.look_up("new"), {})
    assert copy_records(engine, copy, "copy", slice_records=1, progress=altering) == 2
    found = engine.scan("new").to_table(["id", "kind", "more", "rate"]).to_pylist()
    assert sorted(each["id"] for each in found) == [1, 2]
    assert {(each["kind"], each["more"], each["rate"]) for each in found} == {(None, "m", 7)}


def test_a_column_that_the_source_has_no_more(engine: Engine, url: str) -> None:
    """If the source has lost a column, the copy is refused instead of filling it with nulls."""
    fill(engine, 1)
    engine.admin.create_topic("new", partitions=1, schema=SCHEMA)
    run(url, "copy", "old", "new")
    engine.admin.alter_topic("old", [txn_engine.RenameColumn("note", "text")])
    failed = run(url, "copy", "old", "new")
    assert failed.exit_code == 1
    assert "column 'note', which 'old' had once" in failed.output
    assert "copied 0 records" in run(url, "copy", "old", "new", "--column", "note=text").output
    twice = run(url, "copy", "old", "new", "--column", "note=text", "--column", "note=id")
    assert twice.exit_code == 2


def test_extension_types_and_text(engine: Engine, url: str) -> None:
    """A UUID is copied as its usual text. Of an extension type without a text the copy is refused."""
    kinds = {"u": pa.uuid(), "b": pa.bool8()}
    stored = {"u": pa.array([b"a" * 16], pa.binary(16)), "b": pa.array([1], pa.int8())}
    engine.admin.create_topic("typed", partitions=1, schema=pa.schema(list(kinds.items())))
    values = {name: pa.ExtensionArray.from_storage(kind, stored[name]) for name, kind in kinds.items()}
    engine.producer().produce("typed", pa.table(values)).result()
    engine.admin.create_topic("texts", partitions=1, schema=pa.schema([("u", pa.string())]))
    assert run(url, "copy", "typed", "texts").exit_code == 0
    assert engine.scan("texts").to_table(["u"]).to_pylist() == [{"u": "61616161-6161-6161-6161-616161616161"}]
    engine.admin.create_topic("numbers", partitions=1, schema=pa.schema([("b", pa.string())]))
    typed, numbers = (engine.logs.topics.look_up(name) for name in ("typed", "numbers"))
    with refused(InvalidRequestError, Reason.TYPE_MISMATCH):
        Copy(typed, numbers, {})
