"""Rows that do not fit, in Spark's writes: the task that meets them writes them for the dead-letter topic, as it writes
the others for theirs, and the driver names the files of both in one transaction.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa

from txn_engine.engine import Engine
from txn_engine.errors import InvalidRecordError, InvalidRequestError
from txn_engine.files import BadRow, Rejected, fit_records
from txn_engine.loading import DeadLetterLimit, check_dead_letter_topic
from txn_engine.loading.dead_letters import (
    OTHER_REASONS,
    check_letter_sizes,
    letters_of,
    reading_of,
    reason_of,
)
from txn_engine.log.data_files import EncodedFile
from txn_engine.log.row_sizes import RowSizes
from txn_engine.log.topics import Topic
from txn_engine.producer.partitioner import split_by_key
from txn_engine.reasons import Reason
from txn_engine.row_checks import RowCheck
from txn_engine.scan import TOPIC
from txn_engine.schemas.layout import OFFSET, PARTITION
from txn_engine.spark.columns import conform_to_topic
from txn_engine.spark.open_files import OpenFiles

_REASONS_MAX: Final = 20
"""What a task tells of beside a file."""
_SOURCES: Final = {"source_topic": TOPIC, "source_partition": PARTITION, "source_offset": OFFSET}


@dataclass(frozen=True, slots=True)
class DeadLettersTo:
    """Where a write's dead letters go, how many there may be, and what they say of where they are from.

    source_topic: of rows that do not say it themselves, in a column `_topic`.
    """

    topic: Topic
    limit: DeadLetterLimit
    source_topic: str | None = None
    run_id: str | None = None

    def check_none_of(self, outputs: Collection[str]) -> None:
        """Raise `InvalidRequestError` where it is one of those that are written to."""
        if self.topic.name in outputs:
            raise InvalidRequestError(
                "a topic that is written to as well",
                actor=f"dead-letter topic {self.topic.name!r}",
                expected="a topic of its own",
                reason=Reason.ALSO_AN_OUTPUT,
            )

    def check_count(self, dead: int, rows: int, reasons: Mapping[str, int]) -> None:
        """Raise `InvalidRecordError` where so many of all rows are too many."""
        first = next(iter(reasons), None)
        if first is not None:
            self.limit.check_all(dead, rows, InvalidRecordError(first))


def dead_letters_to(
    engine: Engine,
    dead_letter_topic: str | None,
    max_dead_letters: int | str | None,
    *,
    actor: str,
    source_topic: str | None = None,
    run_id: str | None = None,
) -> DeadLettersTo | None:
    """What takes a write's dead letters, its topic looked at; None where there is none.

    Raises `InvalidRequestError` for a limit without a topic, and for a topic of other columns.
    """
    if dead_letter_topic is None:
        if max_dead_letters is not None:
            raise InvalidRequestError(
                "max_dead_letters without a dead-letter topic",
                actor=actor,
                expected="dead_letter_topic as well",
                reason=Reason.NO_DEAD_LETTER_TOPIC,
            )
        return None
    check_dead_letter_topic(engine, dead_letter_topic, topic="")
    topic = engine.logs.topics.look_up(dead_letter_topic)
    return DeadLettersTo(topic, DeadLetterLimit.of(max_dead_letters), source_topic, run_id)


def counted_reasons(files: Iterable[str]) -> dict[str, int]:
    """How many letters have which reason, of what tasks tell beside their files."""
    found: Counter[str] = Counter()
    for each in files:
        found.update(json.loads(each))
    return dict(found)


@dataclass(frozen=True, slots=True)
class LetterTarget:
    """What a task has to know of it. It pickles. `log_ends`: of the dead-letter topic, before any upload; `row_checks`:
    what each row of a DataFrame has to pass.
    """

    to: DeadLettersTo
    log_ends: tuple[int, ...]
    row_checks: tuple[RowCheck, ...] = ()


class TaskLetters:
    """The dead letters of a task: rows in, data files out.

    Above the limit, which the driver will find exceeded, they are counted and no more are written.
    """

    def __init__(
        self, target: LetterTarget, files: OpenFiles, *, for_topic: Topic, failed_at_ms: int, turn: int
    ) -> None:
        self._to = to = target.to
        self._row_checks = target.row_checks
        self._reading = reading_of("parquet", {"row_checks": target.row_checks}, for_topic)
        self._files = files
        self._for_topic = for_topic
        self._failed_at_ms = failed_at_ms
        self._turn = turn % to.topic.partitions
        self._count = 0
        self._reasons: Counter[str] = Counter()
        self._landed: list[tuple[int, EncodedFile]] = []

    @property
    def are_too_many(self) -> bool:
        """Whether this task alone has more than are allowed."""
        most = self._to.limit.count
        return most is not None and self._count > most

    def fit(self, records: pa.Table) -> pa.Table:
        """The rows of a DataFrame that fit the topic; what else it has of a read's columns says where a row is from."""
        (batch,) = records.combine_chunks().to_batches()

        def take(rows: Sequence[BadRow]) -> None:
            places = [row.line for row in rows]
            source: dict[str, Any] = {"source_topic": self._to.source_topic}
            for column, name in _SOURCES.items():
                if name in batch.schema.names:
                    source[column] = batch.column(name).take(pa.array(places)).to_pylist()
            self._take(rows, source, self._reading)

        fitting = fit_records(
            batch,
            self._for_topic.schema,
            rejected=take,
            row_checks=self._row_checks,
            sizes=RowSizes(self._for_topic),
        )
        return pa.Table.from_batches([fitting])

    def taker(self, file: str, reading: str) -> Rejected:
        """What takes the bad rows of a file."""

        def take(rows: Sequence[BadRow]) -> None:
            self._take(rows, {"source_file": file, "source_line": [row.line for row in rows]}, reading)

        return take

    def told(self) -> Iterator[tuple[tuple[int, EncodedFile], str]]:
        """The files that are on the store, each with the reasons that it is the first to tell, as JSON."""
        landed, self._landed = self._landed, []
        for file in landed:
            reasons, self._reasons = self._reasons, Counter()
            yield file, json.dumps(reasons)

    def finish(self) -> Iterator[tuple[tuple[int, EncodedFile], str]]:
        """Put all that is left."""
        self._landed += self._files.finish()
        yield from self.told()

    def _take(self, rows: Sequence[BadRow], source: Mapping[str, Any], reading: str) -> None:
        was_too_many = self.are_too_many
        self._count += len(rows)
        if was_too_many:
            return
        for row in rows:
            reason = reason_of(row.error)
            is_known = reason in self._reasons or len(self._reasons) < _REASONS_MAX
            self._reasons[reason if is_known else OTHER_REASONS] += 1
        to = self._to
        letters = letters_of(
            rows,
            source,
            reading,
            topic=self._for_topic.name,
            run_id=to.run_id,
            failed_at_ms=self._failed_at_ms,
        )
        check_letter_sizes(RowSizes(to.topic), rows, letters)
        conformed = conform_to_topic(letters, to.topic.schemas, topic=to.topic.name)
        split = split_by_key(conformed, to.topic.key, to.topic.partitions, self._turn)
        self._landed += self._files.write(split, conformed.nbytes)


Taker = Callable[[str, str], Rejected]
"""Of a file and of what its rows are read with again: what takes those that are bad."""
