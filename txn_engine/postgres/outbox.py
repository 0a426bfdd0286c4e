"""An outbox: rows that applications insert in transactions of their own, each of which goes into a topic once.

A batch is claimed first, durably: its rows are stamped with a run id in a transaction of the database's. Whoever takes
over from a worker that died finds the stamp and loads the same rows under the same run id, if that run has not
committed; the log knows. Only then are the rows deleted, or marked. Nothing goes by the order of a sequence or of
times, so that a row that commits late is one that nobody has claimed yet.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
from psycopg import Connection, sql

from txn_engine.engine import Engine
from txn_engine.errors import InvalidRequestError
from txn_engine.ids import new_write_id
from txn_engine.postgres.errors import check_idle, database_errors
from txn_engine.postgres.loading import Source, load_run
from txn_engine.producer import Producer

_ACTOR: Final = "load_outbox"
RUN_COLUMN: Final = "txn_engine_run"

_CLAIM = sql.SQL("""
UPDATE {table} SET {run} = %s WHERE {run} IS NULL AND (tableoid, ctid) IN (
    SELECT tableoid, ctid FROM {table} WHERE {run} IS NULL ORDER BY {order} LIMIT %s FOR UPDATE SKIP LOCKED)""")
_CLAIMED = sql.SQL("SELECT DISTINCT {run} FROM {table} WHERE {run} IS NOT NULL AND {open}")
_ROWS = sql.SQL("SELECT {columns} FROM {table} WHERE {run} = {value} ORDER BY {order}")
_DELETE = sql.SQL("DELETE FROM {table} WHERE {run} = %s")
_MARK = sql.SQL("UPDATE {table} SET {mark} = now() WHERE {run} = %s AND {mark} IS NULL")


@dataclass(frozen=True, slots=True)
class Drained:
    """What one call did. taken_over: batches that an earlier worker had claimed. finished: of these, those that it had
    committed, so that only their rows were left to be taken away. claimed_by_others: batches of other stores, topics
    or transactional ids, which are theirs.
    """

    records: int
    batches: int
    taken_over: int
    finished: int
    claimed_by_others: int


def load_outbox(
    engine: Engine,
    connection: Connection[Any],
    table: str,
    topic: str,
    *,
    order_by: str = "id",
    run_column: str = RUN_COLUMN,
    mark_column: str | None = None,
    batch_rows: int = 10_000,
    max_batches: int | None = None,
    transactional_id: str | None = None,
    progress: Callable[[int], None] | None = None,
) -> Drained:
    """Load what is in an outbox table, batch by batch, until nothing is left: each row once, whatever dies.

    The table has the topic's columns, and one more for the claims: `ALTER TABLE outbox ADD COLUMN txn_engine_run text`,
    with an index on it. Rows of a batch that is committed are deleted; with `mark_column` (a timestamp, null before)
    they stay and have the time there. A row may not be changed once it is in the table.

    Workers that share a `transactional_id` (if not told, one of database, schema and table) fence one another, and take
    over what the one before has claimed; workers of different ids share the rows. An id is for one outbox alone. In a
    batch rows are in the order of `order_by`.

    Raises:
        DatabaseError, DatabaseUnavailableError, InvalidRequestError, InvalidRecordError: as `load_query`. A batch that
        is claimed stays so, and is loaded by the next call. ProducerFencedError: another worker has taken over.
        OutcomeUnknownError: the batch may be committed; the next call finds out.
    """
    check_idle(connection, _ACTOR)
    if batch_rows < 1:
        raise InvalidRequestError(f"batch_rows={batch_rows}", actor=_ACTOR, expected="1 or more")
    info = engine.logs.topics.look_up(topic)
    schema = info.schema
    outbox = _Outbox(connection, table, order_by, run_column, mark_column)
    outbox.rows("", schema, topic).check()  # before anything is claimed
    name = transactional_id or f"load-outbox/{outbox.identity()}"
    prefix = f"{engine.config.store_id}/{topic}/{info.incarnation}/{name}/"
    with engine.producer(transactional_id=name) as producer:
        producer.init_transactions()
        worker = _Worker(producer, outbox, topic, schema, prefix, progress)
        worker.take_over()
        while (max_batches is None or worker.batches < max_batches) and worker.next_batch(batch_rows):
            pass
        return worker.drained()


class _Outbox:
    """The table."""

    def __init__(
        self, connection: Connection[Any], table: str, order_by: str, run_column: str, mark_column: str | None
    ) -> None:
        self.connection = connection
        self.place = f"outbox {table!r}"
        self._mark = mark_column
        self._names = {
            "table": sql.Identifier(*table.split(".")),
            "run": sql.Identifier(run_column),
            "order": sql.Identifier(order_by),
        }

    def identity(self) -> str:
        """The database, the schema and the table: what tells this outbox from others of its name."""
        with database_errors(_ACTOR, self.place), self.connection.transaction():
            row = self.connection.execute(
                "SELECT current_database(), n.nspname, c.relname FROM pg_class c"
                " JOIN pg_namespace n ON n.oid = c.relnamespace WHERE c.oid = to_regclass(%s)",
                (self._names["table"].as_string(self.connection),),
            ).fetchone()
        return "/".join(row or (self.place,))

    def claim(self, run_id: str, rows: int) -> int:
        """Stamp so many rows that nobody has claimed; how many there were. Durable when it returns."""
        with database_errors(_ACTOR, self.place), self.connection.transaction():
            self.connection.execute("SET LOCAL synchronous_commit = on")
            return self.connection.execute(_CLAIM.format(**self._names), (run_id, rows)).rowcount

    def claimed(self) -> list[str]:
        """The runs that have rows which are not taken away yet."""
        is_open = (
            sql.SQL("true")
            if self._mark is None
            else sql.SQL("{} IS NULL").format(sql.Identifier(self._mark))
        )
        query = _CLAIMED.format(open=is_open, **self._names)
        with database_errors(_ACTOR, self.place), self.connection.transaction():
            return sorted(row[0] for row in self.connection.execute(query))

    def rows(self, run_id: str, schema: pa.Schema, topic: str) -> Source:
        """Those of a run, with the topic's columns."""
        columns = sql.SQL(", ").join(map(sql.Identifier, schema.names))
        query = _ROWS.format(columns=columns, value=sql.Literal(run_id), **self._names)
        return Source(self.connection, query, topic, schema)

    def take_away(self, run_id: str) -> None:
        """The run has committed: its rows are done with."""
        with database_errors(_ACTOR, self.place), self.connection.transaction():
            if self._mark is None:
                self.connection.execute(_DELETE.format(**self._names), (run_id,))
            else:
                mark = sql.Identifier(self._mark)
                self.connection.execute(_MARK.format(mark=mark, **self._names), (run_id,))


