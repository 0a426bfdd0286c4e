"""Damage of every kind is done to a healthy ledger: the audit names each with its object, and reports nothing
else."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

from storage.envelope import checksum_of
from tests.numbers import Run
from tests.verify import control_damage, cut_damage, key_damage, layout_damage, sealed_damage, table_damage
from tests.verify.damage import KINDS, Damage, damage, every_kind
from tests.verify.raw_ledger import PAYMENTS, Ledger, encode_records, marker, schema_of
from tests.verify.story import GROUP, LOAD, SUMS, Story, healthy, open_load
from txn_engine.verify import CODES, VerifyReport, verify_store

_TRIED: set[Damage] = set()
_NAMED: set[Damage] = set()


@pytest.fixture(scope="module", autouse=True)
def numbers() -> Iterator[None]:
    """If all kinds were tried, `make numbers` shows how many were named."""
    run = Run("damage", [])
    yield
    if len(_TRIED) == len(KINDS):
        run.record(
            {
                "kinds of damage tried": len(_TRIED),
                "kinds named": len(_NAMED),
                "kinds of findings": len(CODES),
            }
        )


def codes_of(report: VerifyReport) -> set[str]:
    return {finding.code for finding in report.findings}


def test_a_healthy_ledger_has_no_findings() -> None:
    """The audit of a healthy ledger finds nothing, and has read every object once and listed the
    coordinator's log twice."""
    story = healthy()
    report = verify_store(story.ledger.store)
    assert [str(finding) for finding in report.findings] == []
    assert report.ok
    assert report.stats.objects == len(story.ledger.keys())
    assert report.stats.transactions == {"CompleteAbort": 1, "CompleteCommit": 2}
    assert report.stats.records == 15
    by_place = {(stats.topic, stats.partition): stats for stats in report.stats.partitions}
    payments = by_place["payments", 0]
    assert (payments.last_stable_offset, payments.log_end_offset, payments.snapshots) == (12, 12, 2)
    assert payments.records == {"aborted": 2, "live": 8}
    assert json.loads(json.dumps(report.to_dict()))["ok"] is True


def test_a_sound_table_has_no_findings() -> None:
    story = healthy()
    table_damage.publish(story)
    assert [str(finding) for finding in verify_store(story.ledger.store).findings] == []


# --- entries ----------------------------------------------------------------------------------------------


@damage("entry-damaged")
def entry_with_a_changed_byte(story: Story) -> str:
    key = story.entry("payments", 0, 3)
    story.ledger.flip(key)
    return key


@damage("entry-damaged")
def entry_cut_short(story: Story) -> str:
    key = story.entry("payments", 1, 3)
    story.ledger.store.put(key, story.ledger.store.get(key)[:-100])
    return key


@damage("entry-damaged")
def entry_emptied(story: Story) -> str:
    key = story.entry("__consumer_offsets", story.group_home, 0)
    story.ledger.store.put(key, b"")
    return key


@damage("entry-missing")
def entry_missing(story: Story) -> str:
    key = story.entry("payments", 0, 5)
    story.ledger.store.delete(key)
    return key


@damage("entry-missing")
def entry_missing_at_the_start(story: Story) -> str:
    key = story.entry("payments", 0, 0)
    story.ledger.store.delete(key)
    return key


@damage("log-lost")
def log_of_a_partition_missing(story: Story) -> str:
    cut_damage.with_cut(story, topics=[cut_damage.a_topic(offsets=[12, 0], snapshots=[12, 0])])
    folder = "topics/payments/0/0/"
    for key in story.ledger.keys(folder):
        story.ledger.store.delete(key)
    return folder


@damage("entry-missing")
def coordinator_entry_missing(story: Story) -> str:
    key = story.entry("__transaction_state", story.load_home, story.commit_row)
    story.ledger.store.delete(key)
    return key


@damage("snapshot-ahead")
def last_entry_missing(story: Story) -> str:
    story.ledger.store.delete(story.entry("payments", 0, 11))
    return f"topics/payments/0/0/snapshots/{12:020d}.parquet"


@damage("entry-misnamed")
def entry_copied_to_the_next_slot(story: Story) -> str:
    key = story.entry("payments", 1, 4)
    story.ledger.store.put(key, story.ledger.store.get(story.entry("payments", 1, 0)))
    return key


@damage("data-file-named-twice", "sequence-repeated")
def entry_doubled(story: Story) -> str:
    story.ledger.entry("payments", 0, story.files["payments/0/plain2"])
    return story.entry("payments", 0, 12)


