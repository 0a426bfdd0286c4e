"""The one store of the whole table, and topics with a column's records in it."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from itertools import count
from pathlib import Path
from typing import Any

import pyarrow as pa

from storage import LocalStore, MemoryStore
from tests.support.internal import FEW_INTERNAL
from tests.types.columns import SHAPES, Column, columns, plain
from txn_engine import Cut, Engine
from txn_engine.backup import restore
from txn_engine.errors import InvalidRecordError
from txn_engine.maintain import MaintenancePolicy

EAGER = MaintenancePolicy(orphan_age_ms=0, entries_age_ms=0, trim_step=1, min_files=2, min_dirty_ratio=0)
_NAMES = count()


@dataclass
class World:
    """A store, and where files go. `loaded` are the topics whose records nobody changes; `every`: all columns."""

    folder: Path
    every: Sequence[Column] = field(default_factory=lambda: [*columns(*SHAPES)])
    engine: Engine = field(
        default_factory=lambda: Engine(MemoryStore(f"types-{next(_NAMES)}"), configs=FEW_INTERNAL)
    )
    loaded: dict[Column, str] = field(default_factory=dict)
    number: count[int] = field(default_factory=count)
    _others: dict[str, Engine] = field(default_factory=dict)

    def topic(self, schema: pa.Schema, **settings: Any) -> str:
        """A new topic of one partition with these columns."""
        name = f"topic-{next(self.number)}"
        self.engine.admin.create_topic(name, schema=schema, **{"partitions": 1} | settings)
        return name

    def produce(self, topic: str, *records: pa.Table) -> None:
        """Each of these tables in a transaction of its own."""
        with self.engine.producer(transactional_id=f"load-{topic}") as producer:
            producer.init_transactions()
            for each in records:
                with producer.transaction():
                    producer.produce(topic, each)

    def topic_of(self, column: Column) -> str:
        """The topic that has the column's records, and is only read."""
        if column not in self.loaded:
            topic = self.topic(column.schema)
            self.produce(topic, column.records)
            self.loaded[column] = topic
        return self.loaded[column]

    def on_disk(self) -> Engine:
        """A store on a disk: table readers open no other."""
        if "disk" not in self._others:
            self._others["disk"] = Engine(LocalStore(self.folder / "ledger"), configs=FEW_INTERNAL)
        return self._others["disk"]

    def disk_topic_of(self, column: Column) -> str:
        """The topic on the disk that has the column's records."""
        engine = self.on_disk()
        name = f"column-{self.every.index(column)}"
        if name not in engine.admin.list_topics():
            engine.admin.create_topic(name, partitions=1, schema=column.schema)
            engine.partition(name, 0).append(column.records)
        return name

    def load_every(self) -> None:
        """Have the topic of every column that can have one."""
        for column in self.every:
            with suppress(InvalidRecordError):
                self.topic_of(column)

    @cached_property
    def cut(self) -> tuple[Cut, dict[Column, str]]:
        """A cut of the topics of all columns, which have other records behind it."""
        self.load_every()
        topics, self.loaded = self.loaded, {}
        made = self.engine.cut(topics.values())
        for column, topic in topics.items():
            self.produce(topic, column.records)
        return made, topics

    def restored(self) -> Engine:
        """A store that was restored of a backup, with the topic of every column that can have one."""
        if "restored" not in self._others:
            self.load_every()
            source = Engine(MemoryStore(f"types-source-{next(_NAMES)}"), configs=FEW_INTERNAL)
            for column, topic in self.loaded.items():
                source.admin.create_topic(topic, partitions=1, schema=column.schema)
                source.partition(topic, 0).append(column.records)
            place, target = (
                MemoryStore(f"types-backup-{next(_NAMES)}"),
                MemoryStore(f"types-restored-{next(_NAMES)}"),
            )
            source.backup(place)
            restore(place, target)
            self._others["restored"] = Engine(target)
        return self._others["restored"]

    def close(self) -> None:
        """Close the stores."""
        for engine in (self.engine, *self._others.values()):
            engine.close()

    def rows(self, topic: str, name: str = "c") -> pa.Table:
        """What a scan gives of the topic, by `id`."""
        return by_id(self.engine.scan(topic).to_table(["id", name]))

    def values(self, topic: str, name: str = "c") -> list[Any]:
        """The column's values in the topic, by `id`."""
        return plain(self.rows(topic, name).column(name))

    def file(self, suffix: str) -> Path:
        """A path that nothing has."""
        return self.folder / f"file-{next(self.number)}{suffix}"


def by_id(table: pa.Table) -> pa.Table:
    """The rows by `id`. The types stay, also those that Arrow does not sort."""
    ids = table.column("id").to_pylist()
    order = sorted(range(len(ids)), key=lambda at: ids[at] or 0)
    if order == list(range(len(ids))):
        return table
    rows: Sequence[pa.Table] = [table.slice(at, 1) for at in order]
    return pa.concat_tables(rows)
