"""One worker process: its engine, its journal, and how it handles errors. The work itself is in
`workloads`."""

from __future__ import annotations

import logging
import os
import random
import signal
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeVar

import txn_engine
from tests.torture.journal import Journal
from txn_engine import Engine
from txn_engine.errors import (
    CorruptObjectError,
    OutcomeUnknownError,
    RequestTimedOutError,
    StoreAccessError,
    StoreUnavailableError,
    TxnEngineError,
)
from txn_engine.producer import Producer

T = TypeVar("T")
Outcome = Literal["committed", "refused", "unknown"]

TRANSACTION_TIMEOUT_MS = 2_000
_STORE_ERRORS = (
    OutcomeUnknownError, StoreUnavailableError, StoreAccessError, CorruptObjectError, RequestTimedOutError
)  # fmt: skip
_END_TRIES_MAX = 6
_PAUSE_S = 0.1


@dataclass(frozen=True, slots=True)
class Ledger:
    """The place of the store, and the folder of the workers' journals."""

    url: str
    journals: Path
    endpoint: str | None = None
    access_key: str | None = None
    secret_key: str | None = None

    def connect(self) -> Engine:
        """An engine on the store."""
        return txn_engine.connect(
            self.url, endpoint=self.endpoint, access_key=self.access_key, secret_key=self.secret_key
        )


@dataclass(frozen=True, slots=True)
class Assignment:
    """The task of one process. `role` names its workload, and `slot` is part of its transactional id."""

    ledger: Ledger
    role: str
    slot: int
    seed: int
    seconds_max: float


class StoppedError(Exception):
    """The worker was asked to end, and ends."""


class Session:
    """A worker at work, from its start to its end."""

    def __init__(self, assignment: Assignment) -> None:
        self.assignment = assignment
        self.writer = f"{assignment.role}-{assignment.slot}-{os.getpid()}-{assignment.seed}"
        self.transactional_id = f"{assignment.role}-{assignment.slot}"
        self.journal = Journal(assignment.ledger.journals, self.writer)
        self.chance = random.Random(assignment.seed)
        self._deadline = time.monotonic() + assignment.seconds_max
        self._asked_to_stop = False
        self._made = 0
        self._engine: Engine | None = None
        logging.getLogger().addHandler(logging.NullHandler())  # what is left to the sweep is no news here
        signal.signal(signal.SIGTERM, self._stop)
        signal.signal(
            signal.SIGINT, signal.SIG_IGN
        )  # Ctrl-C is for the supervisor, which then ends its workers

    @property
    def engine(self) -> Engine:
        """The process's engine, opened at first use."""
        if self._engine is None:
            self._engine = self.insist(self.assignment.ledger.connect)
        return self._engine

    def _stop(self, *_: object) -> None:
        self._asked_to_stop = True

    def running(self) -> bool:
        """Whether the worker should continue."""
        return not self._asked_to_stop and time.monotonic() < self._deadline

    def new_name(self) -> str:
        """A name that no other process and no other call gets."""
        self._made += 1
        return f"{self.writer}-{self._made}"

    def rest(self, seconds: float = _PAUSE_S) -> None:
        """Wait a moment."""
        time.sleep(seconds)

    def insist(self, ask: Callable[[], T]) -> T:
        """Repeat the call until there is an answer. Errors of the engine are expected here, and are
        recorded."""
        while self.running():
            try:
                return ask()
            except TxnEngineError as error:
                self.journal.write("error", error.code, text=str(error))
                self.rest()
        raise StoppedError

    def producer(self, *, timeout_ms: int = TRANSACTION_TIMEOUT_MS) -> Producer:
        """A new owner of this slot's transactional id, which fences the earlier owner."""

        def make() -> Producer:
            producer = self.engine.producer(
                transactional_id=self.transactional_id,
                transaction_timeout_ms=timeout_ms,
                markers=self.chance.choice(("inline", "inline", "deferred")),
            )
            producer.init_transactions()
            return producer

        return self.insist(make)

    def transact(
        self, producer: Producer, name: str, work: Callable[[], None], *, run_id: str | None = None
    ) -> Outcome:
        """Run one transaction to its end, and record its outcome in the journal.

        "refused" means that nobody ever asked for its commit, or that the engine said that it was not
        committed. "unknown" means that the store could not be asked any more.
        """
        self.journal.write("begin", name)
        try:
            producer.begin_transaction(run_id)
            work()
        except TxnEngineError as error:
            return self._note(name, "refused", error)
        for _ in range(_END_TRIES_MAX):
            try:
                producer.commit_transaction()
            except _STORE_ERRORS as error:
                self.journal.write("error", error.code, text=str(error))
                self.rest()
            except TxnEngineError as error:
                return self._note(name, "refused", error)
            else:
                return self._note(name, "committed", None)
        return self._note(name, "unknown", None)

    def abort(self, producer: Producer, name: str) -> bool:
        """Abort the open transaction. Returns whether the producer can continue."""
        try:
            producer.abort_transaction()
        except TxnEngineError as error:
            self.journal.write("error", error.code, text=str(error), transaction=name)
            return False
        return True

    def _note(self, name: str, outcome: Outcome, error: TxnEngineError | None) -> Outcome:
        more = {} if error is None else {"code": error.code, "text": str(error)}
        self.journal.write(outcome, name, **more)
        return outcome


def run(assignment: Assignment, workload: Callable[[Session], None]) -> None:
    """Run the worker. Any exception that is not an error of the engine is a finding, and is recorded in the
    journal."""
    session = Session(assignment)
    try:
        workload(session)
    except StoppedError:
        pass
    except BaseException as error:  # noqa: BLE001 - the process ends here, and the audit reads why
        session.journal.write("crash", type(error).__name__, text=traceback.format_exc())
    os._exit(0)  # threads of a client that still waits for an answer must not hold the process
