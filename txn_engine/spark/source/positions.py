"""Where a stream is: an offset of each partition, as Spark journals it, and how much further a micro-batch goes.

Nothing here looks at a store.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import accumulate, pairwise
from typing import Any, Final

from txn_engine.errors import CorruptObjectError
from txn_engine.reasons import Reason
from txn_engine.types import TopicPartition

_INCARNATIONS: Final = "_incarnations"
_STORE: Final = "_store"


@dataclass(frozen=True, slots=True)
class Positions:
    """An offset for each partition, of which topic of its name (one that was deleted and made again is another), and of
    which store.

    As JSON it is what Kafka's source writes, `{"payments": {"0": 201730}}`, and beside it `"_store": "<its id>"`, and
    for a topic that was made again `"_incarnations": {"payments": 1}`: a topic's name begins with no underscore.
    """

    offsets: Mapping[TopicPartition, int]
    incarnations: Mapping[str, int] = field(default_factory=dict)
    store_id: str = ""

    def incarnation(self, topic: str) -> int:
        """Which topic of this name the offsets are about."""
        return self.incarnations.get(topic, 0)

    def to_json(self) -> dict[str, Any]:
        """What Spark keeps in its checkpoint, and shows as a query's progress."""
        shown: dict[str, Any] = {}
        for tp, offset in sorted(self.offsets.items()):
            shown.setdefault(tp.topic, {})[str(tp.partition)] = offset
        later = {topic: number for topic, number in sorted(self.incarnations.items()) if number}
        if later:
            shown[_INCARNATIONS] = later
        if self.store_id:
            shown[_STORE] = self.store_id
        return shown

    @staticmethod
    def from_json(value: object) -> Positions:
        """What `to_json` gave. Raises `CorruptObjectError` for anything else, such as another source's checkpoint."""
        try:
            given = dict(value.items())  # type: ignore[attr-defined]
            store_id = given.pop(_STORE, "")
            incarnations = {
                str(topic): _whole(number) for topic, number in given.pop(_INCARNATIONS, {}).items()
            }
            offsets = {
                TopicPartition(topic, int(number)): _whole(offset)
                for topic, partitions in given.items()
                for number, offset in partitions.items()
            }
            if not isinstance(store_id, str):
                raise TypeError
        except (AttributeError, TypeError, ValueError):
            raise CorruptObjectError(
                f"offsets {json.dumps(value, default=str)[:200]}",
                actor='format("txn_engine")',
                expected='{"payments": {"0": 201730}}',
                action="name a checkpoint that this source wrote, or a new one",
                reason=Reason.NOT_OUR_CHECKPOINT,
            ) from None
        return Positions(offsets, incarnations, store_id)


def _whole(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 2**63:
        raise ValueError
    return value


def distance(start: Mapping[TopicPartition, int], end: Mapping[TopicPartition, int]) -> int:
    """How many offsets lie between; a partition that `start` does not name begins at 0."""
    return sum(max(offset - start.get(tp, 0), 0) for tp, offset in end.items())


def limited(
    start: Mapping[TopicPartition, int], end: Mapping[TopicPartition, int], most: int
) -> dict[TopicPartition, int]:
    """An end at most `most` offsets behind `start`, shared in proportion to what waits in each partition.

    A partition where something waits gets one at least, as far as `most` reaches: none starves beside a busy one.
    """
    waiting = {tp: offset - start.get(tp, 0) for tp, offset in end.items() if offset > start.get(tp, 0)}
    if sum(waiting.values()) <= most:
        return dict(end)
    order = sorted(waiting, key=lambda tp: (-waiting[tp], tp))
    first = dict.fromkeys(order[:most], 1)
    rest = [waiting[tp] - 1 for tp in order]
    total, left = sum(rest), most - len(first)
    marks = (
        [left * reached // total for reached in accumulate(rest, initial=0)]
        if total
        else [0] * (len(rest) + 1)
    )
    taken = {
        tp: first.get(tp, 0) + behind - before
        for tp, (before, behind) in zip(order, pairwise(marks), strict=True)
    }
    return {tp: start.get(tp, 0) + taken[tp] if tp in taken else offset for tp, offset in end.items()}


def whole_files(
    start: Mapping[TopicPartition, int],
    limit: Mapping[TopicPartition, int],
    cut: Mapping[TopicPartition, tuple[int, int]],
    most: int,
) -> dict[TopicPartition, int]:
    """What `limited` gave, `limit`, with ends between files where that costs little: a file that is cut is read twice.

    `cut`: where the file begins and ends that `limit` is inside of, for each partition where it is inside of one. No
    more than `most` offsets, and no fewer than 7/8 of those of `limit`: else it stays as it was.
    """
    found = dict(limit) | {tp: first for tp, (first, _) in cut.items() if first > start.get(tp, 0)}
    taken = distance(start, found)
    for tp, (_, behind) in sorted(cut.items(), key=lambda each: (each[1][1] - limit[each[0]], each[0])):
        more = behind - found[tp]
        if taken + more <= most:
            found[tp] = behind
            taken += more
    return found if taken * 8 >= distance(start, limit) * 7 else dict(limit)
