"""`txn-engine bench --backup` copies the files that it reports. Speed is not tested."""

from __future__ import annotations

from pathlib import Path

from txn_engine import connect
from txn_engine.bench.backups import BackupSizes, Places, backup_numbers


def test_each_number_is_of_the_same_files_on_both_sides(tmp_path: Path) -> None:
    """Both sides copy the same files, and the copies are removed afterwards."""
    told: list[str] = []
    with connect(f"file://{tmp_path}/ledger") as engine:
        numbers = list(
            backup_numbers(
                engine,
                "bench",
                Places(f"file://{tmp_path}/copy"),
                sizes=BackupSizes(2, 10, 5, 1, 1),
                progress=lambda what, done, total: told.append(what),
            )
        )
    assert [number.name for number in numbers] == [
        "backup, large files",
        "restore, large files",
        "backup, small files too",
    ]
    assert [number.note.split(" ")[0] for number in numbers] == ["2", "2", "7"]
    assert all(number.ours > 0 and number.bare > 0 and number.ratio > 0 for number in numbers)
    assert [path.name for path in tmp_path.iterdir()] == ["ledger"]
    assert {"files of 10 rows", "backup, large files"} <= set(told)
