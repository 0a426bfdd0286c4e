"""Rows out of topics into Postgres, and out of Postgres into topics, each once. Needs `txn-engine[postgres]`."""

from txn_engine.databases.consuming import Consumed
from txn_engine.databases.errors import DatabaseError, DatabaseOutcomeUnknownError, DatabaseUnavailableError
from txn_engine.databases.loading import KeyRange, Loaded
from txn_engine.extras import imports_named

with imports_named(__name__):
    from txn_engine.postgres.consuming import Write, consume_into
    from txn_engine.postgres.loading import load_query
    from txn_engine.postgres.outbox import Drained, load_outbox
    from txn_engine.postgres.writers import append_to, insert_into, upsert_into

__all__ = [
    "Consumed",
    "DatabaseError",
    "DatabaseOutcomeUnknownError",
    "DatabaseUnavailableError",
    "Drained",
    "KeyRange",
    "Loaded",
    "Write",
    "append_to",
    "consume_into",
    "insert_into",
    "load_outbox",
    "load_query",
    "upsert_into",
]
