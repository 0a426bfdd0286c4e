"""Compare what the store holds at the end with what the clients were told. Each check returns its findings as
lines of text."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import TypeVar

from tests.simulator.history import History, Position, Read, RecordId, Writing

T = TypeVar("T", Read, Position)
Place = tuple[str, int]
Final = dict[Place, list[tuple[int, RecordId]]]
"""What a read_committed reader gets of each partition from its start to its end: (offset, record)."""


def check_history(history: History, final: Final, starts: Mapping[Place, int]) -> list[str]:
    """Compare the history of one run with the final contents in every way.

    `starts`: the first offset of each partition that retention has left. Nothing below it is judged.
    """
    found = list(history.complaints)
    found += check_order(final)
    found += check_writings(list(history.writings.values()), final, starts)
    found += check_reads(history.reads, final, starts)
    found += check_positions(history.positions)
    return found


def check_order(final: Final) -> list[str]:
    """Invariant 2: offsets ascend."""
    found = []
    for place, rows in final.items():
        offsets = [offset for offset, _ in rows]
        if offsets != sorted(set(offsets)):
            found.append(f"order: {_name(place)} was read with offsets {offsets}")
    return found


def check_writings(writings: Sequence[Writing], final: Final, starts: Mapping[Place, int]) -> list[str]:
    """Invariants 2 and 3: nothing is lost, doubled, aborted or torn, and everything is in the order in which
    it was written."""
    seen: dict[RecordId, list[tuple[Place, int]]] = defaultdict(list)
    for place, rows in final.items():
        for offset, record_id in rows:
            seen[record_id].append((place, offset))
    found = []
    known: set[RecordId] = set()
    reached: dict[tuple[str, Place], int] = {}  # how far a client's earlier writings are known to have come
    for writing in writings:
        ids = list(writing.ids())
        known.update(record_id for _, record_id in ids)
        trimmed = {
            record_id
            for place, record_id in ids
            if not seen.get(record_id)
            and writing.placed.get(record_id, reached.get((writing.client, place), 0)) < starts.get(place, 0)
        }
        found += _check_one(writing, ids, seen, trimmed)
        for place, record_id in ids:
            known_at = [writing.placed.get(record_id, 0), *(offset for _, offset in seen.get(record_id, []))]
            at = writing.client, place
            reached[at] = max(reached.get(at, 0), *known_at)
    found += _check_sequence_of_each_client(writings, seen)
    found += _check_real_time(writings, seen)
    found += [
        f"unknown record: {record_id} at {_name(places[0][0])} offset {places[0][1]} was written by nobody"
        for record_id, places in seen.items()
        if record_id not in known
    ]
    return found


def _check_one(
    writing: Writing,
    ids: list[tuple[Place, RecordId]],
    seen: dict[RecordId, list[tuple[Place, int]]],
    trimmed: set[RecordId],
) -> list[str]:
    found = []
    there = [record_id for _, record_id in ids if seen.get(record_id)]
    for place, record_id in ids:
        places = seen.get(record_id, [])
        if len(places) > 1:
            found.append(f"duplicate: {record_id} stands at {[(_name(p), o) for p, o in places]}")
        elif places and places[0][0] != place:
            found.append(f"misplaced: {record_id} stands in {_name(places[0][0])}, not in {_name(place)}")
        elif places and writing.placed.get(record_id, places[0][1]) != places[0][1]:
            told = writing.placed[record_id]
            found.append(f"wrong offset: {record_id} was acknowledged at {told}, stands at {places[0][1]}")
    lost = [record_id for _, record_id in ids if not seen.get(record_id) and record_id not in trimmed]
    if writing.outcome == "ok" and lost:
        found.append(f"lost: {writing.name} was acknowledged, and {lost} of its {len(ids)} records are gone")
    unseen = writing.atomic and writing.outcome in ("open", "failed")
    if (unseen or writing.outcome == "refused") and there:
        found.append(
            f"not committed, yet seen: {writing.name} ({writing.outcome}: {writing.why}) shows {there}"
        )
    if writing.atomic and writing.outcome == "committing" and there and lost:
        found.append(f"torn: of {writing.name} only {there} are seen, of {len(ids)} records")
    by_place: dict[Place, list[tuple[int, RecordId]]] = defaultdict(list)
    for place, record_id in ids:
        if len(seen.get(record_id, [])) == 1:
            by_place[place].append((seen[record_id][0][1], record_id))
    for place, rows in by_place.items():
        if [offset for offset, _ in rows] != sorted(offset for offset, _ in rows):
            found.append(f"reordered: {writing.name} in {_name(place)} stands as {rows}")
    return found


def _check_sequence_of_each_client(
    writings: Sequence[Writing], seen: dict[RecordId, list[tuple[Place, int]]]
) -> list[str]:
    """A client's later records come after its earlier ones in every partition."""
    found = []
    last: dict[tuple[str, Place], tuple[int, str]] = {}
    for writing in writings:
        for place, record_id in writing.ids():
            offsets = [offset for there, offset in seen.get(record_id, []) if there == place]
            before = last.get((writing.client, place), (-1, ""))
            if len(offsets) == 1:
                if offsets[0] < before[0]:
                    found.append(
                        f"reordered: {record_id} stands at {_name(place)} offset {offsets[0]}, before {before[1]}"
                    )
                last[writing.client, place] = max(before, (offsets[0], writing.name))
    return found


