"""Where a checkpoint is: one URL for each folder, however its location was typed.

Nothing here opens a store. A folder of this machine is looked at.
"""

from __future__ import annotations

import os
import posixpath
import re
from pathlib import Path
from typing import NamedTuple, NoReturn

from txn_engine.errors import InvalidRequestError
from txn_engine.reasons import Reason
from txn_engine.spark.hadoop import spark_scheme
from txn_engine.spark.source.options import ACTOR

FILE = "file://"
METADATA = "metadata"
"""The file of a checkpoint that holds the query's id. Spark writes it before it plans a sink."""


class _Location(NamedTuple):
    scheme: str
    authority: str
    path: str


def resolved(location: str, working_directory: str | None) -> str:
    """The URL of the folder that Spark makes of a checkpoint's location: "file:///srv/ck", "hdfs://nn:8020/ck".

    Spark resolves a location by Hadoop's rules: a scheme or a name node that was left out is that of `fs.defaultFS`,
    and a relative path begins at that file system's working directory. working_directory: that directory as a URL, or
    None where it is not known. Then a location without a scheme is taken for a folder of this machine if Spark has
    begun a checkpoint there. Links are followed, so one folder has one URL.

    Raises `InvalidRequestError` for a location that cannot be resolved.
    """
    typed = _split(location)
    default = None if working_directory is None else _split(working_directory)
    if typed.authority and not typed.scheme:
        _refuse(location)
    if not typed.scheme and default is None:
        folder = os.path.realpath(typed.path)
        if not Path(folder, METADATA).is_file():
            _refuse(location)
        return f"{FILE}{folder}"
    if not typed.scheme and default is not None:
        return _url(default.scheme, default.authority, posixpath.join(default.path, typed.path))
    if not typed.path.startswith("/") and (typed.path or not typed.authority):
        _refuse(location)
    if typed.scheme == "file" or typed.authority:
        return _url(typed.scheme, typed.authority, typed.path)
    if default is None or default.scheme != typed.scheme:
        _refuse(location)
    return _url(default.scheme, default.authority, typed.path)


def _split(location: str) -> _Location:
    """As Hadoop's `Path` does: nothing is unescaped, and a colon after a slash belongs to the path."""
    scheme, colon, rest = location.partition(":")
    if not colon or "/" in scheme:
        scheme, rest = "", location
    if not rest.startswith("//"):
        return _Location(scheme.lower(), "", rest)
    authority, slash, path = rest.removeprefix("//").partition("/")
    return _Location(scheme.lower(), authority, slash + path)


def _url(scheme: str, authority: str, path: str) -> str:
    path = posixpath.normpath(re.sub("/+", "/", f"/{path}"))
    if scheme == "file":
        return f"{FILE}{authority}{os.path.realpath(path)}"
    return f"{spark_scheme(scheme)}://{authority}{path}"


def _refuse(location: str) -> NoReturn:
    raise InvalidRequestError(
        f"the folder of checkpointLocation {location!r} is not known here",
        actor=ACTOR,
        expected="a URL with its scheme, such as file:///srv/checkpoints/q or hdfs://namenode:8020/checkpoints/q: a "
        "query that is started again is known by the folder of its checkpoint",
        action="write the whole URL, call txn_engine.spark.register(spark) before the query, or set transactionalId",
        reason=Reason.UNRESOLVED_CHECKPOINT,
    )
