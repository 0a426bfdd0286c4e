"""A store that was written by the code from before topics and settings could change. See `write_store`."""

from __future__ import annotations

import json
import tarfile
from pathlib import Path
from typing import Any

_HOME = Path(__file__).parent


def store_of_before(folder: Path) -> Path:
    """The store, unpacked into the folder."""
    with tarfile.open(_HOME / "store.tar.gz") as held:
        held.extractall(folder, filter="data")
    return folder / "store"


def rows_of_before(topic: str) -> list[list[Any]]:
    """What that code read from the topic: account, amount, size, partition, offset and milliseconds."""
    found: dict[str, list[list[Any]]] = json.loads((_HOME / "expected.json").read_text(encoding="utf-8"))
    return found[topic]
