"""`sql`: what it prints for people and as JSON, and how it fails."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

import pytest

from tests.cli.conftest import COMMAND, Run, process
from tests.support.servers import REPOSITORY
from tests.support.waiting import must_run, wait_for


def test_rows_for_people_and_for_programs(run: Run, loaded: str) -> None:
    """A table, JSON, csv and jsonl have the same rows."""
    query = "SELECT account_id, sum(amount) AS amount, count(*) AS n FROM payments GROUP BY ALL ORDER BY ALL"
    found = run("sql", query)
    assert found.stdout.splitlines() == [
        "account_id  amount  n",
        "        10   92.50  2",
        "        11    0.05  1",
    ]
    assert (found.code, found.stderr) == (0, "2 rows\n")
    assert run("sql", query, "--json").json == {
        "records": [
            {"account_id": 10, "amount": "92.50", "n": 2},
            {"account_id": 11, "amount": "0.05", "n": 1},
        ],
        "row_count": 2,
        "cut": None,
    }
    assert run("sql", query, "--format", "csv").stdout == "account_id,amount,n\n10,92.50,2\n11,0.05,1\n"
    assert run("sql", query, "--format", "jsonl").stdout.splitlines()[1] == (
        '{"account_id": 11, "amount": "0.05", "n": 1}'
    )


def test_an_empty_result_has_titles(run: Run, loaded: str) -> None:
    """A table without rows has its titles, and the JSON document has an empty list."""
    found = run("sql", "SELECT id, note FROM payments WHERE id > 5")
    assert (found.stdout, found.stderr) == ("id  note\n", "0 rows\n")
    assert run("sql", "SELECT id FROM payments WHERE id > 5", "--json").json["records"] == []


def test_a_long_table_is_cut(run: Run, loaded: str) -> None:
    """A note on stderr says so. csv and JSON have all rows."""
    query = "SELECT r FROM payments, range(5) t(r)"
    found = run("sql", query, "--max-rows", "4")
    assert len(found.stdout.splitlines()) == 5
    assert found.stderr == (
        "the first 4 of 15 rows: --max-rows N shows more, --format csv and --json have all\n"
    )
    assert len(run("sql", query, "--max-rows", "4", "--format", "csv").stdout.splitlines()) == 16
    assert len(run("sql", query, "--max-rows", "4", "--json").json["records"]) == 15


def test_as_of_a_cut(run: Run, loaded: str, good: Path) -> None:
    """The query reads the topics as of the cut, and the cut stays."""
    assert run("cuts", "create").code == 0
    assert run("produce", loaded, str(good), "--partition", "1").code == 0
    query = "SELECT count(*) AS n FROM payments"
    assert run("sql", query, "--cut", "0", "--json").json == {
        "records": [{"n": 3}],
        "row_count": 1,
        "cut": 0,
    }
    assert run("sql", query, "--json").json["records"] == [{"n": 6}]
    assert run("cuts", "list", "--json").json["cuts"][0]["cut"] == 0


def test_control_sequences_are_escaped(run: Run, loaded: str) -> None:
    """Control sequences are escaped in values and in column names."""
    found = run("sql", "SELECT chr(27) || '[31m' AS \"a\x1b[2J\" FROM payments LIMIT 1")
    assert "\x1b" not in found.stdout


@pytest.mark.parametrize(
    ("query", "code"),
    [
        ("FROM paymens", "UNKNOWN_TOPIC_OR_PARTITION"),
        ("DROP TABLE payments", "INVALID_REQUEST"),
        ("SELECT\n  nope\nFROM payments", "INVALID_REQUEST"),
    ],
)
def test_one_line_for_a_query_that_is_refused(run: Run, loaded: str, query: str, code: str) -> None:
    """A refused query fails with one line even if DuckDB's own message has several, and with the same code as
    JSON."""
    found = run("sql", query)
    assert (found.code, found.stdout, found.error_code) == (1, "", code)
    assert run("sql", query, "--json").error_code == code


def test_two_columns_with_one_name(run: Run, loaded: str) -> None:
    """csv shows both columns, and JSON refuses them."""
    query = "SELECT id, id FROM payments LIMIT 1"
    assert run("sql", query, "--format", "csv").stdout == "id,id\n1,1\n"
    assert run("sql", query, "--format", "jsonl").error_code == "INVALID_REQUEST"
    assert run("sql", query, "--json", "--format", "csv").code == 2


@pytest.fixture
def empty(run: Run, tmp_path: Path) -> str:
    """A ledger on disk with an empty topic `t`."""
    store = f"file://{tmp_path}/ledger"
    assert run("topics", "create", "t", "--schema", "id:int64", store=store).code == 0
    return store


def test_a_process_of_its_own_leaves_nothing(empty: str, tmp_path: Path) -> None:
    """A query in a process of its own leaves no file in TMPDIR."""
    done = process("sql", "SELECT count(*) AS n FROM t", "--url", empty, env={"TMPDIR": str(tmp_path)})
    assert (done.code, done.stdout, done.stderr) == (0, "n\n0\n", "1 row\n")
    assert [path.name for path in tmp_path.iterdir()] == ["ledger"]


def test_ctrl_c(empty: str, tmp_path: Path) -> None:
    """A long query stops, and leaves no file in TMPDIR."""
    query = (
        "SELECT (SELECT count(*) FROM range(10_000_000) a(x), range(10_000_000) b(y) WHERE x + y = 5) FROM t"
    )
    query = f"{query} UNION ALL SELECT count(*) FROM range(10_000_000) a(x), range(10_000_000) b(y) WHERE x + y = 5"
    with subprocess.Popen(
        [*COMMAND, "sql", query, "--url", empty],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=REPOSITORY,
        env={**os.environ, "TMPDIR": str(tmp_path)},
    ) as running:
        wait_for(
            lambda: any(tmp_path.glob("txn-engine-sql-*/empty-*.parquet")),
            what="the file of table t, which is written right before the query",
            meanwhile=must_run(running),
        )
        running.send_signal(signal.SIGINT)
        out, told = running.communicate(timeout=60)
    assert (running.returncode, out, told) == (130, "", "error: stopped by SIGINT\n")
    assert [path.name for path in tmp_path.iterdir()] == ["ledger"]


def test_values_are_shown_to_who_asks(run: Run, loaded: str) -> None:
    """An error quotes no value of a record, unless a person asks for it."""
    query = "SELECT note::DATE FROM payments"
    answer = run("sql", query)
    assert (answer.code, "salary" in answer.stderr) == (1, False), answer.stderr
    answer = run("sql", query, "--show-values")
    assert (answer.code, "salary" in answer.stderr) == (1, True), answer.stderr
