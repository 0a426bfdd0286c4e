"""A relay in front of the MinIO: it ends TLS, is a proxy, or answers in MinIO's place."""

from __future__ import annotations

import http.client
import http.server
import ssl
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Self
from urllib.parse import urlsplit

from tests.support.certificates import Certificates
from tests.support.servers import MinioServer


@dataclass(frozen=True)
class Request:
    """A request on its way to the server."""

    method: str
    path: str
    headers: dict[str, str]


@dataclass(frozen=True)
class Answer:
    """An answer that the server did not give."""

    status: int
    code: str

    @property
    def body(self) -> bytes:
        return f"<?xml version='1.0'?><Error><Code>{self.code}</Code><Message>m</Message></Error>".encode()


Look = Callable[[Request], Answer | None]
"""What is done before a request goes on, and the answer if it does not go on."""


class _Server(http.server.ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128
    behind_port: int
    look: Look

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.behind: set[http.client.HTTPConnection] = set()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client may hang up at any time, or not accept the certificate. The commands' stderr is not for that."""
        if not isinstance(sys.exc_info()[1], OSError):
            super().handle_error(request, client_address)


class _Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = -1  # the head and the body in one packet
    server: _Server

    def setup(self) -> None:
        super().setup()
        self.behind = http.client.HTTPConnection("127.0.0.1", self.server.behind_port, timeout=60)
        self.server.behind.add(self.behind)

    def finish(self) -> None:
        self.server.behind.discard(self.behind)
        self.behind.close()
        super().finish()

    def answer(self) -> None:
        body = self.rfile.read(int(self.headers.get("content-length") or 0))
        url = urlsplit(self.path)
        path = f"{url.path}?{url.query}" if url.query else url.path  # a proxy is asked for a whole URL
        headers = {name.lower(): value for name, value in self.headers.items()}
        instead = self.server.look(Request(self.command, path, headers))
        if instead is not None:
            self._give(instead.status, {"content-type": "application/xml"}, instead.body)
            return
        self.behind.request(self.command, path, body or None, headers)
        answer = self.behind.getresponse()
        self._give(answer.status, {k.lower(): v for k, v in answer.getheaders()}, answer.read())

    do_GET = do_PUT = do_HEAD = do_POST = do_DELETE = answer

    def _give(self, status: int, headers: dict[str, str], data: bytes) -> None:
        self.send_response_only(status)
        length = headers.pop("content-length", "0") if self.command == "HEAD" else str(len(data))
        headers.pop("transfer-encoding", None)
        headers.pop("connection", None)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", length)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)

    def log_message(self, *arguments: object) -> None:
        pass


class Relay:
    """A server on a port of its own that passes every request on, unless `look` answers it."""

    def __init__(
        self,
        server: MinioServer,
        look: Look = lambda request: None,
        *,
        certificates: Certificates | None = None,
    ) -> None:
        self.requests = 0
        self._server = _Server()
        self._server.behind_port = server.port
        self._server.look = self._counted(look)
        if certificates is not None:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(certificates.certificate, certificates.key)
            self._server.socket = context.wrap_socket(
                self._server.socket,
                server_side=True,
                do_handshake_on_connect=False,  # each in its connection's own thread
            )
        scheme = "http" if certificates is None else "https"
        self.url = f"{scheme}://127.0.0.1:{self._server.server_port}"

    def _counted(self, look: Look) -> Look:
        def counted(request: Request) -> Answer | None:
            self.requests += 1
            return look(request)

        return counted

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *ignored: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        for connection in list(self._server.behind):
            connection.close()  # the MinIO waits for them when it is stopped
