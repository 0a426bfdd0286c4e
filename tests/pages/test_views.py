"""What the pages compute from a partition's state, where no small store would show it."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from tests.pages import scene
from txn_engine import Engine, connect
from txn_engine.maintain import MaintenancePolicy
from txn_engine.testing import ManualClock
from txn_engine_airflow.pages.moment import Moment, look
from txn_engine_airflow.pages.views_partition import KINDS, describe_partition
from txn_engine_airflow.pages.views_transactions import Filter, _ranges, list_transactions

DAY_MS = 86_400_000


def seen(engine: Engine) -> Moment:
    return look(engine, engine.admin.list_topics())


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
        engine.admin.create_topic("payments", partitions=1, schema=scene.SCHEMA)
        yield engine


def transaction(engine: Engine, count: int, *, committed: bool) -> None:
    with engine.producer(transactional_id="load") as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.produce("payments", scene.records(0, count), partition=0)
        producer.flush()
        (producer.commit_transaction if committed else producer.abort_transaction)()


def test_an_empty_partition_has_no_strip(engine: Engine) -> None:
    found = describe_partition(seen(engine), "payments", 0)
    assert found is not None
    assert (found.cells, found.ranges, found.files) == ((), (), ())


def test_merged_neighbours_are_shown_as_compacted_with_the_abort_between_them(engine: Engine) -> None:
    """The rewritten file reaches around the aborted records and the markers; what follows it is as it was."""
    transaction(engine, 2, committed=True)  # 0-1, marker 2
    transaction(engine, 2, committed=False)  # 3-4, marker 5
    transaction(engine, 2, committed=True)  # 6-7, marker 8
    assert kinds_of(engine) == [
        *["committed"] * 2, "marker", *["aborted"] * 2, "marker", *["committed"] * 2, "marker",
    ]  # fmt: skip
    engine.maintenance.compact(policy=MaintenancePolicy(min_files=2))
    assert kinds_of(engine)[:8] == ["compacted"] * 8


def test_what_retention_took_is_trimmed(engine: Engine, clock: ManualClock) -> None:
    engine.admin.create_topic("short", partitions=1, schema=scene.SCHEMA, retention_ms=DAY_MS)
    log = engine.partition("short", 0)
    log.append(scene.records(0, 3))
    clock.advance(3 * DAY_MS)
    log.append(scene.records(3, 2))
    engine.maintenance.retain()
    found = describe_partition(seen(engine), "short", 0, first=0)
    assert found is not None
    assert found.line.log_start == 3
    assert [KINDS[cell.counts.index(1)] for cell in found.cells][:5] == [*["trimmed"] * 3, *["committed"] * 2]


def test_a_long_log_is_drawn_in_few_cells_that_leave_nothing_out(engine: Engine) -> None:
    for _ in range(3):
        engine.partition("payments", 0).append(scene.records(0, 333))
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
    engine.partition("payments", 0).append(scene.records(0, 5))
    engine.admin.delete_topic("payments")
    engine.admin.create_topic("payments", partitions=1, schema=pa.schema([("x", pa.int64())]))
    found = describe_partition(seen(engine), "payments", 0)
    assert found is not None
    assert found.line.log_end == 0


def test_a_filter_by_age_counts_open_transactions(engine: Engine, clock: ManualClock) -> None:
    producer = engine.producer(transactional_id="slow", transaction_timeout_ms=600_000)
    producer.init_transactions()
    producer.begin_transaction()
    producer.produce("payments", scene.records(0, 1), partition=0)
    producer.flush()
    for later_s, found in ((59, 0), (2, 1)):
        clock.advance(later_s * 1_000)
        assert list_transactions(seen(engine), Filter(older_than_s=60), first=0, count=10).found == found
    producer.abort_transaction()
