"""How far a group's records have come into a database: a table there, moved in the transaction of the rows."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from txn_engine.errors import OffsetsMovedError
from txn_engine.reasons import Reason
from txn_engine.types import TopicPartition

TABLE: Final = "txn_engine_positions"

READ: Final = f"""
SELECT topic, partition, incarnation, next_offset FROM {TABLE} WHERE store_id = %s AND group_id = %s"""
_ELSEWHERE: Final = f"""
SELECT topic, partition, store_id, next_offset FROM {TABLE} WHERE store_id <> %s AND group_id = %s
ORDER BY next_offset"""
_MOVE: Final = f"""
UPDATE {TABLE} SET next_offset = %s, updated_at = CURRENT_TIMESTAMP
WHERE store_id = %s AND group_id = %s AND topic = %s AND partition = %s AND incarnation = %s AND next_offset = %s"""
_BEGIN: Final = f"""
INSERT INTO {TABLE} (store_id, group_id, topic, partition, incarnation, next_offset)
VALUES (%s, %s, %s, %s, %s, %s) ON CONFLICT DO NOTHING"""


@dataclass(frozen=True, slots=True)
class Position:
    """The next offset that the database lacks, of this incarnation of the topic."""

    incarnation: int
    offset: int


Positions = Mapping[TopicPartition, Position]


class PositionsTable(ABC):
    """Those of one group of one store. What is done in `held` and `move` is of the transaction that is open."""

    def __init__(self, store_id: str, group_id: str) -> None:
        self.whose = (store_id, group_id)

    @abstractmethod
    def create(self) -> None:
        """Make the table where there is none; who may not make tables needs one that is there."""

    @abstractmethod
    def read(self) -> dict[TopicPartition, Position]:
        """As of now."""

    @abstractmethod
    def elsewhere(self) -> dict[TopicPartition, tuple[str, int]]:
        """What other stores' groups of the same name have come to: a store's id and its next offset, the furthest."""

    @abstractmethod
    def held(self) -> dict[TopicPartition, Position]:
        """The same, and nobody else may move them before this transaction has ended.

        Raises `OffsetsMovedError` where another run is at it.
        """

    @abstractmethod
    def execute(self, statement: str, words: Sequence[Any]) -> Any:
        """Run a statement with `%s` for its words; a cursor of the driver's."""

    def move(self, before: Positions, after: Positions) -> None:
        """From where this run has read on to where it is now.

        Raises:
            OffsetsMovedError: another run is at it, or has been. Nothing of this one may be committed then.
        """
        held = self.held()
        for tp, position in after.items():
            known = before.get(tp)
            if held.get(tp) != known:
                seen = f"{tp} stands at {_shown(held.get(tp))}, and was at {_shown(known)}"
                raise self.refused(seen, Reason.POSITION_MOVED)
            if known is None:
                words = (*self.whose, *tp, position.incarnation, position.offset)
                done = self.execute(_BEGIN, words)
            else:
                done = self.execute(
                    _MOVE, (position.offset, *self.whose, *tp, known.incarnation, known.offset)
                )
            if done.rowcount != 1:
                raise self.refused(f"{tp} was moved by another run", Reason.POSITION_MOVED)

    def rows(self, query: str) -> dict[TopicPartition, Position]:
        """What a query for this group's positions gives."""
        rows = self.execute(query, self.whose).fetchall()
        return {
            TopicPartition(topic, at): Position(incarnation, offset)
            for topic, at, incarnation, offset in rows
        }

    def rows_elsewhere(self) -> dict[TopicPartition, tuple[str, int]]:
        """What `elsewhere` gives."""
        rows = self.execute(_ELSEWHERE, self.whose).fetchall()
        return {TopicPartition(topic, at): (store_id, offset) for topic, at, store_id, offset in rows}

    def refused(self, seen: str, reason: Reason) -> OffsetsMovedError:
        """The error for another run beside this one."""
        return OffsetsMovedError(
            seen,
            actor=f"group {self.whose[1]!r}",
            place=TABLE,
            expected="one run at a time into one database",
            action="nothing of this batch is there; run it again, and it goes on from where the database is",
            reason=reason,
        )


def _shown(position: Position | None) -> str:
    return "no position" if position is None else f"offset {position.offset}"
