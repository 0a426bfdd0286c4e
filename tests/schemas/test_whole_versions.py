"""Changes of an older program, each of which repeated all versions of the schema, are read and can be
followed by new ones.

`whole_versions/` has the objects of commit efe3014: retention.ms; `note` renamed to `text`, and `rate` added;
retention.ms; `size` widened, and `kind` added; `size` dropped, and the rest reordered.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from decimal import Decimal
from itertools import count
from pathlib import Path

import pyarrow as pa
import pytest

import txn_engine
from storage import decode_json, encode_json
from tests.support.refusals import damaged_at, refused
from txn_engine import AddColumn, CorruptObjectError, Engine, RenameColumn
from txn_engine.log.schema_format import layouts_after
from txn_engine.reasons import Reason
from txn_engine.schemas.layout import original

SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), ("note", pa.string()), ("size", pa.int32())])
HELD = sorted((Path(__file__).parent / "whole_versions").iterdir())
_STORES = count()


@pytest.fixture
def url() -> str:
    return f"memory://whole-{next(_STORES)}"


@pytest.fixture
def engine(url: str) -> Iterator[Engine]:
    """A topic of that code: a record with the first columns, and then the changes."""
    with txn_engine.connect(url) as made:
        made.admin.create_topic("payments", partitions=1, schema=SCHEMA, key="id")
        first = pa.table({"id": [1], "note": ["n"], "size": pa.array([1], pa.int32())}, schema=SCHEMA)
        made.producer().produce("payments", first).result()
        for path in HELD:
            made.store.put(f"topics/payments/0/{path.name.replace('-', '/')}", path.read_bytes())
    with txn_engine.connect(url) as fresh:
        yield fresh


def test_all_versions_are_read(engine: Engine) -> None:
    topic = engine.logs.topics.look_up("payments")
    assert [layout.arrow.names for layout in topic.layouts] == [
        ["id", "note", "size"],
        ["id", "text", "size", "rate"],
        ["id", "text", "size", "rate", "kind"],
        ["id", "kind", "rate", "text"],
    ]
    assert (topic.retention_ms, topic.changes, topic.version) == (10**13, 5, 3)
    found = engine.scan("payments").to_table(["id", "kind", "rate", "text"]).to_pylist()
    assert found == [{"id": 1, "kind": "old", "rate": Decimal("1.50"), "text": "n"}]
    assert engine.admin.verify().findings == ()


def test_it_is_gone_on_from(engine: Engine, url: str) -> None:
    """Each new change has only what it changes, in the later format. A cut from before has its old
    columns."""
    cut = engine.cut()
    engine.admin.alter_topic("payments", [RenameColumn("text", "note"), AddColumn(pa.field("q", pa.int8()))])
    engine.admin.alter_configs({"retention.ms": 10**14}, topic="payments")
    engine.admin.alter_topic("payments", RenameColumn("note", "memo"))
    held = [
        json.loads(engine.store.get(info.key)) for info in engine.store.list("topics/payments/0/changes/")
    ]
    assert [each["format"] for each in held] == [2] * 5 + [3] * 3
    assert [each["name"] for each in held[5]["schema"]["change"]["columns"]] == ["note", "q"]
    with txn_engine.connect(url) as fresh:
        assert fresh.logs.topics.look_up("payments") == engine.logs.topics.look_up("payments")
        assert fresh.admin.describe_topic("payments").schema.names == ["id", "kind", "rate", "memo", "q"]
        then = fresh.scan("payments", cut=cut, schema_version="cut").to_table()
        assert then.schema.names[:4] == ["id", "kind", "rate", "text"]
        assert fresh.admin.verify().findings == ()


@pytest.mark.parametrize(
    "damage",
    [
        lambda held: held["schema"]["versions"][0].update(next_id=1),
        lambda held: held["schema"]["versions"][0].update(version=7),
        lambda held: held["schema"]["versions"][0].update(arrow_schema="AAAA"),
        lambda held: held["schema"]["versions"][2].update(retired={"note": 9}),
        lambda held: held["schema"]["versions"][0]["columns"][0].update(id=99),
        lambda held: held["schema"]["versions"][0]["columns"][0].update(name="x"),
        lambda held: held["schema"]["versions"][0].pop("columns"),
        lambda held: held["schema"]["versions"].pop(0),
        lambda held: held.update(schema={"versions": 5}),
    ],
)
def test_versions_that_no_change_makes_are_not_believed(
    engine: Engine, damage: Callable[[dict[str, object]], object]
) -> None:
    key = f"topics/payments/0/changes/{4:020d}.json"
    held = decode_json(engine.store.get(key), key=key, kind="topic_change")
    damage(held)
    engine.store.put(key, encode_json(held, "topic_change"))
    with damaged_at(key) as caught:
        engine.scan("payments")
    assert "\n" not in str(caught.value)
    assert engine.admin.verify().findings


def test_what_says_all_versions_may_not_come_behind_what_says_one(engine: Engine) -> None:
    """A change with all versions after one with a single version is damage, because readers would take it for
    everything. `verify` names it."""
    engine.admin.alter_topic("payments", RenameColumn("text", "note"))
    held = decode_json(HELD[4].read_bytes(), key="", kind="topic_change")
    key = f"topics/payments/0/changes/{6:020d}.json"
    engine.store.put(key, encode_json({**held, "number": 6}, "topic_change"))
    assert any("change 6" in each.seen for each in engine.admin.verify().findings)


def test_a_change_that_says_nothing_of_versions_that_there_are() -> None:
    schema = json.loads(HELD[4].read_bytes())["schema"]
    with refused(CorruptObjectError, Reason.SCHEMA_VERSION_OUT_OF_ORDER):
        layouts_after((original(SCHEMA),), [("k", schema), ("k", None)])
