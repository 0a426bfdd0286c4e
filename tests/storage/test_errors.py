from __future__ import annotations

import copy
import pickle

import pytest

import storage.errors
from storage import StorageError
from storage.reasons import StoreReason

KINDS = [
    kind
    for kind in vars(storage.errors).values()
    if isinstance(kind, type) and issubclass(kind, StorageError)
]


@pytest.mark.parametrize("kind", KINDS)
def test_errors_survive_pickling(kind: type[StorageError]) -> None:
    """Every error comes through a pickle and a copy with its kind, text, parts, reason, notes and cause's text."""
    error = kind(
        "it failed",
        actor="store",
        place="s3://b/k",
        expected="success",
        action="try again",
        reason=StoreReason.CHECKSUM,
    )
    error.add_note("partition 3")
    for other in (pickle.loads(pickle.dumps(error)), copy.copy(error)):
        assert type(other) is kind
        assert str(other) == str(error)
        assert (other.actor, other.place, other.seen, other.expected, other.action) == (
            "store",
            "s3://b/k",
            "it failed",
            "success",
            "try again",
        )
        assert other.reason is StoreReason.CHECKSUM
        assert other.__notes__ == ["partition 3"]


def test_the_line() -> None:
    """An error is one readable line of actor, place, what was seen, what was expected and what to do. Missing
    parts make it shorter."""
    error = StorageError("it failed", actor="store", place="k", expected="success", action="try again")
    assert str(error) == "store at k: it failed; expected success; try again"
    assert str(StorageError("it failed")) == "it failed"
    assert str(StorageError("it failed", place="k")) == "at k: it failed"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("http://user:s3cr/+et@host:9000/x", "http://host:9000/x"),
        ("s3://AKIA:a@b/c@bucket/x, again", "s3://bucket/x, again"),
        ("(s3://b/x?secret=a&b=c) was asked", "(s3://b/x?*** was asked"),
        ("s3://b/x (http://u:p@h)\nnext", "s3://b/x (http://h)\nnext"),
        ("file:///home/me@work/ledger", "file:///home/me@work/ledger"),
        ("mail me@host?", "mail me@host?"),
        ("abfss://c-1@ledger.dfs.core.windows.net/a/b", "abfss://c-1@ledger.dfs.core.windows.net/a/b"),
        ("abfss://c-1:a2V5@ledger.dfs.core.windows.net/a", "abfss://ledger.dfs.core.windows.net/a"),
        ("abfss://c-1@ledger.dfs.x/a s3://K:s@b/c", "abfss://c-1@ledger.dfs.x/a s3://b/c"),
    ],
)
def test_what_is_cut_out_of_urls(text: str, shown: str) -> None:
    """Everything up to the last @ of a URL, and any query, is cut out. A local path and an Azure account keep
    their @."""
    assert storage.errors.redact(text) == shown


def test_one_line_without_secrets() -> None:
    """Line breaks become blanks, long texts are cut, and secrets in URLs and signed requests are removed."""
    text = str(
        StorageError(
            "GET http://user:topsecret@host/b?X-Amz-Signature=deadbeef&X-Amz-Credential=AKIA/x&a=1\n\nDebug: "
            + "x" * 5_000,
            place="https://user:topsecret@host:9000/",
        )
    )
    for secret in ("topsecret", "deadbeef", "AKIA"):
        assert secret not in text
    assert "host:9000" in text
    assert "\n" not in text
    assert len(text) < 1_000
