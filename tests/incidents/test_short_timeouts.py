"""A time-out of seconds had no effect, because the sweep ran once a minute.

A load of an hour was refused, and an id that rested for a week was gone. Each of these is a setting that an
operator changes while everything is running.
"""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from click.testing import CliRunner

from txn_engine import Engine, connect
from txn_engine.cli.main import cli
from txn_engine.errors import (
    InvalidProducerEpochError,
    InvalidProducerIdMappingError,
    InvalidTransactionTimeoutError,
)
from txn_engine.log import store_settings
from txn_engine.testing import ManualClock

SCHEMA = pa.schema([("id", pa.int64())])
RECORD = pa.table({"id": [1]}, schema=SCHEMA)
DAY_MS = 86_400_000


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(1_750_000_000_000)


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"file://{tmp_path / 'ledger'}"


@pytest.fixture
def engine(url: str, clock: ManualClock) -> Engine:
    made = connect(url, clock=clock)
    made.admin.create_topic("payments", schema=SCHEMA)
    return made


def operator(url: str, *words: str) -> str:
    answer = CliRunner().invoke(cli, [*words, "--url", url])
    assert answer.exit_code == 0, answer.output
    return answer.output


@pytest.mark.parametrize(("every_s", "ends_after_s"), [(60, 60), (10, 20)])
def test_a_sweep_as_frequent_as_short_time_outs_need(
    engine: Engine, clock: ManualClock, monkeypatch: pytest.MonkeyPatch, every_s: int, ends_after_s: int
) -> None:
    """A time-out of ten seconds ends a dead producer's transaction with the first sweep after it, not earlier."""
    dag_defaults = pytest.importorskip("txn_engine_airflow.dag_defaults")
    monkeypatch.setenv("TXN_ENGINE_SWEEP_SECONDS", str(every_s))
    schedule = dag_defaults.sweep_schedule()
    assert schedule == "* * * * *" if every_s == 60 else schedule.total_seconds() == every_s
    dead = engine.producer(transactional_id="dead", transaction_timeout_ms=10_000)
    dead.init_transactions()
    dead.begin_transaction()
    dead.produce("payments", RECORD).result()
    passed = 0
    while not engine.coordinator.abort_timed_out_transactions().transactional_ids:
        clock.advance(every_s * 1_000)
        passed += every_s
    assert passed == ends_after_s
    assert (
        engine.partition("payments", 0).last_stable_offset == engine.partition("payments", 0).high_watermark
    )
    with pytest.raises(InvalidProducerEpochError):
        dead.produce("payments", RECORD).result()


@pytest.mark.parametrize("seconds", ["0", "-1", "soon", "1e9", "86401"])
def test_an_interval_that_cannot_be(monkeypatch: pytest.MonkeyPatch, seconds: str) -> None:
    """An impossible interval is refused with an error that names the variable."""
    dag_defaults = pytest.importorskip("txn_engine_airflow.dag_defaults")
    from txn_engine_airflow.errors import TaskError

    monkeypatch.setenv("TXN_ENGINE_SWEEP_SECONDS", seconds)
    with pytest.raises(TaskError) as refused:
        dag_defaults.sweep_schedule()
    assert (refused.value.reason, refused.value.variable) == ("bad_setting", "TXN_ENGINE_SWEEP_SECONDS")


def test_a_longer_maximum(engine: Engine, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A running process uses an operator's new setting within five seconds."""
    with pytest.raises(InvalidTransactionTimeoutError):
        engine.producer(transactional_id="load", transaction_timeout_ms=3_600_000).init_transactions()
    shown = operator(url, "configs", "alter", "--config", "transaction.max.timeout.ms=3600000")
    assert "nothing was changed" in shown
    operator(url, "configs", "alter", "--config", "transaction.max.timeout.ms=3600000", "--execute")
    monkeypatch.setattr(store_settings, "CACHED_MS", 0)  # five seconds later
    with engine.producer(transactional_id="load", transaction_timeout_ms=3_600_000) as producer:
        producer.init_transactions()
        with producer.transaction():
            producer.produce("payments", RECORD)
    assert engine.scan("payments").to_table().num_rows == 1
    assert not engine.admin.verify().findings


@pytest.mark.parametrize("is_longer", [False, True])
def test_a_longer_expiry(engine: Engine, url: str, clock: ManualClock, is_longer: bool) -> None:
    """An id that rests for ten days is forgotten after seven, and goes on if the setting is thirty."""
    if is_longer:
        operator(
            url, "configs", "alter", "--config", "transactional.id.expiration.ms=2592000000", "--execute"
        )
    producer = engine.producer(transactional_id="weekly")
    producer.init_transactions()
    clock.advance(10 * DAY_MS)
    with connect(url, clock=clock) as sweeper:
        swept = sweeper.coordinator.expire_transactional_ids().transactional_ids
    assert swept == (() if is_longer else ("weekly",))
    if not is_longer:
        with pytest.raises(InvalidProducerIdMappingError):
            producer.begin_transaction()
        return
    with producer.transaction():
        producer.produce("payments", RECORD)
    assert engine.scan("payments").to_table().num_rows == 1
