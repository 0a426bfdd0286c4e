"""The data of each page, from a store that real producers and consumers have written."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tests.pages.busy_store import DEAD, HANGING_PRODUCER, HOUR_MS, SECRET_NOTE
from tests.pages.conftest import PREFIX
from tests.support.waiting import wait_for
from txn_engine_airflow.pages.dag_runs import find_runs

pytestmark = pytest.mark.airflow


@pytest.fixture
def get(client: Callable[..., Any]) -> Callable[..., Any]:
    browser = client("otto")

    def ask(path: str, **query: Any) -> Any:
        answer = browser.get(f"{PREFIX}/api/{path}", params=query)
        assert answer.status_code == 200, answer.text
        return answer.json()

    return ask


def history(get: Callable[..., Any], path: str, **query: Any) -> Any:
    """The answer after the background thread has read the log's last rows, which takes some hundred
    milliseconds."""

    def read() -> Any:
        found = get(path, **query)
        return found if found["is_history_read"] else None

    return wait_for(read, what="the log's last rows on the page")


def test_overview_says_what_is_held_back_and_by_whom(get: Callable[..., Any]) -> None:
    found = get("overview")
    assert found["totals"] | {"records": 0, "bytes": 0} == {
        "topics": 3, "partitions": 5, "records": 0, "bytes": 0, "waiting_records": 20, "open": 3, "overdue": 1,
        "pending": 1, "hanging": 1, "partitions_behind": 4, "behind_max": 34, "groups": 2, "lag_max": 155,
        "held_back_max": 15, "letter_topics": 1, "letters_waiting": 4,
    }  # fmt: skip
    held = {(at["topic"], at["partition"]): at for at in found["held"]}
    assert held["payments", 0]["transactional_id"] == "deferred-load"
    assert held["payments", 1]["transactional_id"] == "nightly/import of accounts"
    assert (held["payments", 2]["transactional_id"], held["payments", 2]["producer_id"]) == (
        "",
        HANGING_PRODUCER,
    )
    assert sum(group["transactions"] for group in found["ages"]) == 3
    assert [(each["topic"], each["partition"], each["start_offset"]) for each in found["hanging"]] == [
        ("payments", 2, 0)
    ]
    payments = next(topic for topic in found["topics"] if topic["topic"] == "payments")
    assert (payments["log_end"], payments["last_stable"], payments["records"]) == (312, 258, 220)
    assert {topic["topic"]: topic["letters_waiting"] for topic in found["topics"]} == {
        "balances": -1, "payments": -1, "payments-dead": 4,
    }  # fmt: skip


def test_runs_shows_the_dags_that_airflow_knows(get: Callable[..., Any]) -> None:
    assert get("runs")["dags"] == []  # nothing was parsed into this Airflow


def test_health_says_how_old_the_data_is(get: Callable[..., Any]) -> None:
    get("overview")
    found = get("health")
    assert (found["trouble"], found["airflow_trouble"], found["clock_trouble"]) == ("", "", "")
    assert 0 <= found["now_ms"] - found["seen_ms"] <= found["age_ms"] < HOUR_MS


@pytest.mark.parametrize(
    ("query", "found"),
    [
        (
            {},
            [
                "deferred-load",
                "nightly/import of accounts",
                "balances",
                "stream-7",
                "wrong-file",
                "load-payments",
            ],
        ),
        ({"state": "Ongoing"}, ["nightly/import of accounts", "balances", "stream-7"]),
        ({"state": ["PrepareCommit", "CompleteAbort"]}, ["deferred-load", "wrong-file"]),
        ({"older_than_s": 600}, ["nightly/import of accounts"]),
        ({"older_than_s": 600, "state": "Ongoing"}, ["nightly/import of accounts"]),
        ({"pattern": "LOAD"}, ["deferred-load", "load-payments"]),
        ({"pattern": "s*-7"}, ["stream-7"]),
        ({"pattern": "[("}, []),
        ({"topic": "balances"}, ["balances"]),
        ({"first": 1, "count": 2}, ["nightly/import of accounts", "balances"]),
    ],
)
def test_transactions_are_filtered(get: Callable[..., Any], query: dict[str, Any], found: list[str]) -> None:
    """Undecided and open transactions come first, the longest open on top. The others follow by their latest change."""
    assert [line["transactional_id"] for line in get("transactions", **query)["lines"]] == found


def test_a_committed_transaction_has_its_whole_time_line(get: Callable[..., Any]) -> None:
    found = history(get, "transaction", id="load-payments")
    now = found["current"]
    assert (now["outcome"], now["is_complete"], now["run_id"]) == ("commit", True, "run-3")
    assert [(step["name"], step["is_done"]) for step in now["steps"]] == [
        ("Began", True), ("Partitions added", True), ("Decided: commit", True), ("Markers", True), ("Complete", True),
    ]  # fmt: skip
    times = [step["time_ms"] for step in now["steps"]]
    assert times == sorted(times)
    assert times[0] > 0
    assert [(part["topic"], part["partition"], part["marker"]) for part in now["partitions"]] == [
        ("payments", 0, "written"), ("payments", 1, "written"),
    ]  # fmt: skip
    assert [each["run_id"] for each in found["earlier"]] == ["run-2", "run-1", "run-0"]
    assert found["run_ids"] == ["run-3", "run-2", "run-1", "run-0"]


def test_an_undecided_and_an_open_transaction_say_what_is_missing(get: Callable[..., Any]) -> None:
    undecided = history(get, "transaction", id="deferred-load")["current"]
    assert [(step["name"], step["is_done"]) for step in undecided["steps"]] == [
        ("Began", True), ("Decided: commit", True), ("Markers", False), ("Complete", False),
    ]  # fmt: skip
    assert [(part["marker"], part["first_offset"]) for part in undecided["partitions"]] == [("missing", 195)]
    open_one = history(get, "transaction", id="nightly/import of accounts")
    assert open_one["line"]["is_overdue"]
    assert open_one["current"]["outcome"] == "open"
    assert [step["name"] for step in open_one["current"]["steps"]] == ["Began", "Decision", "Complete"]


def test_a_partition_is_drawn_offset_by_offset(get: Callable[..., Any]) -> None:
    found = get("partition", topic="payments", partition=0, first=20)
    assert [cell["first"] for cell in found["cells"]] == list(range(20, 210))
    drawn = {cell["first"]: found["kinds"][cell["counts"].index(1)] for cell in found["cells"]}
    assert [at for at, kind in drawn.items() if kind == "marker"] == [40, 81, 122, 163, 194]
    assert [at for at, kind in drawn.items() if kind == "aborted"] == list(range(164, 194))
    assert [at for at, kind in drawn.items() if kind == "open"] == list(range(195, 210))
    assert {kind for at, kind in drawn.items() if at < 163} == {"committed", "marker"}
    assert [(at["first"], at["marker"], at["last_stable"]) for at in found["aborted"]] == [(164, 194, 195)]
    assert {each["kind"] for each in found["sums"]} == {"committed", "open", "aborted"}
    names = {each["transactional_id"]: each["open_from"] for each in found["producers"]}
    assert names["deferred-load"] == 195
    assert names["load-payments"] == -1


def test_the_strip_shows_a_part_of_the_log(get: Callable[..., Any]) -> None:
    found = get("partition", topic="payments", partition=0, first=190, last=10**12)
    assert (found["strip_first"], found["strip_last"], len(found["cells"])) == (190, 209, 20)


def test_records_are_read_by_offset_and_keep_their_values(get: Callable[..., Any]) -> None:
    found = get("records", topic="payments", partition=0, offset=38, count=4)
    place = {name: at for at, name in enumerate(found["columns"])}
    assert [record[place["_offset"]] for record in found["records"]] == ["38", "39", "41"]  # 40 is a marker
    assert found["records"][0][place["amount"]] == "38.00"
    assert found["records"][0][place["note"]].startswith(SECRET_NOTE)
    hidden = get("records", topic="payments", partition=0, offset=195, count=15)
    assert hidden["records"] == []
    shown = get("records", topic="payments", partition=0, offset=195, count=15, uncommitted=True)
    assert len(shown["records"]) == 15


def test_only_so_many_samples_are_read_at_once(get: Callable[..., Any], client: Callable[..., Any]) -> None:
    """A third sample at the same time is refused with 503, because each may take much memory."""
    from txn_engine_airflow.pages import routes_read

    for _ in range(routes_read.SAMPLES_AT_ONCE):
        routes_read._samples.acquire()
    try:
        answer = client("otto").get(f"{PREFIX}/api/records?topic=payments&partition=0&offset=0")
    finally:
        for _ in range(routes_read.SAMPLES_AT_ONCE):
            routes_read._samples.release()
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "2")
    assert get("records", topic="payments", partition=0, offset=0)["records"]


def test_groups_say_committed_pending_position_and_lag(get: Callable[..., Any]) -> None:
    listed = get("groups")
    assert listed["found"] == 2
    assert [(line["group_id"], line["lag"], line["pending"]) for line in listed["groups"]] == [
        ("balances", 155, 1), ("audit", 144, 0),
    ]  # fmt: skip
    found = history(get, "group", group="balances")
    at = found["partitions"][0]
    assert [at[name] for name in ("committed", "pending", "position", "last_stable", "lag")] == [
        40,
        81,
        81,
        195,
        155,
    ]
    assert [(each["offset"], each["producer_id"] >= 0) for each in found["history"]] == [
        (81, True),
        (40, True),
    ]
    assert [each["producer_id"] for each in history(get, "group", group="audit")["history"]] == [-1]


def test_topics_and_one_topic(get: Callable[..., Any]) -> None:
    assert [topic["topic"] for topic in get("topics")["topics"]] == ["balances", "payments", "payments-dead"]
    found = get("topic", topic="payments")
    assert found["key"] == "account_id"
    assert [at["held_by"] for at in found["partitions"]] == [
        "deferred-load",
        "nightly/import of accounts",
        "",
    ]


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("transaction?id=nobody", 404),
        ("topic?topic=nobody", 404),
        ("topic?topic=__transaction_state", 404),
        ("partition?topic=payments&partition=99", 404),
        ("group?group=nobody", 404),
        ("records?topic=payments&partition=0&offset=999999", 400),
        ("records?topic=payments&partition=0&offset=-1", 422),
        ("records?topic=payments&partition=0&offset=0&count=100000", 422),
        ("transactions?count=100000", 422),
        ("nothing", 404),
    ],
)
def test_what_is_not_there_is_said_as_json(client: Callable[..., Any], path: str, status: int) -> None:
    answer = client("otto").get(f"{PREFIX}/api/{path}")
    assert answer.status_code == status
    assert answer.headers["content-type"] == "application/json"
    assert answer.json()["detail"]


@pytest.fixture
def dag_runs(server: Any) -> Iterator[datetime]:
    """Two runs of a DAG that loads: one by hand without a logical date, which wrote the store's letters, and one
    with a date.
    """
    from airflow.models.dagrun import DagRun
    from airflow.utils.session import create_session
    from sqlalchemy import delete

    date = datetime(2026, 11, 20, 4, 30, tzinfo=UTC)
    run_ids = {"manual__2026-11-20T04:00:00+00:00": None, "scheduled__2026-11-20T05:30:00+00:00": date}
    with create_session() as session:
        for run_id, logical_date in run_ids.items():
            session.add(
                DagRun(
                    dag_id="load_payments",
                    run_id=run_id,
                    run_type=run_id.partition("__")[0],
                    logical_date=logical_date,
                    run_after=date,
                )
            )
    yield date
    with create_session() as session:
        session.execute(delete(DagRun).where(DagRun.dag_id == "load_payments"))


def test_a_letter_says_which_run_of_airflow_wrote_it(client: Callable[..., Any], dag_runs: datetime) -> None:
    """A letter names its run by id, or by logical date as a task's run id has it, or not at all if Airflow does not
    know it.
    """
    by_hand = ("load_payments", "manual__2026-11-20T04:00:00+00:00")
    by_date = ("load_payments", "scheduled__2026-11-20T05:30:00+00:00")
    shown = client("otto").get(f"{PREFIX}/api/letters?topic={DEAD}&partition=0").json()["letters"]
    assert [at["dag_run"] for at in shown] == [None, *[list(by_hand)] * 3]
    at = dag_runs.isoformat()
    known = {
        f"load_payments/load@{by_hand[1]}": by_hand,
        f"load_payments/group.load/7@{at}": by_date,
        f"load_payments/group.load/0123456789abcdef@{at}": by_date,
        f"load_payments/load@{at}/{(dag_runs + timedelta(days=1)).isoformat()}": by_date,
        f"load_payments/load@{at}@incarnation=3": by_date,
        f"load_payments/load@{by_date[1]}": by_date,
    }
    others = [
        f"load_payments/load@{(dag_runs + timedelta(hours=1)).isoformat()}",
        f"another/load@{at}", f"load_payments/a/b/c@{at}", f"@{at}", "2026-11-20", "", f"a/b@{'9' * 400}",
        "load_payments/load@", f"load_payments/load@{dag_runs.replace(tzinfo=None).isoformat()}",
    ]  # fmt: skip
    assert find_runs([*known, *others]) == known
    assert find_runs(others[2:7]) == {}


def test_dead_letters_are_counted_for_everybody_and_shown_to_who_may_see_records(
    client: Callable[..., Any],
) -> None:
    """Letters are counted for everybody once somebody asks, and shown to users who may see records."""
    vera, otto = client("vera"), client("otto")

    def read() -> Any:
        answer = vera.get(f"{PREFIX}/api/dead-letter-topic?topic={DEAD}").json()
        return answer if answer["is_read"] else None

    found = wait_for(read, what="the counts of the dead letters")
    assert (found["line"]["letters"], found["line"]["waiting"]) == (4, 4)
    assert sorted((at["reason"], at["total"]) for at in found["reasons"]) == [
        ("2 fields; expected 3", 1),
        ("<img src=x onerror=alert(1)>\\x1b[2J\\u202e", 1),
        ("amount does not fit; expected decimal(18,2)", 2),
    ]
    listed = vera.get(f"{PREFIX}/api/dead-letters").json()
    assert (listed["waiting"], len(listed["reasons"]), listed["is_read"]) == (4, 3, True)
    asked = f"{PREFIX}/api/letters?topic={DEAD}&partition=0"
    assert vera.get(asked).status_code == 403
    shown = otto.get(f"{asked}&count=2").json()
    assert [at["offset"] for at in shown["letters"]] == ["3", "2"]
    assert SECRET_NOTE in shown["letters"][1]["raw"]
    older = otto.get(f"{asked}&offset={shown['older']}").json()
    assert ([at["source_line"] for at in older["letters"]], older["older"]) == (["17", "3"], -1)
    for path, status in (
        ("dead-letter-topic?topic=payments", 404), ("dead-letter-topic?topic=none", 404),
        ("letters?topic=payments&partition=0", 404), (f"letters?topic={DEAD}&partition=1", 404),
        (f"letters?topic={DEAD}&partition=0&count=51", 422), (f"letters?topic={DEAD}&partition=0&offset=x", 422),
    ):  # fmt: skip
        assert otto.get(f"{PREFIX}/api/{path}").status_code == status, path
    for page in ("dead-letters", f"dead-letter-topic?topic={DEAD}"):
        assert vera.get(f"{PREFIX}/{page}").status_code == 200
