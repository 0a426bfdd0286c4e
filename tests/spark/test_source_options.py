"""The options of `format("txn_engine")`: Kafka's names, and the options that are refused."""

from __future__ import annotations

import pytest

from tests.support.refusals import refused
from txn_engine import TopicPartition
from txn_engine.errors import InvalidRequestError
from txn_engine.reasons import Reason
from txn_engine.spark.source.options import EARLIEST, LATEST, read_options, sink_options

STORE = {"url": "file:///ledger"}
TOPIC = STORE | {"subscribe": "payments"}


def test_kafka_s_defaults() -> None:
    """A batch reads from the earliest to the latest, a stream from the latest on. Data loss fails the query."""
    batch, stream = read_options(TOPIC, streaming=False), read_options(TOPIC, streaming=True)
    assert (batch.start.offset, batch.end.offset, stream.start.offset) == (EARLIEST, LATEST, LATEST)
    assert batch.fail_on_data_loss
    assert stream.fail_on_data_loss
    assert batch.isolation_level == "read_committed"
    assert (stream.limits.max_offsets, stream.limits.min_offsets) == (None, None)
    assert stream.limits.max_delay_ms == 15 * 60 * 1000
    assert not batch.kafka_columns


def test_names_are_taken_in_any_case() -> None:
    """Names are accepted in any case, because Spark passes options in lower case and people write them as on
    Kafka's page."""
    given = {"URL": "file:///ledger", "SUBSCRIBE": "a, b,a", "maxoffsetspertrigger": "5"}
    options = read_options(given, streaming=True)
    assert options.subscription.topics == ("a", "b")
    assert options.limits.max_offsets == 5


@pytest.mark.parametrize(
    ("given", "bound"),
    [
        ({"startingOffsets": "latest"}, {"offset": LATEST}),
        ({"startingOffsets": "Earliest"}, {"offset": EARLIEST}),
        (
            {"startingOffsets": '{"payments": {"0": 17, "1": -2}}'},
            {"offsets": {TopicPartition("payments", 0): 17, TopicPartition("payments", 1): EARLIEST}},
        ),
        (
            {"startingOffsets": '{"payments": {"0": 17}, "_incarnations": {"payments": 1}}'},
            {"offsets": {TopicPartition("payments", 0): 17}},
        ),
        ({"startingOffsets": "latest", "startingTimestamp": "1700000000000"}, {"time_ms": 1_700_000_000_000}),
        (
            {"startingOffsets": "latest", "startingOffsetsByTimestamp": '{"payments": {"0": 5}}'},
            {"times_ms": {TopicPartition("payments", 0): 5}},
        ),
        (
            {"startingTimestamp": "7", "startingOffsetsByTimestamp": '{"payments": {"0": 5}}'},
            {"time_ms": 7},
        ),
    ],
)
def test_the_strongest_start_counts(given: dict[str, str], bound: dict[str, object]) -> None:
    """One time for all partitions counts before times by partition, and times before offsets. The offsets of
    a query's progress are accepted too."""
    start = read_options(TOPIC | given, streaming=True).start
    shown = {
        "offset": start.offset,
        "offsets": start.offsets,
        "time_ms": start.time_ms,
        "times_ms": start.times_ms,
    }
    assert {name: value for name, value in shown.items() if value is not None} == bound


@pytest.mark.parametrize(
    ("given", "ms"), [("15m", 900_000), ("90s", 90_000), ("2 h", 7_200_000), ("500", 500)]
)
def test_delays(given: str, ms: int) -> None:
    """Delays are accepted as Spark writes them."""
    assert read_options(TOPIC | {"maxTriggerDelay": given}, streaming=True).limits.max_delay_ms == ms


