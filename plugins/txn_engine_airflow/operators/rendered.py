"""What templates made of arguments: each is taken, or refused in one line that no retry repeats.

A DAG renders to text, or with `render_template_as_native_obj` to whatever the text looks like: a template that found
nothing gives the word None, or None; one that found a number gives a number.
"""

from __future__ import annotations

import ast
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from txn_engine_airflow.errors import TaskError, TaskReason
from txn_engine_airflow.operators.arguments import is_path

Kind = Callable[[str, Any], Any]
"""Takes the name and the value of an argument, and returns what to go on with."""
OFFSET_MAX = (1 << 63) - 1
PARTITION_MAX = (1 << 31) - 1


def given_in(task: Any) -> frozenset[str]:
    """Which of the arguments that may be templates a task was given: its `given`."""
    return frozenset(name for name in task.template_fields if getattr(task, name, None) is not None)


def take_rendered(task: Any, **kinds: Kind) -> None:
    """Put what each of these arguments of a task means in its place. Raises `TaskError`, also for one that the task was
    given and that its template made None of: without it the task would do something else.
    """
    for name, kind in kinds.items():
        value = getattr(task, name)
        if value is None and name in task.given:
            raise refused(name, value, "a value: did its template find nothing?")
        setattr(task, name, kind(name, value))


def anything(name: str, value: Any) -> Any:  # noqa: ARG001 -- a `Kind`
    """What is looked at where it is used."""
    return value


def text(name: str, value: Any) -> str:
    """A text, or a path."""
    if is_path(value):
        return str(value)
    if value is None or (isinstance(value, str) and value.strip() in ("", "None")):
        raise refused(name, value, "a text: did its template find nothing?")
    if not isinstance(value, str):
        raise refused(name, value, f"a text, and not {type(value).__name__}")
    return value


def texts(name: str, value: Any) -> str | list[str]:
    """A text, or several."""
    if isinstance(value, str) or is_path(value) or not isinstance(value, Sequence):
        return text(name, value)
    return [text(name, each) for each in value]


def or_none(kind: Kind) -> Kind:
    """What need not be given."""
    return lambda name, value: None if value is None else kind(name, value)


def offsets(name: str, value: Any) -> dict[int, int]:
    """Offsets by partition, as a mapping, or as the text of one."""
    found = _parsed(value) if isinstance(value, str) else value
    if not isinstance(found, Mapping):
        raise refused(name, value, "offsets by partition, as the end_offsets of an event")
    return {
        _number(name, value, partition, PARTITION_MAX): _number(name, value, offset, OFFSET_MAX)
        for partition, offset in found.items()
    }


def refused(name: str, value: Any, expected: str) -> TaskError:
    """For an argument that cannot be used."""
    return TaskError(
        f"{name}: {value!r:.80}; expected {expected}", reason=TaskReason.BAD_ARGUMENT, subject=name
    )


def _parsed(value: str) -> Any:
    for parse in (json.loads, ast.literal_eval):  # what `tojson` gives, and what a mapping is as text
        try:
            return parse(value)
        except (ValueError, SyntaxError, RecursionError, MemoryError):
            continue
    return None


def _number(name: str, value: Any, part: Any, most: int) -> int:
    found = part
    if isinstance(part, str) and part.isascii() and part.isdecimal():
        found = int(part[:20])
    if not isinstance(found, int) or isinstance(found, bool) or not 0 <= found <= most:
        raise refused(name, value, "whole numbers: partitions, and offsets from 0 on")
    return found
