"""The suite: every check by name, the expectation behind it, and what a person on call needs to know about it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from txn_engine.quality.anomalies import (
    ABORTED_READ,
    DUPLICATE,
    INTERMEDIATE_READ,
    LOST,
    MOVED_BACK,
    NON_MONOTONIC,
    REORDERED,
    SKIP,
    TORN,
    WITHOUT_OFFSETS,
)
from txn_engine.quality.declaration import (
    RECORDS,
    Declaration,
    LatestByKey,
    Output,
    SameRows,
    SameSet,
    SqlReduction,
    Totals,
    is_of_input,
)

SUITES = "Suites"
"""The section of the users' own checks."""
SECTIONS = ("Records", "Outputs", "Visibility", "Offsets", "Transactions", "Audit", SUITES)


@dataclass(frozen=True, slots=True)
class NamedCheck:
    """One expectation of the suite, before it meets data: that nothing was found.

    `noun` and `fault` make the sentence "3 of 49,102 <noun> <fault>". `anomalies`: what a failure may be a sign of.
    """

    name: str
    section: str
    title: str
    noun: str
    fault: str
    meaning: str
    action: str
    anomalies: tuple[str, ...] = ()


def named_checks(
    check: Declaration, *, has_input: bool, has_chain: bool = False, at_cut: bool = False
) -> tuple[NamedCheck, ...]:
    """The checks that can be made of this topic, in the order of the report.

    `has_chain`: records that an earlier proof has a digest of were looked at again. `at_cut`: as of a cut, in which
    nothing is under way.
    """
    checks = _record_checks(check, has_input=has_input)
    if has_input and check.dead_letter_topic is not None:
        checks += (_input_accounted(check.topic),)
    if has_chain:
        checks += _chain_checks()
    for name, output in output_checks(check):
        checks += (_output_check(name, check, output, has_input=has_input),)
    checks += tuple(_accounted_check(name, check.topic, output) for name, output in accounted_checks(check))
    checks += _visibility_checks()
    if not check.up_to_position:
        found = _partition_checks()
        if check.group_id is not None:
            found += _group_checks(check.group_id)
        found += _transaction_checks()
        checks += tuple(each for each in found if not at_cut or each.name not in _UNDER_WAY)
    if check.group_id is not None:
        checks += _history_checks(check.group_id, has_outputs=bool(check.outputs))
    return checks + _audit_checks()


_UNDER_WAY = frozenset({"lso_at_log_end", "no_open_transaction", "nothing_pending", "transactions_final"})
"""Those that find what is under way."""


def output_checks(check: Declaration) -> tuple[tuple[str, Output], ...]:
    """The outputs, each with the name of its check."""
    found: list[tuple[str, Output]] = []
    taken: set[str] = set()
    for output in check.outputs:
        name = plain = f"{_KINDS[type(output.relation)]}_in_{output.topic}"
        number = 1
        while name in taken:
            number += 1
            name = f"{plain}_{number}"
        taken.add(name)
        found.append((name, output))
    return tuple(found)


def accounted_checks(check: Declaration) -> tuple[tuple[str, Output], ...]:
    """The outputs that have dead letters, each topic once, with the name of the check that counts them."""
    found = {output.topic: output for output in check.outputs if output.dead_letter_topic is not None}
    return tuple((f"input_is_{topic}_and_dead_letters", output) for topic, output in found.items())


INPUT_ACCOUNTED = "input_is_records_and_dead_letters"

_KINDS = {
    Totals: "totals",
    SameSet: "set",
    SameRows: "identity",
    LatestByKey: "latest",
    SqlReduction: "sql",
}


def skipped_checks(
    check: Declaration, *, has_input: bool, cut: int | None = None, not_in_file: Sequence[str] = ()
) -> tuple[str, ...]:
    """What is not checked and why, one sentence each. not_in_file: columns of the topic that the input file lacks."""
    skipped = []
    if cut is not None:
        skipped.append(
            f"Only what is inside cut {cut} was judged: what was written since, and what was under way, was left out."
        )
    if not has_input:
        skipped.append("The records were not compared with an input file: none was given.")
        if check.dead_letter_topic is not None:
            skipped.append(f"Neither were the dead letters of {check.dead_letter_topic}.")
    if not_in_file:
        were = "was" if len(not_in_file) == 1 else "were"
        skipped.append(
            f"{listed(not_in_file)} of {check.topic} {were} not compared: the input file lacks it."
        )
    if not check.outputs:
        skipped.append("No output was compared: none was declared.")
    skipped += [
        f"The number of records of each key of {output.topic} was not compared: no count was named."
        for output in check.outputs
        if isinstance(output.relation, Totals) and output.relation.count is None
    ]
    if check.up_to_position:
        skipped.append(
            f"Only what group {check.group_id} has consumed was judged: records behind its position, and transactions "
            "that are under way, were left out."
        )
    if check.group_id is None:
        skipped.append("No consumer's position was checked: no group was named.")
    return tuple(skipped)


