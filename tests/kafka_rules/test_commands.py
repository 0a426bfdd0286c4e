"""`Engine.admin` and the command line behave as kafka-transactions.sh does (TransactionsCommandTest)."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from click.testing import CliRunner

from tests.kafka_rules.driver import T0, TOPIC, Partition, answer, put_row
from txn_engine import Engine
from txn_engine.cli.main import cli
from txn_engine.clock import system_clock
from txn_engine.testing import ManualClock
from txn_engine.types import HangingTransaction, ProducerState

PID, EPOCH, MINUTE_MS = 5_010, 5, 60_000
Run = Callable[..., Any]


@pytest.fixture
def run(url: str, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Call the command line on this test's store. Returns the exit code, and the JSON document or the
    text."""
    monkeypatch.setenv("COLUMNS", "200")

    def call(*arguments: str) -> tuple[int, Any]:
        result = CliRunner().invoke(
            cli, [*arguments, "--url", url], prog_name="txn-engine", catch_exceptions=False
        )
        if result.exit_code:
            return result.exit_code, result.stderr
        return 0, json.loads(result.stdout) if "--json" in arguments else result.stdout

    return call


@pytest.fixture
def clock() -> ManualClock:
    """The engine's clock shows the machine's time, because the command line has no other clock."""
    return ManualClock(system_clock())


def hang(engine: Engine, clock: ManualClock, age_ms: int, pid: int = PID, partition: int = 0) -> None:
    """Open a transaction that no coordinator row explains. Its last record was written this long ago."""
    clock.advance(-age_ms)
    found = Partition(engine.partition(TOPIC, partition)).transactional(pid, EPOCH, 0)
    clock.advance(age_ms)
    assert isinstance(found, tuple)


# --- find-hanging -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("age", "found"), [(15 * MINUTE_MS - 1, 0), (15 * MINUTE_MS, 0), (15 * MINUTE_MS + 1, 1)]
)
def test_cmd_01_a_candidate_is_older_than_any_may_be(
    engine: Engine, clock: ManualClock, age: int, found: int
) -> None:
    """CMD-01: a hanging transaction is open, and its last record is more than 15 minutes old. At exactly 15
    minutes it is not hanging."""
    hang(engine, clock, age)
    hanging = engine.admin.find_hanging_transactions()
    assert len(hanging) == found
    if found:
        assert hanging == [HangingTransaction(TOPIC, 0, PID, EPOCH, -1, 0, clock() - age, age)]


def test_cmd_01_the_last_record_counts(engine: Engine, clock: ManualClock) -> None:
    """CMD-01: a transaction that still writes is not hanging, however long ago it began. Another limit may be
    given."""
    hang(engine, clock, 60 * MINUTE_MS)
    clock.advance(-MINUTE_MS)
    Partition(engine.partition(TOPIC, 0)).transactional(PID, EPOCH, 1)
    clock.advance(MINUTE_MS)
    assert engine.admin.find_hanging_transactions() == []
    (found,) = engine.admin.find_hanging_transactions(TOPIC, 0, max_transaction_timeout_ms=MINUTE_MS - 1)
    assert found.start_offset == 0


@pytest.mark.parametrize(
    ("state", "pid", "partitions", "hangs"),
    [
        ("Ongoing", PID, [T0], False),
        ("PrepareCommit", PID, [T0], False),
        ("PrepareAbort", PID, [T0], False),
        ("Ongoing", PID, [T0._replace(partition=1)], True),
        ("Ongoing", PID + 1, [T0], True),
        ("CompleteAbort", PID, [], True),
        ("Empty", PID, [], True),
        ("Dead", PID, [], True),
    ],
)
def test_cmd_01_what_a_coordinator_row_explains_is_not_hanging(
    engine: Engine, clock: ManualClock, state: str, pid: int, partitions: list[Any], hangs: bool
) -> None:
    """CMD-01: a transaction is not hanging only if an Ongoing or Prepare* row of this producer id has this
    partition."""
    hang(engine, clock, 16 * MINUTE_MS)
    put_row(engine, state, pid=pid, partitions=partitions)
    assert bool(engine.admin.find_hanging_transactions()) == hangs
    found = answer(lambda: engine.admin.abort_transaction(TOPIC, 0, 0))
    assert found == (None if hangs else "INVALID_TXN_STATE")


