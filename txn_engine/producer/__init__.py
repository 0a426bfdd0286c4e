"""The producer: Kafka's client over a store instead of brokers."""

from txn_engine.producer.effects import ProducerTools
from txn_engine.producer.producer import MAX_BLOCK_MS, Producer
from txn_engine.producer.runs import FORGOTTEN_RUNS, ForgottenRuns, run_into

__all__ = ["MAX_BLOCK_MS", "FORGOTTEN_RUNS", "ForgottenRuns", "Producer", "ProducerTools", "run_into"]
