"""What the pages compute from a partition's state, in cases that no small store shows."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from tests.pages import busy_store
from txn_engine import Engine, OffsetAndMetadata, TopicPartition, connect
from txn_engine.maintain import MaintenancePolicy
from txn_engine.testing import ManualClock
from txn_engine_airflow.pages.cuts_seen import SeenCuts
from txn_engine_airflow.pages.moment import Moment, look
from txn_engine_airflow.pages.tails import TailRows
from txn_engine_airflow.pages.views_groups import describe_group, group_lines
from txn_engine_airflow.pages.views_overview import overview, topic_lines
from txn_engine_airflow.pages.views_partition import KINDS, describe_partition
from txn_engine_airflow.pages.views_transactions import (
    Filter,
    _ranges,
    describe_transaction,
    list_transactions,
)

DAY_MS = 86_400_000


def seen(engine: Engine) -> Moment:
    return look(engine, engine.logs.topics.survey(), SeenCuts())


def kinds_of(engine: Engine, topic: str = "payments") -> list[str]:
    found = describe_partition(seen(engine), topic, 0)
    assert found is not None
    return [KINDS[cell.counts.index(1)] for cell in found.cells]


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def engine(tmp_path: Path, clock: ManualClock) -> Engine:
    with connect(f"file://{tmp_path}/ledger", clock=clock) as engine:
        engine.admin.create_topic("payments", partitions=1, schema=busy_store.SCHEMA)
        yield engine


def transaction(engine: Engine, count: int, *, committed: bool) -> None:
    with engine.producer(transactional_id="load") as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.produce("payments", busy_store.records(0, count), partition=0)
        producer.flush()
        (producer.commit_transaction if committed else producer.abort_transaction)()


def test_an_empty_partition_has_no_strip(engine: Engine) -> None:
    found = describe_partition(seen(engine), "payments", 0)
    assert found is not None
    assert (found.cells, found.ranges, found.files) == ((), (), ())


def test_merged_neighbours_stay_committed_with_the_abort_between_them(engine: Engine) -> None:
    """The merged file spans aborted records and markers. The places of the commit markers are unknown afterwards."""
    transaction(engine, 2, committed=True)  # 0-1, marker 2
    transaction(engine, 2, committed=False)  # 3-4, marker 5
    transaction(engine, 2, committed=True)  # 6-7, marker 8
    assert kinds_of(engine) == [
        *["committed"] * 2, "marker", *["aborted"] * 2, "marker", *["committed"] * 2, "marker",
    ]  # fmt: skip
    engine.maintenance.compact(policy=MaintenancePolicy(min_files=2))
    assert kinds_of(engine)[:9] == [
        *["committed"] * 3, *["aborted"] * 2, "marker", *["committed"] * 2, "marker",
    ]  # fmt: skip


def test_what_retention_took_is_trimmed(engine: Engine, clock: ManualClock) -> None:
    engine.admin.create_topic("short", partitions=1, schema=busy_store.SCHEMA, retention_ms=DAY_MS)
    log = engine.partition("short", 0)
    log.append(busy_store.records(0, 3))
    clock.advance(3 * DAY_MS)
    log.append(busy_store.records(3, 2))
    engine.maintenance.retain()
    found = describe_partition(seen(engine), "short", 0, first=0)
    assert found is not None
    assert found.line.log_start == 3
    assert [KINDS[cell.counts.index(1)] for cell in found.cells][:5] == [*["trimmed"] * 3, *["committed"] * 2]


def test_a_long_log_is_drawn_in_few_cells_that_leave_nothing_out(engine: Engine) -> None:
    for _ in range(3):
        engine.partition("payments", 0).append(busy_store.records(0, 333))
    found = describe_partition(seen(engine), "payments", 0)
    assert found is not None
    assert len(found.cells) <= 200
    assert sum(sum(cell.counts) for cell in found.cells) == 999
    assert all(a.last + 1 == b.first for a, b in zip(found.cells, found.cells[1:], strict=False))


@pytest.mark.parametrize(
    ("numbers", "text"), [([], ""), ([3], "3"), ([0, 1, 2], "0-2"), ([7, 0, 1, 3], "0-1, 3, 7")]
)
def test_partition_numbers_in_few_words(numbers: list[int], text: str) -> None:
    assert _ranges(numbers) == text


def test_a_topic_made_anew_shows_nothing_of_the_old_one(engine: Engine) -> None:
    engine.partition("payments", 0).append(busy_store.records(0, 5))
    engine.admin.delete_topic("payments")
    engine.admin.create_topic("payments", partitions=1, schema=pa.schema([("x", pa.int64())]))
    found = describe_partition(seen(engine), "payments", 0)
    assert found is not None
    assert found.line.log_end == 0


def test_a_filter_by_age_counts_open_transactions(engine: Engine, clock: ManualClock) -> None:
    producer = engine.producer(transactional_id="slow", transaction_timeout_ms=600_000)
    producer.init_transactions()
    producer.begin_transaction()
    producer.produce("payments", busy_store.records(0, 1), partition=0)
    producer.flush()
    for later_s, found in ((59, 0), (2, 1)):
        clock.advance(later_s * 1_000)
        assert list_transactions(seen(engine), Filter(older_than_s=60), first=0, count=10).found == found
    producer.abort_transaction()


# --- the strip, after maintenance ---------------------------------------------------------------------------


def drawn(engine: Engine, topic: str = "payments") -> list[tuple[int, int, str]]:
    """The strip's ranges by offset, with neighbours of one kind together."""
    found = describe_partition(seen(engine), topic, 0)
    assert found is not None
    ranges: list[tuple[int, int, str]] = []
    for at in reversed(found.ranges):
        if ranges and ranges[-1][2] == at.kind:
            ranges[-1] = ranges[-1][0], at.last, at.kind
        else:
            ranges.append((at.first, at.last, at.kind))
    return ranges


