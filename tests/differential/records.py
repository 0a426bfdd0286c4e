"""Record batches of format version 2, of which Kafka's log consists."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

_TRANSACTIONAL, _CONTROL = 0x10, 0x20
_HEADER = struct.Struct(
    ">hiqqqhii"
)  # attributes ... record count: what the checksum covers, with the records


@dataclass(frozen=True)
class RecordBatch:
    """One batch. `control` is "commit" or "abort" for a marker, else "none". `values` has one value for each
    record."""

    base_offset: int
    last_offset: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    is_transactional: bool
    control: str
    values: tuple[bytes, ...]

    @property
    def records(self) -> list[tuple[int, bytes]]:
        """The (offset, value) of each record. A marker has no records."""
        return [] if self.control != "none" else list(enumerate(self.values, self.base_offset))


def encode_batch(
    values: Sequence[bytes],
    *,
    producer_id: int,
    producer_epoch: int,
    base_sequence: int,
    is_transactional: bool,
    timestamp_ms: int,
    keys: Sequence[bytes] | None = None,
) -> bytes:
    """Encode a batch as a producer sends it."""
    records = b"".join(
        _encode_record(delta, None if keys is None else keys[delta], value)
        for delta, value in enumerate(values)
    )
    body = _HEADER.pack(
        _TRANSACTIONAL if is_transactional else 0,
        len(values) - 1,
        timestamp_ms,
        timestamp_ms,
        producer_id,
        producer_epoch,
        base_sequence,
        len(values),
    )
    checked = body + records
    behind_length = struct.pack(">ibI", -1, 2, crc32c(checked)) + checked
    return struct.pack(">qi", 0, len(behind_length)) + behind_length


def _encode_record(delta: int, key: bytes | None, value: bytes) -> bytes:
    key_field = _zigzag(-1) if key is None else _zigzag(len(key)) + key
    body = b"\0" + _zigzag(0) + _zigzag(delta) + key_field + _zigzag(len(value)) + value + _zigzag(0)
    return _zigzag(len(body)) + body


def decode_batches(data: bytes) -> Iterator[RecordBatch]:
    """The whole batches at the start of `data`. A fetch may end inside a batch."""
    at = 0
    while at + 12 <= len(data):
        base_offset, length = struct.unpack_from(">qi", data, at)
        if at + 12 + length > len(data):
            return
        yield _decode_batch(base_offset, data[at + 12 : at + 12 + length])
        at += 12 + length


def _decode_batch(base_offset: int, data: bytes) -> RecordBatch:
    attributes, last_delta, _, _, producer_id, epoch, base_sequence, count = _HEADER.unpack_from(data, 9)
    cursor = _Cursor(data, 9 + _HEADER.size)
    records = [cursor.record() for _ in range(count)]
    control = "none"
    if attributes & _CONTROL:
        control = "commit" if struct.unpack(">hh", records[0][0])[1] == 1 else "abort"
    return RecordBatch(
        base_offset,
        base_offset + last_delta,
        producer_id,
        epoch,
        base_sequence,
        bool(attributes & _TRANSACTIONAL),
        control,
        tuple(value for _, value in records),
    )


class _Cursor:
    def __init__(self, data: bytes, at: int) -> None:
        self._data = data
        self._at = at

    def record(self) -> tuple[bytes, bytes]:
        """The (key, value) of a record."""
        end = self._number() + self._at
        self._at += 1
        self._number()
        self._number()
        key, value = self._bytes(), self._bytes()
        self._at = end
        return key, value

    def _bytes(self) -> bytes:
        size = max(self._number(), 0)
        self._at += size
        return self._data[self._at - size : self._at]

    def _number(self) -> int:
        value = shift = 0
        while True:
            byte = self._data[self._at]
            self._at += 1
            value |= (byte & 0x7F) << shift
            if not byte & 0x80:
                return (value >> 1) ^ -(value & 1)
            shift += 7


def _zigzag(value: int) -> bytes:
    rest = (value << 1) ^ (value >> 63)
    out = bytearray()
    while rest > 0x7F:
        out.append(rest & 0x7F | 0x80)
        rest >>= 7
    out.append(rest)
    return bytes(out)


def _crc_table() -> tuple[int, ...]:
    table = []
    for byte in range(256):
        crc = byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
        table.append(crc)
    return tuple(table)


_CRC_TABLE = _crc_table()


def crc32c(data: bytes) -> int:
    """Castagnoli's checksum, which Kafka's batches carry."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc = crc >> 8 ^ _CRC_TABLE[(crc ^ byte) & 0xFF]
    return crc ^ 0xFFFFFFFF
