"""The Topic pages: a topic's partitions; and one partition as a strip of offsets, its producers, aborts and files."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass

from txn_engine.protocol.controls import GRACE_MS
from txn_engine.protocol.measures import PartitionMeasures, owners_of
from txn_engine.protocol.partition import AbortedRange, LogFile, PartitionState
from txn_engine_airflow.pages.moment import Moment
from txn_engine_airflow.pages.views_overview import DamageLine, damage_lines, measure_topic

CELLS_MAX = 200
RANGES_MAX = 200
FILES_MAX = 200
PRODUCERS_MAX = 200
ABORTED_MAX = 200

KINDS = ("committed", "open", "aborted", "compacted", "marker", "trimmed")
"""What an offset can be. `compacted`: below where compaction by key is clean, in a file that it left gaps in, or where
it left no file; `marker`: a commit or abort marker, or another control row, without a record; `trimmed`: below the
log's start. A file that ordinary merging made is `committed`, but for what the index of aborted transactions says of
it: where commit markers stood in it stands nowhere else.
"""


@dataclass(frozen=True, slots=True)
class PartitionLine:
    """A partition in its topic's table. `held_by` "": nobody known, see `producer_id`; -1: nothing is held. `records`,
    `bytes` and `files`: what read_committed readers get; `waiting_records`: committed, and held back.
    """

    partition: int
    log_start: int
    last_stable: int
    log_end: int
    behind: int
    records: int
    bytes: int
    files: int
    waiting_records: int
    held_by: str
    producer_id: int
    since_ms: int
    last_append_ms: int


@dataclass(frozen=True, slots=True)
class TopicDetail:
    """A topic: what it was made with, and its partitions; those that cannot be read are in `damage` alone."""

    now_ms: int
    topic: str
    incarnation: int
    key: str | None
    columns: tuple[tuple[str, str], ...]
    cleanup_policy: str
    retention_ms: int
    created_ms: int
    partitions: tuple[PartitionLine, ...]
    damage: tuple[DamageLine, ...]


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
    """A topic; None where there is none of that name. Raises what is wrong with one that cannot be read."""
    state = moment.topics.get(name)
    if state is None:
        moment.raise_damage(name)
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
        partitions=tuple(_line(part) for part in measure_topic(state, owners, moment.now_ms)),
        damage=damage_lines(moment, name),
    )


def describe_partition(
    moment: Moment, name: str, partition: int, *, first: int = -1, last: int = -1
) -> PartitionDetail | None:
    """A partition, its strip over offsets `first` to `last` (-1: from the log's start, to its end); None where there is
    none. Raises what is wrong with one that cannot be read.
    """
    topic = moment.topics.get(name)
    state = topic.partitions.get(partition) if topic is not None else None
    if topic is None or state is None:
        moment.raise_damage(name, partition)
        return None
    measured = measure_topic(topic, owners_of(moment.transactions.values()), moment.now_ms)
    names = {stored.row.producer_id: name for name, stored in moment.transactions.items()}
    bounds = _bounds(state, first, last)
    ranges = list(_ranges(state, *bounds)) if bounds[0] <= bounds[1] else []
    producers = sorted(state.producers.values(), key=lambda entry: -entry.append_time)
    files = sorted(_files(state), key=lambda file: -file.first)
    return PartitionDetail(
        now_ms=moment.now_ms,
        topic=name,
        line=next(_line(part) for part in measured if part.partition == partition),
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


def _line(at: PartitionMeasures) -> PartitionLine:
    holder = at.holder
    return PartitionLine(
        partition=at.partition,
        log_start=at.log_start_offset,
        last_stable=at.last_stable_offset,
        log_end=at.high_watermark,
        behind=at.held_back_offsets,
        records=at.readable.records,
        bytes=at.readable.bytes,
        files=at.readable.files,
        waiting_records=at.waiting.records,
        held_by=holder.transactional_id if holder else "",
        producer_id=holder.producer_id if holder else -1,
        since_ms=holder.since_ms if holder else -1,
        last_append_ms=at.last_append_ms,
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
    aborted = _Aborted(state, first, last)
    offset = first
    for file, kind in _named_offsets(state, first, last):
        if file.last_offset < offset:
            continue  # an aborted file that a rewritten one reaches around
        start, end = max(file.base_offset, offset), min(file.last_offset, last)
        if start > offset:
            yield from _between(state, aborted, offset, start - 1)
        if file.has_gaps:
            yield from aborted.within(file, kind, start, end)
        else:
            yield OffsetRange(start, end, kind, file.producer_id)
        offset = end + 1
    if offset <= last:
        yield from _between(state, aborted, offset, last)


def _named_offsets(state: PartitionState, first: int, last: int) -> list[tuple[LogFile, str]]:
    files = [(file, _kind(state, file)) for file in state.live.values()]
    files += [(file, "open") for file in state.undecided.values()]
    files += [(dead.log_file, "aborted") for dead in state.dead.values() if dead.status == "aborted"]
    inside = [at for at in files if at[0].base_offset <= last and at[0].last_offset >= first]
    # Of an aborted file and the rewritten one around it, which begin at the same offset at best, the wider one tells.
    return sorted(inside, key=lambda at: (at[0].base_offset, -at[0].last_offset))


def _kind(state: PartitionState, file: LogFile) -> str:
    """Of a committed file."""
    return "compacted" if file.has_gaps and file.base_offset < state.cleaning.cleaned_to else "committed"


def _between(state: PartitionState, aborted: _Aborted, first: int, last: int) -> Iterator[OffsetRange]:
    """Offsets that no file has: below the log's start; of aborted transactions whose files were cleaned up; where
    compaction by key left nothing; markers and other control rows.
    """
    start = state.log_start_offset
    clean = max(state.cleaning.cleaned_to, start)
    if first < start:
        yield OffsetRange(first, min(last, start - 1), "trimmed", -1)
    for low, high, kind in ((start, clean, "compacted"), (clean, last + 1, "marker")):
        if max(first, low) < min(last + 1, high):
            yield from aborted.over(max(first, low), min(last, high - 1), kind)


class _Aborted:
    """What the index of aborted transactions says of a part of the log: where their records and markers stood."""

    def __init__(self, state: PartitionState, first: int, last: int) -> None:
        ranges = [at for at in state.aborted.values() if at.first_offset <= last and at.last_offset >= first]
        self._markers = sorted(at.last_offset for at in ranges)
        self._spans: list[OffsetRange] = []
        for span in sorted(_aborted_spans(state, ranges), key=lambda span: span.first):
            before = self._spans[-1] if self._spans else None
            if before and span.first <= before.last:
                self._spans[-1] = OffsetRange(before.first, max(before.last, span.last), "aborted", -1)
            else:
                self._spans.append(span)

    def over(self, first: int, last: int, kind: str) -> Iterator[OffsetRange]:
        """These offsets, of that kind where no aborted transaction had them."""
        offset = first
        for span in self._spans[bisect_left(self._spans, first, key=lambda span: span.last) :]:
            if span.first > last:
                break
            start, end = max(span.first, offset), min(span.last, last)
            yield from self._by_marker(offset, start - 1, kind, -1)
            yield from self._by_marker(start, end, "aborted", span.producer_id)
            offset = end + 1
        yield from self._by_marker(offset, last, kind, -1)

    def within(self, file: LogFile, kind: str, first: int, last: int) -> Iterator[OffsetRange]:
        """A file with gaps: what was aborted lies in them, unless it is too much for that. Then committed records stand
        among it, nobody knows where, and only the markers are told apart.
        """
        gaps = file.last_offset - file.base_offset + 1 - file.record_count
        pieces = self.over(file.base_offset, file.last_offset, kind)
        if sum(at.last - at.first + 1 for at in pieces if at.kind != kind) <= gaps:
            yield from self.over(first, last, kind)
        else:
            yield from self._by_marker(first, last, kind, -1)

    def _by_marker(self, first: int, last: int, kind: str, producer_id: int) -> Iterator[OffsetRange]:
        offset = first
        for marker in self._markers[bisect_left(self._markers, first) :]:
            if marker > last:
                break
            if marker > offset:
                yield OffsetRange(offset, marker - 1, kind, producer_id)
            yield OffsetRange(marker, marker, "marker", -1)
            offset = marker + 1
        if offset <= last:
            yield OffsetRange(offset, last, kind, producer_id)


def _aborted_spans(state: PartitionState, ranges: list[AbortedRange]) -> Iterator[OffsetRange]:
    """Where the records of aborted transactions stood: in their files, and once those are cleaned up between a
    transaction's first offset and its marker.
    """
    files: dict[int, list[LogFile]] = {}
    for dead in state.dead.values():
        if dead.status == "aborted":
            files.setdefault(dead.log_file.producer_id, []).append(dead.log_file)
    for each in files.values():
        each.sort(key=lambda file: file.base_offset)
    for at in ranges:
        own = files.get(at.producer_id, [])
        low, high = (
            bisect_left(own, offset, key=lambda file: file.base_offset)
            for offset in (at.first_offset, at.last_offset)
        )
        if low == high:
            yield OffsetRange(at.first_offset, at.last_offset - 1, "aborted", at.producer_id)
        for file in own[low:high]:
            yield OffsetRange(file.base_offset, file.last_offset, "aborted", at.producer_id)


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
        yield _file(file, _kind(state, file), -1)
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
