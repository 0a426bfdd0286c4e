"""What a query is, before anything of it runs: one statement that reads, the topics that it names, and which of its
columns are columns of a topic as they stand.

The text is DuckDB's to parse; what is judged here is the tree that it makes of it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import duckdb

from txn_engine.errors import InvalidRequestError
from txn_engine.names import is_storable
from txn_engine.sql.permitted import ACTOR, READS_ALONE, Tree, folded, table_name, tables_in
from txn_engine.sql.pruning import Wanted, wanted_of

_CHARS_MAX: Final = 4_000_000
_SERIALIZE: Final = "SELECT json_serialize_sql($1::VARCHAR, skip_null := true, skip_empty := true)"


@dataclass(frozen=True, slots=True)
class TableRef:
    """A table as a query names it, and the name by which it goes there."""

    name: str
    alias: str


@dataclass(frozen=True, slots=True)
class PlainColumns:
    """Which columns of the result are columns of a table as they stand: nothing was computed.

    `sources`: where they are from. `named`: by the result's name, the column. `has_star`: all columns of the sources
    too. `computed`: names of the result that something else has. Names are in lower case.
    """

    sources: tuple[TableRef, ...] = ()
    named: Mapping[str, str] = field(default_factory=dict)
    has_star: bool = False
    computed: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Statement:
    """A query that reads. `tables`: the names it reads from, as written; those of its own WITH are none. `wanted`: what
    of them, where it is one table that is read once.
    """

    text: str
    tables: tuple[str, ...]
    plain: PlainColumns
    wanted: Wanted


def read_statement(connection: duckdb.DuckDBPyConnection, query: str) -> Statement:
    """The query, if it is one that reads. Raises `InvalidRequestError` for all else; nothing was run."""
    if not isinstance(query, str):
        raise InvalidRequestError(f"SQL of type {type(query).__name__}", actor=ACTOR, expected="a text")
    if not query.strip():
        raise InvalidRequestError("no SQL", actor=ACTOR, expected=READS_ALONE)
    if not is_storable(query):
        raise InvalidRequestError("SQL that is not UTF-8", actor=ACTOR, expected="text in UTF-8")
    if len(query) > _CHARS_MAX:
        raise InvalidRequestError(
            f"{len(query):,} characters of SQL", actor=ACTOR, expected=f"at most {_CHARS_MAX:,}"
        )
    text = query.strip()
    statements = _parsed(connection, text)
    if len(statements) != 1:
        raise InvalidRequestError(f"{len(statements)} statements", actor=ACTOR, expected=READS_ALONE)
    node = statements[0]["node"]
    try:
        named = list(tables_in(node))
        tables = tuple(dict.fromkeys(named))
        plain = _plain_columns(node, frozenset(tables))
        wanted = wanted_of(node) if len(named) == 1 else Wanted()
    except RecursionError:
        raise _too_deep() from None
    return Statement(text, tables, plain, wanted)


def _parsed(connection: duckdb.DuckDBPyConnection, text: str) -> Sequence[Tree]:
    try:
        kinds = [statement.type.name for statement in connection.extract_statements(text)]
        if all(kind == "SELECT" for kind in kinds):
            (tree,) = connection.execute(_SERIALIZE, [text]).fetchall()[0]
            parsed = json.loads(tree)
    except duckdb.Error as error:
        text = told(error)
        action = "put a name that has dashes or dots in double quotes" if text.endswith('near "-"') else None
        raise InvalidRequestError(text, actor=ACTOR, action=action) from error
    except RecursionError:
        raise _too_deep() from None
    others = [kind for kind in kinds if kind != "SELECT"]
    if others:
        name = "PIVOT without a list of values" if others[0] == "MULTI" else others[0].replace("_", " ")
        raise InvalidRequestError(f"a statement of the kind {name}", actor=ACTOR, expected=READS_ALONE)
    if parsed["error"]:
        raise InvalidRequestError(
            f"SQL that cannot be looked into: {parsed['error_message']}", actor=ACTOR, expected=READS_ALONE
        )
    found: list[Tree] = parsed["statements"]
    return found


def _too_deep() -> InvalidRequestError:
    return InvalidRequestError("a query inside too many others", actor=ACTOR, expected="a simpler one")


def told(error: duckdb.Error) -> str:
    """What DuckDB says, on one line, without the copy of the query below it."""
    text = str(error).partition("\n\nLINE ")[0].partition("\n\nStack Trace")[0]
    return " ".join(text.split())


# --- the columns that are as they stand -----------------------------------------------------------------------


def _plain_columns(node: Tree, tables: frozenset[str]) -> PlainColumns:
    defined = {folded(each["key"]) for each in node.get("cte_map", {}).get("map", ())}
    topics = frozenset(name for name in tables if folded(name) not in defined)
    sources = _sources(node.get("from_table", {}), topics) if node.get("type") == "SELECT_NODE" else None
    if sources is None:
        return PlainColumns()
    named: dict[str, str] = {}
    computed: set[str] = set()
    has_star = False
    qualifiers = {source.alias.lower() for source in sources}
    for item in node["select_list"]:
        if _is_star_of(item, qualifiers):
            has_star = True
            computed |= _replaced(item)
        elif _makes_several(item):
            return PlainColumns()
        else:
            name, column = _named(item, qualifiers)
            if column is None or named.setdefault(name, column) != column:
                computed.add(name)
    return PlainColumns(sources, named, has_star, frozenset(computed))


def _named(item: Tree, qualifiers: set[str]) -> tuple[str, str | None]:
    """The name of a column of the result, and the column that it is as it stands."""
    path = item.get("column_names") or [""]
    name = str(item.get("alias") or path[-1]).lower()
    is_plain = item["type"] == "COLUMN_REF" and (
        len(path) == 1 or (len(path) == 2 and path[0].lower() in qualifiers)
    )
    return name, path[-1].lower() if is_plain else None


def _replaced(star: Tree) -> set[str]:
    """Names that `* REPLACE (...)` and `* RENAME (...)` give to something else."""
    replaced = {str(each["key"]) for each in star.get("replace_list", ())}
    renamed = {str(each["value"]) for each in star.get("rename_list", ())}
    return {name.lower() for name in replaced | renamed}


def _is_star_of(item: Tree, qualifiers: set[str]) -> bool:
    """Whether it is `*`, or all columns of one of these tables. `name.*` may also be the fields of a column."""
    if item["type"] != "STAR" or item.get("columns"):
        return False
    return "relation_name" not in item or item["relation_name"].lower() in qualifiers


def _makes_several(node: Any) -> bool:
    """Whether it may stand for several columns, whose names only DuckDB knows: COLUMNS(*), the fields of a struct."""
    if isinstance(node, list):
        return any(map(_makes_several, node))
    if not isinstance(node, dict):
        return False
    is_several = node.get("type") == "STAR" or str(node.get("function_name", "")).lower() == "unnest"
    return is_several or any(_makes_several(part) for name, part in node.items() if name != "subquery")


def _sources(node: Tree, tables: frozenset[str]) -> tuple[TableRef, ...] | None:
    """The topics of a FROM, where there is nothing but topics and joins of topics."""
    if node.get("type") == "BASE_TABLE" and not node.get("column_name_alias"):
        name = table_name(node)
        return (TableRef(name, str(node.get("alias") or name)),) if name in tables else None
    if node.get("type") == "JOIN":
        left, right = _sources(node["left"], tables), _sources(node["right"], tables)
        return None if left is None or right is None else (*left, *right)
    return None
