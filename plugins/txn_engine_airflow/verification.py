"""The exactly-once suite as a task: red when a check fails or cannot be made, with the report's path in one line."""

from __future__ import annotations

import errno
import hashlib
import json
import logging
import os
import re
import stat
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow.sdk.exceptions import AirflowSkipException

from txn_engine_airflow.alerts import AlertError
from txn_engine_airflow.assets import verified_asset
from txn_engine_airflow.connection import StoreConnection
from txn_engine_airflow.deployment import (
    check_nothing_leads_out,
    permitted_connection,
    permitted_input_file,
    permitted_report_folder,
)
from txn_engine_airflow.hook import open_engine_of_run, readable_errors

if TYPE_CHECKING:
    from airflow.sdk import Asset

    from txn_engine.quality import CheckResult, Declaration, QualityResult

log = logging.getLogger(__name__)

CONSUMED, EVERYTHING = "consumed", "everything"
"""Scopes of a check: what the group has read, while others go on writing; or all there is, with nothing under way."""

_OF_A_RUN = frozenset({"report_folder"})
"""Params that say nothing of what is proved."""
_OF_THE_FILE = ("input_file", "input_delimiter", "input_date_format")
_NAMED_MAX = 5
_NAME_CHARS_MAX = 200
_CONNECTION_FILE = "connection.json"
JSON_BYTES_MAX = 32 * 1024 * 1024


def check_is_of_this_job(params: Mapping[str, Any], events: Iterable[Mapping[str, Any]]) -> None:
    """Raise `AirflowSkipException` where the consumer whose events started this run is another one than the params say.

    `events`: the extras of the asset events, none for a run that somebody started: that is about what its params say.
    """
    jobs = {_job(event) for event in events}
    mine = (params["topic"], params["group_id"], params["output_topic"])
    if jobs and mine not in jobs:
        others = ", ".join(sorted(f"{group}: {topic} -> {output}" for topic, group, output in jobs))
        raise AirflowSkipException(
            f"the output is another job's ({others}); to prove it, start this DAG with that job's params"
        )


def _job(event: Mapping[str, Any]) -> tuple[str, str, str]:
    source = event.get("input") or {}
    return str(source.get("topic")), str(source.get("group_id")), str(event.get("topic"))


def verify_exactly_once(
    params: Mapping[str, Any],
    *,
    dag_id: str,
    run_id: str,
    own_check: Mapping[str, Any],
    announce: Callable[[str, str], object],
    emit: Callable[[Asset, dict[str, Any]], object],
) -> dict[str, int | float | str]:
    """Run the suite over what the params name, write its report, and give the numbers and the report's path.

    `announce("report", path)` is called before a failed check raises, so that a red task has it too. `emit(asset,
    extra)` only where every check passed, and the params ask for what `own_check`, the DAG's own, asks for: else
    whoever may trigger the DAG could release what waits for the proof by a check of less. Raises `AlertError`
    (checking again by itself would give the same) where a check failed or errored.
    """
    conn_id = permitted_connection(params["conn_id"])
    input_file, parent = params.get("input_file") or None, params.get("report_folder") or None
    file = None if input_file is None else permitted_input_file(input_file)
    folder = report_folder(
        None if parent is None else permitted_report_folder(parent), dag_id=dag_id, run_id=run_id
    )
    check_nothing_leads_out(folder)
    with readable_errors():
        from txn_engine.quality import check_exactly_once

        check = declared(params)
    if connection_of_report(folder) != conn_id:
        (folder / _CONNECTION_FILE).unlink(
            missing_ok=True
        )  # the new report is not of the old one's connection
    with open_engine_of_run(conn_id) as engine:
        result = check_exactly_once(
            engine,
            check,
            input_file=file,
            report_folder=folder,
            run_name=run_id,
            progress=log.info,
        )
    (folder / _CONNECTION_FILE).write_text(json.dumps({"conn_id": conn_id}), encoding="utf-8")
    announce("report", str(result.report))
    _log(result)
    if not result.success:
        raise AlertError(
            f"verification failed: {check.topic}", _failure(check.topic, result), [f"{check.topic} {run_id}"]
        )
    told = {"report": str(result.report), "json": str(result.json), **result.statistics}
    others = _less_or_other(params, own_check)
    if others:
        log.warning("passed, and not announced: %s of this run differ from the DAG's own", ", ".join(others))
    else:
        proved = check.topics[-1]
        emit(verified_asset(proved, StoreConnection.load(conn_id)), {"topic": proved, **told})
    return told | {"announced": not others}


