"""`txn-engine bench --cuts` does the same work on both sides. Speed is not tested."""

from __future__ import annotations

from pathlib import Path

from txn_engine import connect
from txn_engine.bench.cuts import CutSizes, cut_numbers


def test_each_cut_is_held_against_its_own_objects(tmp_path: Path) -> None:
    """Each cut is compared with bare puts of its own objects. Neither cuts nor open transactions are left
    afterwards."""
    told: list[str] = []
    url = f"file://{tmp_path}/ledger"
    with connect(url) as engine:
        sizes = CutSizes(partitions=3, transactions=4, rounds=2)
        progress = lambda what, done, total: told.append(what)  # noqa: E731
        numbers = list(cut_numbers(engine, "bench", sizes=sizes, progress=progress))
        assert engine.cuts() == []
        assert {str(row.row.state) for row in engine.coordinator.rows()} == {"CompleteAbort"}
    still, moved, fresh_still, fresh_moved = numbers
    assert [number.rounds for number in numbers] == [2] * 4
    assert all(number.ours > 0 and number.bare > 0 and number.ratio > 0 for number in numbers)
    assert ", 2 puts, " in still.note
    assert ", 2 puts, " in fresh_still.note
    assert ", 5 puts, " in moved.note  # a snapshot of each partition
    assert ", 5 puts, " in fresh_moved.note
    assert {"transactions opened", "cut, nothing new", "transactions aborted"} <= set(told)
