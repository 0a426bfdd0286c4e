"""Damage by compaction by key: records that it dropped although nothing superseded them, and ranges that it
calls clean although they are not."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tests.verify.damage import damage
from tests.verify.raw_ledger import Row, marker
from tests.verify.story import LOAD, Story, file_row, open_load, rewrite_of

TABLE = "table"
DAY_MS = 86_400_000


@dataclass(frozen=True, slots=True)
class File:
    """A live file: its row in a snapshot or a rewrite, and its records by offset."""

    row: Row
    records: dict[int, tuple[int, int | None]]


class Table:
    """A compacted topic of one partition next to the story: plain batches, rewrites by key, and clean
    rows."""

    def __init__(self, story: Story) -> None:
        self.ledger = story.ledger
        self.ledger.topic(TABLE, 1, cleanup_policy="compact")
        self._live: dict[int, File] = {}

    @property
    def end(self) -> int:
        return self.ledger.ends.get((TABLE, 0), 0)

    def path(self, base: int) -> str:
        """The key of the live file that begins at this offset."""
        return f"topics/{TABLE}/0/0/{self._live[base].row['data_path']}"

    def put(self, *keys: tuple[int, int | None]) -> str:
        """Write a batch without a producer. Returns the key of its file."""
        row = self.ledger.batch(TABLE, 0, keys=keys)
        base = self.ledger.entry(TABLE, 0, row)
        self._live[base] = File(file_row(row, base, "live"), {base + at: key for at, key in enumerate(keys)})
        return self.path(base)

    def merged(self, *bases: int, keep: Sequence[int]) -> tuple[list[str], list[Row]]:
        """The inputs and the outputs of a rewrite of these files that keeps the records at `keep`."""
        files = [self._live.pop(base) for base in bases]
        inputs = [file.row["data_path"] for file in files]
        if not keep:
            return inputs, []
        records = {offset: key for file in files for offset, key in file.records.items() if offset in keep}
        oldest = min(file.row["first_timestamp"] for file in files)
        newest = max(file.row["max_timestamp"] for file in files)
        written = self.ledger.batch(
            TABLE,
            0,
            keys=list(records.values()),
            deltas=[offset - keep[0] for offset in keep],
            stamps=[oldest] * (len(keep) - 1) + [newest],
        )
        times = {"first_timestamp": oldest, "max_timestamp": newest, "last_offset": keep[-1]}
        row = {**file_row(written, keep[0], "live"), **times}
        self._live[keep[0]] = File(row, records)
        output = {name: value for name, value in row.items() if name not in ("status", "died_ms")}
        return inputs, [output]

    def rewrite(self, *bases: int, keep: Sequence[int] = (), tombstones_to: int = 0) -> str:
        """Write a rewrite by key of the files that begin at these offsets. Returns the key of its entry."""
        inputs, outputs = self.merged(*bases, keep=keep)
        return self.control("rewrite", {"inputs": inputs, "outputs": outputs, "tombstones_to": tombstones_to})

    def clean(self, cleaned_to: int, tombstones_to: int = 0) -> str:
        """Write a clean row. Returns the key of its entry."""
        return self.control("clean", {"cleaned_to": cleaned_to, "tombstones_to": tombstones_to})

    def control(self, kind: str, value: dict[str, Any]) -> str:
        return self.ledger.entry_key(TABLE, 0, self.ledger.control(TABLE, 0, kind, value))

    def wait(self, time_ms: int) -> None:
        self.ledger.now_ms += time_ms


@damage("key-lost")
def latest_record_left_out(story: Story) -> str:
    table = Table(story)
    table.put((1, 10), (2, 10))
    lost = table.put((1, 11))
    table.rewrite(0, 2, keep=[0, 1])
    return lost


@damage("key-lost")
def only_record_of_its_key_left_out(story: Story) -> str:
    table = Table(story)
    lost = table.put((1, 10), (2, 10))
    table.rewrite(0, keep=[0])
    return lost


@damage("key-lost")
def superseded_by_an_aborted_record(story: Story) -> str:
    table = Table(story)
    ledger, places = story.ledger, [(TABLE, 0, 0)]
    lost = table.put((1, 10))
    ids = {"committed_run_ids": ["day-1"]}
    ledger.transaction(LOAD, "Ongoing", 0, 2, partitions=places, **ids)
    ledger.entry(TABLE, 0, ledger.batch(TABLE, 0, 0, 2, 0, transactional=True, keys=[(1, 11)]))
    prepared = ledger.transaction(LOAD, "PrepareAbort", 0, 3, partitions=places, **ids)
    ledger.entry(TABLE, 0, marker(0, 3, "abort", prepared))
    ledger.transaction(LOAD, "CompleteAbort", 0, 3, decision_offset=prepared, **ids)
    table.rewrite(0)
    return lost


@damage("key-lost")
def superseded_by_a_record_above_the_lso(story: Story) -> str:
    table = Table(story)
    ledger = story.ledger
    lost = table.put((1, 10))
    ids = {"committed_run_ids": ["day-1"]}
    ledger.transaction(LOAD, "Ongoing", 0, 2, partitions=[(TABLE, 0, 0)], **ids)
    ledger.entry(TABLE, 0, ledger.batch(TABLE, 0, 0, 2, 0, transactional=True, keys=[(9, 1)]))
    table.put((1, 11))
    table.rewrite(0)
    return lost


@damage("key-lost")
def tombstone_gone_before_its_value(story: Story) -> str:
    """A tombstone was removed before its key's older value, which is then read again."""
    table = Table(story)
    table.put((1, 10))
    lost = table.put((1, None))
    table.clean(2)
    table.wait(DAY_MS)
    table.rewrite(1, tombstones_to=2)
    return lost


