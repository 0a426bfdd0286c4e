"""The options of `format("txn_engine")`: those of Spark's Kafka source and sink, under their names, where they mean
something here; whatever else is given is refused by its name.

Nothing here looks at a store.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal, NoReturn, TypeVar

from txn_engine.errors import InvalidRequestError
from txn_engine.reasons import Reason
from txn_engine.types import IsolationLevel, TopicPartition

ACTOR: Final = 'format("txn_engine")'
EARLIEST: Final = -2
LATEST: Final = -1
_DEFAULT_DELAY_MS: Final = 15 * 60 * 1000
_UNITS_MS: Final = {"ms": 1, "s": 1000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}

Strategy = Literal["error", "latest"]
T = TypeVar("T")

_SUBSCRIPTIONS: Final = ("subscribe", "subscribePattern", "assign")
_STORE: Final = ("url", "endpoint")
_READ: Final = (
    *_STORE,
    *_SUBSCRIPTIONS,
    "startingTimestamp",
    "startingOffsetsByTimestamp",
    "startingOffsets",
    "startingOffsetsByTimestampStrategy",
    "failOnDataLoss",
    "minPartitions",
    "maxRecordsPerPartition",
    "isolationLevel",
    "kafka.isolation.level",
    "includeKafkaColumns",
    "includeHeaders",
)
_BATCH: Final = (*_READ, "endingTimestamp", "endingOffsetsByTimestamp", "endingOffsets")
_STREAM: Final = (
    *_READ,
    "maxOffsetsPerTrigger",
    "minOffsetsPerTrigger",
    "maxTriggerDelay",
    "groupId",
    "kafka.group.id",
    "rangesOnly",
    "accessFile",
)
_EITHER: Final = tuple(dict.fromkeys((*_BATCH, *_STREAM)))
_SINK: Final = (*_STORE, "topic", "transactionalId", "transactionTimeoutMs")
_BATCH_SINK: Final = (*_SINK, "runId")
_STREAM_SINK: Final = (*_SINK, "checkpointLocation", "takeOver", "queryName")
_ALL: Final = {name.lower(): name for name in (*_BATCH, *_STREAM, *_BATCH_SINK, *_STREAM_SINK)}
_NO_TABLE: Final = (
    "a table of Spark's catalog keeps no options: "
    "`CREATE TEMPORARY VIEW name USING txn_engine OPTIONS (url ..., subscribe ...)` does"
)
_INSTEAD: Final = {
    "provider": _NO_TABLE,  # what CREATE TABLE ... USING gives
    "owner": _NO_TABLE,
    "kafka.bootstrap.servers": "there are no brokers: `url` names the store",
    "path": "`url` names the store, `subscribe` or `topic` the topic",
    "kafka.transactional.id": "it is `transactionalId`",
    "checks": "a sink has none: give them to write_topic, run_consume_job or stream_topic",
    "report_folder": "a sink has no checks to report on",
    "groupidprefix": "name the group with `groupId`, or none",
}
_WHERE: Final = {
    _EITHER: "of a read",
    _BATCH: "of a batch read",
    _STREAM: "of a stream",
    _BATCH_SINK: "of a batch write",
    _STREAM_SINK: "of a streaming sink",
}


@dataclass(frozen=True, slots=True)
class Subscription:
    """Which topics: named, by a pattern, or single partitions of them. Exactly one is given."""

    topics: tuple[str, ...] = ()
    pattern: str | None = None
    partitions: tuple[TopicPartition, ...] = ()

    def __str__(self) -> str:
        if self.pattern is not None:
            return f"subscribePattern {self.pattern!r}"
        if self.partitions:
            return f"assign {', '.join(map(str, self.partitions))}"
        return f"subscribe {', '.join(map(repr, self.topics))}"


@dataclass(frozen=True, slots=True)
class Bound:
    """Where a read begins or ends, in each partition: one place for all, or one for each.

    `offset`, `offsets`: `EARLIEST`, `LATEST`, or an offset. `time_ms`, `times_ms`: the first record at that time or
    later.
    """

    option: str
    offset: int | None = None
    offsets: Mapping[TopicPartition, int] | None = None
    time_ms: int | None = None
    times_ms: Mapping[TopicPartition, int] | None = None

    @property
    def named(self) -> Mapping[TopicPartition, int] | None:
        """What is said of single partitions; None where one word is for all."""
        return self.offsets if self.offsets is not None else self.times_ms


@dataclass(frozen=True, slots=True)
class Limits:
    """How much a micro-batch takes: at most, at least, and how long it waits for that."""

    max_offsets: int | None = None
    min_offsets: int | None = None
    max_delay_ms: int = _DEFAULT_DELAY_MS


@dataclass(frozen=True, slots=True)
class StoreOptions:
    """Which store. Credentials are never options: they come from the environment, as for `connect()`, or from a file of
    this user's that `stream_topic` leaves for the time of its query.
    """

    url: str
    endpoint: str | None = None
    access_file: str | None = None


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """All that a read was told."""

    store: StoreOptions
    subscription: Subscription
    start: Bound
    end: Bound
    strategy: Strategy = "error"
    fail_on_data_loss: bool = True
    isolation_level: IsolationLevel = "read_committed"
    min_partitions: int | None = None
    max_records_per_partition: int | None = None
    kafka_columns: bool = False
    headers: bool = False
    limits: Limits = field(default_factory=Limits)
    group_id: str | None = None
    ranges_only: bool = False


@dataclass(frozen=True, slots=True)
class SinkOptions:
    """All that a write was told. `transactional_id` None: one is made of the checkpoint and the topic."""

    store: StoreOptions
    topic: str
    transactional_id: str | None = None
    transaction_timeout_ms: int = 60_000
    run_id: str | None = None
    checkpoint: str | None = None
    take_over: bool = False


def store_options(given: Mapping[str, str]) -> StoreOptions:
    """`url` and `endpoint`, which every use names."""
    return _Options(given, None).store()


def read_options(given: Mapping[str, str], *, streaming: bool) -> ReadOptions:
    """The options of a batch read or a stream. Raises `InvalidRequestError` for one that is unknown or means nothing
    there, and for a value that cannot be meant.
    """
    options = _Options(given, _STREAM if streaming else _BATCH)
    return ReadOptions(
        store=options.store(),
        subscription=options.subscription(),
        start=options.bound("starting", LATEST if streaming else EARLIEST),
        end=Bound("endingOffsets", LATEST) if streaming else options.bound("ending", LATEST),
        strategy=options.one_of("startingOffsetsByTimestampStrategy", ("error", "latest"), "error"),
        fail_on_data_loss=options.flag("failOnDataLoss", default=True),
        isolation_level=options.isolation_level(),
        min_partitions=options.count("minPartitions"),
        max_records_per_partition=options.count("maxRecordsPerPartition"),
        kafka_columns=options.flag("includeKafkaColumns", default=False),
        headers=options.flag("includeHeaders", default=False),
        limits=options.limits(),
        group_id=options.either("groupId", "kafka.group.id"),
        ranges_only=options.flag("rangesOnly", default=False),
    )


def schema_options(given: Mapping[str, str]) -> ReadOptions:
    """What decides a read's columns: Spark asks for them before it says whether it is a batch or a stream."""
    options = _Options(given, _EITHER)
    return ReadOptions(
        store=options.store(),
        subscription=options.subscription(),
        start=Bound("startingOffsets", EARLIEST),
        end=Bound("endingOffsets", LATEST),
        kafka_columns=options.flag("includeKafkaColumns", default=False),
        headers=options.flag("includeHeaders", default=False),
        ranges_only=options.flag("rangesOnly", default=False),
    )


