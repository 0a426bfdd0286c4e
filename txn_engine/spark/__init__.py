"""Topics as native Spark DataFrames, and DataFrames into topics, exactly once.

Importing this package is cheap and needs neither pyspark nor Java: a name is loaded at its first use, which raises
`MissingPackageError` where pyspark is not installed.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from txn_engine.extras import need

if TYPE_CHECKING:
    from txn_engine.spark.auditing import audit_store
    from txn_engine.spark.compaction import compact_topic
    from txn_engine.spark.job import ConsumeResult, run_consume_job
    from txn_engine.spark.loading import load_files
    from txn_engine.spark.reading import ReadOffsets, TopicRead, read_topic
    from txn_engine.spark.session import spark_session
    from txn_engine.spark.source import register
    from txn_engine.spark.streaming import StreamBatch, stream_topic
    from txn_engine.spark.writing import WriteResult, write_topic, write_topics

__all__ = [
    "spark_session",
    "read_topic",
    "write_topic",
    "write_topics",
    "load_files",
    "run_consume_job",
    "stream_topic",
    "register",
    "compact_topic",
    "audit_store",
    "TopicRead",
    "ReadOffsets",
    "WriteResult",
    "ConsumeResult",
    "StreamBatch",
]

_MODULES = {
    "spark_session": "session",
    "read_topic": "reading",
    "write_topic": "writing",
    "write_topics": "writing",
    "load_files": "loading",
    "run_consume_job": "job",
    "stream_topic": "streaming",
    "register": "source",
    "compact_topic": "compaction",
    "audit_store": "auditing",
    "TopicRead": "reading",
    "ReadOffsets": "reading",
    "WriteResult": "writing",
    "ConsumeResult": "job",
    "StreamBatch": "streaming",
}


def __getattr__(name: str) -> object:
    module = _MODULES.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    need("spark", actor=f"{__name__}.{name}")
    return getattr(importlib.import_module(f"{__name__}.{module}"), name)
