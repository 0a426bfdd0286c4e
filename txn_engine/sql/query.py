"""Running a query: its topics at a cut, as views over their files, in a DuckDB that can reach no others."""

from __future__ import annotations

import os
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from types import MappingProxyType
from typing import Final, TypeVar

import duckdb
import pyarrow as pa

from txn_engine.errors import CorruptObjectError, InvalidRequestError, SchemaChangedError, TxnEngineError
from txn_engine.log.as_of import AsOf, AsOfCut, UnkeptCut
from txn_engine.log.cut_format import Cut
from txn_engine.log.erasures import was_erased_from
from txn_engine.log.logs import Logs
from txn_engine.log.missing_files import missing_error, wrong_files
from txn_engine.log.own_process import OwnLock
from txn_engine.log.reading import FileSlice, choose_files
from txn_engine.log.topics import Topic
from txn_engine.protocol.partition import PartitionState
from txn_engine.reasons import Reason
from txn_engine.scan import SchemaVersion, columns_asked, topic_of_cut
from txn_engine.sql.beyond import find_beyond, is_beyond, is_conversion
from txn_engine.sql.columns import OWN, check_result, check_schema, table_schema, typed
from txn_engine.sql.failing import MEMORY_VARIABLE, failure
from txn_engine.sql.file_parts import FilePart
from txn_engine.sql.interruptible import interruptibly
from txn_engine.sql.locked import LockedDuckDB, OpensFiles
from txn_engine.sql.permitted import ACTOR, folded
from txn_engine.sql.pruning import chosen
from txn_engine.sql.relations import NOTHING_BEYOND, Beyond, identifier
from txn_engine.sql.statement import Statement, read_statement
from txn_engine.sql.topics import topics_of
from txn_engine.types import TopicPartition

THREADS_VARIABLE: Final = "TXN_ENGINE_SQL_THREADS"
_PERCENT: Final = 50  # of what the machine has, or its container
_HALVED_MAX: Final = 5
_REMEMBERED_MAX: Final = 4
K = TypeVar("K")
V = TypeVar("V")
Look = Callable[[Sequence[str], UnkeptCut | None], UnkeptCut]
"""Makes a cut of these topics that stands nowhere, reading on from an earlier one."""


