"""The S3 store on a real MinIO, and on servers that misbehave."""

from __future__ import annotations

import base64
import hashlib
import itertools
import os
import pickle
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from storage import (
    AccessDeniedError,
    BucketNotFoundError,
    InvalidStoreUrlError,
    NotConnectedError,
    ObjectStore,
    PutIfAbsentUnsupportedError,
    StoreNotWritableError,
    StoreUnreachableError,
    open_store,
    settle_put_if_absent,
)
from storage.reasons import StoreReason
from storage.s3 import S3Store
from storage.s3.config import s3_config
from storage.s3.minio_client import minio_client
from tests.conftest import S3Bucket
from tests.storage import odd_server
from tests.storage.bucket_conformance import ConformanceByMinio
from tests.storage.odd_server import error_of, operations, xml
from tests.support.certificates import make_certificates
from tests.support.faults import keys_of, no_pause
from tests.support.refusals import refused


def store_of(bucket: S3Bucket, prefix: str = "pre/fix", **changes: Any) -> S3Store:
    arguments = {
        "endpoint": bucket.endpoint,
        "access_key": bucket.access_key,
        "secret_key": bucket.secret_key,
    } | changes
    return S3Store(s3_config(bucket.name, prefix, **arguments))


@pytest.fixture(autouse=True)
def no_aws_in_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.startswith("AWS_") or name == "TXN_ENGINE_S3_ENDPOINT":
            monkeypatch.delenv(name)


class S3Conformance(ConformanceByMinio):
    """An S3 store in the bucket that a subclass's fixture `bucket` gives."""

    @pytest.fixture
    def bucket(self) -> S3Bucket:
        raise NotImplementedError

    @pytest.fixture
    def store(self, bucket: S3Bucket) -> ObjectStore:
        self.place = bucket
        self.raw = bucket.client()
        return store_of(bucket)

    def neighbour(self, prefix: str) -> ObjectStore:
        return store_of(self.place, prefix)


@pytest.mark.shard("engines")
class TestSeaweedStore(S3Conformance):
    """A second real server. SeaweedFS is a file tree: it orders names folder by folder, and a folder outlives the
    objects in it. The engine lists only folders without folders (`tests/engine/test_seaweed.py`).
    """

    lists_nested_folders_by_key = False
    forgets_emptied_folders = False

    @pytest.fixture
    def bucket(self, seaweed_bucket: S3Bucket) -> S3Bucket:
        return seaweed_bucket


@pytest.mark.minio
class TestS3Store(S3Conformance):
    @pytest.fixture
    def bucket(self, minio_bucket: S3Bucket) -> S3Bucket:
        return minio_bucket

    @pytest.mark.parametrize("name", ["Icon\r", "new\nline", "tab\t/below", "del\x7f"])
    def test_names_that_obstore_has_no_path_for_are_listed(self, store: ObjectStore, name: str) -> None:
        """Objects with control characters in their names, which S3 accepts and file managers leave, are
        listed and hide no other object."""
        for key in ("a/0", "a/z/0", "other/a"):
            store.put(key, b"x")
        self.raw_put(store, f"a/{name}", b"stray")
        assert set(keys_of(store.list(""))) == {"a/0", f"a/{name}", "a/z/0", "other/a"}
        assert keys_of(store.list("")) == sorted(keys_of(store.list("")))
        assert {info.key: info.size for info in store.list("a")} == {"a/0": 1, f"a/{name}": 5, "a/z/0": 1}
        assert keys_of(store.list("", start_after="a/z/0")) == ["other/a"]
        assert store.list_folders("a") == sorted({"z", *name.split("/")[:-1]})
        assert store.list_folders("") == ["a", "other"]

    @pytest.mark.parametrize("stray", [None, "a/\r", "b/\r", "\r"])
    def test_the_markers_of_folders(self, store: ObjectStore, stray: str | None) -> None:
        """Empty objects whose names end with a slash are listed alike by every listing, and never as a folder
        without a name."""
        for key in ("a/x/0", "b/0"):
            store.put(key, b"x")
        for key in ("", "a/", "a/m/", "a/x/", "b/", "b/0/"):
            self.raw_put(store, key, b"")
        if stray is not None:
            self.raw_put(store, stray, b"")
        held = sorted(
            ["a/", "a/m/", "a/x/", "a/x/0", "b/", "b/0", "b/0/", *([] if stray is None else [stray])]
        )
        assert sorted(keys_of(store.list(""))) == held
        assert sorted(keys_of(store.list("a"))) == [key for key in held if key.startswith("a/")]
        assert store.list_folders("") == ["a", "b"]
        assert store.list_folders("a") == ["m", "x"]
        assert store.list_folders("a/m") == []
        assert {info.key: info.size for info in store.list("b")}["b/0"] == 1

    def test_such_a_name_behind_many(self, store: ObjectStore) -> None:
        """A name with a control character after many others is listed, and no key of the earlier pages is
        given twice."""
        names = [f"a/{number:04d}" for number in range(1_100)]
        with ThreadPoolExecutor(16) as pool:
            list(pool.map(lambda key: store.put(key, b"x"), names))
        self.raw_put(store, "a/1099\r", b"x")
        store.put("a/2", b"x")
        assert keys_of(store.list("a")) == [*names, "a/1099\r", "a/2"]


