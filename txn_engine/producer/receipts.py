"""What one call of `produce` gives back: one future for all of its batches."""

from __future__ import annotations

import threading
from concurrent.futures import Future

from txn_engine.types import RecordMetadata


class Receipt:
    """Where the batches of one call went; the first failure is the future's. It is settled once the call is closed and
    all of its batches are.

    The future is running from the start: what was handed over goes out, so that `cancel()` says False, as Kafka's does.
    """

    def __init__(self) -> None:
        self.future: Future[list[RecordMetadata]] = Future()
        self.future.set_running_or_notify_cancel()
        self.has_batches = False
        self.is_broken_off = False  # the call failed, and its producer knows
        self._places: list[RecordMetadata | BaseException | None] = []
        self._order: list[int] = []  # of the records
        self._left = 1  # the call itself
        self._lock = threading.Lock()

    def expect(self) -> int:
        """One more batch; its number."""
        with self._lock:
            self.has_batches = True
            self._left += 1
            self._places.append(None)
            self._order.append(len(self._places) - 1)
            return len(self._places) - 1

    def expect_before(self, number: int) -> int:
        """One more batch, in the records' order before that one, which is not settled; its number."""
        with self._lock:
            self._left += 1
            self._places.append(None)
            added = len(self._places) - 1
            self._order.insert(self._order.index(number), added)
            return added

    def settle(self, number: int, place: RecordMetadata | BaseException) -> None:
        """A batch is in the log, or has failed. Runs the caller's callbacks where it is the last one."""
        self._places[number] = place
        self.close()

    def close(self) -> None:
        """One thing less to wait for: a batch, or, said by the call itself, any more of them."""
        with self._lock:
            self._left -= 1
            is_last = self._left == 0
        if is_last:
            self._tell()

    def _tell(self) -> None:
        places = [self._places[number] for number in self._order]
        failed = next((place for place in places if isinstance(place, BaseException)), None)
        if failed is not None:
            self.future.set_exception(failed)
        else:
            self.future.set_result([place for place in places if isinstance(place, RecordMetadata)])
