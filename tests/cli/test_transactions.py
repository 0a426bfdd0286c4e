"""`transactions` and `coordinator` have Kafka's columns, and each command repairs what it should."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest

from tests.cli.conftest import SCHEMA, Run
from txn_engine import Engine, TopicPartition, connect
from txn_engine.cli.schema_text import parse_schema
from txn_engine.clock import system_clock
from txn_engine.errors import ProducerFencedError
from txn_engine.testing import write_transaction_state


def batch(engine: Engine, count: int = 1) -> pa.Table:
    text = [{"id": str(i), "account_id": "1", "day": "2026-01-01", "amount": "1.00"} for i in range(count)]
    names = ["id", "account_id", "day", "amount"]
    columns = [
        pa.array([row[name] for row in text]).cast(parse_schema(SCHEMA).field(name).type) for name in names
    ]
    return pa.Table.from_arrays([*columns, pa.nulls(count, pa.string())], schema=parse_schema(SCHEMA))


def open_transaction(engine: Engine, name: str, *, timeout_ms: int = 60_000) -> Any:
    producer = engine.producer(transactional_id=name, transaction_timeout_ms=timeout_ms)
    producer.init_transactions()
    producer.begin_transaction()
    producer.produce("payments", batch(engine), partition=0).result()
    return producer


def hang(engine: Engine, *, age_ms: int) -> None:
    """A transaction on payments-1 that no coordinator knows, last written to this long ago."""
    with connect(engine.url, clock=lambda: system_clock() - age_ms) as earlier:
        earlier.partition("payments", 1).append(
            batch(engine), producer_id=777, producer_epoch=3, base_sequence=0, is_transactional=True
        )


def header(text: str) -> list[str]:
    return text.splitlines()[0].split()


def test_list(run: Run, engine: Engine) -> None:
    """`transactions list` has Kafka's columns and filters by state, producer, duration and pattern."""
    open_transaction(engine, "load-a")
    engine.producer(transactional_id="load-b").init_transactions()
    text = run("transactions", "list").stdout
    assert header(text) == ["TransactionalId", "Coordinator", "ProducerId", "TransactionState"]
    rows = run("transactions", "list", "--json").json["transactions"]
    assert [list(row) for row in rows] == [
        ["transactional_id", "coordinator", "producer_id", "transaction_state"]
    ] * 2
    assert rows[0]["coordinator"] == engine.admin.coordinator_partition("load-a")

    def ids(*options: str) -> list[str]:
        found = run("transactions", "list", "--json", *options).json["transactions"]
        return [row["transactional_id"] for row in found]

    assert ids("--state", "Ongoing") == ["load-a"]
    assert ids("--state", "Ongoing", "--state", "Empty") == ["load-a", "load-b"]
    assert ids("--producer-id", str(rows[1]["producer_id"])) == ["load-b"]
    assert ids("--transactional-id-pattern", "load-.*") == ["load-a", "load-b"]
    assert ids("--transactional-id-pattern", "a") == []
    assert ids("--duration-filter", "3600000", "--state", "Ongoing") == []
    assert ids("--duration-filter", "0", "--state", "Ongoing") in ([], ["load-a"])
    assert "'Busy'" in run("transactions", "list", "--state", "Busy").error
    wrong = run("transactions", "list", "--transactional-id-pattern", "(")
    assert (wrong.code, wrong.error_code) == (1, "INVALID_REGULAR_EXPRESSION")


