"""Users' suites run with the proof's own checks: one report, one verdict, one proof."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import great_expectations as gx
import great_expectations.expectations as gxe
import pytest

import txn_engine
from tests.quality.ledger import CHECK
from tests.quality.test_gather import consume, load, make_topics
from tests.support.internal import FEW_INTERNAL
from txn_engine import Engine
from txn_engine.errors import InvalidRequestError
from txn_engine.log.objects import Objects
from txn_engine.protocol.file_names import parse_data_path
from txn_engine.quality import (
    CheckResult,
    QualityResult,
    SuiteOn,
    check_exactly_once,
    in_process,
    read_declaration,
)
from txn_engine.quality.proof import ProofShelf, hash_of
from txn_engine.reasons import Reason

ALL_NAMED = gxe.ExpectColumnValuesToNotBeNull(column="trans_id", meta={"name": "named"})
NO_BANK = gxe.ExpectColumnValuesToBeNull(column="bank", meta={"name": "no bank"})


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Engine]:
    with txn_engine.connect(f"memory://{tmp_path.name}", configs=FEW_INTERNAL) as connected:
        make_topics(connected)
        load(connected)
        consume(connected)
        yield connected


def prove(engine: Engine, folder: Path, *suites: SuiteOn, record: bool = False) -> QualityResult:
    check = replace(CHECK, suites=suites)
    return check_exactly_once(engine, check, report_folder=folder / "report", record=record)


def own(result: QualityResult) -> dict[str, CheckResult]:
    return {check.name: check for check in result.checks if check.section == "Suites"}


def test_a_critical_check_turns_the_verdict_red(engine: Engine, tmp_path: Path) -> None:
    """A critical check of a user fails the verdict. Our own checks are still proven, and the page says both.
    Examples are in the report alone."""
    result = prove(engine, tmp_path, SuiteOn([ALL_NAMED, NO_BANK]))
    assert {name: check.status for name, check in own(result).items()} == {
        "payments: checks: named": "passed",
        "payments: checks: no bank": "failed",
    }
    assert not result.success
    assert [check.section for check in result.failed] == ["Suites"]
    (failed,) = result.failed
    assert (failed.total, failed.wrong) == (8, 3)
    page = result.report.read_text(encoding="utf-8")
    assert "Exactly once: proven; your suites: red" in page
    assert failed.observed in page
    assert "AB" not in failed.observed + failed.detail + failed.name
    held = json.loads(result.json.read_text(encoding="utf-8"))
    assert "payments: checks (1)" in held["great_expectations"]
    assert len(list((tmp_path / "report" / "data_docs" / "validations").iterdir())) == 2


@pytest.mark.shard("damage")
def test_a_warning_only_tells(engine: Engine, tmp_path: Path) -> None:
    """A user's warning is counted and shown, and the verdict and the proof are a success."""
    result = prove(engine, tmp_path, SuiteOn([NO_BANK], severity="warning"), record=True)
    assert result.success
    assert result.proof is not None
    assert result.proof.success
    assert result.statistics["warnings"] == 1
    assert [check.status for check in own(result).values()] == ["warning"]
    page = result.report.read_text(encoding="utf-8")
    assert "1 warning." in page
    assert "Exactly once: proven</" in page


@pytest.mark.shard("damage")
def test_a_suite_that_errs_is_neither_passed_nor_failed(engine: Engine, tmp_path: Path) -> None:
    """An unknown column, a function that raises, and rows that do not exist make a suite errored."""
    unknown = gxe.ExpectColumnValuesToNotBeNull(column="nothing")

    def raises(_: Any) -> bool:
        raise ValueError("no")

    suites = [SuiteOn([unknown]), SuiteOn(raises), SuiteOn([ALL_NAMED], producer=(999, 0))]
    result = prove(engine, tmp_path, *suites)
    assert [check.status for check in own(result).values()] == ["errored"] * 3
    assert "no committed records of producer 999" in result.errored[2].detail
    assert not result.success


def test_the_rows_are_those_that_were_asked_for(engine: Engine, tmp_path: Path) -> None:
    """A suite gets the rows that it asks for: the topic's, an output's, those of offsets, or those of a
    transaction."""
    seen: list[tuple[list[str], int]] = []

    def look(rows: Any) -> bool:
        seen.append((list(rows.columns), len(rows)))
        return True

    named = parse_data_path(next(iter(engine.store.list("topics/payments/0/0/data/"))).key.split("/", 4)[-1])
    assert named is not None
    result = prove(
        engine,
        tmp_path,
        SuiteOn(look),
        SuiteOn(look, topic="balances"),
        SuiteOn(look, offsets={0: (0, 1), 1: (0, 2)}),
        SuiteOn(look, producer=(named.producer_id, named.producer_epoch)),
    )
    assert result.success, result.checks
    columns, counts = zip(*seen, strict=True)
    assert columns[0][-2:] == ["_partition", "_offset"]
    assert counts[0] == 8
    assert counts[1] == 5
    assert counts[2] <= 3
    assert 0 < counts[3] < 8


