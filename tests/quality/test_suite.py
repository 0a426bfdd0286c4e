"""Each kind of violation makes exactly the check of its name fail. A check that cannot be made never
passes."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from storage.memory import MemoryStore
from tests.quality.ledger import (
    CHECK,
    ROWS,
    TURNOVERS,
    LogFile,
    all_visible,
    good_evidence,
    input_rows,
    offsets_table,
    output_rows,
    payments_table,
    placed,
    report_evidence,
    with_payments,
    with_replayed,
    with_rows,
)
from tests.suite.tiers import in_shard
from txn_engine.errors import StoreAccessError
from txn_engine.quality import CheckResult, exactly_once
from txn_engine.quality.counting import count
from txn_engine.quality.evidence import (
    AbortedRange,
    AuditFinding,
    CommittedOffset,
    Evidence,
    EvidenceMissingError,
    TransactionState,
)
from txn_engine.quality.expectations import new_context
from txn_engine.quality.history import not_applicable
from txn_engine.quality.in_process import InProcess
from txn_engine.quality.judge import judge
from txn_engine.quality.records import Reductions
from txn_engine.quality.result import Counted
from txn_engine.quality.suite import named_checks
from txn_engine.types import RESET_METADATA

Breaker = Callable[[Evidence], Evidence]
Gone = Callable[[Evidence, str], Evidence]


def judged(evidence: Evidence) -> tuple[CheckResult, ...]:
    """The results of the checks, without a report."""
    checks = named_checks(evidence.check, has_input=evidence.input is not None)
    now = dt.datetime(2026, 11, 21, tzinfo=dt.UTC)
    counted = counts(evidence)
    left_out = not_applicable(evidence, counted)
    return judge(
        new_context(), counted, checks, not_applicable=left_out, run_name="test", run_time=now
    ).checks


def counts(evidence: Evidence) -> Mapping[str, Counted | EvidenceMissingError]:
    """What each check has counted."""
    with InProcess(MemoryStore()) as reducer:
        return count(evidence, Reductions(evidence, reducer))


def wrong_in(evidence: Evidence) -> set[str]:
    """The names of the checks that counted a fault. None of their evidence was missing."""
    found = counts(evidence)
    assert not [name for name, counted in found.items() if isinstance(counted, EvidenceMissingError)]
    return {name for name, counted in found.items() if isinstance(counted, Counted) and counted.wrong}


def named(checks: Iterable[CheckResult], status: str) -> set[str]:
    """The names of the checks with that status."""
    return {check.name for check in checks if check.status == status}


@pytest.fixture
def evidence(tmp_path: Path) -> Evidence:
    return good_evidence(tmp_path)


def _committed(evidence: Evidence) -> pa.Table:
    return evidence.rows["payments"].committed


def _without(evidence: Evidence, row: int) -> pa.Table:
    table = _committed(evidence)
    return pa.concat_tables([table.slice(0, row), table.slice(row + 1)])


def _changed(evidence: Evidence, column: str, row: int, value: object) -> Evidence:
    table = _committed(evidence)
    cells = table[column].to_pylist()
    cells[row] = value
    at = table.schema.get_field_index(column)
    return with_payments(
        evidence, committed=table.set_column(at, column, pa.array(cells, table.schema.field(at).type))
    )


def _added(evidence: Evidence, row: tuple[object, ...], offset: int) -> Evidence:
    """One more committed record in partition 1, with room for it in the log."""
    committed = pa.concat_tables([_committed(evidence), placed(payments_table([row]), [(1, offset)])])
    logged = pa.concat_tables([evidence.rows["payments"].logged, offsets_table([(1, offset)])])
    longer = _longer(evidence, offset + 1)
    return all_visible(with_payments(longer, committed=committed, logged=logged, ends={0: 9, 1: offset + 1}))


def _longer(evidence: Evidence, end: int) -> Evidence:
    states = tuple(
        replace(state, last_stable_offset=end, high_watermark=end)
        if (state.topic, state.partition) == ("payments", 1)
        else state
        for state in evidence.partitions
    )
    group = (evidence.group[0], replace(evidence.group[1], committed_offset=end, last_stable_offset=end))
    return all_visible(replace(evidence, partitions=(*states, *evidence.partitions[2:]), group=group))


def duplicate_row(evidence: Evidence) -> Evidence:
    return _added(evidence, ROWS[-1], 6)


def missing_row(evidence: Evidence) -> Evidence:
    logged = [(0, 0), (0, 1), (0, 3), (0, 4), (0, 6), (0, 7), (1, 1), (1, 3), (1, 4)]
    return all_visible(with_payments(evidence, committed=_without(evidence, 4), logged=offsets_table(logged)))


def withheld_row(evidence: Evidence) -> Evidence:
    return with_payments(evidence, committed=_without(evidence, 4))


def extra_row(evidence: Evidence) -> Evidence:
    return _added(evidence, (999, *ROWS[-1][1:]), 6)


def changed_amount(evidence: Evidence) -> Evidence:
    return _changed(evidence, "amount", 2, Decimal("90071992547409.92"))


def changed_text(evidence: Evidence) -> Evidence:
    return _changed(evidence, "bank", 6, "a | b=c")


def aborted_visible(evidence: Evidence) -> Evidence:
    """By the raw entries, producer 7 aborted a record that readers see. The engine's own answer does not
    count."""
    aborted = (AbortedRange(9, 3, 5), AbortedRange(7, 6, 8))
    return with_replayed(evidence, "payments", 0, aborted=aborted)


def abort_made_up(evidence: Evidence) -> Evidence:
    """The engine hides two records as aborted that the raw entries do not show as aborted."""
    return with_replayed(evidence, "payments", 0, aborted=())


def undecided_visible(evidence: Evidence) -> Evidence:
    logged = [(0, 0), (0, 1), (0, 3), (0, 4), (0, 6), (0, 7), (1, 0), (1, 1), (1, 3), (1, 6)]
    changed = _changed(evidence, "_offset", 7, 6)
    return with_payments(changed, logged=offsets_table(logged))


def hidden_by_another_producer(evidence: Evidence) -> Evidence:
    """A record of producer 7 is hidden. That it lies inside an aborted range of producer 9 is no excuse."""
    rows = evidence.rows["payments"]
    return with_payments(evidence, log_files=tuple(replace(file, producer_id=7) for file in rows.log_files))


def lso_behind(evidence: Evidence) -> Evidence:
    """There are two undecided records at the end of partition 1."""
    states = (
        evidence.partitions[0],
        replace(evidence.partitions[1], high_watermark=8),
        evidence.partitions[2],
    )
    logged = pa.concat_tables([evidence.rows["payments"].logged, offsets_table([(1, 6), (1, 7)])])
    behind = with_payments(replace(evidence, partitions=states), logged=logged)
    return with_replayed(behind, "payments", 1, log_end_offset=8)


def open_transaction(evidence: Evidence) -> Evidence:
    return replace(
        evidence, partitions=(replace(evidence.partitions[0], open_transactions=1), *evidence.partitions[1:])
    )


def open_transaction_overlooked(evidence: Evidence) -> Evidence:
    """The raw entries have an open transaction that the engine does not know."""
    return with_replayed(evidence, "payments", 0, open_transactions=1)


def pending_commit_overlooked(evidence: Evidence) -> Evidence:
    return replace(evidence, replayed_pending={1: 7})


def end_made_up(evidence: Evidence) -> Evidence:
    """The engine says CompleteCommit, but the id's latest row in the raw entries is Ongoing."""
    return replace(evidence, replayed_transactions=(TransactionState("load", "Ongoing"),))


