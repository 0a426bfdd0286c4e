"""The page a person on call opens: one file, no scripts, nothing fetched, readable in half a minute."""

from __future__ import annotations

import datetime as dt
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from decimal import Decimal, localcontext
from urllib.parse import urlsplit, urlunsplit

import pyarrow as pa

from txn_engine.quality.anomalies import MEANINGS
from txn_engine.quality.canonical import column_text
from txn_engine.quality.declaration import Totals
from txn_engine.quality.evidence import AsOf, Evidence, EvidenceMissingError
from txn_engine.quality.log_strip import HEIGHT, WIDTH, LogStrip, draw_topic
from txn_engine.quality.page_templates import templates
from txn_engine.quality.proof import Proof
from txn_engine.quality.records import Compared, Reductions
from txn_engine.quality.relations import IN_OUTPUT, IN_TOPIC
from txn_engine.quality.result import CheckResult
from txn_engine.quality.suite import INPUT_ACCOUNTED, SECTIONS, SUITES, accounted_checks, output_checks
from txn_engine.quality.visibility import hidden_files

FINDINGS_MAX = 50
PARTITIONS_MAX = 64
_PLACES_NAMED = 20


@dataclass(frozen=True, slots=True)
class Headline:
    """One number at the top of the page."""

    label: str
    value: str
    note: str = ""


@dataclass(frozen=True, slots=True)
class Trouble:
    """What is wrong: a check that failed, or all those that could not be made for one reason.

    `anomalies`: names and meanings of those that it may be a sign of.
    """

    status: str
    titles: tuple[str, ...]
    names: tuple[str, ...]
    seen: str
    meaning: str
    action: str
    examples: tuple[Mapping[str, str], ...]
    anomalies: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class LeftOut:
    """The checks that do not apply for one reason, and the one sentence of what to do that holds for all."""

    why: str
    titles: tuple[str, ...]
    action: str


@dataclass(frozen=True, slots=True)
class OutputLine:
    """One key of an output: its cells in the order of the table's columns, and whether both sides agree."""

    key: str
    cells: tuple[str, ...]
    agrees: bool


@dataclass(frozen=True, slots=True)
class OutputTable:
    """An output's totals as the page shows them."""

    topic: str
    note: str
    columns: tuple[str, ...]
    lines: tuple[OutputLine, ...]


@dataclass(frozen=True, slots=True)
class Page:
    """Everything the template prints; it computes nothing itself."""

    success: bool
    verdict: str
    lede: str
    facts: tuple[tuple[str, str], ...]
    headlines: tuple[Headline, ...]
    troubles: tuple[Trouble, ...]
    left_out: tuple[LeftOut, ...]
    sections: tuple[tuple[str, tuple[CheckResult, ...]], ...]
    strips: tuple[LogStrip, ...]
    strips_left_out: int
    outputs: tuple[OutputTable, ...]
    transactions: tuple[tuple[str, int], ...]
    findings: tuple[str, ...]
    findings_left_out: int
    audit_note: str
    skipped: tuple[str, ...]
    compared: str
    evidence_json: str
    data_docs: str


def render(page: Page) -> str:
    """The page as one HTML document; everything that comes from data is escaped."""
    return templates().get_template("report.html.j2").render(page=page, width=WIDTH, height=HEIGHT)


def make_page(
    evidence: Evidence,
    checks: Sequence[CheckResult],
    reductions: Reductions,
    *,
    run_name: str,
    proof: Proof | None,
    seconds: float,
    skipped: tuple[str, ...],
    evidence_json: str,
    data_docs: str,
) -> Page:
    """What the page says of this evidence and these results."""
    counts: Counter[str] = Counter(check.status for check in checks)
    success = not counts["failed"] and not counts["errored"]
    compared = _outputs(evidence, checks, reductions)
    strips, left_out = _strips(evidence)
    return Page(
        success=success,
        verdict=_verdict(checks),
        lede=_lede(checks, counts),
        facts=_facts(evidence, run_name, proof, seconds),
        headlines=_accounts(evidence, checks) + _headlines(evidence, compared, counts, len(checks)),
        troubles=_troubles(checks),
        left_out=_left_out(checks),
        sections=_sections(checks),
        strips=strips,
        strips_left_out=left_out,
        outputs=tuple(_output_table(each) for each in compared),
        transactions=tuple(sorted(Counter(state.state for state in evidence.transactions).items())),
        findings=tuple(finding.text for finding in evidence.findings[:FINDINGS_MAX]),
        findings_left_out=max(len(evidence.findings) - FINDINGS_MAX, 0) + evidence.findings_not_listed,
        audit_note=_audit_note(evidence),
        skipped=skipped,
        compared=_compared(evidence),
        evidence_json=evidence_json,
        data_docs=data_docs,
    )


