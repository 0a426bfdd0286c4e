"""Damage by control rows, seals and clean-up (PROTOCOL.md, section 6)."""

from __future__ import annotations

import json
from typing import Any

from tests.verify.damage import damage
from tests.verify.story import LOAD, SUMS, Story, open_load, rewrite_of, sealed, snapshot_sealed

SNAPSHOTS = "topics/payments/0/1/snapshots/"


@damage("trim-illegal")
def records_cut_inside_a_file(story: Story) -> str:
    story.ledger.control("payments", 0, "trim", {"log_start_offset": 2, "entries_start": 0})
    return story.entry("payments", 0, 12)


@damage("trim-illegal", "lso-wrong")
def undecided_records_cut_off(story: Story) -> str:
    open_load(story)
    story.ledger.control("payments", 0, "trim", {"log_start_offset": 15, "entries_start": 0})
    return story.entry("payments", 0, 15)


@damage("trim-illegal")
def log_start_falling(story: Story) -> str:
    story.ledger.control("payments", 0, "trim", {"log_start_offset": 5, "entries_start": 0})
    story.ledger.control("payments", 0, "trim", {"log_start_offset": 3, "entries_start": 0})
    return story.entry("payments", 0, 13)


@damage("trim-illegal")
def entries_start_falling(story: Story) -> str:
    sealed(story)
    story.ledger.control("payments", 1, "trim", {"log_start_offset": 3, "entries_start": 0})
    return story.entry("payments", 1, 8)


@damage("trim-illegal")
def entries_start_inside_an_entry(story: Story) -> str:
    story.ledger.control("payments", 0, "trim", {"log_start_offset": 0, "entries_start": 4})
    return story.entry("payments", 0, 12)


@damage("trim-illegal", "snapshots-too-few")
def entries_start_at_its_own_trim(story: Story) -> str:
    story.ledger.control("payments", 0, "trim", {"log_start_offset": 0, "entries_start": 12})
    return story.entry("payments", 0, 12)


@damage("floor-illegal")
def floor_falling(story: Story) -> str:
    story.ledger.control("payments", 0, "floor", {"floor": 9})
    story.ledger.control("payments", 0, "floor", {"floor": 8})
    return story.entry("payments", 0, 13)


@damage("floor-illegal")
def floor_above_its_own_row(story: Story) -> str:
    story.ledger.control("payments", 0, "floor", {"floor": 13})
    return story.entry("payments", 0, 12)


@damage("expire-illegal", "lso-wrong")
def open_producer_forgotten(story: Story) -> str:
    open_load(story)
    story.ledger.control("payments", 0, "expire", {"producer_ids": [0]})
    return story.entry("payments", 0, 15)


@damage("descriptor-malformed")
def control_value_of_nonsense(story: Story) -> str:
    story.ledger.control("payments", 0, "expire", {"producer_ids": [[1], {}]})
    return story.entry("payments", 0, 12)


# --- rewrite ----------------------------------------------------------------------------------------------


def _rewrite(story: Story, value: dict[str, Any]) -> str:
    base = story.ledger.control("payments", 0, "rewrite", value)
    return story.entry("payments", 0, base)


@damage("rewrite-illegal")
def aborted_file_rewritten(story: Story) -> str:
    value = rewrite_of(story, "payments/0/plain2")
    return _rewrite(story, {**value, "inputs": [story.files["payments/0/aborted"]["data_path"]]})


@damage("rewrite-illegal")
def file_rewritten_twice(story: Story) -> str:
    _rewrite(story, rewrite_of(story, "payments/0/second", "payments/0/plain"))
    return _rewrite(story, rewrite_of(story, "payments/0/plain"))


@damage("rewrite-illegal")
def undecided_file_rewritten(story: Story) -> str:
    open_load(story)
    row = story.ledger.rows(story.entry("payments", 0, 12))[0]
    story.files["payments/0/plain2"] = row
    value = rewrite_of(story, "payments/0/plain2")
    value["outputs"] = [{**value["outputs"][0], "base_offset": 12, "last_offset": 14}]
    return _rewrite(story, value)


