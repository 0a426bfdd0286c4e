"""An audit's own objects as bytes, for a later audit or another process: nothing else is ever built of them.

What belongs to the audit under way (its reader, its findings, its rules) is left out, and is another's own there.
"""

from __future__ import annotations

import io
import pickle
from array import _array_reconstructor, array  # type: ignore[attr-defined]  # the callable that an array's pickle names
from collections import Counter
from collections.abc import Mapping
from typing import Any, Final

from storage.store import ObjectInfo
from txn_engine.verify import (
    audited_partition,
    coordinator_audit,
    key_audit,
    log_walk,
    partition_audit,
    report,
)
from txn_engine.verify import decisions as decision_table
from txn_engine.verify import descriptors as rows
from txn_engine.verify.control_rules import ControlRule
from txn_engine.verify.cut_spans import Spans
from txn_engine.verify.descriptor_rules import DescriptorRule
from txn_engine.verify.file_table import DataFile, FileTable
from txn_engine.verify.findings import Finding, Place
from txn_engine.verify.group_rules import GroupCommit
from txn_engine.verify.judged_entry import JudgedEntry
from txn_engine.verify.layout import Layout
from txn_engine.verify.objects import Listing
from txn_engine.verify.producer_rules import UsedBlocks
from txn_engine.verify.snapshot_shelf import SnapshotShelf
from txn_engine.verify.transaction_rules import TransactionRule

_BUILT: Final = (
    array,
    ObjectInfo,
    *(audited_partition.AuditedPartition, audited_partition.Producer, audited_partition.KeptBatch),
    *(audited_partition.AbortedIndex, audited_partition.StoredTransaction, audited_partition.StoredCommit),
    *(coordinator_audit.CoordinatorAudit, coordinator_audit.Recorder),
    *(decision_table.DecisionTable, decision_table.OfProducer),
    *(rows.Batch, rows.TransactionRow, rows.OffsetCommit, rows.OffsetKey),
    *(log_walk.LogWalk, log_walk.Seal, log_walk.SlotDecoder),
    *(partition_audit.PartitionAudit, key_audit.KeyRules, SnapshotShelf),
    *(report.PartitionStats, report.Tally, Counter, Finding, GroupCommit),
    *(DataFile, FileTable, UsedBlocks, JudgedEntry, Layout, Listing, Place, Spans),
    *(ControlRule, DescriptorRule, TransactionRule),
)
_CLASSES: Final[Mapping[tuple[str, str], Any]] = {
    **{(kind.__module__, kind.__qualname__): kind for kind in _BUILT},
    ("array", "_array_reconstructor"): _array_reconstructor,
}


class UnpicklableError(Exception):
    """Bytes that are none of an audit's objects."""


def pickled(each: object, shared: Mapping[str, object]) -> bytes:
    """The objects as bytes, without what is `shared`, which the other side has under the same names."""
    file = io.BytesIO()
    _Pickler(file, shared).dump(each)
    return file.getvalue()


def unpickled(payload: bytes, shared: Mapping[str, object]) -> Any:
    """The objects again, on top of what is shared here. Raises `UnpicklableError`."""
    try:
        return _Unpickler(io.BytesIO(payload), shared).load()
    except (pickle.UnpicklingError, AttributeError, EOFError, TypeError, ValueError, LookupError) as error:
        raise UnpicklableError(" ".join(str(error).split())[:120]) from error


class _Pickler(pickle.Pickler):
    """Leaves out what belongs to the audit under way, and not to what it found."""

    def __init__(self, file: io.BytesIO, shared: Mapping[str, object]) -> None:
        super().__init__(file, protocol=5)
        self._names = {id(each): name for name, each in shared.items()}

    def persistent_id(self, each: object) -> str | None:
        return self._names.get(id(each))


class _Unpickler(pickle.Unpickler):
    """Builds the auditor's own classes, and nothing else."""

    def __init__(self, file: io.BytesIO, shared: Mapping[str, object]) -> None:
        super().__init__(file)
        self._shared = shared

    def find_class(self, module: str, name: str) -> Any:
        found = _CLASSES.get((module, name))
        if found is None:
            raise pickle.UnpicklingError(f"{module}.{name} is none of an audit's classes")
        return found

    def persistent_load(self, name: Any) -> object:
        return self._shared[name]
