"""The supervisor starts the bank's processes, kills some, counts cuts, and examines the store at the end."""

from __future__ import annotations

import contextlib
import multiprocessing
import random
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from multiprocessing.process import BaseProcess
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

import txn_engine
from storage import open_store
from tests.cuts_under_load.actors import Post, act
from tests.cuts_under_load.bank import FastClock, Seen, read_since, set_up
from tests.torture.journal import read_journals
from txn_engine.errors import TxnEngineError
from txn_engine.verify import verify_store

CREW = (
    *(("teller", slot) for slot in range(3)),
    ("payer", 0),
    *(("cutter", slot) for slot in range(2)),
    ("keeper", 0),
    ("sweeper", 0),
)
_DIES = {"teller": 4, "payer": 4, "cutter": 1, "keeper": 2, "sweeper": 2}
FACTOR = 500
"""How many times as fast the bank's clock goes: what dies is deleted after three minutes."""
_KILL_S = 3.0
_STOP_S = 20.0
_READ_AT_LAST = 100


@dataclass(slots=True)
class Toll:
    """The counts, errors and findings of a run."""

    counts: Counter[str] = field(default_factory=Counter)
    errors: Counter[str] = field(default_factory=Counter)
    findings: list[str] = field(default_factory=list)


class _Crew:
    """The processes. Each one that dies is replaced by a new one with a journal of its own."""

    def __init__(self, url: str, journals: Path, clock: FastClock, seed: int) -> None:
        self._context = multiprocessing.get_context("spawn")
        self._of: dict[tuple[str, int], BaseProcess] = {}
        self._lives: Counter[tuple[str, int]] = Counter()
        self._url, self._journals, self._clock, self._seed = url, journals, clock, seed
        self.chance = random.Random(seed)

    def start(self, role: str, slot: int) -> None:
        self._lives[role, slot] += 1
        post = Post(role, slot, self._lives[role, slot], self._url, self._journals, self._clock, self._seed)
        process = self._context.Process(target=act, args=(post,), daemon=True)
        process.start()
        self._of[role, slot] = process

    def kill_one(self) -> None:
        """Kill one process by SIGKILL. A process that has not started its work yet is spared."""
        grown = [
            at for at in self._of if (self._journals / f"{at[0]}-{at[1]}-{self._lives[at]}.jsonl").exists()
        ]
        if grown:
            at = self.chance.choices(grown, [_DIES[role] for role, _ in grown])[0]
            self._of[at].kill()
            self._of[at].join()
            self.start(*at)

    def replace_dead(self) -> Iterator[str]:
        """Replace every process that ended by itself."""
        for at, process in list(self._of.items()):
            if not process.is_alive():
                yield f"{at[0]} {at[1]} ended with {process.exitcode}"
                self.start(*at)

    def stop(self) -> None:
        """Ask all processes to end, then kill them."""
        for process in self._of.values():
            process.terminate()
        until = time.monotonic() + _STOP_S
        for process in self._of.values():
            process.join(max(0.0, until - time.monotonic()))
            if process.is_alive():
                process.kill()
                process.join()


