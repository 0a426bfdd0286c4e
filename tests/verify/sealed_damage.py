"""Damage in sealed logs, and whole logs that are gone: what a maintained store is judged by."""

from __future__ import annotations

from tests.verify import cut_damage
from tests.verify.control_damage import SNAPSHOTS
from tests.verify.damage import damage
from tests.verify.raw_ledger import marker
from tests.verify.story import (
    LOAD,
    SUMS,
    Story,
    seal_sums,
    sealed,
    sealed_coordinator,
    snapshot_sealed,
    snapshot_sums,
)

_IDS = {"committed_run_ids": ["day-1"]}
_PLACES = [("payments", 0, 1)]
_LOG = "topics/payments/0/1/log/"


def commit_behind_seals(story: Story, epoch: int = 2, *, written: bool = True, marked: bool = True) -> None:
    """Let producer 0, which payments-1 knew when it was sealed, commit a transaction there."""
    ledger = story.ledger
    ledger.transaction(LOAD, "Ongoing", 0, epoch, partitions=_PLACES, **_IDS)
    if written:
        ledger.entry("payments", 1, ledger.batch("payments", 1, 0, epoch, 0, transactional=True))
    prepared = ledger.transaction(LOAD, "PrepareCommit", 0, epoch + 1, partitions=_PLACES, **_IDS)
    if marked:
        ledger.entry("payments", 1, marker(0, epoch + 1, "commit", prepared))
    ledger.transaction(LOAD, "CompleteCommit", 0, epoch + 1, decision_offset=prepared, **_IDS)


@damage("decision-not-carried-out")
def last_marker_of_a_sealed_partition_missing(story: Story) -> str:
    sealed(story)
    commit_behind_seals(story, marked=False)
    return _LOG


@damage("decision-not-carried-out")
def last_transaction_of_a_sealed_partition_missing(story: Story) -> str:
    """The log lacks its last two entries: the batch and the marker of a transaction."""
    sealed(story)
    commit_behind_seals(story, written=False, marked=False)
    return _LOG


@damage("decision-not-carried-out")
def last_marker_of_a_newcomer_in_a_sealed_partition_missing(story: Story) -> str:
    """A marker is missing for a producer that the snapshot does not know. The audit finds it because the
    transaction is open."""
    sealed(story)
    ledger = story.ledger
    ledger.transaction(SUMS, "Ongoing", 1, 1, partitions=_PLACES)
    ledger.entry("payments", 1, ledger.batch("payments", 1, 1, 1, 0, transactional=True))
    prepared = ledger.transaction(SUMS, "PrepareAbort", 1, 2, partitions=_PLACES)
    ledger.transaction(SUMS, "CompleteAbort", 1, 2, decision_offset=prepared)
    return _LOG


@damage("decision-not-carried-out")
def last_transaction_of_a_decision_that_only_a_snapshot_holds_missing(story: Story) -> str:
    """A transaction is missing whose Prepare row only a snapshot has, because the coordinator's replay starts
    between it and the Complete row."""
    ledger = story.ledger
    places = [("balances", 0, 0)]
    began = ledger.transaction(SUMS, "Ongoing", 1, 1, partitions=places)
    began_ms = ledger.rows(story.entry("__transaction_state", story.sums_home, began))[0]["append_time"]
    prepared = ledger.transaction(SUMS, "PrepareCommit", 1, 2, partitions=places)
    snapshot_sums(story, began_ms=began_ms)
    ledger.transaction(SUMS, "CompleteCommit", 1, 2, decision_offset=prepared)
    snapshot_sums(story, began_ms=began_ms)
    seal_sums(story, prepared)
    return "topics/balances/0/0/log/"


@damage("hanging-transaction")
def hanging_transaction_of_nobody_behind_a_sealed_coordinator(story: Story) -> str:
    sealed_coordinator(story)
    story.ledger.entry("balances", 0, story.ledger.batch("balances", 0, 77, 0, 0, transactional=True))
    return "topics/balances/0/0/log/"


@damage("marker-without-decision")
def marker_of_nobody_behind_a_sealed_coordinator(story: Story) -> str:
    sealed_coordinator(story)
    ledger = story.ledger
    ledger.entry("balances", 0, ledger.batch("balances", 0, 77, 0, 0, transactional=True))
    return story.entry("balances", 0, ledger.entry("balances", 0, marker(77, 1, "commit", 500)))