@pytest.mark.parametrize(
    ("given", "reason", "name"),
    [
        ({}, Reason.MISSING_OPTION, "url"),
        ({"url": "ledger", "subscribe": "payments"}, Reason.BAD_OPTION_VALUE, "url"),
        (STORE, Reason.ONE_SUBSCRIPTION, "subscribe"),
        (TOPIC | {"assign": '{"payments": [0]}'}, Reason.ONE_SUBSCRIPTION, "subscribe and assign"),
        (STORE | {"subscribe": "a,,b"}, Reason.BAD_OPTION_VALUE, "subscribe"),
        (STORE | {"assign": '{"payments": 0}'}, Reason.BAD_OPTION_VALUE, "assign"),
        (STORE | {"assign": "payments"}, Reason.BAD_OPTION_VALUE, "assign"),
        (TOPIC | {"startingOffsets": "now"}, Reason.BAD_OPTION_VALUE, "startingOffsets"),
        (TOPIC | {"startingOffsets": '{"payments": {"0": -3}}'}, Reason.BAD_OPTION_VALUE, "startingOffsets"),
        (TOPIC | {"startingOffsets": '{"payments": {"0": 1.5}}'}, Reason.BAD_OPTION_VALUE, "startingOffsets"),
        (
            TOPIC | {"startingOffsets": '{"payments": {"0": 1e400}}'},
            Reason.BAD_OPTION_VALUE,
            "startingOffsets",
        ),
        (TOPIC | {"startingOffsets": "[" * 100_000}, Reason.BAD_OPTION_VALUE, "startingOffsets"),
        (TOPIC | {"startingTimestamp": "yesterday"}, Reason.BAD_OPTION_VALUE, "startingTimestamp"),
        (TOPIC | {"maxOffsetsPerTrigger": "0"}, Reason.BAD_OPTION_VALUE, "maxOffsetsPerTrigger"),
        (
            TOPIC | {"maxOffsetsPerTrigger": "5", "minOffsetsPerTrigger": "6"},
            Reason.BAD_OPTION_VALUE,
            "minOffsetsPerTrigger",
        ),
        (TOPIC | {"maxTriggerDelay": "soon"}, Reason.BAD_OPTION_VALUE, "maxTriggerDelay"),
        (TOPIC | {"failOnDataLoss": "yes"}, Reason.BAD_OPTION_VALUE, "failOnDataLoss"),
        (TOPIC | {"isolationLevel": "committed"}, Reason.BAD_OPTION_VALUE, "isolationLevel"),
        (TOPIC | {"groupId": "a", "kafka.group.id": "b"}, Reason.BAD_OPTION_VALUE, "kafka.group.id"),
        (TOPIC | {"kafka.bootstrap.servers": "h:9092"}, Reason.UNKNOWN_OPTION, "kafka.bootstrap.servers"),
        (TOPIC | {"kafka.security.protocol": "SSL"}, Reason.UNKNOWN_OPTION, "kafka.security.protocol"),
        (TOPIC | {"kafkaConsumer.pollTimeoutMs": "1"}, Reason.UNKNOWN_OPTION, "kafkaconsumer.polltimeoutms"),
        (TOPIC | {"startingOffset": "latest"}, Reason.UNKNOWN_OPTION, "startingoffset"),
        (TOPIC | {"endingOffsets": "latest"}, Reason.OPTION_NOT_HERE, "endingOffsets"),
        (TOPIC | {"topic": "balances"}, Reason.OPTION_NOT_HERE, "topic"),
        (TOPIC | {"path": "x"}, Reason.UNKNOWN_OPTION, "path"),
    ],
)
def test_options_that_a_stream_refuses(given: dict[str, str], reason: Reason, name: str) -> None:
    """The error is one line that names the option."""
    with pytest.raises(InvalidRequestError) as refused:
        read_options(given, streaming=True)
    assert refused.value.reason is reason
    assert name in refused.value.seen
    assert "\n" not in str(refused.value)
    assert len(str(refused.value)) < 500


@pytest.mark.parametrize(
    ("given", "reason", "name"),
    [
        ({"startingOffsets": "latest"}, Reason.BAD_OPTION_VALUE, "startingOffsets"),
        ({"endingOffsets": "earliest"}, Reason.BAD_OPTION_VALUE, "endingOffsets"),
        ({"maxOffsetsPerTrigger": "5"}, Reason.OPTION_NOT_HERE, "maxOffsetsPerTrigger"),
        ({"groupId": "g"}, Reason.OPTION_NOT_HERE, "groupId"),
    ],
)
def test_options_that_a_batch_refuses(given: dict[str, str], reason: Reason, name: str) -> None:
    """A batch refuses options of streams, a start at the end and an end at the start."""
    with pytest.raises(InvalidRequestError) as refused:
        read_options(TOPIC | given, streaming=False)
    assert refused.value.reason is reason
    assert name in refused.value.seen


@pytest.mark.parametrize(
    ("given", "action"),
    [
        ("startingOffset", "did you mean 'startingOffsets'?"),
        ("kafka.bootstrap.servers", "there are no brokers: `url` names the store"),
    ],
)
def test_an_unknown_option_says_what_to_use(given: str, action: str) -> None:
    """For an unknown option, the error names the option that was probably meant, or the replacement for one
    of Kafka's."""
    with pytest.raises(InvalidRequestError) as refused:
        read_options(TOPIC | {given: "latest"}, streaming=True)
    assert str(refused.value) == (
        f'format("txn_engine"): unknown option {given.lower()!r}; expected options of a stream; {action} '
        "[INVALID_REQUEST]"
    )


def test_a_sink() -> None:
    """A sink needs a topic. Its transactional id, checkpoint and `takeOver` are options, and a stream has no
    run id."""
    given = STORE | {
        "topic": "balances",
        "transactionalId": "b",
        "checkpointLocation": "/ck",
        "takeOver": "true",
    }
    options = sink_options(given, streaming=True)
    assert (options.topic, options.transactional_id, options.checkpoint) == ("balances", "b", "/ck")
    assert options.take_over
    with refused(InvalidRequestError, Reason.MISSING_OPTION):
        sink_options(STORE, streaming=True)
    with refused(InvalidRequestError, Reason.OPTION_NOT_HERE):
        sink_options(given | {"runId": "r"}, streaming=True)
