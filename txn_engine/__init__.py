"""Kafka's exactly-once protocol without brokers: partition logs and transactions as Parquet on an object store."""

from txn_engine.engine import Engine, connect
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
