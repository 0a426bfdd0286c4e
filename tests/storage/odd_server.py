"""A server that answers by a script, for answers that real servers give only now and then. Any kind of store
can use it."""

from __future__ import annotations

import http.server
import ssl
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

import pytest

from storage import ObjectStore, StorageError


class Cut(bytes):
    """A body of which only the first half is sent before the connection closes."""


class OddServer:
    """A server that answers each request by a script of (status, body), repeats the last one for ever, and
    counts the requests. A body of status 206 is the whole object, of which the range that was asked for is sent."""

    def __init__(
        self,
        *script: tuple[int, bytes],
        store: Callable[[str], Any],
        retry_after_s: int = 0,
        certificate: tuple[Path, Path] | None = None,
    ) -> None:
        self.script = list(script)
        self.requests: list[str] = []
        self.headers: list[dict[str, str]] = []
        odd = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def answer(self) -> None:
                self.rfile.read(int(self.headers.get("content-length") or 0))
                odd.requests.append(f"{self.command} {self.path}")
                odd.headers.append({name.lower(): value for name, value in self.headers.items()})
                status, body = odd.script.pop(0) if len(odd.script) > 1 else odd.script[0]
                self.send_response(status)
                asked = self.headers.get("range")
                if status == 206 and asked:
                    first = int(asked.removeprefix("bytes=").partition("-")[0])
                    self.send_header("Content-Range", f"bytes {first}-{len(body) - 1}/{len(body)}")
                    body = type(body)(body[first:])
                self.send_header("Content-Length", str(len(body)))
                self.send_header("ETag", '"0"')
                if status == 503 and retry_after_s:
                    self.send_header("Retry-After", str(retry_after_s))
                self.send_header("Last-Modified", "Sat, 21 Nov 2026 00:00:00 GMT")
                self.end_headers()
                if self.command != "HEAD":
                    self.wfile.write(body[: len(body) // 2] if isinstance(body, Cut) else body)
                self.close_connection = self.close_connection or isinstance(body, Cut)

            do_GET = do_PUT = do_HEAD = do_POST = do_DELETE = answer

            def log_message(self, *arguments: object) -> None:
                pass

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        if certificate is not None:  # and its key
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(*certificate)
            self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        scheme = "http" if certificate is None else "https"
        self.endpoint = f"{scheme}://127.0.0.1:{self._server.server_port}"
        self.store = store(self.endpoint)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *ignored: object) -> None:
        self._server.shutdown()
        self._server.server_close()


def xml(code: str) -> bytes:
    return f"<?xml version='1.0'?><Error><Code>{code}</Code><Message>m</Message></Error>".encode()


def operations(store: ObjectStore) -> list[tuple[str, Callable[[], object]]]:
    """All operations of a store, each once."""
    return [
        ("get", lambda: store.get("a")),
        ("get_range", lambda: store.get_range("a", 0, 1)),
        ("head", lambda: store.head("a")),
        ("list", lambda: list(store.list(""))),
        ("list_folders", lambda: store.list_folders("")),
        ("put_if_absent", lambda: store.put_if_absent("a", b"x")),
        ("put", lambda: store.put("a", b"x")),
        ("delete", lambda: store.delete("a")),
    ]


def error_of(call: Callable[[], object]) -> StorageError:
    """The error that the call raises."""
    with pytest.raises(StorageError) as caught:
        call()
    return caught.value
