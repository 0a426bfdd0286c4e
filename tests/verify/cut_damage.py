"""Damage to cuts, and cuts of what is not there."""

from __future__ import annotations

from typing import Any

from tests.verify.damage import damage
from tests.verify.story import Story


def with_cut(story: Story, number: int = 0, **changed: Any) -> str:
    """A cut of payments-0 at its last snapshot; its key."""
    ledger = story.ledger
    ends = [
        int(key[-28:-8]) for key in sorted(ledger.keys()) if key.startswith("topics/payments/0/0/snapshots/")
    ]
    count = ledger.internal_partitions
    held: dict[str, Any] = {
        "number": number,
        "store_id": "s",
        "is_void": False,
        "created_ms": 0,
        "expires_ms": -1,
        "every_topic": False,
        "topics": [
            {"topic": "payments", "incarnation": 0, "offsets": [7], "snapshots": [max(ends)], "slots": [7]}
        ],
        "groups": {"offsets": [0] * count, "snapshots": [0] * count, "slots": [0] * count, "committed": {}},
        "coordinator_ends": [],
    }
    folder = f"cuts/{number:020d}"
    ledger.json(f"{folder}/claim.json", "cut_claim", {"number": number, "created_ms": 0})
    ledger.json(f"{folder}/cut.json", "cut", held | changed)
    return f"{folder}/cut.json"


def a_topic(**changed: Any) -> dict[str, Any]:
    return {"topic": "payments", "incarnation": 0, "offsets": [7], "snapshots": [7], "slots": [7]} | changed


@damage("cut-unreadable")
def snapshot_that_a_cut_names_gone(story: Story) -> str:
    return with_cut(story, topics=[a_topic(snapshots=[1])])


@damage("cut-unreadable")
def cut_beyond_its_log(story: Story) -> str:
    return with_cut(story, topics=[a_topic(offsets=[10_000])])


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
    return with_cut(story, topics=[a_topic(offsets=[7, 7])])


@damage("object-damaged")
def cut_with_a_slot_behind_its_offset(story: Story) -> str:
    return with_cut(story, topics=[a_topic(slots=[8])])


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
