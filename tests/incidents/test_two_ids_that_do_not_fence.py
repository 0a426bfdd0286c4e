"""Two instances of one job ran under different transactional ids: neither fenced the other, and the work was
done twice.
"""

from __future__ import annotations

import pyarrow as pa
import pytest

from tests.incidents.scene import SCHEMA, Scene, error_of, orders
from txn_engine.consumer import Consumer
from txn_engine.producer import Producer


def instance(scene: Scene, transactional_id: str) -> tuple[Producer, Consumer, pa.Table]:
    """An instance of the job that has fetched its input."""
    consumer = scene.service.consumer(group_id="copy-orders")
    consumer.subscribe(["orders"])
    batch = consumer.poll()
    assert batch is not None
    producer = scene.service.producer(transactional_id=transactional_id)
    producer.init_transactions()
    producer.begin_transaction()
    return producer, consumer, batch


def deliver(producer: Producer, consumer: Consumer, batch: pa.Table) -> None:
    producer.produce("copies", batch.select(["order_id"]))
    producer.send_offsets_to_transaction(consumer.positions(), consumer.group_metadata())
    producer.commit_transaction()


def copies(scene: Scene) -> list[int]:
    table = scene.others.scan("copies").to_table(["order_id"])
    return sorted(table.column("order_id").to_pylist())


@pytest.fixture(autouse=True)
def input_orders(scene: Scene) -> None:
    scene.others.admin.create_topic("copies", partitions=2, schema=SCHEMA, key="order_id")
    with scene.others.producer() as seed:
        seed.produce("orders", orders(*range(10)))


@pytest.mark.parametrize("second_goes_first", [False, True])
def test_two_ids_that_do_not_fence(scene: Scene, second_goes_first: bool) -> None:
    """The id contained a host's name, so a job that moved to another host ran at the same time as its own
    zombie, and both delivered.

    Only one id for one piece of work fences. Here the group's offsets keep the second one out, whatever its
    id is. Its commit names the position at which it began, the group has moved on, and no reader sees its
    records.
    """
    instances = [instance(scene, "copy-host-a"), instance(scene, "copy-host-b")]
    if second_goes_first:
        instances.reverse()
    deliver(*instances[0])
    refused = error_of(lambda: deliver(*instances[1]))
    assert (refused.code, refused.abortable) == ("OFFSETS_MOVED", True)
    assert "group 'copy-orders'" in refused.seen
    late = instances[1][0]
    assert error_of(late.commit_transaction).code == "TRANSACTION_ABORTABLE"
    late.abort_transaction()
    assert copies(scene) == list(range(10))
    assert scene.sound()

    consumer = scene.service.consumer(group_id="copy-orders")
    consumer.subscribe(["orders"])
    assert consumer.poll() is None  # and the late one, reading on, finds nothing left to do


def test_two_that_commit_at_the_same_time(scene: Scene) -> None:
    """While the first one's offsets are still pending, the second one gets an error that asks it to come
    again."""
    first, second = instance(scene, "copy-host-a"), instance(scene, "copy-host-b")
    producer, consumer, batch = first
    producer.produce("copies", batch.select(["order_id"]))
    producer.send_offsets_to_transaction(consumer.positions(), consumer.group_metadata())
    refused = error_of(lambda: deliver(*second))
    assert (refused.code, refused.retriable) == ("OFFSETS_PENDING", True)
    second[0].abort_transaction()
    producer.commit_transaction()
    assert copies(scene) == list(range(10))
    assert scene.sound()


def test_one_id_fences(scene: Scene) -> None:
    """With one id the second instance's start aborts what the first left open, with a marker in the log, and
    the first can write and commit no more."""
    producer, consumer, batch = instance(scene, "copy")
    producer.produce("copies", batch.select(["order_id"])).result()
    successor = instance(scene, "copy")
    aborted = [
        each
        for number in range(2)
        for each in scene.others.partition("copies", number).aborted_transactions(0, 100)
    ]
    assert {each.producer_id for each in aborted} == {producer.producer_id}
    refused = error_of(
        lambda: producer.send_offsets_to_transaction(consumer.positions(), consumer.group_metadata())
    )
    assert (refused.code, refused.fatal) == ("PRODUCER_FENCED", True)
    assert error_of(producer.commit_transaction).code == "PRODUCER_FENCED"
    deliver(*successor)
    assert copies(scene) == list(range(10))
    assert scene.sound()


def test_without_offsets_nothing_tells_them_apart(scene: Scene) -> None:
    """This is not promised: two ids that only write, and commit no group's offsets, are two writers. Readers
    see both."""
    for transactional_id in ("writer-a", "writer-b"):
        with scene.service.producer(transactional_id=transactional_id) as producer:
            producer.init_transactions()
            with producer.transaction():
                producer.produce("copies", orders(1))
    assert copies(scene) == [1, 1]
    assert scene.sound()
