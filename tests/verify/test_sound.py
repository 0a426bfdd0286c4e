"""Sound stores have no findings: wrap-around, rotation, operators, seals, clean-up, and a store in use."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from storage.errors import StoreUnreachableError
from storage.memory import MemoryStore
from tests.support.stores import copy_of
from tests.verify.control_damage import erased
from tests.verify.cut_damage import a_topic, with_cut
from tests.verify.raw_ledger import Ledger, Row, java_partition, marker
from tests.verify.sealed_damage import commit_behind_seals
from tests.verify.story import (
    GROUP,
    LOAD,
    SUMS,
    file_row,
    healthy,
    partition_row,
    producer_row,
    rewrite_of,
    sealed,
    sealed_coordinator,
    snapshot_sealed,
)
from txn_engine.errors import UnknownTopicOrPartitionError
from txn_engine.verify import VerifyReport, verify_store
from txn_engine.verify.decisions import DecisionTable
from txn_engine.verify.findings import Place

DAY_MS = 86_400_000


def texts(report: VerifyReport) -> list[str]:
    return [str(finding) for finding in report.findings]


def empty() -> Ledger:
    ledger = Ledger()
    ledger.create()
    ledger.topic("payments", 2)
    return ledger


def test_sequences_wrap() -> None:
    """After sequence 2^31-1 comes 0, inside a batch and between two."""
    ledger = empty()
    last = 2**31 - 1
    ledger.entry("payments", 0, ledger.batch("payments", 0, 1, 0, last - 1, count=4))
    ledger.entry("payments", 0, ledger.batch("payments", 0, 1, 0, 2, count=1))
    ledger.entry("payments", 1, ledger.batch("payments", 1, 1, 0, last, count=1))
    ledger.entry("payments", 1, ledger.batch("payments", 1, 1, 0, 0, count=1))
    assert texts(verify_store(ledger.store)) == []


def test_batches_without_a_producer() -> None:
    """Plain appends carry no producer, epoch or sequence; one entry may hold several batches."""
    ledger = empty()
    ledger.entry("payments", 0, ledger.batch("payments", 0), ledger.batch("payments", 0, count=1))
    assert texts(verify_store(ledger.store)) == []


def test_files_with_field_ids_stand_beside_files_without() -> None:
    """Files with field ids and older files without them are both sound."""
    ledger = empty()
    for field_ids in ([1, 2, 3, 2_147_483_001, 2_147_483_002], None):
        ledger.entry("payments", 0, ledger.batch("payments", 0, field_ids=field_ids))
    assert texts(verify_store(ledger.store)) == []


@pytest.mark.parametrize(
    ("ids", "said"),
    [
        ([7, 1, 2, None, None], "column 'account_id' with field id 7"),
        ([1, 2, 3, None, None], "column '_offset_delta' without a field id"),
        ([None, 2, None, None, None], "column 'account_id' without a field id"),
    ],
)
def test_ids_of_somebodys_table_are_no_damage(ids: list[int | None], said: str) -> None:
    """Older files may have the field ids of a caller's own columns. That is a warning, because Iceberg's
    readers go by them and do not see columns without one."""
    ledger = empty()
    ledger.entry("payments", 0, ledger.batch("payments", 0, field_ids=ids))
    report = verify_store(ledger.store)
    (found,) = report.findings
    assert (found.code, found.severity) == ("data-file-field-ids", "warning")
    assert said in str(found)
    assert report.ok


def test_the_producer_id_rotates_where_epochs_run_out() -> None:
    """When epochs run out, the Prepare row keeps the old id at epoch 32767 and the Complete row has the next
    one at 0."""
    ledger = empty()
    ledger.transaction("t", "Empty", 3, 32766)
    ledger.transaction("t", "Ongoing", 3, 32766, partitions=[("payments", 0, 0)])
    ledger.entry("payments", 0, ledger.batch("payments", 0, 3, 32766, 0, transactional=True))
    row = ledger.transaction(
        "t", "PrepareCommit", 3, 32767, partitions=[("payments", 0, 0)], next_producer_id=4
    )
    ledger.entry("payments", 0, marker(3, 32767, "commit", row))
    ledger.transaction("t", "CompleteCommit", 4, 0, decision_offset=row, previous_producer_id=3)
    ledger.transaction("t", "Ongoing", 4, 0, partitions=[("payments", 0, 0)])
    ledger.entry("payments", 0, ledger.batch("payments", 0, 4, 0, 0, transactional=True))
    assert texts(verify_store(ledger.store)) == []


def test_an_expired_id_starts_again() -> None:
    """An expired id may begin again: a tombstone, then a new producer id with the same run ids."""
    ledger = healthy().ledger
    ids = {"committed_run_ids": ["day-1"]}
    ledger.transaction(LOAD, "Dead", -1, -1, **ids)
    ledger.transaction(LOAD, "Empty", 7, 0, **ids)
    assert texts(verify_store(ledger.store)) == []


def test_the_oldest_of_a_hundred_run_ids_is_dropped() -> None:
    """The oldest of a hundred run ids may be dropped, if the row says that its list is no longer complete."""
    ledger = empty()
    ids = [f"run-{number}" for number in range(100)]
    ledger.transaction("t", "Empty", 3, 0, committed_run_ids=ids)
    ledger.transaction("t", "Ongoing", 3, 0, committed_run_ids=ids)
    ids = [*ids[1:], "run-100"]
    rest = {"committed_run_ids": ids, "run_id": "run-100", "run_ids_complete": False}
    row = ledger.transaction("t", "PrepareCommit", 3, 1, **rest)
    ledger.transaction("t", "CompleteCommit", 3, 1, decision_offset=row, **rest)
    assert texts(verify_store(ledger.store)) == []


def test_an_operator_may_abort_what_nobody_will_decide() -> None:
    """An operator may abort a transaction that has no coordinator. The marker repeats the stored epochs, with
    0 for a coordinator's epoch that is not stored."""
    ledger = healthy().ledger
    ledger.entry("payments", 1, ledger.batch("payments", 1, 77, 0, 0, transactional=True))
    ledger.entry("payments", 1, marker(77, 0, "abort", 0))
    ledger.entry("payments", 1, ledger.batch("payments", 1, 77, 0, 3, transactional=True))
    ledger.entry("payments", 1, marker(77, 0, "abort", 0))
    assert texts(verify_store(ledger.store)) == []


