"""The table of positions in a Postgres, which has its own ways to make it, and to keep others from it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from psycopg import Connection

from txn_engine.databases.positions import READ, TABLE, Position, PositionsTable
from txn_engine.errors import InvalidRequestError
from txn_engine.postgres.errors import LockedError, database_errors
from txn_engine.postgres.statements import execute
from txn_engine.reasons import Reason
from txn_engine.types import TopicPartition

_EXISTS = "SELECT to_regclass(%s) IS NOT NULL"
_ELSEWHERE = (
    "SELECT relnamespace::regnamespace::text FROM pg_class WHERE relname = %s AND relkind IN ('r', 'p')"
)
_ONE_AT_A_TIME = "SELECT pg_advisory_xact_lock(hashtextextended(%s, 0))"
CREATE = f"""
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
_LOCK = f"{READ} ORDER BY topic, partition FOR UPDATE NOWAIT"


class PostgresPositions(PositionsTable):
    """Locked row by row: another run is refused at once."""

    def __init__(self, connection: Connection[Any], store_id: str, group_id: str, actor: str) -> None:
        super().__init__(store_id, group_id)
        self._connection, self._actor = connection, actor

    def create(self) -> None:
        """Make the table where there is none; of two at once one waits."""
        with database_errors(self._actor, TABLE), self._connection.transaction():
            if self._is_there():
                return
            self.execute(_ONE_AT_A_TIME, (TABLE,))
            elsewhere = self.execute(_ELSEWHERE, (TABLE,)).fetchone()
            if self._is_there():  # made meanwhile; the server learns of it as it looks into its catalogue
                return
            if elsewhere is not None:
                raise InvalidRequestError(
                    f"{TABLE} is in schema {elsewhere[0]!r}, which is not on this connection's search_path",
                    actor=f"group {self.whose[1]!r}",
                    expected="one table of positions: two would each say that nothing was read yet",
                    action="add the schema to the search_path; or make a table here by hand, for other groups",
                    reason=Reason.POSITIONS_IN_ANOTHER_SCHEMA,
                )
            self.execute(CREATE)

    def _is_there(self) -> bool:
        return bool(self.execute(_EXISTS, (TABLE,)).fetchall()[0][0])

    def read(self) -> dict[TopicPartition, Position]:
        """As of now."""
        with database_errors(self._actor, TABLE), self._connection.transaction():
            return self.rows(READ)

    def elsewhere(self) -> dict[TopicPartition, tuple[str, int]]:
        """As of now."""
        with database_errors(self._actor, TABLE), self._connection.transaction():
            return self.rows_elsewhere()

    def held(self) -> dict[TopicPartition, Position]:
        """Locked until the end of the transaction that is open."""
        try:
            return self.rows(_LOCK)
        except LockedError as error:
            raise self.refused("another run is writing now", Reason.ANOTHER_RUN_WRITING) from error

    def execute(self, statement: str, words: Sequence[Any] = ()) -> Any:
        """As psycopg runs it."""
        return execute(self._connection, statement, words)
