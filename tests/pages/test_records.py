"""A sample of records equals a read. It reads only the files that an api-server can load, and no more than it
needs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.pages import busy_store
from txn_engine import Engine, connect
from txn_engine.errors import InvalidRequestError, OffsetOutOfRangeError, UnknownTopicOrPartitionError
from txn_engine.maintain import MaintenancePolicy, merging
from txn_engine.reasons import Reason
from txn_engine_airflow.pages import records
from txn_engine_airflow.pages.records import sample


@pytest.fixture
def engine(tmp_path: Path) -> Engine:
    with connect(f"file://{tmp_path}/ledger") as engine:
        engine.admin.create_topic("payments", partitions=2, schema=busy_store.SCHEMA)
        yield engine


def offsets_of(engine: Engine, offset: int, count: int, *, uncommitted: bool = False) -> list[str]:
    found = sample(engine, "payments", 1, offset=offset, count=count, uncommitted=uncommitted)
    return [record[found.columns.index("_offset")] for record in found.records]


def test_a_sample_is_what_a_read_gives(engine: Engine) -> None:
    """A sample equals a read across files, markers and aborts, and in a merged file with gaps."""
    with engine.producer(transactional_id="load") as producer:
        producer.init_transactions()
        for number in range(6):
            producer.begin_transaction()
            producer.produce("payments", busy_store.records(10 * number, 3), partition=1)
            producer.flush()
            (producer.abort_transaction if number == 2 else producer.commit_transaction)()
    for _ in range(2):
        log = engine.partition("payments", 1)
        for first in range(log.high_watermark + 1):
            for count in (1, 4, 100):
                table = log.read(first, end=first + count)
                assert offsets_of(engine, first, count) == [
                    str(o) for o in table.column("_offset").to_pylist()
                ]
        found = sample(engine, "payments", 1, offset=0, count=1, uncommitted=False)
        assert list(found.columns) == log.read(0).column_names
        engine.maintenance.compact(policy=MaintenancePolicy(min_files=2))
    assert offsets_of(engine, 12, 3, uncommitted=True) == ["12", "13", "14"]


def test_a_file_that_would_take_too_much_memory_is_refused_with_another_way(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file that is small on the store and would take much memory is refused, and the error names another
    way."""
    table = busy_store.records(0, 20_000)
    long = table.set_column(2, "note", [["the very same words, again and again " * 20] * 20_000])
    engine.partition("payments", 1).append(long)
    (file,) = engine.partition("payments", 1).state.live.values()
    monkeypatch.setattr(records, "READ_BYTES_MAX", 4 << 20)
    assert file.file.data_bytes < records.READ_BYTES_MAX
    with pytest.raises(InvalidRequestError) as refused:
        offsets_of(engine, 7, 2)
    assert refused.value.reason is Reason.ROW_GROUPS_TOO_LARGE
    way = "`txn-engine consume payments --partition 1 --isolation-level read_committed --max-records 9`"
    assert way in str(refused.value.action)
    monkeypatch.setattr(records, "STORED_BYTES_MAX", 1_000)
    with pytest.raises(InvalidRequestError) as refused:
        offsets_of(engine, 7, 2)
    assert refused.value.reason is Reason.FILES_TOO_LARGE


@pytest.mark.parametrize("has_gaps", [False, True])
def test_only_the_row_groups_that_are_needed_are_counted_and_read(
    engine: Engine, monkeypatch: pytest.MonkeyPatch, has_gaps: bool
) -> None:
    """A merge writes several row groups. They are chosen by rows in a file without gaps, by statistics in a file
    with gaps.
    """
    log = engine.partition("payments", 1)
    for number in range(4):
        log.append(busy_store.records(0, 4_000))
        if has_gaps and number == 0:
            log.append_marker(producer_id=7, producer_epoch=1, committed=True, coordinator_epoch=0)
    monkeypatch.setattr(merging, "ROW_GROUP_ROWS", 4_000)
    engine.maintenance.compact(policy=MaintenancePolicy(min_files=2))
    merged = next(iter(log.state.live.values()))
    assert (merged.record_count, merged.has_gaps) == (16_000, has_gaps)
    seen: list[tuple[int, int]] = []
    opened = records.opened_part

    def watched(*args: Any) -> Any:
        part = opened(*args)
        seen.append((len(part.row_groups), part.file.metadata.num_row_groups))
        return part

    monkeypatch.setattr(records, "opened_part", watched)
    assert offsets_of(engine, 9_000, 2) == ["9000", "9001"]
    ((needed, there),) = seen
    assert (needed, there) == (1, 4)


def test_what_is_not_there_is_said(engine: Engine) -> None:
    with pytest.raises(UnknownTopicOrPartitionError):
        sample(engine, "nobody", 0, offset=0, count=1, uncommitted=False)
    with pytest.raises(UnknownTopicOrPartitionError):
        sample(engine, "payments", 2, offset=0, count=1, uncommitted=False)
    with pytest.raises(OffsetOutOfRangeError):
        sample(engine, "payments", 1, offset=1, count=1, uncommitted=False)
    assert offsets_of(engine, 0, 5) == []
