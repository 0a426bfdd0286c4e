"""The count of dead letters is what a reader would count, and each file is read only once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.loading.ledgers import DEAD, HEADER, MIXED, dead, load, new_url, set_up
from tests.support.internal import FEW_INTERNAL
from txn_engine import Engine, connect
from txn_engine.loading import (
    DEAD_LETTERS,
    DeadLetterRate,
    LetterCounter,
    LetterCounts,
    by_log,
    counting,
    counts,
    rates,
    replay,
)
from txn_engine.loading.counting import REASON_CHARS_MAX
from txn_engine.loading.waiting import waiting_from
from txn_engine.maintain import MaintenancePolicy
from txn_engine.testing import ManualClock

Write = Callable[..., Path]
MINUTE_MS = 60_000


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def engine(clock: ManualClock) -> Iterator[Engine]:
    with connect(new_url(), clock=clock, configs=FEW_INTERNAL) as found:
        set_up(found)
        yield found


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The files whose letters were read."""
    seen: list[str] = []
    read_slice = counting.read_slice

    def watched(objects: Any, topic: Any, part: Any, columns: Any) -> Any:
        seen.append(part.log_file.file.data_path)
        return read_slice(objects, topic, part, columns)

    monkeypatch.setattr(counting, "read_slice", watched)
    return seen


def letter(**values: Any) -> dict[str, Any]:
    """A letter that another program wrote."""
    given = {"topic": "payments", "reason": "r", "error_class": "E", "failed_at": 5, "tries": 1, **values}
    return {name: given.get(name) for name in DEAD_LETTERS.names}


def put(engine: Engine, *letters: dict[str, Any]) -> str:
    """Put letters into one file. Returns its key."""
    before = {info.key for info in engine.store.list("topics/payments-dead/")}
    engine.partition(DEAD, 0).append(pa.Table.from_pylist(list(letters), schema=DEAD_LETTERS))
    written = {info.key for info in engine.store.list("topics/payments-dead/")} - before
    return next(key for key in written if "/data/" in key)


def count(engine: Engine, counter: LetterCounter, **options: Any) -> LetterCounts:
    topic = engine.logs.topics.look_up(DEAD)
    group = engine.logs.of(engine.logs.group_partition(f"dead-letters/{DEAD}")).refresh()
    states = {0: engine.logs.get(DEAD, topic.incarnation, 0).refresh()}
    return counter.count(topic, states, counting.replayed_to(group, topic), **options)


def new_counter(engine: Engine, **options: Any) -> LetterCounter:
    return LetterCounter(engine.logs.tools.objects, **options)


def test_what_a_reader_would_count(engine: Engine, clock: ManualClock, write: Write) -> None:
    """The counts by topic, source and reason, the newest first, with times and places, are those of a reader,
    also after more loads and replays and after a merge whose file has gaps."""
    for number in range(3):
        load(engine, write(f"f{number}.csv", MIXED), run_id=f"run {number}")
        clock.advance(MINUTE_MS)
        if number == 1:
            replay(engine, DEAD)
            clock.advance(MINUTE_MS)
    put(engine, letter(source_topic="clicks"), letter(), letter(topic="other", failed_at=9))
    (first,) = waiting_from(engine, DEAD).values()
    assert replay(engine, DEAD, dry_run=True).letters == sum(each.waiting for each in counts(engine, DEAD))
    for _ in range(2):
        rows = dead(engine)
        expected = Counter((row["topic"], row["source_topic"], row["reason"]) for row in rows)
        found = counts(engine, DEAD)
        assert {(each.topic, each.source_topic, each.reason): each.total for each in found} == expected
        assert [each.last_failed_ms for each in found] == sorted(
            (e.last_failed_ms for e in found), reverse=True
        )
        for each in found:
            mine = [row for row in rows if (row["topic"], row["source_topic"], row["reason"])
                    == (each.topic, each.source_topic, each.reason)]  # fmt: skip
            failed = [int(row["failed_at"].timestamp() * 1_000) for row in mine]
            assert (each.first_failed_ms, each.last_failed_ms) == (min(failed), max(failed))
            assert each.tries_max == max(row["tries"] for row in mine)
            assert each.came_back == sum(row["tries"] > 1 for row in mine)
            assert each.offset in [
                row["_offset"] for row, at in zip(mine, failed, strict=True) if at == max(failed)
            ]
        assert (len(rows), sum(each.came_back for each in found)) == (18, 6)
        assert sum(each.waiting for each in found) == sum(row["_offset"] >= first for row in rows) == 12
        engine.maintenance.compact(policy=MaintenancePolicy(min_files=2))


