"""The GCS store on a MinIO that speaks Google's XML interface, and on servers that misbehave."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from storage import (
    AccessDeniedError,
    BucketNotFoundError,
    InvalidStoreUrlError,
    NotConnectedError,
    ObjectStore,
    StoreUnreachableError,
    open_store,
    settle_put_if_absent,
)
from storage.gcs import GcsStore
from storage.reasons import StoreReason
from tests.storage import odd_server
from tests.storage.bucket_conformance import ConformanceByMinio, CoreByMinio
from tests.storage.odd_server import error_of, operations, xml
from tests.support.faults import no_pause
from tests.support.gcs_front import GcsBucket
from tests.support.refusals import refused


@pytest.fixture(autouse=True)
def no_google_in_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.startswith(("GOOGLE_", "TXN_ENGINE_GCS_", "STORAGE_EMULATOR_HOST")):
            monkeypatch.delenv(name)


def store_of(bucket: GcsBucket, prefix: str = "pre/fix") -> GcsStore:
    store = open_store(f"{bucket.url}/{prefix}".rstrip("/"), endpoint=bucket.endpoint)
    assert isinstance(store, GcsStore)
    return store


@pytest.mark.minio
class TestGcsStore(CoreByMinio):
    @pytest.fixture
    def store(self, gcs_bucket: GcsBucket) -> ObjectStore:
        self.place, self.raw = gcs_bucket, gcs_bucket.client()
        return store_of(gcs_bucket)

    def neighbour(self, prefix: str) -> ObjectStore:
        return store_of(self.place, prefix)


@pytest.mark.shard("engines")
class TestGcsStoreInFull(TestGcsStore, ConformanceByMinio):
    """The core again, and tests that need many requests, much data or several processes."""


@pytest.mark.minio
def test_a_missing_bucket_is_named(gcs_bucket: GcsBucket) -> None:
    """Every operation tells a missing bucket from a missing object; a settled put raises it as itself."""
    store = open_store("gs://no-such-bucket", endpoint=gcs_bucket.endpoint)
    for name, call in operations(store):
        error = error_of(call)
        assert type(error) is BucketNotFoundError, name
        assert "no-such-bucket" in error.place
    with pytest.raises(BucketNotFoundError):
        settle_put_if_absent(store, "a", b"x", pause=no_pause)


def at(endpoint: str) -> GcsStore:
    """A store at this endpoint. Opening it sends no request."""
    store = open_store("gs://bucket", endpoint=endpoint)
    assert isinstance(store, GcsStore)
    return store


def odd(*script: tuple[int, bytes]) -> odd_server.OddServer:
    """A server with this script, and a Google store that uses it."""
    return odd_server.OddServer(*script, store=at)


def test_put_if_absent_asks_for_no_generation() -> None:
    """put_if_absent sends the header that Google documents for its condition, in one request. A plain put
    sends no condition."""
    with odd((200, b"")) as server:
        assert server.store.put_if_absent("a", b"x") is True
        server.store.put("a", b"x")
        conditions = [headers.get("x-goog-if-generation-match") for headers in server.headers]
        assert conditions == ["0", None]
        assert server.requests == ["PUT /bucket/a", "PUT /bucket/a"]
        assert {headers.get("authorization") for headers in server.headers} == {"Bearer none"}


@pytest.mark.shard(
    "engines"
)  # the client waits between its tries; `test_s3.py` has the same, by the same code
def test_a_refused_connection_is_unreachable() -> None:
    """If nobody listens, every operation and a settled put report that nothing was sent."""
    store = at("http://127.0.0.1:1")
    calls: list[tuple[str, Callable[[], object]]] = [
        *operations(store),
        ("settle", lambda: settle_put_if_absent(store, "a", b"x", pause=no_pause)),
    ]
    for name, call in calls:
        assert type(error_of(call)) is NotConnectedError, name


def test_a_404_that_is_not_the_services_is_not_absence() -> None:
    """A proxy's 404 is not "no such object", because settling would then take a taken slot for a free one."""
    with odd((404, b"<html>not here</html>")) as server:
        for name, call in operations(server.store):
            assert type(error_of(call)) is StoreUnreachableError, name


