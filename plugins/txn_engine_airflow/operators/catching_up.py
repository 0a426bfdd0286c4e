"""Whether the runs of a DAG that catches up would load the same files, one run after the other.

Airflow starts a run for each date that was missed, and each has a run id of its own. So files that are not of one date
would be loaded once for each of these runs, unless a manifest knows which were loaded before.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from airflow.sdk import Context

from txn_engine_airflow.errors import TaskError, TaskReason

_OF_THE_RUN = re.compile(
    r"\{[{%][^}]*\b(ds|ds_nodash|ts|ts_nodash\w*|logical_date|data_interval_(start|end)|run_id|dag_run|run_after"
    r"|prev_\w+|ti|task_instance|triggering_asset_events)\b"
)
"""A template that asks for something of the run."""
_BACKFILL = "backfill"
_LONG_INTERVAL = timedelta(days=28)


def is_template_of_the_run(path: object) -> bool:
    """Whether each of the paths, as the DAG file has them, is a template that names something of the run."""
    paths = [path] if isinstance(path, str) else path
    if not isinstance(paths, Sequence) or not paths:
        return False
    return all(isinstance(each, str) and _OF_THE_RUN.search(each) is not None for each in paths)


def check_files_are_of_the_run(context: Context, paths: Sequence[Any], *, takes_manifest: bool) -> None:
    """Raise `TaskError` in a run that catches up where a rendered path does not have the date of its run in it."""
    run, dag = context["dag_run"], context["dag"]
    if not dag.catchup and run.run_type != _BACKFILL:
        return
    dates = set(_dates_of(run))
    for path in map(str, paths):
        digits = re.sub(r"\D", "", path)
        if any(date in digits for date in dates):
            continue
        manifest = (
            "name a `manifest` (a topic of `txn-engine topics create NAME --manifest`), which passes over what an "
            "earlier run has loaded, or "
            if takes_manifest
            else ""
        )
        raise TaskError(
            f"path {path!r} does not have the date of its run in it, and DAG {dag.dag_id!r} catches up, so each of its "
            f"runs would load the same files again: {manifest}set `again=True` if every run is to load all of its "
            "files, or use paths that hold the run's date",
            reason=TaskReason.NEEDS_MANIFEST,
            subject="manifest",
        )


def _dates_of(run: Any) -> Iterator[str]:
    """The run's dates in digits as names of files hold them: its day, and its month where it covers one."""
    start, end = run.data_interval_start, run.data_interval_end
    formats = ["%Y%m%d"]
    if start is not None and end is not None and end - start >= _LONG_INTERVAL:
        formats.append("%Y%m")
    for moment in (run.logical_date, start, end):
        if isinstance(moment, datetime):
            yield from (moment.astimezone(UTC).strftime(each) for each in formats)