def declared(params: Mapping[str, Any]) -> Declaration:
    """What the params of a run declare: a topic, and an output that sums its amounts by account."""
    from txn_engine.errors import InvalidRequestError
    from txn_engine.quality import Amount, Declaration, Output, Totals

    outputs: tuple[Output, ...] = ()
    if output := params.get("output_topic"):
        missing = [name for name in ("account", "amount") if not params.get(name)]
        if missing:
            raise InvalidRequestError(
                f"output_topic {output!r} is given without {' and '.join(missing)}",
                actor="txn_verify_exactly_once",
                expected="the columns of the topic that the output sums",
            )
        amount = Amount(
            params["amount"], params.get("direction") or None, tuple(params.get("credit_values") or ())
        )
        sums = Totals(
            by={params["output_account"]: params["account"]},
            sums={params["output_total"]: amount},
            count=params.get("output_count") or None,
        )
        outputs = (Output(output, sums),)
    return Declaration(
        topic=params["topic"],
        record_id=(params["record_id"],),
        outputs=outputs,
        group_id=params.get("group_id") or None,
        up_to_position=params["scope"] == CONSUMED,
        **{name: params[name] for name in ("input_delimiter", "input_date_format") if name in params},
    )


def _less_or_other(params: Mapping[str, Any], own_check: Mapping[str, Any]) -> list[str]:
    """The params by which a run's check is not at least the DAG's own, of the same store.

    More may be asked: that all has ended where the DAG asks for what was consumed, and a file to compare with.
    """
    asked = dict(params)
    if asked["scope"] == EVERYTHING:
        asked["scope"] = own_check["scope"]
    if not own_check.get("input_file"):
        asked |= {name: own_check.get(name) for name in _OF_THE_FILE}
    names = sorted({*own_check, *asked} - _OF_A_RUN)
    return [name for name in names if (asked.get(name) or None) != (own_check.get(name) or None)]


def report_folder(parent: Path | None, *, dag_id: str, run_id: str) -> Path:
    """A folder of the run's own, below `parent` or below Airflow's home; no two runs of a DAG share one."""
    return (reports_home() if parent is None else parent) / dag_id / _folder_name(run_id)


def _folder_name(run_id: str) -> str:
    """The run's id, where that is a plain name; else with a digest behind a "~", which no plain name holds."""
    plain = re.sub(r"[^A-Za-z0-9_.+-]", "_", run_id)[:_NAME_CHARS_MAX]
    if plain == run_id and plain.strip("."):
        return plain
    return f"{plain}~{hashlib.sha256(run_id.encode()).hexdigest()[:12]}"


def connection_of_report(folder: Path) -> str | None:
    """The id of the connection whose store a report shows, written beside it; None where nothing says."""
    try:
        conn_id = read_json(folder / _CONNECTION_FILE)["conn_id"]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return conn_id if isinstance(conn_id, str) else None


def read_json(path: Path) -> Any:
    """What a file of a report says. Raises `OSError` for a link, for what is no regular file (opening a FIFO would wait
    for its writer), and for one of more than `JSON_BYTES_MAX`; `ValueError` for what is no JSON.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    with open(descriptor, "rb") as file:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode) or found.st_size > JSON_BYTES_MAX:
            raise OSError(errno.EINVAL, f"no regular file of at most {JSON_BYTES_MAX:,} bytes", str(path))
        text = file.read(JSON_BYTES_MAX)
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("nested too deep") from None


def reports_home() -> Path:
    """Where reports go unless a run says otherwise: one folder a DAG, in it one a run."""
    return Path(os.environ.get("AIRFLOW_HOME") or os.path.expanduser("~/airflow")) / "txn_engine_reports"


def _log(result: QualityResult) -> None:
    for check in result.checks:
        tell = log.info if check.status in ("passed", "not_applicable") else log.error
        tell("%-7s %s: %s", check.status, check.name, check.observed)
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
    """Name and count. What else a check says may quote records: that is for the report, which is guarded."""
    return f"{check.name} ({check.observed})"
