"""The columns of a Parquet object, by its footer alone: the rest of it is neither read nor checked."""

from __future__ import annotations

from typing import Final, NoReturn

import pyarrow as pa
import pyarrow.parquet as pq

from storage.envelope import UNREADABLE
from storage.errors import DamagedObjectError
from storage.parquet_footer import Footer, read_footer
from storage.parquet_limits import DATA_LIMITS, LimitError, ParquetLimits
from storage.store import ObjectStore

_MAGIC: Final = b"PAR1"
_END_BYTES: Final = 8
_TAIL_BYTES: Final = 16 << 10


def stored_columns(store: ObjectStore, key: str, size: int, limits: ParquetLimits = DATA_LIMITS) -> pa.Schema:
    """The columns as they are stored, field ids in their metadata, of an object of `size` bytes. As `stored_footer`."""
    _, end = _end_of(store, key, size, limits)
    try:
        return pq.read_schema(pa.BufferReader(_MAGIC + end))
    except UNREADABLE as error:
        _damaged(key, f"no readable Parquet footer: {error}")


def stored_footer(store: ObjectStore, key: str, size: int) -> Footer:
    """The footer of an object of `size` bytes.

    Costs one read of its last 16 KiB, and another one where the footer is larger. DamagedObjectError where it ends
    before, or has no footer within the limits of data files.
    """
    return _end_of(store, key, size, DATA_LIMITS)[0]


def _end_of(store: ObjectStore, key: str, size: int, limits: ParquetLimits) -> tuple[Footer, bytes]:
    """What the footer says, and the bytes from its beginning on."""
    length = min(size, _TAIL_BYTES)
    tail = store.get_range(key, size - length, length)
    footer_bytes = int.from_bytes(tail[-_END_BYTES:-4], "little")
    if size < len(_MAGIC) + _END_BYTES or tail[-4:] != _MAGIC:
        _damaged(key, f"{size} bytes that do not end as a Parquet file does")
    try:
        limits.check_footer_bytes(footer_bytes, size)
        whole = footer_bytes + _END_BYTES
        if whole > size:
            _damaged(key, f"a footer of {footer_bytes} bytes, and {size} in all")
        if whole > length:
            tail = store.get_range(key, size - whole, whole)
        return read_footer(tail[-whole:-_END_BYTES]), tail[-whole:]  # before Arrow sees it
    except LimitError as error:
        _damaged(key, str(error))
    except UNREADABLE as error:
        _damaged(key, f"no readable Parquet footer: {error}")


def _damaged(key: str, seen: str) -> NoReturn:
    raise DamagedObjectError(
        f"the object holds {seen}",
        actor="footers",
        place=key,
        expected="a Parquet file within the format's limits",
        action="restore the object from a copy; do not delete it",
    )
