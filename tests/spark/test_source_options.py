"""The options of `format("txn_engine")`: Kafka's names, and what is refused by its name."""

from __future__ import annotations

import pytest

from txn_engine import TopicPartition
from txn_engine.errors import InvalidRequestError
from txn_engine.spark.source.options import EARLIEST, LATEST, read_options, sink_options

STORE = {"url": "file:///ledger"}
TOPIC = STORE | {"subscribe": "payments"}


def test_kafka_s_defaults() -> None:
    """A batch reads from the earliest to the latest, a stream from the latest on; what is lost is told."""
    batch, stream = read_options(TOPIC, streaming=False), read_options(TOPIC, streaming=True)
    assert (batch.start.offset, batch.end.offset, stream.start.offset) == (EARLIEST, LATEST, LATEST)
    assert batch.fail_on_data_loss
    assert stream.fail_on_data_loss
    assert batch.isolation_level == "read_committed"
    assert (stream.limits.max_offsets, stream.limits.min_offsets) == (None, None)
    assert stream.limits.max_delay_ms == 15 * 60 * 1000
    assert not batch.kafka_columns


def test_names_are_taken_in_any_case() -> None:
    """Spark hands options over in lower case; people write them as Kafka's page does."""
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
    """A time for all before times, times before offsets; and the progress of a query can be given back."""
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
    """As Spark writes them."""
    assert read_options(TOPIC | {"maxTriggerDelay": given}, streaming=True).limits.max_delay_ms == ms


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({}, "no option 'url'"),
        ({"url": "ledger", "subscribe": "payments"}, "option 'url': 'ledger'; expected file:///"),
        (STORE, "none of subscribe, subscribePattern, assign; expected exactly one"),
        (TOPIC | {"assign": '{"payments": [0]}'}, "subscribe and assign of"),
        (STORE | {"subscribe": "a,,b"}, "option 'subscribe'"),
        (STORE | {"assign": '{"payments": 0}'}, "option 'assign'"),
        (STORE | {"assign": "payments"}, "option 'assign'"),
        (TOPIC | {"startingOffsets": "now"}, "option 'startingOffsets': 'now'"),
        (TOPIC | {"startingOffsets": '{"payments": {"0": -3}}'}, "option 'startingOffsets'"),
        (TOPIC | {"startingOffsets": '{"payments": {"0": 1.5}}'}, "option 'startingOffsets'"),
        (TOPIC | {"startingOffsets": '{"payments": {"0": 1e400}}'}, "option 'startingOffsets'"),
        (TOPIC | {"startingOffsets": "[" * 100_000}, "option 'startingOffsets'"),
        (TOPIC | {"startingTimestamp": "yesterday"}, "option 'startingTimestamp'"),
        (TOPIC | {"maxOffsetsPerTrigger": "0"}, "option 'maxOffsetsPerTrigger'"),
        (TOPIC | {"maxOffsetsPerTrigger": "5", "minOffsetsPerTrigger": "6"}, "minOffsetsPerTrigger"),
        (TOPIC | {"maxTriggerDelay": "soon"}, "option 'maxTriggerDelay'"),
        (TOPIC | {"failOnDataLoss": "yes"}, "option 'failOnDataLoss': 'yes'; expected true or false"),
        (TOPIC | {"isolationLevel": "committed"}, "option 'isolationLevel'"),
        (TOPIC | {"groupId": "a", "kafka.group.id": "b"}, "option 'kafka.group.id'"),
        (TOPIC | {"kafka.bootstrap.servers": "h:9092"}, "there are no brokers: `url` names the store"),
        (TOPIC | {"kafka.security.protocol": "SSL"}, "there is none"),
        (TOPIC | {"kafkaConsumer.pollTimeoutMs": "1"}, "unknown option 'kafkaconsumer.polltimeoutms'"),
        (TOPIC | {"startingOffset": "latest"}, "did you mean 'startingOffsets'"),
        (TOPIC | {"endingOffsets": "latest"}, "option 'endingOffsets'; expected options of a stream"),
        (TOPIC | {"topic": "balances"}, "option 'topic'; expected options of a stream"),
        (TOPIC | {"path": "x"}, "`url` names the store"),
    ],
)
def test_what_a_stream_cannot_mean(given: dict[str, str], words: str) -> None:
    """One sentence that names the option, what was seen, and what is expected."""
    with pytest.raises(InvalidRequestError) as refused:
        read_options(given, streaming=True)
    assert words in str(refused.value)
    assert "\n" not in str(refused.value)
    assert len(str(refused.value)) < 500


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"startingOffsets": "latest"}, "option 'startingOffsets'"),
        ({"endingOffsets": "earliest"}, "option 'endingOffsets'"),
        ({"maxOffsetsPerTrigger": "5"}, "option 'maxOffsetsPerTrigger'; expected options of a batch read"),
        ({"groupId": "g"}, "option 'groupId'; expected options of a batch read"),
    ],
)
def test_what_a_batch_cannot_mean(given: dict[str, str], words: str) -> None:
    """A batch has an end, and no group follows it."""
    with pytest.raises(InvalidRequestError) as refused:
        read_options(TOPIC | given, streaming=False)
    assert words in str(refused.value)


def test_a_sink() -> None:
    """A topic, and what its transactions are called."""
    given = STORE | {
        "topic": "balances",
        "transactionalId": "b",
        "checkpointLocation": "/ck",
        "takeOver": "true",
    }
    options = sink_options(given, streaming=True)
    assert (options.topic, options.transactional_id, options.checkpoint) == ("balances", "b", "/ck")
    assert options.take_over
    with pytest.raises(InvalidRequestError, match="no option 'topic'"):
        sink_options(STORE, streaming=True)
    with pytest.raises(InvalidRequestError, match="option 'runId'"):
        sink_options(given | {"runId": "r"}, streaming=True)
