"""The folder of one run of the demo, below where it was called."""

from __future__ import annotations

import datetime as dt
import shutil
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from txn_engine.clock import Clock, system_clock
from txn_engine.errors import StoreAccessError

PARENT = "txn-engine-demo"
_TRIES_MAX = 100


@dataclass(frozen=True, slots=True)
class Folder:
    """`path` and what is in it: the store, the report, the logs of all processes, Airflow's home, a checkpoint."""

    path: Path

    @property
    def ledger_url(self) -> str:
        """The embedded store's URL."""
        return (self.path / "ledger").as_uri()

    @property
    def report(self) -> Path:
        """Where the quality suite writes its pages."""
        return self.path / "report"

    @property
    def logs(self) -> Path:
        """One log a process."""
        return self.path / "logs"

    @property
    def checkpoint(self) -> Path:
        """How far the stream came, as Spark keeps it."""
        return self.path / "checkpoint"

    @property
    def airflow(self) -> Path:
        """Airflow's home."""
        return self.path / "airflow"

    @property
    def sample(self) -> Path:
        """The input, where none was given."""
        return self.path / "payments.csv"

    @property
    def arrow_file(self) -> Path:
        """The input's rows as the loaders read them."""
        return self.path / "payments.arrow"


def discard_folder(folder: Folder) -> None:
    """Remove it, and the folder of all runs where this was the only one."""
    shutil.rmtree(folder.path)
    with suppress(OSError):
        folder.path.parent.rmdir()


def make_folder(below: Path, clock: Clock = system_clock) -> Folder:
    """A fresh folder named after the time. Raises `StoreAccessError` where none can be made."""
    name = f"{dt.datetime.fromtimestamp(clock() / 1_000):%Y-%m-%d-%H%M%S}"  # noqa: DTZ006 - local, as its reader's clock
    parent = (below / PARENT).resolve()
    try:
        for number in range(1, _TRIES_MAX):
            folder = Folder(parent / (name if number == 1 else f"{name}-{number}"))
            try:
                folder.path.mkdir(parents=True)
            except FileExistsError:
                if not parent.is_dir():
                    raise
                continue
            folder.logs.mkdir()
            return folder
    except OSError as error:
        raise _unwritable(parent, error.strerror or str(error)) from error
    raise _unwritable(parent, f"{_TRIES_MAX} folders of this second are there")


def _unwritable(parent: Path, seen: str) -> StoreAccessError:
    return StoreAccessError(
        f"its folder cannot be made: {seen}",
        actor="demo",
        place=str(parent),
        expected="a folder that this user may write",
        action="call it from one",
    )
