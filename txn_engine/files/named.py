"""Which files paths name: each once, in an order that does not change, none passed over in silence."""

from __future__ import annotations

import errno
import glob
import os
import stat
from collections.abc import Callable, Iterator, Sequence
from fnmatch import fnmatchcase
from pathlib import Path

from txn_engine.errors import InvalidRequestError
from txn_engine.files.layout import ACTOR
from txn_engine.files.source import FORMATS, FileFormat, format_of
from txn_engine.files.table_folders import LOG_FOLDERS, check_no_table, check_no_table_entry
from txn_engine.found_files import FoundFile, check_leads_inside, not_a_file
from txn_engine.reasons import Reason

PassedOver = Callable[[Path], None]


def files_named(
    paths: Sequence[str | Path],
    format: FileFormat | None = None,  # noqa: A002 -- what everybody calls it
    *,
    passed_over: PassedOver | None = None,
) -> list[Path]:
    """The files, in the order of the paths, and of one path sorted by their names.

    A path is a file, or a folder, of which all files are meant, also in folders below it, linked ones too; or a pattern
    (`*`, `?`, `[ab]`, `**` for folders, which are not followed where they are links). A path with wildcards is a name
    only where it matches nothing, as `a[1].csv` may. A link in a folder, or among what a pattern matches, has to stay
    inside: who may put files there must not choose files elsewhere, which is checked again where a file is opened
    (`found_files`). In folders, and where a pattern does not
    spell them out, names are passed over as Spark does: what begins with `.`, or with `_` unless it holds a `=`, and
    what is being copied. `passed_over` is told of each. `InvalidRequestError` for what names no file, a file that is
    named twice (by two paths, or a hard link and its file), and in folders and patterns for what is no file, or one of
    no known format unless `format` says what they are; and for an empty path, which would be the folder of now. No
    paths are no files.
    """
    found: list[Path] = []
    seen: dict[tuple[int, int] | str, Path] = {}
    told: set[Path] = set()

    def tell(hidden: Path) -> None:
        if hidden not in told and passed_over is not None:
            passed_over(hidden)
        told.add(hidden)

    for path in paths:
        _check(path)
        for file in _named_by(path, format, tell):
            known = seen.setdefault(_identity(file), file)
            if known is not file:
                raise InvalidRequestError(
                    f"named twice, also as {known}",
                    actor=ACTOR,
                    place=str(file),
                    expected="each file once",
                    reason=Reason.DUPLICATE_FILE,
                )
            found.append(file)
    _check_no_tables(found)
    return found


def _check_no_tables(files: Sequence[Path]) -> None:
    """Raise `InvalidRequestError` for files in a folder with a log that says which of them count, at any depth."""
    named = {file.parent for file in files}
    real = {Path(os.path.realpath(folder)) for folder in named}
    real |= {Path(os.path.realpath(file)).parent for file in files if file.is_symlink()}
    for folder in sorted({above for each in named | real for above in (each, *each.absolute().parents)}):
        for log in LOG_FOLDERS:
            for name in _names_in(folder / log):
                check_no_table([*str(folder).split(os.sep), log, name])
    for folder in sorted(named | real):
        names = str(folder).split(os.sep)
        check_no_table(names)
        for name in _names_in(folder):
            check_no_table_entry(name, names)


def _names_in(folder: Path) -> list[str]:
    """What is in the folder; nothing where there is none, or none that may be read."""
    try:
        return os.listdir(folder)
    except OSError:
        return []


def _check(path: object) -> None:
    """Raise `InvalidRequestError` for what is no path, or one that no file can have."""
    seen = ""
    if not isinstance(path, str | os.PathLike):
        seen = f"a path of type {type(path).__name__}"
    elif not os.fspath(path):
        seen = "an empty path"
    else:
        try:
            os.stat(path)
        except ValueError:
            seen = f"the path {path!a:.80}"
        except OSError as error:
            seen = f"the path {path!a:.80}" if error.errno == errno.ENAMETOOLONG else ""
    if seen:
        raise InvalidRequestError(
            seen, actor=ACTOR, expected="a path that a file can have", reason=Reason.BAD_PATH
        )


def _identity(file: Path) -> tuple[int, int] | str:
    """What two names of one file have in common."""
    try:
        state = file.stat()
    except OSError:
        return os.path.realpath(file)  # opening it says what is wrong with it
    return state.st_dev, state.st_ino


def _named_by(path: str | Path, known: FileFormat | None, tell: PassedOver) -> Iterator[Path]:
    if isinstance(path, FoundFile):
        yield path  # neither pattern nor folder, whatever has taken its place by now
        return
    given = Path(path)
    if not glob.has_magic(str(path)):
        if given.is_dir():
            yield from _within(given, known, tell, os.path.realpath(given))
        else:
            yield given  # opening it says what is wrong with it
        return
    any_file, inside = False, os.path.realpath(pattern_root(given))
    for match in _matching(given, inside, tell):
        if (hidden := _hidden_in(match, str(path))) is not None:
            tell(hidden)
            continue
        check_inside(match, inside)
        for file in _within(match, known, tell, inside) if match.is_dir() else [match]:
            any_file = True
            yield _checked(file, inside)
    if not any_file:
        raise InvalidRequestError(
            "no file of that pattern",
            actor=ACTOR,
            place=str(path),
            expected="one or more",
            reason=Reason.NO_FILES,
        )


