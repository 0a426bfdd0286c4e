"""A DuckDB with extensions that it would otherwise download. Here they come in wheels."""

from __future__ import annotations

import glob
import os
from typing import Any

import duckdb
import duckdb_extension_delta


def connected(asked: dict[str, Any]) -> duckdb.DuckDBPyConnection:
    """A connection, to S3 too if `asked` has keys."""
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
