"""The partition leader's rules follow ProducerStateManagerTest, and the sequence and marker tables of it.

The tests drive them through `Engine.partition`. Three things have no public way in, so their tests use the
pure core and say so: what replay takes that a leader would refuse (Kafka's appends by a follower), a check
without the look-up for duplicates, and a plan that is not written.
"""

from __future__ import annotations

from itertools import product

import pytest

import txn_engine
from tests.kafka_rules.driver import MAX_EPOCH, MAX_SEQUENCE, T0, TOPIC, Partition, answer, records
from txn_engine import Engine, OffsetAndMetadata, TopicPartition
from txn_engine.errors import TxnEngineError
from txn_engine.protocol.appends import plan_entry
from txn_engine.protocol.batches import BatchDescriptor, FileRef
from txn_engine.protocol.partition import PartitionState
from txn_engine.protocol.producers import check_data
from txn_engine.protocol.proposals import DataProposal
from txn_engine.protocol.replay import apply
from txn_engine.testing import ManualClock

EPOCH, SEQUENCE, STATE = "INVALID_PRODUCER_EPOCH", "OUT_OF_ORDER_SEQUENCE_NUMBER", "INVALID_TXN_STATE"
FENCED = "TRANSACTION_COORDINATOR_FENCED"


def replayed(
    state: PartitionState, pid: int, epoch: int, seq: int, *, count: int = 1, transactional: bool = False
) -> PartitionState:
    """The state after a batch that is already in the log. Replay here does what a follower does in Kafka."""
    base = state.log_end_offset
    file = FileRef(f"data/{base:020d}-p{pid}-e{epoch}-{base:032x}.parquet", 1, "c" * 32)
    batch = BatchDescriptor(
        base_offset=base,
        last_offset=base + count - 1,
        append_time=1_000,
        producer_id=pid,
        producer_epoch=epoch,
        base_sequence=seq,
        is_transactional=transactional,
        record_count=count,
        file=file,
    )
    return apply(state, batch)


# --- sequences --------------------------------------------------------------------------------------------


def test_psm_01_sequences_follow_each_other(log: Partition) -> None:
    """PSM-01: a sequence 1 after 0 is accepted. A batch that overlaps without being the same one, or that
    skips, is out of order."""
    assert log.client(1, 0, 0) == (0, 0)
    assert log.client(1, 0, 1) == (1, 1)
    assert log.client(1, 0, 1, count=2) == SEQUENCE  # not the batch that stands there: no duplicate
    assert log.client(1, 0, 5) == SEQUENCE
    assert log.end == 2


def test_psm_01_without_the_look_up_for_duplicates() -> None:
    """PSM-01 on the pure core: the check alone, like Kafka's state manager, refuses a repeated sequence
    too."""
    state = replayed(replayed(PartitionState(), 1, 0, 0), 1, 0, 1)
    for sequence in (1, 5):
        with pytest.raises(TxnEngineError) as refused:
            check_data(
                state.producers.get(1),
                producer_id=1,
                producer_epoch=0,
                base_sequence=sequence,
                is_transactional=False,
                is_coordinator=False,
            )
        assert refused.value.code == SEQUENCE


def test_psm_02_an_older_epoch_is_refused(log: Partition) -> None:
    """PSM-02: a later epoch takes over from sequence 0, and the older one is refused from then on."""
    log.client(1, 0, 0)
    log.client(1, 0, 1)
    assert log.client(1, 1, 0) == (2, 2)
    assert log.client(1, 0, 0) == EPOCH
    assert log.client(1, 0, 2) == EPOCH


def test_psm_04_sequences_wrap_around(log: Partition) -> None:
    """PSM-04: after 2147483647 the next sequence is 0, in the same epoch."""
    log.plain(735)
    assert log.client(1, 15, MAX_SEQUENCE) == (735, 735)
    log.plain(499)
    assert log.client(1, 15, 0) == (1235, 1235)
    state = log.producer(1)
    assert state is not None
    assert (state.producer_epoch, state.last_sequence) == (15, 0)
    entry = log.log.state.producers[1]
    assert (entry.batches[0].base_sequence, entry.batches[-1].last_sequence) == (MAX_SEQUENCE, 0)


