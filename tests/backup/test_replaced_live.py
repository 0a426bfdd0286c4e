"""A real process is stopped, its store is deleted and restored, and the process goes on: on a disk and on MinIO."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from storage import open_store
from tests.backup import loading_for_ever
from tests.backup.conftest import SCHEMA, load
from tests.conftest import S3Bucket
from tests.suite.tiers import in_shard
from tests.support.internal import FEW_INTERNAL
from tests.support.kills import REPOSITORY
from tests.support.stores import accounts_in, assert_sound, copy_of
from tests.support.waiting import LIMIT_S
from txn_engine import Engine, connect
from txn_engine.backup import restore

LINES = in_shard("kills", range(1, 13), keep=[2])


@pytest.fixture(params=["disk", pytest.param("MinIO", marks=pytest.mark.minio)])
def url(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A place for a store, which the environment names."""
    found = f"file://{tmp_path}/ledger"
    if request.param == "MinIO":
        bucket: S3Bucket = request.getfixturevalue("minio_bucket")
        found = f"{bucket.url}/ledger"
        for name, value in bucket.environment.items():
            monkeypatch.setenv(name, value)
    monkeypatch.setenv("TXN_ENGINE_URL", found)
    return found


@pytest.mark.parametrize("how", ["transactions", "appends"])
@pytest.mark.parametrize("lines", LINES)
def test_a_stopped_process_acknowledges_nothing_in_the_restored_store(
    url: str, tmp_path: Path, how: str, lines: int
) -> None:
    """A process that is stopped in the midst of its work goes on under a restored store. All that it says is done was
    done in the store before. It ends by itself, and the restored store is as it was restored."""
    backups = open_store(f"file://{tmp_path}/backups")
    with connect(url, configs=FEW_INTERNAL) as engine:
        engine.admin.create_topic("payments", partitions=2, schema=SCHEMA)
        load(engine, "one", 1)
        engine.backup(backups)
    command = [sys.executable, "-m", loading_for_ever.__name__, how]
    with subprocess.Popen(command, cwd=REPOSITORY, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            told = [process.stdout.readline() for _ in range(lines)]
            os.kill(process.pid, signal.SIGSTOP)
            os.waitpid(process.pid, os.WUNTRACED)  # it has stopped: no put of its is still to come
            with closing(open_store(url)) as store:
                before = copy_of(store)
                for info in list(store.list("")):
                    store.delete(info.key)
                restore(backups, store)
            os.kill(process.pid, signal.SIGCONT)
            rest, _ = process.communicate(timeout=LIMIT_S)
        finally:
            process.kill()
    assert process.returncode == loading_for_ever.REPLACED
    numbers = [int(line) for line in (*told, *rest.splitlines())]
    with Engine(before) as old:
        done = accounts_in(old)
    copies = 2 if how == "transactions" else 1
    assert [done.count(number) for number in numbers] == [copies] * len(numbers)
    with connect(url) as again:
        assert accounts_in(again) == [1, 1]
        load(again, "two", 2)
        assert accounts_in(again) == [1, 1, 2, 2]
        assert_sound(again)
