"""Whatever is safe to ask again is asked again, by one policy for all calls: storage/patience.py."""

from __future__ import annotations

import logging
import pickle
from collections.abc import Callable
from dataclasses import replace

import pytest

from storage import (
    JOB_PATIENCE,
    PERSON_PATIENCE,
    BucketStore,
    ObjectNotFoundError,
    Patience,
    PutOutcomeUnknownError,
    StoreUnreachableError,
    open_store,
    put_patiently,
    settle_put_if_absent,
)
from storage.patience import Waits, jittered_pause, pause_ceiling_s
from storage.reasons import StoreReason
from tests.storage.odd_server import Cut, OddServer, error_of, operations, xml
from tests.storage.test_patience import STORES, s3_at

NO_KEY = xml("NoSuchKey")
BUSY = (503, xml("SlowDown"))
READS = ("get", "get_range", "head", "list", "list_folders", "delete")


def quick(store: BucketStore, patience: Patience = JOB_PATIENCE) -> list[int]:
    """Let the store not sleep; the pauses that it would have made, by their numbers."""
    pauses: list[int] = []
    store.patience = replace(patience, pause=pauses.append)
    return pauses


def listing(*keys: str, token: str = "") -> bytes:
    contents = "".join(
        f"<Contents><Key>{key}</Key><LastModified>2026-11-21T00:00:00.000Z</LastModified>"
        f'<ETag>"0"</ETag><Size>1</Size></Contents>'
        for key in keys
    )
    rest = f"<NextContinuationToken>{token}</NextContinuationToken>" if token else ""
    return (
        f"<?xml version='1.0'?><ListBucketResult><IsTruncated>{str(bool(token)).lower()}</IsTruncated>"
        f"{contents}{rest}</ListBucketResult>"
    ).encode()


# --- half an answer -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "cut",
    [
        (404, Cut(NO_KEY)),
        (404, NO_KEY[:40]),
        (404, NO_KEY.replace(b"Message", b"Mess\xffage")),
        (503, Cut(xml("SlowDown"))),
    ],
    ids=["cut", "short", "bad-byte", "busy-and-cut"],
)
def test_half_a_404_is_asked_for_again(cut: tuple[int, bytes]) -> None:
    """A look past a log's end gets a 404. If its XML is cut short or has a bad byte, the store is asked again."""
    with OddServer(cut, cut, (404, NO_KEY), store=s3_at) as server:
        pauses = quick(server.store)
        assert type(error_of(lambda: server.store.get("a"))) is ObjectNotFoundError
        assert pauses == [1, 2]


@pytest.mark.parametrize(
    "cut",
    [
        (200, Cut(listing("a", "b"))),
        (200, listing("a", "b")[:80]),
        (200, listing("a", "b").replace(b"Key", b"K\xffy", 1)),
        (200, b""),
    ],
    ids=["cut", "short", "bad-byte", "empty"],
)
def test_half_a_listing_is_asked_for_again(cut: tuple[int, bytes]) -> None:
    """A listing of objects or of folders whose XML is cut short, or has a bad byte, is asked for again."""
    with OddServer(cut, (200, listing("a", "b")), store=s3_at) as server:
        quick(server.store)
        assert [info.key for info in server.store.list("")] == ["a", "b"]
    with OddServer(cut, (200, listing()), store=s3_at) as server:
        quick(server.store)
        assert server.store.list_folders("") == []


def test_a_listing_goes_on_after_the_last_page_that_came() -> None:
    """If the second page is cut short, the listing goes on after the first page's last key, and gives no key twice."""
    pages = (
        (200, listing("a", "b", token="more")),
        (200, Cut(listing("c", "d"))),
        (200, listing("a", "b", "c", "d")),  # a server that knows no place to start from
    )
    with OddServer(*pages, store=s3_at) as server:
        quick(server.store)
        found = [info.key for info in server.store.list("")]
        assert found == ["a", "b", "c", "d"]
        assert "start-after=b" in server.requests[-1] or "start-after" not in server.requests[1]


