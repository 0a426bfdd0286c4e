"""Into topics, out of tables of SQLite: what a query gives, exactly and once, in one transaction of the topic."""

from __future__ import annotations

import json
import re
import sqlite3
from base64 import b64encode
from collections.abc import Callable, Generator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, TypeVar

import pyarrow as pa
import pyarrow.compute as pc

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
from txn_engine.databases.rows import NoText, Rows
from txn_engine.engine import Engine
from txn_engine.errors import InvalidRequestError
from txn_engine.exact import cast_exactly
from txn_engine.files import Rejected
from txn_engine.files.batches import Faults, batch_of
from txn_engine.files.columns import converted
from txn_engine.files.conversion import Conversion
from txn_engine.files.kinds import is_binary, misfit_reason
from txn_engine.files.layout import BadRows
from txn_engine.log.row_sizes import RowSizes
from txn_engine.log.topics import Topic
from txn_engine.producer import ForgottenRuns
from txn_engine.reasons import Reason
from txn_engine.schemas.defaults import fills
from txn_engine.sqlite.errors import check_idle, execute, select, transaction
from txn_engine.sqlite.kinds import expected_storage, texts_of, type_for
from txn_engine.sqlite.writers import quoted

_ROWS: Final = 10_000
_TOKEN: Final = re.compile(
    r"""(?P<skipped>[ \t\n\r\f;]+|--[^\n]*|/\*.*?(?:\*/|\Z))"""
    r"""|'(?:[^']|'')*'|"(?:[^"]|"")*"|`(?:[^`]|``)*`|\[[^\]]*\]|[\w$]+|.""",
    re.DOTALL,
)
"""What a query is made of (https://sqlite.org/lang_comment.html: a comment may lack its end)."""
Found = TypeVar("Found")


