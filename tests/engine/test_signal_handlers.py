"""A signal handler interrupts a thread that may hold any lock. Calls of the engine are refused in it, at once."""

from __future__ import annotations

import functools
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from storage import MemoryStore
from tests.engine.conftest import SCHEMA, payments
from txn_engine import Engine
from txn_engine.consumer import Consumer
from txn_engine.errors import IllegalStateError, TxnEngineError
from txn_engine.producer import Producer
from txn_engine.reasons import Reason

Handler = Callable[[int, Any], Any]


@contextmanager
def handled_by(handler: Handler) -> Iterator[None]:
    before = signal.signal(signal.SIGUSR1, handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGUSR1, before)


@pytest.fixture
def engine() -> Iterator[Engine]:
    with Engine(MemoryStore()) as engine:
        engine.admin.create_topic("payments", schema=SCHEMA, partitions=2)
        yield engine


@pytest.fixture
def producer(engine: Engine) -> Iterator[Producer]:
    with engine.producer(transactional_id="bank") as producer:
        producer.init_transactions()
        yield producer


@pytest.fixture
def consumer(engine: Engine) -> Iterator[Consumer]:
    with engine.consumer(group_id="readers") as consumer:
        consumer.subscribe(["payments"])
        yield consumer


Call = Callable[[Engine, Producer, Consumer], object]
CALLS: dict[str, Call] = {
    "init": lambda e, p, c: p.init_transactions(),
    "produce": lambda e, p, c: p.produce("payments", payments(1), partition=0),
    "flush": lambda e, p, c: p.flush(),
    "commit": lambda e, p, c: p.commit_transaction(),
    "abort": lambda e, p, c: p.abort_transaction(),
    "close": lambda e, p, c: p.close(),
    "poll": lambda e, p, c: c.poll(),
    "commit of a group": lambda e, p, c: c.commit(),
    "lag": lambda e, p, c: c.lag(),
    "scan": lambda e, p, c: e.scan("payments"),
    "cut": lambda e, p, c: e.cut(),
    "topics": lambda e, p, c: e.admin.describe_topic("payments"),
    "another producer": lambda e, p, c: e.producer(transactional_id="other").init_transactions(),
    "create a topic": lambda e, p, c: e.admin.create_topic("other", schema=SCHEMA, partitions=1),
}


@pytest.mark.parametrize("name", CALLS)
def test_a_call_in_a_signal_handler_is_refused(
    engine: Engine, producer: Producer, consumer: Consumer, name: str
) -> None:
    """The call raises in the handler, whatever the signal interrupted, and the transaction goes on."""
    errors: list[TxnEngineError] = []

    def handler(signum: int, frame: object) -> None:
        try:
            CALLS[name](engine, producer, consumer)
        except TxnEngineError as error:
            errors.append(error)

    with handled_by(handler):
        producer.begin_transaction()
        producer.produce("payments", payments(1), partition=0)
        signal.raise_signal(signal.SIGUSR1)
        producer.produce("payments", payments(1), partition=0)
        producer.commit_transaction()
    (error,) = errors
    assert isinstance(error, IllegalStateError)
    assert error.reason is Reason.IN_A_SIGNAL_HANDLER
    assert engine.scan("payments").to_table().num_rows == 2


class _Handlers:
    """The forms that a handler can have."""

    def __init__(self, call: Callable[[], object]) -> None:
        self._call = call

    def method(self, signum: int, frame: object) -> None:
        self._call()

    def __call__(self, *arguments: object) -> None:
        self._call()

    def forms(self) -> list[Handler]:
        def without_its_frame(signum: int, frame: object) -> None:
            del signum, frame
            self._call()

        return [
            self.method,
            self,
            lambda *_: self._call(),
            functools.partial(lambda note, signum, frame: self._call(), "note"),
            without_its_frame,
        ]


def test_every_form_of_a_handler_is_recognised(producer: Producer) -> None:
    """A method, an object, a partial function and a handler that drops its arguments are handlers too."""
    producer.begin_transaction()
    for handler in _Handlers(producer.flush).forms():
        with handled_by(handler), pytest.raises(IllegalStateError) as caught:
            signal.raise_signal(signal.SIGUSR1)
        assert caught.value.reason is Reason.IN_A_SIGNAL_HANDLER
    producer.abort_transaction()


def test_what_is_no_handler_is_not_refused(producer: Producer) -> None:
    """A function that is registered as a handler may call the engine if the program calls it. So may another thread
    while a handler runs, and the program after the handler has raised.
    """
    done: list[str] = []

    def stop(signum: int = 0, frame: object = None) -> None:
        producer.flush()
        done.append("called")

    def in_a_thread(signum: int, frame: object) -> None:
        thread = threading.Thread(target=stop)
        thread.start()
        thread.join()

    def raising(signum: int, frame: object) -> None:
        raise KeyboardInterrupt

    producer.begin_transaction()
    with handled_by(stop):
        stop()
        stop(signal.SIGUSR1)
    with handled_by(in_a_thread):
        signal.raise_signal(signal.SIGUSR1)
    with handled_by(raising):
        try:
            signal.raise_signal(signal.SIGUSR1)
        except KeyboardInterrupt:
            producer.abort_transaction()
    assert done == ["called"] * 3
