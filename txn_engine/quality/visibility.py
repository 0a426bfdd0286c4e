"""What readers see of the log, and why they do not see the rest: file by file, for a file has one fate."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise

from txn_engine.quality.anomalies import DUPLICATE, LOST
from txn_engine.quality.evidence import (
    Evidence,
    EvidenceMissingError,
    ReplayedFile,
    ReplayedPartition,
    SeenFile,
    TopicRows,
    need,
    replayed,
    rows_of,
)
from txn_engine.quality.result import EXAMPLES_MAX, Counted, Example


def nothing_aborted_visible(evidence: Evidence) -> Counted:
    """Records that readers see, and that their producer aborted: by the markers, or by the coordinator's rows."""

    def aborted(file: SeenFile, replay: ReplayedPartition) -> int:
        is_one = evidence.fates.get(file.key) == "aborted" or _is_aborted(file, replay)
        return file.records if is_one else 0

    return _counted_files(evidence, aborted)


def nothing_undecided_visible(evidence: Evidence) -> Counted:
    """Records that readers see at or above the last stable offset of the raw entries, or of a transaction that is open
    by the coordinator's rows.
    """

    def undecided(file: SeenFile, replay: ReplayedPartition) -> int:
        if evidence.fates.get(file.key) == "undecided":
            return file.records
        above = file.last_offset + 1 - max(replay.last_stable_offset, file.first_offset)
        return min(max(above, 0), file.records)

    return _counted_files(evidence, undecided)


def offsets_ascend(evidence: Evidence) -> Counted:
    """Records that come behind one of a higher offset of their partition."""
    total = wrong = 0
    examples: list[Example] = []
    for topic, partition, files in _partitions(evidence, inside=True):
        total += sum(file.records for file in files)
        for file in files:
            if file.falls:
                wrong += file.falls
                examples.append(_place(topic, partition, file.first_fault))
        for before, file in pairwise(file for file in files if file.records):
            if file.first_offset < before.last_offset:
                wrong += 1
                examples.append(_place(topic, partition, file.first_offset))
    return Counted(total, wrong, tuple(examples[:EXAMPLES_MAX]))


def may_repeat(rows: TopicRows) -> bool:
    """Whether an offset may come twice: only then all of them are looked at."""
    if any(file.repeats or file.falls for file in rows.inside):
        return True
    spans = sorted(
        (file.partition, file.first_offset, file.last_offset) for file in rows.inside if file.records
    )
    return any(one[0] == other[0] and other[1] <= one[2] for one, other in pairwise(spans))


def records_as_named(evidence: Evidence) -> Counted:
    """Data files that readers see, with other records than their entry says by the raw entries."""
    total = wrong = 0
    examples: list[Example] = []
    for topic, partition, files in _partitions(evidence, inside=True):
        rows = rows_of(evidence, topic)
        end = rows.ends.get(partition, 0)
        start = max(replayed(evidence, topic, partition).log_start_offset, rows.since.get(partition, 0))
        named = {live.key: live for live in _live(evidence, topic, partition)}
        for file in files:
            total += 1
            if (live := named.get(file.key)) is None:
                continue
            is_whole = start <= live.base_offset and live.last_offset < end
            outside = (
                file.records
                and not live.base_offset <= file.first_offset <= file.last_offset <= live.last_offset
            )
            if outside or (is_whole and file.records != live.record_count):
                wrong += 1
                examples.append({**_place(topic, partition, live.base_offset), "object": file.key})
    return Counted(total, wrong, tuple(examples[:EXAMPLES_MAX]))


def files_as_replayed(evidence: Evidence) -> Counted:
    """Data files that only one of the two lists: the scan's, and that of the raw entries, as far as the scan goes."""
    total = wrong = 0
    examples: list[Example] = []
    for topic, partition, files in _partitions(evidence):
        replay = replayed(evidence, topic, partition)
        end = min(rows_of(evidence, topic).ends.get(partition, 0), replay.last_stable_offset)
        start = replay.log_start_offset
        live = [
            file.key
            for file in _live(evidence, topic, partition)
            if file.base_offset < end and file.last_offset >= start
        ]
        seen = [file.key for file in files]
        total += len(set(live) | set(seen))
        twice = [key for key, times in Counter(seen).items() if times > 1]
        odd = sorted({*(set(live) ^ set(seen)), *twice})
        wrong += len(odd)
        examples += [{"topic": topic, "partition": str(partition), "object": key} for key in odd]
    return Counted(total, wrong, tuple(examples[:EXAMPLES_MAX]))


