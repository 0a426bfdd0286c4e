"""Out of topics, into tables of Postgres: records and how far they go, in one transaction of the database."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

import psycopg
import pyarrow as pa
from psycopg import Connection, errors

from txn_engine.consumer import Consumer
from txn_engine.databases.consuming import SAVEPOINT, Consumed, consume
from txn_engine.databases.errors import DatabaseError, DatabaseOutcomeUnknownError, ended_by_write
from txn_engine.postgres.errors import check_idle, is_lost, translated
from txn_engine.postgres.positions import PostgresPositions
from txn_engine.postgres.statements import execute
from txn_engine.reasons import Reason

Write = Callable[[Connection[Any], pa.Table], object]
"""Puts records into tables by this connection, in the transaction that is open; it neither commits nor rolls back."""

_ACTOR: Final = "consume_into"


def consume_into(
    connection: Connection[Any],
    consumer: Consumer,
    write: Write,
    *,
    max_records: int | None = None,
    max_batches: int | None = None,
    progress: Callable[[int], None] | None = None,
) -> Consumed:
    """Write what the consumer can read, up to the ends as they are now, batch by batch: each once, whatever dies.

    Guarantee: a batch and the positions behind it are one transaction of the database, in a table there
    (`txn_engine_positions`, made where there is none). A run begins where the database is. The group in the store only
    follows, for its lag; where the database knows no position, `auto.offset.reset` says where to begin, not the group:
    a database that was emptied is filled anew. Of two runs at once one is refused.

    `write(connection, records)` gets the records with `_partition`, `_offset`, `_timestamp` (and `_topic` for several
    topics), in the transaction. `max_records`: of a batch (None: `max.poll.records`). `max_batches`: end after so many.

    Raises:
        OffsetsMovedError: another run is at it, or was since. Nothing of this batch is there.
        DatabaseUnavailableError: the same, the server is away. DatabaseOutcomeUnknownError: it went at the commit.
        DatabaseError: the server refused a statement of ours, or `write` raised one of psycopg's errors.
        InvalidRequestError: a topic was made again since; its records are others than those in the database.
        IllegalStateError: the connection is in a transaction, or nothing is assigned to the consumer; or `write` has
        ended the transaction.
        InvalidGroupIdError: a consumer without a group. What `write` raises, after a rollback.
    """
    check_idle(connection, _ACTOR)
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
    """A Postgres that takes records."""

    def __init__(self, connection: Connection[Any], store_id: str, group_id: str) -> None:
        self._connection = connection
        self.positions = PostgresPositions(connection, store_id, group_id, _ACTOR)

    @contextmanager
    def transaction(self, place: str) -> Iterator[None]:
        """One, which ends here and nowhere else; lost at its commit, its outcome is unknown."""
        written = False
        try:
            with self._connection.transaction():
                execute(self._connection, f"SAVEPOINT {SAVEPOINT}")
                yield
                execute(self._connection, f"RELEASE SAVEPOINT {SAVEPOINT}")
                written = True
        except (errors.InvalidSavepointSpecification, errors.NoActiveSqlTransaction) as error:
            raise ended_by_write(_ACTOR, place) from error
        except errors.InFailedSqlTransaction as error:
            raise DatabaseError(
                "a statement of write failed, and write went on",
                actor=_ACTOR,
                place=place,
                expected="its error, or `with connection.transaction()` around what may fail",
                action="nothing of this batch is there; mend write, and run it again",
                reason=Reason.WRITE_HID_AN_ERROR,
            ) from error
        except psycopg.Error as error:
            found = translated(error, _ACTOR, place)
            if written and is_lost(error):
                found = DatabaseOutcomeUnknownError(found.seen, actor=found.actor, place=found.place)
            raise found from error
        if not written:  # psycopg.Rollback ends the block without a word
            raise ended_by_write(_ACTOR, place)
