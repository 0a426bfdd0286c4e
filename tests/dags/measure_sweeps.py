"""Measure what a sweep costs: `python -m tests.dags.measure_sweeps [--ids N] [--transactions N] [--partitions
N] [--url URL]`.

The DAGs run whole, by `dag.test()`. The rows before them are put into the coordinator's log many to an entry,
which makes no difference to readers. The seconds of a DAG are those of its whole run, with Airflow's own
work.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
import traceback
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any

from tests.numbers import Run
from tests.support.airflow_home import DAGS, make_database
from txn_engine import Engine, TopicPartition, connect
from txn_engine.protocol.proposals import TransactionProposal
from txn_engine.protocol.transaction_rows import StoredRow, TransactionRow, TransactionState

Tell = Callable[[str], None]

SPREADS = (5, 50)
"""In how many partitions each of the transactions is."""


def write_rows(engine: Engine, rows: Iterable[TransactionRow]) -> None:
    """Put the rows as they are, in one entry for each coordinator partition."""
    by_log: dict[int, list[TransactionProposal]] = defaultdict(list)

    def decide(_: StoredRow | None, row: TransactionRow) -> TransactionRow:
        return row

    for row in rows:
        partition = engine.admin.coordinator_partition(row.transactional_id)
        by_log[partition].append(TransactionProposal(row.transactional_id, partial(decide, row=row)))
    for proposals in by_log.values():
        engine.logs.coordinator(proposals[0].transactional_id).append(proposals)


def new_producer_id(engine: Engine) -> int:
    """A producer id that the store has given out, from a block of its own."""
    return engine.coordinator.init_producer_id(None).producer_id


def idle(engine: Engine, number: int, now_ms: int) -> Iterator[TransactionRow]:
    """Rows of ids at rest."""
    for each in range(number):
        yield TransactionRow(
            f"idle-{each}", TransactionState.COMPLETE_COMMIT, new_producer_id(engine), 1, 0, update_ms=now_ms
        )


def timed_out(engine: Engine, number: int, partitions: int, now_ms: int) -> Iterator[TransactionRow]:
    """Rows of ids whose transaction, in one partition, has been open for longer than its time-out of a
    millisecond."""
    for each in range(number):
        partition = engine.coordinator.resolve(TopicPartition("payments", each % partitions))
        yield TransactionRow(
            f"dead-{each}",
            TransactionState.ONGOING,
            new_producer_id(engine),
            0,
            transaction_timeout_ms=1,
            start_ms=now_ms - 1_000,
            update_ms=now_ms - 1_000,
            partitions=(partition,),
        )


def decided(
    engine: Engine, number: int, partitions: int, spread: int, now_ms: int
) -> Iterator[TransactionRow]:
    """Rows of ids whose transaction, in `spread` of the partitions, is decided and has no marker."""
    for each in range(number):
        places = {
            engine.coordinator.resolve(TopicPartition("payments", (each + step) % partitions))
            for step in range(spread)
        }
        yield TransactionRow(
            f"decided-{spread}-{each}",
            TransactionState.PREPARE_COMMIT,
            new_producer_id(engine),
            1,
            0,
            start_ms=now_ms,
            update_ms=now_ms,
            partitions=tuple(sorted(places)),
        )


def run_dag(dag_id: str, url: str) -> tuple[float, dict[str, Any]]:
    """The seconds of a run, and the sums of what each task's instances returned."""
    from airflow.dag_processing.dagbag import DagBag

    from tests.support.finished_run import FinishedRun

    dag = DagBag(dag_folder=DAGS / f"{dag_id}.py").dags[dag_id]
    started = time.monotonic()
    run = FinishedRun(dag.test(), "")
    seconds = time.monotonic() - started
    if run.state != "success":
        raise RuntimeError(f"{dag_id} ended as {run.state} over {url}")
    returned: dict[str, Any] = defaultdict(lambda: defaultdict(int))
    for instance in run.dag_run.get_task_instances():
        found = run.xcom(instance.task_id, map_index=instance.map_index)
        returned[instance.task_id]["seconds"] += instance.duration or 0
        returned[instance.task_id]["tasks"] += 1
        for name, value in (found or {}).items() if isinstance(found, dict) else ():
            if isinstance(value, int):
                returned[instance.task_id][name] += value
    return seconds, returned


