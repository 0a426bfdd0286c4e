"""How long each test took when it last ran, and what it needs: the balance of `make test` goes by that.

Each run of pytest writes `.cache/durations.json`. `python -m tests.suite.durations` writes what that file knows into
`durations.tsv` beside this module, which is committed, so that a fresh clone is balanced too:

    seconds     of the test with its set-up and tear-down; for a module: the mean of its tests that have no own line
    needs       what it needs that is slow to start: spark, airflow, minio; and `together:NAME` of its group
    test        its node id, or a module's path
"""

from __future__ import annotations

import json
import sys
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

REPOSITORY = Path(__file__).parents[2]
COMMITTED = Path(__file__).with_name("durations.tsv")
OWN = REPOSITORY / ".cache" / "durations.json"
OWN_LINE_S = 1.0
"""A test that took longer has a line of its own."""
UNKNOWN_S = 0.1
"""What a test without a record counts for."""


@dataclass
class Durations:
    """Seconds by test or module, and what each of them needs."""

    seconds: dict[str, float] = field(default_factory=dict)
    needs: dict[str, frozenset[str]] = field(default_factory=dict)

    def of(self, test: str) -> float:
        """The seconds that a test is expected to take."""
        return self.seconds.get(test, self.seconds.get(module_of(test), UNKNOWN_S))

    def needs_of(self, tests: Iterable[str]) -> frozenset[str]:
        """What any of these tests needs."""
        nothing: frozenset[str] = frozenset()
        return nothing.union(*(self.needs.get(t, self.needs.get(module_of(t), nothing)) for t in tests))

    def record(self, test: str, seconds: float, needs: Iterable[str]) -> None:
        """Add the seconds of one phase of a test."""
        self.seconds[test] = self.seconds.get(test, 0.0) + seconds
        self.needs[test] = frozenset(needs)

    def updated(self, newer: Durations) -> Durations:
        """These durations, replaced by newer ones where there are any."""
        return Durations({**self.seconds, **newer.seconds}, {**self.needs, **newer.needs})


def module_of(test: str) -> str:
    """The path of a test's module."""
    return test.partition("::")[0]


def read() -> Durations:
    """The committed durations, replaced by this checkout's own where it has any."""
    return _committed().updated(read_own())


def read_own() -> Durations:
    """The record of runs in this checkout, or nothing if it cannot be read."""
    try:
        rows = json.loads(OWN.read_text(encoding="utf-8"))
        seconds = {str(test): float(row["seconds"]) for test, row in rows.items()}
        needs = {str(test): frozenset(map(str, row["needs"])) for test, row in rows.items()}
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        return Durations()  # a record is an estimate; a run without one is only less balanced
    return Durations(seconds, needs)


def write_own(durations: Durations) -> None:
    """Keep a run's durations for the next run in this checkout."""
    merged = read_own().updated(durations)
    rows = {
        test: {"seconds": round(seconds, 3), "needs": sorted(merged.needs.get(test, ()))}
        for test, seconds in sorted(merged.seconds.items())
    }
    OWN.parent.mkdir(exist_ok=True)
    written = OWN.with_suffix(".new")
    written.write_text(json.dumps(rows), encoding="utf-8")
    written.replace(OWN)


def _committed() -> Durations:
    durations = Durations()
    if COMMITTED.exists():
        for line in COMMITTED.read_text(encoding="utf-8").splitlines()[1:]:
            seconds, needs, test = line.split("\t")
            durations.seconds[test] = float(seconds)
            durations.needs[test] = frozenset(needs.split(",")) if needs else frozenset()
    return durations


def _lines(own: Durations, committed: Durations) -> list[str]:
    """The lines of the committed file, with long tests one by one and the mean of the other tests of each
    module. A committed line stays until its test runs here or its module is gone."""
    rows = {test: seconds for test, seconds in committed.seconds.items() if test not in own.seconds}
    rest: dict[str, list[str]] = defaultdict(list)
    for test, seconds in own.seconds.items():
        if seconds >= OWN_LINE_S:
            rows[test] = seconds
        else:
            rest[module_of(test)].append(test)
    needs = committed.updated(own)
    for module, tests in rest.items():
        rows[module] = sum(own.seconds[test] for test in tests) / len(tests)
        needs.needs[module] = own.needs_of(tests)
    return ["seconds\tneeds\ttest"] + [
        f"{seconds:.3f}\t{','.join(sorted(needs.needs_of([test])))}\t{test}"
        for test, seconds in sorted(rows.items(), key=lambda row: (row[1], row[0]))
        if (REPOSITORY / module_of(test)).exists()
    ]


def main() -> int:
    """Write the committed file from this checkout's record, and keep what it says of tests that did not run here."""
    own = read_own()
    if not own.seconds:
        print(f"no durations in {OWN}: run `make test` first", file=sys.stderr)
        return 1
    COMMITTED.write_text("\n".join(_lines(own, _committed())) + "\n", encoding="utf-8")
    print(f"{len(own.seconds)} tests, {sum(own.seconds.values()):.0f} seconds")
    return 0


if __name__ == "__main__":
    sys.exit(main())
