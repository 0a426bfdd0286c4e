"""TxnProduceOperator loads once for each run, however often it is tried and by whichever process."""

from __future__ import annotations

import inspect
import json
import os
import re
import shutil
import signal
import threading
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from decimal import Decimal
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from storage import open_store
from tests.blocks.conftest import DAY, PAYMENTS, RunTasks
from tests.blocks.payments import commit, events, leave_open, payments
from tests.support.faults import Fault, FaultyStore, no_pause
from tests.support.stores import accounts_in, states
from tests.support.waiting import wait_for
from txn_engine import Engine, found_files
from txn_engine.errors import InvalidRequestError
from txn_engine.files import read_records
from txn_engine.loading import DEAD_LETTERS, LOADED_FILES
from txn_engine.producer import Producer
from txn_engine.reasons import Reason

pytestmark = pytest.mark.airflow


def load(**settings: Any) -> Any:
    """The task `load`."""
    from txn_engine_airflow import TxnProduceOperator

    return TxnProduceOperator(**{"task_id": "load", "topic": "payments"} | settings)


# --- what a run does --------------------------------------------------------------------------------------


def test_a_run_loads_once_and_tells_of_it(engine: Engine, store_url: str, run_tasks: RunTasks) -> None:
    """A run loads in one transaction with an id from the task and the logical date. The topic's asset gets an
    event with the offsets."""
    run = run_tasks(lambda: load(python_callable=payments, op_kwargs={"count": 7}))
    assert run.state == "success", run.errors
    assert accounts_in(engine) == list(range(7))
    told = run.xcom("load")
    assert told["transactional_id"] == "test_a_run_loads_once_and_tells_of_it/load"
    assert (told["records"], told["run_id"]) == (
        7,
        "test_a_run_loads_once_and_tells_of_it/load@2026-03-01T00:00:00+00:00",
    )
    assert sum(last - first + 1 for first, last in told["offsets"].values()) == 7
    ends = engine.admin.list_offsets("payments")
    assert told["end_offsets"] == {str(at.partition): ends[at].last_stable_offset for at in ends}
    ((uri, extra),) = events(run)
    assert uri == f"txn-engine://{store_url.removeprefix('file:///')}/payments"
    assert extra == {name: value for name, value in told.items() if name != "transactional_id"}


def test_a_callable_may_ask_for_the_context_and_give_parts(engine: Engine, run_tasks: RunTasks) -> None:
    """A callable may ask for the context, and may return tables, batches and readers one after another. A run
    without a logical date is identified by the DAG run's id."""

    def parts(dag_run: Any, first: int) -> Any:
        assert dag_run.logical_date is None
        yield payments(first, 3)
        yield payments(first + 3, 2).to_batches()[0]
        yield pa.RecordBatchReader.from_batches(PAYMENTS, payments(first + 5, 4).to_batches())

    run = run_tasks(lambda: load(python_callable=parts, op_kwargs={"first": 10}), date=None)
    assert run.state == "success", run.errors
    assert accounts_in(engine) == list(range(10, 19))
    assert run.xcom("load")["run_id"].endswith(f"/load@{run.dag_run.run_id}")


def test_files_are_read_as_the_command_line_reads_them(
    engine: Engine, tmp_path: Path, run_tasks: RunTasks
) -> None:
    """Several files are loaded in one transaction, as the command line reads them. Paths and options are
    templates."""
    (tmp_path / "one.csv").write_text("account_id;amount\n1;2.50\n2;0.75\n")
    (tmp_path / "two.csv").write_text("amount;account_id\n9.99;3\n")
    paths = [f"{tmp_path}/{{{{ params.first }}}}.csv", f"{tmp_path}/two.csv"]
    make = lambda: load(path=paths, read_options={"delimiter": "{{ ';' }}"}, params={"first": "one"})  # noqa: E731
    run = run_tasks(make)
    assert run.state == "success", run.errors
    assert accounts_in(engine) == [1, 2, 3]
    assert len(states(engine)) == 1


def test_a_folder_of_bank_files(engine: Engine, tmp_path: Path, run_tasks: RunTasks) -> None:
    """Marks of numbers and a footer are options of the operator. A file without rows is passed over in a folder."""
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "b.csv").write_text("account_id;amount\n1;-1.091,09\n2;0,75\n\nTotal\n")
    options = {"delimiter": ";", "decimal": ",", "thousands": "."}
    (tmp_path / "in" / "a.csv").write_text("account_id;amount\nTotal\n")
    run = run_tasks(lambda: load(path=f"{tmp_path}/in", read_options={**options, "skip_footer": 1}))
    assert run.state == "success", run.errors
    amounts = engine.scan("payments").to_table(["amount"]).column("amount").to_pylist()
    assert sorted(amounts) == [Decimal("-1091.09"), Decimal("0.75")]


def test_a_mapped_load_that_catches_up_asks_for_a_manifest(
    engine: Engine, tmp_path: Path, run_tasks: RunTasks
) -> None:
    """Each run that catches up has a run id of its own, so without a manifest each would load a folder's files again.
    The first run fails and names the argument; with a manifest every file is loaded once, whatever the run."""
    from airflow.sdk import task

    from txn_engine_airflow import TxnProduceOperator

    (tmp_path / "one.csv").write_text("account_id,amount\n1,2.50\n")
    (tmp_path / "two.csv").write_text("account_id,amount\n2,0.75\n")
    engine.admin.create_topic("seen", partitions=1, schema=LOADED_FILES)

    def make(**settings: Any) -> Any:
        @task
        def files() -> list[str]:
            return sorted(map(str, tmp_path.glob("*.csv")))

        return TxnProduceOperator.partial(task_id="load", topic="payments", **settings).expand(path=files())

    red = run_tasks(make, catchup=True, schedule="@daily")
    assert red.state == "failed"
    assert red.faults == [("needs_manifest", "manifest", "")] * 2
    assert red.are_final
    assert accounts_in(engine) == []
    for days in range(2):
        run = run_tasks(
            lambda: make(manifest="seen"),
            catchup=True,
            schedule="@daily",
            date=DAY + timedelta(days=1 + days),
        )
        assert run.state == "success", run.errors
    assert accounts_in(engine) == [1, 2]


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("2026-03-01.csv", {"path": "{folder}/2026-03-01.csv"}),
        ("20260301/part.csv", {"path": ["{folder}/20260301"]}),
        ("today.csv", {"path": "{folder}/{{{{ 'today' if ds else '' }}}}.csv"}),
        ("all.csv", {"path": "{folder}/all.csv", "again": True}),
    ],
    ids=["a date", "a folder of a date", "a template", "again"],
)
def test_a_load_of_the_runs_own_files_may_catch_up(
    engine: Engine, tmp_path: Path, run_tasks: RunTasks, name: str, settings: dict[str, Any]
) -> None:
    """Paths with the run's date in them, templates that ask for the run, and `again=True` need no manifest."""
    file = tmp_path / name
    file.parent.mkdir(exist_ok=True)
    file.write_text("account_id,amount\n1,2.50\n")
    given = settings["path"]
    path = given.format(folder=tmp_path) if isinstance(given, str) else [given[0].format(folder=tmp_path)]
    run = run_tasks(lambda: load(**settings | {"path": path}), catchup=True, schedule="@daily")
    assert run.state == "success", run.errors
    assert accounts_in(engine) == [1]


