"""What the demo says to an input that it cannot load, and to a place that it cannot work in."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path

import pytest
from rich.console import Console

import txn_engine
from tests.demo import small_input
from txn_engine.demo import run_demo
from txn_engine.demo.load import DAYS_MIN
from txn_engine.demo.payments import PAYMENTS, PAYMENTS_SCHEMA
from txn_engine.errors import (
    InvalidRecordError,
    InvalidRequestError,
    StoreAccessError,
    TopicExistsError,
    TxnEngineError,
)
from txn_engine.spark.java import JavaNotFoundError

Lines = list[str]


def _run(*, url: str | None = None, input_file: Path | None = None) -> int:
    console = Console(file=io.StringIO())
    return run_demo(url=url, input_file=input_file, json_output=False, console=console)


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def _without_a_column(lines: Lines) -> Lines:
    return [line.split(";", 1)[1] for line in lines]


def _bad_amount(lines: Lines) -> Lines:
    return [*lines[:41], lines[41].replace(lines[41].split(";")[5], "12,5O", 1), *lines[42:]]


def _too_fine_amount(lines: Lines) -> Lines:
    return [*lines[:41], lines[41].replace(lines[41].split(";")[5], "12.505", 1), *lines[42:]]


def _cut_in_a_line(lines: Lines) -> Lines:
    return [*lines[:-1], lines[-1][:20]]


def _cut_in_quotes(lines: Lines) -> Lines:
    return [*lines[:-1], lines[-1][: lines[-1].index('"') + 3]]


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda lines: [], "the file is empty"),
        (lambda lines: lines[:1], "no records"),
        (_without_a_column, "'trans_id'"),
        (_bad_amount, "line 42"),
        (_too_fine_amount, "line 42"),
        (_cut_in_a_line, f"line {small_input.ROWS + 1}"),
        (_cut_in_quotes, f"line {small_input.ROWS + 1}"),
        (lambda lines: [*lines, lines[1]], "trans_id 1 stands 2 times"),
        (lambda lines: [*lines[:5], lines[5].replace("VYDAJ", "DAR"), *lines[6:]], "type 'DAR' in record 5"),
        (lambda lines: lines[: 3 * small_input.ROWS_A_DAY], f"at least {DAYS_MIN}"),
    ],
)
def test_a_faulty_input_is_one_line_and_nothing_is_loaded(
    tmp_path: Path, change: Callable[[Lines], Lines], told: str
) -> None:
    """Empty, truncated, short of a column, or with a bad value on a line: the error names it, and no store is begun."""
    path = small_input.write(tmp_path / "trans.csv", change(small_input.lines()))
    if not change(small_input.lines()):
        path.write_bytes(b"")
    with pytest.raises(InvalidRecordError) as refused:
        _run(url=f"file://{tmp_path}/ledger", input_file=path)
    assert told in str(refused.value)
    assert "trans.csv" in str(refused.value)
    assert "\n" not in str(refused.value)
    assert [left.name for left in tmp_path.iterdir()] == ["trans.csv"]


def test_a_missing_input_is_one_line(tmp_path: Path) -> None:
    """The path is named, and nothing is made."""
    with pytest.raises(InvalidRequestError, match=r"no\.csv"):
        _run(input_file=tmp_path / "no.csv")
    assert not list(tmp_path.iterdir())


def test_a_store_with_payments_is_refused_and_left_alone(tmp_path: Path) -> None:
    """The demo runs once on a store: a second run says so and adds nothing, no folder either."""
    url = f"file://{tmp_path}/ledger"
    with txn_engine.connect(url) as engine:
        engine.admin.create_topic(PAYMENTS, partitions=1, schema=PAYMENTS_SCHEMA)
    before = sorted(path for path in tmp_path.rglob("*"))
    with pytest.raises(TopicExistsError, match="payments"):
        _run(url=url)
    assert sorted(path for path in tmp_path.rglob("*")) == before


def test_a_store_in_memory_is_refused() -> None:
    """Its processes could not share one."""
    with pytest.raises(InvalidRequestError, match="memory"):
        _run(url="memory://demo")


def test_a_place_that_cannot_be_written_is_one_line(tmp_path: Path) -> None:
    """A file stands where the demo's folder would."""
    (tmp_path / "txn-engine-demo").write_text("in the way")
    with pytest.raises(StoreAccessError, match="its folder cannot be made"):
        _run()


def test_a_machine_without_java_is_told_before_anything_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No half of the demo runs: the load would be for nothing."""

    def none() -> Path:
        raise JavaNotFoundError("no Java for Spark", actor="spark")

    monkeypatch.setattr("txn_engine.demo.story.find_java_home", none)
    with pytest.raises(TxnEngineError, match="no Java for Spark"):
        _run()
    assert not list(tmp_path.iterdir())


def test_a_machine_without_a_package_is_told_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    """The extra is named that brings it."""
    monkeypatch.setattr("txn_engine.demo.story._NEEDED", {"no_such_package": "spark"})
    with pytest.raises(TxnEngineError, match="txn-engine"):
        _run()
