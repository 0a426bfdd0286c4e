"""Backups of a store as of a cut, and restoring them (PROTOCOL.md, section 7)."""

from txn_engine.backup.checking import BackupCheck, BackupsSeen, backups, check_backup, look_at_backups
from txn_engine.backup.copying import Progress
from txn_engine.backup.making import BackupMaker, Cuts, check_place
from txn_engine.backup.manifest import Manifest
from txn_engine.backup.pruning import Pruned, prune
from txn_engine.backup.restoring import Restored, check_target, restore

__all__ = [
    "BackupCheck",
    "BackupMaker",
    "BackupsSeen",
    "Cuts",
    "Manifest",
    "Progress",
    "Pruned",
    "Restored",
    "backups",
    "check_backup",
    "check_place",
    "check_target",
    "look_at_backups",
    "prune",
    "restore",
]
