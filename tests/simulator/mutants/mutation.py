"""A bug put into the shipping code: a replacement in a module's source, made as the module is imported."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, SourceFileLoader
from pathlib import Path
from types import CodeType, ModuleType

ROOT = Path(__file__).resolve().parents[3]


@dataclass(frozen=True, slots=True)
class Edit:
    """`old` stands exactly once in the file, and becomes `new`."""

    file: str
    old: str
    new: str


@dataclass(frozen=True, slots=True)
class Mutant:
    """One bug. `breaks` says what the code does then; `marked` which of the marked rules (▲, `marks.MARKED`) it takes
    away, if any.

    `workloads`: where to look for it, in turn; `local`: with a local store.
    """

    name: str
    breaks: str
    edits: tuple[Edit, ...]
    workloads: tuple[str, ...]
    marked: str = ""
    local: bool = False


def module_name(file: str) -> str:
    """`txn_engine/log/entry_log.py` -> `txn_engine.log.entry_log`."""
    return file.removesuffix("/__init__.py").removesuffix(".py").replace("/", ".")


def mutated_source(file: str, edits: Sequence[Edit]) -> str:
    """The file's text with the edits made. Raises where one does not fit any more: the catalogue has to follow the code."""
    text = (ROOT / file).read_text(encoding="utf-8")
    for edit in edits:
        if (times := text.count(edit.old)) != 1:
            raise LookupError(f"{file}: {times} times, expected once: {edit.old!r}")
        text = text.replace(edit.old, edit.new)
    compile(text, file, "exec")
    return text


def apply_mutant(mutant: Mutant) -> None:
    """Put the bug in for the rest of this process. Nothing of the code may have been imported yet."""
    by_file: dict[str, list[Edit]] = {}
    for edit in mutant.edits:
        by_file.setdefault(edit.file, []).append(edit)
    sources = {module_name(file): (file, mutated_source(file, edits)) for file, edits in by_file.items()}
    loaded = sorted(sources.keys() & sys.modules.keys())
    if loaded:
        raise RuntimeError(f"{', '.join(loaded)} was imported before the bug was put in")
    sys.meta_path.insert(0, _MutatingFinder(sources))


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
