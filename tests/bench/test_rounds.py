"""`txn-engine bench --rounds` runs every operation and counts its rounds and objects correctly."""

from __future__ import annotations

import json

import pytest
from rich.console import Console

from storage import MemoryStore, ObjectNotFoundError
from txn_engine import Engine
from txn_engine.bench import run_rounds
from txn_engine.bench.marks import entry_kinds, objects_put, wait_until_complete
from txn_engine.bench.payments import SCHEMA, payments
from txn_engine.bench.watched import Call, WatchedStore, in_a_row
from txn_engine.errors import RequestTimedOutError


def call(began: float, ended: float) -> Call:
    return Call("get", "key", began, ended)


def test_calls_that_overlap_are_one_round() -> None:
    """The rounds are the longest chain of calls that each began after the one before had ended."""
    assert in_a_row([]) == 0
    assert in_a_row([call(0, 60), call(1, 61), call(2, 62)]) == 1
    assert in_a_row([call(60, 120), call(0, 60), call(30, 90), call(121, 181)]) == 3


def test_every_call_takes_its_time_and_is_noted() -> None:
    """A call that finds nothing takes time too. A put says whether it stored. A listing counts every 1,000 keys."""
    store = WatchedStore(MemoryStore(), call_ms=2)
    assert store.put_if_absent("a/b", b"1")
    assert not store.put_if_absent("a/b", b"2")
    with pytest.raises(ObjectNotFoundError):
        store.get("a/c")
    for number in range(999):
        store.watched.put(f"a/{number:03}", b"")
    assert len(list(store.list("a"))) == 1_000
    calls = store.take()
    assert [(call.kind, call.stored) for call in calls] == [
        ("put_if_absent", True), ("put_if_absent", False), ("get", False), ("list", False), ("list", False),
    ]  # fmt: skip
    assert all(call.ended - call.began >= 0.002 for call in calls)
    assert store.take() == []


@pytest.mark.parametrize("markers", ["inline", "deferred"])
def test_marks_of_a_transaction(markers: str) -> None:
    """A transaction is visible with its last marker and complete with its Complete row, unless both are deferred."""
    store = WatchedStore(MemoryStore())
    with Engine(store) as engine:
        engine.admin.create_topic("t", partitions=2, schema=SCHEMA, key="account_id")
        with engine.producer(transactional_id="id", markers=markers) as producer:  # type: ignore[arg-type]
            producer.init_transactions()
            store.take()
            with producer.transaction():
                producer.produce("t", payments(10))
            if markers == "inline":
                wait_until_complete(store)
            store.wait_until_quiet(0.05)
        calls = store.take()
        kinds = entry_kinds(store.watched, calls)
    marks = kinds.marks(calls)
    begun = sum(
        call.stored and call.key.startswith("begun/") for call in calls
    )  # once in the life of a store
    seen = [sorted(kinds.kinds.get(call.key, [])) for call in calls if call.stored and "/log/" in call.key]
    assert seen[:4] == [["Ongoing"], [], [], ["PrepareCommit"]]
    if markers == "deferred":
        assert (marks.visible, marks.complete, objects_put(calls) - begun) == (None, None, 6)
        return
    assert seen[4:] == [["marker"], ["marker"], ["CompleteCommit"]]
    assert marks.visible is not None
    assert marks.complete is not None
    assert marks.visible < marks.complete
    assert objects_put(calls) - begun == 9


def test_nothing_is_waited_for_where_nothing_was_put() -> None:
    """Without a transaction there is nothing to wait for. One that does not become complete is an error."""
    store = WatchedStore(MemoryStore())
    wait_until_complete(store)
    with Engine(store) as engine:
        engine.admin.create_topic("t", partitions=1, schema=SCHEMA, key="account_id")
        producer = engine.producer(transactional_id="id", markers="deferred")
        producer.init_transactions()
        store.take()
        wait_until_complete(store)
        with producer.transaction():
            producer.produce("t", payments(1))
        with pytest.raises(RequestTimedOutError):
            wait_until_complete(store, patience_s=0.05)


def test_the_table(capsys: pytest.CaptureFixture[str]) -> None:
    """Each line has its least possible cost, which a transaction by key reaches. The JSON document says the same."""
    console = Console(width=100)
    assert run_rounds(json_output=True, console=console, quick=True, call_ms=1) == 0
    report = json.loads(capsys.readouterr().out)
    assert (report["bench"], report["call_ms"]) == ("rounds", 1)
    rows = {row["name"]: row for row in report["rows"]}
    assert list(rows) == [
        "transaction, by key",
        "transaction, 4 calls",
        "transaction, 4 awaited calls",
        "transaction, deferred markers",
        "warm cycle: poll",
        "warm cycle: the rest",
        "first cycle: connect, poll",
        "first cycle: init_transactions",
        "first cycle: the rest",
        "append",
        "plan of 4 x 50 entries",
        "plan of 4 x 50 entries, snapshots",
        "init_transactions, a known id",
        "init_transactions, a new id",
    ]
    assert rows["transaction, by key"]["objects"] == rows["transaction, by key"]["least"]["objects"] == 15
    for row in rows.values():
        assert row["objects"] >= row["least"]["objects"]
        assert (row["visible"] is None) == (row["least"]["visible"] is None)
        points = [row[event] for event in ("returned", "visible", "complete") if row[event]]
        assert all(point["time"] > 0 and point["rounds"] > 0 for point in points)
    from txn_engine.bench import print_report

    print_report(console, report)
    printed = capsys.readouterr().out
    assert "transaction, 4 awaited calls" in printed
    assert "row and files; entries; decision; markers; Complete row" in printed