def test_every_road_has_the_options_of_the_reader() -> None:
    """What `read_records` takes about a file, the operator, the command line and Spark take too."""
    from txn_engine.cli.reading_options import NAMES
    from txn_engine.spark import load_files
    from txn_engine_airflow.operators.produce import READ_OPTIONS

    of_a_load = {"source", "schema", "fill", "row_checks", "sizes", "rejected", "progress"}
    options = set(inspect.signature(read_records).parameters) - of_a_load
    assert options == READ_OPTIONS
    assert options <= set(inspect.signature(load_files).parameters)
    assert options == {*NAMES, "header", "columns"}  # names that differ are given in Python alone


def test_rows_that_cannot_be_used_are_dead_letters(
    engine: Engine, tmp_path: Path, run_tasks: RunTasks
) -> None:
    """Rows of files that cannot be used become dead letters in the same transaction. Above the limit the task
    fails, and nothing is loaded."""
    engine.admin.create_topic("dead", partitions=1, schema=DEAD_LETTERS)
    landing = tmp_path / "landing"
    landing.mkdir()
    (landing / "one.csv").write_text("account_id,amount\n1,2.50\n2,x\n3\n4,0.75\n")
    (landing / "_SUCCESS").touch()
    make = lambda most: lambda: load(path=str(landing), dead_letter_topic="dead", max_dead_letters=most)  # noqa: E731
    failed = run_tasks(make("49%"))
    assert failed.state == "failed"
    assert failed.engine_reasons == [Reason.TOO_MANY_BAD_ROWS]
    assert (accounts_in(engine), engine.scan("dead").to_table().num_rows) == ([], 0)
    run = run_tasks(make("{{ 50 }}%"), date=DAY + timedelta(days=1))
    assert run.state == "success", run.errors
    letters = engine.scan("dead").to_table().to_pylist()
    assert accounts_in(engine) == [1, 4]
    assert f"1 passed over, for how their names begin or end: {landing / '_SUCCESS'}" in run.log
    assert [row["source_line"] for row in letters] == [3, 4]
    assert run.xcom("load", "dead_letters") == 2
    assert {row["run_id"] for row in letters} == {run.xcom("load")["run_id"]}
    check = {
        "type": "expect_column_values_to_be_between",
        "kwargs": {"column": "account_id", "max_value": 1},
        "meta": {"on_failure": "dead_letter"},
    }
    (tmp_path / "suite.json").write_text(json.dumps({"name": "accounts", "expectations": [check]}))
    make_checked = lambda: load(  # noqa: E731
        path=str(landing), dead_letter_topic="dead", checks=str(tmp_path / "suite.json")
    )
    run = run_tasks(make_checked, date=DAY + timedelta(days=2))
    assert run.state == "success", run.errors
    assert (accounts_in(engine), run.xcom("load", "dead_letters")) == ([1, 1, 4], 3)


@pytest.mark.parametrize(
    "settings",
    [
        {"path": "f.csv", "max_dead_letters": 1},
        {"python_callable": payments, "manifest": "loaded"},
        {"path": "f.csv", "manifest": "loaded", "engine": "spark"},
    ],
)
def test_dead_letters_and_manifests_where_there_can_be_none(settings: dict[str, Any]) -> None:
    """Dead letters or manifests for a task that cannot have them are refused when the DAG is parsed."""
    with pytest.raises(ValueError, match=r"dead_letter|manifest"):
        load(**settings)


def test_rows_of_a_callable_that_cannot_be_used(engine: Engine, tmp_path: Path, run_tasks: RunTasks) -> None:
    """Rows of a callable that cannot be used become dead letters with the task's name and their number, and
    so do rows that fail a check."""
    engine.admin.create_topic("dead", partitions=1, schema=DEAD_LETTERS)
    wide = pa.schema([("account_id", pa.int64()), ("amount", pa.decimal128(30, 4))])

    def parts() -> Any:
        for amounts in (["1.00", "0.001"], ["3.00", "4.00", "0.001"]):
            found = [{"account_id": int(each[0]), "amount": Decimal(each)} for each in amounts]
            yield pa.Table.from_pylist(found, schema=wide)

    check = {
        "type": "expect_column_values_to_be_between",
        "kwargs": {"column": "account_id", "max_value": 3},
        "meta": {"on_failure": "dead_letter"},
    }
    suite = tmp_path / "suite.json"
    suite.write_text(json.dumps({"name": "accounts", "expectations": [check]}))

    def on(day: int, most: str) -> Any:
        settings = {"dead_letter_topic": "dead", "max_dead_letters": most, "checks": str(suite)}
        return run_tasks(lambda: load(python_callable=parts, **settings), date=DAY + timedelta(days=day))

    failed = on(0, "59%")
    assert failed.state == "failed"
    assert failed.engine_reasons == [Reason.TOO_MANY_BAD_ROWS]
    assert (accounts_in(engine), engine.scan("dead").to_table().num_rows) == ([], 0)
    run = on(1, "60%")
    assert run.state == "success", run.errors
    assert (accounts_in(engine), run.xcom("load", "dead_letters"), run.xcom("load")["records"]) == (
        [1, 3],
        3,
        2,
    )
    letters = engine.scan("dead").to_table().to_pylist()
    task = f"{run.dag_run.dag_id}/load"
    assert [(row["source_file"], row["source_line"]) for row in letters] == [(task, 2), (task, 4), (task, 5)]


@pytest.mark.parametrize(
    "settings",
    [
        {"manifest": "nowhere"},
        {"manifest": "payments"},
        {"dead_letter_topic": "payments"},
        {"partition": 9},
        {"read_options": {"delimiter": "too long"}},
        {"checks": "mistyped", "dead_letter_topic": "dead"},
        {"checks": "/nowhere/suite.json", "dead_letter_topic": "dead"},
        {"checks": "mistyped", "engine": "spark"},
        {"checks": "/nowhere/suite.json", "engine": "spark"},
        {"dead_letter_topic": "payments", "engine": "spark"},
        {"path": "/nowhere/a.csv"},
        {"path": "/nowhere/*.csv"},
        {"transaction_timeout_s": 99_999_999},
        pytest.param({"path": "/nowhere/a.csv", "engine": "spark"}, marks=pytest.mark.shard("spark")),
    ],
    ids=str,
)
def test_a_bad_argument_fences_nobody(
    engine: Engine, tmp_path: Path, run_tasks: RunTasks, settings: dict[str, Any]
) -> None:
    """The task fails before it fences the producer of an earlier run, whose transaction stays open."""
    engine.admin.create_topic("dead", schema=DEAD_LETTERS)
    (tmp_path / "a.csv").write_text("account_id,amount\n1,2.50\n")
    with engine.producer(transactional_id="held") as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.produce("payments", pa.table({"account_id": [7], "amount": [Decimal(1)]}, PAYMENTS)).result()
        before = {info.key: info.size for info in engine.store.list("")}
        named = {"path": str(tmp_path / "a.csv"), "transactional_id": "held", **settings}
        run = run_tasks(lambda: load(**named))
        assert run.state == "failed"
        assert {info.key: info.size for info in engine.store.list("")} == before
        producer.commit_transaction()
    assert accounts_in(engine) == [7]


