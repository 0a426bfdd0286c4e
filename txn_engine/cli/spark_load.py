"""`txn-engine produce --engine spark`: files that Spark lists and its executors read, into a topic."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from txn_engine.cli.command import Place
from txn_engine.cli.output import Output
from txn_engine.cli.produced import tell_committed_before, tell_produced
from txn_engine.cli.spark_session import spark_of_command, spark_settings
from txn_engine.extras import need

if TYPE_CHECKING:
    from txn_engine.producer import ForgottenRuns


def load_by_spark(
    place: Place,
    out: Output,
    topic: str,
    paths: Sequence[str],
    transactional_id: str | None,
    run_id: str,
    forgotten_runs: ForgottenRuns,
    timeout_s: int | None,
    spark_conf: Sequence[str],
    reading: dict[str, Any],
    rejecting: dict[str, Any],
) -> None:
    """Load them in one transaction of the run, and say where the records went."""
    from txn_engine.producer.time_out import job_timeout_ms

    need("spark", actor="produce")
    settings = spark_settings(spark_conf)
    name = f"load-files/{topic}" if transactional_id is None else transactional_id
    place.to_environment()
    with place.open() as engine, ExitStack() as stack:
        engine.admin.describe_topic(topic)  # refused before a JVM is started
        timeout_ms = job_timeout_ms(engine.limits, None if timeout_s is None else timeout_s * 1_000)
        from txn_engine.spark import load_files

        with out.progress("starting Spark"):
            session = spark_of_command(engine.url, f"txn-engine produce {topic}", settings)
            spark = stack.enter_context(session)
        with out.progress("loading by Spark"):
            result = load_files(
                spark,
                engine,
                topic,
                list(paths),
                run_id=run_id,
                transactional_id=name,
                forgotten_runs=forgotten_runs,
                transaction_timeout_ms=timeout_ms,
                **rejecting,
                **reading,
            )
    if result.already_committed:
        tell_committed_before(out, name, run_id)
    else:
        told: dict[str, Any] = {"transactional_id": name, "run_id": run_id, "committed_before": False}
        if rejecting["dead_letter_topic"] is not None:
            told |= {
                "dead_letters": result.dead_letters,
                "dead_letter_topic": rejecting["dead_letter_topic"],
            }
        tell_produced(out, result.batches, **told)
