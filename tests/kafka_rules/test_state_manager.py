"""The coordinator's log is its memory (TransactionStateManagerTest). The tests pin the two sweeps' tables and
the defaults too."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import product

import pyarrow as pa
import pytest

import txn_engine
from storage import MemoryStore, NotConnectedError, StorageError, StoreNotWritableError, StoreUnreachableError
from tests.kafka_rules.driver import (
    DAY_MS,
    SCHEMA,
    T0,
    T1,
    T2,
    T3,
    TOPIC,
    answer,
    fresh_id,
    put_row,
    row_of,
    state_of,
)
from tests.suite.tiers import in_shard
from tests.support.faults import Fault, FaultyStore, Operation, no_pause, raising
from tests.support.sealing import parquet_object, taken_apart
from txn_engine import Engine
from txn_engine.protocol.transaction_rows import TransactionRow
from txn_engine.testing import ManualClock
from txn_engine.types import TransactionListing

PID, EPOCH, WEEK_MS = 5_010, 5, 7 * DAY_MS
STATES = ["Empty", "Ongoing", "PrepareCommit", "PrepareAbort", "CompleteCommit", "CompleteAbort", "Dead"]
AT_REST = ["Empty", "CompleteCommit", "CompleteAbort"]


# --- loading ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("snapshot_after", [None, 2, 5, 7])
def test_tsm_02_the_last_row_of_each_id_counts(
    engine: Engine, url: str, clock: ManualClock, snapshot_after: int | None
) -> None:
    """TSM-02: every engine that opens the store, from a snapshot or from the start, knows the last row of each id."""
    rows = [
        ("one", "Ongoing", [T0, T1]),
        ("one", "Ongoing", [T0, T1, T2]),
        ("two", "Ongoing", [T0, T1, T3]),
        ("one", "PrepareCommit", [T0, T1, T2]),
        ("two", "PrepareAbort", [T0, T1, T3]),
        ("two", "CompleteAbort", []),
        ("two", "Empty", []),
    ]
    for number, (name, state, partitions) in enumerate(rows, start=1):
        put_row(engine, state, pid=PID, epoch=EPOCH, name=name, partitions=partitions)
        if number == snapshot_after:
            engine.admin.snapshot("__transaction_state")
    with txn_engine.connect(url, clock=clock) as other:
        assert other.admin.describe_transaction("one").partitions == (T0, T1, T2)
        assert state_of(other, "one") == ("PrepareCommit", PID, EPOCH)
        assert state_of(other, "two") == ("Empty", PID, EPOCH)
        assert [listing.transactional_id for listing in other.admin.list_transactions()] == ["one", "two"]


# How the store refuses to take a row, and the code that a client gets for it.
STORE_ERRORS: list[tuple[type[StorageError], str]] = [
    (StoreUnreachableError, "OUTCOME_UNKNOWN"),
    (NotConnectedError, "NETWORK_EXCEPTION"),
    (StoreNotWritableError, "CLUSTER_AUTHORIZATION_FAILED"),
]


@dataclass(frozen=True)
class Request:
    """A request to an Ongoing transaction of T0.

    `answer` is the answer while the store works, also to the same request once more. `settled` is the answer
    if its own row, whose outcome was unknown, is put first. `left` is the id when all is completed, `rows`
    are the states of the id by then, and `markers` counts the markers in T0.
    """

    ask: Callable[[Engine, str], object]
    answer: object
    settled: object
    left: tuple[str, int, int]
    rows: list[str]
    markers: int


REQUESTS = {
    "EndTxn": Request(
        lambda engine, name: engine.coordinator.end_transaction(name, PID, EPOCH, committed=True),
        (PID, EPOCH + 1),
        "CONCURRENT_TRANSACTIONS",
        ("CompleteCommit", PID, EPOCH + 1),
        ["Ongoing", "PrepareCommit", "CompleteCommit"],
        1,
    ),
    "AddPartitions": Request(
        lambda engine, name: engine.coordinator.add_partitions(name, PID, EPOCH, [T1]),
        None,
        None,
        ("Ongoing", PID, EPOCH),
        ["Ongoing", "Ongoing"],
        0,
    ),
    "InitProducerId": Request(
        lambda engine, name: engine.coordinator.init_producer_id(name),
        "CONCURRENT_TRANSACTIONS",
        "CONCURRENT_TRANSACTIONS",
        ("Empty", PID, EPOCH + 2),
        ["Ongoing", "PrepareAbort", "CompleteAbort", "Empty"],
        1,
    ),
}


@contextmanager
def a_store_that_takes_no_rows(
    clock: ManualClock, kind: type[StorageError], fault: Fault
) -> Iterator[tuple[Engine, str, FaultyStore]]:
    """An Ongoing id, and a store that fails each put into its coordinator's log until `decide` is removed. It
    answers reads."""
    store = FaultyStore(MemoryStore(fresh_id("store")), error=raising(kind))
    with Engine(store, clock=clock, pause=no_pause) as engine:
        engine.admin.create_topic(TOPIC, partitions=2, schema=SCHEMA)
        name = put_row(engine, "Ongoing", pid=PID, epoch=EPOCH)
        prefix = engine.logs.coordinator(name).keys.prefix

        def decide(operation: Operation, key: str, _: int) -> Fault | None:
            return fault if operation == "put_if_absent" and key.startswith(prefix) else None

        store.decide = decide
        yield engine, name, store


def assert_done_once(engine: Engine, name: str, request: Request, expected: object) -> None:
    """The same request once more has this answer. It waits only for a completion, and everything is as if it
    was asked once."""
    assert answer(lambda: request.ask(engine, name)) == expected
    if expected == "CONCURRENT_TRANSACTIONS":
        assert engine.coordinator.finish(name).transactional_ids == (name,)
        if request.left[0] == "Empty":
            request.ask(engine, name)
    assert state_of(engine, name) == request.left
    log = engine.logs.coordinator(name)
    assert [
        batch.row.state for batch in log.batches() if isinstance(batch.row, TransactionRow)
    ] == request.rows
    assert engine.partition(TOPIC, 0).high_watermark == request.markers


@pytest.mark.parametrize("request_name", REQUESTS)
@pytest.mark.parametrize(("kind", "code"), STORE_ERRORS)
def test_tsm_04_a_row_that_is_not_taken_leaves_nothing_stuck(
    clock: ManualClock, kind: type[StorageError], code: str, request_name: str
) -> None:
    """TSM-04: the store fails before it takes the row.

    The caller gets the error itself if it proves that nothing was written, else an unknown outcome, however
    often it asks. Everybody sees the earlier row. Once the store works again the same request is answered,
    nothing is left pending, and nothing was done twice.
    """
    request = REQUESTS[request_name]
    with a_store_that_takes_no_rows(clock, kind, "before") as (engine, name, store):
        for _ in range(2):
            assert answer(lambda: request.ask(engine, name)) == code
            with Engine(store.inner, clock=clock) as other:
                assert state_of(other, name) == ("Ongoing", PID, EPOCH)
        assert {fault for operation, _, fault in store.calls if operation == "put_if_absent"} == {
            None,
            "before",
        }
        store.decide = None
        assert_done_once(
            engine, name, request, request.settled if code == "OUTCOME_UNKNOWN" else request.answer
        )


@pytest.mark.parametrize("request_name", REQUESTS)
@pytest.mark.parametrize("kind", [kind for kind, _ in STORE_ERRORS])
def test_tsm_04_a_row_that_was_taken_counts(
    clock: ManualClock, kind: type[StorageError], request_name: str
) -> None:
    """TSM-04: the store fails after it has taken the row. The engine reads the row back, and answers the
    request as usual, the first time and again."""
    request = REQUESTS[request_name]
    with a_store_that_takes_no_rows(clock, kind, "after") as (engine, name, store):
        assert answer(lambda: request.ask(engine, name)) == request.answer
        assert answer(lambda: request.ask(engine, name)) == request.answer
        assert (store.calls[-1][2], "after" in {fault for _, _, fault in store.calls}) == (None, True)
        store.decide = None
        assert_done_once(engine, name, request, request.answer)


Parts = tuple[pa.Table, dict[bytes, bytes]]


def _said(name: bytes, value: bytes) -> Callable[[pa.Table, dict[bytes, bytes]], Parts]:
    """Keep the rows, and change what the object's metadata says."""
    return lambda table, metadata: (table, {**metadata, b"txn_engine." + name: value})


