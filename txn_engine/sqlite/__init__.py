"""Rows out of topics into SQLite, and out of SQLite into topics, each once: no server, nothing to install."""

from txn_engine.databases.consuming import Consumed
from txn_engine.databases.errors import DatabaseError, DatabaseOutcomeUnknownError, DatabaseUnavailableError
from txn_engine.databases.loading import KeyRange, Loaded
from txn_engine.sqlite.consuming import Write, consume_into
from txn_engine.sqlite.loading import load_query
from txn_engine.sqlite.writers import append_to, insert_into, upsert_into

__all__ = [
    "Consumed",
    "DatabaseError",
    "DatabaseOutcomeUnknownError",
    "DatabaseUnavailableError",
    "KeyRange",
    "Loaded",
    "Write",
    "append_to",
    "consume_into",
    "insert_into",
    "load_query",
    "upsert_into",
]
