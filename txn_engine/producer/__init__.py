"""The producer: Kafka's client over a store instead of brokers."""

from txn_engine.producer.effects import ProducerTools
from txn_engine.producer.producer import MAX_BLOCK_MS, Producer
from txn_engine.producer.runs import FORGOTTEN_RUNS, ForgottenRuns, check_run_is_there, run_into
from txn_engine.producer.uploads import TakesRecords, Uploads

__all__ = [
    "FORGOTTEN_RUNS",
    "MAX_BLOCK_MS",
    "ForgottenRuns",
    "Producer",
    "ProducerTools",
    "TakesRecords",
    "Uploads",
    "check_run_is_there",
    "run_into",
]
