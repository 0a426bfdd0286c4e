"""The auditor: judges a store from its raw objects, sharing no code with the engine's read path (docs/FORMAT.md).

`verify_store` replays every log by the rules of the protocol as written down, not as the engine implements them, and
reports what does not hold (PROTOCOL.md, section 8).
"""

from txn_engine.verify.codes import CODES, GROUPS, Code, Severity
from txn_engine.verify.data_file_audit import FilesToRead
from txn_engine.verify.findings import Finding, Place
from txn_engine.verify.report import PartitionStats, VerifyReport, VerifyStats
from txn_engine.verify.run import verify_store

__all__ = [
    "verify_store",
    "FilesToRead",
    "Place",
    "VerifyReport",
    "VerifyStats",
    "PartitionStats",
    "Finding",
    "Severity",
    "Code",
    "CODES",
    "GROUPS",
]