def test_an_idempotent_producer_goes_on_after_it_was_forgotten() -> None:
    """An idempotent producer may begin with any sequence after its state has expired."""
    ledger = healthy().ledger
    ledger.control("payments", 0, "expire", {"producer_ids": [5]})
    ledger.entry("payments", 0, ledger.batch("payments", 0, 5, 0, 40))
    assert texts(verify_store(ledger.store)) == []


def test_rewrite_trim_and_floor() -> None:
    """Live files may be rewritten, settled ones trimmed, and the floor raised."""
    story = healthy()
    ledger = story.ledger
    value = rewrite_of(story, "payments/0/second", "payments/0/plain", "payments/0/plain2")
    ledger.control("payments", 0, "rewrite", value)
    ledger.control("payments", 0, "trim", {"log_start_offset": 3, "entries_start": 0})
    ledger.control("payments", 0, "floor", {"floor": 12})
    report = verify_store(ledger.store)
    assert texts(report) == []
    assert next(stats for stats in report.stats.partitions if stats.topic == "payments").records == {
        "aborted": 2,
        "live": 5,
        "replaced": 8,
    }


def test_a_rewritten_file_may_be_rewritten() -> None:
    """A rewritten file may be rewritten. Its records keep their offsets, with gaps where markers and aborted
    records were."""
    story = healthy()
    story.ledger.control("payments", 0, "rewrite", rewrite_of(story, "payments/0/plain", "payments/0/plain2"))
    value = rewrite_of(
        story, "payments/0/first", "payments/0/second", "payments/0/plain", "payments/0/plain2"
    )
    rewritten = story.ledger.rows(story.entry("payments", 0, 12))[0]["control_value"]
    value["inputs"][2:] = [json.loads(rewritten)["outputs"][0]["data_path"]]
    story.ledger.control("payments", 0, "rewrite", value)
    assert texts(verify_store(story.ledger.store)) == []


