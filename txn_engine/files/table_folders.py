"""Folders with a log of their own that says which of their files count: those of tables, and of commit protocols."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from txn_engine.errors import InvalidRequestError
from txn_engine.files.layout import ACTOR
from txn_engine.reasons import Reason


@dataclass(frozen=True, slots=True)
class _Mark:
    """What tells a kind of folder: an entry of it, or a file in its folder `log`, whose whole name fits."""

    kind: str
    name: re.Pattern[str]


_ANY: Final = re.compile(r".+", re.DOTALL)
_LOGS: Final = {
    "_delta_log": _Mark("a Delta table", _ANY),
    ".hoodie": _Mark("a Hudi table", _ANY),
    "metadata": _Mark("an Iceberg table", re.compile(r".*\.metadata\.json(\..+)?")),
    "snapshot": _Mark("a Paimon table", re.compile(r"snapshot-\d+")),
    "_spark_metadata": _Mark("the output of a Spark stream", _ANY),
    "log": _Mark("a partition of a txn-engine topic", re.compile(r"\d{20}\.parquet")),
}
"""By the name of the folder's log."""
_ENTRIES: Final = (
    _Mark("a partition of a Hudi table", re.compile(r"\.hoodie_partition_metadata(\..+)?")),
    _Mark("a transactional Hive table", re.compile(r"base_(\d{7}(_v\d+)?|\d{8,}_v\d+)")),
    _Mark(
        "a transactional Hive table",
        re.compile(r"(delete_)?delta_(\d{7}_\d{7,}|\d{8,}_\d{8,}(?=_))(_\d{4})?(_v\d+)?"),
    ),
    _Mark("a Databricks job's output", re.compile(r"_(started|committed)_(vacuum)?\d+")),
)
"""Of Hive, 7 digits are what it fills numbers up to: `base_20260131` may be anybody's. A longer number counts with
what else Hive gives such a name.
"""
LOG_FOLDERS: Final = tuple(_LOGS)


def check_no_table(names: Sequence[str]) -> None:
    """Raise `InvalidRequestError` for the names of a path, from the root on, that tell a folder with a log."""
    above = ""
    for place, name in enumerate(names):
        mark = _LOGS.get(above)
        if mark is not None and mark.name.fullmatch(name):
            raise _refused(mark.kind, above, names[: place - 1])
        check_no_table_entry(name, names[:place])
        above = name


def check_no_table_entry(name: str, folder: Sequence[str]) -> None:
    """Raise `InvalidRequestError` for an entry that alone tells that its folder has a log."""
    for mark in _ENTRIES:
        if mark.name.fullmatch(name):
            raise _refused(mark.kind, name, folder)


def _refused(kind: str, log: str, folder: Sequence[str]) -> InvalidRequestError:
    return InvalidRequestError(
        f"the folder of {kind}, as its {log!a} says",
        actor=ACTOR,
        place="/".join(folder) or "/",
        expected="a folder whose files all count; here a log says which do",
        action="read it with what knows this log, as Spark does, and write the rows with `write_topic`, "
        "or into files to be loaded",
        reason=Reason.FOLDER_OF_A_TABLE,
    )