def test_describe(run: Run, engine: Engine) -> None:
    """`transactions describe` has Kafka's columns. Without an open transaction some are None, or null in
    JSON. The id may be an option."""
    open_transaction(engine, "load")
    found = run("transactions", "describe", "load", "--json").json
    assert list(found) == [
        "coordinator_id",
        "transactional_id",
        "producer_id",
        "producer_epoch",
        "transaction_state",
        "transaction_timeout_ms",
        "current_transaction_start_time_ms",
        "transaction_duration_ms",
        "topic_partitions",
    ]
    assert found["transaction_state"] == "Ongoing"
    assert found["topic_partitions"] == [{"topic": "payments", "partition": 0}]
    assert 0 <= found["transaction_duration_ms"] < 60_000
    text = run("transactions", "describe", "--transactional-id", "load").stdout
    assert header(text) == [
        "CoordinatorId",
        "TransactionalId",
        "ProducerId",
        "ProducerEpoch",
        "TransactionState",
        "TransactionTimeoutMs",
        "CurrentTransactionStartTimeMs",
        "TransactionDurationMs",
        "TopicPartitions",
    ]
    assert text.splitlines()[1].endswith("  payments-0")
    engine.producer(transactional_id="idle").init_transactions()
    idle = run("transactions", "describe", "idle", "--json").json
    assert (idle["current_transaction_start_time_ms"], idle["transaction_duration_ms"]) == (None, None)
    assert "None" in run("transactions", "describe", "idle").stdout
    unknown = run("transactions", "describe", "nobody")
    assert (unknown.code, unknown.error_code) == (1, "TRANSACTIONAL_ID_NOT_FOUND")
    assert run("transactions", "describe").code == 2


def test_describe_producers(run: Run, engine: Engine) -> None:
    """`describe-producers` has Kafka's columns, with the open transaction's first offset."""
    producer = open_transaction(engine, "load")
    arguments = ["transactions", "describe-producers", "--topic", "payments", "--partition", "0"]
    assert header(run(*arguments).stdout) == [
        "ProducerId",
        "ProducerEpoch",
        "LatestCoordinatorEpoch",
        "LastSequence",
        "LastTimestamp",
        "CurrentTransactionStartOffset",
    ]
    (row,) = run(*arguments, "--json").json["producers"]
    assert row["producer_id"] == producer.producer_id
    assert row["current_transaction_start_offset"] == 0
    producer.commit_transaction()
    (row,) = run(*arguments, "--json").json["producers"]
    assert row["current_transaction_start_offset"] is None


def test_a_hanging_transaction_is_found_and_aborted(run: Run, engine: Engine) -> None:
    """A transaction younger than the limit is not hanging. After the abort readers get past it."""
    hang(engine, age_ms=20 * 60_000)
    assert header(run("transactions", "find-hanging").stdout) == [
        "Topic",
        "Partition",
        "ProducerId",
        "ProducerEpoch",
        "CoordinatorEpoch",
        "StartOffset",
        "LastTimestamp",
        "Duration(min)",
    ]
    (row,) = run("transactions", "find-hanging", "--json").json["hanging_transactions"]
    assert row | {"last_timestamp": 0} == {
        "topic": "payments",
        "partition": 1,
        "producer_id": 777,
        "producer_epoch": 3,
        "coordinator_epoch": -1,
        "start_offset": 0,
        "last_timestamp": 0,
        "duration_min": 20,
    }
    none = run("transactions", "find-hanging", "--max-transaction-timeout", "30", "--json")
    assert none.json == {"hanging_transactions": []}
    abort = ["transactions", "abort", "--topic", "payments", "--partition", "1", "--start-offset"]
    for offset in ("5", "-1"):
        wrong = run(*abort, offset)
        assert (wrong.code, wrong.error_code) == (1, "INVALID_TXN_STATE")
    shown = run(*abort, "0", "--dry-run")
    assert shown.stdout == "would abort the transaction from offset 0 of payments-1\n"
    assert len(run("transactions", "find-hanging", "--json").json["hanging_transactions"]) == 1
    assert run(*abort, "5", "--dry-run").error_code == "INVALID_TXN_STATE"
    assert run(*abort, "0").stdout == "aborted the transaction from offset 0 of payments-1\n"
    assert run("transactions", "find-hanging", "--json").json == {"hanging_transactions": []}
    assert run("verify").code == 0
    usage = run("transactions", "find-hanging", "--partition", "1")
    assert (usage.code, "--partition needs --topic" in usage.error) == (2, True)


def test_a_transaction_with_an_owner_is_not_aborted(run: Run, engine: Engine) -> None:
    """The error says to wait for it, to fence its id, or to sweep."""
    open_transaction(engine, "load")
    answer = run("transactions", "abort", "--topic", "payments", "--partition", "0", "--start-offset", "0")
    assert (answer.code, answer.error_code) == (1, "INVALID_TXN_STATE")
    assert "coordinator sweep" in answer.error