@damage("rewrite-illegal")
def tombstone_gone_before_its_time(story: Story) -> str:
    table = Table(story)
    table.put((1, 10))
    table.put((1, None))
    table.rewrite(0, 1, keep=[1])
    table.clean(2)
    table.wait(DAY_MS - 5_000)
    return table.rewrite(1, tombstones_to=2)


@damage("clean-illegal")
def tombstones_called_due_before_their_time(story: Story) -> str:
    table = Table(story)
    table.put((1, 10))
    table.clean(1)
    return table.clean(1, tombstones_to=1)


@damage("clean-illegal")
def clean_row_that_falls(story: Story) -> str:
    table = Table(story)
    table.put((1, 10))
    table.clean(1)
    return table.clean(0)


@damage("clean-illegal")
def clean_beyond_the_lso(story: Story) -> str:
    table = Table(story)
    table.put((1, 10))
    return table.clean(table.end + 1)


@damage("clean-illegal")
def clean_row_in_a_topic_that_is_not_compacted(story: Story) -> str:
    base = story.ledger.control("payments", 0, "clean", {"cleaned_to": 0, "tombstones_to": 0})
    return story.entry("payments", 0, base)


@damage("clean-illegal")
def clean_row_by_a_retention_that_the_topic_never_had(story: Story) -> str:
    table = Table(story)
    table.put((1, 10))
    value = {"cleaned_to": 0, "tombstones_to": 0, "delete_retention_ms": 5}
    return story.entry(TABLE, 0, story.ledger.control(TABLE, 0, "clean", value))


@damage("key-doubled")
def clean_row_over_a_superseded_record(story: Story) -> str:
    table = Table(story)
    table.put((1, 10))
    table.put((1, 11))
    table.clean(2)
    return f"topics/{TABLE}/0/0/data/"


@damage("rewrite-illegal")
def records_left_out_of_a_topic_that_is_not_compacted(story: Story) -> str:
    value = rewrite_of(story, "payments/0/first", "payments/0/second", deltas=[0, 1, 2, 4])
    base = story.ledger.control("payments", 0, "rewrite", {**value, "tombstones_to": 0})
    return story.entry("payments", 0, base)


@damage("rewrite-illegal")
def undecided_file_compacted_by_key(story: Story) -> str:
    table = Table(story)
    open_load(story)
    ledger = story.ledger
    ids = {"committed_run_ids": ["day-1"]}
    places = [("payments", 0, 0), (TABLE, 0, 0)]
    ledger.transaction(LOAD, "Ongoing", 0, 2, partitions=places, **ids)
    row = ledger.batch(TABLE, 0, 0, 2, 0, transactional=True, keys=[(1, 1)])
    ledger.entry(TABLE, 0, row)
    return table.control("rewrite", {"inputs": [row["data_path"]], "outputs": [], "tombstones_to": 0})


@damage("rewrite-illegal")
def two_outputs_by_key(story: Story) -> str:
    table = Table(story)
    table.put((1, 10), (2, 10))
    table.put((3, 10))
    inputs, outputs = table.merged(0, keep=[0, 1])
    more_inputs, more_outputs = table.merged(2, keep=[2])
    value = {"inputs": inputs + more_inputs, "outputs": outputs + more_outputs, "tombstones_to": 0}
    return table.control("rewrite", value)


@damage("rewrite-illegal")
def output_by_key_around_another_file(story: Story) -> str:
    table = Table(story)
    for key in range(3):
        table.put((key, 10))
    return table.rewrite(0, 2, keep=[0, 2])


@damage("object-damaged")
def topic_of_an_unknown_cleanup_policy(story: Story) -> str:
    story.ledger.topic("balances", 1, cleanup_policy="sometimes")
    return "topics/balances/0.json"