@STORES
def test_half_an_object_is_read_again(store_at: Callable[[str], BucketStore]) -> None:
    """The body of an object that is cut short is read again, whatever the kind of store."""
    with OddServer((200, Cut(b"payments")), (200, b"payments"), store=store_at) as server:
        quick(server.store)
        assert server.store.get("a") == b"payments"


def test_what_came_of_a_large_object_is_not_asked_for_again() -> None:
    """A large object that is cut short is asked for from the byte where it broke off, of the same version."""
    data = b"0123456789abcdef" * (1 << 20)  # 16 MiB
    script = ((200, Cut(data)), (206, Cut(data)), (206, data))
    for read in ("get", "spool"):
        with OddServer(*script, store=s3_at) as server:
            quick(server.store)
            come = server.store.get("a") if read == "get" else server.store.spool("a", max_bytes=1 << 30)
            assert come == data
            asked = [headers.get("range") for headers in server.headers]
            assert asked[0] is None
            first, second = (int(str(each).removeprefix("bytes=").partition("-")[0]) for each in asked[1:])
            assert 0 < first < second < len(data)
            assert [headers.get("if-match") for headers in server.headers] == [None, '"0"', '"0"']


def test_a_404_of_a_proxy_is_not_half_an_answer() -> None:
    """A whole 404 of another server is reported at once: to ask again would not help."""
    for body in (b"<html>not here</html>", b"<?xml version='1.0'?><html>not here</html>", b""):
        with OddServer((404, body), store=s3_at) as server:
            pauses = quick(server.store)
            assert type(error_of(lambda: server.store.get("a"))) is StoreUnreachableError
            assert pauses == []


def test_answers_that_are_always_cut_are_an_error() -> None:
    """If every answer is cut short, the error says so after the policy's tries."""
    with OddServer((404, Cut(NO_KEY)), store=s3_at) as server:
        pauses = quick(server.store)
        error = error_of(lambda: server.store.get("a"))
        assert error.reason is StoreReason.BROKEN_ANSWER
        assert len(pauses) == JOB_PATIENCE.broken


# --- a busy store -------------------------------------------------------------------------------------------


@STORES
def test_every_read_waits_for_a_busy_store(
    store_at: Callable[[str], BucketStore], caplog: pytest.LogCaptureFixture
) -> None:
    """Each operation that is safe to repeat goes on for as long as the patience says, with growing pauses. It logs the
    first wait and every tenth.
    """
    with OddServer(BUSY, store=store_at) as server:
        for name, call in operations(server.store):
            if name not in READS:
                continue
            pauses = quick(server.store, replace(JOB_PATIENCE, busy=11))
            caplog.clear()
            with caplog.at_level(logging.WARNING, logger="storage"):
                assert error_of(call).reason is StoreReason.BUSY, name
            assert pauses == list(range(1, 12)), name
            assert len(caplog.records) == 2, name


def test_a_busy_store_that_comes_back() -> None:
    """The caller does not notice twenty 503 in a row, nor S3's 400 RequestTimeout."""
    with OddServer(*[BUSY] * 20, (400, xml("RequestTimeout")), (200, b"data"), store=s3_at) as server:
        quick(server.store)
        assert server.store.get("a") == b"data"


def test_a_put_waits_for_a_busy_store() -> None:
    """A put that the store refuses as busy is sent again after each look that finds the key absent, for as long as a
    read would wait. Only then is its outcome unknown.
    """
    with OddServer(*[BUSY, (404, NO_KEY)] * 20, (200, b""), store=s3_at) as server:
        pauses: list[int] = []
        assert settle_put_if_absent(server.store, "a", b"ours", pause=pauses.append).won
        assert [request.split()[0] for request in server.requests] == ["PUT", "GET"] * 20 + ["PUT"]
        assert pauses == list(range(1, 21))
    with OddServer(*[BUSY, (404, NO_KEY)] * 100, store=s3_at) as server:
        with pytest.raises(PutOutcomeUnknownError):
            settle_put_if_absent(server.store, "a", b"ours", pause=pauses.append)
        assert len(server.requests) == 2 * (JOB_PATIENCE.busy + 1)


