"""The tree of a condition, made by DuckDB's parser, in which each node has the form that is known here."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

import duckdb

from txn_engine.names import is_storable
from txn_engine.reasons import Reason
from txn_engine.sql.conditions.refusals import Node, refusal

_CHARS_MAX: Final = 1_000_000
_SERIALIZE: Final = "SELECT json_serialize_sql($1::VARCHAR, skip_null := true, skip_empty := true)"
_BEFORE: Final = "SELECT * FROM records WHERE "
_CONFIG: Final[dict[str, Any]] = {
    "autoinstall_known_extensions": False,
    "autoload_known_extensions": False,
    "enable_external_access": False,
    "threads": 1,
}
_PLACED: Final = frozenset({"class", "type", "query_location", "query_location_length"})
_KEYS: Final[Mapping[str, frozenset[str]]] = {
    "BETWEEN": frozenset({"input", "lower", "upper"}),
    "CAST": frozenset({"child", "try_cast", "type_expr"}),
    "COLUMN_REF": frozenset({"column_names"}),
    "COMPARISON": frozenset({"left", "right"}),
    "CONJUNCTION": frozenset({"children"}),
    "CONSTANT": frozenset({"literal"}),
    "FUNCTION": frozenset(
        {
            *("function_name", "order_bys", "distinct", "is_operator", "export_state", "arguments"),
            *("qualified_name", "is_legacy_function_call"),
        }
    ),
    "OPERATOR": frozenset({"children"}),
    "TYPE": frozenset({"type_name", "qualified_name", "children"}),
}  # fmt: skip
"""What each class of node consists of. A node with anything else is refused: nobody has looked at what that means."""
_NAMED: Final[Mapping[str, str]] = {
    "CASE": "CASE",
    "COLLATE": "a collation",
    "LAMBDA": "a lambda",
    "PARAMETER": "a parameter",
    "POSITIONAL_REFERENCE": "a column by its place",
    "STAR": "*",
    "SUBQUERY": "a query inside it",
    "WINDOW": "a window",
}


class Parsed:
    """A condition as a tree. Raises `InvalidRequestError` for a text that is not one condition."""

    def __init__(self, text: str) -> None:
        self._text = text.strip()
        self._check_text()
        with duckdb.connect(config=_CONFIG) as connection:
            found = _tree(connection, self._text)
            other = _tree(connection, "true")
        if found is None:
            raise refusal("a condition that is not valid SQL", Reason.BAD_CONDITION)
        query, self.root = found
        if other is None or query != other[0]:
            raise refusal("more than one condition", Reason.NOT_ONE_CONDITION)

    def _check_text(self) -> None:
        if not self._text:
            raise refusal("no condition", Reason.NO_CONDITION)
        if len(self._text) > _CHARS_MAX:
            raise refusal(
                f"a condition of {len(self._text):,} characters",
                Reason.BAD_CONDITION,
                expected=f"at most {_CHARS_MAX:,}",
            )
        if not is_storable(self._text):
            raise refusal("a condition that is not UTF-8", Reason.NOT_UTF8, expected="text in UTF-8")

    def place(self, node: Node) -> str | None:
        """Where the node is in the text, for an error."""
        at = node.get("query_location", -1) - len(_BEFORE)
        data = self._text.encode()
        if not 0 <= at < len(data):
            return None
        return f"character {len(data[:at].decode(errors='ignore')) + 1} of the condition"

    def check(self, node: Node) -> None:
        """Raise `InvalidRequestError` for a node of another form than the known ones."""
        kind = str(node.get("class"))
        is_known = kind in _KEYS and node.keys() <= _KEYS[kind] | _PLACED
        if kind == "FUNCTION" and not (is_known and _is_plain_call(node)):
            raise refusal(
                f"the function {str(node.get('function_name'))[:60]!r}, called in a form of its own",
                Reason.FUNCTION_NOT_ALLOWED,
                place=self.place(node),
                expected="a name and the arguments in brackets",
            )
        if not is_known:
            seen = _NAMED.get(kind, "a part of a kind that is not permitted")
            raise refusal(f"{seen} in the condition", Reason.NOT_IN_A_CONDITION, place=self.place(node))


def _is_plain_call(node: Node) -> bool:
    """Whether a function is called by its name with arguments in brackets, and nothing else is said."""
    return (
        node["qualified_name"] == {"path": [node["function_name"]]}
        and node["order_bys"] == {"type": "ORDER_MODIFIER"}
        and not any(node[flag] for flag in ("distinct", "export_state", "is_legacy_function_call"))
        and all(each.keys() == {"expression"} for each in node.get("arguments", ()))
    )


def _tree(connection: duckdb.DuckDBPyConnection, text: str) -> tuple[Any, Node] | None:
    """A condition within a query: the query without it, and the condition; None for what cannot be parsed."""
    try:  # the newline ends a comment
        (serialized,) = connection.execute(_SERIALIZE, [f"{_BEFORE}{text}\n"]).fetchall()[0]
        parsed = json.loads(serialized)
    except (duckdb.Error, RecursionError):
        return None
    if parsed["error"]:
        return None
    nodes = [each["node"] for each in parsed["statements"]]
    return nodes, nodes[0].pop("where_clause", {})
