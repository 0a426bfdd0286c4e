"""The background thread: it lives through a store that goes away, and says how old what it has is."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.dags.airflow_home import make_database
from tests.pages import scene
from txn_engine import connect
from txn_engine_airflow.connection import StoreConnection

pytestmark = pytest.mark.airflow


@pytest.fixture(scope="module", autouse=True)
def database() -> None:
    make_database()


@contextmanager
def watching(find_store: Callable[[], StoreConnection]) -> Iterator[object]:
    from txn_engine_airflow.pages.watcher import Watcher

    watcher = Watcher(find_store=find_store, every_ms=50)
    watcher.start()
    try:
        yield watcher
    finally:
        watcher.stop()


def until(is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_what_was_seen_stays_while_the_store_is_away(tmp_path: Path) -> None:
    """Health says what is wrong; the next look that succeeds shows the store as it is by then."""
    url = f"file://{tmp_path}/ledger"
    with connect(url) as engine:
        engine.admin.create_topic("payments", partitions=1, schema=scene.SCHEMA)
    places = [url]
    with watching(lambda: StoreConnection(places[0], "the test")) as watcher:
        assert list(watcher.sight(wait_ms=60_000).moment.topics) == ["payments"]
        places[0] = f"file://{tmp_path}/ledger/store.json/not-a-folder"
        until(lambda: watcher.health.trouble != "")
        assert "not-a-folder" in watcher.health.trouble
        assert list(watcher.sight().moment.topics) == ["payments"]
        places[0] = url
        with connect(url) as engine:
            engine.partition("payments", 0).append(scene.records(0, 4))
        until(lambda: watcher.health.trouble == "")
        watcher.look_again(wait_ms=60_000)
        assert watcher.sight().moment.topics["payments"].partitions[0].high_watermark == 4


def test_before_the_first_look_there_is_a_reason_and_no_data(tmp_path: Path) -> None:
    from txn_engine_airflow.pages.watcher import NothingSeenYetError

    (tmp_path / "file").write_text("")
    place = StoreConnection(f"file://{tmp_path}/file/below", "the test")
    with watching(lambda: place) as watcher, pytest.raises(NothingSeenYetError, match="file/below"):
        watcher.sight(wait_ms=60_000)


def test_nothing_is_opened_before_somebody_asks(tmp_path: Path) -> None:
    """An api-server whose pages nobody opens needs no store."""
    asked: list[int] = []

    def find() -> StoreConnection:
        asked.append(1)
        return StoreConnection(f"file://{tmp_path}/ledger", "the test")

    with watching(find) as watcher:
        time.sleep(0.3)
        assert asked == []
        watcher.touch(wait_ms=60_000)
        assert asked


def test_a_change_is_seen_by_whoever_made_it(tmp_path: Path) -> None:
    """`look_again` returns with a look that began after the change."""
    url = f"file://{tmp_path}/ledger"
    with connect(url) as engine, watching(lambda: StoreConnection(url, "the test")) as watcher:
        engine.admin.create_topic("payments", partitions=1, schema=scene.SCHEMA)
        watcher.sight(wait_ms=60_000)
        for count in range(1, 6):
            engine.partition("payments", 0).append(scene.records(count, 1))
            watcher.look_again(wait_ms=60_000)
            topic = watcher.sight().moment.topics.get("payments")
            if topic is not None:
                assert topic.partitions[0].high_watermark == count
        assert topic is not None


def test_only_few_requests_wait_for_the_first_look(tmp_path: Path) -> None:
    """A store that does not answer must not hold all of the server's threads: the others are told at once."""
    from txn_engine_airflow.pages.watcher import WAITING_MAX, NothingSeenYetError

    answers = threading.Event()

    def find() -> StoreConnection:
        answers.wait(60)
        return StoreConnection(f"file://{tmp_path}/ledger", "the test")

    with connect(f"file://{tmp_path}/ledger"), watching(find) as watcher, ThreadPoolExecutor(8) as pool:
        asked = [pool.submit(watcher.sight, wait_ms=60_000) for _ in range(8)]
        until(lambda: sum(each.done() for each in asked) == 8 - WAITING_MAX)
        for each in asked:
            if each.done():
                with pytest.raises(NothingSeenYetError, match="being opened"):
                    each.result()
        with pytest.raises(NothingSeenYetError):
            watcher.sight(wait_ms=60_000)
        waiting = [each for each in asked if not each.done()]
        assert len(waiting) == WAITING_MAX
        answers.set()
        assert all(each.result(60).moment.topics == {} for each in waiting)
