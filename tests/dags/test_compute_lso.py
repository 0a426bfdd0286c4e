"""txn_compute_lso: snapshots, last stable offsets and lags."""

from __future__ import annotations

from typing import Any

import pytest

from tests.dags.payments import ROWS, commit, leave_offsets_pending, leave_open
from tests.support.finished_run import RunDag
from txn_engine import Engine, OffsetAndMetadata, TopicPartition

pytestmark = pytest.mark.airflow


def _by_place(table: dict[str, Any]) -> dict[tuple[Any, ...], dict[str, Any]]:
    rows = [dict(zip(table["columns"], row, strict=True)) for row in table["rows"]]
    return {(row.get("group"), row["topic"], row["partition"]): row for row in rows}


def test_the_tables_show_who_holds_readers_back_and_every_groups_lag(engine: Engine, run_dag: RunDag) -> None:
    """With committed, aborted and open transactions, the tables show who holds readers back and the lag of
    every group, with pending offsets too."""
    commit(engine, "load-1")
    leave_open(engine, "load-2").abort_transaction()
    commit(engine, "load-3")
    reader = engine.consumer(group_id="readers")
    reader.assign([TopicPartition("payments", 0)])
    reader.commit({TopicPartition("payments", 0): OffsetAndMetadata(3)})
    pending = leave_offsets_pending(engine, "writers", "copy", 2)
    leave_open(engine, "load-4")
    offsets = engine.admin.list_offsets("payments")

    run = run_dag("txn_compute_lso")

    assert run.state == "success"
    stable = _by_place(run.xcom("last_stable_offsets"))
    assert len(stable) == 2
    for number in range(2):
        row, at = stable[None, "payments", number], offsets[TopicPartition("payments", number)]
        assert row["last_stable_offset"] == at.last_stable_offset < at.high_watermark == row["high_watermark"]
        assert row["behind"] == at.high_watermark - at.last_stable_offset
        assert (row["open_transactions"], row["held_by"], row["aborted_transactions"]) == (1, "load-4", 1)
        assert 0 <= row["held_for_s"] < 3_600  # seconds, not milliseconds
    lags = _by_place(run.xcom("group_lags"))
    lso = offsets[TopicPartition("payments", 0)].last_stable_offset
    row = lags["readers", "payments", 0]
    assert (row["committed_offset"], row["last_stable_offset"], row["lag"]) == (3, lso, lso - 3)
    assert row["held_back"] == offsets[TopicPartition("payments", 0)].high_watermark - lso > 0
    row = lags["writers", "payments", 0]
    assert (row["pending_offset"], row["pending_producer_id"]) == (2, pending.producer_id)
    assert "held_by" in run.log
    assert "load-4" in run.log


def test_snapshots_are_written_where_logs_have_grown_and_once(engine: Engine, run_dag: RunDag) -> None:
    """The first run writes snapshots, and the second finds nothing to do. The audit finds nothing, and
    readers see the same."""
    commit(engine, "load-1")
    first = run_dag("txn_compute_lso")
    assert first.xcom("write_snapshots") == {"__transaction_state": 1, "payments": 2}
    second = run_dag("txn_compute_lso")
    assert second.xcom("write_snapshots") == {}
    incarnation = engine.admin.describe_topic("payments").incarnation
    assert engine.admin.verify().findings == ()
    assert any("snap" in key.key for key in engine.store.list(f"topics/payments/{incarnation}/"))
    assert engine.scan("payments").to_table().num_rows == ROWS


def test_a_dry_run_shows_the_tables_and_writes_no_snapshots(engine: Engine, run_dag: RunDag) -> None:
    """A dry run shows the tables and changes no object of the store."""
    commit(engine, "load-1")
    before = {info.key: info.size for info in engine.store.list("")}
    run = run_dag("txn_compute_lso", dry_run=True)
    assert run.state == "success", run.errors
    assert run.tasks["write_snapshots"] == "skipped"
    assert len(run.xcom("last_stable_offsets")["rows"]) == 2
    assert {info.key: info.size for info in engine.store.list("")} == before


# `make test` has an empty store in test_coordinator_sweep.py
@pytest.mark.shard("airflow")
def test_an_empty_store_gives_empty_tables(store_url: str, run_dag: RunDag) -> None:
    """A run on an empty store is a success with empty tables."""
    run = run_dag("txn_compute_lso")
    assert run.state == "success"
    assert run.xcom("last_stable_offsets")["rows"] == run.xcom("group_lags")["rows"] == []
    assert run.xcom("write_snapshots") == {}


# `make test` has such a holder in test_alerts.py
@pytest.mark.shard("airflow")
def test_a_holder_that_no_coordinator_row_knows_is_named_by_its_producer_id(
    engine: Engine, run_dag: RunDag
) -> None:
    """A hanging transaction that no coordinator row knows is named by its producer id, because no sweep will
    end it."""
    from tests.dags.payments import rows

    engine.partition("payments", 1).append(
        rows(), producer_id=4_711, producer_epoch=0, base_sequence=0, is_transactional=True
    )
    run = run_dag("txn_compute_lso")
    worst = run.xcom("last_stable_offsets")["rows"][0]
    assert worst[:2] == ["payments", 1]
    assert "producer 4711" in worst


def test_a_long_table_keeps_the_worst_rows_and_says_what_it_left_out() -> None:
    """A table keeps its worst thousand rows and says how many it left out, because an XCom has no place for
    ten thousand partitions."""
    from txn_engine_airflow.tables import LAG_COLUMNS, as_text, show

    rows = [["g", "t", number, 0, 0, 5_000 - number, 0, -1, -1] for number in range(1_200)]
    table = show("groups", LAG_COLUMNS, rows)
    assert (len(table["rows"]), table["rows_left_out"]) == (1_000, 200)
    assert as_text(table).splitlines()[-1] == "... and 200 more"


def test_a_log_shows_what_nobody_sees_in_a_name_in_escapes(caplog: pytest.LogCaptureFixture) -> None:
    """A task's log shows control characters in old names escaped, because it is read on terminals. The XCom
    has the name itself."""
    from txn_engine.types import SweepReport
    from txn_engine_airflow.sweeps import _result
    from txn_engine_airflow.tables import LAG_COLUMNS, show

    caplog.set_level("INFO")
    name = "old\x1b[2J\u200b"
    assert show("groups", LAG_COLUMNS, [[name, "t", 0, 0, 0, 0, 0, -1, -1]])["rows"][0][0] == name
    assert _result("aborted", SweepReport(transactional_ids=(name,)))["transactional_ids"] == [name]
    assert caplog.text.count("old\\x1b[2J\\u200b") == 2
    assert name not in caplog.text
