"""The settings of a store, which are Kafka's of a broker, and Kafka's that a store has not."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from txn_engine.configs.setting import Setting

_AT_CREATION: Final = (
    "ids and groups are spread by this number: another one would look for them in other partitions"
)
_DAY_MS: Final = 86_400_000
TIMEOUT_MS_MAX: Final = 2**31 - 2
"""A row has 32 bits for it; one more stands for two-phase commit, which no sweep aborts."""

_ALL: Final = (
    Setting(
        "transaction.max.timeout.ms",
        "The longest time-out that a transactional producer may ask for.",
        900_000,
        900_000,
        low=1,
        high=TIMEOUT_MS_MAX,
    ),
    Setting(
        "transactional.id.expiration.ms",
        "How long a transactional id may be at rest before `coordinator expire` forgets it.",
        7 * _DAY_MS,
        7 * _DAY_MS,
        low=2 * _DAY_MS,
        relies="a producer that is called writes its id's row again once a day: one that misses a day must not lose it",
    ),
    Setting(
        "producer.id.expiration.ms",
        "How long a partition remembers an idle producer's sequence numbers: a batch that is sent again later is taken "
        "for a new one.",
        _DAY_MS,
        _DAY_MS,
        low=600_000,
        relies="a batch whose answer was lost is sent again for minutes",
    ),
    Setting(
        "offsets.retention.minutes",
        "After how long without a commit `groups expire-offsets` and the daily maintenance forget a group's offset; "
        "-1: never.",
        -1,
        10_080,
        low=1,
        high=2**31 - 1,
        never=True,
        why="nothing here is a member between two runs: a group that reads once a month must not lose its place",
    ),
    Setting(
        "transaction.state.log.num.partitions",
        "How many partitions keep transactional ids.",
        50,
        50,
        low=1,
        high=10_000,
        fixed=_AT_CREATION,
    ),
    Setting(
        "offsets.topic.num.partitions",
        "How many partitions keep groups' offsets.",
        50,
        50,
        low=1,
        high=10_000,
        fixed=_AT_CREATION,
    ),
)
STORE: Final[Mapping[str, Setting]] = MappingProxyType({each.name: each for each in _ALL})
"""By name."""

_REPLICAS: Final = "nothing: the store replicates"
NOT_A_STORES: Final[Mapping[str, str]] = MappingProxyType(
    {
        "transaction.two.phase.commit.enable": "nothing: two-phase commit (KIP-939) is not offered yet",
        "transaction.abort.timed.out.transaction.cleanup.interval.ms": "the schedule of `coordinator sweep`: nothing "
        "here runs by itself",
        "transaction.remove.expired.transaction.cleanup.interval.ms": "the schedule of `coordinator expire`: nothing "
        "here runs by itself",
        "offsets.retention.check.interval.ms": "the schedule of `coordinator expire`: nothing here runs by itself",
        "producer.id.expiration.check.interval.ms": "the schedule of `maintain clean`: nothing here runs by itself",
        "log.retention.ms": "retention.ms of each topic",
        "log.retention.bytes": "retention.bytes of each topic",
        "log.cleanup.policy": "cleanup.policy of each topic",
        "message.max.bytes": "max.message.bytes of each topic",
        "num.partitions": "the number that a topic is made with",
        "auto.create.topics.enable": "nothing: a topic is made by `topics create`",
        "transaction.state.log.replication.factor": _REPLICAS,
        "transaction.state.log.min.isr": _REPLICAS,
        "offsets.topic.replication.factor": _REPLICAS,
        "default.replication.factor": _REPLICAS,
        "min.insync.replicas": _REPLICAS,
    }
)
"""Kafka's settings of a broker that a store has not, and what to expect instead."""
