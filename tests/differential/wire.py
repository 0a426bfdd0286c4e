"""The part of Kafka's wire protocol that is needed here: flexible versions (KIP-482) over one blocking
socket."""

from __future__ import annotations

import socket
import struct
from collections.abc import Callable, Iterable
from types import TracebackType
from typing import Self, TypeVar

T = TypeVar("T")

ANSWER_TIMEOUT_S = 60.0


class Writer:
    """Fields of a request, in order."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []

    def int8(self, value: int) -> Self:
        return self._pack(">b", value)

    def int16(self, value: int) -> Self:
        return self._pack(">h", value)

    def int32(self, value: int) -> Self:
        return self._pack(">i", value)

    def int64(self, value: int) -> Self:
        return self._pack(">q", value)

    def boolean(self, value: bool) -> Self:
        return self._pack(">?", value)

    def _pack(self, layout: str, value: int) -> Self:
        return self.raw(struct.pack(layout, value))

    def raw(self, value: bytes) -> Self:
        self._parts.append(value)
        return self

    def varint(self, value: int) -> Self:
        """Write an unsigned number with seven bits a byte."""
        while value > 0x7F:
            self._parts.append(bytes([value & 0x7F | 0x80]))
            value >>= 7
        return self.raw(bytes([value]))

    def compact_bytes(self, value: bytes | None) -> Self:
        return self.varint(0) if value is None else self.varint(len(value) + 1).raw(value)

    def string(self, value: str | None) -> Self:
        """Write a compact (nullable) string."""
        return self.compact_bytes(None if value is None else value.encode())

    def array(self, values: Iterable[T], write: Callable[[Writer, T], object]) -> Self:
        """Write a compact array. `write` writes one element, with its tagged fields if it is a struct."""
        listed = list(values)
        self.varint(len(listed) + 1)
        for value in listed:
            write(self, value)
        return self

    def int32s(self, values: Iterable[int]) -> Self:
        return self.array(values, Writer.int32)

    def tags(self) -> Self:
        """Write no tagged fields, which ends every struct."""
        return self.varint(0)

    def done(self) -> bytes:
        return b"".join(self._parts)


class Reader:
    """Fields of an answer, in order."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def int8(self) -> int:
        return self._unpack(">b", 1)

    def int16(self) -> int:
        return self._unpack(">h", 2)

    def int32(self) -> int:
        return self._unpack(">i", 4)

    def int64(self) -> int:
        return self._unpack(">q", 8)

    def _unpack(self, layout: str, size: int) -> int:
        return int(struct.unpack(layout, self.raw(size))[0])

    def raw(self, size: int) -> bytes:
        if self._at + size > len(self._data):
            raise ValueError(f"{size} bytes wanted at {self._at} of {len(self._data)}: the layout is another")
        self._at += size
        return self._data[self._at - size : self._at]

    def varint(self) -> int:
        value = shift = 0
        while True:
            byte = self.raw(1)[0]
            value |= (byte & 0x7F) << shift
            if not byte & 0x80:
                return value
            shift += 7

    def compact_bytes(self) -> bytes | None:
        size = self.varint()
        return None if size == 0 else self.raw(size - 1)

    def string(self) -> str | None:
        value = self.compact_bytes()
        return None if value is None else value.decode()

    def array(self, read: Callable[[Reader], T]) -> list[T]:
        """Read a compact array. A null array is read as empty."""
        return [read(self) for _ in range(max(self.varint() - 1, 0))]

    def structs(self, read: Callable[[Reader], T]) -> list[T]:
        """Read a compact array of structs, each with its tagged fields after it."""

        def one(reader: Reader) -> T:
            value = read(reader)
            reader.tags()
            return value

        return self.array(one)

    def tags(self) -> None:
        for _ in range(self.varint()):
            self.varint()
            self.raw(self.varint())


class Connection:
    """One connection to the broker, for one thread. Each request is followed by its answer."""

    def __init__(self, port: int, client_id: str = "differential") -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=ANSWER_TIMEOUT_S)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._client_id = client_id.encode()
        self._correlation_id = 0

    def ask(self, api_key: int, version: int, body: Writer) -> Reader:
        """Send a request of a flexible version, and return its answer after the header."""
        self._correlation_id += 1
        header = Writer().int16(api_key).int16(version).int32(self._correlation_id)
        header.int16(len(self._client_id)).raw(self._client_id).tags()
        message = header.done() + body.tags().done()
        self._socket.sendall(struct.pack(">i", len(message)) + message)
        answer = Reader(self._receive(struct.unpack(">i", self._receive(4))[0]))
        if answer.int32() != self._correlation_id:
            raise ValueError("an answer to another request")
        answer.tags()
        return answer

    def _receive(self, size: int) -> bytes:
        parts = bytearray()
        while len(parts) < size:
            part = self._socket.recv(size - len(parts))
            if not part:
                raise ConnectionError("the broker closed the connection: it could not read the request")
            parts += part
        return bytes(parts)

    def close(self) -> None:
        self._socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
