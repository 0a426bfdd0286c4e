"""The shards of `make test-all`: everything that is too long for `make test`, in eight parts of ten minutes.

    python -m tests.suite.shards                    each shard, what it holds, and its last run
    python -m tests.suite.shards run NAME [NAME]    run these; `run all` runs every shard
    python -m tests.suite.shards pick               print the shard that CI runs now

`make test-all` runs all, `make shard NAME=spark` runs one. A shard is the tests that are marked with its name, and long
runs with fresh seeds. CI picks the shard that covers most of what changed since BASE. If nothing that a shard covers
has changed, or the change goes through more than half of the shards, CI picks the shard that ran longest ago.
`python -m tests.numbers` keeps the record of a run: when, at which commit, with which result.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.numbers import Record, Run, last_runs
from tests.suite.tiers import ALL, SHARDS

REPOSITORY = Path(__file__).parents[2]
RESULTS = REPOSITORY / ".cache" / "results"
PART = "shard"
LIMIT_S = 2_400
"""A command that runs longer is cut, and a run that was cut has failed. A shard aims at ten minutes."""
GRACE_S = 60
"""How long a command that is cut has to end what it started. One in the background does not hear of it."""
DAY_S = 86_400
PROCESSES = "3"
"""Many tests wait, so one more than the machine has cores."""
SEEDS_A_DAY = 10_000
CONFIGURATIONS = ("a", "b", "d", "e", "f", "producer")
"""Of the explorer: it searches one of them each day."""


@dataclass(frozen=True)
class Shard:
    """One part of what is too long for `make test`.

    covers: paths, or beginnings of paths, of code that this shard tests most. A module of tests with marks of shards
    belongs to those instead. commands: what runs after its tests; `{seed}` and `{configuration}` change every day.
    """

    name: str
    holds: str
    covers: tuple[str, ...]
    commands: tuple[str, ...] = ()
    set_up: tuple[str, ...] = ()


_ALL: tuple[Shard, ...] = (
    Shard(
        "airflow",
        "whole live Airflows, every death of a DAG's task, retries, back-fills and clears",
        (
            "dags/",
            "plugins/txn_engine_airflow/",
            "tests/dags/",
            "tests/blocks/",
            "tests/live/",
            "tests/pages/",
        ),
    ),
    Shard(
        "damage",
        "every kind of damage in every place, illegal keys on every store, fuzzed objects, some of the mutants",
        (
            "storage/",
            "txn_engine/verify/",
            "txn_engine/configs/",
            "txn_engine/quality/",
            "tests/verify/",
            "tests/fuzz/",
            "tests/storage/",
        ),
        ("python -m tests.fuzz --minutes 2",),
    ),
    Shard(
        "engines",
        "Delta and Iceberg views read by other engines, every type of Postgres, a live outbox, the other stores",
        (
            "txn_engine/tables/",
            "txn_engine/postgres/",
            "txn_engine/databases/",
            "txn_engine/sqlite/",
            "txn_engine/sql/",
            "txn_engine/schemas/",
            "tests/readers/",
            "tests/tables/",
            "tests/postgres/",
        ),
        set_up=(".ci/setup-readers",),
    ),
    Shard(
        "kills",
        "processes, servers, power cut at every store operation, Spark's streams, compaction, random files, conditions",
        (
            "txn_engine/maintain/",
            "txn_engine/backup/",
            "txn_engine/cuts/",
            "txn_engine/files/",
            "txn_engine/erasing/",
            "txn_engine/loading/",
        ),
        ("python -m tests.erasing.condition_cases --minutes 1", "python -m tests.files.fuzzed --minutes 1"),
    ),
    Shard(
        "machine",
        "set-up on a bare machine, the wheel, the demo, a live Airflow on Postgres, properties with fresh examples",
        (
            ".ci/",
            "Makefile",
            "pyproject.toml",
            "requirements/",
            "deploy/",
            "docker-compose.yml",
            "txn_engine/demo/",
            "txn_engine/bench/",
            "txn_engine/cli/",
        ),
        (
            "python -m tests.setup.fresh_machine",
            "python -m pytest -n 3 -q -m hypothesis --hypothesis-profile fresh tests",
        ),
    ),
    Shard(
        "protocol",
        "random programs on Apache Kafka and on the engine, compared; random deaths; a third of the mutants",
        (
            "txn_engine/protocol/",
            "txn_engine/coordinator/",
            "txn_engine/producer/",
            "tests/kafka_rules/",
            "tests/differential/",
            "tests/torture/",
        ),
        ("python -m tests.differential --minutes 1 --seed {seed}", "python -m tests.torture --minutes 1"),
    ),
    Shard(
        "simulator",
        "runs with fresh seeds, small configurations over every interleaving, properties, half of the mutants",
        ("txn_engine/log/", "txn_engine/consumer/", "tests/simulator/", "tests/protocol/", "tests/exact/"),
        (
            "python -m tests.simulator run --seeds 1000000 --minutes 2",
            "python -m tests.simulator.explore --config {configuration} --minutes 1",
        ),
    ),
    Shard(
        "spark",
        "every option and type of the Spark source, sink, streams, loads and compaction; kills of the sink",
        ("txn_engine/spark/", "plugins/pyspark_txn_engine/", "tests/spark/"),
    ),
)
BY_NAME = {shard.name: shard for shard in _ALL}


def last_run(name: str) -> Record | None:
    """The record of a shard's last run in this checkout; None if it never ran here."""
    found = [record for record in last_runs(PART) if record.of == name]
    return found[0] if found else None


