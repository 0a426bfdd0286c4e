"""Damage to cuts, and cuts of objects that do not exist."""

from __future__ import annotations

from typing import Any

from tests.verify.damage import damage
from tests.verify.story import Story, rewrite_of
from tests.verify.table_damage import with_table


def with_cut(story: Story, number: int = 0, **changed: Any) -> str:
    """Store a cut of payments from before its first record. Returns its key."""
    ledger = story.ledger
    count = ledger.internal_partitions
    held: dict[str, Any] = {
        "number": number,
        "store_id": "s",
        "is_void": False,
        "created_ms": 0,
        "expires_ms": -1,
        "every_topic": False,
        "topics": [a_topic()],
        "groups": groups_at([0] * count),
        "coordinator_ends": [],
    }
    folder = f"cuts/{number:020d}"
    ledger.json(f"{folder}/claim.json", "cut_claim", {"number": number, "created_ms": 0})
    ledger.json(f"{folder}/cut.json", "cut", held | changed)
    return f"{folder}/cut.json"


def a_topic(**changed: Any) -> dict[str, Any]:
    at = {"offsets": [0, 0], "snapshots": [7, 0], "slots": [0, 0]}
    return {"topic": "payments", "incarnation": 0, **at, **changed}


def groups_at(offsets: list[int]) -> dict[str, Any]:
    zeros = [0] * len(offsets)
    return {"offsets": offsets, "snapshots": zeros, "slots": zeros, "committed": {}}


def forgotten(story: Story) -> str:
    """Store a cut that reads a file which its log replaced, and no longer knows a day later. Returns the file's key."""
    with_cut(story, topics=[a_topic(offsets=[8, 3], snapshots=[12, 0], slots=[8, 0])])
    story.ledger.control("payments", 0, "rewrite", rewrite_of(story, "payments/0/second", "payments/0/plain"))
    story.ledger.now_ms += 25 * 3_600_000
    story.ledger.control("payments", 0, "floor", {"floor": 13})
    return story.path("payments/0/second")


@damage("cut-unreadable")
def snapshot_that_a_cut_names_gone(story: Story) -> str:
    return with_cut(story, topics=[a_topic(snapshots=[1, 0])])


@damage("cut-unreadable")
def cut_beyond_its_log(story: Story) -> str:
    return with_cut(story, topics=[a_topic(offsets=[10_000, 3])])


@damage("data-file-missing")
def file_that_only_a_cut_reads_gone(story: Story) -> str:
    """The log has replaced and forgotten the file, and the cut reads it all the same."""
    key = forgotten(story)
    story.ledger.store.delete(key)
    return key


@damage("data-file-damaged")
def file_that_only_a_cut_reads_with_a_changed_byte(story: Story) -> str:
    key = forgotten(story)
    story.ledger.flip(key)
    return key


@damage("cut-lost")
def cut_that_a_table_names_gone(story: Story) -> str:
    for number in range(3):
        with_cut(story, number=number)
    key = with_cut(story, number=3, topics=[a_topic(offsets=[8, 3], snapshots=[12, 0], slots=[8, 0])])
    with_table(story)
    story.ledger.store.delete(key)
    return key


@damage("cut-torn")
def cut_between_two_partitions_of_a_transaction(story: Story) -> str:
    """A transaction's rows are below the cut in one partition, and at or above it in the other."""
    return with_cut(story, topics=[a_topic(offsets=[7, 0])])


@damage("cut-torn")
def cut_through_a_transaction(story: Story) -> str:
    return with_cut(story, topics=[a_topic(offsets=[3, 0])])


@damage("cut-torn")
def cut_of_all_without_the_partition_of_a_transaction(story: Story) -> str:
    """A cut of all topics lacks one partition of a transaction, so that the transaction is wholly above it
    there."""
    one = {"offsets": [7], "snapshots": [7], "slots": [0]}
    return with_cut(story, topics=[a_topic(**one)], every_topic=True)


@damage("cut-torn")
def cut_between_an_output_and_its_offsets(story: Story) -> str:
    balances = a_topic(topic="balances", offsets=[2], snapshots=[0], slots=[0])
    return with_cut(story, topics=[balances])


@damage("cut-torn")
def cut_before_the_offsets_of_an_output(story: Story) -> str:
    offsets = [0] * story.ledger.internal_partitions
    offsets[story.group_home] = 1
    balances = a_topic(topic="balances", offsets=[0], snapshots=[0], slots=[0])
    return with_cut(story, topics=[balances], groups=groups_at(offsets))


@damage("cut-torn")
def one_of_many_cuts_torn(story: Story) -> str:
    """One of many cuts is torn. The others have everything inside, or nothing, and some are of another topic
    only."""
    for number in range(5):
        with_cut(story, number=number)
        with_cut(story, number=6 + number, topics=[a_topic(offsets=[8, 3])], every_topic=number % 2 == 1)
    return with_cut(story, number=5, topics=[a_topic(offsets=[8, 2])])


@damage("object-damaged")
def cut_with_a_changed_byte(story: Story) -> str:
    key = with_cut(story)
    story.ledger.flip(key)
    return key


@damage("object-damaged")
def cut_of_another_number(story: Story) -> str:
    data = story.ledger.store.get(with_cut(story))
    key = with_cut(story, number=1)
    story.ledger.store.put(key, data)
    return key


@damage("object-damaged")
def cut_with_lists_of_other_lengths(story: Story) -> str:
    return with_cut(story, topics=[a_topic(offsets=[0, 0, 0])])


@damage("object-damaged")
def cut_with_a_slot_behind_its_offset(story: Story) -> str:
    return with_cut(story, topics=[a_topic(slots=[1, 0])])


@damage("object-damaged")
def claim_without_a_time(story: Story) -> str:
    with_cut(story)
    key = f"cuts/{0:020d}/claim.json"
    story.ledger.json(key, "cut_claim", {"number": 0, "created_ms": "noon"})
    return key


@damage("object-missing")
def claim_to_a_cut_lost(story: Story) -> str:
    with_cut(story)
    key = f"cuts/{0:020d}/claim.json"
    story.ledger.store.delete(key)
    return key


@damage("object-missing")
def number_of_a_cut_lost(story: Story) -> str:
    with_cut(story, number=1)
    return f"cuts/{0:020d}/claim.json"
