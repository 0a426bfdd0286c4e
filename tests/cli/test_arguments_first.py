"""Commands that erase, fence, abort or load look at all their arguments before they change anything."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests.cli.conftest import Run
from tests.support.waiting import wait_for
from txn_engine import Engine
from txn_engine.errors import TxnEngineError

LOAD = ("produce", "payments", "FILE", "--transactional-id", "held")
ERASE = ("erase", "--topic", "payments", "--where", "account_id = 10", "--execute")
ABORT = ("transactions", "abort", "--topic", "payments", "--partition", "0", "--start-offset", "0")


@pytest.fixture
def held(engine: Engine, run: Run, good: Path) -> Iterator[Engine]:
    """Records, letters, and a transaction that is open under the id that loads would fence."""
    assert run("topics", "create", "letters", "--dead-letters").code == 0
    assert run("topics", "create", "files", "--manifest").code == 0
    assert run("produce", "payments", str(good)).code == 0
    producer = engine.producer(transactional_id="held")
    producer.init_transactions()
    producer.begin_transaction()
    producer.produce(
        "payments", engine.scan("payments").to_table(["id", "account_id", "day", "amount", "note"])
    )
    producer.flush()
    wait_for(lambda: list(engine.store.list("begun/")), what="the word that the coordinator's log was begun")
    yield engine
    with suppress(TxnEngineError):
        producer.close()


@pytest.mark.parametrize(
    "arguments",
    [
        (*LOAD, "--run-id", ""),
        (*LOAD, "--run-id", "a\nb"),
        (*LOAD, "--manifest", "nowhere"),
        (*LOAD, "--manifest", "payments"),
        (*LOAD, "--dead-letter-topic", "nowhere"),
        (*LOAD, "--dead-letter-topic", "payments"),
        (*LOAD, "--max-dead-letters", "5"),
        (*LOAD, "--dead-letter-topic", "letters", "--max-dead-letters", "many"),
        (*LOAD, "no-such-file.csv"),
        ("produce", "payments", "no-such-file.csv", *LOAD[3:]),
        ("produce", "payments", "-", "--format", "csv", "--encoding", "nope", *LOAD[3:]),
        ("produce", "payments", "FILE", "--transactional-id", ""),
        ("produce", "payments", "-", "--format", "csv", *LOAD[3:], "--manifest", "files"),
        (*LOAD, "--column", "id=note"),
        (*LOAD, "--transaction-timeout", "99999999"),
        (*LOAD, "--partition", "2"),
        (*LOAD, "--partition", "-1"),
        (*LOAD, "--partition", "x"),
        (*LOAD, "--again"),
        (*LOAD, "--forgotten-runs", "never"),
        (*LOAD, "--format", "xml"),
        (*LOAD, "--encoding", "nope"),
        (*LOAD, "--delimiter", "too long"),
        (*LOAD, "--quote", "''"),
        (*LOAD, "--date-format", "%Q"),
        (*LOAD, "--thousands", "."),
        (*LOAD, "--column", "nope=x"),
        ("produce", "nowhere", "FILE", "--transactional-id", "held"),
        ("produce", "payments", "FILE", "--transactional-id", "a\nb"),
        (*ERASE, "--backup", "memory://no-backups-here"),
        (*ERASE[:4], "nope = 1", "--execute"),
        (*ERASE[:4], "true", "--execute"),
        (*ERASE[:2], "nowhere", *ERASE[3:]),
        (*ABORT[:-1], "77"),
        (*ABORT[:-1], "x"),
        (*ABORT[:5], "9", *ABORT[6:]),
        (*ABORT[:3], "nowhere", *ABORT[4:]),
        ABORT,
        ("transactions", "fence", "held", "never-used"),
        ("transactions", "fence", "held", "a\nb"),
        ("transactions", "fence", "held", ""),
        ("dead-letters", "replay", "payments"),
        ("dead-letters", "replay", "nowhere"),
        ("dead-letters", "replay", "letters", "--repaired", "no-such-file.jsonl"),
    ],
    ids=lambda arguments: " ".join(arguments[-3:]).replace("\n", " "),
)
def test_a_bad_argument_changes_nothing(
    held: Engine, run: Run, good: Path, arguments: tuple[str, ...]
) -> None:
    before = {info.key: info.size for info in held.store.list("")}
    answer = run(*(str(good) if each == "FILE" else each for each in arguments))
    assert answer.code in (1, 2)
    assert "Traceback" not in answer.stderr
    assert {info.key: info.size for info in held.store.list("")} == before


@pytest.mark.parametrize(
    "arguments",
    [(*LOAD, "--run-id", "r"), (*LOAD, "--partition", "1"), ("transactions", "fence", "held")],
    ids=lambda arguments: " ".join(arguments[-2:]),
)
def test_right_arguments_change_something(
    held: Engine, run: Run, good: Path, arguments: tuple[str, ...]
) -> None:
    before = {info.key: info.size for info in held.store.list("")}
    answer = run(*(str(good) if each == "FILE" else each for each in arguments))
    assert (answer.code, answer.stderr.count("error")) == (0, 0), answer.stderr
    assert {info.key: info.size for info in held.store.list("")} != before
