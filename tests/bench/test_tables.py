"""`txn-engine bench --tables`: that it publishes what it says; how fast is for the command to say."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from rich.console import Console

from txn_engine import connect
from txn_engine.bench import print_report
from txn_engine.bench.tables import tables_report
from txn_engine.tables import FORMATS


def test_a_few_versions(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    url = f"file://{tmp_path}/ledger"
    report = json.loads(json.dumps(tables_report(url, "bench-t", (3, 6), lambda *_: None)))
    assert [(point["versions"], point["files"]) for point in report["points"]] == [(3, 3), (6, 6)]
    assert all(set(point["publish_ms"]) == set(FORMATS) for point in report["points"])
    assert set(report["points"][0]["growth"].values()) == {1.0}
    with connect(url) as engine:
        versions = {each.format: each.version for each in engine.tables.status("bench-t")}
        assert versions.keys() == set(FORMATS)
        assert versions["delta"] == 5
        assert engine.admin.verify().ok
    print_report(Console(width=120), report)
    printed = capsys.readouterr().out
    assert "live files" in printed
    assert "at most 1.5" in printed