def test_erased_files() -> None:
    """A replacement may take the place of an erased file, which may be deleted at once, and so may an erased
    dead file."""
    story = healthy()
    ledger = story.ledger
    merged = rewrite_of(story, "payments/0/plain", "payments/0/plain2")
    ledger.control("payments", 0, "rewrite", merged)
    files = [
        (*erased(story, "payments/0/first", [0]), True),
        (merged["outputs"][0]["data_path"], None, True),
        (*erased(story, "payments/0/plain", [0]), False),
        (story.files["payments/0/aborted"]["data_path"], None, False),
    ]
    exchanged = [{"input": path, "output": left, "live": live} for path, left, live in files]
    ledger.control("payments", 0, "erase", {"erasure": 0, "files": exchanged})
    for path, *_ in files:
        ledger.store.delete(f"topics/payments/0/0/{path}")
    report = verify_store(ledger.store)
    assert texts(report) == []
    (stats,) = (
        stats for stats in report.stats.partitions if stats.topic == "payments" and stats.partition == 0
    )
    assert stats.records["live"] == 3


def test_a_rewrite_may_leave_files_between_its_outputs() -> None:
    """Each output of a rewrite replaces neighbouring files. Two outputs need not be neighbours."""
    story = healthy()
    first, last = rewrite_of(story, "payments/0/first"), rewrite_of(story, "payments/0/plain2")
    both = {**first, **{name: last[name] + first[name] for name in ("inputs", "outputs")}}
    story.ledger.control("payments", 0, "rewrite", both)
    assert texts(verify_store(story.ledger.store)) == []


def test_what_the_floor_drops_may_be_deleted() -> None:
    """A dead file may be deleted a day after it died, once its name is below the floor."""
    story = healthy()
    ledger = story.ledger
    ledger.now_ms += DAY_MS
    ledger.control("payments", 0, "floor", {"floor": 12})
    ledger.store.delete(story.path("payments/0/aborted"))
    report = verify_store(ledger.store)
    assert texts(report) == []
    assert report.stats.partitions[-2].records == {"live": 8}


def test_aborted_ranges_below_the_log_start_are_dropped() -> None:
    """A trim drops the aborted ranges below it from the index."""
    story = healthy()
    ledger = story.ledger
    names = ("first", "second", "plain", "plain2")
    ledger.control("payments", 0, "trim", {"log_start_offset": 12, "entries_start": 0})
    trimmed, aborted_at = ledger.now_ms, ledger.rows(story.entry("payments", 0, 10))[0]["append_time"]
    held = {name: story.files[f"payments/0/{name}"] for name in (*names, "aborted")}
    bases = {"first": 0, "second": 3, "plain": 5, "aborted": 8, "plain2": 11}
    died = {**dict.fromkeys(names, ("replaced", trimmed)), "aborted": ("aborted", aborted_at)}
    plain, plain2 = held["plain"]["first_timestamp"], held["plain2"]["first_timestamp"]
    batches = ((0, 5, 2, plain), (2, 11, 1, plain2))
    rows = [
        ("partition", {**partition_row(13, trimmed, 13), "log_start_offset": 12}),
        ("producer", producer_row(0, 2, story.abort_row, (aborted_at, aborted_at), -1)),
        ("producer", producer_row(5, 0, -1, (plain2, plain2 + 1_000), -1, *batches)),
        *(("file", file_row(held[name], base, *died[name])) for name, base in bases.items()),
    ]
    ledger.snapshot("payments", 0, 13, rows)
    assert texts(verify_store(ledger.store)) == []


