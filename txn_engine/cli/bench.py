"""`txn-engine bench`: the numbers, each against its bare limit."""

from __future__ import annotations

from pathlib import Path
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
        "txn-engine bench --rounds",
        "txn-engine bench --kafka 127.0.0.1:9092",
        "txn-engine bench --growth --svg growth.svg",
        "txn-engine bench --sql --full",
        "txn-engine bench --backup",
        "txn-engine bench --tables",
        "txn-engine bench --cuts",
        "txn-engine bench --load",
        "txn-engine bench --spark reads --spark-rows 5000000",
        "txn-engine bench --url s3://ledger/bench --endpoint http://127.0.0.1:9000",
    ),
)
@click.option("--quick", is_flag=True, help="Fewer rounds and records: a first look, with more noise.")
@click.option(
    "--rounds",
    is_flag=True,
    help="Store calls that wait for one another: transactions, a consumer's cycle, an append, a fresh process's first "
    "steps, over a store in memory whose calls take time; each beside the least possible. Nothing else.",
)
@click.option(
    "--call-ms",
    type=click.FloatRange(min=0.1),
    default=60.0,
    metavar="MS",
    help="With --rounds: how long a call takes; 60 is the order of a bucket in a cloud.",
)
@click.option(
    "--kafka",
    "bootstrap",
    metavar="HOST:PORT",
    help="Transactions beside those of the Kafka broker there, in turn: to the commit's return, to visible, to "
    "complete, back to back. Nothing else. Needs confluent-kafka; in a checkout `make bench ARGS=--kafka` brings a "
    "broker.",
)
@click.option(
    "--growth",
    is_flag=True,
    help="How cost grows: appends from the first on, live files in a partition, processes that append at once, "
    "transactional ids. Nothing else. About three minutes.",
)
@click.option(
    "--full",
    is_flag=True,
    help="With --growth: up to 100,000 appends, 200,000 files and 100,000 ids, the better part of an hour. With --sql: "
    "50 million rows.",
)
@click.option(
    "--svg",
    type=click.Path(dir_okay=False, writable=True, path_type=Path),
    metavar="FILE",
    help="With --growth: the curves as a picture.",
)
@click.option(
    "--cuts",
    is_flag=True,
    help="Cuts of 50 partitions with 1,000 transactions open, beside the same reads and puts done bare. Nothing else. "
    "About two minutes.",
)
@click.option(
    "--backup",
    is_flag=True,
    help="Backups and a restore, each beside a bare copy of the same files. Nothing else. With --url of a bucket it "
    "needs --to.",
)
@click.option(
    "--to",
    metavar="URL",
    help="With --backup: where the copies go, in folders of their own: what is in a bucket stays there.",
)
@click.option(
    "--tables",
    is_flag=True,
    help="Publishing a topic as Delta and Iceberg, up to 10,000 versions of 10,000 files: what the last ones cost, "
    "over the first, and the first query of it by other engines, over the same files bare. Nothing else. The better "
    "part of an hour; with --quick a tenth.",
)
@click.option(
    "--load",
    is_flag=True,
    help="Loading a csv file with one bad row in a hundred, beside the same without; reading csv and JSON lines, "
    "beside PyArrow's readers; the memory of a load of 10 million rows. Nothing else. Some five minutes.",
)
@click.option(
    "--load-rows",
    type=click.IntRange(min=1_000),
    metavar="N",
    help="With --load: all files of so many rows; else of a million, and the one whose memory is looked at of ten.",
)
@click.option(
    "--sql",
    is_flag=True,
    help="Queries by engine.sql beside bare DuckDB over the same files, 5 million rows in 40; with --full 50 million "
    "in 100. Nothing else.",
)
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
    quick: bool,
    rounds: bool,
    call_ms: float,
    bootstrap: str | None,
    growth: bool,
    full: bool,
    svg: Path | None,
    cuts: bool,
    backup: bool,
    to: str | None,
    tables: bool,
    load: bool,
    load_rows: int | None,
    sql: bool,
    spark_part: SparkPart | None,
    spark_rows: int | None,
    place: Place,
    out: Output,
) -> None:
    """Measure appends, transactions, large batches and scans, each against the bare limit in the same run.

    Without --url (or TXN_ENGINE_URL) it works on the local disk, in a folder of its own that is removed at the end.
    """
    from storage import backend_of
    from txn_engine import bench as numbers

    _one_of(
        rounds=rounds,
        kafka=bootstrap is not None,
        growth=growth,
        cuts=cuts,
        backup=backup,
        tables=tables,
        load=load,
        sql=sql,
        spark=spark_part is not None,
    )
    if (full and not (growth or sql)) or (svg and not growth):
        raise click.UsageError("--full goes with --growth or --sql, --svg with --growth")
    _goes_with(load_rows, "--load-rows", load, "--load")
    _goes_with(to, "--to", backup, "--backup")
    if backup and to is None and backend_of(place.url or "") is not None:
        raise click.UsageError("--backup of a store in a bucket is told by --to where the copies go")
    place.to_environment()
    if rounds:
        code = numbers.run_rounds(
            json_output=out.as_json, console=out.console(), quick=quick, call_ms=call_ms
        )
    elif bootstrap is not None:
        code = numbers.run_kafka(
            url=place.url, json_output=out.as_json, console=out.console(), quick=quick, bootstrap=bootstrap
        )
    elif growth:
        code = numbers.run_growth(
            url=place.url, json_output=out.as_json, console=out.console(), full=full, svg=svg
        )
    elif cuts:
        code = numbers.run_cuts(url=place.url, json_output=out.as_json, console=out.console(), quick=quick)
    elif backup:
        code = numbers.run_backup(
            url=place.url, to=to, json_output=out.as_json, console=out.console(), quick=quick
        )
    elif tables:
        code = numbers.run_tables(url=place.url, json_output=out.as_json, console=out.console(), quick=quick)
    elif load:
        code = numbers.run_load(
            url=place.url, json_output=out.as_json, console=out.console(), quick=quick, rows=load_rows
        )
    elif sql:
        code = numbers.run_sql(
            url=place.url, json_output=out.as_json, console=out.console(), quick=quick, full=full
        )
    else:
        code = numbers.run_bench(
            url=place.url,
            json_output=out.as_json,
            console=out.console(),
            quick=quick,
            spark_part=spark_part,
            spark_rows=spark_rows,
        )
    raise click.exceptions.Exit(code)


def _one_of(**parts: bool) -> None:
    """Each of these is a run of its own."""
    asked = [f"--{name}" for name, given in parts.items() if given]
    if len(asked) > 1:
        raise click.UsageError(f"{' and '.join(asked)} are runs of their own: give one of them")


def _goes_with(given: object, option: str, is_there: bool, other: str) -> None:
    if given is not None and not is_there:
        raise click.UsageError(f"{option} goes with {other}")
