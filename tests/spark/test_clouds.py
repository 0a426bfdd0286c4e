"""Spark on a store that none of its connectors reads: by the data source, by writes, and what is refused."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.azurite import AzureContainer

REPOSITORY = Path(__file__).resolve().parents[2]

pytestmark = [pytest.mark.spark, pytest.mark.slow]


def test_the_data_source_and_writes_need_no_connector(
    azure_container: AzureContainer, tmp_path: Path
) -> None:
    """Rows of committed transactions come by `format("txn_engine")`, go by `write_topic` and by the sink, and read as a
    scan has them; a native read says in one line what to use instead. No log shows the key.
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
    assert "reads no az:// by itself here" in seen.pop("refused")
    assert seen == {"read": 50, "written": 50, "agree": {"copies": True, "again": True}}
    assert azure_container.key not in log.read_text() + done.stdout + done.stderr