def listed(names: Sequence[str]) -> str:
    """Names as a sentence has them."""
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def _record_checks(check: Declaration, *, has_input: bool) -> tuple[NamedCheck, ...]:
    unique = NamedCheck(
        name="record_ids_unique",
        section="Records",
        title=f"No two committed records share a {listed(check.record_id)}",
        noun="committed records",
        fault="with a repeated id",
        meaning="A row was committed more than once: its load was run again outside its transaction.",
        action="Look at the offsets shown to find both loads; give loads a run id and let them ask has_committed() "
        "before they write.",
        anomalies=(DUPLICATE,),
    )
    if not has_input:
        return (unique,)
    return (
        NamedCheck(
            name="input_ids_unique",
            section="Records",
            title=f"The input file names each {listed(check.record_id)} once",
            noun="input rows",
            fault="with a repeated id",
            meaning="The file itself repeats a row, so 'exactly once' has no meaning for it.",
            action="Mend the file at the lines shown, load it again and check again.",
        ),
        NamedCheck(
            name="no_input_row_missing",
            section="Records",
            title=f"Every row of the input file is committed in {check.topic}",
            noun="input rows",
            fault="missing",
            meaning="A load was lost or never ended: those rows were not committed.",
            action="Find the load of the lines shown with `txn-engine transactions list`; run it again under the same "
            "transactional id.",
            anomalies=(LOST,),
        ),
        NamedCheck(
            name="no_record_beyond_input",
            section="Records",
            title=f"Every record of {check.topic} is in the input file",
            noun="committed records",
            fault="not in the file",
            meaning="Something else wrote to the topic, or another file was loaded into it.",
            action="`txn-engine transactions describe-producers` names who writes to the partitions shown; check that "
            "the right file was given.",
            anomalies=(DUPLICATE,),
        ),
        unique,
        NamedCheck(
            name="row_values_equal",
            section="Records",
            title="Every record carries the values of its row in the file",
            noun="records",
            fault="different from their row",
            meaning="A value changed on its way: a conversion in the loader, or another version of the file.",
            action="Compare the columns shown; if they are right in the file, mend the loader and load again.",
        ),
    )


def _input_accounted(topic: str) -> NamedCheck:
    return NamedCheck(
        name=INPUT_ACCOUNTED,
        section="Records",
        title=f"Rows of the input file = records of {topic} + dead letters that wait",
        noun="input rows",
        fault="neither, or both",
        meaning="A row of the file was lost, or is there twice: as a record, as a dead letter, or as both.",
        action="Look at the rows that are missing or repeated; `txn-engine dead-letters list` counts the letters by "
        "reason. Give loads a run id, and their dead letters the same transaction.",
        anomalies=(LOST, DUPLICATE),
    )


def _accounted_check(name: str, topic: str, output: Output) -> NamedCheck:
    return NamedCheck(
        name=name,
        section="Outputs",
        title=f"Records of {topic} = records of {output.topic} + dead letters that wait",
        noun="records",
        fault="neither, or both",
        meaning="The consumer lost a record, or it is there twice: in the output, as a dead letter, or as both.",
        action="Compare the rows below; `txn-engine dead-letters list` counts the letters by reason. Let the consumer "
        "write output, letters and offsets in one transaction (`write_topic(dead_letter_topic=, offsets=)`).",
        anomalies=(LOST, DUPLICATE),
    )


def _chain_checks() -> tuple[NamedCheck, ...]:
    return (
        NamedCheck(
            name="digest_as_proved",
            section="Records",
            title="The records that earlier proofs have looked at are there as they were, by their digests",
            noun="partitions",
            fault="with other records than were proved",
            meaning="Records that were proved have changed, gone or come since, behind every check of then.",
            action="Run `txn-engine verify`. The proofs from the one shown on no longer hold: "
            "`txn-engine quality history` lists them.",
        ),
    )


def _output_check(name: str, check: Declaration, output: Output, *, has_input: bool) -> NamedCheck:
    source = "the input file" if has_input and is_of_input(check, output) else check.topic
    if output.dead_letter_topic is not None:
        source += ", less its dead letters"
    title, noun, fault = _said(output, source)
    return NamedCheck(
        name=name,
        section="Outputs",
        title=title,
        noun=noun,
        fault=fault,
        meaning="The consumer took a record twice, left one out, or wrote output apart from its offsets.",
        action="Compare the rows below; if no run of the consumer is open, rebuild the output from the group's "
        "first offset (`txn-engine groups reset-offsets`).",
        anomalies=(LOST, DUPLICATE),
    )


