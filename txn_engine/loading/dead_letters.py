"""What a dead letter is, and how rows become some: docs/LOADING.md says what each column holds."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from txn_engine.errors import InvalidRecordError, InvalidRequestError, TxnEngineError
from txn_engine.files import BadRow
from txn_engine.files.text import checked_encoding
from txn_engine.loading.limits import DeadLetterLimit
from txn_engine.log.row_sizes import RowSizes
from txn_engine.reasons import Reason

if TYPE_CHECKING:
    from txn_engine.engine import Engine
    from txn_engine.log.topics import Topic
    from txn_engine.producer import TakesRecords

_FIELDS: list[pa.Field[Any]] = [
    pa.field("topic", pa.string(), nullable=False),
    pa.field("source_topic", pa.string()),
    pa.field("source_partition", pa.int32()),
    pa.field("source_offset", pa.int64()),
    pa.field("source_file", pa.string()),
    pa.field("source_line", pa.int64()),
    pa.field("raw", pa.binary()),
    pa.field("columns", pa.string()),
    pa.field("reading", pa.string()),
    pa.field("reason", pa.string(), nullable=False),
    pa.field("error_class", pa.string(), nullable=False),
    pa.field("run_id", pa.string()),
    pa.field("failed_at", pa.timestamp("ms", tz="UTC"), nullable=False),
    pa.field("tries", pa.int32(), nullable=False),
]
DEAD_LETTERS = pa.schema(_FIELDS)
"""The columns of every dead-letter topic."""

SENT_BYTES = 16 * 1024 * 1024
REASONS_MAX = 1_000
OTHER_REASONS = "other reasons"
"""What a run has more of is counted as this; each letter has its own all the same."""

REPLAYED_WITH = (
    "columns",
    "null_values",
    "missing_columns",
    "unknown_columns",
    "date_format",
    "decimal",
    "thousands",
    "binary",
)
"""Of what a file was read with: what its rows are read with again once they are cut into columns."""


def is_dead_letter_schema(schema: pa.Schema) -> bool:
    """Whether a topic of these columns takes dead letters."""
    return schema.equals(DEAD_LETTERS)


def letters_in(batch: pa.RecordBatch) -> list[dict[str, Any]]:
    """The letters as they stand, times as milliseconds since 1970: anybody may have written one that Python's datetime
    does not hold.
    """
    columns: dict[str, Any] = dict(zip(batch.schema.names, batch.columns, strict=True))
    times = {
        name: column.cast(pa.int64())
        for name, column in columns.items()
        if pa.types.is_timestamp(column.type)
    }
    return pa.table(columns | times).to_pylist()


def check_dead_letter_topic(engine: Engine, name: str, *, topic: str) -> Topic:
    """The dead-letter topic; one that is none, or not there (`UnknownTopicOrPartitionError`), is refused."""
    found = engine.logs.topics.look_up(name)
    if name == topic or not is_dead_letter_schema(found.schema):
        raise InvalidRequestError(
            "the topic's own name" if name == topic else f"columns {', '.join(found.schema.names)}",
            actor=f"dead-letter topic {name!r}",
            expected=f"the columns of a dead-letter topic: {', '.join(DEAD_LETTERS.names)}",
            action="make one: `topics create NAME --dead-letters`",
            reason=Reason.NOT_A_DEAD_LETTER_TOPIC,
        )
    return found


def reason_of(error: TxnEngineError) -> str:
    """Why, without where and without a value: the same text for the same fault in every row."""
    return f"{error.seen}; expected {error.expected}" if error.expected else error.seen


def reading_of(
    file_format: str, reading: Mapping[str, Any], topic: Topic, partition: int | None = None
) -> str:
    """What rows of a file are read with when they are replayed, as JSON; of Parquet they are JSON by then.

    It says whose columns the rows were meant to have: the topic's incarnation, and the version of its schema. encoding:
    of the raw bytes, where it is not UTF-8. partition: the one that all rows were to go into.
    """
    if file_format == "parquet":
        kept: dict[str, Any] = {"columns": dict(reading.get("columns") or {}), "binary": "base64"}
        kept |= {name: reading[name] for name in ("missing_columns", "unknown_columns") if name in reading}
    else:
        kept = {name: reading[name] for name in REPLAYED_WITH if reading.get(name) is not None}
    encoding = checked_encoding(reading.get("encoding") or "utf-8")
    if encoding != "utf-8" and file_format != "parquet":
        kept["encoding"] = encoding
    if partition is not None:
        kept["partition"] = partition
    if reading.get("row_checks"):
        kept["row_checks"] = [check.plain for check in reading["row_checks"]]
    said = {"format": "csv" if file_format == "csv" else "jsonl", **kept}
    said |= {"incarnation": topic.incarnation, "schema_version": topic.version}
    return json.dumps(said, ensure_ascii=False, sort_keys=True, default=list)


@dataclass
class DeadLetters:
    """Takes the rows of one run that cannot be used, and hands them to `target`, with the run's records.

    Without a `target` nothing is written: a dry run counts. sizes: what is too large for the dead-letter topic.
    """

    dead_letter_topic: str | None
    topic: str
    limit: DeadLetterLimit
    run_id: str | None
    clock: Callable[[], int]
    sizes: RowSizes | None = None
    target: TakesRecords | None = None
    count: int = 0
    reasons: dict[str, tuple[int, InvalidRecordError]] = field(default_factory=dict)
    held: list[pa.Table] = field(default_factory=list)
    held_bytes: int = 0

    def taker(self, file: str, reading: str) -> Callable[[Sequence[BadRow]], None]:
        """What takes the bad rows of one file. Raises `InvalidRecordError` where they are too many."""

        def take(rows: Sequence[BadRow]) -> None:
            for row in rows:
                self._count(row.error)
            if self.target is not None and self.dead_letter_topic is not None:
                source = {"source_file": file, "source_line": [row.line for row in rows]}
                letters = letters_of(
                    rows,
                    source,
                    reading,
                    topic=self.topic,
                    run_id=self.run_id,
                    failed_at_ms=self.clock(),
                )
                if self.sizes is not None:
                    check_letter_sizes(self.sizes, rows, letters)
                self.held.append(letters)
                self.held_bytes += letters.nbytes
                if self.held_bytes >= SENT_BYTES:
                    self._send()

        return take

    def check(self, rows: int) -> None:
        """The whole run is read, and had so many rows in all: hand over what is held.

        Raises `InvalidRecordError` where too many are dead.
        """
        self.limit.check_all(self.count, rows, self.first)
        self._send()

    def _send(self) -> None:
        """In few parts: each is a file."""
        if self.held and self.target is not None and self.dead_letter_topic is not None:
            self.target.produce(self.dead_letter_topic, pa.concat_tables(self.held))
            self.held, self.held_bytes = [], 0

    def told(self) -> str:
        """How many of each reason, for a log: no value of a file is in it."""
        return told_reasons({reason: count for reason, (count, _) in self.reasons.items()})

    @property
    def first(self) -> InvalidRecordError | None:
        """What was wrong with the first of them."""
        return next((error for _, error in self.reasons.values()), None)

    def _count(self, error: InvalidRecordError) -> None:
        self.count += 1
        reason = reason_of(error)
        if reason not in self.reasons and len(self.reasons) >= REASONS_MAX:
            reason = OTHER_REASONS
        count, first = self.reasons.get(reason, (0, error))
        self.reasons[reason] = count + 1, first
        self.limit.check_count(self.count, self.first or error)


def told_reasons(reasons: Mapping[str, int]) -> str:
    """How many of each, for a log."""
    return "; ".join(f"{count:,} of: {reason}" for reason, count in reasons.items())


def check_letter_sizes(sizes: RowSizes, rows: Sequence[BadRow], letters: pa.Table) -> None:
    """Raise `InvalidRecordError`, by the row's place, where the letter of one is too large for its topic."""
    (batch,) = letters.combine_chunks().to_batches()
    for row in sizes.too_large(batch)[:1]:
        raise InvalidRecordError(
            f"a dead letter that is too large for topic {sizes.topic.name!r}; it is one for: {rows[row].error.seen}",
            actor="load",
            place=rows[row].error.place,
            expected=sizes.expected,
            action="mend the row, or raise max.message.bytes of the dead-letter topic",
            reason=Reason.DEAD_LETTER_TOO_LARGE,
        )


def letters_of(
    rows: Sequence[BadRow],
    source: Mapping[str, Any],
    reading: str,
    *,
    topic: str,
    run_id: str | None,
    failed_at_ms: int,
) -> pa.Table:
    """Rows as dead letters, tried once. `source`: the columns that say where they are from, as lists or one for all."""
    count = len(rows)
    shared: dict[str, Any] = {
        "topic": topic,
        "reading": reading,
        "run_id": run_id,
        "failed_at": failed_at_ms,
        "tries": 1,
    }
    shared |= {name: value for name, value in source.items() if not isinstance(value, list)}
    columns: dict[str, Any] = {
        **{name: value for name, value in source.items() if isinstance(value, list)},
        "raw": [row.raw for row in rows],
        "columns": [row.columns for row in rows],
        "reason": [reason_of(row.error) for row in rows],
        "error_class": [type(row.error).__name__ for row in rows],
    }
    arrays = [
        pa.array(columns[each.name], each.type)
        if each.name in columns
        else pa.repeat(pa.scalar(shared.get(each.name), each.type), count)
        for each in DEAD_LETTERS
    ]
    return pa.Table.from_arrays(arrays, schema=DEAD_LETTERS)
