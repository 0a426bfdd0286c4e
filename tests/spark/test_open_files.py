"""OpenFiles writes a partition's rows into files of a good size, in order, with bounded memory."""

from __future__ import annotations

import threading
from itertools import count

import numpy as np
import pyarrow as pa
import pytest

from storage import decode_parquet
from tests.suite.tiers import in_shard
from tests.support.refusals import refused
from txn_engine.errors import RecordTooLargeError
from txn_engine.log.data_files import EncodedFile
from txn_engine.protocol.file_names import DataFileName
from txn_engine.reasons import Reason
from txn_engine.schemas.layout import OFFSET_DELTA, TIMESTAMP, original
from txn_engine.spark import open_files
from txn_engine.spark.open_files import OpenFiles

_RANDOM = np.random.default_rng(7)


class Store:
    """A store that remembers what was put."""

    def __init__(self) -> None:
        self.numbers = count()
        self.put_files: dict[str, bytes] = {}
        self.fails = False

    def new_name(self, partition: int) -> DataFileName:
        return DataFileName(0, partition, 0, f"{next(self.numbers):032x}")

    def put(self, partition: int, data: bytes, encoded: EncodedFile) -> None:
        assert threading.current_thread() is not threading.main_thread()
        if self.fails:
            raise OSError("the disk is full")
        self.put_files[encoded.file.data_path] = data

    def rows(self, encoded: EncodedFile) -> pa.Table:
        table, _ = decode_parquet(self.put_files[encoded.file.data_path], key="", kind="data")
        assert table.num_rows == encoded.record_count
        assert table.column(OFFSET_DELTA).to_pylist() == list(range(table.num_rows))
        assert set(table.column(TIMESTAMP).cast(pa.int64()).to_pylist()) == {5}
        return table


def part(first: int, rows: int) -> pa.Table:
    """Rows that cannot be compressed."""
    ids = pa.array(range(first, first + rows), pa.int64())
    return pa.table({"id": ids, "noise": pa.array(_RANDOM.integers(0, 2**62, rows))})


def opened(store: Store, partitions: int, schema: pa.Schema, most_bytes: int = 1 << 30) -> OpenFiles:
    names = (store.new_name, 5, store.put)
    return OpenFiles(partitions, original(schema), *names, most_bytes=most_bytes, topic="payments")


def written(
    store: Store, partitions: int, parts: int, rows: int, most_bytes: int = 1 << 30
) -> list[tuple[int, EncodedFile]]:
    found: list[tuple[int, EncodedFile]] = []
    with opened(store, partitions, part(0, 0).schema, most_bytes) as files:
        for number in range(parts):
            table = part(number * rows, rows)
            step = rows // partitions
            split = [(at, table.slice(at * step, step)) for at in range(partitions)]
            found += files.write(split, table.nbytes)
        found += files.finish()
    return found


@pytest.mark.parametrize("partitions", [1, 3])
def test_few_rows_are_one_file_a_partition(partitions: int) -> None:
    """Few rows become one file for each partition, however many parts they come in, with all rows in their
    order."""
    store = Store()
    found = written(store, partitions, 10, 300)
    assert [partition for partition, _ in found] == list(range(partitions))
    for partition, encoded in found:
        ids = store.rows(encoded).column("id").to_pylist()
        step = 300 // partitions
        first = partition * step
        assert ids == [part * 300 + first + at for part in range(10) for at in range(step)]


def test_many_rows_are_files_of_the_size_aimed_at(monkeypatch: pytest.MonkeyPatch) -> None:
    """A file is ended once it is large enough, and its rows come before those of the next file."""
    monkeypatch.setattr(open_files, "FILE_BYTES", 400_000)
    monkeypatch.setattr(open_files, "ROW_GROUP_BYTES", 100_000)
    store = Store()
    found = written(store, 1, 100, 1_000)
    sizes = [encoded.file.data_bytes for _, encoded in found]
    assert len(sizes) > 2
    assert all(400_000 <= size < 600_000 for size in sizes[:-1])
    ids = [each for _, encoded in found for each in store.rows(encoded).column("id").to_pylist()]
    assert ids == list(range(100_000))


def test_many_rows_of_one_value(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows that take hardly any bytes end a file too, by their number."""
    monkeypatch.setattr(open_files, "FILE_ROWS", 30_000)
    monkeypatch.setattr(open_files, "ROW_GROUP_BYTES", 100_000)
    store = Store()
    table = pa.table({"id": pa.array([7] * 10_000, pa.int64())})
    found: list[tuple[int, EncodedFile]] = []
    with opened(store, 1, table.schema) as files:
        for _ in range(20):
            found += files.write([(0, table)], table.nbytes)
        found += files.finish()
    counts = [encoded.record_count for _, encoded in found]
    assert sum(counts) == 200_000
    assert len(counts) > 4
    assert max(counts) <= 50_000


def test_what_is_held_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """If files are open in many partitions, the largest is ended before it is full, so memory does not grow
    with the rows."""
    monkeypatch.setattr(open_files, "PENDING_BYTES", 100_000)
    monkeypatch.setattr(open_files, "ENCODED_BYTES", 500_000)
    store = Store()
    found = written(store, 10, 100, 1_000)
    assert len(found) > 10
    assert max(encoded.file.data_bytes for _, encoded in found) < 500_000
    for partition in range(10):
        ids = [
            each
            for number, encoded in found
            if number == partition
            for each in store.rows(encoded).column("id").to_pylist()
        ]
        assert ids == sorted(ids)
        assert len(ids) == 10_000


@pytest.mark.parametrize(
    ("most_bytes", "partitions"), in_shard("spark", [(100_000, 1), (40_000, 3), (20_000_000, 1)], keep=2)
)
def test_no_file_is_larger_than_the_topic_takes(
    monkeypatch: pytest.MonkeyPatch, most_bytes: int, partitions: int
) -> None:
    """Rows are split into files that the topic accepts, in their order, even if several row groups fit and
    one more does not."""
    monkeypatch.setattr(open_files, "ROW_GROUP_BYTES", 300_000 if most_bytes < 1_000_000 else 3_000_000)
    store = Store()
    rows = 30_000 if most_bytes < 1_000_000 else 300_000
    found = written(store, partitions, 5, rows, most_bytes)
    sizes = [encoded.file.data_bytes for _, encoded in found]
    assert max(sizes) <= most_bytes
    assert len(sizes) < 4 * sum(sizes) / most_bytes + partitions
    for partition in range(partitions):
        files = [encoded for number, encoded in found if number == partition]
        ids = [each for encoded in files for each in store.rows(encoded).column("id").to_pylist()]
        assert ids == sorted(ids)
        assert len(ids) == 5 * rows // partitions


def test_a_row_that_is_too_large_alone_is_refused() -> None:
    """The error names the limit, even if other rows of the file fit."""
    store = Store()
    table = pa.table({"text": ["short", "".join(map(str, range(9_000))), "short"]})
    with opened(store, 1, table.schema, 8_000) as files:
        list(files.write([(0, table)], table.nbytes))
        with refused(RecordTooLargeError, Reason.ROW_TOO_LARGE) as error:
            list(files.finish())
    assert error.value.place == "payments-0"


def test_a_put_that_fails_fails_the_task() -> None:
    """The call that waits for a failed put raises its error, so no file is reported that is not on the
    store."""
    store = Store()
    store.fails = True
    with pytest.raises(OSError, match="the disk is full"):
        written(store, 2, 3, 100)
