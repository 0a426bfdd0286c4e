"""Trim, expire, floor and rewrite on a store: what readers and snapshots see of them, and how they race
between engines."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Literal

import pyarrow as pa
import pytest

import txn_engine
from storage import encode_parquet, stored_checksum
from tests.engine.conftest import SCHEMA, payments
from tests.engine.sealing import entry_bases
from tests.support.refusals import refused
from tests.support.stores import accounts_in
from txn_engine import Engine, TopicPartition
from txn_engine.errors import (
    CorruptObjectError,
    InvalidRequestError,
    OffsetOutOfRangeError,
    UnsupportedFormatError,
)
from txn_engine.log.entry_format import entry_table
from txn_engine.log.entry_log import EntryLog
from txn_engine.log.snapshot_format import decode_snapshot, encode_snapshot
from txn_engine.maintain.merging import FileMerger
from txn_engine.protocol.batches import BatchDescriptor, FileRef
from txn_engine.protocol.controls import GRACE_MS
from txn_engine.protocol.file_names import DataFileName
from txn_engine.protocol.partition import LogFile
from txn_engine.protocol.proposals import (
    Appended,
    Duplicate,
    ExpireProposal,
    FloorProposal,
    Refused,
    RewriteProposal,
    TrimProposal,
)
from txn_engine.reasons import Reason
from txn_engine.testing import ManualClock

TP = TopicPartition("ledger", 0)


@pytest.fixture
def engine(url: str, clock: ManualClock) -> Iterator[Engine]:
    """`ledger`: accounts 0-2 at offsets 0-2, an aborted batch at 3-4 with its marker at 5, accounts 3, 4 at 6-7 with a
    marker at 8, 5 at 9.
    """
    with txn_engine.connect(url, clock=clock) as connected:
        connected.admin.create_topic("ledger", schema=SCHEMA)
        log = connected.partition("ledger", 0)
        log.append(payments(0, 1, 2), timestamp_ms=1_000)
        log.append(payments(90, 91), producer_id=1, producer_epoch=0, base_sequence=0, is_transactional=True)
        log.append_marker(producer_id=1, producer_epoch=1, committed=False, coordinator_epoch=0)
        two = {"producer_id": 2, "producer_epoch": 0, "base_sequence": 0}
        log.append(payments(3, 4), **two, is_transactional=True, timestamp_ms=2_000)
        log.append_marker(producer_id=2, producer_epoch=1, committed=True, coordinator_epoch=1)
        log.append(payments(5), timestamp_ms=3_000)
        yield connected


def log_of(engine: Engine) -> EntryLog:
    return engine.logs.get("ledger", 0, 0)


def merged(engine: Engine, *bases: int) -> RewriteProposal:
    """A rewrite that merges the live files at these offsets into one uploaded file."""
    log = log_of(engine)
    state = log.refresh()
    inputs = tuple(state.live[base] for base in bases)
    topic = engine.logs.topics.get("ledger")
    name = DataFileName(state.log_end_offset, -1, -1, engine.logs.tools.new_id())
    objects = engine.logs.tools.objects
    data = FileMerger(objects, engine.logs.tools.executor, topic, 0).merge(inputs, name.write_id).data
    objects.create(f"{log.keys.prefix}/{name.data_path}", data, max_bytes=len(data))
    output = LogFile(
        -1,
        -1,
        inputs[0].base_offset,
        inputs[-1].last_offset,
        sum(file.record_count for file in inputs),
        min(file.first_timestamp for file in inputs),
        max(file.max_timestamp for file in inputs),
        FileRef(name.data_path, len(data), stored_checksum(data)),
    )
    return RewriteProposal(inputs, (output,))


def rewrite(engine: Engine, *bases: int) -> None:
    verdict = log_of(engine).append([merged(engine, *bases)])[0]
    assert isinstance(verdict, Appended), verdict


def remove_dead(engine: Engine) -> None:
    """Delete dead files, as clean-up does once their grace period is over."""
    for path in log_of(engine).refresh().dead:
        engine.store.delete(f"{log_of(engine).keys.prefix}/{path}")


def offsets(table: pa.Table) -> list[int]:
    values: list[int] = table.column("_offset").to_pylist()
    return values


# --- reading a rewritten log ------------------------------------------------------------------------------


def test_a_rewritten_log_reads_as_before(engine: Engine) -> None:
    """The same records at the same offsets with the same times, from one file, once the old ones are gone."""
    before = engine.scan("ledger").to_table()
    rewrite(engine, 0, 6, 9)
    remove_dead(engine)
    scan = engine.scan("ledger")
    assert scan.to_table().equals(before)
    assert offsets(before) == [0, 1, 2, 6, 7, 9]
    (file,) = scan.files()
    assert (file.record_count, file.first_row, file.end_row) == (6, 0, 6)


@pytest.mark.parametrize(
    ("start", "end"), [(0, 2), (1, 7), (3, 10), (4, 6), (5, 8), (7, 9), (8, 10), (9, 10)]
)
def test_a_bound_inside_a_rewritten_file(engine: Engine, start: int, end: int) -> None:
    """Bounds are offsets, not rows: a bound in a gap cuts nothing away and adds nothing."""
    wanted = [offset for offset in [0, 1, 2, 6, 7, 9] if start <= offset < end]
    rewrite(engine, 0, 6, 9)
    scan = engine.scan("ledger", start={TP: start}, end={TP: end})
    assert offsets(scan.to_table()) == wanted
    assert offsets(engine.partition("ledger", 0).read(start, end=end)) == wanted
    for file in scan.files():
        whole = engine.scan("ledger").to_table()
        assert offsets(whole.slice(file.first_row, file.end_row - file.first_row)) == wanted
        inside = [offset for offset in offsets(whole) if file.start_offset <= offset < file.end_offset]
        assert inside == wanted


@pytest.mark.parametrize("step", [1, 2, 3, 4])
def test_a_consumer_goes_on_over_a_rewrite(engine: Engine, step: int) -> None:
    """Between two polls the file it is in is rewritten and deleted: every record once, in order."""
    consumer = engine.consumer()
    consumer.assign([TP])
    seen: list[int] = []
    table = consumer.poll(step)
    rewrite(engine, 0, 6)
    remove_dead(engine)
    while table is not None:
        seen += offsets(table)
        table = consumer.poll(step)
    assert seen == [0, 1, 2, 6, 7, 9]
    assert consumer.position(TP) == engine.partition("ledger", 0).high_watermark


def test_a_consumer_seeks_into_a_gap(engine: Engine) -> None:
    """A consumer that seeks to an offset in a gap gets the next record."""
    rewrite(engine, 0, 6, 9)
    consumer = engine.consumer()
    consumer.assign([TP])
    consumer.seek(TP, 4)
    table = consumer.poll()
    assert table is not None
    assert offsets(table) == [6, 7, 9]


@pytest.mark.parametrize(("time_ms", "offset"), [(1_000, 0), (1_001, 6), (2_500, 9), (3_001, None)])
def test_offsets_for_times_in_a_rewritten_file(engine: Engine, time_ms: int, offset: int | None) -> None:
    """Records keep their times."""
    rewrite(engine, 0, 6, 9)
    with engine.consumer() as consumer:
        assert consumer.offsets_for_times({TP: time_ms}) == {TP: offset}


def test_read_uncommitted_and_aborted_files(engine: Engine) -> None:
    """A read_uncommitted reader sees the records of aborted files until clean-up deletes the files, as in
    Kafka."""
    everything = [0, 1, 2, 3, 4, 90, 91, 5]
    assert accounts_in(engine, "ledger", "read_uncommitted") == sorted(everything)
    assert len(engine.scan("ledger", isolation_level="read_uncommitted").files()) == 4
    remove_dead(engine)
    assert accounts_in(engine, "ledger", "read_uncommitted") == [0, 1, 2, 3, 4, 5]
    assert engine.partition("ledger", 0).read(0, isolation_level="read_uncommitted").num_rows == 6
    consumer = engine.consumer(isolation_level="read_uncommitted")
    consumer.assign([TP])
    table = consumer.poll()
    assert table is not None
    assert offsets(table) == [0, 1, 2, 6, 7, 9]


def test_read_uncommitted_over_a_rewrite_around_an_aborted_file(engine: Engine) -> None:
    """Offsets ascend: a read_uncommitted reader no longer sees an aborted file that a rewritten file spans,
    as in a compacted log."""
    rewrite(engine, 0, 6)
    table = engine.scan("ledger", isolation_level="read_uncommitted").to_table()
    assert offsets(table) == [0, 1, 2, 6, 7, 9]


def test_a_reader_that_misses_a_file_says_which(engine: Engine) -> None:
    """A scan held for longer than the grace names the file and says to plan again."""
    scan = engine.scan("ledger")
    path = log_of(engine).view().live[0].file.data_path
    rewrite(engine, 0, 6)
    remove_dead(engine)
    with refused(CorruptObjectError, Reason.OBJECT_GONE) as raised:
        scan.to_table()
    assert str(raised.value.place).endswith(path)


def test_a_trimmed_log(engine: Engine) -> None:
    """Records below the start are out of range; a scan and a new consumer begin at the start."""
    log_of(engine).append_one(TrimProposal(6, 0))
    partition = engine.partition("ledger", 0)
    assert partition.log_start_offset == 6
    assert accounts_in(engine, "ledger") == [3, 4, 5]
    assert accounts_in(engine, "ledger", "read_uncommitted") == [3, 4, 5]
    with pytest.raises(OffsetOutOfRangeError):
        partition.read(5)
    assert partition.aborted_transactions(0, 100) == []
    consumer = engine.consumer()
    consumer.assign([TP])
    assert consumer.beginning_offsets([TP]) == {TP: 6}
    table = consumer.poll()
    assert table is not None
    assert offsets(table) == [6, 7, 9]


@pytest.mark.parametrize(("reset", "seen"), [("earliest", [6, 7, 9]), ("latest", None), ("none", "error")])
def test_a_consumer_that_retention_has_overtaken(
    engine: Engine,
    reset: Literal["earliest", "latest", "none"],
    seen: list[int] | str | None,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """If retention has removed the records at a consumer's position, auto_offset_reset decides where it goes
    on, as in Kafka. A warning names both offsets, once."""
    consumer = engine.consumer(auto_offset_reset=reset)
    consumer.assign([TP])
    consumer.seek(TP, 0)
    assert offsets(consumer.poll(1)) == [0]
    log_of(engine).append_one(TrimProposal(6, 0))
    if seen == "error":
        with pytest.raises(OffsetOutOfRangeError):
            consumer.poll()
        return
    table = consumer.poll()
    assert (None if table is None else offsets(table)) == seen
    consumer.poll()
    (warning,) = [each.getMessage() for each in caplog.records if each.levelname == "WARNING"]
    goes_on = 6 if reset == "earliest" else 11
    assert "a consumer at offset 1 of ledger-0, where the log begins at 6: 5 offsets were deleted" in warning
    assert f"goes on at {goes_on}" in warning


# --- snapshots --------------------------------------------------------------------------------------------


def all_controls(engine: Engine, clock: ManualClock) -> None:
    """Write two generations of rewrites, a trim, a floor that forgets, an expiry, an aborted transaction and
    an open one."""
    partition, log = engine.partition("ledger", 0), log_of(engine)
    rewrite(engine, 0, 6)
    rewrite(engine, 0, 9)
    log.append_one(FloorProposal(3))
    clock.advance(GRACE_MS)
    log.append_one(FloorProposal(5))
    partition.append(payments(6))
    log.append_one(TrimProposal(10, 0))
    log.append_one(ExpireProposal((1,), clock() - 1))
    for producer_id in (4, 3):
        batch = {"producer_id": producer_id, "producer_epoch": 0, "base_sequence": 0}
        partition.append(payments(7), **batch, is_transactional=True)
    partition.append_marker(producer_id=4, producer_epoch=1, committed=False, coordinator_epoch=0)


def test_a_snapshot_holds_what_the_controls_left(engine: Engine, clock: ManualClock) -> None:
    """A snapshot loads as the very state that the log has after rewrites, a floor, a trim and an expiry."""
    all_controls(engine, clock)
    state = log_of(engine).refresh()
    assert (state.floor, state.log_start_offset, set(state.producers)) == (5, 10, {2, 3, 4})
    assert {dead.status for dead in state.dead.values()} == {"aborted", "replaced"}
    at = log_of(engine).write_snapshot()
    key = log_of(engine).keys.snapshot(state.log_end_offset)
    assert at == state.log_end_offset
    data = engine.store.get(key)
    assert decode_snapshot(data, key=key) == state
    assert encode_snapshot(decode_snapshot(data, key=key)) == data


def test_replay_and_snapshot_agree(engine: Engine, url: str, clock: ManualClock) -> None:
    """An engine that replays every entry and one that starts from a snapshot in the middle hold the same state."""
    rewrite(engine, 0, 6)
    with txn_engine.connect(url, clock=clock) as replayed:
        replayed.logs.get("ledger", 0, 0).refresh()
        log_of(engine).write_snapshot()
        all_from = log_of(engine)
        all_from.append_one(FloorProposal(4))
        clock.advance(GRACE_MS)
        all_from.append_one(FloorProposal(9))
        all_from.append_one(TrimProposal(8, 0))
        with txn_engine.connect(url, clock=clock) as late:
            states = [each.partition("ledger", 0).state for each in (engine, replayed, late)]
    assert states[0] == states[1] == states[2]


def test_psm_18_a_late_transaction_survives_a_snapshot(engine: Engine, url: str, clock: ManualClock) -> None:
    """PSM-18: a late transaction is late for readers of the snapshot too, however old the records say they are."""
    partition = engine.partition("ledger", 0)
    batch = {"producer_id": 3, "producer_epoch": 0, "base_sequence": 0, "is_transactional": True}
    partition.append(payments(7), **batch, timestamp_ms=0)
    log_of(engine).write_snapshot()
    with txn_engine.connect(url, clock=clock) as late:
        state = late.partition("ledger", 0).state
    assert not state.has_late_transaction(clock(), 300_000)
    assert not state.has_late_transaction(clock() + 600_000, 300_000)
    assert state.has_late_transaction(clock() + 600_001, 300_000)


# --- races ------------------------------------------------------------------------------------------------


@pytest.fixture
def other(engine: Engine, url: str, clock: ManualClock) -> Iterator[Engine]:
    """Another engine, whose view of the log is the log as it is now."""
    with txn_engine.connect(url, clock=clock) as connected:
        log_of(connected).refresh()
        yield connected


def test_two_compactors(engine: Engine, other: Engine) -> None:
    """Both read the same files and upload; one rewrite wins, the other is refused at the slot it tries next."""
    mine, theirs = merged(engine, 0, 6), merged(other, 6, 9)
    assert isinstance(log_of(engine).append([mine])[0], Appended)
    lost = log_of(other).append([theirs])[0]
    assert isinstance(lost, Refused)
    assert isinstance(lost.error, InvalidRequestError)
    assert accounts_in(other, "ledger") == [0, 1, 2, 3, 4, 5]


def test_two_trims(engine: Engine, other: Engine) -> None:
    """A trim to a lower offset is refused, so the log's start never moves back."""
    log_of(engine).append_one(TrimProposal(6, 0))
    assert isinstance(log_of(other).append([TrimProposal(3, 0)])[0], Refused)
    assert log_of(other).append([TrimProposal(6, 0)])[0] == Duplicate(-1, -1)
    assert log_of(other).refresh().log_start_offset == 6


