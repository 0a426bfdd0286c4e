"""What Spark's checkpoint says of a micro-batch: which offsets it has."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Final

from storage import StorageError, backend_of, open_store
from txn_engine.spark.source.options import StoreOptions

_BYTES_MAX: Final = 16 << 20
_HEAD_LINES: Final = 2  # the version, and what says when the batch was planned


def offsets_of(checkpoint: str | None, batch_id: int, store: StoreOptions) -> str:
    """A digest of the offsets that Spark has journalled for a micro-batch, of all its sources; "" where the checkpoint
    is none that can be read here: it is on this machine's disk, or in a bucket as the environment gets at it, at the
    store's endpoint where it is of the store's kind.

    Spark writes them before it begins the micro-batch, and reads them when it tries it again.
    """
    text = _journal(checkpoint or "", batch_id, store)
    lines = text.split("\n")
    if len(lines) <= _HEAD_LINES:
        return ""
    return hashlib.sha256("\n".join(lines[_HEAD_LINES:]).encode()).hexdigest()[:32]


def _journal(checkpoint: str, batch_id: int, options: StoreOptions) -> str:
    scheme, colon, rest = checkpoint.partition(":")
    backend = backend_of(checkpoint)
    name = f"offsets/{batch_id}"
    try:
        if backend is not None:
            is_stores = backend is backend_of(options.url)
            store = open_store(checkpoint, endpoint=options.endpoint if is_stores else None)
            try:
                return store.get(name, max_bytes=_BYTES_MAX).decode()
            finally:
                store.close()
        local = f"/{rest.lstrip('/')}" if colon and scheme == "file" else checkpoint
        return Path(local, name).read_text(encoding="utf-8") if local.startswith("/") else ""
    except (OSError, StorageError, UnicodeDecodeError):
        return ""