def test_each_file_is_read_once_and_again_where_its_letters_were_replayed(
    engine: Engine, reads: list[str], write: Write
) -> None:
    load(engine, write("f.csv", MIXED))
    put(engine, letter())
    counter = new_counter(engine)
    assert [count(engine, counter).waiting for _ in range(3)] == [4, 4, 4]
    before = set(reads)
    assert len(reads) == len(before) == 2
    replay(engine, DEAD)  # all four come back, in files of their own
    reads.clear()
    found = count(engine, counter)
    assert (found.letters, found.waiting, sum(each.came_back for each in found.reasons)) == (8, 4, 4)
    assert set(reads) > before
    assert len(reads) == len(set(reads))
    assert count(engine, counter) == replace(found, files_read=0)


def test_the_newest_alone_and_how_many_there_are(
    engine: Engine, clock: ManualClock, reads: list[str]
) -> None:
    """Only the newest letters are read. Older ones, and files that are too large, are counted from the
    log."""
    for number in range(4):
        put(engine, *[letter(reason=f"reason {number}")] * (number + 2))
        clock.advance(MINUTE_MS)
    found = count(engine, new_counter(engine, newest=6))
    assert [(each.reason, each.total) for each in found.reasons] == [("reason 2", 4), ("reason 3", 5)]
    assert (found.letters, found.waiting, found.counted, found.is_read) == (14, 14, 9, True)
    assert len(reads) == 2
    none = count(engine, new_counter(engine, newest=6, file_bytes_max=100))
    assert (none.letters, none.waiting, none.counted, none.reasons) == (14, 14, 0, ())


def test_a_few_files_at_a_time(engine: Engine, clock: ManualClock, reads: list[str]) -> None:
    """A few files are read at a time, the newest first, and no file is read twice."""
    for number in range(5):
        put(engine, letter(reason=str(number)))
        clock.advance(MINUTE_MS)
    counter = new_counter(engine)
    seen = [count(engine, counter, files=2) for _ in range(3)]
    assert [(sorted(e.reason for e in each.reasons), each.is_read) for each in seen] == [
        (["3", "4"], False), (["1", "2", "3", "4"], False), (["0", "1", "2", "3", "4"], True),
    ]  # fmt: skip
    assert {(each.letters, each.waiting) for each in seen} == {(5, 5)}
    assert len(reads) == 5
    counter.forget_others([])
    assert count(engine, counter, files=0).counted == 0


def test_a_damaged_file_is_named_and_the_others_are_counted(engine: Engine, clock: ManualClock) -> None:
    """A damaged file is named and the other files are counted, also by a counter that has read them before.
    When the file is restored, it counts again."""
    counter = new_counter(engine)
    key = put(engine, letter(reason="damaged"), letter(reason="damaged"))
    put(engine, letter(reason="sound"))
    whole = engine.store.get(key)
    engine.store.put(key, b"PAR1 no more")
    for found in (count(engine, counter), count(engine, counter)):
        assert [each.reason for each in found.reasons] == ["sound"]
        (place,) = found.unreadable
        assert (place.place, place.error.place) == (f"{DEAD}-0", key)
        assert (found.letters, found.counted, found.is_read) == (3, 1, True)
    assert [each.place for each in counts(engine, DEAD).unreadable] == [f"{DEAD}-0"]
    engine.store.put(key, whole)
    again = count(engine, counter)
    assert (again.counted, again.unreadable) == (3, ())


def test_where_the_group_cannot_be_read_nobody_knows_what_waits(engine: Engine, write: Write) -> None:
    load(engine, write("f.csv", MIXED))
    replay(engine, DEAD)
    at = engine.logs.group_partition(f"dead-letters/{DEAD}").partition
    (entry, *_) = [info.key for info in engine.store.list(f"topics/__consumer_offsets/0/{at}/log/")]
    engine.store.put(entry, b"no entry")
    with connect(engine.url) as another:
        found = counts(another, DEAD)
        assert {each.waiting for each in found} == {-1}
        assert sum(each.total for each in found) == 6
        assert [each.place for each in found.unreadable] == [f"__consumer_offsets-{at}"]


