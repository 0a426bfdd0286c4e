"""The background thread survives a store that goes away, and says how old its data is."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest
from airflow.sdk.exceptions import AirflowException

from tests.pages import busy_store
from tests.support.airflow_home import make_database
from tests.support.waiting import wait_for
from txn_engine import connect
from txn_engine.clock import system_clock
from txn_engine_airflow.connection import StoreConnection

pytestmark = pytest.mark.airflow


@pytest.fixture(scope="module", autouse=True)
def database() -> None:
    make_database()


@contextmanager
def polling(find_store: Callable[[], StoreConnection]) -> Iterator[object]:
    from txn_engine_airflow.pages.store_poller import StorePoller

    poller = StorePoller(find_store=find_store, every_ms=50)
    poller.start()
    try:
        yield poller
    finally:
        poller.stop()


def test_what_was_seen_stays_while_the_store_is_away(tmp_path: Path) -> None:
    """Health says what is wrong. The next look that succeeds shows the store as it is then."""
    url = f"file://{tmp_path}/ledger"
    with connect(url) as engine:
        engine.admin.create_topic("payments", partitions=1, schema=busy_store.SCHEMA)
    places = [url]
    with polling(lambda: StoreConnection(places[0], "the test")) as poller:
        assert list(poller.sight(wait_ms=60_000).moment.topics) == ["payments"]
        places[0] = f"file://{tmp_path}/ledger/store.json/not-a-folder"
        wait_for(lambda: poller.health.trouble != "", what="the trouble with the store")
        assert "not-a-folder" in poller.whole_trouble
        assert "not-a-folder" not in poller.health.trouble
        assert "[CLUSTER_AUTHORIZATION_FAILED]" in poller.health.trouble
        assert list(poller.sight().moment.topics) == ["payments"]
        places[0] = url
        with connect(url) as engine:
            engine.partition("payments", 0).append(busy_store.records(0, 4))
        wait_for(lambda: poller.health.trouble == "", what="a look at the store that is back")
        poller.look_again(wait_ms=60_000)
        assert poller.sight().moment.topics["payments"].partitions[0].high_watermark == 4


def test_ages_go_on_while_the_store_is_away_whatever_the_clock_does(tmp_path: Path) -> None:
    """The age of the data follows a steady clock. A wall clock that stands still is reported."""
    from txn_engine_airflow.pages.store_poller import StorePoller

    url = f"file://{tmp_path}/ledger"
    with connect(url) as engine:
        engine.admin.create_topic("payments", partitions=1, schema=busy_store.SCHEMA)
    places = [url]
    stands = system_clock()
    poller = StorePoller(
        find_store=lambda: StoreConnection(places[0], "the test"), clock=lambda: stands, every_ms=50
    )
    poller.start()
    try:
        poller.sight(wait_ms=60_000)
        places[0] = f"file://{tmp_path}/ledger/store.json/not-a-folder"
        wait_for(lambda: poller.health.trouble != "", what="the trouble with the store")
        first = poller.health
        time.sleep(0.3)
        later = poller.health
        assert later.seen_ms == first.seen_ms
        assert later.age_ms - first.age_ms >= 300
        assert later.now_ms - first.now_ms >= 300
    finally:
        poller.stop()


def test_each_trouble_has_its_own_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Trouble with Airflow's database is not trouble with the store, and the store is still shown."""
    url = f"file://{tmp_path}/ledger"
    with connect(url) as engine:
        engine.admin.create_topic("payments", partitions=1, schema=busy_store.SCHEMA)

    def away() -> None:
        raise AirflowException("no database")

    monkeypatch.setattr("txn_engine_airflow.pages.store_poller.last_runs", away)
    with polling(lambda: StoreConnection(url, "the test")) as poller:
        assert list(poller.sight(wait_ms=60_000).moment.topics) == ["payments"]
        assert poller.health.trouble == ""
        assert poller.health.airflow_trouble.startswith("Airflow does not say")


def test_before_the_first_look_there_is_a_reason_and_no_data(tmp_path: Path) -> None:
    from txn_engine_airflow.pages.store_poller import NothingSeenYetError

    (tmp_path / "file").write_text("")
    place = StoreConnection(f"file://{tmp_path}/file/below", "the test")
    with polling(lambda: place) as poller:
        with pytest.raises(NothingSeenYetError) as refused:
            poller.sight(wait_ms=60_000)
        assert refused.value.trouble == poller.health.trouble
        assert "[CLUSTER_AUTHORIZATION_FAILED]" in refused.value.trouble


def test_nothing_is_opened_before_somebody_asks(tmp_path: Path) -> None:
    """An api-server whose pages nobody opens needs no store."""
    asked: list[int] = []

    def find() -> StoreConnection:
        asked.append(1)
        return StoreConnection(f"file://{tmp_path}/ledger", "the test")

    with polling(find) as poller:
        time.sleep(0.3)
        assert asked == []
        poller.touch(wait_ms=60_000)
        assert asked


def test_a_change_is_seen_by_whoever_made_it(tmp_path: Path) -> None:
    """`look_again` returns after a look that began after the change."""
    url = f"file://{tmp_path}/ledger"
    with connect(url) as engine, polling(lambda: StoreConnection(url, "the test")) as poller:
        engine.admin.create_topic("payments", partitions=1, schema=busy_store.SCHEMA)
        poller.sight(wait_ms=60_000)
        for count in range(1, 6):
            engine.partition("payments", 0).append(busy_store.records(count, 1))
            poller.look_again(wait_ms=60_000)
            topic = poller.sight().moment.topics.get("payments")
            if topic is not None:
                assert topic.partitions[0].high_watermark == count
        assert topic is not None


def test_only_few_requests_wait_for_the_first_look(tmp_path: Path) -> None:
    """A store that does not answer does not hold all threads of the server. Other requests are refused at once."""
    from txn_engine_airflow.pages.store_poller import WAITING_MAX, NothingSeenYetError

    answers = threading.Event()

    def find() -> StoreConnection:
        answers.wait(60)
        return StoreConnection(f"file://{tmp_path}/ledger", "the test")

    with connect(f"file://{tmp_path}/ledger"), polling(find) as poller, ThreadPoolExecutor(8) as pool:
        asked = [pool.submit(poller.sight, wait_ms=60_000) for _ in range(8)]
        wait_for(
            lambda: sum(each.done() for each in asked) == 8 - WAITING_MAX,
            what="the requests that are refused at once",
        )
        for each in asked:
            if each.done():
                with pytest.raises(NothingSeenYetError) as refused:
                    each.result()
                assert refused.value.trouble == ""
        with pytest.raises(NothingSeenYetError):
            poller.sight(wait_ms=60_000)
        waiting = [each for each in asked if not each.done()]
        assert len(waiting) == WAITING_MAX
        answers.set()
        assert all(each.result(60).moment.topics == {} for each in waiting)
