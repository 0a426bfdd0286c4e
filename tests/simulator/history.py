"""What the clients did and saw, as they know it. The checkers use only this and the raw store."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal

from tests.simulator.kernel import Kernel

Outcome = Literal["open", "committing", "ok", "failed", "refused"]
"""open: nobody asked for a commit, so it must never be seen. committing: asked for, the answer is unknown. refused: the
answer was an error that leaves no doubt, so that not even a plain append may be seen."""

RecordId = tuple[str, int]
"""The name of what wrote the record, and its number there."""


@dataclass(slots=True)
class Writing:
    """One transaction (or one batch of a producer without transactions), as its client knows it."""

    name: str
    client: str
    began: int
    atomic: bool = True
    outcome: Outcome = "open"
    ended: int = -1
    why: str = ""
    records: dict[tuple[str, int], list[RecordId]] = field(default_factory=dict)
    placed: dict[RecordId, int] = field(default_factory=dict)  # offsets that the engine acknowledged

    def ids(self) -> Iterator[tuple[tuple[str, int], RecordId]]:
        """Every record with its partition."""
        for place, ids in self.records.items():
            for record_id in ids:
                yield place, record_id


@dataclass(frozen=True, slots=True)
class Read:
    """The records of [start, end) in one partition that a read_committed reader got."""

    client: str
    began: int
    ended: int
    place: tuple[str, int]
    start: int
    end: int
    records: tuple[tuple[int, RecordId], ...]


@dataclass(frozen=True, slots=True)
class Position:
    """A group's committed offset, as a client saw it."""

    began: int
    ended: int
    place: tuple[str, str, int]
    offset: int


class History:
    """Everything that was noted, in its order."""

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel
        self.writings: dict[str, Writing] = {}
        self.reads: list[Read] = []
        self.positions: list[Position] = []
        self.complaints: list[str] = []  # what a client itself found wrong

    @property
    def now(self) -> int:
        """Virtual time."""
        return self._kernel.now

    def begin(self, name: str, client: str, *, atomic: bool = True) -> Writing:
        """Note that a client begins to write. Names are never used twice."""
        if name in self.writings:
            raise ValueError(f"writing {name} a second time")
        writing = self.writings[name] = Writing(name, client, self.now, atomic)
        self._kernel.note(client, "", "begin", name, "", "")
        return writing

    def end(self, writing: Writing, outcome: Outcome, why: object = "") -> None:
        """Note that it ended, or that its client gave up."""
        writing.outcome, writing.ended = outcome, self.now
        writing.why = f"{type(why).__name__}: {why}" if isinstance(why, BaseException) else str(why)
        self._kernel.note(writing.client, "", "end", writing.name, outcome, writing.why)

    def complain(self, text: str) -> None:
        """Note something that no fault excuses."""
        self._kernel.note("checker", "", "complaint", text, "", "")
        self.complaints.append(text)

    def ask(self, writing: Writing) -> None:
        """Note that the commit is asked for. Until an answer is noted, its outcome is unknown."""
        writing.outcome = "committing"
        self._kernel.note(writing.client, "", "commit", writing.name, "", "")