@pytest.mark.parametrize("becomes", ["link", "folder", "pattern"])
def test_only_permitted_files(
    engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, becomes: str
) -> None:
    """With only_permitted_files the task opens only files below an input root, even if somebody replaces one
    by a link after the task has looked at it."""
    from txn_engine_airflow.operators import produce

    monkeypatch.setenv("TXN_ENGINE_INPUT_ROOTS", str(tmp_path / "in"))
    for folder in ("in", "out"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "a.csv").write_text("account_id,amount\n1,2.50\n")
    file = tmp_path / "in" / "a.csv"
    (tmp_path / "in" / "[a].csv").write_text("account_id,amount\n2,2.50\n")
    task = load(
        path=str(file if becomes != "pattern" else tmp_path / "in" / "[a].csv"), only_permitted_files=True
    )
    look = produce.permitted_input_file

    def replaced(path: object, *, param: str) -> Path:
        found = look(path, param=param)
        if becomes != "pattern":
            file.unlink()
            file.symlink_to(tmp_path / "out" / "a.csv" if becomes == "link" else tmp_path / "out")
        return found

    monkeypatch.setattr(produce, "permitted_input_file", replaced)
    (found,) = task._found()
    if becomes == "pattern":  # a name is a name
        assert found_files.opened(found).read().endswith(b"2,2.50\n")
        return
    with pytest.raises(InvalidRequestError) as refused:
        found_files.opened(found)
    assert refused.value.reason is Reason.LINK_LEADS_OUT


@pytest.mark.shard("airflow")
def test_files_that_a_manifest_knows_are_passed_over(
    engine: Engine, tmp_path: Path, run_tasks: RunTasks
) -> None:
    """Files that the manifest knows are skipped in every run, unless `again` says otherwise. A file that has
    changed since fails the task."""
    engine.admin.create_topic("loaded", partitions=1, schema=LOADED_FILES)
    engine.admin.create_topic("dead", partitions=1, schema=DEAD_LETTERS)
    folder = tmp_path / "landing"
    folder.mkdir()
    settings = {"path": str(folder), "manifest": "{{ 'loaded' }}", "dead_letter_topic": "dead"}

    def on(day: int, **more: Any) -> Any:
        return run_tasks(lambda: load(**settings, **more), date=DAY + timedelta(days=day))

    (folder / "one.csv").write_text("account_id,amount\n1,2.50\nx,1\n")
    assert on(0).xcom("load", "dead_letters") == 1
    none = on(1)
    assert (none.state, none.xcom("load")["run_id"], events(none)) == ("success", "", [])
    assert f"1 passed over, which manifest 'loaded' knows: {folder / 'one.csv'}" in none.log
    (folder / "two.csv").write_text("account_id,amount\n2,2.50\n")
    assert on(2).xcom("load")["records"] == 1
    assert accounts_in(engine) == [1, 2]
    assert on(3, again=True).xcom("load")["records"] == 2
    (folder / "one.csv").write_text("account_id,amount\n9,9\n")
    failed = on(4)
    assert (failed.state, accounts_in(engine)) == ("failed", [1, 1, 2, 2])
    assert failed.engine_reasons == [Reason.FILE_CHANGED_SINCE_LOAD]


def test_a_cleared_run_goes_by_its_manifest(engine: Engine, tmp_path: Path, run_tasks: RunTasks) -> None:
    """A run with a manifest that is cleared loads what is new, and fails for a file that has changed. With `again`
    it has loaded all of its files."""
    engine.admin.create_topic("loaded", partitions=1, schema=LOADED_FILES)
    (one, two) = files_of(tmp_path, 1, 2)
    Path(two).rename(tmp_path / "two")
    make = lambda **more: load(path=str(tmp_path / "*.csv"), manifest="loaded", **more)  # noqa: E731
    assert run_tasks(make).xcom("load")["records"] == 1
    (tmp_path / "two").rename(two)
    late = run_tasks(make)
    assert (late.state, late.xcom("load")["records"], accounts_in(engine)) == ("success", 1, [1, 2])
    for more in ({}, {"again": True}):
        done = run_tasks(lambda more=more: make(**more)).xcom("load")
        assert (done["committed_before"], done["records"], accounts_in(engine)) == (True, 0, [1, 2])
    Path(one).write_text("account_id,amount\n9,9\n")
    assert run_tasks(make).engine_reasons == [Reason.FILE_CHANGED_SINCE_LOAD]


def test_a_cleared_run_says_which_files_have_changed(
    engine: Engine, tmp_path: Path, run_tasks: RunTasks
) -> None:
    """A run without a manifest that is cleared loads nothing. Its log says which files are not as they were loaded."""
    one, two, three = files_of(tmp_path, 1, 2, 3)
    make = lambda: load(path=str(tmp_path / "*.csv"))  # noqa: E731
    assert run_tasks(make).state == "success"
    assert "differences" not in run_tasks(make).log
    Path(one).write_text("account_id,amount\n9,99999\n")
    Path(two).unlink()
    files_of(tmp_path, 4)
    run = run_tasks(make)
    assert (run.state, accounts_in(engine)) == ("success", [1, 2, 3])
    assert "3 differences from what was loaded" in run.log
    for line in (f"{one} has another size", f"{two} is gone", f"{tmp_path / '4.csv'} is new"):
        assert line in run.log
    for file in tmp_path.glob("*.csv"):
        file.unlink()
    run = run_tasks(make)
    assert (run.state, accounts_in(engine)) == ("success", [1, 2, 3])
    assert "differences from what was loaded" in run.log
    assert three not in run.errors


def test_a_run_with_nothing_to_load_may_load_what_comes_late(
    engine: Engine, tmp_path: Path, run_tasks: RunTasks
) -> None:
    """A run with nothing to load sends no event, commits nothing and is not remembered. When it is cleared
    after the file has come, it loads the file once."""
    from airflow.sdk import task

    from txn_engine_airflow import TransactionFinalSensor

    late = tmp_path / "late.csv"

    def make() -> None:
        @task
        def files() -> list[str]:
            return [str(late)] if late.exists() else []

        loaded = load(path=files())
        name, run_id = (f"{{{{ ti.xcom_pull('load')['{key}'] }}}}" for key in ("transactional_id", "run_id"))
        loaded >> TransactionFinalSensor(task_id="wait", transactional_id=name, run_id=run_id, timeout=0)

    run = run_tasks(make, dag_id="late")
    assert run.state == "success", run.errors
    assert (run.xcom("load")["records"], run.xcom("load")["run_id"], events(run)) == (0, "", [])
    assert run.xcom("wait")["state"] == "Empty"
    assert set(states(engine).values()) == {"Empty"}
    late.write_text("account_id,amount\n1,2.50\n2,3.50\n")
    told = [run_tasks(make, dag_id="late").xcom("load") for _ in range(2)]
    assert [each["committed_before"] for each in told] == [False, True]
    assert accounts_in(engine) == [1, 2]


def test_a_path_that_an_earlier_task_did_not_give(engine: Engine, run_tasks: RunTasks) -> None:
    """An earlier task that returns None instead of a list has forgotten its paths: that is not a run with nothing to
    load."""
    from airflow.sdk import task

    @task
    def listing() -> None:
        """A function without its `return`."""

    run = run_tasks(lambda: load(path=listing()), retries=1)
    assert run.faults == [("bad_argument", "path", "")]


