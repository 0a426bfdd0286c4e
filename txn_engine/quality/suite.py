"""The suite: every check by name, the expectation behind it, and what a person on call needs to know about it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from txn_engine.quality.check import ExactlyOnceCheck
from txn_engine.quality.evidence import FINAL_STATES

SECTIONS = ("Records", "Accounts", "Visibility", "Offsets", "Transactions", "Audit")


@dataclass(frozen=True, slots=True)
class NamedCheck:
    """One expectation of the suite, before it meets data.

    `expectation` is the class's name in `great_expectations.expectations`, `arguments` its arguments. `noun` and
    `fault` make the sentence "3 of 49,102 <noun> <fault>"; `rows` are the columns that say which row it was.
    """

    name: str
    section: str
    batch: str
    title: str
    expectation: str
    arguments: Mapping[str, object]
    noun: str
    fault: str
    meaning: str
    action: str
    rows: tuple[str, ...] = field(default=())


def named_checks(check: ExactlyOnceCheck, *, has_input: bool) -> tuple[NamedCheck, ...]:
    """The checks that can be made of this topic, in the order of the report."""
    checks = _record_checks(check, has_input=has_input)
    if check.output_topic is not None:
        checks += _account_checks(check, check.output_topic, has_input=has_input)
    checks += _visibility_checks()
    if not check.up_to_position:
        checks += _partition_checks()
        if check.group_id is not None:
            checks += _group_checks(check.group_id)
        checks += _transaction_checks()
    return checks + _audit_checks()


def skipped_checks(check: ExactlyOnceCheck, *, has_input: bool) -> tuple[str, ...]:
    """What is not checked and why, one sentence each."""
    skipped = []
    if not has_input:
        skipped.append("The records were not compared with an input file: none was given.")
    if check.output_topic is None:
        skipped.append("No sums were compared: no output topic was named.")
    elif check.output_count is None:
        skipped.append("The number of payments of each account was not compared: no count column was named.")
    if check.up_to_position:
        skipped.append(
            f"Only what group {check.group_id} has consumed was judged: records behind its position, and transactions "
            "that are under way, were left out."
        )
    if check.group_id is None:
        skipped.append("No consumer's position was checked: no group was named.")
    return tuple(skipped)


def _record_checks(check: ExactlyOnceCheck, *, has_input: bool) -> tuple[NamedCheck, ...]:
    unique = NamedCheck(
        name="record_ids_unique",
        section="Records",
        batch="records",
        title=f"No two committed records share a {check.record_id}",
        expectation="ExpectColumnValuesToBeUnique",
        arguments={"column": "record_id"},
        noun="committed records",
        fault="with a repeated id",
        meaning="A row was committed more than once: its load was run again outside its transaction.",
        action="Look at the offsets shown to find both loads; give loads a run id and let them ask has_committed() "
        "before they write.",
        rows=("record_id", "partition", "offset"),
    )
    if not has_input:
        return (unique,)
    return (
        NamedCheck(
            name="input_ids_unique",
            section="Records",
            batch="input",
            title=f"The input file names each {check.record_id} once",
            expectation="ExpectColumnValuesToBeUnique",
            arguments={"column": "record_id"},
            noun="input rows",
            fault="with a repeated id",
            meaning="The file itself repeats a row, so 'exactly once' has no meaning for it.",
            action="Mend the file at the lines shown, load it again and check again.",
            rows=("line", "record_id"),
        ),
        NamedCheck(
            name="no_input_row_missing",
            section="Records",
            batch="input",
            title=f"Every row of the input file is committed in {check.topic}",
            expectation="ExpectColumnValuesToBeBetween",
            arguments={"column": "committed_rows", "min_value": 1},
            noun="input rows",
            fault="missing",
            meaning="A load was lost or never ended: those rows were not committed.",
            action="Find the load of the lines shown with `txn-engine transactions list`; run it again under the same "
            "transactional id.",
            rows=("line", "record_id"),
        ),
        NamedCheck(
            name="no_record_beyond_input",
            section="Records",
            batch="records",
            title=f"Every record of {check.topic} is in the input file",
            expectation="ExpectColumnValuesToBeBetween",
            arguments={"column": "input_rows", "min_value": 1},
            noun="committed records",
            fault="not in the file",
            meaning="Something else wrote to the topic, or another file was loaded into it.",
            action="`txn-engine transactions describe-producers` names who writes to the partitions shown; check that "
            "the right file was given.",
            rows=("record_id", "partition", "offset"),
        ),
        unique,
        NamedCheck(
            name="row_values_equal",
            section="Records",
            batch="matched",
            title="Every record carries the values of its row in the file",
            expectation="ExpectColumnPairValuesToBeEqual",
            arguments={"column_A": "input_row", "column_B": "committed_row", "ignore_row_if": "neither"},
            noun="records",
            fault="different from their row",
            meaning="A value changed on its way: a conversion in the loader, or another version of the file.",
            action="Compare the columns shown; if they are right in the file, mend the loader and load again.",
            rows=("record_id", "line", "partition", "offset"),
        ),
    )


def _account_checks(check: ExactlyOnceCheck, output: str, *, has_input: bool) -> tuple[NamedCheck, ...]:
    source = "the input file" if has_input else "the committed records"
    turnover = NamedCheck(
        name="turnover_per_account",
        section="Accounts",
        batch="accounts",
        title=f"Each account's {check.output_total} in {output} equals the sum taken from {source}",
        expectation="ExpectColumnPairValuesToBeEqual",
        arguments={
            "column_A": "expected_turnover",
            "column_B": "output_turnover",
            "ignore_row_if": "neither",
        },
        noun="accounts",
        fault="with another turnover",
        meaning="The consumer counted a payment twice, left one out, or wrote output apart from its offsets.",
        action="Compare the accounts below; if no run of the consumer is open, rebuild the output from the group's "
        "first offset (`txn-engine groups reset-offsets`).",
        rows=("account",),
    )
    if check.output_count is None:
        return (turnover,)
    count = NamedCheck(
        name="payments_per_account",
        section="Accounts",
        batch="accounts",
        title=f"Each account's {check.output_count} in {output} equals the number of rows in {source}",
        expectation="ExpectColumnPairValuesToBeEqual",
        arguments={
            "column_A": "expected_payments",
            "column_B": "output_payments",
            "ignore_row_if": "neither",
        },
        noun="accounts",
        fault="with another count",
        meaning="The consumer took a record twice or not at all, even where the amounts happen to cancel out.",
        action="Compare the accounts below with the records of the topic; rebuild the output as for the turnover.",
        rows=("account",),
    )
    return (turnover, count)


def _visibility_checks() -> tuple[NamedCheck, ...]:
    place = ("topic", "partition", "offset")
    return (
        NamedCheck(
            name="nothing_aborted_visible",
            section="Visibility",
            batch="visible",
            title="No record that the raw entries call aborted is returned to read_committed",
            expectation="ExpectColumnValuesToBeNull",
            arguments={"column": "aborted_by"},
            noun="visible records",
            fault="aborted",
            meaning="Readers see what its producer took back: the aborted index and the files disagree.",
            action="Stop the consumers of the topic; run `txn-engine verify` and read the partition's `log/` at the "
            "offsets shown.",
            rows=place,
        ),
        NamedCheck(
            name="nothing_undecided_visible",
            section="Visibility",
            batch="visible",
            title="No record that the raw entries leave undecided is returned to read_committed",
            expectation="ExpectColumnPairValuesAToBeGreaterThanB",
            arguments={"column_A": "last_stable_offset", "column_B": "offset", "ignore_row_if": "neither"},
            noun="visible records",
            fault="undecided",
            meaning="Readers see records whose transaction may still abort.",
            action="Stop the consumers of the topic; run `txn-engine verify`, then `txn-engine coordinator sweep`.",
            rows=place,
        ),
        NamedCheck(
            name="hidden_records_explained",
            section="Visibility",
            batch="hidden",
            title="Each record hidden from read_committed was aborted or is undecided by the raw entries",
            expectation="ExpectColumnValuesToBeInSet",
            arguments={"column": "reason", "value_set": ["aborted", "undecided"]},
            noun="hidden records",
            fault="without a reason",
            meaning="A committed record is withheld from readers; or the topic was written to during the check.",
            action="Run `txn-engine verify`; compare the partition's `log/` at the offsets shown with the aborted "
            "transactions of that partition.",
            rows=place,
        ),
        NamedCheck(
            name="no_offset_twice",
            section="Visibility",
            batch="visible",
            title="No offset is returned twice",
            expectation="ExpectCompoundColumnsToBeUnique",
            arguments={"column_list": list(place), "ignore_row_if": "never"},
            noun="visible records",
            fault="with a repeated offset",
            meaning="Two live data files cover the same offsets: a rewrite went wrong.",
            action="Stop compaction; run `txn-engine verify` and look at the `rewrite` entries of that partition.",
            rows=place,
        ),
        NamedCheck(
            name="offsets_ascend",
            section="Visibility",
            batch="visible",
            title="Records of a partition come in the order of their offsets",
            expectation="ExpectColumnValuesToBeBetween",
            arguments={"column": "step", "min_value": 0},
            noun="visible records",
            fault="out of order",
            meaning="A scan lists its files out of order: readers that keep a position may skip records.",
            action="Run `txn-engine verify`; report the partition and offsets shown.",
            rows=place,
        ),
    )


def _partition_checks() -> tuple[NamedCheck, ...]:
    place = ("topic", "partition")
    return (
        NamedCheck(
            name="visible_records_counted",
            section="Visibility",
            batch="counted",
            title="read_committed returns as many records as a replay of the raw entries counts",
            expectation="ExpectColumnPairValuesToBeEqual",
            arguments={
                "column_A": "visible_records",
                "column_B": "replayed_records",
                "ignore_row_if": "neither",
            },
            noun="partitions",
            fault="with another number",
            meaning="Readers miss committed records, or see some that were aborted or replaced; or the topic was "
            "written to during the check.",
            action="Check again when nothing is writing; then stop the consumers of the topic and run "
            "`txn-engine verify`.",
            rows=place,
        ),
        NamedCheck(
            name="lso_at_log_end",
            section="Offsets",
            batch="partitions",
            title="The last stable offset, by a replay of the raw entries, is the log end in every partition",
            expectation="ExpectColumnPairValuesToBeEqual",
            arguments={
                "column_A": "replayed_stable_offset",
                "column_B": "high_watermark",
                "ignore_row_if": "neither",
            },
            noun="partitions",
            fault="held back",
            meaning="A transaction is undecided, so read_committed readers wait in front of it.",
            action="Run `txn-engine coordinator sweep` and `coordinator markers`; if it stays, "
            "`txn-engine transactions find-hanging`.",
            rows=place,
        ),
        NamedCheck(
            name="no_open_transaction",
            section="Offsets",
            batch="partitions",
            title="No producer has a transaction open on a partition, by the engine and by a replay of the raw entries",
            expectation="ExpectColumnValuesToBeInSet",
            arguments={"column": "open_transactions", "value_set": [0]},
            noun="partitions",
            fault="with an open transaction",
            meaning="A producer is still writing, or died and was not swept yet.",
            action="Wait for the producer, or run `txn-engine coordinator sweep` once its timeout has passed.",
            rows=place,
        ),
    )


def _group_checks(group: str) -> tuple[NamedCheck, ...]:
    return (
        NamedCheck(
            name="group_at_lso",
            section="Offsets",
            batch="group",
            title=f"Group {group} has committed up to the last stable offset",
            expectation="ExpectColumnPairValuesToBeEqual",
            arguments={
                "column_A": "committed_offset",
                "column_B": "last_stable_offset",
                "ignore_row_if": "neither",
            },
            noun="partitions",
            fault="not read to the end",
            meaning="The consumer has not processed everything, or committed past what it may read.",
            action="Run the consumer again (DAG `txn_spark_consume`), then check again; `txn-engine groups describe` "
            "shows its lag.",
            rows=("partition",),
        ),
        NamedCheck(
            name="group_lag_agrees",
            section="Offsets",
            batch="group",
            title=f"The lag reported for group {group} is the one that a replay of the raw entries gives",
            expectation="ExpectColumnPairValuesToBeEqual",
            arguments={"column_A": "lag", "column_B": "measured_lag", "ignore_row_if": "neither"},
            noun="partitions",
            fault="with another lag",
            meaning="Alerts on this group's lag cannot be trusted, or the topic moved during the check.",
            action="Check again when nothing is writing; then compare `txn-engine groups describe` with the offsets "
            "below.",
            rows=("partition",),
        ),
        NamedCheck(
            name="nothing_pending",
            section="Offsets",
            batch="group",
            title=f"No offset commit of group {group} is pending, by the engine and by a replay of the raw entries",
            expectation="ExpectColumnValuesToBeInSet",
            arguments={"column": "pending_producer_id", "value_set": [-1]},
            noun="partitions",
            fault="with a pending commit",
            meaning="A run of the consumer is between its output and its commit, or died there.",
            action="Wait for the run, or run `txn-engine coordinator sweep` and `coordinator markers`.",
            rows=("partition",),
        ),
    )


def _transaction_checks() -> tuple[NamedCheck, ...]:
    return (
        NamedCheck(
            name="transactions_final",
            section="Transactions",
            batch="transactions",
            title="Every transaction on these topics has ended, by the engine and by a replay of the raw entries",
            expectation="ExpectColumnValuesToBeInSet",
            arguments={"column": "state", "value_set": list(FINAL_STATES)},
            noun="transactional ids",
            fault="not in a final state",
            meaning="A load or a consumer is under way, or died and nobody has ended its transaction yet.",
            action="`txn-engine transactions describe` shows it; `txn-engine coordinator sweep` and "
            "`coordinator markers` end it.",
            rows=("transactional_id",),
        ),
    )


def _audit_checks() -> tuple[NamedCheck, ...]:
    return (
        NamedCheck(
            name="audit_clean",
            section="Audit",
            batch="audit",
            title="A replay of the whole store breaks no rule of the protocol",
            expectation="ExpectColumnValuesToBeInSet",
            arguments={"column": "findings", "value_set": [0]},
            noun="",
            fault="",
            meaning="An entry, a data file or a snapshot is damaged or out of sequence.",
            action="Read the findings below; `txn-engine verify` gives them again with the object's keys. Restore the "
            "named objects from a copy.",
            rows=(),
        ),
    )