@damage("marker-repeated")
def marker_doubled(story: Story) -> str:
    story.ledger.entry("payments", 0, marker(0, 2, "abort", story.abort_row))
    return story.entry("payments", 0, 12)


@damage("entry-overlaps")
def entry_inside_another(story: Story) -> str:
    ledger = story.ledger
    key = story.entry("payments", 1, 2)
    ledger.put_entry(key, "payments", [ledger.placed(ledger.batch("payments", 1, log_end=0), 2)])
    return key


@damage("entry-malformed")
def entry_with_a_gap_between_rows(story: Story) -> str:
    ledger = story.ledger
    rows = [ledger.placed(ledger.batch("payments", 1), 4), ledger.placed(ledger.batch("payments", 1), 9)]
    key = story.entry("payments", 1, 4)
    ledger.put_entry(key, "payments", rows)
    return key


@damage("entry-malformed")
def entry_without_a_column(story: Story) -> str:
    ledger = story.ledger
    key = story.entry("payments", 1, 4)
    fields = [field for field in schema_of("payments") if field.name != "append_time"]
    ledger.put_entry(
        key, "payments", [ledger.placed(ledger.batch("payments", 1), 4)], schema=pa.schema(fields)
    )
    return key


@damage("entry-malformed")
def snapshot_where_an_entry_belongs(story: Story) -> str:
    key = story.entry("payments", 0, 12)
    story.ledger.store.put(key, story.ledger.store.get(f"topics/payments/0/0/snapshots/{12:020d}.parquet"))
    return key


@damage("control-unknown")
def control_of_a_later_version(story: Story) -> str:
    story.ledger.entry("payments", 1, {"control": "merge"})
    return story.entry("payments", 1, 4)


@damage("append-time-falls")
def append_time_going_back(story: Story) -> str:
    story.ledger.edit("balances", 0, 2, append_time=1, first_timestamp=1, max_timestamp=1)
    return story.entry("balances", 0, 2)


@damage("descriptor-malformed")
def more_offsets_than_records(story: Story) -> str:
    ledger = story.ledger
    ledger.entry("payments", 1, {**ledger.batch("payments", 1), "record_count": 3, "last_offset": 8})
    return story.entry("payments", 1, 4)


@damage("descriptor-malformed")
def marker_of_another_time(story: Story) -> str:
    story.ledger.edit("balances", 0, 2, max_timestamp=5, first_timestamp=5)
    return story.entry("balances", 0, 2)


# --- data files -------------------------------------------------------------------------------------------


@damage("data-file-damaged")
def data_file_with_a_changed_byte(story: Story) -> str:
    story.ledger.flip(story.path("payments/0/second"), 40)
    return story.path("payments/0/second")


@damage("data-file-damaged")
def aborted_data_file_with_a_changed_byte(story: Story) -> str:
    story.ledger.flip(story.path("payments/0/aborted"), 40)
    return story.path("payments/0/aborted")


@damage("data-file-truncated")
def data_file_truncated(story: Story) -> str:
    key = story.path("payments/0/first")
    story.ledger.store.put(key, story.ledger.store.get(key)[:500])
    return key


@damage("data-file-missing")
def data_file_missing(story: Story) -> str:
    story.ledger.store.delete(story.path("balances/0/first"))
    return story.path("balances/0/first")


@damage("data-file-swapped")
def data_files_swapped(story: Story) -> str:
    store, one, other = story.ledger.store, story.path("payments/0/first"), story.path("payments/0/plain2")
    held = store.get(one)
    store.put(one, store.get(other))
    store.put(other, held)
    return one


def _named_as(story: Story, *, count: int = 2, stamp: int | None = None, **how: Any) -> str:
    """Replace the data file of balances-0, and let its entry name the new one."""
    row = story.files["balances/0/first"]
    write_id = row["data_path"].rpartition("-")[2].removesuffix(".parquet")
    data = encode_records(count, row["first_timestamp"] if stamp is None else stamp, write_id, **how)
    story.ledger.store.put(story.path("balances/0/first"), data)
    story.ledger.edit("balances", 0, 0, data_bytes=len(data), checksum=checksum_of(data))
    return story.path("balances/0/first")


@damage("data-file-records")
def data_file_with_a_record_too_many(story: Story) -> str:
    return _named_as(story, count=3)


@damage("data-file-order")
def data_file_out_of_order(story: Story) -> str:
    return _named_as(story, deltas=[1, 0])