def test_tables_without_records_are_nothing_to_load(engine: Engine, run_tasks: RunTasks) -> None:
    """Tables without records are nothing to load, like None. Their columns are checked all the same."""
    calls: list[int] = []

    def empty() -> Any:
        calls.append(1)
        yield payments(0, 0)

    for _ in range(2):
        run = run_tasks(lambda: load(python_callable=empty))
        assert (run.state, run.xcom("load")["committed_before"]) == ("success", False)
    assert (len(calls), accounts_in(engine)) == (2, [])
    wrong = run_tasks(lambda: load(python_callable=lambda: pa.table({"strange": pa.array([], pa.int64())})))
    assert wrong.state == "failed"


def test_deferred_markers_are_announced_to_who_writes_them(engine: Engine, run_tasks: RunTasks) -> None:
    """With deferred markers, the coordinator's alias gets an event, and readers see the records when the
    markers are written."""
    run = run_tasks(lambda: load(python_callable=payments, markers="deferred"))
    assert run.state == "success", run.errors
    assert accounts_in(engine) == []
    assert [uri.rsplit("/", 1)[1] for uri, _ in events(run)] == ["payments", "__transaction_state"]
    engine.coordinator.write_pending_markers()
    assert accounts_in(engine) == list(range(10))


def test_mapped_tasks_have_ids_of_their_own(engine: Engine, run_tasks: RunTasks) -> None:
    """Parts of a mapped task have transactional ids of their own, by what they are given. So they load at the same
    time without fencing one another, and each is recognised when it runs again."""
    from txn_engine_airflow import TxnProduceOperator, topic_alias

    def make() -> None:
        TxnProduceOperator.partial(
            task_id="load", topic="payments", python_callable=payments, outlets=[topic_alias("payments")]
        ).expand(op_kwargs=[{"first": 0}, {"first": 100}])

    run = run_tasks(make, dag_id="mapped")
    assert run.state == "success", run.errors
    assert all(re.fullmatch("mapped/load/[0-9a-f]{16}", name) for name in states(engine))
    assert len(states(engine)) == 2
    assert accounts_in(engine) == [*range(10), *range(100, 110)]
    assert [extra["records"] for _, extra in events(run)] == [10, 10]
    again = run_tasks(make, dag_id="mapped")
    assert [again.xcom("load", map_index=part)["committed_before"] for part in (0, 1)] == [True, True]
    assert len(accounts_in(engine)) == 20


# --- run again --------------------------------------------------------------------------------------------


@pytest.mark.shard("airflow")
def test_a_topic_made_again_is_loaded_again(engine: Engine, run_tasks: RunTasks) -> None:
    """A run that was committed into a deleted topic loads again into the topic of the same name."""
    description = engine.admin.describe_topic("payments")
    for number in (0, 2):
        for committed_before in (False, True):
            run = run_tasks(lambda: load(python_callable=payments), dag_id="again")
            assert run.state == "success", run.errors
            told = run.xcom("load")
            assert (told["committed_before"], told["run_id"].partition("@incarnation=")[2]) == (
                committed_before,
                str(number or ""),
            )
        assert accounts_in(engine).count(0) == 1
        engine.admin.delete_topic("payments")
        engine.admin.create_topic("payments", partitions=2, schema=description.schema, key=description.key)


def test_a_cleared_task_run_again_does_not_load_twice(engine: Engine, run_tasks: RunTasks) -> None:
    """A cleared task that runs again does not call its callable, and sends the event again."""
    calls: list[int] = []

    def source() -> Any:
        calls.append(1)
        return payments(100 * len(calls), 3)

    first = run_tasks(lambda: load(python_callable=source))
    again = run_tasks(lambda: load(python_callable=source))
    assert (first.state, again.state) == ("success", "success")
    assert first.dag_run.run_id == again.dag_run.run_id
    assert (len(calls), accounts_in(engine)) == (1, [100, 101, 102])
    assert again.xcom("load")["committed_before"] is True
    assert [extra["committed_before"] for _, extra in events(again)] == [False, True]


def test_a_backfill_of_two_dates_loads_both(engine: Engine, run_tasks: RunTasks) -> None:
    """A backfill loads each of two dates once, whichever comes first."""
    source = lambda ds: payments(int(ds[-2:]) * 100, 2)  # noqa: E731
    for day in (9, 3, 9):
        run = run_tasks(lambda: load(python_callable=source), date=DAY.replace(day=day))
        assert run.state == "success", run.errors
    assert accounts_in(engine) == [300, 301, 900, 901]
    assert list(states(engine)) == ["test_a_backfill_of_two_dates_loads_both/load"]


