"""A proxy between clients and an S3 server. It drops connections, and changes answers after the server did
the work."""

from __future__ import annotations

import contextlib
import random
import socket
import threading
import time
from collections import Counter
from dataclasses import dataclass
from typing import Literal, Self

from tests.support.waiting import wait_for

Fault = Literal[
    "drop before", "drop mid-request", "drop after", "drop mid-response", "late",
    "503 before", "500 after", "503 after", "409 after", "412 after", "slow",
]  # fmt: skip

DROPS: tuple[Fault, ...] = ("drop before", "drop mid-request", "drop after", "drop mid-response", "late")
CHANGES: tuple[Fault, ...] = ("500 after", "503 after", "409 after", "412 after")
_PUT_FAULTS: tuple[Fault, ...] = (*DROPS, *CHANGES, "503 before", "slow")
_READ_FAULTS: tuple[Fault, ...] = ("drop before", "drop after", "drop mid-response", "503 before", "slow")
_CODES = {409: "ConditionalRequestConflict", 412: "PreconditionFailed", 500: "InternalError", 503: "SlowDown"}
_READ_SHARE = 0.2  # of reads there are many more
_HEAD_BYTES_MAX = 64 * 1024
_LATE_S_MAX = 2.0
_IDLE_S = 60.0


class _GoneError(Exception):
    """One of the two sides has closed its connection."""


@dataclass(frozen=True, slots=True)
class _Message:
    """A request or an answer: its first line and headers as they arrived, and its body."""

    head: bytes
    body: bytes

    @property
    def first_line(self) -> list[bytes]:
        return self.head.split(b"\r\n", 1)[0].split(b" ", 2)

    def header(self, name: bytes) -> bytes:
        for line in self.head.split(b"\r\n")[1:]:
            key, _, value = line.partition(b":")
            if key.strip().lower() == name:
                return value.strip()
        return b""


