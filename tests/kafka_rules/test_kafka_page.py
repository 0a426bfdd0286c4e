"""docs/KAFKA.md is complete and true. It has every scenario once with existing tests, and every error class
with its code."""

from __future__ import annotations

import ast
import inspect
import re
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from txn_engine import TopicPartition, errors
from txn_engine.engine import Engine
from txn_engine.log.topics import KAFKA_SCHEMA
from txn_engine.producer.states import LEGAL, VALID_PREVIOUS_STATES, Call, ProducerState

HERE = Path(__file__).parent
PAGE = HERE.parents[1] / "docs" / "KAFKA.md"
SCENARIOS = HERE / "scenarios.txt"
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
    """Each id is on the page once, and has either tests or the reason why it does not apply."""
    ids = [cells[0] for cells in rows(_ID.pattern)]
    assert len(ids) == len(set(ids))
    assert len(ids) > 70
    for cells in rows(_ID.pattern):
        assert cells[1].startswith(("`test_", "not applicable: ")), cells


def test_every_test_named_is_there() -> None:
    """The tests of a row exist in the file that it names, and have the scenario's id in their names."""
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
    """A test with a scenario's id in its name is named in that scenario's row."""
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
    """The modules and test files that the table of rules names exist."""
    root = HERE.parents[1]
    section = PAGE.read_text(encoding="utf-8").split("## Where each rule is")[1].split("## ")[0]
    for name in re.findall(r"`([\w/]+(?:\.py|/))`", section):
        folder = HERE if name.startswith("test_") else root / "txn_engine"
        assert (folder / name).exists(), name


def test_no_scenario_is_missing() -> None:
    """Every scenario has its row, and no row has an id that the list does not know."""
    assert sorted(cells[0] for cells in rows(_ID.pattern)) == SCENARIOS.read_text(encoding="utf-8").split()


def test_the_scenarios_are_the_design_s(shared_data: Path) -> None:
    """The list in the repository has every scenario of the design's page."""
    design = (shared_data.parent / "design" / "kafka-rules.md").read_text(encoding="utf-8")
    wanted = re.findall(rf"^\| ({_ID.pattern}) \|", design, re.MULTILINE)
    assert SCENARIOS.read_text(encoding="utf-8").split() == sorted(wanted)


LEADS_TO = {  # all other calls change nothing
    Call.INIT_TRANSACTIONS: "READY",
    Call.BEGIN_TRANSACTION: "IN_TRANSACTION",
    Call.PRODUCE: "IN_TRANSACTION",
    Call.SEND_OFFSETS: "IN_TRANSACTION",
    Call.COMMIT_TRANSACTION: "READY",
    Call.ABORT_TRANSACTION: "READY",
}
REFUSED = {
    ProducerState.ABORTABLE_ERROR: "TRANSACTION_ABORTABLE",
    ProducerState.FATAL_ERROR: "the first error",
}


def state_row(state: ProducerState) -> list[str]:
    """The page's row of a producer's state, with the states that it comes after and the effect of each
    call."""
    before = VALID_PREVIOUS_STATES[state]
    calls = [
        LEADS_TO.get(call, state) if state in LEGAL[call] else REFUSED.get(state, "ILLEGAL_STATE")
        for call in Call
    ]
    return [state, ", ".join(each for each in ProducerState if each in before) or "-", *calls]


def test_every_call_in_every_state_stands_there() -> None:
    """The producer's table on the page is the same as the code's, state by state and call by call
    (`producer/states.py`). `test_producer_machine.py` compares the producer itself with the same table."""
    heads = ["state", "comes after", *(f"`{call}`" for call in Call)]
    text = PAGE.read_text(encoding="utf-8")
    table = [heads, ["---"] * len(heads), *map(state_row, ProducerState)]
    assert (
        "".join(f"| {' | '.join(row)} |\n" for row in table).replace(
            "| --- " * len(heads) + "|", "|---" * len(heads) + "|"
        )
        in text
    )


def kinds(error: type[errors.TxnEngineError]) -> str:
    flags = {"retry": error.retriable, "abort": error.abortable, "fatal": error.fatal}
    return ", ".join(name for name, is_set in flags.items() if is_set) or "fix"


def test_every_error_has_its_row() -> None:
    """Each error class has one row, with its code and kind, and with what the caller does."""
    classes = {
        name: value
        for name, value in inspect.getmembers(errors, inspect.isclass)
        if issubclass(value, errors.TxnEngineError) and value is not errors.TxnEngineError
    }
    table = rows(r"`\w+Error`")
    assert sorted(cells[0].strip("`") for cells in table) == sorted(classes)
    for name, code, kind, retry, refusal, when, _, caller in table:
        error = classes[name.strip("`")]
        assert (code, kind) == (error.code, kinds(error)), name
        assert (retry == "helps", refusal == "yes") == (error.retry_helps, error.is_refusal), name
        assert {retry, refusal} <= {"helps", "yes", "no"}
        assert when, name
        assert caller, name


@pytest.mark.parametrize("error", [value for _, value in inspect.getmembers(errors, inspect.isclass)])
def test_every_error_says_what_to_do(error: type) -> None:
    """A class says in its docstring what happened. An error that tells the caller to abort or to stop has an
    action."""
    if not issubclass(error, errors.TxnEngineError):
        return
    assert error.__doc__
    if (error.abortable or error.fatal) and error is not errors.InvalidTransactionTimeoutError:
        assert error.default_action


@pytest.mark.parametrize("error", [value for _, value in inspect.getmembers(errors, inspect.isclass)])
def test_the_flags_of_an_error_agree(error: type) -> None:
    """If the producer may repeat a call, a task may run again. No retry helps against damage, missing access
    and old code."""
    if not issubclass(error, errors.TxnEngineError):
        return
    assert error.retry_helps or not error.retriable
    if error.abortable:
        assert error.retry_helps
    if error in (errors.CorruptObjectError, errors.UnsupportedFormatError, errors.StoreAccessError):
        assert not error.retry_helps
    if error in (errors.OutcomeUnknownError, errors.StoreUnavailableError, errors.RequestTimedOutError):
        assert not error.is_refusal


def test_the_loop_of_the_page_runs(engine: Engine) -> None:
    """The loop that the page prints (consume, transform, produce) runs, and copies each record once, whatever
    a rival does to a try."""
    block = re.search(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    assert block is not None
    names: dict[str, Any] = {}
    exec(block[1], names)
    for topic in ("payments", "enriched"):
        engine.admin.create_topic(topic, partitions=2)
    with engine.producer() as producer:
        rows = [{"key": None, "value": b"%d" % number, "headers": None} for number in range(10)]
        producer.produce("payments", pa.Table.from_pylist(rows, schema=KAFKA_SCHEMA), partition=1).result()
    tries = []

    def transform(batch: pa.Table) -> pa.Table:
        """Transform a batch. During the first try a rival commits the first three records."""
        tries.append(batch.num_rows)
        if len(tries) == 1:
            with engine.consumer(group_id="enrich") as rival:
                rival.assign([TopicPartition("payments", 1)])
                rival.poll(3)
                rival.commit()
        return batch.select(["key", "value", "headers"])

    names["copy_payments"](engine, transform)
    assert tries == [10, 7]
    with engine.consumer() as reader:
        reader.subscribe(["enriched"])
        found = reader.poll()
        assert found is not None
        assert sorted(row["value"] for row in found.to_pylist()) == [
            b"%d" % number for number in range(3, 10)
        ]
