"""Keeping a ledger small: compaction, retention, sealing, clean-up (PROTOCOL.md, section 6)."""

from txn_engine.maintain.maintenance import Maintenance
from txn_engine.maintain.policy import MaintenancePolicy
from txn_engine.maintain.reports import (
    Cleaned,
    Compacted,
    Expired,
    MaintenanceReport,
    PartitionFailure,
    Removed,
    Sealed,
    Trimmed,
)

__all__ = [
    "Maintenance",
    "MaintenancePolicy",
    "MaintenanceReport",
    "PartitionFailure",
    "Cleaned",
    "Compacted",
    "Expired",
    "Removed",
    "Sealed",
    "Trimmed",
]