def _check_real_time(writings: Sequence[Writing], seen: dict[RecordId, list[tuple[Place, int]]]) -> list[str]:
    """Records that a client began to write after an acknowledgement come after the acknowledged ones,
    even if different clients wrote them."""
    rows: dict[Place, list[tuple[int, Writing]]] = defaultdict(list)
    for writing in writings:
        for _, record_id in writing.ids():
            for place, offset in seen.get(record_id, []):
                rows[place].append((offset, writing))
    found = []
    for place, several in rows.items():
        latest: Writing | None = None
        for offset, writing in sorted(several, key=lambda row: row[0]):
            if latest is not None and writing.outcome == "ok" and writing.ended < latest.began:
                found.append(
                    f"reordered: {writing.name} was acknowledged before {latest.name} began, and stands behind it "
                    f"at {_name(place)} offset {offset}"
                )
            if latest is None or writing.began > latest.began:
                latest = writing
    return found


def check_reads(reads: Iterable[Read], final: Final, starts: Mapping[Place, int]) -> list[str]:
    """Invariants 2 and 5: every read returned what is there for good, and the LSO never fell."""
    found = []
    by_place: dict[Place, list[Read]] = defaultdict(list)
    for read in reads:
        by_place[read.place].append(read)
        start = max(read.start, starts.get(read.place, 0))
        wanted = tuple(row for row in final.get(read.place, []) if start <= row[0] < read.end)
        given = tuple(row for row in read.records if row[0] >= start)
        if given != wanted:
            found.append(
                f"unrepeatable read: {read.client} read {_name(read.place)} [{read.start}, {read.end}) as "
                f"{_difference(given, wanted)} at {read.ended / 1e6:.3f} s"
            )
    for place, several in by_place.items():
        found += [
            f"the end of {_name(place)} fell: {later.client} saw {later.end} after {earlier.client} saw {earlier.end}"
            for earlier, later in _in_real_time(several)
            if later.end < earlier.end
        ]
    return found


def check_positions(positions: Iterable[Position]) -> list[str]:
    """A group's committed offset never moves back (nobody resets one in these workloads)."""
    by_place: dict[tuple[str, str, int], list[Position]] = defaultdict(list)
    for position in positions:
        by_place[position.place].append(position)
    return [
        f"the offset of group {place[0]} for {place[1]}-{place[2]} moved back from {earlier.offset} to {later.offset}"
        for place, several in by_place.items()
        for earlier, later in _in_real_time(several)
        if later.offset < earlier.offset
    ]


def _in_real_time(several: list[T]) -> Iterable[tuple[T, T]]:
    """Each look with the highest value that was seen before it began."""
    by_end = sorted(several, key=lambda each: each.ended)
    index, highest = 0, None
    for later in sorted(several, key=lambda each: each.began):
        while index < len(by_end) and by_end[index].ended < later.began:
            if highest is None or _value(by_end[index]) > _value(highest):
                highest = by_end[index]
            index += 1
        if highest is not None:
            yield highest, later


def _value(seen: Read | Position) -> int:
    return seen.end if isinstance(seen, Read) else seen.offset


def _difference(read: tuple[tuple[int, RecordId], ...], wanted: tuple[tuple[int, RecordId], ...]) -> str:
    more, less = [row for row in read if row not in wanted], [row for row in wanted if row not in read]
    return f"with {more[:5]} that are not there, and without {less[:5]}"


def _name(place: Place) -> str:
    return f"{place[0]}-{place[1]}"