def _said(output: Output, source: str) -> tuple[str, str, str]:
    """Title, noun and fault."""
    relation, topic = output.relation, output.topic
    match relation:
        case Totals():
            counted = {None: [], RECORDS: ["number of records"]}.get(relation.count, [str(relation.count)])
            what, by = listed([*relation.sums, *counted]), listed(list(relation.by))
            return (
                f"Of each {by}, {what} in {topic} is what {source} comes to",
                "keys",
                "with another sum or count",
            )
        case LatestByKey():
            by = listed(list(relation.by))
            return (
                f"Of each {by}, {topic} has the values of its latest record in {source}",
                "keys",
                "with other values",
            )
        case SameSet():
            return f"{topic} holds the same distinct rows as {source}", "rows", "on one side only"
        case SameRows():
            return (
                f"{topic} holds the same rows as {source}, each as often",
                "rows",
                "not as often on both sides",
            )
        case SqlReduction():
            return (
                f"Both queries give the same rows, over {source} and over {topic}",
                "rows",
                "not as often on both sides",
            )


def _visibility_checks() -> tuple[NamedCheck, ...]:
    return (
        NamedCheck(
            name="nothing_aborted_visible",
            section="Visibility",
            title="No record that the raw entries call aborted is returned to read_committed",
            noun="visible records",
            fault="aborted",
            meaning="Readers see what its producer took back: the aborted index and the files disagree.",
            action="Stop the consumers of the topic; run `txn-engine verify` and read the partition's `log/` at the "
            "offsets shown.",
            anomalies=(ABORTED_READ,),
        ),
        NamedCheck(
            name="nothing_undecided_visible",
            section="Visibility",
            title="No record that the raw entries leave undecided is returned to read_committed",
            noun="visible records",
            fault="undecided",
            meaning="Readers see records whose transaction may still abort.",
            action="Stop the consumers of the topic; run `txn-engine verify`, then `txn-engine coordinator sweep`.",
            anomalies=(INTERMEDIATE_READ,),
        ),
        NamedCheck(
            name="hidden_records_explained",
            section="Visibility",
            title="Each record hidden from read_committed was aborted or is undecided by the raw entries",
            noun="hidden records",
            fault="without a reason",
            meaning="A committed record is withheld from readers; or the topic was written to during the check.",
            action="Run `txn-engine verify`; compare the partition's `log/` at the offsets shown with the aborted "
            "transactions of that partition.",
            anomalies=(LOST,),
        ),
        NamedCheck(
            name="files_as_replayed",
            section="Visibility",
            title="Readers are given the data files that are live by the raw entries, no other and none twice",
            noun="data files",
            fault="not the same on both sides",
            meaning="The engine's view of the log is not what its entries say: readers miss files, or get wrong ones.",
            action="Stop the consumers of the topic; run `txn-engine verify`; a snapshot may be at fault.",
            anomalies=(SKIP,),
        ),
        NamedCheck(
            name="records_as_named",
            section="Visibility",
            title="Each data file holds as many records, at such offsets, as its entry says",
            noun="data files",
            fault="with other records",
            meaning="A data file is not the one that was written.",
            action="Run `txn-engine verify`; restore the objects that it names from a copy.",
            anomalies=(LOST, DUPLICATE),
        ),
        NamedCheck(
            name="no_offset_twice",
            section="Visibility",
            title="No offset is returned twice",
            noun="visible records",
            fault="with a repeated offset",
            meaning="Two live data files cover the same offsets: a rewrite went wrong.",
            action="Stop compaction; run `txn-engine verify` and look at the `rewrite` entries of that partition.",
            anomalies=(DUPLICATE,),
        ),
        NamedCheck(
            name="offsets_ascend",
            section="Visibility",
            title="Records of a partition come in the order of their offsets",
            noun="visible records",
            fault="out of order",
            meaning="A scan lists its files out of order: readers that keep a position may skip records.",
            action="Run `txn-engine verify`; report the partition and offsets shown.",
            anomalies=(NON_MONOTONIC,),
        ),
    )


def _partition_checks() -> tuple[NamedCheck, ...]:
    return (
        NamedCheck(
            name="visible_records_counted",
            section="Visibility",
            title="read_committed returns as many records as a replay of the raw entries counts",
            noun="partitions",
            fault="with another number",
            meaning="Readers miss committed records, or see some that were aborted or replaced; or the topic was "
            "written to during the check.",
            action="Check again when nothing is writing; then stop the consumers of the topic and run "
            "`txn-engine verify`.",
            anomalies=(LOST, DUPLICATE),
        ),
        NamedCheck(
            name="lso_at_log_end",
            section="Offsets",
            title="The last stable offset, by a replay of the raw entries, is the log end in every partition",
            noun="partitions",
            fault="held back",
            meaning="A transaction is undecided, so read_committed readers wait in front of it.",
            action="Run `txn-engine coordinator sweep` and `coordinator markers`; if it stays, "
            "`txn-engine transactions find-hanging`.",
        ),
        NamedCheck(
            name="no_open_transaction",
            section="Offsets",
            title="No producer has a transaction open on a partition, by the engine and by a replay of the raw entries",
            noun="partitions",
            fault="with an open transaction",
            meaning="A producer is still writing, or died and was not swept yet.",
            action="Wait for the producer, or run `txn-engine coordinator sweep` once its timeout has passed.",
        ),
    )


