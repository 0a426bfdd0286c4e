"""Erasing records for good: looked for once, named by their offsets, taken out of everything (docs/ERASURE.md)."""

from txn_engine.erasing.backups import BackupsSearch
from txn_engine.erasing.former import FormerEraser
from txn_engine.erasing.leftovers import take_leftovers
from txn_engine.erasing.matching import Matcher
from txn_engine.erasing.old_versions import held_by_versions
from txn_engine.erasing.report import ErasureReport, FormerFound, StillHeld
from txn_engine.erasing.topic_eraser import Finished, TopicEraser, refuse_constant

__all__ = [
    "BackupsSearch",
    "ErasureReport",
    "Finished",
    "FormerEraser",
    "FormerFound",
    "Matcher",
    "StillHeld",
    "TopicEraser",
    "held_by_versions",
    "refuse_constant",
    "take_leftovers",
]
