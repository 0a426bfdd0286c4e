from __future__ import annotations

from pathlib import Path

import pytest

from storage import (
    BucketNotFoundError,
    InvalidStoreUrlError,
    LocalStore,
    MemoryStore,
    StorageError,
    open_store,
)
from storage.reasons import StoreReason
from storage.s3 import S3Store
from tests.support.refusals import refused


def test_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file URL, an absolute, a relative and a path object name the same store."""
    monkeypatch.chdir(tmp_path)
    wanted = (tmp_path / "my store").as_uri()
    for url in (
        wanted,
        f"file://localhost{tmp_path}/my store",
        str(tmp_path / "my store"),
        "my store",
        "./my store/",
    ):
        store = open_store(url)
        assert isinstance(store, LocalStore)
        assert store.url == wanted
    assert open_store(tmp_path / "my store").url == wanted


def test_a_home_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A path that begins with a tilde lies in the user's home folder."""
    monkeypatch.setenv("HOME", str(tmp_path))
    assert open_store("~/x").url == (tmp_path / "x").as_uri()


def test_memory() -> None:
    """memory://name is the store with that name in this process."""
    open_store("memory://opening").put("a", b"x")
    store = open_store("memory://opening/")
    assert isinstance(store, MemoryStore)
    assert store.get("a") == b"x"


def test_memory_without_a_name() -> None:
    """memory:// is a store of its own, which lives as long as the process."""
    open_store("memory://").put("nameless", b"x")
    assert open_store("memory://").get("nameless") == b"x"


@pytest.mark.parametrize(
    ("url", "wanted"),
    [
        ("s3://bucket", "s3://bucket"),
        ("s3://bucket/", "s3://bucket"),
        ("s3://bucket/a/b/", "s3://bucket/a/b"),
        ("s3a://my.bucket-1/a", "s3://my.bucket-1/a"),
    ],
)
def test_s3_needs_no_server_to_open(url: str, wanted: str) -> None:
    """Opening a store sends no request. The first call does."""
    store = open_store(url, endpoint="http://127.0.0.1:1", access_key="a", secret_key="b")
    assert isinstance(store, S3Store)
    assert store.url == wanted
    assert store.uri("k") == f"{wanted}/k"


@pytest.mark.parametrize(
    "url",
    ["", " ", "ftp://bucket", "http://host/bucket", "file://host/path", "file://", "file://relative", "memory://a/b",
     "s3://", "s3:///key", "s3:/bucket/x", "s3:bucket", "file:/x", "memory:", "s3://b", "s3://bucket?x=1",
     "s3://bucket/a#b", "s3://bucket/a b", "s3://bucket/../x", "s3://bucket:80/x", "s3://[bucket/x", "a\0b"],
)  # fmt: skip
def test_what_is_not_a_store(url: str) -> None:
    """A text that is neither a path nor the URL of a store is InvalidStoreUrlError, in one line that says
    what a URL looks like."""
    with pytest.raises(InvalidStoreUrlError) as caught:
        open_store(url)
    assert "\n" not in str(caught.value)


def test_credentials_in_a_url_are_refused_and_not_repeated() -> None:
    """A URL with user and password is refused, and the message does not show them."""
    for secret in ("topsecret", "top/secret", "top/secret..", "top/@se+cret"):
        with refused(InvalidStoreUrlError, StoreReason.URL_WITH_CREDENTIALS) as caught:
            open_store(f"s3://AKIAKEY:{secret}@bucket/x")
        for part in ("top", "secret", "AKIAKEY"):
            assert part not in str(caught.value)
        assert "AWS_ACCESS_KEY_ID" in caught.value.action
    with pytest.raises(InvalidStoreUrlError) as caught:
        open_store("s3:/AKIAKEY:topsecret@bucket/x")
    assert "topsecret" not in str(caught.value)
    with refused(InvalidStoreUrlError, StoreReason.BAD_BUCKET_NAME) as caught:
        open_store("s3://AKIAKEY:topsecret")
    assert "AKIAKEY" not in caught.value.seen


