"""A predicate over a topic's records, in SQL, by a DuckDB that can reach nothing else: for `erase --where`.

DuckDB parses and evaluates it; what is judged here is the tree that it makes of it. Words of DuckDB's that could hold a
value of a record are told to nobody.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import duckdb
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from txn_engine.errors import InvalidRequestError
from txn_engine.log.data_files import logical_schema
from txn_engine.names import is_storable
from txn_engine.reasons import Reason
from txn_engine.schemas.layout import OFFSET, PARTITION, TIMESTAMP
from txn_engine.sql.interruptible import interruptibly

ACTOR: Final = "erase"
_BOOLEAN: Final = "a condition on the topic's columns, such as account_id = 42"
_CHARS_MAX: Final = 1_000_000
_SERIALIZE: Final = "SELECT json_serialize_sql($1::VARCHAR, skip_null := true, skip_empty := true)"
_OWN: Final = (PARTITION, OFFSET, TIMESTAMP)
_REFUSED: Final = {
    "SUBQUERY": "a query inside it",
    "WINDOW": "a window",
    "STAR": "*",
    "LAMBDA": "a lambda",
    "PARAMETER": "a parameter",
    "POSITIONAL_REFERENCE": "a column by its place",
}
_SAME_EACH_TIME: Final = ("scalar", "CONSISTENT")
_SAME_IN_ONE_ZONE: Final = {_SAME_EACH_TIME, ("scalar", "CONSISTENT_WITHIN_QUERY")}
_COMPARED: Final = ("COMPARE_BETWEEN", "COMPARE_IN", "COMPARE_NOT_IN")
_OPERANDS: Final = ("left", "right", "input", "lower", "upper")
_DIGITS_MAX: Final = 38
_FLOAT: Final = re.compile("DOUBLE|FLOAT")
_LONG: Final = re.compile(r"BIGINT|HUGEINT|DECIMAL\((1[6-9]|[23]\d),")
"""Of the types that have numbers that no float tells from their neighbours."""
_ASKS_THE_CLOCK: Final = "age"
"""`age(x)` counts from today, and is called CONSISTENT."""


class SqlPredicate:
    """A condition on the records of a topic of this schema. `matches` may be asked for any of them.

    Raises `InvalidRequestError` for what is no condition, names a column that the topic has not, or could answer
    otherwise the next time: queries inside it, functions that read time, chance, settings or files.
    """

    def __init__(self, text: str, schema: pa.Schema, *, topic: str) -> None:
        self._text = text.strip()
        self._schema = schema
        config: dict[str, Any] = {
            "autoinstall_known_extensions": False,
            "autoload_known_extensions": False,
            "python_enable_replacements": False,
            "temp_directory": "",  # what is searched is put nowhere
            "threads": 1,
        }
        self._connection = duckdb.connect(config=config)
        self._connection.execute("SET GLOBAL TimeZone = 'UTC'")
        self._connection.execute("SET enable_external_access = false")
        self._connection.execute("SET lock_configuration = true")
        nodes = list(_nodes(self._tree()))
        self._check_functions(nodes)
        self.columns: Sequence[str] = self._columns(nodes, topic)
        self.is_constant = not self.columns
        self._check_floats(nodes)
        self._check_type()

    def close(self) -> None:
        """Let go of DuckDB."""
        self._connection.close()

    def matches(self, records: pa.Table) -> NDArray[np.bool_]:
        """Which of these records it chooses: true, and not null."""
        self._connection.register("records", records)
        try:
            found = interruptibly(self._chosen, self._connection.interrupt)
        except duckdb.Error as error:
            raise InvalidRequestError(
                f"a condition that cannot be evaluated for every record ({type(error).__name__})",
                actor=ACTOR,
                expected="one that has an answer for each",
                action="use TRY_CAST or CASE where a value may not fit",
                reason=Reason.CONDITION_UNANSWERED,
            ) from None
        finally:
            self._connection.unregister("records")
        return np.ma.filled(found, False).astype(np.bool_)

    def _chosen(self) -> Any:
        query = f"SELECT coalesce(({self._text}\n), false) AS chosen FROM records"
        return self._connection.execute(query).fetchnumpy()["chosen"]

    # --- what it may be --------------------------------------------------------------------------------------

    def _tree(self) -> Mapping[str, Any]:
        if not self._text:
            raise _refused("no condition", Reason.NO_CONDITION)
        if len(self._text) > _CHARS_MAX:
            raise InvalidRequestError(
                f"a condition of {len(self._text):,} characters",
                actor=ACTOR,
                expected=f"at most {_CHARS_MAX:,}",
            )
        if not is_storable(self._text):
            raise InvalidRequestError(
                "a condition that is not UTF-8",
                actor=ACTOR,
                expected="text in UTF-8",
                reason=Reason.NOT_UTF8,
            )
        whole = f"SELECT ({self._text}\n) AS chosen FROM records"
        try:
            count = len(self._connection.extract_statements(whole))
            (text,) = self._connection.execute(_SERIALIZE, [whole]).fetchall()[0]
            parsed = json.loads(text)
            node = parsed["statements"][0]["node"] if not parsed["error"] and count == 1 else {}
        except (duckdb.Error, RecursionError):
            raise _refused("a condition that is no SQL", Reason.BAD_CONDITION) from None
        source, selected = node.get("from_table", {}), node.get("select_list", ())
        is_plain = node.get("type") == "SELECT_NODE" and not (
            node.keys() & {"where_clause", "group_expressions", "having", "qualify", "cte_map"} - _empty(node)
        )
        if (
            not is_plain
            or len(selected) != 1
            or selected[0].get("alias") != "chosen"
            or (source.get("type"), source.get("table_name")) != ("BASE_TABLE", "records")
            or node.get("modifiers")
        ):
            raise _refused("more than one condition", Reason.NOT_ONE_CONDITION)
        self._statement: Any = parsed
        tree: Mapping[str, Any] = selected[0]
        return tree

    def _check_functions(self, nodes: Sequence[Mapping[str, Any]]) -> None:
        """Only functions that say the same of the same values, and look at nothing else. DuckDB says which they are;
        those that ask for the zone of the session too are among them, which is UTC here, whoever asks.
        """
        for node in nodes:
            kind = node.get("class")
            if kind in _REFUSED:
                raise _refused(f"{_REFUSED[str(kind)]} in the condition", Reason.NOT_IN_A_CONDITION)
        names = {str(node.get("function_name")).lower() for node in nodes if node.get("class") == "FUNCTION"}
        for name in sorted(names):
            kinds = self._connection.execute(
                "SELECT DISTINCT function_type, stability FROM duckdb_functions() WHERE function_name = $1",
                [name],
            ).fetchall()
            if _SAME_EACH_TIME not in kinds or name == _ASKS_THE_CLOCK or not set(kinds) <= _SAME_IN_ONE_ZONE:
                raise InvalidRequestError(
                    f"the function {name[:60]!r} in the condition",
                    actor=ACTOR,
                    expected="functions of the record's own values, that say the same each time",
                    reason=Reason.FUNCTION_NOT_ALLOWED,
                )

    def _columns(self, nodes: Sequence[Mapping[str, Any]], topic: str) -> list[str]:
        """The topic's columns that it names, whatever the case that it writes them in."""
        known: dict[str, str] = {}
        for each in (*_OWN, *self._schema.names):
            other = known.setdefault(each.lower(), each)
            if other != each:
                raise InvalidRequestError(
                    f"columns {other!r} and {each!r} of topic {topic!r}",
                    actor=ACTOR,
                    expected="names that differ by more than case: SQL does not tell these two apart",
                    action="rename one of them, then erase",
                    reason=Reason.COLUMN_NAMES_ALIKE,
                )
        found = []
        for node in nodes:
            if node.get("class") != "COLUMN_REF":
                continue
            names = node["column_names"]
            name = known.get(names[0].lower()) or (known.get(names[1].lower()) if len(names) > 1 else None)
            if name is None:
                raise InvalidRequestError(
                    f"no column {'.'.join(names)[:60]!r} in topic {topic!r}",
                    actor=ACTOR,
                    expected=f"one of its columns: {', '.join(self._schema.names)}"[:400],
                    action="put texts into single quotes: name = 'Miller'",
                    reason=Reason.UNKNOWN_COLUMN,
                )
            found.append(name)
        return list(dict.fromkeys(found))

    def _check_floats(self, nodes: Sequence[Mapping[str, Any]]) -> None:
        """Whole numbers and decimals beside a float are compared as floats, where neighbours are equal from 2^53 on."""
        compared = [
            [node[name] for name in _OPERANDS if name in node] + node.get("children", [])
            for node in nodes
            if node.get("class") == "COMPARISON" or node.get("type") in _COMPARED
        ]
        computed = [each for operands in compared for each in operands if each.get("class") != "CONSTANT"]
        columns = _column_refs(computed)
        types = self._types({_said(each): each for each in (*computed, *columns)})
        for operands in compared:
            found = [(each, types.get(_said(each), "")) for each in operands]
            if any(_FLOAT.search(kind) or _is_float(each) for each, kind in found):
                for each, kind in found:
                    self._refuse_long(each, kind, types)

    def _refuse_long(self, operand: Mapping[str, Any], kind: str, types: Mapping[str, str]) -> None:
        """Refuse to compare this with a float, where a column is in it that has numbers that no float tells apart."""
        for each in _column_refs(operand) if _LONG.search(kind) else ():
            name = ".".join(each["column_names"])
            if _LONG.search(types[_said(each)]) and name.lower() not in _OWN:
                raise InvalidRequestError(
                    f"a float, or a number with an exponent, compared with {name[:60]!r}",
                    actor=ACTOR,
                    expected="all digits of a number, as 9007199254740993: several are the same float",
                    reason=Reason.FLOAT_COMPARISON,
                )

    def _types(self, asked: Mapping[str, Mapping[str, Any]]) -> dict[str, str]:
        """What DuckDB makes of these parts of the condition; of none where it can make nothing of one."""
        if not asked:
            return {}
        self._statement["statements"][0]["node"]["select_list"] = list(asked.values())
        try:
            self._connection.register("records", self._empty_records())
            text = json.dumps(self._statement)
            (query,) = self._connection.execute("SELECT json_deserialize_sql($1)", [text]).fetchall()[0]
            found = self._connection.execute(f"DESCRIBE {query}").fetchall()
        except duckdb.Error:  # who asks for all of it is told
            return {}
        finally:
            self._connection.unregister("records")
        return {name: str(each[1]) for name, each in zip(asked, found, strict=True)}

    def _empty_records(self) -> pa.Table:
        return logical_schema(self._schema, self.columns or [OFFSET]).empty_table()

    def _check_type(self) -> None:
        try:
            self._connection.register("records", self._empty_records())
            shown = self._connection.execute(f"SELECT ({self._text}\n) AS chosen FROM records").description
            kind = str(shown[0][1])
        except duckdb.Error as error:
            seen, reason = "a condition that does not fit the columns' types", Reason.BAD_CONDITION
            if isinstance(error, duckdb.NotImplementedException):
                seen = "a condition on a column of a type that DuckDB has not"
                reason = Reason.UNSUPPORTED_TYPE
            raise _refused(f"{seen} ({type(error).__name__})", reason) from None
        finally:
            self._connection.unregister("records")
        if kind.upper() not in ("BOOLEAN", "BOOL"):
            raise _refused(f"an expression of type {kind[:60]}", Reason.CONDITION_NOT_BOOLEAN)


