"""deltalake, Polars and pyiceberg read a topic's tables."""

from __future__ import annotations

import polars as pl
from deltalake import DeltaTable
from pyiceberg.table import StaticTable
from rows import answer, digest, refusal, request

asked = request()
delta, iceberg = asked["delta"], asked["iceberg"]
options, iceberg_options = asked.get("delta_options"), asked.get("iceberg_options") or {}


def of(table, *, offsets: bool) -> list[object]:
    found = []
    for row in table.to_pylist():
        line = (row["account"], row["amount"], int(row["_timestamp"].timestamp() * 1000))
        found.append(
            (*line, row["log_partition"], row["log_base_offset"] + row["_offset_delta"]) if offsets else line
        )
    return digest(found)


static = StaticTable.from_metadata(iceberg, iceberg_options)


def polars_iceberg(snapshot: int | None) -> list[object]:
    frame = pl.scan_iceberg(static, snapshot_id=snapshot, storage_options=iceberg_options or None)
    return of(frame.collect().to_arrow(), offsets=True)


def polars_delta(version: int | None) -> list[object]:
    frame = pl.scan_delta(delta, version=version, storage_options=options)
    return of(frame.collect().to_arrow(), offsets=False)


def deltalake(version: int | None) -> list[object]:
    return of(DeltaTable(delta, version=version, storage_options=options).to_pyarrow_table(), offsets=False)


def pyiceberg(snapshot: int | None) -> list[object]:
    return of(static.scan(snapshot_id=snapshot).to_arrow(), offsets=True)


answer(
    {
        "deltalake": [deltalake(each) for each in (None, *asked["versions"])],
        "polars delta": [polars_delta(each) for each in (None, *asked["versions"])],
        "pyiceberg": [pyiceberg(each) for each in (None, *asked["snapshots"])],
        "polars iceberg": [polars_iceberg(each) for each in (None, *asked["snapshots"])],
        "refused": refusal(lambda: static.append(static.scan().to_arrow())),
    }
)
