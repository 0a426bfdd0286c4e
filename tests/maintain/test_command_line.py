"""`txn-engine maintain` runs on a ledger on disk."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from click.testing import CliRunner, Result

from tests.engine.conftest import SCHEMA
from tests.maintain.ledgers import accounts, commit, upload
from tests.support.aging import age, written_ago
from tests.support.internal import FEW_INTERNAL
from txn_engine import Engine, connect
from txn_engine.cli.main import cli
from txn_engine.maintain.policy import DAY_MS
from txn_engine.spark.java import JavaNotFoundError
from txn_engine.testing import ManualClock

Run = Callable[..., Result]
TRANSACTIONS = 25


@pytest.fixture
def url(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A ledger on disk that was written to for nine days until now, by this machine's clock."""
    monkeypatch.setenv("COLUMNS", "200")
    made = f"file://{tmp_path}/ledger"
    clock = ManualClock(_now_ms() - 9 * DAY_MS)
    with connect(made, clock=clock, configs=FEW_INTERNAL) as engine:
        engine.admin.create_topic(
            "payments", partitions=2, schema=SCHEMA, key="account_id", retention_ms=20 * DAY_MS
        )
        upload(engine, 3000)
        for account in range(TRANSACTIONS):
            commit(engine, account)
        engine.admin.snapshot()
        age(tmp_path, 9 * DAY_MS)
        clock.advance(9 * DAY_MS)
        commit(engine, 100)
        engine.admin.snapshot()
    return made


def _now_ms() -> int:
    from txn_engine.clock import system_clock

    return system_clock()


@pytest.fixture
def run(url: str) -> Run:
    def call(*arguments: str) -> Result:
        return CliRunner().invoke(cli, ["maintain", *arguments, "--url", url], catch_exceptions=False)

    return call


def opened(url: str) -> Engine:
    return connect(url)


def test_the_three_of_them(url: str, run: Run, tmp_path: Path) -> None:
    """Each of the commands says what it did. Readers see the same, the auditor agrees, and a second run has
    nothing to do."""
    with opened(url) as engine:
        before = accounts(engine)
    compacted = run("compact", "--json")
    assert compacted.exit_code == 0, compacted.output
    (row,) = json.loads(compacted.stdout)["compacted"]
    assert (row["topic"], row["partition"], row["files"], row["outputs"], row["records"]) == (
        "payments",
        0,
        TRANSACTIONS,
        1,
        TRANSACTIONS,
    )
    retained = run("retention")
    assert retained.exit_code == 0, retained.output
    title, *rows = retained.stdout.splitlines()
    assert title.split() == [
        "Topic", "Partition", "LogStartBefore", "LogStartOffset", "EntriesStartBefore", "EntriesStart", "Files",
        "Records", "Bytes",
    ]  # fmt: skip
    (trimmed,) = rows
    place, _, *starts = trimmed.split()[:6]
    assert (place, starts[:3], int(starts[3]) > 64) == ("__transaction_state", ["0", "0", "0"], True)
    cleaned = run("clean", "--topic", "payments", "--json")
    assert cleaned.exit_code == 0, cleaned.output
    (row,) = json.loads(cleaned.stdout)["cleaned"]
    assert (row["producers"], row["orphans"], row["seals"]) == (0, 1, 0)
    cleaned = run("clean", "--json")
    seals = {row["topic"]: row["seals"] for row in json.loads(cleaned.stdout)["cleaned"]}
    assert seals["__transaction_state"] > 64
    with opened(url) as engine:
        assert accounts(engine) == before
        report = engine.admin.verify()
        assert report.ok, [str(finding) for finding in report.findings]
    for job in ("compact", "retention", "clean"):
        again = run(job)
        assert again.exit_code == 0
        assert again.stderr == "nothing was due\n"
        assert len(again.stdout.splitlines()) == 1


def test_dry_runs(url: str, run: Run, tmp_path: Path) -> None:
    """A dry run says so and changes nothing on disk."""

    def on_disk() -> dict[Path, bytes]:
        return {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}

    before = on_disk()
    for arguments in (["compact"], ["retention"], ["clean"], ["clean", "--orphan-days", "0.5"]):
        answer = run(*arguments, "--dry-run")
        assert answer.exit_code == 0, answer.output
        *who, last = answer.stderr.splitlines()
        assert last == "a dry run: nothing was written"
        assert [line.split(":")[0] for line in who] == ["payments-0 by this process"] * (
            arguments == ["compact"]
        )
        assert len(answer.stdout.splitlines()) > 1
        assert json.loads(run(*arguments, "--dry-run", "--json").stdout)["dry_run"] is True
    assert on_disk() == before


