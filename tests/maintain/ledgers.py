"""A ledger in which every job has something to do, made once and copied, and questions about it."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from itertools import count

import pyarrow as pa

from storage import MemoryStore, ObjectStore
from tests.engine.conftest import SCHEMA, payments
from tests.support.faults import no_pause
from tests.support.internal import FEW_INTERNAL
from tests.support.stores import copy_of
from txn_engine import Engine, TopicPartition
from txn_engine.log.data_files import EncodedFile
from txn_engine.log.entry_format import USER_LOG, decode_entry
from txn_engine.log.uploads import upload_records
from txn_engine.maintain import MaintenancePolicy, MaintenanceReport
from txn_engine.maintain.policy import DAY_MS
from txn_engine.schemas.layout import original
from txn_engine.testing import ManualClock

HOUR_MS = 3_600_000
START_MS = 1_700_000_000_000
TOPIC = "payments"
P0 = TopicPartition(TOPIC, 0)
PREFIX = f"topics/{TOPIC}/0/0"
OLD = [*range(6), 50]
YOUNG = [100, 101, 102, 103, 104, 105]
POLICY = MaintenancePolicy(trim_step=1, min_files=2)
"""The ages are those that ship; the thresholds are such that a small ledger has something to do."""
EAGER = MaintenancePolicy(orphan_age_ms=0, entries_age_ms=0, trim_step=1, min_files=2)

_NAMES = count()


def new_store() -> MemoryStore:
    return MemoryStore(f"maintain-{next(_NAMES)}")


def open_engine(store: ObjectStore, clock: ManualClock) -> Engine:
    return Engine(store, clock=clock, pause=no_pause)


def commit(engine: Engine, *accounts: int, transactional_id: str = "load", partition: int = 0) -> None:
    """Commit one transaction with one payment for each account."""
    with engine.producer(transactional_id=transactional_id) as producer:
        producer.init_transactions()
        with producer.transaction():
            producer.produce(TOPIC, payments(*accounts), partition=partition)


def abort(engine: Engine, *accounts: int) -> None:
    """Abort one transaction whose records are in the log."""
    with engine.producer(transactional_id="load") as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.produce(TOPIC, payments(*accounts), partition=0).result()
        producer.abort_transaction()


def upload(engine: Engine, *accounts: int, producer_id: int = -1, producer_epoch: int = -1) -> EncodedFile:
    """Upload a data file, as a writer does that dies before its entry."""
    log = engine.logs.get(TOPIC, 0, 0)
    return upload_records(
        engine.logs.tools.objects, engine.logs.tools.new_id, log.keys.prefix, payments(*accounts),
        original(SCHEMA),
        log_end=log.refresh().log_end_offset, producer_id=producer_id, producer_epoch=producer_epoch,
        timestamp_ms=engine.clock(),
    )  # fmt: skip


@cache
def _made() -> tuple[MemoryStore, int]:
    store, clock = new_store(), ManualClock(START_MS)
    with Engine(store, clock=clock, pause=no_pause, configs=FEW_INTERNAL) as engine:
        engine.admin.create_topic(
            TOPIC, partitions=1, schema=SCHEMA, key="account_id", retention_ms=8 * DAY_MS
        )
        upload(engine, 3000)
        for account in OLD[:-1]:
            commit(engine, account)
            if account % 3 == 0:
                abort(engine, 1000 + account)
            clock.advance(1_000)
        with engine.producer() as plain:
            plain.produce(TOPIC, payments(OLD[-1]), partition=0).result()
        engine.admin.snapshot()
        clock.advance(9 * DAY_MS)
        for account in YOUNG:
            commit(engine, account)
            engine.admin.snapshot()
        left_open = engine.producer(transactional_id="left-open")
        left_open.init_transactions()
        left_open.begin_transaction()
        left_open.produce(TOPIC, payments(2000), partition=0).result()
    return store, clock()


def ledger() -> tuple[MemoryStore, ManualClock]:
    """A copy of a ledger that is nine days old, and a clock that stands at its end.

    Its one partition has seven old payments (`OLD`) with aborted ones among them, an uploaded file that no
    entry names, and a snapshot. Nine days later it has six young payments (`YOUNG`), six snapshots, and a
    transaction that is still open.
    """
    made, now_ms = _made()
    return copy_of(made), ManualClock(now_ms)


# --- questions ---------------------------------------------------------------------------------------------


def records(engine: Engine, isolation_level: str = "read_committed") -> pa.Table:
    """All records that a scan sees, with offsets and timestamps."""
    return engine.scan(TOPIC, isolation_level=isolation_level).to_table()  # type: ignore[arg-type]


def accounts(engine: Engine, isolation_level: str = "read_committed") -> list[int]:
    """The accounts of the payments that a scan sees, in the order of their offsets."""
    found: list[int] = records(engine, isolation_level).column("account_id").to_pylist()
    return found


def keys(store: ObjectStore, folder: str) -> list[str]:
    """The names in a folder of the partition."""
    return [info.key.removeprefix(f"{PREFIX}/{folder}/") for info in store.list(f"{PREFIX}/{folder}")]


def sealed(store: ObjectStore) -> list[bool]:
    """For each slot of the log, in order, whether it is a seal."""
    return [
        decode_entry(
            USER_LOG, store.get(f"{PREFIX}/log/{name}"), key=name, base_offset=int(name[:20])
        ).is_seal
        for name in keys(store, "log")
    ]


# --- jobs --------------------------------------------------------------------------------------------------

Job = Callable[[Engine], MaintenanceReport[object]]

JOBS: dict[str, Job] = {
    "compact": lambda engine: engine.maintenance.compact(TOPIC, policy=POLICY),
    "retain": lambda engine: engine.maintenance.retain(TOPIC, policy=POLICY),
    "seal": lambda engine: engine.maintenance.seal(TOPIC),
    "clean": lambda engine: engine.maintenance.clean(TOPIC, policy=POLICY),
    "expire": lambda engine: engine.maintenance.expire_producers(TOPIC),
}
