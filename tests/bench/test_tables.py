"""`txn-engine bench --tables` publishes the versions that it reports. Speed is not tested."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from rich.console import Console

from txn_engine import connect
from txn_engine.bench import print_report
from txn_engine.bench.first_queries import READERS, FirstQuery
from txn_engine.bench.tables import tables_report
from txn_engine.tables import FORMATS


def test_a_few_versions(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Engines that are not installed have a row that says so. tests/readers runs them."""
    monkeypatch.setenv("TXN_ENGINE_CACHE", str(tmp_path / "cache"))
    url = f"file://{tmp_path}/ledger"
    report = json.loads(json.dumps(tables_report(url, "bench-t", (6, 12), lambda *_: None)))
    assert [(point["versions"], point["files"]) for point in report["points"]] == [(6, 6), (12, 12)]
    assert all(set(point["publish_ms"]) == set(FORMATS) for point in report["points"])
    assert all(point["anew_ms"] > 0 for point in report["points"])
    assert set(report["points"][0]["growth"].values()) == {1.0}
    assert [each["files"] for each in report["first_queries"]] == [12] * len(READERS) + [1] * len(READERS)
    assert all("`.ci/setup-readers` builds it" in each["note"] for each in report["first_queries"])
    with connect(url) as engine:
        versions = {each.format: each.version for each in engine.tables.status("bench-t")}
        assert versions.keys() == set(FORMATS)
        assert versions["delta"] == 12
        assert engine.admin.verify().ok
    print_report(Console(width=120), report)
    printed = capsys.readouterr().out
    assert "live files" in printed
    assert "at most 1.5" in printed
    assert "no environment" in printed


def test_what_an_engine_took_is_shown() -> None:
    """The table shows each engine's time and, for the table as it was published, whether the aim was reached.
    The merged table has no aim."""
    queries = [
        FirstQuery("DuckDB", "delta", "as published", 12, 110.0, 100.0, 1.1, True, 3).to_dict(),
        FirstQuery("Polars", "delta", "as published", 12, 150.0, 100.0, 1.5, False, 3).to_dict(),
        FirstQuery("Polars", "delta", "merged", 1, 250.0, 100.0, 2.5, False, 3).to_dict(),
    ]
    point = {"versions": 12, "files": 12, "append_ms": 1.0, "cut_ms": 1.0, "anew_ms": 9.0}
    point |= {"publish_ms": dict.fromkeys(FORMATS, 1.0), "growth": dict.fromkeys(FORMATS, 1.0)}
    report = {
        "bench": "tables", "store": "s", "aim": 1.5, "points": [point], "first_query_aim": 1.2,
        "first_queries": queries,
    }  # fmt: skip
    console = Console(width=120, record=True)
    print_report(console, report)
    lines = [line.split() for line in console.export_text().splitlines()]
    shown = {(line[0], line[4], line[-1]) for line in lines if line[:1] in (["DuckDB"], ["Polars"])}
    assert ("DuckDB", "published", "met") in shown
    assert ("Polars", "published", "missed") in shown
    assert not any(last in ("met", "missed") for _, state, last in shown if state != "published")
