"""The work of the workers: each role is a loop that can be killed, stopped or answered wrongly at any
moment."""

from __future__ import annotations

import contextlib
import os
import select
import signal
from collections.abc import Callable
from functools import partial
from io import RawIOBase
from typing import Any

import pyarrow as pa

from tests.torture.journal import read_journals
from tests.torture.session import Assignment, Session, run
from txn_engine import Engine
from txn_engine.consumer import Consumer
from txn_engine.errors import IllegalStateError, TxnEngineError
from txn_engine.maintain import MaintenancePolicy, MaintenanceReport
from txn_engine.producer import Producer

TRANSFERS = pa.schema([("transfer", pa.string()), ("account", pa.int64()), ("amount", pa.int64())])
INPUTS = pa.schema([("id", pa.string()), ("number", pa.int64())])
OUTPUTS = pa.schema([("id", pa.string()), ("number", pa.int64()), ("copied_by", pa.string())])
EVENTS = pa.schema([("id", pa.string()), ("number", pa.int64())])
TOPICS = {
    "transfers": (3, TRANSFERS, "account"),
    "inputs": (2, INPUTS, "number"),
    "outputs": (2, OUTPUTS, "number"),
    "events": (2, EVENTS, "number"),
    "forked": (1, EVENTS, "number"),
}
GROUP = "copiers"
HASTY = MaintenancePolicy(orphan_age_ms=1_500, entries_age_ms=1_500, trim_step=1, min_files=2)
_ACCOUNTS = 24
_REFUSAL_S_MAX = 5
_OWN_WORK_S_MAX = 30


def with_owners(session: Session, one: Callable[[Producer], bool]) -> None:
    """Repeat `one`. If its producer cannot continue, go on with a new one of the same transactional id."""
    while session.running():
        producer = session.producer()
        while session.running() and one(producer):
            pass


def transfer(session: Session) -> None:
    """Move money between accounts of several partitions. The rows of one transfer sum to 0."""

    def one(producer: Producer) -> bool:
        name = session.new_name()
        outcome = session.transact(producer, name, partial(_move, session, producer, name))
        return outcome == "committed" or (outcome == "refused" and session.abort(producer, name))

    with_owners(session, one)


class ChangedMindError(TxnEngineError):
    """The application itself does not want the transaction any more."""

    code = "CHANGED_MIND"


def _move(session: Session, producer: Producer, name: str) -> None:
    legs = session.chance.randint(2, 5)
    accounts = session.chance.sample(range(_ACCOUNTS), legs)
    amounts = [session.chance.randint(1, 100) for _ in accounts[1:]]
    rows = pa.table(
        {"transfer": [name] * legs, "account": accounts, "amount": [-sum(amounts), *amounts]},
        schema=TRANSFERS,
    )
    if session.chance.random() < 0.3:
        producer.produce("transfers", rows.slice(0, 1))
        producer.flush()
        rows = rows.slice(1)
    sent = producer.produce("transfers", rows)
    if session.chance.random() < 0.15:
        sent.result()
        raise ChangedMindError("aborted on purpose")


def copy(session: Session) -> None:
    """Consume, transform and produce, by several members of one group that do not know each other."""
    consumer = session.insist(partial(_subscribed, session))

    def one(producer: Producer) -> bool:
        nonlocal consumer
        batch = session.insist(lambda: consumer.poll(session.chance.randint(1, 60), timeout_ms=100))
        if batch is None:
            return True
        name = session.new_name()
        outcome = session.transact(producer, name, partial(_copy, producer, consumer, batch, name))
        if outcome == "committed":
            return True
        consumer = session.insist(partial(_subscribed, session))  # back to where the group is
        return outcome == "refused" and session.abort(producer, name)

    with_owners(session, one)


def _subscribed(session: Session) -> Consumer:
    consumer = session.engine.consumer(group_id=GROUP)
    consumer.subscribe(["inputs"])
    return consumer


