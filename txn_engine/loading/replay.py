"""Dead letters into their topics, each once: what fits now, and with repaired rows in place of those that are named."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from txn_engine.arguments import check_flags
from txn_engine.errors import (
    InvalidRequestError,
    InvalidTopicError,
    TxnEngineError,
    UnknownTopicOrPartitionError,
)
from txn_engine.files.json_lines import each_name_once
from txn_engine.files.text import is_blank
from txn_engine.loading.dead_letters import (
    DEAD_LETTERS,
    SENT_BYTES,
    check_dead_letter_topic,
    letters_in,
    reason_of,
)
from txn_engine.loading.letter_rows import (
    NO_COLUMNS,
    Failed,
    Letter,
    read_again,
    with_repaired,
)
from txn_engine.loading.waiting import group_of
from txn_engine.loading.written import WrittenNumber, dumped
from txn_engine.reasons import Reason
from txn_engine.row_limits import (
    ROW_CHARS_MAX,
    VALUES_MAX,
    row_too_long,
    too_many_values,
    values_at_most,
)
from txn_engine.types import OffsetAndMetadata, TopicPartition

if TYPE_CHECKING:
    from txn_engine.consumer import Consumer
    from txn_engine.engine import Engine
    from txn_engine.log.topics import Topic
    from txn_engine.producer import Producer, Uploads

REPAIRED_MAX = 1_000_000
"""Repaired rows are held while the letters are read."""
PLACE = ("_partition", "_offset")
_PLACE = re.compile("[0-9]{1,19}")
Repaired = Mapping[tuple[int, int], str]


@dataclass(frozen=True, slots=True)
class Replayed:
    """What one replay did: letters = records + those that came back. Of a dry run: what it would do.

    reason: why the first of the letters that failed again failed.
    before: whether all that was asked for had been replayed before.
    waiting: only if `before`: how many letters wait that failed again in an earlier replay. Each has another offset
        than the letter that it replaces, so an older file of repaired rows does not name it.
    """

    dead_letter_topic: str
    letters: int = 0
    records: int = 0
    failed_again: int = 0
    reason: str = ""
    before: bool = False
    waiting: int = 0


def read_repaired(path: Path) -> dict[tuple[int, int], str]:
    """Repaired rows, of a file of JSON lines as `dead-letters show --repair` writes it, by partition and offset.

    `_partition` and `_offset` say which letter it is; `_reason` and `_raw` are passed over. An error names the line. A
    file without a row is refused: the program that was to write it may have failed.
    """
    found: dict[tuple[int, int], str] = {}
    try:
        with path.open(encoding="utf-8-sig") as stream:
            for number, line in enumerate(iter(partial(stream.readline, ROW_CHARS_MAX + 1), ""), start=1):
                if len(line) > ROW_CHARS_MAX:
                    raise InvalidRequestError(
                        **row_too_long(1), actor="replay", place=f"{path} line {number}"
                    )
                if is_blank(line):
                    continue
                place, row = _repaired_row(line)
                if place is None or place in found or len(found) >= REPAIRED_MAX:
                    raise InvalidRequestError(
                        "a letter named twice" if place in found else row or "no repaired row",
                        actor="replay",
                        place=f"{path} line {number}",
                        expected="a JSON object with _partition and _offset of one letter, and its columns",
                        reason=Reason.BAD_REPAIRED_ROW,
                    )
                found[place] = row
    except UnicodeDecodeError:
        raise InvalidRequestError(
            "no UTF-8",
            actor="replay",
            place=str(path),
            expected="JSON lines",
            reason=Reason.BAD_ENCODING,
        ) from None
    except OSError as error:
        raise InvalidRequestError(
            f"the file cannot be read: {error.strerror}",
            actor="replay",
            place=str(path),
            expected="a readable file",
            reason=Reason.FILE_UNREADABLE,
        ) from error
    if not found:
        raise InvalidRequestError(
            "the file has no repaired row",
            actor="replay",
            place=str(path),
            expected="lines of `dead-letters show --repair`, repaired",
            action="write the file again, or replay without repaired rows",
            reason=Reason.NO_REPAIRED_ROW,
        )
    return found


def _repaired_row(line: str) -> tuple[tuple[int, int] | None, str]:
    """Which letter, and its columns as JSON, numbers as they are written; without a letter, what is wrong if it is
    known.
    """
    if values_at_most(line) > VALUES_MAX:
        return None, str(too_many_values()["seen"])
    try:
        row = json.loads(
            line, parse_float=WrittenNumber, parse_int=WrittenNumber, object_pairs_hook=each_name_once
        )
    except json.JSONDecodeError:
        return None, ""
    except (ValueError, RecursionError) as error:
        return None, str(error)
    if not isinstance(row, dict):
        return None, ""
    place = tuple(row.get(name) for name in PLACE)
    if not all(isinstance(part, WrittenNumber) and _PLACE.fullmatch(part) for part in place):
        return None, ""
    columns = {name: value for name, value in row.items() if name not in NO_COLUMNS}
    return (int(str(place[0])), int(str(place[1]))), dumped(columns)


def replay(
    engine: Engine,
    dead_letter_topic: str,
    *,
    repaired: Repaired | None = None,
    without_checks: bool = False,
    dry_run: bool = False,
) -> Replayed:
    """Replay every letter that waits, and move the group's position over them, in one transaction.

    Each is read again as its file was, with the repaired row in place of its own where there is one; so what a change
    of the topic's columns has made possible goes through by itself. It has to pass the checks of rows that its file
    was loaded with, unless `without_checks`. Those that fail again come back as new letters with
    one try more. Done again it finds nothing that waits; two at once: one is refused. What comes back waits for the
    next replay.

    Raises:
        InvalidRequestError: no dead-letter topic, or a repaired row of a letter that is none, or was replayed before
            while others were not.
        OffsetsMovedError, ProducerFencedError: another replay has done it; nothing of this one is visible.
    """
    check_flags("replay", without_checks=without_checks, dry_run=dry_run)
    rows = _checked_rows(repaired)
    check_dead_letter_topic(engine, dead_letter_topic, topic="")
    if rows:
        _check_letters(rows, engine.scan(dead_letter_topic).offsets, dead_letter_topic)
    name = group_of(dead_letter_topic)
    with engine.consumer(group_id=name) as consumer:
        if dry_run:
            return _replay(engine, dead_letter_topic, consumer, None, rows, not without_checks)
        timeout_ms = engine.limits.max_transaction_timeout_ms
        with engine.producer(transactional_id=name, transaction_timeout_ms=timeout_ms) as producer:
            producer.init_transactions()
            return _replay(engine, dead_letter_topic, consumer, producer, rows, not without_checks)


def _checked_rows(given: object) -> dict[tuple[int, int], str]:
    """The repaired rows. Raises `InvalidRequestError` for what is not one row by its letter's partition and offset."""
    rows = {} if given is None else given
    if isinstance(rows, Mapping) and all(
        isinstance(place, tuple) and [type(each) for each in place] == [int, int] and isinstance(row, str)
        for place, row in rows.items()
    ):
        return dict(rows)
    raise InvalidRequestError(
        f"repaired rows of type {type(given).__name__}",
        actor="replay",
        expected="a row of JSON for each (partition, offset)",
        reason=Reason.BAD_ARGUMENT,
    )


