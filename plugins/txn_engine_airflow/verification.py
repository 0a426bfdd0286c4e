"""The exactly-once suite as a task: red when a check fails or cannot be made, with the report's path in one line."""

from __future__ import annotations

import errno
import hashlib
import json
import logging
import os
import re
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow.sdk.exceptions import AirflowSkipException

from txn_engine_airflow.alerts import AlertError
from txn_engine_airflow.assets import verified_asset
from txn_engine_airflow.connection import StoreConnection
from txn_engine_airflow.deployment import (
    check_nothing_leads_out,
    deployment_spark_conf,
    permitted_connection,
    permitted_declaration,
    permitted_input_file,
    permitted_report_folder,
    permitted_verify_suite,
)
from txn_engine_airflow.hook import open_engine_of_run, readable_errors
from txn_engine_airflow.spark_tasks import task_spark

if TYPE_CHECKING:
    from airflow.sdk import Asset

    from txn_engine import Engine
    from txn_engine.quality import CheckResult, Declaration, QualityResult
    from txn_engine.quality.reducer import Reducer

log = logging.getLogger(__name__)

CONSUMED, EVERYTHING = "consumed", "everything"
"""Scopes of a check: what the group has read, while others go on writing; or all there is, with nothing under way."""

_TELL = {"passed": log.info, "not_applicable": log.info, "warning": log.warning}
_OF_A_RUN = frozenset({"report_folder", "whole", "engine", "spark_above"})
"""Params that say nothing of what is proved, but where it is told, what is looked at once more, and who looks."""
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
        from txn_engine.extras import need

        need("quality", actor="txn_verify_exactly_once")
        from txn_engine.quality import check_exactly_once
        from txn_engine.quality.choosing import chosen_reducer

        check = declared(params)
    if connection_of_report(folder) != conn_id:
        (folder / _CONNECTION_FILE).unlink(
            missing_ok=True
        )  # the new report is not of the old one's connection
    with (
        open_engine_of_run(conn_id) as engine,
        chosen_reducer(
            params["engine"],
            engine,
            check,
            spark=lambda: _spark_reducer(engine),
            spark_above=params["spark_above"],
            tell=log.info,
        ) as reducer,
    ):
        result = check_exactly_once(
            engine,
            check,
            input_file=file,
            report_folder=folder,
            run_name=run_id,
            reducer=reducer,
            record=True,
            whole=bool(params.get("whole")),
            cut=params.get("cut"),
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
        proved = (check.topic, *check.output_topics)[-1]
        emit(verified_asset(proved, StoreConnection.load(conn_id)), {"topic": proved, **told})
    return told | {"announced": not others}


@contextmanager
def _spark_reducer(engine: Engine) -> Iterator[Reducer]:
    from txn_engine.spark.reducing import SparkReducer

    with (
        task_spark(engine.url, deployment_spark_conf(), app_name="txn_verify_exactly_once") as spark,
        SparkReducer(spark, engine.store) as reducer,
    ):
        yield reducer


def declared(params: Mapping[str, Any]) -> Declaration:
    """What the params of a run declare: what the file named by `declaration` says, or else a topic and an output that
    sums its amounts by account.
    """
    from txn_engine.errors import InvalidRequestError
    from txn_engine.quality import Amount, Declaration, Output, Totals

    if path := params.get("declaration"):
        return _declared_in(permitted_declaration(path), params)
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


def _declared_in(file: Path, params: Mapping[str, Any]) -> Declaration:
    """What the file declares, in the scope that the params say, of the topic and the group that they name."""
    from txn_engine.errors import InvalidRequestError
    from txn_engine.quality import read_declaration

    found = read_declaration(file)
    for suite in found.suites:
        permitted_verify_suite(suite.checks)
    group = params.get("group_id") or None
    for name, seen, asked in (
        ("topic", found.topic, params["topic"]),
        ("group_id", found.group_id or group, group),
    ):
        if seen != asked:
            raise InvalidRequestError(
                f"declaration {file.name} has the {name} {seen!r}",
                actor="txn_verify_exactly_once",
                expected=f"that of the param {name}, {asked!r}",
            )
    return replace(found, group_id=group, up_to_position=params["scope"] == CONSUMED)


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
    return [name for name in names if _given(asked.get(name)) != _given(own_check.get(name))]


def _given(value: Any) -> Any:
    """The value; None for a field that was left empty. The cut 0 is one."""
    return value if value or type(value) is int else None


def report_folder(parent: Path | None, *, dag_id: str, run_id: str) -> Path:
    """A folder of the run's own, below `parent` or below Airflow's home; no two runs of a DAG share one."""
    return (reports_home() if parent is None else parent) / dag_id / _folder_name(run_id)


def vote_folder(*, dag_id: str, run_id: str, task: str) -> Path:
    """A folder of the task's own in this run, for the report of its checks. No page shows it: it names no connection.

    No DAG's id holds a "~".
    """
    return reports_home() / "checks~" / dag_id / _folder_name(run_id) / _folder_name(task)


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
        tell = _TELL.get(check.status, log.error)
        tell("%-7s %s: %s", check.status, check.name, check.observed)
    log.info("report: %s", result.report)


def _failure(topic: str, result: QualityResult) -> str:
    bad = [*result.failed, *result.errored]
    told = "; ".join(_sentence(check) for check in bad[:_NAMED_MAX])
    more = f"; and {len(bad) - _NAMED_MAX} more" if len(bad) > _NAMED_MAX else ""
    signs = f"; signs of: {', '.join(result.anomalies)}" if result.anomalies else ""
    return " ".join(
        f"exactly-once check of {topic}: {len(result.failed)} of {len(result.checks)} checks failed, "
        f"{len(result.errored)} could not be made: {told}{more}{signs}; report: {result.report}".split()
    )


def _sentence(check: CheckResult) -> str:
    """Name and count. What else a check says may quote records: that is for the report, which is guarded."""
    return f"{check.name} ({check.observed})"
