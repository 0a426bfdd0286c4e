"""Which topics a store has, by its listings and its objects."""

from __future__ import annotations

from tests.verify.story import Story, healthy
from txn_engine.verify import verify_store
from txn_engine.verify.dump import LogDump


def test_what_is_foreign_does_not_hide_the_rest() -> None:
    """A foreign folder does not hide a topic, which is audited as if the folder did not exist."""
    story = healthy()
    story.ledger.store.put("topics/payments/7/x", b"hello")
    story.ledger.store.delete(story.entry("payments", 0, 3))
    report = verify_store(story.ledger.store)
    codes = {finding.code for finding in report.findings}
    assert "entry-missing" in codes
    assert len(report.findings) == 2
    assert [stats.incarnation for stats in report.stats.partitions if stats.topic == "payments"] == [0, 0]


def test_a_topic_of_many_lives() -> None:
    """A topic was deleted and created again many times: each of its objects is read once."""
    story = healthy()
    for number in range(1, 60):
        story.ledger.topic("balances", 1, number, deleted=number % 2 == 1)
    report = verify_store(story.ledger.store)
    assert [str(finding) for finding in report.findings] == []
    assert report.stats.objects == len(story.ledger.keys()) - _of_older_lives(story)


def _of_older_lives(story: Story) -> int:
    """How many objects belong to partitions that no longer exist. They are not read."""
    return len(story.ledger.keys("topics/balances/0"))


def test_behind_a_gap_the_last_life_counts() -> None:
    """If the object of one incarnation is lost, the audit names it and uses the latest one."""
    story = healthy()
    for number in range(1, 15):
        story.ledger.topic("balances", 3, number, deleted=number % 2 == 1)
    story.ledger.store.delete("topics/balances/1.json")
    report = verify_store(story.ledger.store)
    assert [(found.code, found.object) for found in report.findings] == [
        ("object-missing", "topics/balances/1.json")
    ]
    assert {stats.incarnation for stats in report.stats.partitions if stats.topic == "balances"} == {14}


def test_a_great_gap_is_counted_not_walked() -> None:
    """If very many incarnations are missing, at most twenty of them are reported."""
    story = healthy()
    story.ledger.store.put("topics/balances/99999999/0/log/00000000000000000000.parquet", b"")
    report = verify_store(story.ledger.store)
    assert sum(finding.code == "object-missing" for finding in report.findings) == 20


def test_a_log_is_found_whatever_stands_beside_it() -> None:
    """A foreign folder does not hide a topic's log from LogDump."""
    story = healthy()
    story.ledger.store.put("topics/payments/7/x", b"hello")
    with LogDump(story.ledger.store, "payments", 0) as dump:
        assert dump.place.incarnation == 0


def test_a_folder_of_a_partition_that_cannot_be() -> None:
    """A folder for an impossible partition does not make the audit count up to it, even if the topic's own
    object is damaged."""
    story = healthy()
    story.ledger.flip("topics/payments/0.json", 20)
    story.ledger.store.put(f"topics/payments/0/{1 << 40}/log/{0:020d}.parquet", b"")
    report = verify_store(story.ledger.store)
    assert "topics/payments/0.json" in {finding.object for finding in report.findings}
    assert {stats.partition for stats in report.stats.partitions if stats.topic == "payments"} == {0, 1}


def test_internal_topics_of_more_partitions_than_there_can_be() -> None:
    """If store.json gives internal topics too many partitions, it is damaged, and the internal topics count
    with their default size."""
    story = healthy()
    counts = {"__transaction_state": 1 << 31, "__consumer_offsets": True}
    story.ledger.json("store.json", "store", {"internal_partitions": counts})
    found = [each for each in verify_store(story.ledger.store).findings if each.object == "store.json"]
    assert [each.code for each in found] == ["object-damaged"] * 2
