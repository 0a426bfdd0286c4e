"""`txn-engine bench`: the numbers, each against its bare limit."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from txn_engine.cli.command import SETTINGS, Command, Place, common_options
from txn_engine.cli.output import Output

if TYPE_CHECKING:
    from txn_engine.bench.spark import SparkPart


@click.command(
    cls=Command,
    short_help="The numbers, each against its bare limit.",
    context_settings=SETTINGS,
    examples=(
        "txn-engine bench",
        "txn-engine bench --quick --json",
        "txn-engine bench --spark reads --spark-rows 5000000",
        "txn-engine bench --url s3://ledger/bench --endpoint http://127.0.0.1:9000",
    ),
)
@click.option("--quick", is_flag=True, help="Fewer rounds and records: a first look, with more noise.")
@click.option(
    "--spark",
    "spark_part",
    is_flag=False,
    flag_value="all",
    type=click.Choice(["all", "reads", "writes", "streams"]),
    help="What Spark reads, writes and streams, beside bare Spark in the same session, and nothing else.",
)
@click.option(
    "--spark-rows",
    type=click.IntRange(min=1_000_000),
    metavar="N",
    help="With --spark: of so many rows; else 50 million are read, 20 written, 40 streamed, a tenth with --quick.",
)
@common_options
def bench(
    quick: bool, spark_part: SparkPart | None, spark_rows: int | None, place: Place, out: Output
) -> None:
    """Measure appends, transactions, large batches and scans, each against the bare limit in the same run.

    Without --url (or TXN_ENGINE_URL) it works on the local disk, in a folder of its own that is removed at the end.
    """
    from txn_engine.bench import run_bench

    place.to_environment()
    code = run_bench(
        url=place.url,
        json_output=out.as_json,
        console=out.console(),
        quick=quick,
        spark_part=spark_part,
        spark_rows=spark_rows,
    )
    raise click.exceptions.Exit(code)