def _group_checks(group: str) -> tuple[NamedCheck, ...]:
    return (
        NamedCheck(
            name="group_at_lso",
            section="Offsets",
            title=f"Group {group} has committed up to the last stable offset",
            noun="partitions",
            fault="not read to the end",
            meaning="The consumer has not processed everything, or committed past what it may read.",
            action="Run the consumer again (DAG `txn_spark_consume`), then check again; `txn-engine groups describe` "
            "shows its lag.",
        ),
        NamedCheck(
            name="group_lag_agrees",
            section="Offsets",
            title=f"The lag reported for group {group} is the one that a replay of the raw entries gives",
            noun="partitions",
            fault="with another lag",
            meaning="Alerts on this group's lag cannot be trusted, or the topic moved during the check.",
            action="Check again when nothing is writing; then compare `txn-engine groups describe` with the offsets "
            "below.",
        ),
        NamedCheck(
            name="nothing_pending",
            section="Offsets",
            title=f"No offset commit of group {group} is pending, by the engine and by a replay of the raw entries",
            noun="partitions",
            fault="with a pending commit",
            meaning="A run of the consumer is between its output and its commit, or died there.",
            action="Wait for the run, or run `txn-engine coordinator sweep` and `coordinator markers`.",
        ),
    )


def _history_checks(group: str, *, has_outputs: bool) -> tuple[NamedCheck, ...]:
    falls = NamedCheck(
        name="positions_never_fall",
        section="Offsets",
        title=f"No commit of group {group} moved its position back, by the raw rows of its log",
        noun="commits",
        fault="for an offset below the one before",
        meaning="Records were handed out again: two runs overlapped, or somebody sought back and committed.",
        action="Look whether the output holds those records twice. Who rebuilds it moves the group by `txn-engine "
        "groups reset-offsets`, which says that it is on purpose; only what comes after that is judged.",
        anomalies=(MOVED_BACK,),
    )
    carried = NamedCheck(
        name="output_with_offsets",
        section="Outputs",
        title=f"Every record of the outputs was committed in a transaction that moved group {group}",
        noun="records of outputs",
        fault="without the offsets they were made of",
        meaning="Somebody wrote output outside the consumer's transaction: a crash between the two would lose or "
        "double it.",
        action="`txn-engine transactions describe-producers` names who wrote at the offsets shown; let it send its "
        "offsets in the same transaction (`send_offsets_to_transaction`, `write_topic(offsets=)`).",
        anomalies=(WITHOUT_OFFSETS,),
    )
    return (falls, carried) if has_outputs else (falls,)


def _transaction_checks() -> tuple[NamedCheck, ...]:
    return (
        NamedCheck(
            name="transactions_final",
            section="Transactions",
            title="Every transaction on these topics has ended, by the engine and by a replay of the raw entries",
            noun="transactional ids",
            fault="not in a final state",
            meaning="A load or a consumer is under way, or died and nobody has ended its transaction yet.",
            action="`txn-engine transactions describe` shows it; `txn-engine coordinator sweep` and "
            "`coordinator markers` end it.",
        ),
    )


def _audit_checks() -> tuple[NamedCheck, ...]:
    return (
        NamedCheck(
            name="transactions_whole",
            section="Transactions",
            title="Every transaction shows in all of its partitions as its one decision says",
            noun="",
            fault="",
            meaning="Part of a transaction is visible, or shows otherwise than the coordinator decided it.",
            action="Stop the consumers; `txn-engine verify` names the transactional ids. Restore the logs from a copy.",
            anomalies=(TORN,),
        ),
        NamedCheck(
            name="producers_in_order",
            section="Transactions",
            title="Each producer's batches follow one another by epoch and sequence",
            noun="",
            fault="",
            meaning="A batch is missing, doubled, or stands behind one that was sent after it.",
            action="Stop the consumers; `txn-engine verify` names the offsets. Restore the logs from a copy.",
            anomalies=(REORDERED,),
        ),
        NamedCheck(
            name="audit_clean",
            section="Audit",
            title="A replay of the raw logs breaks no rule of the protocol",
            noun="",
            fault="",
            meaning="An entry, a data file or a snapshot is damaged or out of sequence.",
            action="Read the findings below; `txn-engine verify` gives them again with the object's keys. Restore the "
            "named objects from a copy.",
        ),
    )
