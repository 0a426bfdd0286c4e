"""A bug put into the shipping code, in one of two ways.

`Replace` names a function, method, property or constant of the code, its *seam*, and puts another one in its place.
It survives every change of the code that keeps the seam's name and parameters, and it can be taken out again
(`planted`). `Edit` replaces text of a module's source as the module is imported; it is for bugs that no seam reaches,
and it has to follow each change of the lines that it quotes.

`python -m tests.simulator.mutants.check` says which bugs no longer fit the code.
"""

from __future__ import annotations

import functools
import importlib
import inspect
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, SourceFileLoader
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

ROOT = Path(__file__).resolve().parents[3]
PACKAGES = ("txn_engine", "storage")
"""Where the shipping code is, and with it all names that a seam may be bound to."""
ORIGINAL = "original"
"""A replacement whose first parameter has this name is given what it replaces."""


@dataclass(frozen=True, slots=True)
class Edit:
    """`old` is exactly once in the file, and is replaced by `new`."""

    file: str
    old: str
    new: str


@dataclass(frozen=True, slots=True)
class Replace:
    """`by` replaces what the dotted name `seam` names.

    A function, method or property is replaced by a function of a module with the same parameters, before
    which it may have one called `original`. A constant is replaced by another value of its type.
    """

    seam: str
    by: Any


@dataclass(frozen=True, slots=True)
class Mutant:
    """One bug. `breaks` says what the code does then, and `marked` which of the marked rules (▲,
    `marks.MARKED`) it removes, if any.

    `edits`: how the bug is put in. All are edits of text, or all are replacements at seams. `workloads`:
    where to look for the bug, in turn; `local`: with a local store.
    """

    name: str
    breaks: str
    edits: tuple[Edit, ...] | tuple[Replace, ...]
    workloads: tuple[str, ...]
    marked: str = ""
    local: bool = False

    @property
    def text_edits(self) -> tuple[Edit, ...]:
        """The edits of a mutant that changes text. Empty for one that uses seams."""
        return tuple(edit for edit in self.edits if isinstance(edit, Edit))

    @property
    def replacements(self) -> tuple[Replace, ...]:
        """The replacements of a mutant that uses seams. Empty for one that changes text."""
        return tuple(edit for edit in self.edits if isinstance(edit, Replace))


class DoesNotFitError(Exception):
    """A bug no longer fits the code, so the catalogue has to follow the code."""


class CannotBePlantedError(Exception):
    """A bug that changes text was to be put in for a while, or into a module that was imported already."""


def check_fit(mutant: Mutant) -> None:
    """Raise `DoesNotFitError` unless the bug can be put into the code as it is."""
    texts, seams = mutant.text_edits, mutant.replacements
    if bool(texts) == bool(seams):
        raise DoesNotFitError("expected edits of text, or replacements at seams, and not both")
    for file in dict.fromkeys(edit.file for edit in texts):
        mutated_source(file, [edit for edit in texts if edit.file == file])
    for replacement in seams:
        _replaced(_find(replacement.seam), replacement)


def apply_mutant(mutant: Mutant) -> None:
    """Put the bug in for the rest of this process. Modules whose text it changes may not be imported yet."""
    for replacement in mutant.replacements:
        _put_in(replacement)
    by_file: dict[str, list[Edit]] = {}
    for edit in mutant.text_edits:
        by_file.setdefault(edit.file, []).append(edit)
    sources = {module_name(file): (file, mutated_source(file, edits)) for file, edits in by_file.items()}
    loaded = sorted(sources.keys() & sys.modules.keys())
    if loaded:
        raise CannotBePlantedError(f"{', '.join(loaded)} was imported before the bug was put in")
    if sources:
        sys.meta_path.insert(0, _MutatingFinder(sources))


# --- seams --------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Binding:
    """A name of a module or class, and its value as it is (a property as a property)."""

    owner: Any
    name: str
    bound: Any


@contextmanager
def planted(mutant: Mutant) -> Iterator[None]:
    """Put a bug in for a while. Only a mutant that uses seams can be taken out again."""
    if mutant.text_edits:
        raise CannotBePlantedError(f"{mutant.name} changes text: it stays for the rest of a process")
    undo: list[_Binding] = []
    try:
        for replacement in mutant.replacements:
            undo += _put_in(replacement)
        yield
    finally:
        for before in reversed(undo):
            setattr(before.owner, before.name, before.bound)


