"""The Delta table of a topic: its log of JSON commits, over the data files that are there (docs/TABLES.md)."""

from txn_engine.tables.delta.view import DeltaView

__all__ = ["DeltaView"]