def test_psm_06_a_batch_may_wrap_inside(log: Partition) -> None:
    """PSM-06: a batch from 2^31-11 on of 21 records ends at sequence 9, and the next one begins at 10."""
    log.plain(2_000)
    assert log.client(1, 0, MAX_SEQUENCE - 10, count=21) == (2_000, 2_020)
    (batch,) = log.log.state.producers[1].batches
    assert (batch.base_sequence, batch.last_sequence) == (MAX_SEQUENCE - 10, 9)
    assert (batch.base_offset, batch.last_offset) == (2_000, 2_020)
    assert log.client(1, 0, MAX_SEQUENCE - 10, count=21) == (2_000, 2_020)  # and is known again
    assert log.client(1, 0, 9) == SEQUENCE
    assert log.client(1, 0, 10) == (2_021, 2_021)


def test_wrapping_early_is_a_gap(log: Partition) -> None:
    """Only after 2147483647 itself comes 0. One sequence earlier, 0 is out of order
    (testProducerSequenceInvalidWrapAround)."""
    log.client(1, 0, MAX_SEQUENCE - 1)
    assert log.client(1, 0, 0) == SEQUENCE
    assert log.client(1, 0, MAX_SEQUENCE) == (1, 1)
    assert log.client(1, 0, 0) == (2, 2)


def test_psm_07_the_first_batch_of_an_unknown_producer(log: Partition) -> None:
    """PSM-07: outside a transaction any first sequence is accepted, and the entry is exactly that batch."""
    log.plain(735)
    assert log.client(1, 5, 16) == (735, 735)
    state = log.producer(1)
    assert state is not None
    assert (state.producer_epoch, state.last_sequence, state.current_transaction_start_offset) == (5, 16, -1)
    assert [batch.base_sequence for batch in log.log.state.producers[1].batches] == [16]


def test_psm_07_replay_takes_any_first_sequence() -> None:
    """PSM-07 on the pure core: replay takes the log as it is, even a transaction's first batch at sequence
    16."""
    state = replayed(PartitionState(), 1, 5, 16, transactional=True)
    entry = state.producers[1]
    assert (entry.producer_epoch, entry.last_sequence, entry.open_first_offset) == (5, 16, 0)


@pytest.mark.parametrize("transactional", [False, True], ids=["plain", "transactional"])
def test_first_sequences(log: Partition, transactional: bool) -> None:
    """Rules 2 and 5: an unknown producer may begin at any sequence outside a transaction, and only at 0
    inside one."""
    assert log.client(1, 0, 7, transactional=transactional) == (SEQUENCE if transactional else (0, 0))
    assert isinstance(log.client(2, 0, 0, transactional=transactional), tuple)


def test_a_first_batch_after_a_marker(log: Partition) -> None:
    """Rules 2 and 3: a marker leaves an epoch and no batches. The next batch begins at 0, at that epoch or a
    later one."""
    log.transactional(1, 0, 0)
    assert log.commit(1, 1) == 1
    assert log.transactional(1, 1, 3) == SEQUENCE
    assert log.client(1, 1, 3) == SEQUENCE
    assert log.client(1, 2, 3) == SEQUENCE
    assert log.client(1, 0, 1) == EPOCH
    assert log.transactional(1, 1, 0) == (2, 2)


def test_psm_25_a_new_epoch_begins_at_zero(log: Partition) -> None:
    """PSM-25: after a bump, sequence 5 is out of order, and 0 is accepted."""
    for sequence in range(3):
        log.client(1, 0, sequence)
    assert log.client(1, 1, 5) == SEQUENCE
    assert log.client(1, 1, 0) == (3, 3)


def test_psm_20_a_gap_is_refused(log: Partition) -> None:
    """PSM-20: a client's gap is refused and leaves nothing. Replay accepts it."""
    log.client(1, 0, 0)
    assert log.client(1, 0, 3) == SEQUENCE
    state = log.producer(1)
    assert state is not None
    assert state.last_sequence == 0
    after = replayed(replayed(PartitionState(), 1, 0, 0), 1, 0, 3)
    assert after.producers[1].last_sequence == 3


# epoch and sequence of a batch after `1/3/0..4` (one open transaction or none) -> what the leader says
SEQUENCES = [
    (2, 0, EPOCH),
    (2, 5, EPOCH),
    (3, 5, "taken"),
    (3, 6, SEQUENCE),
    (3, 4, "duplicate"),
    (3, 0, "duplicate"),
    (4, 0, "new epoch"),
    (4, 5, SEQUENCE),
    (MAX_EPOCH, 0, "new epoch"),
]


