"""The demo's loaders with real processes and signals and a small input, without Spark and Airflow."""

from __future__ import annotations

import io
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from rich.console import Console

import txn_engine
from tests.demo import small_input
from tests.support.internal import FEW_INTERNAL
from txn_engine.demo.child import ChildFailedError, Children
from txn_engine.demo.day_queue import DayQueue
from txn_engine.demo.load import DAYS_MIN, KEPT_DAYS, KILLED, KILLED_TIMEOUT_MS, MODULE, Load
from txn_engine.demo.payments import (
    KEY,
    PARTITIONS,
    PAYMENTS,
    PAYMENTS_SCHEMA,
    Day,
    read_payments,
    split_into_days,
    write_arrow_file,
)
from txn_engine.demo.screen import Screen
from txn_engine.engine import Engine
from txn_engine.errors import TransactionalIdNotFoundError
from txn_engine.reasons import Reason


class Scene:
    """A store with the topic, the input as loaders take it, and what the screen says."""

    def __init__(self, folder: Path, engine: Engine, children: Children) -> None:
        self.folder = folder
        self.engine = engine
        self.children = children
        self.text = io.StringIO()
        self.screen = Screen(Console(file=self.text, width=200))
        payments = read_payments(small_input.write(folder / "trans.csv"), days_min=DAYS_MIN)
        self.arrow_file = folder / "payments.arrow"
        write_arrow_file(payments, self.arrow_file)
        self.days = split_into_days(payments)

    def load(self) -> Load:
        return Load(self.children, self.screen, self.engine.url, self.arrow_file, self.days)

    def loader(self, transactional_id: str, name: str | None = None, timeout_ms: int = 60_000):  # type: ignore[no-untyped-def]
        child = self.children.start(
            name or transactional_id, MODULE, "--url", self.engine.url, "--topic", PAYMENTS,
            "--payments", str(self.arrow_file), "--transactional-id", transactional_id, "--timeout-ms", str(timeout_ms),
        )  # fmt: skip
        child.hear("ready")
        return child

    def rows(self, isolation_level: str = "read_committed") -> int:
        scan = self.engine.scan(PAYMENTS, isolation_level=isolation_level)  # type: ignore[arg-type]
        return sum(file.record_count for file in scan.files())


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    (tmp_path / "logs").mkdir()
    with (
        txn_engine.connect(f"file://{tmp_path}/ledger", configs=FEW_INTERNAL) as engine,
        Children(tmp_path / "logs") as children,
    ):
        engine.admin.create_topic(PAYMENTS, partitions=PARTITIONS, schema=PAYMENTS_SCHEMA, key=KEY)
        yield Scene(tmp_path, engine, children)


def order(day: Day, **more: object) -> dict[str, object]:
    return {
        "day": day.date, "first_row": day.first_row, "rows": day.rows,
        "ending": "commit", "twice": False, "markers": "inline", **more,
    }  # fmt: skip


@pytest.mark.shard("machine")
def test_the_whole_load_with_its_accidents(scene: Scene) -> None:
    """One loader is killed, one fenced, one batch is sent twice, one transaction aborted. Every row ends up there
    once.
    """
    load = scene.load()
    load.run()
    a_day = small_input.ROWS_A_DAY
    report = load.report
    assert (report.days, report.rows) == (small_input.DAYS - 1, small_input.ROWS - a_day)
    assert [said["code"] for said in report.fenced] == ["PRODUCER_FENCED"]
    assert [said["again"]["is_duplicate"] for said in report.duplicates] == [True]
    duplicate = report.duplicates[0]
    first = next(place for place in duplicate["placed"] if place[1] == duplicate["again"]["base_offset"])
    assert first[2] == duplicate["again"]["last_offset"]
    assert [len(report.killed), len(report.aborted)] == [1, 1]
    states = {found.transactional_id: found.state for found in scene.engine.admin.list_transactions()}
    assert states.pop("load-3") in ("CompleteCommit", "Empty")  # the others may have left it no day
    assert states == {"load-0": "PrepareCommit", "load-1": "Ongoing", "load-2": "PrepareCommit"}
    assert scene.engine.admin.describe_transaction(KILLED).transaction_timeout_ms == KILLED_TIMEOUT_MS

    scene.engine.admin.fence_producers([KILLED])
    load.load_lost_day()
    scene.engine.coordinator.write_pending_markers()
    ids = scene.engine.scan(PAYMENTS).to_table(columns=["trans_id"])["trans_id"].to_pylist()
    assert sorted(ids) == list(range(1, small_input.ROWS + 1))
    assert scene.rows("read_uncommitted") == small_input.ROWS + 3 * a_day  # killed, fenced, aborted
    assert scene.engine.admin.verify().ok