class SqlEngine:
    """Queries over the topics of one store. Threads may share it.

    A query over a local store has a DuckDB of its own, which can open the query's files and no others. Queries over
    any other store share one, unless they name memory or threads: it keeps what it has read of files for later queries,
    within its memory, until `close`.
    """

    def __init__(self, logs: Logs, look: Look) -> None:
        self._logs = logs
        self._look = look
        self._lock = OwnLock()
        self._shared: LockedDuckDB | None = None
        self._running = 0  # queries that have a DuckDB of their own, and no memory of their own
        self._fresh: OrderedDict[frozenset[str], UnkeptCut] = OrderedDict()  # the last one of these topics
        self._listed: OrderedDict[tuple[int, str], list[FilePart]] = (
            OrderedDict()
        )  # of cuts, which never change

    def run(
        self,
        query: str,
        cut: Cut | None,
        *,
        schema_version: SchemaVersion | None,
        memory_mb: int | None,
        threads: int | None,
    ) -> pa.Table:
        """The rows of one SELECT over topics, as of the cut; without one as of now."""
        asked = columns_asked(self._logs.topics, schema_version, cut)
        try:
            return self._run(query, cut, asked, memory_mb, threads)
        except SchemaChangedError:  # since its topics were looked up
            return self._run(query, cut, asked, memory_mb, threads)

    def _run(
        self,
        query: str,
        cut: Cut | None,
        asked: Callable[[Topic], Topic],
        memory_mb: int | None,
        threads: int | None,
    ) -> pa.Table:
        statement = self._read(query)
        found_topics = topics_of(self._logs, statement.tables)
        topics = {table: asked(topic) for table, topic in found_topics.items()}
        for topic in topics.values():
            check_schema(topic.name, topic.schema)
        parts = {table: chosen(found, statement.wanted) for table, found in self._parts(topics, cut).items()}
        every = [part for found in parts.values() for part in found]
        if statement.wanted.count is not None and all(part.records >= 0 for part in every):
            if self._missing(every) is not None:  # it may have been erased since its parts were listed
                every = [part for found in self._parts(topics, cut).values() for part in found]
                if (error := self._missing(every)) is not None:
                    raise error
            return _counted(statement.wanted.count, every)
        parts = {table: self._with_versions(topics[table], found) for table, found in parts.items()}
        with self._over(every, memory_mb, threads) as duck, duck.connection.cursor() as cursor:
            try:
                found = interruptibly(
                    lambda: _result(duck, cursor, statement, topics, parts), cursor.interrupt
                )
            except duckdb.Error as error:
                if not is_beyond(error):  # DuckDB's error may have a value in it
                    raise self._failure(error, duck, statement, topics, parts) from None
                found = None
        if found is None:
            found = self._with_times_beyond(statement, topics, parts, memory_mb, threads)
        schemas = {table: table_schema(topic.schema) for table, topic in topics.items()}
        return typed(found, statement.plain, schemas)

    def _with_times_beyond(
        self,
        statement: Statement,
        topics: Mapping[str, Topic],
        parts: Mapping[str, Sequence[FilePart]],
        memory_mb: int | None,
        threads: int | None,
    ) -> pa.Table:
        """The rows, where files hold times that DuckDB's TIMESTAMP does not reach, in a DuckDB of its own: some
        conversions of such times are fatal for all queries of a DuckDB.
        """
        every = [part for found in parts.values() for part in found]
        objects = self._logs.tools.objects
        with self._opened(every, memory_mb, threads) as duck, duck.connection.cursor() as cursor:

            def run() -> pa.Table:
                beyond = {
                    table: find_beyond(cursor, objects, topic, parts[table], duck.place)
                    for table, topic in topics.items()
                }
                return _result(duck, cursor, statement, topics, parts, beyond)

            try:
                return interruptibly(run, cursor.interrupt)
            except duckdb.Error as error:
                if not is_conversion(error):
                    raise self._failure(error, duck, statement, topics, parts) from None
                raise InvalidRequestError(
                    "a time that TIMESTAMP does not reach, in a conversion",
                    actor=ACTOR,
                    expected="a time of at most 292,000 years from 1970",
                    action="TRY_CAST(column AS TIMESTAMP) is null for it; a column as it stands is shown as it is",
                    reason=Reason.BAD_DATETIME,
                ) from None  # DuckDB's error has the time

    def close(self) -> None:
        """Let go of DuckDB, and of what it has put on the disk."""
        with self._lock.here():
            shared, self._shared = self._shared, None
        if shared is not None:
            shared.close()

    # --- the files ------------------------------------------------------------------------------------------

    def _parts(self, topics: Mapping[str, Topic], cut: Cut | None) -> dict[str, list[FilePart]]:
        """By table, what there is to read."""
        if cut is not None:
            return {table: self._as_of(topic, cut) for table, topic in topics.items()}
        names = frozenset(topic.name for topic in topics.values())
        with self._lock.here():
            known = self._fresh.get(names)
        if known is not None and any(
            known.cut.find(topic.name, topic.incarnation) is None for topic in topics.values()
        ):
            known = None
        fresh = self._look(sorted(names), known)
        with self._lock.here():
            _remember(self._fresh, names, fresh)
        return {table: _files(topic, fresh, map) for table, topic in topics.items()}

    def _with_versions(self, topic: Topic, parts: list[FilePart]) -> list[FilePart]:
        """The parts, which know whose columns their files have."""
        versions = self._logs.file_versions.of(topic, [(part.key, part.size) for part in parts])
        return [
            part if part.schema_version == version else replace(part, schema_version=version)
            for part, version in zip(parts, versions, strict=True)
        ]

    def _as_of(self, topic: Topic, cut: Cut) -> list[FilePart]:
        place = cut.number, topic.name
        topic_of_cut(cut, topic)
        with self._lock.here():
            found = self._listed.get(place)
        was_erased = was_erased_from(self._logs.tools.objects, topic.name, topic.incarnation)
        if found is None or was_erased:  # then another file may stand for one by now
            found = _files(topic, AsOfCut(self._logs.tools, cut), self._logs.workers.map)
            with self._lock.here():
                _remember(self._listed, place, found)
        return found

    def _missing(self, parts: Sequence[FilePart]) -> CorruptObjectError | None:
        """The error for files that are gone or have another size, if there are any; nothing is read of the others.

        A number that comes from the log alone would count the records of a file that nobody can read.
        """
        folders: dict[str, dict[str, int]] = {}
        for part in parts:
            folders.setdefault(f"{part.key.rpartition('/')[0]}/", {})[part.key] = part.size
        objects = self._logs.tools.objects
        looked = self._logs.workers.map(lambda each: wrong_files(objects, *each), folders.items())
        wrong = {key: size for found in looked for key, size in found.items()}
        if not wrong:
            return None
        by_key = {part.key: part for part in parts}
        key, seen_bytes = next(iter(wrong.items()))
        part = by_key[key]
        expected = f"a data file of {part.size:,} bytes, with records from offset {part.base_offset:,} on"
        return missing_error(key, seen_bytes, expected, others=len(wrong) - 1)

    # --- DuckDB ---------------------------------------------------------------------------------------------

    def _read(self, query: str) -> Statement:
        with self._one_for_all().connection.cursor() as cursor:
            return interruptibly(lambda: read_statement(cursor, query), cursor.interrupt)

    @contextmanager
    def _over(
        self, parts: Sequence[FilePart], memory_mb: int | None, threads: int | None
    ) -> Iterator[LockedDuckDB]:
        """A DuckDB that reads these files."""
        if memory_mb is not None or threads is not None:
            with self._opened(parts, memory_mb, threads) as own:
                yield own
        elif not isinstance(self._logs.tools.objects.store, OpensFiles):
            shared = self._one_for_all()
            with shared.offered(parts):
                yield shared
        else:
            with self._lock.here():
                before, self._running = self._running, self._running + 1
            try:
                with self._opened(parts, None, None, before=before) as own:
                    yield own
            finally:
                with self._lock.here():
                    self._running -= 1

    def _one_for_all(self) -> LockedDuckDB:
        with self._lock.here():
            if self._shared is None:
                self._shared = self._opened((), None, None)
            return self._shared

    def _opened(
        self, parts: Sequence[FilePart], memory_mb: int | None, threads: int | None, *, before: int = 0
    ) -> LockedDuckDB:
        """`before`: how many queries share the memory already. Each has half of what the one before it has."""
        memory = _above_0("memory_mb", memory_mb, MEMORY_VARIABLE)
        count = _above_0("threads", threads, THREADS_VARIABLE)
        share = 2 ** min(before, _HALVED_MAX)
        limit = f"{memory * 1_000_000 // share}B" if memory else f"{_PERCENT / share}%"
        return LockedDuckDB(self._logs.tools.objects.store, parts, memory=limit, threads=count or 0)

    def _failure(
        self,
        error: duckdb.Error,
        duck: LockedDuckDB,
        statement: Statement,
        topics: Mapping[str, Topic],
        parts: Mapping[str, Sequence[FilePart]],
    ) -> TxnEngineError:
        """The engine's error for one of DuckDB's."""
        if isinstance(error, (duckdb.FatalException, duckdb.InternalException)):
            with self._lock.here():  # it takes no further query
                if self._shared is duck:
                    self._shared = None
        return failure(error, duck, self._one_for_all(), self._logs, statement, topics, parts)