class _Worker:
    """One call. prefix: of the runs that are this worker's, or of one that it has fenced."""

    def __init__(
        self,
        producer: Producer,
        outbox: _Outbox,
        topic: str,
        schema: pa.Schema,
        prefix: str,
        progress: Callable[[int], None] | None,
    ) -> None:
        self._producer, self._outbox, self._topic, self._schema = producer, outbox, topic, schema
        self._prefix = prefix
        self._progress = progress
        self.batches = 0
        self._records = self._taken_over = self._finished = self._others = 0

    def take_over(self) -> None:
        """What the worker before has claimed and not taken away. It is fenced: its run can commit no more."""
        claimed = self._outbox.claimed()
        mine = [run_id for run_id in claimed if run_id.rpartition("/")[0] == self._prefix.rstrip("/")]
        self._others = len(claimed) - len(mine)
        for run_id in mine:
            self._taken_over += 1
            known = self._producer.has_committed(run_id)
            if known is None:
                raise self._refused(run_id)
            if known:
                self._finished += 1
                self._outbox.take_away(run_id)
            else:
                self._load(run_id)

    def _refused(self, run_id: str) -> InvalidRequestError:
        return InvalidRequestError(
            f"batch {run_id!r} is claimed, and none of the last 100 runs of its transactional id",
            actor=_ACTOR,
            place=self._outbox.place,
            expected="an id for each outbox: its last run is then the one that is claimed",
            action="look whether these rows are in the topic; if so delete them, else set their run column to null",
        )

    def next_batch(self, rows: int) -> bool:
        """Claim, load and take away one batch; False where there was nothing to claim."""
        run_id = f"{self._prefix}{new_write_id()}"
        if not self._outbox.claim(run_id, rows):
            return False
        self._load(run_id)
        return True

    def _load(self, run_id: str) -> None:
        source = self._outbox.rows(run_id, self._schema, self._topic)
        self._records += load_run(self._producer, run_id, self._topic, source)
        self.batches += 1
        self._outbox.take_away(run_id)
        if self._progress is not None:
            self._progress(self._records)

    def drained(self) -> Drained:
        """What was done."""
        return Drained(self._records, self.batches, self._taken_over, self._finished, self._others)
