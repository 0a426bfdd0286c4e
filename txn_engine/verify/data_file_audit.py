"""Data files: there, whole, the ones that the log names, and holding what it says (docs/FORMAT.md, "Data files")."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq
import xxhash

from storage.parquet_limits import DATA_LIMITS
from storage.store import ObjectInfo
from txn_engine.verify.audited_partition import GRACE_MS, Ranges
from txn_engine.verify.descriptors import MalformedError, parse_data_path
from txn_engine.verify.field_ids import WrongId, wrong_field_id
from txn_engine.verify.file_table import DataFile, FileTable
from txn_engine.verify.findings import FindingLog, Place
from txn_engine.verify.known_footers import KnownFooters
from txn_engine.verify.limits import bounded_time
from txn_engine.verify.objects import ObjectReader, mark_of
from txn_engine.verify.raw_object import Damaged, RawObject
from txn_engine.verify.schema_versions import Version, versions_of

Numbers: TypeAlias = npt.NDArray[np.int64]

_DELTA, _TIMESTAMP = "_offset_delta", "_timestamp"
_TIMESTAMP_TYPE = pa.timestamp("ms", tz="UTC")
_OWN_TYPES = ((_DELTA, pa.int64()), (_TIMESTAMP, _TIMESTAMP_TYPE))
_NUMBER_BYTES = 8
_DIGITS_MAX = 10
KNOWN_FOOTERS = KnownFooters(DATA_LIMITS, (_DELTA, _TIMESTAMP), (_DELTA, _TIMESTAMP))
"""The footers of data files that were read before."""


class RecordSchema:
    """The columns that a topic's data files must have, by the version of its schema that they say.

    A type that Parquet cannot name may stand as itself or as what Parquet gives back for it.
    """

    def __init__(self, topic_schema: pa.Schema, changes: Sequence[Mapping[str, Any]] = ()) -> None:
        self.versions = versions_of(topic_schema, changes)
        # by version: the first and the last, which files must be able to have, and those that files say
        self._files: dict[int, _FileColumns] = {}
        for version in (0, len(self.versions) - 1):
            self._columns_of(version)
        whole = [each.columns.serialize().to_pybytes() for each in self.versions]
        self.digest = xxhash.xxh3_128_hexdigest(b"".join(whole))

    def number(self, said: str | None) -> int | None:
        """The version that a file says; None where there is none of that number."""
        if said is None:
            return 0
        is_one = (
            said.isascii() and said.isdecimal() and len(said) < _DIGITS_MAX and str(int(said)) == said != "0"
        )
        return int(said) if is_one and int(said) < len(self.versions) else None

    def problem(self, found: pa.Schema, version: int) -> tuple[str, str] | None:
        """The first difference, seen and expected; None where the columns are right."""
        return self._columns_of(version).problem(found)

    def wrong_id(self, found: pa.Schema, version: int) -> WrongId | None:
        """The first field id that is wrong; of columns that are right."""
        return self._columns_of(version).wrong_id(found)

    def _columns_of(self, version: int) -> _FileColumns:
        if version not in self._files:
            self._files[version] = _FileColumns(self.versions[version])
        return self._files[version]


class _FileColumns:
    """The columns of the files of one version."""

    def __init__(self, version: Version) -> None:
        own: list[pa.Field[Any]] = [pa.field(_DELTA, pa.int64()), pa.field(_TIMESTAMP, _TIMESTAMP_TYPE)]
        whole = pa.schema([*version.columns, *own])
        sink = pa.BufferOutputStream()
        pq.write_table(pa.Table.from_batches([], schema=whole), sink, store_schema=False)
        stored = pq.read_schema(pa.BufferReader(sink.getvalue()))
        self._right: pa.Schema | None = None
        self._identified: pa.Schema | None = None
        self._version = version
        self._names = whole.names
        self._types = [{first.type, second.type} for first, second in zip(whole, stored, strict=True)]

    def problem(self, found: pa.Schema) -> tuple[str, str] | None:
        """The first difference, seen and expected; None where the columns are right."""
        if self._right is not None and (found is self._right or found.equals(self._right)):
            return None
        if found.names != self._names:
            return f"columns {', '.join(found.names)[:200]}", ", ".join(self._names)[:200]
        for column, types in zip(found, self._types, strict=True):
            if column.type not in types:
                return f"column {column.name!r} of type {column.type}", " or ".join(sorted(map(str, types)))
        self._right = found
        return None

    def wrong_id(self, found: pa.Schema) -> WrongId | None:
        """The first field id that is wrong; of columns that are right."""
        if found is self._identified:
            return None
        wrong = wrong_field_id(found, self._version.ids, self._version.inside)
        if wrong is None:
            self._identified = found
        return wrong


@dataclass(slots=True)
class FileFacts:
    """What was found inside a data file; times in ms, deltas and times -1 in an empty one. `unknown_version`: what it
    says of its version of the schema, where the topic had none of that number.
    """

    checksum: str
    write_id: str
    schema_problem: tuple[str, str] | None
    wrong_id: WrongId | None
    unknown_version: str | None = None
    records: int = 0
    first_delta: int = -1
    last_delta: int = -1
    ascending: bool = True
    first_timestamp: int = -1
    last_timestamp: int = -1
    strays: int = 0
    erased: int = 0

    def add(self, deltas: Numbers, times: Numbers, ranges: Numbers | None, gone: Numbers | None) -> None:
        """Take in the next rows. `ranges`: the deltas they may have, first and last of each range in turn.

        `gone`: those that no row has any more.
        """
        if gone is not None:
            self.erased += int(np.isin(deltas, gone).sum())
        if ranges is not None:
            begun = np.searchsorted(ranges[::2], deltas, "right")  # ranges that begin at a delta or before it
            ended = np.searchsorted(ranges[1::2], deltas, "left")  # ranges that end before it
            inside = begun > ended
            self.strays += len(deltas) - int(inside.sum())
        first, last = bounded_time(int(times.min())), bounded_time(int(times.max()))
        if not self.records:
            self.first_delta, self.first_timestamp, self.last_timestamp = int(deltas[0]), first, last
        rises = not self.records or deltas[0] > self.last_delta
        self.ascending = bool(self.ascending and rises and (deltas[1:] > deltas[:-1]).all())
        self.records += len(deltas)
        self.last_delta = int(deltas[-1])
        self.first_timestamp = min(self.first_timestamp, first)
        self.last_timestamp = max(self.last_timestamp, last)

    def add_stored(self, deltas: bytes, times: bytes, ranges: Numbers | None, gone: Numbers | None) -> None:
        """Take in all rows, as a file stores them."""
        count = len(deltas) // _NUMBER_BYTES
        if (
            ranges is None
            and gone is None
            and deltas == _dense(count)
            and times == times[:_NUMBER_BYTES] * count
        ):
            time_ms = bounded_time(int.from_bytes(times[:_NUMBER_BYTES], "little", signed=True))
            self.records, self.first_delta, self.last_delta = count, 0, count - 1
            self.first_timestamp = self.last_timestamp = time_ms
        else:
            self.add(np.frombuffer(deltas, "<i8"), np.frombuffer(times, "<i8"), ranges, gone)


@lru_cache(maxsize=64)
def _dense(count: int) -> bytes:
    """The deltas of as many records without a gap, as a file stores them."""
    return np.arange(count, dtype="<i8").tobytes()


@dataclass(frozen=True, slots=True)
class FileDecoder:
    """Reads a data file as far as the audit needs: all of its bytes for the checksum, two columns for its records.

    ranges: by key the deltas that a rewrite's output may have, first and last of each range in turn; none for a file
    whose records may be anywhere in its span. gone: by key the deltas that a finished erasure names in that span.
    """

    schema: RecordSchema | None
    ranges: Mapping[str, Numbers]
    gone: Mapping[str, Numbers] = field(default_factory=dict)

    def __call__(self, raw: RawObject) -> FileFacts:
        """What was found in the file; MalformedError where it is no data file."""
        found = raw.parquet_like(KNOWN_FOOTERS)
        if found.kind != "data":
            raise MalformedError(f"kind {found.kind!r}, not 'data'")
        columns = found.schema
        for name, kind in _OWN_TYPES:
            if columns.get_field_index(name) < 0 or columns.field(name).type != kind:
                raise MalformedError(f"no column {name!r} of type {kind}")
        problem = wrong_id = unknown = None
        if self.schema is not None:
            version = self.schema.number(found.version)
            if version is None:
                unknown = found.version
            else:
                problem = self.schema.problem(columns, version)
                wrong_id = self.schema.wrong_id(columns, version) if problem is None else None
        facts = FileFacts(found.checksum, found.write_id, problem, wrong_id, unknown)
        ranges, gone = self.ranges.get(raw.key), self.gone.get(raw.key)
        if found.cut is not None:
            stored_deltas, stored_times = found.cut
            facts.add_stored(stored_deltas, stored_times, ranges, gone)
            return facts
        for batch in found.batches([_DELTA, _TIMESTAMP]):
            deltas, times = batch.column(_DELTA), batch.column(_TIMESTAMP)
            if deltas.null_count or times.null_count:
                raise MalformedError(f"null in {_DELTA} or {_TIMESTAMP}")
            rows = _numbers(deltas), _numbers(times.view(pa.int64()))
            if 0 < len(deltas) == found.rows:
                facts.add_stored(rows[0].tobytes(), rows[1].tobytes(), ranges, gone)
            elif len(deltas):
                facts.add(*rows, ranges, gone)
        return facts

    def part(self, keys: Collection[str]) -> FileDecoder:
        """The decoder with the ranges of these files alone."""
        ranges, gone = ({key: held[key] for key in keys if key in held} for held in (self.ranges, self.gone))
        return FileDecoder(self.schema, ranges, gone)


def _numbers(column: pa.Array[Any]) -> Numbers:
    return np.asarray(
        np.from_dlpack(column), np.int64
    )  # `to_numpy` would import pandas, where that is installed


class FilesToRead(NamedTuple):
    """Which data files of a partition are read, by the offset of their last record: from `since` on, and in `again`."""

    since: int = 0
    again: range = range(0)

    def has(self, last_offset: int) -> bool:
        """Whether a file with this last offset is read."""
        return last_offset >= self.since or last_offset in self.again


ALL_FILES = FilesToRead()


@dataclass(slots=True)
class DataFileAudit:
    """The data files of one partition, after its log was replayed.

    `to_read`: the files that are read; of the others only name and size are judged. None: no file is read. `erased`:
    the offsets at which no record may be. What was read before (`FileTable.was_read`) is not read again: `unchanged`
    counts it. `schema_now` looks at the topic again. `holder_of`: by path, what still reads a file that the log does
    not; without it the files are the log's own.
    """

    place: Place
    reader: ObjectReader
    findings: FindingLog
    schema: RecordSchema | None
    to_read: FilesToRead | None
    rewritten: Mapping[str, Ranges]
    erased: Numbers
    schema_now: Callable[[], RecordSchema | None] | None = None
    holder_of: Callable[[str], str | None] | None = None
    read: int = 0
    unchanged: int = 0
    _files: FileTable = field(default_factory=FileTable)
    _orphans: int = 0

    def run(
        self, files: FileTable, *, now_ms: int, sound: bool, progress: Callable[[int, int], None]
    ) -> tuple[int, int]:
        """Judge every file that the log names; return how many are there, and how many others (orphans)."""
        self._files = files
        files.forget_presence()
        decode = FileDecoder(self.schema, self._ranges(), self._gone())
        prefix = f"{self.place.prefix}/"
        for info, found in self.reader.read_in_order(self._to_read(prefix), decode):
            self.read += 1
            file = files.get(info.key.removeprefix(prefix))
            if file is not None:
                self._judge_found(file, found)
                files.note_read(file.data_path, mark_of(info))
            progress(self.read + self.unchanged, len(files))
        absent = 0
        for file in files.absent():
            absent += 1
            self._judge_missing(file, now_ms, sound)
        return len(files) - absent, self._orphans

    def _to_read(self, prefix: str) -> Iterator[ObjectInfo]:
        """The files that are there and are to be read; the sizes of the others are judged on the way."""
        for info in self.reader.listing(f"{prefix}data/"):
            path = info.key.removeprefix(prefix)
            last_offset = self._files.mark_present(path)
            if last_offset is None:
                self._orphans += parse_data_path(path) is not None
            elif self._files.was_read(path, mark_of(info)):
                self.unchanged += 1
            elif self.to_read is not None and self.to_read.has(last_offset):
                yield info
            else:
                self._judge_size(path, info)

    def _judge_size(self, path: str, info: ObjectInfo) -> None:
        file = self._files.get(path)
        if file is not None and info.size != file.data_bytes:
            self._note_damage(file, f"{info.size} bytes", info.size)

    def _ranges(self) -> dict[str, Numbers]:
        """By key, where the outputs of rewrites have their records."""
        held = ((path, self._files.get(path), ranges) for path, ranges in self.rewritten.items())
        return {
            f"{self.place.prefix}/{path}": np.frombuffer(ranges, np.int64) - file.base_offset
            for path, file, ranges in held
            if file is not None
        }

    def _gone(self) -> dict[str, Numbers]:
        """By key of each file in whose span something was erased, at which distances."""
        found = {}
        for file in self._files.in_order() if len(self.erased) else ():
            first, behind = np.searchsorted(self.erased, [file.base_offset, file.last_offset + 1])
            if first < behind:
                found[f"{self.place.prefix}/{file.data_path}"] = self.erased[first:behind] - file.base_offset
        return found

    def _judge_found(self, file: DataFile, found: FileFacts | Damaged | None) -> None:
        if isinstance(found, Damaged):
            self._note_damage(file, found.reason, found.size)
        elif found is not None:  # None: deleted since it was listed, as the clean-up may
            self._judge(file, found)

    def _judge(self, file: DataFile, found: FileFacts) -> None:
        if found.checksum != file.checksum:
            seen = f"a whole file with checksum {found.checksum}"
            self._note("data-file-swapped", file, seen, f"checksum {file.checksum}, as its entry says")
            return
        named = parse_data_path(file.data_path)
        if named is not None and named.write_id != found.write_id:
            seen = f"write id {found.write_id!r} in the file"
            self._note("data-file-swapped", file, seen, f"{named.write_id}, as in its name")
        if found.schema_problem is not None:
            self._note("data-file-schema", file, *found.schema_problem)
        if found.unknown_version is not None and not self._has_come(found.unknown_version):
            seen = f"version {found.unknown_version!r:.40} of the schema"
            self._note("data-file-schema", file, seen, "a version that a change of the topic has made")
        if (wrong := found.wrong_id) is not None:
            self._note("data-file-field-ids", file, wrong.seen, wrong.expected, warning=wrong.is_old)
        span = file.last_offset - file.base_offset
        if found.records != file.record_count:
            self._note("data-file-records", file, f"{found.records} records", f"{file.record_count}")
        elif not found.ascending:
            seen = f"offset deltas {found.first_delta} to {found.last_delta}, not ascending"
            self._note("data-file-order", file, seen, f"ascending deltas from 0 to {span}")
        elif found.first_delta < 0 or found.last_delta > span:
            seen = f"offset deltas {found.first_delta} to {found.last_delta}"
            self._note("data-file-records", file, seen, f"deltas from 0 to {span}")
        elif found.strays:
            seen = f"{found.strays} records at offsets that none of the rewritten files had"
            self._note("data-file-records", file, seen, "every record at its own offset")
        if found.erased:
            seen = f"{found.erased} records that an erasure took away"
            self._note("erased-there", file, seen, "none of them, in any file")
        within = file.first_timestamp <= found.first_timestamp and found.last_timestamp <= file.max_timestamp
        if found.records and not within:
            seen = f"timestamps {found.first_timestamp} to {found.last_timestamp}"
            self._note(
                "data-file-timestamps", file, seen, f"within {file.first_timestamp} to {file.max_timestamp}"
            )

    def _has_come(self, version: str) -> bool:
        """Whether the topic has such a version by now: its columns may be changed while it is looked at."""
        now = None if self.schema_now is None else self.schema_now()
        return now is not None and now.number(version) is not None

    def _judge_missing(self, file: DataFile, now_ms: int, sound: bool) -> None:
        if self.holder_of is not None:
            holder = self.holder_of(file.data_path)
            if holder is not None:
                expected = f"the file of {file.record_count} records that {holder} reads"
                self._note("data-file-missing", file, "no such object", expected)
        elif file.status == "erased":
            return
        elif file.status in ("aborted", "replaced"):
            if now_ms - file.died_ms < GRACE_MS:
                expected = "a dead file to stay for 24 hours: a long job may still hold its name"
                self._note(
                    "data-file-missing", file, f"no such object, {file.status}", expected, warning=True
                )
        elif sound or file.status == "live":
            expected = f"the file of {file.record_count} {file.status} records"
            self._note("data-file-missing", file, "no such object", expected)

    def _note_damage(self, file: DataFile, seen: str, size: int) -> None:
        code = "data-file-truncated" if size < file.data_bytes else "data-file-damaged"
        self._note(code, file, seen, f"{file.data_bytes} bytes with checksum {file.checksum}")

    def _note(self, code: str, file: DataFile, seen: str, expected: str, *, warning: bool = False) -> None:
        self.findings.add(
            code,
            f"{self.place.prefix}/{file.data_path}",
            seen,
            expected=expected,
            severity="warning" if warning else None,
            place=self.place,
            offsets=(file.base_offset, file.last_offset),
            producer_id=file.producer_id if file.producer_id >= 0 else None,
        )
