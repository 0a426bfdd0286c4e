"""Records of every type for which a Postgres column can be made, with extreme values, nulls and awkward
texts."""

from __future__ import annotations

from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any

import pyarrow as pa

_COLUMNS: dict[str, tuple[pa.DataType, list[Any]]] = {
    "tiny": (pa.int8(), [-128, 127, None]),
    "small": (pa.int16(), [-(2**15), 2**15 - 1, None]),
    "whole": (pa.int32(), [-(2**31), 2**31 - 1, None]),
    "big": (pa.int64(), [-(2**63), 2**63 - 1, None]),
    "counted": (pa.uint64(), [0, 2**64 - 1, None]),
    "money": (
        pa.decimal128(38, 10),
        [Decimal("-1234567890123456789012345678.0123456789"), Decimal("0E-10"), None],
    ),
    "real": (pa.float32(), [1.5, -3.4028234663852886e38, None]),
    "double": (pa.float64(), [0.1, -1.7976931348623157e308, None]),
    "flag": (pa.bool_(), [True, False, None]),
    "text": (pa.string(), ['a "quoted", line\nand \\. another\r\n', "", None]),
    "other": (pa.large_string(), ["\\N", "ünïcödé 漢字", None]),
    "raw": (pa.binary(), [b"\x00\xff\\", b"", None]),
    "day": (pa.date32(), [date(1, 1, 1), date(9999, 12, 31), None]),
    "hour": (pa.time64("us"), [time(0), time(23, 59, 59, 999999), None]),
    "minute": (pa.time32("ms"), [time(12, 30, 0, 1000), time(0), None]),
    "moment": (
        pa.timestamp("us", "UTC"),
        [datetime(1, 1, 1, tzinfo=UTC), datetime(2026, 1, 31, 9, 30, 0, 123456, UTC), None],
    ),
    "local": (pa.timestamp("us"), [datetime(1970, 1, 1), datetime(9999, 12, 31, 23, 59, 59, 999999), None]),  # noqa: DTZ001
}

RECORDS = pa.table(
    {name: pa.array(values, kind) for name, (kind, values) in _COLUMNS.items()},
    schema=pa.schema([(name, kind) for name, (kind, _) in _COLUMNS.items()]),
)
