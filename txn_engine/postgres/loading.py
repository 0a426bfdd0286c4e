"""Into topics, out of tables: what a query gives, exactly and once, in one transaction of the topic."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, NamedTuple

import pyarrow as pa
import xxhash
from psycopg import ClientCursor, Connection, sql

from txn_engine.engine import Engine
from txn_engine.errors import InvalidRequestError, TxnEngineError
from txn_engine.files import Rejected
from txn_engine.loading import DeadLetters
from txn_engine.loading.dead_letters import reading_of
from txn_engine.loading.load import dead_letters_for
from txn_engine.log.topics import Topic
from txn_engine.postgres.copying import copy_out
from txn_engine.postgres.errors import check_idle, database_errors
from txn_engine.postgres.kinds import reads
from txn_engine.postgres.rows import RowReader
from txn_engine.producer import ForgottenRuns, Producer, run_into
from txn_engine.types import RecordMetadata

_ACTOR: Final = "load_query"
_SENT_BYTES: Final = 32 << 20
_SETTINGS: Final = (
    "SET LOCAL TimeZone = 'UTC'",
    "SET LOCAL DateStyle = 'ISO'",
    "SET LOCAL bytea_output = 'hex'",
    "SET LOCAL extra_float_digits = 3",
    "SET LOCAL client_encoding = 'UTF8'",
)
_READ_ONLY: Final = "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY"
_TYPES: Final = (
    "SELECT format_type(kind, modifier) FROM unnest(%s::oid[], %s::integer[]) AS of (kind, modifier)"
)


class KeyRange(NamedTuple):
    """Rows whose `column` is at least `start` and below `end`: one run's share of a table."""

    column: str
    start: Any
    end: Any

    @property
    def name(self) -> str:
        """The range, written so that no other one is written like it."""
        bounds = [json.dumps(end if isinstance(end, int) else str(end)) for end in (self.start, self.end)]
        return f"{json.dumps(self.column)}[{bounds[0]},{bounds[1]})"


@dataclass(frozen=True, slots=True)
class Loaded:
    """What one call did: records and dead letters are all rows of the query. committed_before: an earlier one had
    loaded this run; then nothing was read.
    """

    run_id: str
    records: int
    committed_before: bool
    dead_letters: int = 0


def load_query(
    engine: Engine,
    connection: Connection[Any],
    query: str,
    topic: str,
    *,
    run_id: str | None = None,
    key_range: KeyRange | tuple[str, Any, Any] | None = None,
    parameters: Sequence[Any] | Mapping[str, Any] | None = None,
    transactional_id: str | None = None,
    timeout_ms: int | None = None,
    forgotten_runs: ForgottenRuns = "refuse",
    dead_letter_topic: str | None = None,
    max_dead_letters: int | str | None = None,
    progress: Callable[[int], None] | None = None,
) -> Loaded:
    """Load what a query gives into a topic: all of it in one transaction, and once for each run id.

    Guarantee: the rows are those of one snapshot of the database (REPEATABLE READ, read-only), taken when the run
    begins; every value goes in exactly, or the load is refused and nothing of it is seen. The same run id again loads
    nothing. Memory is bounded: rows come by COPY, in parts.

    The query has the topic's columns by their names, in any order; a column with a default, or that may be null and was
    added later, may be missing. `parameters`: for the query's `%s` or `%(name)s`. `key_range`: (column, start, end)
    takes the rows of this query with start <= column < end; where no `run_id` does, it names the run, with a digest of
    the query. `transactional_id`: one of the topic's if not told; two loads at once need two. The log knows the last
    100 runs of it. From then on a run that is none of them is refused, for it may have been loaded, unless
    `forgotten_runs` is "load".

    With a `dead_letter_topic` rows with a value that does not fit go there, in the same transaction: records and dead
    letters are all rows. Above `max_dead_letters` (a count, or a share as "1%") the load is refused.

    Raises:
        InvalidRequestError: no run id, or one that the log may have forgotten; a column is missing, unknown, or of a
        type that the topic's does not hold; a dead-letter topic of other columns.
        InvalidRecordError: a value that does not fit, with its row; or too many of them. DatabaseError,
        DatabaseUnavailableError: the server's answer; nothing of the load is seen. ProducerFencedError: another load
        has this transactional id.
        OutcomeUnknownError: it may be committed; the same call with the same run id finds out.
    """
    check_idle(connection, _ACTOR)
    chosen = None if key_range is None else _checked_range(KeyRange(*key_range))
    name_of_run = run_id or (None if chosen is None else f"{chosen.name}@{_digest(query, parameters)}")
    if name_of_run is None:
        raise InvalidRequestError(
            "no run id",
            actor=_ACTOR,
            place=topic,
            expected="run_id, or key_range, which names the run",
            action="name the run: by it a second try knows that the first one has committed",
        )
    info = engine.logs.topics.look_up(topic)
    run = run_into(name_of_run, info)
    name = transactional_id or f"load-query/{topic}/{info.incarnation}"
    settings: dict[str, object] = {"transactional.id": name}
    if timeout_ms is not None:
        settings["transaction.timeout.ms"] = timeout_ms
    with engine.producer(settings) as producer:
        producer.init_transactions()
        if chosen is not None and run_id is None:
            _check_same_query(producer, run, chosen, run.removeprefix(name_of_run))
        if producer.committed_before(run, forgotten_runs=forgotten_runs):
            return Loaded(name_of_run, 0, True)
        letters = dead_letters_for(
            engine, dead_letter_topic, max_dead_letters, topic=topic, run_id=name_of_run, is_dry=False
        )
        source = source_of(connection, query, info, parameters=parameters, key_range=chosen)
        load = RowLoad(source, letters, progress)
        load_run(producer, run, load, before_commit=partial(engine.logs.topics.check_current, info))
        return Loaded(name_of_run, load.records, False, load.dead)


