"""Damage to the objects that say which topics exist, objects that do not belong to a store, and rows with
impossible values."""

from __future__ import annotations

from typing import Any

import xxhash

from tests.verify.damage import damage
from tests.verify.raw_ledger import marker
from tests.verify.story import LOAD, Story, open_load

IDS = {"committed_run_ids": ["day-1"]}
LAST_OFFSET = 2**63 - 1


def put(story: Story, key: str, data: bytes = b"hello") -> str:
    story.ledger.store.put(key, data)
    return key


# --- a topic's lives --------------------------------------------------------------------------------------


def made_again(story: Story) -> None:
    """Delete balances and create it again. Nothing was written to it since."""
    story.ledger.topic("balances", 1, 1, deleted=True)
    story.ledger.topic("balances", 3, 2)


@damage("object-missing")
def tombstone_lost(story: Story) -> str:
    made_again(story)
    story.ledger.store.delete("topics/balances/1.json")
    return "topics/balances/1.json"


@damage("object-missing")
def first_of_several_lives_lost(story: Story) -> str:
    made_again(story)
    story.ledger.store.delete("topics/balances/0.json")
    return "topics/balances/0.json"


@damage("object-missing")
def life_with_nothing_before_it(story: Story) -> str:
    story.ledger.topic("balances", 3, 2)
    return "topics/balances/1.json"


@damage("object-missing")
def lives_lost_below_a_log(story: Story) -> str:
    story.ledger.topic("fresh", 1, 2)
    story.ledger.store.delete("topics/fresh/2.json")
    put(story, f"topics/fresh/2/0/data/{0:020d}-p-1-e-1-{0:032x}.parquet")
    return "topics/fresh/2.json"


# --- what was changed -------------------------------------------------------------------------------------


def changed(story: Story, number: int, **other: Any) -> str:
    """Store a change of payments as its owner leaves it, except for the fields that are given."""
    held = {"topic": "payments", "incarnation": 0, "number": number, "created_ms": 0, "write_id": f"{0:032x}"}
    held |= {"settings": {"retention.ms": 5}, "schema": None} | other
    key = f"topics/payments/0/changes/{number:020d}.json"
    story.ledger.json(key, "topic_change", held)
    return key


def set_by_an_operator(story: Story, number: int, settings: dict[str, Any]) -> str:
    held = {"number": number, "created_ms": 0, "settings": settings, "write_id": f"{0:032x}"}
    key = f"settings/{number:020d}.json"
    story.ledger.json(key, "settings", held)
    return key


@damage("object-missing")
def change_that_is_missing(story: Story) -> str:
    changed(story, 1)
    return f"topics/payments/0/changes/{0:020d}.json"


@damage("object-damaged")
def change_of_another_topic(story: Story) -> str:
    return changed(story, 0, topic="balances")


@damage("object-damaged")
def change_under_another_number(story: Story) -> str:
    changed(story, 0)
    key = changed(story, 1)
    story.ledger.store.put(key, story.ledger.store.get(f"topics/payments/0/changes/{0:020d}.json"))
    return key


@damage("object-damaged")
def setting_out_of_range(story: Story) -> str:
    return changed(story, 0, settings={"retention.ms": -5})


@damage("object-damaged")
def setting_that_there_is_not(story: Story) -> str:
    return set_by_an_operator(story, 0, {"retention.ms": 5})


@damage("object-missing")
def settings_that_are_missing(story: Story) -> str:
    set_by_an_operator(story, 1, {"transaction.max.timeout.ms": 5})
    return f"settings/{0:020d}.json"


# --- what is not a part of it -----------------------------------------------------------------------------


@damage("object-misnamed")
def folder_of_no_life(story: Story) -> str:
    put(story, f"topics/payments/7/partitions/{0:020d}.json")
    return "topics/payments/7/"


