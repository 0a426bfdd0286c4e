"""Where a file's bytes come from: a path or a stream, as it is or compressed."""

from __future__ import annotations

import io
from pathlib import Path, PurePath
from typing import Any, BinaryIO, Literal, cast

import pyarrow as pa

from txn_engine.found_files import opened

FileFormat = Literal["csv", "jsonl", "parquet"]
Compression = Literal["gzip", "zstd"]

FORMATS: dict[str, FileFormat] = {
    ".csv": "csv",
    ".tsv": "csv",
    ".txt": "csv",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".parquet": "parquet",
}
"""The format that a file's name stands for, before the ending that says how it is compressed."""

COMPRESSIONS: dict[str, Compression] = {".gz": "gzip", ".zst": "zstd", ".zstd": "zstd"}
"""How a file of that ending is compressed."""


def format_of(name: str) -> FileFormat | None:
    """The format that a file's name stands for; None where it stands for none."""
    return FORMATS.get(plain_suffix(name))


def plain_suffix(name: str) -> str:
    """The ending that says the format: of `a.csv.gz` it is `.csv`."""
    path = PurePath(name)
    if path.suffix.lower() in COMPRESSIONS:
        path = path.with_suffix("")
    return path.suffix.lower()


def compression_of(name: str) -> Compression | None:
    """How a file of that name is compressed."""
    return COMPRESSIONS.get(PurePath(name).suffix.lower())


class CountedBytes(io.RawIOBase):
    """The bytes of a file or stream, and how many of them were read, also where it cannot seek."""

    def __init__(self, source: Path | BinaryIO) -> None:
        super().__init__()
        self._stream = opened(source) if isinstance(source, Path) else source
        self._is_ours = isinstance(source, Path)
        self.bytes_read = 0

    def readable(self) -> bool:
        """It is."""
        return True

    def readinto(self, buffer: Any) -> int | None:
        """Read, and count."""
        read = getattr(self._stream, "readinto", None)
        if read is not None:
            count = cast("int | None", read(buffer)) or 0
        else:
            data = self._stream.read(len(buffer)) or b""
            count = len(data)
            buffer[:count] = data
        self.bytes_read += count
        return count

    def close(self) -> None:
        """Close the file; a stream that was given stays its owner's to close."""
        if self._is_ours:
            self._stream.close()
        super().close()


def decompressed(raw: CountedBytes, compression: Compression | None) -> io.BufferedReader:
    """The bytes as they were before they were compressed. Reading raises OSError where they are cut or damaged."""
    if compression is None:
        return io.BufferedReader(raw, 1 << 17)
    stream: Any = pa.CompressedInputStream(pa.PythonFile(raw, mode="r"), compression)
    return io.BufferedReader(stream, 1 << 17)
