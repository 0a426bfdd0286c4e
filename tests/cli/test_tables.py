"""`tables`: what it prints for people and as JSON, and how it fails."""

from __future__ import annotations

import shutil
from pathlib import Path

from tests.cli.conftest import SCHEMA, Run


def test_a_topic_is_published_shown_and_unpublished(run: Run, payments: str, good: Path) -> None:
    """`tables publish`, `status` and `unpublish` show what they did, for people and as JSON."""
    assert run("produce", payments, str(good), "--partition", "0").code == 0
    made = run("tables", "publish", payments, "--format", "delta")
    uri = made.stdout.split()[-1]
    assert (made.code, made.stdout) == (0, f"published payments as delta, version 0, at cut 0: {uri}\n")
    assert uri.endswith("/topics/payments/0")
    assert run("produce", payments, str(good), "--partition", "1").code == 0
    lines = [line.split() for line in run("tables", "status").stdout.splitlines()]
    assert lines[0] == ["TOPIC", "FORMAT", "VERSION", "CUT", "PUBLISHED", "BEHIND", "PINS", "URI"]
    assert (lines[1][:4], lines[1][5:]) == (["payments", "delta", "0", "0"], ["3", "1", uri])
    (status,) = run("tables", "publish", payments, "--format", "delta", "--json").json["tables"]
    assert (status["version"], status["cut"], status["behind"]) == (1, 1, 0)
    assert status["changed"] is True
    again = run("tables", "publish", payments, "--format", "delta")
    assert (again.code, again.stdout.split(",")[0]) == (0, "nothing to publish"), again.stderr
    (same,) = run("tables", "publish", payments, "--format", "delta", "--json").json["tables"]
    assert (same["version"], same["changed"]) == (1, False)
    assert run("tables", "unpublish", payments).stdout == "would unpublish payments: delta\n"
    assert run("tables", "unpublish", payments, "--execute").stdout == "unpublished payments: delta\n"
    (status,) = run("tables", "status", payments, "--json").json["tables"]
    assert (status["version"], status["cut"], status["pins"]) == (2, None, 0)
    assert run("verify").code == 0


def test_topics_are_published_by_their_setting(run: Run, payments: str) -> None:
    """Without arguments `publish` publishes the topics with `tables.publish`."""
    assert payments == "payments"
    assert "nothing was due" in run("tables", "publish").stderr
    made = run("topics", "create", "totals", "--schema", "id:int64", "--config", "tables.publish=delta")
    assert made.code == 0
    assert run("topics", "describe", "totals", "--json").json["configs"]["tables.publish"] == "delta"
    before = run("tables", "publish", "--dry-run", "--json").json
    assert (before["dry_run"], [each["topic"] for each in before["tables"]]) == (True, ["totals"])
    assert run("tables", "status", "--json").json == {"tables": []}
    (done,) = run("tables", "publish", "--json").json["tables"]
    assert done == {
        "topic": "totals",
        "format": "delta",
        "version_before": None,
        "version": 0,
        "cut_before": None,
        "cut": 0,
    }


def test_wrong_calls(run: Run, payments: str) -> None:
    """Usage errors have words that say what is wrong, and errors of the engine have a code."""
    assert run("cuts", "create").code == 0
    assert run("tables", "publish", payments, "--format", "delta", "--cut", "0").code == 0
    for arguments, seen in (
        ((payments, "--format", "hudi"), "'hudi'"),
        (("--format", "delta"), "--format needs TOPIC"),
        ((payments, "--dry-run"), "tables status TOPIC"),
    ):
        failed = run("tables", "publish", *arguments)
        assert failed.code == 2
        assert seen in failed.error
    unknown = run("tables", "publish", "nowhere")
    assert (unknown.code, unknown.error_code) == (1, "UNKNOWN_TOPIC_OR_PARTITION")
    no_cut = run("tables", "publish", payments, "--cut", "7", "--json")
    assert (no_cut.code, no_cut.error_reason) == (1, "cut_not_found")
    refused = run("topics", "create", "odd", "--schema", "id:int64", "--config", "tables.publish=hudi")
    assert (refused.code, refused.error_code) == (1, "INVALID_CONFIG")


def test_a_copied_store_tells_of_its_iceberg_table(run: Run, good: Path, tmp_path: Path) -> None:
    """`tables status` of a copied store says that its Iceberg table names the files of the original, and fails."""
    original, copy = f"file://{tmp_path}/ledger", f"file://{tmp_path}/copy"
    assert run("topics", "create", "payments", "--schema", SCHEMA, store=original).code == 0
    assert run("produce", "payments", str(good), store=original).code == 0
    assert run("tables", "publish", "payments", store=original).code == 0
    assert run("tables", "status", store=original).code == 0
    shutil.copytree(tmp_path / "ledger", tmp_path / "copy")
    assert run("new-store-id", "--watch", "0", "--execute", store=copy).code == 0
    done = run("tables", "status", "--json", store=copy)
    assert done.code == 1
    told = {each["format"]: each["elsewhere"] for each in done.json["tables"]}
    assert told == {"delta": "", "iceberg": f"{original}/topics/payments/0/iceberg"}
    assert run("verify", store=copy).code == 1
    unpublish = ("tables", "unpublish", "payments", "--format", "iceberg", "--execute")
    assert run(*unpublish, store=copy).code == 0
    assert run("tables", "publish", "payments", store=copy).code == 0
    assert run("tables", "status", store=copy).code == 0
    assert run("verify", store=copy).code == 0
    assert run("tables", "status", store=original).code == 0
