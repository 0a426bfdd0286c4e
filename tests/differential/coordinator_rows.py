"""Rows of Kafka's `__transaction_state` are written directly, so that an id gets near the end of its
epochs."""

from __future__ import annotations

import struct
import time
from collections.abc import Sequence

from tests.differential.broker import Broker
from tests.differential.records import encode_batch
from tests.differential.sides import Identity
from tests.differential.wire import Writer

TRANSACTION_STATE_TOPIC = "__transaction_state"
_STATES = {"Empty": 0, "Ongoing": 1, "CompleteCommit": 4, "CompleteAbort": 5}
_TIMEOUT_MS = 900_000
_ROWS_A_BATCH = 200
_CLIENT_VERSION_TAG = 2


def write_rows(broker: Broker, rows: Sequence[tuple[str, str, Identity, tuple[str, int]]]) -> None:
    """Append one row (id, state, identity, the partition of an open transaction) for each id. A coordinator
    sees the rows when it loads next.

    The broker's connection needs the right to write to internal topics.
    """
    for at in range(0, len(rows), _ROWS_A_BATCH):
        part = rows[at : at + _ROWS_A_BATCH]
        batch = encode_batch(
            [_value(state, identity, partition) for _, state, identity, partition in part],
            keys=[_key(name) for name, *_ in part],
            producer_id=-1,
            producer_epoch=-1,
            base_sequence=-1,
            is_transactional=False,
            timestamp_ms=time.time_ns() // 1_000_000,
        )
        broker.produce(TRANSACTION_STATE_TOPIC, 0, batch, transactional_id=None)


def _key(transactional_id: str) -> bytes:
    """`TransactionLogKey`, version 0."""
    name = transactional_id.encode()
    return struct.pack(">hh", 0, len(name)) + name


def _value(state: str, identity: Identity, partition: tuple[str, int]) -> bytes:
    """`TransactionLogValue`, version 1, as a V2 client has it."""
    now_ms = time.time_ns() // 1_000_000
    writer = Writer().int16(1).int64(identity.producer_id).int16(identity.producer_epoch)
    writer.int32(_TIMEOUT_MS).int8(_STATES[state])

    def write_topic(to: Writer, where: tuple[str, int]) -> None:
        to.string(where[0]).int32s([where[1]]).tags()

    writer.array([partition] if state == "Ongoing" else [], write_topic)
    writer.int64(now_ms).int64(now_ms if state == "Ongoing" else -1)
    version = Writer().int16(2).done()
    return writer.varint(1).varint(_CLIENT_VERSION_TAG).varint(len(version)).raw(version).done()
