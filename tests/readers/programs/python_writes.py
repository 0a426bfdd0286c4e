"""deltalake, Polars, pyiceberg and DuckDB try every way to write into a topic's tables, and this shows their
errors."""

from __future__ import annotations

import polars as pl
from deltalake import DeltaTable, write_deltalake
from duckdb_extensions_of_wheels import connected
from pyiceberg.table import StaticTable
from rows import answer, refusal, request

asked = request()
delta, root = asked["delta"], asked["root"]
table, static = DeltaTable(delta), StaticTable.from_metadata(root)
rows = table.to_pyarrow_table()
frame = pl.DataFrame(rows)
duck = connected(asked)
duck.execute(f"ATTACH '{delta}' AS payments (TYPE delta)")

refused = {
    "deltalake append": lambda: write_deltalake(delta, rows, mode="append"),
    "deltalake overwrite": lambda: write_deltalake(delta, rows, mode="overwrite"),
    "deltalake delete": lambda: table.delete("account = 1"),
    "deltalake update": lambda: table.update({"account": "2"}),
    "deltalake merge": lambda: (
        table.merge(rows, "t.account = s.account", "s", "t").when_matched_delete().execute()
    ),
    "deltalake optimize": table.optimize.compact,
    "deltalake vacuum": lambda: table.vacuum(0, dry_run=False, enforce_retention_duration=False, full=True),
    "deltalake restore": lambda: table.restore(0),
    "deltalake constraint": lambda: table.alter.add_constraint({"positive": "account > 0"}),
    "Polars append": lambda: frame.write_delta(delta, mode="append"),
    "Polars overwrite": lambda: frame.write_delta(delta, mode="overwrite"),
    "DuckDB insert": lambda: duck.execute("INSERT INTO payments SELECT * FROM payments LIMIT 1"),
    "DuckDB delete": lambda: duck.execute("DELETE FROM payments.main.payments"),
    "pyiceberg append": lambda: static.append(static.scan().to_arrow()),
    "pyiceberg delete": lambda: static.delete("account = 1"),
    "Polars iceberg append": lambda: pl.scan_iceberg(static).collect().write_iceberg(static, mode="append"),
}
goes_through = {
    "DuckDB copy": lambda: duck.execute(f"COPY (SELECT 1 AS one) TO '{root}' (FORMAT iceberg)"),
}
asked_for = goes_through if asked["goes_through"] else refused
answer({name: refusal(write) for name, write in asked_for.items()})
