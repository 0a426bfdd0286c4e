"""Proof of exactly-once outcomes with Great Expectations, and a report that opens offline.

Importing this package is cheap: Great Expectations (3 to 4 seconds) is imported by the first check that runs.
"""

from txn_engine.quality.check import ExactlyOnceCheck
from txn_engine.quality.exactly_once import check_exactly_once
from txn_engine.quality.result import CheckResult, QualityResult

__all__ = ["ExactlyOnceCheck", "check_exactly_once", "QualityResult", "CheckResult"]
