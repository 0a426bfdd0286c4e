"""`python -m tests.numbers` shows the last results of the long checks on this machine. Nothing in it is typed
or estimated.

Each check leaves a record of its last finished run in `.cache/numbers/`: the figures that it counted, the
time, the arguments and the commit. An interrupted run changes no record, and neither does a run of a part
only (of a mutant, a workload or a store by name). `python -m tests.numbers bench` runs `txn-engine bench`,
which leaves no record by itself.

The hunts' processes import this module too, so it must not import the engine at the top.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / ".cache" / "numbers"
BENCH = (sys.executable, "-m", "txn_engine", "bench", "--json")


@dataclass(frozen=True, slots=True)
class Part:
    """A check with numbers: the command that runs it, and its make target."""

    program: str
    make: str


PARTS = {
    "simulator": Part("python -m tests.simulator", "make simulate SEEDS=1000"),
    "mutants": Part("python -m tests.simulator.mutants", "make mutants"),
    "explore": Part("python -m tests.simulator.explore", "make explore"),
    "explore-mutants": Part("python -m tests.simulator.explore", 'make explore ARGS="--mutants"'),
    "differential": Part("python -m tests.differential", "make differential"),
    "torture": Part("python -m tests.torture", "make torture"),
    "damage": Part("pytest tests/verify/test_damage.py", 'make test ARGS="tests/verify/test_damage.py"'),
    "bench": Part("txn-engine bench", "make bench"),
    "dag-parsing": Part("python -m tests.dags.parse_times", "make airflow-numbers"),
    "sweeps": Part("python -m tests.dags.measure_sweeps", "make airflow-numbers"),
    "pages": Part("python -m tests.pages.bench", "make airflow-numbers"),
    "small-files": Part("python -m tests.maintain.many_files", "make airflow-numbers"),
    "scheduler": Part("pytest tests/live/test_real_run.py", "make shard NAME=airflow"),
    "shard": Part("python -m tests.suite.shards run", "make test-all"),
}


@dataclass(frozen=True, slots=True)
class Record:
    """A finished run. `commit` is None outside of a git repository. `clean` says that the tree was the
    commit's from the start of the run to its end."""

    part: str
    of: str
    finished: str
    seconds: float
    arguments: list[str]
    commit: str | None
    clean: bool
    figures: dict[str, Any]

    @property
    def title(self) -> str:
        """The name of the part, and of the piece of it."""
        return f"{self.part} {self.of}".rstrip()

    @property
    def command(self) -> str:
        """The command of the run."""
        return shlex.join([*shlex.split(PARTS[self.part].program), *self.arguments])


class Run:
    """A run that has begun. It is made before the work, so that the record names the code that the work was
    done with."""

    def __init__(self, part: str, arguments: Sequence[str]) -> None:
        self._part, self._arguments = part, list(arguments)
        self._tree, self._started = _tree(), time.monotonic()

    @property
    def code(self) -> str:
        """The short id of the commit that the run began with, with a `+` if the tree had changes outside
        docs/ on top."""
        commit, changes = self._tree
        changed = any(not line[3:].startswith("docs/") for line in changes.splitlines())
        return "-" if commit is None else commit[:8] + ("+" if changed else "")

    def record(self, figures: Mapping[str, object], *, of: str = "") -> Record:
        """Write the record. It has numbers, words, and mappings or lists of them, under the names that are
        shown.

        `of` names the piece of the part, if each piece is a whole by itself.
        """
        commit, changes = self._tree
        made = Record(
            self._part,
            of,
            datetime.now(UTC).isoformat(timespec="seconds"),
            round(time.monotonic() - self._started, 1),
            self._arguments,
            commit,
            commit is not None and not changes and _tree() == self._tree,
            dict(figures),
        )
        FOLDER.mkdir(parents=True, exist_ok=True)
        written = FOLDER / f".{self._part}.{os.getpid()}"
        written.write_text(json.dumps(asdict(made), indent=1) + "\n", encoding="utf-8")
        written.replace(FOLDER / f"{'.'.join([self._part, *of.split()])}.json")
        return made


def _tree() -> tuple[str | None, str]:
    """The commit, and the changes on top of it."""
    try:
        return _git("rev-parse", "HEAD").strip(), _git("status", "--porcelain")
    except (OSError, subprocess.CalledProcessError):
        return None, ""


def _git(*arguments: str) -> str:
    return subprocess.run(["git", *arguments], cwd=ROOT, check=True, capture_output=True, text=True).stdout


def last_runs(part: str) -> list[Record]:
    """The records of a part, one for each piece of it. A part that was never run to its end here has no
    records."""
    return [_read(path) for path in sorted([*FOLDER.glob(f"{part}.json"), *FOLDER.glob(f"{part}.*.json")])]


def _read(path: Path) -> Record:
    try:
        return Record(**json.loads(path.read_text(encoding="utf-8")))
    except (ValueError, TypeError) as error:
        raise SystemExit(f"{path} is no record of a run ({error}): delete it") from error


