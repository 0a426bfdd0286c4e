"""The producer: Kafka's client over a store instead of brokers."""

from txn_engine.producer.producer import Producer, ProducerTools

__all__ = ["Producer", "ProducerTools"]