# -- errors of the real server


@pytest.mark.minio
def test_a_missing_bucket_is_named(minio_bucket: S3Bucket) -> None:
    """Every operation tells a missing bucket from a missing object; a settled put raises it as itself."""
    arguments = {"access_key": minio_bucket.access_key, "secret_key": minio_bucket.secret_key}
    store = S3Store(s3_config("no-such-bucket", endpoint=minio_bucket.endpoint, **arguments))
    for name, call in operations(store):
        error = error_of(call)
        assert type(error) is BucketNotFoundError, name
        assert "no-such-bucket" in error.place
        assert minio_bucket.endpoint in error.place
    with pytest.raises(BucketNotFoundError):
        settle_put_if_absent(store, "a", b"x", pause=no_pause)


@pytest.mark.minio
@pytest.mark.parametrize("wrong", ["access_key", "secret_key"])
def test_wrong_credentials_are_access_denied(minio_bucket: S3Bucket, wrong: str) -> None:
    """A wrong key id or secret is AccessDeniedError everywhere, in one line without any secret."""
    store = store_of(minio_bucket, **{wrong: "wrongwrongwrongwrong"})
    for name, call in operations(store):
        error = error_of(call)
        assert type(error) is AccessDeniedError, name
        for text in (str(error), repr(error), repr(store), repr(store.config)):
            assert minio_bucket.secret_key not in text
            assert "wrongwrong" not in text
            assert "\n" not in text
    with pytest.raises(AccessDeniedError):
        settle_put_if_absent(store, "a", b"x", pause=no_pause)


