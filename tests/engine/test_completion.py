"""The Complete row that is written after a call returns: who waits for it, and what may be closed
meanwhile."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import count
from types import FrameType
from unittest.mock import Mock

import pytest

from storage import MemoryStore
from storage.errors import NotConnectedError
from tests.engine.conftest import SCHEMA, at_rest, payments
from tests.engine.test_producer_threads import in_time
from tests.support.faults import no_pause
from tests.support.stores import accounts_in
from tests.support.waiting import LIMIT_S, wait_for
from txn_engine import Engine, Producer
from txn_engine.coordinator.coordinator import Coordinator
from txn_engine.errors import IllegalStateError, ProducerFencedError, StoreUnavailableError
from txn_engine.producer.effects import Effects
from txn_engine.producer.states import ProducerState
from txn_engine.protocol.transaction_rows import TransactionState
from txn_engine.testing import ManualClock


class HeldRows(MemoryStore):
    """A store that delays a put to the coordinator's log if `holds` says so of the thread that puts it."""

    def __init__(self) -> None:
        super().__init__()
        self.holds: Callable[[str], bool] = lambda _: False
        self.refuses: Callable[[str], bool] = lambda _: False
        self.is_held = threading.Event()
        self.let = threading.Event()
        self.is_patient = True

    def put_if_absent(self, key: str, data: bytes) -> bool:
        if "__transaction_state" in key and self.holds(threading.current_thread().name):
            self.is_held.set()
            self.is_patient &= self.let.wait(60)
        if "__transaction_state" in key and self.refuses(threading.current_thread().name):
            raise NotConnectedError("refused", actor="test", place=key)
        return super().put_if_absent(key, data)

    def hold_the_pools(self) -> None:
        """Delay the rows that pool threads write. Rows that callers write themselves are not delayed."""
        self.holds = lambda thread: thread.startswith("txn-send")


@pytest.fixture
def store() -> HeldRows:
    return HeldRows()


@pytest.fixture
def engine(store: HeldRows, clock: ManualClock) -> Iterator[Engine]:
    with Engine(store, clock=clock, pause=no_pause) as engine:
        engine.admin.create_topic("payments", partitions=2, schema=SCHEMA, key="account_id")
        yield engine


def in_transaction(engine: Engine) -> Producer:
    """A producer in a transaction, one record of which is in the log."""
    producer = engine.producer(transactional_id="job")
    producer.init_transactions()
    producer.begin_transaction("r1")
    producer.produce("payments", payments(1)).result()
    return producer


def test_begin_and_produce_do_not_wait_for_it(engine: Engine, store: HeldRows) -> None:
    """Beginning the next transaction and producing in it do not wait for the Complete row of the last one."""
    producer = in_transaction(engine)
    store.hold_the_pools()
    producer.commit_transaction()
    assert store.is_held.wait(LIMIT_S)
    sent = []

    def next_transaction() -> None:
        producer.begin_transaction()
        sent.append(producer.produce("payments", payments(2)))

    in_time(next_transaction)
    assert store.is_patient
    store.let.set()
    producer.commit_transaction()
    assert sent[0].done()
    assert accounts_in(engine) == [1, 2]


@pytest.mark.parametrize("row", ["did not go out", "failed"])
def test_an_abort_behind_one_that_failed(
    store: HeldRows, engine: Engine, monkeypatch: pytest.MonkeyPatch, row: str
) -> None:
    """An abort succeeds although the coordinator still has the decision of the producer's last transaction,
    whose Complete row failed. The abort completes that transaction first."""
    producer = in_transaction(engine)
    store.refuses = lambda thread: thread.startswith("txn-send")
    producer.commit_transaction()
    at_rest(producer)
    stored = engine.coordinator.current("job")
    assert stored is not None
    assert stored.row.state is TransactionState.PREPARE_COMMIT
    store.refuses = lambda _: False
    producer.begin_transaction()
    with monkeypatch.context() as patched:
        if row == "failed":
            patched.setattr(Coordinator, "add", Mock(side_effect=StoreUnavailableError("refused")))
            with pytest.raises(StoreUnavailableError):
                producer.produce("payments", payments(2)).result()
        else:
            patched.setattr(Effects, "join_soon", Mock())
            producer.produce("payments", payments(2))
        producer.abort_transaction()
    with producer.transaction():
        producer.produce("payments", payments(3))
    assert accounts_in(engine) == [1, 3]