def _matching(pattern: Path, inside: str, tell: PassedOver) -> list[Path]:
    """What the pattern matches; else what has the pattern's text for its name, as `a[1].csv` may.

    Refuses a pattern that matches others than the file or folder of that name: nobody can say which are meant.
    """
    if "**" in pattern.parts:
        found = sorted(_below(pattern, inside, tell))
    else:
        found = sorted(map(Path, glob.glob(str(pattern))))
    if pattern in found or not os.path.lexists(pattern):
        return found
    if found:
        raise InvalidRequestError(
            "the name of a file, and a pattern that matches others",
            actor=ACTOR,
            place=str(pattern),
            expected="one of both",
            action="rename the file, or write [[] for each [ that is meant as it stands",
            reason=Reason.BAD_PATH,
        )
    return [pattern]


def _below(pattern: Path, inside: str, tell: PassedOver) -> Iterator[Path]:
    """The files that a pattern with `**` matches. It goes into no linked folder: what is linked inside stands there by
    its own name, and `tell` is told of the link.
    """
    root = pattern_root(pattern)
    wanted = pattern.parts[len(root.parts) :]
    for here, folders, files in os.walk(root):
        for name in folders:
            if os.path.islink(link := os.path.join(here, name)):
                check_inside(Path(link), inside)
                tell(Path(link))
        yield from (
            file
            for file in (Path(here, name) for name in files)
            if _fits(file.parts[len(root.parts) :], wanted)
        )


def _fits(parts: tuple[str, ...], wanted: tuple[str, ...]) -> bool:
    """Whether a path fits a pattern, `**` standing for any number of folders, or for everything at the end."""
    if not wanted:
        return not parts
    if wanted[0] == "**":
        return len(wanted) == 1 or any(_fits(parts[skip:], wanted[1:]) for skip in range(len(parts)))
    return bool(parts) and fnmatchcase(parts[0], wanted[0]) and _fits(parts[1:], wanted[1:])


def is_hidden(name: str) -> bool:
    """Whether Spark passes over a file or folder of this name: what is hidden, about a job, or not whole yet."""
    return name.startswith(".") or (name.startswith("_") and "=" not in name) or name.endswith("._COPYING_")


def pattern_root(pattern: Path) -> Path:
    """The folder that a pattern begins in: the parts before the first that has a wildcard."""
    fixed = next(place for place, part in enumerate(pattern.parts) if glob.has_magic(part))
    return Path(*pattern.parts[:fixed])


def check_inside(path: Path, inside: str) -> None:
    """Raise `InvalidRequestError` for a path that leads out of the folder that was named, by a link."""
    check_leads_inside(path, os.path.realpath(path), inside)


def _hidden_in(match: Path, pattern: str) -> Path | None:
    """What of a match Spark would pass over: a name that the pattern does not spell out, at least in its beginning."""
    asked = Path(pattern).parts
    fixed = len(pattern_root(Path(pattern)).parts)
    spelt = tuple({part[0] for part in asked[fixed:] if is_hidden(part)})
    for place, part in enumerate(match.parts):
        if place >= fixed and is_hidden(part) and not part.startswith(spelt):
            return Path(*match.parts[: place + 1])
    return None


def _within(folder: Path, known: FileFormat | None, tell: PassedOver, inside: str) -> Iterator[Path]:
    """Its files, and those of the folders in it, sorted by path."""
    files = [file for each in _folders(folder, tell, inside) for file in _files_in(each, tell, inside)]
    if not files:
        raise InvalidRequestError(
            "no files", actor=ACTOR, place=str(folder), expected="one or more", reason=Reason.NO_FILES
        )
    for file in sorted(files):
        if known is None and format_of(file.name) is None:
            raise InvalidRequestError(
                "a file of no known format",
                actor=ACTOR,
                place=str(file),
                expected=", ".join(sorted(FORMATS)),
                action="name the format: csv, jsonl or parquet",
                reason=Reason.UNKNOWN_FORMAT,
            )
        yield _checked(file, inside)


def _folders(folder: Path, tell: PassedOver, inside: str) -> Iterator[Path]:
    """The folder and those in it, each once: a linked one last, where it is none of the others."""
    seen: set[tuple[int, int] | str] = set()
    here, linked = [folder], list[Path]()
    while here or linked:
        current = here.pop() if here else linked.pop()
        identity = _identity(current)
        if identity in seen:
            continue
        seen.add(identity)
        yield current
        for child in _entries(current):
            if child.is_dir() and is_hidden(child.name):
                tell(child)
            elif child.is_dir():
                if child.is_symlink():
                    check_inside(child, inside)
                (linked if child.is_symlink() else here).append(child)


def _files_in(folder: Path, tell: PassedOver, inside: str) -> Iterator[Path]:
    for child in _entries(folder):
        if child.is_dir():
            continue
        if is_hidden(child.name):
            tell(child)
            continue
        if child.is_symlink():
            check_inside(child, inside)
        yield child


def _entries(folder: Path) -> list[Path]:
    try:
        return sorted(folder.iterdir(), reverse=True)
    except OSError as error:
        raise InvalidRequestError(
            f"the folder cannot be read: {error.strerror or type(error).__name__}",
            actor=ACTOR,
            place=str(folder),
            expected="a readable folder",
            reason=Reason.FILE_UNREADABLE,
        ) from error


def _checked(file: Path, inside: str) -> FoundFile:
    """The file, to be opened inside its folder; refused where it is none, as a pipe that somebody left there."""
    found = FoundFile.of(file, inside)
    try:
        is_file = stat.S_ISREG(file.stat().st_mode)
    except OSError:
        return found  # opening it says what is wrong with it
    if not is_file:
        raise not_a_file(file)
    return found
