"""Records for the bench: deterministic, and as hard to compress as payments are."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

_FIELDS: list[tuple[str, pa.DataType]] = [
    ("trans_id", pa.int64()),
    ("account_id", pa.int64()),
    ("date", pa.date32()),
    ("type", pa.string()),
    ("amount", pa.decimal128(18, 2)),
]
SCHEMA = pa.schema(_FIELDS)


def payments(rows: int, first_id: int = 0) -> pa.Table:
    """So many payments, their ids from `first_id` on."""
    ids = np.arange(first_id, first_id + rows, dtype=np.int64)
    mixed = (ids * 2654435761) % 4294967296
    cents = np.zeros((rows, 2), dtype=np.int64)  # a decimal128's two words, the lower one first
    cents[:, 0] = mixed % 10_000_000
    amounts = pa.Array.from_buffers(pa.decimal128(18, 2), rows, [None, pa.py_buffer(cents.tobytes())])
    kinds = pa.array(["PRIJEM", "VYDAJ", "VYBER"]).take(pa.array(mixed % 3, pa.int64()))
    return pa.table(
        [
            pa.array(ids),
            pa.array(mixed % 4_500),
            pa.array((8_400 + ids // 50_000).astype("int32")).cast(pa.date32()),
            kinds,
            amounts,
        ],
        schema=SCHEMA,
    )
