"""The version of its topic's schema that each data file says it has: for readers that are handed whole files."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from concurrent.futures import Executor
from typing import Final

from storage import parquet_tail_bytes, read_parquet_tail
from txn_engine.errors import SchemaChangedError
from txn_engine.log.data_files import check_columns, version_of
from txn_engine.log.objects import Objects, store_errors
from txn_engine.log.own_process import OwnLock
from txn_engine.log.topics import Topic, TopicRegistry
from txn_engine.schemas.plan import check_known

_TAIL_BYTES: Final = 16 << 10
_KNOWN_MAX: Final = 100_000


class FileVersions:
    """Looks at footers once: a file never changes. Of a topic whose columns never changed no file is looked at, but
    whether that is still so.
    """

    def __init__(self, objects: Objects, topics: TopicRegistry, workers: Executor) -> None:
        self._objects = objects
        self._topics = topics
        self._workers = workers
        self._lock = OwnLock()
        self._known: OrderedDict[str, int] = OrderedDict()

    def of(self, topic: Topic, files: Iterable[tuple[str, int]]) -> list[int]:
        """For each file (its key and its bytes) the version. The list is older than the call: what was changed since
        the topic was looked up is heard of.

        Raises `SchemaChangedError` for one that the topic had not when it was looked up; `CorruptObjectError` for a
        file that cannot be the topic's.
        """
        asked = list(files)
        if not asked or not topic.layouts:
            if asked and self._topics.has_new_columns(topic):
                raise SchemaChangedError(
                    f"columns of topic {topic.name!r} that changed while its files were listed"
                )
            return [0] * len(asked)
        with self._lock.here():
            found = {key: self._known[key] for key, _ in asked if key in self._known}
        unknown = [each for each in asked if each[0] not in found]
        for (key, _), version in zip(
            unknown,
            self._workers.map(lambda each: file_version(self._objects, topic, *each), unknown),
            strict=True,
        ):
            found[key] = version
        with self._lock.here():
            self._known.update((key, found[key]) for key, _ in unknown)
            while len(self._known) > _KNOWN_MAX:
                self._known.popitem(last=False)
        for version in set(found.values()):
            check_known(topic.schemas, version, topic=topic.name)
        return [found[key] for key, _ in asked]


def file_version(objects: Objects, topic: Topic, key: str, size: int) -> int:
    """The version that one file says, as `FileVersions.of`: its footer is read."""
    tail = _tail(objects, key, size, min(size, _TAIL_BYTES))
    if parquet_tail_bytes(tail) > len(tail):
        tail = _tail(objects, key, size, min(size, parquet_tail_bytes(tail)))
    with store_errors():
        metadata, columns = read_parquet_tail(tail, size, key=key, kind="data")
    version = version_of(metadata, key)
    check_known(topic.schemas, version, topic=topic.name)
    check_columns(columns, topic.schemas.layouts[version], columns.names, key)
    return version


def _tail(objects: Objects, key: str, size: int, length: int) -> bytes:
    return objects.read_range(key, size - length, length)
