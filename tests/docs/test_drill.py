"""docs/DRILL.md works from top to bottom: the store is lost while loads run, and every row is there once."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.conftest import S3Bucket
from tests.docs.terminals import Terminal
from tests.support.servers import REPOSITORY
from tests.support.waiting import LIMIT_S, wait_for

pytestmark = pytest.mark.shard("machine")

PAGE = "docs/DRILL.md"
ROWS = 50
"""In each file that the loader of the page writes."""
WHILE_RESTORING = "INVALID_REQUEST"
_FENCED = re.compile(r"^```(bash|text)\n(.*?)^```", re.MULTILINE | re.DOTALL)
_VALUES = re.compile(r"[0-9a-f]{32}|\d[\d,.]*")
_ERROR = re.compile(r"^error: .* \[([A-Z_]+)\]$")
_REMOVE = "rm -rf /srv/drill/ledger"


def commands_and_outputs() -> list[tuple[str, str]]:
    """The blocks of commands in their order, each with the output that the page shows for it, or with none."""
    found = list[tuple[str, str]]()
    for language, code in _FENCED.findall((REPOSITORY / PAGE).read_text(encoding="utf-8")):
        if language == "bash":
            found.append((code, ""))
        else:
            found[-1] = (found[-1][0], code)
    return found


def shapes(text: str) -> set[str]:
    """The lines of an output without what differs from run to run: ids, numbers and the width of columns."""
    return {" ".join(_VALUES.sub("N", line).split()) for line in text.splitlines()}


class Drill:
    """The two terminals of a person who works through the page."""

    def __init__(self, folder: Path, home: Path, place: str, remove: str, **variables: str) -> None:
        self._place, self._remove = place, remove
        (setting, _), *self.steps = commands_and_outputs()
        self._folder = folder
        self._terminal = Terminal(folder, home, first=self._here(setting), programs=True, **variables)

    def _here(self, text: str) -> str:
        return text.replace(_REMOVE, self._remove).replace("file:///srv/drill", self._place)

    def do(self, step: tuple[str, str]) -> str:
        """Run a block in the first terminal. Each line that the page shows is in its output, but for the values."""
        command, shown = step
        printed = self._terminal.run(self._here(command))
        assert shapes(self._here(shown)) <= shapes(printed), printed
        return printed

    @contextmanager
    def loads(self, step: tuple[str, str]) -> Iterator[Callable[[], None]]:
        """Run the loader in the second terminal; what is given waits for its end."""
        command, shown = step
        assert command.startswith("bash load.sh")
        with self._terminal.background(command) as process:
            yield lambda: self._ended(process)
        assert shapes(self._here(shown)) <= shapes("\n".join(self.log()))

    @staticmethod
    def _ended(process: subprocess.Popen[bytes]) -> None:
        assert process.wait(LIMIT_S) == 0

    def log(self) -> list[str]:
        """What the loader has written so far, in whole lines."""
        path = self._folder / "load.log"
        return path.read_text().split("\n")[:-1] if path.exists() else []

    def wait_for_loads(self, count: int = 2) -> None:
        """Wait until the loader has acknowledged some more runs."""
        before = len(acknowledged(self.log()))
        self._wait(lambda: len(acknowledged(self.log())) >= before + count, f"{count} more loads")

    def wait_for_errors(self) -> None:
        """Wait until the loader was refused by a load that began after the loss."""
        self._wait(lambda: codes(self.log()).count("STORE_NOT_FOUND") >= 2, "loads that find no store")

    def _wait(self, condition: Callable[[], bool], what: str) -> None:
        wait_for(condition, what=what, limit_s=5 * LIMIT_S, seen=lambda: self.log()[-5:])

    def read_by_group(self) -> list[str]:
        """The records that the group has read."""
        return (self._folder / "totals.jsonl").read_text().splitlines()

    def files(self) -> list[Path]:
        """What there is to be loaded."""
        return sorted((self._folder / "landing").glob("*.csv"))


def acknowledged(log: list[str]) -> list[str]:
    """The runs of which the loader says that they are loaded."""
    return [line.split()[1] for line in log if re.fullmatch(r"run \d+ is loaded", line)]


def codes(log: list[str]) -> list[str]:
    """The codes of the errors in the loader's output."""
    return [found[1] for line in log if (found := _ERROR.match(line))]


