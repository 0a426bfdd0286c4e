"""Producers: epochs, sequences and open transactions (KAFKA.md, "Sequences"; invariants 4 and 7)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from txn_engine.verify.audited_partition import AuditedPartition, Producer
from txn_engine.verify.descriptors import ROW_COLUMNS, SEQUENCES, Batch
from txn_engine.verify.judged_entry import JudgedEntry
from txn_engine.verify.store_keys import BLOCK_IDS


class Owners(Protocol):
    """Who knows the coordinator's log."""

    def owner_of(self, producer_id: int) -> str | None:
        """The transactional id that writes as this producer; None for an idempotent one."""
        ...


class UsedBlocks:
    """Judges nothing: keeps the numbers of the blocks that the ids of producers that wrote are of."""

    def __init__(self) -> None:
        self.blocks: set[int] = set()

    def judge(self, _state: AuditedPartition, batch: Batch, _scene: JudgedEntry) -> None:
        """Look at one row."""
        if batch.producer_id >= 0:
            self.blocks.add(batch.producer_id // BLOCK_IDS)

    def add(self, producer_ids: Iterable[int]) -> None:
        """These wrote as well."""
        self.blocks.update(each // BLOCK_IDS for each in producer_ids if each >= 0)


class ProducerRule:
    """Per producer: epochs never fall, sequences have no gap and no repeat, and one transaction is open at a time.

    owners: whose transactional id a producer id is.
    """

    def __init__(self, owners: Owners) -> None:
        self._owners = owners

    def judge(self, state: AuditedPartition, batch: Batch, entry: JudgedEntry) -> None:
        """Note where a batch of records could not have been legal in this state."""
        if not entry.sound or batch.control != "none" or batch.producer_id < 0:
            return
        producer = state.producers.get(batch.producer_id)
        if producer is not None:
            _judge_epoch(producer, batch, entry)
        if not batch.is_transactional and batch.producer_id not in state.open:
            owner = self._owners.owner_of(batch.producer_id)
            if owner is not None:
                seen = f"a batch outside a transaction by the producer of transactional id {owner!r}"
                entry.note(
                    "plain-batch-in-transaction", batch, seen, "a transactional batch: an abort must undo it"
                )
        if entry.place.topic not in ROW_COLUMNS:
            _judge_sequence(producer, batch, entry)


def _judge_epoch(producer: Producer, batch: Batch, entry: JudgedEntry) -> None:
    seen = f"a batch at epoch {batch.producer_epoch}"
    if batch.producer_epoch < producer.producer_epoch:
        entry.note("epoch-falls", batch, seen, f"epoch {producer.producer_epoch} or later")
        return
    if producer.open_first_offset < 0:
        return
    opened = f"since offset {producer.open_first_offset}"
    if batch.producer_epoch != producer.producer_epoch:
        expected = f"epoch {producer.producer_epoch}, whose transaction is open {opened}"
        entry.note("epoch-mixed", batch, seen, expected)
    elif not batch.is_transactional:
        entry.note(
            "plain-batch-in-transaction",
            batch,
            "a batch outside a transaction",
            f"a marker first: this producer's transaction is open {opened}",
        )


def _judge_sequence(producer: Producer | None, batch: Batch, entry: JudgedEntry) -> None:
    seen = f"sequence {batch.base_sequence} at epoch {batch.producer_epoch}"
    if batch.base_sequence < 0:
        entry.note(
            "sequence-missing", batch, "a batch of a producer without sequences", "a sequence for each record"
        )
        return
    if producer is None and not batch.is_transactional:
        return  # a forgotten or new idempotent producer starts anywhere
    if producer is None or producer.producer_epoch != batch.producer_epoch or not producer.batches:
        expected, after = 0, "the producer's first batch here at this epoch"
    else:
        last = producer.batches[-1]
        expected, after = (
            (last.last_sequence + 1) % SEQUENCES,
            f"following the batch at offset {last.base_offset}",
        )
    if batch.base_sequence == expected:
        return
    behind = (expected - batch.base_sequence) % SEQUENCES
    code = "sequence-repeated" if behind < SEQUENCES // 2 else "sequence-gap"
    entry.note(code, batch, seen, f"sequence {expected}, {after}")