def test_an_id_at_rest_renews_its_row() -> None:
    """An id at rest may have its row renewed at another time."""
    ledger = healthy().ledger
    rest = {"committed_run_ids": ["day-1"]}
    home = java_partition(LOAD, 50)
    row = ledger.rows(ledger.entry_key("__transaction_state", home, 7))[0]["transaction"]
    assert row["state"] == "CompleteAbort"
    for _ in range(2):
        ledger.now_ms += DAY_MS
        ledger.entry("__transaction_state", home, {"transaction": {**row, "update_ms": ledger.now_ms}})
    ledger.transaction(LOAD, "Ongoing", 0, 2, **rest)
    assert texts(verify_store(ledger.store)) == []


def test_a_topic_grows() -> None:
    """If a topic has several growths, the highest one counts."""
    ledger = healthy().ledger
    ledger.grow("payments", 0, 3)
    ledger.grow("payments", 1, 5)
    ledger.entry("payments", 4, ledger.batch("payments", 4))
    report = verify_store(ledger.store)
    assert texts(report) == []
    assert [stats.partition for stats in report.stats.partitions if stats.topic == "payments"] == [
        0,
        1,
        2,
        3,
        4,
    ]


def test_a_dead_file_may_go_after_a_day() -> None:
    """If a dead file is missing less than a day after it died, that is a warning, because a long job may
    still need it."""
    story = healthy()
    story.ledger.store.delete(story.path("payments/0/aborted"))
    early = verify_store(story.ledger.store)
    assert [(finding.code, finding.severity) for finding in early.findings] == [
        ("data-file-missing", "warning")
    ]
    assert early.ok
    assert texts(verify_store(story.ledger.store, now_ms=story.ledger.now_ms + DAY_MS)) == []


def test_orphans_are_counted() -> None:
    """A file that no entry names is counted and is not damage: it may be an upload under way, or work for
    clean-up."""
    ledger = healthy().ledger
    ledger.batch("payments", 1, 9, 0, 0)
    report = verify_store(ledger.store)
    assert texts(report) == []
    assert report.stats.orphan_files == 1


def test_work_for_the_sweeps_is_a_warning() -> None:
    """A decision without its completion and a transaction past its time-out are warnings, each with the
    command that ends it."""
    ledger = healthy().ledger
    ids = {"committed_run_ids": ["day-1"]}
    ledger.transaction(LOAD, "Ongoing", 0, 2, partitions=[("payments", 0, 0)], **ids)
    ledger.entry("payments", 0, ledger.batch("payments", 0, 0, 2, 0, transactional=True))
    ledger.transaction(SUMS, "Ongoing", 1, 1, partitions=[("payments", 0, 1)])
    ledger.transaction(SUMS, "PrepareCommit", 1, 2, partitions=[("payments", 0, 1)])
    report = verify_store(ledger.store, now_ms=ledger.now_ms + 60_000)
    assert report.ok
    found = {finding.code: finding for finding in report.findings}
    assert found.keys() == {"transaction-timed-out", "transaction-pending"}
    assert "sweep" in found["transaction-timed-out"].action
    assert "markers" in found["transaction-pending"].action
    assert report.stats.transactions == {
        "CompleteAbort": 1,
        "CompleteCommit": 2,
        "Ongoing": 1,
        "PrepareCommit": 1,
    }
    assert [finding.code for finding in verify_store(ledger.store).findings] == ["transaction-pending"]


def beyond_the_end(ledger: Ledger) -> list[str]:
    report = verify_store(ledger.store)
    assert report.ok, texts(report)
    assert {finding.code for finding in report.findings} <= {"offset-beyond-end"}
    return [finding.seen for finding in report.findings]


def test_an_offset_beyond_the_end_is_a_warning_while_it_counts() -> None:
    """An offset past the log's end is a warning, because it may come from lost entries or from a commit that
    somebody chose. A reset ends it."""
    ledger = healthy().ledger
    ledger.commit("others", "payments", 0, 13)
    assert beyond_the_end(ledger) == ["group 'others': offset 13 for payments-0"]
    ledger.commit("others", "payments", 0, 0)
    assert beyond_the_end(ledger) == []