def codes_explained() -> set[str]:
    """The codes of the page's table of what the loads say."""
    return set(re.findall(r"^\| `([A-Z_]+)` \|", (REPOSITORY / PAGE).read_text(), re.MULTILINE))


@pytest.fixture(params=["disk", pytest.param("MinIO", marks=pytest.mark.minio)])
def drill(request: pytest.FixtureRequest, tmp_path: Path) -> Drill:
    """Somebody who begins with the page."""
    folder = tmp_path / "folder"
    folder.mkdir()
    if request.param == "MinIO":
        bucket: S3Bucket = request.getfixturevalue("minio_bucket")
        code = "from storage import open_store as o; s = o('{}/ledger'); [s.delete(i.key) for i in list(s.list(''))]"
        remove = f'python -c "{code.format(bucket.url)}"'
        return Drill(folder, tmp_path / "home", bucket.url, remove, **bucket.environment)
    place = tmp_path / "drill"
    place.mkdir()
    return Drill(folder, tmp_path / "home", f"file://{place}", f"rm -rf {place}/ledger")


def test_from_top_to_bottom(drill: Drill) -> None:
    """Nothing is acknowledged from the loss to the restore, the dry runs name what was after the backup, and after the
    loader began at the first file again every row is there once. The group reads again what it read after the backup.
    """
    steps = iter(drill.steps)
    drill.do(next(steps))  # the topic
    drill.do(next(steps))  # the loader
    with drill.loads(next(steps)) as loads_ended:
        drill.wait_for_loads()
        drill.do(next(steps))  # the group reads
        drill.do(next(steps))  # backup 0
        drill.wait_for_loads()
        drill.do(next(steps))  # backup 1
        drill.wait_for_loads()
        before = len(drill.read_by_group())
        drill.do(next(steps))  # the group reads, and is ahead of the backup
        read_after_backup = len(drill.read_by_group()) - before
        assert codes(drill.log()) == []
        drill.do(next(steps))  # the loss
        drill.wait_for_errors()
        drill.do(next(steps))  # the log
        drill.do(next(steps))  # what was written after the removal
        lost = drill.log()
        first_error = next(at for at, line in enumerate(lost) if _ERROR.match(line))
        assert acknowledged(lost[first_error:]) == []
        assert "no errors in" in drill.do(next(steps))  # the restore
        drill.wait_for_loads(1)  # the loader goes on by itself
        assert set(codes(drill.log())) <= codes_explained() | {WHILE_RESTORING}
        asked = drill.do(next(steps))  # the dry runs
        is_inside = dict(re.findall(r"^(\d+): .*(committed before|would be loaded)", asked, re.MULTILINE))
        promised = acknowledged(lost)
        missing = [run for run in promised if is_inside[run] == "would be loaded"]
        assert missing == promised[-len(missing) :]
        assert len(missing) >= 2
        drill.do(next(steps))  # an end of the loads
        loads_ended()
    with drill.loads(next(steps)) as loads_ended:
        drill.wait_for_loads(len(drill.files()) + 1)  # each file there is, and a new one
        drill.do(next(steps))  # an end of the loads
        loads_ended()
    rows = ROWS * len(drill.files())
    counted = drill.do(next(steps))
    (from_files,) = re.findall(r"^(\d+) rows, sum ([\d.]+)$", counted, re.MULTILINE)
    (from_topic,) = re.findall(r"^ *(\d+) +(\d+) +([\d.]+)$", counted, re.MULTILINE)
    assert from_files == (str(rows), from_topic[2])
    assert from_topic[:2] == (str(rows), str(rows))
    assert "no errors in" in counted
    group = drill.do(next(steps))
    numbers = [int(line) for line in re.findall(r"^ *(\d+)$", group, re.MULTILINE)]
    assert numbers == [rows + read_after_backup, rows, read_after_backup]
    drill.do(next(steps))  # backups of the restored store
    drill.do(next(steps))  # pruning
    assert list(steps) == []
