"""DuckDB over a topic's tables: the newest state by their roots, and older ones."""

from __future__ import annotations

import glob
import os

import duckdb
import duckdb_extension_delta
from rows import answer, digest, request

DELTA = "account, amount::VARCHAR, epoch_ms(_timestamp)"
ICEBERG = f"{DELTA}, log_partition, log_base_offset + _offset_delta"


def connected(asked: dict) -> duckdb.DuckDBPyConnection:
    site = os.path.dirname(os.path.dirname(duckdb_extension_delta.__file__))
    found = duckdb.connect(config={"allow_unsigned_extensions": "true"})
    for name in ("parquet", "icu", "httpfs", "avro", "delta", "iceberg"):
        (path,) = glob.glob(f"{site}/duckdb_extension_{name}/extensions/*/{name}.duckdb_extension")
        found.execute(f"LOAD '{path}'")
    if s3 := asked.get("s3"):
        found.execute(
            f"CREATE SECRET (TYPE s3, KEY_ID '{s3['key']}', SECRET '{s3['secret']}', REGION 'us-east-1', "
            f"ENDPOINT '{s3['endpoint']}', URL_STYLE 'path', USE_SSL false)"
        )
    return found


asked = request()
duck = connected(asked)


def of(columns: str, table: str) -> list[object]:
    return digest(duck.execute(f"SELECT {columns} FROM {table}").fetchall())


answer(
    {
        "delta": of(DELTA, f"delta_scan('{asked['delta']}')"),
        "iceberg": of(ICEBERG, f"iceberg_scan('{asked['iceberg']}')"),
        "root": of(ICEBERG, f"iceberg_scan('{asked['root']}')"),
        "snapshots": [
            of(ICEBERG, f"iceberg_scan('{asked['iceberg']}', snapshot_from_id = {each})")
            for each in asked["snapshots"]
        ],
        "versions": [
            of(DELTA, f"delta_scan('{asked['delta']}', version = {each})") for each in asked["versions"]
        ],
    }
)
