"""The folder of a report, its owner's alone, and files in it that are replaced whole."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from txn_engine.errors import InvalidRequestError, StoreAccessError
from txn_engine.local_files import not_written
from txn_engine.reasons import Reason

REPORT_NAME, JSON_NAME, DOCS_NAME = "index.html", "validation.json", "data_docs"


def path_of(given: object, name: str, *, actor: str) -> Path:
    """The path that an argument names. Raises `InvalidRequestError` for what is not one."""
    if not isinstance(given, str | os.PathLike) or not os.fspath(given):
        raise InvalidRequestError(
            f"{name} {given!r:.80}", actor=actor, expected="a path", reason=Reason.BAD_ARGUMENT
        )
    return given if isinstance(given, Path) else Path(os.fsdecode(given))


def made_folder(folder: Path, *, actor: str) -> Path:
    """The folder; a new one is its owner's alone, for reports hold cells, unless the one above names a group.

    Raises `StoreAccessError` where it cannot be made.
    """
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        is_shared = folder.parent.stat().st_mode & stat.S_ISGID
        folder.mkdir(mode=0o777 if is_shared else 0o700, exist_ok=True)
        (folder / REPORT_NAME).unlink(missing_ok=True)  # no old page beside new results
    except OSError as error:
        raise _unwritable(folder, error, actor) from error
    return folder


def write_whole(path: Path, text: str, *, actor: str) -> None:
    """Replace the file whole: nobody opens half a page. Raises `StoreAccessError` where it cannot be written."""
    part = path.with_name(f".{path.name}.part")
    try:
        part.write_text(text, encoding="utf-8")
        os.replace(part, path)
    except OSError as error:
        raise _unwritable(path.parent, error, actor) from error


def _unwritable(folder: Path, error: OSError, actor: str) -> StoreAccessError:
    return not_written(
        error, "the report", actor=actor, place=str(folder), expected="a folder that can be written"
    )