class Proxy:
    """A proxy on a port of 127.0.0.1. It forwards to one server, with one connection for each connection of a
    client.

    `fault_rate` of the puts and a fifth of that share of the reads meet a fault that suits the request. An
    answer is changed only if the server has just stored the object, so each is one that a real server can
    give. With "late" the client loses its connection at once, and the server gets the request a moment later.
    `counts` has the number of each fault.
    """

    def __init__(self, server_port: int, *, seed: int) -> None:
        self.fault_rate = 0.0
        self.counts: Counter[str] = Counter()
        self._server = ("127.0.0.1", server_port)
        self._chance = random.Random(seed)
        self._lock = threading.Lock()
        self._under_way = 0
        self._open: set[socket.socket] = set()
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=256)
        self.port = int(self._listener.getsockname()[1])

    @property
    def url(self) -> str:
        """The endpoint for clients."""
        return f"http://127.0.0.1:{self.port}"

    def __enter__(self) -> Self:
        threading.Thread(target=self._accept, name="proxy", daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._listener.close()
        with self._lock:
            connections = list(self._open)
        for connection in connections:
            _hang_up(connection)

    def wait_until_quiet(self) -> None:
        """Wait until no request is on its way to the server, not even a late one."""
        wait_for(
            lambda: not self._under_way,
            what="the end of all requests",
            seen=lambda: f"{self._under_way} are still on their way",
        )

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        client.settimeout(_IDLE_S)
        with self._lock:
            self._open.add(client)
        upstream: list[socket.socket] = []
        try:
            with contextlib.suppress(OSError, _GoneError):
                while True:
                    self._pass_on(client, upstream)
        finally:
            for side in (client, *upstream):
                _hang_up(side)
            with self._lock:
                self._open.discard(client)

    def _pass_on(self, client: socket.socket, upstream: list[socket.socket]) -> None:
        request = _receive(client)
        fault = self.draw(request)
        with self._lock:
            self._under_way += 1
            self.counts["requests"] += 1
        try:
            self._answer(client, upstream, request, fault)
        finally:
            with self._lock:
                self._under_way -= 1

    def _answer(
        self, client: socket.socket, upstream: list[socket.socket], request: _Message, fault: Fault | None
    ) -> None:
        if fault == "drop before":
            self._count(fault)
            raise _GoneError
        if fault == "503 before":
            self._count(fault)
            client.sendall(_refusal(503))
            return
        if fault == "slow":
            self._count(fault)
            time.sleep(self._some_time())
        if fault == "late":
            self._count(fault)
            _hang_up(client)
            time.sleep(self._some_time())
        answer = self._ask(upstream, request, fault)
        if fault in (*CHANGES, "drop after", "drop mid-response"):
            self._spoil(client, request, answer, fault)
        else:
            client.sendall(answer.head + answer.body)

    def _ask(self, upstream: list[socket.socket], request: _Message, fault: Fault | None) -> _Message:
        if not upstream:
            upstream.append(socket.create_connection(self._server, timeout=_IDLE_S))
        if fault == "drop mid-request":
            self._count(fault)
            upstream[0].sendall(request.head + request.body[: len(request.body) // 2])
            raise _GoneError
        upstream[0].sendall(request.head + request.body)
        return _receive(upstream[0], of_head=request.first_line[0] == b"HEAD")

    def _spoil(self, client: socket.socket, request: _Message, answer: _Message, fault: Fault | None) -> None:
        if fault in ("drop after", "drop mid-response"):
            self._count(fault)
            if fault == "drop mid-response":
                whole = answer.head + answer.body
                client.sendall(whole[: len(whole) // 2])
            raise _GoneError
        if answer.first_line[1] != b"200":
            client.sendall(answer.head + answer.body)
            return
        self._count(fault)
        client.sendall(_refusal(int(str(fault)[:3])))

    def draw(self, request: _Message) -> Fault | None:
        is_put = request.first_line[0] == b"PUT"
        with self._lock:
            if self._chance.random() >= self.fault_rate * (1.0 if is_put else _READ_SHARE):
                return None
            fault = self._chance.choice(_PUT_FAULTS if is_put else _READ_FAULTS)
        is_conditional = request.header(b"if-none-match") == b"*"
        return "500 after" if fault in ("409 after", "412 after") and not is_conditional else fault

    def _some_time(self) -> float:
        with self._lock:
            return self._chance.uniform(0.01, _LATE_S_MAX)

    def _count(self, fault: Fault | None) -> None:
        with self._lock:
            self.counts[str(fault)] += 1


def _receive(side: socket.socket, *, of_head: bool = False) -> _Message:
    """Receive one whole message, by its length, by its chunks, or without a body."""
    data = b""
    while (end := data.find(b"\r\n\r\n")) < 0:
        data += _more(side)
        if len(data) > _HEAD_BYTES_MAX:
            raise _GoneError
    head, body = data[: end + 4], data[end + 4 :]
    message = _Message(head, b"")
    status = message.first_line[1] if head.startswith(b"HTTP/") else b""
    if of_head or status in (b"204", b"304"):
        return _Message(head, b"")
    if message.header(b"transfer-encoding").lower() == b"chunked":
        # Listings only: XML, in which a 0 never stands alone on a line.
        parts = [body]
        while not body.endswith(b"0\r\n\r\n"):
            parts.append(_more(side))
            body = body[-8:] + parts[-1]
        return _Message(head, b"".join(parts))
    length = int(message.header(b"content-length") or 0)
    parts, missing = [body], length - len(body)
    while missing > 0:
        parts.append(_more(side))
        missing -= len(parts[-1])
    return _Message(head, b"".join(parts))


def _more(side: socket.socket) -> bytes:
    data = side.recv(256 * 1024)
    if not data:
        raise _GoneError
    return data


def _refusal(status: int) -> bytes:
    code = _CODES[status]
    body = f"<?xml version='1.0'?><Error><Code>{code}</Code><Message>by the proxy</Message></Error>".encode()
    lines = [
        f"HTTP/1.1 {status} {code}",
        "Content-Type: application/xml",
        f"Content-Length: {len(body)}",
        "",
        "",
    ]
    return "\r\n".join(lines).encode() + body


def _hang_up(side: socket.socket) -> None:
    with contextlib.suppress(OSError):
        side.shutdown(socket.SHUT_RDWR)
    side.close()
