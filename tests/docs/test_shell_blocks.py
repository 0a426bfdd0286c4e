"""Every block of shell on every page runs in a real `bash -e`, in the page's order, from the state that the page
describes."""

from __future__ import annotations

import gzip
import json
import re
import shutil
from collections.abc import Callable, Iterator
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest

import txn_engine
from tests.docs.terminals import Terminal
from tests.docs.test_references import tracked
from tests.suite.tiers import in_shard
from tests.support.servers import REPOSITORY

_FENCED = re.compile(r"^```(\w*)\n(.*?)^```", re.MULTILINE | re.DOTALL)
_COMMAND = re.compile(r"^(?:txn-engine|make|python -m|docker|pip) ", re.MULTILINE)

NOT_RUN = {
    "make ": "a target of the Makefile: it does not end, takes hours, or sets the machine up; tests/setup runs them",
    "while sleep 5": "a loop that does not end",
    "txn-engine verify --engine spark": "a Spark session takes longer than all other blocks; tests/spark has one",
}
"""How blocks begin that no test of this module runs, and why."""
ELSEWHERE = {
    "docs/DRILL.md": "test_drill.py",
    "docs/FIRST_PIPELINE.md": "test_code_blocks.py",
    "docs/POSTGRES_PIPELINE.md": "test_postgres_pipeline.py",
}
"""Pages that are run as a whole, with their Python, by another module."""
STARTS_EMPTY = {"docs/LOADING.md"}
"""Pages whose first block creates the topics."""


def shell_blocks(page: str) -> list[str]:
    """The blocks of a page that a person pastes into a shell, in their order: those that say so, and indented ones that
    hold commands."""
    text = (REPOSITORY / page).read_text(encoding="utf-8")
    found = [(at.start(), at[2]) for at in _FENCED.finditer(text) if at[1] in ("sh", "bash")]
    outside = _FENCED.sub(lambda at: re.sub(r"[^\n]", "x", at[0]), text)
    for start, code in _indented(outside):
        if _COMMAND.search(code):
            found.append((start, code))
    return [code for _, code in sorted(found)]


def _indented(text: str) -> Iterator[tuple[int, str]]:
    """Runs of lines that are indented by four or more, after an empty line."""
    start, lines, offset, is_after_empty = 0, list[str](), 0, True
    for line in [*text.splitlines(keepends=True), "\n"]:
        is_code = line.startswith("    ") and (bool(lines) or is_after_empty)
        if is_code:
            start = start if lines else offset
            lines.append(line.strip() + "\n")
        elif lines:
            yield start, "".join(lines)
            lines = []
        is_after_empty = not line.strip()
        offset += len(line)


PAGES = [
    page
    for page in sorted(str(path.relative_to(REPOSITORY)) for path in tracked("*.md"))
    if page not in ELSEWHERE and any(not code.startswith(tuple(NOT_RUN)) for code in shell_blocks(page))
]


# --- the state that the pages describe --------------------------------------------------------------------------------

PAYMENTS = pa.schema(
    [
        ("trans_id", pa.int64()),
        ("account_id", pa.int64()),
        ("type", pa.string()),
        ("amount", pa.decimal128(18, 2)),
    ]
)
BALANCES = pa.schema(
    [("account_id", pa.int64()), ("turnover", pa.decimal128(18, 2)), ("payments", pa.int64())]
)
ACCOUNTS = 50


