"""`txn-engine bench --growth` measures every curve and draws it. A few points are enough: speed is not tested."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ET
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from tests.suite.tiers import in_shard
from tests.support.internal import FEW_INTERNAL
from txn_engine import connect
from txn_engine.bench import growth, print_report
from txn_engine.bench.children import run_children
from txn_engine.bench.growth_shown import growth_svg
from txn_engine.bench.svg import Chart, svg_of
from txn_engine.errors import TxnEngineError
from txn_engine.reasons import Reason

pytestmark = pytest.mark.together("curves of growth")

SMALLEST = growth.GrowthSizes(appends=16, files=20, ids=6, steps=1, writer_s=0.1, on_one=(2,), on_sixteen=())
TINY = growth.GrowthSizes(appends=16, files=20, ids=6, steps=1, writer_s=0.2, on_one=(1, 2), on_sixteen=(1,))


@pytest.fixture(scope="module", params=in_shard("machine", [SMALLEST, TINY, replace(TINY, steps=2)], keep=1))
def report(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The document with all curves."""
    url = f"file://{tmp_path_factory.mktemp('growth')}/ledger"
    connect(url, configs=FEW_INTERNAL).close()
    made = growth.growth_report(url, "g", request.param, lambda _: None)
    with connect(url) as engine:
        assert not engine.admin.verify().findings
    loaded: dict[str, Any] = json.loads(json.dumps(made))
    return loaded


@pytest.mark.slow
def test_the_curves(report: dict[str, Any]) -> None:
    """Each curve goes as far as asked in steps that double, with and without snapshots."""
    steps = report["sizes"]["steps"]
    assert [row["number"] for row in report["appends"]] == [2, 4, 8, 16][-2 * steps :]
    assert [row["files"] for row in report["files"]] == [10, 20][-steps:]
    ids = [(3, False), (3, True), (6, False), (6, True)][-2 * steps :]
    assert [(row["ids"], row["by_snapshot"]) for row in report["ids"]] == ids
    writers = report["writers"]
    sizes = report["sizes"]
    groups = [*((count, 1) for count in sizes["on_one"]), *((count, 16) for count in sizes["on_sixteen"])]
    assert [(row["writers"], row["partitions"]) for row in writers] == groups
    assert all(row["appends_a_second"] > 0 and 0 <= row["lost"] < 1 for row in writers)
    assert all(0 <= row["slowest"] <= 1 and row["p50_ms"] <= row["p99_ms"] for row in writers)
    for alone in [row for row in writers if row["writers"] == 1]:
        assert (alone["lost"], alone["slowest"]) == (0, 1)
    assert all(row["memory_mb"] > 0 and row["memory_by_snapshot_mb"] > 0 for row in report["files"])
    assert all(row["snapshot_mb"] > 0 and row["open_by_snapshot_s"] > 0 for row in report["files"])


@pytest.mark.slow
def test_tables_and_picture(report: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> None:
    """The picture has six charts with named axes and follows the page's colours. Each curve is printed as a table."""
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
    """A chart of a single point, or of zeros, is well-formed."""
    ET.fromstring(
        svg_of([Chart("t", "x", "y", {"a": [(1, 0)]}), Chart("t", "x", "y", {"a": [(1, 5)]})], "<t>")
    )


@pytest.mark.shard("machine")
def test_a_process_that_ends_early_is_told(tmp_path: Path) -> None:
    """A child that ends early fails the bench, and the other children are ended."""
    task = {"task": "open", "url": f"file://{tmp_path}/ledger", "topic": "no-such-topic"}
    with pytest.raises(TxnEngineError) as failed:
        run_children([task, task])
    assert failed.value.reason is Reason.CHILD_ENDED