def test_cmd_03_where_it_looks(engine: Engine, clock: ManualClock, run: Run) -> None:
    """CMD-03: a partition without a topic is a usage error. Without any name all topics are searched, the
    internal one too. There is no option for a broker."""
    hang(engine, clock, 16 * MINUTE_MS, partition=2)
    engine.admin.create_topic("other", partitions=1, schema=engine.admin.describe_topic(TOPIC).schema)  # type: ignore[arg-type]
    assert answer(lambda: engine.admin.find_hanging_transactions(None, 0)) == "INVALID_REQUEST"
    code, error = run("transactions", "find-hanging", "--partition", "0")
    assert (code, "--topic" in error) == (2, True)
    assert len(engine.admin.find_hanging_transactions()) == 1
    assert len(engine.admin.find_hanging_transactions(TOPIC)) == 1
    assert engine.admin.find_hanging_transactions(TOPIC, 0) == []
    assert engine.admin.find_hanging_transactions("other") == []
    assert answer(lambda: engine.admin.find_hanging_transactions("none")) == "UNKNOWN_TOPIC_OR_PARTITION"
    assert answer(lambda: engine.admin.find_hanging_transactions(TOPIC, 9)) == "UNKNOWN_TOPIC_OR_PARTITION"


def test_cmd_03_the_groups_offsets_are_searched_too(engine: Engine, clock: ManualClock) -> None:
    """CMD-03: offsets left pending by a transaction whose coordinator row is gone are found and aborted
    (KAFKA-13288).
    """
    consumer = engine.consumer(group_id="g")
    consumer.assign([T0])
    producer = engine.producer(transactional_id="gone")
    producer.init_transactions()
    producer.begin_transaction()
    producer.send_offsets_to_transaction({T0: 0}, consumer.group_metadata())
    put_row(engine, "Dead", pid=-1, epoch=-1, name="gone")
    clock.advance(16 * MINUTE_MS)
    (found,) = engine.admin.find_hanging_transactions()
    assert (found.topic, found.producer_id, found.start_offset) == (
        "__consumer_offsets",
        producer.producer_id,
        0,
    )
    engine.admin.abort_transaction(found.topic, found.partition, found.start_offset)
    assert engine.admin.find_hanging_transactions() == []
    assert engine.admin.list_groups() == []


# --- abort ------------------------------------------------------------------------------------------------


def test_cmd_04_an_abort_by_start_offset(engine: Engine, clock: ManualClock) -> None:
    """CMD-04: the abort uses the partition's own producer id, epoch and coordinator epoch, and sends -1 as 0.
    The epoch stays, so the old rule for markers (at least the stored epoch) holds here."""
    hang(engine, clock, 16 * MINUTE_MS)
    engine.admin.abort_transaction(TOPIC, 0, 0)
    assert engine.admin.describe_producers(TOPIC, 0) == [ProducerState(PID, EPOCH, 0, clock(), 0, -1)]
    log = Partition(engine.partition(TOPIC, 0))
    assert (log.stable, log.end, log.offsets()) == (2, 2, [])


def test_cmd_04_the_coordinator_epoch_is_kept(engine: Engine, clock: ManualClock) -> None:
    """CMD-04: the abort sends the coordinator epoch that the partition has seen."""
    log = Partition(engine.partition(TOPIC, 0))
    log.abort(PID, EPOCH, coordinator_epoch=29)
    hang(engine, clock, 16 * MINUTE_MS)
    engine.admin.abort_transaction(TOPIC, 0, 1)
    (state,) = engine.admin.describe_producers(TOPIC, 0)
    assert state.coordinator_epoch == 29
    assert log.stable == log.end


@pytest.mark.parametrize("start_offset", [1, 2, 99, -1])
def test_cmd_04_nothing_begins_there(engine: Engine, clock: ManualClock, start_offset: int) -> None:
    """CMD-04: if no open transaction begins at the offset, the abort is refused and writes nothing, even at
    an offset inside a transaction."""
    hang(engine, clock, 16 * MINUTE_MS)
    Partition(engine.partition(TOPIC, 0)).transactional(PID, EPOCH, 1)
    found = answer(lambda: engine.admin.abort_transaction(TOPIC, 0, start_offset))
    assert found == "INVALID_TXN_STATE"
    assert engine.partition(TOPIC, 0).high_watermark == 2


def test_an_abort_of_one_leaves_the_others(engine: Engine, clock: ManualClock) -> None:
    """If two transactions hang in one partition, each is found, and each is ended by its own start offset."""
    hang(engine, clock, 16 * MINUTE_MS)
    hang(engine, clock, 16 * MINUTE_MS, pid=PID + 1)
    assert [found.start_offset for found in engine.admin.find_hanging_transactions(TOPIC)] == [0, 1]
    engine.admin.abort_transaction(TOPIC, 0, 1)
    assert [found.start_offset for found in engine.admin.find_hanging_transactions(TOPIC)] == [0]
    assert engine.partition(TOPIC, 0).last_stable_offset == 0


