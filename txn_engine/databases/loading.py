"""Into topics, out of tables: what a query gives, exactly and once, in one transaction of the topic."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Container, Generator, Sequence
from concurrent.futures import Future
from contextlib import closing, suppress
from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal
from functools import partial
from numbers import Integral
from typing import Any, Final, NamedTuple, Protocol

import pyarrow as pa
import xxhash

from txn_engine.arguments import check_callables
from txn_engine.engine import Engine
from txn_engine.errors import InvalidRequestError, TxnEngineError
from txn_engine.files import Rejected
from txn_engine.loading import DeadLetters
from txn_engine.loading.dead_letters import reading_of
from txn_engine.loading.load import dead_letters_for
from txn_engine.log.topics import Topic
from txn_engine.producer import ForgottenRuns, Producer, Uploads, check_run_is_there, run_into
from txn_engine.producer.runs import check_forgotten_runs, check_run_id
from txn_engine.reasons import Reason
from txn_engine.types import RecordMetadata

ACTOR: Final = "load_query"
_SENT_BYTES: Final = 32 << 20
_VERBATIM: Final = re.compile(
    r"""'(?:[^']|'')*'|"(?:[^"]|"")*"|\$(\w*)\$.*?\$\1\$|--[^\n]*\n?|/\*.*?\*/""", re.DOTALL
)
"""What stands in quotes, and comments: there a blank more is another text, or the end of a line that of a comment."""


class Source(Protocol):
    """A query for a topic. name: what dead letters call it."""

    topic: Topic
    name: str

    def tables(self, rejected: Rejected | None = None) -> Generator[pa.Table]:
        """The rows, in parts, as the topic has them. Rows that cannot be used go to `rejected`; without it the first
        is an error.
        """


class KeyRange(NamedTuple):
    """Rows whose `column` is at least `start` and below `end`: one run's share of a table."""

    column: str
    start: Any
    end: Any

    @property
    def name(self) -> str:
        """The range, written so that no other one is written like it."""
        bounds = [json.dumps(_written(end)) for end in (self.start, self.end)]
        return f"{json.dumps(self.column)}[{bounds[0]},{bounds[1]})"

    def query_in(self, run: str) -> str | None:
        """The digest, and what is behind it, of a run of this range, however its bounds were written; None for another.

        A moment is the same in every zone, and 1 is 1.0.
        """
        read = json.JSONDecoder().raw_decode
        try:
            column, at = read(run)
            start, at = read(run, at + 1)
            end, at = read(run, at + 1)
        except (ValueError, RecursionError):
            return None
        is_this = column == self.column and _is_same(self.start, start) and _is_same(self.end, end)
        return run[at:].removeprefix(")@") if is_this and run.startswith(")@", at) else None


@dataclass(frozen=True, slots=True)
class Loaded:
    """What one call did: records and dead letters are all rows of the query. committed_before: an earlier one had
    loaded this run; then nothing was read.
    """

    run_id: str
    records: int
    committed_before: bool
    dead_letters: int = 0


@dataclass(frozen=True, slots=True)
class Run:
    """Which run a load is. digest: of the query, in the name of a run that goes by its range."""

    run_id: str | None
    key_range: KeyRange | None
    digest: str
    transactional_id: str | None = None
    timeout_ms: int | None = None
    forgotten_runs: ForgottenRuns = "refuse"

    @property
    def name(self) -> str:
        """What the log calls it. Raises `InvalidRequestError` where nothing names it."""
        if self.run_id is not None and not isinstance(self.run_id, str):
            raise InvalidRequestError(
                f"a run id of type {type(self.run_id).__name__}",
                actor=ACTOR,
                expected="a text",
                reason=Reason.BAD_ARGUMENT,
            )
        if self.run_id:
            return self.run_id
        if self.key_range is None:
            raise InvalidRequestError(
                "no run id",
                actor=ACTOR,
                expected="run_id, or key_range, which names the run",
                action="name the run: by it a second try knows that the first one has committed",
                reason=Reason.NO_RUN_ID,
            )
        return f"{self.key_range.name}@{self.digest}"


