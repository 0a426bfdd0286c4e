"""Which partitions of the internal topics were begun: an object outside a partition's folder says that its log has had
an entry (docs/decisions, "A log that was begun is never empty").

The object is put once the first entry stands, by whoever wrote or found it. So if the object is there and the log is
empty, the log was lost.
"""

from __future__ import annotations

import logging
from collections.abc import Collection
from concurrent.futures import Executor, Future
from typing import Final

from storage import JSON_BYTES_MAX
from txn_engine.clock import Clock
from txn_engine.errors import CorruptObjectError, IllegalStateError, TxnEngineError
from txn_engine.log.objects import Objects, checked_text, decode_json, encode_json
from txn_engine.log.own_process import OwnLock
from txn_engine.reasons import Reason

_LOG = logging.getLogger(__name__)
_FOLDER: Final = "begun"
_KIND: Final = "begun"
_FIELDS: Final = ("topic", "partition", "store_id")
_KNOWN_MS: Final = 5_000


class BegunLogs:
    """What a store says of its internal partitions. Threads may share it.

    store_id: the store's, which an object names that is put. ids: those that an object may name; one that a process of
    another store has put at this URL says nothing.
    """

    def __init__(
        self,
        objects: Objects,
        store_id: str,
        ids: Collection[str],
        monotonic_ms: Clock,
        executor: Executor,
    ) -> None:
        self._objects = objects
        self._store_id = store_id
        self._ids = ids
        self._monotonic_ms = monotonic_ms
        self._executor = executor
        self._lock = OwnLock()
        self._listed: Future[frozenset[str]] | None = None
        self._listed_ms = 0
        self._noted: set[str] = set()  # logs that have their object, or will have it soon

    def entry_written(self, prefix: str, base_offset: int) -> None:
        """An entry of the log in this folder was written. The first time that somebody here writes to it, another
        thread looks whether the log has its object, and puts it. Nobody waits; a failure is logged, and tried again at
        the next entry.
        """
        if prefix in self._noted:
            return
        self._noted.add(prefix)
        try:
            self._executor.submit(self._put_missing, prefix, base_offset == 0)
        except IllegalStateError:
            _LOG.debug("the engine is closed: nothing says that %s was begun", prefix)

    def _put_missing(self, prefix: str, is_first: bool) -> None:
        try:
            if is_first or not self._objects.exists(begun_key(prefix)):
                put_begun(self._objects, prefix, self._store_id)
        except TxnEngineError as error:
            self._noted.discard(prefix)
            _LOG.info("nothing says that %s was begun: %s", prefix, error)

    def loss(self, prefix: str) -> CorruptObjectError | None:
        """The error for an empty log, by its folder, that was begun; None for one that was not. Look at the log again
        before raising it: it may have been begun since.
        """
        key = begun_key(prefix)
        if key not in self._listing().result() or not self._is_ours(key):
            return None
        topic, partition = _names(prefix)
        return CorruptObjectError(
            f"the log of {topic}-{partition} is empty, but {key} says that it was begun",
            place=f"{prefix}/",
            expected="the entries, or a snapshot",
            action="restore this folder from a copy, or the store from a backup. Only where neither is to be had, and"
            f" runs may be loaded again or groups may read again, remove {key}",
            reason=Reason.LOG_LOST,
        )

    def look_ahead(self) -> None:
        """Ask which objects there are, while the caller loads a log; where an object is a file away, nobody waits."""
        if not self._objects.is_near:
            self._listing()

    def _listing(self) -> Future[frozenset[str]]:
        """The objects that there are, as they were at most five seconds ago: whoever looks at all logs of a store asks
        once.
        """
        with self._lock.here():
            now_ms = self._monotonic_ms()
            if self._listed is None or now_ms - self._listed_ms >= _KNOWN_MS or _has_failed(self._listed):
                self._listed, self._listed_ms = self._executor.submit(self._list), now_ms
            return self._listed

    def _list(self) -> frozenset[str]:
        return frozenset(info.key for info in self._objects.infos(f"{_FOLDER}/"))

    def _is_ours(self, key: str) -> bool:
        data = self._objects.find(key, max_bytes=JSON_BYTES_MAX)
        if data is None:
            return False
        return (
            checked_text(decode_json(data, key=key, kind=_KIND, needed=_FIELDS), "store_id", key=key)
            in self._ids
        )


def put_begun(objects: Objects, prefix: str, store_id: str) -> None:
    """Say that the log in this folder has had an entry: once that entry stands, and no sooner."""
    topic, partition = _names(prefix)
    fields = {"topic": topic, "partition": partition, "store_id": store_id}
    objects.create(begun_key(prefix), encode_json(fields, _KIND), max_bytes=JSON_BYTES_MAX)


def begun_key(prefix: str) -> str:
    """The object that says so of the log in this folder of an internal topic."""
    topic, partition = _names(prefix)
    return f"{_FOLDER}/{topic}/{partition}.json"


def _has_failed(listed: Future[frozenset[str]]) -> bool:
    return listed.done() and (listed.cancelled() or listed.exception() is not None)


def _names(prefix: str) -> tuple[str, int]:
    _, topic, _, partition = prefix.split("/")
    return topic, int(partition)
