"""The engine runs on SeaweedFS, a second real S3 server: transactions, groups, snapshots, and an audit
without findings."""

from __future__ import annotations

import builtins
from collections.abc import Iterator

import pytest

from storage import ObjectInfo, open_store
from tests.conftest import S3Bucket
from tests.engine.conftest import SCHEMA, load
from tests.support.faults import FaultyStore
from tests.support.internal import FEW_INTERNAL
from tests.support.stores import accounts_in
from txn_engine import Engine

COMMITTED = [0, 2, 4, 10, 12, 14]


class FlatListings(FaultyStore):
    """A store that fails if a folder with folders in it is listed, because servers differ in the order of its
    keys.

    Only the auditor lists the whole store, for the keys alone, and gets them backwards.
    """

    listings = 0

    def list(self, prefix: str, *, start_after: str | None = None) -> Iterator[ObjectInfo]:
        found = builtins.list(self.inner.list(prefix, start_after=start_after))
        if not prefix:
            return reversed(found)
        nested = [info.key for info in found if "/" in info.key.removeprefix(prefix.rstrip("/") + "/")]
        assert not nested, f"{prefix} was listed across folders: {nested[0]}"
        self.listings += 1
        return iter(found)


def ledger_in(bucket: S3Bucket) -> FlatListings:
    keys = {"access_key": bucket.access_key, "secret_key": bucket.secret_key}
    return FlatListings(open_store(f"{bucket.url}/ledger", endpoint=bucket.endpoint, **keys))


def copy(engine: Engine) -> None:
    """Copy what is committed to another topic, output and offsets in one transaction. The sweep writes its
    markers."""
    consumer = engine.consumer(group_id="copy")
    consumer.subscribe(["payments"])
    batch = consumer.poll()
    assert batch is not None
    producer = engine.producer(transactional_id="copy", markers="deferred")
    producer.init_transactions()
    with producer.transaction():
        producer.produce("copies", batch.select(SCHEMA.names))
        producer.send_offsets_to_transaction(consumer.positions(), consumer.group_metadata())
    assert accounts_in(engine, "copies") == []
    assert engine.coordinator.write_pending_markers().failures == ()


@pytest.mark.shard("engines")
def test_transactions_on_seaweedfs(seaweed_bucket: S3Bucket) -> None:
    """What was committed is there once, and what was aborted or fenced is not, also for a second engine that
    starts from snapshots. The auditor finds nothing, and nothing that needs an order lists across folders."""
    with Engine(ledger_in(seaweed_bucket), configs=FEW_INTERNAL) as engine:
        for topic in ("payments", "copies"):
            engine.admin.create_topic(topic, partitions=3, schema=SCHEMA, key="account_id")
        load(engine)
        engine.admin.snapshot()
        copy(engine)
    store = ledger_in(seaweed_bucket)
    with Engine(store) as second:
        assert accounts_in(second) == accounts_in(second, "copies") == COMMITTED
        assert {part.lag for part in second.admin.describe_group("copy").partitions} == {0}
        report = second.admin.verify()
        assert report.ok, [str(finding) for finding in report.findings]
        assert report.stats.records > len(COMMITTED)
        assert store.listings > 0