@pytest.mark.parametrize(("open_transaction", "case"), list(product([False, True], SEQUENCES)))
def test_every_sequence_rule(engine: Engine, open_transaction: bool, case: tuple[int, int, str]) -> None:
    """Rules 1 to 4 hold after five batches, outside and inside a transaction. One cell is stricter than in
    Kafka: a new epoch waits for the marker of the old one's open transaction."""
    epoch, sequence, expected = case
    log = Partition(engine.partition(TOPIC, 0))
    for number in range(5):
        log.client(1, 3, number, transactional=open_transaction)
    found = log.client(1, epoch, sequence, transactional=open_transaction)
    if expected == "duplicate":
        assert found == (sequence, sequence)
    elif expected == "new epoch" and open_transaction:
        assert found == STATE
    else:
        assert found == ((5, 5) if expected in ("taken", "new epoch") else expected)
    assert log.end == (6 if found == (5, 5) else 5)


# --- the last five batches --------------------------------------------------------------------------------


def test_the_fifth_last_batch_is_known_and_the_sixth_is_not(log: Partition) -> None:
    """The window is exactly five batches. The fifth last batch, sent again, returns its offsets, and the
    sixth last is out of order."""
    for number in range(6):
        assert log.client(1, 0, 2 * number, count=2) == (2 * number, 2 * number + 1)
    assert log.client(1, 0, 2, count=2) == (2, 3)
    assert log.client(1, 0, 0, count=2) == SEQUENCE
    assert log.end == 12


@pytest.mark.parametrize(
    ("sequence", "count", "expected"),
    [(0, 3, (0, 2)), (3, 2, (3, 4)), (0, 2, SEQUENCE), (0, 5, SEQUENCE), (1, 2, SEQUENCE), (3, 1, SEQUENCE)],
)
def test_a_duplicate_is_the_same_batch(
    log: Partition, sequence: int, count: int, expected: tuple[int, int] | str
) -> None:
    """A duplicate has the first and last sequence of a remembered batch. A part of a batch, or two at once,
    are out of order."""
    log.client(1, 0, 0, count=3)
    log.client(1, 0, 3, count=2)
    assert log.client(1, 0, sequence, count=count) == expected


def test_a_duplicate_is_known_before_anything_is_checked(log: Partition) -> None:
    """The look-up comes first. A repeated plain batch is answered even while the producer has a transaction
    open, and one of an older epoch is not looked up."""
    log.client(1, 0, 0)
    log.transactional(1, 0, 1)
    assert log.client(1, 0, 0) == (0, 0)
    assert log.client(1, 0, 2) == STATE
    log.abort(1, 1)
    assert log.client(1, 0, 0) == EPOCH


def test_the_window_wraps_with_the_sequences(log: Partition) -> None:
    """A batch across the wrap is found again by its first and last sequence."""
    log.client(1, 0, MAX_SEQUENCE - 2, count=2)
    assert log.client(1, 0, MAX_SEQUENCE, count=3) == (2, 4)
    assert log.client(1, 0, MAX_SEQUENCE, count=3) == (2, 4)
    assert log.client(1, 0, 1, count=1) == SEQUENCE
    assert log.client(1, 0, 2, count=1) == (5, 5)


def test_a_new_epoch_forgets_the_batches(log: Partition) -> None:
    """The window belongs to one epoch, so sequence 0 of the next one is a new batch, not a duplicate."""
    log.client(1, 0, 0)
    assert log.client(1, 1, 0) == (1, 1)
    assert log.client(1, 1, 0) == (1, 1)


def test_log_03_replay_takes_repeated_sequences() -> None:
    """LOG-03 on the pure core: a batch that is in a log twice is replayed twice, and the end moves on each
    time."""
    state = PartitionState()
    for _ in range(3):
        state = replayed(state, 1, 0, 0)
    assert state.log_end_offset == 3


# --- transactions -----------------------------------------------------------------------------------------


def test_psm_10_a_plain_batch_inside_a_transaction(log: Partition) -> None:
    """PSM-10: while its transaction is open, a producer may not write outside it."""
    log.transactional(1, 0, 0)
    assert log.client(1, 0, 1) == STATE
    assert log.transactional(1, 0, 1) == (1, 1)


