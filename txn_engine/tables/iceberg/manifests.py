"""Manifests and lists of them, by pyiceberg, which is loaded with this module.

Guarantee: what is read is, byte for byte, what was written: the name ends with its hash.
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import xxhash
from pyiceberg.conversions import to_bytes
from pyiceberg.io import FileIO, InputFile, OutputFile
from pyiceberg.manifest import (
    DataFile,
    DataFileContent,
    FileFormat,
    ManifestEntry,
    ManifestEntryStatus,
    ManifestFile,
    read_manifest_list,
    write_manifest,
    write_manifest_list,
)
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.typedef import Record
from pyiceberg.types import LongType, TimestamptzType

from storage import InvalidKeyError
from txn_engine.errors import CorruptObjectError
from txn_engine.log.objects import Objects
from txn_engine.schemas.field_ids import OWN_IDS
from txn_engine.schemas.layout import OFFSET_DELTA, TIMESTAMP
from txn_engine.tables.files import TableFile
from txn_engine.tables.iceberg.keys import avro_key, parse_avro_key

AVRO_BYTES_MAX: Final = 256 << 20
_UNCOMPRESSED: Final = "null"
_MICROS_MAX: Final = 2**63 - 1
_UNREADABLE: Final = (ValueError, TypeError, LookupError, EOFError, ArithmeticError, AttributeError)


class Manifests:
    """Those of one table, whose root is `location`; its data files are below `files`."""

    def __init__(
        self,
        objects: Objects,
        folder: str,
        location: str,
        files: str,
        schema: Mapping[str, Any],
        spec: Mapping[str, Any],
    ) -> None:
        self._objects = objects
        self._folder = folder
        self._location = location
        self._files = files
        self._schema = Schema.model_validate(schema)
        self._spec = PartitionSpec.model_validate(spec)

    def listed(self, uri: str) -> list[ManifestFile]:
        """The manifests of a snapshot, by its list's URI."""
        data, key = self._read(uri)
        try:
            return list(read_manifest_list(_Bytes(uri, data)))
        except _UNREADABLE as error:
            raise _unreadable(key, error) from error

    def entries(self, manifest: ManifestFile) -> list[ManifestEntry]:
        """A manifest's files that are there, each with its sequence numbers."""
        data, key = self._read(manifest.manifest_path)
        try:
            return manifest.fetch_manifest_entry(_OneFile(_Bytes(manifest.manifest_path, data)))
        except _UNREADABLE as error:
            raise _unreadable(key, error) from error

    def added(self, file: TableFile, snapshot: int) -> ManifestEntry:
        """The entry of a file that a snapshot adds, with what the log knows of its records."""
        logged = file.log_file
        times = (logged.first_timestamp * 1000, logged.max_timestamp * 1000)
        lower = {OWN_IDS[OFFSET_DELTA]: to_bytes(LongType(), 0)}
        upper = {OWN_IDS[OFFSET_DELTA]: to_bytes(LongType(), logged.last_offset - logged.base_offset)}
        if -_MICROS_MAX <= times[0] <= times[1] <= _MICROS_MAX:  # what the log has is bounded, beyond
            lower[OWN_IDS[TIMESTAMP]] = to_bytes(TimestamptzType(), times[0])
            upper[OWN_IDS[TIMESTAMP]] = to_bytes(TimestamptzType(), times[1])
        data_file = DataFile.from_args(
            content=DataFileContent.DATA,
            file_path=f"{self._files}/{file.path}",
            file_format=FileFormat.PARQUET,
            partition=Record(file.partition, logged.base_offset),
            record_count=logged.record_count,
            file_size_in_bytes=logged.file.data_bytes,
            lower_bounds=lower,
            upper_bounds=upper,
        )
        data_file.spec_id = self._spec.spec_id
        return ManifestEntry.from_args(
            status=ManifestEntryStatus.ADDED, snapshot_id=snapshot, data_file=data_file
        )

    def write(self, version: int, snapshot: int, entries: Iterable[ManifestEntry]) -> ManifestFile:
        """Put a manifest, made for that version, with one entry at the least; each as it is."""
        sink = _Bytes("")
        with write_manifest(2, self._spec, self._schema, sink, snapshot, _UNCOMPRESSED) as writer:
            for entry in entries:
                writer.add_entry(entry)
        sink.location = self._put(version, "manifest", sink.data)
        return writer.to_manifest_file()

    def write_list(
        self, version: int, snapshot: int, parent: int | None, manifests: Sequence[ManifestFile]
    ) -> str:
        """Put the list of a snapshot, whose sequence number is its own number too; return its URI."""
        sink = _Bytes("")
        with write_manifest_list(2, sink, snapshot, parent, snapshot, _UNCOMPRESSED) as writer:
            writer.add_manifests(list(manifests))
        return self._put(version, "list", sink.data)

    def path_of(self, entry: ManifestEntry) -> str:
        """A file's path below the folder of the files."""
        return entry.data_file.file_path.removeprefix(f"{self._files}/")

    def _put(self, version: int, kind: str, data: bytes) -> str:
        key = avro_key(self._folder, version, kind, data)
        self._objects.create(key, data, max_bytes=AVRO_BYTES_MAX)
        return f"{self._location}{key.removeprefix(self._folder)}"

    def _read(self, uri: str) -> tuple[bytes, str]:
        key = f"{self._folder}{uri.removeprefix(self._location)}"
        try:
            name = parse_avro_key(key, self._folder)
        except InvalidKeyError:
            name = None
        if name is None or not uri.startswith(f"{self._location}/"):
            raise CorruptObjectError(f"{uri[:200]!r}", place=self._folder, expected="metadata of the table")
        data = self._objects.find(key, max_bytes=AVRO_BYTES_MAX)
        if data is None or xxhash.xxh3_128_hexdigest(data) != name.hash:
            raise CorruptObjectError(
                "nothing" if data is None else f"{len(data)} other bytes",
                place=key,
                expected="what the table's metadata names, with the hash in its name",
                action="unpublish the table, then publish it anew; the topic itself is untouched",
            )
        return data, key


