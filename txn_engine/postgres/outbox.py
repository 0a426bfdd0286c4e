"""An outbox: rows that applications insert in transactions of their own, each of which goes into a topic once.

A batch is claimed first, durably: its rows are stamped with a run id in a transaction of the database's. Whoever takes
over from a worker that died finds the stamp and loads the same rows under the same run id, if that run has not
committed; the log knows. Only then are the rows deleted, or marked. Nothing goes by the order of a sequence or of
times, so that a row that commits late is one that nobody has claimed yet.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

from psycopg import Connection, sql

from txn_engine.databases.errors import DatabaseError, check_counts
from txn_engine.databases.loading import RowLoad, load_run
from txn_engine.engine import Engine
from txn_engine.errors import InvalidRequestError
from txn_engine.ids import new_write_id
from txn_engine.loading import DeadLetters
from txn_engine.loading.load import dead_letters_for
from txn_engine.log.topics import Topic
from txn_engine.postgres.errors import check_idle, database_errors
from txn_engine.postgres.loading import Source
from txn_engine.postgres.statements import execute
from txn_engine.producer import Producer, check_run_is_there
from txn_engine.reasons import Reason
from txn_engine.schemas.defaults import fills

_ACTOR: Final = "load_outbox"
RUN_COLUMN: Final = "txn_engine_run"
_BATCH_ROWS_MAX: Final = 2**31 - 1

_CLAIM = sql.SQL("""
UPDATE {table} SET {run} = %s WHERE {run} IS NULL AND (tableoid, ctid) IN (
    SELECT of_table::oid, at::tid FROM unnest(%s::bigint[], %s::text[]) AS chosen (of_table, at))""")
_CHOOSE = sql.SQL("""
SELECT array_agg(txn_engine_table::bigint), array_agg(txn_engine_at::text), {sums} FROM (
    SELECT *, tableoid AS txn_engine_table, ctid AS txn_engine_at FROM {table} WHERE {run} IS NULL
    ORDER BY {order} LIMIT %s FOR UPDATE SKIP LOCKED) AS chosen""")
_STAMPED = sql.SQL("SELECT count(*), {sums} FROM {table} WHERE {run} = %s")
_SUM = sql.SQL("""sum(hashtextextended({column}::text COLLATE "C", 0)::numeric)""")
"""The same for the same values of a column, in whatever order: of any type, for each has a text."""
_STILL = sql.SQL("SELECT 1 FROM {table} WHERE {run} = %s AND {open} LIMIT 1")
_CLAIMED = sql.SQL("SELECT DISTINCT {run} FROM {table} WHERE {run} IS NOT NULL AND {open}")
_AFTER: Final = "-after-"
_NUMBER: Final = "txn_engine_number"
_TABLES: Final = ("r", "p")
"""Whole ones, and those in partitions."""
_WHOLE: Final = ("smallint", "integer", "bigint")
_TABLE: Final = """
SELECT current_database(), n.nspname, c.relname, format_type(a.atttypid, a.atttypmod), c.relkind FROM pg_class c
JOIN pg_namespace n ON n.oid = c.relnamespace
LEFT JOIN pg_attribute a ON a.attrelid = c.oid AND a.attname = %s AND NOT a.attisdropped
WHERE c.oid = to_regclass(%s)"""
_COLUMNS: Final = """
SELECT a.attname,
    CASE t.typtype WHEN 'd' THEN format_type(t.typbasetype, t.typtypmod) ELSE format_type(a.atttypid, a.atttypmod) END,
    a.attnotnull OR t.typnotnull OR t.typdefault IS NOT NULL
        OR (a.atthasdef AND (a.attgenerated <> '' OR pg_get_expr(d.adbin, d.adrelid) !~ '^NULL::[a-z ]+$'))
