"""An erasure removes the files that killed programs have left on disks if nobody holds them, and names the
others."""

from __future__ import annotations

import os
import tempfile
import time
from pathlib import Path

import pytest

import txn_engine
from storage.scratch import ScratchFolder
from tests.erasing.dying import erase
from tests.erasing.persons import NAME, PERSON, SCHEMA, TOPIC, WHERE, rows
from txn_engine import Engine


@pytest.fixture
def scratch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """This machine's folder for temporary files."""
    path = tmp_path / "scratch"
    path.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(path))
    return path


def _holding(folder: Path) -> list[str]:
    return [path.name for path in folder.rglob("*") if path.is_file() and NAME.encode() in path.read_bytes()]


def _killed_elsewhere(store: Path, *, seconds_ago: int, number: int) -> Path:
    """A file of a writer that was killed in another namespace of process ids."""
    path = store / ".tmp" / f"put-0123456789ab-1-1-{number}"
    path.write_bytes(f"a file of {NAME}".encode())
    os.utime(path, (time.time() - seconds_ago,) * 2)
    return path


def _filled(engine: Engine) -> None:
    engine.admin.create_topic(TOPIC, partitions=1, schema=SCHEMA)
    with engine.producer() as producer:
        producer.produce(TOPIC, rows(1, PERSON, 2)).result()


def test_temporary_files_of_the_store(tmp_path: Path, scratch: Path) -> None:
    """A temporary file that is a minute old is removed, even if another process wrote it. A younger one
    is named with its place until it is old enough."""
    store = tmp_path / "store"
    with txn_engine.connect(f"file://{store}") as engine:
        _filled(engine)
        _killed_elsewhere(store, seconds_ago=61, number=0)
        young = _killed_elsewhere(store, seconds_ago=0, number=1)
        look = engine.erase(TOPIC, WHERE)
        assert (look.leftovers.gone, len(_holding(store / ".tmp"))) == (1, 2)
        report = erase(engine)
        assert (report.leftovers.gone, report.is_complete) == (1, False)
        assert [held.place for held in report.still_held] == [f"{young}, which is no object, may hold some"]
        assert _holding(store / ".tmp") == [young.name]
        os.utime(young, (time.time() - 61,) * 2)
        assert erase(engine).is_complete
        assert _holding(store) == []


def test_what_was_spilled_to_this_machine(tmp_path: Path, scratch: Path) -> None:
    """The files of a dead program are removed. Those of a running one are named, and the erasure is
    complete."""
    with txn_engine.connect(f"file://{tmp_path}/store") as engine:
        _filled(engine)
        with ScratchFolder("sql") as alive:
            for folder in (alive.path, scratch / "txn-engine-sql-dead"):
                folder.mkdir(exist_ok=True)
                (folder / ".held").touch()
                (folder / "spilled").write_text(NAME)
            assert len(_holding(scratch)) == 2
            assert engine.erase(TOPIC, WHERE).leftovers.gone == 1
            report = erase(engine)
            assert (report.leftovers.gone, report.leftovers.folders) == (1, (str(alive.path),))
            assert report.is_complete
            assert len(_holding(scratch)) == 1
        assert _holding(scratch) == []
