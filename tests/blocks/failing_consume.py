"""A task consumes a payment that its transform refuses, in a process whose standard error is the task's log.

python -m tests.blocks.failing_consume URL: prints on standard output what was raised.
"""

from __future__ import annotations

import logging
import os
import sys
from typing import Any


def main(url: str) -> None:
    from txn_engine_airflow.consume import consume_with_spark

    os.environ["TXN_ENGINE_URL"] = url
    os.environ["TXN_ENGINE_CONNECTIONS"] = "txn_engine_default"
    logging.basicConfig(level=logging.INFO, force=True)  # Airflow's own takes the place of one made before
    params: dict[str, Any] = {
        "topic": "payments",
        "group_id": "balances",
        "output_topic": "balances",
        "transactional_id": "balances",
        "transform": "txn_engine.spark.balances:balances",
        "conn_id": "txn_engine_default",
    }
    try:
        consume_with_spark(params, run_id="run", emit=lambda *_: None)
    except Exception as error:  # noqa: BLE001 - said, whatever it is
        print(f"raised {error}")


if __name__ == "__main__":
    main(sys.argv[1])
