"""Whether the store at the URL is still the one that was opened: it may have been deleted, and restored or set up
anew, under a process that lives on (docs/decisions, "A store is known by its id").

No store gets an id that another one had. So a read of `store.json` that begins after a write came back, and finds the
id that was opened, proves that the write went into that store.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from storage import FORMAT, JSON_BYTES_MAX, LATER_FORMAT
from txn_engine.clock import Clock
from txn_engine.errors import (
    InconsistentClusterIdError,
    OutcomeUnknownError,
    TxnEngineError,
)
from txn_engine.log.objects import checked_text, decode_json
from txn_engine.reasons import Reason

STORE_KEY: Final = "store.json"
STORE_KIND: Final = "store"


class StoreIdentity:
    """The id of the store that an engine has opened. Threads may share it.

    find: reads an object of the place, as `Objects.find`. Once another store was seen there, every call raises.
    """

    def __init__(
        self, store_id: str, find: Callable[..., bytes | None], url: str, monotonic_ms: Clock, opened_ms: int
    ) -> None:
        self._store_id = store_id
        self._find = find
        self._url = url
        self._monotonic_ms = monotonic_ms
        self._seen_ms = self._looking_ms = (
            opened_ms  # when a look began that found the id, or has no answer yet
        )
        self._same: bytes | None = None  # bytes that have the id
        self._replaced: InconsistentClusterIdError | None = None

    def check_lately(self, within_ms: int) -> None:
        """Raise `InconsistentClusterIdError` for another store; where a look began so lately, without another look.

        While one thread looks, the others do not: nothing is proved by this.
        """
        now_ms = self._monotonic_ms()
        if self._replaced is None and now_ms - max(self._seen_ms, self._looking_ms) < within_ms:
            return
        self._looking_ms = now_ms
        try:
            self.check()
        except BaseException:
            self._looking_ms = self._seen_ms
            raise

    def check(self) -> None:
        """Look, and raise `InconsistentClusterIdError` for another store, or none. `CorruptObjectError` where nobody
        can tell.
        """
        if self._replaced is not None:
            raise self._replaced.with_traceback(None)
        began_ms = self._monotonic_ms()
        data = self._find(STORE_KEY, max_bytes=JSON_BYTES_MAX)
        if data is None or (data != self._same and self._id_of(data) != self._store_id):
            self._replaced = self._gone() if data is None else self._another(self._id_of(data))
            raise self._replaced
        self._same = data
        self._seen_ms = max(self._seen_ms, began_ms)

    def confirm(self) -> None:
        """As `check`, once something was written. `OutcomeUnknownError` where nobody can tell."""
        try:
            self.check()
        except InconsistentClusterIdError:
            raise
        except TxnEngineError as error:
            raise OutcomeUnknownError(
                f"it was written, but store.json cannot be read, which says whether this is still store"
                f" {self._store_id}: {error}",
                actor="store",
                place=self._url,
                reason=Reason.STORE_NOT_CONFIRMED,
            ) from error

    def _id_of(self, data: bytes) -> str:
        values = decode_json(
            data, key=STORE_KEY, kind=STORE_KIND, needed=("store_id",), formats=(FORMAT, LATER_FORMAT)
        )
        return checked_text(values, "store_id", key=STORE_KEY)

    def _gone(self) -> InconsistentClusterIdError:
        return InconsistentClusterIdError(
            f"store {self._store_id} was deleted: there is no store.json any more",
            actor="store",
            place=self._url,
            expected=f"the store that was opened, {self._store_id}",
            reason=Reason.STORE_DELETED,
        )

    def _another(self, found: str) -> InconsistentClusterIdError:
        return InconsistentClusterIdError(
            f"store {found} is here now",
            actor="store",
            place=self._url,
            expected=f"the store that was opened, {self._store_id}",
            reason=Reason.STORE_REPLACED,
        )