def _held(column: str, value: object) -> Callable[[pa.Table, dict[bytes, bytes]], Parts]:
    """Change the value of a column of the entry's row. A dict changes fields of a struct."""

    def change(table: pa.Table, metadata: dict[bytes, bytes]) -> Parts:
        at = table.schema.get_field_index(column)
        field = table.schema.field(at)
        (held,) = table.column(at).to_pylist()
        new = {**held, **value} if isinstance(value, dict) else value
        return table.set_column(at, field, pa.array([new], field.type)), metadata

    return change


UNKNOWN_ROWS = {
    "a later format": (_said(b"format", b"3"), "UNSUPPORTED_VERSION"),
    "an object of another kind": (_said(b"kind", b"ledger"), "UNSUPPORTED_VERSION"),
    "a kind of row that is not known": (_held("control", "merge"), "UNSUPPORTED_VERSION"),
    "a state that is not known": (_held("transaction", {"state": "Frozen"}), "CORRUPT_MESSAGE"),
}


def _two_ids_at_home_apart(engine: Engine) -> tuple[str, str]:
    """Two open ids in two partitions of the coordinator's topic."""
    broken = put_row(engine, "Ongoing", name="broken")
    sound = next(
        name
        for name in map(str, range(1_000))
        if engine.admin.coordinator_partition(name) != engine.admin.coordinator_partition(broken)
    )
    return broken, put_row(engine, "Ongoing", name=sound)


