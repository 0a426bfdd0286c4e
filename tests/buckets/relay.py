"""A relay in front of the MinIO: it ends TLS, is a proxy, or answers in MinIO's place."""

from __future__ import annotations

import ssl
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from tests.support.certificates import Certificates
from tests.support.fronts import Front, FrontHandler, FrontServer
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


class _Server(FrontServer):
    look: Look

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client may hang up at any time, or not accept the certificate. The commands' stderr is not for that."""
        if not isinstance(sys.exc_info()[1], OSError):
            super().handle_error(request, client_address)


class _Handler(FrontHandler):
    disable_nagle_algorithm = True
    wbufsize = -1  # the head and the body in one packet
    server: _Server

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
        length = headers.pop("content-length", None)
        headers.pop("transfer-encoding", None)
        headers.pop("connection", None)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_data(length, data)


class Relay(Front):
    """A server on a port of its own that passes every request on, unless `look` answers it."""

    def __init__(
        self,
        server: MinioServer,
        look: Look = lambda request: None,
        *,
        certificates: Certificates | None = None,
    ) -> None:
        self.requests = 0
        super().__init__(_Server(_Handler, server.port))
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
