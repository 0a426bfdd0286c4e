"""A whole Airflow over MinIO, left to itself while payments come in, for as long as asked; and what it proved of them.

    python -m tests.live.steady --minutes 30

Producers commit, leave markers to the DAG, and die with a transaction open. At the end every payment has to be in the
output, each output that was committed has to have a proof that began after it, and the chain of proofs on the store has
to be whole and green: the first a proof of everything, the others of what was new. Exit code 1 where not.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from collections.abc import Callable
from datetime import datetime

from rich.console import Console
from rich.table import Table

from tests.live.stack import Stack, running_stack
from tests.live.test_real_run import CONSUME, VERIFY, payments_flow, wait_until_all_is_well
from tests.support.servers import MinioServer, minio_binary
from txn_engine.log.objects import Objects
from txn_engine.quality.proof import Proof, ProofShelf

EVERY_S = 40
TOPIC = "payments"


def main() -> None:
    """Run it, and print the result."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--minutes", type=float, default=30, help="for how long payments come in (30)")
    asked = parser.parse_args()
    binary = minio_binary()
    if binary is None:
        sys.exit("no MinIO server: run `make minio`")
    with MinioServer(binary) as server, running_stack(server) as stack:
        stack.traffic.make_topics()
        flow(stack, asked.minutes * 60)
        wait_until_all_is_well(stack, patience_s=600)
        wrong = judge(stack)
    for line in wrong:
        print(f"NOT AS IT MUST BE: {line}")
    sys.exit(1 if wrong else 0)


def flow(stack: Stack, seconds: float) -> None:
    """Produce payments at regular times."""
    began = time.monotonic()
    rounds = 0
    while time.monotonic() - began < seconds:
        rounds += 1
        payments_flow(stack, f"round-{rounds}")
        left_s = seconds - (time.monotonic() - began)
        print(
            f"{rounds} rounds, {stack.traffic.committed:,} payments committed, "
            f"{len(proofs(stack))} proofs; {max(left_s, 0) / 60:.0f} min left",
            flush=True,
        )
        stack.wait_for("time", after(min(EVERY_S, max(left_s, 0))), patience_s=EVERY_S + 60)


def after(seconds: float) -> Callable[[], bool]:
    """A condition that becomes true after this many seconds."""
    until = time.monotonic() + seconds
    return lambda: time.monotonic() >= until


def proofs(stack: Stack) -> list[Proof]:
    """The proofs on the store, the oldest first."""
    topic = stack.engine.logs.topics.get(TOPIC)
    shelf = ProofShelf(Objects(stack.engine.store), TOPIC, topic.incarnation)
    return [shelf.read(number)[0] for number in shelf.numbers()]


def judge(stack: Stack) -> list[str]:
    """Print the figures, and return what is wrong."""
    made = proofs(stack)
    consumed, verified = (
        [run for run in stack.rest.runs(dag) if run["state"] == "success"] for dag in (CONSUME, VERIFY)
    )
    states = Counter(
        (task["dag_id"], task["state"]) for task in stack.rest.tasks() if task["state"] != "skipped"
    )
    last_began = max((moment(run["start_date"]) for run in verified), default=0.0)
    uncovered = [run["dag_run_id"] for run in consumed if moment(run["start_date"]) > last_began]
    wrong = [f"{dag}: {count} tasks {state}" for (dag, state), count in states.items() if state == "failed"]
    wrong += [f"proof {proof.number} is no success" for proof in made if not proof.success]
    wrong += [f"no proof began after {name}" for name in uncovered]
    if not made or not made[0].is_whole or any(proof.is_whole for proof in made[1:]):
        wrong.append(
            f"whole proofs: {[proof.number for proof in made if proof.is_whole]}, expected the first alone"
        )
    show(stack, made, {CONSUME: len(consumed), VERIFY: len(verified)})
    return wrong


def moment(text: str) -> float:
    """The seconds since 1970 of a time in the REST API's form."""
    return datetime.fromisoformat(text).timestamp()


def show(stack: Stack, made: list[Proof], runs: dict[str, int]) -> None:
    """Print what happened as a table."""
    table = Table("what", "count", title="A live Airflow with a proof after each consume")
    rows = {
        "payments committed": stack.traffic.committed,
        "transactions left open by producers that died": len(stack.traffic.left_open),
        "transactions whose markers a DAG wrote": len(stack.traffic.deferred),
        **{f"green runs of {dag}": count for dag, count in runs.items()},
        "proofs on the store": len(made),
        "of them of everything": sum(proof.is_whole for proof in made),
        "of them no success": sum(not proof.success for proof in made),
    }
    for what, count in rows.items():
        table.add_row(what, f"{count:,}")
    Console().print(table)


if __name__ == "__main__":
    main()
