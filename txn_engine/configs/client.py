"""The settings of producers and consumers, and Kafka's that they have not."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final, Literal, TypedDict, TypeVar

from txn_engine.configs.setting import Setting, absence, looked_up, parsed
from txn_engine.errors import InvalidConfigError
from txn_engine.reasons import Reason
from txn_engine.types import IsolationLevel

OffsetReset = Literal["earliest", "latest", "none"]
_INT32_MAX: Final = 2**31 - 1
_MIB: Final = 1 << 20


def _one_of(*choices: str, also: Mapping[str, str] | None = None) -> dict[str, Any]:
    """The arguments of a setting that takes one of these; `also`: other words for them."""
    words = {choice: choice for choice in choices} | dict(also or {})
    return {
        "choices": " or ".join(map(repr, choices)),
        "normal": lambda given: words.get(given.strip().lower()),
    }


_PRODUCER: Final = (
    Setting(
        "transactional.id",
        "Who the producer is from one run to the next; none: an idempotent producer.",
        "",
        "",
    ),
    Setting(
        "transaction.timeout.ms",
        "For how long a transaction may be open before a sweep aborts it; at most the store's "
        "transaction.max.timeout.ms.",
        60_000,
        60_000,
        low=-(2**31),
        high=_INT32_MAX,
    ),
    Setting(
        "delivery.timeout.ms",
        "How long records that were handed over may wait to be appended: then they have failed, and the transaction "
        "can only abort.",
        _INT32_MAX,
        120_000,
        low=1,
        high=_INT32_MAX,
        why="a transaction's own time-out ends what takes too long; a large load may wait behind its own uploads",
    ),
    Setting(
        "request.timeout.ms",
        "For how long the coordinator is asked again while the id's last transaction is not complete "
        "(CONCURRENT_TRANSACTIONS). It does not bound a call of the store, which all of an engine's clients share: "
        "that is answered or given up within 20 s, but for the transfer of a large file, which may take 300 s. A call "
        "of the producer is some store calls, one after the other.",
        30_000,
        30_000,
        high=_INT32_MAX,
    ),
    Setting(
        "max.block.ms",
        "How long `produce` waits for room in the buffer, and for how long `init_transactions`, a commit and an abort "
        "that have no answer are asked for again; -1: it waits as long as it takes, and nothing is asked for again.",
        -1,
        60_000,
        high=_INT32_MAX,
        never=True,
        why="a command says at once what it does not know; jobs of Spark and Airflow ask again for 60 s",
    ),
    Setting(
        "linger.ms",
        "How long records wait for more, to go into one data file together; 0: they do not.",
        0,
        5,
        high=60_000,
        why="a call brings a table, not a record",
    ),
    Setting(
        "batch.size",
        "With linger.ms: records wait no longer once they have as many bytes in memory, nor does a file get more.",
        16 * _MIB,
        16_384,
        low=1,
        high=1 << 30,
        why="a batch is a data file, and readers want large ones",
    ),
    Setting(
        "buffer.memory",
        "How many bytes of records may be on their way: `produce` waits for room.",
        256 * _MIB,
        32 * _MIB,
        low=1,
        why="batches are larger",
    ),
    Setting(
        "max.in.flight.requests.per.connection",
        "How many batches of one partition an entry names at most.",
        64,
        5,
        low=1,
        high=64,
        why="an entry is one put, whatever it names, and none overtakes another",
    ),
    Setting(
        "max.request.size",
        "The largest data file that the producer writes: a larger batch is split, a larger record refused.",
        1 << 30,
        _MIB,
        low=1,
        high=1 << 30,
        why="a batch is a data file, and readers want large ones",
    ),
    Setting(
        "acks",
        "When a write counts: once the store has it.",
        "all",
        "all",
        **_one_of("all", also={"-1": "all"}),
    ),
    Setting("enable.idempotence", "No batch is ever doubled.", "true", "true", **_one_of("true")),
    Setting(
        "compression.type",
        "How data files are compressed.",
        "zstd",
        "none",
        **_one_of("zstd"),
        why="data files are Parquet, and small ones are not compressed",
    ),
)
PRODUCER: Final[Mapping[str, Setting]] = MappingProxyType({each.name: each for each in _PRODUCER})
"""A producer's, by name."""

