"""What is wrong where DuckDB fails: the query, one of its files, or a value.

DuckDB's own text is shown only where it says the same of the query over empty relations, where no record's value can be
in it. Whatever else it says may quote one.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Final

import duckdb

from storage.envelope import open_parquet
from txn_engine.errors import CorruptObjectError, InvalidRequestError, TxnEngineError
from txn_engine.log.file_versions import file_version
from txn_engine.log.logs import Logs
from txn_engine.log.objects import store_errors, translated
from txn_engine.log.topics import Topic
from txn_engine.reasons import Reason
from txn_engine.sql.columns import OWN
from txn_engine.sql.file_parts import FilePart
from txn_engine.sql.interruptible import interruptibly
from txn_engine.sql.locked import LockedDuckDB
from txn_engine.sql.permitted import ACTOR, ANSWERED, folded
from txn_engine.sql.relations import identifier
from txn_engine.sql.statement import Statement, told
from txn_engine.unreadable import DAMAGE

MEMORY_VARIABLE: Final = "TXN_ENGINE_SQL_MEMORY_MB"
_ANSWERED: Final = re.compile(rf'Binder Error: Macro "?({"|".join(ANSWERED)})"?\(\) does not support')
"""What DuckDB says of such a name where it is not a column."""
_OF_TYPES: Final = re.compile(
    r"Conversion Error: Unimplemented type for cast \([A-Z0-9_(), \[\]]+ -> [A-Z0-9_(), \[\]]+\)"
    r"( when casting from source column \w+)?"
)
"""A text that names types and a column alone, which DuckDB finds out as late as it runs the query."""
_READ_BYTES_MAX: Final = 64 << 20
"""So many bytes of files are read whole to find the one that is damaged. The one that DuckDB names is always read."""
_FOOTERS_MAX: Final = 10_000


def failure(
    error: duckdb.Error,
    duck: LockedDuckDB,
    planner: LockedDuckDB,
    logs: Logs,
    statement: Statement,
    topics: Mapping[str, Topic],
    parts: Mapping[str, Sequence[FilePart]],
) -> TxnEngineError:
    """The engine's error for one of DuckDB's, on one line. `planner`: a DuckDB that still takes queries.

    The error's text has no value of a record in it; `with_value()` has what DuckDB said.
    """
    every = [part for found in parts.values() for part in found]
    failures = [duck.files.failures[part.key] for part in every if part.key in duck.files.failures]
    if failures:
        return translated(failures[0])
    refusal = _of_query(planner, statement, topics)
    if refusal is not None:
        return refusal
    text = told(error)
    if _OF_TYPES.fullmatch(text):
        return InvalidRequestError(text, actor=ACTOR)
    named = [part for part in every if re.search(rf"{re.escape(duck.place(part))}(?![0-9])", text)]
    if named and isinstance(error, duckdb.PermissionException):  # it knows where a descriptor leads
        return CorruptObjectError(
            "a data file that was removed or replaced while the query ran", actor=ACTOR, place=named[0].key
        )
    if isinstance(error, duckdb.OutOfMemoryException):
        return _hidden(
            InvalidRequestError(
                "the query needs more memory than it may use",
                actor=ACTOR,
                action=f"allow it more: memory_mb, --memory-mb or {MEMORY_VARIABLE}",
            ),
            text,
        )
    damaged = _damaged(logs, topics, parts, {part.key for part in named})
    if damaged is not None:
        return damaged
    kind = type(error).__name__
    if isinstance(error, duckdb.IOException):
        place = named[0].key if named else None
        return _hidden(
            CorruptObjectError(f"a data file that DuckDB cannot read: {kind}", actor=ACTOR, place=place), text
        )
    return _hidden(
        InvalidRequestError(
            f"DuckDB refuses a value: {kind}",
            actor=ACTOR,
            expected="values that the query's functions and casts take; TRY_CAST is null for others",
            action="a terminal shows the value, as does --show-values, or the error's `with_value()` in Python",
        ),
        text,
    )


def _hidden(error: TxnEngineError, text: str) -> TxnEngineError:
    error.value = text
    return error


def _of_query(
    planner: LockedDuckDB, statement: Statement, topics: Mapping[str, Topic]
) -> InvalidRequestError | None:
    """What DuckDB says of the query over empty relations with the topics' columns; None where it can plan that."""
    try:
        with planner.connection.cursor() as cursor:
            interruptibly(lambda: _plan(planner, cursor, statement, topics), cursor.interrupt)
    except (duckdb.InternalException, duckdb.FatalException):
        return None
    except duckdb.Error as error:
        text = told(error)
        if (unknown := _ANSWERED.match(text)) is not None:
            return InvalidRequestError(
                f"the name {unknown[1]!r}, which is not a column here",
                actor=ACTOR,
                expected="columns of topics: what DuckDB says of itself by this name is not shown",
                reason=Reason.NOT_PERMITTED_IN_SQL,
            )
        return InvalidRequestError(text, actor=ACTOR)
    return None


def _plan(
    planner: LockedDuckDB,
    cursor: duckdb.DuckDBPyConnection,
    statement: Statement,
    topics: Mapping[str, Topic],
) -> None:
    views: set[str] = set()
    for table, topic in topics.items():
        if folded(table) not in views:
            views.add(folded(table))
            empty = planner.select_from((), topic.schemas, OWN, topic=topic.name)
            cursor.execute(f"CREATE TEMP VIEW {identifier(table)} AS {empty}")
    cursor.execute(f"EXPLAIN {statement.text}")


def _damaged(
    logs: Logs,
    topics: Mapping[str, Topic],
    parts: Mapping[str, Sequence[FilePart]],
    named: set[str],
) -> TxnEngineError | None:
    """The error of the first file that is not as it was written: of those in `named`, then of the others.

    The named files are read whole, and of the others as many as are small. The footers of many more are looked at.
    """
    asked = [(topics[table], part, part.key in named) for table, found in parts.items() for part in found]
    asked.sort(key=lambda each: (not each[2], each[1].size))
    left, looked = _READ_BYTES_MAX, []
    for topic, part, is_named in asked[:_FOOTERS_MAX]:
        left -= 0 if is_named else part.size
        looked.append((topic, part, is_named or left >= 0))
    found = logs.workers.map(lambda each: _fault_of(logs, *each), looked)
    return next((error for error in found if error is not None), None)


def _fault_of(logs: Logs, topic: Topic, part: FilePart, is_whole: bool) -> TxnEngineError | None:
    objects = logs.tools.objects
    try:
        if is_whole:
            with store_errors():
                open_parquet(objects.read(part.key, max_bytes=part.size), key=part.key, kind="data")
        file_version(objects, topic, part.key, part.size)
    except DAMAGE as error:
        return error
    return None
