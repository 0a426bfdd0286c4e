"""Shell blocks of pages, run by a real `bash -e` in a folder that looks like the checkout, or in an empty one."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from tests.support.airflow_database import copy_migrated_database
from tests.support.airflow_home import REPO
from txn_engine_airflow.standalone.command_line import environment_file

PROGRAMS = Path(sys.executable).parent
_OURS = ("AIRFLOW", "TXN_ENGINE_", "AWS_", "PG")
"""Variables of another store, Airflow or database: a reader's terminal has none of them."""


class Terminal:
    """A person's terminal: the blocks of a page in turn, each after `first`, which is what the page says to begin with.

    HOME is an empty folder, and `check_home` says whether it still is. Commands are found where the page's own lines
    put them: on PATH there is what the machine has, and before it `programs`, for pages that begin with an installed
    program.
    """

    def __init__(
        self, folder: Path, home: Path, *, first: str = "", programs: bool = False, **variables: str
    ) -> None:
        home.mkdir(exist_ok=True)
        self._folder, self._home, self._first = folder, home, first
        kept = {name: value for name, value in os.environ.items() if not name.startswith(_OURS)}
        path = [str(PROGRAMS)] * programs + [
            each for each in kept["PATH"].split(os.pathsep) if Path(each) != PROGRAMS
        ]
        self._environment = (
            kept
            | {
                "HOME": str(home),
                "PATH": os.pathsep.join(path),
                "PYTHONPATH": f"{REPO}{os.pathsep}{REPO / 'plugins'}",  # an editable install names another checkout
                **variables,
            }
        )

    def run(self, block: str, *, failed: bool = False, **variables: str) -> str:
        """Run a block whose commands must all succeed, and return what it printed. `failed`: a traceback is no fault,
        because the page says what to do about it."""
        done = subprocess.run(
            ["bash", "-ec", f"{self._first}\n{block}"],
            cwd=self._folder,
            env=self._environment | variables,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,  # in the order in which a person sees both
            text=True,
            check=False,
            timeout=900,  # only to end at all: machines that run tests may be busy
        )
        assert done.returncode == 0, f"{block}\n{done.stdout}"
        assert failed or "Traceback" not in done.stdout, done.stdout
        return done.stdout

    def save(self, code: str) -> None:
        """Save a block of Python under the name that its first line says."""
        (self._folder / code.splitlines()[0].removeprefix("# ")).write_text(code)

    @contextmanager
    def background(self, block: str) -> Iterator[subprocess.Popen[bytes]]:
        """Run a block in another terminal of the same folder. What of it still runs at the end is stopped."""
        with subprocess.Popen(
            ["bash", "-ec", f"{self._first}\n{block}"],
            cwd=self._folder,
            env=self._environment,
            stdout=subprocess.DEVNULL,
            start_new_session=True,
        ) as process:
            try:
                yield process
            finally:
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)

    def variables(self) -> dict[str, str]:
        """The environment after the first block."""
        code = "import json, os; print(json.dumps(dict(os.environ)))"
        return dict(json.loads(self.run(f"python -c '{code}' 2>/dev/null").splitlines()[-1]))

    def check_home(self) -> None:
        """Fail if a block wrote into the home folder: Airflow without its settings makes ~/airflow."""
        left = [entry.name for entry in self._home.iterdir() if entry.name not in (".cache", ".local")]
        assert left == [], left


def check_shown(told: str, shown: str) -> None:
    """Fail unless a command printed what the page shows: `...` in a line is any text, and alone any number of lines.

    How far columns are apart, and the rule that a terminal draws under a header, do not count.
    """
    line, lines = "[^\\n]*?", "(?:[^\\n]*\\n)*?"
    pattern = "".join(
        lines if each == "..." else line.join(map(re.escape, each.split("..."))) + "\\n"
        for each in _lines(shown)
    )
    printed = "".join(f"{each}\n" for each in _lines(told))
    assert re.fullmatch(pattern, printed), f"the page shows\n{shown}\nand this was printed\n{told}"


def _lines(text: str) -> list[str]:
    return [" ".join(line.split()) for line in text.splitlines() if line.strip(" \u2500")]


def make_checkout(folder: Path, store: Mapping[str, object]) -> Path:
    """A folder that looks to a shell as the checkout does while `make airflow` is running in it."""
    (folder / ".cache" / "standalone").mkdir(parents=True)
    (folder / ".cache" / "standalone" / "cli.env").write_text(environment_file(store))
    (folder / ".cache" / "airflow").mkdir()
    copy_migrated_database(folder / ".cache" / "airflow" / "airflow.db")
    (folder / "dags").mkdir()
    for name, target in {".venv": Path(sys.prefix), ".ci": REPO / ".ci", "plugins": REPO / "plugins"}.items():
        (folder / name).symlink_to(target)
    return folder
