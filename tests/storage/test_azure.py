"""The Azure store on a real Azurite, and in front of servers that misbehave."""

from __future__ import annotations

import io
import os
import pickle
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import polars
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from storage import (
    AccessDeniedError,
    BucketNotFoundError,
    InvalidStoreUrlError,
    NotConnectedError,
    ObjectStore,
    StoreUnreachableError,
    open_store,
    overlap,
    settle_put_if_absent,
)
from storage.azure import AzureStore
from storage.bucket_errors import UnlistableNameError
from storage.reasons import StoreReason
from tests.storage import odd_server
from tests.storage.bucket_conformance import BucketConformance, BucketCore
from tests.storage.odd_server import error_of, operations, xml
from tests.support.azurite import AzureContainer
from tests.support.faults import no_pause
from tests.support.refusals import refused

KEY = "a2V5"


@pytest.fixture(autouse=True)
def no_azure_in_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.startswith(("AZURE_", "TXN_ENGINE_AZURE_")):
            monkeypatch.delenv(name)


def store_of(container: AzureContainer, prefix: str = "pre/fix", **changes: str) -> AzureStore:
    store = open_store(f"{container.url}/{prefix}".rstrip("/"), **(container.settings | changes))
    assert isinstance(store, AzureStore)
    return store


class TestAzureStore(BucketCore):
    @pytest.fixture
    def store(self, azure_container: AzureContainer) -> ObjectStore:
        self.place = azure_container
        return store_of(azure_container)

    def neighbour(self, prefix: str) -> ObjectStore:
        return store_of(self.place, prefix)

    def raw_put(self, _store: ObjectStore, key: str, data: bytes) -> None:
        self.place.put(f"pre/fix/{key}", data)

    def raw_get(self, _store: ObjectStore, key: str) -> bytes:
        return self.place.get(f"pre/fix/{key}")

    def raw_exists(self, _store: ObjectStore, key: str) -> bool:
        return self.place.exists(f"pre/fix/{key}")

    def test_a_name_that_no_listing_gives_is_named(self, store: ObjectStore) -> None:
        """A blob whose name no listing can give is an error of one line that names it, in the folder that it
        lies in."""
        store.put("a/0", b"x")
        self.raw_put(store, "b//c", b"stray")
        assert [info.key for info in store.list("a")] == ["a/0"]
        with pytest.raises(UnlistableNameError) as caught:
            list(store.list("b"))
        assert "'pre/fix/b//c'" in caught.value.seen


@pytest.mark.shard("engines")
class TestAzureStoreInFull(TestAzureStore, BucketConformance):
    """The core again, and tests that need many requests, much data or several processes."""


def test_other_readers_are_told_what_opens_it(azure_container: AzureContainer) -> None:
    """PyArrow opens an object by its key with `arrow_files`, and Polars opens it by its URL with
    `storage_options`."""
    store = store_of(azure_container)
    sink = io.BytesIO()
    pq.write_table(pa.table({"a": [1, 2]}), sink)
    store.put("x/y.parquet", sink.getvalue())
    assert pq.read_table("x/y.parquet", filesystem=store.arrow_files()).num_rows == 2
    found = polars.read_parquet(store.uri("x/y.parquet"), storage_options=store.storage_options())
    assert found.to_dict(as_series=False) == {"a": [1, 2]}


def test_a_missing_container_is_named(azure_container: AzureContainer) -> None:
    """Every operation tells a missing container from a missing blob; a settled put raises it as itself."""
    store = store_of(replace(azure_container, name="no-such-container"))
    for name, call in operations(store):
        error = error_of(call)
        assert type(error) is BucketNotFoundError, name
        assert "no-such-container" in error.place
        assert azure_container.endpoint in error.place
    with pytest.raises(BucketNotFoundError):
        settle_put_if_absent(store, "a", b"x", pause=no_pause)
    assert [(each.name, each.status) for each in store.inspected()] == [
        ("reachable", "ok"),
        ("bucket", "failed"),
    ]


@pytest.mark.parametrize(
    "wrong",
    [{"account_key": KEY}, {"account_key": "", "sas_token": "sv=2023-11-03&sig=d3Jvbmd3cm9uZw%3D%3D"}],
)
def test_wrong_credentials_are_access_denied(azure_container: AzureContainer, wrong: dict[str, str]) -> None:
    """A wrong key, or an invalid token, is AccessDeniedError for every operation, in one line without the
    secret."""
    store = store_of(azure_container, **wrong)
    for name, call in operations(store):
        error = error_of(call)
        assert type(error) is AccessDeniedError, name
        for text in (str(error), repr(error), repr(store), repr(store.config)):
            assert azure_container.key not in text
            assert "d3Jvbmd3" not in text
            assert "\n" not in text
    with pytest.raises(AccessDeniedError):
        settle_put_if_absent(store, "a", b"x", pause=no_pause)


