"""Erasing records of a topic whose columns changed: what is left is as it was, by every version of the schema."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from storage import MemoryStore
from tests.erasing.dying import assert_sound, erase
from tests.erasing.persons import (
    EAGER,
    NAME,
    PERSON,
    SCHEMA,
    TOPIC,
    objects_with,
    open_engine,
    rows,
)
from txn_engine import AddColumn, DropColumn, Engine, RenameColumn, WidenColumn
from txn_engine.maintain.policy import DAY_MS
from txn_engine.quality.digest import digest_of
from txn_engine.testing import ManualClock

Seen = Sequence[tuple[int | None, int | Literal["cut"] | None]]
_SEEN: Seen = ((None, None), (0, "cut"), (0, 0), (1, "cut"), (2, "cut"))
"""Cuts, and the versions of the columns by which they are read."""


def _produce(engine: Engine, table: pa.Table) -> None:
    with engine.producer() as producer:
        producer.produce(TOPIC, table, partition=0).result()


def _digests(engine: Engine, seen: Seen = _SEEN, *, without: bool = False) -> list[str]:
    """Of all columns that a scan gives, as of each cut by the columns of then; or of those without the person."""
    tables = [engine.scan(TOPIC, cut=cut, schema_version=version).to_table() for cut, version in seen]
    if without:
        tables = [table.filter(pc.field("account_id") != PERSON) for table in tables]
    return [str(digest_of(table)) for table in tables]


def _changed(engine: Engine, clock: ManualClock) -> None:
    """Files of three versions, live and replaced, and cuts of each: a column was dropped, one renamed and widened."""
    engine.admin.create_topic(
        TOPIC, partitions=1, schema=SCHEMA.append(pa.field("share", pa.float32())), key="account_id"
    )
    for account in (PERSON, 3):
        table = rows(1, account, 2)
        _produce(engine, table.append_column("share", pa.array([0.5, 0.25, 2.0], pa.float32())))
    engine.cut()
    engine.admin.alter_topic(TOPIC, [DropColumn("amount"), RenameColumn("name", "full_name")])
    _produce(engine, pa.table({"account_id": [PERSON, 4], "full_name": [NAME, None], "share": [1.0, 2.0]}).cast(
        engine.admin.describe_topic(TOPIC).schema
    ))  # fmt: skip
    engine.cut()
    engine.admin.alter_topic(
        TOPIC, [WidenColumn("share", pa.float64()), AddColumn(pa.field("city", pa.string()), default="Ulm")]
    )
    _produce(
        engine,
        pa.table({"account_id": [5, PERSON], "full_name": ["e", NAME], "share": [1.5, 2.5], "city": ["a", "b"]},
                 schema=engine.admin.describe_topic(TOPIC).schema),
    )  # fmt: skip
    engine.cut()
    clock.advance(DAY_MS // 2)


@pytest.mark.parametrize("merged", [False, True])
def test_a_file_keeps_its_own_columns(*, merged: bool) -> None:
    """Others' values of a dropped column too, for cuts; live, and where a merge has replaced the file since."""
    clock = ManualClock()
    with open_engine(MemoryStore(), clock) as engine:
        _changed(engine, clock)
        if merged:
            engine.maintenance.compact(policy=EAGER)
        others, all_of_them = _digests(engine, without=True), _digests(engine)
        versions = [file.schema_version for file in engine.scan(TOPIC).files()]
        assert len(objects_with(engine.store)) > 2
        assert erase(engine).is_complete
        assert _digests(engine) == others != all_of_them
        assert [file.schema_version for file in engine.scan(TOPIC).files()] == versions
        assert objects_with(engine.store) == []
        assert_sound(engine)
