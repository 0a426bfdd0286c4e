"""Which files paths name: each once, in an order that does not change, none passed over in silence."""

from __future__ import annotations

import glob
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from txn_engine.errors import InvalidRequestError
from txn_engine.files.layout import ACTOR
from txn_engine.files.source import FORMATS, FileFormat, format_of


def files_named(
    paths: Sequence[str | Path],
    format: FileFormat | None = None,  # noqa: A002 -- what everybody calls it
) -> list[Path]:
    """The files, in the order of the paths, and of one path sorted by their names.

    A path is a file or a folder of that very name, of which all files are meant, also in folders below it; else a
    pattern (`*`, `?`, `[ab]`, `**` for folders). Within folders names that begin with `.` or `_` are passed over, as
    everywhere where Spark or Hadoop have written. `InvalidRequestError` for what names no file, a file that two paths
    name, and in folders one of no known format, unless `format` says what they are.
    """
    found: list[Path] = []
    seen: dict[str, Path] = {}
    for path in paths:
        for file in _named_by(path, format):
            real = os.path.realpath(file)
            if real in seen:
                raise InvalidRequestError(
                    "named twice", actor=ACTOR, place=str(file), expected="each file once"
                )
            seen[real] = file
            found.append(file)
    return found


def _named_by(path: str | Path, known: FileFormat | None) -> Iterator[Path]:
    given = Path(path)
    if given.is_dir():
        yield from _within(given, known)
        return
    if given.exists() or not glob.has_magic(str(path)):
        yield given  # opening it says what is wrong with it
        return
    matches = sorted(glob.glob(str(path), recursive=True))
    any_file = False
    for match in map(Path, matches):
        for file in _within(match, known) if match.is_dir() and "**" not in str(path) else [match]:
            if not file.is_dir():
                any_file = True
                yield file
    if not any_file:
        raise InvalidRequestError(
            "no file of that pattern", actor=ACTOR, place=str(path), expected="one or more"
        )


def _within(folder: Path, known: FileFormat | None) -> Iterator[Path]:
    """Its files, and those of the folders in it, sorted by path."""

    def refuse(error: OSError) -> None:
        raise InvalidRequestError(
            f"the folder cannot be read: {error.strerror or type(error).__name__}",
            actor=ACTOR,
            place=str(error.filename or folder),
            expected="a readable folder",
        ) from error

    files: list[Path] = []
    for root, folders, names in os.walk(folder, onerror=refuse):
        folders[:] = [name for name in folders if not name.startswith((".", "_"))]
        files += [Path(root, name) for name in names if not name.startswith((".", "_"))]
    if not files:
        raise InvalidRequestError("no files", actor=ACTOR, place=str(folder), expected="one or more")
    for file in sorted(files):
        if known is None and format_of(file.name) is None:
            raise InvalidRequestError(
                "a file of no known format",
                actor=ACTOR,
                place=str(file),
                expected=", ".join(sorted(FORMATS)),
                action="name the format: csv, jsonl or parquet",
            )
        yield file
