"""A compacted topic, all records that were ever written to it, and the table that its records make."""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa

from storage import ObjectStore
from tests.maintain.ledgers import open_engine
from txn_engine import Engine, TopicPartition
from txn_engine.maintain import MaintenancePolicy
from txn_engine.testing import ManualClock

TABLE = "table"
PLACE = TopicPartition(TABLE, 0)
SCHEMA = pa.schema([("key", pa.string()), ("value", pa.int64())])
ALWAYS = MaintenancePolicy(min_files=2, min_dirty_ratio=0.0)
Held = dict[int, tuple[str, int | None]]
"""Key and value by offset; None in a tombstone."""


def rows(*pairs: tuple[str, int | None]) -> pa.Table:
    """Records with these keys and values."""
    keys, values = zip(*pairs, strict=True)
    return pa.table({"key": pa.array(keys, pa.string()), "value": pa.array(values, pa.int64())})


def new_table(store: ObjectStore, clock: ManualClock, **config: object) -> Engine:
    """An engine with a compacted topic of one partition, whose tombstones stay for a day by default."""
    engine = open_engine(store, clock)
    engine.admin.create_topic(
        TABLE, partitions=1, schema=SCHEMA, key="key", cleanup_policy="compact", **config
    )  # type: ignore[arg-type]
    return engine


def put(engine: Engine, *pairs: tuple[str, int | None], commit: bool = True, by: str = "writer") -> None:
    """Write these records in one transaction, and commit or abort it."""
    with engine.producer(transactional_id=by) as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.produce(TABLE, rows(*pairs), partition=0).result()
        if commit:
            producer.commit_transaction()
        else:
            producer.abort_transaction()


def held(engine: Engine, start: int | None = None) -> Held:
    """What a read_committed scan sees, by offset."""
    scan = engine.scan(TABLE, start=None if start is None else {PLACE: start})
    return by_offset(scan.to_table())


def by_offset(table: pa.Table) -> Held:
    columns = (table.column(name).to_pylist() for name in ("_offset", "key", "value"))
    return {offset: (key, value) for offset, key, value in zip(*columns, strict=True)}


def table_of(records: Held) -> dict[str, int]:
    """The table that these records make: the latest value of each key, without keys whose latest record is a
    tombstone."""
    made: dict[str, int] = {}
    for _, (key, value) in sorted(records.items()):
        if value is None:
            made.pop(key, None)
        else:
            made[key] = value
    return made


def compact(engine: Engine, policy: MaintenancePolicy = ALWAYS) -> None:
    """Run compaction once, without a failure."""
    assert engine.maintenance.compact(TABLE, policy=policy).failures == ()


def assert_is_part(found: Held, written: Held) -> None:
    """Every record that is found was written, unchanged and at its offset."""
    assert {offset: written.get(offset) for offset in found} == found


def doubled(found: Held) -> Iterable[str]:
    """The keys that are found more than once."""
    keys = [key for key, _ in found.values()]
    return sorted({key for key in keys if keys.count(key) > 1})
