"""Short words for the tables: a partition's leader, a coordinator's answers, and an error as its code."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import count
from typing import Any

import pyarrow as pa

from txn_engine import Engine, TopicPartition
from txn_engine.errors import TxnEngineError
from txn_engine.partition_log import PartitionLog
from txn_engine.protocol.transaction_rows import TransactionRow
from txn_engine.testing import write_transaction_state
from txn_engine.types import IsolationLevel, ProducerState

TOPIC = "t"
T0, T1, T2, T3 = (TopicPartition(TOPIC, number) for number in range(4))
SCHEMA = pa.schema([("value", pa.int64())])
MAX_SEQUENCE = 2**31 - 1
MAX_EPOCH = 2**15 - 1
DAY_MS = 86_400_000
_VALUES = count()
_NAMES = count()


def records(*values: int, count: int | None = None) -> pa.Table:
    """Records with these values, or this many records with unique values."""
    chosen = [next(_VALUES) for _ in range(count)] if count is not None else list(values)
    return pa.table({"value": pa.array(chosen, pa.int64())}, schema=SCHEMA)


def answer(call: Callable[[], Any]) -> Any:
    """The call's result, or the Kafka code of its refusal."""
    try:
        return call()
    except TxnEngineError as error:
        return error.code


def fresh_id(kind: str = "id") -> str:
    """A transactional id that no other test uses."""
    return f"{kind}-{next(_NAMES)}"


class Partition:
    """One partition's log. Its methods answer as a leader does, with offsets or with Kafka's error code."""

    def __init__(self, log: PartitionLog) -> None:
        self.log = log

    def client(
        self,
        pid: int,
        epoch: int,
        seq: int,
        *,
        count: int = 1,
        transactional: bool = False,
        timestamp_ms: int | None = None,
    ) -> tuple[int, int] | str:
        """Append a client's batch. Returns (base offset, last offset), or the code of the refusal."""

        def append() -> tuple[int, int]:
            result = self.log.append(
                records(count=count),
                producer_id=pid,
                producer_epoch=epoch,
                base_sequence=seq,
                is_transactional=transactional,
                timestamp_ms=timestamp_ms,
            )
            return result.base_offset, result.last_offset

        return answer(append)

    def transactional(self, pid: int, epoch: int, seq: int, *, count: int = 1, **more: Any) -> Any:
        return self.client(pid, epoch, seq, count=count, transactional=True, **more)

    def plain(self, count: int = 1) -> tuple[int, int] | str:
        """Append records without a producer."""
        return self.client(-1, -1, -1, count=count)

    def marker(self, pid: int, epoch: int, *, committed: bool, coordinator_epoch: int = 0) -> int | str:
        """Append a marker. Returns its offset, -1 for a repeated one, or the code of the refusal."""

        def append() -> int:
            result = self.log.append_marker(
                producer_id=pid,
                producer_epoch=epoch,
                committed=committed,
                coordinator_epoch=coordinator_epoch,
            )
            return result.base_offset

        return answer(append)

    def commit(self, pid: int, epoch: int, coordinator_epoch: int = 0) -> int | str:
        return self.marker(pid, epoch, committed=True, coordinator_epoch=coordinator_epoch)

    def abort(self, pid: int, epoch: int, coordinator_epoch: int = 0) -> int | str:
        return self.marker(pid, epoch, committed=False, coordinator_epoch=coordinator_epoch)

    def producer(self, pid: int) -> ProducerState | None:
        """The partition's state of a producer."""
        return next((state for state in self.log.producers() if state.producer_id == pid), None)

    @property
    def end(self) -> int:
        return self.log.high_watermark

    @property
    def stable(self) -> int:
        return self.log.last_stable_offset

    def offsets(self, start: int = 0, isolation_level: IsolationLevel = "read_committed") -> list[int]:
        """The offsets that a read from `start` returns."""
        table = self.log.read(start, isolation_level=isolation_level)
        found: list[int] = table.column("_offset").to_pylist()
        return found


def put_row(
    engine: Engine,
    state: str,
    *,
    pid: int = 5_010,
    epoch: int = 5,
    partitions: Iterable[TopicPartition] | None = None,
    name: str | None = None,
    **more: Any,
) -> str:
    """Write a row with a transactional id in this state, and return its name. By default a row in Ongoing or
    Prepare* holds t-0."""
    name = name or fresh_id(state)
    if partitions is None:
        partitions = [T0] if state in ("Ongoing", "PrepareCommit", "PrepareAbort") else []
    write_transaction_state(
        engine, name, state=state, producer_id=pid, producer_epoch=epoch, partitions=partitions, **more
    )
    return name


def row_of(engine: Engine, name: str) -> TransactionRow:
    """The id's latest row, with the fields that no public answer shows."""
    stored = engine.coordinator.current(name)
    assert stored is not None
    return stored.row


def state_of(engine: Engine, name: str) -> tuple[str, int, int]:
    """The (state, producer id, epoch) that `describe_transaction` returns."""
    found = engine.admin.describe_transaction(name)
    return found.state, found.producer_id, found.producer_epoch
