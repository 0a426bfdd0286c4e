"""Abort: what it does to the store, what Airflow's audit log keeps of it, and when it does nothing."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from tests.pages.busy_store import HANGING_PRODUCER, records
from tests.pages.conftest import PREFIX
from tests.support.waiting import wait_for
from txn_engine import TopicPartition, connect
from txn_engine.coordinator.coordinator import Coordinator
from txn_engine.errors import (
    InvalidTxnStateError,
    OutcomeUnknownError,
    ProducerFencedError,
    StoreUnavailableError,
    TxnEngineError,
)

pytestmark = pytest.mark.airflow

OWN_PAGE = {"X-Txn-Engine-Request": "1", "Origin": "http://testserver", "Sec-Fetch-Site": "same-origin"}


def audit(event: str) -> list[tuple[str, str, dict[str, Any]]]:
    """User, DAG and details of the audit log's entries, oldest first."""
    from airflow.models import Log
    from airflow.utils.session import create_session
    from sqlalchemy import select

    with create_session() as session:
        rows = session.scalars(select(Log).where(Log.event == event).order_by(Log.id))
        return [(str(row.owner), str(row.dag_id), json.loads(row.extra or "{}")) for row in rows]


def seen(browser: Any, transactional_id: str) -> dict[str, Any]:
    """The transaction as the page shows it, in the form that Abort takes."""
    line = browser.get(f"{PREFIX}/api/transaction", params={"id": transactional_id}).json()["line"]
    return {name: line[name] for name in ("transactional_id", "producer_id", "producer_epoch")}


def test_a_user_aborts_an_open_transaction(client: Callable[..., Any], store_url: str) -> None:
    """The transaction is aborted, its producer cannot commit it, the page shows it at once, and the audit log has
    the user.
    """
    with connect(store_url) as engine:
        producer = engine.producer(transactional_id="to-abort")
        producer.init_transactions()
        producer.begin_transaction()
        producer.produce("balances", records(0, 3), partition=0)
        producer.flush()
        browser = client("uma")
        browser.get(f"{PREFIX}/api/overview")
        asked = wait_until_listed(browser, "to-abort")
        answer = browser.post(f"{PREFIX}/api/abort", headers=OWN_PAGE, json=asked)
        assert (answer.status_code, answer.json()) == (200, {"outcome": "aborted"})
        assert engine.admin.describe_transaction("to-abort").state == "CompleteAbort"
        open_producers = engine.partition("balances", 0).state.open_transactions
        assert asked["producer_id"] not in open_producers
        with pytest.raises(ProducerFencedError):
            engine.coordinator.add_partitions(
                "to-abort", asked["producer_id"], asked["producer_epoch"], [TopicPartition("balances", 0)]
            )
        line = browser.get(f"{PREFIX}/api/transaction", params={"id": "to-abort"}).json()["line"]
        assert line["state"] == "CompleteAbort"
        with pytest.raises(TxnEngineError):
            producer.commit_transaction()
    rows = [row for row in audit("txn_engine.abort_transaction") if row[2]["transactional_id"] == "to-abort"]
    assert [(who, dag, extra["outcome"]) for who, dag, extra in rows] == [
        ("uma", "txn_coordinator_sweep", "requested"), ("uma", "txn_coordinator_sweep", "aborted"),
    ]  # fmt: skip


def wait_until_listed(browser: Any, transactional_id: str) -> dict[str, Any]:
    def is_listed() -> bool:
        answer = browser.get(f"{PREFIX}/api/transaction", params={"id": transactional_id})
        return answer.status_code == 200 and answer.json()["line"]["state"] == "Ongoing"

    wait_for(is_listed, what=f"transaction {transactional_id} on the page", every_s=0.2)
    return seen(browser, transactional_id)


def test_another_transaction_than_the_one_seen_is_left_alone(
    client: Callable[..., Any], store_url: str
) -> None:
    """If the id went on to its next transaction after the page was drawn, the abort is refused with the
    engine's own line."""
    with connect(store_url) as engine:
        producer = engine.producer(transactional_id="moves-on")
        producer.init_transactions()
        for _ in range(2):
            producer.begin_transaction()
            producer.produce("balances", records(0, 1), partition=0)
            producer.flush()
            stale = engine.admin.describe_transaction("moves-on")
            if stale.producer_epoch == 0:
                first = stale
                producer.commit_transaction()
        asked = {"transactional_id": "moves-on", "producer_id": first.producer_id, "producer_epoch": 0}
        answer = client("ada").post(f"{PREFIX}/api/abort", headers=OWN_PAGE, json=asked)
        assert answer.status_code == 409
        assert "PRODUCER_FENCED" in answer.json()["detail"]
        assert engine.admin.describe_transaction("moves-on").state == "Ongoing"
        producer.commit_transaction()
    outcomes = [extra["outcome"] for _, _, extra in audit("txn_engine.abort_transaction")]
    assert outcomes[-2:] == ["requested", "refused: PRODUCER_FENCED"]