def test_an_offset_beyond_the_end_that_was_never_committed_does_not_count() -> None:
    """An offset past the end does not count while its transaction is open, nor after it is aborted."""
    story = healthy()
    ledger = story.ledger
    places = [("__consumer_offsets", 0, story.group_home)]
    ledger.transaction(SUMS, "Ongoing", 1, 1, partitions=places)
    ledger.commit(GROUP, "payments", 0, 13, 1, 1)
    assert beyond_the_end(ledger) == []
    row = ledger.transaction(SUMS, "PrepareAbort", 1, 2, partitions=places)
    ledger.entry("__consumer_offsets", story.group_home, marker(1, 2, "abort", row))
    ledger.transaction(SUMS, "CompleteAbort", 1, 2, decision_offset=row)
    assert beyond_the_end(ledger) == []


def test_a_topic_made_again_is_another_topic() -> None:
    """A topic that was created again begins at 0, and decisions and offsets for the deleted incarnation count
    as done."""
    story = healthy()
    ledger = story.ledger
    ledger.transaction(SUMS, "Ongoing", 1, 1, partitions=[("payments", 0, 1)])
    row = ledger.transaction(SUMS, "PrepareCommit", 1, 2, partitions=[("payments", 0, 1)])
    ledger.transaction(SUMS, "CompleteCommit", 1, 2, decision_offset=row)
    ledger.topic("payments", 2, 1, deleted=True)
    assert texts(verify_store(ledger.store)) == []
    ledger.topic("payments", 1, 2)
    report = verify_store(ledger.store)
    assert texts(report) == []
    assert [stats.log_end_offset for stats in report.stats.partitions if stats.topic == "payments"] == [0]


def test_sealed_entries_stand_in_a_snapshot() -> None:
    """If entries are sealed, the replay starts from the oldest snapshot after them and goes on from there."""
    story = healthy()
    sealed(story)
    snapshot_sealed(story, 8)
    ledger = story.ledger
    ledger.entry("payments", 1, ledger.batch("payments", 1, 8, 0, 3))
    ledger.commit("others", "payments", 1, 11)
    report = verify_store(ledger.store)
    assert texts(report) == []
    place = next(
        stats for stats in report.stats.partitions if (stats.topic, stats.partition) == ("payments", 1)
    )
    assert (place.log_start_offset, place.log_end_offset, place.judged) == (3, 11, True)
    ledger.commit("others", "payments", 1, 12)
    assert [finding.code for finding in verify_store(ledger.store).findings] == ["offset-beyond-end"]


def test_a_sealed_partition_goes_on() -> None:
    """A producer that the snapshot of a sealed log knows may go on with transactions, with and without
    records in it."""
    story = healthy()
    sealed(story)
    commit_behind_seals(story)
    commit_behind_seals(story, 3, written=False)
    assert texts(verify_store(story.ledger.store)) == []


def test_a_producer_forgotten_below_a_seal() -> None:
    """A producer's first commit may be sealed and forgotten: the snapshot then knows only the producer's
    later transaction."""
    ledger = empty()
    places = [("payments", 0, 0)]
    ledger.transaction("t", "Empty", 3, 0)
    batches: list[Row] = []
    for epoch in (0, 1):
        ledger.transaction("t", "Ongoing", 3, epoch, partitions=places)
        batches.append(ledger.batch("payments", 0, 3, epoch, 0, count=1, transactional=True))
        ledger.entry("payments", 0, batches[-1])
        if epoch == 1:
            _seal_below_newcomer(ledger, *batches)
        row = ledger.transaction("t", "PrepareCommit", 3, epoch + 1, partitions=places)
        ledger.entry("payments", 0, marker(3, epoch + 1, "commit", row))
        ledger.transaction("t", "CompleteCommit", 3, epoch + 1, decision_offset=row)
        if epoch == 0:
            ledger.control("payments", 0, "expire", {"producer_ids": [3]})
    assert texts(verify_store(ledger.store)) == []