def test_what_somebody_else_wrote(engine: Engine) -> None:
    """Letters of other programs are counted, whatever times, tries and texts they have. A long text is cut,
    and ends with a mark."""
    long = "x" * (REASON_CHARS_MAX + 5)
    put(
        engine,
        letter(reason=long, tries=-7, failed_at=-(2**62)),
        letter(reason=long + "y", failed_at=2**62, tries=2**31 - 1),
    )
    (found,) = counts(engine, DEAD)
    assert (found.total, found.reason) == (2, "x" * REASON_CHARS_MAX + "…")
    assert (found.first_failed_ms, found.last_failed_ms, found.tries_max) == (-(2**62), 2**62, 2**31 - 1)


def test_those_of_late(engine: Engine, clock: ManualClock, write: Write) -> None:
    """Letters of a period are chosen by when they were written, whatever they say, also in a file that was
    merged from old and new ones."""
    start = clock()
    put(engine, letter(reason="old", failed_at=start + MINUTE_MS))
    clock.advance(MINUTE_MS)
    put(engine, letter(reason="new"), letter(reason="new"))
    for _ in range(2):
        found = {since: [(each.reason, each.total) for each in counts(engine, DEAD, since_ms=since)]
                 for since in (start, start + 1, start + MINUTE_MS, start + MINUTE_MS + 1)}  # fmt: skip
        assert found[start + MINUTE_MS + 1] == []
        assert found[start + 1] == found[start + MINUTE_MS] == [("new", 2)]
        assert sorted(found[start]) == [("new", 2), ("old", 1)]
        engine.maintenance.compact(policy=MaintenancePolicy(min_files=2))
    load(engine, write("f.csv", HEADER + "x,1,,\n"))
    assert sum(each.total for each in counts(engine, DEAD, since_ms=start + 1)) == 3


def test_the_newest_is_the_one_that_failed_last_wherever_it_stands(engine: Engine) -> None:
    """The newest letter is the one that failed last, even if a load that began earlier has committed it
    before others."""
    put(engine, letter(failed_at=9), letter(failed_at=9))
    put(engine, letter(failed_at=5))
    (found,) = counts(engine, DEAD)
    assert (found.offset, found.first_failed_ms, found.last_failed_ms) == (1, 5, 9)


def test_what_the_log_alone_knows(engine: Engine, reads: list[str], write: Write) -> None:
    load(engine, write("f.csv", MIXED))
    topic = engine.logs.topics.look_up(DEAD)
    states = {0: engine.logs.get(DEAD, topic.incarnation, 0).refresh()}
    assert by_log(topic, states, {}) == (3, 3)
    assert by_log(topic, states, {0: 2}) == (3, 1)
    assert by_log(topic, states, {0: states[0].last_stable_offset}) == (3, 0)
    assert by_log(topic, states, None) == (3, -1)
    assert reads == []


def test_the_rate_of_late(engine: Engine, clock: ManualClock, write: Write) -> None:
    """The rate compares the letters since a time with the records of their topic since then. A row that fails
    again does not count as new."""
    load(engine, write("old.csv", MIXED), run_id="old")
    clock.advance(MINUTE_MS)
    since_ms = clock()
    assert list(rates(engine, DEAD, since_ms=since_ms)) == []
    load(engine, write("f.csv", MIXED + "6,6.00,,\n"), run_id="new")
    put(engine, *[letter(topic="no-such-topic")] * 2, letter(topic="../x"))
    replay(engine, DEAD)
    for _ in range(2):
        assert list(rates(engine, DEAD, since_ms=since_ms)) == [
            DeadLetterRate(DEAD, "payments", letters=3, records=3),
            DeadLetterRate(DEAD, "no-such-topic", letters=2, records=0),
            DeadLetterRate(DEAD, "../x", letters=1, records=0),
        ]
        engine.maintenance.compact(policy=MaintenancePolicy(min_files=2))
    for partition in range(2):
        (entry, *_) = [info.key for info in engine.store.list(f"topics/payments/0/{partition}/log/")]
        engine.store.put(entry, b"no entry")
    with connect(engine.url, clock=clock) as another:
        found = rates(another, DEAD, since_ms=since_ms)
        assert (found[0].topic, found[0].letters, found[0].records) == ("payments", 3, -1)
        assert [each.place for each in found.unreadable] == ["payments"]
