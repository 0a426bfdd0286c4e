"""How many dead letters there are, by topic and reason: of all of them, of the newest, or of those of late."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from txn_engine.errors import TxnEngineError
from txn_engine.loading.waiting import group_of
from txn_engine.log.objects import Objects
from txn_engine.log.reading import FileSlice, choose_files, read_slice
from txn_engine.log.topics import Topic
from txn_engine.protocol.measures import UNKNOWN
from txn_engine.protocol.offset_commits import TOMBSTONE_OFFSET, OffsetKey
from txn_engine.protocol.partition import PartitionState
from txn_engine.protocol.transaction_rows import TransactionPartition
from txn_engine.schemas.layout import OFFSET, TIMESTAMP
from txn_engine.unreadable import DAMAGE, Listing, Unreadable, one_place

if TYPE_CHECKING:
    from txn_engine.engine import Engine

REASON_CHARS_MAX = 1_000
"""Of a longer reason this much is kept, and a mark; reasons that begin with the same are one then."""

_TEXTS = ("topic", "source_topic", "reason", "error_class")
_HOW: tuple[Any, ...] = (
    ("offset", "count"),
    ("offset", "max"),
    ("tries", "max"),
    ("failed", "min"),
    ("failed", "max"),
    ("waiting", "sum"),
    ("came_back", "sum"),
)
_READ = [*_TEXTS, "tries", "failed_at", OFFSET]

Reasons = Mapping[tuple[str | None, ...], "DeadLetterCount"]
Read = Callable[[Callable[["_Part"], "Reasons | TxnEngineError"], list["_Part"]], Iterable[Any]]
_Known = dict[tuple[Any, ...], "Reasons | TxnEngineError"]


@dataclass(frozen=True, slots=True)
class DeadLetterCount:
    """How many letters have one topic, source topic, reason and error class.

    total: all of them; waiting: those that were not replayed; came_back: those that failed once more in a replay.
    first_failed_ms, last_failed_ms: when the oldest and the newest failed, as they say. `partition` and `offset`: where
    the newest stands, or one behind it in its file.
    """

    topic: str
    source_topic: str | None
    reason: str
    error_class: str
    waiting: int
    total: int
    came_back: int
    tries_max: int
    first_failed_ms: int
    last_failed_ms: int
    partition: int
    offset: int


@dataclass(frozen=True, slots=True)
class LetterCounts:
    """What is known of the letters of a topic.

    letters: how many there are; waiting: those not replayed, -1 where the group's log cannot be read. Both count
    what lies in files that were not read by the log: at most so many, where compaction or erasure left gaps.
    counted: the letters that `reasons`, the newest first, are of: the newest of all. is_read False: more of them
    will be read in the next call; files_read: how many files were read in this one. unreadable: files that cannot be
    read; of their letters the log alone counts.
    """

    letters: int
    waiting: int
    counted: int
    is_read: bool
    files_read: int
    reasons: tuple[DeadLetterCount, ...]
    unreadable: tuple[Unreadable, ...]


@dataclass(frozen=True, slots=True)
class _Part:
    """A file's letters, which wait from that offset on; the key is another where another count comes of it."""

    topic: Topic
    slice: FileSlice
    waiting_from: int

    @property
    def key(self) -> tuple[str, int, int, str, int, int, int]:
        at = self.slice
        path = at.log_file.file.data_path
        place = self.topic.name, self.topic.incarnation, at.partition, path
        return *place, at.start_offset, at.end_offset, self.waiting_from

    @property
    def letters(self) -> int:
        return min(self.slice.log_file.record_count, self.slice.end_offset - self.slice.start_offset)

    @property
    def waiting(self) -> int:
        return min(self.slice.log_file.record_count, self.slice.end_offset - self.waiting_from)


