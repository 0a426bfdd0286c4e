"""What became of a job in each place: done, nothing due, or stopped; and whether it was the store that stopped all."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, TypeVar

from txn_engine.errors import StoreAccessError, TxnEngineError
from txn_engine.maintain.reports import MaintenanceReport, PartitionFailure
from txn_engine.unreadable import Unreadable, raise_if_no_write_was_taken

Done = TypeVar("Done")


@dataclass(frozen=True, slots=True)
class Overtaken:
    """A partition where another run was quicker each time."""

    topic: str
    partition: int
    seen: str


class Outcomes(Generic[Done]):
    """Gathers the outcomes of one job."""

    def __init__(self) -> None:
        self._done: list[Done] = []
        self._failures: list[PartitionFailure] = []
        self._stopped: list[Unreadable] = []
        self._went_through = False

    def note(self, outcome: Done | Unreadable | Overtaken | None) -> None:
        """Add one; None: nothing was due there."""
        if isinstance(outcome, Unreadable):
            self._stopped.append(outcome)
            self._failures.append(_failure(outcome))
            return
        self._went_through = True
        if isinstance(outcome, Overtaken):
            self._failures.append(
                PartitionFailure(outcome.topic, outcome.partition, "OVERTAKEN", outcome.seen)
            )
        elif outcome is not None:
            self._done.append(outcome)

    @property
    def refusal(self) -> TxnEngineError | None:
        """The store's error, where no place got through and each was refused: it may give nothing at all then."""
        if self._went_through or not self._stopped:
            return None
        if all(isinstance(each.error, StoreAccessError) for each in self._stopped):
            return self._stopped[0].error
        return None

    def report(self, *, dry_run: bool) -> MaintenanceReport[Done]:
        """All of them. Raises the store's refusal where nothing was done, and all that failed is writes it refused."""
        if len(self._stopped) == len(self._failures):
            raise_if_no_write_was_taken(self._stopped, wrote_any=bool(self._done))
        return MaintenanceReport(tuple(self._done), tuple(self._failures), dry_run)


def _failure(stopped: Unreadable) -> PartitionFailure:
    error = stopped.error
    return PartitionFailure(
        stopped.topic,
        stopped.partition,
        error.code,
        str(error),
        error.retry_helps,
        error.reason,
        error.place,
    )
