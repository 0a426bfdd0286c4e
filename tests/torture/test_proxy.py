"""The proxy applies each fault at the right moment: after the server's work, before it, or never."""

from __future__ import annotations

import http.client
import http.server
import threading
from collections.abc import Iterator

import pytest

from tests.support.waiting import LIMIT_S
from tests.torture.proxy import CHANGES, DROPS, Fault, Proxy, _Message

BODY = b"x" * 1_000


class Shelf(http.server.BaseHTTPRequestHandler):
    """A server that stores each object once."""

    protocol_version = "HTTP/1.1"
    stored: dict[str, bytes]

    def do_PUT(self) -> None:
        length = int(self.headers["content-length"])
        body = self.rfile.read(length)
        if len(body) < length:
            return
        taken = self.path in self.stored
        self.stored.setdefault(self.path, body)
        self._answer(412 if taken else 200, b"")

    def do_GET(self) -> None:
        body = self.stored.get(self.path)
        self._answer(404 if body is None else 200, body or b"")

    def _answer(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def shelf() -> Iterator[tuple[Proxy, dict[str, bytes]]]:
    """A proxy before a server, and what the server has stored."""
    handler = type("ThisShelf", (Shelf,), {"stored": {}})
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    with Proxy(server.server_port, seed=1) as proxy:
        yield proxy, handler.stored
    server.shutdown()
    server.server_close()


def put(proxy: Proxy, fault: Fault | None, path: str = "/a") -> int:
    """The status of the answer to a put, or 0 if the connection was dropped."""
    proxy.draw = lambda _: fault  # type: ignore[method-assign]
    client = http.client.HTTPConnection("127.0.0.1", proxy.port, timeout=LIMIT_S)
    try:
        client.request("PUT", path, BODY, {"If-None-Match": "*"})
        answer = client.getresponse()
        return answer.status if answer.getheader("content-length") else 0  # else the head was cut
    except (http.client.HTTPException, OSError):
        return 0
    finally:
        client.close()


@pytest.mark.parametrize(
    ("fault", "status", "is_stored"),
    [
        (None, 200, True),
        ("slow", 200, True),
        ("drop before", 0, False),
        ("drop mid-request", 0, False),
        ("503 before", 503, False),
        ("drop after", 0, True),
        ("drop mid-response", 0, True),
        ("late", 0, True),
        ("500 after", 500, True),
        ("503 after", 503, True),
        ("409 after", 409, True),
        ("412 after", 412, True),
    ],
)
def test_what_a_fault_does(
    shelf: tuple[Proxy, dict[str, bytes]], fault: Fault | None, status: int, is_stored: bool
) -> None:
    """Each fault has its own answer and its own effect on the server. It is counted, and the next request is
    served."""
    proxy, stored = shelf
    assert put(proxy, fault) == status
    proxy.wait_until_quiet()
    assert stored == ({"/a": BODY} if is_stored else {})
    assert proxy.counts[str(fault)] == (0 if fault is None else 1)
    assert put(proxy, None, "/b") == 200


def test_only_the_winner_s_answer_is_changed(shelf: tuple[Proxy, dict[str, bytes]]) -> None:
    """The loser of a race gets the true answer, because a changed answer must be one that a real server can
    give."""
    proxy, _ = shelf
    assert put(proxy, None) == 200
    for fault in CHANGES:
        assert put(proxy, fault) == 412
    assert sum(proxy.counts[fault] for fault in CHANGES) == 0


def test_faults_are_drawn_at_their_rate(shelf: tuple[Proxy, dict[str, bytes]]) -> None:
    """At rate 0 no put meets a fault. At rate 1 every put meets one, and all kinds occur."""
    proxy, _ = shelf
    draw = Proxy.draw.__get__(proxy)
    message = _Message(b"PUT /a HTTP/1.1\r\nIf-None-Match: *\r\n\r\n", b"")
    assert [draw(message) for _ in range(50)] == [None] * 50
    proxy.fault_rate = 1.0
    drawn = {draw(message) for _ in range(300)}
    assert drawn >= {*DROPS, *CHANGES, "503 before", "slow"}
    assert None not in drawn
