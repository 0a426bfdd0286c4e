"""The command line against the store of a standalone Airflow: its keys stand in a file of this user's alone."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from txn_engine_airflow.connection import StoreConnection
from txn_engine_airflow.kinds import kind_of


def environment_file(store: Mapping[str, Any]) -> str:
    """What a shell reads to open the store of an Airflow connection, and nothing of another store's."""
    given = {**store["extra"], **store}
    kind = kind_of(given["url"])
    values = {"TXN_ENGINE_URL": given["url"]}
    unset = list(kind.identities) if kind is not None else []
    for setting in kind.settings if kind is not None else ():
        unset.append(setting.variable)
        if given.get(setting.field):
            values[setting.variable] = given[setting.field]
    forgotten = [f"unset {' '.join(unset)}"] if unset else []  # zsh refuses an `unset` without a name
    lines = [f"export {name}={shlex.quote(value)}" for name, value in values.items()]
    return "\n".join(["# New at each start.", *forgotten, *lines, ""])


def store_connection(store: Mapping[str, Any]) -> StoreConnection:
    """The store of an Airflow connection that we made ourselves."""
    given = {**store["extra"], **store}
    kind = kind_of(given["url"])
    settings = kind.settings if kind is not None else ()
    found = {each.keyword: given[each.field] for each in settings if each.field and given.get(each.field)}
    return StoreConnection(given["url"], "the store of this Airflow", tuple(found.items()))


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
