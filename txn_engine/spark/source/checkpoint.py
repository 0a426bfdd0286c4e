"""What Spark's checkpoint says of a micro-batch: which offsets it has."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Final

from storage import StorageError, open_store

_BYTES_MAX: Final = 16 << 20
_HEAD_LINES: Final = 2  # the version, and what says when the batch was planned


def offsets_of(checkpoint: str | None, batch_id: int, endpoint: str | None) -> str:
    """A digest of the offsets that Spark has journalled for a micro-batch, of all its sources; "" where the checkpoint
    is none that can be read here: it is on this machine's disk, or on S3 as the environment gets at it.

    Spark writes them before it begins the micro-batch, and reads them when it tries it again.
    """
    text = _journal(checkpoint or "", batch_id, endpoint)
    lines = text.split("\n")
    if len(lines) <= _HEAD_LINES:
        return ""
    return hashlib.sha256("\n".join(lines[_HEAD_LINES:]).encode()).hexdigest()[:32]


def _journal(checkpoint: str, batch_id: int, endpoint: str | None) -> str:
    scheme, colon, rest = checkpoint.partition(":")
    name = f"offsets/{batch_id}"
    try:
        if colon and scheme in ("s3", "s3a"):
            store = open_store(f"s3:{rest}", endpoint=endpoint)
            try:
                return store.get(name, max_bytes=_BYTES_MAX).decode()
            finally:
                store.close()
        local = f"/{rest.lstrip('/')}" if colon and scheme == "file" else checkpoint
        return Path(local, name).read_text(encoding="utf-8") if local.startswith("/") else ""
    except (OSError, StorageError, UnicodeDecodeError):
        return ""
