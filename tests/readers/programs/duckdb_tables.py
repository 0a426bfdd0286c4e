"""DuckDB reads a topic's tables: the newest state by their roots, and older ones."""

from __future__ import annotations

from duckdb_extensions_of_wheels import connected
from rows import answer, digest, request

DELTA = "account, amount::VARCHAR, epoch_ms(_timestamp)"
ICEBERG = f"{DELTA}, log_partition, log_base_offset + _offset_delta"

asked = request()
duck = connected(asked)


def of(columns: str, table: str) -> list[object]:
    return digest(duck.execute(f"SELECT {columns} FROM {table}").fetchall())


found = {
    "delta": of(DELTA, f"delta_scan('{asked['delta']}')"),
    "versions": [
        of(DELTA, f"delta_scan('{asked['delta']}', version = {each})") for each in asked["versions"]
    ],
}
if asked["iceberg"]:
    found["iceberg"] = of(ICEBERG, f"iceberg_scan('{asked['iceberg']}')")
    found["root"] = of(ICEBERG, f"iceberg_scan('{asked['root']}')")
    found["snapshots"] = [
        of(ICEBERG, f"iceberg_scan('{asked['iceberg']}', snapshot_from_id = {each})")
        for each in asked["snapshots"]
    ]
answer(found)
