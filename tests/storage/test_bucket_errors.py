"""obstore's errors are translated into ours, by a table of texts for each kind of store."""

from __future__ import annotations

import itertools

import pytest

from storage import (
    BACKENDS,
    AccessDeniedError,
    Backend,
    BucketNotFoundError,
    BucketStore,
    NotConnectedError,
    ObjectNotFoundError,
    PutIfAbsentUnsupportedError,
    StorageError,
    StoreNotWritableError,
    StoreUnreachableError,
    open_store,
)
from storage.bucket_errors import AmbiguousNotFoundError, UnlistableNameError, classified, is_beyond_the_end
from storage.errors import ArchivedObjectError
from storage.reasons import StoreReason
from storage.s3 import S3


def store_of(backend: Backend) -> BucketStore:
    account = {each.keyword: "ledger" for each in backend.settings if each.keyword == "account"}
    store = open_store(backend.example, **account)
    assert isinstance(store, BucketStore)
    return store


def told(backend: Backend, text: str, operation: str = "get") -> StorageError:
    store = store_of(backend)
    return classified(
        Exception(text),
        operation,
        store.words,
        bucket="bucket",
        place=store.url,
        redirect_action="look again",
    )


def body(status: int, code: str) -> str:
    return f"Server returned non-2xx status code: {status} X: <Error><Code>{code}</Code></Error>\n\nDebug source: x"


def undeleted(code: str, key: str = "a/b") -> str:
    """What obstore says of an object that S3 did not delete, in an answer of status 200."""
    return f"Generic S3 error: DeleteObjects request failed for key {key}: Said so. (code: {code})\n\nDebug source: x"


EACH = pytest.mark.parametrize("backend", BACKENDS, ids=lambda each: each.name)


@EACH
@pytest.mark.parametrize(
    ("text", "operation", "kind", "says"),
    [
        ("Error performing token request: GET http://169.254.169.254/x", "get", AccessDeniedError, "no credentials"),
        (body(403, "Whatever"), "get", AccessDeniedError, "403 Whatever"),
        (body(401, ""), "get", AccessDeniedError, "401"),
        (body(404, "Whatever"), "head", AmbiguousNotFoundError, "a 404 that does not say"),
        (body(404, "Whatever"), "get", StoreUnreachableError, "a 404 that does not say"),
        (body(429, "SlowDown"), "put", StoreUnreachableError, "429 SlowDown"),
        (body(503, "Busy"), "put", StoreUnreachableError, "503 Busy"),
        (body(501, "NotImplemented"), "put-if-absent", PutIfAbsentUnsupportedError, "501"),
        (body(501, "NotImplemented"), "get", StoreUnreachableError, "501"),
        (body(400, "Bad"), "get", StorageError, "400 Bad"),
        (body(301, "PermanentRedirect"), "get", StorageError, "look again"),
        ("error sending request kind: Connect, ConnectionRefused", "get", NotConnectedError, "connection refused"),
        ("error sending request kind: Connect, dns error", "get", NotConnectedError, "does not resolve"),
        ("operation timed out kind: Timeout", "put", StoreUnreachableError, "no answer in time"),
        ('object with invalid path: Error parsing Path "a/\r": x', "list", UnlistableNameError, r"'a/\\r'"),
        ('object with invalid path: Path "a//b" contained empty', "list", UnlistableNameError, "'a//b'"),
        ("something else\n\nDebug source: secrets", "get", StorageError, "get failed: something else"),
    ],
)  # fmt: skip
def test_what_is_the_same_for_all(
    backend: Backend, text: str, operation: str, kind: type[StorageError], says: str
) -> None:
    """The error is one line that says which store failed, what happened and what to do."""
    error = told(backend, text, operation)
    assert type(error) is kind
    assert says.replace("\\\\", "\\") in str(error)
    assert str(error).startswith(f"{backend.name.lower()} store at {store_of(backend).url}")
    assert "Debug source" not in str(error)
    assert "\n" not in str(error)


