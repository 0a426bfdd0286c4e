"""Which files a load's paths name: each once, none passed over in silence."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path
from typing import Any, Final

from pyspark.sql import SparkSession

from txn_engine.errors import InvalidRequestError
from txn_engine.files import format_of
from txn_engine.files.named import check_inside
from txn_engine.files.table_folders import LOG_FOLDERS, check_no_table
from txn_engine.reasons import Reason
from txn_engine.spark.errors import SPARK_FAILURES, reason

_ACTOR: Final = "load_files"
_PATTERN_MARKS: Final = frozenset("*?[{\\")
"""What Hadoop's `globStatus` does not take for itself."""
_METADATA: Final = ("_metadata", "_common_metadata")


@dataclass(frozen=True, slots=True)
class Listed:
    """A file of a load. is_named: whether a path is its very name. folder: where it has to be inside, if it is a file
    of this machine that was found in a folder or by a pattern.
    """

    is_named: bool
    folder: str | None


def listed_files(
    spark: SparkSession, paths: Sequence[str], options: Mapping[str, str], *, any_suffix: bool
) -> dict[str, Listed]:
    """The files, by their paths as Hadoop writes them: escaped nowhere.

    A path is a file or a folder of that very name, which is taken whole, else a pattern. Spark passes over names that
    begin with `_` or `.`: so are they here within folders, but one that a path names is refused. So is a file that two
    of the paths name. Files without bytes, which Spark writes for parts without rows, are left out of folders, unless
    all are such.
    """
    every: list[tuple[Any, Listed]] = []
    for path in paths:
        try:
            found_here = list(_named_by(spark, path, options, any_suffix))
            folder = _folder_of(path)
            files = [
                (file, Listed(is_named, None if is_named else _checked(file, folder)))
                for file, is_named in found_here
            ]
        except SPARK_FAILURES as error:
            raise InvalidRequestError(
                reason(error), actor=_ACTOR, place=path, expected="files that Spark can list"
            ) from error
        if not files:
            raise InvalidRequestError(
                "no files", actor=_ACTOR, place=path, expected="one or more", reason=Reason.NO_FILES
            )
        every += files
    found = [_name_of(file.getPath()) for file, _ in every]
    twice = next((name for name in found if found.count(name) > 1), None) if _repeats(found) else None
    if twice is not None:
        raise InvalidRequestError(
            "named twice", actor=_ACTOR, place=twice, expected="each file once", reason=Reason.DUPLICATE_FILE
        )
    has_bytes = [file.getLen() > 0 for file, _ in every]
    refused = [
        name
        for name, (_, listed), has in zip(found, every, has_bytes, strict=True)
        if not has and (listed.is_named or not any(has_bytes))
    ]
    if refused:  # Spark makes no task for a file without bytes: it would be left out without a word
        raise InvalidRequestError(
            "the file is empty",
            actor=_ACTOR,
            place=refused[0],
            expected="one or more records",
            action="leave it out of the paths; nothing was loaded",
            reason=Reason.NO_RECORDS,
        )
    return {name: listed for name, (_, listed), has in zip(found, every, has_bytes, strict=True) if has}


def _folder_of(given: str) -> str:
    """The folder of this machine that a path means files of, where it is no file's very name: the path itself, or of a
    pattern the part in front of the first name with a mark of Hadoop's patterns in it.
    """
    path = Path(_local(given))
    if path.is_dir():
        return str(path)
    plain = takewhile(_PATTERN_MARKS.isdisjoint, path.parts)
    return str(Path(*plain))


def _local(given: str) -> str:
    """A path without the scheme `file` and its host."""
    behind = given.removeprefix("file:")
    return f"/{behind[2:].partition('/')[2]}" if behind.startswith("//") else behind


def _checked(file: Any, folder: str) -> str | None:
    """The folder, if the file, which was found in it, is one of this machine's. As `files_named` has it, a link in a
    folder or a pattern stays inside; whoever opens the file looks again.
    """
    name = _name_of(file.getPath())
    if not name.startswith("file:"):
        return None
    check_inside(Path(name.removeprefix("file:")), os.path.realpath(folder))
    return folder


def _repeats(names: Sequence[str]) -> bool:
    return len(set(names)) != len(names)


def _named_by(
    spark: SparkSession, given: str, options: Mapping[str, str], any_suffix: bool
) -> Iterator[tuple[Any, bool]]:
    """The `FileStatus` of each, and whether it is the file of that very name."""
    jvm: Any = spark._jvm
    conf = spark._jsparkSession.sessionState().newHadoopConf()
    for name, value in options.items():
        conf.set(name, value)
    path = jvm.org.apache.hadoop.fs.Path(given)
    files = jvm.org.apache.hadoop.fs.FileSystem.newInstance(path.toUri(), conf)
    above: set[str] = set()
    try:
        if files.exists(path):
            status = files.getFileStatus(path)
            _check_above(jvm, files, status, above)
            if status.isDirectory():
                yield from ((each, False) for each in _within(files, status.getPath()))
            else:
                yield _visible(status), True
            return
        for status in files.globStatus(path) or ():
            _check_above(jvm, files, status, above)
            name = str(status.getPath().getName())
            if status.isDirectory():
                yield from ((each, False) for each in _within(files, status.getPath()))
            elif not _is_hidden(name):
                yield status, False
            elif any_suffix or format_of(name) is not None:
                _visible(status)
    finally:
        files.close()


def _within(files: Any, folder: Any) -> Iterator[Any]:
    root = _name_of(folder).rstrip("/")
    every = files.listFiles(folder, True)
    while every.hasNext():
        status = every.next()
        name = _name_of(status.getPath())
        _check_no_log(name)
        if not any(map(_is_hidden, name.removeprefix(root).strip("/").split("/"))):
            yield status


def _check_no_log(name: str) -> None:
    """Raise `InvalidRequestError` for a path that tells a folder with a log that says which of its files count."""
    check_no_table(name.split("/"))


def _check_above(jvm: Any, files: Any, status: Any, known: set[str]) -> None:
    """Raise `InvalidRequestError` where a folder above a path has a log that says which files count. One that may not
    be read is passed over.
    """
    path = status.getPath()
    if status.isFile() and _name_of(path.getParent()) not in known:
        _check_entries(files, path.getParent())
    while (path := path.getParent()) is not None and _name_of(path) not in known:
        known.add(_name_of(path))
        for log in LOG_FOLDERS:
            _check_entries(files, jvm.org.apache.hadoop.fs.Path(path, log))


def _check_entries(files: Any, folder: Any) -> None:
    with suppress(*SPARK_FAILURES):
        for status in files.listStatus(folder):
            _check_no_log(_name_of(status.getPath()))


def _name_of(path: Any) -> str:
    return str(path.toString())


def _visible(status: Any) -> Any:
    if _is_hidden(str(status.getPath().getName())):
        raise InvalidRequestError(
            "a name that Spark passes over",
            actor=_ACTOR,
            place=_name_of(status.getPath()),
            expected="none that begins with '_' or '.', or ends with '._COPYING_'",
            action="name the file otherwise, or load it without Spark",
            reason=Reason.HIDDEN_FILE,
        )
    return status


def _is_hidden(name: str) -> bool:
    """As Spark has it (`HadoopFSUtils.shouldFilterOutPathName`)."""
    if name.startswith(_METADATA):
        return False
    return (name.startswith("_") and "=" not in name) or name.startswith(".") or name.endswith("._COPYING_")