def _assert_only_its_partition_stops(
    url: str, clock: ManualClock, broken: str, sound: str, *, code: str
) -> None:
    with txn_engine.connect(url, clock=clock) as other:
        assert answer(lambda: other.admin.describe_transaction(broken)) == code
        assert answer(lambda: other.coordinator.init_producer_id(broken)) == code
        assert answer(lambda: other.coordinator.end_transaction(broken, 5_010, 5, committed=True)) == code
        assert state_of(other, sound)[0] == "Ongoing"
        ended = other.coordinator.end_transaction(sound, 5_010, 5, committed=True)
        assert state_of(other, sound) == ("CompleteCommit", *ended)


@pytest.mark.parametrize("what", UNKNOWN_ROWS)
def test_tsm_10_an_unknown_row_stops_its_partition(
    engine: Engine, url: str, clock: ManualClock, what: str
) -> None:
    """TSM-10, where we differ: a row that this version does not know is not skipped, if its checksum is
    right. Its partition answers every request with the problem at once, and the others go on."""
    change, code = UNKNOWN_ROWS[what]
    broken, sound = _two_ids_at_home_apart(engine)
    key = engine.logs.coordinator(broken).keys.entry(0)
    engine.store.put(key, parquet_object(*change(*taken_apart(engine.store.get(key)))))
    _assert_only_its_partition_stops(url, clock, broken, sound, code=code)


def test_tsm_10_the_same_row_put_together_again_is_read(engine: Engine, url: str, clock: ManualClock) -> None:
    """TSM-10: the row's content stops the partition above, not the way in which the row was put back."""
    broken, _ = _two_ids_at_home_apart(engine)
    key = engine.logs.coordinator(broken).keys.entry(0)
    engine.store.put(key, parquet_object(*taken_apart(engine.store.get(key))))
    with txn_engine.connect(url, clock=clock) as other:
        assert state_of(other, broken)[0] == "Ongoing"


