"""What a person sees who explores the package in an interpreter."""

from __future__ import annotations

import inspect
import re
from importlib import metadata

import txn_engine
from tests.engine.conftest import payments
from txn_engine import Engine


def test_dir_shows_what_the_package_exports() -> None:
    """`dir` names everything in `__all__`, also what is imported at its first use, and each name is there."""
    assert set(txn_engine.__all__) <= set(dir(txn_engine))
    assert all(hasattr(txn_engine, name) for name in dir(txn_engine))


def test_version() -> None:
    assert txn_engine.__version__ == metadata.version("txn-engine")


def test_help_says_how_to_get_one() -> None:
    """The docstring of each class that the engine makes names the call that makes it."""
    for made, call in {
        txn_engine.Engine: "connect(url)",
        txn_engine.Producer: "Engine.producer(transactional_id=...)",
        txn_engine.Consumer: "Engine.consumer(group_id=...)",
    }.items():
        assert call in " ".join((inspect.getdoc(made) or "").split())


def test_reprs(engine: Engine) -> None:
    """A repr says what the object is about and in which state it is."""
    assert repr(engine) == f"<Engine of {engine.url}>"
    assert repr(engine.partition("payments", 0)) == "<PartitionLog of payments-0>"
    producer = engine.producer(transactional_id="job")
    assert repr(producer) == "<Producer of transactional id 'job', no producer id yet, UNINITIALIZED>"
    producer.init_transactions()
    assert re.fullmatch(
        r"<Producer of transactional id 'job', producer id \d+ epoch 0, READY>", repr(producer)
    )
    idempotent = engine.producer()
    idempotent.produce("payments", payments(1))
    assert re.fullmatch(r"<Producer idempotent, producer id \d+ epoch 0, READY>", repr(idempotent))
    with engine.consumer(group_id="g") as consumer:
        consumer.subscribe(["payments"])
        assert repr(consumer) == "<Consumer of group 'g', read_committed, reading 2 partitions>"
    assert repr(consumer) == "<Consumer of group 'g', read_committed, closed>"
