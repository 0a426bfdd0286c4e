"""Only one process at a time may use a home of `make airflow`: two Airflows on one database would both be wrong."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from txn_engine.errors import IllegalStateError
from txn_engine.reasons import Reason
from txn_engine_airflow.standalone.home import Home

HOLDER = """
import sys, time
from pathlib import Path
from txn_engine_airflow.standalone.home import Home
with Home(Path(sys.argv[1])).taken():
    print("taken", flush=True)
    time.sleep(600)
"""


@pytest.mark.shard("airflow")
def test_the_second_says_who_has_the_home_and_starts_nothing(tmp_path: Path) -> None:
    """The second process prints one line and exits with 1. The home is free again once its holder was killed."""
    home = Home(tmp_path / "home")
    with subprocess.Popen(
        [sys.executable, "-c", HOLDER, home.path], stdout=subprocess.PIPE, text=True
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "taken\n"
        second = subprocess.run(
            [sys.executable, "-m", "txn_engine_airflow.standalone", "--home", home.path],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        holder.kill()
    (line,) = second.stdout.splitlines()
    assert f"process {holder.pid} has this home" in line
    assert str(home.path) in line
    assert "--home" in line
    assert (second.returncode, second.stderr) == (1, "")
    assert [path.name for path in home.path.iterdir()] == ["lock"]
    with home.taken():
        pass


def test_a_home_is_free_again_after_the_block(tmp_path: Path) -> None:
    home = Home(tmp_path / "deep" / "home")
    for _ in range(2):
        with home.taken():
            assert (home.path / "lock").read_text() == f"{os.getpid()}\n"
            with pytest.raises(IllegalStateError) as refused, home.taken():
                pass
            assert refused.value.reason is Reason.HOME_IN_USE
