"""`consume --output`: a read that fails does not touch the existing file."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa

import txn_engine
from tests.cli.conftest import Run


def test_a_failed_read_leaves_the_output_file(run: Run, tmp_path: Path) -> None:
    """When a data file is damaged the command fails, and the file that --output names does not change."""
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
    answer = run("consume", "t", "--format", "csv", "--output", str(kept), store=url)
    assert (answer.code, answer.error_code) == (1, "CORRUPT_MESSAGE")
    assert data_file.name in answer.error
    assert kept.read_text() == "from yesterday\n"