def test_what_is_new_alone(engine: Engine, tmp_path: Path) -> None:
    """After a proof, a suite with `new_only` gets no rows if nothing is new. Without it, it gets every row
    again, and the chain goes on."""
    seen: list[int] = []

    def look(rows: Any) -> bool:
        seen.append(len(rows))
        return True

    for _ in range(2):
        result = prove(engine, tmp_path, SuiteOn(look), SuiteOn(look, new_only=True), record=True)
        assert result.success
    assert seen == [8, 8, 8, 0]
    assert result.proof is not None
    assert result.proof.since == 0


def test_a_red_suite_is_red_in_the_proof_too(engine: Engine, tmp_path: Path) -> None:
    """A failed suite makes the proof a failure, so the next proof looks at its records again. Another suite
    does not begin a new chain."""
    red = prove(engine, tmp_path, SuiteOn([NO_BANK]), record=True)
    assert red.proof is not None
    assert not red.proof.success
    green = prove(engine, tmp_path, SuiteOn([ALL_NAMED]), record=True)
    assert green.proof is not None
    assert green.proof.success
    assert green.proof.parent
    assert hash_of(replace(CHECK, suites=(SuiteOn("a.json"),))) == hash_of(CHECK)
    assert ProofShelf(Objects(engine.store), "payments", 0).numbers() == [0, 1]


def test_too_many_rows_for_pandas(engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With too many rows for pandas the suite is errored, and the other checks are made."""
    monkeypatch.setattr(in_process, "ROWS_MAX", 7)
    result = prove(engine, tmp_path, SuiteOn([ALL_NAMED]))
    assert "8 rows; pandas judges at most 7" in result.errored[0].detail
    assert [check.section for check in result.errored] == ["Suites"]


def saved(folder: Path, name: str) -> None:
    suite = gx.ExpectationSuite(name="mine", expectations=[ALL_NAMED.copy(deep=True)])
    (folder / name).write_text(json.dumps(suite.to_json_dict()))


def test_suites_of_a_declaration_file(engine: Engine, tmp_path: Path) -> None:
    """Suites of a declaration file are files next to it."""
    saved(tmp_path, "mine.json")
    file = tmp_path / "payments.yaml"
    file.write_text(
        "topic: payments\nrecord_id: trans_id\nsuites:\n  - mine.json\n"
        "  - {file: mine.json, severity: warning, offsets: {0: [0, 3]}}\n"
        "  - {file: mine.json, new_only: true}\n  - {file: mine.json, producer: [0, 0]}\n"
    )
    declared = read_declaration(file)
    assert declared.suites == (
        SuiteOn(tmp_path / "mine.json"),
        SuiteOn(tmp_path / "mine.json", severity="warning", offsets={0: (0, 3)}),
        SuiteOn(tmp_path / "mine.json", new_only=True),
        SuiteOn(tmp_path / "mine.json", producer=(0, 0)),
    )
    result = check_exactly_once(engine, declared, report_folder=tmp_path / "report")
    assert [check.status for check in own(result).values()] == ["passed"] * 4


@pytest.mark.parametrize(
    ("text", "reason", "field"),
    [
        ("[{severity: warning}]", Reason.MISSING_FIELD, " suites[0]"),
        ("[{file: a.json, severity: loud}]", Reason.BAD_FIELD, " suites[0] severity"),
        ("[{file: a.json, offsets: [0, 1]}]", Reason.BAD_FIELD, " suites[0] offsets"),
        ("[{file: a.json, offsets: {0: 5}}]", Reason.BAD_FIELD, " suites[0] offsets 0"),
        ("[{file: a.json, offsets: {0: [5, 5]}}]", Reason.BAD_FIELD, None),
        ("[{file: a.json, producer: [1]}]", Reason.BAD_FIELD, " suites[0] producer"),
        ("[{file: a.json, producer: [1, 0], new_only: true}]", Reason.CONFLICTING_ARGUMENTS, None),
        ("[{file: a.json, topic: elsewhere}]", Reason.BAD_FIELD, None),
        ("[{file: a.json, colour: red}]", Reason.UNKNOWN_FIELD, " suites[0]"),
        ("[5]", Reason.BAD_FIELD, " suites[0]"),
        ("a.json", Reason.BAD_FIELD, " suites"),
    ],
)
def test_an_invalid_suite_is_refused(text: str, reason: Reason, field: str | None, tmp_path: Path) -> None:
    """The error names the file and the field in one line, unless two fields contradict each other."""
    file = tmp_path / "payments.yaml"
    file.write_text(f"topic: payments\nrecord_id: trans_id\nsuites: {text}\n")
    with pytest.raises(InvalidRequestError) as refused:
        read_declaration(file)
    place = None if field is None else f"{file}{field}"
    assert (refused.value.reason, refused.value.place) == (reason, place)
    assert "\n" not in str(refused.value)


def test_a_file_that_is_not_there_is_refused_before_anything(engine: Engine, tmp_path: Path) -> None:
    """A missing suite file is refused before a report or a proof is written."""
    with pytest.raises(InvalidRequestError) as refused:
        prove(engine, tmp_path, SuiteOn(tmp_path / "nowhere.json"), record=True)
    assert refused.value.reason is Reason.FILE_UNREADABLE
    assert not (tmp_path / "report").exists()
