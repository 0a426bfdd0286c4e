"""One ledger under fire: workers that are killed, stopped and replaced, a server that is killed, a proxy that lies."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import random
import signal
import threading
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Self

from tests.support.servers import MinioServer
from tests.torture.audit import FINAL_STATES, audit, read_told
from tests.torture.journal import Journal, read_journals
from tests.torture.proxy import CHANGES, DROPS, Proxy
from tests.torture.session import TRANSACTION_TIMEOUT_MS, Assignment, Ledger
from tests.torture.workloads import GROUP, OUTPUTS, TOPICS, load_rows, maintenance_jobs, work
from txn_engine import Engine
from txn_engine.errors import TxnEngineError

CREW = ("transfer",) * 3 + ("copy",) * 2 + ("load", "emit", "read", "sweep", "maintain", "fork")
FAULT_RATE = 0.15
_LIFE_S_MAX = 120.0
_STARTING_S_MAX = 20.0
_STARTING_S_USUAL = 2.0
_PACE_MAX = 3.0
_STORM_S_MAX = 120.0  # a slow machine gets longer storms, until something was done in them
_SLOWER = 1.5  # blows come later and later while nothing is done between them
_ACKNOWLEDGED_MIN = 15
_BLOWS_MIN = 6
_TALKATIVE = {"transfer", "load", "emit", "fork"}
_NEWBORN_S = 3.0
_GRACE_S = 6.0
_HEALING_S_MAX = 60.0
_STOP_S_MAX = 3.5


@dataclass(slots=True)
class Toll:
    """The record of a storm: what was done to the ledger, and the findings."""

    rounds: int = 0
    counts: Counter[str] = field(default_factory=Counter)
    done: Counter[str] = field(default_factory=Counter)
    errors: Counter[str] = field(default_factory=Counter)
    findings: list[str] = field(default_factory=list)

    def add(self, other: Toll) -> None:
        """Add the results of another store's rounds."""
        self.rounds += other.rounds
        self.counts += other.counts
        self.done += other.done
        self.errors += other.errors
        self.findings += other.findings


@dataclass(slots=True)
class _Worker:
    role: str
    slot: int
    process: BaseProcess
    started: float
    wake_at: float | None = None  # stopped until then

    @property
    def pid(self) -> int:
        return int(self.process.pid or 0)


class Arena:
    """A store and a folder of journals. With `with`, everything that was started is ended by its id."""

    def __init__(self, folder: Path, *, minio: Path | None, seed: int, toll: Toll) -> None:
        self._folder = folder
        self._chance = random.Random(seed)
        self._toll = toll
        self._server = MinioServer(minio, data=folder / "minio") if minio is not None else None
        self._proxy: Proxy | None = None
        self._ledgers = 0
        self._ends = contextlib.ExitStack()

    def __enter__(self) -> Self:
        if self._server is not None:
            (self._folder / "minio").mkdir()
            self._ends.enter_context(self._server)
            self._server.client().make_bucket("torture")
            self._proxy = self._ends.enter_context(
                Proxy(self._server.port, seed=self._chance.getrandbits(32))
            )
        return self

    def __exit__(self, *_: object) -> None:
        self._ends.close()

    @contextlib.contextmanager
    def ledger(self) -> Iterator[Storms]:
        """A fresh store with its topics, for some rounds in a row."""
        self._ledgers += 1
        journals = self._folder / f"journals-{self._ledgers}"
        journals.mkdir()
        direct, through = self._ways_in(journals)
        with direct.connect() as engine:
            for name, (partitions, schema, key) in TOPICS.items():
                engine.admin.create_topic(name, partitions=partitions, schema=schema, key=key)
        storms = Storms(direct, through, self._server, self._proxy, self._chance, self._toll)
        try:
            yield storms
        finally:
            storms.end_all()

    def _ways_in(self, journals: Path) -> tuple[Ledger, Ledger]:
        if self._server is None or self._proxy is None:
            local = Ledger(f"file://{self._folder}/ledger-{self._ledgers}", journals)
            return local, local
        server, url = self._server, f"s3://torture/ledger-{self._ledgers}"
        ways = (server.url, self._proxy.url)
        direct, through = (Ledger(url, journals, way, server.access_key, server.secret_key) for way in ways)
        return direct, through


