"""A digest of rows that does not depend on their order, nor on who read them.

A row's hash is two words of 64 bits; a digest is the sum of each over all rows, modulo 2^64. So digests of parts add up
to that of the whole, and what came to rows between two digests is their difference. Two sets of rows that differ by
accident have the same digest with a chance of 2^-128. It is no guard against somebody who wants two sets to look alike:
sums of hashes can be made to meet.

A value's word goes through the finalizer of SplitMix64 under a key made of its column's name; a row adds its columns'
words up and goes through it once more, without which values swapped between rows would go unseen. Text and bytes are
hashed by XXH3.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import xxhash
from numpy.typing import NDArray

from txn_engine.errors import InvalidRequestError
from txn_engine.held import held_type, laid_out, words_of_decimals
from txn_engine.reasons import Reason

Words = NDArray[np.uint64]
_WORD: Final = (1 << 64) - 1
_LANES: Final = ("low", "high")
_BATCH_ROWS: Final = 32_768
_FIRST, _SECOND = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
_STEP: Final = np.uint64(0x9E3779B97F4A7C15)
_BITS: Final = {16: np.uint16, 32: np.uint32, 64: np.uint64}


class Digest(NamedTuple):
    """Of so many rows."""

    rows: int = 0
    low: int = 0
    high: int = 0

    def plus(self, other: Digest) -> Digest:
        """Of the rows of both."""
        return Digest(
            self.rows + other.rows, (self.low + other.low) & _WORD, (self.high + other.high) & _WORD
        )

    def less(self, other: Digest) -> Digest:
        """Of the rows of this one without those of the other, which are among them."""
        return Digest(
            self.rows - other.rows, (self.low - other.low) & _WORD, (self.high - other.high) & _WORD
        )

    def __str__(self) -> str:
        return f"{self.rows:,} rows, {self.hex}"

    @property
    def hex(self) -> str:
        """The sums as 32 digits."""
        return f"{self.high:016x}{self.low:016x}"


def digest_of(table: pa.Table | pa.RecordBatch) -> Digest:
    """Of the rows of all its columns, whatever the order of both; the columns' names count.

    Raises `InvalidRequestError` for a type that has no digest.
    """
    found = Digest()
    whole = pa.Table.from_batches([table]) if isinstance(table, pa.RecordBatch) else table
    for batch in whole.to_batches(max_chunksize=_BATCH_ROWS):
        low, high = (int(_row_hashes(batch, lane).sum(dtype=np.uint64)) for lane in _LANES)
        found = found.plus(Digest(batch.num_rows, low, high))
    return found


def row_keys(table: pa.Table) -> list[str]:
    """Each row's hash as 32 digits: what stands for a row where its values may not."""
    if not table.num_rows:
        return []
    batch = table.combine_chunks().to_batches()[0]
    low, high = (_row_hashes(batch, lane).tolist() for lane in _LANES)
    return [f"{upper:016x}{lower:016x}" for lower, upper in zip(low, high, strict=True)]


def _row_hashes(batch: pa.RecordBatch, lane: str) -> Words:
    total = np.zeros(batch.num_rows, np.uint64)
    for field, column in zip(batch.schema, batch.columns, strict=True):
        total += _hashes(laid_out(column, held_type(field.type)), field.name, lane)
    return _mixed(total)


def _mixed(words: Words) -> Words:
    """SplitMix64's finalizer, in place: every bit of the answer depends on every bit of the word, none is lost."""
    words ^= words >> np.uint64(30)
    words *= _FIRST
    words ^= words >> np.uint64(27)
    words *= _SECOND
    words ^= words >> np.uint64(31)
    return words


def _key(lane: str, path: str) -> np.uint64:
    return np.uint64(xxhash.xxh3_64_intdigest(f"{lane}/{path}".encode()))


def _hashes(column: Any, path: str, lane: str) -> Words:
    """One word a value; a null has a word of its own."""
    if isinstance(column, pa.ExtensionArray):
        column = column.storage
    found = _present_hashes(column, path, lane)
    if column.null_count:
        found[np.asarray(column.is_null())] = _key(lane, f"{path}/null")
    return found