def _unreadable(key: str, error: Exception) -> CorruptObjectError:
    return CorruptObjectError(f"Avro that cannot be read: {error!r:.120}", place=key)


class _Bytes(InputFile, OutputFile):
    """A file in memory. `location`: may be told once it is written."""

    def __init__(self, location: str, data: bytes = b"") -> None:
        super().__init__(location)
        self.data = data

    @property
    def location(self) -> str:
        """Its name."""
        return self._location

    @location.setter
    def location(self, location: str) -> None:
        self._location = location

    def __len__(self) -> int:
        return len(self.data)

    def exists(self) -> bool:
        """It is in memory."""
        return True

    def open(self, seekable: bool = True) -> Any:  # noqa: ARG002 - pyiceberg's signature
        """Its bytes."""
        return io.BytesIO(self.data)

    def create(self, overwrite: bool = False) -> Any:  # noqa: ARG002 - pyiceberg's signature
        """What is written until it is closed is the file."""
        return _Sink(self)

    def to_input_file(self) -> InputFile:
        """Itself."""
        return self


class _Sink(io.BytesIO):
    def __init__(self, file: _Bytes) -> None:
        super().__init__()
        self._file = file

    def close(self) -> None:
        self._file.data = self.getvalue()
        super().close()


class _OneFile(FileIO):
    """The way to one file that is in memory."""

    def __init__(self, file: _Bytes) -> None:
        super().__init__()
        self._file = file

    def new_input(self, location: str) -> InputFile:  # noqa: ARG002 - pyiceberg's signature
        """That file, whatever is asked for."""
        return self._file

    def new_output(self, location: str) -> OutputFile:  # noqa: ARG002 - pyiceberg's signature
        """That file."""
        return self._file

    def delete(self, location: str | InputFile | OutputFile) -> None:
        """Nothing is deleted here: it is never asked to."""
        raise NotImplementedError(location)