@damage("data-file-timestamps")
def data_file_of_another_time(story: Story) -> str:
    return _named_as(story, stamp=5)


@damage("data-file-schema")
def data_file_of_another_schema(story: Story) -> str:
    schema = PAYMENTS.set(1, pa.field("amount", pa.float64()))
    return _named_as(story, schema=schema)


@damage("data-file-field-ids")
def data_file_with_the_ids_of_two_columns_exchanged(story: Story) -> str:
    return _named_as(story, field_ids=[2, 1, 3, 2_147_483_001, 2_147_483_002])


@damage("data-file-field-ids")
def data_file_whose_times_have_the_id_of_a_column_to_come(story: Story) -> str:
    return _named_as(story, field_ids=[1, 2, 3, 2_147_483_001, 4])


@damage("data-file-misnamed")
def data_file_of_an_aborted_try(story: Story) -> str:
    ledger = story.ledger
    ledger.entry(
        "payments", 0, {**ledger.batch("payments", 0, 5, 0, 3), "producer_epoch": 1, "base_sequence": 0}
    )
    return story.entry("payments", 0, 12)


@damage("data-file-misnamed")
def data_file_from_the_future(story: Story) -> str:
    story.ledger.entry("payments", 0, story.ledger.batch("payments", 0, log_end=99))
    return story.entry("payments", 0, 12)


@damage("data-file-below-floor")
def data_file_below_the_floor(story: Story) -> str:
    story.ledger.control("payments", 0, "floor", {"floor": 10})
    story.ledger.entry("payments", 0, story.ledger.batch("payments", 0, log_end=9))
    return story.entry("payments", 0, 13)


# --- producers --------------------------------------------------------------------------------------------


@damage("epoch-falls")
def row_of_an_old_epoch(story: Story) -> str:
    ledger = story.ledger
    ledger.entry("payments", 0, ledger.batch("payments", 0, 5, 1, 0))
    ledger.entry("payments", 0, ledger.batch("payments", 0, 5, 0, 0))
    return story.entry("payments", 0, 15)


@damage("sequence-gap")
def batch_skipped(story: Story) -> str:
    story.ledger.entry("payments", 0, story.ledger.batch("payments", 0, 5, 0, 9))
    return story.entry("payments", 0, 12)


@damage("sequence-gap")
def new_epoch_not_from_zero(story: Story) -> str:
    story.ledger.entry("payments", 0, story.ledger.batch("payments", 0, 5, 1, 3))
    return story.entry("payments", 0, 12)


@damage("sequence-repeated")
def batch_written_twice(story: Story) -> str:
    story.ledger.entry("payments", 0, story.ledger.batch("payments", 0, 5, 0, 2, count=1))
    return story.entry("payments", 0, 12)


@damage("sequence-missing")
def batch_without_sequences(story: Story) -> str:
    story.ledger.entry("payments", 0, story.ledger.batch("payments", 0, 5, 0, -1))
    return story.entry("payments", 0, 12)


@damage("plain-batch-in-transaction")
def plain_batch_in_a_transaction(story: Story) -> str:
    open_load(story)
    story.ledger.entry("payments", 0, story.ledger.batch("payments", 0, 0, 2, 3))
    return story.entry("payments", 0, 15)


@damage("plain-batch-in-transaction")
def transactional_batch_not_called_so(story: Story) -> str:
    """A transactional batch is marked as plain, so an abort would not undo it."""
    story.ledger.edit("payments", 1, 0, is_transactional=False)
    return story.entry("payments", 1, 0)


@damage("epoch-mixed", "hanging-transaction")
def batch_of_another_epoch_in_a_transaction(story: Story) -> str:
    open_load(story)
    story.ledger.entry("payments", 0, story.ledger.batch("payments", 0, 0, 3, 0, transactional=True))
    return story.entry("payments", 0, 15)


# --- markers and decisions --------------------------------------------------------------------------------


@damage("marker-against-decision")
def marker_of_the_wrong_kind(story: Story) -> str:
    story.ledger.edit("payments", 1, 3, control="abort")
    return story.entry("payments", 1, 3)


@damage("marker-without-decision", "decision-not-carried-out")
def marker_by_nobodys_authority(story: Story) -> str:
    story.ledger.edit("payments", 1, 3, coordinator_epoch=story.commit_row - 1)
    return story.entry("payments", 1, 3)


