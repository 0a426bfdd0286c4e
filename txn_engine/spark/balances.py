"""The demo's transform: what each account's payments of a run come to."""

from __future__ import annotations

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sf

_COLUMNS: list[tuple[str, pa.DataType]] = [
    ("account_id", pa.int64()),
    ("turnover", pa.decimal128(18, 2)),
    ("payments", pa.int64()),
]
BALANCES_SCHEMA = pa.schema(_COLUMNS)
CREDIT_TYPES = ("PRIJEM",)
DEBIT_TYPES = ("VYDAJ", "VYBER")
_MONEY = "decimal(18,2)"


def balances(payments: DataFrame) -> DataFrame:
    """`account_id`, `turnover` (credits less debits) and `payments`, a row an account that had any.

    Sums of a run's payments: added up over all rows of the output topic each account comes out right, however many runs
    wrote it. Exact decimals; a payment of another type or without an amount fails the job, it is never left out.
    """
    amount = sf.coalesce("amount", _refused("a payment without an amount, trans_id "))
    signed = (
        sf.when(sf.col("type").isin(*CREDIT_TYPES), amount)
        .when(sf.col("type").isin(*DEBIT_TYPES), -amount)
        .otherwise(_refused("a payment that is neither credit nor debit, trans_id "))
    )
    # Where spark.sql.ansi.enabled is turned off, a sum or a cast that overflows is null and no error.
    too_large = sf.raise_error(sf.lit(f"an account's turnover does not fit {_MONEY}")).cast(_MONEY)
    turnover = sf.coalesce(sf.sum(signed).cast(_MONEY), too_large)
    return payments.groupBy("account_id").agg(
        turnover.alias("turnover"), sf.count(sf.lit(1)).alias("payments")
    )


def _refused(what: str) -> Column:
    return sf.raise_error(sf.concat(sf.lit(what), sf.col("trans_id").cast("string"))).cast(_MONEY)
