"""The numbers, each against its bare limit in the same run."""

from txn_engine.bench.run import run_bench

__all__ = ["run_bench"]
