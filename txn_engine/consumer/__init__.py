"""The consumer: positions, polling, and group offsets."""

from txn_engine.consumer.consumer import Consumer

__all__ = ["Consumer"]
