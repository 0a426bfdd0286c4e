"""Into topics, out of tables of Postgres: what a query gives, exactly and once, in one transaction of the topic."""

from __future__ import annotations

import re
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing, contextmanager
from typing import Any, Final

import pyarrow as pa
from psycopg import ClientCursor, Connection, sql

from txn_engine.databases.loading import (
    ACTOR,
    KeyRange,
    Loaded,
    Run,
    check_columns,
    check_query,
    checked_range,
    digest_of,
    load,
    without_end,
)
from txn_engine.engine import Engine
from txn_engine.errors import InvalidRequestError
from txn_engine.files import BadRow, Rejected
from txn_engine.log.row_sizes import RowSizes
from txn_engine.log.topics import Topic
from txn_engine.postgres.copying import copy_out
from txn_engine.postgres.errors import check_idle, database_errors
from txn_engine.postgres.kinds import reads
from txn_engine.postgres.rows import RowReader
from txn_engine.postgres.statements import execute
from txn_engine.producer import ForgottenRuns
from txn_engine.reasons import Reason
from txn_engine.schemas.defaults import fills

_TOKEN: Final = re.compile(
    r"""(?P<skipped>[ \t\n\r\f\v;]+|--[^\n\r]*|/\*(?:[^*/]|\*(?!/)|/(?!\*)|/\*(?:(?!/\*).)*?\*/)*\*/)"""
    r"""|[eE]'(?:[^'\\]|\\.|'')*'|'(?:[^']|'')*'|"(?:[^"]|"")*"|\$(?P<tag>\w*)\$.*?\$(?P=tag)\$|\w[\w$]*|.""",
    re.DOTALL,
)
"""What a query is made of: a comment may be inside of another one, and E'' has its quotes behind backslashes too."""
_SETTINGS: Final = (
    "SET LOCAL TimeZone = 'UTC'",
    "SET LOCAL DateStyle = 'ISO'",
    "SET LOCAL bytea_output = 'hex'",
    "SET LOCAL extra_float_digits = 3",
)
_ONE_BYTE: Final = ("LATIN", "ISO_8859", "WIN", "KOI8")
"""Encodings of one byte a character begin so: Python's and the server's are the same."""
_READ_ONLY: Final = "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY"
_TYPES: Final = (
    "SELECT format_type(kind, modifier) FROM unnest(%s::oid[], %s::integer[]) AS of (kind, modifier)"
)


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

    The query has the topic's columns by their names, in any order; one that was added to the topic since it was made
    may be missing, and is filled as it is in older records. `parameters`: for the query's `%s` or `%(name)s`.
    `key_range`: (column, start, end) takes the rows of this query with start <= column < end; where no `run_id` does,
    it names the run, with a digest of the query. `transactional_id`: one of the topic's if not told; two loads at once
    need two. The log knows the last 100 runs of it. From then on a run that is none of them is refused, for it may have
    been loaded, unless `forgotten_runs` is "load".

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
    check_idle(connection, ACTOR)
    check_query(query)
    chosen = checked_range(key_range)

    def source(into: Topic) -> Source:
        return source_of(connection, query, into, parameters=parameters, key_range=chosen)

    run = Run(run_id, chosen, digest_of(query, parameters), transactional_id, timeout_ms, forgotten_runs)
    return load(
        engine,
        topic,
        run,
        source,
        dead_letter_topic=dead_letter_topic,
        max_dead_letters=max_dead_letters,
        progress=progress,
    )


def source_of(
    connection: Connection[Any],
    query: str,
    topic: Topic,
    *,
    parameters: Sequence[Any] | Mapping[str, Any] | None = None,
    key_range: KeyRange | None = None,
) -> Source:
    """What a query gives, or the rows of it in a range, for this topic. Nothing is read yet.

    Raises `DatabaseError`, or `InvalidRequestError`, for parameters that are not the query's.
    """
    place = f"the query for topic {topic.name!r}"
    try:
        with database_errors(ACTOR, place):
            composed = _composed(connection, query, parameters, key_range)
    except TypeError as error:  # what psycopg says of words of another kind
        raise InvalidRequestError(
            f"parameters of type {type(parameters).__name__}",
            actor=ACTOR,
            place=place,
            expected="a sequence for the query's %s, or a mapping for its %(name)s",
            reason=Reason.BAD_ARGUMENT,
        ) from error
    name = f"database {connection.info.dbname}, query {digest_of(query, parameters)}"
    return Source(connection, composed, topic, name)


