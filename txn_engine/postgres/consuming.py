"""Out of topics, into tables: records and how far they go, in one transaction of the database."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import psycopg
import pyarrow as pa
from psycopg import Connection

from txn_engine.consumer import Consumer
from txn_engine.errors import InvalidRequestError, TxnEngineError
from txn_engine.postgres.errors import (
    DatabaseOutcomeUnknownError,
    DatabaseUnavailableError,
    check_idle,
    database_errors,
    translated,
)
from txn_engine.postgres.positions import TABLE, Position, PositionsTable
from txn_engine.types import TopicPartition

Write = Callable[[Connection[Any], pa.Table], object]
"""Puts records into tables by this connection, in the transaction that is open; it neither commits nor rolls back."""

_LOGGER: Final = logging.getLogger(__name__)
_ACTOR: Final = "consume_into"


@dataclass(frozen=True, slots=True)
class Consumed:
    """What one call did. positions: the next offset of each partition that the database lacks. group_error: why the
    group in the store did not follow; it does the next time.
    """

    records: int
    batches: int
    positions: dict[TopicPartition, int]
    group_error: str | None = None


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
        IllegalStateError: the connection is in a transaction, or nothing is assigned to the consumer.
        InvalidGroupIdError: a consumer without a group. What `write` raises, after a rollback.
    """
    check_idle(connection, _ACTOR)
    group_id = consumer.group_metadata().group_id
    store_id = consumer.store_id
    run = _Run(connection, consumer, write, PositionsTable(connection, store_id, group_id), group_id)
    ends = consumer.end_offsets(consumer.assignment())
    with database_errors(_ACTOR, TABLE):
        run.table.create()
        run.known = run.table.read()
    while max_batches is None or run.batches < max_batches:
        run.begin_partitions()
        records = consumer.poll(max_records)
        if records is None:
            break
        if not run.has_begun_all():
            continue  # a partition came with this poll: it begins where the database is, and all is read again
        run.commit(records)
        if progress is not None:
            progress(run.records)
        if all(at.offset >= ends.get(tp, 0) for tp, at in consumer.positions().items()):
            break  # what came meanwhile is the next call's: under steady writers this one would never end
    return Consumed(
        run.records, run.batches, {tp: run.known[tp].offset for tp in sorted(run.known)}, run.group_error
    )


class _Run:
    """One call. known: what the database has; of partitions that it has nothing of, nothing."""

    def __init__(
        self,
        connection: Connection[Any],
        consumer: Consumer,
        write: Write,
        table: PositionsTable,
        group_id: str,
    ) -> None:
        self.table = table
        self.known: dict[TopicPartition, Position] = {}
        self.records = self.batches = 0
        self.group_error: str | None = None
        self._connection, self._consumer, self._write = connection, consumer, write
        self._group_id = group_id
        self._begun: dict[TopicPartition, int] = {}

    def begin_partitions(self) -> None:
        """Where the database is, in each partition; all of them where one is new."""
        found = self._consumer.incarnations()
        if found == self._begun:
            return
        for tp, incarnation in found.items():
            known = self.known.get(tp)
            if known is None:
                self._consumer.seek_to_reset([tp])
            elif known.incarnation == incarnation:
                self._consumer.seek(tp, known.offset)
            else:
                raise InvalidRequestError(
                    f"topic {tp.topic!r} was made again (its incarnation {incarnation})",
                    actor=f"group {self._group_id!r}",
                    place=TABLE,
                    expected=f"incarnation {known.incarnation}, of which records up to {tp}@{known.offset} are there",
                    action="choose another group, or delete the rows of that topic there to begin with the new one",
                )
        self._begun = found

    def has_begun_all(self) -> bool:
        """Whether what was read is of these partitions alone."""
        return self._consumer.incarnations() == self._begun

    def commit(self, records: pa.Table) -> None:
        """The records and their positions, or neither; then the group, as far as that goes."""
        after = {
            tp: Position(self._begun[tp], at.offset)
            for tp, at in self._consumer.positions().items()
            if tp not in self.known or self.known[tp].offset != at.offset
        }
        written = False
        try:
            with self._connection.transaction():
                self.table.move(self.known, after)
                self._write(self._connection, records)
                written = True
        except psycopg.Error as error:
            found = translated(error, _ACTOR, f"group {self._group_id!r}, {records.num_rows} records")
            if written and isinstance(found, DatabaseUnavailableError):
                found = DatabaseOutcomeUnknownError(found.seen, actor=found.actor, place=found.place)
            raise found from error
        self.known |= after
        self.records += records.num_rows
        self.batches += 1
        self._follow()

    def _follow(self) -> None:
        """The group's offsets, for its lag. Nobody reads from there."""
        try:
            self._consumer.commit()
            self.group_error = None
        except TxnEngineError as error:
            self.group_error = str(error)
            _LOGGER.warning("the group does not follow the database: %s", error)
