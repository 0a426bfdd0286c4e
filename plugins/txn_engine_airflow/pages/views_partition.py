"""The Topic pages: a topic's partitions; and one partition as a strip of offsets, its producers, aborts and files."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from txn_engine.protocol.controls import GRACE_MS
from txn_engine.protocol.partition import LogFile, PartitionState
from txn_engine.protocol.transaction_rows import StoredRow
from txn_engine_airflow.pages.moment import Moment, TopicState
from txn_engine_airflow.pages.views_overview import holder, owners_of, records_and_bytes

CELLS_MAX = 200
RANGES_MAX = 200
FILES_MAX = 200
PRODUCERS_MAX = 200
ABORTED_MAX = 200

KINDS = ("committed", "open", "aborted", "compacted", "marker", "trimmed")
"""What an offset can be. `compacted`: inside a file that a rewrite made with records left out, or where compaction by
key left none; `marker`: a commit or abort marker, or another control row, without a record; `trimmed`: below the log's
start.
"""


@dataclass(frozen=True, slots=True)
class PartitionLine:
    """A partition in its topic's table. `held_by` "": nobody known, see `producer_id`; -1: nothing is held."""

    partition: int
    log_start: int
    last_stable: int
    log_end: int
    behind: int
    records: int
    bytes: int
    files: int
    held_by: str
    producer_id: int
    since_ms: int
    last_append_ms: int


@dataclass(frozen=True, slots=True)
class TopicDetail:
    """A topic: what it was made with, and its partitions."""

    now_ms: int
    topic: str
    incarnation: int
    key: str | None
    columns: tuple[tuple[str, str], ...]
    cleanup_policy: str
    retention_ms: int
    created_ms: int
    partitions: tuple[PartitionLine, ...]


@dataclass(frozen=True, slots=True)
class OffsetRange:
    """Neighbouring offsets of one kind, both ends inclusive. `producer_id` -1: several, or none."""

    first: int
    last: int
    kind: str
    producer_id: int


@dataclass(frozen=True, slots=True)
class Cell:
    """A column of the strip: how many offsets of each kind, in the order of `KINDS`, lie in `first` to `last`."""

    first: int
    last: int
    counts: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class ProducerLine:
    """A producer as the partition knows it; `open_from` -1: nothing open."""

    producer_id: int
    producer_epoch: int
    transactional_id: str
    last_sequence: int
    coordinator_epoch: int
    open_from: int
    last_append_ms: int


@dataclass(frozen=True, slots=True)
class AbortedLine:
    """An entry of the aborted-transaction index; `marker` is the abort marker's offset."""

    producer_id: int
    first: int
    marker: int
    last_stable: int


@dataclass(frozen=True, slots=True)
class FileLine:
    """A data file. `gone_after_ms`: when clean-up may take a dead one away; -1 for one that is in use."""

    path: str
    kind: str
    first: int
    last: int
    records: int
    bytes: int
    gone_after_ms: int


@dataclass(frozen=True, slots=True)
class FileSum:
    """The files of one kind together."""

    kind: str
    files: int
    bytes: int


@dataclass(frozen=True, slots=True)
class PartitionDetail:
    """One partition. Lists are cut, newest first; the counts beside them are of all."""

    now_ms: int
    topic: str
    line: PartitionLine
    entries_start: int
    floor: int
    strip_first: int
    strip_last: int
    kinds: tuple[str, ...]
    cells: tuple[Cell, ...]
    ranges: tuple[OffsetRange, ...]
    ranges_found: int
    producers: tuple[ProducerLine, ...]
    producers_found: int
    aborted: tuple[AbortedLine, ...]
    aborted_found: int
    sums: tuple[FileSum, ...]
    files: tuple[FileLine, ...]
    files_found: int