def _refused(seen: str, reason: Reason) -> InvalidRequestError:
    return InvalidRequestError(seen, actor=ACTOR, expected=_BOOLEAN, reason=reason)


def _column_refs(tree: Any) -> list[Mapping[str, Any]]:
    return [each for each in _nodes(tree) if each.get("class") == "COLUMN_REF"]


def _said(node: Mapping[str, Any]) -> str:
    """The same for parts of a condition that say the same."""
    return json.dumps(node.get("column_names", node))


def _is_float(node: Mapping[str, Any]) -> bool:
    """Whether DuckDB takes it for a float: a number with an exponent, or of more digits than decimals have."""
    literal = node.get("literal", {})
    text = str(literal.get("text", "")).lower()
    return literal.get("kind") == "NUMERIC" and ("e" in text or sum(map(str.isdigit, text)) > _DIGITS_MAX)


def _empty(node: Mapping[str, Any]) -> set[str]:
    """What is there and says nothing."""
    return {name for name, held in node.items() if not held or held in ({"map": []}, {"map": {}})}


def _nodes(tree: Any) -> Iterator[Mapping[str, Any]]:
    todo = [tree]
    while todo:
        each = todo.pop()
        if isinstance(each, Mapping):
            yield each
            todo += each.values()
        elif isinstance(each, list):
            todo += each
