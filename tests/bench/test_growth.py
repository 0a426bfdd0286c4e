"""`txn-engine bench --growth`: every curve and its picture, of a few points; how they go is for the command to say."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from txn_engine import connect
from txn_engine.bench import growth, print_report
from txn_engine.bench.children import run_children
from txn_engine.bench.growth_shown import growth_svg
from txn_engine.bench.svg import Chart, svg_of
from txn_engine.errors import TxnEngineError

TINY = growth.GrowthSizes(appends=16, files=20, ids=6, steps=2, writer_s=0.2, on_one=(1, 2), on_sixteen=(1,))


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """All curves, as their document reads."""
    url = f"file://{tmp_path_factory.mktemp('growth')}/ledger"
    made = growth.growth_report(url, "g", TINY, lambda _: None)
    with connect(url) as engine:
        assert not engine.admin.verify().findings
    loaded: dict[str, Any] = json.loads(json.dumps(made))
    return loaded


@pytest.mark.slow
def test_the_curves(report: dict[str, Any]) -> None:
    """As far as they were to go, each step twice the one before; without snapshots and with them."""
    assert [row["number"] for row in report["appends"]] == [2, 4, 8, 16]
    assert [row["files"] for row in report["files"]] == [10, 20]
    assert [(row["ids"], row["by_snapshot"]) for row in report["ids"]] == [
        (3, False), (3, True), (6, False), (6, True),
    ]  # fmt: skip
    writers = report["writers"]
    assert [(row["writers"], row["partitions"]) for row in writers] == [(1, 1), (2, 1), (1, 16)]
    assert all(row["appends_a_second"] > 0 and 0 <= row["lost"] < 1 for row in writers)
    assert all(0 < row["slowest"] <= 1 and row["p50_ms"] <= row["p99_ms"] for row in writers)
    assert writers[0]["lost"] == writers[2]["lost"] == 0
    assert all(row["memory_mb"] > 0 and row["memory_by_snapshot_mb"] > 0 for row in report["files"])
    assert all(row["snapshot_mb"] > 0 and row["open_by_snapshot_s"] > 0 for row in report["files"])


@pytest.mark.slow
def test_tables_and_picture(report: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> None:
    """Six charts with their axes named, as XML that holds no colour of a page; and a table a curve."""
    print_report(Console(width=110), report)
    printed = capsys.readouterr().out
    assert "puts lost" in printed
    assert "live files" in printed
    picture = growth_svg(report)
    texts = [element.text for element in ET.fromstring(picture).iter("{http://www.w3.org/2000/svg}text")]
    for label in (
        "appends so far",
        "processes",
        "live files",
        "ids",
        "appends a second, in all",
        "ms",
        "s",
        "MB",
    ):
        assert label in texts
    assert picture.count("<g ") == 6
    assert "prefers-color-scheme:dark" in picture


def test_a_line_of_one_point_and_of_zeros() -> None:
    """Is drawn as well."""
    ET.fromstring(
        svg_of([Chart("t", "x", "y", {"a": [(1, 0)]}), Chart("t", "x", "y", {"a": [(1, 5)]})], "<t>")
    )


def test_a_process_that_ends_early_is_told(tmp_path: Path) -> None:
    """It is an error of the bench, and the others are ended."""
    task = {"task": "open", "url": f"file://{tmp_path}/ledger", "topic": "no-such-topic"}
    with pytest.raises(TxnEngineError, match="ended early"):
        run_children([task, task])