def test_aborted_offsets_stay_so_once_their_files_are_gone(engine: Engine, clock: ManualClock) -> None:
    """The index of aborted transactions keeps them, next to another transaction's marker that is not among them."""
    transaction(engine, 2, committed=True)  # 0-1, marker 2
    transaction(engine, 50, committed=False)  # 3-52, marker 53
    transaction(engine, 1, committed=True)  # 54, marker 55
    before = drawn(engine)
    assert before == [(0, 1, "committed"), (2, 2, "marker"), (3, 52, "aborted"), (53, 53, "marker"),
                      (54, 54, "committed"), (55, 55, "marker")]  # fmt: skip
    clock.advance(3 * DAY_MS)
    cleaned = engine.maintenance.clean()
    assert sum(each.dead_files for each in cleaned.partitions) == 1
    assert drawn(engine) == before


def test_another_s_marker_among_aborted_records_stays_a_marker_while_their_files_are_there(
    engine: Engine,
) -> None:
    log = engine.partition("payments", 0)

    def marker(producer_id: int, *, committed: bool) -> None:
        log.append_marker(producer_id=producer_id, producer_epoch=1, committed=committed, coordinator_epoch=0)

    def batch(producer_id: int, sequence: int) -> None:
        log.append(
            busy_store.records(0, 2),
            producer_id=producer_id,
            producer_epoch=0,
            base_sequence=sequence,
            is_transactional=True,
        )

    batch(7, 0)  # 0-1
    batch(8, 0)  # 2-3
    marker(8, committed=True)  # 4
    batch(7, 2)  # 5-6
    marker(7, committed=False)  # 7
    assert drawn(engine) == [
        (0, 1, "aborted"), (2, 3, "committed"), (4, 4, "marker"), (5, 6, "aborted"), (7, 7, "marker"),
    ]  # fmt: skip


def test_what_compaction_by_key_dropped_is_compacted(engine: Engine, clock: ManualClock) -> None:
    engine.admin.create_topic(
        "latest", partitions=1, schema=busy_store.SCHEMA, key="account_id", cleanup_policy="compact"
    )
    log = engine.partition("latest", 0)
    for _ in range(3):
        log.append(busy_store.records(0, 4))
    assert drawn(engine, "latest") == [(0, 11, "committed")]
    clock.advance(3 * DAY_MS)
    log.append(busy_store.records(0, 4))
    engine.maintenance.compact(policy=MaintenancePolicy(min_files=2))
    found = drawn(engine, "latest")
    assert found[0] == (0, 11, "compacted"), found
    assert "compacted" not in {kind for first, _, kind in found if first >= 12}


# --- figures ------------------------------------------------------------------------------------------------


def test_records_are_those_that_readers_get(engine: Engine) -> None:
    """Records at or after the last stable offset do not count, even if they are committed."""
    engine.partition("payments", 0).append(busy_store.records(0, 3))
    producer = engine.producer(transactional_id="holder")
    producer.init_transactions()
    producer.begin_transaction()
    producer.produce("payments", busy_store.records(0, 1), partition=0)
    producer.flush()
    engine.partition("payments", 0).append(busy_store.records(0, 100))
    moment = seen(engine)
    found = describe_partition(moment, "payments", 0)
    assert found is not None
    readable = engine.partition("payments", 0).read(0).num_rows
    assert found.line.records == topic_lines(moment)[0].records == readable == 3
    producer.abort_transaction()
    assert topic_lines(seen(engine))[0].records == 103


