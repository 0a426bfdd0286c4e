"""What a producer's machine asks for, carried out: every request to the coordinator is made here.

AddPartitions and Complete rows are written in the pool's threads, so that no caller waits for them who need not, and
no interrupt lands in them. A thread that is done looks for more before it leaves.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import Final, TypeVar

from txn_engine.clock import Waiting
from txn_engine.configs.client import ProducerSettings
from txn_engine.coordinator.coordinator import Coordinator
from txn_engine.coordinator.groups import GroupCoordinator
from txn_engine.errors import (
    ConcurrentTransactionsError,
    CorruptObjectError,
    IllegalStateError,
    InconsistentClusterIdError,
    InvalidProducerIdMappingError,
    InvalidTxnStateError,
    OutcomeUnknownError,
    ProducerFencedError,
    RequestTimedOutError,
    StoreAccessError,
    TxnEngineError,
)
from txn_engine.log.logs import Logs
from txn_engine.producer import machine as events
from txn_engine.producer.cell import Cell
from txn_engine.producer.machine import (
    AddPartitions,
    AskEnd,
    AskInit,
    Complete,
    Effect,
    Join,
    Start,
    Unfinished,
)
from txn_engine.producer.sender import Sender
from txn_engine.producer.states import NO_ANSWER
from txn_engine.producer.time_out import TimeOut
from txn_engine.protocol.transaction_rows import StoredRow, TransactionPartition, TransactionRow
from txn_engine.protocol.transactions import NOBODY, is_decision_before, resume_identity
from txn_engine.reasons import Reason
from txn_engine.types import MarkerMode, ProducerIdAndEpoch

T = TypeVar("T")

_RETRY_PAUSE_MS: Final = 20
_LINGER_MS: Final = 1
_LINGERS_MAX: Final = 20
_PARTITIONS_A_LINGER: Final = 10
"""A row holds all of the transaction's partitions. So the more they are, the longer a row waits for others to go along:
the number of rows grows as the logarithm of the number of partitions.
"""
STORE_ERRORS: Final = (*NO_ANSWER, StoreAccessError, CorruptObjectError)
_LOGGER = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ProducerTools:
    """What a producer works with; one set an engine."""

    logs: Logs
    coordinator: Coordinator
    groups: GroupCoordinator
    senders: Executor
    waiting: Waiting


@dataclass(slots=True, eq=False)
class _Completion:
    """A Complete row on its way, in another thread."""

    is_over: bool = False


class Effects:
    """Carries out what the machine of one transactional producer asks for."""

    def __init__(
        self,
        tools: ProducerTools,
        cell: Cell,
        sender: Sender,
        settings: ProducerSettings,
        time_out: TimeOut,
        *,
        markers: MarkerMode,
        resume: ProducerIdAndEpoch | None,
    ) -> None:
        self._coordinator = tools.coordinator
        self._logs = tools.logs
        self._waiting = tools.waiting
        self._pool = tools.senders
        self._cell = cell
        self._sender = sender
        self._time_out = time_out
        self._id = settings.transactional_id or ""
        self._timeout_ms = settings.transaction_timeout_ms
        self._request_timeout_ms = settings.request_timeout_ms
        self._markers: MarkerMode = markers
        self._resume = resume
        self._completion = _Completion(is_over=True)
        self._is_join_asked_for = False

    def carry_out(self, effects: Sequence[Effect]) -> None:
        """One after the other, in this thread; what another thread is to do is on its way when this returns."""
        for effect in effects:
            match effect:
                case Start(partitions):
                    self._sender.start(partitions)
                case Join():
                    self.ask_for_a_join()
                case AskInit():
                    self._ask_init(effect)
                case AddPartitions():
                    self._add_partitions(effect)
                case AskEnd():
                    self._ask_end(effect)
                case Complete():
                    self._complete(effect)

    def ask_for_a_join(self) -> None:
        """One thread is enough for a burst of calls, as long as it has not begun."""
        if not self._is_join_asked_for:
            self._is_join_asked_for = True
            try:
                self._in_the_pool(self.join_soon)
            except BaseException:
                self._is_join_asked_for = False  # an interrupt: the next call asks again
                raise

    def _in_the_pool(self, work: Callable[[], None]) -> None:
        try:
            self._pool.submit(work)
        except IllegalStateError as closed:  # the engine is closed
            self._sender.fail(closed)

    # --- joining --------------------------------------------------------------------------------------------

    def join(self, targets: Sequence[TransactionPartition]) -> None:
        """Return once these are part of the transaction. Raises what their batches would fail with."""
        self.carry_out(self._cell.move(events.wanted, targets))
        self.join_what_waits()
        for target in targets:
            self._cell.wait_for(lambda now, at=target: now.admits(at) or now.refusal(at) is not None)  # type: ignore[misc]
            refusal = self._cell.now.refusal(target)
            if refusal is not None:
                raise refusal

    def join_what_waits(self) -> None:
        """Nothing more comes that could go along: do not let it wait."""
        if self._cell.now.waiting is not None:
            self._in_the_pool(self._join)

    def wait_for_rows(self) -> None:
        """Until no AddPartitions row is being written, or waits to be."""
        self.join_what_waits()
        self._cell.wait_for(lambda now: not now.is_joining)

    def join_soon(self) -> None:
        """As `_join`, once calls that follow at once have come along: what they name goes into the same row."""
        for _ in range(_LINGERS_MAX + len(self._cell.now.joined) // _PARTITIONS_A_LINGER):
            waiting = self._cell.now.waiting
            if waiting is None:
                break
            self._waiting.pause_ms(_LINGER_MS)
            if self._cell.now.waiting is waiting and not self._cell.is_handing_over:
                break
        self._is_join_asked_for = False
        self._join()

    def _join(self) -> None:
        """Write rows for as long as something waits to be joined."""
        while effects := self._cell.move(events.join_begins):
            self.carry_out(effects)

    def _add_partitions(self, row: AddPartitions) -> None:
        self._time_out.opens(self._cell.now.transaction)
        try:
            if row.unfinished is not None:
                self._finish(row.unfinished)
            self._retry_concurrent(
                lambda: self._coordinator.add(self._id, *row.identity, row.partitions, begins=row.begins),
                "AddPartitionsToTxn",
            )
        except BaseException as error:
            self._time_out.explain(error, self._cell.now.transaction)
            self.carry_out(self._cell.move(events.join_failed, error))
            if not isinstance(error, Exception):
                raise
        else:
            self.carry_out(self._cell.move(events.joined))

    def _finish(self, unfinished: Unfinished) -> None:
        """The last transaction's end. Whatever fails of it, the coordinator says so to the row that follows."""
        decision = unfinished.decision
        failures = () if unfinished.is_marked else self._coordinator.mark(decision)
        self._log("not complete yet", failures or self._coordinator.complete(decision))

    # --- who it is ------------------------------------------------------------------------------------------

    def _ask_init(self, effect: AskInit) -> None:
        if self._resume is not None and effect.held == NOBODY:
            self._take_over(self._resume)
            return
        self.wait_for_completion()
        identity, row = self._retry_concurrent(
            lambda: self._coordinator.initialise(
                self._id,
                transaction_timeout_ms=self._timeout_ms,
                producer_id=effect.held.producer_id,
                producer_epoch=effect.held.producer_epoch,
            ),
            "init_transactions",
        )
        if row is None or (row.producer_id, row.producer_epoch) != identity:
            raise ProducerFencedError("another producer initialised meanwhile", actor=self._cell.now.actor)
        self._cell.move(events.initialised, identity, row)

    def _take_over(self, identity: ProducerIdAndEpoch) -> None:
        def look() -> TransactionRow:
            stored = self._coordinator.current(self._id)
            return resume_identity(
                stored, producer_id=identity.producer_id, producer_epoch=identity.producer_epoch
            )

        try:
            row = self._retry_concurrent(look, "init_transactions")
        except (ProducerFencedError, InvalidTxnStateError, InvalidProducerIdMappingError) as error:
            self._cell.move(events.finished, error)
            raise error from None
        self._cell.move(events.initialised, identity, row, is_resumed=True)

    # --- the end --------------------------------------------------------------------------------------------

    def _ask_end(self, effect: AskEnd) -> None:
        """Decide, and make it visible. The state stays where nobody answers: the same call asks again."""
        if effect.unfinished is not None:
            self._finish(effect.unfinished)
        try:
            identity, decision = self._retry_concurrent(
                lambda: self._decide_end(effect), "the transaction's end"
            )
        except STORE_ERRORS:
            raise
        except (ProducerFencedError, InvalidProducerIdMappingError) as error:
            self._time_out.explain(error, self._cell.now.transaction)
            self._settle_fenced(effect, error)
        except TxnEngineError as error:
            self._time_out.explain(error, self._cell.now.transaction)
            self._cell.move(events.finished, error)
            raise
        else:
            unfinished = self._make_visible_here(decision)
            self._cell.move(
                events.decided, committed=effect.committed, identity=identity, unfinished=unfinished
            )
            self.complete_soon()

    def _make_visible_here(self, decision: StoredRow | None) -> Unfinished | None:
        """As `make_visible`. Meanwhile the store is looked at once more: the decision stands in the log, and so do all
        writes before it, if this is the store still that they were meant for.
        """
        confirmed = self._logs.confirm_soon()
        unfinished = self.make_visible(decision)
        try:
            confirmed()
        except InconsistentClusterIdError as error:
            self._cell.move(events.finished, error)
            raise
        return unfinished

    def _decide_end(self, effect: AskEnd) -> tuple[ProducerIdAndEpoch, StoredRow | None]:
        """The coordinator's answer; CONCURRENT_TRANSACTIONS too where the last transaction's decision stands there.

        It made this very epoch, and nothing of this transaction has come through. Kafka's answer is PRODUCER_FENCED.
        """
        try:
            return self._coordinator.decide_end(
                self._id, *effect.identity, committed=effect.committed, run_id=effect.run_id
            )
        except ProducerFencedError as error:
            stored = self._coordinator.current(self._id)
            if stored is None or not is_decision_before(stored.row, *effect.identity):
                raise
            raise ConcurrentTransactionsError(error.seen, actor=error.actor) from error

    def _settle_fenced(self, effect: AskEnd, error: TxnEngineError) -> None:
        """A successor has the id. Return where the log holds this transaction's commit all the same.

        Asked before anything is final: where the log cannot be read now, the same call may be made again.
        """
        was_committed = effect.committed and self._coordinator.was_committed(
            self._id, *effect.identity, effect.run_id
        )
        self._logs.tools.objects.check_identity_now()
        if was_committed:
            self._cell.move(events.decided_before, error)
            return
        if was_committed is None:
            error, cause = _forgotten_decision(self._cell.now.actor), error
            self._cell.move(events.finished, error)
            raise error from cause
        self._cell.move(events.finished, error)
        raise error

    def make_visible(self, decision: StoredRow | None) -> Unfinished | None:
        """The markers of a decision; what is owed of it then. None where an earlier call has seen to all of it."""
        if decision is None:
            return None
        if self._markers == "deferred":
            return Unfinished(decision, is_marked=False)
        failures = self._coordinator.mark(decision)
        self._log("decided, but not visible everywhere yet", failures)
        return Unfinished(decision, is_marked=not failures)

    def complete_soon(self) -> None:
        """Let another thread write the Complete row, if one is owed and its markers are there."""
        completion = _Completion()

        def complete() -> None:
            try:
                self.carry_out(self._cell.move(events.completion_begins))
            finally:
                completion.is_over = True
                self._cell.wake()

        owed = self._cell.now.unfinished
        if owed is None or not owed.is_marked:
            return
        earlier, self._completion = self._completion, completion
        try:
            self._pool.submit(complete)
        except BaseException as error:  # an interrupt, or the engine is closed: the marker sweep will do it
            self._completion = earlier  # whose thread may not have begun: then it takes this one's row
            if not isinstance(error, IllegalStateError):
                raise

    def _complete(self, effect: Complete) -> None:
        try:
            self._log("visible, but not complete yet", self._coordinator.complete(effect.decision))
        finally:
            self._cell.move(events.completed, effect.decision)
            self._join()

    def wait_for_completion(self) -> None:
        """Until the last Complete row that was on its way is there, or has failed, whichever thread took it."""
        self._cell.wait_for(lambda now: self._completion.is_over and not now.is_completing)

    # --- in common ------------------------------------------------------------------------------------------

    def _log(self, what: str, failures: Sequence[str]) -> None:
        for failure in failures:
            _LOGGER.warning("%s; the marker sweep will finish it: %s", what, failure)

    def _retry_concurrent(self, ask: Callable[[], T], what: str) -> T:
        """Ask until the answer is not CONCURRENT_TRANSACTIONS, finishing this id's own markers in between."""
        deadline = self._waiting.monotonic_ms() + self._request_timeout_ms
        while True:
            try:
                return ask()
            except ConcurrentTransactionsError as error:
                is_late = (
                    self._waiting.monotonic_ms() > deadline
                )  # what is finished in time is asked for once more
                report = self._coordinator.finish(self._id, has_looked=True)
                if is_late:
                    raise RequestTimedOutError(
                        f"{what}: the previous transaction was still not complete after {self._request_timeout_ms} ms"
                        + (f" ({report.failures[0]})" if report.failures else ""),
                        actor=self._cell.now.actor,
                    ) from error
                if report.failures:
                    self._waiting.pause_ms(_RETRY_PAUSE_MS)


def _forgotten_decision(actor: str) -> OutcomeUnknownError:
    return OutcomeUnknownError(
        "a successor has taken over, and the part of the coordinator's log is sealed that would tell"
        " whether this transaction was committed before",
        actor=actor,
        action="look at the data, or give transactions a run_id and ask has_committed()",
        reason=Reason.SLOT_SEALED,
    )
