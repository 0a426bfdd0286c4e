"""deltalake, Polars, pyiceberg and DuckDB read each version of the tables of topics whose columns changed."""

from __future__ import annotations

import polars as pl
from deltalake import DeltaTable
from duckdb_extensions_of_wheels import connected
from pyiceberg.table import StaticTable
from rows import answer, digest_of, request

asked = request()
duck = connected(asked)


def of(table) -> list[object]:
    return digest_of(table.column_names, zip(*(column.to_pylist() for column in table.columns), strict=True))


def or_refusal(do) -> object:
    try:
        return of(do())
    except Exception as error:  # noqa: BLE001 - whatever it is, it is the answer
        return f"{type(error).__name__}: {error}"


def sql(table: str):
    return duck.execute(f"SELECT * FROM {table}").to_arrow_table()


def of_delta(uri: str, version: int | None) -> dict[str, object]:
    at = "" if version is None else f", version = {version}"
    return {
        "deltalake": or_refusal(lambda: DeltaTable(uri, version=version).to_pyarrow_table()),
        "polars": or_refusal(lambda: pl.scan_delta(uri, version=version).collect().to_arrow()),
        "duckdb": or_refusal(lambda: sql(f"delta_scan('{uri}'{at})")),
    }


def of_iceberg(uri: str, snapshot: int | None) -> dict[str, object]:
    static = StaticTable.from_metadata(uri)
    at = "" if snapshot is None else f", snapshot_from_id = {snapshot}"
    return {
        "pyiceberg": or_refusal(lambda: static.scan(snapshot_id=snapshot).to_arrow()),
        "polars": or_refusal(lambda: pl.scan_iceberg(static, snapshot_id=snapshot).collect().to_arrow()),
        "duckdb": or_refusal(lambda: sql(f"iceberg_scan('{uri}'{at})")),
    }


answer(
    {
        "delta": [
            [of_delta(table["delta"], each) for each in (None, *table["versions"])]
            for table in asked["tables"]
        ],
        "iceberg": [
            [of_iceberg(table["iceberg"], each) for each in (None, *table["snapshots"])]
            for table in asked["tables"]
        ],
    }
)