def _files(topic: Topic, as_of: AsOf, each: Callable[..., Iterable[PartitionState]]) -> list[FilePart]:
    """What a scan of the topic would read; `each` maps over its partitions."""
    partitions = range(topic_of_cut(as_of.cut, topic).partitions)
    states = each(lambda number: as_of.state(topic.name, topic.incarnation, number), partitions)
    ends = as_of.cut.offsets
    found: list[FilePart] = []
    for number, state in zip(partitions, states, strict=True):
        end = ends[TopicPartition(topic.name, number)]
        slices = choose_files(state, number, state.log_start_offset, end, "read_committed")
        found += [_part(topic, part) for part in slices]
    return found


def _part(topic: Topic, part: FileSlice) -> FilePart:
    file = part.log_file
    records = file.record_count
    if not part.is_whole:  # of a file with gaps only its own offsets would tell
        records = -1 if file.has_gaps else part.end_offset - part.start_offset
    return FilePart(
        f"{topic.prefix(part.partition)}/{file.file.data_path}",
        file.file.data_bytes,
        part.partition,
        file.base_offset,
        part.start_offset,
        part.end_offset,
        part.is_whole,
        records,
    )


def _counted(name: str, parts: Sequence[FilePart]) -> pa.Table:
    """How many records there are, which the log knows."""
    return pa.table({name: pa.array([sum(part.records for part in parts)], pa.int64())})


def _result(
    duck: LockedDuckDB,
    cursor: duckdb.DuckDBPyConnection,
    statement: Statement,
    topics: Mapping[str, Topic],
    parts: Mapping[str, Sequence[FilePart]],
    beyond: Mapping[str, Beyond] = MappingProxyType({}),
) -> pa.Table:
    views: set[str] = set()
    for table, topic in topics.items():
        if folded(table) not in views:
            views.add(folded(table))
            select = duck.select_from(
                parts[table],
                topic.schemas,
                OWN,
                topic=topic.name,
                beyond=beyond.get(table, NOTHING_BEYOND),
            )
            cursor.execute(f"CREATE TEMP VIEW {identifier(table)} AS {select}")
    rows = cursor.sql(statement.text)
    check_result(rows.columns, rows.types)
    found: pa.Table = rows.to_arrow_table()
    return found


def _remember(into: OrderedDict[K, V], key: K, value: V) -> None:
    into[key] = value
    into.move_to_end(key)
    while len(into) > _REMEMBERED_MAX:
        into.popitem(last=False)


def _above_0(name: str, given: int | None, variable: str) -> int | None:
    """What was given, or what the environment has; None where nobody says."""
    text = os.environ.get(variable, "") if given is None else None
    if given is None and not text:
        return None
    value = given if text is None else int(text) if text.isdecimal() else 0
    if type(value) is not int or value < 1:
        raise InvalidRequestError(
            f"{name}={given!r:.40}" if text is None else f"{variable}={text!r:.40}",
            actor=ACTOR,
            expected="a whole number above 0",
        )
    return value
