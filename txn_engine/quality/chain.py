"""From which proof the next one goes on, or why it begins a chain of its own."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from txn_engine.errors import TxnEngineError
from txn_engine.quality.declaration import Declaration
from txn_engine.quality.proof import Proof, ProofShelf, hash_of

_LOOK_BACK = 100
"""Proofs among which one of the same declaration is looked for."""


@dataclass(frozen=True, slots=True)
class TopicState:
    """What decides whether an earlier proof of a topic still stands: its life, where its logs begin, whether
    compaction by key has been there, the newest version of its schema, and how many erasures there were (None while
    one has not come to its end).
    """

    incarnation: int
    log_starts: Mapping[int, int]
    is_compacted: bool
    newest_version: int
    erasures: int | None


SHARES: Final = 16
"""So many proofs that go on from earlier ones read all older data files again, a share each."""


def next_share(proved: range, turn: int | None) -> range:
    """The data files that end at these offsets of a partition are read again: behind `turn`, up to where the proof
    before came; from the start of what is proved where that one came to the end.
    """
    share = -(-len(proved) // SHARES)
    start = turn if turn is not None and turn in proved else proved.start
    return range(start, min(start + share, proved.stop))


def read_of(share: range, spans: Iterable[tuple[int, int]]) -> range:
    """The offsets that are read with a share, by the first and last offset of each data file; empty where no file ends
    there. A large file is read in the turn in which it ends, as a whole.
    """
    read = [(first, last) for first, last in spans if last in share]
    return range(min(first for first, _ in read), max(last for _, last in read) + 1) if read else range(0)


@dataclass(frozen=True, slots=True)
class Link:
    """Where the next proof stands. `base`: the proof from whose ends it may go on; None where a chain begins, and
    then `began` says why.
    """

    number: int
    parent: str
    first: int
    base: Proof | None
    began: str


class _BeginsAnewError(Exception):
    """Why the next proof takes nothing from those before."""


def next_link(shelf: ProofShelf, declaration: Declaration, states: Mapping[str, TopicState]) -> Link:
    """The next number, and what the proof under it may build on."""
    numbers = shelf.numbers()
    if not numbers:
        return Link(0, "", 0, None, "no proof was there")
    number, parent = numbers[-1] + 1, ""
    try:
        _, parent = _read(shelf, numbers[-1])
        base = _base(shelf, numbers, hash_of(declaration))
        _check_unbroken(shelf, base, numbers)
        _check_stands(base, states)
    except _BeginsAnewError as why:
        return Link(number, parent, number, None, str(why))
    return Link(number, parent, base.first, base, "")


def _base(shelf: ProofShelf, numbers: list[int], declared: str) -> Proof:
    """The latest proof of this declaration that was a success, with its ranges. Those of other declarations may stand
    between.
    """
    first = None
    for number in reversed(numbers[-_LOOK_BACK:]):
        found, _ = _read(shelf, number)
        if found.declaration != declared:
            continue
        if first not in (None, found.first):
            break
        first = found.first
        if found.success:
            return _read(shelf, number, with_ranges=True)[0]
    raise _BeginsAnewError(
        "no proof of this declaration was there" if first is None else "no proof of the chain was a success"
    )


def _check_unbroken(shelf: ProofShelf, base: Proof, numbers: list[int]) -> None:
    """That no proof is missing since the chain began, and that each from the base on follows the one before."""
    there = set(numbers)
    for number in range(base.first, numbers[-1]):
        if number not in there:
            raise _BeginsAnewError(f"proof {number} of the chain is missing")
    parent = ""
    for number in range(numbers[-1], max(base.number, 1) - 2, -1):
        if number not in there:  # before the chain began
            break
        found, seen = _read(shelf, number)
        if parent not in ("", seen):
            raise _BeginsAnewError(f"proof {number} is not the one that {number + 1} follows")
        parent = found.parent


def _read(shelf: ProofShelf, number: int, *, with_ranges: bool = False) -> tuple[Proof, str]:
    try:
        return shelf.read(number, with_ranges=with_ranges)
    except TxnEngineError as error:
        raise _BeginsAnewError(f"proof {number} cannot be read: {error.code}") from error


def _check_stands(base: Proof, states: Mapping[str, TopicState]) -> None:
    """That what was proved is still there, and alone."""
    proved = base.starts
    for topic, state in sorted(states.items()):
        of_topic = [each for each in base.ranges if each.topic == topic]
        if any(each.incarnation != state.incarnation for each in of_topic):
            raise _BeginsAnewError(f"{topic} was made anew")
        if state.is_compacted:
            raise _BeginsAnewError(f"compaction has been at {topic}")
        if state.erasures is None or state.erasures != base.erasures.get(topic):
            raise _BeginsAnewError(f"records of {topic} were erased")
        if any(each.schema_version > state.newest_version for each in of_topic):
            raise _BeginsAnewError(f"a digest goes by columns that {topic} had not when it was looked up")
        if {each.partition for each in of_topic} != set(state.log_starts):
            raise _BeginsAnewError(f"{topic} has other partitions")
        for partition, start in sorted(state.log_starts.items()):
            if start > proved[topic, partition]:
                raise _BeginsAnewError(f"retention, or a delete, has removed records of {topic}-{partition}")
