"""What a worker says of its own work, line by line and synced: all that the audit knows of what was promised."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True)
class Line:
    """One thing that a worker said. `writer` is the process, by role, slot and process id."""

    writer: str
    event: str
    name: str
    more: dict[str, Any]


class Journal:
    """A file of one process. A line that `write` has returned from outlives the process and the machine."""

    def __init__(self, folder: Path, writer: str) -> None:
        self._descriptor = os.open(folder / f"{writer}.jsonl", os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)

    def write(self, event: str, name: str, **more: Any) -> None:
        """Add a line and sync it."""
        line = json.dumps({"event": event, "name": name, **more}).encode() + b"\n"
        while line:
            line = line[os.write(self._descriptor, line) :]
        os.fdatasync(self._descriptor)

    def close(self) -> None:
        """Let go of the file."""
        os.close(self._descriptor)


def read_journals(folder: Path, pattern: str = "*") -> Iterator[Line]:
    """All lines, file by file. The last one of a killed process may be cut: it said nothing then."""
    for path in sorted(folder.glob(f"{pattern}.jsonl")):
        *lines, _ = path.read_bytes().split(b"\n")
        for text in lines:
            fields = json.loads(text)
            yield Line(path.stem, fields.pop("event"), fields.pop("name"), fields)