def _seal_below_newcomer(ledger: Ledger, decided: Row, opened: Row) -> None:
    """Write snapshots around a trim at 4, and seals below the batch at 3."""
    stamp = opened["first_timestamp"]
    for end in (4, 5):
        if end == 5:
            ledger.control("payments", 0, "trim", {"log_start_offset": 0, "entries_start": 3})
        times = {
            base: ledger.rows(ledger.entry_key("payments", 0, base))[0]["append_time"]
            for base in (3, end - 1)
        }
        rows = [
            ("partition", {**partition_row(end, times[end - 1], 3), "entries_start": 3 if end == 5 else 0}),
            ("producer", producer_row(3, 1, -1, (stamp, times[3]), 3, (0, 3, 1, stamp))),
            ("file", file_row(decided, 0, "live")),
            ("file", file_row(opened, 3, "undecided")),
        ]
        ledger.snapshot("payments", 0, end, rows)
    for base in range(3):
        ledger.seal("payments", 0, base)


class CleaningStore(MemoryStore):
    """A store that runs another client's clean-up right before a key is read for the first time."""

    def __init__(self, source: MemoryStore, key: str, work: Callable[[], None]) -> None:
        super().__init__()
        self._shelf = source._shelf
        self._key, self._work = key, work

    def get(self, key: str, *, max_bytes: int | None = None) -> bytes:
        if key == self._key:
            self._key = ""
            self._work()
        return super().get(key, max_bytes=max_bytes)


def test_a_clean_up_that_overtakes_the_audit() -> None:
    """If an entry is sealed before the audit's walk comes to it, the walk goes on from a snapshot, even a new
    one."""
    story = healthy()
    ledger = story.ledger
    sealed(story, snapshots=(4,))

    def seal_more() -> None:
        snapshot_sealed(story, 7)
        snapshot_sealed(story, 8)
        ledger.control("payments", 1, "trim", {"log_start_offset": 3, "entries_start": 7})
        snapshot_sealed(story, 9, entries_start=7, last_append_time=ledger.now_ms)
        ledger.seal("payments", 1, 3)
        ledger.seal("payments", 1, 4)

    report = verify_store(CleaningStore(ledger.store, story.entry("payments", 1, 4), seal_more), workers=0)
    assert texts(report) == []


def test_an_offset_committed_from_its_own_pending_row() -> None:
    """A transaction may commit a group's offset again, from the row that it fetched or from its own row."""
    story = healthy()
    ledger = story.ledger
    places = [("__consumer_offsets", 0, story.group_home)]
    ledger.transaction(SUMS, "Ongoing", 1, 1, partitions=places)
    ledger.commit(GROUP, "payments", 0, 8, 1, 1, fetched_row=2)
    ledger.commit(GROUP, "payments", 0, 9, 1, 1, fetched_row=2)
    ledger.commit(GROUP, "payments", 0, 10, 1, 1, fetched_row=4)
    assert texts(verify_store(ledger.store)) == []


def test_a_tombstone_is_no_row() -> None:
    """A group that fetched after a tombstone names no row. If it fetched before the tombstone, its commit is
    a finding."""
    story = healthy()
    ledger = story.ledger
    ledger.commit(GROUP, "payments", 0, -1)
    ledger.commit(GROUP, "payments", 0, 4, fetched_row=-1, fetched_end=4)
    assert texts(verify_store(ledger.store)) == []
    ledger.commit(GROUP, "payments", 0, -1)
    ledger.commit(GROUP, "payments", 0, 4, fetched_row=-1, fetched_end=4)
    assert [finding.code for finding in verify_store(ledger.store).findings] == ["offset-moved"]


class StoreInUse(MemoryStore):
    """A store that runs a step of another client's work before each listing of a partition's log."""

    def __init__(self, source: MemoryStore, work: Callable[[str], None]) -> None:
        super().__init__()
        self._shelf = source._shelf
        self._work = work

    def list(self, prefix, *, start_after=None):  # type: ignore[no-untyped-def]
        self._work(prefix)
        return super().list(prefix, start_after=start_after)