@damage("marker-of-another-epoch", "marker-epoch")
def marker_of_another_epoch(story: Story) -> str:
    story.ledger.edit("payments", 1, 3, producer_epoch=7)
    return story.entry("payments", 1, 3)


@damage("marker-outside-decision")
def marker_where_none_was_decided(story: Story) -> str:
    story.ledger.entry("balances", 0, marker(0, 1, "commit", story.commit_row))
    return story.entry("balances", 0, 3)


@damage("marker-epoch", "marker-fenced")
def marker_of_a_coordinator_that_woke_up_late(story: Story) -> str:
    open_load(story)
    story.ledger.entry("payments", 0, marker(0, 1, "commit", story.commit_row))
    return story.entry("payments", 0, 15)


@damage("decision-not-carried-out")
def offsets_committed_without_output(story: Story) -> str:
    story.ledger.store.delete(story.entry("balances", 0, 2))
    return "topics/balances/0/0/log/"


@damage("decision-overridden")
def decided_transaction_aborted_by_hand(story: Story) -> str:
    open_load(story)
    ledger = story.ledger
    ids = {"committed_run_ids": ["day-1"], "partitions": [("payments", 0, 0)]}
    ledger.entry("payments", 0, marker(0, 2, "abort", story.abort_row))
    prepared = ledger.transaction(LOAD, "PrepareCommit", 0, 3, **ids)
    ledger.entry("payments", 0, marker(0, 3, "commit", prepared))
    ledger.transaction(LOAD, "CompleteCommit", 0, 3, decision_offset=prepared, committed_run_ids=["day-1"])
    return story.entry("payments", 0, 15)


@damage("hanging-transaction")
def open_transaction_of_nobody(story: Story) -> str:
    story.ledger.entry("payments", 1, story.ledger.batch("payments", 1, 77, 0, 0, transactional=True))
    return "topics/payments/0/1/log/"


@damage("hanging-transaction")
def written_after_the_time_out(story: Story) -> str:
    """A stalled first write: its transaction was aborted while the writer slept."""
    story.ledger.entry("payments", 1, story.ledger.batch("payments", 1, 0, 1, 0, transactional=True))
    return "topics/payments/0/1/log/"


# --- the coordinator's log --------------------------------------------------------------------------------


@damage("state-move", "decision-not-carried-out")
def decision_changed(story: Story) -> str:
    """A committed transaction is completed as an abort."""
    ledger = story.ledger
    places = [("payments", 0, 1)]
    ledger.transaction(SUMS, "Ongoing", 1, 1, partitions=places)
    prepared = ledger.transaction(SUMS, "PrepareCommit", 1, 2, partitions=places)
    ledger.transaction(SUMS, "CompleteAbort", 1, 2, decision_offset=prepared)
    return story.entry("__transaction_state", story.sums_home, 6)


@damage("state-move")
def commit_without_a_transaction(story: Story) -> str:
    story.ledger.transaction(SUMS, "PrepareCommit", 1, 2)
    return story.entry("__transaction_state", story.sums_home, 4)


@damage("decision-offset")
def completion_of_another_decision(story: Story) -> str:
    ledger = story.ledger
    ledger.transaction(SUMS, "PrepareAbort", 1, 2)
    ledger.transaction(SUMS, "CompleteAbort", 1, 2, decision_offset=story.sums_row)
    return story.entry("__transaction_state", story.sums_home, 5)


@damage("transaction-epoch")
def end_without_an_epoch_bump(story: Story) -> str:
    ledger = story.ledger
    prepared = ledger.transaction(SUMS, "PrepareAbort", 1, 1)
    ledger.transaction(SUMS, "CompleteAbort", 1, 1, decision_offset=prepared)
    return story.entry("__transaction_state", story.sums_home, 4)


@damage("transaction-epoch")
def epoch_falling_at_the_coordinator(story: Story) -> str:
    story.ledger.transaction(SUMS, "Empty", 1, 0)
    return story.entry("__transaction_state", story.sums_home, 4)


@damage("transaction-producer")
def producer_changed_in_a_transaction(story: Story) -> str:
    story.ledger.transaction(SUMS, "Ongoing", 9, 1)
    return story.entry("__transaction_state", story.sums_home, 4)


@damage("transaction-partitions")
def partition_dropped_from_a_transaction(story: Story) -> str:
    ledger = story.ledger
    ledger.transaction(SUMS, "Ongoing", 1, 1, partitions=[("payments", 0, 1)])
    prepared = ledger.transaction(SUMS, "PrepareAbort", 1, 2)
    ledger.transaction(SUMS, "CompleteAbort", 1, 2, decision_offset=prepared)
    return story.entry("__transaction_state", story.sums_home, 5)