class LetterCounter:
    """Counts the letters of dead-letter topics. Each file is read once: none ever changes.

    newest, newest_files: of each topic that many of the newest letters (and the rest of their oldest file), in that
    many files at most. since_ms: only letters that were written since, by the log's time. file_bytes_max: no file that
    is larger on the store is read.
    """

    def __init__(
        self,
        objects: Objects,
        *,
        newest: int | None = None,
        newest_files: int | None = None,
        since_ms: int | None = None,
        file_bytes_max: int | None = None,
    ) -> None:
        self._objects = objects
        self._newest = newest
        self._newest_files = newest_files
        self._since_ms = since_ms
        self._file_bytes_max = file_bytes_max
        self._known: _Known = {}

    def count(
        self,
        topic: Topic,
        states: Mapping[int, PartitionState],
        replayed_to: Mapping[int, int] | None,
        *,
        files: int | None = None,
        read: Read = map,
    ) -> LetterCounts:
        """Count what these states, by partition, hold; at most so many `files` are read now, the newest first.

        replayed_to: by partition, as `replayed_to` has it; None: not known. read: how many files are read, as `map`.
        """
        parts = sorted(_parts(topic, states, replayed_to, self._since_ms), key=_newest_first)
        wanted = list(islice(self._wanted(parts), self._newest_files))
        missing = [part for part in wanted if part.key not in self._known]
        now = missing if files is None else missing[:files]
        read_now = dict(zip((part.key for part in now), read(self._tried, now), strict=True))
        known = self._known | read_now
        mine = {part.key: known[part.key] for part in wanted if part.key in known}
        is_read = len(mine) == len(wanted)
        self._keep(topic, mine, is_read=is_read)
        counted = _counts(topic, parts, mine, is_read=is_read, files_read=len(now))
        if replayed_to is not None:
            return counted
        return replace(
            counted,
            waiting=UNKNOWN,
            reasons=tuple(replace(each, waiting=UNKNOWN) for each in counted.reasons),
        )

    def forget_others(self, topics: Iterable[Topic]) -> None:
        """Keep what was read of these topics alone."""
        kept = {(topic.name, topic.incarnation) for topic in topics}
        self._known = {key: each for key, each in self._known.items() if key[:2] in kept}

    def _wanted(self, parts: Iterable[_Part]) -> Iterator[_Part]:
        """The newest; those that are too large are passed over."""
        left = self._newest
        for part in parts:
            if left is not None and left <= 0:
                return
            if self._file_bytes_max is None or part.slice.log_file.file.data_bytes <= self._file_bytes_max:
                left = None if left is None else left - part.letters
                yield part

    def _tried(self, part: _Part) -> Reasons | TxnEngineError:
        try:
            with one_place(part.topic.name, part.slice.partition):
                columns = _READ if self._since_ms is None else [*_READ, TIMESTAMP]
                tables = read_slice(self._objects, part.topic, part.slice, columns)
                return _merged(self._reasons(table, part) for table in tables)
        except DAMAGE as error:
            return error

    def _reasons(self, table: pa.Table, part: _Part) -> Reasons:
        if self._since_ms is not None:
            stamps = table.column(TIMESTAMP).cast(pa.int64())
            table = table.filter(pc.greater_equal(stamps, pa.scalar(self._since_ms)))
        columns: dict[str, Any] = {name: _cut(table.column(name)) for name in _TEXTS}
        offset, tries = table.column(OFFSET), table.column("tries")
        columns |= {"offset": offset, "tries": tries, "failed": table.column("failed_at").cast(pa.int64())}
        columns["waiting"] = pc.greater_equal(offset, pa.scalar(part.waiting_from)).cast(pa.int64())
        columns["came_back"] = pc.greater(tries, pa.scalar(1)).cast(pa.int64())
        grouped = pa.table(columns).group_by(list(_TEXTS), use_threads=False).aggregate(list(_HOW))
        return {tuple(row[name] for name in _TEXTS): _count(row, part) for row in grouped.to_pylist()}

    def _keep(self, topic: Topic, found: _Known, *, is_read: bool) -> None:
        """Only what was asked for; what is damaged is tried again once all else was, for it may have been put back."""
        place = topic.name, topic.incarnation
        self._known = {key: each for key, each in self._known.items() if key[:2] != place}
        for key, each in found.items():
            if not (is_read and isinstance(each, TxnEngineError)):
                self._known[key] = each


def _counts(
    topic: Topic, parts: Sequence[_Part], found: _Known, *, is_read: bool, files_read: int
) -> LetterCounts:
    reasons = _sums(each for each in found.values() if not isinstance(each, TxnEngineError))
    errors = [(part, each) for part in parts if isinstance(each := found.get(part.key), TxnEngineError)]
    unread = [part for part in parts if part.key not in found] + [part for part, _ in errors]
    counted = sum(each.total for each in reasons)
    return LetterCounts(
        letters=counted + sum(part.letters for part in unread),
        waiting=sum(each.waiting for each in reasons) + sum(part.waiting for part in unread),
        counted=counted,
        is_read=is_read,
        files_read=files_read,
        reasons=tuple(reasons),
        unreadable=tuple(Unreadable(topic.name, part.slice.partition, error) for part, error in errors),
    )


