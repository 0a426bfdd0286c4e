"""`consume --output`: a read that fails leaves the file that was there."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pyarrow as pa

import txn_engine

REPOSITORY = Path(__file__).parents[2]


def test_a_failed_read_leaves_the_output_file(tmp_path: Path) -> None:
    """With a damaged data file the command fails, and what --output names is as it was."""
    url = f"file://{tmp_path}/ledger"
    schema = pa.schema([pa.field("id", pa.int64())])
    with txn_engine.connect(url) as engine:
        engine.admin.create_topic("t", partitions=1, schema=schema)
        engine.partition("t", 0).append(pa.table({"id": pa.array([1, 2], pa.int64())}))
    (data_file,) = (tmp_path / "ledger").glob("topics/t/0/0/data/*.parquet")
    content = bytearray(data_file.read_bytes())
    content[len(content) // 2] ^= 1
    data_file.chmod(0o644)
    data_file.write_bytes(bytes(content))
    kept = tmp_path / "kept.csv"
    kept.write_text("from yesterday\n")
    command = ["consume", "t", "--format", "csv", "--output", str(kept), "--url", url]
    done = subprocess.run(
        [sys.executable, "-m", "txn_engine", *command],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert data_file.name in done.stderr
    assert kept.read_text() == "from yesterday\n"
