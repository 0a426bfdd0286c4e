"""Step 2: the DAGs end what the dead producer left, write the markers that wait, and compute the LSO."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Any

from txn_engine.clock import pause_ms
from txn_engine.demo.child import Child
from txn_engine.demo.load import KILLED, Load
from txn_engine.demo.screen import Screen
from txn_engine.engine import Engine

SWEEP, MARKERS, LSO = "txn_coordinator_sweep", "txn_write_markers", "txn_compute_lso"
_READY_S = 240
_LSO_SHOWN = {
    "topic": "topic",
    "partition": "partition",
    "last_stable_offset": "LSO",
    "high_watermark": "log end",
    "behind": "behind",
    "held_by": "held by",
    "aborted_transactions": "aborted",
}


@dataclass(slots=True)
class SweepReport:
    """What the DAGs' tasks returned: ids timed out, ids completed, offsets that readers waited for before and after."""

    timed_out: list[str] = field(default_factory=list)
    completed: list[str] = field(default_factory=list)
    partitions_marked: int = 0
    behind_before: int = -1
    behind: int = -1


class Sweep:
    """The three DAGs in their order, each run whole by Airflow's `dag.test()`."""

    def __init__(self, engine: Engine, screen: Screen, airflow: Child) -> None:
        self._engine = engine
        self._screen = screen
        self._airflow = airflow
        self.report = SweepReport()

    def run(self, load: Load) -> None:
        """Compute the LSO; sweep; have the lost day loaded as soon as it is safe to; write markers; compute the LSO."""
        with self._screen.waiting("Airflow is starting"):
            self._airflow.hear("ready", patience_s=_READY_S)
        self._screen.say(f"{self._airflow}: each DAG in one go, by dag.test()")
        self.report.behind_before = self._compute_lso()
        self._wait_for_timeout()
        self._sweep()
        load.load_lost_day()
        self._write_markers()
        self.report.behind = self._compute_lso()
        self._airflow.end()

    def _wait_for_timeout(self) -> None:
        """Until the killed producer's transaction has been open for longer than its timeout."""
        dead = self._engine.admin.describe_transaction(KILLED)
        due_ms = dead.transaction_start_ms + dead.transaction_timeout_ms + 1
        pause_ms(max(due_ms - self._engine.clock(), 0))

    def _sweep(self) -> None:
        returned = self._dag(SWEEP)["abort_timed_out_transactions"][0]
        self.report.timed_out = list(returned["transactional_ids"])
        state = self._engine.admin.describe_transaction(KILLED).state
        self._screen.say(
            f"{SWEEP}: {returned['transactions']} transaction timed out ({', '.join(self.report.timed_out)}), "
            f"{returned['partitions_marked']} partitions marked; {KILLED} is {state}"
        )
        if state != "CompleteAbort":
            raise self._airflow.failure(f"{KILLED} is {state} after the sweep, not CompleteAbort")

    def _write_markers(self) -> None:
        waiting = self._engine.admin.list_transactions(states=["PrepareCommit", "PrepareAbort"])
        names = ", ".join(listing.transactional_id for listing in waiting)
        self._screen.say(f"decided, markers deferred: {names}")
        parts = self._dag(MARKERS)["write_markers"]
        self.report.completed = sorted(name for part in parts for name in part["transactional_ids"])
        self.report.partitions_marked = sum(part["partitions_marked"] for part in parts)
        self._screen.say(
            f"{MARKERS}: {len(self.report.completed)} transactions completed, "
            f"{self.report.partitions_marked} partitions marked"
        )

    def _compute_lso(self) -> int:
        """Snapshots and the LSO of every partition; how many offsets readers wait in front of."""
        returned = self._dag(LSO)
        table = returned["last_stable_offsets"][0]
        rows = [dict(zip(table["columns"], row, strict=True)) for row in table["rows"]]
        behind: int = sum(row["behind"] for row in rows)
        written = sum(returned["write_snapshots"][0].values())
        self._screen.say(f"{LSO}: {written} snapshots written, readers wait in front of {behind:,} offsets")
        shown = sorted(rows, key=itemgetter("topic", "partition"))
        self._screen.columns(_LSO_SHOWN.values(), [[row[name] for name in _LSO_SHOWN] for row in shown])
        return behind

    def _dag(self, dag_id: str) -> Mapping[str, list[Any]]:
        """Run a DAG; what each of its tasks returned, one element a mapped instance. A failed one is an error."""
        self._airflow.tell("run", dag_id=dag_id)
        with self._screen.waiting(dag_id):
            ran = self._airflow.hear("ran").facts
        if ran["state"] != "success":
            raise self._airflow.failure(f"DAG {dag_id} ended as {ran['state']}")
        returned: dict[str, list[Any]] = {}
        for task in ran["tasks"]:
            returned.setdefault(task["task"], []).append(task["returned"])
        return returned
