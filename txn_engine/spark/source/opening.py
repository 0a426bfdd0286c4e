"""The engine of a data source: Spark makes it anew in each of its processes, from the options alone."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from txn_engine.engine import Engine, connect
from txn_engine.errors import StoreAccessError
from txn_engine.spark.session import check_spark_url
from txn_engine.spark.source.options import ACTOR, StoreOptions


def open_engine(store: StoreOptions) -> Engine:
    """Whoever opens it closes it. Raises for a store in memory, which is of one process."""
    check_spark_url(store.url)
    if store.access_file is None:
        return connect(store.url, endpoint=store.endpoint)
    return connect(store.url, **_access(store.access_file))


def write_access(folder: str, access: Mapping[str, str | None]) -> str:
    """Leave what `connect()` is to be given in a file that no other user reads; its path."""
    path = Path(folder, "access.json")
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
        json.dump(access, file)
    return str(path)


def _access(path: str) -> dict[str, Any]:
    try:
        found: dict[str, Any] = json.loads(Path(path).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise StoreAccessError(
            f"no credentials in the file of the query: {type(error).__name__}",
            actor=ACTOR,
            place=path,
            expected="what stream_topic left for the time of its query",
            action="start the query again",
        ) from None
    return found
