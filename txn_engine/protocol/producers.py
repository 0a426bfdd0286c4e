"""What a partition remembers of one producer, and the sequence rules (`ProducerStateEntry`, `ProducerAppendInfo`)."""

from __future__ import annotations

from dataclasses import dataclass, replace

from txn_engine.errors import (
    InvalidProducerEpochError,
    InvalidTxnStateError,
    OutOfOrderSequenceNumberError,
    TransactionCoordinatorFencedError,
)
from txn_engine.protocol.sequences import NO_SEQUENCE, in_sequence, last_sequence

BATCHES_TO_RETAIN = 5
MAX_EPOCH = 2**15 - 1


@dataclass(frozen=True, slots=True)
class BatchMetadata:
    """One of the last five batches of a producer, for recognising it when it comes again."""

    base_sequence: int
    last_sequence: int
    base_offset: int
    last_offset: int
    timestamp: int


@dataclass(frozen=True, slots=True)
class ProducerEntry:
    """A producer as one partition knows it. `append_time`: the log's time at its last batch or marker."""

    producer_id: int
    producer_epoch: int
    coordinator_epoch: int = -1
    last_timestamp: int = -1
    append_time: int = -1
    open_first_offset: int = -1
    batches: tuple[BatchMetadata, ...] = ()

    @property
    def last_sequence(self) -> int:
        """The sequence that the next batch has to follow; -1 for none."""
        return self.batches[-1].last_sequence if self.batches else NO_SEQUENCE

    @property
    def is_open(self) -> bool:
        """Whether a transaction is open here."""
        return self.open_first_offset >= 0

    def find_duplicate(
        self, producer_epoch: int, base_sequence: int, record_count: int
    ) -> BatchMetadata | None:
        """The batch with exactly these sequences at this epoch among the last five."""
        if producer_epoch != self.producer_epoch or base_sequence == NO_SEQUENCE:
            return None
        last = last_sequence(base_sequence, record_count)
        for batch in self.batches:
            if batch.base_sequence == base_sequence and batch.last_sequence == last:
                return batch
        return None

    def with_batch(
        self, batch: BatchMetadata, producer_epoch: int, *, append_time: int, is_transactional: bool
    ) -> ProducerEntry:
        """After a data batch. A new epoch forgets the batches of the old one."""
        kept = self.batches if producer_epoch == self.producer_epoch else ()
        if batch.base_sequence != NO_SEQUENCE:
            kept = (*kept, batch)[-BATCHES_TO_RETAIN:]
        opened = batch.base_offset if is_transactional and not self.is_open else self.open_first_offset
        return replace(
            self,
            producer_epoch=producer_epoch,
            last_timestamp=batch.timestamp,
            append_time=append_time,
            open_first_offset=opened,
            batches=kept,
        )

    def with_marker(
        self, producer_epoch: int, coordinator_epoch: int, timestamp: int, append_time: int
    ) -> ProducerEntry:
        """After a marker: nothing open, and the marker's epoch in force."""
        return replace(
            self,
            producer_epoch=producer_epoch,
            coordinator_epoch=coordinator_epoch,
            last_timestamp=timestamp,
            append_time=append_time,
            open_first_offset=-1,
            batches=self.batches if producer_epoch == self.producer_epoch else (),
        )


def check_data(
    entry: ProducerEntry | None,
    *,
    producer_id: int,
    producer_epoch: int,
    base_sequence: int,
    is_transactional: bool,
    is_coordinator: bool,
) -> None:
    """Raise where a batch, already known not to be a duplicate, is illegal.

    The order is Kafka's: epoch, sequence (not for batches of the group coordinator), then the transaction.
    """
    actor = f"producer {producer_id} epoch {producer_epoch}"
    check_epoch(entry, actor, producer_epoch)
    if not is_coordinator:
        check_sequence(entry, actor, producer_epoch, base_sequence, is_transactional)
    check_open_transaction(entry, actor, producer_epoch, is_transactional)


def check_epoch(entry: ProducerEntry | None, actor: str, producer_epoch: int) -> None:
    """Raise where the producer was fenced: the partition has seen a later epoch of it."""
    if entry is not None and producer_epoch < entry.producer_epoch:
        raise InvalidProducerEpochError(
            f"epoch {producer_epoch}", actor=actor, expected=f"epoch {entry.producer_epoch} or later"
        )