def test_a_retry_after_a_commit_whose_reply_was_lost_loads_nothing(
    engine: Engine, run_tasks: RunTasks, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If the first try dies with its transaction committed, the second finds that out, loads nothing and
    sends the event."""
    from txn_engine.producer import Producer

    real, calls = Producer.commit_transaction, []

    def commit_and_die(producer: Producer, **kwargs: Any) -> None:
        real(producer, **kwargs)
        calls.append(1)
        if len(calls) == 1:
            raise ConnectionError("the worker lost its network")

    monkeypatch.setattr(Producer, "commit_transaction", commit_and_die)
    run = run_tasks(lambda: load(python_callable=payments), retries=1)
    assert run.state == "success", run.errors
    assert calls == [1]
    assert accounts_in(engine) == list(range(10))
    assert run.xcom("load")["committed_before"] is True
    assert len(events(run)) == 1


@pytest.mark.parametrize("fault", ["before", "after"])
def test_a_commit_without_an_answer_is_asked_for_again(
    engine: Engine, store_url: str, run_tasks: RunTasks, monkeypatch: pytest.MonkeyPatch, fault: Fault
) -> None:
    """If a commit gets no answer because the store is away, the same try asks again, whether or not the
    decision was stored."""
    import txn_engine_airflow.hook as hook

    calls: list[str] = []
    decision = f"{2:020d}.parquet"  # behind the row of the id, and the one that adds partitions

    def decide(operation: str, key: str, _: int) -> Fault | None:
        if "__transaction_state" not in key or (not calls and not key.endswith(decision)):
            return None
        if operation == "put_if_absent" or calls:
            calls.append(key)
        if not calls or len(calls) > 12:
            return None
        return fault if operation == "put_if_absent" else "before"

    def connect_to(_: Any) -> Engine:
        return Engine(FaultyStore(open_store(store_url), decide=decide), pause=no_pause)

    monkeypatch.setattr(hook, "connect_to", connect_to)
    run = run_tasks(lambda: load(python_callable=payments))
    assert run.state == "success", run.errors
    assert "it is asked for again" in run.log
    assert accounts_in(engine) == list(range(10))
    assert run.xcom("load")["committed_before"] is False


def test_what_a_dead_try_left_open_is_ended_by_the_next(engine: Engine, run_tasks: RunTasks) -> None:
    """A transaction that a dead try left open is ended by the next try, and its records are never visible."""
    leave_open(engine, payments(500), "open/load")
    run = run_tasks(lambda: load(python_callable=payments), dag_id="open")
    assert run.state == "success", run.errors
    assert accounts_in(engine) == list(range(10))
    assert states(engine) == {"open/load": "CompleteCommit"}


def test_of_two_runs_side_by_side_the_fenced_one_is_retried_and_both_load(
    engine: Engine, run_tasks: RunTasks
) -> None:
    """If two runs load at the same time, the fenced one is retried and both load. One line says what
    happened, and records of the fenced try are never visible."""
    tries: list[int] = []
    next_day = "2026-03-02T00:00:00+00:00"

    def overtaken() -> Any:
        tries.append(1)
        yield payments(0, 3)
        if len(tries) == 1:  # another run of the same task begins, and commits, meanwhile
            commit(engine, payments(900, 2), "side_by_side/load", run_id=f"side_by_side/load@{next_day}")

    run = run_tasks(lambda: load(python_callable=overtaken), dag_id="side_by_side", retries=1)
    assert run.state == "success", run.errors
    assert accounts_in(engine) == [0, 1, 2, 900, 901]
    assert run.faults == [("taken_over", "transactional_id", "")]
    assert "another try or run of this task has taken over its transactional id" in run.log
    other = run_tasks(
        lambda: load(python_callable=payments), dag_id="side_by_side", date=DAY + timedelta(days=1)
    )
    assert other.xcom("load")["committed_before"] is True


def commit_days(engine: Engine, task: str, first: datetime, count: int) -> None:
    """Commit this many runs of a task, one for each day."""
    producer = engine.producer(transactional_id=task)
    producer.init_transactions()
    for number in range(count):
        with producer.transaction(run_id=f"{task}@{(first + timedelta(days=number)).isoformat()}"):
            producer.produce("payments", payments(1_000, 1))


def broken() -> Any:
    raise ConnectionError("the source is away")


# `make test` has forgotten runs, and a note that is found, in the tests below
@pytest.mark.shard("airflow")
def test_a_run_beyond_the_logs_memory_is_told_from_one_that_may_have_committed(
    engine: Engine, run_tasks: RunTasks
) -> None:
    """The log knows the last 100 runs of an id. For older ones a note decides that the task made before its
    first transaction. If that is forgotten too, the task fails and loads nothing."""
    assert run_tasks(lambda: load(python_callable=broken), dag_id="many").state == "failed"
    commit_days(engine, "many/load", DAY + timedelta(days=1), 101)
    early = run_tasks(lambda: load(python_callable=payments), dag_id="many", retries=1)
    assert early.state == "failed"
    assert early.faults == [("forgotten_run", f"many/load@{DAY.isoformat()}", "")]

    late = DAY + timedelta(days=102)
    assert run_tasks(lambda: load(python_callable=broken), dag_id="many", date=late).state == "failed"
    commit_days(engine, "many/load", late + timedelta(days=1), 20)
    again = run_tasks(lambda: load(python_callable=payments), dag_id="many", date=late)
    assert again.state == "success", again.errors
    assert [account for account in accounts_in(engine) if account < 1_000] == list(range(10))


# `make test` has a forgotten run in the test below, and a later try without its note after it
@pytest.mark.shard("airflow")
@pytest.mark.parametrize("lost", ["with its DAG run", "by itself"])
def test_a_run_whose_note_is_lost_loads_nothing_twice(engine: Engine, run_tasks: RunTasks, lost: str) -> None:
    """If a run's note is lost, it is refused if it is dated before the runs that the log has. A later one
    loads."""
    from airflow.models import DagRun
    from airflow.models.task_state_store import TaskStateStoreModel
    from airflow.utils.session import create_session
    from sqlalchemy import delete

    make = lambda: load(python_callable=payments)  # noqa: E731
    dag_id = f"lost_{lost.replace(' ', '_')}"
    assert run_tasks(make, dag_id=dag_id).state == "success"
    commit_days(engine, f"{dag_id}/load", DAY + timedelta(days=1), 101)
    with create_session() as session:
        model = DagRun if lost == "with its DAG run" else TaskStateStoreModel
        session.execute(delete(model).where(model.dag_id == dag_id))
    again = run_tasks(make, dag_id=dag_id, retries=1)
    assert again.state == "failed"
    assert [reason for reason, *_ in again.faults] == ["forgotten_run"]
    assert accounts_in(engine).count(0) == 1
    beside = DAY + timedelta(days=99, hours=1)  # not in the order of the dates, as where runs go side by side
    for date in (DAY + timedelta(days=102), beside):
        run = run_tasks(make, dag_id=dag_id, date=date)
        assert run.state == "success", run.errors
    assert accounts_in(engine).count(0) == 3


@pytest.mark.shard("airflow")
def test_a_backfill_beyond_the_logs_memory_loads_where_it_is_told_to(
    engine: Engine, run_tasks: RunTasks, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A backfill that is older than the log's memory loads only if somebody says that it was not loaded before. A run
    that is cleared keeps its params, so a Variable says it."""
    commit_days(engine, "older/load", DAY, 101)
    before = DAY - timedelta(days=30)
    told_by = "{{ var.value.get('forgotten_runs', 'refuse') }}"
    make = lambda: load(python_callable=payments, forgotten_runs=told_by)  # noqa: E731
    refused = run_tasks(make, dag_id="older", date=before)
    assert refused.state == "failed"
    assert [reason for reason, *_ in refused.faults] == ["forgotten_run"]
    monkeypatch.setenv("AIRFLOW_VAR_FORGOTTEN_RUNS", "load")
    for _ in range(2):
        told = run_tasks(make, dag_id="older", date=before)
        assert told.state == "success", told.errors
    assert accounts_in(engine).count(0) == 1
    wrong = run_tasks(lambda: load(python_callable=payments, forgotten_runs="{{ 'yes' }}"), dag_id="older")
    assert wrong.faults == [("bad_argument", "forgotten_runs", "")]


def test_a_later_try_without_its_note_is_refused_whatever_its_date(engine: Engine) -> None:
    """A later try without its note is refused even if its date is late, because a backfill of older dates may
    have pushed it out of the log's memory."""
    from txn_engine_airflow.errors import TaskError
    from txn_engine_airflow.operators.transactions import has_committed_before

    late = DAY + timedelta(days=250)
    commit_days(engine, "pushed/load", late, 1)
    commit_days(engine, "pushed/load", DAY, 101)
    forgetful = SimpleNamespace(get=lambda _: None, set=lambda *_, **__: None)
    context: Any = {"ti": SimpleNamespace(try_number=2), "task_state_store": forgetful}
    with engine.producer(transactional_id="pushed/load") as producer:
        producer.init_transactions()
        with pytest.raises(TaskError) as refused:
            has_committed_before(engine, producer, f"pushed/load@{late.isoformat()}", context, {})
    assert refused.value.reason == "forgotten_run"


# `make test` has an id without a time in the test below
@pytest.mark.shard("airflow")
def test_a_run_without_a_date_goes_by_the_time_in_its_id(engine: Engine, run_tasks: RunTasks) -> None:
    """A run without a logical date goes by the time that Airflow puts into its id. After the log has
    forgotten it, each such run loads."""
    commit_days(engine, "timed/load", DAY, 101)
    for _ in range(2):
        run = run_tasks(lambda: load(python_callable=payments), dag_id="timed", date=None)
        assert run.state == "success", run.errors
    assert accounts_in(engine).count(0) == 2


@pytest.mark.shard("airflow")
def test_a_run_whose_id_somebody_made_up_is_new_at_its_first_try(engine: Engine) -> None:
    """A run whose id has no time in it is new at its first try. Later tries have the note; without it they
    are refused."""
    from txn_engine_airflow.errors import TaskError
    from txn_engine_airflow.operators.transactions import has_committed_before

    class Memory(dict[str, Any]):
        def set(self, key: str, value: Any, **_: Any) -> None:
            self[key] = value

    def context(try_number: int, memory: Memory) -> Any:
        return {"ti": SimpleNamespace(try_number=try_number), "task_state_store": memory}

    commit_days(engine, "named/load", DAY, 101)
    with engine.producer(transactional_id="named/load") as producer:
        producer.init_transactions()
        run_id, memory = "named/load@mine", Memory()
        with pytest.raises(TaskError) as unknown:
            has_committed_before(engine, producer, run_id, context(2, Memory()), {})
        assert unknown.value.reason == "forgotten_run"
        for try_number in (1, 2):
            assert not has_committed_before(
                engine, producer, run_id, context(try_number, memory), {"path": "a"}
            )
        with producer.transaction(run_id):
            producer.produce("payments", payments(0, 1))
        assert has_committed_before(engine, producer, run_id, context(3, memory), {"path": "a"})
        assert has_committed_before(engine, producer, run_id, context(3, Memory()), {"path": "b"})
        with pytest.raises(TaskError) as other:
            has_committed_before(engine, producer, run_id, context(3, memory), {"path": "b"})
        assert (other.value.reason, other.value.subject) == ("other_arguments", "path was a and is b")


# --- whose run it is --------------------------------------------------------------------------------------


# `make test` has parts with ids of their own in test_mapped_tasks_have_ids_of_their_own
@pytest.mark.shard("airflow")
def test_tasks_that_share_a_transactional_id_load_each_its_own(engine: Engine, run_tasks: RunTasks) -> None:
    """Tasks of one DAG, parts of a mapped task, and another DAG on the same date may share a transactional
    id, and each loads its own records."""
    from txn_engine_airflow import TxnProduceOperator

    def make() -> None:
        first = load(python_callable=payments, op_kwargs={"count": 1}, transactional_id="shared")
        parts = TxnProduceOperator.partial(
            task_id="parts",
            topic="payments",
            python_callable=payments,
            transactional_id="shared",
            max_active_tis_per_dag=1,
        ).expand(op_kwargs=[{"first": 100, "count": 1}, {"first": 200, "count": 1}])
        first >> parts

    for _ in range(2):
        assert run_tasks(make, dag_id="sharing").state == "success"
    other = run_tasks(
        lambda: load(
            python_callable=payments, op_kwargs={"first": 300, "count": 1}, transactional_id="shared"
        ),
        dag_id="sharing_too",
    )
    assert other.state == "success"
    assert accounts_in(engine) == [0, 100, 200, 300]
    assert list(states(engine)) == ["shared"]


@pytest.mark.parametrize("markers", ["inline", "deferred"])
def test_a_topic_by_template_sends_its_event(engine: Engine, run_tasks: RunTasks, markers: str) -> None:
    """Only the run knows a topic or a connection that a template says. Its event is the topic's all the same."""
    for name in ("topic", "conn_id"):
        settings = {name: f"{{{{ '{ {'topic': 'payments', 'conn_id': 'txn_engine_default'}[name] }' }}}}"}
        run = run_tasks(
            lambda settings=settings: load(python_callable=payments, markers=markers, **settings),
            dag_id=f"by_template_{name}_{markers}",
        )
        assert run.state == "success", run.errors
        assert events(run)[0][1]["records"] == 10
        assert events(run)[0][0].endswith("/payments")
        engine.coordinator.write_pending_markers()


# --- told to end -------------------------------------------------------------------------------------------


@pytest.fixture
def sigterm() -> Iterator[None]:
    """Airflow's runner leaves its handler behind in this process."""
    before = signal.getsignal(signal.SIGTERM)
    yield
    signal.signal(signal.SIGTERM, before)


@pytest.mark.usefixtures("sigterm")
@pytest.mark.parametrize("retries", [0, 1])
def test_a_task_that_is_told_to_end_leaves_nothing_open(
    engine: Engine, run_tasks: RunTasks, monkeypatch: pytest.MonkeyPatch, retries: int
) -> None:
    """A task that is marked failed gets SIGTERM. It aborts its open transaction at once, and does not wait for the
    time-out and a sweep. If it has a try left, this one loads."""
    commit_transaction, calls = Producer.commit_transaction, []

    def told_to_end(producer: Producer, **given: Any) -> None:
        calls.append(producer)
        if len(calls) == 1:
            wait_for(lambda: [*states(engine).values()] == ["Ongoing"], what="the row of another thread")
            os.kill(os.getpid(), signal.SIGTERM)
            threading.Event().wait(300)
        commit_transaction(producer, **given)

    monkeypatch.setattr(Producer, "commit_transaction", told_to_end)
    run = run_tasks(lambda: load(python_callable=payments), retries=retries)
    (state,) = states(engine).values()
    assert (run.state, state, len(accounts_in(engine))) == (
        ("failed", "CompleteAbort", 0) if retries == 0 else ("success", "CompleteCommit", 10)
    )


def test_a_task_that_has_ended_may_be_told_to_end() -> None:
    """Airflow also calls `on_kill` after a time-out has ended the work."""
    load(python_callable=payments).on_kill()


# --- a mapped list that changes ---------------------------------------------------------------------------


def files_of(folder: Path, *numbers: int) -> list[str]:
    """A file with one record for each of these accounts."""
    for number in numbers:
        (folder / f"{number}.csv").write_text(f"account_id,amount\n{number},2.50\n")
    return [str(folder / f"{number}.csv") for number in numbers]


def mapped_over_paths(paths: list[str]) -> None:
    from txn_engine_airflow import TxnProduceOperator

    TxnProduceOperator.partial(task_id="load", topic="payments").expand(path=paths)


def mapped_with_ids(paths: list[str]) -> None:
    from txn_engine_airflow import TxnProduceOperator

    TxnProduceOperator.partial(task_id="load", topic="payments").expand_kwargs(
        [{"path": path, "transactional_id": f"file {path}"} for path in paths]
    )


def mapped_over_a_task(paths: list[str]) -> None:
    from airflow.sdk import task

    from txn_engine_airflow import TxnProduceOperator

    @task
    def listing() -> list[str]:
        return paths

    TxnProduceOperator.partial(task_id="load", topic="payments").expand(path=listing())


def in_a_mapped_group(paths: list[str]) -> None:
    from airflow.sdk import task, task_group

    from txn_engine_airflow import TxnProduceOperator

    @task
    def found(path: str) -> list[str]:
        return [path]

    @task_group
    def group(path: str) -> None:
        TxnProduceOperator(task_id="load", topic="payments", path=found(path))

    group.expand(path=paths)


def by_a_template(paths: list[str]) -> None:
    from airflow.sdk import task, task_group

    from txn_engine_airflow import TxnProduceOperator

    @task
    def listing() -> list[str]:
        return paths

    @task_group
    def group(_number: int) -> None:
        path = "{{ ti.xcom_pull(task_ids='listing')[ti.map_index] }}"
        TxnProduceOperator(task_id="load", topic="payments", path=path)

    listing() >> group.expand(_number=[*range(len(paths))])  # type: ignore[operator]


SHAPES = [mapped_over_paths, mapped_with_ids, mapped_over_a_task, in_a_mapped_group, by_a_template]


@pytest.mark.parametrize("make", SHAPES, ids=lambda make: make.__name__)
def test_a_mapped_list_that_shifts_loads_no_file_twice(
    engine: Engine, tmp_path: Path, run_tasks: RunTasks, make: Callable[[list[str]], None]
) -> None:
    """A part is known by its file. If the list is longer when a run is cleared, the file that was loaded is not
    loaded again under its new index. The index that has another file now fails, and says which it had."""
    (new, old), dag_id = files_of(tmp_path, 0, 1), f"shift_{make.__name__}"
    assert run_tasks(lambda: make([old]), dag_id=dag_id).state == "success"
    run = run_tasks(lambda: make([new, old]), dag_id=dag_id)
    assert accounts_in(engine) == [1]
    (fault,) = run.faults
    assert (fault[0], old in fault[1], new in fault[1]) == ("other_arguments", True, True)
    loads = {name: state for name, state in run.tasks.items() if "load" in name}
    assert sorted(loads.values()) == ["failed", "success"]
    grown = run_tasks(lambda: make([old, new]), dag_id=dag_id)
    assert grown.state == "success", grown.errors
    assert accounts_in(engine) == [0, 1]


@pytest.mark.parametrize("make", SHAPES, ids=lambda make: make.__name__)
def test_a_mapped_list_that_shifts_without_airflows_notes(
    engine: Engine, tmp_path: Path, run_tasks: RunTasks, make: Callable[[list[str]], None]
) -> None:
    """Airflow may drop its notes of a task. Then a list that has shifted loads what is new, and nothing twice."""
    from airflow.models.task_state_store import TaskStateStoreModel
    from airflow.utils.session import create_session
    from sqlalchemy import delete

    (new, old), dag_id = files_of(tmp_path, 0, 1), f"lost_{make.__name__}"
    assert run_tasks(lambda: make([old]), dag_id=dag_id).state == "success"
    with create_session() as session:
        session.execute(delete(TaskStateStoreModel))
    run = run_tasks(lambda: make([new, old]), dag_id=dag_id)
    assert (run.state, accounts_in(engine)) == ("success", [0, 1]), run.errors


@pytest.mark.parametrize("make", SHAPES, ids=lambda make: make.__name__)
def test_a_mapped_list_in_another_order_loads_nothing(
    engine: Engine, tmp_path: Path, run_tasks: RunTasks, make: Callable[[list[str]], None]
) -> None:
    """A run that is cleared with its list in another order finds each file loaded."""
    paths, dag_id = files_of(tmp_path, 0, 1), f"order_{make.__name__}"
    for given in (paths, paths[::-1]):
        run = run_tasks(lambda given=given: make(given), dag_id=dag_id)  # type: ignore[misc]
        assert run.state == "success", run.errors
        assert accounts_in(engine) == [0, 1]


@pytest.mark.parametrize("make", SHAPES, ids=lambda make: make.__name__)
def test_a_file_twice_in_a_mapped_list_is_loaded_once(
    engine: Engine, tmp_path: Path, run_tasks: RunTasks, make: Callable[[list[str]], None]
) -> None:
    """Parts with the same file are the same load."""
    run = run_tasks(lambda: make(files_of(tmp_path, 0) * 2), dag_id=f"twice_{make.__name__}")
    assert run.state == "success", run.errors
    assert accounts_in(engine) == [0]


def test_parts_that_are_given_nothing_of_their_own(engine: Engine, run_tasks: RunTasks) -> None:
    """A part that is given nothing of its own is known by its map index, so each part loads."""
    from airflow.sdk import task_group

    from txn_engine_airflow import TxnProduceOperator

    def by_index(ti: Any) -> pa.Table:
        return payments(10 * ti.map_index, 1)

    def make() -> None:
        @task_group
        def group(_number: int) -> None:
            TxnProduceOperator(task_id="load", topic="payments", python_callable=by_index)

        group.expand(_number=[5, 6])

    for _ in range(2):
        run = run_tasks(make)
        assert run.state == "success", run.errors
    assert accounts_in(engine) == [0, 10]


def test_a_part_has_to_be_plain_data(engine: Engine, run_tasks: RunTasks) -> None:
    """A part that is given an object cannot be told from another one, so it is refused before anything is loaded."""
    from txn_engine_airflow import TxnProduceOperator

    def make() -> None:
        TxnProduceOperator.partial(task_id="load", topic="payments", python_callable=payments).expand(
            op_kwargs=[{"first": 0, "count": object()}]
        )

    assert run_tasks(make).faults == [("bad_argument", "op_kwargs", "")]
    assert accounts_in(engine) == []


def test_a_dag_that_is_renamed_keeps_its_identity(
    engine: Engine, tmp_path: Path, run_tasks: RunTasks
) -> None:
    """With `identity` a DAG of another name finds the runs of the old one, mapped or not."""
    from txn_engine_airflow import TxnProduceOperator

    (path, *mapped) = files_of(tmp_path, 0, 1, 2)

    def make(**settings: Any) -> None:
        load(path=path, **settings.get("load", {}))
        TxnProduceOperator.partial(task_id="parts", topic="payments", **settings.get("parts", {})).expand(
            path=mapped
        )

    assert run_tasks(make, dag_id="old_name").state == "success"
    kept = {name: {"identity": f"old_name/{name}"} for name in ("load", "parts")}
    run = run_tasks(lambda: make(**kept), dag_id="new_name")
    assert run.state == "success", run.errors
    assert accounts_in(engine) == [0, 1, 2]
    for wrong in ("", "a@b", "x" * 901, 5):
        with pytest.raises(ValueError, match="identity"):
            load(path=path, identity=wrong)


def test_a_changed_transactional_id_loads_nothing_again(
    engine: Engine, tmp_path: Path, run_tasks: RunTasks
) -> None:
    """A task that is cleared with another transactional id, or another identity, has its note of the first one."""
    (path,) = files_of(tmp_path, 0)
    assert run_tasks(lambda: load(path=path)).state == "success"
    again = run_tasks(lambda: load(path=path, transactional_id="another"))
    assert again.xcom("load")["committed_before"] is True
    other = run_tasks(lambda: load(path=path, identity="another/load"))
    assert [reason for reason, *_ in other.faults] == ["other_arguments"]
    assert accounts_in(engine) == [0]


def test_arguments_that_may_be_secret_are_compared_and_not_told(engine: Engine, run_tasks: RunTasks) -> None:
    """Arguments that may be secret are compared by their digests and not shown. A run that did not commit may
    have other arguments."""
    make = lambda **given: load(python_callable=payments, op_kwargs=given)  # noqa: E731
    assert run_tasks(lambda: make(first=1, count="one")).state == "failed"
    assert run_tasks(lambda: make(first=1, count=1)).state == "success"
    run = run_tasks(lambda: make(first=4711, count=1))
    assert run.state == "failed"
    assert "op_kwargs.first was sha256 " in run.errors[0]
    assert "op_kwargs.count" not in run.errors[0]
    assert "4711" not in run.errors[0]
    assert accounts_in(engine) == [1]


def test_arguments_are_told_apart_by_what_they_hold() -> None:
    """Plain data is compared by value, in any process. Other objects are compared by their type alone."""
    from txn_engine_airflow.operators.arguments import differences, hidden, shown

    assert hidden({"b": 1, "a": [DAY, Path("x"), {2, 1}]}) == hidden({"a": [DAY, Path("x"), {1, 2}], "b": 1})
    assert hidden(object()) == hidden(object())
    assert len({hidden(value) for value in (1, "1", 1.5, None, [1], b"1", object())}) == 7
    assert shown("/a.csv") == '"/a.csv"'
    assert shown(["x" * 300]) != shown(["x" * 301])
    assert differences({"path": "1", "topic": "2"}, {"path": "1", "topic": "3", "new": "4"}) == (
        "new was not given and is 4, topic was 2 and is 3"
    )


# --- refusals ---------------------------------------------------------------------------------------------


def test_a_fault_in_a_file_names_its_line_and_nothing_is_loaded(
    engine: Engine, tmp_path: Path, run_tasks: RunTasks
) -> None:
    """A fault in a file fails the task in one line with its place, without a retry, because the file stays as
    it is."""
    file = tmp_path / "bad.csv"
    file.write_text("account_id,amount\n1,2.50\n2,two\n")
    run = run_tasks(lambda: load(path=str(file)), retries=2)
    assert run.state == "failed"
    (line,) = run.errors
    assert run.are_final
    assert f"{file}" in line
    assert "line 3" in line
    assert accounts_in(engine) == []
    assert set(states(engine).values()) <= {"Empty", "CompleteAbort"}


def test_a_callable_that_fails_leaves_nothing_to_be_seen(engine: Engine, run_tasks: RunTasks) -> None:
    """If a callable fails, its own error is the task's, and no transaction was begun, so readers do not wait."""

    def source() -> Any:
        yield payments()
        raise ConnectionError("the source is away")

    run = run_tasks(lambda: load(python_callable=source))
    assert run.state == "failed"
    assert "ConnectionError: the source is away" in run.log
    assert accounts_in(engine) == []
    assert list(states(engine).values()) == ["Empty"]
    commit(engine, payments(50, 1))
    assert accounts_in(engine) == [50]
    assert events(run) == []


@pytest.mark.parametrize(
    ("settings", "code"),
    [
        ({"topic": "no-such-topic", "python_callable": payments}, "UNKNOWN_TOPIC_OR_PARTITION"),
        ({"python_callable": lambda: "payments"}, "bad_output"),
        ({"python_callable": lambda: pa.table({"strange": [1]})}, "INVALID_RECORD"),
        ({"python_callable": payments, "transactional_id": "{{ ' ' }}"}, "bad_argument"),
        ({"python_callable": payments, "conn_id": "nowhere"}, "no_connection"),
        ({"python_callable": payments, "partition": 7}, "UNKNOWN_TOPIC_OR_PARTITION"),
    ],
)
def test_a_wrong_call_fails_in_one_line_and_is_not_retried(
    engine: Engine, run_tasks: RunTasks, settings: dict[str, Any], code: str
) -> None:
    """An invalid call fails without a retry in one line that says what was seen and expected."""
    run = run_tasks(lambda: load(**settings), retries=2)
    assert run.state == "failed"
    assert len(run.errors) == 1
    assert (run.codes, run.are_final) == ([code], True)
    assert accounts_in(engine) == []


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({}, "expected either path or python_callable"),
        ({"path": "a.csv", "python_callable": payments}, "expected either path or python_callable"),
        ({"path": "a.csv", "read_options": {"delimeter": ";"}}, r"read_options \['delimeter'\]"),
        ({"path": "a.csv", "transaction_timeout_s": 0}, "expected 1 or more"),
        ({"python_callable": payments, "only_permitted_files": True}, "only_permitted_files is for a path"),
        (
            {"path": "a", "engine": "spark", "only_permitted_files": True},
            "only_permitted_files is for a path",
        ),
    ],
)
def test_a_wrong_task_is_refused_when_its_file_is_parsed(settings: dict[str, Any], says: str) -> None:
    """An invalid task is refused with its name when its file is parsed."""
    with pytest.raises(ValueError, match=says):
        load(**settings)


