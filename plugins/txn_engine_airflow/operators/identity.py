"""Who a task is to the coordinator: a transactional id for the task, a run id for the run, the same in every try."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from txn_engine_airflow.errors import TaskError, TaskReason

if TYPE_CHECKING:
    from airflow.sdk import Context

TRANSACTIONAL_ID_CHARS_MAX = 1_000
_OF_A_TASK = re.compile(r"([^/@]+)/[^/@]+(?:/[0-9]+)?@(.+?)(?:@incarnation=[0-9,]+)?")
_MOMENT = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(\+00:00|Z)")


def transactional_id_of(context: Context) -> str:
    """`<dag>/<task>`, with `/<map index>` for a mapped task: the same for every run and try of it, and no other's.

    Neither a DAG's nor a task's id can hold a slash, so no two tasks share one.
    """
    task = context["ti"]
    index = task.map_index
    is_mapped = index is not None and index >= 0
    return f"{task.dag_id}/{task.task_id}" + (f"/{index}" if is_mapped else "")


def run_id_of(context: Context) -> str:
    """`<dag>/<task>[/<map index>]@<logical date in UTC>`, or `@<id of the DAG run>` for a run without a date.

    The same in every try, cleared or not, and no other task's, also where several share a transactional id.
    """
    run = context["dag_run"]
    date: datetime | None = run.logical_date
    which = run.run_id if date is None else date.astimezone(UTC).isoformat()
    return f"{transactional_id_of(context)}@{which}"


def moment_of(run_id: str) -> datetime | None:
    """The logical date that a task's run id holds, or the time in the id that Airflow gave a DAG run; None for others.

    Neither a DAG's nor a task's id can hold an `@`.
    """
    found = _MOMENT.search(run_id.partition("@")[2])
    if found is None:
        return None
    try:
        return datetime.fromisoformat(found[0])
    except ValueError:
        return None


def dag_run_of(run_id: str) -> tuple[str, str, datetime | None] | None:
    """The DAG whose task loaded under a run id, what the id says of its run, and that as a date where it is one.

    None for an id that no task made.
    """
    found = _OF_A_TASK.fullmatch(run_id)
    if found is None:
        return None
    dag_id, which = found.groups()
    try:
        moment = datetime.fromisoformat(which)
    except ValueError:
        return dag_id, which, None
    return dag_id, which, None if moment.tzinfo is None else moment


def checked_transactional_id(name: object) -> str:
    """The id, as it was rendered. Raises `AirflowFailException` for one that the coordinator would refuse, and for the
    word that a template makes of nothing.
    """
    if not isinstance(name, str) or name.strip() == "None":
        raise TaskError(
            f"transactional id {name!r:.80}; expected a text: did its template find nothing?",
            reason=TaskReason.BAD_ARGUMENT,
            subject="transactional_id",
        )
    if not name.strip() or len(name) > TRANSACTIONAL_ID_CHARS_MAX:
        raise TaskError(
            f"transactional id {name!r:.80}: {len(name)} characters; expected 1 to {TRANSACTIONAL_ID_CHARS_MAX},"
            " not blank",
            reason=TaskReason.BAD_ARGUMENT,
            subject="transactional_id",
        )
    return name
