"""Every kind of change while producers of other processes write, consumers and SQL read, and files are merged."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa

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
VALUES: dict[str, Callable[[int], set[Any]]] = {
    "note": lambda number: {f"n{number}"},
    "text": lambda number: {f"n{number}"},
    "size": lambda number: {number},
    "kind": lambda number: {f"k{number}", "old"},
    "extra": lambda number: {number / 2, None},
}


def row(number: int, names: list[str]) -> dict[str, Any]:
    made = {"id": number, "note": f"n{number}", "text": f"n{number}", "size": number}
    made |= {"kind": f"k{number}", "extra": number / 2}
    return {name: made[name] for name in names}


def wrong(table: pa.Table) -> list[dict[str, Any]]:
    """The rows that say what nobody wrote."""
    names = [name for name in table.schema.names if name in VALUES]
    return [
        each
        for each in table.to_pylist()
        if any(each[name] not in VALUES[name](each["id"]) for name in names)
    ]


class Actors:
    """Threads, each with an engine of its own; the first error of any is kept."""

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


def test_every_kind_of_change_while_all_go_on(tmp_path: Path) -> None:
    """No record is lost or doubled, none says what nobody wrote, and no reader or writer has to be begun anew."""
    url = str(tmp_path)
    with txn_engine.connect(url) as engine:
        engine.admin.create_topic("t", partitions=2, schema=SCHEMA)
        actors, readers = Actors(url), Actors(url)
        sent, seen = list[int](), list[int]()
        bad: list[dict[str, Any]] = []
        lock = threading.Lock()

        def produce(other: Engine, first: int) -> None:
            with other.producer() as producer:
                number = first
                while not actors.stop.is_set():
                    schema = other.logs.topics.get("t").schema
                    table = pa.Table.from_pylist([row(number, schema.names)], schema=schema)
                    try:
                        producer.produce("t", table).result()
                    except InvalidRecordError:  # heard of a change between the look and the call
                        continue
                    with lock:
                        sent.append(number)
                    number += 2

        def consume(other: Engine) -> None:
            with other.consumer() as consumer:
                consumer.subscribe(["t"])
                while not readers.stop.is_set() or any(consumer.lag().values()):
                    table = consumer.poll(timeout_ms=20)
                    if table is not None:
                        seen.extend(table.column("id").to_pylist())
                        bad.extend(wrong(table))

        def look(other: Engine) -> None:
            while not actors.stop.is_set():
                bad.extend(wrong(other.scan("t").to_table()))
                bad.extend(wrong(other.sql("SELECT * FROM t")))
                other.maintenance.compact("t", policy=EAGER)

        actors.begin(lambda other: produce(other, 0))
        actors.begin(lambda other: produce(other, 1))
        actors.begin(look)
        readers.begin(consume)
        for change in CHANGES:
            before = len(sent)
            engine.admin.alter_topic("t", change)
            assert not wrong(engine.scan("t").to_table())
            while len(sent) < before + 4 and not actors.stop.is_set():
                actors.stop.wait(0.01)
        actors.end()
        readers.end()
        assert (actors.errors, readers.errors) == ([], [])
        assert not bad
        final = engine.scan("t").to_table()
        assert sorted(final.column("id").to_pylist()) == sorted(seen) == sorted(sent)
        assert final.schema.names[:4] == ["text", "extra", "kind", "id"]
        assert engine.admin.verify().findings == ()
