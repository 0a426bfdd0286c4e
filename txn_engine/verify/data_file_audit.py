"""Data files: there, whole, the ones that the log names, and holding what it says (docs/FORMAT.md, "Data files")."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from storage.store import ObjectInfo
from txn_engine.verify.descriptors import MalformedError
from txn_engine.verify.findings import FindingLog, Place
from txn_engine.verify.objects import Damaged, ObjectReader, open_parquet
from txn_engine.verify.partition_state import DataFile

GRACE_MS: Final = 24 * 3_600_000  # a dead file may be deleted this long after it died (protocol, section 6)

_DELTA, _TIMESTAMP = "_offset_delta", "_timestamp"
_TIMESTAMP_TYPE = pa.timestamp("ms", tz="UTC")


class RecordSchema:
    """The columns that a topic's data files must have.

    A type that Parquet cannot name may stand as itself or as what Parquet gives back for it.
    """

    def __init__(self, topic_schema: pa.Schema) -> None:
        own: list[pa.Field[Any]] = [pa.field(_DELTA, pa.int64()), pa.field(_TIMESTAMP, _TIMESTAMP_TYPE)]
        whole = pa.schema([*topic_schema, *own])
        sink = pa.BufferOutputStream()
        pq.write_table(whole.empty_table(), sink, store_schema=False)
        stored = pq.read_schema(pa.BufferReader(sink.getvalue()))
        self._names = whole.names
        self._types = [{first.type, second.type} for first, second in zip(whole, stored, strict=True)]

    def problem(self, found: pa.Schema) -> tuple[str, str] | None:
        """The first difference, seen and expected; None where the columns are right."""
        if found.names != self._names:
            return f"columns {', '.join(found.names)[:200]}", ", ".join(self._names)[:200]
        for field, types in zip(found, self._types, strict=True):
            if field.type not in types:
                return f"column {field.name!r} of type {field.type}", " or ".join(sorted(map(str, types)))
        return None


@dataclass(frozen=True, slots=True)
class FileFacts:
    """What was found inside a data file; times in ms, deltas and times -1 in an empty one."""

    checksum: str
    records: int
    first_delta: int
    last_delta: int
    ascending: bool
    first_timestamp: int
    last_timestamp: int
    schema_problem: tuple[str, str] | None


def file_decoder(schema: RecordSchema | None) -> Callable[[str, bytes], FileFacts]:
    """Reads a data file as far as the audit needs: all of its bytes for the checksum, two columns for its records."""

    def decode(key: str, data: bytes) -> FileFacts:
        found = open_parquet(key, data)
        if found.kind != "data":
            raise MalformedError(f"kind {found.kind!r}, not 'data'")
        columns = found.file.schema_arrow
        problem = schema.problem(columns) if schema is not None else None
        for name, kind in ((_DELTA, pa.int64()), (_TIMESTAMP, _TIMESTAMP_TYPE)):
            if columns.get_field_index(name) < 0 or columns.field(name).type != kind:
                raise MalformedError(f"no column {name!r} of type {kind}")
        table = found.table([_DELTA, _TIMESTAMP])
        deltas, times = table.column(_DELTA), table.column(_TIMESTAMP).cast(pa.int64())
        if deltas.null_count or times.null_count:
            raise MalformedError(f"null in {_DELTA} or {_TIMESTAMP}")
        if not len(deltas):
            return FileFacts(found.checksum, 0, -1, -1, True, -1, -1, problem)
        steps: Any = pc.greater(deltas.slice(1), deltas.slice(0, len(deltas) - 1))
        bounds = pc.min_max(times)
        return FileFacts(
            found.checksum,
            len(deltas),
            deltas[0].as_py(),
            deltas[-1].as_py(),
            bool(pc.all(steps).as_py()) if len(deltas) > 1 else True,
            bounds["min"].as_py(),
            bounds["max"].as_py(),
            problem,
        )

    return decode


@dataclass(slots=True)
class DataFileAudit:
    """The data files of one partition, after its log was replayed."""

    place: Place
    reader: ObjectReader
    findings: FindingLog
    schema: RecordSchema | None
    check_data: bool

    def run(
        self, files: dict[str, DataFile], *, now_ms: int, sound: bool, progress: Callable[[int, int], None]
    ) -> tuple[int, int]:
        """Judge every file that the log names; return how many are there, and how many others (orphans)."""
        prefix = f"{self.place.prefix}/"
        present: dict[str, ObjectInfo] = {}
        orphans = 0
        for info in self.reader.listing(f"{prefix}data/"):
            path = info.key.removeprefix(prefix)
            if path in files:
                present[path] = info
            else:
                orphans += 1
        named = sorted(files.values(), key=lambda file: (file.base_offset, file.data_path))
        for file in named:
            found = present.get(file.data_path)
            if found is None:
                self._judge_missing(file, now_ms, sound)
            elif not self.check_data and found.size != file.data_bytes:
                self._note_damage(file, f"{found.size} bytes", found.size)
        if self.check_data:
            self._read(
                files, [present[file.data_path] for file in named if file.data_path in present], progress
            )
        return len(present), orphans

    def _read(
        self, files: dict[str, DataFile], infos: Sequence[ObjectInfo], progress: Callable[[int, int], None]
    ) -> None:
        read = self.reader.read_in_order(infos, file_decoder(self.schema))
        for number, (info, found) in enumerate(read, start=1):
            file = files[info.key.removeprefix(f"{self.place.prefix}/")]
            if isinstance(found, Damaged):
                self._note_damage(file, found.reason, found.size)
            elif found is not None:
                self._judge(file, found)
            progress(number, len(infos))

    def _judge(self, file: DataFile, found: FileFacts) -> None:
        if found.checksum != file.checksum:
            seen = f"a whole file with checksum {found.checksum}"
            self._note("data-file-swapped", file, seen, f"checksum {file.checksum}, as its entry says")
            return
        if found.schema_problem is not None:
            self._note("data-file-schema", file, *found.schema_problem)
        span = file.last_offset - file.base_offset
        if found.records != file.record_count:
            self._note("data-file-records", file, f"{found.records} records", f"{file.record_count}")
        elif found.first_delta < 0 or found.last_delta > span or not found.ascending:
            order = "" if found.ascending else ", not ascending"
            seen = f"offset deltas {found.first_delta} to {found.last_delta}{order}"
            self._note("data-file-records", file, seen, f"ascending deltas from 0 to {span}")
        within = file.first_timestamp <= found.first_timestamp and found.last_timestamp <= file.max_timestamp
        if found.records and not within:
            seen = f"timestamps {found.first_timestamp} to {found.last_timestamp}"
            self._note(
                "data-file-timestamps", file, seen, f"within {file.first_timestamp} to {file.max_timestamp}"
            )

    def _judge_missing(self, file: DataFile, now_ms: int, sound: bool) -> None:
        if file.status in ("aborted", "replaced"):
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