def sink_options(given: Mapping[str, str], *, streaming: bool) -> SinkOptions:
    """The options of a write."""
    options = _Options(given, _STREAM_SINK if streaming else _BATCH_SINK)
    return SinkOptions(
        store=options.store(),
        topic=options.required("topic", "the topic that is written"),
        transactional_id=options.text("transactionalId"),
        transaction_timeout_ms=options.count("transactionTimeoutMs") or 60_000,
        run_id=options.text("runId"),
        checkpoint=options.text("checkpointLocation"),
        take_over=options.flag("takeOver", default=False),
    )


class _Options:
    """What was given, under the names that the documentation has."""

    def __init__(self, given: Mapping[str, str], allowed: tuple[str, ...] | None) -> None:
        self._given = {name.lower(): value for name, value in given.items()}
        if allowed is None:
            return
        known = {name.lower() for name in allowed}
        for name in self._given:
            if name not in known:
                _refuse_name(name, allowed)

    def store(self) -> StoreOptions:
        url = self.required("url", "file:///folder or a bucket's URL")
        if "://" not in url:
            _refuse("url", url, "file:///folder or a bucket's URL")
        file = self.text("accessFile")
        if file is not None and not self.flag("rangesOnly", default=False):
            _refuse_name("accessfile", _BATCH)
        return StoreOptions(url, self.text("endpoint"), file)

    def subscription(self) -> Subscription:
        given = [name for name in _SUBSCRIPTIONS if name.lower() in self._given]
        if len(given) != 1:
            raise InvalidRequestError(
                f"{' and '.join(given) or 'none'} of {', '.join(_SUBSCRIPTIONS)}",
                actor=ACTOR,
                expected="exactly one of them",
                reason=Reason.ONE_SUBSCRIPTION,
            )
        if given == ["assign"]:
            return Subscription(partitions=self._value("assign", _assigned, '{"payments": [0, 1]}'))
        if given == ["subscribePattern"]:
            return Subscription(pattern=self.required("subscribePattern", "a regular expression"))
        return Subscription(topics=self._value("subscribe", _names, "topics, separated by commas"))

    def bound(self, side: Literal["starting", "ending"], default: int) -> Bound:
        """The strongest that is given: a time for all, times, offsets."""
        at, by_time, offsets = f"{side}Timestamp", f"{side}OffsetsByTimestamp", f"{side}Offsets"
        if self._has(at):
            return Bound(at, time_ms=self._value(at, _natural, "milliseconds since 1970"))
        if self._has(by_time):
            shape = '{"payments": {"0": 1700000000000}}'
            return Bound(by_time, times_ms=self._value(by_time, _partition_numbers, shape))
        words = {"earliest": EARLIEST, "latest": LATEST}
        forbidden = LATEST if side == "starting" else EARLIEST
        word = self.text(offsets)
        if word is None:
            return Bound(offsets, offset=default)
        if word.lower() in words:
            offset = words[word.lower()]
            if offset == forbidden and default != forbidden:
                other = "earliest" if side == "starting" else "latest"
                _refuse(offsets, word, f"{other!r} or JSON in a batch read")
            return Bound(offsets, offset=offset)
        shape = '"earliest", "latest" or {"payments": {"0": 17, "1": -1}}, -2 the earliest, -1 the latest'
        return Bound(offsets, offsets=self._value(offsets, _partition_offsets, shape))

    def limits(self) -> Limits:
        least, most = self.count("minOffsetsPerTrigger"), self.count("maxOffsetsPerTrigger")
        if least is not None and most is not None and least > most:
            _refuse("minOffsetsPerTrigger", str(least), f"at most maxOffsetsPerTrigger, {most}")
        delay = self._value("maxTriggerDelay", _duration_ms, "'15m', '30s', '2h'", _DEFAULT_DELAY_MS)
        return Limits(most, least, delay)

    def isolation_level(self) -> IsolationLevel:
        name = "kafka.isolation.level" if self._has("kafka.isolation.level") else "isolationLevel"
        level: IsolationLevel = self.one_of(name, ("read_committed", "read_uncommitted"), "read_committed")
        return level

    def either(self, name: str, kafka_name: str) -> str | None:
        """The same thing under our name or Kafka's."""
        ours, theirs = self.text(name), self.text(kafka_name)
        if ours is not None and theirs is not None and ours != theirs:
            _refuse(kafka_name, theirs, f"what {name} says")
        return ours if ours is not None else theirs

    def one_of(self, name: str, allowed: tuple[Any, ...], default: Any) -> Any:
        given = self.text(name)
        if given is None:
            return default
        if given not in allowed:
            _refuse(name, given, " or ".join(map(repr, allowed)))
        return given

    def flag(self, name: str, *, default: bool) -> bool:
        given = self.text(name)
        if given is None:
            return default
        if given.lower() not in ("true", "false"):
            _refuse(name, given, "true or false")
        return given.lower() == "true"

    def count(self, name: str) -> int | None:
        number: int | None = self._value(name, _positive, "a whole number above 0", None)
        return number

    def text(self, name: str) -> str | None:
        return self._given.get(name.lower())

    def required(self, name: str, what: str) -> str:
        given = self.text(name)
        if not given:
            raise InvalidRequestError(
                f"no option {name!r}",
                actor=ACTOR,
                expected=what,
                action=_NO_TABLE if name == "url" else "",
                reason=Reason.MISSING_OPTION,
            )
        return given

    def _has(self, name: str) -> bool:
        return name.lower() in self._given

    def _value(self, name: str, parse: Callable[[str], T], shape: str, default: Any = None) -> Any:
        given = self.text(name)
        if given is None:
            return default
        try:
            return parse(given)
        except (ValueError, TypeError, AttributeError, RecursionError):
            _refuse(name, given, shape)


