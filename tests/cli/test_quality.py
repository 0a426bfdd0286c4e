"""`quality run` has exit code 0 only if every check passed, and writes a report. `quality explain` needs no
store."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from tests.cli.conftest import Run, on_a_terminal

DECLARATION = """
topic: payments
record_id: id
outputs:
  - topic: copies
    identity: [id, amount]
"""


@pytest.fixture
def ledger(run: Run, tmp_path: Path, good: Path) -> str:
    """A ledger with a topic and its copy, each loaded once."""
    store = f"file://{tmp_path}/ledger"
    schema = "id:int64,account_id:int64,day:date32,amount:decimal(18,2),note:string?"
    for topic in ("payments", "copies"):
        assert run("topics", "create", topic, "--schema", schema, store=store).code == 0
        assert run("produce", topic, str(good), "--transactional-id", topic, store=store).code == 0
    return store


@pytest.fixture
def report(tmp_path: Path) -> list[str]:
    return ["--report", str(tmp_path / "report")]


def test_a_topic(run: Run, ledger: str, report: list[str], tmp_path: Path) -> None:
    """The run shows one line for each check, and writes a report and the results of Great Expectations."""
    answer = run("quality", "run", "payments", "--record-id", "id", *report, store=ledger)
    assert answer.code == 0, answer.stdout
    assert "record_ids_unique" in answer.stdout
    assert "exactly once: proven" in answer.stderr
    assert (tmp_path / "report" / "index.html").is_file()
    found = run("quality", "run", "payments", "--record-id", "id", *report, "--json", store=ledger).json
    assert found["success"] is True
    assert {check["status"] for check in found["checks"]} == {"passed"}
    assert Path(found["report"]).is_file()
    assert found["engine"] == "in process (DuckDB)"


@pytest.mark.shard("machine")
def test_it_says_what_it_does_and_is_quick(
    run: Run, url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a terminal each step has its name. For 300 rows the processor works for less than 5 seconds, and what Great
    Expectations draws and computes distributions with is not imported."""
    del url
    store = f"file://{tmp_path}/ledger"
    (tmp_path / "rows.csv").write_text("id\n" + "".join(f"{number}\n" for number in range(300)))
    assert run("topics", "create", "payments", "--schema", "id:int64", store=store).code == 0
    assert run("produce", "payments", str(tmp_path / "rows.csv"), store=store).code == 0
    monkeypatch.setenv("PYTHONPROFILEIMPORTTIME", "1")
    call = [
        "quality",
        "run",
        "payments",
        "--record-id",
        "id",
        "--report",
        str(tmp_path / "report"),
        "--url",
        store,
    ]
    before = os.times()
    (shown,) = on_a_terminal([call], width=120)
    after = os.times()
    seconds = after.children_user + after.children_system - before.children_user - before.children_system
    assert "exactly once: proven" in shown
    for step in ("starting", "counting what", "judging"):
        assert step in shown, step
    assert "0/?" not in shown
    assert "great_expectations.core" in shown
    assert "scipy.stats._stats_py" not in shown
    assert "altair.vegalite" not in shown
    assert seconds < 5