@pytest.mark.parametrize(
    ("status", "code"), [(500, "InternalError"), (503, "ServiceUnavailable"), (429, "SlowDown")]
)
def test_a_conditional_put_is_sent_once(status: int, code: str) -> None:
    """Google refuses more than one write a second to one object. A refusal or a server error is raised after one
    request.
    """
    with odd((status, xml(code))) as server:
        error = error_of(lambda: server.store.put_if_absent("a", b"x"))
        assert type(error) is StoreUnreachableError
        assert len(server.requests) == 1


@pytest.mark.parametrize("status", [401, 403])
def test_a_refusal_is_access_denied(status: int) -> None:
    """Every operation raises AccessDeniedError."""
    with odd((status, xml("AccessDenied"))) as server:
        for name, call in operations(server.store):
            assert type(error_of(call)) is AccessDeniedError, name


def test_a_read_is_tried_again() -> None:
    """The caller does not notice a passing 503 on a read."""
    with odd((503, xml("ServiceUnavailable")), (200, b"data")) as server:
        assert server.store.get("a") == b"data"


@pytest.mark.parametrize(("there", "won"), [(b"ours", True), (b"theirs", False)])
@pytest.mark.parametrize("status", [412, 409, 500, 429])
def test_what_became_of_a_put_is_read_back(status: int, there: bytes, won: bool) -> None:
    """Whatever the answer to a put was, the object that is there decides: our bytes mean that it won, and
    other bytes that it lost."""
    with odd((status, xml("PreconditionFailed")), (200, there)) as server:
        outcome = settle_put_if_absent(server.store, "a", b"ours", pause=no_pause)
        assert (outcome.won, outcome.winner) == (won, there)


@pytest.mark.parametrize(
    ("url", "settings", "reason"),
    [
        ("gs://", {}, StoreReason.BAD_BUCKET_NAME),
        ("gs://Bucket", {}, StoreReason.BAD_BUCKET_NAME),
        ("gs://bucket/../x", {}, StoreReason.BAD_PREFIX),
        ("gs://key:c2VjcmV0@bucket", {}, StoreReason.URL_WITH_CREDENTIALS),
        (
            "gs://bucket",
            {"service_account": "a", "service_account_key": "b"},
            StoreReason.SEVERAL_CREDENTIALS,
        ),
        ("gs://bucket", {"endpoint": "ftp://x"}, StoreReason.BAD_ENDPOINT),
        ("gs://bucket", {"access_key": "x"}, StoreReason.SETTING_OF_OTHER_STORES),
    ],
)
def test_what_is_no_store(url: str, settings: dict[str, Any], reason: StoreReason) -> None:
    """What is not a valid Google store is refused in one line that does not repeat a key."""
    with refused(InvalidStoreUrlError, reason) as caught:
        open_store(url, **settings)
    assert "c2VjcmV0" not in str(caught.value)


def test_a_service_account_is_shown_nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Executors get the text of the service account's file, because they do not have the file. No `repr`
    shows it."""
    file = tmp_path / "account.json"
    file.write_text(json.dumps({"type": "service_account", "private_key": "c2VjcmV0"}))
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(file))
    store = open_store("gs://bucket")
    assert isinstance(store, GcsStore)
    sent = store.with_credentials_of_now()
    assert sent.access()["service_account_key"] == file.read_text()
    for each in (store, sent):
        assert "c2VjcmV0" not in repr(each) + repr(each.config) + str(each.credentials_found())
    assert at("http://127.0.0.1:1").with_credentials_of_now().access()["service_account_key"] is None


@pytest.fixture
def broken_account(tmp_path: Path) -> str:
    path = tmp_path / "broken.json"
    path.write_text("{")
    return str(path)


def test_a_service_account_that_cannot_be_read(broken_account: str) -> None:
    """If the service account cannot be read, the first call raises an error of one line that says what to
    set."""
    for settings in (
        {"service_account": broken_account},
        {"service_account": f"{broken_account}-that-is-not-there"},
        {"service_account_key": '{"private_key": "c2VjcmV0"}'},
    ):
        store = open_store("gs://bucket", **settings)
        error = error_of(lambda store=store: store.get("a"))
        assert type(error) is AccessDeniedError
        assert "\n" not in str(error)
        assert "c2VjcmV0" not in str(error)
        assert "set GOOGLE_APPLICATION_CREDENTIALS" in error.action
