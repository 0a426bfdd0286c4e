"""What a producer is told whose transaction was open for longer than its time-out."""

from __future__ import annotations

from txn_engine.configs.client import ProducerSettings
from txn_engine.errors import (
    InvalidProducerEpochError,
    InvalidTxnStateError,
    ProducerFencedError,
    TxnEngineError,
)
from txn_engine.log.logs import Logs
from txn_engine.log.store_config import StoreLimits
from txn_engine.reasons import Reason

_ANSWERS_AFTER_A_SWEEP = (ProducerFencedError, InvalidProducerEpochError, InvalidTxnStateError)
"""What the coordinator and the partitions answer a producer whose transaction a sweep has aborted."""


JOB_TIMEOUT_MS = 300_000


def job_timeout_ms(limits: StoreLimits, asked_ms: int | None) -> int:
    """The transaction time-out of a load: what the caller asked for, even if the store will refuse it; else 5 minutes,
    or the store's limit if that is less.
    """
    return min(JOB_TIMEOUT_MS, limits.max_transaction_timeout_ms) if asked_ms is None else asked_ms


class TimeOut:
    """Knows since when the transaction has been open, by this process's clock: as long as a sweep sees it, or less."""

    def __init__(self, logs: Logs, settings: ProducerSettings) -> None:
        self._logs = logs
        self._timeout_ms = settings.transaction_timeout_ms
        self._opened: tuple[int, int] | None = None

    def opens(self, transaction: int) -> None:
        """The coordinator is asked to add partitions to this transaction of the producer, perhaps not the first."""
        if self._opened is None or self._opened[0] != transaction:
            self._opened = transaction, self._logs.tools.clock()

    def explain(self, error: BaseException, transaction: int) -> None:
        """Let a refusal say that the time-out has passed, which setting to raise, and up to where, as far as that is
        known: whoever is to be told of an error waits, and must not wait for the store or get its error.
        """
        if not isinstance(error, _ANSWERS_AFTER_A_SWEEP) or self._opened is None or error.reason is not None:
            return
        opened, since_ms = self._opened
        open_ms = self._logs.tools.clock() - since_ms
        if opened == transaction and open_ms > self._timeout_ms:
            seen = self._logs.settings.last_seen
            most_ms = None if seen is None else seen.limits.max_transaction_timeout_ms
            _add_to(error, open_ms, self._timeout_ms, most_ms)


def _add_to(error: TxnEngineError, open_ms: int, timeout_ms: int, most_ms: int | None) -> None:
    error.reason = Reason.TRANSACTION_TIMED_OUT
    most = "at most" if most_ms is None else f"at most {most_ms:,},"
    error.action = (
        f"the transaction was open for {open_ms:,} ms, longer than its transaction.timeout.ms of {timeout_ms:,}, so a"
        " sweep has probably aborted it: upload the records before the transaction begins (Producer.upload), or raise"
        f" the setting ({most} the store's transaction.max.timeout.ms); {error.action}"
    )
