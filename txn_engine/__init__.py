"""Kafka's exactly-once protocol without brokers: partition logs and transactions as Parquet on an object store."""

from typing import TYPE_CHECKING

from txn_engine.errors import (
    ChecksErroredError,
    ChecksFailedError,
    ConcurrentTransactionsError,
    CorruptObjectError,
    GroupIdNotFoundError,
    IllegalStateError,
    InvalidConfigError,
    InvalidGroupIdError,
    InvalidPartitionsError,
    InvalidProducerEpochError,
    InvalidProducerIdMappingError,
    InvalidRecordError,
    InvalidRegularExpressionError,
    InvalidRequestError,
    InvalidTimestampError,
    InvalidTopicError,
    InvalidTransactionTimeoutError,
    InvalidTxnStateError,
    OffsetOutOfRangeError,
    OffsetsMovedError,
    OffsetsPendingError,
    OneProcessLimitError,
    OutcomeUnknownError,
    OutOfOrderSequenceNumberError,
    ProducerFencedError,
    RecordTooLargeError,
    RequestTimedOutError,
    SpillFullError,
    StoreAccessError,
    StoreUnavailableError,
    TopicExistsError,
    TransactionAbortableError,
    TransactionalIdNotFoundError,
    TransactionCoordinatorFencedError,
    TxnEngineError,
    UnexpectedError,
    UnknownTopicOrPartitionError,
    UnstableOffsetCommitError,
    UnsupportedFormatError,
)
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
    from txn_engine.consumer import Consumer
    from txn_engine.engine import Engine, connect
    from txn_engine.log.cut_format import Cut
    from txn_engine.producer import Producer
else:

    def __getattr__(name: str) -> object:
        """Import the engine, and pyarrow with it, at its first use: help and the parse of a DAG do without."""
        if name not in ("Consumer", "Cut", "Engine", "Producer", "connect"):
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from txn_engine import engine

        return getattr(engine, name)


__all__ = [
    "AbortedTransaction",
    "AppendResult",
    "ChecksErroredError",
    "ChecksFailedError",
    "ConcurrentTransactionsError",
    "Consumer",
    "ConsumerGroupMetadata",
    "CorruptObjectError",
    "Cut",
    "Engine",
    "GroupIdNotFoundError",
    "HangingTransaction",
    "IllegalStateError",
    "InvalidConfigError",
    "InvalidGroupIdError",
    "InvalidPartitionsError",
    "InvalidProducerEpochError",
    "InvalidProducerIdMappingError",
    "InvalidRecordError",
    "InvalidRegularExpressionError",
    "InvalidRequestError",
    "InvalidTimestampError",
    "InvalidTopicError",
    "InvalidTransactionTimeoutError",
    "InvalidTxnStateError",
    "OffsetAndMetadata",
    "OffsetOutOfRangeError",
    "OffsetsMovedError",
    "OffsetsPendingError",
    "OneProcessLimitError",
    "OutOfOrderSequenceNumberError",
    "OutcomeUnknownError",
    "Producer",
    "ProducerFencedError",
    "ProducerIdAndEpoch",
    "ProducerState",
    "RecordMetadata",
    "RecordTooLargeError",
    "RequestTimedOutError",
    "ScanFile",
    "SpillFullError",
    "StoreAccessError",
    "StoreUnavailableError",
    "TopicExistsError",
    "TopicPartition",
    "TransactionAbortableError",
    "TransactionCoordinatorFencedError",
    "TransactionDescription",
    "TransactionListing",
    "TransactionalIdNotFoundError",
    "TxnEngineError",
    "UnexpectedError",
    "UnknownTopicOrPartitionError",
    "UnstableOffsetCommitError",
    "UnsupportedFormatError",
    "connect",
]