# --- columns ----------------------------------------------------------------------------------------------

COLUMNS = {
    (
        "find-hanging",
    ): "Topic Partition ProducerId ProducerEpoch CoordinatorEpoch StartOffset LastTimestamp Duration(min)",
    ("list",): "TransactionalId Coordinator ProducerId TransactionState",
    ("describe", "--transactional-id", "open"): (
        "CoordinatorId TransactionalId ProducerId ProducerEpoch TransactionState TransactionTimeoutMs"
        " CurrentTransactionStartTimeMs TransactionDurationMs TopicPartitions"
    ),
    ("describe-producers", "--topic", TOPIC, "--partition", "0"): (
        "ProducerId ProducerEpoch LatestCoordinatorEpoch LastSequence LastTimestamp CurrentTransactionStartOffset"
    ),
}


@pytest.mark.parametrize("command", COLUMNS)
def test_cmd_05_columns(engine: Engine, clock: ManualClock, run: Run, command: tuple[str, ...]) -> None:
    """CMD-05: the table has Kafka's columns in Kafka's order, and one line for each finding."""
    hang(engine, clock, 16 * MINUTE_MS)
    put_row(engine, "Ongoing", name="open", pid=PID + 1, partitions=[T0._replace(partition=1)])
    code, text = run("transactions", *command)
    assert code == 0
    header, *lines = text.splitlines()
    assert header.split() == COLUMNS[command].split()
    assert len([line for line in lines if line.strip()]) == 1


def test_cmd_05_values(engine: Engine, clock: ManualClock, run: Run) -> None:
    """CMD-05: the duration is in whole minutes, and the columns of an open transaction are None if there is
    none."""
    hang(engine, clock, 16 * MINUTE_MS + 59_000)
    put_row(engine, "Empty", name="idle", pid=7, epoch=1)
    _, found = run("transactions", "find-hanging", "--json")
    (hanging,) = found["hanging_transactions"]
    assert (hanging["producer_id"], hanging["start_offset"], hanging["duration_min"]) == (PID, 0, 16)
    _, producers = run("transactions", "describe-producers", "--topic", TOPIC, "--partition", "0", "--json")
    assert producers["producers"][0]["current_transaction_start_offset"] == 0
    _, listed = run("transactions", "list", "--json")
    assert listed["transactions"] == [
        {
            "transactional_id": "idle",
            "coordinator": engine.admin.coordinator_partition("idle"),
            "producer_id": 7,
            "transaction_state": "Empty",
        }
    ]


def test_cmd_05_the_whole_cure(engine: Engine, clock: ManualClock, run: Run) -> None:
    """CMD-05: on the command line alone a hanging transaction can be found, and aborted with the values of
    the finding. Then nothing is found."""
    hang(engine, clock, 16 * MINUTE_MS)
    _, found = run("transactions", "find-hanging", "--json")
    (hanging,) = found["hanging_transactions"]
    place = ("--topic", hanging["topic"], "--partition", str(hanging["partition"]))
    code, _ = run("transactions", "abort", *place, "--start-offset", str(hanging["start_offset"]))
    assert code == 0
    assert run("transactions", "find-hanging", "--json") == (0, {"hanging_transactions": []})
    code, error = run("transactions", "abort", *place, "--start-offset", str(hanging["start_offset"]))
    assert code != 0
    assert "INVALID_TXN_STATE" in error


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ((), ["a", "b", "c"]),
        (("--state", "Ongoing"), ["a", "b"]),
        (("--state", "Ongoing", "--state", "CompleteAbort"), ["a", "b", "c"]),
        (("--producer-id", "2"), ["b"]),
        (("--state", "Ongoing", "--producer-id", "3"), []),
        (("--transactional-id-pattern", "[ab]"), ["a", "b"]),
        (("--duration-filter", str(30 * MINUTE_MS), "--state", "Ongoing"), ["a"]),
    ],
)
def test_filters_on_the_command_line(
    engine: Engine, clock: ManualClock, run: Run, options: tuple[str, ...], expected: list[str]
) -> None:
    """The filters of `list` work alone and together."""
    clock.advance(-60 * MINUTE_MS)
    put_row(engine, "Ongoing", name="a", pid=1)
    clock.advance(55 * MINUTE_MS)
    put_row(engine, "Ongoing", name="b", pid=2)
    put_row(engine, "CompleteAbort", name="c", pid=3)
    _, found = run("transactions", "list", "--json", *options)
    assert [row["transactional_id"] for row in found["transactions"]] == expected
