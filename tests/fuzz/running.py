"""Cases run in a process of their own, so that one that dies, hangs or takes all memory is reported like any
other."""

from __future__ import annotations

import faulthandler
import gc
import multiprocessing
import os
import resource
import time
import traceback
from collections import Counter
from collections.abc import Iterator
from multiprocessing.connection import Connection

from tests.fuzz.cases import Result, run_case
from tests.fuzz.ledger import build

_ADDRESS_SPACE = 8 << 30
_SECONDS_A_CASE = 60
_FAILURES_MAX = 50


def run(seed: str, *, minutes: float = 1, cases: int | None = None) -> int:
    """Run them and print the figures. Returns 1 if a case failed."""
    started = time.monotonic()
    kinds: Counter[str] = Counter()
    outcomes: Counter[str] = Counter()
    failures: list[Result] = []
    worst = 0
    for result in run_cases(seed, started + minutes * 60, cases):
        kinds[result.what.partition(" of ")[0]] += 1
        outcomes.update(f"{name}: {end}" for name, end in result.outcomes)
        worst = max(worst, result.memory) if not result.what.startswith("data") else worst
        if result.failure:
            failures.append(result)
            print(f"FAILED {result.case}: {result.what}\n{result.failure}", flush=True)
            print(f"again: python -m tests.fuzz --case {result.case}\n", flush=True)
        if len(failures) >= _FAILURES_MAX:
            break
    seconds, total = time.monotonic() - started, sum(kinds.values())
    for name, number in sorted(kinds.items()):
        print(f"{number:8d}  {name}")
    for name, number in sorted(outcomes.items()):
        print(f"{number:8d}  {name}")
    print(f"most memory of an entry, snapshot or JSON object's case: {worst >> 20} MiB")
    print(
        f"{total} cases of seed {seed} in {seconds:.0f} s, {total / max(seconds, 1):.1f} a second: "
        f"{len(failures)} failed"
    )
    return bool(failures)


def run_cases(seed: str, until: float, cases: int | None) -> Iterator[Result]:
    """Yield the results in order. A process that dies or hangs is a failure of the case that it had begun."""
    number = 0
    while (number < cases) if cases is not None else (time.monotonic() < until):
        ours, theirs = multiprocessing.Pipe()
        process = multiprocessing.get_context("spawn").Process(
            target=_work, args=(theirs, seed, number), daemon=True
        )
        process.start()
        theirs.close()
        while (number < cases) if cases is not None else (time.monotonic() < until):
            try:
                if not ours.poll(_SECONDS_A_CASE + 60):
                    raise EOFError("hangs")
                result = ours.recv()
            except EOFError as error:
                process.kill()
                process.join()
                told = str(error) or f"the process ended with {process.exitcode}"
                yield Result(f"{seed}/{number}", "unknown of a dead process", (), told, 0)
                number += 1
                break
            yield result
            number += 1
        process.kill()
        process.join()


def _work(pipe: Connection, seed: str, number: int) -> None:
    try:
        _run_from(pipe, seed, number)
    except BaseException:  # noqa: BLE001 -- it is printed, and the parent tells of the case
        traceback.print_exc()
        os._exit(1)  # threads that a case left behind would keep the process


def _run_from(pipe: Connection, seed: str, number: int) -> None:
    resource.setrlimit(resource.RLIMIT_AS, (_ADDRESS_SPACE, _ADDRESS_SPACE))
    os.environ["MALLOC_ARENA_MAX"] = "1"
    ledger = build()
    gc.freeze()
    while True:
        faulthandler.dump_traceback_later(_SECONDS_A_CASE, exit=True)
        pipe.send(run_case(f"{seed}/{number}", ledger))
        number += 1