def run(shard: Shard, *, seed: int, say: Callable[[str], None] = print) -> Record:
    """Run a shard's tests and commands, all of them even if one fails, and record the result.

    A shard of which no test passed has failed: tests that were all skipped prove nothing.
    """
    recorded, failed = Run(PART, [shard.name]), []
    results_of(shard).unlink(missing_ok=True)
    commands = [*([line] for line in shard.set_up), tests_of(shard)]
    configuration = CONFIGURATIONS[seed // SEEDS_A_DAY % len(CONFIGURATIONS)]
    commands += [
        [word.format(seed=seed, configuration=configuration) for word in line.split()]
        for line in shard.commands
    ]
    for words in commands:
        line = " ".join(words)
        command = [sys.executable if word == "python" else word for word in words]
        say(f"\nshard {shard.name}: {line}")
        step = time.monotonic()
        code = _run_limited(command)
        say(f"shard {shard.name}: {time.monotonic() - step:.0f} s, exit code {code}: {line}")
        if code:
            failed.append(line)
    results = results_of(shard)
    found = json.loads(results.read_text(encoding="utf-8")) if results.exists() else {}
    passed, skipped = found.get("passed", 0), found.get("skipped", 0)
    if not passed:
        failed.append("no test passed")
    return recorded.record({"failed": failed, "passed": passed, "skipped": skipped}, of=shard.name)


def results_of(shard: Shard) -> Path:
    """Where a run of the shard says what became of its tests."""
    return RESULTS / f"{shard.name}.json"


def tests_of(shard: Shard) -> list[str]:
    """The command that runs the tests which are marked with a shard's name."""
    results = f"--results={results_of(shard)}"  # without a blank: pytest takes a file that is there for tests to run
    return ["python", "-m", "pytest", "-n", PROCESSES, "--shard", shard.name, "-q", results]


def _run_limited(command: Sequence[str]) -> int:
    """The exit code of a command; the command and all that it started are ended at the limit."""
    with subprocess.Popen(command, cwd=REPOSITORY, start_new_session=True) as process:
        try:
            return process.wait(LIMIT_S)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGINT)
            try:
                process.wait(GRACE_S)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
            return 124
        except BaseException:
            os.killpg(process.pid, signal.SIGINT)
            raise


def pick(changed: Sequence[str], *, day: int) -> Shard:
    """The shard that covers most of the changed paths; otherwise the one that ran longest ago.

    Otherwise: no shard covers a changed path, or the change goes through more than half of the shards, so that none of
    them is its shard. Shards that never ran here take turns, one each day.
    """
    covered = dict.fromkeys(SHARDS, 0)
    for path in changed:
        for name in _shards_of(path):
            covered[name] += 1
    if sum(map(bool, covered.values())) > len(_ALL) // 2:
        covered = dict.fromkeys(covered, 0)
    turn = {name: (number - day) % len(SHARDS) for number, name in enumerate(SHARDS)}

    def urgency(shard: Shard) -> tuple[int, str, int]:
        last = last_run(shard.name)
        return -covered[shard.name], "" if last is None else last.finished, turn[shard.name]

    return min(_ALL, key=urgency)


