"""The Dead letters pages show counts by topic and reason to everybody, and rows as text to users who may see
records.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator

import pytest
from click.testing import CliRunner

from tests.pages import busy_store
from tests.pages.busy_store import DEAD, EVIL, letter, put_letters
from txn_engine import Engine, OffsetAndMetadata, TopicPartition, connect
from txn_engine.cli.main import cli
from txn_engine.loading import DEAD_LETTERS
from txn_engine.testing import ManualClock
from txn_engine_airflow.pages import letters_seen
from txn_engine_airflow.pages.cuts_seen import SeenCuts
from txn_engine_airflow.pages.letters_seen import FILES_A_LOOK, KEPT_MS, TOPICS_MAX, LetterReadings
from txn_engine_airflow.pages.moment import Moment, look
from txn_engine_airflow.pages.records import VALUE_CHARS_MAX, sample
from txn_engine_airflow.pages.views_letters import (
    Letters,
    LetterTopic,
    describe_letters,
    find,
    first_offset,
    letters_of,
    list_letters,
)
from txn_engine_airflow.pages.views_overview import overview

MINUTE_MS = 60_000


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def engine(clock: ManualClock) -> Iterator[Engine]:
    with connect(f"memory://{uuid.uuid4().hex}", clock=clock) as engine:
        engine.admin.create_topic("payments", partitions=1, schema=busy_store.SCHEMA)
        engine.admin.create_topic(DEAD, partitions=1, schema=DEAD_LETTERS)
        yield engine


def seen(engine: Engine) -> Moment:
    return look(engine, engine.logs.topics.survey_each(), SeenCuts())


def readings_of(engine: Engine) -> LetterReadings:
    readings = LetterReadings(lambda: 0)
    readings.ask()
    readings.follow(engine, seen(engine))
    return readings


def detail(engine: Engine) -> LetterTopic:
    found = describe_letters(seen(engine), DEAD, readings_of(engine).ask())
    assert found is not None
    return found


def letters(engine: Engine, offset: int = -1, count: int = 20) -> Letters:
    """Letters as the route returns them."""
    moment = seen(engine)
    taker = find(moment, DEAD)
    assert taker is not None
    state = taker.partitions[0]
    end = state.last_stable_offset if offset < 0 else offset + 1
    first = first_offset(state, 0, end, count)
    found = sample(engine, DEAD, 0, offset=first, count=end - first, uncommitted=False)
    start = state.log_start_offset
    return letters_of(moment, DEAD, 0, found, start=start, runs_found=lambda _: {})


def replay_to(engine: Engine, offset: int) -> None:
    with engine.consumer(group_id=f"dead-letters/{DEAD}") as group:
        group.commit({TopicPartition(DEAD, 0): OffsetAndMetadata(offset)})


def test_by_topic_and_reason_the_newest_first(engine: Engine, clock: ManualClock) -> None:
    """The page shows since when, where the newest is and how many were replayed, and the command line agrees."""
    put_letters(engine, *[letter(reason="old", failed_at=clock())] * 3)
    clock.advance(MINUTE_MS)
    new = letter(reason="new", source_topic="payments", failed_at=clock(), tries=2)
    put_letters(engine, letter(reason="old", failed_at=clock() - 1), new, letter(topic="gone", failed_at=1))
    replay_to(engine, 2)
    found = detail(engine)
    line = found.line
    assert (line.letters, line.waiting, line.replayed, line.counted) == (6, 4, 2, 6)
    assert (line.first_failed_ms, line.last_failed_ms) == (1, clock())
    assert found.is_read
    assert [(at.reason, at.waiting, at.total, at.came_back, at.offset) for at in found.reasons] == [
        ("new", 1, 1, 1, 4), ("old", 2, 4, 0, 3), ("amount does not fit; expected decimal(18,2)", 1, 1, 0, 5),
    ]  # fmt: skip
    assert [(at.topic, at.is_topic, at.source_topic, at.is_source) for at in found.reasons] == [
        ("payments", True, "payments", True), ("payments", True, "", False), ("gone", False, "", False),
    ]  # fmt: skip
    listed = list_letters(seen(engine), readings_of(engine).ask(), TOPICS_MAX)
    assert (listed.waiting, listed.reasons, listed.topics) == (4, found.reasons, (found.line,))
    told = CliRunner().invoke(cli, ["dead-letters", "list", DEAD, "--json", "--url", engine.url])
    assert [(row["reason"], row["waiting"], row["total"]) for row in json.loads(told.stdout)["reasons"]] == [
        (at.reason, at.waiting, at.total) for at in found.reasons
    ]


def test_the_overview_says_how_many_wait(engine: Engine) -> None:
    """The overview says how many letters wait, without reading one."""
    put_letters(engine, *[letter()] * 3)
    replay_to(engine, 1)
    found = overview(seen(engine), ())
    assert (found.totals.letter_topics, found.totals.letters_waiting) == (1, 2)
    assert {line.topic: line.letters_waiting for line in found.topics} == {"payments": -1, DEAD: 2}


def test_where_a_group_s_log_cannot_be_read_it_is_not_known_what_waits(engine: Engine) -> None:
    put_letters(engine, letter())
    replay_to(engine, 1)
    at = engine.logs.group_partition(f"dead-letters/{DEAD}").partition
    (entry, *_) = [info.key for info in engine.store.list(f"topics/__consumer_offsets/0/{at}/log/")]
    engine.store.put(entry, b"no entry")
    with connect(engine.url) as another:
        found = detail(another)
        assert (found.line.letters, found.line.waiting, found.line.replayed) == (1, -1, -1)
        assert [at.waiting for at in found.reasons] == [-1]
        assert overview(seen(another), ()).totals.letters_waiting == 0


def test_many_letters_are_read_a_few_files_in_a_look_and_only_the_newest(
    engine: Engine, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Letters are read only while somebody asks, a few files in each look and the newest only."""
    monkeypatch.setattr(letters_seen, "NEWEST", 2 * (FILES_A_LOOK + 3))
    for number in range(FILES_A_LOOK + 8):
        clock.advance(1)
        put_letters(engine, letter(reason=f"{number}"), letter(reason=f"{number}"))
    watch = ManualClock()
    readings = LetterReadings(watch)
    readings.follow(engine, seen(engine))
    assert readings.ask() == {}
    known = []
    for _ in range(3):
        readings.follow(engine, seen(engine))
        counts = readings.ask()[DEAD]
        known.append((counts.letters, counts.counted, counts.is_read, counts.files_read))
    assert known == [
        (2 * (FILES_A_LOOK + 8), 2 * FILES_A_LOOK, False, FILES_A_LOOK),
        (2 * (FILES_A_LOOK + 8), 2 * (FILES_A_LOOK + 3), True, 3),
        (2 * (FILES_A_LOOK + 8), 2 * (FILES_A_LOOK + 3), True, 0),
    ]
    watch.advance(KEPT_MS)
    readings.follow(engine, seen(engine))
    assert readings.ask() == {}