@pytest.mark.parametrize("first", ["rewrite", "trim"])
def test_a_rewrite_against_a_trim(engine: Engine, other: Engine, first: str) -> None:
    """If a rewrite and a trim race for a slot, the loser is judged by the state that the winner left."""
    rewriting, trim = merged(engine, 0, 6), TrimProposal(6, 0)
    order = (
        [(engine, rewriting), (other, trim)] if first == "rewrite" else [(other, trim), (engine, rewriting)]
    )
    verdicts = [log_of(each).append([proposal])[0] for each, proposal in order]
    assert isinstance(verdicts[0], Appended)
    assert isinstance(verdicts[1], Refused)
    expected = [0, 1, 2, 3, 4, 5] if first == "rewrite" else [3, 4, 5]
    assert accounts_in(engine, "ledger") == expected


def test_an_expiry_against_a_batch(engine: Engine, other: Engine, clock: ManualClock) -> None:
    """A producer that wrote after the sweep looked and before its expiry row is not expired."""
    idle_since = clock()
    clock.advance(1)
    engine.partition("ledger", 0).append(payments(8), producer_id=2, producer_epoch=1, base_sequence=0)
    assert isinstance(log_of(other).append([ExpireProposal((1, 2), idle_since)])[0], Appended)
    assert set(log_of(engine).refresh().producers) == {2}