def check_open_transaction(
    entry: ProducerEntry | None, actor: str, producer_epoch: int, is_transactional: bool
) -> None:
    """Raise where the producer has a transaction open that the batch does not belong to."""
    if entry is None or not entry.is_open:
        return
    if not is_transactional:
        raise InvalidTxnStateError(
            f"a batch outside a transaction, while one is open since offset {entry.open_first_offset}",
            actor=actor,
        )
    if producer_epoch != entry.producer_epoch:
        raise InvalidTxnStateError(
            f"a batch at epoch {producer_epoch}, while a transaction of epoch {entry.producer_epoch} is open"
            f" since offset {entry.open_first_offset}",
            actor=actor,
            expected="that transaction's marker first",
        )


def check_sequence(
    entry: ProducerEntry | None, actor: str, producer_epoch: int, base_sequence: int, is_transactional: bool
) -> None:
    """Raise where a batch does not follow the producer's last one, or does not begin its epoch with sequence 0."""
    if is_transactional and base_sequence != 0 and (entry is None or not entry.batches):
        raise _out_of_order(actor, base_sequence, 0)
    if entry is None:
        return
    if producer_epoch != entry.producer_epoch:
        if base_sequence != 0:
            raise _out_of_order(actor, base_sequence, 0)
    elif not in_sequence(entry.last_sequence, base_sequence):
        raise _out_of_order(actor, base_sequence, entry.last_sequence + 1)


def _out_of_order(actor: str, seen: int, expected: int) -> OutOfOrderSequenceNumberError:
    return OutOfOrderSequenceNumberError(f"sequence {seen}", actor=actor, expected=f"sequence {expected}")


def check_marker(
    entry: ProducerEntry | None, *, producer_id: int, producer_epoch: int, coordinator_epoch: int
) -> bool:
    """Whether a marker is to be written; False for a repeated one, which succeeds and writes nothing.

    Raises where it is fenced. Transactions V2: above the stored epoch, or at it with nothing open (KAFKA-19999).
    """
    if entry is None:
        return True
    actor = f"marker for producer {producer_id} epoch {producer_epoch}"
    # Above 32767 there is no epoch: what a fence finds open there is ended at the epoch it has.
    ends_open = (
        entry.is_open
        and producer_epoch == entry.producer_epoch == MAX_EPOCH
        and coordinator_epoch > entry.coordinator_epoch
    )
    if producer_epoch < entry.producer_epoch or (
        producer_epoch == entry.producer_epoch and entry.is_open and not ends_open
    ):
        raise InvalidProducerEpochError(
            f"marker epoch {producer_epoch}", actor=actor, expected=f"an epoch above {entry.producer_epoch}"
        )
    if coordinator_epoch < entry.coordinator_epoch:
        raise TransactionCoordinatorFencedError(
            f"coordinator epoch {coordinator_epoch}",
            actor=actor,
            expected=f"{entry.coordinator_epoch} or later",
        )
    return producer_epoch > entry.producer_epoch or ends_open


def check_operator_abort(
    entry: ProducerEntry | None,
    *,
    producer_id: int,
    producer_epoch: int,
    coordinator_epoch: int,
    start_offset: int,
) -> None:
    """Raise unless an operator's abort fits: the open transaction has this start offset and epoch, and no
    later decision.
    """
    actor = f"abort of the transaction of producer {producer_id} from offset {start_offset}"
    if entry is None or entry.open_first_offset != start_offset:
        raise InvalidTxnStateError("no open transaction starts there", actor=actor)
    if producer_epoch != entry.producer_epoch:
        raise InvalidProducerEpochError(
            f"epoch {producer_epoch}",
            actor=actor,
            expected=f"the open transaction's epoch {entry.producer_epoch}",
        )
    if coordinator_epoch < entry.coordinator_epoch:
        raise TransactionCoordinatorFencedError(
            f"coordinator epoch {coordinator_epoch}",
            actor=actor,
            expected=f"{entry.coordinator_epoch} or later",
        )
