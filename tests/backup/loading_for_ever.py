"""A process that loads for ever, and says what it was told of as done: `python -m tests.backup.loading_for_ever
transactions | appends`, on the store of the environment.

It ends with exit code 3 when it is told that the store was replaced.
"""

from __future__ import annotations

import sys
from itertools import count

import pyarrow as pa

from txn_engine import connect
from txn_engine.errors import InconsistentClusterIdError

REPLACED = 3
FIRST = 1_000
SCHEMA = pa.schema([("account_id", pa.int64()), ("amount", pa.int64())])


def main(how: str) -> None:
    with connect() as engine:
        if how == "appends":
            log = engine.partition("payments", 0)
            for number in count(FIRST):
                log.append(payments(number))
                print(number, flush=True)
        with engine.producer(transactional_id="for-ever") as producer:
            producer.init_transactions()
            for number in count(FIRST):
                with producer.transaction(run_id=str(number)):
                    for partition in (0, 1):
                        producer.produce("payments", payments(number), partition=partition)
                print(number, flush=True)


def payments(number: int) -> pa.Table:
    return pa.table({"account_id": [number], "amount": [1]}, schema=SCHEMA)


if __name__ == "__main__":
    try:
        main(sys.argv[1])
    except InconsistentClusterIdError:
        sys.exit(REPLACED)
