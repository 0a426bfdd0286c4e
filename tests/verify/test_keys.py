"""After correct compaction by key the audit finds nothing, whatever clean-up has left of the evidence."""

from __future__ import annotations

import pytest

from tests.verify.key_damage import DAY_MS, TABLE, Table
from tests.verify.story import Story, healthy
from txn_engine.verify import key_audit, verify_store


def found(story: Story, **more: int) -> list[str]:
    report = verify_store(story.ledger.store, **more)  # type: ignore[arg-type]
    return [finding.code for finding in report.findings if finding.severity == "error"]


def compacted(story: Story) -> tuple[Table, str, str]:
    """Write two passes, in which values are superseded by later ones and by a tombstone, which is removed a
    day later.

    Returns the table and the keys of the files with one value and with its tombstone.
    """
    table = Table(story)
    value = table.put((1, 10), (2, 10), (3, 10))  # 0, 1, 2
    table.put((1, None), (2, 11))  # 3, 4
    table.rewrite(0, 3, keep=[2, 3, 4])
    table.clean(5)
    table.wait(DAY_MS)
    tombstone = table.path(2)
    table.rewrite(2, keep=[2, 4], tombstones_to=5)
    table.clean(5, tombstones_to=5)
    return table, value, tombstone


@pytest.mark.parametrize("records_a_pass", [1, 3, 4_000_000])
def test_nothing_is_found(monkeypatch: pytest.MonkeyPatch, records_a_pass: int) -> None:
    """The audit finds nothing after a correct compaction and finds a lost key, however many passes over the
    files it needs."""
    monkeypatch.setattr(key_audit, "RECORDS_A_PASS", records_a_pass)
    story = healthy()
    table, _, _ = compacted(story)
    assert found(story) == []
    table.put((2, 12))
    table.rewrite(2, table.end - 1, keep=[2, 4])
    assert found(story) == ["key-lost"]


def test_a_tombstone_that_the_clean_up_took_is_no_loss() -> None:
    """If clean-up has deleted a tombstone's file, the value that it superseded is no proof of a lost key."""
    story = healthy()
    _, value, tombstone = compacted(story)
    assert found(story) == []
    story.ledger.store.delete(tombstone)
    assert found(story) == []
    story.ledger.store.delete(value)
    assert found(story) == []


def test_what_died_a_day_ago_proves_nothing() -> None:
    """A file that died a day ago is no proof of a lost key, because later records may be forgotten."""
    story = healthy()
    table = Table(story)
    table.put((1, 10))
    table.rewrite(0)
    assert found(story) == ["key-lost"]
    assert found(story, now_ms=story.ledger.now_ms + DAY_MS) == []


def test_a_damaged_live_file_is_one_finding() -> None:
    """If a live file cannot be read, that is the only finding, because nobody knows what its records
    supersede."""
    story = healthy()
    table = Table(story)
    table.put((1, 10))
    live = table.put((1, 11))
    table.rewrite(0)
    assert found(story) == []
    whole = story.ledger.store.get(live)
    story.ledger.flip(live)
    assert found(story) == ["data-file-damaged"]
    story.ledger.store.delete(live)
    assert found(story) == ["data-file-missing"]
    story.ledger.store.put(live, whole)
    assert found(story) == []


def test_a_snapshot_holds_how_far_it_is_clean() -> None:
    """The four numbers of a cleaned log are in the snapshot's first row, and the audit compares them."""
    story = healthy()
    table = Table(story)
    table.clean(0)
    at = story.ledger.now_ms
    row = {
        "log_end_offset": 1, "last_append_time": at, "log_start_offset": 0, "entries_start": 0, "floor": 0,
        "last_stable_offset": 1, "cleaned_to": 0, "tombstones_to": 0, "horizon_to": 0, "horizon_ms": at,
    }  # fmt: skip
    story.ledger.snapshot(TABLE, 0, 1, [("partition", row)])
    assert found(story) == []
    for name in ("cleaned_to", "tombstones_to", "horizon_to", "horizon_ms"):
        story.ledger.snapshot(TABLE, 0, 1, [("partition", {**row, name: 7})])
        assert found(story) == ["snapshot-differs"]
