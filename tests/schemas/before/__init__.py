"""A store that the code of before topics and settings could change has written: see `write_store`."""

from __future__ import annotations

import json
import tarfile
from pathlib import Path
from typing import Any

_HOME = Path(__file__).parent


def store_of_before(folder: Path) -> Path:
    """The store, unpacked below the folder."""
    with tarfile.open(_HOME / "store.tar.gz") as held:
        held.extractall(folder, filter="data")
    return folder / "store"


def rows_of_before(topic: str) -> list[list[Any]]:
    """What that code read of the topic: account, amount, size, partition, offset, milliseconds."""
    found: dict[str, list[list[Any]]] = json.loads((_HOME / "expected.json").read_text(encoding="utf-8"))
    return found[topic]