def shown_url(url: str) -> str:
    """A store's URL without a password or a query, which may hold a key."""
    parts = urlsplit(url)
    host = parts.netloc.rpartition("@")[2]
    return urlunsplit((parts.scheme, host, parts.path, "", "")) if parts.scheme else url


def visible_records(evidence: Evidence, topic: str) -> int | None:
    """How many records read_committed returns; None where the topic could not be read."""
    rows = evidence.rows.get(topic)
    return None if rows is None else rows.records


def hidden_records(evidence: Evidence, topic: str, reason: str) -> int | None:
    """How many records read_committed withholds for this reason; None where topic or log could not be read."""
    rows = evidence.rows.get(topic)
    if rows is None or rows.hidden is None:
        return None
    try:
        hidden = hidden_files(evidence, topic)
    except EvidenceMissingError:
        return None
    return sum(file.records for files in hidden.values() for file, why in files if why == reason)


def _verdict(checks: Sequence[CheckResult]) -> str:
    own = Counter(check.status for check in checks if check.section != SUITES)
    suites = Counter(check.status for check in checks if check.section == SUITES)
    proven = "Exactly once: proven" + (" for what is still there" if own["not_applicable"] else "")
    if own["failed"] or own["errored"]:
        proven = "Exactly once: not proven"
    return proven + ("; your suites: red" if suites["failed"] or suites["errored"] else "")


def _lede(checks: Sequence[CheckResult], counts: Mapping[str, int]) -> str:
    total, unmade = len(checks), counts["not_applicable"]
    if counts["passed"] == total:
        return f"All {total} checks passed."
    warned = counts["warning"]
    warnings = f"{warned} warning{'s' if warned != 1 else ''}"
    if counts["passed"] + warned == total:
        return f"{counts['passed']} of {total} checks passed, {warnings}."
    if counts["passed"] + unmade == total:
        why = "; ".join(left.why for left in _left_out(checks))
        passed = f"{counts['passed']} of {total} checks passed"
        return f"{passed}; {unmade} {'does' if unmade == 1 else 'do'} not apply, since {why}."
    parts = []
    if counts["failed"]:
        parts.append(f"{counts['failed']} of {total} checks failed")
    if counts["errored"]:
        parts.append(f"{counts['errored']} of {total} could not be made")
    also = f", {unmade} {'does' if unmade == 1 else 'do'} not apply" if unmade else ""
    also += f", {warnings}" if warned else ""
    return f"{' and '.join(parts)}; {counts['passed']} passed{also}."


def _facts(
    evidence: Evidence, run_name: str, proof: Proof | None, seconds: float
) -> tuple[tuple[str, str], ...]:
    check = evidence.check
    facts = [("Run", run_name), ("Topic", check.topic)]
    if check.outputs:
        facts.append(("Output", ", ".join(check.output_topics)))
    if check.dead_letter_topics:
        facts.append(("Dead letters", ", ".join(check.dead_letter_topics)))
    if check.group_id is not None:
        facts.append(("Group", check.group_id))
    facts.append(("Store", shown_url(evidence.store)))
    if evidence.as_of is not None:
        facts.append(("As of", f"{_cut_named(evidence.as_of)}, made {_when(evidence.as_of.created_ms)}"))
    facts.append(("Input file", "none given" if evidence.input is None else str(evidence.input.path)))
    if proof is not None:
        facts.append(("Proof", f"{proof.number}: {proof.scope}"))
    facts.append(("When", f"{_when(evidence.gathered_ms)}, in {seconds:.1f} s"))
    return tuple(facts)


def _cut_named(as_of: AsOf) -> str:
    if as_of.is_kept:
        return f"cut {as_of.cut}"
    named = [f"{place} up to {offset:,}" for place, offset in as_of.offsets.items()]
    more = f" and {len(named) - _PLACES_NAMED:,} more partitions" if len(named) > _PLACES_NAMED else ""
    return f"a cut of this run: {', '.join(named[:_PLACES_NAMED])}{more}"


def _when(time_ms: int) -> str:
    return f"{dt.datetime.fromtimestamp(time_ms / 1000, dt.UTC):%d %b %Y, %H:%M:%S} UTC"


