"""Objects are taken apart, put together by any writer's settings, and given the right checksums."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import xxhash

_MARKS = (b"txn_engine.checksum\x18\x20", b'\n  "checksum": "')


def resealed(data: bytes) -> bytes:
    """The bytes with the right checksum. They stay as they are if they have no place for a checksum."""
    mark = _MARKS[data[:1] == b"{"]
    at = data.rfind(mark)
    if at < 0 or at + len(mark) + 32 > len(data):
        return data
    at += len(mark)
    blank = data[:at] + b"0" * 32 + data[at + 32 :]
    return data[:at] + xxhash.xxh3_128(blank).hexdigest().encode() + data[at + 32 :]


def checksum(data: bytes) -> str:
    """The checksum in these bytes."""
    mark = _MARKS[data[:1] == b"{"]
    at = data.rfind(mark) + len(mark)
    return data[at : at + 32].decode("ascii", "replace")


def json_object(value: Any, *, indent: int | None = 2) -> bytes:
    """A JSON object with its checksum. NaN and lone surrogates are in it as a careless writer leaves them."""
    text = json.dumps({**value, "checksum": "0" * 32}, indent=indent, sort_keys=True)
    return resealed((text + "\n").encode())


def parquet_object(table: pa.Table, metadata: dict[bytes, bytes], **settings: Any) -> bytes:
    """A Parquet object, written with any of the writer's settings."""
    sink = pa.BufferOutputStream()
    group = settings.pop("row_group_size", None)
    settings = {"compression": "none", "use_dictionary": False, "write_statistics": False} | settings
    with pq.ParquetWriter(sink, table.schema, store_schema=False, **settings) as writer:
        writer.write_table(table, row_group_size=group)
        writer.add_key_value_metadata(
            {name: value for name, value in metadata.items() if name != b"txn_engine.checksum"}
            | {b"txn_engine.checksum": b"0" * 32}
        )
    return resealed(sink.getvalue().to_pybytes())


def taken_apart(data: bytes) -> tuple[pa.Table, dict[bytes, bytes]]:
    """The rows and the metadata of a Parquet object."""
    file = pq.ParquetFile(pa.BufferReader(data))
    return file.read(), dict(file.metadata.metadata or {})


def varint(value: int) -> bytes:
    """A number in Thrift's form, with seven bits a byte."""
    digits = bytearray()
    while value > 0x7F:
        digits.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*digits, value])
