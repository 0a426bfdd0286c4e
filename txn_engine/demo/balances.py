"""Step 3: a stream sums the payments up into `balances`, is killed, goes on, and an overlapping job is refused."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from txn_engine.demo.child import Child
from txn_engine.demo.payments import KEY, PARTITIONS, PAYMENTS
from txn_engine.demo.screen import Screen
from txn_engine.engine import Engine

BALANCES, GROUP = "balances", "balances"
QUERY_ID, OVERLAPPING_ID = "balances", "balances-overlapping"
_READY_S = 300
_JOB_S = 900


@dataclass(slots=True)
class BalancesReport:
    """Payments that `balances` holds after the kill, and those of the query's first micro-batch; what followed."""

    payments_after_kill: int = -1
    payments_of_first_batch: int = 0
    rows: int = 0
    refused: list[Mapping[str, Any]] = field(default_factory=list)
    third_found_nothing: bool = False


class Balances:
    """Two Spark processes: one that is killed in its second micro-batch, one that goes on, with a job beside it."""

    def __init__(self, engine: Engine, screen: Screen) -> None:
        self._engine = engine
        self._screen = screen
        self.report = BalancesReport()

    def run(self, first: Child, second: Child) -> None:
        """Kill the first before its second commit; the second ends the query, and a job that overlaps is refused."""
        from txn_engine.spark.balances import BALANCES_SCHEMA

        self._engine.admin.create_topic(BALANCES, partitions=PARTITIONS, schema=BALANCES_SCHEMA, key=KEY)
        offsets = self._engine.admin.list_offsets(PAYMENTS).values()
        query = {
            "transactional_id": QUERY_ID,
            "most": sum(each.last_stable_offset for each in offsets) * 2 // 3,
        }
        self._kill(first, query)
        self._go_on(second, query)
        second.end()

    def _kill(self, spark: Child, query: Mapping[str, Any]) -> None:
        with self._screen.waiting("Spark is starting"):
            version = spark.hear("ready", patience_s=_READY_S).facts["version"]
        self._screen.say(
            f"{spark}: Spark {version}, a stream from {PAYMENTS} into {BALANCES}, transactional id {QUERY_ID}"
        )
        spark.tell("run", asks=True, **query)
        with self._screen.waiting("Spark sums up"):
            first = spark.hear("about to commit", patience_s=_JOB_S).facts
            spark.tell("commit")
            spark.hear("about to commit", patience_s=_JOB_S)
        spark.kill()
        report = self.report
        report.payments_of_first_batch = first["read"]
        report.payments_after_kill = self._payments_summed()
        state = self._engine.admin.describe_transaction(QUERY_ID).state
        self._screen.say(f"{spark} commits its first micro-batch: {first['read']:,} payments")
        self._screen.say(
            f"{spark} has written rows and offsets of its second, and is killed (SIGKILL) before its commit: "
            f"{QUERY_ID} is {state}, {BALANCES} holds {report.payments_after_kill:,} payments"
        )

    def _go_on(self, spark: Child, query: Mapping[str, Any]) -> None:
        with self._screen.waiting("Spark goes on, with another job beside it"):
            spark.hear("ready", patience_s=_READY_S)
            spark.tell("overlap", overlapping_id=OVERLAPPING_ID, **query)
            read = spark.hear("read", patience_s=_JOB_S).facts["read"]
            self._screen.say(f"{spark} starts the query again: its second micro-batch, {read:,} payments")
            spark.hear("read", patience_s=_JOB_S)
            self._screen.say(f"{OVERLAPPING_ID}, a job of the same group, reads the same payments")
            done = spark.hear("done", patience_s=_JOB_S).facts
            self.report.rows = sum(file.record_count for file in self._engine.scan(BALANCES).files())
            self._screen.say(
                f"{QUERY_ID} commits {done['read']:,} payments' sums, and with them the group's offsets "
                f"{' '.join(done['offsets'])}"
            )
            refused = spark.hear("refused", patience_s=_JOB_S).facts
        self.report.refused.append({**refused, "who": f"{OVERLAPPING_ID} (pid {spark.pid})"})
        self._screen.say(f"{OVERLAPPING_ID} tries to commit the same payments: {refused['code']}")
        spark.tell("run", asks=False, **query)
        third = spark.hear("done", patience_s=_JOB_S).facts
        self.report.third_found_nothing = third["batches"] == 0
        self._screen.say(f"{QUERY_ID} once more: {third['read']} payments to read")

    def _payments_summed(self) -> int:
        """The payments that the rows of `balances` stand for."""
        table = self._engine.scan(BALANCES).to_table(["payments"])
        return sum(row["payments"] for row in table.to_pylist())