def load_query(
    engine: Engine,
    connection: sqlite3.Connection,
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

    Guarantee and arguments: as `txn_engine.postgres.load_query`; `parameters` are for the query's `?` or `:name`. All
    rows are of one moment of the file. A column of SQLite takes values of any type, so that each value is judged: whole
    numbers are to be INTEGER, floats REAL or INTEGER, text, dates and times TEXT (ISO 8601), bytes BLOB, and exact
    decimals TEXT or INTEGER: a REAL is a binary fraction, so say what is meant by it, as `printf('%.2f', amount)`.

    Raises:
        InvalidRequestError: no run id, or one that the log may have forgotten; a column is missing, unknown, or of a
        type that SQLite has not; a dead-letter topic of other columns.
        InvalidRecordError: a value that does not fit, with its row; or too many of them. DatabaseError,
        DatabaseUnavailableError: SQLite's answer; nothing of the load is seen. ProducerFencedError: another load has
        this transactional id.
        OutcomeUnknownError: it may be committed; the same call with the same run id finds out.
    """
    check_idle(connection, ACTOR)
    check_query(query)
    chosen = checked_range(key_range)
    run = Run(run_id, chosen, digest_of(query, parameters), transactional_id, timeout_ms, forgotten_runs)

    def source(into: Topic) -> _Source:
        return _Source(connection, query, parameters, chosen, into)

    return load(
        engine,
        topic,
        run,
        source,
        dead_letter_topic=dead_letter_topic,
        max_dead_letters=max_dead_letters,
        progress=progress,
    )


class _StoredText(Conversion):
    """Texts of what SQLite stores, where that is not as files have it."""

    __slots__ = ()

    def array(self, texts: pa.Array[Any], kind: pa.DataType) -> pa.Array[Any]:
        """The texts in a type. ValueError when any does not fit; it does not say which."""
        found: Any
        if is_binary(kind) or pa.types.is_fixed_size_binary(kind):
            return pa.array(
                [None if text is None else bytes.fromhex(text) for text in texts.to_pylist()], kind
            )
        if pa.types.is_boolean(kind) and not {"true", "false"} >= set(texts.drop_null().to_pylist()):
            raise ValueError("neither 0 nor 1")
        if pa.types.is_floating(kind):
            found = texts.cast(pa.float64())  # the shortest text of a double is that double
            _require_whole(texts, found)
            found = cast_exactly(found, kind)
            return found  # type: ignore[no-any-return]
        return super().array(texts, kind)


def _require_whole(texts: Any, found: Any) -> None:
    """ValueError for a whole number that is not the double it became: of 64 bits a double has 53."""
    long = pc.match_substring_regex(texts, "^-?[0-9]{16,}$")
    pairs = zip(texts.filter(long).to_pylist(), found.filter(long).to_pylist(), strict=True)
    if any(int(text) != int(number) for text, number in pairs):
        raise ValueError("a whole number that no double is")


class _Source:
    """A query, and the topic that its rows go into."""

    def __init__(
        self,
        connection: sqlite3.Connection,
        query: str,
        parameters: Sequence[Any] | Mapping[str, Any] | None,
        key_range: KeyRange | None,
        topic: Topic,
    ) -> None:
        self.topic = topic
        self._connection, self._schema = connection, topic.held.schema
        text = without_end(query.strip(), _TOKEN)
        self._query, self._words = f"SELECT * FROM ({text}\n) AS q", _words(parameters, key_range)
        if key_range is not None:
            name = quoted(key_range.column)
            marks = (":txn_engine_start", ":txn_engine_end") if isinstance(self._words, dict) else ("?", "?")
            self._query += f" WHERE q.{name} >= {marks[0]} AND q.{name} < {marks[1]}"
        self._place = f"the query for topic {topic.name!r}"
        file = execute(connection, "PRAGMA database_list").fetchone()[2]
        self.name = f"SQLite {Path(file).name or 'in memory'}, query {digest_of(query, parameters)}"

    def tables(self, rejected: Rejected | None = None) -> Generator[pa.Table]:
        """The rows, in parts, as the topic has them. Rows that cannot be used go to `rejected`."""
        with transaction(self._connection, "BEGIN", ACTOR, self._place):
            names, cursor = self._read(lambda: select(self._connection, self._query, self._words))
            may_lack = fills(self.topic.schemas)
            check_columns(names, self._schema, self._place, _misfit, may_lack=may_lack)
            fields = [field for field in self._schema if field.name in names]
            rows = Rows(
                self._place,
                pa.schema(fields),
                ACTOR,
                None if rejected is None else BadRows(rejected),
                RowSizes(self.topic),
            )
            first = 1
            while part := self._read(lambda: cursor.fetchmany(_ROWS)):
                yield pa.Table.from_batches([_batch(rows, names, part, first)])
                first += len(part)

    def _read(self, step: Callable[[], Found]) -> Found:
        """What a step of the cursor gives. A text that is none is its row's fault: the driver would end the query."""
        self._connection.text_factory = NoText.unless_text
        try:
            return step()
        finally:
            self._connection.text_factory = str


def _misfit(name: str, kind: pa.DataType) -> tuple[str, str] | None:
    if type_for(kind) is not None:
        return None
    return f"column {name!r}, of the topic's type {kind}", "a type that SQLite has"


def _words(
    parameters: Sequence[Any] | Mapping[str, Any] | None, key_range: KeyRange | None
) -> Sequence[Any] | dict[str, Any]:
    bounds = () if key_range is None else (key_range.start, key_range.end)
    if isinstance(parameters, str) or not isinstance(parameters, Sequence | Mapping | None):
        raise InvalidRequestError(
            f"parameters of type {type(parameters).__name__}",
            actor=ACTOR,
            expected="a sequence for the query's ?, or a mapping for its :name",
            reason=Reason.BAD_ARGUMENT,
        )
    if isinstance(parameters, Mapping):
        return dict(parameters) | dict(zip(("txn_engine_start", "txn_engine_end"), bounds, strict=False))
    return (*(parameters or ()), *bounds)


def _batch(rows: Rows, names: list[str], part: list[tuple[Any, ...]], first: int) -> pa.RecordBatch:
    values = dict(zip(names, zip(*part, strict=True), strict=True))
    numbers = range(first, first + len(part))
    conversion = _StoredText(None, "text")

    def column(field: pa.Field[Any], faults: Faults) -> pa.Array[Any]:
        texts, bad = texts_of(values[field.name], field.type)
        for index in bad:
            value, expected = values[field.name][index], f"{expected_storage(field.type)}, for {field.type}"
            if isinstance(value, NoText):
                faults.add(index, rows.not_text(field.name, numbers[index], expected))
                continue
            seen, reason = f"{field.name} is a {type(value).__name__}", misfit_reason(field.type)
            faults.add(index, rows.refused(seen, reason=reason, expected=expected, line=numbers[index]))
        return converted(rows, conversion, field, pa.array(texts, pa.string()), numbers, faults)

    batch = batch_of(
        rows, numbers, column, lambda places: [_as_json(rows.schema, values, place) for place in places]
    )
    if rows.bad_rows is not None:
        rows.bad_rows.hand_on()
    return batch


def _as_json(schema: pa.Schema, values: Mapping[str, Sequence[Any]], index: int) -> str:
    """A row as a dead letter has it: text, but for nulls, true and false."""
    found: dict[str, Any] = {}
    for field in schema:
        value = values[field.name][index]
        if isinstance(value, NoText):
            found[field.name] = value.in_letter
        elif isinstance(value, bytes):
            found[field.name] = b64encode(value).decode()
        elif pa.types.is_boolean(field.type) and value in (0, 1):
            found[field.name] = bool(value)
        else:
            found[field.name] = (
                None if value is None else repr(value) if isinstance(value, float) else str(value)
            )
    return json.dumps(found, ensure_ascii=False)
