"""Spark Connect: the data source works as in a classic session, and without being registered."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.spark.conftest import SCHEMA, load
from txn_engine.engine import Engine
from txn_engine.spark.java import find_java_home

pytestmark = [pytest.mark.spark, pytest.mark.slow]
REPOSITORY = Path(__file__).resolve().parents[2]


@pytest.mark.shard("spark")
def test_a_connect_session_reads_and_streams(ledger: Engine, tmp_path: Path) -> None:
    """A Connect session reads batches and streams and writes with the sink, which it finds by the package's
    name alone."""
    ledger.admin.create_topic("copies", partitions=2, schema=SCHEMA, key="account_id")
    load(ledger, 0, 120)
    command = [sys.executable, "-m", "tests.spark.connect_client", ledger.url, str(tmp_path / "ck")]
    env = os.environ | {
        "JAVA_HOME": str(find_java_home()),
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": "127.0.0.1",
    }
    done = subprocess.run(
        command, cwd=REPOSITORY, env=env, capture_output=True, encoding="utf-8", check=False, timeout=240
    )
    assert done.returncode == 0, done.stderr[-3000:]
    seen = json.loads(done.stdout.splitlines()[-1])
    assert "connect" in seen["session"]
    assert seen["count"] == 120
    for name in ("read_topic", "write_topic", "load_files"):
        assert "a session of Spark Connect" in seen[name]
    copied = ledger.scan("copies").to_table(["trans_id"]).column("trans_id").to_pylist()
    assert sorted(copied) == list(range(120))
