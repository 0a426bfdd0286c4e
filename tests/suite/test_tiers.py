"""The tests pin which tests run in which tier."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.suite.tiers import in_shard

pytest_plugins = ["pytester"]

MODULE = """
import pytest
from tests.suite.tiers import in_shard

def test_kept(): pass

@pytest.mark.shard("spark")
def test_moved(): pass

@pytest.mark.parametrize("number", in_shard("kills", [1, 2, 3], keep=[2]))
def test_each(number): pass

@pytest.fixture
def minio_program(): pass

@pytest.fixture
def bucket(minio_program): pass

def test_served(bucket): pass

@pytest.mark.slow
def test_long(): pass
"""


@pytest.fixture
def suite(pytester: pytest.Pytester) -> pytest.Pytester:
    """A suite of one module in its own folder of tests."""
    pytester.makeini(
        "[pytest]\ntestpaths = tests_of_it\naddopts = -p tests.suite.tiers\n"
        "markers =\n    shard(name): x\n    slow: x\n    minio: x\n"
        f"pythonpath = {Path(__file__).parents[2]}\n"
    )
    folder = pytester.mkdir("tests_of_it")
    (folder / "test_it.py").write_text(MODULE)
    return pytester


def names(suite: pytest.Pytester, *args: str) -> set[str]:
    """The tests that pytest would run with these arguments."""
    result = suite.runpytest_inprocess("--collect-only", "-q", *args)
    return {line.split("::")[1] for line in result.outlines if "::" in line}


def test_without_arguments_only_unmarked_tests_run(suite: pytest.Pytester) -> None:
    """`make test` leaves out every test and every parameter that belongs to a shard."""
    assert names(suite) == {"test_kept", "test_each[2]", "test_served", "test_long"}


@pytest.mark.parametrize("args", [[], ["tests_of_it"]])
def test_quick_leaves_out_what_is_slow_or_starts_a_server(suite: pytest.Pytester, args: list[str]) -> None:
    """`make check-fast` names folders, and runs only their quick tests."""
    assert names(suite, "--quick", *args) == {"test_kept", "test_each[2]"}


@pytest.mark.parametrize(
    ("shards", "expected"),
    [
        (["spark"], {"test_moved"}),
        (["kills"], {"test_each[1]", "test_each[3]"}),
        (["spark", "kills"], {"test_moved", "test_each[1]", "test_each[3]"}),
        (["all"], {"test_moved", "test_each[1]", "test_each[3]"}),
    ],
)
def test_a_shard_runs_what_make_test_leaves_out(
    suite: pytest.Pytester, shards: list[str], expected: set[str]
) -> None:
    """Together with `make test`, the shards run every test once."""
    assert names(suite, *(f"--shard={shard}" for shard in shards)) == expected


@pytest.mark.parametrize("args", [["tests_of_it"], ["tests_of_it/test_it.py::test_moved"], ["-k", "moved"]])
def test_what_is_named_runs_in_any_tier(suite: pytest.Pytester, args: list[str]) -> None:
    """A developer who names a test gets it, whatever tier it is in."""
    assert "test_moved" in names(suite, *args)


def test_an_unknown_shard_is_an_error(suite: pytest.Pytester) -> None:
    """A misspelled mark does not hide a test."""
    module = suite.path / "tests_of_it" / "test_it.py"
    module.write_text(module.read_text().replace('"spark"', '"sparks"'))
    result = suite.runpytest_inprocess("--collect-only", "-q")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert "sparks" in "\n".join(result.errlines)


def test_at_least_one_parameter_is_kept() -> None:
    """A test whose parameters would all move is marked as a whole instead."""
    with pytest.raises(ValueError, match="none of 2 parameters"):
        in_shard("kills", [1, 2], keep=[3])


def test_ways_to_say_which_parameters_are_kept() -> None:
    """The kept parameters may be given by number, value, id or predicate."""

    def kept(values: list[object], keep: object) -> list[bool]:
        return [not getattr(value, "marks", ()) for value in in_shard("kills", values, keep=keep)]  # type: ignore[arg-type]

    assert kept([5, 6, 7], 2) == [True, True, False]
    assert kept([5, 6, 7], {7}) == [False, False, True]
    assert kept([pytest.param(5, id="five"), 6], ["five"]) == [True, False]
    assert kept([("a", 1), ("b", 2)], lambda value: value[1] == 2) == [False, True]