def test_psm_12_a_plan_changes_nothing() -> None:
    """PSM-12 on the pure core: a plan that is not written leaves the state as it was. The plan holds the next
    state."""

    def proposal(sequence: int, count: int) -> DataProposal:
        file = FileRef(f"data/{0:020d}-p1-e0-{sequence:032x}.parquet", 1, "c" * 32)
        return DataProposal(count, 1, 1, file, 1, 0, sequence, True)

    empty = replayed(PartitionState(), -1, -1, -1, count=15)
    first = plan_entry(empty, [proposal(0, 6)], 1_000)
    assert 1 not in empty.producers
    second = plan_entry(first.state, [proposal(6, 5)], 1_000)
    (kept,) = first.state.producers[1].batches
    assert (kept.last_sequence, kept.last_offset) == (5, 20)
    entry = second.state.producers[1]
    assert (entry.batches[0].base_sequence, entry.last_sequence) == (0, 10)
    assert entry.open_first_offset == 15


def test_psm_13_the_first_unstable_offset(log: Partition) -> None:
    """PSM-13: the earliest open transaction holds the last stable offset back. Without an open one it is the
    end."""
    log.plain(99)
    assert log.transactional(1, 5, 0) == (99, 99)
    log.plain(5)
    assert log.transactional(2, 5, 0) == (105, 105)
    log.plain(3)
    assert log.stable == 99
    assert log.commit(1, 6) == 109
    assert log.stable == 105
    log.plain(2)
    assert log.abort(2, 6) == 112
    assert log.stable == log.end == 113


def test_psm_23_the_earliest_of_three_open_transactions(log: Partition) -> None:
    """PSM-23: three transactions end in the order first, third, second, and only the earliest open one
    counts."""
    log.transactional(1, 0, 0, count=25)
    log.transactional(2, 0, 0, count=32)
    log.transactional(3, 0, 0)
    assert log.stable == 0
    log.commit(1, 1)
    assert log.stable == 25
    log.commit(3, 1)
    assert log.stable == 25
    marker = log.commit(2, 1)
    assert isinstance(marker, int)
    assert log.stable == marker + 1 == log.end


def test_psm_26_offset_commits_have_no_sequence(engine: Engine) -> None:
    """PSM-26: a group's offsets in a transaction carry no sequence, and may be sent twice in it. Epochs are
    checked."""
    engine.partition(TOPIC, 0).append(records(count=200))
    consumer = engine.consumer(group_id="g")
    consumer.assign([T0])
    consumer.poll(max_records=100)
    producer = engine.producer(transactional_id="offsets")
    producer.init_transactions()
    producer.begin_transaction()
    for offset in (99, 100):
        producer.send_offsets_to_transaction({T0: OffsetAndMetadata(offset)}, consumer.group_metadata())
    producer.commit_transaction()
    assert engine.consumer(group_id="g").committed([T0]) == {T0: OffsetAndMetadata(100)}
    partition = engine.logs.group_partition("g")
    (state,) = engine.partition("__consumer_offsets", partition.partition).producers()
    assert (state.producer_id, state.last_sequence) == (producer.producer_id, -1)


# --- markers ----------------------------------------------------------------------------------------------


def test_a_marker_of_an_unknown_producer(log: Partition) -> None:
    """testAppendTxnMarkerWithNoProducerState: the marker is accepted, and leaves its epoch, no completed
    transaction and no index entry."""
    assert log.abort(9, 2, coordinator_epoch=7) == 0
    state = log.producer(9)
    assert state is not None
    assert (state.producer_epoch, state.coordinator_epoch, state.last_sequence) == (2, 7, -1)
    assert state.current_transaction_start_offset == -1
    assert log.log.aborted_transactions(0, 10) == []
    assert log.client(9, 1, 0) == EPOCH


# marker's epoch against the stored 5, open or not -> what the leader says under transactions V2 (KAFKA-19999)
MARKERS = [
    (4, False, EPOCH),
    (4, True, EPOCH),
    (5, False, "nothing to write"),
    (5, True, EPOCH),
    (6, False, "written"),
    (6, True, "written"),
    (9, False, "written"),
    (9, True, "written"),
]