def _shards_of(path: str) -> set[str]:
    """The shards that cover a path: those whose marks it has, if it is a module of tests with marks."""
    module = REPOSITORY / path
    if path.startswith("tests/") and module.suffix == ".py" and module.exists():
        marked = set(_MARK.findall(module.read_text(encoding="utf-8"))) & set(SHARDS)
        if marked:
            return marked
    return {shard.name for shard in _ALL if any(path.startswith(start) for start in shard.covers)}


_MARK = re.compile(r"shard\(\s*\"(\w+)\"")


def changed_since(base: str) -> list[str]:
    """The paths that differ between a commit and the working tree."""
    return _git("diff", "--name-only", base).splitlines()


def base_commit() -> str | None:
    """The commit that a change began from: BASE, else the last one that is four hours older than the newest.

    None if there is no other commit than the newest: in a shallow clone, and outside of a repository. Raises
    `SystemExit` for a BASE that is not a commit here.
    """
    if given := os.environ.get("BASE"):
        try:
            return _git("rev-parse", "--verify", "--quiet", f"{given}^{{commit}}")
        except subprocess.CalledProcessError:
            raise SystemExit(f"BASE={given} is not a commit of this repository: fetch it first") from None
    try:
        newest = int(_git("log", "-1", "--format=%ct"))
        before = _git("rev-list", "-1", f"--before={newest - 4 * 3_600}", "HEAD")
        found = before or _git("rev-list", "--max-parents=0", "-1", "HEAD")
        return None if found == _git("rev-parse", "HEAD") else found
    except (OSError, subprocess.CalledProcessError):
        return None


def _git(*words: str) -> str:
    return subprocess.run(
        ["git", *words], cwd=REPOSITORY, check=True, capture_output=True, text=True
    ).stdout.strip()


def table() -> str:
    """Each shard and its last run: when it ended, at which commit, with which result."""
    lines = []
    for shard in _ALL:
        lines += [f"{shard.name:10} {shard.holds}", " " * 11 + _result(last_run(shard.name))]
    return "\n".join(lines)


def _result(last: Record | None) -> str:
    if last is None:
        return "has not run in this checkout"
    changed = "" if last.clean else " with changes"
    result = "FAILED: " + ", ".join(last.figures["failed"]) if last.figures["failed"] else "passed"
    if "passed" in last.figures:
        result += f" ({last.figures['passed']:,} tests passed, {last.figures['skipped']:,} skipped)"
    return (
        f"{last.finished}  commit {(last.commit or 'unknown')[:8]}{changed}  {last.seconds:.0f} s  {result}"
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Show, pick or run shards."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.suite.shards", description="The shards of the tests."
    )
    commands = parser.add_subparsers(dest="command")
    commands.add_parser("list", help="print each shard and its last run (the default)")
    commands.add_parser("pick", help="print the shard that CI runs now")
    running = commands.add_parser("run", help="run shards, and print each shard's last run")
    running.add_argument("names", nargs="+", choices=[*SHARDS, ALL], metavar="NAME")
    running.add_argument("--seed", type=int, default=int(time.time()) // DAY_S * SEEDS_A_DAY)
    chosen = parser.parse_args(arguments)
    if chosen.command == "pick":
        base = base_commit()
        print(pick([] if base is None else changed_since(base), day=int(time.time()) // DAY_S).name)
        return 0
    records: list[Record] = []
    if chosen.command == "run":
        names = SHARDS if ALL in chosen.names else tuple(dict.fromkeys(chosen.names))
        records = [run(BY_NAME[name], seed=chosen.seed) for name in names]
    print(f"\n{table()}")
    return 1 if any(record.figures["failed"] for record in records) else 0


if __name__ == "__main__":
    sys.exit(main())
