"""A transform that waits, so that a run is still at work when others have gone on."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from tests.support.waiting import wait_for

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

GATE = "TXN_ENGINE_TEST_GATE"
"""Names a folder: the transform makes `reached` in it and waits for `open`."""


def balances(payments: DataFrame) -> DataFrame:
    """The balances, as soon as another process lets it go on."""
    from txn_engine.spark.balances import balances as sums

    gate = Path(os.environ[GATE])
    (gate / "reached").touch()
    wait_for((gate / "open").exists, what=f"the test to open {gate}", limit_s=600)
    return sums(payments)
