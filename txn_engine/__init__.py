"""Kafka's exactly-once protocol without brokers: partition logs and transactions as Parquet on an object store."""

from typing import TYPE_CHECKING

from txn_engine.types import (
    AbortedTransaction,
    AppendResult,
    ConsumerGroupMetadata,
    HangingTransaction,
    OffsetAndMetadata,
    ProducerIdAndEpoch,
    ProducerState,
    RecordMetadata,
    ScanFile,
    TopicPartition,
    TransactionDescription,
    TransactionListing,
)

if TYPE_CHECKING:
    from txn_engine.engine import Engine, connect
else:

    def __getattr__(name: str) -> object:
        """Import the engine, and pyarrow with it, at its first use: help and the parse of a DAG do without."""
        if name not in ("Engine", "connect"):
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from txn_engine import engine

        return getattr(engine, name)


__all__ = [
    "AbortedTransaction",
    "AppendResult",
    "ConsumerGroupMetadata",
    "Engine",
    "HangingTransaction",
    "OffsetAndMetadata",
    "ProducerIdAndEpoch",
    "ProducerState",
    "RecordMetadata",
    "ScanFile",
    "TopicPartition",
    "TransactionDescription",
    "TransactionListing",
    "connect",
]
