"""A producer that several threads use: Ctrl-C at any place, callbacks in the thread that sends, and
futures."""

from __future__ import annotations

import asyncio
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from types import FrameType, SimpleNamespace
from typing import Any, cast

import pyarrow as pa
import pytest

import txn_engine.producer.sender as sender_module
from storage import MemoryStore
from tests.engine.conftest import SCHEMA, payments
from tests.suite.tiers import in_shard
from tests.support.faults import FaultyStore, no_pause
from tests.support.refusals import refused
from tests.support.stores import accounts_in
from tests.support.waiting import LIMIT_S
from txn_engine import Engine
from txn_engine.configs.client import ProducerSettings
from txn_engine.errors import (
    IllegalStateError,
    OutcomeUnknownError,
    TransactionAbortableError,
    TxnEngineError,
)
from txn_engine.producer import Producer, machine
from txn_engine.producer.effects import Effects
from txn_engine.producer.lanes import Lane
from txn_engine.producer.states import ProducerState
from txn_engine.reasons import Reason
from txn_engine.testing import ManualClock

_LOOKS_FOR_SIGNALS = (
    "call",
    "c_return",
)  # CPython does when a function begins, and when one in C has returned


@contextmanager
def interrupted_at(number: int) -> Iterator[None]:
    """Raise Ctrl-C at the n-th place in the producer's own code, in this thread, where CPython looks for
    signals."""
    left = number

    def look(frame: FrameType, event: str, _: object) -> None:
        nonlocal left
        if event in _LOOKS_FOR_SIGNALS and "/txn_engine/producer/" in frame.f_code.co_filename:
            left -= 1
            if left == 0:
                sys.setprofile(None)
                raise KeyboardInterrupt

    sys.setprofile(look)
    try:
        yield
    finally:
        sys.setprofile(None)


def in_time(call: Callable[[], object]) -> None:
    """Run a call in a thread of its own, and fail if it does not end in time."""
    outcome: Future[object] = Future()

    def run() -> None:
        try:
            outcome.set_result(call())
        except BaseException as error:  # noqa: BLE001 - the caller raises it
            outcome.set_exception(error)

    threading.Thread(target=run, daemon=True).start()
    outcome.result(LIMIT_S)


def ended(producer: Producer, recover: str) -> bool:
    """Whether the transaction was committed, after the caller has gone on as the producer's state says."""
    if producer.state is ProducerState.READY:
        return True  # the interrupt came behind the last step
    if producer.state is ProducerState.COMMITTING_TRANSACTION:
        producer.commit_transaction()
        return True
    if recover == "commit":
        with suppress(TransactionAbortableError):
            producer.commit_transaction()
            return True
    if recover == "close":
        producer.close()
    else:
        producer.abort_transaction()
    return False


@pytest.mark.parametrize("step", in_shard("kills", [5, 1], keep=1))
@pytest.mark.parametrize("recover", in_shard("kills", ["abort", "commit", "close"], keep=["commit"]))
def test_ctrl_c_anywhere_in_a_transaction(engine: Engine, recover: str, step: int) -> None:
    """Ctrl-C lands anywhere in produce or commit. The next call ends, and a committed transaction has all records that
    produce returned for, and none of a call that was interrupted. `make test` tries every fifth place, the shard all.
    """

    def run() -> None:
        producer = engine.producer(transactional_id="job")
        producer.init_transactions()
        expected: list[int] = []
        was_interrupted, number = True, 0
        while was_interrupted:
            number += step
            sent: list[int] = []
            producer.begin_transaction(f"run-{number}")
            try:
                with interrupted_at(number):
                    for accounts in ((10 * number, 10 * number + 1, 10 * number + 2), (10 * number + 3,)):
                        producer.produce("payments", payments(*accounts))
                        sent += accounts
                    producer.commit_transaction()
                was_interrupted, committed = False, True
            except KeyboardInterrupt:
                committed = ended(producer, recover)
            assert (producer.last_committed_run_id == f"run-{number}") is committed
            expected += sent if committed else []
            if producer.state is ProducerState.CLOSED:
                producer = engine.producer(transactional_id="job")
                producer.init_transactions()
        assert number > 100
        assert accounts_in(engine) == expected

    in_time(run)