def _put_in(replacement: Replace) -> list[_Binding]:
    """Replace the seam under every name that the code has for it. Returns what these names were bound to."""
    seam = _find(replacement.seam)
    new = _replaced(seam, replacement)
    bindings = [seam] if inspect.isclass(seam.owner) else _bindings_of(seam)
    for binding in bindings:
        setattr(binding.owner, binding.name, new)
    return bindings


def _bindings_of(seam: _Binding) -> list[_Binding]:
    """The names in modules of the code that are bound to the same function, or to the constant under its own name."""
    found = []
    for module_path, module in sorted(sys.modules.items()):
        if module_path.partition(".")[0] in PACKAGES:
            for name, bound in vars(module).items():
                if bound is seam.bound and (callable(bound) or name == seam.name):
                    found.append(_Binding(module, name, bound))
    return found


def _find(seam: str) -> _Binding:
    """The value of a dotted name, whose module is imported for that."""
    parts = seam.split(".")
    for count in range(len(parts) - 1, 0, -1):
        try:
            owner: Any = importlib.import_module(".".join(parts[:count]))
        except ModuleNotFoundError:
            continue
        try:
            for part in parts[count:-1]:
                owner = vars(owner)[part]
            return _Binding(owner, parts[-1], vars(owner)[parts[-1]])
        except KeyError:
            break
    raise DoesNotFitError(f"{seam} does not exist")


def _replaced(seam: _Binding, replacement: Replace) -> Any:
    """The value that replaces the seam."""
    bound, by = seam.bound, replacement.by
    if isinstance(bound, property):
        return property(_checked(replacement, bound.fget, by))
    if isinstance(bound, (staticmethod, classmethod)):
        return type(bound)(_checked(replacement, bound.__func__, by))
    if callable(bound) and not inspect.isclass(bound):
        return _checked(replacement, bound, by)
    if type(by) is not type(bound) or by == bound:
        raise DoesNotFitError(
            f"{replacement.seam} is {bound!r}; expected another value of its type, not {by!r}"
        )
    return by


def _checked(replacement: Replace, original: Any, by: Callable[..., Any]) -> Callable[..., Any]:
    """The replacement, after a check that its parameters are the seam's."""
    wants_original = next(iter(inspect.signature(by).parameters), None) == ORIGINAL
    own, expected = _parameters(by)[wants_original:], _parameters(original)
    if own != expected:
        raise DoesNotFitError(f"{replacement.seam} has the parameters {expected}; the replacement has {own}")
    if not wants_original:
        return by

    @functools.wraps(original)
    def with_original(*arguments: Any, **named: Any) -> Any:
        return by(original, *arguments, **named)

    return with_original


def _parameters(function: Callable[..., Any]) -> list[str]:
    """Names, kinds and defaults of the parameters."""
    parameters = inspect.signature(function).parameters.values()
    return [
        str(parameter.replace(annotation=parameter.empty)) + f" ({parameter.kind.description})"
        for parameter in parameters
    ]


# --- texts --------------------------------------------------------------------------------------------------


def module_name(file: str) -> str:
    """`txn_engine/log/entry_log.py` -> `txn_engine.log.entry_log`."""
    return file.removesuffix("/__init__.py").removesuffix(".py").replace("/", ".")


def mutated_source(file: str, edits: Sequence[Edit]) -> str:
    """The file's text with the edits made. Raises `DoesNotFitError` if the result is not Python, or if an
    edit does not fit."""
    try:
        text = (ROOT / file).read_text(encoding="utf-8")
    except FileNotFoundError as error:
        raise DoesNotFitError(f"{file} does not exist") from error
    for edit in edits:
        if (times := text.count(edit.old)) != 1:
            raise DoesNotFitError(f"{file}: found {times} times, expected once: {edit.old!r}")
        text = text.replace(edit.old, edit.new)
    try:
        compile(text, file, "exec")
    except SyntaxError as error:
        raise DoesNotFitError(f"{file} is not Python once it is changed: {error}") from error
    return text


class _MutatingFinder(MetaPathFinder):
    def __init__(self, sources: dict[str, tuple[str, str]]) -> None:
        self._sources = sources

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname not in self._sources:
            return None
        file, text = self._sources[fullname]
        spec = ModuleSpec(fullname, _TextLoader(fullname, str(ROOT / file), text), origin=str(ROOT / file))
        spec.has_location = True
        if file.endswith("/__init__.py"):
            spec.submodule_search_locations = [str((ROOT / file).parent)]
        return spec


class _TextLoader(SourceFileLoader):
    def __init__(self, fullname: str, path: str, text: str) -> None:
        super().__init__(fullname, path)
        self._text = text

    def get_code(self, fullname: str) -> CodeType:
        return compile(self._text, self.path, "exec", dont_inherit=True)
