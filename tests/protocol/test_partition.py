"""The partition leader's rules on the pure core. Scenario ids are those of Kafka's tests."""

from __future__ import annotations

import pytest

from tests.protocol.memory_log import Log, at, error
from txn_engine.errors import (
    InvalidProducerEpochError,
    InvalidRequestError,
    InvalidTxnStateError,
    OutOfOrderSequenceNumberError,
    TransactionCoordinatorFencedError,
)
from txn_engine.protocol.proposals import Duplicate, MarkerProposal, Refused

MAX = 2**31 - 1


def test_psm_01_sequences_have_no_gap() -> None:
    """PSM-01: sequence 0 and then 1 is accepted; a gap is OUT_OF_ORDER."""
    log = Log()
    assert at(log.data(1, 0, 0, transactional=False)) == (0, 0)
    assert at(log.data(1, 0, 1, transactional=False)) == (1, 1)
    assert error(log.data(1, 0, 5, transactional=False)) is OutOfOrderSequenceNumberError


def test_psm_02_an_old_epoch_is_refused() -> None:
    """PSM-02, LOG-02: after epoch 1 was seen, epoch 0 is INVALID_PRODUCER_EPOCH."""
    log = Log()
    log.data(1, 0, 0, transactional=False)
    assert at(log.data(1, 1, 0, transactional=False)) == (1, 1)
    assert error(log.data(1, 0, 0, transactional=False)) is InvalidProducerEpochError


def test_sequences_wrap() -> None:
    """PSM-04, PSM-06: after 2^31-1 comes 0, between batches and inside one."""
    log = Log()
    assert at(log.data(1, 15, MAX, transactional=False)) == (0, 0)
    assert at(log.data(1, 15, 0, transactional=False)) == (1, 1)
    other = Log()
    other.data(1, 0, MAX - 10, count=21, transactional=False)
    assert other.state.producers[1].last_sequence == 9
    assert at(other.data(1, 0, 10, transactional=False)) == (21, 21)


def test_psm_10_a_plain_batch_during_a_transaction() -> None:
    """PSM-10: a batch outside a transaction is INVALID_TXN_STATE while its producer has one open."""
    log = Log()
    log.data(1, 0, 0)
    assert error(log.data(1, 0, 1, transactional=False)) is InvalidTxnStateError


def test_psm_25_a_new_epoch_starts_at_zero() -> None:
    """PSM-25: a producer's first sequence in a new epoch has to be 0."""
    log = Log()
    for seq in range(3):
        log.data(1, 0, seq, transactional=False)
    assert error(log.data(1, 1, 5, transactional=False)) is OutOfOrderSequenceNumberError
    assert at(log.data(1, 1, 0, transactional=False)) == (3, 3)


def test_first_batches() -> None:
    """An unknown producer may begin with any sequence outside a transaction, and only with 0 inside one."""
    assert at(Log().data(1, 0, 7, transactional=False)) == (0, 0)
    assert error(Log().data(1, 0, 7)) is OutOfOrderSequenceNumberError


def test_five_batches_are_remembered() -> None:
    """A batch sent again returns its first offsets while it is among the last five; an older one is out of order."""
    log = Log()
    for seq in range(6):
        log.data(1, 0, seq, transactional=False)
    for seq in range(1, 6):
        assert log.data(1, 0, seq, transactional=False) == Duplicate(seq, seq)
    assert error(log.data(1, 0, 0, transactional=False)) is OutOfOrderSequenceNumberError
    assert error(log.data(1, 0, 4, count=2, transactional=False)) is OutOfOrderSequenceNumberError
    assert log.state.log_end_offset == 6


def test_psm_23_last_stable_offset_follows_the_earliest_open() -> None:
    """PSM-23: ending the third of three open transactions does not move the LSO past the second."""
    log = Log()
    log.plain(3)
    first = at(log.data(1, 0, 0, count=25))[0]
    second = at(log.data(2, 0, 0, count=32))[0]
    at(log.data(3, 0, 0, count=5))
    assert log.state.last_stable_offset == first
    log.marker(1, 1, committed=True)
    assert log.state.last_stable_offset == second
    log.marker(3, 1, committed=True)
    assert log.state.last_stable_offset == second
    end = at(log.marker(2, 1, committed=False))[0]
    assert log.state.last_stable_offset == end + 1 == log.state.high_watermark


def test_log_04_files_become_visible_or_dead_at_the_marker() -> None:
    """LOG-04: a commit makes the producer's files live, an abort makes them dead and fills the aborted index."""
    log = Log()
    log.data(1, 0, 0, count=5)
    log.plain(3)
    log.data(2, 0, 0, count=2)
    log.data(1, 0, 5, count=4)
    assert set(log.state.undecided) == {0, 8, 10}
    log.marker(1, 1, committed=True)
    assert (set(log.state.live), set(log.state.undecided)) == ({0, 5, 10}, {8})
    assert log.state.last_stable_offset == 8
    log.marker(2, 1, committed=False)
    assert not log.state.undecided
    assert [dead.log_file.base_offset for dead in log.state.dead.values()] == [8]
    (aborted,) = log.state.aborted.values()
    assert (aborted.producer_id, aborted.first_offset, aborted.last_offset) == (2, 8, 15)
    assert aborted.last_stable_offset == 16


