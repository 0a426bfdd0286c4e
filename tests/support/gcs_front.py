"""Google's XML interface in front of a real MinIO. It translates the few words that differ from S3's.

No emulator that a registry has speaks this interface. fake-gcs-server 1.56.1 answers a put with "invalid
uploadType" and does not have `x-goog-if-generation-match`. gcp-storage-emulator has only the JSON interface.
So requests go through to a MinIO, which keeps objects, lists them and decides races. The front translates
`x-goog-if-generation-match: 0`, the escapes of a path, and the errors for a bucket or an object that does not
exist. `txn-engine doctor --conformance` shows how Google itself answers.
"""

from __future__ import annotations

import json
import secrets
from dataclasses import dataclass
from urllib.parse import quote, unquote

from minio import Minio

from tests.support.fronts import Front, FrontHandler, FrontServer
from tests.support.servers import MinioServer

_PASSED_ON = ("content-type", "range")
_GIVEN_BACK = ("Content-Type", "ETag", "Last-Modified", "Content-Range")
_NOT_FOUND = "<?xml version='1.0' encoding='UTF-8'?><Error><Code>{}</Code></Error>"


@dataclass(frozen=True)
class GcsBucket:
    """A bucket of one test's own. Its `client` asks MinIO itself."""

    name: str
    endpoint: str
    server: MinioServer

    @property
    def url(self) -> str:
        return f"gs://{self.name}"

    @property
    def environment(self) -> dict[str, str]:
        return {"TXN_ENGINE_GCS_ENDPOINT": self.endpoint}

    def client(self) -> Minio:
        return self.server.client()


class _Server(FrontServer):
    def __init__(self, port: int) -> None:
        super().__init__(_Handler, port)
        self.buckets: set[str] = set()


class _Handler(FrontHandler):
    server: _Server

    def answer(self) -> None:
        body = self.rfile.read(int(self.headers.get("content-length") or 0))
        sent = {name: self.headers[name] for name in _PASSED_ON if name in self.headers}
        condition = self.headers.get("x-goog-if-generation-match")
        if condition is not None:
            assert condition == "0", "the store asks for no generation but none"
            sent["If-None-Match"] = "*"
        if unquote(self.path.partition("?")[0].split("/")[1]) not in self.server.buckets:
            self._give(404, {}, _NOT_FOUND.format("NoSuchBucket").encode())
        elif self.command == "DELETE" and self._ask("HEAD", {}, b"")[0] == 404:
            self._give(404, {}, _NOT_FOUND.format("NoSuchKey").encode())
        else:
            self._give(*self._ask(self.command, sent, body))

    do_GET = do_PUT = do_HEAD = do_DELETE = answer

    def _ask(self, method: str, headers: dict[str, str], body: bytes) -> tuple[int, dict[str, str], bytes]:
        place, mark, query = self.path.partition("?")
        plain = quote(unquote(place), safe="/-._~")
        self.behind.request(method, plain + mark + query, body if method == "PUT" else None, headers)
        answer = self.behind.getresponse()
        return answer.status, dict(answer.getheaders()), answer.read()

    def _give(self, status: int, headers: dict[str, str], data: bytes) -> None:
        self.send_response(status)
        for name in _GIVEN_BACK:
            if name in headers:
                self.send_header(name, headers[name])
        self.send_header("x-goog-generation", "1")
        self.send_data(headers.get("Content-Length"), data)


class GcsFront(Front):
    """A proxy on a port of its own, and the MinIO that it forwards to."""

    def __init__(self, server: MinioServer) -> None:
        self._minio = server
        super().__init__(_Server(server.port))
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def bucket(self) -> GcsBucket:
        """A new bucket, open to callers that sign nothing, as the front does."""
        made = GcsBucket(f"test-{secrets.token_hex(8)}", self.url, self._minio)
        client = made.client()
        client.make_bucket(made.name)
        self._server.buckets.add(made.name)
        allowed = {
            "Effect": "Allow",
            "Principal": {"AWS": ["*"]},
            "Action": ["s3:*"],
            "Resource": [f"arn:aws:s3:::{made.name}", f"arn:aws:s3:::{made.name}/*"],
        }
        client.set_bucket_policy(made.name, json.dumps({"Version": "2012-10-17", "Statement": [allowed]}))
        return made