@pytest.mark.parametrize("step", in_shard("kills", [7, 1], keep=1))
def test_ctrl_c_anywhere_in_an_idempotent_produce(engine: Engine, step: int) -> None:
    """The producer is finished if a part of the interrupted call went out, goes on if nothing did, and never hangs. The
    batches before it are there once and in order. `make test` tries every seventh place, the shard all.
    """

    def run() -> None:
        number, was_interrupted = 0, True
        while was_interrupted:
            number += step
            before = set(accounts_in(engine))
            producer = engine.producer()
            producer.produce("payments", payments(10 * number), partition=0).result()
            try:
                with interrupted_at(number):
                    producer.produce("payments", payments(10 * number + 1, 10 * number + 2))
                was_interrupted = False
            except KeyboardInterrupt:
                with suppress(OutcomeUnknownError):
                    producer.produce("payments", payments(10 * number + 3)).result()
            with suppress(OutcomeUnknownError):
                producer.close()
            assert 10 * number in set(accounts_in(engine)) - before
        assert number > 30
        seen = accounts_in(engine)
        assert len(seen) == len(set(seen))

    in_time(run)


class HeldStore(MemoryStore):
    """A store that takes no data file until the test releases it."""

    def __init__(self) -> None:
        super().__init__()
        self.let = threading.Event()

    def put_if_absent(self, key: str, data: bytes) -> bool:
        if "/data/" in key:
            assert self.let.wait(LIMIT_S)
        return super().put_if_absent(key, data)


@pytest.fixture
def held(clock: ManualClock) -> Iterator[tuple[HeldStore, Engine]]:
    store = HeldStore()
    with Engine(store, clock=clock) as engine:
        engine.admin.create_topic("payments", partitions=2, schema=SCHEMA, key="account_id")
        yield store, engine


@pytest.mark.parametrize(
    "call",
    [
        "flush",
        "commit_transaction",
        "abort_transaction",
        "close",
        "begin_transaction",
        "init_transactions",
        "send_offsets_to_transaction",
    ],
)
def test_a_callback_may_not_wait(held: tuple[HeldStore, Engine], call: str) -> None:
    """A call that waits is refused in a callback, even if other batches share the callback's entry, and
    nothing hangs."""
    store, engine = held
    producer = engine.producer(transactional_id="job")
    producer.init_transactions()
    producer.begin_transaction()
    outcome: Future[BaseException | None] = Future()

    def call_back(_: object) -> None:
        arguments = ({}, engine.consumer(group_id="g").group_metadata()) if call.startswith("send") else ()
        try:
            getattr(producer, call)(*arguments)
            outcome.set_result(None)
        except BaseException as error:  # noqa: BLE001 - the test looks at it
            outcome.set_result(error)

    sent = [producer.produce("payments", payments(number), partition=0) for number in range(4)]
    sent[1].add_done_callback(call_back)
    store.let.set()
    in_time(producer.commit_transaction)
    refusal = outcome.result(LIMIT_S)
    assert isinstance(refusal, IllegalStateError)
    assert refusal.reason is Reason.IN_A_CALLBACK
    assert accounts_in(engine) == [0, 1, 2, 3]


def test_whoever_is_called_back_elsewhere_may_wait(engine: Engine) -> None:
    """A call may wait in another thread that a callback hands its context to, as asyncio does, because that
    is not the thread that sends."""

    async def send_and_flush() -> None:
        loop, flushed = asyncio.get_running_loop(), asyncio.Event()

        def flush() -> None:
            producer.flush()
            flushed.set()

        with engine.producer() as producer:
            sent = producer.produce("payments", payments(1), partition=0)
            sent.add_done_callback(lambda _: loop.call_soon_threadsafe(flush))
            await asyncio.wait_for(flushed.wait(), 20)

    in_time(lambda: asyncio.run(send_and_flush()))