def _parts(
    topic: Topic,
    states: Mapping[int, PartitionState],
    replayed_to: Mapping[int, int] | None,
    since_ms: int | None = None,
) -> Iterator[_Part]:
    for partition, state in states.items():
        start, end = state.log_start_offset, state.last_stable_offset
        for part in choose_files(state, partition, start, end, "read_committed"):
            if since_ms is None or part.log_file.max_timestamp >= since_ms:
                waiting_from = max(part.start_offset, (replayed_to or {}).get(partition, 0))
                yield _Part(topic, part, min(waiting_from, part.end_offset))


def by_log(
    topic: Topic, states: Mapping[int, PartitionState], replayed_to: Mapping[int, int] | None
) -> tuple[int, int]:
    """As `LetterCounts` has them: how many letters there are and how many wait, without reading any."""
    parts = list(_parts(topic, states, replayed_to))
    letters, waiting = sum(part.letters for part in parts), sum(part.waiting for part in parts)
    return letters, UNKNOWN if replayed_to is None else waiting


def _newest_first(part: _Part) -> tuple[int, int]:
    return -part.slice.log_file.max_timestamp, -part.slice.log_file.base_offset


def _cut(column: pa.ChunkedArray[Any]) -> Any:
    return pc.utf8_slice_codeunits(column, 0, REASON_CHARS_MAX + 1)


def _told(text: str | None) -> str:
    text = text or ""
    return text if len(text) <= REASON_CHARS_MAX else f"{text[:REASON_CHARS_MAX]}…"


def _count(row: Mapping[str, Any], part: _Part) -> DeadLetterCount:
    return DeadLetterCount(
        topic=_told(row["topic"]),
        source_topic=None if row["source_topic"] is None else _told(row["source_topic"]),
        reason=_told(row["reason"]),
        error_class=_told(row["error_class"]),
        waiting=row["waiting_sum"],
        total=row["offset_count"],
        came_back=row["came_back_sum"],
        tries_max=row["tries_max"],
        first_failed_ms=row["failed_min"],
        last_failed_ms=row["failed_max"],
        partition=part.slice.partition,
        offset=row["offset_max"],
    )


def _merged(found: Iterable[Reasons]) -> Reasons:
    sums: dict[tuple[str | None, ...], DeadLetterCount] = {}
    for reasons in found:
        for key, each in reasons.items():
            sums[key] = _added(sums[key], each) if key in sums else each
    return sums


def _sums(found: Iterable[Reasons]) -> list[DeadLetterCount]:
    rows = _merged(found).values()
    return sorted(rows, key=lambda row: (-row.last_failed_ms, row.topic, row.reason, row.source_topic or ""))


def _added(one: DeadLetterCount, other: DeadLetterCount) -> DeadLetterCount:
    newest = max(one, other, key=lambda each: (each.last_failed_ms, each.offset))
    return replace(
        newest,
        waiting=one.waiting + other.waiting,
        total=one.total + other.total,
        came_back=one.came_back + other.came_back,
        tries_max=max(one.tries_max, other.tries_max),
        first_failed_ms=min(one.first_failed_ms, other.first_failed_ms),
    )


def replayed_to(group: PartitionState, topic: Topic) -> dict[int, int]:
    """How far a dead-letter topic was replayed, by partition, by the state of its group's log (`group_of`)."""
    found = {}
    for partition in range(topic.partitions):
        key = OffsetKey(group_of(topic.name), topic.name, topic.incarnation, partition)
        stored = group.group_offsets.committed.get(key)
        if stored is not None and stored.commit.offset != TOMBSTONE_OFFSET:
            found[partition] = stored.commit.offset
    return found


def counts(
    engine: Engine, dead_letter_topic: str, *, since_ms: int | None = None
) -> Listing[DeadLetterCount]:
    """All letters by topic and reason, the newest first; or those that were written since that time.

    What cannot be read is in the list's `unreadable`, and in no number; `waiting` is -1 where the group's log is that.
    """
    topic = engine.logs.topics.look_up(dead_letter_topic)
    group = engine.logs.group_partition(group_of(dead_letter_topic))
    at_group = engine.logs.look_at_each([group])
    places = (
        TransactionPartition(topic.name, topic.incarnation, number) for number in range(topic.partitions)
    )
    looked = engine.logs.look_at_each(places)
    states = {at.partition: state for at, state in looked.states.items()}
    counter = LetterCounter(engine.logs.tools.objects, since_ms=since_ms)
    positions = {at: replayed_to(state, topic) for at, state in at_group.states.items()}.get(group)
    found = counter.count(topic, states, positions, read=engine.logs.workers.map)
    return Listing(found.reasons, [*looked.unreadable, *at_group.unreadable, *found.unreadable])