@pytest.mark.parametrize(
    ("keyword", "value", "variable"),
    [
        ("account_key", "c2VjcmV0!", "AZURE_STORAGE_ACCOUNT_KEY"),
        ("account_key", "c2VjcmV0c", "AZURE_STORAGE_ACCOUNT_KEY"),
        ("account_key", "c2Vj\u00e4", "AZURE_STORAGE_ACCOUNT_KEY"),
        ("sas_token", "c2VjcmV0", "AZURE_STORAGE_SAS_TOKEN"),
        ("sas_token", "?sv=1&c2VjcmV0", "AZURE_STORAGE_SAS_TOKEN"),
    ],
)
def test_credentials_that_can_be_none_are_told_before_anything_is_sent(
    keyword: str, value: str, variable: str
) -> None:
    """Credentials that cannot be valid are refused before anything is sent. The error says in one line which
    variable to fix, and does not repeat its value."""
    settings = {"endpoint": "http://127.0.0.1:1/account", "account": "account", keyword: value}
    for name, call in operations(open_store("az://container", **settings)):
        error = error_of(call)
        assert (type(error), error.reason) == (AccessDeniedError, StoreReason.MALFORMED_CREDENTIALS), name
        assert variable in error.action
        assert "c2Vj" not in str(error)


def test_credentials_come_from_the_environment(
    azure_container: AzureContainer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Account, key and endpoint from the environment open the store. Credentials that were given are not
    mixed with them."""
    for name, value in azure_container.environment.items():
        monkeypatch.setenv(name, value)
    store = open_store(azure_container.url)
    store.put("a", b"x")
    assert azure_container.key.encode() not in pickle.dumps(store)
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_KEY", KEY)
    monkeypatch.setenv("AZURE_STORAGE_SAS_TOKEN", "sv=2023-11-03&sig=bm9uZQ%3D%3D")
    monkeypatch.setenv("AZURE_CLIENT_ID", "somebody")
    assert store_of(azure_container, "").get("a") == b"x"


# -- stores that cannot be reached


def at(endpoint: str) -> AzureStore:
    """A store at this endpoint. Opening it sends no request."""
    settings = {"endpoint": f"{endpoint}/account", "account": "account", "account_key": KEY}
    store = open_store("az://container", **settings)
    assert isinstance(store, AzureStore)
    return store


def odd(*script: tuple[int, bytes]) -> odd_server.OddServer:
    """A server with this script, and an Azure store that uses it."""
    return odd_server.OddServer(*script, store=at)


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
        error = error_of(call)
        assert type(error) is NotConnectedError, name


# -- servers that answer oddly


def test_a_404_that_is_not_the_services_is_not_absence() -> None:
    """A proxy's 404 is not "no such blob", because settling would then take a taken slot for a free one."""
    with odd((404, b"<html>not here</html>")) as server:
        for name, call in operations(server.store):
            assert type(error_of(call)) is StoreUnreachableError, name


def test_a_conditional_put_is_sent_once() -> None:
    """A 500 or 503 on put_if_absent is an error after exactly one request, because the client must not
    send it again.
    """
    for status, code in ((500, "InternalError"), (503, "ServerBusy"), (500, "OperationTimedOut")):
        with odd((status, xml(code))) as server:
            error = error_of(lambda: server.store.put_if_absent("a", b"x"))
            assert type(error) is StoreUnreachableError
            assert len(server.requests) == 1


def test_a_read_is_tried_again() -> None:
    """The caller does not notice a passing 503 on a read."""
    with odd((503, xml("ServerBusy")), (200, b"data")) as server:
        assert server.store.get("a") == b"data"
        assert len(server.requests) == 2


@pytest.mark.parametrize(("status", "code"), [(409, "BlobAlreadyExists"), (412, "ConditionNotMet")])
def test_taken_is_only_a_hint(status: int, code: str) -> None:
    """put_if_absent returns False for 409 and 412. Settling finds out by reading who wrote the blob."""
    with odd((status, xml(code)), (200, b"ours")) as server:
        assert settle_put_if_absent(server.store, "a", b"ours", pause=no_pause).won
        assert [request.split()[0] for request in server.requests] == ["PUT", "GET"]


def test_a_put_that_was_never_heard_of_is_settled_by_its_bytes() -> None:
    """If a put was answered with a 500, the blob that is there decides: our bytes mean that it won, and other
    bytes that it lost."""
    for there, won in ((b"ours", True), (b"theirs", False)):
        with odd((500, xml("InternalError")), (200, there)) as server:
            outcome = settle_put_if_absent(server.store, "a", b"ours", pause=no_pause)
            assert (outcome.won, outcome.winner) == (won, there)


def test_a_409_that_wrote_nothing_is_sent_again() -> None:
    """A 409 for a deleted container or a lease means that nothing was written, so the same bytes are put at
    the same key again."""
    with odd((409, xml("LeaseIdMissing")), (404, xml("BlobNotFound")), (200, b"")) as server:
        assert settle_put_if_absent(server.store, "a", b"ours", pause=no_pause).won
        assert [request.split()[0] for request in server.requests] == ["PUT", "GET", "PUT"]


# -- URLs and settings


@pytest.mark.parametrize(
    ("url", "settings", "wanted"),
    [
        ("az://container", {"account": "ledger"}, "az://container of account ledger at Azure"),
        ("azure://container/a/", {"account": "ledger"}, "az://container/a of account ledger at Azure"),
        (
            "abfss://container@ledger.dfs.core.windows.net/a",
            {},
            "az://container/a of account ledger at Azure",
        ),
        ("abfs://container@ledger.blob.core.windows.net", {}, "az://container of account ledger at Azure"),
    ],
)
def test_urls(url: str, settings: dict[str, str], wanted: str) -> None:
    """The account is part of the URL, as Hadoop writes it, or a setting. One place always has one URL."""
    store = open_store(url, **settings)
    assert isinstance(store, AzureStore)
    assert store.described() == f"Azure Blob Storage, {wanted}"
    assert store.uri("k") == f"abfss://container@ledger.dfs.core.windows.net/{store.config.prefix}/k".replace(
        "//k", "/k"
    )


@pytest.mark.parametrize(
    ("url", "settings", "reason"),
    [
        ("az://container", {}, StoreReason.NO_ACCOUNT),
        ("az://container", {"account": "Not/One"}, StoreReason.BAD_ACCOUNT_NAME),
        ("az://Container", {"account": "ledger"}, StoreReason.BAD_BUCKET_NAME),
        ("az://a--b", {"account": "ledger"}, StoreReason.BAD_BUCKET_NAME),
        ("az://", {"account": "ledger"}, StoreReason.BAD_BUCKET_NAME),
        ("az://container/a b", {"account": "ledger"}, StoreReason.BAD_PREFIX),
        ("az://container?sig=x", {"account": "ledger"}, StoreReason.URL_WITH_QUERY),
        ("az://ledger:a2V5@container", {"account": "ledger"}, StoreReason.URL_WITH_CREDENTIALS),
        ("abfss://container@ledger.dfs.core.windows.net/a@b", {}, StoreReason.URL_WITH_CREDENTIALS),
        ("abfss://container:a2V5@ledger.dfs.core.windows.net", {}, StoreReason.URL_WITH_CREDENTIALS),
        (
            "abfss://container@ledger.dfs.core.windows.net",
            {"account": "other"},
            StoreReason.OTHER_THAN_THE_URL,
        ),
        (
            "az://container",
            {"account": "ledger", "account_key": "k", "sas_token": "s"},
            StoreReason.SEVERAL_CREDENTIALS,
        ),
        ("az://container", {"account": "ledger", "endpoint": "http://u:a2V5@h"}, StoreReason.BAD_ENDPOINT),
        ("az://container", {"account": "ledger", "region": "x"}, StoreReason.SETTING_OF_OTHER_STORES),
    ],
)
def test_what_is_no_store(url: str, settings: dict[str, Any], reason: StoreReason) -> None:
    """What is not a valid Azure store is refused in one line that does not repeat a key."""
    with refused(InvalidStoreUrlError, reason) as caught:
        open_store(url, **settings)
    assert "a2V5" not in str(caught.value)
    assert "\n" not in str(caught.value)


def test_containers_of_two_accounts_are_two_places() -> None:
    """Containers of the same name in two accounts do not overlap. A container overlaps with each of its prefixes."""
    one = open_store("abfss://c01@first.dfs.core.windows.net/a")
    assert overlap(one, open_store("az://c01/a/b", account="first"))
    assert not overlap(one, open_store("az://c01/a", account="second"))
