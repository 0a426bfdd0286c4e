"""Files that were found in a folder, or by a pattern: what is opened is what was looked at, and no link leads out.

Who may write into a folder can replace a file by a link at any time, also between a look at it and its opening. So the
look that counts is at the open file: where its descriptor leads.
"""

from __future__ import annotations

import io
import os
import stat
import sys
from collections.abc import Iterable
from pathlib import Path, PosixPath
from typing import Any, BinaryIO, Final

from txn_engine.errors import InvalidRecordError, InvalidRequestError
from txn_engine.reasons import Reason

_ACTOR: Final = "load"


class FoundFile(PosixPath):
    """The path of a file that has to be inside the folder `inside`, wherever links in the path lead.

    `inside` is a real path, without links. A path that a caller names himself is a plain `Path`, which may lead
    anywhere.
    """

    inside: str

    @classmethod
    def of(cls, path: str | Path, inside: str) -> FoundFile:
        """The path as one that was found."""
        found = cls(path)
        found.inside = inside
        return found

    def __reduce__(self) -> tuple[Any, ...]:
        return FoundFile.of, (str(self), self.inside)


def opened(path: Path) -> io.FileIO:
    """The file, open to be read as it is stored.

    Raises `OSError`; for a file that was found, `InvalidRequestError` where it leads out of its folder, or is not a
    regular file.
    """
    return io.FileIO(path, opener=_inside_opener(path) if isinstance(path, FoundFile) else None)


def check_opens(sources: Iterable[Path | BinaryIO]) -> None:
    """Raise `InvalidRequestError` for a file that does not exist or cannot be opened, and `InvalidRecordError` for a
    stream without bytes, and for a named file without them. A pipe that has a name is not opened, because its writer
    would see it close.
    """
    for source in sources:
        if not isinstance(source, Path):
            has_bytes = not hasattr(source, "peek") or source.peek(1)
        else:
            try:
                state = os.stat(source)
                if isinstance(source, FoundFile) or not stat.S_ISFIFO(state.st_mode):
                    opened(source).close()
            except OSError as error:
                raise unreadable(str(source), error) from error
            has_bytes = isinstance(source, FoundFile) or state.st_size or not stat.S_ISREG(state.st_mode)
        if not has_bytes:
            raise InvalidRecordError(
                "the file is empty",
                actor=_ACTOR,
                place=str(source) if isinstance(source, Path) else None,
                expected="one or more records",
                reason=Reason.NO_RECORDS,
            )


def unreadable(name: str, error: OSError) -> InvalidRequestError:
    """The error for a file that cannot be opened or read."""
    return InvalidRequestError(
        f"the file cannot be read: {error.strerror or type(error).__name__}",
        actor=_ACTOR,
        place=name,
        expected="a readable file",
        action="check the path and its permissions",
        reason=Reason.FILE_UNREADABLE,
    )


def _inside_opener(path: FoundFile) -> Any:
    def open_inside(name: str, flags: int) -> int:
        descriptor = os.open(name, flags | os.O_NONBLOCK)  # a pipe would wait for its writer
        try:
            check_leads_inside(path, _leads_to(descriptor), path.inside)
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise not_a_file(path)
        except BaseException:
            os.close(descriptor)
            raise
        return descriptor

    return open_inside


def _leads_to(descriptor: int) -> str:
    """The path of an open file, without links."""
    if sys.platform == "darwin":
        import fcntl

        return os.fsdecode(fcntl.fcntl(descriptor, fcntl.F_GETPATH, bytes(1_024)).rstrip(b"\0"))
    return os.readlink(f"/proc/self/fd/{descriptor}")


def check_leads_inside(path: Path, target: str, inside: str) -> None:
    """Raise `InvalidRequestError` where the target of a path is out of the folder that was named."""
    if not Path(target).is_relative_to(inside):
        raise InvalidRequestError(
            f"a link that leads to {target}",
            actor=_ACTOR,
            place=str(path),
            expected=f"links that stay inside {inside}",
            action="copy into the folder what is to be read, or name it by itself",
            reason=Reason.LINK_LEADS_OUT,
        )


def not_a_file(path: Path) -> InvalidRequestError:
    """The error for a pipe or a device among the files of a folder."""
    return InvalidRequestError(
        "no file",
        actor=_ACTOR,
        place=str(path),
        expected="files and folders",
        reason=Reason.NOT_A_REGULAR_FILE,
    )
