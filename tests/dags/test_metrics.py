"""The metrics that arrive at a StatsD server with Airflow's own settings."""

from __future__ import annotations

import re
import socket
from collections.abc import Callable, Iterator

import pyarrow as pa
import pytest

from tests.dags.payments import commit, leave_open
from tests.support.finished_run import RunDag
from txn_engine import Engine

pytestmark = pytest.mark.airflow

Received = Callable[[], dict[str, str]]


@pytest.fixture
def statsd(dag_bag: object, monkeypatch: pytest.MonkeyPatch) -> Iterator[Received]:
    """A UDP socket on 127.0.0.1 to which Airflow sends its metrics, set up as the task runner does it."""
    from airflow.sdk.configuration import conf
    from airflow.sdk.observability import stats
    from airflow.sdk.observability.metrics import stats_utils

    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as server:
        server.bind(("127.0.0.1", 0))
        server.setblocking(False)
        monkeypatch.setenv("AIRFLOW__METRICS__STATSD_ON", "True")
        monkeypatch.setenv("AIRFLOW__METRICS__STATSD_HOST", "127.0.0.1")
        monkeypatch.setenv("AIRFLOW__METRICS__STATSD_PORT", str(server.getsockname()[1]))
        legacy = conf.getboolean("metrics", "legacy_names_on")
        stats.initialize(factory=stats_utils.get_stats_factory(), export_legacy_names=legacy)

        def received() -> dict[str, str]:
            found = {}
            while True:
                try:
                    name, _, value = server.recv(65_535).decode().partition(":")
                except BlockingIOError:
                    return found
                if name.startswith("airflow.txn_engine."):
                    found[name.removeprefix("airflow.")] = value

        yield received
        monkeypatch.undo()
        stats.initialize(factory=stats_utils.get_stats_factory(), export_legacy_names=legacy)


def test_the_sweep_tells_what_is_open_and_how_long_it_took(
    engine: Engine, run_dag: RunDag, statsd: Received
) -> None:
    """With two open transactions, one of which has timed out, the sweep reports that one is left, how old it
    is and how long the sweep took."""
    leave_open(engine, "dead", timeout_ms=1)
    leave_open(engine, "alive")
    assert run_dag("txn_coordinator_sweep").state == "success"
    found = statsd()
    assert found["txn_engine.open_transactions"] == "1|g"
    age = re.fullmatch(r"(\d+)\|g", found["txn_engine.oldest_open_transaction_s"])
    assert age is not None
    assert int(age[1]) < 3_600  # seconds, not milliseconds
    assert re.fullmatch(r"\d+\.0+\|ms", found["txn_engine.sweep_duration"])
    assert not any("lso_lag" in name for name in found)


def test_the_markers_dag_tells_its_backlog(engine: Engine, run_dag: RunDag, statsd: Received) -> None:
    """The markers DAG reports the backlog that it found. The next run finds none."""
    for number in range(3):
        commit(engine, f"load-{number}", deferred=True)
    run_dag("txn_write_markers")
    assert statsd() == {"txn_engine.marker_backlog": "3|g"}
    run_dag("txn_write_markers")
    assert statsd() == {"txn_engine.marker_backlog": "0|g"}


def test_each_partition_tells_how_far_its_lso_is_behind(
    engine: Engine, run_dag: RunDag, statsd: Received
) -> None:
    """Each partition reports how far its LSO is behind. The dots of a topic's name become underscores in the
    metric's name."""
    engine.admin.create_topic("a.b")
    leave_open(engine, "open")
    behind = {at.partition: o.high_watermark - o.last_stable_offset for at, o in _offsets(engine).items()}
    run_dag("txn_compute_lso")
    assert statsd() == {
        "txn_engine.lso_lag.payments.0": f"{behind[0]}|g",
        "txn_engine.lso_lag.payments.1": f"{behind[1]}|g",
        "txn_engine.lso_lag.a_b.0": "0|g",
    }
    assert min(behind.values()) > 0


def test_each_dead_letter_topic_tells_how_many_letters_it_got(
    engine: Engine, run_dag: RunDag, statsd: Received
) -> None:
    """Each dead-letter topic reports how many letters it got, also if there are none, because a gauge keeps
    its last value."""
    from txn_engine.loading import DEAD_LETTERS

    for name in ("dead.a", "dead-b"):
        engine.admin.create_topic(name, partitions=1, schema=DEAD_LETTERS)
    letter = dict.fromkeys(DEAD_LETTERS.names) | {
        "topic": "payments", "reason": "r", "error_class": "E", "failed_at": 1, "tries": 1,
    }  # fmt: skip
    engine.partition("dead.a", 0).append(pa.Table.from_pylist([letter] * 3, schema=DEAD_LETTERS))
    assert run_dag("txn_compute_lso").state == "success"
    found = {name: value for name, value in statsd().items() if "dead_letters" in name}
    assert found == {"txn_engine.dead_letters.dead_a": "3|g", "txn_engine.dead_letters.dead-b": "0|g"}


def _offsets(engine: Engine) -> dict[object, object]:
    return dict(engine.admin.list_offsets("payments"))


def test_where_airflow_sends_no_metrics_nothing_happens(engine: Engine, run_dag: RunDag) -> None:
    """If Airflow sends no metrics, which is the default, the DAG runs all the same."""
    assert run_dag("txn_coordinator_sweep").state == "success"
