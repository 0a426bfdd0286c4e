"""Stores that older code has written. They are kept in a folder: `store.tar.gz`, and in `expected.json` what that code
read from each topic."""

from __future__ import annotations

import json
import tarfile
from pathlib import Path
from typing import Any


def unpacked(home: Path, folder: Path) -> Path:
    """The store that is kept in `home`, unpacked into the folder."""
    with tarfile.open(home / "store.tar.gz") as held:
        held.extractall(folder, filter="data")
    return folder / "store"


def expected_rows(home: Path, topic: str) -> list[list[Any]]:
    """What the older code read from the topic."""
    found: dict[str, list[list[Any]]] = json.loads((home / "expected.json").read_text(encoding="utf-8"))
    return found[topic]
