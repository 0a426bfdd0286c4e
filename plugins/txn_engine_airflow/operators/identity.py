"""Who a task is to the coordinator: a transactional id for the task, a run id for the run, the same in every try."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from txn_engine_airflow.errors import TaskError, TaskReason
from txn_engine_airflow.operators.arguments import digest, is_given, is_plain, is_template
from txn_engine_airflow.operators.rendered import refused, text

if TYPE_CHECKING:
    from airflow.sdk import Context

TRANSACTIONAL_ID_CHARS_MAX = 1_000
IDENTITY_CHARS_MAX = 900
_OF_A_TASK = re.compile(r"([^/@]+)/[^/@]+(?:/[0-9a-f]+)?@(.+?)(?:@incarnation=[0-9,]+)?")
_MOMENT = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(\+00:00|Z)")


@dataclass(frozen=True, slots=True)
class Identity:
    """Who a task is to the coordinator.

    transactional_id: `<dag>/<task>`, of a mapped task with `/<part>`: the same for every run and try of it, and no
    other's. run_id: the same with `@<run>`, also where several tasks share a transactional id.
    """

    transactional_id: str
    run_id: str


def identity_of(
    context: Context,
    own: Mapping[str, Any] | None = None,
    *,
    name: str | None = None,
    interval: tuple[datetime, datetime] | None = None,
    knows_its_index: bool = False,
) -> Identity:
    """The identity of this task's run, the same in every try, cleared or not.

    own: the arguments that say what a load loads. A part of a mapped load is known by those that it does not share with
    the other parts, so that it stays the same when the list changes; else by what its templates gave, unless what loads
    may ask for its map index (knows_its_index). Any other part is known by the map index. name: stands for
    `<dag>/<task>`. The run is the logical date in UTC, or the id of a DAG run without one; or the interval of the data,
    of which several runs may be.

    Neither a DAG's nor a task's id can hold a slash or an `@`, so no two tasks share one. Raises `TaskError` for
    arguments of a part that are no plain data.
    """
    task, run = context["ti"], context["dag_run"]
    who = (f"{task.dag_id}/{task.task_id}" if name is None else name) + _part(
        context, own or {}, knows_its_index=knows_its_index
    )
    date: datetime | None = run.logical_date
    if interval is not None:
        which = "/".join(each.astimezone(UTC).isoformat() for each in interval)
    else:
        which = run.run_id if date is None else date.astimezone(UTC).isoformat()
    return Identity(who, f"{who}@{which}")


def place_of(context: Context) -> str:
    """`<task>[/<map index>]`: where in a run's folder the task's reports are."""
    task = context["ti"]
    return task.task_id + (f"/{task.map_index}" if _is_part(task) else "")


def _is_part(task: Any) -> bool:
    return task.map_index is not None and task.map_index >= 0


def _part(context: Context, own: Mapping[str, Any], *, knows_its_index: bool) -> str:
    task = context["ti"]
    if not _is_part(task):
        return ""
    given = {name: own[name] for name in _of_this_part(context, own) if is_given(own[name])}
    if not given and not knows_its_index:
        given = {name: own[name] for name in _templates(context, own) if is_given(own[name])}
    if not given:
        return f"/{task.map_index}"
    if unknown := [name for name, value in given.items() if not is_plain(value)]:
        raise TaskError(
            f"{unknown[0]} of a part of the mapped task {task.task_id!r} is no plain data; expected texts, numbers, "
            "lists or mappings, such as a path or a key: a part is known by what it is given",
            reason=TaskReason.BAD_ARGUMENT,
            subject=unknown[0],
        )
    return f"/{digest(given)}"


def _of_this_part(context: Context, names: Iterable[str]) -> list[str]:
    """Which of the arguments the parts of the mapped task do not share, as the DAG file has them."""
    task = context["dag"].get_task(context["ti"].task_id)
    shared = getattr(task, "partial_kwargs", None)
    if shared is not None:
        return [name for name in names if name not in shared]
    return [name for name in names if _is_of_this_part(getattr(task, name))]  # a task of a mapped group


def _templates(context: Context, names: Iterable[str]) -> list[str]:
    """Which of the arguments are templates in the DAG file: the map index may be in them."""
    task = context["dag"].get_task(context["ti"].task_id)
    shared = getattr(task, "partial_kwargs", None)
    values = {name: getattr(task, name, None) if shared is None else shared.get(name) for name in names}
    return [name for name, value in values.items() if _has_template(value)]


def _has_template(value: Any) -> bool:
    if isinstance(value, str):
        return is_template(value)
    if isinstance(value, Mapping):
        return any(map(_has_template, value.values()))
    return isinstance(value, Sequence) and any(map(_has_template, value))


def _is_of_this_part(value: Any) -> bool:
    """Whether an argument, as the DAG file has it, is one of the mapped group, or comes from a task in it. A template
    may or may not differ from part to part, so it tells nothing.
    """
    from airflow.sdk import XComArg

    if isinstance(value, Mapping):
        return any(map(_is_of_this_part, value.values()))
    if isinstance(value, Sequence) and not isinstance(value, str):
        return any(map(_is_of_this_part, value))
    if isinstance(value, XComArg):
        tasks = [task for task, _ in XComArg.iter_xcom_references(value)]
        return any(group is not None for task in tasks for group in task.iter_mapped_task_groups())
    return hasattr(value, "resolve")  # the group's own argument


def checked_identity(name: object) -> str | None:
    """The argument `identity` of an operator. Raises `ValueError`."""
    if name is None:
        return None
    if not isinstance(name, str) or not name.strip() or "@" in name or len(name) > IDENTITY_CHARS_MAX:
        raise ValueError(
            f"identity {name!r:.80}; expected `<dag>/<task>` of the task that loaded before, without an @, "
            f"of at most {IDENTITY_CHARS_MAX} characters"
        )
    return name


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


def without_incarnation(run_id: str) -> str:
    """The name of a run, whichever incarnation of its topic it loads."""
    return run_id.partition("@incarnation=")[0]


def dag_run_of(run_id: str) -> tuple[str, str, datetime | None] | None:
    """The DAG whose task loaded under a run id, what the id says of its run, and that as a date where it is one, or
    where it begins with one, as an interval does.

    None for an id that no task made.
    """
    found = _OF_A_TASK.fullmatch(run_id)
    if found is None:
        return None
    dag_id, which = found.groups()
    try:
        moment = datetime.fromisoformat(which.partition("/")[0])
    except ValueError:
        return dag_id, which, None
    return dag_id, which, None if moment.tzinfo is None else moment


def checked_transactional_id(name: str, value: object) -> str:
    """The argument `transactional_id`, as it was rendered. Raises `TaskError` for one that the coordinator would
    refuse, and for the word that a template makes of nothing.
    """
    found = text(name, value)
    if len(found) > TRANSACTIONAL_ID_CHARS_MAX:
        raise refused(name, value, f"1 to {TRANSACTIONAL_ID_CHARS_MAX} characters")
    return found
