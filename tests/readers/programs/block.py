"""Run code as a page shows it, with the engine of this environment: `spark`, or DuckDB with its extensions
from wheels.

A program in Python defines names that begin with `by_`. In SQL each statement is one answer.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rows import answer, request

asked = request()
names: dict[str, Any] = {}
sql: Callable[[str], Any]
if asked["environment"] == "tables":
    import duckdb
    from duckdb_extensions_of_wheels import connected

    duckdb.set_default_connection(connected(asked))
    sql = duckdb.sql
else:
    from spark import session

    names["spark"] = spark = session(**asked["settings"])
    sql = spark.sql
exec(compile(asked["code"], "a block of the documentation", "exec"), names)


def value(found: Any) -> str:
    row = found.fetchone() if asked["environment"] == "tables" else found.first()
    return str(row[0])


said = [value(sql(statement)) for statement in asked["statements"]]
answer(said + [value(found) for name, found in names.items() if name.startswith("by_")])
