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
    SchemaChangedError,
    SpillFullError,
    StoreAccessError,
    StoreFaultError,
    StoreNotFoundError,
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
    __version__: str
    from txn_engine.consumer import Consumer
    from txn_engine.engine import Engine, connect
    from txn_engine.log.cut_format import Cut
    from txn_engine.producer import Producer
    from txn_engine.schemas.changes import (
        AddColumn,
        DropColumn,
        MakeNullable,
        RenameColumn,
        ReorderColumns,
        WidenColumn,
    )
else:

    def __getattr__(name: str) -> object:
        """Import the engine, and pyarrow with it, at its first use: help and the parse of a DAG do without."""
        if name == "__version__":
            from txn_engine.installed import version

            return version()
        if name in _CHANGES:
            from txn_engine.schemas import changes

            return getattr(changes, name)
        if name not in ("Consumer", "Cut", "Engine", "Producer", "connect"):
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from txn_engine import engine

        return getattr(engine, name)

    def __dir__() -> list[str]:
        """What the package exports, also what is imported at its first use."""
        return sorted({*globals(), *__all__, "__version__"})


_CHANGES = ("AddColumn", "DropColumn", "MakeNullable", "RenameColumn", "ReorderColumns", "WidenColumn")


__all__ = [
    "AbortedTransaction",
    "AddColumn",
    "AppendResult",
    "ChecksErroredError",
    "ChecksFailedError",
    "ConcurrentTransactionsError",
    "Consumer",
    "ConsumerGroupMetadata",
    "CorruptObjectError",
    "Cut",
    "DropColumn",
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
    "MakeNullable",
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
    "RenameColumn",
    "ReorderColumns",
    "RequestTimedOutError",
    "ScanFile",
    "SchemaChangedError",
    "SpillFullError",
    "StoreAccessError",
    "StoreFaultError",
    "StoreNotFoundError",
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
    "WidenColumn",
    "connect",
]
