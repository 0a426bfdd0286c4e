"""How many of the rows of late became dead letters, topic by topic."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from txn_engine.errors import InvalidTopicError, UnknownTopicOrPartitionError
from txn_engine.loading.counting import counts
from txn_engine.protocol.measures import UNKNOWN
from txn_engine.unreadable import DAMAGE, WHOLE_TOPIC, Listing, Unreadable, one_place

if TYPE_CHECKING:
    from txn_engine.engine import Engine

TOPICS_MAX = 1_000
"""A letter says what topic it is for, and there may be no such: each name is looked up."""


@dataclass(frozen=True, slots=True)
class DeadLetterRate:
    """Of the rows that a topic was to get since a time: those that became letters of one dead-letter topic, and the
    records that it got. A row that failed again in a replay is no new one. `records` -1: not known.
    """

    dead_letter_topic: str
    topic: str
    letters: int
    records: int


def rates(engine: Engine, dead_letter_topic: str, *, since_ms: int) -> Listing[DeadLetterRate]:
    """For each topic that letters were written for since that time, by the time that the log gave them; the topics with
    the most letters first, at most `TOPICS_MAX`.

    What cannot be read is in the list's `unreadable`.
    """
    found = counts(engine, dead_letter_topic, since_ms=since_ms)
    unreadable = list(found.unreadable)
    letters: dict[str, int] = {}
    for each in found:
        letters[each.topic] = letters.get(each.topic, 0) + each.total - each.came_back
    rows = []
    for topic, count in sorted(letters.items(), key=lambda each: (-each[1], each[0]))[:TOPICS_MAX]:
        records = UNKNOWN
        try:
            with one_place(topic):
                records = _records_since(engine, topic, since_ms)
        except DAMAGE as error:
            unreadable.append(Unreadable(topic, WHOLE_TOPIC, error))
        rows.append(DeadLetterRate(dead_letter_topic, topic, count, records))
    return Listing(rows, unreadable)


def _records_since(engine: Engine, topic: str, since_ms: int) -> int:
    try:
        scan = engine.scan(topic, start_timestamp=max(since_ms, 0))
    except (UnknownTopicOrPartitionError, InvalidTopicError):
        return 0  # no such topic: each of its rows became a letter
    return sum(file.end_row - file.first_row for file in scan.files())
