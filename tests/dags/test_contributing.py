"""The example of a test of a DAG in CONTRIBUTING.md passes."""

from __future__ import annotations

from typing import Any

import pytest

from tests.dags.payments import leave_open
from tests.docs.test_code_blocks import blocks
from tests.support.finished_run import RunDag
from tests.support.stores import states
from txn_engine import Engine

pytestmark = pytest.mark.airflow


def test_the_example(engine: Engine, run_dag: RunDag) -> None:
    """The test that the page shows passes."""
    names: dict[str, Any] = {"leave_open": leave_open, "states": states, "pytest": pytest}
    code = blocks("CONTRIBUTING.md", "python")[1]
    exec(compile("from __future__ import annotations\n" + code, "CONTRIBUTING.md", "exec"), names)
    names["test_of_a_dag"](engine, run_dag)