@pytest.mark.parametrize("committed", [True, False], ids=["commit", "abort"])
@pytest.mark.parametrize(("epoch", "is_open", "expected"), MARKERS)
def test_every_marker_rule(engine: Engine, epoch: int, is_open: bool, expected: str, committed: bool) -> None:
    """A marker below the stored epoch is refused, and one above it is written. At the epoch it succeeds, and
    writes nothing unless a transaction is open."""
    log = Partition(engine.partition(TOPIC, 0))
    log.client(1, 5, 0, transactional=is_open)
    found = log.marker(1, epoch, committed=committed)
    assert found == {"written": 1, "nothing to write": -1}.get(expected, expected)
    state = log.producer(1)
    assert state is not None
    assert state.producer_epoch == (epoch if expected == "written" else 5)
    assert state.current_transaction_start_offset == (-1 if expected == "written" or not is_open else 0)
    completed = expected == "written" and is_open and not committed
    assert len(log.log.aborted_transactions(0, 10)) == completed


# coordinator epoch against the stored 8, at a marker's epoch above or at the stored one
FENCING = [
    (7, 6, FENCED),
    (8, 6, 3),
    (9, 6, 3),
    (7, 5, FENCED),
    (8, 5, -1),
    (9, 5, -1),
    (7, 4, EPOCH),  # the producer's epoch is looked at first
    (9, 4, EPOCH),
]


@pytest.mark.parametrize(("coordinator_epoch", "epoch", "expected"), FENCING)
def test_coordinator_fencing(log: Partition, coordinator_epoch: int, epoch: int, expected: int | str) -> None:
    """testCoordinatorFencing: a decision older than the one that the partition has seen is
    TRANSACTION_COORDINATOR_FENCED. The producer's epoch is checked first."""
    log.transactional(1, 4, 0)
    assert log.abort(1, 5, coordinator_epoch=8) == 1
    log.plain()
    assert log.abort(1, epoch, coordinator_epoch) == expected


def test_coordinator_fencing_survives_a_snapshot(engine: Engine, url: str, clock: ManualClock) -> None:
    """testCoordinatorFencedAfterReload: the coordinator epoch is part of the snapshot."""
    log = Partition(engine.partition(TOPIC, 0))
    log.transactional(1, 0, 0)
    log.abort(1, 1, coordinator_epoch=99)
    assert engine.admin.snapshot(TOPIC, 0) == {T0: 2}
    with txn_engine.connect(url, clock=clock) as other:
        assert Partition(other.partition(TOPIC, 0)).abort(1, 2, coordinator_epoch=98) == FENCED


def test_a_control_record_bumps_the_epoch(log: Partition) -> None:
    """testControlRecordBumpsProducerEpoch, testOutOfSequenceAfterControlRecordEpochBump: after a marker of a higher
    epoch the sequences begin at 0 again.
    """
    for number in range(2):
        log.transactional(1, 0, number)
    log.commit(1, 1)
    assert log.transactional(1, 1, 2) == SEQUENCE
    assert log.transactional(1, 1, 0) == (3, 3)
    assert log.transactional(1, 1, 1) == (4, 4)


def test_a_fencing_abort_shuts_the_zombie_out(log: Partition) -> None:
    """testProducerStateAfterFencingAbortMarker: the abort of a fence ends the open transaction, and refuses
    the old epoch from then on."""
    log.transactional(1, 0, 0)
    log.abort(1, 1)
    state = log.producer(1)
    assert state is not None
    assert (state.producer_epoch, state.current_transaction_start_offset) == (1, -1)
    assert log.transactional(1, 0, 1) == EPOCH
    assert log.stable == log.end


def test_the_last_epoch_is_ended_once(log: Partition) -> None:
    """Beyond Kafka: no epoch is above 32767, so a transaction that is open there is ended at that epoch, by a
    later decision only."""
    log.transactional(1, MAX_EPOCH, 0)
    assert log.abort(1, MAX_EPOCH, coordinator_epoch=4) == 1
    assert log.abort(1, MAX_EPOCH, coordinator_epoch=4) == -1
    assert log.transactional(1, MAX_EPOCH, 1) == (2, 2)
    assert log.abort(1, MAX_EPOCH, coordinator_epoch=4) == EPOCH
    assert log.abort(1, MAX_EPOCH, coordinator_epoch=5) == 3


