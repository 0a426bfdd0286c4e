"""`txn-engine bench` has options that make it another run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import txn_engine.bench
from txn_engine.cli.main import cli


@pytest.mark.parametrize(
    ("function", "arguments", "wanted"),
    [
        ("run_rounds", ["--rounds", "--call-ms", "20", "--quick"], {"call_ms": 20.0, "quick": True}),
        ("run_kafka", ["--kafka", "h:1", "--url", "file:///x"], {"bootstrap": "h:1", "url": "file:///x"}),
        ("run_growth", ["--growth", "--full", "--svg", "g.svg"], {"full": True, "svg": Path("g.svg")}),
        ("run_growth", ["--growth"], {"full": False, "svg": None, "url": None}),
        ("run_sql", ["--sql", "--full"], {"full": True, "quick": False, "url": None}),
        ("run_load", ["--load", "--quick"], {"quick": True, "url": None}),
        ("run_tables", ["--tables", "--quick"], {"quick": True, "url": None}),
        ("run_cuts", ["--cuts", "--url", "file:///x"], {"quick": False, "url": "file:///x"}),
        ("run_backup", ["--backup", "--to", "file:///b", "--quick"], {"to": "file:///b", "quick": True}),
    ],
)
def test_each_is_handed_on(
    function: str, arguments: list[str], wanted: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each kind of bench gets its options, and its exit code becomes the exit code of the process."""
    seen: dict[str, Any] = {}

    def called(**options: Any) -> int:
        seen.update(options)
        return 4

    monkeypatch.delenv("TXN_ENGINE_URL", raising=False)
    monkeypatch.setattr(txn_engine.bench, function, called)
    answer = CliRunner().invoke(cli, ["bench", *arguments, "--json"])
    assert answer.exit_code == 4
    assert seen["json_output"] is True
    assert {name: seen[name] for name in wanted} == wanted


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--rounds", "--growth"], "--rounds and --growth are runs of their own"),
        (["--kafka", "h:1", "--spark"], "--kafka and --spark are runs of their own"),
        (["--cuts", "--backup"], "--cuts and --backup are runs of their own"),
        (["--full"], "--full goes with --growth or --sql, --svg with --growth"),
        (["--sql", "--svg", "g.svg"], "--full goes with --growth or --sql, --svg with --growth"),
        (["--to", "file:///b"], "--to goes with --backup"),
        (["--backup", "--url", "s3://ledger"], "told by --to where the copies go"),
    ],
)
def test_what_does_not_go_together(arguments: list[str], says: str) -> None:
    """Options that exclude each other are a usage error in one line."""
    answer = CliRunner().invoke(cli, ["bench", *arguments])
    assert answer.exit_code == 2
    assert says in answer.stderr


def test_the_help_teaches_each_run() -> None:
    """The help says what each run measures and compares it with, and gives an example."""
    text = " ".join(CliRunner().invoke(cli, ["bench", "--help"]).stdout.split())
    for option in ("--rounds", "--kafka", "--growth", "--cuts", "--backup", "--tables", "--load", "--spark"):
        assert f"txn-engine bench {option}" in text
    assert "least possible" in text
    assert "make bench ARGS=--kafka" in text
