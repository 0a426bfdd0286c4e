"""`txn-engine bench --load` loads the rows that it reports. Speed is not tested."""

from __future__ import annotations

from pathlib import Path

import pytest

from txn_engine import connect
from txn_engine.bench.loads import LoadSizes, load_numbers


def test_one_row_in_a_hundred_is_a_dead_letter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Bad rows of the file with bad rows and of the large file become dead letters. All other rows become records."""
    monkeypatch.chdir(tmp_path)
    with connect(f"file://{tmp_path}/ledger") as engine:
        sizes = LoadSizes(rows=1_000, rounds=1, large_rows=2_000)
        beside, reading, lines, memory = load_numbers(engine, "bench", sizes=sizes, progress=lambda *_: None)
        records = engine.scan("bench-loads").to_table().num_rows
        letters = engine.scan("bench-dead").to_table().num_rows
    assert (records, letters) == (2 * 990 + 2 * 1_000 + 1_980, 2 * 10 + 20)
    assert (beside.unit, beside.rounds, memory.unit) == ("M rows/s", 1, "MiB")
    assert min(beside.ratio, reading.ratio, lines.ratio) > 0
    assert 30 < memory.ours < 5_000
    assert not list(tmp_path.glob("txn-engine-bench-*"))
