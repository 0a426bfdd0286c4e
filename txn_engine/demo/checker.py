"""The demo's checker: `python -m txn_engine.demo.checker` runs the Great Expectations suite when it is told to."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from txn_engine.demo.pipe import Order, Pipe, serve
from txn_engine.engine import connect
from txn_engine.quality import QualityResult, check_exactly_once
from txn_engine.quality.declaration_file import declaration_from


def work(pipe: Pipe) -> None:
    """Say `ready` when all is imported; for the order `check` say what is being done (`doing`), then `checked`."""
    import txn_engine.quality.gather
    import txn_engine.quality.judge
    import txn_engine.quality.report  # noqa: F401
    from txn_engine.quality.expectations import import_great_expectations

    import_great_expectations()  # seconds that would be missed later

    pipe.say("ready")
    while (order := pipe.next_order()) is not None:
        pipe.say("checked", **_facts(_check(order, pipe)))


def _check(order: Order, pipe: Pipe) -> QualityResult:
    check = declaration_from(order["check"], "the demo's check")
    with connect(order["url"]) as engine:
        return check_exactly_once(
            engine,
            check,
            input_file=Path(order["input_file"]),
            report_folder=Path(order["report_folder"]),
            run_name="txn-engine demo",
            progress=lambda text: pipe.say("doing", text=text),
        )


def _facts(result: QualityResult) -> dict[str, Any]:
    return {
        "success": result.success,
        "report": str(result.report),
        "statistics": dict(result.statistics),
        "checks": [
            {"name": check.name, "status": check.status, "detail": check.detail} for check in result.checks
        ],
    }


if __name__ == "__main__":
    sys.exit(serve(work))
