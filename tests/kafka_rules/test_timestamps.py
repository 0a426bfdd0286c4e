"""Timestamps that producers give to records (`LogValidator.validateTimestamp`, KIP-937)."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
import pytest

from tests.engine.conftest import SCHEMA, payments
from txn_engine import Engine
from txn_engine.errors import InvalidTimestampError
from txn_engine.reasons import Reason
from txn_engine.testing import ManualClock

HOUR_MS = 3_600_000
TOPIC = "timed"
Send = Callable[[Engine, int], None]


def _produce(engine: Engine, time_ms: int) -> None:
    with engine.producer() as producer:
        producer.produce(TOPIC, payments(1), timestamp_ms=time_ms).result()


def _one_each(engine: Engine, time_ms: int) -> None:
    times = pa.array([engine.clock(), time_ms, engine.clock()], pa.int64())
    with engine.producer() as producer:
        producer.produce(TOPIC, payments(1, 2, 3), timestamp_ms=times).result()


def _in_a_transaction(engine: Engine, time_ms: int) -> None:
    with engine.producer(transactional_id="timed") as producer:
        producer.init_transactions()
        with producer.transaction():
            producer.produce(TOPIC, payments(1), timestamp_ms=time_ms)


def _uploaded_first(engine: Engine, time_ms: int) -> None:
    with engine.producer(transactional_id="timed") as producer:
        producer.init_transactions()
        uploads = producer.upload()
        uploads.produce(TOPIC, payments(1), timestamp_ms=time_ms)
        with producer.transaction():
            uploads.send()


def _by_the_partition_alone(engine: Engine, time_ms: int) -> None:
    engine.partition(TOPIC, 0).append(payments(1), timestamp_ms=time_ms)


_ROADS: dict[str, Send] = {
    "produce": _produce,
    "a time for each record": _one_each,
    "a transaction": _in_a_transaction,
    "uploaded first": _uploaded_first,
    "the partition alone": _by_the_partition_alone,
}


@pytest.mark.parametrize("road", list(_ROADS))
@pytest.mark.parametrize(
    ("settings", "off_ms", "allowed"),
    [
        ({}, HOUR_MS, True),
        ({}, HOUR_MS + 1, False),
        ({}, -400 * 24 * HOUR_MS, True),
        ({"message.timestamp.after.max.ms": 0}, 0, True),
        ({"message.timestamp.after.max.ms": 0}, 1, False),
        ({"message.timestamp.after.max.ms": 2 * HOUR_MS}, 2 * HOUR_MS, True),
        ({"message.timestamp.before.max.ms": HOUR_MS}, -HOUR_MS, True),
        ({"message.timestamp.before.max.ms": HOUR_MS}, -HOUR_MS - 1, False),
        ({"message.timestamp.before.max.ms": 2**63 - 1}, 1_000 - 1_700_000_000_000, True),
    ],
)
def test_timestamps_that_the_topic_does_not_allow(
    engine: Engine, clock: ManualClock, road: str, settings: dict[str, int], off_ms: int, allowed: bool
) -> None:
    """A record's time may be an hour ahead of its producer's clock, and as far behind it as one likes, unless the topic
    says otherwise. Beyond that the call fails with INVALID_TIMESTAMP, and nothing is written.
    """
    engine.admin.create_topic(TOPIC, partitions=1, schema=SCHEMA)
    if settings:
        engine.admin.alter_configs(settings, topic=TOPIC)
    if allowed:
        _ROADS[road](engine, clock() + off_ms)
        times = engine.scan(TOPIC).to_table().column("_timestamp").cast(pa.int64()).to_pylist()
        assert clock() + off_ms in times
        return
    with pytest.raises(InvalidTimestampError) as caught:
        _ROADS[road](engine, clock() + off_ms)
    assert (caught.value.code, caught.value.reason) == ("INVALID_TIMESTAMP", Reason.TIMESTAMP_OUT_OF_RANGE)
    assert engine.scan(TOPIC, isolation_level="read_uncommitted").to_table().num_rows == 0


def test_a_bound_that_is_altered_counts_at_once(engine: Engine, clock: ManualClock) -> None:
    """Both bounds can be changed: a producer of the same engine goes by the new ones in its next call."""
    engine.admin.create_topic(TOPIC, partitions=1, schema=SCHEMA)
    with engine.producer() as producer:
        for bounds in ((5, 0), (0, 5), (7, 7)):
            before, after = bounds
            engine.admin.alter_configs({"message.timestamp.before.max.ms": before}, topic=TOPIC)
            engine.admin.alter_configs({"message.timestamp.after.max.ms": after}, topic=TOPIC)
            for off_ms in (-before, after):
                producer.produce(TOPIC, payments(1), timestamp_ms=clock() + off_ms).result()
            for off_ms in (-before - 1, after + 1):
                with pytest.raises(InvalidTimestampError):
                    producer.produce(TOPIC, payments(1), timestamp_ms=clock() + off_ms)


def test_the_transaction_goes_on_without_the_records(engine: Engine, clock: ManualClock) -> None:
    """A call that is refused for its time changes nothing: the transaction commits the rest."""
    engine.admin.create_topic(TOPIC, partitions=1, schema=SCHEMA)
    with engine.producer(transactional_id="timed") as producer:
        producer.init_transactions()
        with producer.transaction():
            producer.produce(TOPIC, payments(1))
            with pytest.raises(InvalidTimestampError):
                producer.produce(TOPIC, payments(2), timestamp_ms=clock() + 2 * HOUR_MS)
            producer.produce(TOPIC, payments(3))
    assert sorted(engine.scan(TOPIC).to_table().column("account_id").to_pylist()) == [1, 3]


def test_a_topic_is_made_with_its_bounds(engine: Engine) -> None:
    """The settings can be given when the topic is made, and have Kafka's defaults otherwise."""
    made = engine.admin.create_topic(TOPIC, schema=SCHEMA, message_timestamp_after_max_ms=5)
    assert (made.message_timestamp_before_max_ms, made.message_timestamp_after_max_ms) == (2**63 - 1, 5)
    other = engine.admin.create_topic("other", schema=SCHEMA)
    assert other.message_timestamp_after_max_ms == HOUR_MS
