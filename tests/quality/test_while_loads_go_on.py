"""Checks are about one cut, so that a loader that writes meanwhile makes nothing of them fail."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pytest

import txn_engine
from tests.support.internal import FEW_INTERNAL
from txn_engine import Engine
from txn_engine.quality import Declaration, Output, QualityResult, SameRows, check_exactly_once
from txn_engine.types import TopicPartition

SCHEMA = pa.schema([("id", pa.int64()), ("amount", pa.int64())])
TOPIC = Declaration("payments", record_id="id")
COPY = Declaration(
    "payments",
    record_id="id",
    group_id="copies",
    outputs=(Output("copies", SameRows({"id": "id", "amount": "amount"})),),
    up_to_position=True,
)
UNDER_WAY = {"lso_at_log_end", "no_open_transaction", "nothing_pending", "transactions_final"}


class Loader(threading.Thread):
    """Commits one transaction of ten records over two partitions after the other, and copies what a group has not read.
    Its connection is its own, as another process's would be.
    """

    def __init__(self, url: str) -> None:
        super().__init__()
        self._url = url
        self._stop_it = threading.Event()
        self._moved = threading.Condition()
        self.committed = 0
        self.failure: BaseException | None = None

    def run(self) -> None:
        try:
            with txn_engine.connect(self._url) as engine:
                self._load(engine)
        except BaseException as error:
            self.failure = error
            with self._moved:
                self._moved.notify_all()
            raise

    def _load(self, engine: Engine) -> None:
        with (
            engine.producer(transactional_id="load") as producer,
            engine.producer(transactional_id="copy") as copier,
            engine.consumer(group_id="copies") as consumer,
        ):
            consumer.subscribe(["payments"])
            producer.init_transactions()
            copier.init_transactions()
            while not self._stop_it.is_set():
                ids = range(self.committed, self.committed + 10)
                with producer.transaction():
                    producer.produce("payments", pa.table({"id": ids, "amount": [1] * 10}, schema=SCHEMA))
                with copier.transaction():
                    if (read := consumer.poll()) is not None:
                        copier.produce("copies", read.select(SCHEMA.names))
                        copier.send_offsets_to_transaction(consumer.positions(), consumer.group_metadata())
                with self._moved:
                    self.committed += 10
                    self._moved.notify_all()
                self._stop_it.wait(0.01)  # leaves the processor to the check

    def work_on(self, _: str = "") -> None:
        """Wait until more was committed: in this call another transaction has begun and ended."""
        self.wait_for(self.committed + 20)

    def wait_for(self, committed: int) -> None:
        """Wait until so many records are committed."""
        with self._moved:
            assert self._moved.wait_for(lambda: self.failure or self.committed >= committed, timeout=120)
        assert self.failure is None

    def end(self) -> None:
        self._stop_it.set()
        self.join()


@contextmanager
def loading(url: str) -> Iterator[Loader]:
    loader = Loader(url)
    loader.start()
    try:
        loader.wait_for(20)
        yield loader
    finally:
        loader.end()


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"file://{tmp_path}/store"


@pytest.fixture
def engine(url: str) -> Iterator[Engine]:
    with txn_engine.connect(url, configs=FEW_INTERNAL) as engine:
        for topic in ("payments", "copies"):
            engine.admin.create_topic(topic, partitions=2, schema=SCHEMA, key="id")
        yield engine


def names_its_cut(result: QualityResult) -> None:
    """Report and JSON name the offsets of the cut, and every record below them was judged."""
    assert result.cut is None
    offsets = {place: offset for place, offset in result.cut_offsets.items() if place.topic == "payments"}
    assert set(offsets) == {TopicPartition("payments", number) for number in range(2)}
    assert json.loads(result.json.read_text())["cut"] == {
        str(at): end for at, end in result.cut_offsets.items()
    }
    page = result.report.read_text()
    assert all(f"{at} up to {end:,}" in page for at, end in result.cut_offsets.items())


@pytest.mark.parametrize("declaration", [TOPIC, COPY], ids=["everything", "consumed"])
def test_a_loader_beside_makes_no_check_fail(
    engine: Engine, url: str, tmp_path: Path, declaration: Declaration
) -> None:
    """Transactions that begin, commit and are consumed between any two steps of a run are outside of the cut on both
    sides. A second run goes on from the proof of the first."""
    with loading(url) as loader:
        for number in range(2 if declaration is TOPIC else 1):
            before = loader.committed
            result = check_exactly_once(
                engine,
                declaration,
                report_folder=tmp_path / str(number),
                record=True,
                progress=loader.work_on,
            )
            assert result.success, (result.failed, result.errored)
            assert result.anomalies == ()
            names_its_cut(result)
            judged = result.statistics["committed_records"]
            assert isinstance(judged, int)
            assert (before if declaration is TOPIC else 0) <= judged < loader.committed


@pytest.mark.shard("damage")
def test_the_command_line_beside_a_loader(engine: Engine, url: str, tmp_path: Path) -> None:
    """`quality run` ends with exit code 0, and its JSON names the cut."""
    command = [
        "quality",
        "run",
        "payments",
        "--record-id",
        "id",
        "--report",
        str(tmp_path / "report"),
        "--json",
    ]
    with loading(url):
        ran = subprocess.run(
            [sys.executable, "-m", "txn_engine.cli.main", *command, "--url", url],
            capture_output=True,
            text=True,
            check=False,
            env=dict(os.environ),
        )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    told = json.loads(ran.stdout)
    assert told["anomalies"] == []
    assert set(told["cut"]) == {"payments-0", "payments-1"}


def test_a_transaction_that_nobody_ends_is_told_while_loads_go_on(
    engine: Engine, url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was open at the cut and stays open is found by the checks for it, and by no other."""
    import txn_engine.quality.under_way as looking

    looks: list[int] = []
    monkeypatch.setattr(looking, "pause_ms", looks.append)
    with engine.producer(transactional_id="left") as left:
        left.init_transactions()
        left.begin_transaction()
        left.produce("payments", pa.table({"id": [-1], "amount": [1]}, schema=SCHEMA)).result()
        with loading(url) as loader:
            result = check_exactly_once(
                engine, TOPIC, report_folder=tmp_path / "report", progress=loader.work_on
            )
        assert {check.name for check in result.failed} == UNDER_WAY - {"nothing_pending"}
        assert result.errored == ()
        assert len(looks) == 60
        left.abort_transaction()
    after = check_exactly_once(engine, TOPIC, report_folder=tmp_path / "after")
    assert after.success, after.failed