_CONSUMER: Final = (
    Setting("group.id", "The group whose offsets are read and committed.", "", ""),
    Setting(
        "isolation.level",
        "Whether only what is committed is read.",
        "read_committed",
        "read_uncommitted",
        **_one_of("read_committed", "read_uncommitted"),
        why="who leaves it out must not read what is aborted later",
    ),
    Setting(
        "auto.offset.reset",
        "Where to begin where the group has no offset, or one that is gone; `none`: it is an error.",
        "earliest",
        "latest",
        **_one_of("earliest", "latest", "none"),
        why="a group that is new misses nothing",
    ),
    Setting(
        "max.poll.records",
        "How many records `poll` gives where it is not told.",
        100_000,
        500,
        low=1,
        high=_INT32_MAX,
        why="a poll gives a table, not single records",
    ),
    Setting(
        "fetch.max.bytes",
        "How many bytes of data files are read ahead, as they are stored; one file whatever its size.",
        32 * _MIB,
        50 * _MIB,
        low=0,
        high=_INT32_MAX,
        why="memory: a table takes several times what its file does",
    ),
    Setting(
        "enable.auto.commit",
        "Whether positions are committed by themselves.",
        "false",
        "true",
        **_one_of("false"),
        why="a commit names the row that its reader fetched: the reader says when its work is done",
    ),
)
CONSUMER: Final[Mapping[str, Setting]] = MappingProxyType({each.name: each for each in _CONSUMER})
"""A consumer's, by name."""

_GROUP: Final = "nothing: there is no group protocol, every subscriber gets all partitions"
_CONNECTIONS: Final = "nothing: connections are the store client's"
_CREDENTIALS: Final = "the store's credentials and endpoint, in connect() or the environment"
_METRICS: Final = "nothing: a client keeps none"
_NOT_A_CLIENTS: Final = {
    "bootstrap.*": "the store's URL, in connect()",
    "client.dns.lookup": _CONNECTIONS,
    "client.id": "nothing: there is no server that would tell clients apart by it",
    "client.rack": "nothing: there is no broker that would be near or far",
    "config.providers": "values as they are: nothing is looked up in them",
    "connections.max.idle.ms": _CONNECTIONS,
    "default.api.timeout.ms": "nothing: a silent store is reported within 20 s, a busy one within two minutes",
    "enable.metrics.push": _METRICS,
    "interceptor.classes": "a function around your own calls",
    "metadata.*": "nothing: what is known of topics and settings is looked up again after 5 s",
    "metric.*": _METRICS,
    "metrics.*": _METRICS,
    "receive.buffer.bytes": _CONNECTIONS,
    "reconnect.backoff.*": "nothing: pauses grow from 20 milliseconds to five seconds, with jitter",
    "retry.backoff.*": "nothing: pauses grow from 20 milliseconds to five seconds, with jitter",
    "sasl.*": _CREDENTIALS,
    "security.*": _CREDENTIALS,
    "send.buffer.bytes": _CONNECTIONS,
    "socket.*": _CONNECTIONS,
    "ssl.*": _CREDENTIALS,
}
_OF_A_CONSUMER: Final = dict.fromkeys(CONSUMER, "a consumer: it is one of its settings")
_OF_A_PRODUCER: Final = dict.fromkeys(PRODUCER, "a producer: it is one of its settings")
NOT_A_PRODUCERS: Final[Mapping[str, str]] = MappingProxyType(
    _OF_A_CONSUMER
    | _NOT_A_CLIENTS
    | {
        "retries": "delivery.timeout.ms: it is tried again until then",
        "key.serializer": "nothing: records are Arrow tables in the topic's schema",
        "value.serializer": "nothing: records are Arrow tables in the topic's schema",
        "compression.*": "nothing: data files are Parquet, compressed with zstd",
        "partitioner.*": "produce(partition=...): without it Kafka's default partitioner decides",
        "transaction.two.phase.commit.enable": "nothing: two-phase commit (KIP-939) is not offered yet",
    }
)
"""What a producer has not, and what to expect instead."""
NOT_A_CONSUMERS: Final[Mapping[str, str]] = MappingProxyType(
    _OF_A_PRODUCER
    | _NOT_A_CLIENTS
    | {
        "request.timeout.ms": "poll(timeout_ms=...)",
        "fetch.max.wait.ms": "poll(timeout_ms=...)",
        "fetch.min.bytes": "poll(timeout_ms=...)",
        "max.partition.fetch.bytes": "fetch.max.bytes: files are read whole",
        "auto.commit.interval.ms": "commit(), or offsets in a transaction",
        "session.timeout.ms": _GROUP,
        "heartbeat.interval.ms": _GROUP,
        "max.poll.interval.ms": _GROUP,
        "partition.assignment.strategy": _GROUP,
        "group.*": _GROUP,
        "exclude.internal.topics": "nothing: internal topics are not subscribed to",
        "share.*": "nothing: there are no share groups",
        "check.crcs": "nothing: each object is held against its checksum",
        "allow.auto.create.topics": "nothing: a topic is made by `topics create`",
        "key.deserializer": "nothing: records are Arrow tables in the topic's schema",
        "value.deserializer": "nothing: records are Arrow tables in the topic's schema",
    }
)
"""What a consumer has not, and what to expect instead."""


