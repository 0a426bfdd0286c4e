"""The numbers, each against its bare limit in the same run."""

from txn_engine.bench.run import (
    print_report,
    run_backup,
    run_bench,
    run_cuts,
    run_growth,
    run_kafka,
    run_load,
    run_rounds,
    run_sql,
    run_tables,
)

__all__ = [
    "print_report",
    "run_backup",
    "run_bench",
    "run_cuts",
    "run_growth",
    "run_kafka",
    "run_load",
    "run_rounds",
    "run_sql",
    "run_tables",
]