def source_of(
    connection: Connection[Any],
    query: str,
    topic: Topic,
    *,
    parameters: Sequence[Any] | Mapping[str, Any] | None = None,
    key_range: KeyRange | None = None,
) -> Source:
    """What a query gives, or the rows of it in a range, for this topic. Nothing is read yet.

    Raises `DatabaseError` for parameters that are not the query's.
    """
    with database_errors(_ACTOR, f"the query for topic {topic.name!r}"):
        composed = _composed(connection, query, parameters, key_range)
    name = f"database {connection.info.dbname}, query {_digest(query, parameters)}"
    return Source(connection, composed, topic, name)


def _checked_range(key_range: KeyRange) -> KeyRange:
    if key_range.start is None or key_range.end is None or not key_range.start < key_range.end:
        raise InvalidRequestError(
            f"key_range from {key_range.start!r} to {key_range.end!r}",
            actor=_ACTOR,
            expected="a start below the end: a run of no rows would count as loaded",
        )
    return key_range


def _digest(query: str, parameters: object) -> str:
    return xxhash.xxh3_64_hexdigest(f"{' '.join(query.split())} {parameters!r}".encode())


def _check_same_query(producer: Producer, run_id: str, key_range: KeyRange, ending: str) -> None:
    if producer.has_committed(run_id):
        return
    known = producer.committed_run_ids
    if any(each.startswith(f"{key_range.name}@") and each.endswith(ending) for each in known):
        raise InvalidRequestError(
            f"the range {key_range.name} was loaded by another query, or with other parameters",
            actor=_ACTOR,
            expected="that query; or a run_id, or a transactional_id, of its own for each that is loaded",
            action="nothing was loaded: name the run, if these are other rows",
        )


@dataclass
class RowLoad:
    """Sends what a source gives, and its dead letters, in the transaction that a producer has open."""

    source: Source
    dead_letters: DeadLetters | None = None
    progress: Callable[[int], None] | None = None
    records: int = 0
    sent: list[Future[list[RecordMetadata]]] = field(default_factory=list)

    def send(self, producer: Producer) -> list[Future[list[RecordMetadata]]]:
        """All of it; the futures of what was sent, records and dead letters.

        Raises `InvalidRecordError` where a row, or too many of them, cannot be used.
        """
        letters, rejected = self.dead_letters, None
        if letters is not None:
            letters.producer = producer
            reading = reading_of("jsonl", {"binary": "base64"}, self.source.topic)
            rejected = letters.taker(self.source.name, reading)
        held: list[pa.Table] = []
        for table in self.source.tables(rejected):
            held.append(table)
            self.records += table.num_rows
            if sum(part.nbytes for part in held) >= _SENT_BYTES:
                self._send(producer, held)
                held = []
            if self.progress is not None:
                self.progress(self.records)
        self._send(producer, held)
        if letters is None:
            return self.sent
        letters.check(self.records + letters.count)
        return [*self.sent, *letters.sent]

    @property
    def dead(self) -> int:
        """How many rows became dead letters."""
        return 0 if self.dead_letters is None else self.dead_letters.count

    def _send(self, producer: Producer, held: Sequence[pa.Table]) -> None:
        if any(table.num_rows for table in held):
            self.sent.append(producer.produce(self.source.topic.name, pa.concat_tables(held)))