@dataclass(frozen=True, slots=True)
class ProducerSettings:
    """How a producer works; the fields are the settings of those names."""

    transactional_id: str | None = None
    transaction_timeout_ms: int = 60_000
    delivery_timeout_ms: int = _INT32_MAX
    request_timeout_ms: int = 30_000
    max_block_ms: int = -1
    linger_ms: int = 0
    batch_size: int = 16 * _MIB
    buffer_memory: int = 256 * _MIB
    max_in_flight_requests_per_connection: int = 64
    max_request_size: int = 1 << 30


@dataclass(frozen=True, slots=True)
class ConsumerSettings:
    """How a consumer works; the fields are the settings of those names."""

    group_id: str | None = None
    isolation_level: IsolationLevel = "read_committed"
    auto_offset_reset: OffsetReset = "earliest"
    max_poll_records: int = 100_000
    fetch_max_bytes: int = 32 * _MIB


class ProducerKeywords(TypedDict, total=False):
    """A producer's settings as keywords."""

    transactional_id: str | None
    transaction_timeout_ms: int
    delivery_timeout_ms: int
    request_timeout_ms: int
    max_block_ms: int
    linger_ms: int
    batch_size: int
    buffer_memory: int
    max_in_flight_requests_per_connection: int
    max_request_size: int
    acks: str | int
    enable_idempotence: bool | str
    compression_type: str


class ConsumerKeywords(TypedDict, total=False):
    """A consumer's settings as keywords."""

    group_id: str | None
    isolation_level: IsolationLevel
    auto_offset_reset: OffsetReset
    max_poll_records: int
    fetch_max_bytes: int
    enable_auto_commit: bool | str


_Settings = TypeVar("_Settings", ProducerSettings, ConsumerSettings)
_NAMED: Final = ("transactional.id", "group.id")
_JUDGED_BY_CALLS: Final = (*_NAMED, "transaction.timeout.ms", "isolation.level", "auto.offset.reset")
"""What is refused by the errors that Kafka has for it, by the call that needs it."""


def producer_settings(
    config: Mapping[str, object] | None, keywords: Mapping[str, object]
) -> ProducerSettings:
    """Those of a dict under Kafka's names, and of keywords, which have underscores for dots.

    Raises `InvalidConfigError` for a setting that there is not, or that can have no meaning here, and says why; for a
    value out of range; for one that is given in both.
    """
    return _settings(ProducerSettings, config, keywords, PRODUCER, NOT_A_PRODUCERS, "producer")


def consumer_settings(
    config: Mapping[str, object] | None, keywords: Mapping[str, object]
) -> ConsumerSettings:
    """As `producer_settings`."""
    return _settings(ConsumerSettings, config, keywords, CONSUMER, NOT_A_CONSUMERS, "consumer")


def _settings(
    kind: type[_Settings],
    config: Mapping[str, object] | None,
    keywords: Mapping[str, object],
    known: Mapping[str, Setting],
    elsewhere: Mapping[str, str],
    actor: str,
) -> _Settings:
    if config is not None and not isinstance(config, Mapping):
        raise InvalidConfigError(
            f"a config {config!r:.80}",
            actor=actor,
            expected="a dict of settings, {Kafka's name: value}",
            reason=Reason.NO_SETTINGS_DICT,
        )
    by_field = {each.replace(".", "_"): each for each in (*known, *elsewhere)}
    given = dict(config or {})
    for keyword, value in keywords.items():
        dotted = keyword.replace("_", ".")
        name = by_field.get(keyword, keyword if absence(dotted, elsewhere) is None else dotted)
        if name in given:
            raise InvalidConfigError(
                f"{name} twice",
                actor=actor,
                expected="it in the dict or as a keyword",
                reason=Reason.SETTING_TWICE,
            )
        given[name] = value
    found: dict[str, Any] = {}
    for name, value in given.items():
        setting = looked_up(name, known, elsewhere, actor=actor)
        held = _held(setting, value, actor)
        if setting.field in kind.__dataclass_fields__:
            found[setting.field] = held
    return kind(**found)


def _held(setting: Setting, value: object, actor: str) -> object:
    if setting.name in _NAMED:
        return value
    if isinstance(setting.default, str) and isinstance(value, (bool, int)):
        value = str(value).lower()  # True, and Kafka's -1
    try:
        return parsed(setting, value, actor=actor)
    except InvalidConfigError:
        if setting.name in _JUDGED_BY_CALLS:
            return value
        raise