def _headlines(
    evidence: Evidence, compared: Sequence[Compared], counts: Mapping[str, int], total: int
) -> tuple[Headline, ...]:
    check = evidence.check
    lines = []
    if evidence.input is not None:
        lines.append(Headline("Rows in the file", _number(evidence.input.count)))
    lines.append(
        Headline("Records committed", _number(visible_records(evidence, check.topic)), "visible to readers")
    )
    aborted = hidden_records(evidence, check.topic, "aborted")
    lines.append(Headline("Records aborted", _number(aborted), "hidden from readers"))
    if evidence.partitions:
        ended = sum(state.last_stable_offset == state.high_watermark for state in evidence.partitions)
        lines.append(
            Headline("Partitions decided", _number(ended), f"of {len(evidence.partitions):,} to the log end")
        )
    if any(each.rows for each in compared):
        agreeing, rows = sum(each.rows - each.wrong for each in compared), sum(each.rows for each in compared)
        lines.append(Headline("Output agreeing", _number(agreeing), f"of {rows:,} keys or rows"))
    applying = total - counts["not_applicable"]
    of = f"of {total}" if applying == total else f"of {applying} that apply"
    lines.append(Headline("Checks passed", _number(counts["passed"]), of))
    return tuple(lines)


def _accounts(evidence: Evidence, checks: Sequence[CheckResult]) -> tuple[Headline, ...]:
    """Input = output + dead letters, of each topic that has some: the three numbers beside one another."""
    sides = {name: (evidence.check.topic, each.topic) for name, each in accounted_checks(evidence.check)}
    sides[INPUT_ACCOUNTED] = ("the file", evidence.check.topic)
    lines = []
    for check in checks:
        if check.name in sides and check.account is not None:
            source, target = sides[check.name]
            sign = "=" if check.status == "passed" else "\u2260"
            lines += [
                Headline("Input", _number(check.account.rows), f"of {source}"),
                Headline("Output", f"{sign} {_number(check.account.records)}", f"of {target}"),
                Headline("Dead letters", f"+ {_number(check.account.dead_letters)}", "that wait"),
            ]
    return tuple(lines)


def _number(value: int | None) -> str:
    return "not known" if value is None else f"{value:,}"


def _troubles(checks: Sequence[CheckResult]) -> tuple[Trouble, ...]:
    """Causes first: damage, what could not be looked at, then open transactions, then what follows from them."""
    by_reason: dict[str, list[CheckResult]] = {}
    for check in sorted(checks, key=lambda check: _CAUSES_FIRST.index(check.section)):
        if check.status in ("failed", "errored", "warning"):
            reason = check.detail if check.status == "errored" else check.name
            by_reason.setdefault(reason, []).append(check)
    troubles = [
        Trouble(
            status=members[0].status,
            titles=tuple(check.description for check in members),
            names=tuple(check.name for check in members),
            seen=reason if members[0].status == "errored" else _seen(members[0]),
            meaning=members[0].meaning,
            action=members[0].action,
            examples=members[0].examples,
            anomalies=tuple((name, MEANINGS[name]) for name in members[0].anomalies),
        )
        for reason, members in by_reason.items()
    ]
    return tuple(sorted(troubles, key=lambda trouble: _WORST_FIRST.index(trouble.status)))


def _seen(check: CheckResult) -> str:
    return f"{check.name}: {check.observed}" if check.section == SUITES else check.observed


def _left_out(checks: Sequence[CheckResult]) -> tuple[LeftOut, ...]:
    by_reason: dict[str, list[CheckResult]] = {}
    for check in checks:
        if check.status == "not_applicable":
            by_reason.setdefault(check.detail, []).append(check)
    return tuple(
        LeftOut(why, tuple(check.description for check in members), members[0].action)
        for why, members in by_reason.items()
    )


_CAUSES_FIRST = ("Audit", "Transactions", "Offsets", "Visibility", "Records", "Outputs", SUITES)
_WORST_FIRST = ("errored", "failed", "warning")


def _sections(checks: Sequence[CheckResult]) -> tuple[tuple[str, tuple[CheckResult, ...]], ...]:
    sections = ((name, tuple(check for check in checks if check.section == name)) for name in SECTIONS)
    return tuple((name, members) for name, members in sections if members)


def _strips(evidence: Evidence) -> tuple[tuple[LogStrip, ...], int]:
    strips: list[LogStrip] = []
    for topic in evidence.check.topics:
        if topic in evidence.rows:
            states = [state for state in evidence.partitions if state.topic == topic]
            with suppress(
                EvidenceMissingError
            ):  # without the raw entries nobody can say why a record is hidden
                strips += draw_topic(states, evidence.rows[topic], hidden_files(evidence, topic))
    return tuple(strips[:PARTITIONS_MAX]), max(len(strips) - PARTITIONS_MAX, 0)


