"""Requests that no careful client sends: stale epochs, gaps, repeats, ends out of turn, files of another try.

Each is answered by the rules, or the run has a finding: from the client, which knows what the answer has to
be, or from the audit of the log.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from random import Random

from tests.simulator.applications import create_topics, records
from tests.simulator.history import RecordId
from tests.simulator.kernel import MS, SECOND, sleep
from tests.simulator.process import Process
from tests.simulator.workloads.common import add_background
from tests.simulator.world import Body, World
from txn_engine import Engine
from txn_engine.errors import ConcurrentTransactionsError, TxnEngineError
from txn_engine.log.uploads import upload_records
from txn_engine.schemas.layout import original
from txn_engine.types import AppendResult, ProducerIdAndEpoch, TopicPartition

TOPICS = ("odd",)
_WINDOW = 5


def set_up(world: World) -> None:
    """One client for each kind of request. There are no sweepers, because they would finish what has to be
    pending."""
    world.run_alone("setup", lambda _, engine: create_topics(engine, world.knobs.partitions, *TOPICS))
    each = max(world.knobs.transactions // 2, 6)
    world.client("sequencer", _sequencer(each))
    world.client("decider", _decider(each))
    world.client("forger", _forger(each))
    add_background(world, TOPICS, sweepers=0)


def _rest(process: Process, *name: object) -> None:
    sleep(process.world.chance.spread(10 * MS, 5 * SECOND, "rest", process.name, *name))


# --- sequences and epochs of one producer ------------------------------------------------------------------


@dataclass(slots=True)
class _Known:
    """What one client knows of its producer in one partition: the acknowledged batches, oldest first."""

    identity: ProducerIdAndEpoch
    batches: list[tuple[int, int, int]] = field(default_factory=list)  # first sequence, records, base offset
    next_sequence: int = 0


def _sequencer(steps: int) -> Body:
    def body(process: Process, engine: Engine) -> None:
        known: _Known | None = None
        partition = 0
        for index in range(steps):
            draw = process.world.chance.random("sequencer", process.name, index)
            if known is None:
                partition = draw.randrange(process.world.knobs.partitions)
                with suppress(TxnEngineError):
                    known = _Known(engine.coordinator.init_producer_id(None))
            if known is not None:
                known = _odd_batch(process, engine, known, partition, draw, f"{process.name}-{index}")
            _rest(process, index)

    return body


def _odd_batch(
    process: Process, engine: Engine, known: _Known, partition: int, draw: Random, name: str
) -> _Known | None:
    """Send the next batch, or an odd one. None if the client no longer knows where its producer is."""
    kind = draw.choice(("next", "next", "next", "repeat", "gap", "stale", "epoch"))
    identity, sequence, count = known.identity, known.next_sequence, draw.randint(1, 3)
    again: tuple[int, int, int] | None = None
    if kind == "repeat" and known.batches:
        again = draw.choice(known.batches[-_WINDOW:])
        sequence, count = again[0], again[1]
    elif kind == "gap" and known.batches:
        sequence += draw.randint(1, 3)
    elif kind == "stale" and identity.producer_epoch > 0:
        identity = identity._replace(producer_epoch=identity.producer_epoch - 1)
    elif kind == "epoch":
        identity = identity._replace(producer_epoch=identity.producer_epoch + 1)
        sequence = draw.choice((0, 0, 4)) if known.batches else 0
    else:
        kind = "next"
    legal = kind in ("next", "repeat") or (kind == "epoch" and sequence == 0)
    answer = _append(process, engine, identity, partition, sequence, count, name)
    if isinstance(answer, TxnEngineError):
        if kind in ("next", "repeat") and answer.code == "OUT_OF_ORDER_SEQUENCE_NUMBER":
            process.world.history.complain(f"{name}: {kind} of sequence {sequence} was refused: {answer}")
        return None if answer.retriable or legal else known
    if not legal:
        process.world.history.complain(
            f"{name}: {kind} at {identity}, sequence {sequence} was taken: {answer}"
        )
        return None
    if again is not None:
        if answer.base_offset != again[2]:
            process.world.history.complain(f"{name}: a repeat of offset {again[2]} was answered by {answer}")
        return known
    if kind == "epoch":
        known = _Known(identity)
    known.batches.append((sequence, count, answer.base_offset))
    known.next_sequence = sequence + count
    return known


def _append(
    process: Process,
    engine: Engine,
    identity: ProducerIdAndEpoch,
    partition: int,
    sequence: int,
    count: int,
    name: str,
) -> AppendResult | TxnEngineError:
    history = process.world.history
    writing = history.begin(name, process.name, atomic=False)
    ids: list[RecordId] = [(name, n) for n in range(count)]
    writing.records[TOPICS[0], partition] = ids
    try:
        answer = engine.partition(TOPICS[0], partition).append(
            records(ids),
            producer_id=identity.producer_id,
            producer_epoch=identity.producer_epoch,
            base_sequence=sequence,
        )
    except TxnEngineError as error:
        history.end(writing, "failed", error)
        return error
    if answer.is_duplicate:
        history.end(writing, "failed", "a repeat of an earlier one")
    else:
        writing.placed.update(zip(ids, range(answer.base_offset, answer.last_offset + 1), strict=True))
        history.end(writing, "ok")
    return answer


# --- a coordinator asked out of turn -----------------------------------------------------------------------


def _decider(steps: int) -> Body:
    def body(process: Process, engine: Engine) -> None:
        identity: ProducerIdAndEpoch | None = None
        for index in range(steps):
            name = f"{process.name}-{index}"
            try:
                if identity is None:
                    identity = engine.coordinator.init_producer_id("odd", transaction_timeout_ms=30_000)
                identity = _odd_end(process, engine, identity, name)
            except ConcurrentTransactionsError:
                identity = None
                with suppress(TxnEngineError):
                    engine.coordinator.finish("odd")
            except TxnEngineError:
                identity = None
            _rest(process, index)

    return body


def _odd_end(
    process: Process, engine: Engine, identity: ProducerIdAndEpoch, name: str
) -> ProducerIdAndEpoch | None:
    """End a transaction of one record one way and leave its markers, then send everything that must be
    refused."""
    draw = process.world.chance.random("decider", name)
    coordinator = engine.coordinator
    targets = [TopicPartition(TOPICS[0], number) for number in range(process.world.knobs.partitions)]
    coordinator.add_partitions("odd", *identity, targets[: draw.randint(1, len(targets))])
    committed = draw.random() < 0.5
    _batch_of_the_next_epoch(process, engine, identity, name, committed)
    after = coordinator.end_transaction("odd", *identity, committed=committed, markers="deferred")
    _expect_refusal(
        process,
        name,
        "the other decision, pending",
        lambda: coordinator.end_transaction("odd", *identity, committed=not committed, markers="deferred"),
    )
    _expect_refusal(
        process,
        name,
        "partitions while pending",
        lambda: coordinator.add_partitions("odd", *after, targets[:1]),
    )
    _expect_refusal(process, name, "a new start while pending", lambda: coordinator.init_producer_id("odd"))
    coordinator.finish("odd")
    if not coordinator.finish("odd").failures:
        _expect_refusal(
            process,
            name,
            "the other decision, complete",
            lambda: coordinator.end_transaction(
                "odd", *identity, committed=not committed, markers="deferred"
            ),
        )
        _expect_refusal(
            process,
            name,
            "a commit of nothing",
            lambda: coordinator.end_transaction("odd", *after, committed=True, markers="deferred"),
        )
    return after


def _batch_of_the_next_epoch(
    process: Process, engine: Engine, identity: ProducerIdAndEpoch, name: str, committed: bool
) -> None:
    """Append a batch of the transaction, and one with the epoch that only its end will give out."""
    history = process.world.history
    partition = engine.partition(TOPICS[0], 0)
    writing = history.begin(name, process.name)
    writing.records[TOPICS[0], 0] = [(name, 0)]
    early = history.begin(f"{name}-early", process.name)
    early.records[TOPICS[0], 0] = [(early.name, 0)]
    history.end(early, "failed", "its epoch is not given out yet")
    append = partial(
        partition.append, producer_id=identity.producer_id, base_sequence=0, is_transactional=True
    )
    append(records([(name, 0)]), producer_epoch=identity.producer_epoch)
    if committed:
        history.ask(writing)
    else:
        history.end(writing, "failed", "to be aborted")
    _expect_refusal(
        process,
        name,
        "a batch of the next epoch",
        lambda: append(records([(early.name, 0)]), producer_epoch=identity.producer_epoch + 1),
    )


def _expect_refusal(process: Process, name: str, what: str, ask: Callable[[], object]) -> None:
    """Send a request that no state allows. Any refusal is right, and so is an error of the store."""
    try:
        answer = ask()
    except TxnEngineError:
        return
    process.world.history.complain(f"{name}: {what} was answered with {answer}")


# --- files of another try ----------------------------------------------------------------------------------


def _forger(steps: int) -> Body:
    """A producer that names a file that it uploaded with an earlier epoch, or has named before."""

    def body(process: Process, engine: Engine) -> None:
        world = process.world
        producer = engine.producer(transactional_id="forger")
        for index in range(steps):
            name = f"{process.name}-{index}"
            partition = world.chance.between(0, world.knobs.partitions - 1, "forged", name)
            twice = world.chance.at("twice", name) < 0.5
            writing = world.history.begin(name, process.name)
            writing.records[TOPICS[0], partition] = [(name, 0)]
            world.history.end(writing, "failed", "it names a file of another try")
            try:
                producer.init_transactions()
                log = engine.logs.get(TOPICS[0], 0, partition)
                file = upload_records(
                    engine.logs.tools.objects,
                    process.new_id,
                    log.keys.prefix,
                    records([(name, 0)]),
                    original(records([]).schema),
                    log_end=log.refresh().log_end_offset,
                    producer_id=producer.producer_id,
                    producer_epoch=producer.producer_epoch,
                    timestamp_ms=process.clock(),
                )
                if not twice:
                    producer.init_transactions()
                producer.begin_transaction()
                producer.produce_files(engine.logs.topics.get(TOPICS[0]), [(partition, file)] * (1 + twice))
                world.history.ask(writing)
                producer.commit_transaction()
                world.history.complain(f"{name}: a transaction with a forged file was committed")
            except TxnEngineError:
                producer = engine.producer(transactional_id="forger")
            _rest(process, index)

    return body
