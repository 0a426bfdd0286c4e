"""Scratch folders do not outlive their process."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from storage.scratch import ScratchFolder, sweep_scratch
from storage.temporary import Swept

_KILLED = """
import os, sys
from pathlib import Path
from storage.scratch import ScratchFolder
folder = ScratchFolder("test", parent=Path(sys.argv[1]))
(folder.path / "spill").mkdir()
(folder.path / "spill" / "values").write_bytes(b"of a person")
os.kill(os.getpid(), 9)
"""


def _killed(parent: Path) -> None:
    subprocess.run([sys.executable, "-c", _KILLED, str(parent)], check=False)


def test_what_a_killed_process_leaves_is_swept(tmp_path: Path) -> None:
    """A folder whose process was killed is removed by a sweep, and by the next process that makes a folder there."""
    _killed(tmp_path)
    (left,) = tmp_path.iterdir()
    assert sweep_scratch(tmp_path, dry_run=True) == Swept(1, ())
    assert left.exists()
    assert sweep_scratch(tmp_path) == Swept(1, ())
    assert list(tmp_path.iterdir()) == []
    _killed(tmp_path)
    with ScratchFolder("test", parent=tmp_path) as folder:
        assert list(tmp_path.iterdir()) == [folder.path]
    assert list(tmp_path.iterdir()) == []


def test_what_somebody_holds_stays_and_is_told(tmp_path: Path) -> None:
    """A folder that a process holds stays, and so does one without a lock. Both are named if they hold anything."""
    with ScratchFolder("test", parent=tmp_path) as folder:
        assert sweep_scratch(tmp_path) == Swept(0, ())
        (folder.path / "values").write_bytes(b"of a person")
        assert sweep_scratch(tmp_path) == Swept(0, (str(folder.path),))
        assert (folder.path / "values").exists()
    unknown = tmp_path / "txn-engine-sql-of-before"
    unknown.mkdir()
    assert sweep_scratch(tmp_path) == Swept(0, ())
    (unknown / "values").write_bytes(b"of a person")
    other = tmp_path / "other"
    other.mkdir()
    assert sweep_scratch(tmp_path) == Swept(0, (str(unknown),))
    assert unknown.exists()


def test_a_link_is_not_followed(tmp_path: Path) -> None:
    """A sweep follows neither a link to a folder nor a link to a lock."""
    target, parent = tmp_path / "target", tmp_path / "temporary"
    for each in (target, parent):
        each.mkdir()
    (target / ".held").touch()
    (target / "values").write_bytes(b"of nobody")
    os.symlink(target, parent / "txn-engine-sql-link")
    assert sweep_scratch(parent) == Swept(0, ())
    inside = parent / "txn-engine-sql-inside"
    inside.mkdir()
    os.symlink(target / ".held", inside / ".held")
    assert sweep_scratch(parent) == Swept(0, (str(inside),))
    assert (target / "values").exists()