def test_tsm_10_a_damaged_row_stops_its_partition(engine: Engine, url: str, clock: ManualClock) -> None:
    """TSM-10: if half an object is missing, its partition answers with the damage, and the others go on."""
    broken, sound = _two_ids_at_home_apart(engine)
    key = engine.logs.coordinator(broken).keys.entry(0)
    data = engine.store.get(key)
    engine.store.put(key, data[: len(data) // 2])
    _assert_only_its_partition_stops(url, clock, broken, sound, code="CORRUPT_MESSAGE")


def test_tsm_10_an_empty_log_loads(engine: Engine) -> None:
    """TSM-10: a partition of the coordinator's topic that nobody has written to is simply empty."""
    assert list(engine.coordinator.rows()) == []
    assert engine.coordinator.write_pending_markers().transactional_ids == ()


def test_tsm_10_loading_again_changes_nothing(engine: Engine, url: str, clock: ManualClock) -> None:
    """TSM-10: any number of connections load the same rows, and nobody hands them over."""
    name = put_row(engine, "Ongoing", pid=PID, epoch=EPOCH)
    for epoch in (EPOCH, EPOCH + 1, EPOCH + 2):
        with txn_engine.connect(url, clock=clock) as other:
            assert state_of(other, name)[2] == epoch
            other.coordinator.end_transaction(name, PID, epoch, committed=False)
    assert state_of(engine, name) == ("CompleteAbort", PID, EPOCH + 3)


# --- time-outs --------------------------------------------------------------------------------------------


def test_tsm_06_only_open_transactions_time_out(engine: Engine, clock: ManualClock) -> None:
    """TSM-06: of seven ids, only the Ongoing one with a timeout of 1 s is aborted after 2 s."""
    seeds = [
        ("Ongoing", 1_000),
        ("Ongoing", 10_000),
        ("PrepareCommit", 1_000),
        ("PrepareAbort", 1_000),
        ("CompleteCommit", 1_000),
        ("CompleteAbort", 1_000),
        ("Empty", 1_000),
    ]
    names = [put_row(engine, state, transaction_timeout_ms=timeout) for state, timeout in seeds]
    clock.advance(2_000)
    assert engine.coordinator.abort_timed_out_transactions().transactional_ids == (names[0],)


@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize(("age", "due"), [(999, False), (1_000, False), (1_001, True), (900_000, True)])
def test_the_time_out_is_strict(
    table_engine: Engine, table_clock: ManualClock, state: str, age: int, due: bool
) -> None:
    """A transaction times out after start plus timeout, not at it, and only in the state Ongoing."""
    name = put_row(table_engine, state, transaction_timeout_ms=1_000)
    table_clock.advance(age)
    swept = table_engine.coordinator.abort_timed_out_transactions().transactional_ids
    assert (name in swept) == (due and state == "Ongoing")


def test_the_time_out_counts_from_the_first_partition(engine: Engine, clock: ManualClock) -> None:
    """Adding partitions does not prolong a transaction."""
    held = engine.coordinator.init_producer_id("slow", transaction_timeout_ms=1_000)
    engine.coordinator.add_partitions("slow", *held, [T0])
    clock.advance(900)
    engine.coordinator.add_partitions("slow", *held, [T1])
    clock.advance(101)
    assert engine.coordinator.abort_timed_out_transactions().transactional_ids == ("slow",)


def test_a_timeout_without_end(engine: Engine, clock: ManualClock) -> None:
    """A timeout of 2^31-1 (Kafka's two-phase commit) never runs out."""
    name = put_row(engine, "Ongoing", transaction_timeout_ms=2**31 - 1)
    clock.advance(60 * DAY_MS)
    assert engine.coordinator.abort_timed_out_transactions().transactional_ids == ()
    assert state_of(engine, name)[0] == "Ongoing"


def test_a_seeded_start_counts(engine: Engine, clock: ManualClock) -> None:
    """A row with a given time of its last update is that old, so its transaction started then."""
    old = put_row(engine, "Ongoing", transaction_timeout_ms=60_000, last_update_ms=clock() - 60_001)
    young = put_row(engine, "Ongoing", transaction_timeout_ms=60_000, last_update_ms=clock() - 60_000)
    assert engine.coordinator.abort_timed_out_transactions().transactional_ids == (old,)
    assert state_of(engine, young)[0] == "Ongoing"


# --- expiry -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("state", "age"), list(product(STATES, [WEEK_MS - 1, WEEK_MS, WEEK_MS + 1])))
def test_expiry_in_every_state(table_engine: Engine, table_clock: ManualClock, state: str, age: int) -> None:
    """Empty, CompleteCommit and CompleteAbort expire once `transactional.id.expiration.ms` is reached (not
    only passed). An id that is open, decided or dead does not."""
    name = put_row(table_engine, state, pid=PID, epoch=EPOCH)
    before = table_engine.coordinator.current(name)
    table_clock.advance(age)
    swept = table_engine.coordinator.expire_transactional_ids().transactional_ids
    due = state in AT_REST and age >= WEEK_MS
    assert (name in swept) == due
    if due:
        described = answer(lambda: table_engine.admin.describe_transaction(name))
        assert described == "TRANSACTIONAL_ID_NOT_FOUND"
        ended = answer(lambda: table_engine.coordinator.end_transaction(name, PID, EPOCH, committed=True))
        assert ended == "INVALID_PRODUCER_ID_MAPPING"
    else:
        assert table_engine.coordinator.current(name) == before


def test_a_seeded_age_expires(engine: Engine, clock: ManualClock) -> None:
    """A row with a given time of its last update is that old, and expires accordingly."""
    old = put_row(engine, "CompleteCommit", last_update_ms=clock() - WEEK_MS)
    young = put_row(engine, "CompleteCommit", last_update_ms=clock() - WEEK_MS + 1)
    assert engine.coordinator.expire_transactional_ids().transactional_ids == (old,)
    assert state_of(engine, young)[0] == "CompleteCommit"


def test_using_an_id_keeps_it(engine: Engine, clock: ManualClock) -> None:
    """Every row of an id restarts its seven days."""
    name = put_row(engine, "CompleteCommit", pid=PID, epoch=EPOCH)
    clock.advance(WEEK_MS - 1)
    engine.coordinator.init_producer_id(name)
    clock.advance(WEEK_MS - 1)
    assert engine.coordinator.expire_transactional_ids().transactional_ids == ()
    clock.advance(1)
    assert engine.coordinator.expire_transactional_ids().transactional_ids == (name,)


@pytest.mark.parametrize("ids", in_shard("protocol", [150, 1_000], keep=1))
def test_tsm_08_many_ids_expire_in_few_entries(ids: int, engine: Engine, clock: ManualClock) -> None:
    """TSM-08: all idle ids expire, with at most one entry for each partition of the coordinator's log. An id that never
    had an epoch expires too.
    """
    names = [put_row(engine, "Empty", epoch=-1 if number % 10 == 0 else 0) for number in range(ids)]
    entries = len(list(engine.store.list("topics/__transaction_state")))
    clock.advance(WEEK_MS)
    report = engine.coordinator.expire_transactional_ids()
    assert sorted(report.transactional_ids) == sorted(names)
    assert report.objects_written <= 50
    assert len(list(engine.store.list("topics/__transaction_state"))) == entries + report.objects_written
    assert engine.admin.list_transactions() == []
    assert engine.coordinator.expire_transactional_ids().transactional_ids == ()


def test_after_expiry_a_fresh_start(engine: Engine, clock: ManualClock) -> None:
    """An expired id begins with another producer id at epoch 0, whatever its old holder brings along."""
    name = put_row(engine, "CompleteCommit", pid=PID, epoch=EPOCH)
    clock.advance(WEEK_MS)
    engine.coordinator.expire_transactional_ids()
    found = engine.coordinator.init_producer_id(name, producer_id=PID, producer_epoch=EPOCH)
    assert found.producer_epoch == 0
    assert found.producer_id != PID


# --- lists ------------------------------------------------------------------------------------------------


def test_list_and_its_filters(engine: Engine, clock: ManualClock) -> None:
    """testListTransactionsFiltering*: the list can be filtered by state, producer id, pattern (the whole
    name) and running time (strictly longer). Filters are joined with "and", and an empty one filters nothing.
    Dead ids are never listed, and an unknown state is an error."""
    clock.advance(-3_000)
    oldest = put_row(engine, "Ongoing", pid=1, name="my-a")
    clock.advance(1_000)
    middle = put_row(engine, "Ongoing", pid=2, name="my-b")
    clock.advance(2_000)
    newest = put_row(engine, "PrepareCommit", pid=3, name="your-a")
    done = put_row(engine, "CompleteAbort", pid=4, name="my-done")
    put_row(engine, "Dead", pid=-1, epoch=-1, name="my-dead")

    def found(**filters: object) -> set[str]:
        return {each.transactional_id for each in engine.admin.list_transactions(**filters)}  # type: ignore[arg-type]

    assert found() == found(states=STATES) == {oldest, middle, newest, done}
    assert found(states=["Ongoing"]) == {oldest, middle}
    assert found(states=["Ongoing", "CompleteAbort"]) == {oldest, middle, done}
    assert found(states=[]) == found(producer_ids=[]) == found(pattern="") == found()
    assert found(producer_ids=[2, 3, 99]) == {middle, newest}
    assert found(states=["Ongoing"], producer_ids=[2, 3]) == {middle}
    assert found(duration_ms=2_999) == {oldest}
    assert found(duration_ms=3_000) == set()
    assert found(duration_ms=1_999) == {oldest, middle}
    assert found(duration_ms=-1) == found()
    assert found(pattern="my-.*") == {oldest, middle, done}
    assert found(pattern="a") == set()
    assert found(pattern="my-.*", states=["Ongoing"], duration_ms=2_500) == {oldest}
    assert answer(lambda: engine.admin.list_transactions(states=["Busy"])) == "INVALID_REQUEST"
    assert answer(lambda: engine.admin.list_transactions(pattern="(")) == "INVALID_REGULAR_EXPRESSION"
    assert engine.admin.list_transactions(producer_ids=[3]) == [
        TransactionListing(newest, 3, "PrepareCommit")
    ]


def test_defaults(engine: Engine) -> None:
    """The store has Kafka's defaults."""
    limits = engine.limits
    assert limits.max_transaction_timeout_ms == 900_000
    assert limits.transactional_id_expiration_ms == 604_800_000
    assert limits.producer_id_expiration_ms == 86_400_000
    assert engine.config.internal_partitions["__transaction_state"] == 50
    assert engine.config.internal_partitions["__consumer_offsets"] == 50
    engine.coordinator.init_producer_id("by-default")
    assert engine.admin.describe_transaction("by-default").transaction_timeout_ms == 60_000


def test_a_rows_fields_survive(engine: Engine, url: str, clock: ManualClock) -> None:
    """Every field of a row is read back as it was written, through an entry and through a snapshot."""
    name = put_row(engine, "Ongoing", pid=PID, epoch=EPOCH, last_producer_epoch=4, partitions=[T1, T0])
    written = row_of(engine, name)
    assert written == replace(written, last_producer_epoch=4, producer_id=PID)
    engine.admin.snapshot("__transaction_state", engine.admin.coordinator_partition(name))
    with txn_engine.connect(url, clock=clock) as other:
        assert row_of(other, name) == written