def test_a_store_in_use_gives_no_false_findings() -> None:
    """A transaction that is begun, committed and completed during the audit leads to no finding."""
    story = healthy()
    ledger = story.ledger
    epoch = [1]

    def newcomer() -> None:
        """Create a topic and a transactional id that did not exist when the audit began."""
        ledger.topic("fresh", 1)
        places = [("fresh", 0, 0), ("payments", 0, 1)]
        ledger.transaction("newcomer", "Empty", 40, 0)
        ledger.transaction("newcomer", "Ongoing", 40, 0, partitions=places)
        for topic, _, partition in places:
            ledger.entry(topic, partition, ledger.batch(topic, partition, 40, 0, 0, transactional=True))
        row = ledger.transaction("newcomer", "PrepareCommit", 40, 1, partitions=places)
        for topic, _, partition in places:
            ledger.entry(topic, partition, marker(40, 1, "commit", row))
        ledger.transaction("newcomer", "CompleteCommit", 40, 1, decision_offset=row)

    def work(prefix: str) -> None:
        if prefix == f"topics/__transaction_state/0/{story.sums_home}/log/" and "fresh" not in str(
            ledger.ends
        ):
            newcomer()
        if not prefix.startswith(("topics/payments/0/", "topics/balances/0/")) or not prefix.endswith(
            "/log/"
        ):
            return
        pid, now = 1, epoch[0]
        epoch[0] += 1
        places = [("payments", 0, 0), ("payments", 0, 1), ("balances", 0, 0)]
        ledger.transaction(SUMS, "Ongoing", pid, now, partitions=places)
        for topic, _, partition in places:
            ledger.entry(topic, partition, ledger.batch(topic, partition, pid, now, 0, transactional=True))
        row = ledger.transaction(SUMS, "PrepareCommit", pid, now + 1, partitions=places)
        for topic, _, partition in places:
            ledger.entry(topic, partition, marker(pid, now + 1, "commit", row))
        ledger.transaction(SUMS, "CompleteCommit", pid, now + 1, decision_offset=row)

    report = verify_store(StoreInUse(ledger.store, work))
    assert texts(report) == []
    assert epoch[0] == 4
    assert ("fresh", 0) in ledger.ends
    assert texts(verify_store(ledger.store)) == []


def test_a_coordinator_s_log_sealed_while_the_audit_reads() -> None:
    """A transaction that is open when its partition is read, and whose end is sealed in the coordinator's log
    by the second reading, leads to no finding."""
    story = healthy()
    ledger = story.ledger
    places = [("balances", 0, 0)]
    home = f"topics/__transaction_state/0/{story.sums_home}/log/"
    done: list[str] = []

    def work(prefix: str) -> None:
        if prefix == "topics/balances/0/0/log/":
            ledger.transaction(SUMS, "Ongoing", 1, 1, partitions=places)
            ledger.entry("balances", 0, ledger.batch("balances", 0, 1, 1, 0, transactional=True))
            done.append(prefix)
        elif prefix == home and done == ["topics/balances/0/0/log/"]:
            done.append(prefix)
            row = ledger.transaction(SUMS, "PrepareAbort", 1, 2, partitions=places)
            ledger.entry("balances", 0, marker(1, 2, "abort", row))
            ledger.transaction(SUMS, "CompleteAbort", 1, 2, decision_offset=row)
            sealed_coordinator(story)

    assert texts(verify_store(StoreInUse(ledger.store, work))) == []
    assert len(done) == 2
    assert texts(verify_store(ledger.store)) == []


def test_only_some_topics() -> None:
    """If topics are named, only their data is read. An unknown topic is an error of the call."""
    story = healthy()
    story.ledger.flip(story.entry("payments", 0, 3))
    report = verify_store(story.ledger.store, topics=["balances"])
    assert report.ok
    assert {stats.topic for stats in report.stats.partitions} == {
        "__consumer_offsets",
        "__transaction_state",
        "balances",
    }
    assert not verify_store(story.ledger.store, topics=["payments"]).ok
    with pytest.raises(UnknownTopicOrPartitionError):
        verify_store(story.ledger.store, topics=["nothing"])