def _present_hashes(column: Any, path: str, lane: str) -> Words:
    """As `_hashes`; what stands at a null counts for nothing."""
    kind = column.type
    if pa.types.is_null(kind):
        return np.zeros(len(column), np.uint64)
    if _is_text(kind):
        return _text_hashes(column, path, lane)
    if pa.types.is_struct(kind):
        return _struct_hashes(column, path, lane)
    if pa.types.is_map(kind) or pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return _list_hashes(column, path, lane)
    if pa.types.is_fixed_size_list(kind):
        return _list_hashes(column.cast(pa.list_(kind.value_field)), path, lane)
    total = np.zeros(len(column), np.uint64)
    for number, words in enumerate(_words(column)):
        total += _mixed(words ^ _key(lane, f"{path}/{number}"))
    return total


def _words(column: Any) -> Sequence[Words]:
    """The value as words of 64 bits, the lower ones first."""
    kind = column.type
    if pa.types.is_boolean(kind):
        return [np.asarray(column.cast(pa.uint8()).fill_null(0)).astype(np.uint64)]
    if pa.types.is_decimal(kind):
        wide = column.cast(pa.decimal128(kind.precision, kind.scale)) if kind.bit_width < 128 else column
        words = words_of_decimals(wide, np.uint64)
        return [words[:, number].copy() for number in range(words.shape[1])]
    if pa.types.is_floating(kind):
        return [_float_words(column)]
    try:
        width = kind.bit_width
    except ValueError:
        width = 0
    if width not in (8, 16, 32, 64):
        raise InvalidRequestError(
            f"a column of type {kind}",
            actor="digest",
            expected="a type that a digest knows",
            reason=Reason.UNSUPPORTED_TYPE,
        )
    if pa.types.is_unsigned_integer(kind):
        return [np.asarray(column.fill_null(0)).astype(np.uint64)]
    whole = column.view(getattr(pa, f"int{width}")()).fill_null(0)
    return [np.asarray(whole).astype(np.int64).view(np.uint64)]


def _float_words(column: Any) -> Words:
    """The bits; all that are no number look alike."""
    values = np.asarray(column.fill_null(0)).copy()
    values[np.isnan(values)] = np.nan
    return values.view(_BITS[column.type.bit_width]).astype(np.uint64)


def _is_text(kind: pa.DataType) -> bool:
    return any(
        judge(kind)
        for judge in (
            pa.types.is_string,
            pa.types.is_large_string,
            pa.types.is_binary,
            pa.types.is_large_binary,
            pa.types.is_fixed_size_binary,
        )
    )


def _text_hashes(column: Any, path: str, lane: str) -> Words:
    encoded = column.dictionary_encode()
    seed = int(_key(lane, path))
    hashed = [
        xxhash.xxh3_64_intdigest(value, seed)
        for value in encoded.dictionary.cast(pa.large_binary()).to_pylist()
    ]
    known = np.array([*hashed, 0], np.uint64)
    found: Words = known[np.asarray(encoded.indices.fill_null(len(hashed)).cast(pa.int64()))]
    return found


def _struct_hashes(column: Any, path: str, lane: str) -> Words:
    total = np.full(len(column), _key(lane, path), np.uint64)
    for field, member in zip(column.type, column.flatten(), strict=True):
        total += _hashes(member, f"{path}.{field.name}", lane)
    return _mixed(total)


def _list_hashes(column: Any, path: str, lane: str) -> Words:
    """A list is its members in their order; a map its entries in any."""
    is_map = pa.types.is_map(column.type)
    offsets = np.asarray(column.offsets).astype(np.int64)
    first, behind = int(offsets[0]), int(offsets[-1])
    entries = column.values
    if is_map:
        entries = pa.StructArray.from_arrays([column.keys, column.items], ["key", "value"])
    hashes = _hashes(entries.slice(first, behind - first), f"{path}[]", lane)
    lengths = np.diff(offsets)
    if not is_map:
        place = np.arange(behind - first) - np.repeat(offsets[:-1] - first, lengths)
        hashes = _mixed(hashes + place.astype(np.uint64) * _STEP)
    sums = np.concatenate([np.zeros(1, np.uint64), np.cumsum(hashes, dtype=np.uint64)])
    total = sums[offsets[1:] - first] - sums[offsets[:-1] - first]
    return _mixed(total + lengths.astype(np.uint64) * _STEP + _key(lane, path))