def test_a_callback_sends_while_another_thread_waits_for_room(held: tuple[HeldStore, Engine]) -> None:
    """A callback's produce goes through while another thread waits for room in the buffer."""
    store, engine = held
    store.let.set()

    def run() -> None:
        with engine.producer(buffer_memory=100) as producer:
            for number in range(50):
                producer.produce("payments", payments(*[number] * 20), partition=0).add_done_callback(
                    lambda _, n=number: producer.produce("payments", payments(1_000 + n), partition=1)
                )
            while len(accounts_in(engine)) < 50 * 21:
                producer.flush()

    in_time(run)
    assert accounts_in(engine)[-50:] == list(range(1_000, 1_050))


@pytest.mark.parametrize("transactional", [False, True])
def test_what_a_callback_raises_is_its_own(held: tuple[HeldStore, Engine], transactional: bool) -> None:
    """An exception in a callback, even `sys.exit`, does not stop the producer: all batches are sent, and the
    next transaction is not affected."""
    store, engine = held
    producer = engine.producer(transactional_id="job" if transactional else None)
    if transactional:
        producer.init_transactions()
        producer.begin_transaction()
    sent = [producer.produce("payments", payments(number), partition=0) for number in range(6)]
    for future in sent:
        future.add_done_callback(lambda _: sys.exit(1))
    store.let.set()
    in_time(producer.commit_transaction if transactional else producer.flush)
    assert [future.exception(20) for future in sent] == [None] * 6
    if transactional:
        with producer.transaction():
            producer.produce("payments", payments(6), partition=0)
    else:
        producer.produce("payments", payments(6), partition=0)
        producer.close()
    assert accounts_in(engine) == [0, 1, 2, 3, 4, 5, 6]


def test_flush_returns_when_the_callbacks_have_run(engine: Engine) -> None:
    """When flush returns, every future is done and its callbacks have returned, as in Kafka."""
    returned: list[int] = []
    with engine.producer() as producer:
        for number in range(50):
            future = producer.produce("payments", payments(number), partition=0)
            future.add_done_callback(lambda _, n=number: (time.sleep(0.002), returned.append(n)))
            producer.flush()
            assert future.done()
            assert returned[-1] == number


def test_no_callback_waits_for_another_producer(held: tuple[HeldStore, Engine]) -> None:
    """A callback may send with another producer but not wait for it, because then all threads that send could
    wait for one another."""
    store, engine = held
    other = engine.producer()
    refusals: list[IllegalStateError] = []

    def send_and_flush(_: object) -> None:
        other.produce("payments", payments(100), partition=1)
        try:
            other.flush()
        except IllegalStateError as error:
            refusals.append(error)

    with engine.producer() as producer:
        producer.produce("payments", payments(1), partition=0).add_done_callback(send_and_flush)
        store.let.set()
    in_time(other.close)
    assert [error.reason for error in refusals] == [Reason.IN_A_CALLBACK]
    assert accounts_in(engine) == [1, 100]


def test_close_tells_of_a_loss_that_nobody_has_heard_of(url: str, clock: ManualClock) -> None:
    """Close raises the error of a batch that was lost, even if the batch had failed before."""
    store = FaultyStore(MemoryStore(url.removeprefix("memory://")))
    with Engine(store, clock=clock, pause=no_pause) as engine:
        engine.admin.create_topic("payments", partitions=1, schema=SCHEMA, key="account_id")
        store.decide = lambda operation, key, _: "before" if "/data/" in key and "put" in operation else None
        producer = engine.producer()
        failed = producer.produce("payments", payments(1)).exception(20)
        assert failed is not None
        with pytest.raises(TxnEngineError):
            producer.close()
        assert producer.state is ProducerState.CLOSED


def test_a_batch_on_its_way_cannot_be_cancelled(held: tuple[HeldStore, Engine]) -> None:
    """`cancel()` returns False for a batch that is being sent, because its records are written all the
    same."""
    store, engine = held
    with engine.producer() as producer:
        sent = [producer.produce("payments", payments(*accounts)) for accounts in ((1,), (2, 3, 4))]
        assert [future.cancel() for future in sent] == [False, False]
        store.let.set()
        assert [len(future.result(LIMIT_S)) >= 1 for future in sent] == [True, True]
    assert accounts_in(engine) == [1, 2, 3, 4]


