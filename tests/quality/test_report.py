"""The report's page is complete in itself, safe with whatever the data contains, and readable for
everybody."""

from __future__ import annotations

import itertools
import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from jinja2 import Environment

from tests.quality.ledger import CHECK, good_evidence, output_rows, report_evidence, with_payments
from txn_engine.quality import QualityResult
from txn_engine.quality.evidence import AuditFinding, Evidence, TransactionState
from txn_engine.quality.report import shown_url
from txn_engine.quality.report_files import made_folder

EVIL = "<script>alert(1)</script><img src=x onerror=alert(2)>\"'`"
VOID = {"meta", "link", "img", "br", "input", "hr", "path"}


class Outline(HTMLParser):
    """What these tests need of a page: its tags, links and text, and whether every tag is closed."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data

    def attributes(self, name: str) -> list[str]:
        return [str(attrs[name]) for _, attrs in self.tags if name in attrs]


def outline(page: Path) -> Outline:
    parsed = Outline()
    parsed.feed(page.read_text(encoding="utf-8"))
    parsed.close()
    return parsed


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> QualityResult:
    folder = tmp_path_factory.mktemp("good")
    return report_evidence(good_evidence(folder), report_folder=folder, run_name="nightly")


@pytest.fixture(scope="module")
def bad(tmp_path_factory: pytest.TempPathFactory) -> QualityResult:
    """A report with three kinds of trouble, and names from the data that try to break out of the page."""
    folder = tmp_path_factory.mktemp("bad")
    evidence: Evidence = good_evidence(folder)
    rows = [(1, "661.95", 3), (2, "1002.90", 3), (4, "5.00", 1)]
    evidence = replace(
        evidence,
        store=f"s3://key:secret@bucket/{EVIL}",
        rows={**evidence.rows, "balances": output_rows(rows)},
        transactions=(TransactionState(EVIL, "Ongoing"),),
        findings=(AuditFinding(f"error entry-damaged: {EVIL}"),),
        failures={"group": f"StoreUnavailableError: {EVIL}"},
    )
    table = evidence.rows["payments"].committed
    at = table.schema.get_field_index("bank")
    banks = table.set_column(at, "bank", pa.array([EVIL] * 8))
    return report_evidence(with_payments(evidence, committed=banks), report_folder=folder, run_name=EVIL)


def test_the_verdict_stands_first(good: QualityResult, bad: QualityResult) -> None:
    """The one h1 of the page says the verdict. The faults and what to do follow."""
    assert "Exactly once: proven" in outline(good.report).text
    text = outline(bad.report).text
    assert (
        text.index("Exactly once: not proven")
        < text.index("What is wrong, and what to do")
        < text.index("In numbers")
    )
    assert "What is wrong" not in outline(good.report).text


def test_a_report_is_its_owners(tmp_path: Path) -> None:
    """The report has cells of the data, so a new folder is closed to others, unless its parent has the setgid
    bit. Then the group can read it."""
    result = report_evidence(good_evidence(tmp_path), report_folder=tmp_path / "a" / "report", run_name="x")
    assert result.report.parent.stat().st_mode & 0o777 == 0o700
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o2770)
    assert made_folder(shared / "run", actor="x").stat().st_mode & 0o070 == 0o050
    assert made_folder(tmp_path / "new" / "run", actor="x").stat().st_mode & 0o777 == 0o700


def test_nothing_is_fetched_and_nothing_runs(good: QualityResult, bad: QualityResult) -> None:
    """The page has no script, style sheet, font or picture from elsewhere, and links only to files next to
    it."""
    for result in (good, bad):
        folder = result.report.parent
        for page in folder.rglob("*.html"):
            parsed = outline(page) if page == result.report else None
            text = page.read_text(encoding="utf-8")
            assert re.search(r"(src|href)\s*=\s*[\"']?(https?:)?//", text) is None, page
            assert re.search(r"<script|@import|url\(", text) is None, page
            assert "default-src 'none'" in text, page
            for link in parsed.attributes("href") if parsed else []:
                assert link.startswith("#") or (folder / link).is_file()


def test_links_between_the_data_docs_lead_somewhere(good: QualityResult) -> None:
    """The report and Great Expectations' own pages link to each other."""
    docs = good.report.parent / "data_docs"
    assert (docs / "index.html").is_file()
    for page in docs.rglob("*.html"):
        for link in re.findall(r'href="([^"#][^"]*)"', page.read_text(encoding="utf-8")):
            assert (page.parent / link).resolve().is_file(), (page, link)