def test_the_default_folder_of_the_report(
    run: Run, ledger: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The default folder has the topic's name, below the working directory."""
    monkeypatch.chdir(tmp_path)
    assert run("quality", "run", "payments", "--record-id", "id", store=ledger).code == 0
    assert (tmp_path / "txn-engine-reports" / "payments" / "index.html").is_file()


def test_a_declaration(run: Run, ledger: str, report: list[str], tmp_path: Path, good: Path) -> None:
    """The copy is right at first. After it was loaded once more it is wrong, and the exit code is 1."""
    path = tmp_path / "declaration.yaml"
    path.write_text(DECLARATION)
    command = ("quality", "run", "payments", "--declaration", str(path), *report)
    assert run(*command, store=ledger).code == 0
    assert run("produce", "copies", str(good), "--transactional-id", "again", store=ledger).code == 0
    answer = run(*command, "--json", store=ledger)
    assert answer.code == 1
    statuses = {check["check"]: check["status"] for check in answer.json["checks"]}
    assert [name for name, status in statuses.items() if status == "failed"] == ["identity_in_copies"]


def test_as_of_a_cut(run: Run, ledger: str, report: list[str], tmp_path: Path, good: Path) -> None:
    """Later loads do not change the verdict, and the cut is named with it."""
    path = tmp_path / "declaration.yaml"
    path.write_text(DECLARATION)
    assert run("cuts", "create", store=ledger).code == 0
    assert run("produce", "copies", str(good), "--transactional-id", "again", store=ledger).code == 0
    command = ("quality", "run", "payments", "--declaration", str(path), *report)
    answer = run(*command, "--cut", "0", store=ledger)
    assert answer.code == 0, answer.stdout
    assert "exactly once: proven as of cut 0;" in answer.stderr
    assert "kept as proof 0: everything, as of cut 0 (no proof was there)" in answer.stderr
    assert run(*command, "--cut", "0", "--json", store=ledger).json["cut"] == 0
    later = run(*command, "--json", store=ledger)
    assert (later.code, later.json["cut"]) == (1, {"copies-0": 8, "payments-0": 4})
    listed = run("quality", "history", "payments", "--json", store=ledger).json["proofs"]
    assert [row["cut"] for row in listed] == [0, 0, None]


def test_a_suite_of_ones_own(run: Run, ledger: str, report: list[str], tmp_path: Path) -> None:
    """If the user's own suite fails, the exit code is 1. If it is only a warning, the last line reports it
    and the exit code is 0."""
    command = ("quality", "run", "payments", "--record-id", "id", "--suite", str(tmp_path / "mine.json"))
    empty = {"type": "expect_column_values_to_be_null", "kwargs": {"column": "id"}}
    held = {"name": "mine", "expectations": [empty], "meta": {"severity": "warning"}}
    (tmp_path / "mine.json").write_text(json.dumps(held))
    answer = run(*command, *report, store=ledger)
    assert answer.code == 0
    assert ", 1 warned;" in answer.stderr
    (tmp_path / "mine.json").write_text(json.dumps({**held, "meta": {}}))
    answer = run(*command, *report, "--json", store=ledger)
    assert answer.code == 1
    (failed,) = [check for check in answer.json["checks"] if check["status"] == "failed"]
    assert failed["check"] == "payments: mine: expect_column_values_to_be_null(id)"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--record-id", "id", "--suite", "absent.json"], "absent.json"),
        ([], "give --record-id COLUMN, or --declaration FILE"),
        (["--record-id", "x"], "no column x"),
        (["--declaration", "absent.yaml"], "No such file"),
        (["--record-id", "id", "--memory-mb", "10"], "--memory-mb"),
        (["--record-id", "id", "--cut", "4"], "there is no cut 4"),
        (["--record-id", "id", "--cut", "last"], "--cut"),
        (["--record-id", "id", "--input", "absent.csv"], "No such file"),
    ],
)
def test_a_wrong_call(
    run: Run, ledger: str, report: list[str], arguments: list[str], said: str, tmp_path: Path
) -> None:
    """A wrong call fails with one line, and nothing is written."""
    answer = run("quality", "run", "payments", *arguments, *report, store=ledger)
    assert answer.code != 0
    assert said in answer.error
    assert not (tmp_path / "report").exists()


def test_a_declaration_of_another_topic(run: Run, ledger: str, report: list[str], tmp_path: Path) -> None:
    """The arguments and the declaration have to agree."""
    path = tmp_path / "declaration.yaml"
    path.write_text(DECLARATION)
    answer = run("quality", "run", "copies", "--declaration", str(path), *report, store=ledger)
    assert (answer.code, "declares topic 'payments', not 'copies'" in answer.error) == (2, True)
    answer = run(
        "quality", "run", "payments", "--declaration", str(path), "--record-id", "x", *report, store=ledger
    )
    assert (answer.code, "leave --record-id out" in answer.error) == (2, True)


def test_explain(run: Run) -> None:
    """`quality explain` explains every check, or one of them, and needs no store."""
    every = run("quality", "explain", "--json").json["checks"]
    assert {"record_ids_unique", "totals_in_OUTPUT", "audit_clean"} <= {check["check"] for check in every}
    assert all(check["meaning"] and check["action"] for check in every)
    assert len(run("quality", "explain", "audit_clean", "--json").json["checks"]) == 1
    assert run("quality", "explain", "nothing").code == 2


def test_history_and_show(run: Run, ledger: str, report: list[str], tmp_path: Path) -> None:
    """Each run is kept, and the next one checks what is new. A missing link is reported with exit code 1."""
    command = ("quality", "run", "payments", "--record-id", "id", *report)
    assert "kept as proof 0: everything (no proof was there)" in run(*command, store=ledger).stderr
    assert "kept as proof 1: what is new since proof 0" in run(*command, store=ledger).stderr
    assert "kept as proof 2: everything" in run(*command, "--whole", store=ledger).stderr
    assert run(*command, "--no-record", "--json", store=ledger).json["proof"] is None
    listed = run("quality", "history", "payments", "--json", store=ledger)
    assert listed.code == 0
    assert [(row["proof"], row["verdict"], row["since"]) for row in listed.json["proofs"]] == [
        (0, "proven", 0),
        (1, "proven", 0),
        (2, "proven", 2),
    ]
    shown = run("quality", "show", "payments", "1", "--json", store=ledger).json
    assert sum(each["records"] for each in shown["ranges"]) == 3
    assert {each["status"] for each in shown["results"]} == {"passed"}
    assert "digest" in run("quality", "show", "payments", "2", store=ledger).stdout.lower()
    assert run("quality", "show", "payments", "7", store=ledger).code == 1
    (tmp_path / "ledger" / "proofs" / "payments" / "0" / f"{1:020d}.json").unlink()
    broken = run("quality", "history", "payments", store=ledger)
    assert broken.code == 1
    assert "proof 1 is missing" in broken.stderr
    assert "proof 1 of the chain is missing" in run(*command, store=ledger).stderr
    assert run("verify", store=ledger).code == 0
