"""A worker records its own work line by line, and syncs each line. The audit knows all promises from
there."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True)
class Line:
    """One record of a worker. `writer` is the process, by role, slot and process id."""

    writer: str
    event: str
    name: str
    more: dict[str, Any]


class Journal:
    """A file of one process. A line outlives the process and the machine once `write` has returned."""

    def __init__(self, folder: Path, writer: str) -> None:
        self._descriptor = os.open(folder / f"{writer}.jsonl", os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)

    def write(self, event: str, name: str, **more: Any) -> None:
        """Add a line and sync it."""
        line = json.dumps({"event": event, "name": name, **more}).encode() + b"\n"
        while line:
            line = line[os.write(self._descriptor, line) :]
        os.fdatasync(self._descriptor)

    def close(self) -> None:
        """Close the file."""
        os.close(self._descriptor)


def read_journals(folder: Path, pattern: str = "*") -> Iterator[Line]:
    """All lines, file by file. The last line of a killed process may be cut, and then it does not count."""
    for path in sorted(folder.glob(f"{pattern}.jsonl")):
        *lines, _ = path.read_bytes().split(b"\n")
        for text in lines:
            fields = json.loads(text)
            yield Line(path.stem, fields.pop("event"), fields.pop("name"), fields)