def _composed(
    connection: Connection[Any],
    query: str,
    parameters: Sequence[Any] | Mapping[str, Any] | None,
    key_range: KeyRange | None,
) -> sql.Composed:
    """The query with its parameters in it: COPY takes none."""
    text = without_end(query.strip(), _TOKEN)
    if parameters is not None:
        text = ClientCursor(connection).mogrify(text, parameters)
    whole = sql.SQL("SELECT * FROM ({}\n) AS q").format(sql.SQL(text))
    if key_range is None:
        return whole
    column = sql.Identifier(key_range.column)
    bounds = sql.SQL(" WHERE q.{0} >= {1} AND q.{0} < {2}")
    return whole + bounds.format(column, sql.Literal(key_range.start), sql.Literal(key_range.end))


_Part = tuple[pa.Table, list[BadRow]]


class Source:
    """A query, and the topic that its rows go into.

    name: what dead letters call it. number: a column of whole numbers beside the topic's, by which its rows are named.
    """

    def __init__(
        self,
        connection: Connection[Any],
        query: sql.Composed,
        topic: Topic,
        name: str,
        number: str | None = None,
    ) -> None:
        self.topic, self.name = topic, name
        self._connection, self._query = connection, query
        self._schema, self._number = topic.held.schema, number
        self._place = f"the query for topic {topic.name!r}"

    def check(self) -> None:
        """Raise for columns that the topic cannot hold. Nothing is read."""
        with self._reading():
            self._checked_columns()

    @contextmanager
    def _reading(self) -> Iterator[tuple[str, str]]:
        """The encoding to read in, as the server and as Python call it. It is the server's own, where that is one of
        single bytes, or none: in another one the server would end the query at a text that it cannot convert.
        """
        with database_errors(ACTOR, self._place), self._connection.transaction():
            execute(self._connection, _READ_ONLY)
            for setting in _SETTINGS:
                execute(self._connection, setting)
            encoding = self._connection.info.parameter_status("server_encoding") or "UTF8"
            if not encoding.startswith((*_ONE_BYTE, "SQL_ASCII")):
                encoding = "UTF8"
            execute(self._connection, sql.SQL("SET LOCAL client_encoding = {}").format(encoding))
            codec = self._connection.info.encoding
            execute(self._connection, "SET LOCAL client_encoding = 'UTF8'")
            yield encoding, "utf-8" if encoding == "SQL_ASCII" else codec

    def tables(self, rejected: Rejected | None = None) -> Generator[pa.Table]:
        """The rows, in parts, as the topic has them. Rows that cannot be used go to `rejected`."""
        with (
            self._reading() as (encoding, codec),
            ThreadPoolExecutor(1, "txn-engine-rows") as pool,  # the server's rows come meanwhile
            closing(copy_out(self._connection, self._query, encoding)) as texts,
        ):
            kinds = self._checked_columns()
            reader = RowReader(
                self._place,
                ACTOR,
                self._schema,
                kinds,
                self._number,
                with_bad=rejected is not None,
                sizes=RowSizes(self.topic),
                codec=codec,
            )
            for records, bad in _while_the_next_comes(pool.submit(reader.read, text) for text in texts):
                if rejected is not None and bad:
                    rejected(bad)
                yield records

    def _checked_columns(self) -> dict[str, str]:
        """The query's columns, each of which the topic has and can hold, by the server's types."""
        cursor = execute(self._connection, self._query + sql.SQL(" LIMIT 0"))
        described, result = cursor.description or [], cursor.pgresult
        names = [column.name for column in described]
        modifiers = [-1 if result is None else result.fmod(number) for number in range(len(names))]
        kinds = execute(self._connection, _TYPES, ([c.type_code for c in described], modifiers)).fetchall()
        by_name = {name: kind for name, (kind,) in zip(names, kinds, strict=True)}

        def misfit(name: str, kind: pa.DataType) -> tuple[str, str] | None:
            if reads(kind, by_name[name]):
                return None
            return f"column {name!r} of type {by_name[name]}", f"one that {kind} holds; cast it in the query"

        may_lack = fills(self.topic.schemas)
        check_columns(names, self._schema, self._place, misfit, may_lack=may_lack, beside=self._number)
        return by_name


def _while_the_next_comes(work: Iterator[Future[_Part]]) -> Iterator[_Part]:
    """What comes of each piece of work, once the next one is begun."""
    ahead: Future[_Part] | None = None
    for begun in work:
        if ahead is not None:
            yield ahead.result()
        ahead = begun
    if ahead is not None:
        yield ahead.result()