# --- shown ------------------------------------------------------------------------------------------------


def table_of(records: Mapping[str, Sequence[Record]]) -> Table:
    """The figures of each part and how it was run, or how to run it."""
    table = Table("", "last seen here", title="numbers", title_justify="left")
    for part, found in records.items():
        for record in found:
            table.add_row(f"[bold]{record.title}[/]", f"[dim]{escape(_origin(record))}[/]")
            for name, value in record.figures.items():
                table.add_row(f"  {name}", escape(_shown(value)))
            table.add_section()
        if not found:
            table.add_row(f"[bold]{part}[/]", f"never run: [bold]{PARTS[part].make}[/]", end_section=True)
    return table


def _origin(record: Record) -> str:
    commit = "no git" if record.commit is None else f"commit {record.commit[:8]}"
    changed = "" if record.clean or record.commit is None else " and changes"
    return f"{record.finished}, {commit}{changed}, {record.seconds:,.0f} s\n{record.command}"


def _shown(value: object) -> str:
    match value:
        case bool():
            return "yes" if value else "no"
        case int():
            return f"{value:,}"
        case float():
            return f"{value:,.2f}" if abs(value) < 100 else f"{value:,.0f}"
        case Mapping():
            return ", ".join(f"{name} {_shown(one)}" for name, one in value.items()) or "none"
        case list():
            return ", ".join(map(_shown, value)) or "none"
        case _:
            return str(value)


# --- the command line -------------------------------------------------------------------------------------


def main(arguments: Sequence[str] | None = None) -> int:
    """Show the records, or run the bench and record it."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    if given[:1] == ["bench"]:
        return _bench(given[1:])
    parser = argparse.ArgumentParser(prog="python -m tests.numbers", description=__doc__)
    parser.add_argument("--json", action="store_true", help="print the records as one JSON document")
    options = parser.parse_args(given)
    records = {part: last_runs(part) for part in PARTS}
    if options.json:
        document = {
            part: {"make": PARTS[part].make, "records": [asdict(record) for record in found]}
            for part, found in records.items()
        }
        print(json.dumps(document, indent=2))
    else:
        wide = None if sys.stdout.isatty() else 120
        Console(width=wide, highlight=False).print(table_of(records))
    return 0


def _bench(arguments: list[str]) -> int:
    """Run `txn-engine bench` with its own output, and write the record. With `--kafka` and no address, start
    a broker."""
    if arguments[-1:] == ["--kafka"] or any(
        (word, after[:1]) == ("--kafka", "-") for word, after in pairwise(arguments)
    ):
        return _bench_beside_kafka(arguments)
    run = Run("bench", arguments)
    try:
        ended = subprocess.run([*BENCH, *arguments], check=False, stdout=subprocess.PIPE, text=True)
    except KeyboardInterrupt:
        return 130
    if ended.returncode or {"-h", "--help"} & set(arguments):
        sys.stdout.write(ended.stdout)
        return ended.returncode
    report = json.loads(ended.stdout)
    run.record(_bench_figures(report), of=report.get("bench", ""))
    if "--json" in arguments:
        sys.stdout.write(ended.stdout)
        return 0
    from txn_engine.bench import print_report

    print_report(Console(), report)
    return 0


def _bench_beside_kafka(arguments: list[str]) -> int:
    """Run the bench with a broker from the jars that set-up fetched, and stop the broker after it."""
    from tests.support.kafka_server import KafkaServer, kafka_jars

    jars = kafka_jars()
    if jars is None:
        print("no jars of Kafka: .ci/setup-kafka fetches them", file=sys.stderr)
        return 1
    with KafkaServer(jars, verification=True, measured=True) as server:
        at = arguments.index("--kafka") + 1
        return _bench([*arguments[:at], f"127.0.0.1:{server.port}", *arguments[at:]])


def _bench_figures(report: Mapping[str, Any]) -> dict[str, object]:
    """The figures of a document of `txn-engine bench --json`, line by line."""
    if report.get("bench") == "rounds":
        shown = ("returned", "visible", "complete", "objects", "least")
        rows = {row["name"]: {field: row[field] for field in shown if row[field]} for row in report["rows"]}
        return {"call_ms": report["call_ms"], **rows}
    if report.get("bench") == "growth":
        shown = ("appends", "writers", "files", "ids")
        ends = {f"{name}, the last": report[name][-1] for name in shown}
        return {"store": report["store"], "sizes": report["sizes"], **ends}
    if report.get("bench") == "kafka":
        shown = ("ours_p50", "ours_p99", "kafka_p50", "kafka_p99", "ratio")
        rows = {row["name"]: {field: row[field] for field in shown} for row in report["rows"]}
        return {"store": report["store"], "peer": report["peer"], "quick": report["quick"], **rows}
    shown = ("ours", "bare", "unit", "ratio", "aim", "met")
    figures = {number["name"]: {field: number[field] for field in shown} for number in report["numbers"]}
    return {"store": report["store"], "quick": report["quick"], **figures}


if __name__ == "__main__":
    sys.exit(main())