def run(folder: Path, *, cuts: int, minutes: float, seed: int, console: Console) -> Toll:
    """Run until this many cuts were made and read, or the time is over."""
    (journals := folder / "journals").mkdir(parents=True)
    url = f"file://{(folder / 'ledger').resolve()}"
    clock = FastClock(time.time_ns() // 1_000_000, FACTOR)
    with contextlib.closing(open_store(url)) as store:
        set_up(store, clock)
    toll = Toll()
    crew = _Crew(url, journals, clock, seed)
    try:
        for role, slot in CREW:
            crew.start(role, slot)
        _until_done(crew, journals, toll, cuts, minutes, console)
    finally:
        crew.stop()
    _count(journals, toll)
    _look_at_what_is_left(url, clock, crew.chance, toll)
    console.print(_table(toll))
    for finding in toll.findings[:20]:
        console.print(f"finding: {finding}", style="red", markup=False, soft_wrap=True)
    return toll


def _until_done(crew: _Crew, journals: Path, toll: Toll, cuts: int, minutes: float, console: Console) -> None:
    columns = (
        TextColumn("{task.description}"),
        BarColumn(bar_width=20),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    until, kill_at, made_before = time.monotonic() + minutes * 60, time.monotonic() + _KILL_S, 0
    with Progress(*columns, console=console) as bar:
        task = bar.add_task("cuts", total=cuts)
        while time.monotonic() < until and not toll.findings:
            made = _events(journals, "cutter", "read")
            if made >= cuts and _events(
                journals, "teller", "committed"
            ):  # cuts of nothing would prove nothing
                break
            bar.update(task, completed=made)
            time.sleep(0.5)
            toll.findings += crew.replace_dead()
            if (
                time.monotonic() >= kill_at and made > made_before
            ):  # on a slow machine nothing would be done else
                crew.kill_one()
                toll.counts["kills"] += 1
                made_before = made
                kill_at = time.monotonic() + crew.chance.uniform(0.5, 1.5) * _KILL_S


def _events(journals: Path, role: str, event: str) -> int:
    return sum(
        path.read_bytes().count(f'"event": "{event}"'.encode()) for path in journals.glob(f"{role}-*.jsonl")
    )


def _count(journals: Path, toll: Toll) -> None:
    for line in read_journals(journals):
        if line.event in ("read", "again"):
            toll.counts["cuts made and read" if line.event == "read" else "cuts read once more"] += 1
            toll.counts["of them from the first record on"] += line.more["whole"]
            toll.counts["rows read"] += line.more["rows"]
            toll.counts["torn"] += bool(line.more["torn"])
            toll.findings += line.more["torn"]
        elif line.event == "committed":
            toll.counts[f"transactions of {line.name}s"] += 1
        elif line.event == "kept":
            toll.counts[f"partitions: {line.name}"] += line.more["partitions"]
        elif line.event == "damage":
            toll.findings.append(f"{line.name}: {line.more['says']}")
        else:
            toll.errors[line.name] += 1


def _look_at_what_is_left(url: str, clock: FastClock, chance: random.Random, toll: Toll) -> None:
    """End all transactions, read some of the remaining cuts as a whole and a new one with everything, and let
    the auditor read everything."""
    with txn_engine.connect(url, clock=clock) as engine:
        engine.coordinator.abort_timed_out_transactions()
        engine.coordinator.write_pending_markers()
        left = engine.cuts()
        toll.counts["cuts left"] = len(left)
        toll.counts["numbers"] = left[-1].number + 1 if left else 0
        toll.findings += [str(each) for each in left.unreadable]
        for cut in [*chance.sample(left, min(_READ_AT_LAST, len(left))), engine.cut()]:
            try:
                read = read_since(engine, cut, Seen())
            except TxnEngineError as error:
                toll.findings.append(f"cut {cut.number}, at last: {error}")
            else:
                toll.counts["cuts read at last"] += 1
                toll.findings += read.torn
    with contextlib.closing(open_store(url)) as store:
        report = verify_store(store)
        toll.counts["objects kept"] = sum(1 for _ in store.list("")) - report.stats.orphan_files
    toll.counts["objects audited"] = report.stats.objects
    toll.findings += [
        f"audit: {found.code} {found.object}: {found.seen}"
        for found in report.findings
        if found.severity == "error"
    ]


def _table(toll: Toll) -> Table:
    table = Table("", "", title="cuts under load", title_justify="left")
    table.columns[1].justify = "right"
    for name, count in toll.counts.items():
        table.add_row(name, f"{count:,}")
    for name, count in sorted(toll.errors.items()):
        table.add_row(f"errors met: {name}", f"{count:,}")
    table.add_row("findings", f"{len(toll.findings):,}")
    return table
