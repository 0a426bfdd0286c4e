"""A ledger with records of one person in every kind of file that there is, and a search for them in every byte."""

from __future__ import annotations

import io
from collections.abc import Iterator
from functools import cache

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.ipc
import pyarrow.parquet as pq

from storage import MemoryStore, ObjectStore
from tests.support.faults import no_pause
from tests.support.stores import copy_of
from txn_engine import Engine
from txn_engine.clock import Waiting
from txn_engine.log.data_files import EncodedFile
from txn_engine.log.objects import Objects
from txn_engine.log.store_config import (
    CONSUMER_OFFSETS_TOPIC,
    TRANSACTION_STATE_TOPIC,
    StoreConfig,
    create_store_config,
)
from txn_engine.log.uploads import upload_records
from txn_engine.maintain import MaintenancePolicy
from txn_engine.maintain.policy import DAY_MS
from txn_engine.quality.digest import digest_of
from txn_engine.schemas.layout import original
from txn_engine.testing import ManualClock
from txn_engine.verify.avro import avro_records

TOPIC = "payments"
SCHEMA = pa.schema(
    [pa.field("account_id", pa.int64(), nullable=False), ("name", pa.string()), ("amount", pa.int64())]
)
PERSON, NAME = 4_242_424_242_424_242, "Arthur Philip Dent"
WHERE = f"account_id = {PERSON}"
EAGER = MaintenancePolicy(orphan_age_ms=0, entries_age_ms=0, trim_step=1, min_files=2)
START_MS = 1_700_000_000_000


def new_store() -> MemoryStore:
    return MemoryStore()  # one address for all: an Iceberg table has it


_COMPRESSED = (b"\x1f\x8b", b"\x28\xb5\x2f\xfd", b"PK\x03\x04", b"BZh", b"\xfd7zXZ")
"""How files begin in which no value stands as it is."""


def open_engine(store: ObjectStore, clock: ManualClock) -> Engine:
    waiting = Waiting(pause_ms=lambda _: None)
    return Engine(store, clock=clock, pause=no_pause, waiting=waiting)


def rows(*accounts: int) -> pa.Table:
    """One payment for each account."""
    names = [NAME if account == PERSON else f"person {account}" for account in accounts]
    return pa.table(
        {"account_id": list(accounts), "name": names, "amount": list(range(len(accounts)))}, schema=SCHEMA
    )


def commit(engine: Engine, *accounts: int, partition: int = 0, ends: str = "commit") -> None:
    """Run one transaction with these payments."""
    with engine.producer(transactional_id="load") as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.produce(TOPIC, rows(*accounts), partition=partition).result()
        producer.commit_transaction() if ends == "commit" else producer.abort_transaction()


def upload(engine: Engine, *accounts: int, partition: int = 0) -> EncodedFile:
    """Write a data file as a writer does that dies before it writes the entry."""
    log = engine.logs.get(TOPIC, engine.logs.topics.look_up(TOPIC).incarnation, partition)
    return upload_records(
        engine.logs.tools.objects, engine.logs.tools.new_id, log.keys.prefix, rows(*accounts),
        original(SCHEMA),
        log_end=log.refresh().log_end_offset, producer_id=-1, producer_epoch=-1, timestamp_ms=engine.clock(),
    )  # fmt: skip


@cache
def _made() -> tuple[MemoryStore, int]:
    store, clock = new_store(), ManualClock(START_MS)
    counts = {TRANSACTION_STATE_TOPIC: 1, CONSUMER_OFFSETS_TOPIC: 1}
    config = StoreConfig(f"{7:032x}", START_MS, {"tested": True}, internal_partitions=counts)
    create_store_config(Objects(store, no_pause), config)
    with open_engine(store, clock) as engine:
        engine.admin.create_topic(TOPIC, partitions=2, schema=SCHEMA, key="account_id")
        commit(engine, 1, PERSON, 2)
        commit(engine, PERSON, ends="abort")
        commit(engine, PERSON, 3)
        commit(engine, 4, 5, partition=1)
        engine.cut()
        engine.tables.publish(TOPIC)
        engine.maintenance.compact(policy=EAGER)
        engine.admin.snapshot()
        clock.advance(2 * DAY_MS)
        commit(engine, 6)
        engine.maintenance.clean(policy=EAGER)  # the log forgets what the cut keeps
        clock.advance(2 * DAY_MS)
        commit(engine, PERSON)
        commit(engine, PERSON, 7, partition=1)
        engine.cut()
        commit(engine, 8, PERSON)
        engine.maintenance.compact(policy=EAGER)
        engine.tables.publish(TOPIC)
        commit(engine, PERSON, ends="abort")
        commit(engine, 9, PERSON, PERSON, 10)
        upload(engine, PERSON, 11)
        upload(engine, 12)
    return store, clock()


def ledger() -> tuple[MemoryStore, ManualClock]:
    """A copy of the ledger.

    Partition 0 has files that are live, merged, merged again, aborted, or forgotten by the log and kept for a
    cut, and two uploads that no entry names. There are two cuts, and two versions of a Delta and of an
    Iceberg table.
    """
    made, now_ms = _made()
    return copy_of(made), ManualClock(now_ms)


# --- searching --------------------------------------------------------------------------------------------


def objects_with(store: ObjectStore, prefix: str = "") -> list[str]:
    """The keys of all objects that hold the person's name or number in their bytes, or in what Parquet or
    Avro has packed."""
    needles = (NAME.encode(), PERSON.to_bytes(8, "little", signed=True), str(PERSON).encode())
    return [
        info.key
        for info in store.list(prefix)
        if any(needle in part for part in _unpacked(info.key, store.get(info.key)) for needle in needles)
    ]


def _unpacked(key: str, data: bytes) -> Iterator[bytes]:
    yield key.encode()
    yield data
    if key.endswith(".parquet"):
        table = pq.read_table(io.BytesIO(data), partitioning=None)
        sink = pa.BufferOutputStream()
        with pyarrow.ipc.new_stream(sink, table.schema) as writer:
            writer.write_table(table)
        yield sink.getvalue().to_pybytes()
        yield repr(pq.read_metadata(io.BytesIO(data)).to_dict()).encode()
    elif key.endswith(".avro"):
        yield repr(list(avro_records(data))).encode()
    else:
        assert not data.startswith(_COMPRESSED), key


def seen(engine: Engine, cut: int | None = None) -> dict[tuple[int, int], tuple[int, int]]:
    """The records that a scan returns, by partition and offset."""
    table = engine.scan(TOPIC, cut=cut).to_table(["_partition", "_offset", "account_id", "amount"])
    return {
        (p, o): (account, amount) for p, o, account, amount in zip(*table.to_pydict().values(), strict=True)
    }


def digests(engine: Engine, *cuts: int | None, without: bool = False) -> list[str]:
    """The digest of all columns of the records that a scan returns as of each of these cuts, or of the
    records without the person."""
    tables = [engine.scan(TOPIC, cut=cut).to_table() for cut in cuts]
    if without:
        tables = [table.filter(pc.field("account_id") != PERSON) for table in tables]
    return [str(digest_of(table)) for table in tables]


def without_person(records: dict[tuple[int, int], tuple[int, int]]) -> dict[tuple[int, int], tuple[int, int]]:
    return {at: record for at, record in records.items() if record[0] != PERSON}
