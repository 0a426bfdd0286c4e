"""Every kind of change is made while other processes produce, consume and query, files are merged and tables
are published."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.table import StaticTable

import txn_engine
from txn_engine import (
    AddColumn,
    DropColumn,
    Engine,
    InvalidRecordError,
    MakeNullable,
    RenameColumn,
    ReorderColumns,
    WidenColumn,
)
from txn_engine.maintain import MaintenancePolicy
from txn_engine.schemas.changes import Change

EAGER = MaintenancePolicy(min_files=2, min_dirty_ratio=0.0)
SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        pa.field("note", pa.string(), nullable=False),
        ("size", pa.int32()),
    ]
)
CHANGES: list[Change] = [
    AddColumn(pa.field("kind", pa.string()), default="old"),
    RenameColumn("note", "text"),
    WidenColumn("size", pa.int64()),
    MakeNullable("text"),
    AddColumn(pa.field("extra", pa.float64())),
    ReorderColumns(["text", "extra", "kind", "size", "id"]),
    DropColumn("size"),
]
PUBLISHED: list[Change] = [AddColumn(pa.field("kind", pa.string())), *CHANGES[1:]]
"""Without a default, which Iceberg's second format does not have."""
VALUES: dict[str, Callable[[int], set[Any]]] = {
    "note": lambda number: {f"n{number}"},
    "text": lambda number: {f"n{number}"},
    "size": lambda number: {number},
    "kind": lambda number: {f"k{number}", "old", None},
    "extra": lambda number: {number / 2, None},
}


def row(number: int, names: list[str]) -> dict[str, Any]:
    made = {"id": number, "note": f"n{number}", "text": f"n{number}", "size": number}
    made |= {"kind": f"k{number}", "extra": number / 2}
    return {name: made[name] for name in names}


def wrong(table: pa.Table) -> list[dict[str, Any]]:
    """The rows with values that nobody wrote."""
    names = [name for name in table.schema.names if name in VALUES]
    return [
        each
        for each in table.to_pylist()
        if any(each[name] not in VALUES[name](each["id"]) for name in names)
    ]


class Actors:
    """Threads, each with an engine of its own. The first error of any of them is kept."""

    def __init__(self, url: str) -> None:
        self._url = url
        self.stop = threading.Event()
        self.errors: list[BaseException] = []
        self._threads: list[threading.Thread] = []

    def begin(self, work: Callable[[Engine], None]) -> None:
        def run() -> None:
            try:
                with txn_engine.connect(self._url) as engine:
                    work(engine)
            except BaseException as error:  # noqa: BLE001 -- told by the test
                self.errors.append(error)
                self.stop.set()

        self._threads.append(threading.Thread(target=run))
        self._threads[-1].start()

    def end(self) -> None:
        self.stop.set()
        for thread in self._threads:
            thread.join()


