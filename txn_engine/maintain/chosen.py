"""Some of the records of a partition's files: a bit for each."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from txn_engine.maintain.neighbours import Run
from txn_engine.protocol.partition import LogFile


class Chosen:
    """Records of files: a bit for each in their order, the first the highest of its byte; None for all of them."""

    def __init__(self, files: Sequence[LogFile], bits: NDArray[np.uint8] | None) -> None:
        self._files = files
        self._bits = bits
        self._starts = [0, *np.cumsum([file.record_count for file in files]).tolist()]

    @property
    def counts(self) -> Sequence[int]:
        """How many there are of each file."""
        counts = []
        for number, file in enumerate(self._files):
            mask = self.mask(number, number + 1)
            counts.append(file.record_count if mask is None else int(mask.sum()))
        return counts

    def run(self, start: int, end: int) -> Run:
        """Neighbours among the files."""
        return tuple(self._files[start:end])

    def mask(self, start: int, end: int) -> NDArray[np.bool_] | None:
        """A bool for each record of a run, None: all of them."""
        if self._bits is None:
            return None
        first, behind = self._starts[start], self._starts[end]
        whole = np.unpackbits(self._bits[first // 8 : (behind + 7) // 8])
        return whole[first % 8 : first % 8 + behind - first].view(np.bool_)
