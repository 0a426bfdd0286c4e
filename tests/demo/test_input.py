"""The demo refuses inputs that it cannot load, and places that it cannot work in, before it creates anything."""

from __future__ import annotations

import io
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from rich.console import Console

import txn_engine
from tests.demo import small_input
from txn_engine.demo import run_demo, story
from txn_engine.demo.payments import PAYMENTS, PAYMENTS_SCHEMA
from txn_engine.errors import (
    InvalidRecordError,
    InvalidRequestError,
    MissingPackageError,
    StoreAccessError,
    TopicExistsError,
)
from txn_engine.reasons import Reason
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


def _change_field(line: str, field: int, value: str) -> str:
    fields = line.split(";")
    return ";".join([*fields[:field], value, *fields[field + 1 :]])


@pytest.mark.parametrize(
    ("change", "line", "reason"),
    [
        (lambda lines: [], None, None),
        (lambda lines: lines[:1], None, None),
        (_without_a_column, 1, Reason.MISSING_COLUMN),
        (_bad_amount, 42, None),
        (_too_fine_amount, 42, None),
        (_cut_in_a_line, small_input.ROWS + 1, None),
        (_cut_in_quotes, small_input.ROWS + 1, None),
        (lambda lines: [*lines, lines[1]], None, Reason.DUPLICATE_PAYMENT),
        (
            lambda lines: [*lines[:5], lines[5].replace("VYDAJ", "DAR"), *lines[6:]],
            None,
            Reason.UNKNOWN_PAYMENT_TYPE,
        ),
        (
            lambda lines: [*lines[:5], _change_field(lines[5], 5, "-1.00"), *lines[6:]],
            None,
            Reason.NEGATIVE_AMOUNT,
        ),
        (lambda lines: lines[: 3 * small_input.ROWS_A_DAY], None, Reason.TOO_FEW_DAYS),
    ],
    ids=[
        "empty",
        "no-records",
        "missing-column",
        "bad-amount",
        "amount-with-three-decimals",
        "cut-in-a-line",
        "cut-in-quotes",
        "duplicate-payment",
        "unknown-type",
        "negative-amount",
        "too-few-days",
    ],
)
def test_a_faulty_input_is_one_line_and_nothing_is_loaded(
    tmp_path: Path, change: Callable[[Lines], Lines], line: int | None, reason: Reason | None
) -> None:
    """An input that is empty, truncated, lacks a column or has a bad value is refused with its line, before anything is
    created.
    """
    path = small_input.write(tmp_path / "trans.csv", change(small_input.lines()))
    if not change(small_input.lines()):
        path.write_bytes(b"")
    with pytest.raises(InvalidRecordError) as refused:
        _run(url=f"file://{tmp_path}/ledger", input_file=path)
    assert refused.value.place == (str(path) if line is None else f"{path} line {line}")
    if reason is not None:
        assert (refused.value.actor, refused.value.reason) == ("demo", reason)
    assert "\n" not in str(refused.value)
    assert [left.name for left in tmp_path.iterdir()] == ["trans.csv"]


def test_a_missing_input_is_one_line(tmp_path: Path) -> None:
    """The error names the path, and nothing is created."""
    with pytest.raises(InvalidRequestError) as refused:
        _run(input_file=tmp_path / "no.csv")
    assert refused.value.place == str(tmp_path / "no.csv")
    assert not list(tmp_path.iterdir())


def test_a_store_with_payments_is_refused_and_left_alone(tmp_path: Path) -> None:
    """The demo runs once on a store. A second run is refused and creates neither an object nor a folder."""
    url = f"file://{tmp_path}/ledger"
    with txn_engine.connect(url) as engine:
        engine.admin.create_topic(PAYMENTS, partitions=1, schema=PAYMENTS_SCHEMA)
    before = sorted(path for path in tmp_path.rglob("*"))
    with pytest.raises(TopicExistsError) as refused:
        _run(url=url)
    assert (refused.value.actor, refused.value.place) == ("demo", url)
    assert sorted(path for path in tmp_path.rglob("*")) == before


def test_a_store_in_memory_is_refused() -> None:
    """The demo's processes could not share it."""
    with pytest.raises(InvalidRequestError) as refused:
        _run(url="memory://demo")
    assert refused.value.reason is Reason.STORE_IN_MEMORY


def test_a_place_that_cannot_be_written_is_one_line(tmp_path: Path) -> None:
    """A file is where the demo's folder should be created."""
    (tmp_path / "txn-engine-demo").write_text("in the way")
    with pytest.raises(StoreAccessError) as refused:
        _run()
    assert (refused.value.actor, refused.value.place) == ("demo", str(tmp_path / "txn-engine-demo"))


def test_a_machine_without_java_is_told_before_anything_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not even the load starts, because Spark could not sum it up."""

    def none() -> Path:
        raise JavaNotFoundError("no Java for Spark", actor="spark")

    monkeypatch.setattr(story, "find_java_home", none)
    with pytest.raises(JavaNotFoundError):
        _run()
    assert not list(tmp_path.iterdir())


def test_a_machine_without_a_package_is_told_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    """The error names the extra that brings the package."""
    monkeypatch.setitem(sys.modules, "pyiceberg", None)
    with pytest.raises(MissingPackageError) as refused:
        _run()
    assert refused.value.action == "pip install 'txn-engine[tables]'"