def test_fence(run: Run, engine: Engine) -> None:
    """The open transaction is aborted and the producer is fenced. Fencing does not create an unknown id."""
    producer = open_transaction(engine, "load")
    (row,) = run("transactions", "fence", "load", "--json").json["fenced"]
    assert row["transactional_id"] == "load"
    assert row["producer_epoch"] > producer.producer_epoch
    with pytest.raises(ProducerFencedError):
        producer.commit_transaction()
    assert run("transactions", "fence", "load", "nobody").code == 1
    listed = run("transactions", "list", "--json").json["transactions"]
    assert [found["transactional_id"] for found in listed] == ["load"]


# --- the coordinator's jobs -------------------------------------------------------------------------------


def test_the_sweep_aborts_what_timed_out(run: Run, engine: Engine) -> None:
    """It aborts nothing else, and reports what it did."""
    open_transaction(engine, "young")
    write_transaction_state(
        engine,
        "old",
        state="Ongoing",
        producer_id=4_000,
        producer_epoch=0,
        transaction_timeout_ms=1_000,
        partitions=[TopicPartition("payments", 1)],
        last_update_ms=system_clock() - 10_000,
    )
    answer = run("coordinator", "sweep")
    assert answer.stdout.startswith("aborted 1 transaction: old")
    assert run("coordinator", "sweep", "--json").json["transactional_ids"] == []
    states = {
        row["transactional_id"]: row["transaction_state"]
        for row in run("transactions", "list", "--json").json["transactions"]
    }
    assert states == {"old": "CompleteAbort", "young": "Ongoing"}


def test_markers_finish_what_is_decided(run: Run, engine: Engine) -> None:
    """A transaction that was committed with deferred markers is invisible before the command, and visible
    after it."""
    producer = engine.producer(transactional_id="load", markers="deferred")
    producer.init_transactions()
    with producer.transaction():
        producer.produce("payments", batch(engine, 3), partition=0)
    assert run("consume", "payments", "--json").json["record_count"] == 0
    done = run("coordinator", "markers", "--json").json
    assert (done["transactional_ids"], done["partitions_marked"], done["failures"]) == (["load"], 1, [])
    assert run("consume", "payments", "--json").json["record_count"] == 3


def test_a_sweep_that_could_not_finish_fails(
    run: Run, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """stdout has what was done, stderr has why the rest was not done, and the exit code is 1."""
    from txn_engine.coordinator.coordinator import Coordinator
    from txn_engine.types import SweepReport

    report = SweepReport(("a",), 1, 2, ("partition 3 is damaged", "and 4"))
    monkeypatch.setattr(Coordinator, "write_pending_markers", lambda _: report)
    answer = run("coordinator", "markers", "--json")
    assert answer.code == 1
    assert answer.json["failures"] == ["partition 3 is damaged", "and 4"]
    told = json.loads(answer.error)["error"]
    assert told["code"] == "SWEEP_INCOMPLETE"
    assert "partition 3 is damaged (and 1 more)" in told["message"]


def test_expire_and_snapshot(run: Run, engine: Engine) -> None:
    """Transactional ids that were idle too long expire, and logs that have grown get snapshots."""
    write_transaction_state(
        engine,
        "idle",
        state="Empty",
        producer_id=1,
        producer_epoch=0,
        last_update_ms=system_clock() - 8 * 86_400_000,
    )
    assert run("coordinator", "expire").stdout == "expired 1 transactional id: idle\n"
    assert run("transactions", "list", "--json").json == {"transactions": []}
    engine.producer().produce("payments", batch(engine, 5), partition=0).result()
    (row,) = run("coordinator", "snapshot", "--topic", "payments", "--json").json["snapshots"]
    assert row == {"topic": "payments", "partition": 0, "offset": 5}
    again = run("coordinator", "snapshot", "--topic", "payments", "--partition", "0")
    assert again.stdout.splitlines() == ["Topic  Partition  Offset"]
    assert "no log has grown" in again.stderr
    assert run("coordinator", "snapshot", "--partition", "0").code == 2
