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
_NO_BROKER: Final = "nothing: there is no broker"
_CREDENTIALS: Final = "the store's credentials and rights"
_SEGMENTS: Final = "nothing: there are no segments, each append is an object of its own"
_QUOTAS: Final = "nothing: no quota is kept"
_METRICS: Final = "nothing: there is no server that would keep any"
_GROUP: Final = "nothing: there is no group protocol, every subscriber gets all partitions"
_ALONE: Final = "nothing here runs by itself"
NOT_A_STORES: Final[Mapping[str, str]] = MappingProxyType(
    {
        "add.partitions.to.txn.*": "nothing: a producer enters its partitions itself",
        "advertised.listeners": "the store's URL, in connect()",
        "alter.*": _NO_BROKER,
        "authorizer.*": _CREDENTIALS,
        "auto.create.topics.enable": "nothing: a topic is made by `topics create`",
        "auto.include.jmx.reporter": _METRICS,
        "auto.leader.rebalance.enable": "nothing: there is no leader",
        "background.threads": _NO_BROKER,
        "broker.*": _NO_BROKER,
        "client.quota.*": _QUOTAS,
        "compression.*": "nothing: data files are Parquet, compressed with zstd",
        "config.providers": "values as they are: nothing is looked up in them",
        "connection.*": _NO_BROKER,
        "connections.*": _NO_BROKER,
        "controlled.shutdown.*": _NO_BROKER,
        "controller.*": _NO_BROKER,
        "create.topic.policy.class.name": _CREDENTIALS,
        "default.replication.factor": _REPLICAS,
        "delegation.token.*": _CREDENTIALS,
        "delete.records.purgatory.*": _NO_BROKER,
        "delete.topic.enable": "who may put objects below `topics/`: the store's rights",
        "early.start.listeners": _NO_BROKER,
        "errors.deadletterqueue.*": "`produce --dead-letter-topic`: bad rows of files",
        "fetch.*": _NO_BROKER,
        "follower.*": _REPLICAS,
        "group.*": _GROUP,
        "initial.*": _NO_BROKER,
        "inter.broker.*": _NO_BROKER,
        "kafka.metrics.*": _METRICS,
        "leader.*": _REPLICAS,
        "listener.*": "the store's URL, in connect()",
        "listeners": "the store's URL, in connect()",
        "log.*": _SEGMENTS,
        "log.cleaner.*": f"the schedule of `maintain compact`: {_ALONE}",
        "log.cleanup.policy": "cleanup.policy of each topic",
        "log.cleaner.delete.retention.ms": "delete.retention.ms of each topic",
        "log.cleaner.min.cleanable.ratio": "min.cleanable.dirty.ratio of each topic",
        "log.cleaner.min.compaction.lag.ms": "min.compaction.lag.ms of each topic",
        "log.dir": "the store's URL, in connect()",
        "log.dirs": "the store's URL, in connect()",
        "log.flush.*": "nothing: an append is acknowledged once the store has it",
        "log.message.*": "nothing: a record has the time that its producer gives it (CreateTime)",
        "log.message.timestamp.after.max.ms": "message.timestamp.after.max.ms of each topic",
        "log.message.timestamp.before.max.ms": "message.timestamp.before.max.ms of each topic",
        "log.retention.bytes": "retention.bytes of each topic",
        "log.retention.check.interval.ms": f"the schedule of `maintain retention`: {_ALONE}",
        "log.retention.hours": "retention.ms of each topic",
        "log.retention.minutes": "retention.ms of each topic",
        "log.retention.ms": "retention.ms of each topic",
        "max.*": _NO_BROKER,
        "message.max.bytes": "max.message.bytes of each topic",
        "metadata.*": _NO_BROKER,
        "metric.*": _METRICS,
        "metrics.*": _METRICS,
        "min.insync.replicas": _REPLICAS,
        "node.id": _NO_BROKER,
        "num.*": _NO_BROKER,
        "num.partitions": "the number that a topic is made with",
        "offset.metadata.max.bytes": "nothing: it is fixed",
        "offsets.commit.timeout.ms": "nothing: a store that does not answer is reported within 20 s",
        "offsets.load.buffer.size": _NO_BROKER,
        "offsets.retention.check.interval.ms": f"the schedule of `coordinator expire`: {_ALONE}",
        "offsets.topic.*": _SEGMENTS,
        "offsets.topic.replication.factor": _REPLICAS,
        "principal.builder.class": _CREDENTIALS,
        "process.roles": _NO_BROKER,
        "producer.id.expiration.check.interval.ms": f"the schedule of `maintain clean`: {_ALONE}",
        "producer.purgatory.*": _NO_BROKER,
        "queued.*": _NO_BROKER,
        "quota.*": _QUOTAS,
        "remote.*": "nothing: all of a log is on the object store",
        "replica.*": _REPLICAS,
        "replication.quota.*": _QUOTAS,
        "request.timeout.ms": "nothing: a store that does not answer is reported within 20 s",
        "sasl.*": _CREDENTIALS,
        "security.*": _CREDENTIALS,
        "server.max.startup.time.ms": _NO_BROKER,
        "share.*": "nothing: there are no share groups",
        "socket.*": _NO_BROKER,
        "ssl.*": _CREDENTIALS,
        "super.users": _CREDENTIALS,
        "telemetry.*": _METRICS,
        "transaction.abort.timed.out.transaction.cleanup.interval.ms": f"the schedule of `coordinator sweep`: {_ALONE}",
        "transaction.partition.verification.enable": "nothing: it is always verified",
        "transaction.remove.expired.transaction.cleanup.interval.ms": f"the schedule of `coordinator expire`: {_ALONE}",
        "transaction.state.log.*": _SEGMENTS,
        "transaction.state.log.min.isr": _REPLICAS,
        "transaction.state.log.replication.factor": _REPLICAS,
        "transaction.two.phase.commit.enable": "nothing: two-phase commit (KIP-939) is not offered yet",
        "unclean.leader.election.*": "nothing: there is no leader",
    }
)
"""Kafka's settings of a broker that a store has not, and what to expect instead."""