@pytest.mark.minio
def test_credentials_come_from_the_environment(
    minio_bucket: S3Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Keys and endpoint from the environment open the store. The endpoint's variables have an order."""
    for name, value in minio_bucket.environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
    open_store(minio_bucket.url).put("a", b"x")
    monkeypatch.delenv("TXN_ENGINE_S3_ENDPOINT")
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", minio_bucket.endpoint)
    assert open_store(minio_bucket.url).get("a") == b"x"


@pytest.mark.minio
def test_keywords_are_not_mixed_with_the_environment(
    minio_bucket: S3Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A key pair given by keyword is used alone: a session token or key in the environment is not added to
    it.
    """
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "other")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "other-secret")
    monkeypatch.setenv("AWS_SESSION_TOKEN", "a-token-of-another-key")
    store_of(minio_bucket).put("a", b"x")
    assert store_of(minio_bucket).get("a") == b"x"


@pytest.mark.minio
def test_what_is_pickled(minio_bucket: S3Bucket, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keys given by keyword go along in a pickle; keys from the environment do not, but the endpoint does."""
    given = store_of(minio_bucket)
    given.put("a", b"x")
    assert pickle.loads(pickle.dumps(given)).get("a") == b"x"
    for name, value in minio_bucket.environment.items():
        monkeypatch.setenv(name, value)
    from_environment = open_store(f"{minio_bucket.url}/pre/fix")
    packed = pickle.dumps(from_environment)
    assert minio_bucket.secret_key.encode() not in packed
    monkeypatch.delenv("TXN_ENGINE_S3_ENDPOINT")
    assert pickle.loads(packed).get("a") == b"x"


@pytest.mark.minio
def test_no_credentials_are_explained(minio_bucket: S3Bucket, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without any credentials the error says which variables to set, or that access is denied."""
    monkeypatch.setenv("AWS_CONFIG_FILE", "/nonexistent")
    error = error_of(lambda: S3Store(s3_config(minio_bucket.name, endpoint=minio_bucket.endpoint)).get("a"))
    assert isinstance(error, (AccessDeniedError, StoreUnreachableError))


# -- stores that cannot be reached


def test_a_refused_connection_is_unreachable() -> None:
    """If nobody listens, every operation and a settled put report that nothing was sent."""
    store = S3Store(s3_config("bucket", endpoint="http://127.0.0.1:1", access_key="a", secret_key="b"))
    for name, call in operations(store):
        error = error_of(call)
        assert type(error) is NotConnectedError, name
        assert "127.0.0.1:1" in error.place
    with pytest.raises(NotConnectedError):
        settle_put_if_absent(store, "a", b"x", pause=no_pause)


def test_a_host_that_does_not_resolve_is_unreachable() -> None:
    """An unknown host is StoreUnreachableError."""
    store = S3Store(s3_config("bucket", endpoint="http://store.invalid:9000", access_key="a", secret_key="b"))
    error = error_of(lambda: store.get("a"))
    assert type(error) is NotConnectedError


# -- servers that answer oddly


def odd(*script: tuple[int, bytes]) -> odd_server.OddServer:
    """A server with this script, and an S3 store that uses it."""
    return odd_server.OddServer(*script, store=open_bucket_at)


def open_bucket_at(endpoint: str) -> S3Store:
    return S3Store(s3_config("bucket", endpoint=endpoint, access_key="a", secret_key="b"))


def test_a_404_that_is_not_s3_s_is_not_absence() -> None:
    """A proxy's 404 is not "no such object", because settling would then take a taken slot for a free one."""
    with odd((404, b"<html>not here</html>")) as server:
        for name, call in operations(server.store):
            assert type(error_of(call)) is StoreUnreachableError, name


def test_a_conditional_put_is_sent_once() -> None:
    """A 500 or 503 on put_if_absent is an error after exactly one request, because the client must not
    send it again.
    """
    for status, code in ((500, "InternalError"), (503, "SlowDown")):
        with odd((status, xml(code))) as server:
            error = error_of(lambda: server.store.put_if_absent("a", b"x"))
            assert type(error) is StoreUnreachableError
            assert f"{status} {code}" in str(error)  # made from the answer, here alone
            assert len(server.requests) == 1


def test_a_read_is_tried_again() -> None:
    """The caller does not notice a passing 503 on a read."""
    with odd((503, xml("SlowDown")), (200, b"data")) as server:
        assert server.store.get("a") == b"data"
        assert len(server.requests) == 2


@pytest.mark.parametrize("status", [409, 412])
def test_taken_is_only_a_hint(status: int) -> None:
    """put_if_absent returns False for 412 and 409. Settling finds out by reading who wrote the object."""
    with odd((status, xml("Conflict")), (200, b"ours")) as server:
        outcome = settle_put_if_absent(server.store, "a", b"ours", pause=no_pause)
        assert outcome.won
        assert [request.split()[0] for request in server.requests] == ["PUT", "GET"]


def test_a_409_that_wrote_nothing_is_sent_again() -> None:
    """S3's 409 means that nothing was written, so the same bytes are put at the same key again."""
    with odd((409, xml("ConditionalRequestConflict")), (404, xml("NoSuchKey")), (200, b"")) as server:
        assert settle_put_if_absent(server.store, "a", b"ours", pause=no_pause).won
        assert [request.split()[0] for request in server.requests] == ["PUT", "GET", "PUT"]


def test_a_store_without_conditional_writes_says_so() -> None:
    """A 501 to the conditional header is PutIfAbsentUnsupportedError."""
    with odd((501, xml("NotImplemented"))) as server:
        assert type(error_of(lambda: server.store.put_if_absent("a", b"x"))) is PutIfAbsentUnsupportedError


def test_a_wrong_region_is_explained() -> None:
    """A redirect to another region names the region used."""
    with odd((301, xml("PermanentRedirect"))) as server:
        assert "us-east-1" in str(error_of(lambda: server.store.get("a")))


# -- configuration


@pytest.mark.parametrize(
    "endpoint",
    [
        "127.0.0.1:9000",
        "ftp://host",
        "http://user:topsecret@host:9000",
        "http://",
        "http://host/?x=topsecret",
        "http://a b",
    ],
)
def test_bad_endpoints(endpoint: str) -> None:
    """An endpoint is http(s)://host[:port]; credentials in it are refused and not repeated."""
    with pytest.raises(InvalidStoreUrlError) as caught:
        s3_config("bucket", endpoint=endpoint)
    if "@" in endpoint:
        assert "topsecret" not in str(caught.value)


def test_half_a_key_pair_is_refused() -> None:
    """An access key without its secret is a mistake, not a reason to look elsewhere."""
    with refused(InvalidStoreUrlError, StoreReason.HALF_A_KEY_PAIR):
        s3_config("bucket", access_key="a")


def test_region_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """The region is the keyword, else AWS_REGION, else AWS_DEFAULT_REGION, else us-east-1."""
    assert s3_config("bucket").region == "us-east-1"
    monkeypatch.setenv("AWS_DEFAULT_REGION", "eu-west-1")
    assert s3_config("bucket").region == "eu-west-1"
    monkeypatch.setenv("AWS_REGION", "eu-north-1")
    assert s3_config("bucket").region == "eu-north-1"
    assert s3_config("bucket", region="ap-east-1").region == "ap-east-1"


@pytest.mark.parametrize(
    ("status", "code"), [(400, "XMinioAdminBucketQuotaExceeded"), (507, "XMinioStorageFull")]
)
def test_a_full_bucket_is_told_at_once(status: int, code: str) -> None:
    """A put that a full bucket refuses is an error that says so, after one request and one look."""
    with odd((status, xml(code)), (404, xml("NoSuchKey"))) as server:
        with refused(StoreNotWritableError, StoreReason.NO_ROOM):
            settle_put_if_absent(server.store, "a", b"ours", pause=no_pause)
        assert [request.split()[0] for request in server.requests] == ["PUT", "GET"]


def test_every_put_carries_a_checksum() -> None:
    """AWS takes no put without a checksum into a bucket that locks objects by default, and every byte is checked."""
    with odd((200, b"")) as server:
        server.store.put_if_absent("a", b"one")
        server.store.put("b", b"two")
        sent = [headers["x-amz-checksum-sha256"] for headers in server.headers]
    assert sent == [base64.b64encode(hashlib.sha256(data).digest()).decode() for data in (b"one", b"two")]


# -- credentials, certificates, encryption


@pytest.mark.minio
def test_keys_that_are_exchanged_meanwhile(minio_bucket: S3Bucket, monkeypatch: pytest.MonkeyPatch) -> None:
    """A store that took its keys from the environment goes on with those that stand there when the old ones are
    refused."""

    def stand(secret: str) -> None:
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", minio_bucket.access_key)
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", secret)

    calls: list[Callable[[S3Store], object]] = [
        lambda store: store.put_if_absent("a", b"x"),
        lambda store: store.put("a", b"x"),
        lambda store: store.get("a"),
        lambda store: list(store.list("")),
        lambda store: store.list_folders(""),
        lambda store: store.head("a"),
        lambda store: store.delete("a"),
    ]
    for call in calls:
        stand("a-secret-that-has-expired")
        store = S3Store(s3_config(minio_bucket.name, endpoint=minio_bucket.endpoint))
        with pytest.raises(AccessDeniedError):
            call(store)
        stand(minio_bucket.secret_key)
        call(store)


def test_keys_that_are_new_at_each_call_and_never_right() -> None:
    """A call that is refused again and again ends, also if it finds other keys each time."""
    given = (("key", f"secret {number}") for number in itertools.count())
    config = replace(s3_config("bucket"), provider=lambda: next(given))
    with odd_server.OddServer(
        (403, xml("AccessDenied")), store=lambda endpoint: S3Store(replace(config, endpoint=endpoint))
    ) as server:
        for name, call in operations(server.store):
            before = len(server.requests)
            assert type(error_of(call)) is AccessDeniedError, name
            assert 2 <= len(server.requests) - before <= 8, name


@pytest.mark.minio
def test_keys_of_a_callable(minio_bucket: S3Bucket) -> None:
    """A callable is asked again when its keys are refused. A pickle has the keys of its moment. What it gives is
    checked, and a store of another kind takes none."""
    right = (minio_bucket.access_key, minio_bucket.secret_key, None)
    given: list[Any] = [("nobody", "wrong-secret")]
    store = open_store(minio_bucket.url, endpoint=minio_bucket.endpoint, credentials=lambda: given[-1])
    with pytest.raises(AccessDeniedError):
        store.put("a", b"x")
    given.append(list(right))
    store.put("a", b"x")
    assert pickle.loads(pickle.dumps(store)).get("a") == b"x"
    assert minio_bucket.secret_key not in repr(store)
    for wrong in (None, "key", ("key",), ("key", 5), ("", "secret")):
        given.append(wrong)
        with refused(InvalidStoreUrlError, StoreReason.MALFORMED_CREDENTIALS):
            open_store(minio_bucket.url, endpoint=minio_bucket.endpoint, credentials=lambda: given[-1]).get(
                "a"
            )
    with pytest.raises(InvalidStoreUrlError):
        open_store("gs://bucket", credentials=lambda: right)


@pytest.mark.minio
def test_keys_of_a_profile(minio_bucket: S3Bucket, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Without keys in the environment those of a profile count, and the environment's count before them."""
    file = tmp_path / "credentials"
    file.write_text(
        f"[default]\naws_access_key_id = nobody\naws_secret_access_key = wrong-secret\n"
        f"[ledger]\naws_access_key_id = {minio_bucket.access_key}\n"
        f"aws_secret_access_key = {minio_bucket.secret_key}\n"
    )
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(file))
    config = s3_config(minio_bucket.name, endpoint=minio_bucket.endpoint)
    with pytest.raises(AccessDeniedError):
        S3Store(config).put("a", b"x")
    monkeypatch.setenv("AWS_PROFILE", "ledger")
    S3Store(config).put("a", b"x")
    assert S3Store(config).credentials_found().seen == "profile 'ledger' of AWS's file of credentials"
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "nobody")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wrong-secret")
    with pytest.raises(AccessDeniedError):
        S3Store(config).put("a", b"x")


def test_the_encryption_that_every_put_asks_for() -> None:
    """The settings for server-side encryption become headers of every put. A name that S3 does not know is refused."""
    config = s3_config(
        "bucket",
        endpoint="http://127.0.0.1:1",
        access_key="a",
        secret_key="b",
        server_side_encryption="aws:kms",
        sse_kms_key_id="the-key",
    )
    with odd_server.OddServer(
        (200, b""), store=lambda endpoint: S3Store(replace(config, endpoint=endpoint))
    ) as server:
        server.store.put_if_absent("a", b"one")
        server.store.put("b", b"two")
        server.store.head("a")
    names = ("x-amz-server-side-encryption", "x-amz-server-side-encryption-aws-kms-key-id")
    sent = [tuple(headers.get(name) for name in names) for headers in server.headers]
    assert sent[:2] == [("aws:kms", "the-key")] * 2
    with refused(InvalidStoreUrlError, StoreReason.BAD_ENCRYPTION):
        s3_config("bucket", server_side_encryption="rot13")


BUNDLES: dict[str, Callable[[bytes, bytes], bytes]] = {
    "alone.pem": lambda authority, other: authority,
    "first.pem": lambda authority, other: authority + other,
    "second.pem": lambda authority, other: other + authority,
    "commented.pem": lambda authority, other: "# Stammzertifikat für 銀行\n".encode() + authority,
    "latin.pem": lambda authority, other: b"# f\xfcr\n" + authority,
    "windows.pem": lambda authority, other: b"\xef\xbb\xbf# a\r\n" + authority.replace(b"\n", b"\r\n"),
}
"""Files of certificates, as people keep them."""


def test_a_private_authority(tmp_path: Path) -> None:
    """A server whose certificate is of a private authority is refused for its certificate, and works with that
    authority in the CA bundle, for minio-py too. A file without a certificate is refused."""
    files, other = make_certificates(tmp_path / "files"), make_certificates(tmp_path / "other")

    def at(endpoint: str, **settings: str) -> S3Store:
        return S3Store(s3_config("bucket", endpoint=endpoint, access_key="a", secret_key="b", **settings))

    with odd_server.OddServer((200, b"data"), store=at, certificate=(files.certificate, files.key)) as server:
        with refused(StoreUnreachableError, StoreReason.BAD_CERTIFICATE):
            server.store.get("a")
        trusting = at(server.endpoint, ca_bundle=str(files.authority))
        assert trusting.get("a") == b"data"
        assert minio_client(trusting.config).lifecycle(trusting.config) == b"data"
        for name, contents in BUNDLES.items():
            bundle = tmp_path / name
            bundle.write_bytes(contents(files.authority.read_bytes(), other.authority.read_bytes()))
            trusting = at(server.endpoint, ca_bundle=str(bundle))
            assert trusting.get("a") == b"data", name
            assert minio_client(trusting.config).lifecycle(trusting.config) == b"data", name
        for name, wrong in (("text.pem", b"no certificate"), ("empty.pem", b""), ("none.pem", None)):
            if wrong is not None:
                (tmp_path / name).write_bytes(wrong)
            config = at(server.endpoint, ca_bundle=str(tmp_path / name)).config
            for use in (lambda config: S3Store(config).get("a"), minio_client):
                with refused(InvalidStoreUrlError, StoreReason.BAD_CERTIFICATE):
                    use(config)


def test_a_proxy_with_a_password(monkeypatch: pytest.MonkeyPatch) -> None:
    """Both clients go through the environment's proxy, and give it the user and the password of its URL."""
    for name in ("http_proxy", "no_proxy", "all_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    with odd_server.OddServer((200, b"data"), store=S3Store) as server:
        monkeypatch.setenv("http_proxy", server.endpoint.replace("://", "://us%40er:p%3Aw@"))
        config = s3_config("bucket", endpoint="http://store.invalid:9000", access_key="a", secret_key="b")
        assert S3Store(config).get("a") == b"data"
        assert minio_client(config).lifecycle(config) == b"data"
    sent = [headers.get("proxy-authorization") for headers in server.headers]
    assert sent == ["Basic " + base64.b64encode(b"us@er:p:w").decode()] * 2


def test_a_private_authority_is_trusted_beside_the_systems(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A CA bundle adds to the system's authorities."""
    system, own = make_certificates(tmp_path / "system"), make_certificates(tmp_path / "own")
    monkeypatch.setenv("SSL_CERT_FILE", str(system.authority))
    with odd_server.OddServer(
        (200, b"data"), store=S3Store, certificate=(system.certificate, system.key)
    ) as server:
        config = s3_config(
            "bucket", endpoint=server.endpoint, access_key="a", secret_key="b", ca_bundle=str(own.authority)
        )
        assert S3Store(config).get("a") == b"data"
        assert minio_client(config).lifecycle(config) == b"data"
