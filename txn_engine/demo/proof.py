"""Step 5: Great Expectations judges what the store holds against the input file, and the auditor replays every log."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from txn_engine.demo.balances import BALANCES, GROUP
from txn_engine.demo.child import Child
from txn_engine.demo.payments import CREDIT, PAYMENTS
from txn_engine.demo.screen import Screen
from txn_engine.engine import Engine
from txn_engine.verify import VerifyReport

_READY_S = 120
_CHECK_S = 600
_CHECK = {
    "topic": PAYMENTS,
    "record_id": "trans_id",
    "group_id": GROUP,
    "outputs": [
        {
            "topic": BALANCES,
            "by": "account_id",
            "sum": {"turnover": {"of": "amount", "direction": "type", "plus": [CREDIT]}},
            "count": "payments",
        }
    ],
}


@dataclass(slots=True)
class ProofReport:
    """How many checks came out how, where the page is, and what the audit counted."""

    passed: int = 0
    failed: int = 0
    errored: int = 0
    success: bool = False
    report: Path = field(default_factory=Path)
    audit: VerifyReport | None = None


class Proof:
    """The suite in the checker's process, beside it the audit in this one."""

    def __init__(self, engine: Engine, screen: Screen, checker: Child) -> None:
        self._engine = engine
        self._screen = screen
        self._checker = checker
        self.report = ProofReport()

    def run(self, input_file: Path, report_folder: Path) -> None:
        """Check and audit; a check that fails is said here, and makes the demo fail at its end."""
        with self._screen.waiting("Great Expectations is being imported"):
            self._checker.hear("ready", patience_s=_READY_S)
        self._checker.tell(
            "check",
            url=self._engine.url,
            check=_CHECK,
            input_file=str(input_file),
            report_folder=str(report_folder),
        )
        with ThreadPoolExecutor(1, thread_name_prefix="audit") as thread:
            audit = thread.submit(self._engine.admin.verify)
            checked = self._checked()
            self.report.audit = audit.result()
        self._take_in(checked)
        self._checker.end()

    def _checked(self) -> Mapping[str, Any]:
        while (word := self._checker.hear("doing", "checked", patience_s=_CHECK_S)).word == "doing":
            self._screen.say(word.facts["text"], style="dim")
        return word.facts

    def _take_in(self, checked: Mapping[str, Any]) -> None:
        found = [check["status"] for check in checked["checks"]]
        self.report.passed, self.report.failed = found.count("passed"), found.count("failed")
        self.report.errored, self.report.success = found.count("errored"), checked["success"]
        self.report.report = Path(checked["report"])
        self._screen.say(f"{self.report.passed} of {len(found)} checks passed")
        for check in checked["checks"]:
            if check["status"] != "passed":
                self._screen.say(f"{check['name']}: {check['status']}: {check['detail']}", style="red")
        audit = self.report.audit
        if audit is not None:
            self._screen.say(
                f"verify: {audit.stats.objects:,} objects read, {len(audit.findings)} findings"
                + (f", the first: {audit.findings[0]}" if audit.findings else "")
            )