def main() -> int:
    """Print the numbers."""
    parser = argparse.ArgumentParser(prog="python -m tests.dags.measure_sweeps", description=__doc__)
    parser.add_argument("--ids", type=int, default=10_000)
    parser.add_argument("--transactions", type=int, default=1_000)
    parser.add_argument("--partitions", type=int, default=50)
    parser.add_argument("--url", help="a store of its own; a new local one when none is named")
    given = parser.parse_args()
    run, tell = Run("sweeps", sys.argv[1:]), _quiet()
    make_database()
    with tempfile.TemporaryDirectory(prefix="txn-engine-numbers-") as folder:
        run.record(_measure(given, given.url or f"file://{folder}/ledger", tell))
    return 0


def _quiet() -> Tell:
    """Discard what Airflow prints. The answer prints, and so does an error that ends the program."""
    out = os.fdopen(os.dup(1), "w", buffering=1)
    sys.excepthook = partial(traceback.print_exception, file=out)
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    os.dup2(nowhere, 2)

    def tell(text: str) -> None:
        print(text, file=out)

    return tell


def _measure(given: argparse.Namespace, url: str, tell: Tell) -> dict[str, object]:
    figures: dict[str, object] = {}
    os.environ["TXN_ENGINE_URL"] = url
    os.environ.pop("AIRFLOW_CONN_TXN_ENGINE_DEFAULT", None)
    with connect(url) as engine:
        engine.admin.create_topic("payments", partitions=given.partitions)
        run_dag("txn_coordinator_sweep", url)  # the first run of a process takes seconds longer
        now_ms = engine.clock()
        write_rows(engine, idle(engine, given.ids, now_ms))
        for title, prepare in (
            (f"sweep over {given.ids:,} ids at rest", lambda: None),
            ("the same, after snapshots", engine.admin.snapshot),
            (
                f"sweep of {given.ids:,} timed-out transactions",
                lambda: write_rows(engine, timed_out(engine, given.ids, given.partitions, now_ms)),
            ),
        ):
            prepare()
            figures[title] = _sweep(title, url, tell)
        for spread in (each for each in SPREADS if each <= given.partitions):
            write_rows(engine, decided(engine, given.transactions, given.partitions, spread, engine.clock()))
            seconds, returned = run_dag("txn_write_markers", url)
            wrote = returned["write_markers"]
            title = f"markers of {given.transactions:,} transactions, each in {spread} of {given.partitions} partitions"
            figures[title] = _told(
                title,
                {
                    "completed": wrote["transactions"],
                    "markers": wrote["partitions_marked"],
                    "objects written": wrote["objects_written"],
                    "mapped tasks": wrote["tasks"],
                    "their seconds": round(wrote["seconds"], 2),
                    "seconds of the DAG": round(seconds, 2),
                },
                tell,
            )
        findings = engine.admin.verify().findings
        tell(f"audit: {len(findings)} findings")
        if findings:
            raise RuntimeError(str(findings[0]))
    return figures


def _sweep(title: str, url: str, tell: Tell) -> dict[str, object]:
    seconds, returned = run_dag("txn_coordinator_sweep", url)
    swept = returned["abort_timed_out_transactions"]
    figures = {
        "aborted": swept["transactions"],
        "objects written": swept["objects_written"],
        "seconds of the task": round(swept["seconds"], 2),
        "seconds of the DAG": round(seconds, 2),
    }
    return _told(title, figures, tell)


def _told(title: str, figures: dict[str, object], tell: Tell) -> dict[str, object]:
    tell(f"{title}: " + ", ".join(f"{name} {value}" for name, value in figures.items()))
    return figures


if __name__ == "__main__":
    sys.exit(main())
