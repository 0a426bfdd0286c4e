"""Documents that anybody may have written, declarations and suites, read within limits."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from txn_engine.extras import imports_named
from txn_engine.reasons import Reason

if TYPE_CHECKING:
    import yaml

VALUES_MAX: Final = 100_000
"""Values of one document, counted as often as aliases and merge keys repeat them."""

NUMBER_CHARS_MAX: Final = 100
_NUMBERS: Final = frozenset(("tag:yaml.org,2002:int", "tag:yaml.org,2002:float"))


class DocumentError(Exception):
    """A document that cannot be read: what is wrong with it, its reason, and the line if that is known."""

    def __init__(self, seen: str, reason: Reason, line: int | None = None) -> None:
        super().__init__(seen)
        self.seen, self.reason, self.line = seen, reason, line


def read_document(path: Path, *, bytes_max: int, is_yaml: bool = True) -> Any:
    """Return the values of a file of YAML (JSON is YAML too), or of JSON alone.

    Raises `DocumentError`. Too many values are refused before anything is built: a few hundred characters of aliases
    can stand for more than memory holds.
    """
    try:
        with path.open("rb") as stream:
            data = stream.read(bytes_max + 1)
    except OSError as error:
        raise DocumentError(
            f"it cannot be read: {error.strerror or error}", Reason.FILE_UNREADABLE
        ) from error
    if len(data) > bytes_max:
        raise DocumentError(f"more than {bytes_max:,} bytes", Reason.DOCUMENT_TOO_LARGE)
    try:
        return _yaml(data.decode()) if is_yaml else json.loads(data.decode())
    except (ValueError, RecursionError) as error:
        raise DocumentError("neither YAML nor JSON", Reason.BAD_DOCUMENT) from error


def _yaml(text: str) -> Any:
    with imports_named("quality"):
        import yaml
    try:
        root = yaml.compose(text, yaml.SafeLoader)
        if root is not None and _values(root, {}) > VALUES_MAX:
            raise DocumentError(f"more than {VALUES_MAX:,} values", Reason.DOCUMENT_TOO_LARGE)
        if root is not None:
            _check_numbers(root, set())
        return yaml.safe_load(text)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = None if mark is None else mark.line + 1
        raise DocumentError("it is not YAML", Reason.BAD_DOCUMENT, line) from error


def _values(node: yaml.Node, known: dict[int, int]) -> int:
    """How many values the node stands for. A node that contains itself stands for too many."""
    if id(node) not in known:
        known[id(node)] = VALUES_MAX + 1  # until it is counted: only a node inside itself sees this
        known[id(node)] = 1 + sum(_values(part, known) for part in _parts(node))
    return known[id(node)]


def _parts(node: yaml.Node) -> Iterator[yaml.Node]:
    """The nodes right inside of a node: items, or keys and values."""
    for each in () if isinstance(node.value, str) else node.value:
        yield from each if isinstance(each, tuple) else (each,)


def _check_numbers(node: yaml.Node, known: set[int]) -> None:
    """Raise `DocumentError` for a number of very many digits, which takes long to read, or with colons, which YAML 1.1
    reads to the base of 60.
    """
    if id(node) in known:
        return
    known.add(id(node))
    for part in _parts(node):
        _check_numbers(part, known)
    if node.tag in _NUMBERS and (len(node.value) > NUMBER_CHARS_MAX or ":" in node.value):
        seen = f"a number of more than {NUMBER_CHARS_MAX} characters, or with colons; text needs quotes there"
        raise DocumentError(seen, Reason.BAD_DOCUMENT, node.start_mark.line + 1)
