"""Airflow's own scheduler, triggerer and workers bring everything to its end without any help."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from tests.conftest import missing_server
from tests.live import shop
from tests.live.stack import Stack, running_stack
from tests.numbers import Run
from tests.support.postgres import PostgresServer, postgres_binaries
from tests.support.servers import REPOSITORY, MinioServer

pytestmark = [
    pytest.mark.airflow,
    pytest.mark.minio,
    pytest.mark.slow,
    pytest.mark.spark,
    pytest.mark.shard("airflow"),
    pytest.mark.together("a live Airflow"),
    pytest.mark.timeout(1_800),
]

CONSUME, VERIFY = "txn_spark_consume", "txn_verify_exactly_once"


def payments_flow(stack: Stack, name: str) -> None:
    """Committed payments, some whose markers are left to the DAG, and a producer that dies in between."""
    traffic = stack.traffic
    traffic.pay(f"{name}-shop")
    traffic.leave_open(f"{name}-till")
    traffic.pay_deferred(f"{name}-bank")
    traffic.pay(f"{name}-shop-2")


def wait_until_all_is_well(stack: Stack, *, patience_s: float) -> None:
    """Wait until all transactions are final, Spark has summed up every payment, and a later run has verified the
    sums.
    """
    traffic = stack.traffic
    stack.wait_for("every transaction final", lambda: not traffic.unfinished(), patience_s=patience_s)
    states = traffic.states()
    assert {states[name] for name in traffic.left_open} == {"CompleteAbort"}
    assert {states[name] for name in traffic.deferred} == {"CompleteCommit"}
    stack.wait_for(
        "every payment in the balances",
        lambda: traffic.summed_up() == traffic.committed,
        patience_s=patience_s,
    )
    stack.wait_for("a verification that passed", lambda: verified_after_consume(stack), patience_s=patience_s)


def verified_after_consume(stack: Stack) -> bool:
    """Whether the last verification began after the last output was committed, and is green."""
    consumed = [run for run in stack.rest.runs(CONSUME) if run["state"] == "success"]
    verified = stack.rest.runs(VERIFY)
    if not consumed or not verified:
        return False
    last = verified[-1]
    return bool(last["state"] == "success" and last["start_date"] >= consumed[-1]["start_date"])


def test_transactions_become_final_and_payments_are_summed_up(stack: Stack) -> None:
    """A producer dies, another leaves its markers: sweep, marker DAG, consumer and verification do the rest."""
    payments_flow(stack, "first")
    wait_until_all_is_well(stack, patience_s=500)
    tasks = list(stack.rest.tasks())
    assert [task for task in tasks if task["state"] in ("failed", "upstream_failed")] == []
    assert {task["pool"] for task in tasks if task["dag_id"] == "txn_coordinator_sweep"} == {"txn_engine"}


@pytest.mark.shard("engines")
def test_an_outbox_becomes_balances_though_workers_are_killed(stack: Stack, dsn: str, tmp_path: Path) -> None:
    """A worker dies in each place of each task. The balances are the source's sums less the dead letters. Once these
    are repaired and replayed, the balances are the source's sums.
    """
    shop.make_tables(dsn)
    stack.rest.post("/connections", shop.connection(dsn))
    shop.pay(dsn, 2_000)
    shop.doom(stack.shop)
    tries = run_shop(stack)
    assert not list((stack.shop / "deaths").iterdir())
    # On a busy machine Airflow takes a slow task for dead, and tries it once more.
    assert tries.keys() == {"make_topics", "load", "sum_up", "store"}
    assert min(tries[task] for task in ("load", "sum_up", "store")) >= 3
    letters = shop.dead(stack.engine)
    assert sorted(letter["source_line"] for letter in letters) == [*range(7, 2_000, 100)]
    assert shop.balances(dsn) == shop.paid(dsn, without=[letter["source_line"] for letter in letters])
    assert shop.balances(dsn) != shop.paid(dsn)

    assert shop.mend_and_replay(stack.engine, tmp_path / "mended.jsonl") == len(letters)
    run_shop(stack)
    assert shop.balances(dsn) == shop.paid(dsn)
    assert (shop.in_outbox(dsn), shop.dead(stack.engine)) == (0, [])
    assert stack.engine.admin.verify().findings == ()


def run_shop(stack: Stack) -> dict[str, int]:
    """Run the pipeline until it succeeds, and return how often each of its tasks was tried."""
    stack.wait_for("the pipeline parsed", lambda: is_parsed(stack, shop.DAG_ID), patience_s=300)
    run_id = stack.rest.trigger(shop.DAG_ID)

    def ended() -> str:
        (state,) = (run["state"] for run in stack.rest.runs(shop.DAG_ID) if run["dag_run_id"] == run_id)
        return state if state in ("success", "failed") else ""

    assert stack.wait_for("the pipeline's end", ended, patience_s=900) == "success"
    return {
        task["task_id"]: task["try_number"] for task in stack.rest.tasks() if task["dag_run_id"] == run_id
    }


def is_parsed(stack: Stack, dag_id: str) -> bool:
    return any(dag["dag_id"] == dag_id for dag in stack.rest.get("/dags", limit=100)["dags"])


def test_killed_scheduler(minio_server: MinioServer) -> None:
    """SIGKILL of the scheduler while tasks run leaves its workers as orphans. After a restart the result is the
    same.
    """
    run = Run("scheduler", [])
    with running_stack(minio_server) as stack:
        ask_as_the_deployment_does(stack)
        kill_scheduler_in_the_middle(stack)
        stack.print_overhead(run, "on SQLite, one killed")


@pytest.mark.shard("machine")
def test_postgres_as_metadata_database(minio_server: MinioServer) -> None:
    """The same holds with Postgres as metadata database, where rows are locked and writers do not wait for
    one another as on SQLite."""
    binaries = postgres_binaries()
    if binaries is None:
        missing_server("no Postgres: install Debian's `postgresql`, or run .ci/setup-debian")
    run = Run("scheduler", [])
    with PostgresServer(binaries) as server, running_stack(minio_server, database_url=server.url) as stack:
        kill_scheduler_in_the_middle(stack)
        stack.print_overhead(run, "on Postgres, one killed")


def kill_scheduler_in_the_middle(stack: Stack) -> None:
    """Kill the scheduler while Spark reads. The task goes on as an orphan. If it takes longer than the next
    scheduler needs to see that its owner is dead, that scheduler starts it a second time.
    """
    stack.traffic.make_topics()
    payments_flow(stack, "before")
    scheduler = stack.service("scheduler")
    stack.wait_for("Spark at work", lambda: running(stack, "consume"), patience_s=500)
    orphans = stack.children(scheduler)
    scheduler.kill_first_process()
    payments_flow(stack, "meanwhile")
    alive = [process.pid for process in orphans if process.is_running()]
    assert alive, "the orphans are what this test is about"
    print(f"\nkilled the scheduler while Spark was at work; {len(alive)} orphans live on")
    scheduler.start()
    own = stack.wait_for("the scheduler back", lambda: stack.children(scheduler), patience_s=120)
    assert not {process.pid for process in own} & set(alive), "the orphans are nobody's again"
    payments_flow(stack, "after")
    wait_until_all_is_well(stack, patience_s=700)
    tries = [task["try_number"] for task in stack.rest.tasks() if task["task_id"] == "consume"]
    print(f"tries of the consumer, run by run: {tries}")


def running(stack: Stack, task_id: str) -> bool:
    return any(task["task_id"] == task_id and task["state"] == "running" for task in stack.rest.tasks())


def ask_as_the_deployment_does(stack: Stack) -> None:
    """Run the health checks of docker-compose.yml, each of which must find its service well."""
    services = yaml.safe_load((REPOSITORY / "docker-compose.yml").read_text())["services"]
    checks = [services[name]["healthcheck"]["test"] for name in stack.airflow.services]
    for kind, *command in checks:
        assert kind == "CMD"
        words = [
            word.replace("127.0.0.1:8080", stack.airflow.url.removeprefix("http://")) for word in command
        ]
        done = stack.airflow.run(words)
        assert done.returncode == 0, f"{command}: {done.stdout}"