def load_run(
    producer: Producer, run_id: str, load: RowLoad, *, before_commit: Callable[[], None] | None = None
) -> None:
    """All that the source gives, in one transaction of this run."""
    producer.begin_transaction(run_id)
    try:
        load.send(producer)
        if before_commit is not None:
            before_commit()
    except BaseException:
        with suppress(TxnEngineError):  # the sweep aborts it; the error to tell is the one that came first
            producer.abort_transaction()
        raise
    producer.commit_transaction()


def _composed(
    connection: Connection[Any],
    query: str,
    parameters: Sequence[Any] | Mapping[str, Any] | None,
    key_range: KeyRange | None,
) -> sql.Composable:
    """The query with its parameters in it: COPY takes none."""
    text = query.strip().rstrip(";")
    if parameters is not None:
        text = ClientCursor(connection).mogrify(text, parameters)
    whole: sql.Composable = sql.SQL("SELECT * FROM ({}\n) AS q").format(sql.SQL(text))
    if key_range is None:
        return whole
    column = sql.Identifier(key_range.column)
    bounds = sql.SQL(" WHERE q.{0} >= {1} AND q.{0} < {2}")
    return whole + bounds.format(column, sql.Literal(key_range.start), sql.Literal(key_range.end))


class Source:
    """A query, and the topic that its rows go into.

    name: what dead letters call it. number: a column of whole numbers beside the topic's, by which its rows are named.
    """

    def __init__(
        self,
        connection: Connection[Any],
        query: sql.Composable,
        topic: Topic,
        name: str,
        number: str | None = None,
    ) -> None:
        self.topic, self.name = topic, name
        self._connection, self._query = connection, query
        self._schema, self._number = topic.schema, number
        self._place = f"the query for topic {topic.name!r}"

    def check(self) -> None:
        """Raise for columns that the topic cannot hold. Nothing is read."""
        with self._reading():
            self._checked_columns()

    @contextmanager
    def _reading(self) -> Iterator[None]:
        with database_errors(_ACTOR, self._place), self._connection.transaction():
            self._connection.execute(_READ_ONLY)
            for setting in _SETTINGS:
                self._connection.execute(setting)
            yield

    def tables(self, rejected: Rejected | None = None) -> Iterator[pa.Table]:
        """The rows, in parts, as the topic has them. Rows that cannot be used go to `rejected`."""
        with self._reading():
            kinds = self._checked_columns()
            reader = RowReader(self._place, _ACTOR, self._schema, kinds, self._number, rejected)
            first = 0
            for text in copy_out(self._connection, self._query):
                table, rows = reader.read(text, first)
                first += rows
                yield table

    def _checked_columns(self) -> dict[str, str]:
        """The query's columns, each of which the topic has and can hold, by the server's types."""
        with self._connection.cursor() as cursor:
            cursor.execute(self._query + sql.SQL(" LIMIT 0"))
            described, result = cursor.description or [], cursor.pgresult
        names = [column.name for column in described]
        modifiers = [-1 if result is None else result.fmod(number) for number in range(len(names))]
        kinds = self._connection.execute(_TYPES, ([c.type_code for c in described], modifiers)).fetchall()
        known = set(self._schema.names)
        for name, (kind,) in zip(names, kinds, strict=True):
            if names.count(name) > 1:
                raise self._refused(f"column {name!r} twice", "each column once")
            if name == self._number:
                continue
            if name not in known:
                raise self._refused(
                    f"unknown column {name!r}", f"the columns {', '.join(self._schema.names)}"
                )
            field = self._schema.field(name)
            if not reads(field.type, kind):
                raise self._refused(
                    f"column {name!r} of type {kind}", f"one that {field.type} holds; cast it in the query"
                )
        missing = [field.name for field in self._schema if field.name not in names and not field.nullable]
        if missing:
            raise self._refused(f"no column {missing[0]!r}", f"the columns {', '.join(self._schema.names)}")
        return {name: kind for name, (kind,) in zip(names, kinds, strict=True)}

    def _refused(self, seen: str, expected: str) -> InvalidRequestError:
        return InvalidRequestError(
            seen, actor=_ACTOR, place=self._place, expected=expected, action="mend the query"
        )
