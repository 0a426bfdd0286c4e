"""Out of topics, into tables: records and how far they go, in one transaction of the database."""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Final, Protocol

import pyarrow as pa

from txn_engine.consumer import Consumer
from txn_engine.databases.errors import check_counts
from txn_engine.databases.positions import TABLE, Position, PositionsTable
from txn_engine.errors import InvalidRequestError, TxnEngineError
from txn_engine.reasons import Reason
from txn_engine.types import TopicPartition

SAVEPOINT: Final = "txn_engine_batch"
"""Set before a batch is written, and looked for behind it: it is gone with the transaction that it is of."""

_LOGGER: Final = logging.getLogger(__name__)


class Database(Protocol):
    """A connection to a database that takes records."""

    @property
    def positions(self) -> PositionsTable:
        """How far it is."""

    def transaction(self, place: str) -> AbstractContextManager[object]:
        """A transaction, committed when the block ends. What the driver raises in it is a `DatabaseError`; where it
        went at the commit, and nobody knows what became of that, a `DatabaseOutcomeUnknownError`.
        """


@dataclass(frozen=True, slots=True)
class Consumed:
    """What one call did. positions: the next offset of each partition that the database lacks. group_error: why the
    group in the store did not follow; it does the next time.
    """

    records: int
    batches: int
    positions: dict[TopicPartition, int]
    group_error: str | None = None


def consume(
    database: Database,
    consumer: Consumer,
    write: Callable[[pa.Table], object],
    *,
    max_records: int | None,
    max_batches: int | None,
    progress: Callable[[int], None] | None,
) -> Consumed:
    """What the dialects' `consume_into` do, which say what is promised."""
    check_counts("consume_into", max_records=max_records, max_batches=max_batches)
    _check_isolation(consumer)
    run = ConsumeRun(database, consumer, write, consumer.group_metadata().group_id)
    ends = consumer.end_offsets(consumer.assignment())
    database.positions.create()
    run.known = database.positions.read()
    if consumer.is_restored:
        run.elsewhere = database.positions.elsewhere()
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
    run.keep_positions()
    return Consumed(
        run.records, run.batches, {tp: run.known[tp].offset for tp in sorted(run.known)}, run.group_error
    )


def _check_isolation(consumer: Consumer) -> None:
    if consumer.isolation_level != "read_committed":
        raise InvalidRequestError(
            f"a consumer that reads {consumer.isolation_level}",
            actor="consume_into",
            expected="read_committed: what is aborted later would stay in the database",
            action="make the consumer without isolation.level",
            reason=Reason.READS_UNCOMMITTED,
        )


class ConsumeRun:
    """One call. known: what the database has; of partitions that it has nothing of, nothing. elsewhere: for a store
    that was restored, what it has of others: the one whose backup it is, one of before, or a sibling.
    """

    def __init__(
        self,
        database: Database,
        consumer: Consumer,
        write: Callable[[pa.Table], object],
        group_id: str,
    ) -> None:
        self.known: dict[TopicPartition, Position] = {}
        self.elsewhere: dict[TopicPartition, tuple[str, int]] = {}
        self.records = self.batches = 0
        self.group_error: str | None = None
        self._database, self._consumer, self._write = database, consumer, write
        self._group_id = group_id
        self._begun: dict[TopicPartition, int] = {}

    def begin_partitions(self) -> None:
        """Where the database is, in each partition; all of them where one is new."""
        found = self._consumer.incarnations()
        if found == self._begun:
            return
        for tp, incarnation in found.items():
            known = self.known.get(tp)
            if known is None and tp in self.elsewhere:
                raise self._is_restored(tp)
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
                    reason=Reason.TOPIC_MADE_AGAIN,
                )
        self._begun = found

    def _is_restored(self, tp: TopicPartition) -> InvalidRequestError:
        """Nobody can tell which of the records there are in the backup too."""
        store_id, offset = self.elsewhere[tp]
        return InvalidRequestError(
            f"this store was restored from a backup, and of store {store_id} the records of {tp} up to offset {offset}"
            " are there",
            actor=f"group {self._group_id!r}",
            place=TABLE,
            expected="positions in this store: begun anew, all records would be written again",
            action=f"take out of the database what came behind the backup (`txn-engine backup list URL --json` has its"
            f" offsets), then let those rows of {TABLE} have store_id {self._consumer.store_id}, and no next_offset"
            " behind the backup's; or choose another group, for empty tables",
            reason=Reason.STORE_RESTORED,
        )

    def has_begun_all(self) -> bool:
        """Whether what was read is of these partitions alone."""
        return self._consumer.incarnations() == self._begun

    def commit(self, records: pa.Table) -> None:
        """The records and their positions, or neither; then the group, as far as that goes."""
        after = self._moved()
        with self._database.transaction(f"group {self._group_id!r}, {records.num_rows} records"):
            self._database.positions.move(self.known, after)
            self._write(records)
        self.known |= after
        self.records += records.num_rows
        self.batches += 1
        self.follow()

    def keep_positions(self) -> None:
        """Those that moved without a record: where `auto.offset.reset` began, or behind what was aborted. What comes
        from there on is the next call's, which would begin elsewhere by "latest".
        """
        after = self._moved() if self.has_begun_all() else {}
        if after:
            with self._database.transaction(f"group {self._group_id!r}, no records"):
                self._database.positions.move(self.known, after)
            self.known |= after
            self.follow()

    def _moved(self) -> dict[TopicPartition, Position]:
        return {
            tp: Position(self._begun[tp], at.offset)
            for tp, at in self._consumer.positions().items()
            if tp not in self.known or self.known[tp].offset != at.offset
        }

    def follow(self) -> None:
        """The group's offsets, for its lag. Nobody reads from there."""
        try:
            self._consumer.commit()
            self.group_error = None
        except TxnEngineError as error:
            self.group_error = str(error)
            _LOGGER.warning("the group does not follow the database: %s", error)
