"""The keys of a Delta table's log."""

from __future__ import annotations

import re
from typing import Final

from storage import InvalidKeyError

_INT64_MAX: Final = 2**63 - 1
_NAME = re.compile(r"([0-9]{20})\.(json|checkpoint\.parquet)")


def log_prefix(folder: str) -> str:
    """The folder of the log of the table with this root."""
    return f"{folder}/_delta_log/"


def commit_key(folder: str, version: int) -> str:
    """A version's commit."""
    return f"{log_prefix(folder)}{version:020d}.json"


def checkpoint_key(folder: str, version: int) -> str:
    """The state at a version."""
    return f"{log_prefix(folder)}{version:020d}.checkpoint.parquet"


def hint_key(folder: str) -> str:
    """Which checkpoint may be the newest."""
    return f"{log_prefix(folder)}_last_checkpoint"


def parse_commit_key(key: str, folder: str) -> int:
    """The version of a commit's key; `InvalidKeyError` for any other key."""
    found = _NAME.fullmatch(key.removeprefix(log_prefix(folder)))
    if (
        not key.startswith(log_prefix(folder))
        or found is None
        or found[2] != "json"
        or int(found[1]) > _INT64_MAX
    ):
        raise InvalidKeyError(f"{key[:200]!r} does not name a commit", actor="keys", place=log_prefix(folder))
    return int(found[1])