def _copy(producer: Producer, consumer: Consumer, batch: pa.Table, name: str) -> None:
    copied = batch.select(["id", "number"]).append_column(
        OUTPUTS.field("copied_by"), pa.array([name] * batch.num_rows, pa.string())
    )
    producer.produce("outputs", copied)
    producer.send_offsets_to_transaction(consumer.positions(), consumer.group_metadata())


def load(session: Session) -> None:
    """Run loads one after the other, each under a run id. A load is run again until the log says that it was
    committed."""
    number = _loads_begun(session)

    def one(producer: Producer) -> bool:
        nonlocal number
        if (last := producer.last_committed_run_id) is not None:
            number = max(number, int(last.rpartition("-")[2]))
        name = f"load-{number}"
        if producer.has_committed(name):
            session.journal.write("loaded", name)
            number += 1
            name = f"load-{number}"
        outcome = session.transact(producer, name, partial(_load, session, producer, name), run_id=name)
        session.rest(0.05)
        return outcome == "committed"  # else a new producer asks the log what became of it

    with_owners(session, one)


def _load(session: Session, producer: Producer, name: str) -> None:
    rows = load_rows(name)
    half = session.chance.randint(0, len(rows))
    producer.produce("inputs", rows.slice(0, half))
    producer.produce("inputs", rows.slice(half))


def load_rows(name: str) -> pa.Table:
    """The records of a load, which are the same in every run."""
    number = int(name.rpartition("-")[2])
    count = 5 + number * 7 % 20
    return pa.table({"id": [f"{name}/{row}" for row in range(count)], "number": range(count)}, schema=INPUTS)


def _loads_begun(session: Session) -> int:
    begun = read_journals(session.assignment.ledger.journals, f"load-{session.assignment.slot}-*")
    return max((int(line.name.rpartition("-")[2]) for line in begun if line.event == "begin"), default=0)


def emit(session: Session) -> None:
    """Write with an idempotent producer. An acknowledged batch is there once, and any other at most once."""
    while session.running():
        producer = session.engine.producer()
        with contextlib.suppress(TxnEngineError):
            while session.running():
                names = [session.new_name() for _ in range(session.chance.randint(1, 3))]
                for name in names:
                    session.journal.write("begin", name)
                futures = [
                    producer.produce(
                        "events", pa.table({"id": [name] * 3, "number": [0, 1, 2]}, schema=EVENTS)
                    )
                    for name in names
                ]
                for name, future in zip(names, futures, strict=True):
                    places = [
                        (place.partition, place.base_offset, place.last_offset) for place in future.result()
                    ]
                    session.journal.write("committed", name, places=places)
                session.rest(0.05)
        session.rest()


def read(session: Session) -> None:
    """Read committed records from the beginning, and record the rows and the position."""
    consumer = session.insist(lambda: _reader(session))
    while session.running():
        batch = session.insist(lambda: consumer.poll(500, timeout_ms=100))
        if batch is not None:
            columns = [batch.column(name).to_pylist() for name in ("_partition", "_offset", "transfer")]
            session.journal.write("seen", "transfers", rows=list(zip(*columns, strict=True)))


def _reader(session: Session) -> Consumer:
    consumer = session.engine.consumer()
    consumer.subscribe(["transfers"])
    return consumer


def sweep(session: Session) -> None:
    """Run any of the DAGs' jobs at any time."""
    coordinator, admin = session.engine.coordinator, session.engine.admin
    jobs: list[Callable[[], object]] = [
        coordinator.abort_timed_out_transactions,
        coordinator.write_pending_markers,
        coordinator.write_pending_markers,
        coordinator.expire_transactional_ids,
        admin.snapshot,
    ]
    while session.running():
        job = session.chance.choice(jobs)
        try:
            job()
        except TxnEngineError as error:
            session.journal.write("error", error.code, text=str(error))
        session.rest(session.chance.uniform(0.05, 0.4))


