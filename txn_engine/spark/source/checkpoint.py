"""What Spark's checkpoint says of a query's micro-batches.

Spark writes `offsets/N` before it begins micro-batch N, and reads it when it tries the batch again: its lines are a
version, metadata (when the batch was planned, the watermark), and how far the batch goes in each source. Where it
begins is in `offsets/N-1`.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Protocol

from storage import ObjectStore, StorageError, backend_of, open_store
from txn_engine.spark.source.locations import FILE, METADATA
from txn_engine.spark.source.options import StoreOptions

_BYTES_MAX: Final = 64 << 20
_OFFSETS: Final = "offsets"
_STATE: Final = "state"
_VERSION: Final = "v1"
_HEAD_LINES: Final = 2
_NO_OFFSET: Final = "-"
_LOG_OFFSET: Final = "logOffset"
_COMPACT: Final = ".compact"
_COMPACT_NAME: Final = re.compile(r"[0-9]+\.compact")
_TABLE_VERSIONS: Final = (
    frozenset({"reservoirId", "reservoirVersion", "index"}),  # Delta
    frozenset({"snapshot_id", "position"}),  # Iceberg
)


@dataclass(frozen=True, slots=True)
class Plan:
    """What Spark has journalled for a micro-batch. digest: "" where that cannot be read.

    names_rows: whether every source of the batch is one whose offsets name its rows, so that batches with the same
    digest are about the same rows. Files do not: their paths and times stay where their contents are replaced.
    """

    digest: str = ""
    names_rows: bool = False


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A query's checkpoint, by its resolved URL.

    It can be read if it is on this machine's disk, or in a bucket as the environment gets at it, at the store's
    endpoint if it is of the store's kind.
    """

    url: str
    store: StoreOptions

    def query_id(self) -> str | None:
        """The id of the query whose checkpoint this is; None where it cannot be read."""
        with _opened(self) as files:
            found = _json(files.read(METADATA) or "")
        return found.get("id") if isinstance(found, dict) else None

    def plan(self, batch_id: int) -> Plan:
        """What Spark has journalled for this micro-batch."""
        with _opened(self) as files:
            return _plan(files, batch_id)

    def names_rows(self) -> bool:
        """Whether the sources' offsets name the rows of the micro-batch that Spark has journalled last, which is the
        one that it plans.
        """
        with _opened(self) as files:
            numbers = [int(name) for name in files.names(_OFFSETS) if name.isdecimal()]
            return bool(numbers) and _ranges(files, max(numbers)).names_rows


class _Files(Protocol):
    """The files of a checkpoint."""

    def read(self, name: str) -> str | None:
        """None where that file is absent or cannot be read."""

    def names(self, folder: str) -> Iterator[str]:
        """The names of what is in a folder of the checkpoint; none where that cannot be listed."""


@dataclass(frozen=True, slots=True)
class _LocalFiles:
    folder: Path

    def read(self, name: str) -> str | None:
        try:
            return (self.folder / name).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError):
            return None

    def names(self, folder: str) -> Iterator[str]:
        try:
            yield from (each.name for each in (self.folder / folder).iterdir())
        except OSError:
            return


@dataclass(frozen=True, slots=True)
class _BucketFiles:
    bucket: ObjectStore

    def read(self, name: str) -> str | None:
        try:
            return self.bucket.get(name, max_bytes=_BYTES_MAX).decode()
        except (StorageError, UnicodeDecodeError):
            return None

    def names(self, folder: str) -> Iterator[str]:
        try:
            yield from (info.key.rpartition("/")[2] for info in self.bucket.list(folder))
        except StorageError:
            return


class _NoFiles:
    """A checkpoint of a kind that only Spark reads."""

    def read(self, name: str) -> str | None:
        del name
        return None

    def names(self, folder: str) -> Iterator[str]:
        del folder
        return iter(())


@contextmanager
def _opened(checkpoint: Checkpoint) -> Iterator[_Files]:
    url, options = checkpoint.url, checkpoint.store
    if url.startswith(FILE):
        yield _LocalFiles(Path(url.removeprefix(FILE)))
        return
    backend = backend_of(url)
    if backend is None:
        yield _NoFiles()
        return
    is_stores = backend is backend_of(options.url)
    try:
        bucket = open_store(url, endpoint=options.endpoint if is_stores else None)
    except StorageError:
        yield _NoFiles()
        return
    try:
        yield _BucketFiles(bucket)
    finally:
        bucket.close()