def transactional_id_overlooked(evidence: Evidence) -> Evidence:
    return replace(evidence, replayed_transactions=(TransactionState("nobody listed", "PrepareCommit"),))


def lag_left(evidence: Evidence) -> Evidence:
    return replace(evidence, group=(evidence.group[0], replace(evidence.group[1], committed_offset=3, lag=3)))


def never_committed(evidence: Evidence) -> Evidence:
    return replace(evidence, group=())


def past_the_end(evidence: Evidence) -> Evidence:
    return replace(evidence, group=(evidence.group[0], replace(evidence.group[1], committed_offset=7)))


def wrong_lag(evidence: Evidence) -> Evidence:
    return replace(evidence, group=(replace(evidence.group[0], lag=4), evidence.group[1]))


def lag_of_a_shorter_log(evidence: Evidence) -> Evidence:
    """The engine has not seen the log's last entries, so its lag of 0 agrees with its own last stable
    offset."""
    return with_replayed(evidence, "payments", 0, last_stable_offset=12, log_end_offset=12)


def moved_on_over_an_open_transaction(evidence: Evidence) -> Evidence:
    """The engine overlooks an open transaction: all its own figures agree, and only the raw entries show
    it."""
    return with_replayed(evidence, "payments", 1, last_stable_offset=3)


def abort_overlooked(evidence: Evidence) -> Evidence:
    """The engine overlooks an abort: its aborted index is empty, and its readers see the records."""
    return with_replayed(evidence, "payments", 0, live_records=2)


def commit_pending(evidence: Evidence) -> Evidence:
    return replace(
        evidence,
        group=(replace(evidence.group[0], pending_producer_id=8, pending_offset=9), evidence.group[1]),
    )


