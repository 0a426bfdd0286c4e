"""What code and pages refer to is there: a section, a table, a heading, a file of this repository."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from tests.servers import REPOSITORY

DOCS = REPOSITORY / "docs"
_SECTION = re.compile(r"PROTOCOL\.md,\s+section (\d)")
_TABLE = re.compile(r"KAFKA\.md, \"([^\"]+)\"")
_LINK = re.compile(r"\]\(([^)\s]+)\)")
_OUTSIDE = re.compile(r"\.\./shared|kafka-rules\.md|\(protocol, section")


def tracked(*patterns: str) -> list[Path]:
    """Files that git knows, so that what set-up unpacks is not read."""
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


@pytest.mark.parametrize("page", tracked("*.md"), ids=lambda page: str(page.relative_to(REPOSITORY)))
def test_links(page: Path) -> None:
    """A link leads to a file of the repository, and to a heading in it."""
    for target in _LINK.findall(page.read_text(encoding="utf-8")):
        if re.match(r"[a-z]+:", target):
            continue
        path, _, anchor = target.partition("#")
        file = (page.parent / path).resolve() if path else page
        assert file.exists(), target
        assert not anchor or anchor in anchors(file), target


def test_nothing_is_cited_that_a_reader_cannot_have() -> None:
    """Pages and shipping code name no design that stands outside of the repository."""
    pages = tracked("*.md", "txn_engine/*.py", "storage/*.py", "plugins/*.py", "dags/*.py")
    found = [page for page in pages if _OUTSIDE.search(page.read_text(encoding="utf-8"))]
    found = [page for page in found if page.name != "CONTRIBUTING.md"]  # says where test data may stand
    assert not found


def test_the_tests_that_pages_name_are_there() -> None:
    """`tests/.../test_x.py::test_y` of a page is a test: SECURITY.md has one a line."""
    named = 0
    for page in tracked("*.md"):
        for file, test in re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", page.read_text(encoding="utf-8")):
            named += 1
            assert f"def {test}(" in (REPOSITORY / file).read_text(encoding="utf-8"), f"{page.name}: {test}"
    assert named > 20


@pytest.mark.parametrize("page", tracked("*.md"), ids=lambda page: str(page.relative_to(REPOSITORY)))
def test_lines_wrap(page: Path) -> None:
    """Prose wraps at 120 columns; a table's row, a code block and a link on its own do not."""
    in_code = False
    for number, line in enumerate(page.read_text(encoding="utf-8").splitlines(), start=1):
        if line.lstrip().startswith("```"):
            in_code = not in_code
        if not in_code and not line.startswith(("|", "    ", "[", "!")):
            assert len(line) <= 120, number