def load(
    engine: Engine,
    topic: str,
    run: Run,
    make_source: Callable[[Topic], Source],
    *,
    dead_letter_topic: str | None,
    max_dead_letters: int | str | None,
    progress: Callable[[int], None] | None,
) -> Loaded:
    """What the dialects' `load_query` do, which say what is promised."""
    name = run.name
    info = engine.logs.topics.look_up(topic)
    check_run_id(name, actor=ACTOR)
    check_forgotten_runs(run.forgotten_runs)
    check_callables(ACTOR, progress=progress)
    run_id = run_into(name, info)
    source = make_source(info)
    letters = dead_letters_for(
        engine, dead_letter_topic, max_dead_letters, topic=topic, run_id=name, is_dry=False
    )
    settings: dict[str, object] = {
        "transactional.id": run.transactional_id or f"load-query/{topic}/{info.incarnation}"
    }
    if run.timeout_ms is not None:
        settings["transaction.timeout.ms"] = run.timeout_ms
    with engine.producer(settings) as producer:
        producer.init_transactions()
        by_range = None if run.run_id else run.key_range
        if by_range is not None and _has_loaded(producer, by_range, run.digest, run_id.removeprefix(name)):
            check_run_is_there(engine.logs, str(producer.transactional_id), run_id, info)
            return Loaded(name, 0, True)
        if producer.committed_before(run_id, forgotten_runs=run.forgotten_runs):
            check_run_is_there(engine.logs, str(producer.transactional_id), run_id, info)
            return Loaded(name, 0, True)
        rows = RowLoad(source, letters, progress)
        load_run(producer, run_id, rows, before_commit=partial(engine.logs.topics.check_current, info))
        return Loaded(name, rows.records, False, rows.dead)


def checked_range(given: KeyRange | tuple[str, Any, Any] | None) -> KeyRange | None:
    """The range. Raises `InvalidRequestError` for one without rows."""
    if given is None:
        return None
    words: Any = given
    is_triple = isinstance(words, tuple | list) and len(words) == len(KeyRange._fields)
    if not is_triple or not isinstance(words[0], str):
        raise InvalidRequestError(
            f"key_range {given!r:.80}",
            actor=ACTOR,
            expected="(column, start, end), the column's name a text",
            reason=Reason.BAD_ARGUMENT,
        )
    key_range = KeyRange(*given)
    try:
        is_range = None not in (key_range.start, key_range.end) and bool(key_range.start < key_range.end)
    except TypeError as error:
        raise InvalidRequestError(
            f"key_range from {key_range.start!r:.80} to {key_range.end!r:.80}",
            actor=ACTOR,
            expected="bounds that can be compared: of one type, both with a time zone, or neither",
            reason=Reason.INCOMPARABLE_VALUES,
        ) from error
    if not is_range:
        raise InvalidRequestError(
            f"key_range from {key_range.start!r} to {key_range.end!r}",
            actor=ACTOR,
            expected="a start below the end: a run of no rows would count as loaded",
            reason=Reason.EMPTY_KEY_RANGE,
        )
    return key_range


def digest_of(query: str, parameters: object) -> str:
    """Of a query and its parameters: another query has another one. How it is laid out does not matter."""
    return xxhash.xxh3_64_hexdigest(f"{_plain(query)} {parameters!r}".encode())


def check_query(query: object) -> None:
    """Raise `InvalidRequestError` for what is no text of a query."""
    if not isinstance(query, str):
        raise InvalidRequestError(
            f"a query of type {type(query).__name__}",
            actor=ACTOR,
            expected="its text, a str",
            reason=Reason.BAD_ARGUMENT,
        )
    if not query.strip():
        raise InvalidRequestError(
            "an empty query", actor=ACTOR, expected="a SELECT", reason=Reason.BAD_ARGUMENT
        )
    try:
        query.encode()
    except UnicodeEncodeError:
        raise InvalidRequestError(
            "a query with half a character",
            actor=ACTOR,
            expected="text that UTF-8 has",
            reason=Reason.BAD_ENCODING,
        ) from None


def without_end(query: str, token: re.Pattern[str]) -> str:
    """The query up to its last word: semicolons and comments behind it would end it inside of another one.

    token: finds what the query is made of, in the database's own quotes; its group `skipped` semicolons, blanks and
    comments.
    """
    ends = [found.end() for found in token.finditer(query) if found["skipped"] is None]
    return query[: max(ends, default=0)]


def _plain(query: str) -> str:
    """The query with one blank for many, where that is the same query."""
    if "\\'" in query:
        return query.strip()  # a quoted text may end there, or not
    parts, at = [], 0
    for found in _VERBATIM.finditer(query):
        parts += [re.sub(r"\s+", " ", query[at : found.start()]), found[0]]
        at = found.end()
    return "".join([*parts, re.sub(r"\s+", " ", query[at:])]).strip()


def _written(bound: Any) -> Any:
    return bound if isinstance(bound, int) else str(bound)


def _is_same(bound: Any, told: Any) -> bool:
    """Whether a bound is the one that the name of a run tells."""
    if _written(bound) == told:
        return True
    try:
        if isinstance(bound, datetime) and bound.tzinfo is not None:
            moment = datetime.fromisoformat(str(told))
            return moment.tzinfo is not None and moment == bound
        return isinstance(bound, Integral | Decimal) and Decimal(str(told)) == Decimal(str(bound))
    except (ValueError, ArithmeticError):
        return False


