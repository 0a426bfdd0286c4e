"""A file of many row groups is read one part at a time: readers see the same records, and need memory for
only one part."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pytest

from storage import envelope
from tests.engine.conftest import SCHEMA, payments
from tests.maintain.tables import ALWAYS
from tests.support.refusals import refused
from tests.support.stores import accounts_in
from txn_engine import Engine, TopicPartition
from txn_engine.errors import CorruptObjectError
from txn_engine.log import data_files
from txn_engine.reasons import Reason
from txn_engine.testing import ManualClock

ACCOUNTS = list(range(20))
TOPIC = "ledger"
ONLY = TopicPartition(TOPIC, 0)


@pytest.fixture(autouse=True)
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Row groups of three records, each a part by itself."""

    def row_groups(table: pa.Table, most: int) -> Iterator[pa.Table]:
        return (table.slice(start, 3) for start in range(0, max(len(table), 1), 3))

    monkeypatch.setattr(envelope, "row_groups", row_groups)
    monkeypatch.setattr(data_files, "PART_BYTES", 1)


@pytest.fixture
def ledger(engine: Engine) -> Engine:
    """Twenty payments in one file, and five in a second."""
    engine.admin.create_topic(TOPIC, partitions=1, schema=SCHEMA)
    load(engine, *ACCOUNTS)
    load(engine, 20, 21, 22, 23, 24)
    return engine


def load(engine: Engine, *accounts: int, topic: str = TOPIC) -> None:
    with engine.producer() as producer:
        producer.produce(topic, payments(*accounts)).result()


def test_a_scan_sees_every_record_once_in_order(ledger: Engine) -> None:
    whole = ledger.scan(TOPIC).to_table()
    assert whole.column("account_id").to_pylist() == list(range(25))
    assert whole.column("_offset").to_pylist() == list(range(25))
    assert [batch.num_rows for batch in ledger.scan(TOPIC).to_batches()] == [3] * 6 + [2, 3, 2]
    middle = ledger.scan(TOPIC, start={ONLY: 4}, end={ONLY: 11}).to_table()
    assert middle.column("account_id").to_pylist() == list(range(4, 11))


@pytest.mark.parametrize("most", [1, 2, 3, 4, 7, 20, 25, 100])
def test_polls_see_every_record_once_in_order(ledger: Engine, most: int) -> None:
    consumer = ledger.consumer()
    consumer.assign([ONLY])
    consumer.seek(ONLY, 0)
    seen: list[int] = []
    while (table := consumer.poll(max_records=most)) is not None:
        assert table.num_rows <= most
        seen += table.column("account_id").to_pylist()
    assert seen == list(range(25))


def test_back_in_the_same_file(ledger: Engine) -> None:
    consumer = ledger.consumer()
    consumer.assign([ONLY])
    for start, most in ((0, 10), (2, 3), (17, 5), (0, 1)):
        consumer.seek(ONLY, start)
        table = consumer.poll(max_records=most)
        assert table is not None
        assert table.column("account_id").to_pylist() == list(range(start, start + most))


def test_a_part_that_cannot_be_read_is_not_passed_over(
    ledger: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A part that cannot be read raises the same error at each poll, and no record is lost: once it can be
    read, polls return everything from the last position on."""
    consumer = ledger.consumer()
    consumer.assign([ONLY])
    consumer.seek(ONLY, 0)
    assert consumer.poll(max_records=4) is not None
    read = data_files.read_row_groups

    def failing(opened: object, groups: list[int], columns: list[str], key: str) -> pa.Table:
        if groups == [3]:
            raise CorruptObjectError("a part", place=key)
        return read(opened, groups, columns, key)  # type: ignore[arg-type]

    monkeypatch.setattr(data_files, "read_row_groups", failing)
    for _ in range(3):
        with pytest.raises(CorruptObjectError):
            consumer.poll()
    monkeypatch.setattr(data_files, "read_row_groups", read)
    table = consumer.poll()
    assert table is not None
    assert table.column("account_id").to_pylist() == list(range(4, 25))


def with_gaps(engine: Engine, clock: ManualClock) -> None:
    """A compacted topic whose first file has gaps in its offsets."""
    engine.admin.create_topic(
        "latest", partitions=1, schema=SCHEMA, key="account_id", cleanup_policy="compact"
    )
    for turn in range(4):
        clock.advance(1_000)
        load(engine, *range(turn, 12), topic="latest")
    load(engine, 99, topic="latest")
    assert engine.maintenance.compact("latest", policy=ALWAYS).failures == ()


def test_offsets_go_on_from_part_to_part(
    engine: Engine, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A part that begins before the last one ends is damage."""
    with_gaps(engine, clock)
    read = data_files.read_row_groups
    monkeypatch.setattr(
        data_files,
        "read_row_groups",
        lambda opened, groups, columns, key: read(opened, [min(groups[0], 1)], columns, key),
    )
    with refused(CorruptObjectError, Reason.OFFSETS_OUT_OF_ORDER):
        engine.scan("latest").to_table()


def test_offsets_of_a_file_without_gaps_are_counted(ledger: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """The offsets of a file without gaps are counted from the log's entry, so their column is not read."""
    read, asked = data_files.read_row_groups, set[str]()

    def noting(opened: object, groups: list[int], columns: list[str], key: str) -> pa.Table:
        asked.update(columns)
        return read(opened, groups, columns, key)  # type: ignore[arg-type]

    monkeypatch.setattr(data_files, "read_row_groups", noting)
    table = ledger.scan(TOPIC, start={ONLY: 4}).to_table(["account_id", "_offset"])
    assert table.column("_offset").to_pylist() == table.column("account_id").to_pylist() == list(range(4, 25))
    assert asked == {"account_id"}


def test_times_and_files_with_gaps(engine: Engine, clock: ManualClock) -> None:
    with_gaps(engine, clock)
    assert accounts_in(engine, "latest") == [*range(12), 99]
    at = TopicPartition("latest", 0)
    consumer = engine.consumer()
    consumer.assign([at])
    consumer.seek(at, 0)
    seen: list[int] = []
    while (table := consumer.poll(max_records=2)) is not None:
        seen += table.column("account_id").to_pylist()
    assert sorted(seen) == [*range(12), 99]
    whole = engine.scan("latest").to_table()
    offsets, stamps = (whole.column(name).to_pylist() for name in ("_offset", "_timestamp"))
    for offset, stamp in zip(offsets, stamps, strict=True):
        ms = int(stamp.timestamp() * 1_000)
        first = next(o for o, s in zip(offsets, stamps, strict=True) if int(s.timestamp() * 1_000) >= ms)
        assert consumer.offsets_for_times({at: ms})[at] == first <= offset
    for start in range(max(offsets) + 1):
        found = engine.scan("latest", start={at: start}).to_table()
        assert found.column("_offset").to_pylist() == [offset for offset in offsets if offset >= start]
