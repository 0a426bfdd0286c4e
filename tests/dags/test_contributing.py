"""The example of a test of a DAG in CONTRIBUTING.md passes."""

from __future__ import annotations

import pytest

from tests.dags.payments import leave_open
from tests.docs.test_code_blocks import examples_of_contributing
from tests.support.finished_run import RunDag
from tests.support.stores import states
from txn_engine import Engine

pytestmark = pytest.mark.airflow


def test_the_example(engine: Engine, run_dag: RunDag) -> None:
    """The test that the page shows passes."""
    names = examples_of_contributing(1, {"leave_open": leave_open, "states": states, "pytest": pytest})
    names["test_of_a_dag"](engine, run_dag)
