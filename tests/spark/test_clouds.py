"""Spark on a store for which it has no connector: the data source, writes, and the calls that are refused."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.azurite import AzureContainer

REPOSITORY = Path(__file__).resolve().parents[2]

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.shard("spark")]


def test_the_data_source_and_writes_need_no_connector(
    azure_container: AzureContainer, tmp_path: Path
) -> None:
    """The data source reads the rows of committed transactions, and `write_topic` and the sink write them. A native
    read is refused, and so is a bucket whose connector's jars this session does not have; the session keeps no key of
    it. No log shows the container's key.
    """
    url, log = f"{azure_container.url}/ledger", tmp_path / "spark.log"
    done = subprocess.run(
        [sys.executable, "-m", "tests.spark.cloud_round_trip", url, azure_container.endpoint, str(log)],
        cwd=REPOSITORY,
        env=os.environ | azure_container.environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    seen = json.loads(done.stdout)
    assert seen == {
        "read": 50,
        "written": 50,
        "agree": {"copies": True, "again": True},
        "refused": {"az": "no_connector", "s3": "no_connector_jars"},
        "kept": None,
    }
    assert azure_container.key not in log.read_text() + done.stdout + done.stderr
