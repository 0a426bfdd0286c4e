"""Every check's number: what was seen, reduced to how many things are wrong."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

from txn_engine.quality import positions, visibility
from txn_engine.quality.evidence import Evidence, EvidenceMissingError, need
from txn_engine.quality.records import Reductions
from txn_engine.quality.result import EXAMPLES_MAX, Counted
from txn_engine.quality.suite import INPUT_ACCOUNTED, accounted_checks, named_checks, output_checks


def count(evidence: Evidence, reductions: Reductions) -> Mapping[str, Counted | EvidenceMissingError]:
    """By the name of the check: what it came to, or why it could not be made."""
    counters: dict[str, Callable[[], Counted]] = {
        name: getattr(reductions, name)
        for name in (
            "record_ids_unique",
            "input_ids_unique",
            "no_input_row_missing",
            "no_record_beyond_input",
            "row_values_equal",
            "no_offset_twice",
        )
    }
    for name, output in output_checks(evidence.check):
        counters[name] = partial(reductions.output, name, output)
    for name, output in accounted_checks(evidence.check):
        counters[name] = partial(reductions.output_accounted, output)
    counters[INPUT_ACCOUNTED] = reductions.input_accounted
    for counter in (
        visibility.nothing_aborted_visible,
        visibility.nothing_undecided_visible,
        visibility.hidden_records_explained,
        visibility.files_as_replayed,
        visibility.records_as_named,
        visibility.offsets_ascend,
        visibility.visible_records_counted,
        positions.group_at_lso,
        positions.group_lag_agrees,
        positions.positions_never_fall,
        positions.output_with_offsets,
        positions.transactions_whole,
        positions.producers_in_order,
        positions.audit_clean,
    ):
        counters[counter.__name__] = partial(counter, evidence)
    for counter in (
        positions.lso_at_log_end,
        positions.no_open_transaction,
        positions.nothing_pending,
        positions.transactions_final,
    ):
        counters[counter.__name__] = partial(_under_way, counter, evidence)
    counters["digest_as_proved"] = partial(_digest_as_proved, evidence)
    checks = named_checks(
        evidence.check,
        has_input=evidence.input is not None,
        has_chain=evidence.chain is not None,
        at_cut=evidence.is_of_kept_cut,
    )
    return {check.name: _counted(counters[check.name]) for check in checks}


def _under_way(counter: Callable[[Evidence], Counted], evidence: Evidence) -> Counted:
    """What a check finds that is under way: not inside the cut, where there is one."""
    if evidence.as_of is None:
        return counter(evidence)
    need(evidence, "under_way")
    return counter(evidence.under_way or evidence)


def _digest_as_proved(evidence: Evidence) -> Counted:
    """Partitions whose records are not those that were proved."""
    found = evidence.chain or ()
    total = sum(len(rows.ends) for rows in evidence.rows.values()) - evidence.chain_unjudged
    examples = tuple({name: str(value) for name, value in each._asdict().items()} for each in found)
    return Counted(total, len(found), examples[:EXAMPLES_MAX])


def _counted(counter: Callable[[], Counted]) -> Counted | EvidenceMissingError:
    try:
        return counter()
    except EvidenceMissingError as missing:
        return missing
