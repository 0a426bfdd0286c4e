"""The DuckDB in which queries run can reach nothing outside, even if nobody has looked at the query
before."""

from __future__ import annotations

import io
import threading
from collections.abc import Iterator
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from storage import MemoryStore, open_store
from tests.support.waiting import LIMIT_S
from txn_engine.schemas.layout import Schemas
from txn_engine.sql.file_parts import FilePart
from txn_engine.sql.locked import LockedDuckDB
from txn_engine.sql.relations import select_from
from txn_engine.sql.store_files import ObjectFile, StoreFiles


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    """A file next to the store."""
    path = tmp_path / "outside.parquet"
    pq.write_table(pa.table({"x": [1]}), path)
    return path


@pytest.fixture
def duck(tmp_path: Path) -> Iterator[LockedDuckDB]:
    store = open_store(f"file://{tmp_path}/ledger")
    for name in (MINE, OTHERS):
        sink = pa.BufferOutputStream()
        pq.write_table(pa.table({"x": [name]}), sink)
        store.put(name, sink.getvalue().to_pybytes())
    with LockedDuckDB(store, [FilePart(MINE, 1, 0, 0, 0, 1, is_whole=True)], memory="100MB") as made:
        yield made


MINE, OTHERS = "topics/payments/0/0/data/mine.parquet", "topics/payments/0/0/data/others.parquet"
"""The file of the query, and one next to it, which it does not read: of aborted records, say."""


@pytest.mark.parametrize(
    "query",
    [
        "FROM read_parquet('{outside}')",
        "FROM read_parquet('{store}/{others}')",
        "FROM read_parquet('{store}/topics/payments/0/0/data/*.parquet')",
        "FROM read_parquet('{store}/{mine}/../others.parquet')",
        "FROM glob('{store}/**')",
        "FROM read_parquet('{store}/../outside.parquet')",
        "FROM '{outside}'",
        "FROM read_csv('/etc/passwd')",
        "FROM read_text('{folder}/../../etc/hostname')",
        "FROM glob('/*')",
        "FROM read_parquet('s3://other/x')",
        "FROM read_parquet('https://example.com/x.parquet')",
        "FROM read_parquet('txn-store://topics/payments/0/0/data/x.parquet')",
        "COPY (SELECT 1) TO '{outside}'",
        "ATTACH '{outside}.db'",
        "INSTALL httpfs",
        "LOAD httpfs",
        "SET enable_external_access = true",
        "SET allowed_directories = ['/']",
        "SET lock_configuration = false",
        "RESET memory_limit",
        "CREATE SECRET (TYPE s3)",
        "FROM table_of_ours",
    ],
)
def test_it_reaches_nothing(duck: LockedDuckDB, outside: Path, query: str) -> None:
    table_of_ours = pa.table({"x": [1]})
    assert table_of_ours.num_rows
    store = duck.store.uri("").rstrip("/")
    text = query.format(outside=outside, store=store, folder=duck.folder, mine=MINE, others=OTHERS)
    with pytest.raises((duckdb.Error, OSError)):
        duck.connection.execute(text).fetchall()
    mine = f"FROM read_parquet('{store}/{MINE}')"
    assert duck.connection.execute(mine).fetchall() == [(MINE,)]


@pytest.mark.parametrize("name", ["l*dger", "led[g]er", "led{g}er", "led?er", "with ' quote", "back\\slash"])
def test_a_folder_whose_name_is_a_pattern(tmp_path: Path, name: str) -> None:
    """If a store's folder has a name that looks like a pattern, its files are read, not those of a folder
    that the pattern matches."""
    for folder in (name, "ledger"):
        store = open_store(f"file://{tmp_path}/{folder.replace('?', '%3F')}")
        sink = pa.BufferOutputStream()
        pq.write_table(pa.table({"x": [folder], "_offset_delta": [0]}), sink)
        store.put("topics/t/0/0/data/x.parquet", sink.getvalue().to_pybytes())
        if folder == name:
            mine = store
    key = "topics/t/0/0/data/x.parquet"
    part = FilePart(key, mine.head(key).size, 0, 5, 5, 6, is_whole=True)
    with LockedDuckDB(mine, [part], memory="100MB") as duck:
        query = duck.select_from([part], Schemas.of(pa.schema([("x", pa.string())])), ["_offset"], topic="t")
        assert duck.connection.execute(query).fetchall() == [(name, 5)]


def test_a_link_in_place_of_a_file_that_was_opened_is_not_followed(duck: LockedDuckDB, outside: Path) -> None:
    """DuckDB opens files again whenever it likes, also after somebody has put a link there."""
    part = FilePart(MINE, 1, 0, 0, 0, 1, is_whole=True)
    path = Path(duck.store.uri(MINE))
    path.unlink()
    path.symlink_to(outside)
    query = f"SELECT x FROM read_parquet('{duck.place(part)}')"
    with pytest.raises(duckdb.PermissionException):
        duck.connection.sql(query).fetchall()


def test_files_are_there_as_long_as_somebody_offers_them() -> None:
    store = MemoryStore("offered")
    store.put("a", b"0123456789")
    files = StoreFiles(store)
    with files.offered({"a": 10}):
        with files.offered({"a": 10}):
            pass
        with files.open("txn-store://a") as file:
            file.seek(4)
            assert file.read(3) == b"456"
        with pytest.raises(PermissionError):
            files.open("txn-store://a", "wb")
    with pytest.raises(FileNotFoundError):
        files.info("txn-store://a")


def test_what_is_the_same_for_a_file_costs_nothing_where_it_is_not_asked_for() -> None:
    """The query for columns that are constant in a file has no join and no row number, so counts and filters
    cost no more than on plain Parquet."""
    parts = [FilePart(f"{n}.parquet", 1, n % 2, n * 10, n * 10, n * 10 + 10, is_whole=True) for n in range(4)]
    schemas = Schemas.of(pa.schema([("x", pa.string())]))
    query = select_from(parts, schemas, ["_partition", "_offset"], topic="t", place=lambda part: part.key)
    assert query == (
        'SELECT "x", list_extract([0, 1, 0, 1]::INTEGER[], file_index::BIGINT + 1) AS _partition, '
        "list_extract([0, 10, 20, 30]::BIGINT[], file_index::BIGINT + 1) + _offset_delta AS _offset "
        "FROM read_parquet(['0.parquet', '1.parquet', '2.parquet', '3.parquet'], hive_partitioning = false)"
    )


def test_threads_that_share_a_file_read_what_they_moved_to() -> None:
    """DuckDB's threads share a file. A read returns the bytes at the place that its own thread moved to, even
    if another read is under way."""
    store = MemoryStore("shared")
    store.put("a", bytes(range(100)))
    under_way, go_on = threading.Event(), threading.Event()

    class Slow(ObjectFile):
        def read_at(self, start: int, length: int) -> bytes:
            if start == 10:
                under_way.set()
                assert go_on.wait(LIMIT_S)
            return super().read_at(start, length)

    file = Slow(store, "a", 100)
    found: list[bytes] = []

    def first() -> None:
        file.seek(10)
        found.extend([file.read(2), file.read(2)])

    thread = threading.Thread(target=first)
    thread.start()
    assert under_way.wait(LIMIT_S)
    file.seek(50)
    go_on.set()
    thread.join()
    assert file.read(2) == bytes([50, 51])
    assert found == [bytes([10, 11]), bytes([12, 13])]
    file.seek(-1, io.SEEK_END)
    assert (file.tell(), file.read(), file.read()) == (99, bytes([99]), b"")
