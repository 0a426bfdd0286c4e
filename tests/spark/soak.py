"""A loader that never stops, two chained queries, and kills: at the end each record is there once.

    python -m tests.spark.soak --minutes 30 --folder /tmp/soak

`loaded` -> query -> `copied` -> query -> `final`. Loader, drivers, their JVMs and Python workers are killed (SIGKILL)
at random and started again; then all is let run out. Exit code 1 where a record is missing or doubled, or `verify`
finds something.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path

import pyarrow as pa

import txn_engine
from tests.support.servers import REPOSITORY
from txn_engine.spark import spark_session
from txn_engine.spark.source import register

SCHEMA = pa.schema([("number", pa.int64()), ("account_id", pa.int64())])
TOPICS = ("loaded", "copied", "final")
BATCH = 500


def load(url: str, stop: Path) -> None:
    """Commit transactions of 500 numbers each, and abort every seventh first. A run goes on after the last
    committed one."""
    with txn_engine.connect(url) as engine, engine.producer(transactional_id="loader") as producer:
        producer.init_transactions()
        last = producer.last_committed_run_id
        number = 0 if last is None else int(last) + 1
        while not stop.exists():
            ids = pa.array(range(number * BATCH, (number + 1) * BATCH), pa.int64())
            table = pa.table([ids, pa.array([n % 97 for n in range(BATCH)], pa.int64())], schema=SCHEMA)
            if number % 7 == 0:
                producer.begin_transaction()
                producer.produce("loaded", table)
                producer.flush()
                producer.abort_transaction()
            with producer.transaction(str(number)):
                producer.produce("loaded", table)
            number += 1
            time.sleep(0.2)


def query(url: str, source: str, sink: str, folder: Path, stop: Path) -> None:
    """Run one query until it is killed, or, once `stop` exists, until it has everything."""
    spark = spark_session(url, master="local[2,3]")
    register(spark)
    jvm = spark._jvm
    assert jvm is not None
    (folder / "jvm").write_text(str(jvm.java.lang.ProcessHandle.current().pid()))
    options = {
        "url": url,
        "subscribe": source,
        "startingOffsets": "earliest",
        "maxOffsetsPerTrigger": "20000",
    }
    rows = spark.readStream.format("txn_engine").options(**options).load().select("number", "account_id")
    out = {"url": url, "topic": sink, "checkpointLocation": str(folder / "checkpoint")}
    writer = rows.writeStream.format("txn_engine").options(**out)
    if stop.exists():
        writer.trigger(availableNow=True).start().awaitTermination()
    else:
        writer.start().awaitTermination()


def workers_of(jvm: int) -> list[int]:
    """The Python processes below a JVM."""
    shown = subprocess.run(["ps", "-eo", "pid,ppid,comm"], capture_output=True, encoding="utf-8", check=True)
    rows = [line.split(None, 2) for line in shown.stdout.splitlines()[1:]]
    below, found = {jvm}, []
    for _ in range(3):
        for pid, parent, command in rows:
            if int(parent) in below and int(pid) not in below:
                below.add(int(pid))
                found += [int(pid)] if "python" in command else []
    return found


class Story:
    """The processes of a soak, and what happened to them."""

    def __init__(self, url: str, folder: Path, seed: int) -> None:
        self._url, self._folder = url, folder
        self._chance = random.Random(seed)
        self._stop = folder / "stop"
        self.kills: Counter[str] = Counter()
        self.ended: Counter[int] = Counter()
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        for name in ("one", "two"):
            (folder / name).mkdir()

    def _start(self, name: str) -> subprocess.Popen[bytes]:
        more = {"load": [], "one": ["loaded", "copied"], "two": ["copied", "final"]}[name]
        command = [
            sys.executable,
            "-m",
            "tests.spark.soak",
            "--part",
            name,
            "--folder",
            str(self._folder),
            *more,
        ]
        log = (self._folder / f"{name}.log").open("ab")
        with log:
            return subprocess.Popen(command, cwd=REPOSITORY, stdout=log, stderr=log)

    def go_on(self, seconds: float) -> None:
        """Keep all processes running, and kill one of them now and then."""
        end = time.monotonic() + seconds
        kill_at = {name: time.monotonic() + self._chance.uniform(20, 60) for name in ("load", "one", "two")}
        while time.monotonic() < end:
            for name, at in kill_at.items():
                process = self._running.get(name)
                if process is None or process.poll() is not None:
                    if process is not None:
                        self.ended[process.returncode] += 1
                    self._running[name] = self._start(name)
                elif time.monotonic() > at:
                    self._kill(name, process)
                    kill_at[name] = time.monotonic() + self._chance.uniform(5, 60)
            time.sleep(0.2)

    def _kill(self, name: str, process: subprocess.Popen[bytes]) -> None:
        victims = {"driver": process.pid}
        jvm = self._folder / name / "jvm"
        if jvm.exists():
            victims["jvm"] = int(jvm.read_text())
            workers = workers_of(victims["jvm"])
            if workers:
                victims["worker"] = self._chance.choice(workers)
        kind = self._chance.choice(sorted(victims))
        with suppress(ProcessLookupError):
            os.kill(victims[kind], signal.SIGKILL)
            self.kills[f"{name} {kind}"] += 1

    def run_out(self) -> None:
        """Let the loader end, then the first query, then the second."""
        self._stop.touch()
        for process in self._running.values():
            with suppress(ProcessLookupError):
                process.kill()
            process.wait()
        for name in ("one", "two"):
            if self._start(name).wait(600):
                sys.exit(f"{name} does not run out: see {self._folder / name}.log")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=30)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--part")
    parser.add_argument("topics", nargs="*")
    given = parser.parse_args()
    folder = given.folder.resolve()
    url, stop = f"file://{folder}/ledger", folder / "stop"
    if given.part == "load":
        return load(url, stop)
    if given.part:
        return query(url, *given.topics, folder / given.part, stop)
    folder.mkdir(parents=True)
    with txn_engine.connect(url) as engine:
        for topic in TOPICS:
            engine.admin.create_topic(topic, partitions=3, schema=SCHEMA, key="account_id")
    story = Story(url, folder, given.seed)
    story.go_on(given.minutes * 60)
    story.run_out()
    with txn_engine.connect(url) as engine:
        counts = {
            topic: Counter(engine.scan(topic).to_table(["number"]).column(0).to_pylist()) for topic in TOPICS
        }
        report = engine.admin.verify()
    expected = counts["loaded"]
    wrong = {
        topic: (len(expected.keys() - found.keys()), sum(count > 1 for count in found.values()))
        for topic, found in counts.items()
    }
    print(f"kills: {dict(sorted(story.kills.items()))}; exit codes: {dict(story.ended)}")
    print(f"records: {len(expected):,}; missing and doubled: {wrong}; verify ok: {report.ok}")
    for finding in report.findings:
        print(f"verify: {finding}")
    return sys.exit(any(any(each) for each in wrong.values()) or not report.ok)


if __name__ == "__main__":
    main()
