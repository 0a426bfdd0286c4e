"""Conditions on records, for `erase --where`: DuckDB parses them, they are typed, and Arrow evaluates them."""
