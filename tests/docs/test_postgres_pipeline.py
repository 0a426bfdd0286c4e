"""docs/POSTGRES_PIPELINE.md works from top to bottom. A run of the DAG replaces each *Trigger*.

`make test` runs the DAG in tests/blocks/test_examples.py, and checks the commands in tests/deploy/test_commands.py.
"""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest

from tests.conftest import missing_server
from tests.docs.terminals import Terminal, check_shown, make_checkout
from tests.docs.test_code_blocks import blocks, shown_after
from tests.support.airflow_home import REPO, make_database
from tests.support.bundles import use_bundle
from tests.support.postgres import postgres_binaries
from txn_engine import connect

pytestmark = [
    pytest.mark.airflow,
    pytest.mark.spark,
    pytest.mark.slow,
    pytest.mark.usefixtures("airflow_imported"),
]

PAGE = "docs/POSTGRES_PIPELINE.md"
DAG_ID = "example_txn_postgres"
EXAMPLES = REPO / "plugins" / "txn_engine_airflow" / "example_dags"


@pytest.fixture
def checkout(tmp_path: Path, store_url: str) -> Iterator[Path]:
    """A checkout that looks to a shell as if `make postgres` and `make airflow` were running in it."""
    if postgres_binaries() is None:
        missing_server("no Postgres: install Debian's `postgresql`, or run .ci/setup-debian")
    made = make_checkout(tmp_path / "checkout", {"extra": {"url": store_url}})
    with make_postgres(made / ".cache" / "postgres.env"):
        yield made


@contextmanager
def make_postgres(environment: Path) -> Iterator[None]:
    """Run what `make postgres` runs, until Ctrl-C."""
    command = [sys.executable, "-m", "tests.support.postgres", "--environment", environment]
    with subprocess.Popen(command, cwd=REPO, stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            said = server.stdout.readline()
            assert said == f"postgres: runs; for a shell: . {environment}\n"
            assert environment.stat().st_mode & 0o777 == 0o600
            yield
        finally:
            server.send_signal(signal.SIGINT)
            ended = server.wait(60)
    assert ended == 0
    assert not environment.exists()


def trigger() -> None:
    """Run the DAG to its end, as the Airflow in the second terminal does."""
    from airflow.dag_processing.dagbag import DagBag

    run: Any = DagBag(dag_folder=EXAMPLES / f"{DAG_ID}.py").dags[DAG_ID].test()
    assert run.state == "success"


def test_from_top_to_bottom(
    checkout: Path, store_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each command prints what the page shows. The sums differ by the dead letters, and once these are repaired and
    replayed, the sums are equal. What is done too early, twice, or in a terminal that has not read the database's file
    says what to do, and changes nothing."""
    make_database()
    use_bundle(EXAMPLES, monkeypatch)
    begin_again, postgres, airflow, first, pay, compare, listed, show, repair, replay, again, verify = blocks(
        PAGE, "sh"
    )
    assert (begin_again, postgres) == ("rm -rf .cache/standalone\n", "make postgres\n")
    second = f". .venv/bin/activate\n{airflow.replace('make airflow', '')}"
    known = Terminal(checkout, tmp_path / "second", first=second).variables()
    for name, value in known.items():
        if name.startswith(("PG", "AIRFLOW_CONN_")):
            monkeypatch.setenv(name, value)
    monkeypatch.chdir(checkout)
    connect(store_url).close()  # `make airflow` has begun it
    terminal = Terminal(checkout, tmp_path / "third", first=first)
    assert "Topic" in terminal.run("")
    terminal = Terminal(checkout, tmp_path / "third", first=first.replace("txn-engine topics list", ""))
    for code in blocks(PAGE, "python"):
        terminal.save(code)
    other = Terminal(checkout, tmp_path / "other", first=". .venv/bin/activate")
    for program in (pay, compare):
        assert ". .cache/postgres.env" in other.run(f"{program.strip()} || true")
    check_shown(terminal.run(pay), *shown_after(PAGE, "python pay.py"))
    assert "nothing was changed" in terminal.run(pay)
    assert "There is no table example_balances yet" in terminal.run(f"{compare.strip()} || true")
    trigger()
    before, after = shown_after(PAGE, "python compare.py")
    check_shown(terminal.run(compare), before)
    check_shown(terminal.run(listed), *shown_after(PAGE, "dead-letters list"))
    with connect(store_url) as engine:
        letters = engine.scan("example_shop_payments_dead").to_table(["source_line"])
    assert letters["source_line"].to_pylist() == [*range(7, 10_000, 100)]
    check_shown(terminal.run(show), *shown_after(PAGE, "head -n 2 letters.jsonl"))
    check_shown(terminal.run(repair), *shown_after(PAGE, "python repair.py"))
    check_shown(terminal.run(replay), *shown_after(PAGE, "--repaired repaired.jsonl"))
    trigger()
    check_shown(terminal.run(again), after)
    check_shown(terminal.run(verify), *shown_after(PAGE, "txn-engine verify"))
    with psycopg.connect() as database:
        database.execute("UPDATE example_balances SET balance = 2 * balance")
    assert "Begin this page again" in terminal.run(compare)
    terminal.check_home()