class Storms:
    """Rounds over one ledger: a storm, the healing after it, and the audit."""

    def __init__(
        self,
        direct: Ledger,
        through: Ledger,
        server: MinioServer | None,
        proxy: Proxy | None,
        chance: random.Random,
        toll: Toll,
    ) -> None:
        self._direct = direct
        self._through = through
        self._server = server
        self._proxy = proxy
        self._chance = chance
        self._toll = toll
        self._context = multiprocessing.get_context("forkserver")
        self._context.set_forkserver_preload(["tests.torture.run"])
        self._workers: list[_Worker] = []
        self._restart: threading.Thread | None = None
        self._started = 0
        self._audited: Counter[str] = Counter()  # of this ledger, until the last round
        self._errors: Counter[str] = Counter()

    def round(self, seconds: float) -> list[str]:
        """Run one round, and return its findings."""
        self._storm(seconds)
        self._calm()
        with self._direct.connect() as engine:
            findings: list[str] = []
            for part in (self._heal, self._judge):
                try:
                    findings.extend(part(engine))
                except TxnEngineError as error:
                    findings.append(f"{part.__name__} ended with {type(error).__name__}: {error}")
        self._toll.rounds += 1
        self._toll.findings += findings
        return findings

    def end_all(self) -> None:
        """Kill every process that still runs, by its process id."""
        for worker in self._workers:
            self._signal(worker, signal.SIGKILL)
        for worker in self._workers:
            worker.process.join(10)
        self._workers.clear()
        if self._restart is not None:
            self._restart.join()

    # --- the storm ------------------------------------------------------------------------------------------

    def _storm(self, seconds: float) -> None:
        faults_before = Counter(self._proxy.counts) if self._proxy else Counter()
        if self._proxy is not None:
            self._proxy.fault_rate = FAULT_RATE
        for number, role in enumerate(CREW):
            self._start(role, number)
        pace = self._wait_until_all_work()
        done_before = self._acknowledged()
        blows_before = self._toll.counts["kills"] + self._toll.counts["stops"]
        started, done, wait = time.monotonic(), done_before, pace
        server_dies_at = seconds * self._chance.uniform(0.2, 0.7)
        while (now_s := time.monotonic() - started) < max(seconds, _STORM_S_MAX):
            blows = self._toll.counts["kills"] + self._toll.counts["stops"] - blows_before
            before, done = done, self._acknowledged()
            if now_s > seconds and blows >= _BLOWS_MIN and done - done_before >= _ACKNOWLEDGED_MIN:
                break
            wait = pace if done > before else wait * _SLOWER
            time.sleep(wait * self._chance.uniform(0.05, 0.4))
            self._wake_due()
            if self._server is not None and now_s > server_dies_at:
                server_dies_at = float("inf")
                self._kill_server(self._server)
            kills, stops = self._toll.counts["kills"], self._toll.counts["stops"]
            if kills <= stops:
                self._kill_one()
            else:
                self._stop_one()
        if self._proxy is not None:
            self._proxy.fault_rate = 0.0
            self._count_faults(self._proxy.counts - faults_before)

    def _wait_until_all_work(self) -> float:
        """Wait until all workers work, because the first storm would otherwise end before the first import
        does.

        Returns how slow the machine is, as a factor of 1 or more.
        """
        started = time.monotonic()
        while (waited_s := time.monotonic() - started) < _STARTING_S_MAX:
            if all(self._has_spoken(worker) for worker in self._workers if worker.role in _TALKATIVE):
                break
            time.sleep(0.05)
        return min(max(waited_s / _STARTING_S_USUAL, 1.0), _PACE_MAX)

    def _acknowledged(self) -> int:
        """The number of commits that were acknowledged to the workers."""
        return sum(1 for line in read_journals(self._direct.journals) if line.event == "committed")

    def _start(self, role: str, slot: int) -> None:
        self._started += 1
        assignment = Assignment(
            self._through, role, slot, self._chance.getrandbits(32) * 10_000 + self._started, _LIFE_S_MAX
        )
        process = self._context.Process(target=work, args=(assignment,), daemon=True)
        process.start()
        self._workers.append(_Worker(role, slot, process, time.monotonic()))

    def _somebody_at_work(self) -> _Worker:
        """A worker that has written to its journal, or had the time to. On a slow machine only new workers
        would die otherwise."""
        grown = [worker for worker in self._workers if self._is_at_work(worker)]
        return self._chance.choice(grown or self._workers)

    def _is_at_work(self, worker: _Worker) -> bool:
        return self._has_spoken(worker) or time.monotonic() - worker.started > _NEWBORN_S

    def _has_spoken(self, worker: _Worker) -> bool:
        return any(path.stat().st_size for path in self._direct.journals.glob(f"*-{worker.pid}-*"))

    def _kill_one(self) -> None:
        worker = self._somebody_at_work()
        if not self._signal(worker, signal.SIGKILL):
            return
        worker.process.join()
        self._workers.remove(worker)
        self._toll.counts["kills"] += 1
        if not any(other.slot == worker.slot for other in self._workers):
            self._start(worker.role, worker.slot)

    def _stop_one(self) -> None:
        """Stop a process for a while. Half of the time another one takes its place, and the first wakes up as
        a zombie."""
        worker = self._somebody_at_work()
        if worker.wake_at is not None or not self._signal(worker, signal.SIGSTOP):
            return
        worker.wake_at = time.monotonic() + self._chance.uniform(0.05, _STOP_S_MAX)
        self._toll.counts["stops"] += 1
        if self._chance.random() < 0.5 and len(self._workers) < 2 * len(CREW):
            self._start(worker.role, worker.slot)

    def _wake_due(self) -> None:
        now = time.monotonic()
        for worker in self._workers:
            if worker.wake_at is not None and worker.wake_at <= now:
                self._signal(worker, signal.SIGCONT)
                worker.wake_at = None

    def _signal(self, worker: _Worker, number: signal.Signals) -> bool:
        if not worker.process.is_alive():  # its id may be another's by now
            return False
        os.kill(worker.pid, number)
        return True

    def _kill_server(self, server: MinioServer) -> None:
        down_s = self._chance.uniform(0.0, 1.0)

        def restart() -> None:
            server.kill()
            time.sleep(down_s)
            server.start()

        self._restart = threading.Thread(target=restart, name="restart")
        self._restart.start()
        self._toll.counts["server restarts"] += 1

    def _count_faults(self, done: Counter[str]) -> None:
        self._toll.counts["requests"] += done["requests"]
        self._toll.counts["connections dropped"] += sum(done[fault] for fault in DROPS)
        self._toll.counts["of them the request came later"] += done["late"]
        self._toll.counts["answers changed"] += sum(done[fault] for fault in CHANGES)
        self._toll.counts["refused or delayed"] += done["503 before"] + done["slow"]

    # --- the healing ----------------------------------------------------------------------------------------

    def _calm(self) -> None:
        """Start the server, and wake all workers and ask them to end. A worker that does not end is
        killed."""
        if self._restart is not None:
            self._restart.join()
            self._restart = None
        for worker in self._workers:
            self._signal(worker, signal.SIGCONT)
            self._signal(worker, signal.SIGTERM)
        deadline = time.monotonic() + _GRACE_S
        for worker in self._workers:
            worker.process.join(max(deadline - time.monotonic(), 0))
            if worker.process.is_alive():
                self._toll.counts["kills"] += 1
        self.end_all()
        if self._proxy is not None:
            self._proxy.wait_until_quiet()

    def _heal(self, engine: Engine) -> Iterator[str]:
        """Do what the DAGs do until no transaction is open: time-outs, markers, and the jobs themselves."""
        time.sleep(TRANSACTION_TIMEOUT_MS / 1_000)
        deadline = time.monotonic() + _HEALING_S_MAX
        while time.monotonic() < deadline:
            reports = [
                engine.coordinator.abort_timed_out_transactions(),
                engine.coordinator.write_pending_markers(),
            ]
            open_now = [t for t in engine.admin.list_transactions() if t.state not in FINAL_STATES]
            if not open_now and not any(report.failures for report in reports):
                break
            time.sleep(0.2)
        else:
            yield f"not healed after {_HEALING_S_MAX:.0f} s: {open_now} {[report.failures for report in reports]}"
        self._load_again(engine)
        self._copy_the_rest(engine)
        engine.admin.snapshot()
        for job in maintenance_jobs(engine):
            report = job()
            self._toll.done.update(type(done).__name__ for done in report.partitions)
            yield from (f"maintenance: {failure}" for failure in report.failures)

    def _load_again(self, engine: Engine) -> None:
        """Run each load whose answer was lost again under its run id. That must not put it into the store
        twice."""
        journal = Journal(self._direct.journals, f"load-heal-{self._toll.rounds}")
        lines = [line for line in read_journals(self._direct.journals, "load-*") if line.event == "begin"]
        last = max((int(line.name.rpartition("-")[2]) for line in lines), default=0)
        slot = CREW.index("load")
        with engine.producer(transactional_id=f"load-{slot}") as producer:
            producer.init_transactions()
            for number in range(max(0, last - 20), last + 1):
                name = f"load-{number}"
                if not producer.has_committed(name):
                    journal.write("begin", name)
                    with producer.transaction(run_id=name):
                        producer.produce("inputs", load_rows(name))
                journal.write("loaded", name)
        journal.close()

    def _copy_the_rest(self, engine: Engine) -> None:
        name = f"copy-heal-{self._toll.rounds}"
        journal = Journal(self._direct.journals, name)
        journal.write("begin", name)
        consumer = engine.consumer(group_id=GROUP)
        consumer.subscribe(["inputs"])
        with engine.producer(transactional_id="copy-heal") as producer:
            producer.init_transactions()
            with producer.transaction():
                while (batch := consumer.poll()) is not None:
                    rows = batch.select(["id", "number"])
                    copied = rows.append_column(OUTPUTS.field("copied_by"), [[name] * rows.num_rows])
                    producer.produce("outputs", copied)
                producer.send_offsets_to_transaction(consumer.positions(), consumer.group_metadata())
        journal.close()

    def _judge(self, engine: Engine) -> Iterator[str]:
        report = engine.admin.verify()
        yield from (f"verify: {finding}" for finding in report.findings)
        told = read_told(self._direct.journals)
        yield from audit(engine, told)
        now = Counter({"objects audited": report.stats.objects, "records audited": report.stats.records})
        self._toll.counts += now
        kept = sum(1 for _ in engine.store.list("")) - report.stats.orphan_files
        self._toll.counts["objects kept"] += kept  # an upload that no entry names holds nothing to audit
        transactions = [what for name, what in told.outcomes.items() if name not in told.begun["emit"]]
        done = Counter(transactions)
        done["children refused"] = told.children
        done["children at work"] = told.working_children
        done.update(told.maintained)
        done["promises kept"] = sum(1 for outcome in told.outcomes.values() if outcome == "committed")
        self._toll.done += done - self._audited  # the ledger grows: what is new since the last round
        self._audited = done
        self._toll.errors += told.errors - self._errors
        self._errors = told.errors
