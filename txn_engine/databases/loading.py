"""Into topics, out of tables: what a query gives, exactly and once, in one transaction of the topic."""

from __future__ import annotations

import json
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import Future
from contextlib import closing, suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, NamedTuple, Protocol

import pyarrow as pa
import xxhash

from txn_engine.engine import Engine
from txn_engine.errors import InvalidRequestError, TxnEngineError
from txn_engine.files import Rejected
from txn_engine.loading import DeadLetters
from txn_engine.loading.dead_letters import reading_of
from txn_engine.loading.load import dead_letters_for
from txn_engine.log.topics import Topic
from txn_engine.producer import ForgottenRuns, Producer, run_into
from txn_engine.types import RecordMetadata

ACTOR: Final = "load_query"
_SENT_BYTES: Final = 32 << 20


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
        if self.run_id:
            return self.run_id
        if self.key_range is None:
            raise InvalidRequestError(
                "no run id",
                actor=ACTOR,
                expected="run_id, or key_range, which names the run",
                action="name the run: by it a second try knows that the first one has committed",
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
    run_id = run_into(name, info)
    settings: dict[str, object] = {
        "transactional.id": run.transactional_id or f"load-query/{topic}/{info.incarnation}"
    }
    if run.timeout_ms is not None:
        settings["transaction.timeout.ms"] = run.timeout_ms
    with engine.producer(settings) as producer:
        producer.init_transactions()
        if run.key_range is not None and not run.run_id:
            _check_same_query(producer, run_id, run.key_range, run_id.removeprefix(name))
        if producer.committed_before(run_id, forgotten_runs=run.forgotten_runs):
            return Loaded(name, 0, True)
        letters = dead_letters_for(
            engine, dead_letter_topic, max_dead_letters, topic=topic, run_id=name, is_dry=False
        )
        rows = RowLoad(make_source(info), letters, progress)
        load_run(producer, run_id, rows, before_commit=partial(engine.logs.topics.check_current, info))
        return Loaded(name, rows.records, False, rows.dead)


def checked_range(given: KeyRange | tuple[str, Any, Any] | None) -> KeyRange | None:
    """The range. Raises `InvalidRequestError` for one without rows."""
    if given is None:
        return None
    key_range = KeyRange(*given)
    if key_range.start is None or key_range.end is None or not key_range.start < key_range.end:
        raise InvalidRequestError(
            f"key_range from {key_range.start!r} to {key_range.end!r}",
            actor=ACTOR,
            expected="a start below the end: a run of no rows would count as loaded",
        )
    return key_range


def digest_of(query: str, parameters: object) -> str:
    """Of a query and its parameters: another query has another one."""
    return xxhash.xxh3_64_hexdigest(f"{' '.join(query.split())} {parameters!r}".encode())


def check_columns(
    names: Sequence[str],
    schema: pa.Schema,
    place: str,
    misfit: Callable[[str, pa.DataType], tuple[str, str] | None],
    *,
    beside: str | None = None,
) -> None:
    """Raise `InvalidRequestError` unless a query has the topic's columns, each once, and all that may not be null.

    misfit: of a column and the topic's type what is seen and what is expected, where that type does not hold it.
    beside: a column that is not the topic's.
    """

    def refused(seen: str, expected: str) -> InvalidRequestError:
        return InvalidRequestError(seen, actor=ACTOR, place=place, expected=expected, action="mend the query")

    known = f"the columns {', '.join(schema.names)}"
    for name in names:
        if names.count(name) > 1:
            raise refused(f"column {name!r} twice", "each column once")
        if name == beside:
            continue
        if name not in schema.names:
            raise refused(f"unknown column {name!r}", known)
        fault = misfit(name, schema.field(name).type)
        if fault is not None:
            raise refused(*fault)
    missing = [field.name for field in schema if field.name not in names and not field.nullable]
    if missing:
        raise refused(f"no column {missing[0]!r}", known)


def _check_same_query(producer: Producer, run_id: str, key_range: KeyRange, ending: str) -> None:
    if producer.has_committed(run_id):
        return
    known = producer.committed_run_ids
    if any(each.startswith(f"{key_range.name}@") and each.endswith(ending) for each in known):
        raise InvalidRequestError(
            f"the range {key_range.name} was loaded by another query, or with other parameters",
            actor=ACTOR,
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
        held_bytes = 0
        with closing(self.source.tables(rejected)) as tables:  # so that its transaction ends with it
            for table in tables:
                held.append(table)
                self.records += table.num_rows
                held_bytes += table.nbytes
                if held_bytes >= _SENT_BYTES:
                    self._send(producer, held)
                    held, held_bytes = [], 0
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
