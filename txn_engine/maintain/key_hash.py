"""Which of 256 buckets a key falls into: equal keys into the same one, on whole columns.

It only spreads keys, and decides nothing: within a bucket keys are compared as they are.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

BUCKETS: Final = 256
_MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)
_HALF, _TOP = np.uint64(32), np.uint64(56)
_WORD: Final = 8
_BYTES_MAX: Final = 512
"""Of a key: what lies behind does not spread it. A longer one costs no more for that."""
_MASKS = np.array([(1 << (8 * count)) - 1 for count in range(_WORD + 1)], dtype=np.uint64)


def buckets_of(keys: pa.Array[Any]) -> NDArray[np.uint8]:
    """The bucket of each key: integers, strings or binary, none of them null."""
    if pa.types.is_integer(keys.type):
        hashes = _mixed(keys.to_numpy().astype(np.int64).view(np.uint64))
    else:
        hashes = _hash_bytes(keys.cast(pa.large_binary()))
    return (hashes >> _TOP).astype(np.uint8)


def _mixed(values: NDArray[np.uint64]) -> NDArray[np.uint64]:
    values = values * _MULTIPLIER
    values ^= values >> _HALF
    values *= _MULTIPLIER
    return values ^ (values >> _HALF)


def _hash_bytes(keys: pa.Array[Any]) -> NDArray[np.uint64]:
    """Eight bytes of every key at a time, as long as any has more."""
    _, bounds, payload = keys.buffers()
    ends = np.frombuffer(memoryview(bounds or b""), np.int64)[keys.offset : keys.offset + len(keys) + 1]
    content = np.frombuffer(memoryview(payload or b""), np.uint8)[ends[0] : ends[-1]]
    padded = np.concatenate([content, np.zeros(_WORD, np.uint8)])
    words: NDArray[np.uint64] = np.ndarray((len(content) + 1,), "<u8", padded, strides=(1,))
    starts, lengths = ends[:-1] - ends[0], np.diff(ends)
    hashes = _mixed(lengths.astype(np.uint64))
    for at in range(0, min(int(lengths.max(initial=0)), _BYTES_MAX), _WORD):
        going = np.nonzero(lengths > at)[0]
        left = np.minimum(lengths[going] - at, _WORD)
        hashes[going] = _mixed(hashes[going] ^ (words[starts[going] + at] & _MASKS[left]))
    return hashes
