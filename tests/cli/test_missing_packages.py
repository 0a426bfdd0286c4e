"""Without the extras, each call that needs one ends at once, with one code and one sentence that names the extra."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

import pytest

from tests.cli.conftest import GOOD, SCHEMA
from tests.support.bare_install import link_required_packages
from tests.support.servers import REPOSITORY

CALLS = """
import contextlib, importlib, io, json, sys
from pathlib import Path
import txn_engine
from txn_engine.cli.main import main
from txn_engine.errors import TxnEngineError

def command(*words):
    told = io.StringIO()
    with contextlib.redirect_stderr(told), contextlib.redirect_stdout(io.StringIO()):
        code = main([*words, "--json"])
    try:
        return [code, json.loads(told.getvalue())["error"] if code else None]
    except ValueError:
        raise SystemExit(f"{words}: {told.getvalue()}")

def library(call):
    try:
        call()
    except TxnEngineError as error:
        return [1, {"code": error.code, "message": str(error), "import": isinstance(error, ImportError)}]
    return [0, None]

engine = txn_engine.connect()
from txn_engine.quality import Declaration, check_exactly_once, load_suite, read_declaration
found = {" ".join(words): command(*words) for words in json.loads(sys.argv[1])}
for name, call in {
    "spark_session": lambda: importlib.import_module("txn_engine.spark").spark_session,
    "consume_into": lambda: importlib.import_module("txn_engine.postgres"),
    "operators": lambda: importlib.import_module("txn_engine_airflow").TxnProduceOperator,
    "sql": lambda: engine.sql("FROM payments"),
    "erase": lambda: engine.erase("payments", "id = 1"),
    "publish": lambda: engine.tables.publish("payments"),
    "publish_due": lambda: engine.tables.publish_due("payments"),
    "check_exactly_once": lambda: check_exactly_once(engine, Declaration("payments", ("id",)), report_folder="report"),
    "load_suite": lambda: load_suite([]),
    "read_declaration": lambda: read_declaration(Path("declared.yaml")),
}.items():
    found[name] = library(call)
print(json.dumps(found))
"""
WORK = (
    ("topics", "create", "payments", "--schema", SCHEMA),
    ("topics", "infer", "good.csv"),
    ("produce", "payments", "good.csv"),
    ("consume", "payments"),
    ("tables", "publish", "payments", "--format", "delta"),
    ("verify",),
    ("doctor",),
)
"""These need no extra."""
MISSING = {
    ("sql", "FROM payments"): "sql",
    ("erase", "payments", "--where", "id = 1"): "sql",
    ("quality", "run", "payments", "--record-id", "id"): "quality",
    ("quality", "run", "payments", "--declaration", "declared.yaml"): "quality",
    ("produce", "payments", "good.csv", "--engine", "spark", "--run-id", "r"): "spark",
    ("maintain", "compact", "--engine", "spark"): "spark",
    ("tables", "publish", "payments"): "tables",
    ("demo",): "airflow",
    ("bench",): "spark",
    ("bench", "--quick"): "spark",
    ("bench", "--spark", "reads"): "spark",
    ("bench", "--sql"): "sql",
    ("bench", "--tables"): "tables",
}
"""By call, the extra that it needs."""
LIBRARY = {
    "spark_session": "spark",
    "consume_into": "postgres",
    "operators": "airflow",
    "sql": "sql",
    "erase": "sql",
    "publish": "tables",
    "check_exactly_once": "quality",
    "load_suite": "quality",
    "read_declaration": "quality",
}


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What each call answers in one process that has the required packages and no others."""
    folder = tmp_path_factory.mktemp("bare")
    site = link_required_packages(tmp_path_factory.mktemp("site"))
    (folder / "good.csv").write_text(GOOD)
    (folder / "declared.yaml").write_text("topic: payments\n")
    calls = [*WORK, *MISSING, ("bench", "--kafka", "127.0.0.1:1")]
    path = os.pathsep.join(map(str, (site, REPOSITORY, REPOSITORY / "plugins")))
    done = subprocess.run(
        [sys.executable, "-S", "-c", CALLS, json.dumps(calls)],
        env={**os.environ, "PYTHONPATH": path, "TXN_ENGINE_URL": f"file://{folder}/store"},
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    left = {entry.name for entry in folder.iterdir()} - {"good.csv", "declared.yaml", "store"}
    assert left == set(), "a call that cannot go on leaves nothing behind"
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_what_needs_no_extra_works(answers: dict[str, Any]) -> None:
    """The packages that the project requires are enough for the command line's own work."""
    for words in WORK:
        assert answers[" ".join(words)] == [0, None]


def test_every_call_names_the_extra_that_it_needs(answers: dict[str, Any]) -> None:
    """Code and sentence are the same on every road."""
    expected = {" ".join(words): extra for words, extra in MISSING.items()} | LIBRARY
    for name, extra in expected.items():
        code, error = answers[name]
        assert (code, error["code"]) == (1, "MISSING_PACKAGE"), (name, error)
        assert error["message"].endswith(
            f" is not installed; pip install 'txn-engine[{extra}]' [MISSING_PACKAGE]"
        ), (name, error)
        assert error.get("import", True), "it is an ImportError too"
    _, kafka = answers["bench --kafka 127.0.0.1:1"]
    assert "pip install confluent-kafka [MISSING_PACKAGE]" in kafka["message"]


def test_a_topic_that_is_published_by_its_setting(answers: dict[str, Any]) -> None:
    """A topic that no setting publishes needs no package."""
    assert answers["publish_due"] == [0, None]
