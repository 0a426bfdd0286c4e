"""Other engines read the committed files, and the log itself, and agree with ours."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path

import duckdb
import polars as pl
import pyarrow.dataset as ds
import pytest

import txn_engine
from tests.engine.conftest import SCHEMA, payments

LOAD = {turn: (turn, turn + 10, turn + 20) for turn in range(6)}


@pytest.fixture
def ledger(tmp_path: Path) -> Path:
    """Six transactions over four partitions, every other one aborted."""
    with txn_engine.connect(f"file://{tmp_path}/ledger") as engine:
        engine.admin.create_topic("payments", partitions=4, schema=SCHEMA, key="account_id")
        with engine.producer(transactional_id="load") as producer:
            producer.init_transactions()
            for turn, accounts in LOAD.items():
                producer.begin_transaction()
                producer.produce("payments", payments(*accounts, amount=f"{turn + 1}.25"))
                producer.flush()
                if turn % 2:
                    producer.abort_transaction()
                else:
                    producer.commit_transaction()
    return tmp_path / "ledger"


def committed() -> tuple[int, Decimal]:
    """The number of committed records and the sum of their amounts, computed from what was loaded."""
    turns = [turn for turn in LOAD if turn % 2 == 0]
    return 3 * len(turns), sum((3 * Decimal(f"{turn + 1}.25") for turn in turns), Decimal(0))


def test_duckdb_reads_the_committed_files(ledger: Path) -> None:
    """DuckDB, given the files that the scan lists, gets the same count and the same exact sum."""
    with txn_engine.connect(f"file://{ledger}") as engine:
        files = [file.uri for file in engine.scan("payments").files()]
    query = "SELECT count(*), sum(amount) FROM read_parquet($files)"
    (seen,) = duckdb.sql(query, params={"files": files}).fetchall()
    assert seen == committed()


def test_pyarrow_reads_the_committed_files(ledger: Path) -> None:
    """Plain PyArrow reads the files that the scan lists: it finds the columns under their names, and decimals
    are decimals."""
    with txn_engine.connect(f"file://{ledger}") as engine:
        files = [file.uri for file in engine.scan("payments").files()]
        ours = engine.scan("payments").to_table(SCHEMA.names)
    theirs = ds.dataset(files, format="parquet", schema=SCHEMA).to_table()
    assert sorted(theirs.to_pylist(), key=str) == sorted(ours.to_pylist(), key=str)
    assert (theirs.num_rows, sum(theirs["amount"].to_pylist())) == committed()


def test_polars_reads_the_committed_files(ledger: Path) -> None:
    """Polars, given the files that the scan lists, gets the same rows with exact decimals. Offsets come from
    each file's name and delta."""
    with txn_engine.connect(f"file://{ledger}") as engine:
        files = engine.scan("payments").files()
        ours = engine.scan("payments").to_table()
    frames = [
        pl.scan_parquet(file.uri).select(
            *SCHEMA.names,
            pl.lit(file.partition).alias("_partition"),
            (pl.col("_offset_delta").cast(pl.Int64) + file.base_offset).alias("_offset"),
        )
        for file in files
    ]
    theirs = pl.concat(frames).sort("_partition", "_offset").collect()
    expected = ours.select([*SCHEMA.names, "_partition", "_offset"]).sort_by(
        [("_partition", "ascending"), ("_offset", "ascending")]
    )
    assert theirs.rows() == [tuple(row.values()) for row in expected.to_pylist()]
    assert (theirs.height, theirs["amount"].sum()) == committed()


def test_polars_reads_the_log_as_a_data_set(ledger: Path) -> None:
    """Polars reads `log/` as a lazy frame, and finds the same committed files and aborted ranges as our
    reader."""
    with txn_engine.connect(f"file://{ledger}") as engine:
        listed = {(f.partition, f.base_offset): f.record_count for f in engine.scan("payments").files()}
        aborted = {
            (partition, gone.first_offset, gone.last_offset)
            for partition in range(4)
            for gone in engine.partition("payments", partition).aborted_transactions(0, 1_000)
        }
    assert aborted
    found: dict[tuple[int, int], int] = {}
    found_aborted: set[tuple[int, int, int]] = set()
    for partition in range(4):
        log = pl.scan_parquet(f"{ledger}/topics/payments/0/{partition}/log/*.parquet").sort("base_offset")
        data = log.filter(pl.col("control") == "none")
        markers = log.filter(pl.col("control") != "none").select(
            "producer_id", pl.col("base_offset").alias("marker"), pl.col("control").alias("fate")
        )
        # A batch's fate is its producer's next marker.
        fates = data.sort("base_offset").join_asof(
            markers.sort("marker"),
            left_on="base_offset",
            right_on="marker",
            by="producer_id",
            strategy="forward",
            check_sortedness=False,  # it cannot be told within groups
        )
        for row in fates.collect().to_dicts():
            if row["fate"] == "commit":
                found[partition, row["base_offset"]] = row["record_count"]
            else:
                found_aborted.add((partition, row["base_offset"], row["marker"]))
    assert found == listed
    assert found_aborted == aborted


def test_the_log_is_a_data_set(ledger: Path) -> None:
    """DuckDB reads `log/` as a data set: offsets are contiguous, markers have their kinds, and batches name
    existing files."""
    for partition in range(4):
        log = f"{ledger}/topics/payments/0/{partition}/log/*.parquet"
        rows = duckdb.sql(
            f"SELECT base_offset, last_offset, control, data_path FROM read_parquet('{log}') ORDER BY base_offset"
        ).fetchall()
        following = [last + 1 for _, last, _, _ in rows]
        assert [base for base, *_ in rows] == [0, *following[:-1]]
        assert {control for _, _, control, _ in rows} <= {"none", "commit", "abort"}
        for _, _, control, data_path in rows:
            assert (control == "none") == (ledger / f"topics/payments/0/{partition}" / data_path).is_file()
