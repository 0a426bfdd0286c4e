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
    SuiteOn,
    Totals,
)
from txn_engine.quality.declaration_file import read_declaration
from txn_engine.quality.exactly_once import check_exactly_once
from txn_engine.quality.result import CheckResult, QualityResult
from txn_engine.quality.row_checks import row_checks
from txn_engine.quality.suite_report import check_rows
from txn_engine.quality.suite_run import SuiteCheck, SuiteResult, SuitesRun
from txn_engine.quality.suites import NamedResult, Suite, load_suite

__all__ = [
    "check_exactly_once",
    "check_rows",
    "load_suite",
    "read_declaration",
    "row_checks",
    "Amount",
    "CheckResult",
    "Declaration",
    "LatestByKey",
    "NamedResult",
    "Output",
    "QualityResult",
    "Relation",
    "SameRows",
    "SameSet",
    "SqlReduction",
    "Suite",
    "SuiteCheck",
    "SuiteOn",
    "SuiteResult",
    "SuitesRun",
    "Totals",
]