@dataclass(frozen=True, slots=True)
class _Ranges:
    """A micro-batch as it is journalled. logs: for each source the files that it read, or None for an unknown one."""

    version: str
    metadata: str
    starts: list[str]
    ends: list[str]
    logs: list[list[str] | None]

    @property
    def is_known(self) -> bool:
        return self.version == _VERSION and bool(self.ends) and None not in self.logs

    @property
    def names_rows(self) -> bool:
        return self.is_known and not any(self.logs)


def _ranges(files: _Files, batch_id: int) -> _Ranges:
    version, metadata, ends = _journal(files, batch_id)
    starts = _journal(files, batch_id - 1)[2] if batch_id else [_NO_OFFSET] * len(ends)
    try:
        logs = [
            _log(files, number, *ends_of) for number, ends_of in enumerate(zip(starts, ends, strict=True))
        ]
    except ValueError:
        return _Ranges("", "", [], [], [])
    return _Ranges(version, metadata, starts, ends, logs)


def _plan(files: _Files, batch_id: int) -> Plan:
    found = _ranges(files, batch_id)
    if not found.ends:
        return Plan()
    # With state, the watermark and the time of the plan decide which rows a batch makes of the same records. And where
    # a source is not known, that time tells this plan from another one with the same offsets.
    is_timed = not found.is_known or any(True for _ in files.names(_STATE))
    parts = [found.version, found.metadata if is_timed else "", found.starts, found.ends, found.logs]
    return Plan(hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:32], found.names_rows)


def _journal(files: _Files, batch_id: int) -> tuple[str, str, list[str]]:
    """Version, metadata, and the offset of each source in one spelling; empty where it cannot be read."""
    lines = (files.read(f"{_OFFSETS}/{batch_id}") or "").split("\n")
    if len(lines) <= _HEAD_LINES:
        return "", "", []
    return lines[0], lines[1], [_spelled(line) for line in lines[_HEAD_LINES:]]


def _spelled(line: str) -> str:
    found = _json(line)
    return line if found is None else json.dumps(found, sort_keys=True)


def _log(files: _Files, source: int, start: str, end: str) -> list[str] | None:
    """The files between two offsets of a file source, whose offset only counts; none of a source whose offsets name
    its rows. None for any other. ValueError: they are not there to be read.
    """
    if start == end:
        return []
    found = _json(end)
    if not isinstance(found, dict):  # a counter in memory, as of a socket
        return None
    if set(found) == {_LOG_OFFSET}:
        first = 0 if start == _NO_OFFSET else _log_offset(_json(start)) + 1
        return _files_read(files, f"sources/{source}", first, _log_offset(found))
    if any(names <= set(found) for names in _TABLE_VERSIONS) or _is_by_partition(found):
        return []
    return None


def _is_by_partition(offsets: dict[str, Any]) -> bool:
    """Whether these are offsets of Kafka's source or of ours: `{"payments": {"0": 201730}}`."""
    topics = [value for name, value in offsets.items() if not name.startswith("_")]
    return bool(topics) and all(
        isinstance(partitions, dict)
        and partitions
        and all(number.isdecimal() and isinstance(offset, int) for number, offset in partitions.items())
        for partitions in topics
    )


def _log_offset(offset: Any) -> int:
    number = offset.get(_LOG_OFFSET) if isinstance(offset, dict) else None
    if not isinstance(number, int):
        raise ValueError(offset)
    return number


def _files_read(files: _Files, log: str, first: int, last: int) -> list[str]:
    """The entries `first` to `last` of a file source's log, each with the path and the time of a file. Every tenth file
    of the log (N.compact) repeats all entries before it, which may be removed. ValueError: an entry is not there.
    """
    there = set(files.names(log))
    compact = sorted(int(name.removesuffix(_COMPACT)) for name in there if _COMPACT_NAME.fullmatch(name))
    entries: list[str] = []
    for number in range(first, last + 1):
        later = next((f"{each}{_COMPACT}" for each in compact if each >= number), None)
        name = str(number) if str(number) in there else later
        text = None if name is None else files.read(f"{log}/{name}")
        if text is None:
            raise ValueError(number)
        lines = [(line, _json(line)) for line in text.split("\n")[1:]]
        entries += sorted(
            line for line, entry in lines if isinstance(entry, dict) and entry.get("batchId") == number
        )
    return entries


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return None