def _replay(
    engine: Engine,
    dead_letter_topic: str,
    consumer: Consumer,
    producer: Producer | None,
    repaired: dict[tuple[int, int], str],
    has_checks: bool,
) -> Replayed:
    consumer.subscribe([dead_letter_topic])
    start = {at: found.offset for at, found in consumer.positions().items()}
    scan = engine.scan(dead_letter_topic, start=start)
    end = scan.offsets
    if _all_before(repaired, start, dead_letter_topic):
        came_back = pc.greater(scan.to_table(["tries"]).column("tries"), pa.scalar(1))
        return Replayed(
            dead_letter_topic, before=True, waiting=pc.sum(came_back.cast(pa.int64())).as_py() or 0
        )
    if all(end[at] <= offset for at, offset in start.items()):
        return Replayed(dead_letter_topic, before=True)
    if producer is None:
        return _read_again(engine, dead_letter_topic, scan.to_batches(), None, repaired, "", has_checks)
    run_id = "replay@" + ",".join(f"{at.partition}:{offset}" for at, offset in sorted(end.items()))
    uploads = producer.upload()
    replayed = _read_again(
        engine, dead_letter_topic, scan.to_batches(), uploads, repaired, run_id, has_checks
    )
    with producer.transaction():
        offsets = {at: OffsetAndMetadata(offset) for at, offset in end.items()}
        producer.send_offsets_to_transaction(offsets, consumer.group_metadata())
        uploads.send()
    return replayed