def not_ended(evidence: Evidence) -> Evidence:
    return replace(evidence, transactions=(*evidence.transactions, TransactionState("slow", "PrepareCommit")))


def wrong_turnover(evidence: Evidence) -> Evidence:
    """One amount is a cent too high, which a float cannot tell from its neighbour."""
    rows = [*TURNOVERS[:2], (3, "90071992547409.91", 2), *TURNOVERS[3:]]
    return all_visible(replace(evidence, rows={**evidence.rows, "balances": output_rows(rows)}))


def wrong_count(evidence: Evidence) -> Evidence:
    rows = [(1, "649.95", 3), *TURNOVERS[1:]]
    return all_visible(replace(evidence, rows={**evidence.rows, "balances": output_rows(rows)}))


def account_left_out(evidence: Evidence) -> Evidence:
    rows = [row for row in TURNOVERS if row[0] != 3]
    return all_visible(replace(evidence, rows={**evidence.rows, "balances": output_rows(rows)}))


def run_counted_twice(evidence: Evidence) -> Evidence:
    twice = [*TURNOVERS, TURNOVERS[3]]
    return all_visible(replace(evidence, rows={**evidence.rows, "balances": output_rows(twice)}))


def audit_finding(evidence: Evidence) -> Evidence:
    return replace(
        evidence, findings=(AuditFinding("error entry-damaged: topics/payments/0/0/log/0.parquet"),)
    )


def offset_twice(evidence: Evidence) -> Evidence:
    logged = [(0, 0), (0, 1), (0, 3), (0, 4), (0, 6), (0, 7), (1, 0), (1, 1), (1, 3), (1, 3)]
    return with_payments(_changed(evidence, "_offset", 7, 3), logged=offsets_table(logged))


def out_of_order(evidence: Evidence) -> Evidence:
    table = _committed(evidence)
    return with_payments(evidence, committed=table.take([1, 0, *range(2, table.num_rows)]))


def file_overlooked(evidence: Evidence) -> Evidence:
    """By the raw entries, another file has replaced one that readers get."""
    live = evidence.replayed[0].live
    assert live is not None
    other = live[0]._replace(key="topics/payments/0/0/data/rewritten")
    return with_replayed(evidence, "payments", 0, live=(other, *live[1:]))


def file_of_other_records(evidence: Evidence) -> Evidence:
    """The raw entry names one record more than the file has, with the same last offset."""
    live = evidence.replayed[1].live
    assert live is not None
    return with_replayed(evidence, "payments", 1, live=(live[0]._replace(record_count=3), *live[1:]))


def aborted_by_its_decision(evidence: Evidence) -> Evidence:
    """The markers say committed, but by the coordinator's rows the file's transaction was aborted."""
    return replace(evidence, fates={evidence.rows["payments"].files[0].key: "aborted"})


def undecided_by_its_state(evidence: Evidence) -> Evidence:
    """The markers say committed, but by the coordinator's rows the file's transaction is open."""
    return replace(evidence, fates={evidence.rows["payments"].files[0].key: "undecided"})


def position_moved_back(evidence: Evidence) -> Evidence:
    history = evidence.group_history
    back = CommittedOffset(0, 5, 3, 8, 0, "")
    return replace(evidence, group_history=replace(history, commits=(*history.commits, back)))


def output_apart_from_offsets(evidence: Evidence) -> Evidence:
    """The producer's next epoch wrote the last row without an offset."""
    files = (LogFile(0, 0, 8), LogFile(0, len(TURNOVERS) - 1, 8, 1))
    return all_visible(with_rows(evidence, "balances", log_files=files))


def half_a_transaction(evidence: Evidence) -> Evidence:
    return replace(evidence, findings=(AuditFinding("torn", code="decision-not-carried-out"),))


def batches_out_of_order(evidence: Evidence) -> Evidence:
    return replace(evidence, findings=(AuditFinding("order", code="sequence-gap"),))