@damage("rewrite-illegal")
def live_file_left_out_of_a_rewrite(story: Story) -> str:
    return _rewrite(story, rewrite_of(story, "payments/0/first", "payments/0/plain"))


@damage("rewrite-illegal")
def rewrite_of_the_same_file_twice(story: Story) -> str:
    value = rewrite_of(story, "payments/0/plain2")
    return _rewrite(story, {**value, "inputs": value["inputs"] * 2})


@damage("rewrite-illegal")
def rewrite_that_loses_a_record(story: Story) -> str:
    return _rewrite(story, rewrite_of(story, "payments/0/first", "payments/0/second", deltas=[0, 1, 2, 4]))


@damage("rewrite-illegal")
def rewrite_that_says_another_time(story: Story) -> str:
    value = rewrite_of(story, "payments/0/plain2")
    value["outputs"][0]["max_timestamp"] += 1
    return _rewrite(story, value)


@damage("rewrite-illegal")
def rewrite_without_an_output_for_an_input(story: Story) -> str:
    value = rewrite_of(story, "payments/0/first")
    return _rewrite(
        story, {**value, "inputs": [*value["inputs"], story.files["payments/0/plain2"]["data_path"]]}
    )


@damage("data-file-records")
def rewrite_that_moves_a_record(story: Story) -> str:
    """A rewrite moves a record to the place of the aborted ones (8 and 9) or of their marker (10), where no
    live record may be."""
    value = rewrite_of(story, "payments/0/plain", "payments/0/plain2", deltas=[0, 3, 6])
    _rewrite(story, value)
    return f"topics/payments/0/0/{value['outputs'][0]['data_path']}"


@damage("data-file-misnamed")
def rewrite_into_a_file_of_a_producer(story: Story) -> str:
    return _rewrite(story, rewrite_of(story, "payments/0/plain2", producer_id=5, producer_epoch=0))


@damage("data-file-below-floor")
def rewrite_into_a_file_below_the_floor(story: Story) -> str:
    value = rewrite_of(story, "payments/0/plain2")  # written at log end 12
    story.ledger.control("payments", 0, "floor", {"floor": 12})
    story.ledger.control("payments", 0, "floor", {"floor": 13})
    return _rewrite(story, value)


# --- seals ------------------------------------------------------------------------------------------------


@damage("seal-misplaced")
def seal_in_the_middle(story: Story) -> str:
    story.ledger.seal("payments", 0, 5)
    return story.entry("payments", 0, 5)


@damage("sealed-without-snapshot")
def sealed_without_a_snapshot(story: Story) -> str:
    story.ledger.seal("payments", 1, 0)
    return SNAPSHOTS


@damage("seal-illegal")
def sealed_before_any_trim(story: Story) -> str:
    sealed(story, entries_start=0)
    return story.entry("payments", 1, 0)


@damage("seal-illegal")
def sealed_at_the_start_of_entries(story: Story) -> str:
    sealed(story)
    story.ledger.seal("payments", 1, 3)
    return story.entry("payments", 1, 3)


@damage("snapshots-too-few")
def sealed_with_one_snapshot(story: Story) -> str:
    sealed(story, snapshots=(7,))
    return SNAPSHOTS


@damage("snapshot-damaged", "snapshots-too-few")
def first_snapshot_behind_seals_damaged(story: Story) -> str:
    """The first snapshot after the seals is damaged, so the replay starts from the next one."""
    sealed(story)
    key = f"{SNAPSHOTS}{4:020d}.parquet"
    story.ledger.flip(key)
    return key


@damage("snapshot-damaged", "sealed-without-snapshot")
def every_snapshot_behind_seals_damaged(story: Story) -> str:
    sealed(story)
    for end in (4, 7):
        story.ledger.flip(f"{SNAPSHOTS}{end:020d}.parquet")
    return SNAPSHOTS