def _check_letters(repaired: Repaired, end: Mapping[TopicPartition, int], dead_letter_topic: str) -> None:
    for partition, offset in repaired:
        at = TopicPartition(dead_letter_topic, partition)
        if offset >= end.get(at, 0):
            raise InvalidRequestError(
                f"a repaired row of {at} at {offset}",
                actor="replay",
                expected="a letter that is there",
                reason=Reason.UNKNOWN_LETTER,
            )


def _all_before(repaired: Repaired, start: Mapping[TopicPartition, int], dead_letter_topic: str) -> bool:
    """Whether all repaired rows are of letters replayed before. Raises where some are."""
    places = [(TopicPartition(dead_letter_topic, partition), offset) for partition, offset in repaired]
    before = sum(offset < start[at] for at, offset in places)
    if 0 < before < len(repaired):
        raise InvalidRequestError(
            f"{before} of {len(repaired)} repaired rows are of letters replayed before",
            actor=f"replay of {dead_letter_topic!r}",
            expected="letters that wait",
            action="`dead-letters show --repair` lists those",
            reason=Reason.ALREADY_REPLAYED,
        )
    return bool(repaired) and before == len(repaired)


def _read_again(
    engine: Engine,
    dead_letter_topic: str,
    batches: Iterator[pa.RecordBatch],
    uploads: Uploads | None,
    repaired: dict[tuple[int, int], str],
    run_id: str,
    has_checks: bool,
) -> Replayed:
    count = records = back = 0
    reason = ""
    topics = _Topics(engine, dead_letter_topic)
    parts = _Parts(uploads)
    for batch in batches:
        found = [_letter(values, repaired) for values in letters_in(batch)]
        count += len(found)
        topics.know(found)
        for group in read_again(found, topics.known, has_checks=has_checks):
            if group.failed and not back:
                reason = _reason_of(group.failed[0][1])
            back += len(group.failed)
            if group.records is not None:
                records += group.records.num_rows
                parts.add(group.topic, group.partition, group.records)
            if group.failed and uploads is not None:
                parts.add(dead_letter_topic, None, _came_back(group.failed, engine.clock(), run_id))
    parts.send()
    if repaired:
        partition, offset = next(iter(repaired))
        raise InvalidRequestError(
            f"a repaired row of {dead_letter_topic}-{partition} at {offset}",
            actor="replay",
            expected="an offset that has a letter",
            reason=Reason.UNKNOWN_LETTER,
        )
    return Replayed(dead_letter_topic, count, records, back, reason)


@dataclass
class _Parts:
    """What is written, uploaded in few parts: each is a file."""

    uploads: Uploads | None
    held: dict[tuple[str, int | None], list[pa.Table]] = field(default_factory=dict)
    held_bytes: int = 0

    def add(self, topic: str, partition: int | None, records: pa.Table) -> None:
        """Some more."""
        if self.uploads is not None:
            self.held.setdefault((topic, partition), []).append(records)
            self.held_bytes += records.nbytes
        if self.held_bytes >= SENT_BYTES:
            self.send()

    def send(self) -> None:
        """Hand over what is held."""
        held, self.held, self.held_bytes = self.held, {}, 0
        for (topic, partition), parts in held.items():
            if self.uploads is not None:
                self.uploads.produce(topic, pa.concat_tables(parts), partition=partition)


def _letter(values: dict[str, Any], repaired: dict[tuple[int, int], str]) -> Letter:
    partition, offset = values["_partition"], values["_offset"]
    own = {name: values[name] for name in DEAD_LETTERS.names}
    return with_repaired(Letter(own, partition, offset), repaired.pop((partition, offset), None))


def _reason_of(error: TxnEngineError | str) -> str:
    return error if isinstance(error, str) else reason_of(error)


def _came_back(failed: list[Failed], failed_at_ms: int, run_id: str) -> pa.Table:
    rows = [letter.again(error, failed_at_ms, run_id) for letter, error in failed]
    return pa.Table.from_pylist(rows, schema=DEAD_LETTERS)


class _Topics:
    """The topics that letters are for, looked up once."""

    def __init__(self, engine: Engine, dead_letter_topic: str) -> None:
        self._engine = engine
        self._asked = {dead_letter_topic}  # which no record is for
        self.known: dict[str, Topic] = {}

    def know(self, found: list[Letter]) -> None:
        """Look up those that are new. One that is gone stays unknown."""
        for topic in sorted({letter.values["topic"] for letter in found} - self._asked):
            self._asked.add(topic)
            try:
                self.known[topic] = self._engine.logs.topics.look_up(topic)
            except (UnknownTopicOrPartitionError, InvalidTopicError):
                continue
