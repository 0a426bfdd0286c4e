"""A server of the tests' own in front of a real one: what its handlers and its life have in common."""

from __future__ import annotations

import http.client
import http.server
import threading
from typing import Any, Self


class FrontServer(http.server.ThreadingHTTPServer):
    """Listens on a port of its own. `behind`: the connections to the server behind it, on 127.0.0.1."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, handler: type[FrontHandler], behind_port: int) -> None:
        super().__init__(("127.0.0.1", 0), handler)
        self.behind_port = behind_port
        self.behind: set[http.client.HTTPConnection] = set()


class FrontHandler(http.server.BaseHTTPRequestHandler):
    """A connection of a client, and the one to the server behind, which lives as long."""

    protocol_version = "HTTP/1.1"
    server: Any

    def setup(self) -> None:
        super().setup()
        self.behind = http.client.HTTPConnection("127.0.0.1", self.server.behind_port, timeout=60)
        self.server.behind.add(self.behind)

    def finish(self) -> None:
        self.server.behind.discard(self.behind)
        self.behind.close()
        super().finish()

    def send_data(self, length_behind: str | None, data: bytes) -> None:
        """End the head, and send the body. An answer to HEAD has the length that the server behind gives."""
        length = length_behind or "0" if self.command == "HEAD" else str(len(data))
        self.send_header("Content-Length", length)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)

    def log_message(self, *arguments: object) -> None:
        pass


class Front:
    """Serves while its block runs."""

    def __init__(self, server: FrontServer) -> None:
        self._server = server

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *ignored: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        for connection in list(self._server.behind):
            connection.close()  # the server behind waits for them when it is stopped