@damage("snapshot-differs")
def snapshot_after_sealing_differs(story: Story) -> str:
    """The snapshot after the sealing differs from a replay from the older snapshot that is kept."""
    sealed(story)
    return snapshot_sealed(story, 8, log_start_offset=4)


@damage("snapshot-differs", "snapshots-too-few")
def snapshot_behind_seals_under_another_name(story: Story) -> str:
    sealed(story)
    store = story.ledger.store
    key = f"{SNAPSHOTS}{4:020d}.parquet"
    store.put(key, store.get(f"{SNAPSHOTS}{7:020d}.parquet"))
    return key


@damage("snapshot-differs")
def snapshot_behind_seals_of_another_time(story: Story) -> str:
    """The snapshot from which the replay starts has another time than its last entry, which is not sealed."""
    sealed(story)
    return snapshot_sealed(story, 4, last_append_time=1)


@damage("sequence-repeated")
def doubled_batch_behind_seals(story: Story) -> str:
    sealed(story)
    story.ledger.entry("payments", 1, story.ledger.batch("payments", 1, 8, 0, 0))
    return story.entry("payments", 1, 8)


@damage("entry-missing")
def entry_missing_among_seals(story: Story) -> str:
    sealed(story)
    story.ledger.store.delete(story.entry("payments", 1, 4))
    return story.entry("payments", 1, 4)


@damage("data-file-missing")
def live_file_deleted_behind_seals(story: Story) -> str:
    sealed(story, log_start=0)
    story.ledger.store.delete(story.path("payments/1/first"))
    return story.path("payments/1/first")


# --- renewals, tombstones, and topics that grow -----------------------------------------------------------


@damage("state-move")
def renewal_that_changes_something(story: Story) -> str:
    ledger = story.ledger
    rest = {"run_id": None, "committed_run_ids": ["day-1"]}
    ledger.transaction(LOAD, "CompleteAbort", 0, 3, decision_offset=story.abort_row, **rest)
    return story.entry("__transaction_state", story.load_home, 8)


@damage("run-id-lost")
def tombstone_without_its_run_ids(story: Story) -> str:
    story.ledger.transaction(LOAD, "Dead", -1, -1)
    return story.entry("__transaction_state", story.load_home, 8)


@damage("object-damaged")
def topic_that_shrinks(story: Story) -> str:
    story.ledger.grow("payments", 0, 4)
    story.ledger.grow("payments", 1, 3)
    return f"topics/payments/0/partitions/{1:020d}.json"


@damage("object-missing")
def growth_that_is_missing(story: Story) -> str:
    story.ledger.grow("payments", 1, 3)
    return f"topics/payments/0/partitions/{0:020d}.json"


@damage("object-damaged", "object-misnamed")
def growth_with_a_changed_byte(story: Story) -> str:
    """A growth has a changed byte, so the partition that it made does not belong to the topic."""
    ledger = story.ledger
    ledger.grow("payments", 0, 3)
    ledger.entry("payments", 2, ledger.batch("payments", 2))
    key = f"topics/payments/0/partitions/{0:020d}.json"
    ledger.flip(key, 20)
    return key


@damage("log-lost")
def grown_partition_without_its_marker(story: Story) -> str:
    ledger = story.ledger
    ledger.grow("payments", 0, 3)
    places = [("payments", 0, 2)]
    ledger.transaction(SUMS, "Ongoing", 1, 1, partitions=places)
    prepared = ledger.transaction(SUMS, "PrepareCommit", 1, 2, partitions=places)
    ledger.transaction(SUMS, "CompleteCommit", 1, 2, decision_offset=prepared)
    return "topics/payments/0/2/"


# --- erase ------------------------------------------------------------------------------------------------


def _erase(story: Story, files: list[tuple[str, dict[str, Any] | None]], *, live: bool = True) -> str:
    value = {
        "erasure": 0,
        "files": [{"input": path, "output": left, "live": live} for path, left in files],
    }
    base = story.ledger.control("payments", 0, "erase", value)
    return story.entry("payments", 0, base)


