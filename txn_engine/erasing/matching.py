"""What tells which records are to go. Nothing that it says is kept."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray


@runtime_checkable
class Matcher(Protocol):
    """A predicate over one topic's records."""

    @property
    def columns(self) -> Sequence[str]:
        """The columns that it looks at: the topic's, `_partition`, `_offset`, `_timestamp`."""

    @property
    def is_constant(self) -> bool:
        """Whether it says the same of every record, whatever is in it."""

    def matches(self, records: pa.Table) -> NDArray[np.bool_]:
        """Which of these records it chooses. They have its columns."""
