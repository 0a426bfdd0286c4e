"""docs/KAFKA.md is complete and true: every scenario once, every test it names there, every error class with
its code.
"""

from __future__ import annotations

import ast
import inspect
import re
from pathlib import Path

import pytest

from txn_engine import errors

HERE = Path(__file__).parent
PAGE = HERE.parents[1] / "docs" / "KAFKA.md"
_ID = re.compile(r"[A-Z]{2,4}-\d\d")


def rows(first_cell: str) -> list[list[str]]:
    """The page's table rows whose first cell matches, as cells."""
    found = []
    for line in PAGE.read_text(encoding="utf-8").splitlines():
        cells = [cell.strip() for cell in line.split("|")[1:-1]]
        if cells and re.fullmatch(first_cell, cells[0]):
            found.append(cells)
    return found


def functions_by_file() -> dict[str, set[str]]:
    """The test functions of this folder, by file."""
    return {
        path.name: {
            node.name
            for node in ast.parse(path.read_text(encoding="utf-8")).body
            if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")
        }
        for path in sorted(HERE.glob("test_*.py"))
    }


def named_tests(cell: str) -> dict[str, list[str]]:
    """The tests that a row names: `file`: `test`, `test`; `file`: ..."""
    found = {}
    for part in cell.split("; "):
        file, *tests = re.findall(r"`([\w.]+)`", part)
        found[file] = tests
    return found


def test_each_scenario_stands_once() -> None:
    """No id twice; each has either tests or the reason why it does not apply."""
    ids = [cells[0] for cells in rows(_ID.pattern)]
    assert len(ids) == len(set(ids))
    assert len(ids) > 70
    for cells in rows(_ID.pattern):
        assert cells[1].startswith(("`test_", "not applicable: ")), cells


def test_every_test_named_is_there() -> None:
    """A row's tests exist, in the file it names, and carry the scenario's id in their names."""
    present = functions_by_file()
    for scenario, cell, *_ in rows(_ID.pattern):
        if cell.startswith("not applicable: "):
            continue
        for file, tests in named_tests(cell).items():
            assert tests, scenario
            for test in tests:
                assert test in present[file], f"{scenario}: {file} has no {test}"
                assert test.startswith(f"test_{scenario.lower().replace('-', '_')}_"), test


def test_every_test_of_a_scenario_is_named() -> None:
    """A test with a scenario's id in its name stands in that scenario's row."""
    listed = {
        (file, test)
        for _, cell, *_ in rows(_ID.pattern)
        if cell.startswith("`")
        for file, tests in named_tests(cell).items()
        for test in tests
    }
    present = {
        (file, test)
        for file, tests in functions_by_file().items()
        for test in tests
        if re.match(r"test_[a-z]{2,4}_\d\d_", test)
    }
    assert present == listed


def test_the_files_named_are_there() -> None:
    """Modules and test files in the table of rules exist."""
    root = HERE.parents[1]
    section = PAGE.read_text(encoding="utf-8").split("## Where each rule is")[1].split("## ")[0]
    for name in re.findall(r"`([\w/]+(?:\.py|/))`", section):
        folder = HERE if name.startswith("test_") else root / "txn_engine"
        assert (folder / name).exists(), name


def test_no_scenario_is_missing(shared_data: Path) -> None:
    """Every scenario of the design's page has its row, and no row has an id that the design does not know."""
    design = (shared_data.parent / "design" / "kafka-rules.md").read_text(encoding="utf-8")
    wanted = re.findall(rf"^\| ({_ID.pattern}) \|", design, re.MULTILINE)
    assert sorted(wanted) == sorted(cells[0] for cells in rows(_ID.pattern))


def kinds(error: type[errors.TxnEngineError]) -> str:
    flags = {"retry": error.retriable, "abort": error.abortable, "fatal": error.fatal}
    return ", ".join(name for name, is_set in flags.items() if is_set) or "fix"


def test_every_error_has_its_row() -> None:
    """Each class once, with its code and kind, and with what the caller does."""
    classes = {
        name: value
        for name, value in inspect.getmembers(errors, inspect.isclass)
        if issubclass(value, errors.TxnEngineError) and value is not errors.TxnEngineError
    }
    table = rows(r"`\w+Error`")
    assert sorted(cells[0].strip("`") for cells in table) == sorted(classes)
    for name, code, kind, when, _, caller in table:
        error = classes[name.strip("`")]
        assert (code, kind) == (error.code, kinds(error)), name
        assert when, name
        assert caller, name


@pytest.mark.parametrize("error", [value for _, value in inspect.getmembers(errors, inspect.isclass)])
def test_every_error_says_what_to_do(error: type) -> None:
    """A class says in its docstring what happened; one that tells the caller to abort or to stop has an action."""
    if not issubclass(error, errors.TxnEngineError):
        return
    assert error.__doc__
    if (error.abortable or error.fatal) and error is not errors.InvalidTransactionTimeoutError:
        assert error.default_action
