"""Proof of exactly-once outcomes with Great Expectations, and a report that opens offline.

Importing this package is cheap: Great Expectations (two to four seconds) is imported by the first check that runs.
"""

from txn_engine.quality.declaration import (
    Amount,
    Declaration,
    LatestByKey,
    Output,
    Relation,
    SameRows,
    SameSet,
    SqlReduction,
    Totals,
)
from txn_engine.quality.declaration_file import read_declaration
from txn_engine.quality.exactly_once import check_exactly_once
from txn_engine.quality.result import CheckResult, QualityResult

__all__ = [
    "check_exactly_once",
    "read_declaration",
    "Amount",
    "CheckResult",
    "Declaration",
    "LatestByKey",
    "Output",
    "QualityResult",
    "Relation",
    "SameRows",
    "SameSet",
    "SqlReduction",
    "Totals",
]