def erased(story: Story, name: str, deltas: list[int], **output: Any) -> tuple[str, dict[str, Any] | None]:
    """Erase a file so that only the records at these deltas are left of it."""
    value = rewrite_of(story, name, deltas=deltas, **output)
    return value["inputs"][0], value["outputs"][0]


@damage("erase-illegal")
def file_erased_twice(story: Story) -> str:
    _erase(story, [erased(story, "payments/0/first", [0])])
    return _erase(story, [(story.files["payments/0/first"]["data_path"], None)], live=False)


@damage("erase-illegal")
def live_file_erased_as_a_dead_one(story: Story) -> str:
    return _erase(story, [erased(story, "payments/0/first", [0])], live=False)


@damage("erase-illegal")
def nobodys_file_erased(story: Story) -> str:
    return _erase(story, [(f"data/{0:020d}-p-1-e-1-{'e' * 32}.parquet", None)], live=False)


@damage("erase-illegal")
def undecided_file_erased(story: Story) -> str:
    open_load(story)
    return _erase(
        story, [(story.ledger.rows(story.entry("payments", 0, 12))[0]["data_path"], None)], live=False
    )


@damage("erase-illegal", "data-file-records")
def aborted_file_with_something_left(story: Story) -> str:
    _, left = erased(story, "payments/0/plain2", [0])
    return _erase(story, [(story.files["payments/0/aborted"]["data_path"], left)], live=False)


@damage("erase-illegal", "data-file-records")
def more_left_than_there_was(story: Story) -> str:
    _, left = erased(story, "payments/0/first", [0, 1])
    assert left is not None
    other, _ = erased(story, "payments/0/plain2", [0])
    return _erase(story, [(other, left)])


@damage("data-file-records")
def a_record_moved_by_an_erasure(story: Story) -> str:
    """An erasure moves a record within its file, to an offset that it never had."""
    story.ledger.control("payments", 0, "rewrite", rewrite_of(story, "payments/0/plain", "payments/0/plain2"))
    merged = json.loads(story.ledger.rows(story.entry("payments", 0, 12))[0]["control_value"])["outputs"][0]
    moved = rewrite_of(story, "payments/0/plain", deltas=[0, 4], last_offset=9)["outputs"][0]
    moved["max_timestamp"] = merged["max_timestamp"]
    _erase(story, [(merged["data_path"], moved)])
    return f"topics/payments/0/0/{moved['data_path']}"


@damage("erased-there")
def erased_record_put_back(story: Story) -> str:
    """A finished erasure names the offset of a record that a live file still has."""
    _erasure(story, [0, 0])
    return f"topics/payments/0/0/{story.files['payments/0/first']['data_path']}"


@damage("object-damaged")
def erasure_of_nonsense(story: Story) -> str:
    return _erasure(story, [-1, "x"])


@damage("object-damaged")
def erasure_of_ranges_that_make_up_for_each_other(story: Story) -> str:
    """One range of an erasure has as many offsets too many as the other has too few."""
    return _erasure(story, [0, 1 << 42, 1 << 42, 0])


@damage("object-damaged")
def topic_of_more_partitions_than_there_can_be(story: Story) -> str:
    story.ledger.topic("payments", 1 << 31)
    return "topics/payments/0.json"


@damage("object-damaged")
def growth_to_more_partitions_than_there_can_be(story: Story) -> str:
    story.ledger.grow("payments", 0, 1 << 31)
    return f"topics/payments/0/partitions/{0:020d}.json"


def _erasure(story: Story, offsets: list[Any]) -> str:
    folder = "topics/payments/0/erasures"
    ours = {"topic": "payments", "incarnation": 0, "number": 0}
    held = {**ours, "created_ms": 0, "partitions": [{"partition": 0, "to": 9, "offsets": offsets}]}
    story.ledger.json(f"{folder}/{0:020d}.json", "erasure", held)
    story.ledger.json(f"{folder}/{0:020d}-done.json", "erasure_done", {**ours, "finished_ms": 0})
    return f"{folder}/{0:020d}.json"
