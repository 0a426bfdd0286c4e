"""Backups of a store as of a cut, and restoring them (PROTOCOL.md, section 7)."""

from txn_engine.backup.checking import BackupCheck, backups, check_backup
from txn_engine.backup.copying import Progress
from txn_engine.backup.making import BackupMaker, Cuts
from txn_engine.backup.manifest import Manifest
from txn_engine.backup.restoring import Restored, restore

__all__ = [
    "BackupCheck",
    "BackupMaker",
    "Cuts",
    "Manifest",
    "Progress",
    "Restored",
    "backups",
    "check_backup",
    "restore",
]
