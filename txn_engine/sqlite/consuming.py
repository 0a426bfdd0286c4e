"""Out of topics, into tables of SQLite: records and how far they go, in one transaction of the database."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

import pyarrow as pa

from txn_engine.consumer import Consumer
from txn_engine.databases.consuming import SAVEPOINT, Consumed, consume
from txn_engine.databases.errors import ended_by_write
from txn_engine.databases.positions import READ, TABLE, Position, PositionsTable
from txn_engine.sqlite.errors import check_adapters, check_idle, execute, select, transaction
from txn_engine.types import TopicPartition

Write = Callable[[sqlite3.Connection, pa.Table], object]
"""Puts records into tables by this connection, in the transaction that is open; it neither commits nor rolls back."""

_ACTOR: Final = "consume_into"
_CREATE: Final = f"""
CREATE TABLE IF NOT EXISTS {TABLE} (
    store_id TEXT NOT NULL,
    group_id TEXT NOT NULL,
    topic TEXT NOT NULL,
    partition INTEGER NOT NULL,
    incarnation INTEGER NOT NULL,
    next_offset INTEGER NOT NULL,
    updated_at TEXT NOT NULL DEFAULT CURRENT_TIMESTAMP,
    PRIMARY KEY (store_id, group_id, topic, partition)
)"""


def consume_into(
    connection: sqlite3.Connection,
    consumer: Consumer,
    write: Write,
    *,
    max_records: int | None = None,
    max_batches: int | None = None,
    progress: Callable[[int], None] | None = None,
) -> Consumed:
    """Write what the consumer can read, up to the ends as they are now, batch by batch: each once, whatever dies.

    Guarantee and arguments: as `txn_engine.postgres.consume_into`. A batch and the positions behind it are one
    transaction (BEGIN IMMEDIATE) of the file, durable as far as its `PRAGMA synchronous` makes one so (FULL, unless
    told). Of two runs at once one waits for the other, for as long as the connection's `timeout` says, and is refused.

    Raises:
        OffsetsMovedError: another run was at it since. DatabaseUnavailableError: another one is, or the file cannot be
        written. Nothing of this batch is there.
        DatabaseError: SQLite refused a statement of ours, or `write` raised one of sqlite3's errors.
        InvalidRequestError: a topic was made again since; its records are others than those in the database.
        IllegalStateError: the connection is in a transaction, or nothing is assigned to the consumer; or `write` has
        ended the transaction.
        InvalidGroupIdError: a consumer without a group. What `write` raises, after a rollback.
    """
    check_idle(connection, _ACTOR)
    check_adapters(_ACTOR)
    database = _Database(connection, consumer.store_id, consumer.group_metadata().group_id)
    return consume(
        database,
        consumer,
        lambda records: write(connection, records),
        max_records=max_records,
        max_batches=max_batches,
        progress=progress,
    )


class _Database:
    """A file that takes records."""

    def __init__(self, connection: sqlite3.Connection, store_id: str, group_id: str) -> None:
        self._connection = connection
        self.positions = _Positions(connection, store_id, group_id)

    @contextmanager
    def transaction(self, place: str) -> Iterator[None]:
        """One that nobody else writes beside, and that ends here and nowhere else. SQLite knows at once what became of
        its commit.
        """
        with transaction(self._connection, "BEGIN IMMEDIATE", _ACTOR, place):
            execute(self._connection, f"SAVEPOINT {SAVEPOINT}")
            yield
            try:
                execute(self._connection, f"RELEASE {SAVEPOINT}")
            except sqlite3.OperationalError as error:
                if not str(error).startswith("no such savepoint"):
                    raise
                raise ended_by_write(_ACTOR, place) from error


class _Positions(PositionsTable):
    """Nobody else writes to the file while a transaction that writes is open."""

    def __init__(self, connection: sqlite3.Connection, store_id: str, group_id: str) -> None:
        super().__init__(store_id, group_id)
        self._connection = connection

    def create(self) -> None:
        """Make the table where there is none."""
        with transaction(self._connection, "BEGIN", _ACTOR, TABLE):
            known = "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = ?"
            if execute(self._connection, known, (TABLE,)).fetchone() is None:
                execute(self._connection, _CREATE)

    def read(self) -> dict[TopicPartition, Position]:
        """As of now."""
        with transaction(self._connection, "BEGIN", _ACTOR, TABLE):
            return self.rows(READ)

    def elsewhere(self) -> dict[TopicPartition, tuple[str, int]]:
        """As of now."""
        with transaction(self._connection, "BEGIN", _ACTOR, TABLE):
            return self.rows_elsewhere()

    def held(self) -> dict[TopicPartition, Position]:
        """This transaction alone writes."""
        return self.rows(READ)

    def execute(self, statement: str, words: Sequence[Any]) -> Any:
        """With SQLite's mark for a word."""
        statement = statement.replace("%s", "?")
        if statement.lstrip().startswith("SELECT"):
            return select(self._connection, statement, words)[1]
        return execute(self._connection, statement, words)