@EACH
@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("error sending request kind: Connect, ConnectionRefused", StoreReason.CONNECTION_REFUSED),
        ("error sending request kind: Connect, dns error", StoreReason.UNKNOWN_HOST),
        ("error sending request, ConnectionReset", StoreReason.CONNECTION_RESET),
        ("error sending request kind: Timeout, TimedOut", StoreReason.NO_ANSWER),
        ("operation timed out kind: Timeout", StoreReason.NO_ANSWER),
        ("error sending request, invalid peer certificate", StoreReason.BAD_CERTIFICATE),
        ("error sending request kind: Unknown", StoreReason.CONNECTION_BROKE),
        ("error decoding response", StoreReason.BROKEN_ANSWER),
        ("request or response body error kind: Interrupted", StoreReason.BROKEN_ANSWER),
        ("request or response body error, TimedOut", StoreReason.NO_ANSWER),
        (body(503, "SlowDown"), StoreReason.BUSY),
        (body(429, ""), StoreReason.BUSY),
        (body(501, "NotImplemented"), None),
    ],
)
def test_why_a_store_could_not_be_reached(backend: Backend, text: str, reason: StoreReason | None) -> None:
    """The reason says what happened to the connection, or to the answer, and so whether another try may help."""
    error = told(backend, text)
    assert isinstance(error, StoreUnreachableError)
    assert error.reason is reason


@EACH
def test_a_services_own_words(backend: Backend) -> None:
    """Each known code of a service becomes the error for an absent object, an absent bucket or a refusal."""
    words = store_of(backend).words
    for kind, codes in (
        (ObjectNotFoundError, words.no_object),
        (BucketNotFoundError, words.no_bucket),
        (AccessDeniedError, words.denied),
    ):
        assert codes
        for code in codes:
            assert type(told(backend, body(400, code))) is kind, code
    for sentence, code in words.sentences:
        assert type(told(backend, sentence)) is type(told(backend, body(404, code))), sentence
    refused = told(backend, "GET http://169.254.169.254/x")
    assert f"set {backend.credentials}" in refused.action


@pytest.mark.parametrize(
    ("operation", "right"),
    [
        ("get", "s3:GetObject"),
        ("get range", "s3:GetObject"),
        ("head", "s3:GetObject"),
        ("list", "s3:ListBucket"),
        ("list folders", "s3:ListBucket"),
        ("put", "s3:PutObject"),
        ("put-if-absent", "s3:PutObject"),
        ("delete", "s3:DeleteObject"),
    ],
)
def test_the_right_that_is_missing(operation: str, right: str) -> None:
    """A key that S3 knows, and that may not do this, is told which right it needs. A key that is unknown is not."""
    assert right in told(S3, body(403, "AccessDenied"), operation).action
    assert right not in told(S3, body(403, "InvalidAccessKeyId"), operation).action


@EACH
def test_archives_and_full_buckets(backend: Backend) -> None:
    """An archived object and a full bucket have errors of their own, with the service's code, and are not refusals."""
    words = store_of(backend).words
    for kind, codes, reason in (
        (ArchivedObjectError, words.archived, StoreReason.ARCHIVED),
        (StoreNotWritableError, words.full, StoreReason.NO_ROOM),
    ):
        for status, code in itertools.product((400, 403, 409, 507), codes):
            error = told(backend, body(status, code))
            assert (type(error), error.reason) == (kind, reason)
            assert code in error.seen


@EACH
def test_objects_that_were_not_deleted(backend: Backend) -> None:
    """The code of each object in the answer to a delete counts, whatever stands in the object's key."""
    tricky = "x (code: NoSuchKey)"
    for code in store_of(backend).words.denied:
        error = told(backend, undeleted(code, tricky), "delete")
        assert (type(error), bool(error.action)) == (AccessDeniedError, True), code
    for code in ("SlowDown", "InternalError"):
        error = told(backend, undeleted(code, tricky), "delete")
        assert (type(error), error.reason) == (StoreUnreachableError, StoreReason.BUSY), code
    assert type(told(backend, undeleted("Whatever", tricky), "delete")) is StorageError


@EACH
def test_bytes_behind_the_end(backend: Backend) -> None:
    """Reading past the end is recognised by the service's code and by obstore's own text."""
    words = store_of(backend).words
    assert is_beyond_the_end(body(416, "InvalidRange"), words)
    assert is_beyond_the_end("Wanted range starting at 10, but object was only 10 bytes long", words)
    assert not is_beyond_the_end(body(400, "Whatever"), words)
