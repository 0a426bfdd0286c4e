"""A transform that waits, so that a run is still at work when others have gone on."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

GATE = "TXN_ENGINE_TEST_GATE"
"""Names a folder: the transform makes `reached` in it and waits for `open`."""


def balances(payments: DataFrame) -> DataFrame:
    """The balances, as soon as another process lets it go on."""
    from txn_engine.spark.balances import balances as sums

    gate = Path(os.environ[GATE])
    (gate / "reached").touch()
    until = time.monotonic() + 600
    while not (gate / "open").exists():
        if time.monotonic() > until:
            raise TimeoutError(f"nobody opened {gate}")
        time.sleep(0.1)
    return sums(payments)
