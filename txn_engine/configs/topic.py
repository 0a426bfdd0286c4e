"""The settings of a topic, and Kafka's that a topic has not."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from txn_engine.configs.setting import INT64_MAX, Setting
from txn_engine.types import TABLE_FORMATS, CleanupPolicy

CLEANUP_POLICIES: Final[tuple[CleanupPolicy, ...]] = ("delete", "compact", "compact,delete")


def _policy(given: str) -> str | None:
    """In the form in which it is stored: Kafka takes its parts in any order."""
    parts = {part.strip() for part in given.split(",")}
    return next((policy for policy in CLEANUP_POLICIES if parts == set(policy.split(","))), None)


def _formats(given: str) -> str | None:
    """In the order in which they are stored."""
    parts = {part.strip() for part in given.split(",")} - {""}
    if not parts <= set(TABLE_FORMATS):
        return None
    return ",".join(each for each in TABLE_FORMATS if each in parts)


_ALL: Final = (
    Setting(
        "cleanup.policy",
        "What becomes of old records: `delete` drops those older than retention.ms, `compact` keeps of each key the "
        "latest committed one, `compact,delete` does both.",
        "delete",
        "delete",
        choices=" or ".join(map(repr, CLEANUP_POLICIES)),
        normal=_policy,
    ),
    Setting(
        "retention.ms",
        "With `delete`: records older than this are dropped; -1: never.",
        -1,
        604_800_000,
        never=True,
        why="a ledger is kept until somebody says otherwise",
    ),
    Setting(
        "retention.bytes",
        "With `delete`: of each partition the oldest files go while the others have this many bytes; -1: none.",
        -1,
        -1,
        never=True,
    ),
    Setting(
        "min.cleanable.dirty.ratio",
        "With `compact`: a partition is compacted by key once this part of its bytes is new; 0: always.",
        0.5,
        0.5,
        high=1,
    ),
    Setting(
        "delete.retention.ms",
        "With `compact`: how long a tombstone stays, at the least, after what it supersedes is gone.",
        86_400_000,
        86_400_000,
    ),
    Setting(
        "min.compaction.lag.ms",
        "With `compact`: records younger than this are not compacted by key.",
        0,
        0,
    ),
    Setting(
        "max.message.bytes",
        "The largest data file that a batch is: producers and Spark's tasks split larger ones; a record that is larger "
        "alone is refused. What maintenance merges may be larger.",
        1 << 30,
        1_048_588,
        high=1 << 30,
        why="a batch is a data file, and readers want large ones",
    ),
    Setting(
        "message.timestamp.before.max.ms",
        "How far a timestamp that a producer gives to records may be behind the producer's clock.",
        INT64_MAX,
        INT64_MAX,
    ),
    Setting(
        "message.timestamp.after.max.ms",
        "How far a timestamp that a producer gives to records may be ahead of the producer's clock.",
        3_600_000,
        3_600_000,
    ),
    Setting(
        "tables.publish",
        "In which formats maintenance publishes the topic as tables; empty: in none.",
        "",
        None,
        choices=f"some of {', '.join(TABLE_FORMATS)}, with commas between",
        normal=_formats,
    ),
)
TOPIC: Final[Mapping[str, Setting]] = MappingProxyType({each.name: each for each in _ALL})
"""By name."""

_SEGMENTS: Final = "nothing: there are no segments, each append is an object of its own"
_REPLICAS: Final = "nothing: the store replicates"
NOT_A_TOPICS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "compression.*": "nothing: data files are Parquet, compressed with zstd",
        "errors.deadletterqueue.*": "nothing of a topic: `produce --dead-letter-topic` takes bad rows of files",
        "file.delete.delay.ms": "nothing: files that died stay for 24 hours, so that jobs which list them can read",
        "flush.*": "nothing: an append is acknowledged once the store has it",
        "follower.replication.throttled.replicas": _REPLICAS,
        "index.interval.bytes": _SEGMENTS,
        "leader.replication.throttled.replicas": _REPLICAS,
        "local.retention.bytes": "retention.bytes: all of a log is on the object store",
        "local.retention.ms": "retention.ms: all of a log is on the object store",
        "max.compaction.lag.ms": "nothing: how soon is the schedule of `maintain compact`",
        "message.downconversion.enable": "nothing: no reader is older than the files",
        "message.format.version": "nothing: each object says its own format",
        "message.timestamp.difference.max.ms": "message.timestamp.before.max.ms and message.timestamp.after.max.ms",
        "message.timestamp.type": "nothing: a record has the time that its producer gives it (CreateTime)",
        "min.insync.replicas": _REPLICAS,
        "preallocate": _SEGMENTS,
        "remote.*": "nothing: all of a log is on the object store",
        "segment.*": _SEGMENTS,
        "unclean.leader.election.enable": "nothing: there is no leader",
    }
)
"""Kafka's settings of a topic that this engine has not, and what to expect instead."""