FROM pg_attribute a JOIN pg_type t ON t.oid = a.atttypid
LEFT JOIN pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
WHERE a.attrelid = to_regclass(%s) AND a.attnum > 0 AND NOT a.attisdropped"""
_ROWS = sql.SQL("SELECT {columns} FROM {table} WHERE {run} = {value} ORDER BY {order}")
_DELETE = sql.SQL("DELETE FROM {table} WHERE {run} = %s")
_MARK = sql.SQL("UPDATE {table} SET {mark} = now() WHERE {run} = %s AND {mark} IS NULL")


@dataclass(frozen=True, slots=True)
class Drained:
    """What one call did: records and dead letters are all rows of the batches that it loaded.

    taken_over: batches that an earlier worker had claimed. finished: of these, those that it had committed, so that
    only their rows were left to be taken away. claimed_by_others: batches of other stores, topics or transactional ids,
    which are theirs. offsets: the first and the last that it wrote, by partition.
    """

    records: int
    batches: int
    taken_over: int
    finished: int
    claimed_by_others: int
    dead_letters: int = 0
    offsets: Mapping[int, tuple[int, int]] = field(default_factory=dict)


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
    timeout_ms: int | None = None,
    dead_letter_topic: str | None = None,
    max_dead_letters: int | str | None = None,
    progress: Callable[[int], None] | None = None,
) -> Drained:
    """Load what is in an outbox table, batch by batch, until nothing is left: each row once, whatever dies.

    The table has the topic's columns, and one more for the claims: `ALTER TABLE outbox ADD COLUMN txn_engine_run text`,
    with an index on it. A column that was added to the topic since it was made may be missing: it is filled as it is in
    older records. Rows of a batch that is committed are deleted; with `mark_column` (a timestamp, null before)
    they stay and have the time there. A row may not be changed once it is in the table.

    Workers that share a `transactional_id` (if not told, one of database, schema and table) fence one another, and take
    over what the one before has claimed; workers of different ids share the rows. An id is for one outbox alone. In a
    batch rows are in the order of `order_by`.

    With a `dead_letter_topic` rows with a value that does not fit go there, in the transaction of their batch, and are
    deleted or marked as the others are. `max_dead_letters` (a count, or a share as "1%") is of a batch: above it
    nothing of the batch is loaded.

    Raises:
        DatabaseError, DatabaseUnavailableError, InvalidRequestError, InvalidRecordError: as `load_query`. A batch that
        is claimed stays so, and is loaded by the next call. ProducerFencedError: another worker has taken over.
        OutcomeUnknownError: the batch may be committed; the next call finds out.
    """
    check_idle(connection, _ACTOR)
    if type(batch_rows) is not int or not 1 <= batch_rows <= _BATCH_ROWS_MAX:
        raise InvalidRequestError(
            f"batch_rows={batch_rows!r:.40}",
            actor=_ACTOR,
            expected=f"1 to {_BATCH_ROWS_MAX}",
            reason=Reason.BAD_ARGUMENT,
        )
    check_counts(_ACTOR, max_batches=max_batches)
    info = engine.logs.topics.look_up(topic)
    outbox = Outbox(connection, table, order_by, run_column, mark_column)
    outbox.rows("", info).check()  # before anything is claimed
    outbox.check()
    name = transactional_id or f"load-outbox/{outbox.identity}"
    restored = engine.config.restored
    stores = [engine.config.store_id] if restored is None else [engine.config.store_id, restored.store_id]
    prefixes = [f"{store}/{topic}/{info.incarnation}/{name}/" for store in stores]

    def letters(run_id: str) -> DeadLetters | None:
        return dead_letters_for(
            engine, dead_letter_topic, max_dead_letters, topic=topic, run_id=run_id, is_dry=False
        )

    letters("")  # what is wrong with them is told before anything is claimed
    settings: dict[str, object] = {"transactional.id": name}
    if timeout_ms is not None:
        settings["transaction.timeout.ms"] = timeout_ms
    with engine.producer(settings) as producer:
        producer.init_transactions()
        check = partial(check_run_is_there, engine.logs, name)
        worker = _Worker(producer, outbox, info, prefixes, letters, progress, check)
        worker.take_over()
        while max_batches is None or worker.batches < max_batches:
            if worker.next_batch(batch_rows) < batch_rows:
                break  # that was all; rows that others are claiming are theirs
        return worker.drained()


class Outbox:
    """The table."""

    def __init__(
        self, connection: Connection[Any], table: str, order_by: str, run_column: str, mark_column: str | None
    ) -> None:
        self.connection = connection
        self.place = f"outbox {table!r}"
        self._run, self._mark = run_column, mark_column
        self._names = {
            "table": sql.Identifier(*table.split(".")),
            "run": sql.Identifier(run_column),
            "order": sql.Identifier(order_by),
        }
        with database_errors(_ACTOR, self.place), connection.transaction():
            name = self._names["table"].as_string(connection)
            found = execute(connection, _TABLE, (order_by, name)).fetchone()
            columns = execute(connection, _COLUMNS, (name,)).fetchall()
        self._columns = {each: (kind, is_filled) for each, kind, is_filled in columns}
        database, schema, name, kind, self._relkind = found or ("", "", table, None, "")
        self.identity = f"{database}/{schema}/{name}"
        """What tells this outbox from others of its name."""
        self._called = f"database {database}, table {schema}.{name}"
        self._number = _NUMBER if kind in _WHOLE else None
        self._loaded: list[str] = []

    def check(self) -> None:
        """Raise `DatabaseError` where a claim would not be kept as it is made. The columns are there."""
        if self._relkind not in _TABLES:
            raise self._refused("no table of its own", "a table, not a view", Reason.NOT_A_TABLE)
        kind = self._columns[self._run][0]
        if kind != "text" and not kind.startswith("character varying"):
            seen = f"column {self._run!r} of type {kind}"
            raise self._refused(seen, "text: it keeps a run id as it is", Reason.TYPE_MISMATCH)
        if self._mark is not None and self._columns.get(self._mark, ("", False))[1]:
            raise self._refused(
                f"column {self._mark!r} with a default, or that takes no null",
                "one that is null in a new row",
                Reason.MARKED_FROM_THE_START,
            )

    def _refused(self, seen: str, expected: str, reason: Reason) -> DatabaseError:
        return DatabaseError(
            seen,
            actor=_ACTOR,
            place=self.place,
            expected=expected,
            action="alter the table, and run it again",
            reason=reason,
        )

    def claim(self, run_id: str, rows: int) -> int:
        """Stamp so many rows that nobody has claimed; how many there were. Durable when it returns.

        Raises `DatabaseError`, and nothing is claimed, where a row does not have the stamp then, or where a column that
        is loaded has changed, as a trigger does that notes when a row was last updated: the topic would have values
        that nobody has inserted.
        """
        with database_errors(_ACTOR, self.place), self.connection.transaction():
            execute(self.connection, "SET LOCAL synchronous_commit = on")
            return self._stamp(run_id, rows)

    def _stamp(self, run_id: str, rows: int) -> int:
        sums = sql.SQL(", ").join(_SUM.format(column=sql.Identifier(name)) for name in self._loaded)
        choose = _CHOOSE.format(sums=sums, **self._names)
        ((tables, places, *before),) = execute(self.connection, choose, (rows,)).fetchall()
        if places is None:
            return 0
        execute(self.connection, _CLAIM.format(**self._names), (run_id, tables, places))
        stamped = _STAMPED.format(sums=sums, **self._names)
        ((claimed, *after),) = execute(self.connection, stamped, (run_id,)).fetchall()
        if claimed != len(places):
            raise self._refused(
                f"{len(places):,} rows were to be stamped, and {claimed:,} have the stamp",
                "no trigger or rule that keeps rows as they are, or adds some",
                Reason.ROWS_NOT_STAMPED,
            )
        changed = [name for name, old, new in zip(self._loaded, before, after, strict=True) if old != new]
        if changed:
            raise self._refused(
                f"a trigger changes column {changed[0]!r} when a row is claimed",
                f"a trigger that leaves a row alone when only {self._run!r} changes, or a topic without the column",
                Reason.ROWS_CHANGED_BY_CLAIM,
            )
        return len(places)

    @property
    def _is_open(self) -> sql.Composable:
        """Of a row that is claimed: it is not taken away yet."""
        if self._mark is None:
            return sql.SQL("true")
        return sql.SQL("{} IS NULL").format(sql.Identifier(self._mark))

    def claimed(self) -> list[str]:
        """The runs that have rows which are not taken away yet."""
        query = _CLAIMED.format(open=self._is_open, **self._names)
        with database_errors(_ACTOR, self.place), self.connection.transaction():
            return sorted(run_id for (run_id,) in execute(self.connection, query))

    def rows(self, run_id: str, topic: Topic) -> Source:
        """Those of a run, with the topic's columns; without one that is younger than topic and table."""
        may_lack = fills(topic.schemas).keys() - self._columns
        self._loaded = [name for name in topic.schema.names if name not in may_lack]
        wanted: list[sql.Composable] = [sql.Identifier(name) for name in self._loaded]
        if self._number is not None:
            wanted.append(sql.SQL("{} AS {}").format(self._names["order"], sql.Identifier(self._number)))
        query = _ROWS.format(columns=sql.SQL(", ").join(wanted), value=sql.Literal(run_id), **self._names)
        return Source(self.connection, query, topic, self._called, self._number)

    def take_away(self, run_id: str) -> None:
        """The run has committed: its rows are done with."""
        with database_errors(_ACTOR, self.place), self.connection.transaction():
            statement = _DELETE.format(**self._names)
            if self._mark is not None:
                statement = _MARK.format(mark=sql.Identifier(self._mark), **self._names)
            execute(self.connection, statement, (run_id,))
            still = _STILL.format(open=self._is_open, **self._names)
            if execute(self.connection, still, (run_id,)).fetchone():
                raise self._refused(
                    "rows that are loaded, and stay",
                    "no trigger or rule that keeps them from being taken away",
                    Reason.ROWS_NOT_DELETED,
                )