def test_without_reading_the_data_files() -> None:
    """Without reading the data files, the audit still checks that they exist and how large they are."""
    story = healthy()
    story.ledger.flip(story.path("payments/0/first"), 40)
    assert verify_store(story.ledger.store, check_data=False).ok
    key = story.path("payments/0/second")
    story.ledger.store.put(key, story.ledger.store.get(key)[:-1])
    report = verify_store(story.ledger.store, check_data=False)
    assert [(finding.code, finding.object) for finding in report.findings] == [("data-file-truncated", key)]


def test_the_same_objects_give_the_same_report() -> None:
    """The same objects give the same report, in one order: errors first, then by place."""
    story = healthy()
    for key in (story.entry("payments", 1, 0), story.path("payments/0/first"), story.entry("balances", 0, 2)):
        story.ledger.flip(key)
    first, second = verify_store(story.ledger.store), verify_store(story.ledger.store)
    assert texts(first) == texts(second)
    assert len(first.findings) == 3
    assert [finding.order for finding in first.findings] == sorted(
        finding.order for finding in first.findings
    )


def test_a_flood_is_counted_not_listed() -> None:
    """At most twenty findings of a kind are listed for a partition, so memory stays bounded however bad the
    log is."""
    ledger = empty()
    for _ in range(50):
        ledger.entry("payments", 0, ledger.batch("payments", 0, 5, 0, 7))
    report = verify_store(ledger.store)
    assert len(report.findings) == 20
    assert report.stats.findings_not_listed == 29


def test_progress_is_told() -> None:
    """Progress says what is read, how many of its objects are done, and how many there are."""
    told: list[tuple[str, int, int]] = []
    verify_store(healthy().ledger.store, progress=lambda what, done, total: told.append((what, done, total)))
    assert ("payments-0 entries", 7, 7) in told
    assert ("payments-0 data files", 5, 5) in told


def test_the_store_s_own_errors_are_raised() -> None:
    """The store's own errors are raised: an unreachable store is not a finding."""

    class Unreachable(MemoryStore):
        def get(self, key: str, *, max_bytes: int | None = None) -> bytes:
            raise StoreUnreachableError("no route to host")

    store = Unreachable()
    copy_of(healthy().ledger.store, store)
    with pytest.raises(StoreUnreachableError):
        verify_store(store)


def test_an_empty_store() -> None:
    """The audit of an empty store has one finding, the missing store object."""
    report = verify_store(MemoryStore())
    assert [(finding.code, finding.object) for finding in report.findings] == [
        ("object-missing", "store.json")
    ]


def test_the_last_epoch_may_be_decided_twice() -> None:
    """At epoch 32767 a transaction may be decided twice, by the fence and by the abort that rotates the id. A
    partition belongs to the decision that names it."""
    place, table = Place("payments", 0, 0), DecisionTable()
    for offset, partitions in ((5, (place,)), (6, ())):
        table.add(7, offset, 32767, committed=False, partitions=partitions, append_time=0)
    found, elsewhere = table.of_epoch(7, 32766, place), table.of_epoch(7, 32766, Place("payments", 0, 1))
    assert found is not None
    assert found.offset == 5
    assert elsewhere is not None
    assert elsewhere.offset == 6


def test_sound_cuts_have_no_findings() -> None:
    """Sound cuts have no findings, not even a deleted one whose snapshot is gone, or one that was given
    up."""
    story = healthy()
    with_cut(story)
    with_cut(story, number=1, topics=[a_topic(snapshots=[1, 0])])
    story.ledger.json(f"cuts/{1:020d}/deleted.json", "cut_deleted", {"number": 1, "deleted_ms": 0})
    with_cut(story, number=2, is_void=True, topics=[])
    story.ledger.topic("gone", 2)
    story.ledger.topic("gone", 2, incarnation=1, deleted=True)
    with_cut(story, number=3, topics=[a_topic(topic="gone")])  # which was deleted since
    assert verify_store(story.ledger.store).findings == ()
