"""Step 6: what became of everything, counted from the store, and whether the story went as it was to go."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from rich import box
from rich.table import Table

from txn_engine.demo.balances import BalancesReport
from txn_engine.demo.load import KILLED, LoadReport
from txn_engine.demo.payments import PAYMENTS
from txn_engine.demo.proof import ProofReport
from txn_engine.demo.sweep import SweepReport
from txn_engine.demo.tables import TablesReport
from txn_engine.verify import VerifyReport

FINAL = ("CompleteCommit", "CompleteAbort")


@dataclass(frozen=True, slots=True)
class Closing:
    """The run's outcome. Rows and transactions are the audit's, events the producers' own; nothing is assumed."""

    rows_in: int
    load: LoadReport
    sweep: SweepReport
    balances: BalancesReport
    tables: TablesReport
    proof: ProofReport
    seconds: Mapping[str, float]

    @property
    def audit(self) -> VerifyReport:
        """The audit, which every finished run has."""
        if self.proof.audit is None:
            raise ValueError("no audit was made")
        return self.proof.audit

    @property
    def rows_committed(self) -> int:
        """Records of `payments` that read_committed readers see."""
        return self._records("live")

    @property
    def rows_aborted(self) -> int:
        """Records of `payments` that stand in the log and nobody reads."""
        return self._records("aborted")

    def _records(self, fate: str) -> int:
        partitions = self.audit.stats.partitions
        return sum(part.records.get(fate, 0) for part in partitions if part.topic == PAYMENTS)

    @property
    def refused(self) -> list[Mapping[str, Any]]:
        """Commits that were refused: by whom, with which code."""
        return [*self.load.fenced, *self.balances.refused]

    @property
    def rows_dropped(self) -> int:
        """Records that came a second time and were not written."""
        batches = [said["again"] for said in self.load.duplicates if said["again"]["is_duplicate"]]
        return sum(batch["last_offset"] - batch["base_offset"] + 1 for batch in batches)

    @property
    def unexpected(self) -> list[str]:
        """Where the run left the story; empty for a good one."""
        return [told for told, holds in self._story() if not holds]

    def _story(self) -> Iterator[tuple[str, bool]]:
        load, balances, stats = self.load, self.balances, self.audit.stats
        lost = (*load.killed, *load.aborted, *load.fenced)
        yield "every row is committed once", self.rows_committed == self.rows_in == load.rows
        yield "what is aborted is what the producers lost", self.rows_aborted == sum(s["rows"] for s in lost)
        yield "one loader was killed and swept", len(load.killed) == 1 and self.sweep.timed_out == [KILLED]
        yield "one loader was fenced", [said["code"] for said in load.fenced] == ["PRODUCER_FENCED"]
        yield "one batch came twice", len(load.duplicates) == 1 and self.rows_dropped > 0
        yield "one transaction was aborted", len(load.aborted) == 1
        yield "deferred markers were written", len(self.sweep.completed) > 1
        yield "the LSO was at the log end", self.sweep.behind == 0
        left = 0 < balances.payments_after_kill == balances.payments_of_first_batch < load.rows
        yield "the killed stream left its first micro-batch alone", left
        yield "the stream went on", balances.rows > 0
        codes = [said["code"] for said in balances.refused]
        yield "the overlapping Spark job was refused", codes == ["OFFSETS_MOVED"]
        yield "the stream, once more, found nothing to do", balances.third_found_nothing
        shown = self.tables.payments == self.rows_in and len(self.tables.roots["delta"]) > 1
        yield "the table shows every row", shown
        yield "all transactions have ended", set(stats.transactions) <= set(FINAL)
        yield "all checks passed", self.proof.success and self.proof.passed > 0
        yield "verify finds nothing", not self.audit.findings

    def document(self) -> dict[str, Any]:
        """The outcome as JSON values."""
        return {
            "ok": not self.unexpected,
            "unexpected": self.unexpected,
            "rows": {"in": self.rows_in, "committed": self.rows_committed, "aborted": self.rows_aborted},
            "duplicates_dropped": {"batches": len(self.load.duplicates), "rows": self.rows_dropped},
            "refused": [dict(said) for said in self.refused],
            "killed": [dict(said) for said in self.load.killed],
            "aborted_on_purpose": [dict(said) for said in self.load.aborted],
            "sweep": {
                "timed_out": self.sweep.timed_out,
                "completed": self.sweep.completed,
                "partitions_marked": self.sweep.partitions_marked,
                "behind_before": self.sweep.behind_before,
                "behind": self.sweep.behind,
            },
            "balances": {"rows": self.balances.rows},
            "tables": {"cut": self.tables.cut, **self.tables.roots},
            "transactions": dict(self.audit.stats.transactions),
            "checks": {
                "passed": self.proof.passed,
                "failed": self.proof.failed,
                "errored": self.proof.errored,
            },
            "verify": {
                "findings": [str(finding) for finding in self.audit.findings],
                "objects": self.audit.stats.objects,
            },
            "report": str(self.proof.report),
            "seconds": {name: round(seconds, 1) for name, seconds in self.seconds.items()},
        }

    def table(self) -> Table:
        """The closing table."""
        table = Table(box=box.SIMPLE, show_header=False, pad_edge=False)
        table.add_column()
        table.add_column(overflow="fold")
        for name, text in self._lines():
            table.add_row(name, text)
        return table

    def _lines(self) -> Iterator[tuple[str, str]]:
        yield "rows in", f"{self.rows_in:,}"
        yield "committed", f"{self.rows_committed:,}"
        yield "aborted", f"{self.rows_aborted:,}"
        yield "refused", ", ".join(f"{said['code']} ({said['who']})" for said in self.refused)
        yield "duplicates dropped", f"{self.rows_dropped:,} rows in {len(self.load.duplicates)} batch"
        states = sorted(self.audit.stats.transactions.items())
        yield "transactions", ", ".join(f"{state} {count:,}" for state, count in states)
        checks = self.proof.passed + self.proof.failed + self.proof.errored
        yield "checks passed", f"{self.proof.passed} of {checks}"
        yield "verify", "nothing found" if not self.audit.findings else f"{len(self.audit.findings)} findings"
        steps = (f"{name} {seconds:.1f}" for name, seconds in self.seconds.items() if name != "all")
        yield "seconds", f"{self.seconds['all']:.1f} in all: {', '.join(steps)}"