def test_the_engines_close_waits_for_it(store: HeldRows, clock: ManualClock, engine: Engine) -> None:
    """Closing an engine waits until the Complete row is written, even if that write loses its race and has to
    read the rows that other writers have put."""
    closing = Engine(store, clock=clock)
    producer = in_transaction(closing)
    at = engine.logs.coordinator_partition("job")
    neighbour = next(name for name in map(str, count()) if engine.logs.coordinator_partition(name) == at)
    store.hold_the_pools()
    producer.commit_transaction()
    assert store.is_held.wait(LIMIT_S)
    store.holds = lambda _: False
    other = engine.producer(transactional_id=neighbour)
    for _ in range(12):
        other.init_transactions()
    closed = threading.Thread(target=closing.close)
    closed.start()
    closed.join(0.2)
    store.let.set()
    in_time(closed.join)
    stored = engine.coordinator.current("job")
    assert stored is not None
    assert stored.row.state is TransactionState.COMPLETE_COMMIT


def test_an_engine_closed_behind_the_decision(store: HeldRows, clock: ManualClock, engine: Engine) -> None:
    """If the engine is closed after the decision, the commit succeeds. The sweep writes the markers."""
    closing = Engine(store, clock=clock)
    producer = in_transaction(closing)
    store.holds = lambda _: True
    committing = threading.Thread(target=producer.commit_transaction)
    committing.start()
    assert store.is_held.wait(LIMIT_S)
    closing.close()
    store.let.set()
    in_time(committing.join)
    assert producer.state is ProducerState.READY
    assert producer.last_committed_run_id == "r1"
    engine.coordinator.write_pending_markers()
    assert accounts_in(engine) == [1]


def test_a_close_and_a_commit_of_two_threads(engine: Engine, store: HeldRows) -> None:
    """If one thread closes a producer while another one commits, one of them goes first. A commit is refused
    only if nothing was committed."""
    producer = in_transaction(engine)
    store.holds = lambda _: True
    told: list[BaseException | None] = []

    def commit() -> None:
        try:
            producer.commit_transaction()
            told.append(None)
        except IllegalStateError as refused:
            told.append(refused)

    committing = threading.Thread(target=commit)
    looks: list[str] = []

    def preempt(frame: FrameType, event: str, _: object) -> None:
        """Let the other thread commit after the closing thread has looked whether another thread ends the
        transaction."""
        caller = frame.f_back.f_code.co_name if frame.f_back is not None else ""
        if event == "call" and frame.f_code.co_name == "state" and caller in ("close", "_close"):
            looks.append(caller)
        if len(looks) == 2:
            sys.setprofile(None)
            committing.start()
            wait_for(lambda: told or store.is_held.is_set(), what="the commit's row or its refusal")
            threading.Timer(0.2, store.let.set).start()

    sys.setprofile(preempt)
    try:
        with suppress(IllegalStateError):
            producer.close()
    finally:
        sys.setprofile(None)
    in_time(committing.join)
    assert accounts_in(engine) == ([1] if told == [None] else [])
    assert (producer.state is ProducerState.CLOSED) == (told != [None])


def test_a_finished_producers_error_stays_small(engine: Engine) -> None:
    """Calling a finished producer again and again raises the same error, which does not hold on to the calls and their
    records.
    """
    producer = engine.producer(transactional_id="job")
    producer.init_transactions()
    engine.producer(transactional_id="job").init_transactions()
    producer.begin_transaction()
    with pytest.raises(ProducerFencedError):
        producer.produce("payments", payments(1)).result()
    for _ in range(100):
        with pytest.raises(ProducerFencedError) as raised:
            producer.produce("payments", payments(1))
    assert len(raised.traceback) < 20
