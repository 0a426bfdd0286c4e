"""The proofs that the store keeps, whoever made them, for the calendar of the Quality page."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from txn_engine import Engine
from txn_engine.errors import CorruptObjectError
from txn_engine.log.topics import Topic
from txn_engine.quality.proof import ProofShelf

TOPICS_MAX = 50
PROOFS_MAX = 1_000
READ_AT_ONCE = 100


@dataclass(frozen=True, slots=True)
class ProofLine:
    """A proof in a line. `outcome`: `proven`, `not proven`, or `damaged`, of which nothing else is known: -1 then."""

    number: int
    created_ms: int
    outcome: str
    scope: str
    passed: int
    checks: int


@dataclass(frozen=True, slots=True)
class TopicProofs:
    """The latest proofs of a topic's present incarnation, the newest first."""

    topic: str
    proofs: tuple[ProofLine, ...]


@dataclass(frozen=True, slots=True)
class KeptProofs:
    """By topic; `left_off`: topics that have proofs and are not looked at, for there are too many."""

    topics: tuple[TopicProofs, ...] = ()
    left_off: int = 0


class ProofAlbum:
    """Reads each proof once, for none ever changes: the newest first, so many at a look, the others at the next."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, int], dict[int, ProofLine]] = {}

    def look(self, engine: Engine, topics: Iterable[Topic]) -> KeptProofs:
        """Those of topics that have any, by name. Errors of the store come as they are."""
        objects = engine.logs.tools.objects
        proved = set(objects.folders("proofs"))
        places = sorted((topic.name, topic.incarnation) for topic in topics if topic.name in proved)
        wanted = places[:TOPICS_MAX]
        self._known = {place: self._known.get(place, {}) for place in wanted}
        left = READ_AT_ONCE
        for place in wanted:
            left -= self._read(ProofShelf(objects, *place), self._known[place], left)
        found = ((topic, self._known[topic, incarnation]) for topic, incarnation in wanted)
        kept = tuple(
            TopicProofs(topic, tuple(lines[number] for number in sorted(lines, reverse=True)))
            for topic, lines in found
            if lines
        )
        return KeptProofs(kept, len(places) - len(wanted))

    def _read(self, shelf: ProofShelf, known: dict[int, ProofLine], at_most: int) -> int:
        """Read what is new, and older ones down to `PROOFS_MAX`; how many were read."""
        newest = shelf.numbers(behind=max(known, default=0) - PROOFS_MAX)[-PROOFS_MAX:]
        missing = [number for number in reversed(newest) if number not in known][:at_most]
        known |= {number: _line(shelf, number) for number in missing}
        for number in known.keys() - set(newest):
            del known[number]
        return len(missing)


def _line(shelf: ProofShelf, number: int) -> ProofLine:
    try:
        proof, _ = shelf.read(number, with_ranges=False)
    except CorruptObjectError:
        return ProofLine(number, -1, "damaged", "", -1, -1)
    return ProofLine(
        number,
        proof.created_ms,
        "proven" if proof.success else "not proven",
        proof.scope,
        sum(check.status == "passed" for check in proof.checks),
        len(proof.checks),
    )
