"""Changed files of every format, of one seed; `python -m tests.files.fuzzed` takes fresh ones."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from tests.files.fuzzed import run_case


def test_each_row_is_a_record_or_a_bad_row(tmp_path: Path) -> None:
    """Of each changed file every row is accounted for, and every record has the values of its row."""
    seen = Counter(run_case(f"fixed/{number}", tmp_path) for number in range(400))
    assert {"csv read, some bad rows", "jsonl read, some bad rows", "parquet read", "parquet refused"} <= set(
        seen
    )