@pytest.fixture(scope="module")
def described(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a store that has payments, their balances by a group, and cuts; and with files that pages name."""
    folder = tmp_path_factory.mktemp("described")
    with txn_engine.connect(f"file://{folder}/store") as engine:
        engine.admin.create_topic("payments", partitions=2, schema=PAYMENTS, key="account_id")
        engine.admin.create_topic("balances", partitions=1, schema=BALANCES, key="account_id")
        engine.admin.create_topic("card.payments", partitions=1, schema=PAYMENTS)
        rows = [
            {"trans_id": number, "account_id": number % ACCOUNTS, "type": "PRIJEM", "amount": Decimal(number)}
            for number in range(2 * ACCOUNTS)
        ]
        sums = [
            {"account_id": account, "turnover": Decimal(2 * account + ACCOUNTS), "payments": 2}
            for account in range(ACCOUNTS)
        ]
        with engine.producer() as producer:
            producer.produce("payments", rows).result()
            producer.produce("card.payments", rows[:20]).result()
        with (
            engine.consumer(group_id="balances") as consumer,
            engine.producer(transactional_id="sums") as producer,
        ):
            consumer.subscribe(["payments"])
            assert consumer.poll() is not None
            producer.init_transactions()
            with producer.transaction():
                producer.produce("balances", sums)
                producer.send_offsets_to_transaction(consumer.positions(), consumer.group_metadata())
        for _ in range(13):
            engine.cut()
    (folder / "condition.sql").write_text("account_id = 42\n")
    (folder / "amounts.json").write_text(
        json.dumps(
            {
                "name": "amounts",
                "expectations": [
                    {
                        "type": "expect_column_values_to_be_between",
                        "kwargs": {"column": "amount", "min_value": 0},
                    }
                ],
            }
        )
    )
    page = (REPOSITORY / "docs/QUALITY.md").read_text()
    yaml = [code for language, code in _FENCED.findall(page) if language == "yaml"]
    (folder / "payments.yaml").write_text(yaml[0])
    return folder


def write_landing_files(folder: Path) -> None:
    """What LOADING.md loads: two files, with one row in a hundred that does not fit."""
    (folder / "landing").mkdir()
    for name, first in (("a", 0), ("b", 100)):
        rows = [f"{number},{number % 7},2026-11-21,{number}.50,\n" for number in range(first, first + 100)]
        rows[7] = rows[7].replace(".50", ".505")
        with gzip.open(folder / "landing" / f"{name}.csv.gz", "wt") as file:
            file.write("id,account_id,day,amount,note\n" + "".join(rows))


def repair_letters(folder: Path) -> None:
    """Repair what LOADING.md shows for repair, as a person does between its two blocks."""
    letters = [json.loads(line) for line in (folder / "repaired.jsonl").read_text().splitlines()]
    assert len(letters) == 2
    for letter in letters:
        letter["amount"] = letter["amount"].removesuffix("5")
    (folder / "repaired.jsonl").write_text("".join(json.dumps(letter) + "\n" for letter in letters))


BEFORE: dict[tuple[str, int], Callable[[Path], None]] = {
    ("docs/LOADING.md", 0): write_landing_files,
    ("docs/LOADING.md", 2): repair_letters,
}
"""What a person does before the block of that number."""


def in_folder(code: str, folder: Path) -> str:
    """The block with places of the test in place of those that the page names."""
    for shown, place in {
        "s3://ledger-backups": "backups",
        "s3://ledger-2": "ledger-2",
        "s3://ledger": "store",
        "file:///srv/ledger": "store",
        "az://container/prefix": "store",
    }.items():
        code = code.replace(shown, f"file://{folder}/{place}")
    return code.replace("/var/lib/ledger-audit", f"{folder}/ledger-audit")


STATE_AGAIN = {"docs/SCHEMAS.md"}
"""Pages whose blocks are examples of their own, each from the same state: one renames what another copies."""


@pytest.mark.parametrize("page", in_shard("machine", PAGES, keep=["docs/ERASURE.md"]))
def test_the_blocks_of_a_page_run(page: str, described: Path, tmp_path: Path) -> None:
    """Each block succeeds, one after the other on the same store."""
    folder = tmp_path / "folder"
    shutil.copytree(described, folder)
    if page in STARTS_EMPTY:
        shutil.rmtree(folder / "store")
    terminal = Terminal(folder, tmp_path / "home", programs=True, TXN_ENGINE_URL=f"file://{folder}/store")
    for number, code in enumerate(shell_blocks(page)):
        if code.startswith(tuple(NOT_RUN)):
            continue
        if (page, number) in BEFORE:
            BEFORE[page, number](folder)
        if page in STATE_AGAIN:
            shutil.rmtree(folder)
            shutil.copytree(described, folder)
        terminal.run(in_folder(code, folder))
    terminal.check_home()


def test_nothing_is_listed_in_vain() -> None:
    """Each reason not to run a block is that of some block, and each page that is run elsewhere has blocks."""
    every = [code for path in tracked("*.md") for code in shell_blocks(str(path.relative_to(REPOSITORY)))]
    for start in NOT_RUN:
        assert any(code.startswith(start) for code in every), start
    for page in ELSEWHERE:
        assert shell_blocks(page), page
    assert len(PAGES) > 8