def test_a_look_reads_a_few_files_of_however_many_topics(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(letters_seen, "FILES_A_LOOK", 3)
    engine.admin.create_topic("other-dead", partitions=1, schema=DEAD_LETTERS)
    for _ in range(2):
        engine.partition("other-dead", 0).append(busy_store.letters(letter()))
        put_letters(engine, letter())
    readings = readings_of(engine)
    assert {name: each.counted for name, each in readings.ask().items()} == {"other-dead": 2, DEAD: 1}
    assert not list_letters(seen(engine), readings.ask(), TOPICS_MAX).is_read
    readings.follow(engine, seen(engine))
    assert list_letters(seen(engine), readings.ask(), TOPICS_MAX).is_read


def test_a_damaged_file_is_named_and_the_rest_is_shown(engine: Engine, clock: ManualClock) -> None:
    put_letters(engine, letter(reason="damaged"))
    (key,) = [info.key for info in engine.store.list(f"topics/{DEAD}/") if "/data/" in info.key]
    clock.advance(1)
    put_letters(engine, letter(reason="sound"))
    engine.store.put(key, b"no Parquet")
    found = detail(engine)
    assert [at.reason for at in found.reasons] == ["sound"]
    assert (found.line.letters, found.line.counted) == (2, 1)
    (damage,) = found.damage
    assert (damage.topic, damage.partition, key in damage.error) == (DEAD, 0, True)
    assert list_letters(seen(engine), readings_of(engine).ask(), TOPICS_MAX).damage == (damage,)
    assert [each.reason for each in letters(engine, count=1).letters] == ["sound"]


def test_letters_from_the_newest_back(engine: Engine) -> None:
    """Letters are listed page by page from the newest back, each once, past markers and aborted ones."""
    with engine.producer(transactional_id="load") as producer:
        producer.init_transactions()
        for number in range(12):
            producer.begin_transaction()
            rows = [letter(source_file=f"f{number}", source_line=line) for line in range(3)]
            producer.produce(DEAD, busy_store.letters(*rows), partition=0)
            producer.flush()
            (producer.abort_transaction if number % 4 == 1 else producer.commit_transaction)()
    expected = [(f"f{number}", str(line)) for number in range(12) if number % 4 != 1 for line in range(3)]
    found: list[tuple[str | None, str | None]] = []
    offset = -1
    for _ in range(7):
        part = letters(engine, offset, 4)
        assert 0 < len(part.letters) <= 4
        found += [(each.source_file, each.source_line) for each in part.letters]
        offset = part.older
        if offset < 0:
            break
    assert found == expected[::-1]


def test_nothing_in_a_letter_is_believed(engine: Engine) -> None:
    """Markup is shown as text, unprintable characters as escapes, and long values are visibly cut."""
    huge = "ab" * VALUE_CHARS_MAX
    bad = letter(
        topic=EVIL, reason=EVIL, error_class=huge, columns=huge, raw=b"\xff\x00\x1b", run_id=EVIL, tries=-1,
        failed_at=2**62, source_topic=EVIL, source_partition=-7, source_offset=2**63 - 1, source_file=EVIL,
    )  # fmt: skip
    put_letters(engine, letter(), bad)
    found = letters(engine)
    shown, plain = found.letters
    escaped = "<img src=x onerror=alert(1)>\\x1b[2J\\u202e"
    assert (shown.topic, shown.reason, shown.run_id, shown.source_topic, shown.source_file) == (escaped,) * 5
    assert (shown.raw, shown.columns) == ("\\xff\\x00\\x1b", f"{huge[:VALUE_CHARS_MAX]}…")
    assert (shown.is_cut, plain.is_cut, found.cut_at) == (True, False, VALUE_CHARS_MAX)
    assert (shown.is_topic, shown.is_source, plain.is_topic) == (False, False, True)
    assert (shown.source_partition, shown.source_offset, shown.tries) == ("-7", str(2**63 - 1), "-1")
    reason = next(at for at in detail(engine).reasons if at.total == 1 and at.tries_max == -1)
    assert (reason.topic, reason.reason) == (escaped, escaped)
    assert len(reason.error_class) <= 301
    assert all(
        text.isprintable() for text in (reason.topic, reason.reason, *map(str, [shown.raw, shown.run_id]))
    )
