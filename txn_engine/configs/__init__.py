"""Settings under Kafka's names: which there are, what they may be, what they are where nobody has said otherwise."""

from txn_engine.configs.setting import INT64_MAX, Scope, Setting, Value, looked_up, parsed
from txn_engine.configs.store import STORE
from txn_engine.configs.topic import CLEANUP_POLICIES, TOPIC

__all__ = [
    "CLEANUP_POLICIES",
    "INT64_MAX",
    "STORE",
    "TOPIC",
    "Scope",
    "Setting",
    "Value",
    "looked_up",
    "parsed",
]