def _refuse(name: str, given: str, expected: str) -> NoReturn:
    shown = given if len(given) <= 100 else f"{given[:100]}..."
    raise InvalidRequestError(
        f"option {name!r}: {shown!r}", actor=ACTOR, expected=expected, reason=Reason.BAD_OPTION_VALUE
    )


def _refuse_name(name: str, allowed: tuple[str, ...]) -> NoReturn:
    where = _WHERE[allowed]
    if name in _ALL:
        raise InvalidRequestError(
            f"option {_ALL[name]!r}",
            actor=ACTOR,
            expected=f"options {where}",
            action="leave it out",
            reason=Reason.OPTION_NOT_HERE,
        )
    meant = _INSTEAD.get(name)
    if meant is None and name.startswith("kafka."):
        meant = "it is for a client of a broker, and there is none; leave it out"
    if meant is None:
        near = difflib.get_close_matches(name, [known.lower() for known in allowed], n=1)
        meant = f"did you mean {_ALL[near[0]]!r}?" if near else "leave it out"
    raise InvalidRequestError(
        f"unknown option {name!r}",
        actor=ACTOR,
        expected=f"options {where}",
        action=meant,
        reason=Reason.UNKNOWN_OPTION,
    )


# --- values -----------------------------------------------------------------------------------------------


