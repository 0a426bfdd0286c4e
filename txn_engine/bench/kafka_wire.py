"""What no client tells of a Kafka broker: whether a transaction is visible, and whether it is complete."""

from __future__ import annotations

import socket
import struct
from itertools import count

_LIST_OFFSETS, _DESCRIBE_TRANSACTIONS = (2, 7), (65, 0)
_READ_COMMITTED, _LATEST = 1, -1
_TIMEOUT_S = 30.0
_NO_TAGS = b"\0"


class KafkaWatch:
    """One connection to a broker that leads all partitions asked for and coordinates all transactional ids."""

    def __init__(self, host: str, port: int) -> None:
        self._socket = socket.create_connection((host, port), timeout=_TIMEOUT_S)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._ids = count(1)

    def last_stable_offsets(self, topic: str, partitions: int) -> list[int]:
        """What a read_committed reader can reach now, partition by partition."""
        asked = [struct.pack(">iiq", number, -1, _LATEST) + _NO_TAGS for number in range(partitions)]
        body = struct.pack(">ib", -1, _READ_COMMITTED) + _array([_text(topic) + _array(asked) + _NO_TAGS])
        answer = self._ask(_LIST_OFFSETS, body)
        at = 4 + 1  # throttle time, one topic
        at += 1 + len(topic.encode()) + 1  # its name, so many partitions
        found = {}
        for _ in range(partitions):
            number, error, _, offset, _ = struct.unpack_from(">ihqqi", answer, at)
            if error:
                raise RuntimeError(f"bench: ListOffsets of {topic}-{number}: Kafka's error {error}")
            found[number] = offset
            at += 26 + len(_NO_TAGS)
        return [found[number] for number in range(partitions)]

    def transaction_state(self, transactional_id: str) -> str:
        """As its coordinator has it: `Ongoing`, `PrepareCommit`, `CompleteCommit`."""
        answer = self._ask(_DESCRIBE_TRANSACTIONS, _array([_text(transactional_id)]))
        error = struct.unpack_from(">h", answer, 5)[0]
        if error:
            raise RuntimeError(f"bench: DescribeTransactions of {transactional_id!r}: Kafka's error {error}")
        at = 7 + len(_text(transactional_id))
        return answer[at + 1 : at + answer[at]].decode()

    def close(self) -> None:
        """Let go of the connection."""
        self._socket.close()

    def _ask(self, api: tuple[int, int], body: bytes) -> bytes:
        """The answer to a request of a flexible version (KIP-482), behind its header."""
        number = next(self._ids)
        client = b"txn-engine bench"
        header = struct.pack(">hhih", *api, number, len(client)) + client + _NO_TAGS
        message = header + body + _NO_TAGS
        self._socket.sendall(struct.pack(">i", len(message)) + message)
        answer = self._receive(struct.unpack(">i", self._receive(4))[0])
        if struct.unpack_from(">i", answer)[0] != number:
            raise RuntimeError("bench: the broker answered another request")
        return answer[4 + len(_NO_TAGS) :]

    def _receive(self, size: int) -> bytes:
        parts = bytearray()
        while len(parts) < size:
            part = self._socket.recv(size - len(parts))
            if not part:
                raise RuntimeError("bench: the broker closed the connection")
            parts += part
        return bytes(parts)


def _text(value: str) -> bytes:
    """A compact string, of up to 126 bytes."""
    encoded = value.encode()
    return bytes([len(encoded) + 1]) + encoded


def _array(values: list[bytes]) -> bytes:
    """A compact array, of up to 126 elements."""
    return bytes([len(values) + 1]) + b"".join(values)