def test_templates_are_compiled_once_a_process(
    good: QualityResult, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A second report in one process compiles no template, and has the same pages."""
    compiled: list[str | None] = []
    honest = Environment.compile

    def counted(self: Environment, source: Any, name: str | None = None, **others: Any) -> Any:
        compiled.append(name)
        return honest(self, source, name, **others)

    monkeypatch.setattr(Environment, "compile", counted)
    again = report_evidence(good_evidence(tmp_path), report_folder=tmp_path / "report", run_name="nightly")
    assert compiled == []
    pages = [[page.name for page in sorted(of.report.parent.rglob("*.html"))] for of in (good, again)]
    assert pages[0] == pages[1]
    assert "evidence-exactly-once.html" in pages[0]


def test_what_comes_from_data_is_escaped(bad: QualityResult) -> None:
    """Names, findings, URLs and values are shown as text. None of them becomes a tag or an attribute."""
    parsed = outline(bad.report)
    assert parsed.text.count("<script>alert(1)</script>") >= 4
    assert {tag for tag, _ in parsed.tags}.isdisjoint({"script", "img"})
    assert not [name for _, attrs in parsed.tags for name in attrs if name.startswith("on")]
    assert parsed.open == []


def test_secrets_of_the_url_are_not_shown(bad: QualityResult) -> None:
    """A password or key in the store's URL stays out of the report."""
    assert "secret" not in bad.report.read_text(encoding="utf-8")
    assert shown_url("s3://bucket/prefix?token=abc") == "s3://bucket/prefix"
    assert shown_url("file:///srv/ledger") == "file:///srv/ledger"
    assert shown_url("/srv/ledger") == "/srv/ledger"


def test_causes_stand_before_what_follows_from_them(bad: QualityResult) -> None:
    """Checks that could not be made and damage come before the sums that depend on them."""
    text = outline(bad.report).text
    order = [
        "3 checks could not be made",
        "1 rule broken",
        "1 of 1 transactional ids",
        "keys with another sum or count",
    ]
    places = [text.index(part) for part in order]
    assert places == sorted(places)


def test_differing_accounts_stand_first_with_their_difference(bad: QualityResult) -> None:
    """Accounts that disagree come before the large ones, with the difference exact to the cent."""
    text = outline(bad.report).text
    assert "2 of 4 keys disagree" in text
    accounts = text[text.index("turnover expected") :]
    assert "-90,071,992,547,409.92" in accounts
    assert "+5.00" in accounts
    assert accounts.index("-90,071,992,547,409.92") < accounts.index("661.95")


def test_every_check_is_in_the_table_with_its_status_in_words(
    good: QualityResult, bad: QualityResult
) -> None:
    """The table says each check's status in words, not by colour alone, with its name, meaning and what to
    do."""
    for result in (good, bad):
        text = outline(result.report).text
        for check in result.checks:
            assert check.name in text
            assert check.description in text
    text = outline(bad.report).text
    assert {"Passed", "Failed", "Not made"} <= set(re.findall(r"Passed|Failed|Not made", text))


def test_the_page_is_accessible(good: QualityResult, bad: QualityResult) -> None:
    """The page has a language, one h1, headings without gaps, captions and scopes in tables, and names for
    pictures."""
    for result in (good, bad):
        tags = outline(result.report).tags
        assert ("html", {"lang": "en"}) in tags
        ranks = [int(tag[1]) for tag, _ in tags if re.fullmatch(r"h[1-6]", tag)]
        assert ranks.count(1) == 1
        assert all(after - before <= 1 for before, after in itertools.pairwise(ranks))
        names = [tag for tag, _ in tags]
        assert names.count("table") == names.count("caption") >= 3
        assert all("scope" in attrs for tag, attrs in tags if tag == "th")
        pictures = [attrs for tag, attrs in tags if tag == "svg"]
        assert all(attrs.get("aria-hidden") == "true" or attrs.get("aria-label") for attrs in pictures)
        identifiers = outline(result.report).attributes("id")
        assert len(identifiers) == len(set(identifiers))
        assert set(outline(result.report).attributes("aria-labelledby")) <= set(identifiers)


def _luminance(colour: str) -> float:
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    red, green, blue = (
        part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts
    )
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def _contrast(one: str, other: str) -> float:
    low, high = sorted((_luminance(one), _luminance(other)))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("scheme", [0, 1], ids=["light", "dark"])
def test_text_stands_out_in_light_and_dark(scheme: int, good: QualityResult) -> None:
    """All text has a contrast of at least 4.5 to 1 with its background (WCAG AA)."""
    blocks = re.findall(r":root \{(.*?)\}", good.report.read_text(encoding="utf-8"), re.DOTALL)
    colours = dict(re.findall(r"--([a-z-]+): (#[0-9a-f]{6})", blocks[scheme]))
    pairs = [
        (ink, paper)
        for ink in ("ink", "soft", "link", "good", "bad", "error")
        for paper in ("paper", "sheet")
    ]
    pairs += [("good", "good-tint"), ("bad", "bad-tint"), ("error", "error-tint"), ("ink", "bad-tint")]
    weak = [(ink, paper) for ink, paper in pairs if _contrast(colours[ink], colours[paper]) < 4.5]
    assert weak == []
    assert all(_contrast("#ffffff", colours[banner]) >= 4.5 for banner in ("banner-good", "banner-bad"))
    assert all(_contrast(colours[bar], colours["paper"]) >= 1.5 for bar in ("committed", "aborted", "marker"))


def test_the_logs_are_drawn_to_scale(good: QualityResult) -> None:
    """Each partition's strip counts its committed, aborted and marker offsets, and marks the last stable offset."""
    text = " ".join(outline(good.report).text.split())
    assert "payments-0 4 committed 2 aborted 3 markers LSO 9, the log end" in text
    assert "payments-1 4 committed 0 aborted 2 markers LSO 6, the log end" in text
    assert "balances-0 5 committed 0 aborted 1 marker LSO 6, the log end" in text
    assert outline(good.report).attributes("style") == ["left: 100.0%"] * 3


def test_the_page_stays_small(tmp_path: Path) -> None:
    """The page draws sixty-four partitions and counts the others, and does not grow with the number of
    findings."""
    evidence = good_evidence(tmp_path)
    states = tuple(replace(evidence.partitions[0], partition=number) for number in range(100))
    many = replace(
        evidence,
        check=replace(CHECK, outputs=(), group_id=None),
        partitions=states,
        findings=tuple(AuditFinding(f"error number {number}") for number in range(900)),
        findings_not_listed=100,
    )
    result = report_evidence(many, report_folder=tmp_path)
    text = outline(result.report).text
    assert "36 more partitions are not drawn" in text
    assert "950 more" in text
    assert "1,000 rules broken" in text
    assert result.report.stat().st_size < 300_000
