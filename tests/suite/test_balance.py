"""Tests are cut into units, and handed to workers by length and needs."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from tests.suite import durations
from tests.suite.balance import BalancedScheduling, units_of
from tests.suite.durations import Durations

TOGETHER = frozenset({"together:a server"})
LONG = Durations(
    {
        "t/a.py": 6.0,
        "t/b.py": 0.5,
        "t/c.py::test_1": 50.0,
        "t/f.py": 1.0,
        "t/m.py": 9.0,
        "t/s.py": 15.0,
        "t/x.py": 15.0,
        "t/y.py": 15.0,
    },
    {
        "t/f.py": frozenset({"airflow"}),
        "t/m.py": frozenset({"minio"}),
        "t/s.py": frozenset({"spark"}),
        "t/x.py": TOGETHER,
        "t/y.py": TOGETHER,
    },
)
TESTS = [
    *(f"t/a.py::test_{number}" for number in range(7)),
    *(f"t/b.py::test_{number}" for number in range(3)),
    "t/c.py::test_1",
    *(f"t/f.py::test_{number}" for number in range(3)),
    "t/m.py::test_1",
    *(f"t/s.py::test_{number}" for number in range(3)),
]


class Worker:
    """A worker that records the tests that it is given."""

    shutting_down = False

    def __init__(self, name: str) -> None:
        self.gateway = SimpleNamespace(id=name)
        self.given: list[int] = []

    def send_runtest_some(self, indices: list[int]) -> None:
        self.given += indices

    def shutdown(self) -> None:
        self.shutting_down = True


def order_of(monkeypatch: pytest.MonkeyPatch, *, workers: int, minio: bool = True) -> list[list[str]]:
    """The units that each worker gets if each test takes its known time."""
    monkeypatch.setattr(durations, "read", lambda: LONG)
    monkeypatch.setattr("tests.suite.balance.minio_binary", lambda: "minio" if minio else None)
    config: Any = SimpleNamespace(
        option=SimpleNamespace(loadscopereorder=False),
        getvalue=lambda name: [f"popen//id={number}" for number in range(workers)],
    )
    scheduler = BalancedScheduling(config)
    found = [Worker(f"w{number}") for number in range(workers)]
    for worker in found:
        scheduler.add_node(worker)  # type: ignore[arg-type]
        scheduler.add_node_collection(worker, TESTS)  # type: ignore[arg-type]
    scheduler.schedule()
    clock, done = dict.fromkeys(found, 0.0), dict.fromkeys(found, 0)
    while busy := [worker for worker in found if done[worker] < len(worker.given)]:
        worker = min(busy, key=lambda one: clock[one])
        test = worker.given[done[worker]]
        clock[worker] += LONG.of(TESTS[test])
        done[worker] += 1
        scheduler.mark_test_complete(worker, test)  # type: ignore[arg-type]
    assert sorted(test for worker in found for test in worker.given) == list(range(len(TESTS)))
    assert scheduler.tests_finished
    units = units_of(TESTS, LONG)
    return [list(dict.fromkeys(units[TESTS[test]] for test in worker.given)) for worker in found]


def test_a_module_is_cut_where_a_unit_is_full() -> None:
    """Neighbouring tests share a unit of about 20 seconds, so the longest module does not limit a run."""
    units = units_of(TESTS, LONG)
    assert [units[f"t/a.py::test_{number}"] for number in range(7)] == ["t/a.py#0"] * 3 + ["t/a.py#1"] * 3 + [
        "t/a.py#2"
    ]
    assert {units[test] for test in TESTS if test.startswith("t/b.py")} == {"t/b.py#0"}
    assert units["t/c.py::test_1"] == "t/c.py#0"


def test_tests_that_belong_together_are_one_unit() -> None:
    """A fixture that takes a minute to set up is set up once, also for several modules."""
    tests = [f"t/{module}.py::test_{number}" for module in "xy" for number in range(5)]
    assert {*units_of(tests, LONG).values()} == {"together:a server"}


def test_every_test_runs_once_and_the_longest_units_come_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """One worker starts Spark, another Airflow, and each unit that needs neither is taken by its length."""
    first, second, third = order_of(monkeypatch, workers=3)
    assert first[:2] == ["t/s.py#0", "t/s.py#1"]
    assert second[0] == "t/f.py#0"
    assert third[0] == "t/c.py#0"
    assert [unit for unit in second if unit != "t/f.py#0"][:3] == ["t/a.py#1", "t/m.py#0", "t/a.py#2"]


def test_spark_starts_in_one_worker_while_there_is_other_work(monkeypatch: pytest.MonkeyPatch) -> None:
    """A JVM costs seconds and memory in each worker that starts one."""
    workers = order_of(monkeypatch, workers=2)
    assert {
        number for number, units in enumerate(workers) for unit in units if unit.startswith("t/s.py")
    } == {0}


def test_what_needs_minio_waits_while_minio_is_built(monkeypatch: pytest.MonkeyPatch) -> None:
    """A first run builds the server while the tests run."""
    (units,) = order_of(monkeypatch, workers=1, minio=False)
    assert units[-1] == "t/m.py#0"
    (units,) = order_of(monkeypatch, workers=1)
    assert units[-1] != "t/m.py#0"