def test_options_reach_the_jobs(url: str, run: Run) -> None:
    """Sizes, counts and days are passed on to the jobs. With a partition, only that one is maintained."""
    assert run("compact", "--min-files", "26").stderr == "nothing was due\n"
    assert run("compact", "--target-mib", "0.0001").stderr == "nothing was due\n"
    assert run("compact", "--topic", "payments", "--partition", "1").stderr == "nothing was due\n"
    assert run("retention", "--entries-days", "10").stderr == "nothing was due\n"
    assert run("clean", "--orphan-days", "9.5", "--topic", "payments").stderr == "nothing was due\n"


def test_no_spark_where_one_is_needed(url: str, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """If a partition needs Spark and Spark is missing, the error is one line with the partition's size and
    the reason. With `--engine local` this process compacts it."""

    def none(*_: object, **__: object) -> None:
        raise JavaNotFoundError("no Java")

    monkeypatch.setattr("txn_engine.spark.spark_session", none, raising=False)
    for arguments in (["--spark-above", "20"], ["--engine", "spark"]):
        answer = run("compact", *arguments)
        assert answer.exit_code == 1
        (line,) = (line for line in answer.stderr.splitlines() if "POLICY_VIOLATION" in line)
        assert "no Spark: no Java" in line
        if arguments[0] == "--spark-above":
            assert "25 records in " in line
    answer = run("compact", "--engine", "local", "--spark-above", "20", "--json")
    assert answer.exit_code == 0
    assert json.loads(answer.stdout)["compacted"][0]["engine"] == "local"


def test_settings_of_spark_that_are_none(run: Run) -> None:
    """A setting that is not a setting of Spark is a usage error."""
    answer = run("compact", "--spark-conf", "master=local", "--json")
    error = json.loads(answer.stderr)["error"]
    assert (answer.exit_code, error["code"], error["reason"]) == (2, "USAGE", "not_a_spark_setting")


def test_wrong_calls(url: str, run: Run) -> None:
    """A partition without a topic is a usage error, and a partition that does not exist is an error."""
    answer = run("clean", "--partition", "1", "--json")
    error = json.loads(answer.stderr)["error"]
    assert (answer.exit_code, error["code"], error["reason"]) == (2, "USAGE", "partition_without_topic")
    answer = run("compact", "--topic", "payments", "--partition", "7")
    assert answer.exit_code == 1
    assert "UNKNOWN_TOPIC_OR_PARTITION" in answer.stderr


def test_a_partition_that_needs_a_look(url: str, run: Run, tmp_path: Path) -> None:
    """If one partition is damaged, the others are maintained all the same. The exit code is 1, and one line
    names the object."""
    damaged = min((tmp_path / "ledger/topics/payments/0/0/data").glob("*-p[0-9]*.parquet"))
    damaged.write_bytes(damaged.read_bytes()[:-1])
    answer = run("compact", "--json")
    assert answer.exit_code == 1
    (failure,) = json.loads(answer.stdout)["failures"]
    assert (failure["topic"], failure["partition"], failure["code"]) == ("payments", 0, "CORRUPT_MESSAGE")
    told = json.loads(answer.stderr)["error"]
    assert told["code"] == "MAINTENANCE_INCOMPLETE"
    assert damaged.name in told["message"]
    assert damaged.name in run("compact").stderr


def test_deleted_topics_go_with_the_clean_up(run: Run, url: str) -> None:
    """Clean-up removes and names the objects that a topic has left a day after its deletion, unless it runs
    for another topic."""
    with written_ago(url, 2 * DAY_MS) as engine:
        engine.admin.create_topic("gone", partitions=1)
        schema = engine.logs.topics.look_up("gone").schema
        engine.partition("gone", 0).append(pa.Table.from_pylist([{"key": b"a"}], schema=schema))
        engine.admin.delete_topic("gone")
    assert json.loads(run("clean", "--topic", "payments", "--json").stdout)["deleted_topics"] == []
    (would,) = json.loads(run("clean", "--dry-run", "--json").stdout)["deleted_topics"]
    assert (would["topic"], would["incarnation"], would["objects"]) == ("gone", 0, 2)
    assert "deleted topic gone, incarnation 0: 2 objects" in run("clean").output
    assert json.loads(run("clean", "--json").stdout)["deleted_topics"] == []