def test_a_writer_that_slept_over_a_floor(engine: Engine, other: Engine) -> None:
    """The writer's file may be gone, so its batch is refused. Uploading the records again works."""
    for _ in range(2):
        engine.partition("ledger", 0).append(payments(8))
    log_of(engine).append_one(FloorProposal(11))
    slots = entry_bases(engine, log_of(engine))
    with refused(InvalidRequestError, Reason.FILE_BELOW_FLOOR):
        other.partition("ledger", 0).append(payments(9))
    assert entry_bases(engine, log_of(engine)) == slots
    other.partition("ledger", 0).append(payments(9))
    assert 9 in accounts_in(engine, "ledger")


# --- what is not known ------------------------------------------------------------------------------------


def test_an_unknown_control_kind_stops_the_engine(engine: Engine) -> None:
    """Readers and writers stop at a row of a later version and name it. They neither skip it nor guess what
    it means."""
    log = log_of(engine)
    end = log.refresh().log_end_offset
    table = entry_table(log.kind, [BatchDescriptor(end, end, 0)])
    at = table.schema.get_field_index("control")
    table = table.set_column(at, table.schema.field(at), pa.array(["merge"]))
    engine.store.put(
        log.keys.entry(end), encode_parquet(table, kind="entry", metadata={"write_id": "0" * 32})
    )
    for attempt in (log.refresh, lambda: log.append([FloorProposal(1)])):
        with refused(UnsupportedFormatError, Reason.UNKNOWN_CONTROL):
            attempt()


def test_a_file_that_was_forgotten_cannot_come_back(engine: Engine, clock: ManualClock) -> None:
    """An aborted file, forgotten by a floor, is refused by that floor under whatever identity it is named."""
    log = log_of(engine)
    (aborted,) = (dead.log_file for dead in log.refresh().dead.values())
    clock.advance(GRACE_MS)
    log.append_one(FloorProposal(9))
    assert aborted.file.data_path not in log.view().named
    proposal = merged(engine, 0)
    named = replace(proposal.outputs[0], file=aborted.file)
    assert isinstance(log.append([replace(proposal, outputs=(named,))])[0], Refused)
