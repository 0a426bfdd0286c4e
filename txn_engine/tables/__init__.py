"""Committed tables for other engines: what changed between two cuts, pins, and who publishes (docs/TABLES.md)."""

from txn_engine.tables.tables import (
    FORMATS,
    Tables,
    TableStatus,
    check_publishable,
    check_schema,
    published_formats,
    refusal,
)

__all__ = [
    "FORMATS",
    "TableStatus",
    "Tables",
    "check_publishable",
    "check_schema",
    "published_formats",
    "refusal",
]