def describe_topic(moment: Moment, name: str) -> TopicDetail | None:
    """A topic; None where there is none of that name."""
    state = moment.topics.get(name)
    if state is None:
        return None
    owners = owners_of(moment.transactions.values())
    topic = state.topic
    return TopicDetail(
        now_ms=moment.now_ms,
        topic=name,
        incarnation=topic.incarnation,
        key=topic.key,
        columns=tuple((field.name, str(field.type)) for field in topic.schema),
        cleanup_policy=topic.cleanup_policy,
        retention_ms=topic.retention_ms,
        created_ms=topic.created_ms,
        partitions=tuple(
            _line(number, part, *_held_by(part, owners)) for number, part in enumerate(state.partitions)
        ),
    )


def describe_partition(
    moment: Moment, name: str, partition: int, *, first: int = -1, last: int = -1
) -> PartitionDetail | None:
    """A partition, its strip over offsets `first` to `last` (-1: from the log's start, to its end)."""
    topic = moment.topics.get(name)
    if topic is None or not 0 <= partition < len(topic.partitions):
        return None
    state = topic.partitions[partition]
    owners = owners_of(moment.transactions.values())
    names = {stored.row.producer_id: name for name, stored in moment.transactions.items()}
    bounds = _bounds(state, first, last)
    ranges = list(_ranges(state, *bounds)) if bounds[0] <= bounds[1] else []
    producers = sorted(state.producers.values(), key=lambda entry: -entry.append_time)
    files = sorted(_files(state), key=lambda file: -file.first)
    return PartitionDetail(
        now_ms=moment.now_ms,
        topic=name,
        line=_line(partition, state, *_held_by(state, owners)),
        entries_start=state.entries_start,
        floor=state.floor,
        strip_first=bounds[0],
        strip_last=bounds[1],
        kinds=KINDS,
        cells=tuple(_cells(ranges, *bounds)),
        ranges=tuple(reversed(ranges[-RANGES_MAX:])),
        ranges_found=len(ranges),
        producers=tuple(
            ProducerLine(
                entry.producer_id,
                entry.producer_epoch,
                names.get(entry.producer_id, ""),
                entry.last_sequence,
                entry.coordinator_epoch,
                entry.open_first_offset,
                entry.append_time,
            )
            for entry in producers[:PRODUCERS_MAX]
        ),
        producers_found=len(producers),
        aborted=tuple(
            AbortedLine(at.producer_id, at.first_offset, at.last_offset, at.last_stable_offset)
            for _, at in sorted(state.aborted.items(), reverse=True)[:ABORTED_MAX]
        ),
        aborted_found=len(state.aborted),
        sums=_sums(files),
        files=tuple(files[:FILES_MAX]),
        files_found=len(files),
    )


def files_at(state: TopicState, partition: int, offset: int, count: int) -> list[LogFile]:
    """The files that a sample of `count` offsets from `offset` on opens."""
    part = state.partitions[partition]
    return [
        file
        for files in (part.live, part.undecided)
        for file in files.values()
        if file.base_offset < offset + count and file.last_offset >= offset
    ]


def _held_by(state: PartitionState, owners: Mapping[int, StoredRow]) -> tuple[str, int, int]:
    return holder(state, owners) if state.open_transactions else ("", -1, -1)


def _line(partition: int, state: PartitionState, held_by: str, producer_id: int, since: int) -> PartitionLine:
    records, size = records_and_bytes(state)
    stable, end = state.last_stable_offset, state.high_watermark
    return PartitionLine(
        partition=partition,
        log_start=state.log_start_offset,
        last_stable=stable,
        log_end=end,
        behind=end - stable,
        records=records,
        bytes=size,
        files=len(state.live) + len(state.undecided),
        held_by=held_by,
        producer_id=producer_id,
        since_ms=since,
        last_append_ms=state.last_append_time,
    )


# --- the strip ----------------------------------------------------------------------------------------------


def _bounds(state: PartitionState, first: int, last: int) -> tuple[int, int]:
    end = state.high_watermark - 1
    low = state.log_start_offset if first < 0 else min(first, max(end, 0))
    high = end if last < 0 else min(last, end)
    return low, high