def test_a_hanging_transaction_is_ended_with_a_marker(client: Callable[..., Any], store_url: str) -> None:
    browser = client("uma")
    (hanging,) = browser.get(f"{PREFIX}/api/overview").json()["hanging"]
    asked = {name: hanging[name] for name in ("topic", "partition", "start_offset")}
    answer = browser.post(f"{PREFIX}/api/abort-hanging", headers=OWN_PAGE, json=asked)
    assert answer.status_code == 200, answer.text
    with connect(store_url) as engine:
        state = engine.partition("payments", 2).state
        assert HANGING_PRODUCER not in state.open_transactions
        assert len(state.aborted) == 1
    assert browser.get(f"{PREFIX}/api/overview").json()["hanging"] == []
    assert [extra["outcome"] for _, _, extra in audit("txn_engine.abort_hanging_transaction")] == [
        "requested", "aborted",
    ]  # fmt: skip
    again = browser.post(f"{PREFIX}/api/abort-hanging", headers=OWN_PAGE, json=asked)
    assert again.status_code == 409


@pytest.mark.parametrize(
    ("error", "status", "outcome"),
    [
        (OutcomeUnknownError("no answer"), 409, "failed, outcome unknown: OUTCOME_UNKNOWN"),
        (StoreUnavailableError("no route"), 503, "failed, outcome unknown: NETWORK_EXCEPTION"),
        (RuntimeError("a fault"), 500, "failed, outcome unknown: RuntimeError"),
        (InvalidTxnStateError("it has moved on"), 409, "refused: INVALID_TXN_STATE"),
    ],
)
def test_the_audit_log_says_refused_only_of_what_was_refused(
    client: Callable[..., Any],
    monkeypatch: pytest.MonkeyPatch,
    error: Exception,
    status: int,
    outcome: str,
) -> None:
    """The log says "refused" only if the engine refused. After another failure the decision may be stored. Both
    leave a row.
    """

    def fail(*_: Any, **__: Any) -> None:
        raise error

    browser = client("ada")
    asked = seen(browser, "stream-7")
    monkeypatch.setattr(Coordinator, "end_transaction", fail)
    answer = browser.post(f"{PREFIX}/api/abort", headers=OWN_PAGE, json=asked)
    assert answer.status_code == status
    outcomes = [extra["outcome"] for _, _, extra in audit("txn_engine.abort_transaction")]
    assert outcomes[-2:] == ["requested", outcome]


@pytest.mark.parametrize(
    "body",
    [
        "",
        "[]",
        '{"transactional_id": "stream-7"}',
        '{"transactional_id": "stream-7", "producer_id": "1003", "producer_epoch": 0}',
        '{"transactional_id": "stream-7", "producer_id": 1003, "producer_epoch": 0, "force": true}',
        '{"transactional_id": "", "producer_id": 1003, "producer_epoch": 0}',
    ],
)
def test_a_body_that_is_not_exactly_right_is_refused(client: Callable[..., Any], body: str) -> None:
    headers = OWN_PAGE | {"Content-Type": "application/json"}
    answer = client("ada").post(f"{PREFIX}/api/abort", headers=headers, content=body)
    assert answer.status_code == 422
    assert answer.json()["detail"]


def test_nothing_is_aborted_that_cannot_be_audited(
    client: Callable[..., Any], store_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If Airflow's database refuses the audit row, the abort is not begun."""
    from txn_engine_airflow.pages import routes_abort

    def refuse(*_: Any) -> None:
        raise OSError("the database is read-only")

    browser = client("ada")
    asked = seen(browser, "stream-7")
    monkeypatch.setattr(routes_abort, "write_audit", refuse)
    answer = browser.post(f"{PREFIX}/api/abort", headers=OWN_PAGE, json=asked)
    assert answer.status_code == 500
    with connect(store_url) as engine:
        assert engine.admin.describe_transaction("stream-7").state == "Ongoing"


def test_a_body_is_read_up_to_the_limit_alone() -> None:
    """A request without end takes no memory: its second part exceeds the limit, and a third part is never read."""
    import asyncio

    from fastapi import HTTPException
    from starlette.requests import Request

    from txn_engine_airflow.pages.routes_abort import AbortRequest, _asked

    parts = 0

    async def receive() -> dict[str, Any]:
        nonlocal parts
        parts += 1
        assert parts < 100
        return {"type": "http.request", "body": b" " * 6_000, "more_body": True}

    request = Request({"type": "http", "method": "POST", "headers": []}, receive)
    with pytest.raises(HTTPException) as refused:
        asyncio.run(_asked(request, AbortRequest))
    assert (refused.value.status_code, parts) == (413, 2)
