"""Where things that are fetched or made once are kept: Spark's jars, the shim of a Java from a wheel."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path


def cache_folder(environment: Mapping[str, str] = os.environ) -> Path:
    """`TXN_ENGINE_CACHE`, else `txn-engine` in the user's cache folder. It may not exist yet."""
    if own := environment.get("TXN_ENGINE_CACHE"):
        return Path(own)
    users = environment.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(users).expanduser() / "txn-engine"
