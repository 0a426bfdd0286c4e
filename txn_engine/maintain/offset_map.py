"""The latest offset of each key in a part of the log (Kafka's `OffsetMap`)."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

_KEY, _OFFSET = "key", "offset"
_FOLDS_A_MAP = 4


class OffsetMap:
    """Keys as they are, not their hashes: no two are ever taken for one.

    `max_bytes` is what keys and offsets may take; while new ones are worked in, about three times as much is in use.
    A map is full once that is reached, by whichever file: one file's keys always go in as a whole.
    """

    def __init__(self, key_type: pa.DataType, max_bytes: int) -> None:
        schema = pa.schema([(_KEY, key_type), (_OFFSET, pa.int64())])
        self._latest = schema.empty_table()
        self._new: list[pa.Table] = []
        self._new_bytes = 0
        self._max_bytes = max_bytes

    @property
    def is_full(self) -> bool:
        """Whether no more files should be added."""
        if self._new_bytes >= self._max_bytes // _FOLDS_A_MAP:
            self._fold()
        return self._latest.nbytes >= self._max_bytes

    def add(self, keys: pa.ChunkedArray[Any], offsets: pa.ChunkedArray[Any]) -> None:
        """Take in records, in any order."""
        new = pa.Table.from_arrays([keys, offsets], schema=self._latest.schema)
        self._new.append(new)
        self._new_bytes += new.nbytes

    def superseded(self, keys: pa.ChunkedArray[Any], offsets: pa.ChunkedArray[Any]) -> NDArray[np.bool_]:
        """For each of these records, whether the map has a later one of its key."""
        self._fold()
        if not self._latest.num_rows:
            return np.zeros(len(keys), np.bool_)
        value_set = self._latest.column(_KEY).combine_chunks()
        found: Any = pc.index_in(keys, value_set=value_set)
        known = found.fill_null(-1).to_numpy()
        latest = self._latest.column(_OFFSET).to_numpy()[known]
        superseded: NDArray[np.bool_] = (known >= 0) & (latest > offsets.to_numpy())
        return superseded

    def _fold(self) -> None:
        if not self._new:
            return
        together = pa.concat_tables([self._latest, *self._new])
        folded = together.group_by(_KEY, use_threads=False).aggregate([(_OFFSET, "max")])
        self._latest = folded.rename_columns({f"{_OFFSET}_max": _OFFSET}).select([_KEY, _OFFSET])
        self._new, self._new_bytes = [], 0
