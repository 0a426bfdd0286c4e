"""What a query may consist of, and the tables that it names: the tree that DuckDB's parser makes is walked.

Only kinds and functions that are listed here go through, so what DuckDB learns to parse is refused until somebody has
looked at it. What is not listed reads files or settings, says something of the server, waits, or logs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Final

from txn_engine.errors import InvalidRequestError
from txn_engine.reasons import Reason

ACTOR: Final = "sql"
READS_ALONE: Final = "one SELECT, and nothing else: SQL reads topics"
Tree = Mapping[str, Any]

_QUERIES: Final = frozenset({"SELECT_NODE", "SET_OPERATION_NODE", "RECURSIVE_CTE_NODE"})
_KINDS: Final = _QUERIES | {
    *("BASE_TABLE", "EMPTY", "EXPRESSION_LIST", "JOIN", "PIVOT", "SHOW_REF", "SUBQUERY", "TABLE_FUNCTION"),
    *("DISTINCT_MODIFIER", "LIMIT_MODIFIER", "LIMIT_PERCENT_MODIFIER", "ORDER_MODIFIER"),
    *("ASCENDING", "DESCENDING", "ORDER_DEFAULT"),
}
"""Of queries, of what stands behind FROM, and of what comes after."""
_CLASSES: Final = frozenset(
    {
        *("BETWEEN", "CASE", "CAST", "COLLATE", "COLUMN_REF", "COMPARISON", "CONJUNCTION", "CONSTANT", "DEFAULT"),
        *("FUNCTION", "LAMBDA", "OPERATOR", "POSITIONAL_REFERENCE", "STAR", "SUBQUERY", "TYPE", "WINDOW"),
    }
)  # fmt: skip
"""Of expressions."""
_SHOWN: Final = frozenset({"DESCRIBE", "SUMMARY"})
_TABLE_FUNCTIONS: Final = frozenset(
    {"range", "generate_series", "unnest", "repeat", "repeat_row", "json_each", "json_tree"}
)
"""Functions that make a table of their arguments."""
_FUNCTIONS: Final = _TABLE_FUNCTIONS.union(
    Path(__file__).with_name("functions.txt").read_text(encoding="utf-8").split()
)
"""These, and functions that compute a value of their arguments or of a window, or tell the time."""
ANSWERED: Final = (
    "current_catalog",
    "current_role",
    "current_schema",
    "current_user",
    "session_user",
    "user",
)
"""Names that DuckDB answers by itself, as functions, where no table has such a column; each says something of the
server. Those that tell the time are permitted."""


def folded(name: str) -> str:
    """The name as DuckDB compares it: letters beyond ASCII have their case."""
    return name.encode(errors="surrogatepass").lower().decode(errors="surrogatepass")


def tables_in(root: Tree) -> Iterator[str]:
    """Every table that is named, in order, but what a WITH defines where that is known. Refuses all that is not
    permitted.
    """
    todo: list[tuple[Any, frozenset[str]]] = [(root, frozenset())]
    while todo:
        node, known = todo.pop()
        if isinstance(node, list):
            todo.extend((each, known) for each in reversed(node))
            continue
        if not isinstance(node, dict):
            continue
        _check(node)
        if node.get("type") == "BASE_TABLE":
            name = table_name(node)
            if folded(name) not in known:
                yield name
        todo.extend(reversed(list(_inside(node, known))))


def _inside(node: Tree, known: frozenset[str]) -> Iterator[tuple[Any, frozenset[str]]]:
    """The parts of a node, each with the names that WITH has defined there."""
    if node.get("class") == "CONSTANT":
        return
    for each in node.get("cte_map", {}).get("map", ()):
        yield each["value"], known
        known = known | {folded(each["key"])}
    is_recursive = node.get("type") == "RECURSIVE_CTE_NODE"
    for name, value in node.items():
        if is_recursive and name == "right":  # the left side does not know the name yet
            yield value, known | {folded(node["cte_name"])}
        elif name != "cte_map":
            yield value, known


def _check(node: Tree) -> None:
    kind, kind_of_expression = node.get("type"), node.get("class")
    if kind_of_expression is None and isinstance(kind, str):
        _check_kind(node, kind)
    elif kind_of_expression is not None and kind_of_expression not in _CLASSES:
        raise _refused(f"a part of the kind {kind_of_expression}")
    if kind_of_expression in ("FUNCTION", "WINDOW"):
        path = node.get("qualified_name", {}).get("path", ())
        # with a path the last part is the function, called on a column as in name.upper(), or of a schema of DuckDB's
        name = str(path[-1] if path else node.get("function_name", ""))
        if folded(name) not in _FUNCTIONS:
            near = get_close_matches(folded(name), _FUNCTIONS, 1)
            raise _refused(f"the function {name!r}", action=f"did you mean {near[0]!r}?" if near else None)


def _check_kind(node: Tree, kind: str) -> None:
    if kind.endswith("_NODE") and kind not in _QUERIES:
        name = kind.removesuffix("_NODE").removesuffix("_QUERY")
        raise _refused(f"{name} inside a query", READS_ALONE)
    if kind not in _KINDS:
        raise _refused(f"a part of the kind {kind}")
    if kind == "SHOW_REF" and node.get("show_type") not in _SHOWN:
        raise _refused(
            f"a part of the kind {node.get('show_type')}", action="DESCRIBE shows a topic's columns"
        )
    if kind == "TABLE_FUNCTION":
        name = folded(str(node["function"]["function_name"]))
        if name not in _TABLE_FUNCTIONS:
            raise _refused(f"the table function {name!r}", f"topics, or one of {sorted(_TABLE_FUNCTIONS)}")


def table_name(node: Tree) -> str:
    """The name of a table. Raises `InvalidRequestError` for one of several parts."""
    path = node["qualified_name"]["path"]
    if len(path) != 1:
        dotted = ".".join(path)
        raise InvalidRequestError(
            f"the table {dotted}",
            actor=ACTOR,
            expected="a topic's name",
            action=f'where a topic has dots in its name, put it in double quotes: "{dotted}"',
        )
    return str(path[0])


def _refused(
    what: str, expected: str = "what computes with the records of topics", action: str | None = None
) -> InvalidRequestError:
    return InvalidRequestError(
        what, actor=ACTOR, expected=expected, action=action, reason=Reason.NOT_PERMITTED_IN_SQL
    )