@damage("marker-without-decision")
def coordinator_log_missing_beside_a_sealed_one(story: Story) -> str:
    """A coordinator's log is missing, and a sealed log has a marker with an offset of its decision."""
    sealed_coordinator(story)
    ledger = story.ledger
    for key in ledger.keys(f"topics/__transaction_state/0/{story.load_home}/"):
        ledger.store.delete(key)
    return story.entry("payments", 0, 10)


@damage("log-lost")
def log_of_the_groups_missing(story: Story) -> str:
    folder = f"topics/__consumer_offsets/0/{story.group_home}/"
    for key in story.ledger.keys(folder):
        story.ledger.store.delete(key)
    return folder


def _begun(story: Story, topic: str, number: int, **other: object) -> str:
    key = f"begun/{topic}/{number}.json"
    fields = {"topic": topic, "partition": number, "store_id": "s", **other}
    story.ledger.json(key, "begun", fields)
    return key


def _lost(story: Story, topic: str, partition: int) -> str:
    folder = f"topics/{topic}/0/{partition}/"
    for key in story.ledger.keys(folder):
        story.ledger.store.delete(key)
    return folder


@damage("log-lost")
def begun_log_of_the_coordinator_missing(story: Story) -> str:
    """The log of an id that has committed is gone, beside its markers and another id's log."""
    for home in (story.load_home, story.sums_home):
        _begun(story, "__transaction_state", home)
    return _lost(story, "__transaction_state", story.load_home)


@damage("log-lost")
def cut_log_of_the_coordinator_missing(story: Story) -> str:
    """A cut says how far the log of an id went."""
    ends = [0] * story.ledger.internal_partitions
    ends[story.load_home] = 3
    cut_damage.with_cut(story, coordinator_ends=ends)
    return _lost(story, "__transaction_state", story.load_home)


@damage("log-lost")
def begun_log_of_groups_missing(story: Story) -> str:
    """The log of a group without transactions is gone."""
    number = next(each for each in range(50) if each != story.group_home)
    _begun(story, "__consumer_offsets", number)
    return f"topics/__consumer_offsets/0/{number}/"


@damage("decision-offset")
def begin_that_names_another_decision(story: Story) -> str:
    """The row of an id that begins anew names another decision than its last one."""
    base = story.ledger.transaction(LOAD, "Empty", 0, 3, decision_offset=story.commit_row, **_IDS)
    return story.entry("__transaction_state", story.load_home, base)


@damage("topic-lost")
def topic_missing_as_a_whole(story: Story) -> str:
    """A topic is gone with its objects; transactions have committed there."""
    for key in story.ledger.keys("topics/balances/"):
        story.ledger.store.delete(key)
    return "topics/balances/0.json"


@damage("topic-lost")
def cut_topic_missing_as_a_whole(story: Story) -> str:
    """A topic that a cut has is gone; nobody wrote to it."""
    empty = {"topic": "empty", "incarnation": 0, "offsets": [0], "snapshots": [0], "slots": [0]}
    cut_damage.with_cut(story, topics=[cut_damage.a_topic(), empty])
    return "topics/empty/0.json"


@damage("object-damaged")
def word_of_a_begun_log_with_a_changed_byte(story: Story) -> str:
    key = _begun(story, "__transaction_state", story.load_home)
    story.ledger.flip(key, 30)
    return key


@damage("object-damaged")
def word_of_another_begun_log(story: Story) -> str:
    return _begun(story, "__transaction_state", story.load_home, partition=story.load_home + 1)


@damage("object-misnamed")
def word_of_a_log_that_cannot_be(story: Story) -> str:
    return _begun(story, "__transaction_state", 1_000)


@damage("snapshot-differs", "snapshots-too-few")
def snapshot_behind_seals_of_another_stable_offset(story: Story) -> str:
    sealed(story)
    snapshot_sealed(story, 4, last_stable_offset=0)
    return f"{SNAPSHOTS}{4:020d}.parquet"


@damage("descriptor-malformed")
def tombstone_that_keeps_its_producer(story: Story) -> str:
    story.ledger.transaction(LOAD, "Dead", 0, 2, **_IDS)
    return story.entry("__transaction_state", story.load_home, 8)
