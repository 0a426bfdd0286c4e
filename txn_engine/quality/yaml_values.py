"""YAML from a file that anybody may have written, read within limits."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    import yaml

VALUES_MAX: Final = 100_000
"""Values of one document, counted as often as aliases and merge keys repeat them."""


class TooManyValuesError(ValueError):
    """The document stands for more than `VALUES_MAX` values."""


def yaml_values(text: str) -> Any:
    """Return the values of one YAML document (JSON is YAML too).

    Raises `ValueError` for text that is not YAML. Raises `TooManyValuesError` before anything is built: a few hundred
    characters of aliases can stand for more values than memory holds.
    """
    import yaml

    try:
        root = yaml.compose(text, yaml.SafeLoader)
        if root is not None and _values(root, {}) > VALUES_MAX:
            raise TooManyValuesError(f"more than {VALUES_MAX:,} values")
        return yaml.safe_load(text)
    except (yaml.YAMLError, RecursionError) as error:
        raise ValueError("no YAML") from error


def _values(node: yaml.Node, known: dict[int, int]) -> int:
    """How many values the node stands for. A node that contains itself stands for too many."""
    if id(node) not in known:
        known[id(node)] = VALUES_MAX + 1  # until it is counted: only a node inside itself sees this
        inside = () if isinstance(node.value, str) else node.value
        parts = (part for each in inside for part in (each if isinstance(each, tuple) else (each,)))
        known[id(node)] = 1 + sum(_values(part, known) for part in parts)
    return known[id(node)]
