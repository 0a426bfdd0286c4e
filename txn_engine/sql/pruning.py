"""Which files a query can do without: the log knows the partition and the offsets of each, and DuckDB does not.

Only what is certain counts. A query is looked at where it reads one topic, once: the terms of its WHERE that are all
true or nothing comes, and its ORDER BY with a LIMIT. What is not understood leaves a file out of no query.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from txn_engine.sql.file_parts import OFFSET, PARTITION, FilePart

Tree = Mapping[str, Any]
Order = tuple[tuple[str, bool], ...]
_LOWEST: Final = -(2**63)
_HIGHEST: Final = 2**63 - 1
_MIRRORED: Final = {
    "COMPARE_LESSTHAN": "COMPARE_GREATERTHAN",
    "COMPARE_GREATERTHAN": "COMPARE_LESSTHAN",
    "COMPARE_LESSTHANOREQUALTO": "COMPARE_GREATERTHANOREQUALTO",
    "COMPARE_GREATERTHANOREQUALTO": "COMPARE_LESSTHANOREQUALTO",
    "COMPARE_EQUAL": "COMPARE_EQUAL",
}
_PLAIN_QUERY: Final = {"type", "cte_map", "select_list", "from_table", "aggregate_handling"}
_SHOWING: Final = _PLAIN_QUERY | {"where_clause", "modifiers"}
_UNDERSTOOD: Final = _SHOWING | {"group_expressions", "group_sets"}
_PLAIN_TABLE: Final = {
    "type",
    "alias",
    "table_name",
    "qualified_name",
    "query_location",
    "query_location_length",
}


@dataclass(frozen=True, slots=True)
class Term:
    """A condition on `_partition` or `_offset`: from `low` to `high`, and one of `among` where that is not None."""

    column: str
    low: int = _LOWEST
    high: int = _HIGHEST
    among: frozenset[int] | None = None

    def may_hold(self, part: FilePart) -> bool:
        """Whether it may hold for a record of the part."""
        low, high = part.start, part.end - 1
        if self.column == PARTITION:
            low = high = part.partition
        if high < self.low or low > self.high:
            return False
        return self.among is None or any(low <= value <= high for value in self.among)


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a query wants of its one topic.

    terms: all of them hold for what it shows. limit: the first so many records in this order are enough, of all for
    which the terms hold, or of each partition; None where that is not sure. order: columns of ours, and whether they
    descend. count: it wants the number of records alone, under this name.
    """

    terms: tuple[Term, ...] = ()
    order: Order = ()
    limit: int | None = None
    of_each_partition: bool = False
    count: str | None = None


def chosen(parts: Sequence[FilePart], wanted: Wanted) -> list[FilePart]:
    """The parts that may hold what is wanted, in the order given."""
    found = [part for part in parts if all(term.may_hold(part) for term in wanted.terms)]
    if wanted.limit is None or not wanted.order:
        return found
    if not wanted.of_each_partition:
        return _first(found, wanted.order, wanted.limit)
    by_partition: dict[int, list[FilePart]] = {}
    for part in found:
        by_partition.setdefault(part.partition, []).append(part)
    return [part for each in by_partition.values() for part in _first(each, wanted.order, wanted.limit)]


def _first(parts: list[FilePart], order: Order, limit: int) -> list[FilePart]:
    """Those that hold the first so many records in this order: the others begin behind a place at which so many have
    come.
    """
    have = 0
    for last, records in sorted((_bounds(part, order)[1], part.records) for part in parts):
        have += max(records, 0)
        if have >= limit:
            return [part for part in parts if _bounds(part, order)[0] <= last]
    return parts


