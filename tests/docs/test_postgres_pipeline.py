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
from tests.docs.terminals import Terminal, make_checkout
from tests.docs.test_code_blocks import blocks, run_block
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
    checkout: Path,
    store_url: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The sums differ by the dead letters. Once the letters are repaired and replayed, the sums are equal. Step 4 that
    is done too early says what to wait for."""
    make_database()
    use_bundle(EXAMPLES, monkeypatch)
    postgres, airflow, first, listed, repair, replay, verify = blocks(PAGE, "sh")
    tables, sums, mend = blocks(PAGE, "python")
    assert postgres == "make postgres\n"
    second = f". .venv/bin/activate\n{airflow.replace('make airflow', '')}"
    known = Terminal(checkout, tmp_path / "second", first=second).variables()
    for name, value in known.items():
        if name.startswith(("PG", "AIRFLOW_CONN_")):
            monkeypatch.setenv(name, value)
    monkeypatch.chdir(checkout)
    terminal = Terminal(checkout, tmp_path / "third", first=first)
    run_block(tables, "", {})
    run_block(sums, "", {})
    assert "There is no table example_balances yet" in capsys.readouterr().out
    trigger()
    found = run_block(sums, "", {})
    told = terminal.run(listed)
    with connect(store_url) as engine:
        letters = engine.scan("example_shop_payments_dead").to_table(["source_line"])
    assert letters["source_line"].to_pylist() == [*range(7, 10_000, 100)]
    assert "100" in told
    with psycopg.connect() as database:
        (lacking,) = database.execute("SELECT sum(amount) FROM shop_payments WHERE id % 100 = 7").fetchall()
    assert (found["paid"] - found["counted"],) == lacking
    terminal.run(repair)
    run_block(mend, "", {})
    told = terminal.run(replay)
    assert "100 letters: 100 loaded in one transaction, 0 failed again" in told
    assert "nothing to replay" in told
    trigger()
    found = run_block(sums, "", {})
    assert found["paid"] == found["counted"] > 0
    terminal.run(verify)
    terminal.check_home()