def test_aborted_index_names_the_next_open_transaction() -> None:
    """An index entry's own last stable offset is the first offset of the next transaction still open."""
    log = Log()
    log.data(1, 0, 0)
    log.data(2, 0, 0)
    log.marker(1, 1, committed=False)
    (aborted,) = log.state.aborted.values()
    assert aborted.last_stable_offset == 1


def test_markers_of_transactions_v2() -> None:
    """A marker needs a higher epoch than the stored one. With the stored epoch and no open transaction it
    writes nothing."""
    log = Log()
    log.data(1, 5, 0)
    assert error(log.marker(1, 5, committed=True)) is InvalidProducerEpochError
    assert error(log.marker(1, 4, committed=True)) is InvalidProducerEpochError
    at(log.marker(1, 6, committed=True, coordinator_epoch=10))
    end = log.state.log_end_offset
    assert log.marker(1, 6, committed=True, coordinator_epoch=10) == Duplicate(-1, -1)
    assert log.state.log_end_offset == end
    assert error(log.marker(1, 7, committed=True, coordinator_epoch=9)) is TransactionCoordinatorFencedError


def test_a_fence_at_the_last_epoch_ends_what_is_open() -> None:
    """At epoch 32767 there is no higher one, so the fence's marker has that epoch and ends the transaction
    once (TM-09)."""
    log = Log()
    log.data(1, 32767, 0)
    at(log.marker(1, 32767, committed=False, coordinator_epoch=1))
    assert log.state.last_stable_offset == log.state.high_watermark
    assert log.marker(1, 32767, committed=False, coordinator_epoch=1) == Duplicate(-1, -1)


def test_a_zombie_cannot_write_behind_a_marker() -> None:
    """After the fence's marker a batch of the old epoch is INVALID_PRODUCER_EPOCH, even if that producer
    never wrote to the partition."""
    log = Log()
    at(log.marker(1, 6, committed=False, coordinator_epoch=3))
    assert error(log.data(1, 5, 0)) is InvalidProducerEpochError
    assert not log.state.aborted


def test_a_batch_of_another_epoch_than_the_open_transaction() -> None:
    """A newer epoch cannot write into a transaction that no marker has ended."""
    log = Log()
    log.data(1, 0, 0)
    assert error(log.data(1, 1, 0)) is InvalidTxnStateError


def test_illegal_proposals_do_not_block_the_rest() -> None:
    """Legality is judged per descriptor: one illegal marker is left out, the other ninety-nine are written."""
    log = Log()
    for pid in range(100):
        log.data(pid, 0, 0)
    end = log.state.log_end_offset
    markers = [
        MarkerProposal(pid, 0 if pid == 50 else 1, committed=True, coordinator_epoch=0) for pid in range(100)
    ]
    verdicts = log.append(*markers)
    assert [pid for pid, verdict in enumerate(verdicts) if isinstance(verdict, Refused)] == [50]
    assert log.state.log_end_offset == end + 99


def test_one_file_one_fate() -> None:
    """A batch cannot name a file that another producer, or this one at another epoch, has uploaded."""
    assert error(Log().data(1, 1, 0, named=(1, 0))) is InvalidRequestError
    assert error(Log().data(1, 1, 0, named=(2, 1))) is InvalidRequestError


def test_append_time_never_falls() -> None:
    """If a writer's clock is slow, its entry gets the time of the entry before it."""
    log = Log()
    log.plain()
    log.now = 500
    log.plain()
    assert log.state.last_append_time == 1_000


def test_operator_abort_is_for_the_transaction_looked_at() -> None:
    """An operator's abort takes the stored epoch, and is accepted only while the same transaction is open
    from the same offset."""
    log = Log()
    log.plain()
    log.data(1, 3, 0)
    assert error(log.marker(1, 3, committed=False, operator_start_offset=0)) is InvalidTxnStateError
    assert error(log.marker(1, 4, committed=False, operator_start_offset=1)) is InvalidProducerEpochError
    at(log.marker(1, 3, committed=False, operator_start_offset=1))
    assert log.state.last_stable_offset == log.state.high_watermark
    assert error(log.marker(1, 3, committed=False, operator_start_offset=1)) is InvalidTxnStateError


@pytest.mark.parametrize("identity", [(1, -1, 0), (1, 0, -1), (-1, 0, 0)])
def test_incomplete_identities_are_refused(identity: tuple[int, int, int]) -> None:
    """A batch has to have producer id, epoch and sequence, or none of them."""
    assert error(Log().data(*identity, transactional=False)) is InvalidRequestError