def test_the_overview_lists_the_topics_that_trail_most(engine: Engine) -> None:
    """The topics that trail most come first, so that names early in the alphabet do not hide them."""
    for number in range(3):
        engine.admin.create_topic(f"a{number}", partitions=1, schema=busy_store.SCHEMA)
    producer = engine.producer(transactional_id="holder")
    producer.init_transactions()
    producer.begin_transaction()
    for name, count in (("payments", 5), ("a1", 2)):
        producer.produce(name, busy_store.records(0, count), partition=0)
    producer.flush()
    moment = seen(engine)
    found = overview(moment, group_lines(moment))
    assert [(line.topic, line.behind) for line in found.topics] == [
        ("payments", 5), ("a1", 2), ("a0", 0), ("a2", 0),
    ]  # fmt: skip
    assert found.totals.topics == 4
    producer.abort_transaction()


# --- groups -------------------------------------------------------------------------------------------------


def test_a_lag_that_nobody_knows_is_not_zero(engine: Engine) -> None:
    """The lag of a pending commit, and of a deleted topic even after another has its name, is unknown."""
    engine.partition("payments", 0).append(busy_store.records(0, 9))
    producer = engine.producer(transactional_id="load")
    producer.init_transactions()
    producer.begin_transaction()
    consumer = engine.consumer(group_id="pending")
    at = TopicPartition("payments", 0)
    producer.send_offsets_to_transaction({at: OffsetAndMetadata(3)}, consumer.group_metadata())
    producer.flush()
    audit = engine.consumer(group_id="audit")
    audit.commit({at: OffsetAndMetadata(4)})
    assert [(line.group_id, line.lag) for line in group_lines(seen(engine))] == [
        ("audit", 5),
        ("pending", -1),
    ]
    producer.abort_transaction()
    engine.admin.delete_topic("payments")
    assert [(line.group_id, line.lag) for line in group_lines(seen(engine))] == [("audit", -1)]
    engine.admin.create_topic("payments", partitions=1, schema=busy_store.SCHEMA)
    engine.partition("payments", 0).append(busy_store.records(0, 2))
    engine.consumer(group_id="audit").commit({at: OffsetAndMetadata(1)})
    moment = seen(engine)
    assert [(line.group_id, line.lag) for line in group_lines(moment)] == [("audit", 1)]
    detail = describe_group(moment, "audit", engine.logs.group_partition("audit").partition, None)
    assert detail is not None
    assert [(part.topic, part.is_deleted, part.committed, part.lag) for part in detail.partitions] == [
        ("payments", False, 1, 1), ("payments", True, 4, -1),
    ]  # fmt: skip


# --- the time line ------------------------------------------------------------------------------------------


def test_a_transaction_began_when_it_did_however_few_rows_are_read(
    engine: Engine, clock: ManualClock
) -> None:
    """If its first row is not among the rows read, the start comes from the log, and earlier steps are shown as
    unknown.
    """
    engine.admin.create_topic("other", partitions=3, schema=busy_store.SCHEMA)
    producer = engine.producer(transactional_id="slow", transaction_timeout_ms=900_000)
    producer.init_transactions()
    began = []
    for times in range(2):
        producer.begin_transaction()
        began.append(clock())
        for number in range(3):
            producer.produce("other", busy_store.records(0, 1), partition=number)
            producer.flush()
            clock.advance(100_000)
        if not times:
            producer.commit_transaction()
    moment = seen(engine)
    stored = moment.transactions["slow"]
    rows = tuple(engine.logs.coordinator("slow").batches())
    whole = describe_transaction(moment, stored, TailRows(rows, ()), 0)
    assert whole.current is not None
    assert [(step.name, step.time_ms, step.detail) for step in whole.current.steps][:3] == [
        ("Began", began[1], "other 0"),
        ("Partitions added", began[1] + 100_000, "other 1"),
        ("Partitions added", began[1] + 200_000, "other 2"),
    ]
    assert [each.began_ms for each in whole.earlier] == [began[0]]
    cut = describe_transaction(moment, stored, TailRows(rows[-2:], ()), 0)
    assert cut.current is not None
    assert cut.current.began_ms == cut.line.began_ms == began[1]
    assert [(step.name, step.time_ms, step.detail) for step in cut.current.steps][:3] == [
        ("Began", began[1], ""),
        ("Partitions added earlier", -1, "other 0-1; further back in the log than what is read here"),
        ("Partitions added", began[1] + 200_000, "other 2"),
    ]
    assert cut.earlier == ()
    earlier = describe_transaction(moment, stored, TailRows(rows[3:], ()), 0).earlier
    assert [(each.outcome, each.began_ms) for each in earlier] == [("commit", -1)]
    producer.abort_transaction()
