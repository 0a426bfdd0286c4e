"""The exactly-once suite as a task: red when a check fails or cannot be made, with the report's path in one line."""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow.sdk.exceptions import AirflowFailException

from txn_engine_airflow.hook import open_engine, readable_errors

if TYPE_CHECKING:
    from txn_engine.quality import CheckResult, QualityResult

log = logging.getLogger(__name__)

_CHECK_FIELDS = (
    "topic",
    "record_id",
    "account",
    "amount",
    "direction",
    "output_topic",
    "output_account",
    "output_total",
    "output_count",
    "group_id",
    "input_delimiter",
    "input_date_format",
)
_NAMED_MAX = 5


def verify_exactly_once(
    params: Mapping[str, Any], *, dag_id: str, run_id: str, announce: Callable[[str, str], object]
) -> dict[str, int | float | str]:
    """Run the suite over what the params name, write its report, and give the numbers and the report's path.

    `announce("report", path)` is called before a failed check raises, so that a red task has it too. Raises
    `AirflowFailException` (checking again by itself would give the same) where a check failed or errored.
    """
    with readable_errors():
        from txn_engine.quality import ExactlyOnceCheck, check_exactly_once

        fields = {name: params[name] for name in _CHECK_FIELDS if params.get(name) is not None}
        if "output_count" in params:
            fields["output_count"] = params["output_count"]  # None: the output counts nothing
        check = ExactlyOnceCheck(**fields, credit_values=tuple(params.get("credit_values") or ()))
    input_file = params.get("input_file")
    folder = report_folder(params.get("report_folder"), dag_id, run_id)
    with open_engine(params["conn_id"]) as engine:
        result = check_exactly_once(
            engine,
            check,
            input_file=Path(input_file) if input_file else None,
            report_folder=folder,
            run_name=run_id,
            progress=log.info,
        )
    announce("report", str(result.report))
    _log(result)
    if not result.success:
        raise AirflowFailException(_failure(check.topic, result))
    return {"report": str(result.report), "json": str(result.json), **result.statistics}


def report_folder(parent: str | None, dag_id: str, run_id: str) -> Path:
    """A folder of the run's own, below `parent` or below Airflow's home."""
    home = os.environ.get("AIRFLOW_HOME") or os.path.expanduser("~/airflow")
    base = Path(parent) if parent else Path(home) / "txn_engine_reports"
    return base / dag_id / re.sub(r"[^A-Za-z0-9_.+-]", "_", run_id)


def _log(result: QualityResult) -> None:
    for check in result.checks:
        tell = log.info if check.status == "passed" else log.error
        tell(
            "%-7s %s: %s%s",
            check.status,
            check.name,
            check.observed,
            f" ({check.detail})" if check.detail else "",
        )
    log.info("report: %s", result.report)


def _failure(topic: str, result: QualityResult) -> str:
    bad = [*result.failed, *result.errored]
    told = "; ".join(_sentence(check) for check in bad[:_NAMED_MAX])
    more = f"; and {len(bad) - _NAMED_MAX} more" if len(bad) > _NAMED_MAX else ""
    return " ".join(
        f"exactly-once check of {topic}: {len(result.failed)} of {len(result.checks)} checks failed, "
        f"{len(result.errored)} could not be made: {told}{more}; report: {result.report}".split()
    )


def _sentence(check: CheckResult) -> str:
    return f"{check.name} ({check.detail or check.observed})"
