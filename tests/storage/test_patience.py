"""A store that does not answer is reported within 20 seconds. `make test` checks the clients' limits, and a
shard checks the clock."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from storage import (
    JOB_PATIENCE,
    PERSON_PATIENCE,
    BucketStore,
    NotConnectedError,
    PutOutcomeUnknownError,
    StorageError,
    StoreUnreachableError,
    open_store,
    settle_put_if_absent,
)
from storage.reasons import StoreReason
from storage.s3.bucket import create_bucket_if_missing, inspect_bucket
from storage.s3.config import s3_config
from storage.s3.minio_client import RETRIES, TIMEOUT
from storage.s3.store import S3Store
from tests.storage.odd_server import OddServer, error_of, operations, xml

ANSWER_S_MAX = 20.0
NOBODY = "http://127.0.0.1:1"


def s3_at(endpoint: str) -> BucketStore:
    return S3Store(s3_config("bucket", endpoint=endpoint, access_key="a", secret_key="b"))


def azure_at(endpoint: str) -> BucketStore:
    store = open_store(
        "az://container", endpoint=f"{endpoint}/account", account="account", account_key="a2V5"
    )
    assert isinstance(store, BucketStore)
    return store


def gcs_at(endpoint: str) -> BucketStore:
    store = open_store("gs://bucket", endpoint=endpoint)
    assert isinstance(store, BucketStore)
    return store


STORES = pytest.mark.parametrize("store_at", [s3_at, azure_at, gcs_at], ids=["s3", "azure", "gcs"])


def seconds(text: str) -> float:
    """The seconds of a duration as obstore takes it."""
    assert text.endswith("s")
    return float(text.removesuffix("s"))


@STORES
def test_a_put_and_its_read_back_end_within_the_limit(
    store_at: Callable[[str], BucketStore], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A put is sent once. Its longest wait and the longest wait of the read after it come to less than 20 seconds."""
    store = store_at(NOBODY)
    made: list[tuple[dict[str, Any], dict[str, Any]]] = []
    make = type(store).client

    def noted(self: BucketStore, obstore: Any, options: dict[str, Any], retries: dict[str, Any]) -> Any:
        made.append((options, retries))
        return make(self, obstore, options, retries)

    monkeypatch.setattr(type(store), "client", noted)
    assert type(error_of(lambda: store.get("a"))) is NotConnectedError
    (reads, _), (puts, _), _ = made
    assert all(retries["max_retries"] == 0 for _, retries in made)  # storage/patience.py does it
    longest_read = JOB_PATIENCE.silent_s + seconds(reads["read_timeout"])
    assert max(seconds(puts["timeout"]), seconds(puts["connect_timeout"])) + longest_read < ANSWER_S_MAX


def test_a_look_into_a_bucket_ends_within_the_limit() -> None:
    """Both tries of minio-py come to less than 20 seconds, and a server's Retry-After does not make them longer."""
    assert isinstance(RETRIES.total, int)
    assert not RETRIES.respect_retry_after_header
    longest_try = max(float(TIMEOUT.connect_timeout or 0), float(TIMEOUT.read_timeout or 0))
    pauses = RETRIES.total * RETRIES.backoff_factor
    assert (1 + RETRIES.total) * longest_try + pauses < ANSWER_S_MAX


# --- by the clock -------------------------------------------------------------------------------------------


@contextmanager
def answered_in_time() -> Iterator[None]:
    """Expect that the block ends within 20 seconds."""
    started = time.monotonic()
    yield
    assert time.monotonic() - started < ANSWER_S_MAX


@pytest.mark.shard("engines")
@STORES
def test_nobody_listens(store_at: Callable[[str], BucketStore]) -> None:
    """If nobody listens, every operation, and a settled put with its pauses, reports in time that nothing was
    sent."""
    store = store_at(NOBODY)
    calls = [*operations(store), ("settle", lambda: settle_put_if_absent(store, "a", b"x"))]
    for name, call in calls:
        with answered_in_time():
            assert type(error_of(call)) is NotConnectedError, name


@pytest.mark.shard("engines")
def test_nobody_listens_where_the_bucket_is_looked_at() -> None:
    """minio-py's calls report it in time too."""
    config = s3_config("bucket", endpoint=NOBODY, access_key="a", secret_key="b")
    for call in (inspect_bucket, create_bucket_if_missing):
        with answered_in_time(), pytest.raises(StoreUnreachableError):
            call(config)


@pytest.mark.shard("engines")
@STORES
def test_a_silent_server(store_at: Callable[[str], BucketStore]) -> None:
    """If a server takes the connection and says nothing, a read and a settled put end in time."""
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen(16)
        store = store_at(f"http://127.0.0.1:{silent.getsockname()[1]}")
        for call in (lambda: store.get("a"), lambda: settle_put_if_absent(store, "a", b"x")):
            with answered_in_time():
                error = error_of(call)
            # The cause of an unknown outcome is what the last look found.
            found = error.__cause__ if isinstance(error, PutOutcomeUnknownError) else error
            assert isinstance(found, StoreUnreachableError)
            assert found.reason is StoreReason.NO_ANSWER


@pytest.mark.shard("engines")
def test_a_server_that_asks_for_a_minute() -> None:
    """A 503 with Retry-After: 60, as a starting MinIO sends it, does not hold a person for longer than 20 seconds."""
    with OddServer((503, xml("SlowDown")), store=s3_at, retry_after_s=60) as server:
        server.store.patience = PERSON_PATIENCE
        for call in (
            lambda: server.store.get("a"),
            lambda: server.store.put_if_absent("a", b"x"),
            lambda: inspect_bucket(server.store.config),
        ):
            with answered_in_time():
                assert type(error_of(call)) in (StorageError, StoreUnreachableError)
