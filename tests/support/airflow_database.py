"""Airflow's metadata database as set-up has migrated it: it takes 8 seconds to make one."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Final

_MIGRATED: Final = Path(__file__).resolve().parents[2] / ".cache" / "airflow" / "migrated.db"


def copy_migrated_database(target: Path) -> bool:
    """Copy the database that set-up has migrated; False if set-up has made none. Nothing was ever run in it: the one of
    people's terminals (`.ci/env`) has their DAGs, paused or not, and their runs."""
    if not _MIGRATED.exists():
        return False
    with (
        closing(sqlite3.connect(f"file:{_MIGRATED}?mode=ro", uri=True)) as migrated,
        closing(sqlite3.connect(target)) as ours,
    ):
        migrated.backup(ours)
    return True
