"""Cuts over all topics and groups: making them, and reading as of one (PROTOCOL.md, section 7)."""

from txn_engine.cuts.changes import CutChanges, changes_between
from txn_engine.cuts.making import CutMaker

__all__ = ["CutChanges", "CutMaker", "changes_between"]
