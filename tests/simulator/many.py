"""Run many seeds at once, in processes of their own, and add up their figures."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from itertools import count
from multiprocessing import get_context

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from tests.simulator.runner import RunResult, run

_FINDINGS_SHOWN = 10
_TOLD_EVERY = 100  # runs, where no terminal shows a bar


def _one(workload: str, seed: int) -> RunResult:
    result = run(workload, seed)
    result.trace, result.landed = [], []  # it is replayed where it is wanted
    return result


def run_many(
    names: Sequence[str],
    *,
    first: int | None = None,
    seeds: int | None = None,
    minutes: float | None = None,
    jobs: int = 1,
    console: Console,
) -> Summary:
    """Run seeds from `first` on (fresh ones if None), each with the next of these workloads in turn.

    Ends after this many seeds, or this many minutes.
    """
    first = int(time.time()) * 1_000 if first is None else first
    until = None if minutes is None else time.monotonic() + minutes * 60
    total = None if until is not None else seeds
    console.print(f"seeds from {first} on, workloads {', '.join(names)}, {jobs} processes", highlight=False)
    summary = Summary()
    with _progress(console) as progress:
        bar = progress.add_task("runs", total=total, findings=0)
        for result in _results(names, first, total, jobs, until):
            summary.add(result)
            progress.update(bar, advance=1, findings=len(summary.failed))
            if not console.is_terminal and summary.runs.total() % _TOLD_EVERY == 0:
                console.print(f"{summary.runs.total()} runs, {len(summary.failed)} with findings")
            if not result.ok:
                console.print(
                    f"{result.workload} {result.seed}: {result.findings[0][:200]}",
                    highlight=False,
                    markup=False,
                )
    summary.print(console)
    return summary


def _progress(console: Console) -> Progress:
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.fields[findings]} with findings"),
        console=console,
    )


def _results(
    names: Sequence[str], first: int, total: int | None, jobs: int, until: float | None
) -> Iterator[RunResult]:
    """The results of runs as they end. A few more runs than necessary are started ahead."""
    numbers = count() if total is None else iter(range(total))
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool:
        waiting: set[Future[RunResult]] = set()
        over = False
        while waiting or not over:
            while not over and len(waiting) < jobs * 2:
                number = next(numbers, None)
                over = number is None or (until is not None and time.monotonic() > until)
                if not over and number is not None:
                    waiting.add(pool.submit(_one, names[number % len(names)], first + number))
            done, waiting = wait(waiting, return_when=FIRST_COMPLETED)
            for future in done:
                yield future.result()


class Summary:
    """The figures of many runs."""

    def __init__(self) -> None:
        self.started = time.monotonic()
        self.runs: Counter[str] = Counter()
        self.faults: Counter[str] = Counter()
        self.transactions: Counter[str] = Counter()
        self.writings: Counter[str] = Counter()
        self.judged: Counter[str] = Counter()
        self.failed: list[RunResult] = []
        self.operations = self.crashes = self.virtual_ms = 0
        self.seconds = 0.0

    def add(self, result: RunResult) -> None:
        """Add one run."""
        self.runs[result.workload] += 1
        self.faults += result.faults
        self.transactions += result.transactions
        self.writings += result.writings
        self.judged += result.judged
        self.operations += result.operations
        self.crashes += result.crashes
        self.virtual_ms += result.virtual_ms
        self.seconds = max(time.monotonic() - self.started, 0.001)
        if not result.ok:
            self.failed.append(result)

    def figures(self) -> dict[str, object]:
        """The figures for the record of the run."""
        return {
            "runs": self.runs.total(),
            "runs by workload": dict(sorted(self.runs.items())),
            "runs with findings": len(self.failed),
            "virtual hours": self.virtual_ms / 3_600_000,
            "store operations": self.operations,
            "store operations a second": self.operations / self.seconds,
            "faults": self.faults.total(),
            "faults a second": self.faults.total() / self.seconds,
            "faults by kind": dict(self.faults.most_common()),
            "crashes": self.crashes,
            "transactions audited": self.transactions.total(),
            "transactions by state": dict(sorted(self.transactions.items())),
            "transactions as clients knew them": dict(sorted(self.writings.items())),
            "judged": dict(sorted(self.judged.items())),
        }

    def print(self, console: Console) -> None:
        """Print the table at the end."""
        runs, seconds = self.runs.total(), max(self.seconds, 0.001)
        decided = self.transactions
        table = Table("", "", show_header=False)
        table.add_row("runs", f"{runs:,} in {seconds:,.0f} s ({runs / seconds:.1f} a second)")
        table.add_row("by workload", ", ".join(f"{name} {n:,}" for name, n in sorted(self.runs.items())))
        table.add_row("virtual time", f"{self.virtual_ms / 3_600_000:,.0f} hours")
        table.add_row("store operations", f"{self.operations:,} ({self.operations / seconds:,.0f} a second)")
        table.add_row("faults", f"{self.faults.total():,} ({self.faults.total() / seconds:,.0f} a second)")
        table.add_row("  by kind", ", ".join(f"{kind} {n:,}" for kind, n in self.faults.most_common()))
        table.add_row("crashes", f"{self.crashes:,}")
        table.add_row(
            "transactions audited", ", ".join(f"{state} {n:,}" for state, n in sorted(decided.items()))
        )
        table.add_row(
            "as clients knew them", ", ".join(f"{how} {n:,}" for how, n in sorted(self.writings.items()))
        )
        table.add_row("judged", ", ".join(f"{what} {n:,}" for what, n in sorted(self.judged.items())))
        table.add_row("runs with findings", f"{len(self.failed):,}")
        console.print(table)
        for result in self.failed[:_FINDINGS_SHOWN]:
            console.print(_verdict(result), highlight=False, markup=False)


def _verdict(result: RunResult) -> str:
    lines = [f"{result.workload} {result.seed}: {len(result.findings)} findings"]
    lines += [f"    {finding[:600]}" for finding in result.findings[:3]]
    lines.append(f"    python -m tests.simulator shrink {result.workload} {result.seed}")
    return "\n".join(lines)