@pytest.mark.shard("machine")
def test_a_zombie_learns_that_it_has_a_successor(scene: Scene) -> None:
    """A loader that was stopped between its writes and its commit is fenced when it wakes, and no reader ever
    sees its records."""
    day = scene.days[0]
    zombie = scene.loader("one")
    zombie.tell("load", **order(day, ending="wait"))
    zombie.hear("written")
    zombie.stop()
    zombie.tell("commit")
    successor = scene.loader("one", "one-successor")
    assert scene.engine.admin.describe_transaction("one").state == "Empty"  # aborted, and taken over
    successor.tell("load", **order(day))
    assert successor.hear("committed").facts["rows"] == day.rows
    zombie.wake()
    assert zombie.hear("fenced").facts["code"] == "PRODUCER_FENCED"
    assert zombie.wait_gone() == 4
    assert (scene.rows(), scene.rows("read_uncommitted")) == (day.rows, 2 * day.rows)


def test_a_loader_asks_whether_its_day_was_committed_before(scene: Scene) -> None:
    """A successor that is given a day which its predecessor committed loads nothing."""
    first = scene.loader("one")
    first.tell("load", **order(scene.days[0]))
    first.hear("committed")
    first.kill()
    again = scene.loader("one", "one-successor")
    again.tell("load", **order(scene.days[0]))
    again.hear("known")
    assert scene.rows() == scene.days[0].rows


@pytest.mark.shard("machine")
def test_a_killed_loader_holds_readers_until_the_sweep(scene: Scene) -> None:
    """A killed loader's transaction stays open until it times out. The sweep aborts it, and the day can be loaded."""
    dead = scene.loader("one", timeout_ms=1)
    dead.tell("load", **order(scene.days[0], ending="wait"))
    dead.hear("written")
    dead.kill()
    assert scene.engine.admin.describe_transaction("one").state == "Ongoing"
    assert scene.rows() == 0
    assert scene.engine.coordinator.abort_timed_out_transactions().transactional_ids == ("one",)
    other = scene.loader("two")
    other.tell("load", **order(scene.days[0]))
    other.hear("committed")
    assert scene.rows() == scene.days[0].rows


def test_a_child_that_fails_names_its_log(scene: Scene) -> None:
    """The error is one line with the process, the failure and the log."""
    child = scene.children.start(
        "lost", MODULE, "--url", scene.engine.url, "--topic", "no-such-topic",
        "--payments", str(scene.arrow_file), "--transactional-id", "lost", "--timeout-ms", "60000",
    )  # fmt: skip
    child.hear("ready")
    child.tell("load", **order(scene.days[0]))
    with pytest.raises(ChildFailedError) as failed:
        child.hear("committed")
    assert failed.value.reason is Reason.CHILD_FAILED
    assert "no-such-topic" in failed.value.seen
    assert str(child.log) in str(failed.value.action)
    assert "Traceback" in child.log.read_text()


def test_a_child_that_dies_says_how(scene: Scene) -> None:
    """A signal that the demo did not send is named."""
    child = scene.loader("one")
    os.kill(child.pid, signal.SIGKILL)
    with pytest.raises(ChildFailedError) as failed:
        child.hear("committed")
    assert failed.value.reason is Reason.CHILD_ENDED
    assert "SIGKILL" in failed.value.seen


@pytest.mark.shard("machine")
def test_a_failure_in_the_load_ends_every_loader(scene: Scene) -> None:
    """The first failure is reported, and no process is left."""
    load = scene.load()
    victim = load._loaders["load-0"]
    victim.hear("ready")
    os.kill(victim.pid, signal.SIGKILL)
    with pytest.raises(ChildFailedError) as failed:
        load.run()
    assert failed.value.reason is Reason.CHILD_ENDED
    assert str(failed.value.actor).startswith("load-0 ")
    scene.children.kill_all()
    assert all(child.exit_code is not None for child in load._loaders.values())


def test_no_child_outlives_the_demo(scene: Scene) -> None:
    """A child ends when its pipe closes, even if the demo ends without a word."""
    child = scene.loader("one")
    pipe = child._process.stdin
    assert pipe is not None
    pipe.close()
    assert child.wait_gone() == 3
    with pytest.raises(TransactionalIdNotFoundError):
        scene.engine.admin.describe_transaction("another")


def test_every_accident_finds_a_day() -> None:
    """However fast the other loaders are, the reserved days stay free, and no day is dealt twice."""
    days = [Day(str(number), number, 1) for number in range(DAYS_MIN)]
    queue = DayQueue(days, kept=KEPT_DAYS)
    dealt = [*queue.deal(0.2), *queue.deal(1.0)]
    assert len(dealt) == DAYS_MIN - KEPT_DAYS
    kept = [queue.take_kept() for _ in range(KEPT_DAYS)]
    assert [*dealt, *kept] == days


def test_dealing_stops_at_its_share() -> None:
    """A loader that is to meet with something at a quarter of the load gets no day beyond it."""
    days = DayQueue([Day(str(number), number, 1) for number in range(100)], kept=KEPT_DAYS)
    assert len(list(days.deal(0.25))) == 25
    assert len(list(days.deal(1.0))) == 100 - 25 - KEPT_DAYS