def _outputs(
    evidence: Evidence, checks: Sequence[CheckResult], reductions: Reductions
) -> tuple[Compared, ...]:
    """Those that could be compared, and say something."""
    made = {check.name for check in checks if check.status in ("passed", "failed")}
    return tuple(
        reductions.compared(name, output) for name, output in output_checks(evidence.check) if name in made
    )


def _output_table(compared: Compared) -> OutputTable:
    """Of totals the keys that disagree first, then the largest; of other relations the rows that differ."""
    values = compared.sides.values
    if not isinstance(compared.output.relation, Totals) or compared.largest is None:
        columns: tuple[str, ...] = ("Row", "in the topic", "in the output")
        lines = tuple(_row_line(row, compared) for row in _cells(compared.differing))
        note = _note(compared, len(lines), "rows differ", "rows are the same")
        return OutputTable(compared.output.topic, note, columns, lines)
    columns = (
        ", ".join(compared.sides.keys),
        *(
            f"{name.removeprefix('_')} {side}"
            for name in values
            for side in ("expected", "in the output", "difference")
        ),
    )
    wrong = tuple(_key_line(row, compared, agrees=False) for row in _cells(compared.differing))
    largest = tuple(_key_line(row, compared, agrees=True) for row in _cells(compared.largest))
    note = _note(compared, len(wrong), "keys disagree", "keys agree")
    return OutputTable(
        compared.output.topic,
        f"{note} The largest follow." if largest else note,
        columns,
        (*wrong, *largest),
    )


def _note(compared: Compared, shown: int, unlike: str, alike: str) -> str:
    if not compared.rows:
        return "There is nothing to compare on either side."
    if not compared.wrong:
        return f"All {compared.rows:,} {alike}."
    return f"{compared.wrong:,} of {compared.rows:,} {unlike}; {shown} of them stand first."


def _cells(rows: pa.Table) -> list[Mapping[str, str]]:
    texts = (
        {name: column_text(rows.column(name)).to_pylist() for name in rows.column_names}
        if rows.num_rows
        else {}
    )
    return [{name: values[at] for name, values in texts.items()} for at in range(rows.num_rows)]


def _key_line(row: Mapping[str, str], compared: Compared, *, agrees: bool) -> OutputLine:
    cells: list[str] = []
    for name in compared.sides.values:
        sides = [Decimal(row[name if agrees else f"{side}_{name}"]) for side in (IN_TOPIC, IN_OUTPUT)]
        with localcontext() as context:
            context.prec = 80
            difference = sides[1] - sides[0]
        cells += [f"{side:,f}" for side in sides]
        cells.append(("+" if difference > 0 else "") + f"{difference:,f}")
    return OutputLine(_key_of(row, compared), tuple(cells), agrees)


def _row_line(row: Mapping[str, str], compared: Compared) -> OutputLine:
    shown = ", ".join(
        f"{name.removeprefix('_')} {row[name] or '(nothing)'}" for name in compared.sides.columns
    )
    return OutputLine(shown, (row[IN_TOPIC], row[IN_OUTPUT]), agrees=False)


def _key_of(row: Mapping[str, str], compared: Compared) -> str:
    return ", ".join(row[name] or "(none)" for name in compared.sides.keys)


def _audit_note(evidence: Evidence) -> str:
    if "audit" in evidence.failures:
        return f"The audit could not be made: {evidence.failures['audit']}"
    if any(rows.since for rows in evidence.rows.values()):
        topics = ", ".join(evidence.check.topics)
        return (
            f"The audit replayed the logs of {topics}, of the groups and of the transactions, and found nothing."
            " The line Proof says which data files it read, and from which proof it took over the others."
        )
    return "The audit replayed the whole store and found nothing."


def _compared(evidence: Evidence) -> str:
    """Which columns of the file and the topic were compared, and which only one of them has."""
    if evidence.input is None or evidence.check.topic not in evidence.rows:
        return ""
    both = evidence.input.compared
    ours = evidence.rows[evidence.check.topic].schema.names
    text = f"Compared column by column: {', '.join(both)}."
    if alone := [name for name in evidence.input.columns if name not in both]:
        text += f" Only in the file: {', '.join(alone)}."
    if alone := [name for name in ours if name not in both]:
        text += f" Only in the topic: {', '.join(alone)}."
    return text