@damage("object-misnamed")
def second_life_of_an_internal_topic(story: Story) -> str:
    put(story, "topics/__transaction_state/1/0/log/00000000000000000000.parquet")
    return "topics/__transaction_state/1/"


# --- rows of nonsense with a right checksum ---------------------------------------------------------------


def _with_row(story: Story, state: str, **changed: Any) -> str:
    """A row of LOAD with fields that only a faulty writer can have written."""
    ledger = story.ledger
    base = ledger.transaction(LOAD, state, 0, 3 if state == "Empty" else 2, **IDS)
    key = ledger.entry_key("__transaction_state", story.load_home, base)
    ledger.change(key, lambda rows: rows[0]["transaction"].update(changed))
    return key


@damage("entry-malformed")
def null_among_partitions(story: Story) -> str:
    return _with_row(story, "Ongoing", partitions=[None])


@damage("entry-malformed")
def partition_of_nulls(story: Story) -> str:
    return _with_row(story, "Ongoing", partitions=[{"topic": None, "incarnation": 0, "partition": None}])


@damage("entry-malformed")
def null_among_run_ids(story: Story) -> str:
    return _with_row(story, "Empty", committed_run_ids=["day-1", None])


@damage("descriptor-malformed")
def control_value_nested_without_end(story: Story) -> str:
    base = story.ledger.entry("payments", 0, {"control": "trim", "control_value": "[" * 200_000})
    return story.entry("payments", 0, base)


@damage("object-damaged")
def topic_object_nested_without_end(story: Story) -> str:
    zeros = "0" * 32
    deep = "[" * 100_000 + "]" * 100_000
    text = f'{{\n  "checksum": "{zeros}", "deep": {deep}, "format": 2, "kind": "topic"}}'
    checksum = xxhash.xxh3_128_hexdigest(text.encode())
    return put(story, "topics/payments/0.json", text.replace(zeros, checksum, 1).encode())


@damage("data-file-misnamed", "data-file-missing")
def data_file_of_an_endless_producer_id(story: Story) -> str:
    row = story.ledger.batch("payments", 1)
    row["data_path"] = f"data/{0:020d}-p{'9' * 5_000}-e0-{0:032x}.parquet"
    return story.entry("payments", 1, story.ledger.entry("payments", 1, row))


@damage("entry-malformed")
def marker_at_the_last_offset(story: Story) -> str:
    """A marker has the last offset that exists, so the log's end would have no number."""
    open_load(story)
    ledger = story.ledger
    key = story.entry("payments", 0, LAST_OFFSET)
    row = {**ledger.placed(marker(0, 3, "abort", 99), LAST_OFFSET), "last_offset": LAST_OFFSET}
    ledger.put_entry(key, "payments", [row])
    return key


# --- a store that is restored -----------------------------------------------------------------------------


def restored_from_block(story: Story, block: object = 5, *, finished: bool = True) -> None:
    """Make the ledger a restored one, whose ids begin with this block."""
    counts = {"__transaction_state": story.ledger.internal_partitions}
    counts["__consumer_offsets"] = story.ledger.internal_partitions
    story.ledger.json(
        "store.json", "store", {"internal_partitions": counts, "restored": {"first_block": block}}
    )
    if finished:
        story.ledger.json("restored.json", "restored", {"finished_ms": 0})


@damage("restore-unfinished", "producer-id-block")
def restore_cut_off(story: Story) -> str:
    restored_from_block(story, finished=False)
    return "restored.json"


@damage("producer-id-block")
def block_below_the_first_of_a_restored_store(story: Story) -> str:
    restored_from_block(story)
    return f"producer_ids/{0:020d}.json"


@damage("object-damaged")
def restored_store_without_its_first_block(story: Story) -> str:
    restored_from_block(story, "many")
    return "store.json"


@damage("object-damaged", "producer-id-block")
def end_of_a_restore_with_a_changed_byte(story: Story) -> str:
    restored_from_block(story)
    story.ledger.flip("restored.json", at=-20)
    return "restored.json"