def check_columns(
    names: Sequence[str],
    schema: pa.Schema,
    place: str,
    misfit: Callable[[str, pa.DataType], tuple[str, str] | None],
    *,
    may_lack: Container[str] = (),
    beside: str | None = None,
) -> None:
    """Raise `InvalidRequestError` unless a query has the topic's columns, each once.

    misfit: of a column and the topic's type what is seen and what is expected, where that type does not hold it.
    may_lack: those that are filled as in records that are older than they. beside: a column that is not the topic's.
    """

    def refused(seen: str, expected: str, reason: Reason) -> InvalidRequestError:
        return InvalidRequestError(
            seen, actor=ACTOR, place=place, expected=expected, action="mend the query", reason=reason
        )

    known = f"the columns {', '.join(schema.names)}"
    for name in names:
        if names.count(name) > 1:
            raise refused(f"column {name!r} twice", "each column once", Reason.DUPLICATE_COLUMN)
        if name == beside:
            continue
        if name not in schema.names:
            raise refused(f"unknown column {name!r}", known, Reason.UNKNOWN_COLUMN)
        fault = misfit(name, schema.field(name).type)
        if fault is not None:
            raise refused(*fault, Reason.TYPE_MISMATCH)
    missing = [name for name in schema.names if name not in names and name not in may_lack]
    if missing:
        raise refused(f"no column {missing[0]!r}", known, Reason.MISSING_COLUMN)


def _has_loaded(producer: Producer, key_range: KeyRange, digest: str, ending: str) -> bool:
    """Whether the range was loaded by this query. Raises `InvalidRequestError` where another one has.

    ending: what the log puts behind the name of each run into this topic.
    """
    found = [key_range.query_in(run) for run in producer.committed_run_ids]
    queries = [each.removesuffix(ending) for each in found if each is not None and each.endswith(ending)]
    if queries and digest not in queries:
        raise InvalidRequestError(
            f"the range {key_range.name} was loaded by another query, or with other parameters",
            actor=ACTOR,
            expected="that query; or a run_id, or a transactional_id, of its own for each that is loaded",
            action="nothing was loaded: name the run, if these are other rows",
            reason=Reason.LOADED_BY_ANOTHER_QUERY,
        )
    return digest in queries


@dataclass
class RowLoad:
    """Uploads what a source gives, and its dead letters, and names them in a producer's transaction (`load_run`)."""

    source: Source
    dead_letters: DeadLetters | None = None
    progress: Callable[[int], None] | None = None
    records: int = 0
    sent: list[Future[list[RecordMetadata]]] = field(default_factory=list)

    def upload(self, uploads: Uploads) -> None:
        """Read all of it, while no transaction is open.

        Raises `InvalidRecordError` where a row, or too many of them, cannot be used.
        """
        letters, rejected = self.dead_letters, None
        if letters is not None:
            letters.target = uploads
            reading = reading_of("jsonl", {"binary": "base64"}, self.source.topic)
            rejected = letters.taker(self.source.name, reading)
        held: list[pa.Table] = []
        held_bytes = 0
        with closing(self.source.tables(rejected)) as tables:  # so that its transaction ends with it
            for table in tables:
                held.append(table)
                self.records += table.num_rows
                held_bytes += table.nbytes
                if held_bytes >= _SENT_BYTES:
                    self._upload(uploads, held)
                    held, held_bytes = [], 0
                if self.progress is not None:
                    self.progress(self.records)
        self._upload(uploads, held)
        if letters is not None:
            letters.check(self.records + letters.count)
        uploads.wait()

    def send(self, uploads: Uploads) -> None:
        """Name what was uploaded, in the producer's open transaction."""
        sent = uploads.send().get(self.source.topic.name)
        self.sent = [] if sent is None else [sent]

    @property
    def dead(self) -> int:
        """How many rows became dead letters."""
        return 0 if self.dead_letters is None else self.dead_letters.count

    def _upload(self, uploads: Uploads, held: Sequence[pa.Table]) -> None:
        if any(table.num_rows for table in held):
            uploads.produce(self.source.topic.name, pa.concat_tables(held))


def load_run(
    producer: Producer, run_id: str, load: RowLoad, *, before_commit: Callable[[], None] | None = None
) -> None:
    """All that the source gives, in one transaction of this run, which begins when everything is uploaded."""
    uploads = producer.upload()
    load.upload(uploads)
    producer.begin_transaction(run_id)
    try:
        load.send(uploads)
        if before_commit is not None:
            before_commit()
    except BaseException:
        with suppress(TxnEngineError):  # the sweep aborts it; the error to tell is the one that came first
            producer.abort_transaction()
        raise
    producer.commit_transaction()
