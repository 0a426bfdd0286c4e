"""Whole transactions run on the durable local store, and the power is cut after any call that changed the
disk."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import pytest

from storage import LocalStore, ObjectStore
from tests.engine.conftest import SCHEMA, payments
from tests.suite.tiers import in_shard
from tests.support.internal import FEW_INTERNAL
from tests.support.power import (
    Promises,
    Recorder,
    Tree,
    disks_in_memory,
    promising,
    recording,
    survey,
    write_tree,
)
from tests.support.stores import accounts_in
from txn_engine import Engine
from txn_engine.maintain import MaintenancePolicy
from txn_engine.testing import ManualClock

LOADED = [1, 2, 3, 4]
REFUSED = [8, 9]


@dataclass(frozen=True, slots=True)
class Said:
    """A step that the application was told is done."""

    what: str


def run_jobs(recorder: Recorder, base: Path) -> None:
    """Run a load, an aborted one, a copy with its offsets in the transaction, and snapshots. Note each step
    on the tape."""
    clock = ManualClock()
    with Engine(promising(recorder, base), clock=clock, configs=FEW_INTERNAL) as engine:
        for topic in ("payments", "copies"):
            engine.admin.create_topic(topic, partitions=2, schema=SCHEMA, key="account_id")
        recorder.say("note", said=Said("created"))
        load(engine, LOADED)
        recorder.say("note", said=Said("loaded"))
        with engine.producer(transactional_id="load") as producer:
            producer.init_transactions()
            producer.begin_transaction()
            producer.produce("payments", payments(*REFUSED)).result()
            producer.abort_transaction()
        engine.admin.snapshot("payments")
        copy(engine)
        recorder.say("note", said=Said("copied"))


def load(engine: Engine, accounts: list[int]) -> None:
    with engine.producer(transactional_id="load") as producer:
        producer.init_transactions()
        if producer.has_committed("monday"):
            return
        with producer.transaction(run_id="monday"):
            producer.produce("payments", payments(*accounts))


def copy(engine: Engine) -> None:
    consumer = engine.consumer(group_id="copy")
    consumer.subscribe(["payments"])
    batch = consumer.poll()
    if batch is None:
        return
    with engine.producer(transactional_id="copy") as producer:
        producer.init_transactions()
        with producer.transaction():
            producer.produce("copies", batch.select(SCHEMA.names))
            producer.send_offsets_to_transaction(consumer.positions(), consumer.group_metadata())


def after_the_cut(store: ObjectStore, said: set[object], *, hours: int = 1) -> None:
    """Start the machine again so late that every transaction has timed out, then check: what was acknowledged
    is there once, the sweeps end the rest, and the jobs run again."""
    clock = ManualClock()
    clock.advance(hours * 3_600_000)
    with Engine(store, clock=clock) as engine:
        topics = engine.admin.list_topics()
        assert Said("created") not in said or topics == ["copies", "payments"]
        assert engine.coordinator.abort_timed_out_transactions().failures == ()
        assert engine.coordinator.write_pending_markers().failures == ()
        for topic in {"payments", "copies"} - set(topics):
            engine.admin.create_topic(topic, partitions=2, schema=SCHEMA, key="account_id")
        for topic, acknowledged in (("payments", "loaded"), ("copies", "copied")):
            seen = accounts_in(engine, topic)
            assert seen == LOADED or (seen == [] and Said(acknowledged) not in said)
        load(engine, LOADED)
        copy(engine)
        assert accounts_in(engine) == accounts_in(engine, "copies") == LOADED
        report = engine.admin.verify()
        assert report.ok, [str(finding) for finding in report.findings]


SOME = 40
"""`make test` starts every fortieth disk up again. The shard starts all of them, and after maintenance every second."""
MAINTENANCE_EVERY = int(os.environ.get("POWER_CUTS_EVERY", "2"))
"""How many of the disks that a cut during maintenance leaves come to one that the shard starts up."""
DISKS_RECOVERED = 8

MINUTE_MS = 60_000
HASTY = MaintenancePolicy(orphan_age_ms=MINUTE_MS, entries_age_ms=MINUTE_MS, trim_step=1, min_files=2)


def run_upkeep(recorder: Recorder, base: Path) -> None:
    """Run small loads with snapshots between them, then everything that maintenance does, a day later."""
    clock = ManualClock()
    with Engine(promising(recorder, base), clock=clock, configs=FEW_INTERNAL) as engine:
        engine.admin.create_topic("payments", partitions=1, schema=SCHEMA, key="account_id")
        with engine.producer() as producer:
            for account in LOADED:
                producer.produce("payments", payments(account)).result()
                clock.advance(MINUTE_MS)
                if account > 1:
                    engine.admin.snapshot("payments")
        recorder.say("note", said=Said("loaded"))
        maintain(engine)
        clock.advance(25 * 60 * MINUTE_MS)
        engine.admin.snapshot("payments")
        done = maintain(engine)
        assert {"Sealed", "Cleaned"} <= done, done


def maintain(engine: Engine) -> set[str]:
    """Run all jobs in the order of the DAG. Returns what they did."""
    maintenance = engine.maintenance
    reports = [
        maintenance.compact("payments", policy=HASTY),
        maintenance.retain("payments", policy=HASTY),
        maintenance.seal("payments"),
        maintenance.clean("payments", policy=HASTY),
        maintenance.expire_producers("payments"),
    ]
    assert [report.failures for report in reports] == [()] * len(reports)
    return {type(done).__name__ for report in reports for done in report.partitions}


def upkeep_after_the_cut(root: Path) -> None:
    """Start the machine again and check: the auditor finds nothing, the records are there, and the jobs go
    on."""
    clock = ManualClock()
    clock.advance(48 * 60 * MINUTE_MS)
    with Engine(LocalStore(root), clock=clock) as engine:
        for _ in range(2):
            report = engine.admin.verify()
            assert report.ok, [str(finding) for finding in report.findings]
            assert accounts_in(engine) == LOADED
            engine.admin.snapshot("payments")
            maintain(engine)


@pytest.mark.shard("kills")
@pytest.mark.parametrize("every", [pytest.param(SOME, id="some"), pytest.param(MAINTENANCE_EVERY, id="most")])
def test_the_power_goes_during_maintenance(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], every: int
) -> None:
    """If compaction, trims, seals and clean-up are cut off anywhere, no record is lost, doubled or moved, a
    file that a cut brings back does no harm, and the next run of the jobs succeeds."""
    with recording(tmp_path) as recorder:
        run_upkeep(recorder, tmp_path)
    with disks_in_memory() as folder:

        def inspect(tree: Tree, promises: Promises) -> None:
            if Said("loaded") in promises.said:
                upkeep_after_the_cut(write_tree(tree, folder / "cut"))

        result = survey(recorder.tape, inspect, objects_only=True, every=every)
    assert result.broken == []
    assert result.cuts > 300
    with capsys.disabled():
        print(f" [power cuts survived: {result.cuts}, {result.disks} of them other disks]", end="")


@pytest.mark.parametrize(
    "every", in_shard("kills", [pytest.param(SOME, id="some"), pytest.param(1, id="all")], keep=1)
)
def test_the_power_goes_at_any_moment(tmp_path: Path, capsys: pytest.CaptureFixture[str], every: int) -> None:
    """Whatever disk a cut leaves, an acknowledged commit is there whole, one under way is there whole or not
    at all, and the aborted one never is. The jobs, run again, do the rest and nothing twice, and the auditor
    finds nothing."""
    with recording(tmp_path) as recorder:
        run_jobs(recorder, tmp_path)
    with disks_in_memory() as folder:

        def inspect(tree: Tree, promises: Promises) -> None:
            if "store" in tree:
                after_the_cut(LocalStore(write_tree(tree, folder / "cut")), set(promises.said))

        result = survey(recorder.tape, inspect, objects_only=True, every=every)
    assert result.broken == []
    assert result.cuts > 1_000
    with capsys.disabled():
        print(f" [power cuts survived: {result.cuts}, {result.disks} of them other disks]", end="")


@pytest.mark.shard("kills")
@pytest.mark.parametrize(("recovered", "every"), [(1, 4), (DISKS_RECOVERED, 1)], ids=["one", "more"])
def test_the_power_goes_again_while_the_machine_comes_up(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], recovered: int, every: int
) -> None:
    """The same holds if the power is cut again while the machine starts. The next start does the sweeps and
    jobs that were cut off, and loses nothing that was acknowledged in either life."""
    with recording(tmp_path) as recorder:
        run_jobs(recorder, tmp_path)
    disks: list[tuple[Tree, set[object]]] = []
    survey(
        recorder.tape,
        lambda tree, promises: disks.append((tree, set(promises.said))),
        objects_only=True,
    )
    started = [disk for disk in disks if "store" in disk[0]]
    chosen = started[len(started) // 8 :: len(started) // recovered]
    cuts = looked_into = 0
    with disks_in_memory() as folder:
        for tree, said in chosen:
            base = folder / "first"
            write_tree(tree, base)
            with recording(base) as second:
                after_the_cut(promising(second, base), said)

            def inspect(again: Tree, _: Promises, said: set[object] = said) -> None:
                after_the_cut(LocalStore(write_tree(again, folder / "second")), said, hours=2)

            result = survey(second.tape, inspect, objects_only=True, start=tree, every=every)
            assert result.broken == []
            cuts, looked_into = cuts + result.cuts, looked_into + result.disks
    assert cuts > 1_000 * recovered // DISKS_RECOVERED
    assert looked_into > 50 * recovered // (DISKS_RECOVERED * every)
    with capsys.disabled():
        print(f" [second power cuts survived: {cuts}]", end="")