@pytest.mark.parametrize("call", ["commit_transaction", "abort_transaction", "close"])
def test_a_reader_may_not_end_the_transaction_that_it_is_read_for(
    engine: Engine, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    """If a reader of records ends the transaction that it is read for, the call is refused, and the produce
    fails with it. Otherwise its records would be half inside and half outside of the transaction."""
    monkeypatch.setattr(sender_module, "READER_PART_BYTES", 1)
    producer = engine.producer(transactional_id="job")
    producer.init_transactions()
    producer.begin_transaction()

    def batches() -> Iterator[pa.RecordBatch]:
        yield from payments(1).to_batches()
        getattr(producer, call)()
        yield from payments(2).to_batches()

    with refused(IllegalStateError, Reason.IN_A_READER):
        producer.produce("payments", pa.RecordBatchReader.from_batches(SCHEMA, batches()))
    with pytest.raises(TransactionAbortableError):
        producer.commit_transaction()
    producer.abort_transaction()
    with producer.transaction():
        producer.produce("payments", payments(3))
    assert accounts_in(engine) == [3]


def test_a_reader_may_send_other_records(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a reader produces while it is read is part of the same transaction."""
    monkeypatch.setattr(sender_module, "READER_PART_BYTES", 1)

    def batches() -> Iterator[pa.RecordBatch]:
        for number in (1, 2):
            producer.produce("payments", payments(10 * number))
            yield from payments(number).to_batches()

    producer = engine.producer(transactional_id="job")
    producer.init_transactions()
    with producer.transaction():
        producer.produce("payments", pa.RecordBatchReader.from_batches(SCHEMA, batches()))
    assert accounts_in(engine) == [1, 2, 10, 20]


def test_the_end_waits_for_another_threads_produce(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """A commit that another thread calls between two parts of one produce commits all of its parts."""
    monkeypatch.setattr(sender_module, "READER_PART_BYTES", 1)
    producer = engine.producer(transactional_id="job")
    producer.init_transactions()
    producer.begin_transaction()
    committing = threading.Thread(target=producer.commit_transaction)

    def batches() -> Iterator[pa.RecordBatch]:
        yield from payments(1).to_batches()
        committing.start()
        committing.join(0.2)
        yield from payments(2).to_batches()

    producer.produce("payments", pa.RecordBatchReader.from_batches(SCHEMA, batches()))
    in_time(committing.join)
    assert accounts_in(engine) == [1, 2]


@pytest.mark.parametrize(
    ("step", "state"), [("make_visible", "COMMITTING_TRANSACTION"), ("complete_soon", "READY")]
)
def test_ctrl_c_behind_the_decision(
    engine: Engine, monkeypatch: pytest.MonkeyPatch, step: str, state: str
) -> None:
    """If Ctrl-C comes after the decision and before the markers, the same call again succeeds. If it comes
    after the markers, the transaction is done."""
    producer = engine.producer(transactional_id="job")
    producer.init_transactions()
    producer.begin_transaction("r1")
    producer.produce("payments", payments(1))

    def interrupted(*_: object) -> None:
        monkeypatch.undo()
        raise KeyboardInterrupt

    monkeypatch.setattr(Effects, step, interrupted)
    with pytest.raises(KeyboardInterrupt):
        producer.commit_transaction()
    assert producer.state == state
    if state != "READY":
        producer.commit_transaction()
    assert producer.last_committed_run_id == "r1"
    with producer.transaction():
        producer.produce("payments", payments(2))
    assert accounts_in(engine) == [1, 2]
    with pytest.raises(TxnEngineError):
        producer.commit_transaction()


def _in_a_callback(
    producer: Producer, monkeypatch: pytest.MonkeyPatch, *, breaks_off: bool
) -> threading.Thread:
    """Let a callback produce two parts, and another thread commit between them. Returns that thread."""
    monkeypatch.setattr(sender_module, "READER_PART_BYTES", 1)
    outcome: list[BaseException] = []
    is_committing, has_sent = threading.Event(), threading.Event()

    def commit() -> None:
        is_committing.set()
        try:
            producer.commit_transaction()
        except TxnEngineError as error:
            outcome.append(error)

    committing = threading.Thread(target=commit)
    committing.outcome = outcome  # type: ignore[attr-defined]

    def batches() -> Iterator[pa.RecordBatch]:
        yield from payments(2).to_batches()
        committing.start()
        is_committing.wait(LIMIT_S)
        committing.join(0.2)
        if breaks_off:
            raise ValueError("the second part")
        yield from payments(3).to_batches()

    def send(_: object) -> None:
        try:
            producer.produce("payments", pa.RecordBatchReader.from_batches(SCHEMA, batches()))
        finally:
            has_sent.set()

    producer.init_transactions()
    producer.begin_transaction()
    producer.produce("payments", payments(1)).add_done_callback(send)
    assert has_sent.wait(LIMIT_S)
    return committing


def test_an_end_waits_for_all_parts_of_a_callbacks_produce(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A commit that begins between two parts of a callback's produce does not refuse the second part, and
    commits both."""
    committing = _in_a_callback(engine.producer(transactional_id="job"), monkeypatch, breaks_off=False)
    in_time(committing.join)
    assert accounts_in(engine) == [1, 2, 3]


def test_a_callback_that_breaks_off_has_failed_before_the_end(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If a callback's produce fails between two parts, a commit that waits for it does not commit the first
    part alone."""
    producer = engine.producer(transactional_id="job")
    committing = _in_a_callback(producer, monkeypatch, breaks_off=True)
    in_time(committing.join)
    (error,) = committing.outcome  # type: ignore[attr-defined]
    assert isinstance(error, TransactionAbortableError)
    producer.abort_transaction()
    assert accounts_in(engine) == []


def test_ctrl_c_before_a_thread_joins(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """If Ctrl-C interrupts a commit before any thread was asked to write the run's row, the next produce asks
    again."""
    producer = engine.producer(transactional_id="job")
    producer.init_transactions()
    producer.begin_transaction("r1")

    def interrupted(*_: object) -> None:
        monkeypatch.undo()
        raise KeyboardInterrupt

    monkeypatch.setattr(Effects, "ask_for_a_join", interrupted)
    with pytest.raises(KeyboardInterrupt):
        producer.commit_transaction()
    assert producer.state is ProducerState.IN_TRANSACTION
    sent = producer.produce("payments", payments(1))
    in_time(sent.result)
    producer.commit_transaction()
    assert accounts_in(engine) == [1]


def test_a_close_that_is_broken_off_leaves_no_future_open(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The futures of an interrupted close end with an error, so nobody waits for them for ever."""
    producer = engine.producer(transactional_id="job")
    producer.init_transactions()
    producer.begin_transaction()
    monkeypatch.setattr(Effects, "ask_for_a_join", lambda _: None)

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(machine, "aborting", interrupted)
    sent = producer.produce("payments", payments(1))
    with pytest.raises(KeyboardInterrupt):
        producer.close()
    assert producer.state is ProducerState.CLOSED
    with refused(IllegalStateError, Reason.PRODUCER_CLOSED):
        sent.result(LIMIT_S)
    producer.close()


@pytest.mark.parametrize("linger_ms", [0, 5])
def test_a_lane_is_looked_through_while_it_grows(linger_ms: int) -> None:
    """A sender may look at a lane's first batches while the caller adds some and others are settled."""
    lane = object.__new__(Lane)
    lane._settings = ProducerSettings(linger_ms=linger_ms)
    batch = SimpleNamespace(uploaded=None, size=1, records=None, is_alone=True)
    lane._queue = deque([cast("Any", batch)] * 5)
    is_over = threading.Event()

    def add() -> None:
        while not is_over.is_set():
            lane._queue.append(cast("Any", batch))
            lane._queue.popleft()

    adding = threading.Thread(target=add)
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    adding.start()
    try:
        looks = [len(lane._next()) for _ in range(20_000)]
    finally:
        is_over.set()
        adding.join()
        sys.setswitchinterval(interval)
    assert set(looks) <= {5, 6}
