"""The producer: Kafka's client over a store instead of brokers."""

from txn_engine.producer.effects import ProducerTools
from txn_engine.producer.producer import MAX_BLOCK_MS, Producer

__all__ = ["MAX_BLOCK_MS", "Producer", "ProducerTools"]