def _bounds(part: FilePart, order: Order) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Between which places in the order all of its records are."""
    first: list[int] = []
    last: list[int] = []
    for column, descends in order:
        low, high = part.start, part.end - 1
        if column == PARTITION:
            low = high = part.partition
        first.append(-high if descends else low)
        last.append(-low if descends else high)
    return tuple(first), tuple(last)


# --- what the tree says ---------------------------------------------------------------------------------------


def wanted_of(node: Tree) -> Wanted:
    """What a query wants that reads one table, once. Of one that is not understood: everything."""
    table = node.get("from_table", {})
    if node.get("type") != "SELECT_NODE" or node.get("cte_map") or not set(table) <= _PLAIN_TABLE:
        return Wanted()
    if table["type"] != "BASE_TABLE" or _hides_ours(node["select_list"]):
        return Wanted()
    names = _Names(str(table.get("alias") or table["table_name"]).lower())
    terms = [names.term(each) for each in _conjuncts(node.get("where_clause"))]
    known = tuple(term for term in terms if term is not None)
    if any(term is None or term.column != PARTITION for term in terms):
        return Wanted(known)  # how many records of a file are left, nobody knows
    if set(node) <= _PLAIN_QUERY and (count := _count_of(node["select_list"])) is not None:
        return Wanted(count=count)
    if not set(node) <= _UNDERSTOOD or not all(map(_is_simple, node.get("modifiers", ()))):
        return Wanted(known)
    if set(node) <= _SHOWING and all(map(_is_column, node["select_list"])):
        return Wanted(known, *_order_and_limit(node, names))
    descends, of_each = _extreme_of(node, names)
    return Wanted(known) if descends is None else Wanted(known, ((OFFSET, descends),), 1, of_each)


def _hides_ours(items: Sequence[Tree]) -> bool:
    """Whether a column of the result has the name of one of ours, and is another."""
    return any(
        str(item.get("alias", "")).lower() in (PARTITION, OFFSET) or item.get("replace_list") or item.get("rename_list")
        for item in items
    )  # fmt: skip


def _is_simple(modifier: Tree) -> bool:
    """A LIMIT, or an ORDER BY of columns: one of a count goes by the records that are not wanted too."""
    if modifier["type"] != "ORDER_MODIFIER":
        return bool(modifier["type"] == "LIMIT_MODIFIER")
    return all(each["expression"]["type"] in ("COLUMN_REF", "VALUE_CONSTANT") for each in modifier["orders"])


def _is_column(item: Tree) -> bool:
    return item["type"] == "COLUMN_REF" or (item["type"] == "STAR" and not item.get("columns"))


def _count_of(items: Sequence[Tree]) -> str | None:
    """The name of a count of all records, if that is all."""
    if len(items) != 1 or _aggregate_of(items[0]) != ("count_star", []):
        return None
    return str(items[0].get("alias") or "count_star()")


def _aggregate_of(item: Tree) -> tuple[str, list[Tree]]:
    """The function and its arguments, of a call without anything else to it."""
    if item["type"] != "FUNCTION" or any(item.get(name) for name in ("filter", "distinct", "export_state")):
        return "", []
    arguments = [each["expression"] for each in item.get("arguments", ())]
    return str(item["function_name"]).lower(), arguments


def _extreme_of(node: Tree, names: _Names) -> tuple[bool | None, bool]:
    """Whether the highest offset is asked for, or the lowest, and whether of each partition; None for all else."""
    functions = set()
    items = node["select_list"]
    for item in items:
        name, arguments = _aggregate_of(item)
        if name in ("max", "min") and len(arguments) == 1 and names.ours(arguments[0]) == OFFSET:
            functions.add(name)
        elif names.ours(item) != PARTITION:
            return None, False
    groups = node.get("group_expressions", ())
    grouped = [names.ours(each) or names.ours(_numbered(items, each)) for each in groups]
    if len(functions) != 1 or any(column != PARTITION for column in grouped):
        return None, False
    if not groups and len(items) != 1:
        return None, False
    return functions == {"max"}, bool(groups)


def _numbered(items: Sequence[Tree], node: Tree) -> Tree:
    """The column that a number in a GROUP BY stands for."""
    number = _number(node)
    return items[number - 1] if number is not None and 0 < number <= len(items) else {}


def _conjuncts(where: Tree | None) -> list[Tree]:
    if where is None:
        return []
    if where["type"] == "CONJUNCTION_AND":
        return [each for child in where["children"] for each in _conjuncts(child)]
    return [where]


def _order_and_limit(node: Tree, names: _Names) -> tuple[Order, int | None]:
    by_type = {each["type"]: each for each in node.get("modifiers", ())}
    if set(by_type) != {"ORDER_MODIFIER", "LIMIT_MODIFIER"}:
        return (), None
    order: list[tuple[str, bool]] = []
    for each in by_type["ORDER_MODIFIER"]["orders"]:
        column = names.ours(each["expression"])
        if column is None or column in dict(order):
            break
        order.append((column, each["type"] == "DESCENDING"))
    limits = by_type["LIMIT_MODIFIER"]
    limit, offset = _number(limits.get("limit")), _number(limits.get("offset"))
    if limit is None or limits["limit_type"] != "ROW_COUNT" or ("offset" in limits and offset is None):
        return tuple(order), None
    return tuple(order), limit + (offset or 0)


def _number(node: Tree | None) -> int | None:
    literal = {} if node is None else node.get("literal", {})
    if node is None or node.get("type") != "VALUE_CONSTANT" or literal.get("kind") != "INTEGER":
        return None
    return int(literal["text"])


@dataclass(frozen=True, slots=True)
class _Names:
    """How a query names the columns: by themselves, or by its name of the table."""

    table: str

    def ours(self, node: Tree) -> str | None:
        """Which of `_partition` and `_offset` it is."""
        path = [str(name).lower() for name in node.get("column_names", ())]
        if node.get("type") != "COLUMN_REF" or path[:-1] not in ([], [self.table]):
            return None
        return path[-1] if path[-1] in (PARTITION, OFFSET) else None

    def term(self, node: Tree) -> Term | None:
        """The condition, if it is one on a column of ours with a number."""
        kind = node["type"]
        if kind in _MIRRORED:
            column, value = self.ours(node["left"]), _number(node["right"])
            if column is None:
                column, value, kind = self.ours(node["right"]), _number(node["left"]), _MIRRORED[kind]
            return None if column is None or value is None else _compared(column, kind, value)
        if kind == "COMPARE_BETWEEN":
            column, low, high = self.ours(node["input"]), _number(node["lower"]), _number(node["upper"])
            return None if column is None or low is None or high is None else Term(column, low, high)
        if kind == "COMPARE_IN":
            column, values = self.ours(node["children"][0]), [_number(each) for each in node["children"][1:]]
            among = frozenset(value for value in values if value is not None)
            return None if column is None or None in values else Term(column, among=among)
        return None


def _compared(column: str, kind: str, value: int) -> Term:
    if kind == "COMPARE_EQUAL":
        return Term(column, value, value)
    if kind.startswith("COMPARE_LESSTHAN"):
        return Term(column, high=value if kind.endswith("OREQUALTO") else value - 1)
    return Term(column, value if kind.endswith("OREQUALTO") else value + 1)