@pytest.mark.parametrize(
    "url",
    [
        "s3://AKIA:top HUNTER2@bucket",
        "s3://AKIA:top\nHUNTER2@bucket",
        "s3://bucket#HUNTER2",
        "s3://bucket/a#HUNTER2",
        "s3://bucket/ x?HUNTER2",
        "s3://bucket?key=HUNTER2",
        "s3://KEY:HUNTER2/bucket",
        "file://user:HUNTER2@host/x",
        "s3//KEY:HUNTER2@bucket",
        "s3:KEY:HUNTER2@bucket",
        "memory://HUNTER2@x",
        "ftp://user:HUNTER2@host",
        "DefaultEndpointsProtocol=https;AccountName=ledger;AccountKey=HUNTER2==;EndpointSuffix=core.windows.net",
        "BlobEndpoint=https://ledger.blob.core.windows.net;SharedAccessSignature=sv=1&sig=HUNTER2",
        "AccountName=ledger;AccountKey=HUNTER2==;BlobEndpoint=http://127.0.0.1:10000/ledger",
        "az://container/x;AccountKey=HUNTER2",
    ],
)
def test_no_secret_of_a_url_is_repeated(url: str) -> None:
    """Whatever is wrong with a URL, its error repeats nothing of it that may be a key."""
    with pytest.raises(InvalidStoreUrlError) as caught:
        open_store(url, account="ledger") if url.startswith("az:") else open_store(url)
    assert "HUNTER2" not in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("url", ["s3://bucket/a b", "az://container/ä", "gs://bucket/a/../b"])
def test_a_place_that_no_key_begins_with(url: str) -> None:
    """The error shows the place, its blanks too, and says which characters and lengths are allowed."""
    with refused(InvalidStoreUrlError, StoreReason.BAD_PREFIX) as caught:
        open_store(url, **({"account": "ledger"} if url.startswith("az") else {}))
    assert repr(url.partition("://")[2].partition("/")[2]) in caught.value.seen
    assert "[A-Za-z0-9._=+-]" in caught.value.action


@pytest.mark.parametrize("endpoint", ["http://user:top/secret@host", "user:top/secret@host"])
def test_credentials_in_an_endpoint_are_refused_and_not_repeated(endpoint: str) -> None:
    """An endpoint with user and password is refused, and the message does not show them."""
    with refused(InvalidStoreUrlError, StoreReason.BAD_ENDPOINT) as caught:
        open_store("s3://bucket/x", endpoint=endpoint)
    assert "top" not in str(caught.value)


@pytest.mark.parametrize("blanks", [" ", "\n", "\u00a0", "\r\n"])
@pytest.mark.parametrize("url", ["s3://bucket", "s3://bucket/a", "file://{}", "{}", "memory://name"])
def test_blanks_around_a_url_are_refused_and_shown(tmp_path: Path, url: str, blanks: str) -> None:
    """A blank before or behind a URL is named, and makes no folder of its own."""
    place = url.format(tmp_path / "store")
    for wrong, end in ((place + blanks, "ends"), (blanks + place, "begins")):
        with refused(InvalidStoreUrlError, StoreReason.BLANK_AROUND_URL) as caught:
            open_store(wrong)
        assert f"{end} with {blanks!r}" in caught.value.seen
    assert list(tmp_path.iterdir()) == []
    assert open_store(tmp_path / "a ").url.endswith("a%20")  # a path is meant as it is written


def test_create(tmp_path: Path) -> None:
    """create=False makes nothing. create=True makes the folder, but not its parents."""
    with pytest.raises(BucketNotFoundError):
        open_store(tmp_path / "a", create=False)
    with pytest.raises(BucketNotFoundError):
        open_store(tmp_path / "a" / "b")
    open_store(tmp_path / "a")
    assert (tmp_path / "a").is_dir()


def test_all_errors_are_storage_errors(tmp_path: Path) -> None:
    """All errors of opening are StorageErrors, so one except clause is enough."""
    (tmp_path / "file").write_text("")
    for url in (str(tmp_path / "file"), "x://y", "s3://UPPER_/.."):
        with pytest.raises(StorageError):
            open_store(url)
