"""A store that was written by the code from before cuts and tables existed. See `write_store`."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from tests.support import kept_stores

store_of_before = partial(kept_stores.unpacked, Path(__file__).parent)
rows_of_before = partial(kept_stores.expected_rows, Path(__file__).parent)