# --- shapes -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "identity",
    [
        (1, -1, -1),
        (1, 0, -1),
        (-1, 0, 0),
        (-1, -1, 0),
        (1, -1, 0),
        (1, MAX_EPOCH + 1, 0),
        (1, 0, MAX_SEQUENCE + 1),
    ],
)
def test_incomplete_or_impossible_identities(log: Partition, identity: tuple[int, int, int]) -> None:
    """Producer id, epoch and sequence come together or not at all, and within their ranges."""
    assert log.client(*identity) == "INVALID_REQUEST"
    assert log.end == 0


def test_a_transaction_needs_a_producer(log: Partition) -> None:
    """A transactional batch without a producer is refused, and so is an empty batch."""
    assert log.client(-1, -1, -1, transactional=True) == "INVALID_REQUEST"
    assert answer(lambda: log.log.append(records())) == "INVALID_RECORD"
    assert log.end == 0


# --- snapshots --------------------------------------------------------------------------------------------


def test_psm_21_a_snapshot_of_the_same_offset_is_written_once(engine: Engine) -> None:
    """PSM-21: a second snapshot without new records writes nothing."""
    log = Partition(engine.partition(TOPIC, 0))
    log.client(1, 0, 0)
    log.client(1, 0, 1)
    assert engine.admin.snapshot(TOPIC, 0) == {T0: 2}
    assert engine.admin.snapshot(TOPIC, 0) == {}
    assert len(snapshots(engine)) == 1
    log.client(1, 0, 2)
    assert engine.admin.snapshot(TOPIC, 0) == {T0: 3}
    assert len(snapshots(engine)) == 2


def snapshots(engine: Engine) -> list[str]:
    return [
        info.key for info in engine.store.list("") if "/snapshots/" in info.key and f"/{TOPIC}/" in info.key
    ]


@pytest.mark.parametrize("damage", ["empty", "half", "garbled", "other"])
def test_psm_21_a_damaged_snapshot_is_passed_over(
    engine: Engine, url: str, clock: ManualClock, damage: str
) -> None:
    """PSM-21: if the newest snapshot is empty, cut, garbled or another partition's, the reader falls back to
    the one before and replays. Unlike Kafka it deletes nothing."""
    log = Partition(engine.partition(TOPIC, 0))
    log.transactional(1, 0, 0)
    engine.admin.snapshot(TOPIC, 0)
    log.transactional(1, 0, 1)
    engine.admin.snapshot(TOPIC, 0)
    log.client(2, 0, 0)
    older, newest = snapshots(engine)
    sound = engine.store.get(newest)
    engine.store.put(
        newest,
        {
            "empty": b"",
            "half": sound[: len(sound) // 2],
            "garbled": sound[:40] + bytes([sound[40] ^ 1]) + sound[41:],
            "other": engine.store.get(older),
        }[damage],
    )
    with txn_engine.connect(url, clock=clock) as other:
        again = Partition(other.partition(TOPIC, 0))
        assert again.transactional(1, 0, 1) == (1, 1)  # a duplicate: the replay knows it
        assert (again.stable, again.end) == (0, 3)
        assert [state.producer_id for state in again.log.producers()] == [1, 2]
    assert snapshots(engine) == [older, newest]


def test_unfinished_transactions_live_in_the_snapshot(engine: Engine, url: str, clock: ManualClock) -> None:
    """testRecoverFromSnapshot*Transaction: open, finished and empty transactions are the same after a reload."""
    log = Partition(engine.partition(TOPIC, 0))
    log.transactional(1, 0, 0)
    log.transactional(2, 0, 0)
    log.commit(2, 1)
    log.abort(3, 4)
    log.transactional(4, 0, 0)
    log.abort(4, 1)
    engine.admin.snapshot(TOPIC, 0)
    with txn_engine.connect(url, clock=clock) as other:
        again = Partition(other.partition(TOPIC, 0))
        assert again.log.state == log.log.state
        assert again.log.producers() == log.log.producers()
        assert again.stable == 0
        assert again.commit(1, 1) == 6
        assert again.stable == 7
        assert again.offsets() == [0, 1]


def test_entries_are_one_a_partition(engine: Engine) -> None:
    """A producer's state in one partition says nothing about another's."""
    first, second = (Partition(engine.partition(TOPIC, number)) for number in (0, 1))
    first.transactional(1, 3, 0)
    assert second.transactional(1, 2, 0) == (0, 0)
    assert first.abort(1, 4) == 1
    assert second.transactional(1, 2, 1) == (1, 1)
    assert TopicPartition(TOPIC, 1) not in engine.admin.snapshot(TOPIC, 0)
