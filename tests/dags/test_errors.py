"""A task's error has the reason for which it failed."""

from __future__ import annotations

import pickle
import re
from pathlib import Path

import pytest

from tests.support.airflow_home import PLUGINS

pytestmark = pytest.mark.airflow


@pytest.mark.parametrize("is_final", [True, False])
def test_a_task_error_is_the_same_in_another_process(is_final: bool) -> None:
    """An error that is final, and one after which Airflow tries again, are the same after pickling, and after
    Airflow's own serialization."""
    from airflow.sdk.exceptions import AirflowFailException
    from airflow.sdk.module_loading import import_string

    from txn_engine_airflow.errors import RetriedTaskError, TaskError, TaskReason

    kind = TaskError if is_final else RetriedTaskError
    error = kind("it failed", reason=TaskReason.NOT_PERMITTED, subject="topic", variable="TXN_ENGINE_TOPICS")
    assert isinstance(error, AirflowFailException) is is_final
    name, arguments, keywords = error.serialize()
    for other in (pickle.loads(pickle.dumps(error)), import_string(name)(*arguments, **keywords)):
        assert type(other) is kind
        assert str(other) == "it failed"
        assert (other.reason, other.subject, other.variable) == (
            TaskReason.NOT_PERMITTED,
            "topic",
            "TXN_ENGINE_TOPICS",
        )


def test_every_reason_is_explained_and_raised() -> None:
    """Each reason is spelled like its name and followed by a sentence, and another module raises it."""
    from txn_engine_airflow import errors

    source = Path(errors.__file__).read_text(encoding="utf-8")
    others = "".join(
        path.read_text(encoding="utf-8")
        for path in (PLUGINS / "txn_engine_airflow").rglob("*.py")
        if path.name != "errors.py"
    )
    for reason in errors.TaskReason:
        assert reason.value == reason.name.lower()
        assert re.search(rf'    {reason.name} = "{reason.value}"\n    """[^"]+\."""', source), reason
        assert f"TaskReason.{reason.name}" in others, reason
