"""Code and pages refer only to existing sections, tables, headings, files and tests of this repository."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

from tests.support.servers import REPOSITORY

DOCS = REPOSITORY / "docs"
_SECTION = re.compile(r"PROTOCOL\.md,\s+section (\d)")
_TABLE = re.compile(r"KAFKA\.md, \"([^\"]+)\"")
_LINK = re.compile(r"\]\(([^)\s]+)\)")
_OUTSIDE = re.compile(r"\.\./shared|kafka-rules\.md|\(protocol, section")


def tracked(*patterns: str) -> list[Path]:
    """The files that git knows, so that files which set-up unpacks are not read."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", *patterns],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=True,
    )
    return [REPOSITORY / line for line in listed.stdout.splitlines() if (REPOSITORY / line).exists()]


def anchors(page: Path) -> set[str]:
    """The headings of a page, as links name them."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_sections_that_the_code_cites() -> None:
    """`PROTOCOL.md, section 6` and `KAFKA.md, "Sequences"` can be looked up."""
    sections = set(
        re.findall(r"^## (\d)\. ", (DOCS / "PROTOCOL.md").read_text(encoding="utf-8"), re.MULTILINE)
    )
    kafka = (DOCS / "KAFKA.md").read_text(encoding="utf-8")
    cited = 0
    for path in tracked("*.py"):
        text = re.sub(r"\n\s*", " ", path.read_text(encoding="utf-8"))
        for section in _SECTION.findall(text):
            cited += 1
            assert section in sections, path
        for table in _TABLE.findall(text):
            cited += 1
            assert f"**{table}" in kafka, path
    assert cited > 20


def test_links() -> None:
    """Each link of a page leads to a file of the repository, and to a heading in that file."""
    broken = []
    for page in tracked("*.md"):
        for target in _LINK.findall(page.read_text(encoding="utf-8")):
            path, _, anchor = target.partition("#")
            file = (page.parent / path).resolve() if path else page
            if re.match(r"[a-z]+:", target) or (file.exists() and (not anchor or anchor in anchors(file))):
                continue
            broken.append(f"{page.relative_to(REPOSITORY)}: {target}")
    assert broken == []


def test_nothing_is_cited_that_a_reader_cannot_have() -> None:
    """Pages and shipped code cite no design document outside the repository."""
    pages = tracked("*.md", "txn_engine/*.py", "storage/*.py", "plugins/*.py", "dags/*.py")
    found = [page for page in pages if _OUTSIDE.search(page.read_text(encoding="utf-8"))]
    found = [page for page in found if page.name != "CONTRIBUTING.md"]  # says where test data may stand
    assert not found


def test_the_tests_that_pages_name_are_there() -> None:
    """Each `tests/.../test_x.py::test_y` that a page names is a test. SECURITY.md names most of them."""
    named = 0
    for page in tracked("*.md"):
        for file, test in re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", page.read_text(encoding="utf-8")):
            named += 1
            assert f"def {test}(" in (REPOSITORY / file).read_text(encoding="utf-8"), f"{page.name}: {test}"
    assert named > 20


def test_lines_wrap() -> None:
    """Prose wraps at 120 columns. Rows of tables, code blocks and links on lines of their own may be longer."""
    too_long = []
    for page in tracked("*.md"):
        in_code = False
        for number, line in enumerate(page.read_text(encoding="utf-8").splitlines(), start=1):
            if line.lstrip().startswith("```"):
                in_code = not in_code
            if not in_code and not line.startswith(("|", "    ", "[", "!")) and len(line) > 120:
                too_long.append(f"{page.relative_to(REPOSITORY)}:{number}")
    assert too_long == []