VIOLATIONS: list[tuple[Breaker, set[str]]] = [
    (duplicate_row, {"record_ids_unique"}),
    (missing_row, {"no_input_row_missing"}),
    (
        withheld_row,
        {"no_input_row_missing", "hidden_records_explained", "records_as_named", "visible_records_counted"},
    ),
    (extra_row, {"no_record_beyond_input"}),
    (changed_amount, {"row_values_equal"}),
    (changed_text, {"row_values_equal"}),
    (aborted_visible, {"nothing_aborted_visible"}),
    (undecided_visible, {"nothing_undecided_visible", "records_as_named"}),
    (file_overlooked, {"files_as_replayed"}),
    (file_of_other_records, {"records_as_named"}),
    (hidden_by_another_producer, {"hidden_records_explained"}),
    (abort_made_up, {"hidden_records_explained"}),
    (lso_behind, {"lso_at_log_end"}),
    (open_transaction, {"no_open_transaction"}),
    (open_transaction_overlooked, {"no_open_transaction"}),
    (lag_left, {"group_at_lso"}),
    (never_committed, {"group_at_lso"}),
    (past_the_end, {"group_at_lso"}),
    (wrong_lag, {"group_lag_agrees"}),
    (lag_of_a_shorter_log, {"group_lag_agrees", "lso_at_log_end"}),
    (
        moved_on_over_an_open_transaction,
        {"nothing_undecided_visible", "files_as_replayed", "lso_at_log_end"},
    ),
    (abort_overlooked, {"visible_records_counted"}),
    (commit_pending, {"nothing_pending"}),
    (pending_commit_overlooked, {"nothing_pending"}),
    (not_ended, {"transactions_final"}),
    (end_made_up, {"transactions_final"}),
    (transactional_id_overlooked, {"transactions_final"}),
    (wrong_turnover, {"totals_in_balances"}),
    (wrong_count, {"totals_in_balances"}),
    (account_left_out, {"totals_in_balances"}),
    (run_counted_twice, {"totals_in_balances"}),
    (audit_finding, {"audit_clean"}),
    (offset_twice, {"no_offset_twice"}),
    (out_of_order, {"offsets_ascend"}),
    (aborted_by_its_decision, {"nothing_aborted_visible"}),
    (undecided_by_its_state, {"nothing_undecided_visible"}),
    (position_moved_back, {"positions_never_fall"}),
    (output_apart_from_offsets, {"output_with_offsets"}),
    (half_a_transaction, {"transactions_whole", "audit_clean"}),
    (batches_out_of_order, {"producers_in_order", "audit_clean"}),
]
FIRST_OF_EACH_CHECK = [
    violation
    for number, violation in enumerate(VIOLATIONS)
    if violation[1] - {name for _, names in VIOLATIONS[:number] for name in names}
]


def test_a_right_ledger_passes_every_check(evidence: Evidence, tmp_path: Path) -> None:
    """With a correct ledger all checks are made and pass, and there is a report."""
    result = report_evidence(evidence, report_folder=tmp_path / "report")
    assert [check.name for check in result.checks if check.status != "passed"] == []
    assert result.success
    assert len(result.checks) == 25
    assert result.report.is_file()
    assert result.json.is_file()
    assert result.statistics["committed_records"] == 8
    assert result.statistics["aborted_records"] == 2


