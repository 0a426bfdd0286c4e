"""The page a person on call opens: one file, no scripts, nothing fetched, readable in half a minute."""

from __future__ import annotations

import datetime as dt
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import pyarrow as pa

from txn_engine.quality.accounts import Account, Accounts, accounts
from txn_engine.quality.check import ExactlyOnceCheck
from txn_engine.quality.evidence import Evidence, EvidenceMissingError
from txn_engine.quality.log_strip import HEIGHT, WIDTH, LogStrip, draw_topic
from txn_engine.quality.money import text_of_unscaled
from txn_engine.quality.records import compared_columns
from txn_engine.quality.result import CheckResult
from txn_engine.quality.suite import SECTIONS
from txn_engine.quality.visibility import hidden_offsets

ACCOUNTS_MAX = 20
FINDINGS_MAX = 50
PARTITIONS_MAX = 64


@dataclass(frozen=True, slots=True)
class Headline:
    """One number at the top of the page."""

    label: str
    value: str
    note: str = ""


@dataclass(frozen=True, slots=True)
class Trouble:
    """What is wrong: a check that failed, or all those that could not be made for one reason."""

    status: str
    titles: tuple[str, ...]
    names: tuple[str, ...]
    seen: str
    meaning: str
    action: str
    examples: tuple[Mapping[str, str], ...]


@dataclass(frozen=True, slots=True)
class LeftOut:
    """The checks that do not apply for one reason, and the one sentence of what to do that holds for all."""

    why: str
    titles: tuple[str, ...]
    action: str


