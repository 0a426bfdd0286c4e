"""Step 3: Spark sums the payments up into `balances`, is killed, runs again, and an overlapping run is refused."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from txn_engine.demo.child import Child
from txn_engine.demo.payments import KEY, PARTITIONS, PAYMENTS
from txn_engine.demo.screen import Screen
from txn_engine.engine import Engine

BALANCES, GROUP = "balances", "balances"
FIRST_ID, OVERLAPPING_ID = "balances", "balances-overlapping"
_READY_S = 300
_JOB_S = 900


@dataclass(slots=True)
class BalancesReport:
    """Rows of `balances` that readers saw after the kill and after the re-run, and who was refused."""

    rows_after_kill: int = -1
    rows: int = 0
    refused: list[Mapping[str, Any]] = field(default_factory=list)
    third_found_nothing: bool = False


class Balances:
    """Two Spark processes: one that is killed just before its commit, one that runs again, twice at once."""

    def __init__(self, engine: Engine, screen: Screen) -> None:
        self._engine = engine
        self._screen = screen
        self.report = BalancesReport()

    def run(self, first: Child, second: Child) -> None:
        """Kill the first; the second commits, and the run that overlaps with it is refused."""
        from txn_engine.spark.balances import BALANCES_SCHEMA

        self._engine.admin.create_topic(BALANCES, partitions=PARTITIONS, schema=BALANCES_SCHEMA, key=KEY)
        self._kill(first)
        self._run_again(second)
        second.end()

    def _kill(self, spark: Child) -> None:
        with self._screen.waiting("Spark is starting"):
            version = spark.hear("ready", patience_s=_READY_S).facts["version"]
        self._screen.say(
            f"{spark}: Spark {version}, from {PAYMENTS} into {BALANCES}, transactional id and group {GROUP}"
        )
        spark.tell("run", transactional_id=FIRST_ID, until="commit")
        with self._screen.waiting("Spark sums up"):
            spark.hear("about to commit", patience_s=_JOB_S)
        spark.kill()
        self.report.rows_after_kill = self._visible_rows()
        state = self._engine.admin.describe_transaction(FIRST_ID).state
        self._screen.say(
            f"{spark} has written its rows and offsets, and is killed (SIGKILL) before its commit: "
            f"{FIRST_ID} is {state}, {self.report.rows_after_kill} rows visible"
        )

    def _run_again(self, spark: Child) -> None:
        with self._screen.waiting("Spark sums up again, twice at once"):
            spark.hear("ready", patience_s=_READY_S)
            spark.tell("overlap", transactional_id=FIRST_ID, overlapping_id=OVERLAPPING_ID)
            for name in (FIRST_ID, OVERLAPPING_ID):
                spark.hear("read", patience_s=_JOB_S)
                self._screen.say(f"{spark} starts {name}: it reads all after the group's position")
            committed = spark.hear("committed", patience_s=_JOB_S).facts
            self.report.rows = self._visible_rows()
            ends = " ".join(committed["offsets"])
            self._screen.say(
                f"{FIRST_ID} commits {committed['written']:,} rows from {committed['read']:,} payments, "
                f"and with them the group's offsets {ends}"
            )
            refused = spark.hear("refused", patience_s=_JOB_S).facts
        self.report.refused.append({**refused, "who": f"{OVERLAPPING_ID} (pid {spark.pid})"})
        self._screen.say(f"{OVERLAPPING_ID} tries to commit the same payments: {refused['code']}")
        spark.tell("run", transactional_id=FIRST_ID, until="end")
        third = spark.hear("committed", patience_s=_JOB_S).facts
        self.report.third_found_nothing = third["skipped"] and third["read"] == 0
        self._screen.say(f"{FIRST_ID} once more: {third['read']} payments to read")

    def _visible_rows(self) -> int:
        return sum(file.record_count for file in self._engine.scan(BALANCES).files())