def _names(given: str) -> tuple[str, ...]:
    names = tuple(name.strip() for name in given.split(","))
    if not all(names):
        raise ValueError
    return tuple(dict.fromkeys(names))


def _natural(given: str) -> int:
    number = int(given)
    if not 0 <= number < 2**63:
        raise ValueError
    return number


def _positive(given: str) -> int:
    number = _natural(given)
    if number == 0:
        raise ValueError
    return number


def _duration_ms(given: str) -> int:
    """Spark's durations: "90s", "15m"; a bare number counts milliseconds."""
    number = given.strip().rstrip("abcdefghijklmnopqrstuvwxyz").strip()
    unit = given.strip()[len(number) :].strip() or "ms"
    if unit not in _UNITS_MS:
        raise ValueError
    return _natural(number) * _UNITS_MS[unit]


def _assigned(given: str) -> tuple[TopicPartition, ...]:
    parsed = json.loads(given)
    partitions = [
        TopicPartition(str(topic), _whole(number)) for topic, numbers in parsed.items() for number in numbers
    ]
    if not partitions:
        raise ValueError
    return tuple(dict.fromkeys(partitions))


def _partition_numbers(given: str) -> dict[TopicPartition, int]:
    """`{"payments": {"0": 5}}`; what begins with an underscore names no topic."""
    parsed = json.loads(given)
    return {
        TopicPartition(topic, _natural(number)): _whole(value)
        for topic, partitions in parsed.items()
        if not topic.startswith("_")
        for number, value in partitions.items()
    }


def _partition_offsets(given: str) -> dict[TopicPartition, int]:
    offsets = _partition_numbers(given)
    if any(offset < EARLIEST for offset in offsets.values()):
        raise ValueError
    return offsets


def _whole(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not EARLIEST <= value < 2**63:
        raise ValueError
    return value
