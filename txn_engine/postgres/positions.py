"""How far a group's records have come into a database: a table there, moved in the transaction of the rows.

CREATE TABLE txn_engine_positions (
    store_id text, group_id text, topic text, partition integer,   -- the primary key
    incarnation bigint, next_offset bigint, updated_at timestamptz
)
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from psycopg import Connection

from txn_engine.errors import InvalidRequestError, OffsetsMovedError
from txn_engine.postgres.errors import LockedError
from txn_engine.types import TopicPartition

TABLE: Final = "txn_engine_positions"

_EXISTS = "SELECT to_regclass(%s) IS NOT NULL"
_ELSEWHERE = (
    "SELECT relnamespace::regnamespace::text FROM pg_class WHERE relname = %s AND relkind IN ('r', 'p')"
)
_ONE_AT_A_TIME = "SELECT pg_advisory_xact_lock(hashtextextended(%s, 0))"
_CREATE = f"""
CREATE TABLE IF NOT EXISTS {TABLE} (
    store_id text NOT NULL,
    group_id text NOT NULL,
    topic text NOT NULL,
    partition integer NOT NULL,
    incarnation bigint NOT NULL,
    next_offset bigint NOT NULL,
    updated_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (store_id, group_id, topic, partition)
)"""
_READ = f"""
SELECT topic, partition, incarnation, next_offset FROM {TABLE} WHERE store_id = %s AND group_id = %s"""
_LOCK = f"{_READ} ORDER BY topic, partition FOR UPDATE NOWAIT"
_MOVE = f"""
UPDATE {TABLE} SET next_offset = %s, updated_at = now()
WHERE store_id = %s AND group_id = %s AND topic = %s AND partition = %s AND incarnation = %s AND next_offset = %s"""
_BEGIN = f"""
INSERT INTO {TABLE} (store_id, group_id, topic, partition, incarnation, next_offset)
VALUES (%s, %s, %s, %s, %s, %s) ON CONFLICT DO NOTHING"""


@dataclass(frozen=True, slots=True)
class Position:
    """The next offset that the database lacks, of this incarnation of the topic."""

    incarnation: int
    offset: int


Positions = Mapping[TopicPartition, Position]


class PositionsTable:
    """Those of one group of one store."""

    def __init__(self, connection: Connection[Any], store_id: str, group_id: str) -> None:
        self._connection = connection
        self._whose = (store_id, group_id)

    def create(self) -> None:
        """Make the table where there is none; who may not make tables needs one that is there."""
        with self._connection.transaction():
            found = self._connection.execute(_EXISTS, (TABLE,)).fetchone()
            if found is not None and found[0]:
                return
            self._connection.execute(_ONE_AT_A_TIME, (TABLE,))
            elsewhere = self._connection.execute(_ELSEWHERE, (TABLE,)).fetchone()
            if elsewhere is not None:
                raise InvalidRequestError(
                    f"{TABLE} is in schema {elsewhere[0]!r}, which is not on this connection's search_path",
                    actor=f"group {self._whose[1]!r}",
                    expected="one table of positions: two would each say that nothing was read yet",
                    action="add the schema to the search_path; or make a table here by hand, for other groups",
                )
            self._connection.execute(_CREATE)

    def read(self) -> dict[TopicPartition, Position]:
        """As of now."""
        with self._connection.transaction():
            return self._rows(_READ)

    def move(self, before: Positions, after: Positions) -> None:
        """In the transaction that is open: from where this run has read on to where it is now.

        Raises:
            OffsetsMovedError: another run is at it, or has been. Nothing of this one may be committed then.
        """
        try:
            held = self._rows(_LOCK)
        except LockedError as error:
            raise self._refused("another run is writing now") from error
        for tp, position in after.items():
            known = before.get(tp)
            if held.get(tp) != known:
                raise self._refused(f"{tp} stands at {_shown(held.get(tp))}, and was at {_shown(known)}")
            if known is None:
                words = (*self._whose, *tp, position.incarnation, position.offset)
                done = self._connection.execute(_BEGIN, words)
            else:
                done = self._connection.execute(
                    _MOVE, (position.offset, *self._whose, *tp, known.incarnation, known.offset)
                )
            if done.rowcount != 1:
                raise self._refused(f"{tp} was moved by another run")

    def _rows(self, query: str) -> dict[TopicPartition, Position]:
        rows = self._connection.execute(query, self._whose).fetchall()
        return {
            TopicPartition(topic, at): Position(incarnation, offset)
            for topic, at, incarnation, offset in rows
        }

    def _refused(self, seen: str) -> OffsetsMovedError:
        return OffsetsMovedError(
            seen,
            actor=f"group {self._whose[1]!r}",
            place=TABLE,
            expected="one run at a time into one database",
            action="nothing of this batch is there; run it again, and it goes on from where the database is",
        )


def _shown(position: Position | None) -> str:
    return "no position" if position is None else f"offset {position.offset}"