class _Worker:
    """One call. prefixes: of the runs that are this worker's, or of one that it has fenced; then of those of the store
    of whose backup this one is, whose log says which of them had committed.
    """

    def __init__(
        self,
        producer: Producer,
        outbox: Outbox,
        topic: Topic,
        prefixes: Sequence[str],
        letters: Callable[[str], DeadLetters | None],
        progress: Callable[[int], None] | None,
        check_is_there: Callable[[str, Topic], None],
    ) -> None:
        self._producer, self._outbox, self._topic = producer, outbox, topic
        self._check_is_there = check_is_there
        self._prefixes = prefixes
        self._letters, self._progress = letters, progress
        self.batches = 0
        self._offsets: dict[int, tuple[int, int]] = {}
        self._dead = self._records = self._taken_over = self._finished = self._others = 0

    def take_over(self) -> None:
        """What the worker before has claimed and not taken away. It is fenced: its run can commit no more."""
        claimed = self._outbox.claimed()
        mine = [
            run_id
            for run_id in claimed
            if any(
                run_id.startswith(each) and "/" not in run_id.removeprefix(each) for each in self._prefixes
            )
        ]
        self._others = len(claimed) - len(mine)
        for run_id in mine:
            self._taken_over += 1
            if self._has_committed(run_id):
                self._check_is_there(run_id, self._topic)
                self._finished += 1
                self._outbox.take_away(run_id)
            else:
                self._load(run_id)

    def _has_committed(self, run_id: str) -> bool:
        """Whether a batch that was claimed has committed. The log knows the last runs of an id alone; but where it has
        the run that was the newest when the batch was claimed, it has any that came later.
        """
        known = self._producer.has_committed(run_id)
        if known is None:
            newest = run_id.rpartition(_AFTER)[2]
            if newest not in map(_short, self._producer.committed_run_ids):
                raise self._refused(run_id)
        return bool(known)

    def _refused(self, run_id: str) -> InvalidRequestError:
        return InvalidRequestError(
            f"batch {run_id!r} is claimed, and none of the last 100 runs of its transactional id",
            actor=_ACTOR,
            place=self._outbox.place,
            expected="an id for each outbox: its last run is then the one that is claimed",
            reason=Reason.CLAIMED_BY_UNKNOWN_RUN,
            action="look whether these rows are in the topic; if so delete them, else set their run column to null",
        )

    def next_batch(self, rows: int) -> int:
        """Claim, load and take away one batch; how many rows it had, 0 where there was nothing to claim."""
        newest = self._producer.last_committed_run_id
        run_id = f"{self._prefixes[0]}{new_write_id()}{_AFTER}{_short(newest) if newest else ''}"
        claimed = self._outbox.claim(run_id, rows)
        if claimed:
            self._load(run_id)
        return claimed

    def _load(self, run_id: str) -> None:
        load = RowLoad(self._outbox.rows(run_id, self._topic), self._letters(run_id))
        load_run(self._producer, run_id, load)
        for future in load.sent:
            for at in future.result():
                first, last = self._offsets.get(at.partition, (at.base_offset, at.last_offset))
                self._offsets[at.partition] = min(first, at.base_offset), max(last, at.last_offset)
        self._records += load.records
        self._dead += load.dead
        self.batches += 1
        self._outbox.take_away(run_id)
        if self._progress is not None:
            self._progress(self._records)

    def drained(self) -> Drained:
        """What was done."""
        return Drained(
            self._records,
            self.batches,
            self._taken_over,
            self._finished,
            self._others,
            self._dead,
            self._offsets,
        )


def _short(run_id: str) -> str:
    """What a later claim calls a run by. Claims stand in databases: another digest would not find the runs of older
    ones.
    """
    return hashlib.sha256(run_id.encode()).hexdigest()[:16]
