"""The command line against the store of a standalone Airflow: its keys stand in a file of this user's alone."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

_NOT_OURS = ("AWS_PROFILE", "AWS_SESSION_TOKEN", "TXN_ENGINE_S3_ENDPOINT")


def environment_file(store: Mapping[str, Any]) -> str:
    """What a shell reads to open the store of an Airflow connection, and nothing of another store's."""
    extra = store["extra"]
    values = {
        "TXN_ENGINE_URL": extra["url"],
        "TXN_ENGINE_S3_ENDPOINT": extra.get("endpoint_url"),
        "AWS_REGION": extra.get("region_name"),
        "AWS_ACCESS_KEY_ID": store.get("login"),
        "AWS_SECRET_ACCESS_KEY": store.get("password"),
    }
    lines = [f"export {name}={shlex.quote(value)}" for name, value in values.items() if value]
    return "\n".join(["# New at each start.", f"unset {' '.join(_NOT_OURS)}", *lines, ""])


def ready_line(file: Path) -> str:
    """A line to paste: the file is read, and the store asked."""
    program = Path(sys.executable).parent / "txn-engine"
    return f". {_named(file)} && {_named(program)} topics list"


def _named(path: Path) -> str:
    """From here, where it lies below: a line that fits."""
    if not path.is_relative_to(Path.cwd()):
        return shlex.quote(str(path))
    inside = path.relative_to(Path.cwd())
    return shlex.quote(str(inside) if len(inside.parts) > 1 else f"./{inside}")
