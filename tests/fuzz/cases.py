"""One case: its changes, its uses, and their cost. A case is `seed/number`, and is always the same."""

from __future__ import annotations

import gc
import traceback
from dataclasses import dataclass
from pathlib import Path
from random import Random

import pyarrow as pa

from tests.fuzz.changes import change
from tests.fuzz.ledger import Objects
from tests.fuzz.using import use
from tests.support.unforeseen import as_it_was_raised

MEMORY_MAX = 256 << 20
"""Of entries, snapshots and JSON objects."""
ROW_GROUP_MAX = 1_200 << 20
"""Of a data file: a row group of 512 MiB as it stands in its pages, and as it is read."""


@dataclass(frozen=True, slots=True)
class Result:
    """The result of a case. `failure` is empty if all is well."""

    case: str
    what: str
    outcomes: tuple[tuple[str, str], ...]
    failure: str
    memory: int


def run_case(case: str, ledger: Objects) -> Result:
    """Change the ledger and use it. This raises no error for anything that the engine does."""
    random = Random(case)
    changed, key, what = change(random, ledger)
    limit = ROW_GROUP_MAX if what.startswith("data") else MEMORY_MAX
    gc.collect()
    pa.default_memory_pool().release_unused()
    before = _resident("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")
    outcomes: list[tuple[str, str]] = []
    failure = ""
    try:
        with as_it_was_raised():
            outcomes = use(random, changed, key)
    except BaseException as error:  # noqa: BLE001 -- that is what is looked for
        told = "".join(traceback.format_exception(error)[-12:])
        failure = f"{type(error).__name__}: {error!s:.300}\n{told}"
    memory = _resident("VmHWM") - before
    if not failure and memory > limit:
        failure = f"{memory >> 20} MiB of memory, more than {limit >> 20}"
    return Result(
        case, f"{what} of {key} ({len(changed.get(key, b''))} bytes)", tuple(outcomes), failure, memory
    )


def _resident(name: str) -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(name):
            return int(line.split()[1]) << 10
    raise RuntimeError(f"no {name} in /proc/self/status")
