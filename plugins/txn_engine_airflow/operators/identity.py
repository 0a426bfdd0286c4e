"""Who a task is to the coordinator: a transactional id for the task, a run id for the run, the same in every try."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from airflow.sdk.exceptions import AirflowFailException

if TYPE_CHECKING:
    from airflow.sdk import Context

TRANSACTIONAL_ID_CHARS_MAX = 1_000


def transactional_id_of(context: Context) -> str:
    """`<dag>/<task>`, with `/<map index>` for a mapped task: the same for every run and try of it, and no other's.

    Neither a DAG's nor a task's id can hold a slash, so no two tasks share one.
    """
    task = context["ti"]
    index = task.map_index
    is_mapped = index is not None and index >= 0
    return f"{task.dag_id}/{task.task_id}" + (f"/{index}" if is_mapped else "")


def run_id_of(context: Context) -> str:
    """The run's logical date in UTC, or the DAG run's id where it has none: the same in every try, cleared or not."""
    run = context["dag_run"]
    date: datetime | None = run.logical_date
    return run.run_id if date is None else date.astimezone(UTC).isoformat()


def checked_transactional_id(name: str) -> str:
    """The id, as it was rendered. Raises `AirflowFailException` for one that the coordinator would refuse."""
    if not name.strip() or len(name) > TRANSACTIONAL_ID_CHARS_MAX:
        raise AirflowFailException(
            f"transactional id {name!r:.80}: {len(name)} characters; expected 1 to {TRANSACTIONAL_ID_CHARS_MAX},"
            " not blank"
        )
    return name
