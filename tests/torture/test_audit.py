"""The audit after a storm finds what it should: one lie in an honest ledger gives one finding that names
it."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from pathlib import Path

import pyarrow as pa
import pytest

import txn_engine
from tests.torture.audit import audit, read_told
from tests.torture.journal import Journal, read_journals
from tests.torture.workloads import EVENTS, GROUP, OUTPUTS, TOPICS, TRANSFERS, load_rows
from txn_engine import Engine

_STORES = count()


def move(engine: Engine, name: str, *amounts: int) -> None:
    rows = {"transfer": [name] * len(amounts), "account": range(len(amounts)), "amount": amounts}
    write(engine, "transfers", pa.table(rows, schema=TRANSFERS))


def write(engine: Engine, topic: str, rows: pa.Table) -> None:
    with engine.producer() as producer:
        producer.produce(topic, rows).result()


def copies(name: str, rows: pa.Table) -> pa.Table:
    return rows.append_column(OUTPUTS.field("copied_by"), pa.array([name] * rows.num_rows))


def honest(engine: Engine, folder: Path) -> dict[str, Journal]:
    """The ledger has a transfer, a load and its copy, an event, a fork, and a reader that was shown the
    transfer."""
    for name, (partitions, schema, key) in TOPICS.items():
        engine.admin.create_topic(name, partitions=partitions, schema=schema, key=key)
    journals = {
        role: Journal(folder, f"{role}-0-1-1")
        for role in ("transfer", "load", "copy", "emit", "fork", "read")
    }
    for role, name in (
        ("transfer", "t1"),
        ("transfer", "t2"),
        ("load", "load-0"),
        ("copy", "c1"),
        ("fork", "f1"),
    ):
        journals[role].write("begin", name)
    move(engine, "t1", -7, 7)
    journals["transfer"].write("committed", "t1")
    journals["transfer"].write("refused", "t2", code="PRODUCER_FENCED")
    write(engine, "inputs", load_rows("load-0"))
    journals["load"].write("committed", "load-0")
    consumer = engine.consumer(group_id=GROUP)
    consumer.subscribe(["inputs"])
    batch = consumer.poll()
    assert batch is not None
    write(engine, "outputs", copies("c1", batch.select(["id", "number"])))
    consumer.commit()
    journals["copy"].write("committed", "c1")
    write(engine, "forked", pa.table({"id": ["f1"] * 2, "number": [0, 1]}, schema=EVENTS))
    journals["fork"].write("committed", "f1")
    journals["fork"].write("child", "f1", said="refused")
    emit(engine, journals["emit"])
    rows = engine.scan("transfers").to_table().select(["_partition", "_offset", "transfer"]).to_pylist()
    journals["read"].write("seen", "transfers", rows=[list(row.values()) for row in rows])
    return journals


def emit(engine: Engine, journal: Journal) -> None:
    journal.write("begin", "e1")
    with engine.producer() as producer:
        rows = pa.table({"id": ["e1"] * 3, "number": [0, 1, 2]}, schema=EVENTS)
        places = producer.produce("events", rows).result()
    journal.write("committed", "e1", places=[(at.partition, at.base_offset, at.last_offset) for at in places])


Told = Callable[[Engine, dict[str, Journal]], None]


def begun_and(event: str, role: str, name: str, **more: object) -> Told:
    def tell(_: Engine, journals: dict[str, Journal]) -> None:
        journals[role].write("begin", name)
        journals[role].write(event, name, **more)

    return tell


def torn(engine: Engine, journals: dict[str, Journal]) -> None:
    journals["transfer"].write("begin", "t3")
    move(engine, "t3", -5)


def refused_and_there(engine: Engine, _: dict[str, Journal]) -> None:
    move(engine, "t2", -1, 1)


def nobody_s(engine: Engine, _: dict[str, Journal]) -> None:
    move(engine, "t9", -1, 1)


def doubled_transfer(engine: Engine, _: dict[str, Journal]) -> None:
    move(engine, "t1", -7, 7)


def copied_twice(engine: Engine, _: dict[str, Journal]) -> None:
    write(engine, "outputs", copies("c1", load_rows("load-0").slice(0, 1)))


def never_copied(engine: Engine, journals: dict[str, Journal]) -> None:
    journals["load"].write("begin", "load-1")
    write(engine, "inputs", load_rows("load-1"))


def loaded_twice(engine: Engine, _: dict[str, Journal]) -> None:
    write(engine, "inputs", load_rows("load-0"))


def half_loaded(engine: Engine, journals: dict[str, Journal]) -> None:
    journals["load"].write("begin", "load-1")
    write(engine, "inputs", load_rows("load-1").slice(1))


def left_open(engine: Engine, _: dict[str, Journal]) -> None:
    producer = engine.producer(transactional_id="left")
    producer.init_transactions()
    producer.begin_transaction()
    producer.produce("forked", pa.table({"id": ["f2"] * 2, "number": [0, 1]}, schema=EVENTS)).result()


def doubled_event(engine: Engine, _: dict[str, Journal]) -> None:
    write(engine, "events", pa.table({"id": ["e1"], "number": [0]}, schema=EVENTS))


LIES: dict[str, tuple[Told, str]] = {
    "an acknowledged transfer is gone": (begun_and("committed", "transfer", "t3"), "t3 was acknowledged and is not"),
    "a refused transfer is there": (refused_and_there, "t2 was refused and is there"),
    "a transfer is torn": (torn, "transfer t3 is torn"),
    "money is made": (torn, "the balances sum to -5"),
    "a transfer is there twice": (doubled_transfer, "transfer t1: account 0 2 times"),
    "a transfer came from nowhere": (nobody_s, "t9 is there, and nobody wrote it"),
    "an input is copied twice": (copied_twice, "was copied 2 times"),
    "an input is not copied": (never_copied, "was never copied"),
    "a load is there twice": (loaded_twice, " is there 2 times"),
    "a load is there in part": (half_loaded, "load-1 is there with 11 of 12 rows"),
    "an acknowledged load is gone": (begun_and("loaded", "load", "load-1"), "load-1 was acknowledged and is not there"),
    "an event stands elsewhere": (
        begun_and("committed", "emit", "e2", places=[(0, 0, 2)]), "e2 was acknowledged at 0/0, where"
    ),
    "an event is there again": (doubled_event, "event e1, row 0: 2 times"),
    "a reader was shown what is not there": (
        lambda _, journals: journals["read"].write("seen", "transfers", rows=[(0, 99, "t7")]), "was shown otherwise"
    ),
    "a forked child was let in": (
        lambda _, journals: journals["fork"].write("child", "f1", said="call 0 was let through"), "0 was let through"
    ),
    "a worker crashed": (
        lambda _, journals: journals["copy"].write("crash", "KeyError", text="Traceback\nKeyError: 1"), "ended with Key"
    ),
    "a transaction is left open": (left_open, "left is still Ongoing after the sweeps"),
    "an open transaction holds the readers up": (left_open, "forked-0: LSO 2 below the end 4"),
}  # fmt: skip


@pytest.fixture
def engine() -> Engine:
    return txn_engine.connect(f"memory://torture-audit-{next(_STORES)}")


def test_an_honest_ledger_has_no_findings(engine: Engine, tmp_path: Path) -> None:
    """The audit finds nothing if everything is as the workers said."""
    honest(engine, tmp_path)
    assert list(audit(engine, read_told(tmp_path))) == []


@pytest.mark.parametrize("lie", LIES)
def test_one_lie_is_found(engine: Engine, tmp_path: Path, lie: str) -> None:
    """Whatever is broken, one finding names it."""
    tell, expected = LIES[lie]
    tell(engine, honest(engine, tmp_path))
    findings = list(audit(engine, read_told(tmp_path)))
    assert any(expected in finding for finding in findings), findings


def test_a_journal_s_last_line_may_be_cut(tmp_path: Path) -> None:
    """A line that a killed process has not finished does not count, but its earlier lines do."""
    journal = Journal(tmp_path, "transfer-0-1-1")
    journal.write("begin", "t1")
    journal.write("committed", "t1")
    path = tmp_path / "transfer-0-1-1.jsonl"
    path.write_bytes(path.read_bytes()[:-5])
    assert [(line.event, line.name) for line in read_journals(tmp_path)] == [("begin", "t1")]