def visible_records_counted(evidence: Evidence) -> Counted:
    """Partitions in which all is decided and readers get another number of records than the raw entries have live."""
    total = wrong = 0
    examples: list[Example] = []
    signs: set[str] = set()
    for topic in evidence.check.topics:
        rows = rows_of(evidence, topic)
        need(evidence, "audit")
        for found in evidence.replayed:
            if found.topic != topic or found.last_stable_offset != found.log_end_offset:
                continue
            total += 1
            seen = sum(file.records for file in rows.of(found.partition))
            if seen != found.live_records:
                wrong += 1
                signs.add(LOST if seen < found.live_records else DUPLICATE)
                examples.append(
                    {
                        "topic": topic,
                        "partition": str(found.partition),
                        "visible_records": f"{seen:,}",
                        "replayed_records": f"{found.live_records:,}",
                    }
                )
    return Counted(total, wrong, tuple(examples[:EXAMPLES_MAX]), tuple(sorted(signs)))


def hidden_records_explained(evidence: Evidence) -> Counted:
    """Records that only read_uncommitted returns, and no raw entry says why."""
    total = wrong = 0
    examples: list[Example] = []
    for topic in evidence.check.topics:
        need(evidence, f"log:{topic}")
        for partition, files in hidden_files(evidence, topic).items():
            for file, reason in files:
                total += file.records
                if reason == "unexplained":
                    wrong += file.records
                    examples.append(_place(topic, partition, file.first_offset))
    return Counted(total, wrong, tuple(examples[:EXAMPLES_MAX]))


def hidden_files(evidence: Evidence, topic: str) -> Mapping[int, Sequence[tuple[SeenFile, str]]]:
    """By partition the files that read_committed does not return (but those trimmed since), and why not.

    `aborted`: it lies in a transaction that its own producer aborted; `undecided`: it reaches the last stable offset;
    both by the auditor's replay. `unexplained`: neither.
    """
    found: dict[int, list[tuple[SeenFile, str]]] = {}
    for file in rows_of(evidence, topic).hidden or ():
        replay = replayed(evidence, topic, file.partition)
        if file.last_offset < replay.log_start_offset:
            continue
        reason = "unexplained"
        if file.last_offset >= replay.last_stable_offset:
            reason = "undecided"
        if _is_aborted(file, replay):
            reason = "aborted"
        found.setdefault(file.partition, []).append((file, reason))
    return found


def _is_aborted(file: SeenFile, replay: ReplayedPartition) -> bool:
    """Whether the producer that wrote the file aborted a transaction in which it lies."""
    return any(
        file.producer_id == aborted.producer_id
        and file.first_offset <= aborted.last_offset
        and file.last_offset >= aborted.first_offset
        for aborted in replay.aborted
    )


def _counted_files(evidence: Evidence, faulty: Callable[[SeenFile, ReplayedPartition], int]) -> Counted:
    total = wrong = 0
    examples: list[Example] = []
    for topic, partition, files in _partitions(evidence):
        replay = replayed(evidence, topic, partition)
        for file in files:
            total += file.records
            if count := faulty(file, replay):
                wrong += count
                first = file.first_offset if count == file.records else file.last_offset + 1 - count
                examples.append(_place(topic, partition, first))
    return Counted(total, wrong, tuple(examples[:EXAMPLES_MAX]))


def _partitions(evidence: Evidence, *, inside: bool = False) -> Iterator[tuple[str, int, list[SeenFile]]]:
    """The files that readers see; `inside`: those that were looked into."""
    for topic in evidence.check.topics:
        by_partition: dict[int, list[SeenFile]] = {}
        rows = rows_of(evidence, topic)
        numbers = {*rows.ends, *(file.partition for file in rows.files)}
        for number in numbers:
            by_partition[number] = []
        for file in rows.inside if inside else rows.files:
            by_partition[file.partition].append(file)
        for number in sorted(by_partition):
            yield topic, number, by_partition[number]


def _live(evidence: Evidence, topic: str, partition: int) -> Sequence[ReplayedFile]:
    live = replayed(evidence, topic, partition).live
    if live is None:
        raise EvidenceMissingError(f"the audit has no list of the files of {topic}-{partition}")
    return live


def _place(topic: str, partition: int, offset: int) -> Example:
    return {"topic": topic, "partition": str(partition), "offset": str(offset)}