@dataclass
class Flight:
    """Everybody who uses topic `t` while its columns change, and what they saw."""

    engine: Engine
    actors: Actors
    readers: Actors
    sent: list[int] = field(default_factory=list)
    seen: list[int] = field(default_factory=list)
    bad: list[dict[str, Any]] = field(default_factory=list)
    published: list[tuple[str, list[int]]] = field(default_factory=list)
    pace_s: float = 0.0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def produce(self, first: int) -> Callable[[Engine], None]:
        """Produce every second number from this one on, in the columns that this process knows."""

        def work(engine: Engine) -> None:
            with engine.producer() as producer:
                number = first
                while not self.actors.stop.wait(self.pace_s):
                    schema = engine.logs.topics.get("t").schema
                    table = pa.Table.from_pylist([row(number, schema.names)], schema=schema)
                    try:
                        producer.produce("t", table).result()
                    except InvalidRecordError:  # heard of a change between the look and the call
                        continue
                    with self._lock:
                        self.sent.append(number)
                    number += 2

        return work

    def consume(self, engine: Engine) -> None:
        with engine.consumer() as consumer:
            consumer.subscribe(["t"])
            while not self.readers.stop.is_set() or any(consumer.lag().values()):
                table = consumer.poll(timeout_ms=20)
                if table is not None:
                    self.seen.extend(table.column("id").to_pylist())
                    self.bad.extend(wrong(table))

    def look(self, engine: Engine) -> None:
        """Scan, query with SQL, and merge files."""
        while not self.actors.stop.is_set():
            self.bad.extend(wrong(engine.scan("t").to_table()))
            self.bad.extend(wrong(engine.sql("SELECT * FROM t")))
            engine.maintenance.compact("t", policy=EAGER)

    def publish(self, engine: Engine) -> None:
        """Publish versions of an Iceberg table. Another engine reads each of them at once."""
        while not self.actors.stop.is_set():
            cut = engine.cut(["t"], keep_ms=600_000)
            uri = engine.tables.publish("t", ["iceberg"], cut=cut)["iceberg"]
            ids = sorted(engine.scan("t", cut=cut).to_table(["id"])["id"].to_pylist())
            self.published.append((uri, ids))
            self.bad.extend(wrong_in_table(uri, ids))

    def await_more(self, records: int = 4) -> None:
        """Wait until this many more records were written."""
        before = len(self.sent)
        while len(self.sent) < before + records and not self.actors.stop.is_set():
            self.actors.stop.wait(0.01)

    def change(self, change: Change) -> None:
        """Make the change, and scan with the new columns on this engine."""
        self.engine.admin.alter_topic("t", change)
        self.bad.extend(wrong(self.engine.scan("t").to_table()))

    def check(self) -> None:
        """Check that nothing was lost, doubled or wrong."""
        assert (self.actors.errors, self.readers.errors) == ([], [])
        assert not self.bad
        final = self.engine.scan("t").to_table()
        assert sorted(final.column("id").to_pylist()) == sorted(self.seen) == sorted(self.sent)
        assert final.schema.names[:4] == ["text", "extra", "kind", "id"]
        assert self.engine.admin.verify().findings == ()


def wrong_in_table(uri: str, ids: list[int]) -> list[dict[str, Any]]:
    """The wrong rows of a version of the table, or its ids if they are wrong."""
    table = StaticTable.from_metadata(uri).scan().to_arrow()
    found = sorted(table["id"].to_pylist())
    return wrong(table) if found == ids else [{"table": uri, "ids": found, "expected": ids}]


@contextmanager
def flight(url: str, *, pace_s: float = 0.0) -> Iterator[Flight]:
    """Two producers, which pause this long between records, a consumer, and a process that scans and merges.
    The block may add others."""
    with txn_engine.connect(url) as engine:
        engine.admin.create_topic("t", partitions=2, schema=SCHEMA)
        found = Flight(engine, Actors(url), Actors(url), pace_s=pace_s)
        found.actors.begin(found.produce(0))
        found.actors.begin(found.produce(1))
        found.actors.begin(found.look)
        found.readers.begin(found.consume)
        try:
            yield found
        finally:
            found.actors.end()
            found.readers.end()
        found.check()


def test_every_kind_of_change_while_all_go_on(tmp_path: Path) -> None:
    """No record is lost, doubled or wrong, and no reader or writer has to be restarted."""
    with flight(str(tmp_path)) as all_of_them:
        for change in CHANGES:
            all_of_them.change(change)
            all_of_them.await_more()


@pytest.mark.shard("engines")
def test_every_kind_of_change_while_tables_are_published(tmp_path: Path) -> None:
    """Each version of the table is right when it is published, and after later changes of the columns too."""
    with flight(str(tmp_path)) as all_of_them:
        all_of_them.actors.begin(all_of_them.publish)
        for change in PUBLISHED:
            all_of_them.change(change)
            all_of_them.await_more()
            versions = len(all_of_them.published)
            while len(all_of_them.published) < versions + 2 and not all_of_them.actors.stop.is_set():
                all_of_them.actors.stop.wait(0.01)
    assert len(all_of_them.published) >= 2 * len(PUBLISHED)
    for uri, ids in all_of_them.published:
        assert not wrong_in_table(uri, ids)