@damage("run-id-lost")
def run_id_lost(story: Story) -> str:
    story.ledger.transaction(LOAD, "Empty", 0, 3)
    return story.entry("__transaction_state", story.load_home, 8)


@damage("producer-id-shared")
def producer_id_of_two_ids(story: Story) -> str:
    story.ledger.transaction("another", "Empty", 1, 5)
    return story.entry("__transaction_state", story.sums_home, 0)  # the one read later


@damage("producer-id-reused")
def producer_id_given_out_again(story: Story) -> str:
    story.ledger.transaction(SUMS, "Dead", -1, -1)
    story.ledger.transaction(SUMS, "Empty", 1, 0)
    return story.entry("__transaction_state", story.sums_home, 5)


@damage("wrong-partition")
def transactional_id_in_another_partition(story: Story) -> str:
    ledger = story.ledger
    row = ledger.rows(story.entry("__transaction_state", story.sums_home, 0))[0]["transaction"]
    ledger.entry(
        "__transaction_state", 3, {"transaction": {**row, "transactional_id": "b", "producer_id": 8}}
    )
    return story.entry("__transaction_state", 3, 0)


# --- consumer groups --------------------------------------------------------------------------------------


@damage("offset-moved")
def overlapping_run_committed(story: Story) -> str:
    story.ledger.commit(GROUP, "payments", 0, 12, fetched_row=0)
    return story.entry("__consumer_offsets", story.group_home, 3)


@damage("offset-moved")
def overlapping_first_run_committed(story: Story) -> str:
    """A commit names no row as fetched, although the group's row was pending by then and is committed now."""
    story.ledger.commit(GROUP, "payments", 0, 12, fetched_row=-1, fetched_end=99)
    return story.entry("__consumer_offsets", story.group_home, 3)


@damage("offset-over-pending")
def commit_over_a_pending_one(story: Story) -> str:
    ledger = story.ledger
    places = [("__consumer_offsets", 0, story.group_home)]
    ledger.transaction(SUMS, "Ongoing", 1, 1, partitions=places)
    ledger.commit(GROUP, "payments", 0, 12, 1, 1)
    ledger.commit(GROUP, "payments", 0, 3)
    return story.entry("__consumer_offsets", story.group_home, 4)


@damage("wrong-partition")
def group_in_another_partition(story: Story) -> str:
    ledger = story.ledger
    row = ledger.rows(story.entry("__consumer_offsets", story.group_home, 2))[0]["offset_commit"]
    ledger.entry("__consumer_offsets", 3, {"offset_commit": {**row, "fetched_row": -2}})
    return story.entry("__consumer_offsets", 3, 0)


# --- snapshots ---------------------------------------------------------------------------------------------


@damage("snapshot-damaged")
def snapshot_with_a_changed_byte(story: Story) -> str:
    key = f"topics/payments/0/0/snapshots/{7:020d}.parquet"
    story.ledger.flip(key)
    return key


@damage("snapshot-differs")
def snapshot_of_another_log(story: Story) -> str:
    store = story.ledger.store
    key = f"topics/payments/0/0/snapshots/{7:020d}.parquet"
    store.put(key, store.get(f"topics/payments/0/0/snapshots/{12:020d}.parquet"))
    return key


@damage("snapshot-ahead")
def snapshot_ahead_of_the_log(story: Story) -> str:
    store = story.ledger.store
    key = f"topics/payments/0/0/snapshots/{500:020d}.parquet"
    store.put(key, store.get(f"topics/payments/0/0/snapshots/{12:020d}.parquet"))
    return key


@damage("snapshot-misplaced")
def snapshot_inside_an_entry(story: Story) -> str:
    store = story.ledger.store
    key = f"topics/payments/0/0/snapshots/{6:020d}.parquet"
    store.put(key, store.get(f"topics/payments/0/0/snapshots/{7:020d}.parquet"))
    return key


# --- the store's own objects ------------------------------------------------------------------------------


@damage("object-missing")
def store_object_missing(story: Story) -> str:
    story.ledger.store.delete("store.json")
    return "store.json"


@damage("object-damaged")
def store_object_with_a_changed_byte(story: Story) -> str:
    story.ledger.flip("store.json", 20)
    return "store.json"