def maintain(session: Session) -> None:
    """Run compaction, trims, sealing, clean-up and expiry at once, as if a week were a moment. They must be
    safe with every setting."""
    jobs = maintenance_jobs(session.engine)
    while session.running():
        job = session.chance.choice(jobs)
        try:
            if session.chance.random() < 0.3:
                session.engine.admin.snapshot()
            for done in job().partitions:
                session.journal.write("maintained", type(done).__name__)
        except TxnEngineError as error:
            session.journal.write("error", error.code, text=str(error))
        session.rest(session.chance.uniform(0.05, 0.4))


def maintenance_jobs(engine: Engine) -> list[Callable[[], MaintenanceReport[Any]]]:
    """The jobs, in the order of the DAG."""
    maintenance = engine.maintenance
    return [
        partial(maintenance.compact, policy=HASTY),
        partial(maintenance.retain, policy=HASTY),
        maintenance.seal,
        partial(maintenance.clean, policy=HASTY),
        maintenance.expire_producers,
    ]


def fork(session: Session) -> None:
    """Fork in the middle of a transaction, as Airflow and PySpark do. The child cannot continue it, may work
    with an engine of its own, and does not harm the parent."""

    def one(producer: Producer) -> bool:
        name = session.new_name()
        outcome = session.transact(producer, name, partial(_fork_within, session, producer, name))
        session.rest(0.2)
        return outcome == "committed" or (outcome == "refused" and session.abort(producer, name))

    with_owners(session, one)


def _fork_within(session: Session, producer: Producer, name: str) -> None:
    rows = pa.table({"id": [name] * 2, "number": [0, 1]}, schema=EVENTS)
    producer.produce("forked", rows)
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        signal.alarm(_OWN_WORK_S_MAX)  # whatever becomes of the parent, and of locks held at the fork
        with contextlib.suppress(BaseException):
            os.write(writer, f"{_refusals(producer, rows)}\n".encode())
            os.write(writer, f"{_own_work(session, name)}\n".encode())
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb", buffering=0) as ear:
        said = _hear(ear, _REFUSAL_S_MAX)
        session.journal.write("child", name, said=said)
        if said == "refused":
            session.journal.write("own work", name, said=_hear(ear, _OWN_WORK_S_MAX))
        os.kill(child, signal.SIGKILL)  # not waited for yet: the id is still its own
        os.waitpid(child, 0)


def _hear(ear: RawIOBase, seconds: float) -> str:
    """The child's next line. The reader is unbuffered, so it can wait for lines that it has not read yet."""
    ready, _, _ = select.select([ear], [], [], seconds)
    return ear.readline().decode().strip() if ready else "silence"


def _refusals(producer: Producer, rows: pa.Table) -> str:
    """The child's answers from the parent's producer. Every call must be "refused" at once."""
    calls: list[Callable[[], object]] = [
        lambda: producer.produce("forked", rows),
        producer.flush,
        producer.commit_transaction,
        producer.abort_transaction,
        producer.init_transactions,
    ]
    for number, call in enumerate(calls):
        try:
            call()
        except IllegalStateError:
            continue
        except BaseException as error:  # noqa: BLE001 - whatever it is, the parent is to hear of it
            return f"call {number}: {error!r}"
        return f"call {number} was let through"
    return "refused"


def _own_work(session: Session, name: str) -> str:
    """Work in the child with an engine of its own. The store is as faulty for the child as for everybody."""
    rows = pa.table({"id": [f"child-{name}"] * 2, "number": [0, 1]}, schema=EVENTS)
    try:
        with session.assignment.ledger.connect() as engine, engine.producer() as own:
            own.produce("events", rows).result()
    except TxnEngineError as error:
        return error.code
    return "works"


ROLES: dict[str, Callable[[Session], None]] = {
    "transfer": transfer,
    "copy": copy,
    "load": load,
    "emit": emit,
    "read": read,
    "sweep": sweep,
    "maintain": maintain,
    "fork": fork,
}


def work(assignment: Assignment) -> None:
    """Run the workload of this worker process."""
    run(assignment, ROLES[assignment.role])
