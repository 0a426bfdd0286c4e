"""What templates make of arguments is taken, or refused in one line that is not retried."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from txn_engine_airflow import (
    GroupCaughtUpSensor,
    NewRecordsSensor,
    PostgresToTxnOperator,
    TransactionFinalSensor,
    TxnAbortOperator,
    TxnConsumeOperator,
    TxnCutOperator,
    TxnProduceOperator,
    TxnSparkConsumeOperator,
    TxnToPostgresOperator,
)
from txn_engine_airflow.errors import TaskError
from txn_engine_airflow.operators import rendered

pytestmark = pytest.mark.airflow


def passed_on(*given: Any) -> Any:
    return given


MADE: dict[Callable[..., Any], dict[str, Any]] = {
    TxnProduceOperator: {"topic": "t", "path": "p"},
    PostgresToTxnOperator: {"topic": "t", "sql": "SELECT 1"},
    TxnConsumeOperator: {"topics": "t", "group_id": "g", "python_callable": passed_on},
    TxnSparkConsumeOperator: {"topic": "t", "group_id": "g", "output_topic": "o", "transform": "a:b"},
    TxnToPostgresOperator: {"topics": "t", "group_id": "g", "table": "x"},
    TxnCutOperator: {},
    TxnAbortOperator: {"transactional_id": "a"},
    NewRecordsSensor: {"topic": "t"},
    GroupCaughtUpSensor: {"topic": "t", "group_id": "g"},
    TransactionFinalSensor: {"transactional_id": "a"},
}
OPTIONAL: list[tuple[Callable[..., Any], dict[str, Any], str]] = [
    (TxnProduceOperator, {"topic": "t"}, "path"),
    (TxnProduceOperator, {"topic": "t", "path": "p"}, "manifest"),
    (TxnProduceOperator, {"topic": "t", "path": "p"}, "dead_letter_topic"),
    (TxnProduceOperator, {"topic": "t", "path": "p", "dead_letter_topic": "d"}, "max_dead_letters"),
    (TxnProduceOperator, {"topic": "t", "path": "p"}, "transactional_id"),
    (PostgresToTxnOperator, {"topic": "t"}, "sql"),
    (PostgresToTxnOperator, {"topic": "t"}, "outbox"),
    (PostgresToTxnOperator, {"topic": "t", "sql": "SELECT 1"}, "interval_column"),
    (PostgresToTxnOperator, {"topic": "t", "sql": "SELECT 1"}, "dead_letter_topic"),
    (
        PostgresToTxnOperator,
        {"topic": "t", "sql": "SELECT 1", "dead_letter_topic": "d"},
        "max_dead_letters",
    ),
    (PostgresToTxnOperator, {"topic": "t", "sql": "SELECT 1"}, "transactional_id"),
    (TxnConsumeOperator, {"topics": "t", "group_id": "g", "python_callable": passed_on}, "output_topic"),
    (
        TxnConsumeOperator,
        {"topics": "t", "group_id": "g", "python_callable": passed_on, "output_topic": "o"},
        "transactional_id",
    ),
    (TxnSparkConsumeOperator, MADE[TxnSparkConsumeOperator], "transactional_id"),
    (TxnSparkConsumeOperator, MADE[TxnSparkConsumeOperator], "dead_letter_topic"),
    (
        TxnSparkConsumeOperator,
        MADE[TxnSparkConsumeOperator] | {"dead_letter_topic": "d"},
        "max_dead_letters",
    ),
    (TxnToPostgresOperator, {"topics": "t", "group_id": "g"}, "table"),
    (TxnToPostgresOperator, {"topics": "t", "group_id": "g", "table": "x", "mode": "upsert"}, "key"),
    (TxnCutOperator, {}, "topics"),
    (TxnAbortOperator, {}, "transactional_id"),
    (TxnAbortOperator, {"partition": 0, "start_offset": 0}, "topic"),
    (NewRecordsSensor, {"topic": "t"}, "group_id"),
    (NewRecordsSensor, {"topic": "t"}, "start_offsets"),
    (GroupCaughtUpSensor, {"topic": "t", "group_id": "g"}, "end_offsets"),
]
"""Arguments that need not be given."""
LATER = {
    "op_kwargs",
    "read_options",
    "spark_settings",
    "parameters",
    "max_dead_letters",
    "forgotten_runs",
    "partition",
    "start_offset",
    "keep_days",
    "run_id",
}
"""Templates that are looked at where they are used, with tests of their own."""
FIELDS = [(kind, name) for kind in MADE for name in kind.template_fields if name not in LATER]  # type: ignore[attr-defined]


@pytest.mark.parametrize(("kind", "name"), FIELDS, ids=lambda value: getattr(value, "__name__", value))
def test_a_field_that_a_template_has_spoilt(kind: Callable[..., Any], name: str) -> None:
    """Each field that may be a template is refused by its name before anything is done, in one line that is not
    retried."""
    for value in ("None", " ", "", 7, 1.5, object(), [None], [["a"]], {"a": object()}):
        task = kind(task_id="t", **MADE[kind])
        setattr(task, name, value)
        with pytest.raises(TaskError) as refused:
            task.execute({})
        assert (refused.value.reason, refused.value.subject) == ("bad_argument", name), value
        assert "\n" not in str(refused.value)


@pytest.mark.parametrize(("kind", "settings", "name"), OPTIONAL)
def test_a_template_that_found_nothing(kind: Callable[..., Any], settings: dict[str, Any], name: str) -> None:
    """Native rendering makes None of a template that found nothing. A task that was given this argument does not go on
    without it: it would load nothing, or load again what its manifest knows."""
    task = kind(task_id="t", **settings, **{name: "{{ a_template }}"})
    setattr(task, name, None)
    with pytest.raises(TaskError) as refused:
        task.execute({})
    assert (refused.value.reason, refused.value.subject) == ("bad_argument", name)


def test_what_is_taken() -> None:
    """Paths of any kind are texts. Offsets are a mapping, or its text."""
    from airflow.sdk import ObjectStoragePath

    assert rendered.texts("path", [Path("/a"), ObjectStoragePath("file:///b"), "c"]) == [
        "/a",
        "file:///b",
        "c",
    ]
    assert rendered.texts("path", Path("/a")) == "/a"
    assert rendered.texts("path", []) == []
    for value in ({"0": 5, 1: "6"}, '{"0": 5, "1": 6}', "{'0': 5, 1: 6}"):
        assert rendered.offsets("ends", value) == {0: 5, 1: 6}
    for wrong in (
        "",
        "5",
        "[1]",
        "{'a': 1}",
        "{0: -1}",
        {0: True},
        {0: 1 << 63},
        {1 << 31: 0},
        {0: None},
        "(",
    ):
        with pytest.raises(TaskError):
            rendered.offsets("ends", wrong)