def _ranges(state: PartitionState, first: int, last: int) -> Iterator[OffsetRange]:
    """What lies at `first` to `last`, ascending and without a gap; neighbours of one kind and producer are joined."""
    held: OffsetRange | None = None
    for found in _pieces(state, first, last):
        if held and (held.kind, held.producer_id) == (found.kind, found.producer_id):
            held = OffsetRange(held.first, found.last, held.kind, held.producer_id)
            continue
        if held:
            yield held
        held = found
    if held:
        yield held


def _pieces(state: PartitionState, first: int, last: int) -> Iterator[OffsetRange]:
    offset = first
    for file, kind in _named_offsets(state, first, last):
        if file.last_offset < offset:
            continue  # an aborted file that a rewritten one reaches around
        start, end = max(file.base_offset, offset), min(file.last_offset, last)
        if start > offset:
            yield from _between(state, offset, start - 1)
        yield OffsetRange(start, end, kind, -1 if kind == "compacted" else file.producer_id)
        offset = end + 1
    if offset <= last:
        yield from _between(state, offset, last)


def _named_offsets(state: PartitionState, first: int, last: int) -> list[tuple[LogFile, str]]:
    files = [(file, "compacted" if file.has_gaps else "committed") for file in state.live.values()]
    files += [(file, "open") for file in state.undecided.values()]
    files += [(dead.log_file, "aborted") for dead in state.dead.values() if dead.status == "aborted"]
    inside = [at for at in files if at[0].base_offset <= last and at[0].last_offset >= first]
    # Of an aborted file and the rewritten one around it, which begin at the same offset at best, the wider one tells.
    return sorted(inside, key=lambda at: (at[0].base_offset, -at[0].last_offset))


def _between(state: PartitionState, first: int, last: int) -> Iterator[OffsetRange]:
    """Offsets that no file has: below the log's start, or where compaction by key left nothing, or markers and other
    control rows.
    """
    start = state.log_start_offset
    clean = max(state.cleaning.cleaned_to, start)
    for low, high, kind in ((0, start, "trimmed"), (start, clean, "compacted"), (clean, last + 1, "marker")):
        if max(first, low) < min(last + 1, high):
            yield OffsetRange(max(first, low), min(last, high - 1), kind, -1)


def _cells(ranges: list[OffsetRange], first: int, last: int) -> Iterator[Cell]:
    """The ranges in at most `CELLS_MAX` columns of equal width."""
    if first > last:
        return
    width = -(-(last - first + 1) // CELLS_MAX)
    position = 0
    for start in range(first, last + 1, width):
        end = min(start + width - 1, last)
        counts = dict.fromkeys(KINDS, 0)
        while position < len(ranges):
            at = ranges[position]
            counts[at.kind] += max(min(at.last, end) - max(at.first, start) + 1, 0)
            if at.last > end:
                break
            position += 1
        yield Cell(start, end, tuple(counts.values()))


# --- files --------------------------------------------------------------------------------------------------


def _files(state: PartitionState) -> Iterator[FileLine]:
    for file in state.live.values():
        yield _file(file, "compacted" if file.has_gaps else "committed", -1)
    for file in state.undecided.values():
        yield _file(file, "open", -1)
    for dead in state.dead.values():
        yield _file(dead.log_file, dead.status, dead.died_ms + GRACE_MS)


def _file(file: LogFile, kind: str, gone_after_ms: int) -> FileLine:
    return FileLine(
        file.file.data_path,
        kind,
        file.base_offset,
        file.last_offset,
        file.record_count,
        file.file.data_bytes,
        gone_after_ms,
    )


def _sums(files: list[FileLine]) -> tuple[FileSum, ...]:
    kinds = sorted({file.kind for file in files})
    return tuple(
        FileSum(
            kind,
            sum(file.kind == kind for file in files),
            sum(file.bytes for file in files if file.kind == kind),
        )
        for kind in kinds
    )
