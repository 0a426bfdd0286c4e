"""What a finished run of each DAG did, in a few words, from what its tasks returned.

"Nothing to do" is said only of a run that succeeded, and only where every task of it that counts says that it did
nothing: a task that failed says nothing, and one that returned what cannot be read is named.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

NOTHING = "nothing to do"


@dataclass(frozen=True, slots=True)
class _Part:
    """What one task did: how much, and how that is said once it is done and, in a dry run, while it is due."""

    count: int
    done: str
    due: str
    is_least: bool = False


_Read = Callable[[Sequence[Any]], _Part]
"""From what the instances of a task returned; all but mapped ones have one."""


def said(
    dag_id: str,
    returned: Mapping[str, Sequence[Any]],
    *,
    ended: Mapping[str, int],
    succeeded: bool,
    is_dry_run: bool = False,
) -> str:
    """The run in a line; "" where what it did is not known.

    returned: by task id, one value a mapped instance. ended: by task id, how many instances succeeded.
    """
    parts = {
        task_id: _part(read, returned.get(task_id, ()), ended.get(task_id, 0))
        for task_id, read in _TASKS.get(dag_id, {}).items()
        if returned.get(task_id) or ended.get(task_id)
    }
    known = [part for part in parts.values() if part is not None]
    if not known:
        return ""
    told = [
        f"{'at least ' if part.is_least else ''}{part.due if is_dry_run else part.done}"
        for part in known
        if part.count
    ]
    unknown = [f"what {task_id} did is not known" for task_id, part in parts.items() if part is None]
    if not told and not unknown:
        return NOTHING if succeeded else ""
    if is_dry_run and told:
        told[0] = f"a dry run, to be done: {told[0]}"
    return ", ".join([*told, *unknown])


def _part(read: _Read, values: Sequence[Any], ended: int) -> _Part | None:
    """None where not every instance that succeeded said what it did: its value is of an older version, was kept
    elsewhere by an XCom backend, or was deleted.
    """
    if len(values) < ended:
        return None
    try:
        return read(values)
    except (KeyError, TypeError, ValueError, AttributeError):
        return None


def _count(count: int, one: str, many: str = "") -> str:
    return f"{count:,} {one if count == 1 else many or one + 's'}"


def _counted(what: str, done: str, due: str, count: Callable[[Any], int]) -> _Read:
    def read(values: Sequence[Any]) -> _Part:
        number = sum(count(value) for value in values)
        things = _count(number, what)
        return _Part(number, f"{done} {things}", f"{due} {things}")

    return read


def _sums(table: Mapping[str, Any], *columns: str) -> list[int]:
    places = [table["columns"].index(name) for name in columns] if table["rows"] else []
    return [sum(int(row[place]) for row in table["rows"]) for place in places] or [0] * len(columns)


def _tabled(*columns: str, done: Callable[[list[int]], str], due: Callable[[list[int]], str]) -> _Read:
    """Of a table of maintenance: the sums of these columns, "at least" where rows were left out of it."""

    def read(values: Sequence[Any]) -> _Part:
        (table,) = values
        sums = _sums(table, *columns)
        return _Part(sum(sums), done(sums), due(sums), is_least=table["rows_left_out"] > 0)

    return read


def _table(what: str, done: str, due: str, *columns: str) -> _Read:
    return _tabled(
        *columns,
        done=lambda sums: f"{done} {_count(sum(sums), what)}",
        due=lambda sums: f"{due} {_count(sum(sums), what)}",
    )


def _rows(what: str, done: str, due: str) -> _Read:
    return _counted(what, done, due, lambda table: len(table["rows"]) + table["rows_left_out"])


def _found(values: Sequence[Any]) -> _Part:
    """A list of what is to be done: those who did it tell of it."""
    if not all(isinstance(value, list) for value in values):
        raise ValueError("no list")
    return _Part(0, "", "")


def _consumed(values: Sequence[Any]) -> _Part:
    (value,) = values
    read, written = value["input"]["records"], value["records"]
    if value["committed_before"]:
        return _Part(1, "found its work committed by an earlier try", "")
    told = f"{_count(read, 'record')} in, {_count(written, 'record')} out"
    return _Part(read, told, told)


def _verified(values: Sequence[Any]) -> _Part:
    (value,) = values
    told = f"{value['passed']:,} of {_count(value['checks'], 'check')} passed"
    return _Part(1, told, told)


def _cut(values: Sequence[Any]) -> _Part:
    (value,) = values
    told = f"made cut {value['cut']:,}"
    return _Part(1, told, told)


_TASKS: Mapping[str, Mapping[str, _Read]] = {
    "txn_coordinator_sweep": {
        "abort_timed_out_transactions": _counted(
            "transaction", "aborted", "abort", lambda value: value["transactions"]
        ),
        "expire_transactional_ids": _counted("id", "expired", "expire", lambda value: value["transactions"]),
    },
    "txn_write_markers": {
        "find_pending": _found,
        "write_markers": _counted(
            "transaction", "completed", "complete", lambda value: value["transactions"]
        ),
        "make_cut": _cut,
    },
    "txn_compute_lso": {
        "write_snapshots": _counted("snapshot", "wrote", "write", lambda value: sum(value.values())),
    },
    "txn_spark_consume": {"consume": _consumed},
    "txn_verify_exactly_once": {"verify": _verified},
    "txn_maintain": {
        "compact": _tabled(
            "files",
            "outputs",
            done=lambda sums: f"merged {_count(sums[0], 'file')} into {sums[1]:,}",
            due=lambda sums: f"merge {_count(sums[0], 'file')} into {sums[1]:,}",
        ),
        "retain": _rows("partition", "trimmed", "trim"),
        "seal": _tabled(
            "seals",
            done=lambda sums: f"sealed {_count(sums[0], 'entry', 'entries')}",
            due=lambda sums: f"seal {_count(sums[0], 'entry', 'entries')}",
        ),
        "expire_producers": _table("producer", "forgot", "forget", "producer_ids"),
        "clean": _table("object", "deleted", "delete", "snapshots", "dead_files", "orphans"),
        "remove_deleted_topics": _rows("deleted topic", "removed", "remove"),
        "expire_group_offsets": _rows("group offset", "forgot", "forget"),
    },
}