# --- by Spark ---------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.spark
def test_spark_loads_files_once_for_a_run(engine: Engine, run_tasks: RunTasks, tmp_path: Path) -> None:
    """With Spark, files are loaded once with the same ids of task and run as without it."""
    for number in range(2):
        (tmp_path / f"{number}.csv").write_text(f"account_id,amount\n{number},1.10\n")
    files = str(tmp_path / "*.csv")
    run = run_tasks(lambda: load(path=files, engine="spark"))
    assert run.state == "success", run.errors
    told = run.xcom("load")
    assert (told["records"], told["committed_before"]) == (2, False)
    assert told["transactional_id"] == "test_spark_loads_files_once_for_a_run/load"
    assert len(events(run)) == 1
    again = run_tasks(lambda: load(path=files, engine="spark")).xcom("load")
    assert (again["records"], again["committed_before"]) == (0, True)
    assert accounts_in(engine) == [0, 1]


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.shard("airflow")
def test_spark_refuses_rows_that_do_not_fit_or_makes_them_dead_letters(
    engine: Engine, run_tasks: RunTasks, tmp_path: Path
) -> None:
    """With Spark, a row that does not fit fails the task, which names only its file and line, or becomes a
    dead letter."""
    (tmp_path / "0.csv").write_text("account_id,amount\n0,1.10\n")
    files = str(tmp_path / "*.csv")
    (tmp_path / "1.csv").write_text("account_id,amount\n3,1.2345\n")
    failed = run_tasks(lambda: load(path=files, engine="spark"), date=DAY + timedelta(days=1))
    assert failed.state == "failed"
    assert any("1.csv line 2" in error for error in failed.errors), failed.errors
    assert not any("1.2345" in error for error in failed.errors)
    assert accounts_in(engine) == []
    engine.admin.create_topic("dead", partitions=1, schema=DEAD_LETTERS)
    run = run_tasks(
        lambda: load(path=files, engine="spark", dead_letter_topic="dead", max_dead_letters="50%"),
        date=DAY + timedelta(days=2),
    )
    assert run.state == "success", run.errors
    assert (run.xcom("load")["records"], run.xcom("load", "dead_letters")) == (1, 1)
    (letter,) = engine.scan("dead").to_table().to_pylist()
    assert letter["source_line"] == 2
    assert letter["run_id"] == run.xcom("load")["run_id"]


@pytest.mark.parametrize("settings", [{"python_callable": payments}, {"path": "x.csv", "partition": 0}])
def test_what_spark_does_not_load(settings: dict[str, Any]) -> None:
    """What Spark does not load is refused when the DAG is parsed."""
    with pytest.raises(ValueError, match="engine='spark' takes a path, and no partition"):
        load(engine="spark", **settings)


@pytest.mark.parametrize("lost", ["__transaction_state", "payments/0/*"])
def test_a_cleared_run_beside_a_lost_log(
    engine: Engine, store_url: str, run_tasks: RunTasks, lost: str
) -> None:
    """If the log that knows the run is lost, a cleared run loads nothing a second time. If the topic's logs are lost,
    it does not say that the run was done. Both are red.
    """
    assert run_tasks(lambda: load(python_callable=payments)).state == "success"
    engine.close()
    folders = [*Path(store_url.removeprefix("file://")).glob(f"topics/{lost}")]
    for folder in filter(Path.is_dir, folders):
        shutil.rmtree(folder)
    run = run_tasks(lambda: load(python_callable=payments))
    assert run.state == "failed"
    assert any("[CORRUPT_MESSAGE]" in error for error in run.errors), run.errors
    assert all(not folder.exists() for folder in folders)
