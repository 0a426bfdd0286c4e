"""What a producer's batches fail with that the log itself would have taken, or says that it has."""

from __future__ import annotations

from txn_engine.errors import InvalidProducerIdMappingError, UnknownTopicOrPartitionError
from txn_engine.protocol.proposals import Duplicate
from txn_engine.protocol.transaction_rows import TransactionPartition
from txn_engine.reasons import Reason
from txn_engine.types import ProducerIdAndEpoch


def topic_deleted(topic: str, incarnation: int, identity: ProducerIdAndEpoch) -> UnknownTopicOrPartitionError:
    """What a producer's records for an incarnation fail with that is gone before they are acknowledged or committed."""
    return UnknownTopicOrPartitionError(
        f"topic {topic!r} was deleted since (its incarnation {incarnation})",
        actor=_name(identity),
        action="run it again where the topic was made again; nothing of this is visible",
        reason=Reason.TOPIC_DELETED,
    )


def producer_id_in_use(
    at: TransactionPartition, known: Duplicate, identity: ProducerIdAndEpoch
) -> InvalidProducerIdMappingError:
    """What a batch fails with that was never sent before, and that the log has already: it is somebody else's, who has
    the same producer id and epoch. It must not be acknowledged.
    """
    return InvalidProducerIdMappingError(
        f"offsets {known.base_offset} to {known.last_offset} of {at.topic}-{at.partition} hold a batch of this producer"
        " id with the same sequences, which this producer did not send",
        actor=_name(identity),
        expected="a producer id that nobody else has",
        action="nothing of this batch was written: run it again with a new producer, and run `txn-engine verify`, which"
        " names missing claims to producer ids",
        reason=Reason.PRODUCER_ID_IN_USE,
    )


def _name(identity: ProducerIdAndEpoch) -> str:
    return f"producer {identity.producer_id} epoch {identity.producer_epoch}"
