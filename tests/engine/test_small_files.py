"""Many small files become one table without Arrow, and the result is the one of Arrow."""

from __future__ import annotations

import random
from decimal import Decimal
from functools import cache
from typing import Any

import pyarrow as pa
import pytest

import txn_engine.log.data_files as data_files
from storage import MemoryStore
from txn_engine import Engine
from txn_engine.errors import CorruptObjectError
from txn_engine.log.reading import FileSlice, SmallFiles

SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("amount", pa.decimal128(38, 4)),
        ("text", pa.string()),
        ("flag", pa.bool_()),
        ("rate", pa.float64()),
        ("small", pa.int16()),
    ]
)
VALUES: dict[str, list[Any]] = {
    "id": [0, -1, 2**63 - 1, -(2**63)],
    "amount": [Decimal(0), Decimal("-0.0001"), Decimal(f"{'9' * 34}.9999"), Decimal(f"-{'9' * 34}.9999")],
    "text": ["abc", "\u00e9x", "", "longer"],
    "flag": [True, False],
    "rate": [0.0, -0.0, 1e308, 5e-324, float("inf")],
    "small": [0, -(2**15), 2**15 - 1],
}


def row(chance: random.Random, *, nulls: bool = False) -> pa.Table:
    values = {
        name: [None if nulls and chance.random() < 0.2 else chance.choice(found)]
        for name, found in VALUES.items()
    }
    return pa.table(values, schema=SCHEMA)


def written(store: MemoryStore, tables: list[pa.Table]) -> None:
    with Engine(store) as engine:
        engine.admin.create_topic("payments", schema=SCHEMA, partitions=1)
        with engine.producer() as producer:
            for table in tables:
                producer.produce("payments", table, partition=0).result()


@cache
def of_random_rows(nulls: bool) -> MemoryStore:
    chance = random.Random(7)
    store = MemoryStore()
    written(store, [row(chance, nulls=nulls) for _ in range(40)])
    return store


def by_arrow(store: MemoryStore, monkeypatch: pytest.MonkeyPatch, columns: list[str] | None) -> pa.Table:
    with monkeypatch.context() as patch, Engine(store) as engine:
        patch.setattr(SmallFiles, "has", staticmethod(lambda part: False))
        return engine.scan("payments").to_table(columns)


@pytest.mark.parametrize("nulls", [False, True])
@pytest.mark.parametrize(
    "columns", [None, ["id", "_offset"], ["amount", "_partition", "_timestamp"], ["_offset"]]
)
def test_the_records_are_those_that_arrow_reads(
    monkeypatch: pytest.MonkeyPatch, columns: list[str] | None, nulls: bool
) -> None:
    """Whatever the values are, nulls among them, and whichever columns are read, the table is the one of Arrow."""
    store = of_random_rows(nulls)
    with Engine(store) as engine:
        found = engine.scan("payments").to_table(columns)
    wanted = by_arrow(store, monkeypatch, columns)
    assert found.schema == wanted.schema
    assert found.equals(wanted)
    assert list(map(str, found.to_pylist())) == list(map(str, wanted.to_pylist()))  # -0.0 equals 0.0


@pytest.mark.parametrize("files", [10, 80])
def test_arrow_opens_two_files_of_a_kind(monkeypatch: pytest.MonkeyPatch, files: int) -> None:
    """However many files are written alike, Arrow opens two of them, and they become few tables."""
    store = MemoryStore()
    same = pa.table({name: found[:1] for name, found in VALUES.items()}, schema=SCHEMA)
    written(store, [same] * files)
    opened: list[str] = []
    open_parquet = data_files.open_parquet

    def noted(*arguments: Any, **keywords: Any) -> Any:
        opened.append(keywords["key"])
        return open_parquet(*arguments, **keywords)

    monkeypatch.setattr(data_files, "open_parquet", noted)
    with Engine(store) as engine:
        scan = engine.scan("payments")
        (topic,) = scan.topics
        small = SmallFiles(engine.logs.tools.objects, topic, None)
        tables = list(small.read([part for _, part in scan._slices]))
    assert len(opened) == 2
    assert [table.num_rows for table in tables] == [1, 1, files - 2]


@pytest.mark.parametrize("damage", ["a byte", "another file", "cut short", "gone"])
def test_a_damaged_file_is_noticed(damage: str) -> None:
    """A file that is known by its footer is checked as any other: its bytes, and whether the log names it."""
    store = MemoryStore()
    chance = random.Random(1)
    same = pa.table({name: found[:1] for name, found in VALUES.items()}, schema=SCHEMA)
    other = same.set_column(0, "id", pa.array([5]))
    written(store, [same] * 8 + [other] + [same] * 3)
    keys = sorted(info.key for info in store.list("topics/payments") if "/data/" in info.key)
    key, of_another = keys[6], keys[8]
    data = store.get(key)
    match damage:
        case "a byte":
            place = chance.randrange(8, 40)
            store.put(key, data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :])
        case "another file":
            store.put(key, store.get(of_another))
        case "cut short":
            store.put(key, data[:-1])
        case "gone":
            store.delete(key)
    with Engine(store) as engine, pytest.raises(CorruptObjectError):
        engine.scan("payments").to_table()


def test_which_files_are_small() -> None:
    """A file of which only a part is read is none of those that are put together."""
    store = MemoryStore()
    written(store, [row(random.Random(1)).take([0, 0, 0])] * 2)
    with Engine(store) as engine:
        parts: list[FileSlice] = [part for _, part in engine.scan("payments")._slices]
        assert all(map(SmallFiles.has, parts))
        first = next(iter(engine.scan("payments").offsets))
        parts = [part for _, part in engine.scan("payments", start={first: 1})._slices]
        assert [SmallFiles.has(part) for part in parts] == [False, True]