def test_an_overwrite_waits_for_a_busy_store() -> None:
    """A seal or a hint is sent again while the store says that it is busy, and after no other error."""
    pauses: list[int] = []
    with OddServer(*[BUSY] * 20, (200, b""), store=s3_at) as server:
        put_patiently(server.store, "a", b"seal", pause=pauses.append)
        assert [request.split()[0] for request in server.requests] == ["PUT"] * 21
        assert pauses == list(range(1, 21))
    with OddServer(BUSY, store=s3_at) as server:
        error = error_of(lambda: put_patiently(server.store, "a", b"seal", pause=pauses.append))
        assert (error.reason, len(server.requests)) == (StoreReason.BUSY, JOB_PATIENCE.busy + 1)
    with OddServer((403, xml("AccessDenied")), store=s3_at) as server:
        error_of(lambda: put_patiently(server.store, "a", b"seal", pause=pauses.append))
        assert len(server.requests) == 1


def test_a_put_is_never_sent_again_by_the_client() -> None:
    """A busy store gets one request of each put, however patient the store is."""
    with OddServer(BUSY, store=s3_at) as server:
        pauses = quick(server.store)
        for call in (lambda: server.store.put("a", b"x"), lambda: server.store.put_if_absent("a", b"x")):
            assert error_of(call).reason is StoreReason.BUSY
        assert (len(server.requests), pauses) == (2, [])


def test_how_long_a_job_and_a_person_wait() -> None:
    """A job waits for a busy store for at least a minute, however the jitter falls; a person for at most 15 seconds."""
    least, _ = JOB_PATIENCE.busy_s()
    assert least >= 60
    _, most = PERSON_PATIENCE.busy_s()
    assert most <= 15


def test_pauses_have_jitter(monkeypatch: pytest.MonkeyPatch) -> None:
    """A pause is between half its ceiling and all of it, and two clients do not make the same."""
    slept: list[float] = []
    monkeypatch.setattr("storage.patience.time.sleep", slept.append)
    for attempt in range(1, 100):
        jittered_pause(attempt)
    for attempt, seconds in enumerate(slept, 1):
        assert pause_ceiling_s(attempt) / 2 <= seconds <= pause_ceiling_s(attempt) <= 5.0
    assert slept[0] <= 0.02
    assert len({*slept[20:]}) > 1


def test_a_silent_store_is_given_up_in_time() -> None:
    """Where no answer comes, tries end after eight seconds, also behind an answer that the store was busy."""
    now = [0.0]
    waits = Waits(JOB_PATIENCE, pause=lambda attempt: None, monotonic=lambda: now[0])

    def fails_after(seconds: float, reason: StoreReason) -> bool:
        now[0] += seconds
        return waits.again(StoreUnreachableError("failed", reason=reason))

    assert fails_after(5, StoreReason.NO_ANSWER)
    assert fails_after(1, StoreReason.BUSY)
    assert fails_after(5, StoreReason.NO_ANSWER)
    assert not fails_after(5, StoreReason.NO_ANSWER)
    assert not Waits(JOB_PATIENCE).again(StoreUnreachableError("failed", reason=StoreReason.BAD_CERTIFICATE))


def test_patience_is_the_store_s() -> None:
    """A store is opened with the patience that it is given, and takes it to another process."""
    store = open_store("s3://bucket", patience=PERSON_PATIENCE)
    assert isinstance(store, BucketStore)
    assert pickle.loads(pickle.dumps(store)).patience == PERSON_PATIENCE
    plain = open_store("s3://bucket")
    assert isinstance(plain, BucketStore)
    assert plain.patience == JOB_PATIENCE
