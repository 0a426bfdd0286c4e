"""Tools for tests, including users' own tests: a clock that is set by hand, and any row in the coordinator's log."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from txn_engine.clock import ManualClock
from txn_engine.engine import Engine
from txn_engine.log.entry_log import EntryLog
from txn_engine.protocol.proposals import TransactionProposal
from txn_engine.protocol.transaction_rows import TransactionRow, TransactionState
from txn_engine.types import TopicPartition

__all__ = ["ManualClock", "write_transaction_state"]


def write_transaction_state(
    engine: Engine,
    transactional_id: str,
    *,
    state: str,
    producer_id: int,
    producer_epoch: int,
    last_producer_epoch: int = -1,
    transaction_timeout_ms: int = 60_000,
    partitions: Iterable[TopicPartition] = (),
    last_update_ms: int | None = None,
) -> int:
    """Append this row to the coordinator's log, whatever the log says about the id. Return the row's offset.

    Tests use it to get near the last epoch, or to leave the PrepareCommit of a dead coordinator. The row's start time
    is `last_update_ms`, by default the engine's time. The row is appended as if by a writer with a clock at
    `last_update_ms`. Its age counts from then, or from the time of the previous entry if that is later.
    """
    at = engine.clock() if last_update_ms is None else last_update_ms
    row = TransactionRow(
        transactional_id,
        TransactionState(state),
        producer_id,
        producer_epoch,
        last_producer_epoch=last_producer_epoch,
        transaction_timeout_ms=transaction_timeout_ms,
        start_ms=at,
        update_ms=at,
        partitions=tuple(sorted(engine.coordinator.resolve(TopicPartition(*each)) for each in partitions)),
    )
    log = engine.logs.coordinator(transactional_id)
    if last_update_ms is not None:
        log = EntryLog(replace(engine.logs.tools, clock=lambda: at), log.keys.prefix, log.kind)
    return log.append_one(TransactionProposal(transactional_id, lambda _: row)).base_offset