@damage("object-missing")
def topic_object_missing(story: Story) -> str:
    story.ledger.store.delete("topics/balances/0.json")
    return "topics/balances/0.json"


@damage("object-damaged")
def topic_object_with_a_changed_byte(story: Story) -> str:
    story.ledger.flip("topics/payments/0.json", 20)
    return "topics/payments/0.json"


@damage("producer-id-block")
def producer_ids_claimed_twice(story: Story) -> str:
    story.ledger.block(1, first_producer_id=0)
    return f"producer_ids/{1:020d}.json"


@damage("producer-id-block")
def last_block_of_producer_ids_missing(story: Story) -> str:
    story.ledger.store.delete(f"producer_ids/{0:020d}.json")
    return f"producer_ids/{0:020d}.json"


@damage("object-misnamed")
def incarnation_far_behind_the_last(story: Story) -> str:
    key = "topics/payments/999999999.json"
    story.ledger.store.put(key, story.ledger.store.get("topics/payments/0.json"))
    return key


@damage("object-misnamed")
def partition_that_no_topic_has(story: Story) -> str:
    story.ledger.store.put("topics/payments/0/7/log/00000000000000000000.parquet", b"x")
    return "topics/payments/0/7/"


@pytest.mark.parametrize(("do", "codes"), every_kind())
def test_damage_is_named(do: Damage, codes: set[str]) -> None:
    """The object is named with the right code and what to do. Findings that only follow from it are not
    reported."""
    _TRIED.add(do)
    story = healthy()
    key = do(story)
    report = verify_store(story.ledger.store)
    errors = [finding for finding in report.findings if finding.severity == "error"]
    assert {finding.code for finding in errors} == codes, [str(finding) for finding in errors]
    assert key in {finding.object for finding in errors}, [str(finding) for finding in errors]
    assert not report.ok
    for finding in report.findings:
        assert all((finding.seen, finding.expected, finding.action))
        assert "\n" not in str(finding)
    _NAMED.add(do)


def test_enough_kinds_of_damage_are_tried() -> None:
    """Every code is the result of some damage in these tests, or of those that are listed here."""
    modules = (control_damage, cut_damage, key_damage, layout_damage, sealed_damage, table_damage)
    beside = {module.__name__ for module in modules}
    assert beside < {do.__module__ for _, do, _ in KINDS}
    tried = set().union(*(codes for _, _, codes in KINDS))
    elsewhere = {
        "transaction-timed-out",
        "transaction-pending",
        "offset-beyond-end",
        "object-foreign",
        "keys-not-listed",
        "table-elsewhere",  # of a store that was moved: tests/tables/test_iceberg.py
        "folder-in-the-way",  # on a disk only: tests/engine/test_damage_isolation.py
    }
    assert set(CODES) - tried - elsewhere == set()


ENTRY_STEPS, FILE_STEPS, SNAPSHOT_STEPS = (197, 198, 199, 200), (101, 107), (701,)
"""Every so many-th byte is changed, with an audit of the whole store behind each."""


def _every_byte(story: Story, key: str, code: str, step: int) -> None:
    ledger: Ledger = story.ledger
    whole = ledger.store.get(key)
    for at in range(0, len(whole), step):
        ledger.flip(key, at)
        report = verify_store(ledger.store)
        found = [finding for finding in report.findings if finding.object == key]
        assert [finding.code for finding in found] == [code], f"byte {at} of {key}: {codes_of(report)}"
        assert not report.ok
        ledger.store.put(key, whole)


@pytest.mark.parametrize("step", ENTRY_STEPS)
def test_any_byte_of_an_entry(step: int) -> None:
    """Whichever byte of an entry changes, the entry is named."""
    story = healthy()
    _every_byte(story, story.entry("payments", 1, [3, 0][step % 2]), "entry-damaged", step)


@pytest.mark.parametrize("step", FILE_STEPS)
def test_any_byte_of_a_data_file(step: int) -> None:
    """Whichever byte of a data file changes, the file is named."""
    story = healthy()
    _every_byte(story, story.path("payments/0/plain"), "data-file-damaged", step)


@pytest.mark.parametrize("step", SNAPSHOT_STEPS)
def test_any_byte_of_a_snapshot(step: int) -> None:
    """Whichever byte of a snapshot changes, the snapshot is named."""
    story = healthy()
    _every_byte(story, f"topics/payments/0/0/snapshots/{12:020d}.parquet", "snapshot-damaged", step)