@pytest.mark.parametrize(
    ("breaker", "expected"),
    in_shard("damage", VIOLATIONS, keep=FIRST_OF_EACH_CHECK),
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_a_violation_is_counted_by_its_own_check(
    breaker: Breaker, expected: set[str], evidence: Evidence
) -> None:
    """A violation is counted by its own check and by no other."""
    assert wrong_in(breaker(evidence)) == expected


# slower than to count: Great Expectations judges each check on its own
@pytest.mark.parametrize(
    ("breaker", "expected"),
    in_shard("damage", VIOLATIONS, keep=1),
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_a_violation_fails_its_own_check(breaker: Breaker, expected: set[str], evidence: Evidence) -> None:
    """A violation is named by its own check, everything else passes, and nothing is errored."""
    checks = judged(breaker(evidence))
    assert named(checks, "failed") == expected
    assert named(checks, "errored") == set()


@pytest.mark.parametrize(
    "metadata_and_offset", [(RESET_METADATA, 3), ("", -1)], ids=["moved on purpose", "deleted"]
)
def test_a_position_that_was_moved_on_purpose_may_fall(
    metadata_and_offset: tuple[str, int], evidence: Evidence
) -> None:
    """A position that was moved on purpose or deleted may fall, and earlier falls no longer count. A fall
    after it does."""
    metadata, offset = metadata_and_offset
    fell = position_moved_back(evidence)
    moved = CommittedOffset(0, 6, offset, -1, -1, metadata)
    again = CommittedOffset(0, 7, 4, 8, 0, "")
    below = CommittedOffset(0, 8, 2, 8, 0, "")

    def failed(*commits: CommittedOffset) -> set[str]:
        history = fell.group_history
        found = replace(history, commits=(*history.commits, *commits))
        return wrong_in(replace(fell, group_history=found))

    assert failed(moved, again) == set()
    assert failed(moved, again, below) == {"positions_never_fall"}
    assert failed(moved, again, below._replace(took_effect=False)) == set()


def test_every_check_has_a_violation() -> None:
    """Every check of the suite has a violation in these tests."""
    tested = set().union(*(names for _, names in VIOLATIONS)) | {"input_ids_unique"}
    assert {check.name for check in named_checks(CHECK, has_input=True)} == tested


def test_a_file_that_repeats_an_id_is_said(evidence: Evidence, tmp_path: Path) -> None:
    """A file that repeats an id is reported as the file's own fault, not as the topic's."""
    doubled = input_rows(tmp_path, [*ROWS, ROWS[0]])
    failed = named(judged(replace(evidence, input=doubled)), "failed")
    assert "input_ids_unique" in failed
    assert "record_ids_unique" not in failed


@pytest.mark.parametrize(
    ("part", "checks"),
    in_shard(
        "damage",
        [
            (
                "offsets",
                {"lso_at_log_end", "no_open_transaction", "group_at_lso", "nothing_pending"},
            ),
            ("group", {"group_at_lso", "group_lag_agrees", "nothing_pending"}),
            ("transactions", {"transactions_final"}),
            (
                "audit",
                {"audit_clean", "nothing_aborted_visible", "nothing_undecided_visible", "lso_at_log_end"},
            ),
            ("log:payments", {"hidden_records_explained"}),
            ("rows:balances", {"totals_in_balances", "no_offset_twice"}),
            (
                "rows:payments",
                {"record_ids_unique", "no_input_row_missing", "row_values_equal", "totals_in_balances"},
            ),
        ],
        keep=lambda part: part[0] in ("offsets", "log:payments", "rows:payments"),
    ),
)
def test_a_part_that_cannot_be_had_errs(
    part: str, checks: set[str], evidence: Evidence, tmp_path: Path
) -> None:
    """Checks whose evidence is missing are errored, neither failed nor passed. The others are made."""
    kind, _, topic = part.partition(":")
    rows = {name: found for name, found in evidence.rows.items() if not (kind == "rows" and name == topic)}
    broken = replace(evidence, rows=rows, failures={part: "CorruptObjectError: data/7.parquet is damaged"})
    result = report_evidence(broken, report_folder=tmp_path)
    errored = named(result.checks, "errored")
    assert checks <= errored
    assert result.failed == ()
    assert not result.success
    assert len(errored) < len(result.checks)
    assert all("data/7.parquet is damaged" in check.detail for check in result.errored)


def test_an_expectation_that_raises_is_errored(
    evidence: Evidence, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Great Expectations says success=False for an exception. The check is errored, and the others are
    judged."""
    from txn_engine.quality import judge as judging

    validate = judging.validated

    def without_a_column(context: Any, counted: Any, checks: Any, *rest: Any) -> Any:
        return validate(context, {**counted, "record_ids_unique": Counted(8, None)}, checks, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(judging, "validated", without_a_column)
    result = report_evidence(evidence, report_folder=tmp_path)
    assert [(check.name, check.status) for check in result.checks if check.status != "passed"] == [
        ("record_ids_unique", "errored")
    ]
    assert not result.success
    assert "could not be made" in result.report.read_text(encoding="utf-8")


def test_a_suite_that_cannot_be_run_is_errored(
    evidence: Evidence, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If the suite itself cannot be run, every check is errored and none has passed."""
    from txn_engine.quality import judge as judging

    def broken(*_: object) -> None:
        raise TypeError("colum")

    monkeypatch.setattr(judging, "validated", broken)
    result = report_evidence(evidence, report_folder=tmp_path)
    assert named(result.checks, "errored") == {check.name for check in result.checks}
    assert result.failed == ()
    assert not result.success


def test_a_verdict_that_does_not_fit_the_number_is_errored(
    evidence: Evidence, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If Great Expectations reports another number than was counted, the check is errored, because neither
    can be believed."""
    from txn_engine.quality import judge as judging

    validate = judging.validated

    def of_nothing(context: Any, counted: Any, *rest: Any) -> Any:
        return validate(context, {name: Counted(0, 0) for name in counted}, *rest)

    monkeypatch.setattr(judging, "validated", of_nothing)
    assert named(judged(audit_finding(evidence)), "errored") == {"audit_clean"}


def test_a_transaction_on_another_topic_is_no_concern(evidence: Evidence) -> None:
    """An open transaction on another topic does not make this topic's proof fail."""
    other = replace(evidence, transactions=(TransactionState("elsewhere", "Ongoing", concerns=False),))
    assert all(check.status == "passed" for check in judged(other))


def test_warnings_of_the_audit_do_not_fail(evidence: Evidence, tmp_path: Path) -> None:
    """A warning of the audit is shown and fails no check, because a sweep will do that work."""
    warned = replace(evidence, findings=(AuditFinding("warning producer-id-block: unused", is_error=False),))
    result = report_evidence(warned, report_folder=tmp_path)
    assert result.success
    assert "producer-id-block" in result.report.read_text(encoding="utf-8")


def test_an_aborted_range_of_another_producer_hides_nothing(evidence: Evidence) -> None:
    """A committed record inside another producer's aborted range is visible rightly, because transactions
    interleave."""
    reaching = with_replayed(evidence, "payments", 0, aborted=(AbortedRange(9, 1, 5),))
    assert all(check.status == "passed" for check in judged(reaching))


def test_a_rewritten_file_does_not_name_its_producer(evidence: Evidence) -> None:
    """A rewritten file has no producer, and its records were decided, so it is not judged by producer."""
    files = (LogFile(0, 0, None), LogFile(0, 3, 9), LogFile(0, 6, None), LogFile(1, 0, None))
    rewritten = all_visible(with_payments(evidence, log_files=files))
    assert all(check.status == "passed" for check in judged(rewritten))


def test_without_a_file_records_are_judged_by_themselves(evidence: Evidence, tmp_path: Path) -> None:
    """Without an input file, ids have to be unique and sums are computed from the committed records. The
    report says what was not compared."""
    alone = replace(evidence, input=None)
    result = report_evidence(alone, report_folder=tmp_path)
    assert result.success
    assert {"no_input_row_missing", "row_values_equal"}.isdisjoint(check.name for check in result.checks)
    assert "none was given" in result.report.read_text(encoding="utf-8")
    assert named(judged(changed_amount(alone)), "failed") == {"totals_in_balances"}
    assert named(judged(duplicate_row(alone)), "failed") == {
        "record_ids_unique",
        "totals_in_balances",
    }


def test_without_output_and_group_less_is_checked(evidence: Evidence, tmp_path: Path) -> None:
    """A topic without output and group can be proved too, and the report says which checks are left out."""
    check = replace(CHECK, outputs=(), group_id=None)
    states = tuple(state for state in evidence.partitions if state.topic == "payments")
    alone = replace(
        evidence, check=check, partitions=states, rows={"payments": evidence.rows["payments"]}, group=()
    )
    result = report_evidence(alone, report_folder=tmp_path)
    assert result.success
    assert len(result.checks) == 19
    page = result.report.read_text(encoding="utf-8")
    assert "No output was compared" in page
    assert "no group was named" in page


def test_an_empty_topic_and_no_transactions_pass(evidence: Evidence, tmp_path: Path) -> None:
    """With empty topics and no transactions everything passes and nothing raises."""
    for topic, rows in evidence.rows.items():
        evidence = with_rows(
            evidence,
            topic,
            committed=rows.committed.slice(0, 0),
            logged=offsets_table([]),
            log_files=(),
            ends={},
        )
    states = tuple(replace(state, last_stable_offset=0, high_watermark=0) for state in evidence.partitions)
    nothing = all_visible(replace(evidence, input=None, partitions=states, group=(), transactions=()))
    result = report_evidence(nothing, report_folder=tmp_path)
    assert [check.name for check in result.checks if check.status != "passed"] == []


def test_at_most_twenty_examples_and_the_whole_number(evidence: Evidence, tmp_path: Path) -> None:
    """With a thousand missing rows the number is exact, and twenty of them are shown."""
    more = [(number, *ROWS[0][1:]) for number in range(5000, 6000)]
    big = replace(evidence, input=input_rows(tmp_path, [*ROWS, *more]))
    missing = next(check for check in judged(big) if check.name == "no_input_row_missing")
    assert missing.observed == "1,000 of 1,008 input rows missing"
    assert len(missing.examples) == 20
    assert missing.examples[0] == {"line": "10", "trans_id": "5000"}


def test_a_changed_value_is_shown_by_column(evidence: Evidence) -> None:
    """The example of a changed row names its place and only the columns that differ."""
    changed = next(check for check in judged(changed_amount(evidence)) if check.status != "passed")
    example = changed.examples[0]
    assert example["in the file"].startswith("amount ")
    assert example["in the topic"].startswith("amount ")
    assert (example["partition"], example["offset"]) == ("0", "6")


def test_the_json_holds_both_sides(evidence: Evidence, tmp_path: Path) -> None:
    """The JSON has our results and Great Expectations' own, for programs."""
    result = report_evidence(audit_finding(evidence), report_folder=tmp_path, run_name="nightly")
    data = json.loads(result.json.read_text(encoding="utf-8"))
    assert data["run_name"] == "nightly"
    assert data["success"] is False
    assert {check["name"]: check["status"] for check in data["checks"]}["audit_clean"] == "failed"
    own = data["great_expectations"]["exactly-once"]
    assert own["success"] is False
    assert {result["expectation_config"]["meta"]["name"] for result in own["results"]} == {
        check["name"] for check in data["checks"]
    }
    assert data["data_docs_failure"] == ""


def test_a_second_run_replaces_the_first(evidence: Evidence, tmp_path: Path) -> None:
    """A second run replaces the folder: no page, result or Data Docs of an earlier run stay."""
    folder = tmp_path / "report"
    report_evidence(audit_finding(evidence), report_folder=folder, run_name="first")
    result = report_evidence(evidence, report_folder=folder, run_name="second")
    assert result.success
    assert sorted(path.name for path in folder.iterdir()) == ["data_docs", "index.html", "validation.json"]
    assert not list(folder.rglob("*first*"))


def test_file_names_come_from_the_run_name_safely() -> None:
    """A run name cannot lead out of the folder."""
    assert exactly_once._file_name("../../etc/passwd <b>") == "etc-passwd-b"
    assert exactly_once._file_name("///") == "run"


def test_a_folder_that_cannot_be_written(evidence: Evidence, tmp_path: Path) -> None:
    """If the folder cannot be written, the error is one line that names it."""
    (tmp_path / "file").write_text("in the way", encoding="utf-8")
    with pytest.raises(StoreAccessError) as refused:
        report_evidence(evidence, report_folder=tmp_path / "file" / "report")
    assert refused.value.place == str(tmp_path / "file" / "report")


def test_rows_of_maintenance_behind_the_position_are_not_unread_records(evidence: Evidence) -> None:
    """Rows of maintenance after the last marker, a trim for example, are not unread records, because no group
    will ever commit past them."""
    behind = with_payments(_longer(evidence, 7), ends={0: 9, 1: 7})
    group = (evidence.group[0], replace(evidence.group[1], last_stable_offset=7, lag=1))
    assert named(judged(replace(behind, group=group)), "failed") == set()
    since = with_payments(behind, ends={0: 9, 1: 6})
    assert named(judged(replace(since, group=group)), "failed") == {"group_at_lso"}


# --- records that are gone for good ---------------------------------------------------------------------------

ROWS_OF_FILE, SUMS = {"no_input_row_missing"}, {"totals_in_balances"}


def trimmed(evidence: Evidence, topic: str, start: int = 3) -> Evidence:
    """The evidence with partition 0 of the topic trimmed to this offset, and without the records before
    it."""
    states = tuple(
        replace(state, log_start_offset=start) if (state.topic, state.partition) == (topic, 0) else state
        for state in evidence.partitions
    )
    rows = evidence.rows[topic]
    left = with_rows(
        evidence, topic, committed=_from(rows.committed, start), logged=_from(rows.logged, start)
    )
    return all_visible(replace(left, partitions=states))


def _from(table: pa.Table | None, start: int) -> pa.Table:
    assert table is not None
    places = zip(table["_partition"].to_pylist(), table["_offset"].to_pylist(), strict=True)
    return table.filter(pa.array([partition > 0 or offset >= start for partition, offset in places]))


def compacted(evidence: Evidence, topic: str) -> Evidence:
    states = tuple(
        replace(state, is_compacted=True) if state.topic == topic else state for state in evidence.partitions
    )
    return replace(evidence, partitions=states)


def never_loaded(evidence: Evidence, rows: int) -> Evidence:
    """The evidence with this many more rows in the file than in the topic."""
    assert evidence.input is not None
    more = [(900 + number, *ROWS[0][1:]) for number in range(rows)]
    return replace(evidence, input=input_rows(evidence.input.path.parent, [*ROWS, *more]))


@pytest.mark.parametrize(
    ("gone", "with_file", "left_out"),
    in_shard(
        "damage",
        [
            (lambda evidence: trimmed(evidence, "payments"), True, ROWS_OF_FILE),
            (lambda evidence: trimmed(evidence, "payments"), False, SUMS),
            (lambda evidence: trimmed(evidence, "balances"), True, SUMS),
            (lambda evidence: trimmed(evidence, "balances"), False, SUMS),
            (lambda evidence: compacted(missing_row(evidence), "payments"), True, ROWS_OF_FILE),
            (lambda evidence: compacted(evidence, "payments"), False, SUMS),
            (lambda evidence: compacted(evidence, "balances"), True, SUMS),
        ],
        keep=3,
    ),
)
def test_what_compares_whole_histories_does_not_apply_where_a_part_is_gone(
    tmp_path: Path, evidence: Evidence, gone: Breaker, with_file: bool, left_out: set[str]
) -> None:
    """If a part of the history is gone, the checks that compare whole histories do not apply. Everything else
    is judged, and the run is a success that says so."""
    seen = gone(evidence if with_file else replace(evidence, input=None))
    result = report_evidence(seen, report_folder=tmp_path)
    assert result.success, (result.failed, result.errored)
    assert {check.name for check in result.not_applicable} == left_out
    assert named(result.checks, "passed") == {check.name for check in result.checks} - left_out
    assert result.statistics["not_applicable"] == len(left_out)
    written = json.loads(result.json.read_text())
    assert {check["name"] for check in written["checks"] if check["status"] == "not_applicable"} == left_out
    page = result.report.read_text()
    assert "Exactly once: proven for what is still there" in page
    assert f"do{'es' if len(left_out) == 1 else ''} not apply, since" in page
    for check in result.not_applicable:
        assert check.detail in page


@pytest.mark.parametrize("gone", in_shard("damage", [trimmed, compacted], keep=1))
def test_what_is_gone_excuses_no_missing_row_where_none_is_missing(evidence: Evidence, gone: Gone) -> None:
    """If records are gone but no row of the file is missing, the check of missing rows is made and passes."""
    assert evidence.input is not None
    left = [ROWS[1], *ROWS[3:]]  # not those trimmed
    whole = replace(evidence, input=input_rows(evidence.input.path.parent, left))
    assert named(judged(gone(whole, "payments")), "passed") >= ROWS_OF_FILE


@pytest.mark.parametrize(
    ("gone", "most"),
    in_shard(
        "damage",
        [
            (trimmed, 1),  # 3 offsets are gone, and with them 2 rows that were loaded
            (compacted, 5),  # as many offsets below the last stable one no reading returns
        ],
        keep=[(compacted, 5)],
    ),
)
def test_no_more_rows_may_be_missing_than_offsets_are_gone(evidence: Evidence, gone: Gone, most: int) -> None:
    """If more rows are missing than the removed offsets can explain, the check fails. The sums of the file
    fail in any case."""
    excused = judged(gone(never_loaded(evidence, most), "payments"))
    assert named(excused, "not_applicable") == ROWS_OF_FILE
    assert named(excused, "failed") == SUMS
    checks = judged(gone(never_loaded(evidence, most + 1), "payments"))
    assert named(checks, "failed") == SUMS | ROWS_OF_FILE
    assert named(checks, "not_applicable") == set()


def test_a_trimmed_topic_that_cannot_be_read_errs(evidence: Evidence) -> None:
    """If a trimmed topic cannot be read, the checks are errored, because nobody knows whether the missing
    rows were trimmed."""
    seen = trimmed(evidence, "payments")
    rows = {"balances": seen.rows["balances"]}
    broken = replace(seen, rows=rows, failures={"rows:payments": "CorruptObjectError: data/7.parquet"})
    assert named(judged(broken), "errored") >= ROWS_OF_FILE


def test_the_reason_names_partitions_and_offsets(evidence: Evidence) -> None:
    """The reason names the partitions and offsets that are gone, but no more of them than a person reads."""
    left = trimmed(evidence, "payments")
    assert not_applicable(left, counts(left))["no_input_row_missing"] == (
        "rows of the file not found: 2, records that may be gone: at most 3; "
        "retention, or a delete, has removed records of payments: partition 0 begins at offset 3"
    )
    starts = tuple(
        replace(evidence.partitions[0], partition=n, log_start_offset=1_000 + n) for n in range(30)
    )
    many = replace(left, partitions=starts)
    why = not_applicable(many, counts(many))["no_input_row_missing"]
    assert "partition 19 begins at offset 1,019 and 10 more do not begin at 0" in why


@pytest.mark.parametrize(
    "breaker",
    in_shard("damage", [duplicate_row, changed_amount, aborted_visible, lag_left, audit_finding], keep=1),
)
def test_what_is_wrong_is_found_in_what_is_left(tmp_path: Path, evidence: Evidence, breaker: Breaker) -> None:
    """Violations in the rest of a trimmed topic are found all the same."""
    result = report_evidence(trimmed(breaker(evidence), "payments"), report_folder=tmp_path)
    assert not result.success
    (expected,) = (names for broken, names in VIOLATIONS if broken is breaker)
    assert {check.name for check in result.failed} == expected
    page = result.report.read_text()
    assert "Exactly once: not proven" in page
    assert "1 does not apply" in page


def test_without_the_offsets_nothing_is_said_of_sums(evidence: Evidence) -> None:
    """Without the offsets, the sums are errored, because nobody knows whether records were trimmed."""
    blind = replace(evidence, partitions=(), failures={"offsets": "StoreUnavailableError: no answer"})
    assert named(judged(blind), "errored") >= SUMS | ROWS_OF_FILE
