"""Documents that anybody may have written, declarations and suites, read within limits."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from txn_engine.extras import imports_named
from txn_engine.reasons import Reason

if TYPE_CHECKING:
    import yaml

VALUES_MAX: Final = 100_000
"""Values of one document, counted as often as aliases and merge keys repeat them."""

NUMBER_CHARS_MAX: Final = 100
_MERGE: Final = "tag:yaml.org,2002:merge"
_FLOAT: Final = "tag:yaml.org,2002:float"
_NUMBERS: Final = frozenset(("tag:yaml.org,2002:int", _FLOAT))
_SMALL_NUMBER: Final = re.compile("0|[1-9][0-9]{0,9}")


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
        text = data.decode()
        if is_yaml:
            return _yaml(text)
        return json.loads(text, object_pairs_hook=_each_name_once, parse_float=_exact)
    except (ValueError, RecursionError) as error:
        raise DocumentError("neither YAML nor JSON", Reason.BAD_DOCUMENT) from error


def _exact(text: str, line: int | None = None) -> float:
    """The number that a text says. Raises `DocumentError` for one with more digits than a float keeps."""
    if Decimal(repr(found := float(text))) != Decimal(text):
        raise DocumentError("a number with more digits than a float keeps", Reason.INEXACT_NUMBER, line)
    return found


def _each_name_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in pairs:
        if name in found:
            raise DocumentError(f"the name {name!r:.80} twice in one object", Reason.DUPLICATE_NAME)
        found[name] = value
    return found


def _yaml(text: str) -> Any:
    with imports_named("quality"):
        import yaml

    class Loader(yaml.SafeLoader):  # type: ignore[misc]  # of a module without types
        """Counts nodes while it parses: each takes far more memory than its text."""

        nodes = 0

        def compose_node(self, parent: Any, index: Any) -> Any:
            self.nodes += 1
            if self.nodes > VALUES_MAX:
                raise _too_many_values()
            return super().compose_node(parent, index)

    try:
        loader = Loader(text)
        root = loader.get_single_node()
        if root is None:
            return None
        if _values(root, {}) > VALUES_MAX:
            raise _too_many_values()
        _check(root, loader, set())
        return loader.construct_document(root)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = None if mark is None else mark.line + 1
        raise DocumentError("it is not YAML", Reason.BAD_DOCUMENT, line) from error


def _too_many_values() -> DocumentError:
    return DocumentError(f"more than {VALUES_MAX:,} values", Reason.DOCUMENT_TOO_LARGE)


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


def _check(node: yaml.Node, loader: yaml.SafeLoader, known: set[int]) -> None:
    """Raise `DocumentError` for what a reader of the document would not expect.

    That is a number of very many digits, which takes long to read, or with colons, which YAML 1.1 reads to the base of
    60; a tag; a name that is a number, but for decimals of at most ten digits, because a few thousand can be chosen so
    that they take a dict minutes; and a name that a mapping has twice, of which the last value would count.
    """
    if id(node) in known:
        return
    known.add(id(node))
    for part in _parts(node):
        _check(part, loader, known)
    line = node.start_mark.line + 1
    if node.tag in _NUMBERS and (len(node.value) > NUMBER_CHARS_MAX or ":" in node.value):
        seen = f"a number of more than {NUMBER_CHARS_MAX} characters, or with colons; text needs quotes there"
        raise DocumentError(seen, Reason.BAD_DOCUMENT, line)
    if node.tag == _FLOAT and any(map(str.isdigit, node.value)):  # not .inf, and not .nan
        _exact(node.value.replace("_", ""), line)
    if node.tag != _tag_without_one(node, loader):
        raise DocumentError(f"the tag {node.tag!r:.80}", Reason.BAD_DOCUMENT, line)
    if node.id == "mapping":
        _check_names(node, loader)


def _tag_without_one(node: yaml.Node, loader: yaml.SafeLoader) -> str:
    """The tag that YAML gives the node if the document does not name one."""
    if isinstance(node.value, str):
        is_plain = node.style is None
        return str(loader.resolve(type(node), node.value, (is_plain, not is_plain)))
    return str(loader.resolve(type(node), None, True))


def _check_names(node: yaml.Node, loader: yaml.SafeLoader) -> None:
    seen: set[object] = set()
    for key, _ in node.value:
        if key.tag == _MERGE:
            continue
        if key.tag in _NUMBERS and not _SMALL_NUMBER.fullmatch(key.value):
            raise DocumentError(
                "a name that is a number of more than ten digits, or none in decimals; it needs quotes",
                Reason.BAD_DOCUMENT,
                key.start_mark.line + 1,
            )
        name = loader.construct_object(key, deep=True) if key.id == "scalar" else id(key)
        if name in seen:
            raise DocumentError(
                f"the name {name!r:.80} twice in one mapping",
                Reason.DUPLICATE_NAME,
                key.start_mark.line + 1,
            )
        seen.add(name)