@dataclass(frozen=True, slots=True)
class AccountLine:
    """One account as the page shows it."""

    account: str
    expected_turnover: str
    output_turnover: str
    expected_payments: str
    output_payments: str
    difference: str
    agrees: bool


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
    accounts: tuple[AccountLine, ...]
    accounts_note: str
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
    import jinja2

    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("txn_engine.quality", "pages"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["coded"] = _coded
    return environment.get_template("report.html.j2").render(page=page, width=WIDTH, height=HEIGHT)


def _coded(text: str) -> Any:
    """Escaped text whose `backticks` are set as code."""
    from markupsafe import Markup, escape

    parts = text.split("`")
    return Markup("").join(
        Markup("<code>{}</code>").format(part) if place % 2 else escape(part)
        for place, part in enumerate(parts)
    )


def make_page(
    evidence: Evidence,
    checks: Sequence[CheckResult],
    *,
    run_name: str,
    seconds: float,
    skipped: tuple[str, ...],
    evidence_json: str,
    data_docs: str,
) -> Page:
    """What the page says of this evidence and these results."""
    counts: Counter[str] = Counter(check.status for check in checks)
    success = counts["passed"] + counts["not_applicable"] == len(checks)
    sums = _account_sums(evidence, checks)
    lines, note = _accounts(sums)
    strips, left_out = _strips(evidence)
    return Page(
        success=success,
        verdict=_verdict(counts, success=success),
        lede=_lede(checks, counts),
        facts=_facts(evidence, run_name, seconds),
        headlines=_headlines(evidence, sums, counts, len(checks)),
        troubles=_troubles(checks),
        left_out=_left_out(checks),
        sections=_sections(checks),
        strips=strips,
        strips_left_out=left_out,
        accounts=lines,
        accounts_note=note,
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
    """How many records read_committed returned; None where the topic could not be read."""
    rows = evidence.rows.get(topic)
    return None if rows is None else rows.committed.num_rows


def hidden_records(evidence: Evidence, topic: str, reason: str) -> int | None:
    """How many records read_committed withheld for this reason; None where topic or log could not be read."""
    rows = evidence.rows.get(topic)
    if rows is None or rows.logged is None:
        return None
    try:
        hidden = hidden_offsets(evidence, topic)
    except EvidenceMissingError:
        return None
    return sum(int((reasons == reason).sum()) for _, reasons in hidden.values())


def _verdict(counts: Mapping[str, int], *, success: bool) -> str:
    if not success:
        return "Exactly once: not proven"
    return "Exactly once: proven" + (" for what is still there" if counts["not_applicable"] else "")


def _lede(checks: Sequence[CheckResult], counts: Mapping[str, int]) -> str:
    total, unmade = len(checks), counts["not_applicable"]
    if counts["passed"] == total:
        return f"All {total} checks passed."
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
    return f"{' and '.join(parts)}; {counts['passed']} passed{also}."


def _facts(evidence: Evidence, run_name: str, seconds: float) -> tuple[tuple[str, str], ...]:
    check = evidence.check
    when = dt.datetime.fromtimestamp(evidence.gathered_ms / 1000, dt.UTC)
    facts = [("Run", run_name), ("Topic", check.topic)]
    if check.output_topic is not None:
        facts.append(("Output", check.output_topic))
    if check.group_id is not None:
        facts.append(("Group", check.group_id))
    facts.append(("Store", shown_url(evidence.store)))
    facts.append(("Input file", "none given" if evidence.input is None else str(evidence.input.path)))
    facts.append(("When", f"{when:%d %b %Y, %H:%M:%S} UTC, in {seconds:.1f} s"))
    return tuple(facts)


def _headlines(
    evidence: Evidence, sums: Accounts | None, counts: Mapping[str, int], total: int
) -> tuple[Headline, ...]:
    check = evidence.check
    lines = []
    if evidence.input is not None:
        lines.append(Headline("Rows in the file", _number(len(evidence.input.lines))))
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
    if sums is not None:
        agreeing = sum(account.agrees for account in sums.rows)
        lines.append(Headline("Accounts agreeing", _number(agreeing), f"of {len(sums.rows):,}"))
    applying = total - counts["not_applicable"]
    of = f"of {total}" if applying == total else f"of {applying} that apply"
    lines.append(Headline("Checks passed", _number(counts["passed"]), of))
    return tuple(lines)


def _number(value: int | None) -> str:
    return "not known" if value is None else f"{value:,}"


def _troubles(checks: Sequence[CheckResult]) -> tuple[Trouble, ...]:
    """Causes first: damage, what could not be looked at, then open transactions, then what follows from them."""
    by_reason: dict[str, list[CheckResult]] = {}
    for check in sorted(checks, key=lambda check: _CAUSES_FIRST.index(check.section)):
        if check.status in ("failed", "errored"):
            reason = check.detail if check.status == "errored" else check.name
            by_reason.setdefault(reason, []).append(check)
    troubles = [
        Trouble(
            status=members[0].status,
            titles=tuple(check.description for check in members),
            names=tuple(check.name for check in members),
            seen=reason if members[0].status == "errored" else members[0].observed,
            meaning=members[0].meaning,
            action=members[0].action,
            examples=members[0].examples,
        )
        for reason, members in by_reason.items()
    ]
    return tuple(sorted(troubles, key=lambda trouble: trouble.status != "errored"))


def _left_out(checks: Sequence[CheckResult]) -> tuple[LeftOut, ...]:
    by_reason: dict[str, list[CheckResult]] = {}
    for check in checks:
        if check.status == "not_applicable":
            by_reason.setdefault(check.detail, []).append(check)
    return tuple(
        LeftOut(why, tuple(check.description for check in members), members[0].action)
        for why, members in by_reason.items()
    )


_CAUSES_FIRST = ("Audit", "Transactions", "Offsets", "Visibility", "Records", "Accounts")


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
                strips += draw_topic(states, evidence.rows[topic], hidden_offsets(evidence, topic))
    return tuple(strips[:PARTITIONS_MAX]), max(len(strips) - PARTITIONS_MAX, 0)


def _accounts(table: Accounts | None) -> tuple[tuple[AccountLine, ...], str]:
    """The accounts that disagree first, then the largest; at most 20 of each."""
    if table is None:
        return (), ""
    wrong = [account for account in table.rows if not account.agrees]
    by_size = sorted(table.rows, key=lambda account: (-abs(account.expected_turnover), account.account))
    largest = [account for account in by_size if account.agrees][:ACCOUNTS_MAX]
    lines = tuple(_account_line(account, table.scale) for account in (*wrong[:ACCOUNTS_MAX], *largest))
    total = f"{len(table.rows):,}"
    if not wrong:
        return lines, f"All {total} accounts agree; the {len(largest)} with the largest turnover are shown."
    shown = min(len(wrong), ACCOUNTS_MAX)
    return (
        lines,
        f"{len(wrong):,} of {total} accounts disagree; {shown} of them stand first, then the largest.",
    )


def _account_sums(evidence: Evidence, checks: Sequence[CheckResult]) -> Accounts | None:
    """None where they could not be had, or say nothing."""
    if any(check.section == "Accounts" and check.status == "not_applicable" for check in checks):
        return None
    try:
        return accounts(evidence)
    except EvidenceMissingError:
        return None


def _account_line(account: Account, scale: int) -> AccountLine:
    difference = account.output_turnover - account.expected_turnover
    return AccountLine(
        account.account or "(none)",
        text_of_unscaled(account.expected_turnover, scale, grouped=True),
        text_of_unscaled(account.output_turnover, scale, grouped=True),
        f"{account.expected_payments:,}",
        f"{account.output_payments:,}",
        ("+" if difference > 0 else "") + text_of_unscaled(difference, scale, grouped=True),
        account.agrees,
    )


def _audit_note(evidence: Evidence) -> str:
    if "audit" in evidence.failures:
        return f"The audit could not be made: {evidence.failures['audit']}"
    return "The audit replayed the whole store and found nothing."


def _compared(evidence: Evidence) -> str:
    """Which columns of the file and the topic were compared, and which only one of them has."""
    if evidence.input is None or evidence.check.topic not in evidence.rows:
        return ""
    both = compared_columns(evidence)
    ours = _own_columns(evidence.rows[evidence.check.topic].committed, evidence.check)
    text = f"Compared column by column: {', '.join(both)}."
    if alone := [name for name in evidence.input.columns if name not in both]:
        text += f" Only in the file: {', '.join(alone)}."
    if alone := [name for name in ours if name not in both]:
        text += f" Only in the topic: {', '.join(alone)}."
    return text


def _own_columns(table: pa.Table, check: ExactlyOnceCheck) -> list[Any]:
    return [name for name in table.schema.names if not name.startswith("_") or name in check.topic_columns]
