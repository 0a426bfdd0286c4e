"""The Iceberg table of a topic: metadata and manifests over the data files that are there (docs/TABLES.md)."""

from txn_engine.tables.iceberg.view import IcebergView

__all__ = ["IcebergView"]
