"""The types of a condition's parts: both sides of a comparison have one, and only written casts change a type."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal, InvalidOperation
from functools import partial
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from txn_engine.errors import InvalidRequestError
from txn_engine.log.data_files import logical_schema, logical_type
from txn_engine.reasons import Reason
from txn_engine.sql.conditions import operations
from txn_engine.sql.conditions.casts import conversion
from txn_engine.sql.conditions.kinds import (
    BOOLEAN,
    BYTES,
    LENGTH,
    TEXT,
    Kind,
    has_name,
    is_compared,
    is_list,
    is_map,
    kind_of,
    named_kind,
    type_name,
)
from txn_engine.sql.conditions.literals import (
    DAY_NS,
    Literal,
    Moment,
    Null,
    Number,
    bytes_of_text,
    constant,
    how_to_write,
    moment_of_text,
    value_of_text,
)
from txn_engine.sql.conditions.operations import Expression
from txn_engine.sql.conditions.parsing import Parsed
from txn_engine.sql.conditions.refusals import CONDITION, Misfit, Node, refusal

_DEPTH_MAX: Final = 100
_ONE_TYPE: Final = "both sides of one exact type"
_SIGNS: Final[Mapping[str, str]] = {
    "COMPARE_EQUAL": "=",
    "COMPARE_NOTEQUAL": "<>",
    "COMPARE_LESSTHAN": "<",
    "COMPARE_LESSTHANOREQUALTO": "<=",
    "COMPARE_GREATERTHAN": ">",
    "COMPARE_GREATERTHANOREQUALTO": ">=",
}
_LENGTHS: Final[Mapping[str, int]] = {
    "to_days": DAY_NS,
    "to_hours": 3_600 * 10**9,
    "to_minutes": 60 * 10**9,
    "to_seconds": 10**9,
    "to_milliseconds": 10**6,
    "to_microseconds": 10**3,
}
"""What the parser makes of INTERVAL 5 SECOND: these functions of a number."""
_FUNCTIONS: Final = (
    *("coalesce", "contains", "ends_with", "isnan", "length", "list_contains", "lower", "ltrim", "rtrim"),
    *("starts_with", "trim", "upper"),
)
"""The functions that a condition may call, for errors; some have other names too."""
_LIST_FUNCTIONS: Final = ("list_contains", "list_has", "array_contains", "array_has")
_LIKES: Final = (("~~", 2), ("!~~", 2), ("like_escape", 3), ("not_like_escape", 3))
"""What the parser makes of LIKE and NOT LIKE: these functions, and how many arguments each has."""
_DURATION: Final = pa.duration("ns")
Part = Expression | Literal


class Typed:
    """A condition with the type of each part. Raises `InvalidRequestError` for one that is not permitted, and says
    where it is not.
    """

    def __init__(self, parsed: Parsed, schema: pa.Schema, topic: str) -> None:
        self._parsed = parsed
        self._schema = schema
        self._topic = topic
        self._columns: dict[str, None] = {}
        self._depth = 0
        self._known = _known_columns(schema, topic)
        self.root = self._boolean(parsed.root)

    @property
    def columns(self) -> Sequence[str]:
        """The columns that the condition looks at."""
        return list(self._columns)

    # --- the parts ------------------------------------------------------------------------------------------

    def _part(self, node: Node) -> Part:
        self._depth += 1
        if self._depth > _DEPTH_MAX:
            raise refusal(f"a condition of more than {_DEPTH_MAX} levels", Reason.BAD_CONDITION)
        self._parsed.check(node)
        rule = _RULES.get(str(node["class"]))
        if rule is None:
            raise self._unknown(node)
        try:
            found = rule(self, node)
        except Misfit as misfit:
            raise self._refused(node, misfit.seen, misfit.reason, misfit.action) from None
        self._depth -= 1
        return found

    def _refused(
        self, node: Node, seen: str, reason: Reason, action: str | None = None, expected: str | None = None
    ) -> InvalidRequestError:
        place = self._parsed.place(node)
        return refusal(seen, reason, place=place, action=action, expected=expected or CONDITION)

    def _typed(self, node: Node) -> Expression:
        """A part that has a type by itself."""
        found = self._part(node)
        if isinstance(found, Expression):
            return found
        if isinstance(found, Moment):
            return Expression.of_constant(found.kind, constant(found, found.kind))
        raise self._refused(node, "a literal where a column belongs", Reason.CONDITION_TYPES_DIFFER)

    def _boolean(self, node: Node) -> Expression:
        found = self._part(node)
        if isinstance(found, Null):
            return Expression.of_constant(BOOLEAN, constant(found, BOOLEAN))
        if not isinstance(found, Expression) or found.kind != BOOLEAN:
            seen = f"{_called(found)} where true or false belongs"
            raise self._refused(node, seen, Reason.CONDITION_NOT_BOOLEAN)
        return found

    def _text(self, node: Node, function: str) -> Expression:
        return self._as_text(node, self._part(node), function)

    def _as_text(self, node: Node, found: Part, function: str) -> Expression:
        if not isinstance(found, Expression) or found.kind != TEXT:
            seen = f"{function} of {_called(found)}"
            action = "write the conversion out: CAST(the column AS VARCHAR)"
            raise self._refused(node, seen, Reason.CONDITION_TYPES_DIFFER, action, "a text")
        return found

    def _constant_text(self, node: Node, function: str) -> str | None:
        found = self._part(node)
        if isinstance(found, Null):
            return None
        if not isinstance(found, Expression) or found.kind != TEXT or found.constant is None:
            raise self._refused(
                node, f"{function} with something else than a text in quotes", Reason.FUNCTION_NOT_ALLOWED
            )
        text: str | None = found.constant.as_py()
        return text

    def _agreeing(self, node: Node, nodes: Sequence[Node]) -> tuple[Kind, list[Expression]]:
        """Parts that are compared with each other: of one type, which literals among them take."""
        return self._agreed(node, nodes, [self._part(each) for each in nodes])

    def _agreed(
        self, node: Node, nodes: Sequence[Node], parts: Sequence[Part]
    ) -> tuple[Kind, list[Expression]]:
        kinds = {each.kind: each for each in parts if isinstance(each, Expression)}
        if len(kinds) > 1:
            raise self._differing(node, list(kinds.values()))
        kind = next(iter(kinds)) if kinds else _kind_of_literals(parts)
        if not is_compared(kind):
            seen = f"a comparison of {_called(kinds[kind])}" if kinds else "a comparison of NULL with NULL"
            raise self._refused(node, seen, Reason.UNSUPPORTED_TYPE, _inside(kind), "a type that is compared")
        found = []
        for each, where in zip(parts, nodes, strict=True):
            if isinstance(each, Expression):
                found.append(each)
                continue
            try:
                found.append(Expression.of_constant(kind, constant(each, kind)))
            except Misfit as misfit:
                seen = f"{misfit.seen} compared with {_called(kinds[kind]) if kinds else 'a literal'}"
                raise self._refused(where, seen, misfit.reason, misfit.action, _ONE_TYPE) from None
        return kind, found

    def _differing(self, node: Node, parts: Sequence[Expression]) -> InvalidRequestError:
        one, other = parts[:2]
        kinds = {each.kind for each in parts}
        floats = any(map(pa.types.is_floating, kinds))
        exact = any(pa.types.is_integer(kind) or pa.types.is_decimal(kind) for kind in kinds)
        if one.constant is not None:
            one, other = other, one
        written = how_to_write(one.kind) if other.constant is not None else None
        return self._refused(
            node,
            f"{_called(one)} compared with {_called(other)}",
            Reason.FLOAT_COMPARISON if floats and exact else Reason.CONDITION_TYPES_DIFFER,
            written or _cast_between(other, one) or _cast_between(one, other),
            _ONE_TYPE,
        )

    # --- nodes ----------------------------------------------------------------------------------------------

    def _column(self, node: Node) -> Part:
        first, *fields = node["column_names"]
        name = self._known.get(first.lower())
        if name is None:
            raise self._refused(
                node,
                f"no column {'.'.join(node['column_names'])[:60]!r} in topic {self._topic!r}",
                Reason.UNKNOWN_COLUMN,
                "put texts into single quotes: name = 'Miller'",
                f"one of its columns: {', '.join(self._schema.names)}"[:400],
            )
        self._columns[name] = None
        found = operations.column(name, kind_of(logical_type(self._schema, name)))
        for field in fields:
            found = self._field(node, found, field)
        return found

    def _field(self, node: Node, struct: Expression, name: str) -> Expression:
        if not pa.types.is_struct(struct.kind):
            raise self._refused(
                node,
                f"the field {name[:60]!r} of {_called(struct)}",
                Reason.UNKNOWN_COLUMN,
                expected="a struct",
            )
        names = [field.name for field in struct.kind]
        alike = [at for at, each in enumerate(names) if each.lower() == name.lower()]
        if len(alike) != 1:
            count = f"{len(alike)} fields" if alike else "no field"
            seen = f"{count} {name[:60]!r} in {_called(struct)}"
            reason = Reason.COLUMN_NAMES_ALIKE if alike else Reason.UNKNOWN_COLUMN
            raise self._refused(node, seen, reason, expected=f"one of: {', '.join(names)}"[:400])
        kind = kind_of(struct.kind.field(alike[0]).type)
        return operations.struct_field(struct, alike[0], kind, f"{struct.name}.{names[alike[0]]}")

    def _constant(self, node: Node) -> Part:
        literal = node["literal"]
        kind, text = literal["kind"], literal.get("text", "")
        if kind == "NULL_LITERAL":
            return Null()
        if kind in ("INTEGER", "NUMERIC"):
            return Number.of(text)
        if kind == "STRING":
            return Expression.of_constant(TEXT, pa.scalar(text, TEXT))
        if kind == "BOOLEAN":
            return Expression.of_constant(BOOLEAN, pa.scalar(text == "true"))
        if kind == "HEX":
            return Expression.of_constant(BYTES, pa.scalar(bytes.fromhex(text), BYTES))
        raise self._refused(node, "a literal of a kind that is not permitted", Reason.NOT_IN_A_CONDITION)

    def _comparison(self, node: Node) -> Part:
        sign = _SIGNS.get(node["type"])
        kind, (left, right) = self._agreeing(node, (node["left"], node["right"]))
        if sign is not None:
            return Expression.made_by(BOOLEAN, partial(operations.compare, sign, kind), left, right)
        same = Expression.made_by(BOOLEAN, partial(operations.is_same, kind), left, right)
        if node["type"] == "COMPARE_NOT_DISTINCT_FROM":
            return same
        if node["type"] == "COMPARE_DISTINCT_FROM":
            return Expression.made_by(BOOLEAN, pc.invert, same)
        raise self._unknown(node)

    def _between(self, node: Node) -> Part:
        kind, parts = self._agreeing(node, (node["input"], node["lower"], node["upper"]))
        return Expression.made_by(BOOLEAN, partial(operations.is_between, kind), *parts)

    def _conjunction(self, node: Node) -> Part:
        if node["type"] not in ("CONJUNCTION_AND", "CONJUNCTION_OR"):
            raise self._unknown(node)
        parts = [self._boolean(each) for each in node["children"]]
        return operations.joined(parts, both=node["type"] == "CONJUNCTION_AND")

    def _operator(self, node: Node) -> Part:
        children: Sequence[Node] = node["children"]
        match node["type"]:
            case "OPERATOR_NOT":
                return Expression.made_by(BOOLEAN, pc.invert, self._boolean(children[0]))
            case "OPERATOR_IS_NULL":
                return self._is_null(children[0])
            case "OPERATOR_IS_NOT_NULL":
                return Expression.made_by(BOOLEAN, pc.invert, self._is_null(children[0]))
            case "COMPARE_IN":
                return self._in(node, children)
            case "COMPARE_NOT_IN":
                return Expression.made_by(BOOLEAN, pc.invert, self._in(node, children))
            case "OPERATOR_COALESCE":
                kind, parts = self._agreeing(node, children)
                return Expression.made_by(kind, pc.coalesce, *parts)
            case "STRUCT_EXTRACT" | "ARRAY_EXTRACT":
                return self._extract(node, *children)
        raise self._unknown(node)

    def _is_null(self, child: Node) -> Expression:
        found = self._part(child)
        if isinstance(found, Null):
            return Expression.of_constant(BOOLEAN, pa.scalar(True))
        if not isinstance(found, Expression):
            return Expression.of_constant(BOOLEAN, pa.scalar(False))
        return Expression.made_by(BOOLEAN, lambda values: values.is_null(), found)

    def _in(self, node: Node, children: Sequence[Node]) -> Expression:
        kind, (item, *others) = self._agreeing(node, children)
        known = [each.constant for each in others if each.constant is not None]
        computed = [each for each in others if each.constant is None]
        return Expression.made_by(BOOLEAN, operations.is_among(kind, known), item, *computed)

    def _extract(self, node: Node, of: Node, key: Node) -> Part:
        held = self._typed(of)
        if not is_map(held.kind):
            name = self._constant_text(key, "a field") if pa.types.is_struct(held.kind) else None
            if name is None:
                raise self._refused(
                    node, f"an element of {_called(held)} by its place", Reason.NOT_IN_A_CONDITION
                )
            return self._field(node, held, name)
        kind = kind_of(held.kind.key_type)
        value = self._literal_like(key, kind)
        return operations.map_value(held, value.constant, kind, kind_of(held.kind.item_type))

    def _literal_like(self, node: Node, kind: Kind) -> Expression:
        """A constant of this kind."""
        found = self._part(node)
        if isinstance(found, Number | Moment) and is_compared(kind):
            try:
                return Expression.of_constant(kind, constant(found, kind))
            except Misfit as misfit:
                seen = f"{misfit.seen} compared with {type_name(kind)}"
                raise self._refused(node, seen, misfit.reason, misfit.action, _ONE_TYPE) from None
        if not isinstance(found, Expression) or found.constant is None or found.kind != kind:
            seen = f"{_called(found)} where a {type_name(kind)} constant belongs"
            raise self._refused(node, seen, Reason.CONDITION_TYPES_DIFFER, how_to_write(kind), _ONE_TYPE)
        return found

    # --- casts ----------------------------------------------------------------------------------------------

    def _cast(self, node: Node) -> Part:
        if node["try_cast"]:
            raise self._refused(
                node,
                "TRY_CAST in the condition, which makes NULL of what does not fit",
                Reason.NOT_IN_A_CONDITION,
                "write CAST, which fails for such a value",
            )
        kind = self._named_kind(node["type_expr"])
        try:
            return self._cast_to(node, kind, self._part(node["child"]))
        except Misfit as misfit:
            seen = f"{misfit.seen} cast to {type_name(kind)}"
            raise self._refused(node, seen, misfit.reason, misfit.action) from None

    def _cast_to(self, node: Node, kind: Kind, found: Part) -> Part:
        if isinstance(found, Null | Number):
            return Expression.of_constant(kind, constant(found, kind, is_cast=True))
        if isinstance(found, Expression) and found.constant is not None and found.kind == TEXT:
            return _of_literal_text(found.constant.as_py(), kind)
        if isinstance(found, Moment):
            found = Expression.of_constant(found.kind, constant(found, found.kind))
        convert = conversion(found.kind, kind)
        if convert is None:
            raise self._refused(
                node,
                f"a cast of {_called(found)} to {type_name(kind)}",
                Reason.CAST_NOT_EXACT,
                expected="a conversion that gives every value exactly, or fails",
            )
        try:
            return Expression.made_by(kind, convert, found)
        except (ValueError, pa.ArrowException):
            raise Misfit("a constant that the type does not have") from None

    def _named_kind(self, node: Node) -> Kind:
        self._parsed.check(node)
        name, numbers = str(node["type_name"]), []
        for child in node.get("children", ()):
            text = child.get("literal", {}).get("text", "")
            if child.get("class") != "CONSTANT" or not text.isdecimal() or len(text) > 3:
                break
            numbers.append(int(text))
        kind = named_kind(name, numbers)
        is_whole = len(numbers) == len(node.get("children", ()))
        if kind is None or not is_whole or node["qualified_name"] != {"path": [name]}:
            raise self._refused(
                node,
                f"a cast to the type {name[:60]!r}",
                Reason.CAST_NOT_EXACT,
                "write a length of time as INTERVAL 5 SECOND" if name.upper() == "INTERVAL" else None,
                "a type of numbers, text, bytes, dates, times or true and false",
            )
        return kind

    # --- functions ------------------------------------------------------------------------------------------

    def _function(self, node: Node) -> Part:
        name = str(node["function_name"]).lower()
        nodes = [each["expression"] for each in node.get("arguments", ())]
        count = len(nodes)
        if (name, count) in _LIKES:
            found = self._like(*nodes)
            return Expression.made_by(BOOLEAN, pc.invert, found) if "!" in name or "not" in name else found
        if name in operations.ARITHMETIC and count in (1, 2):
            return self._arithmetic(node, name, nodes)
        if name in operations.CHANGED_TEXTS and count == 1:
            return Expression.made_by(TEXT, operations.CHANGED_TEXTS[name], self._text(nodes[0], name))
        if name in ("length", "char_length", "character_length") and count == 1:
            return Expression.made_by(LENGTH, operations.length, self._text(nodes[0], name))
        if name in _LIST_FUNCTIONS and count == 2:
            return self._element_of(name, nodes[0], self._typed(nodes[0]), nodes[1])
        if name in operations.AFFIXES and count == 2:
            return self._affix(name, *nodes)
        if name == "isnan" and count == 1:
            return self._is_nan(nodes[0])
        if name in _LENGTHS and count == 1:
            return self._length_of_time(node, name, nodes[0])
        raise self._refused(
            node,
            f"the function {name[:60]!r} in the condition",
            Reason.FUNCTION_NOT_ALLOWED,
            expected=f"one of: {', '.join(_FUNCTIONS)}",
        )

    def _like(self, subject: Node, pattern: Node, escape: Node | None = None) -> Expression:
        text = self._text(subject, "LIKE")
        sign = None if escape is None else self._constant_text(escape, "ESCAPE")
        if escape is not None and (sign is None or len(sign) != 1):
            raise Misfit("an ESCAPE that is not one character")
        wanted = self._constant_text(pattern, "LIKE")
        if wanted is None:
            return Expression.of_constant(BOOLEAN, pa.scalar(None, BOOLEAN))
        return Expression.made_by(BOOLEAN, operations.like(wanted, sign), text)

    def _affix(self, name: str, subject: Node, wanted: Node) -> Part:
        found = self._part(subject)
        if name == "contains" and isinstance(found, Expression) and is_list(found.kind):
            return self._element_of(name, subject, found, wanted)
        text, part = self._as_text(subject, found, name), self._constant_text(wanted, name)
        if part is None:
            return Expression.of_constant(BOOLEAN, pa.scalar(None, BOOLEAN))
        return Expression.made_by(BOOLEAN, operations.affix(name, part), text)

    def _is_nan(self, child: Node) -> Part:
        found = self._typed(child)
        if not pa.types.is_floating(found.kind):
            raise self._refused(
                child, f"isnan of {_called(found)}", Reason.CONDITION_TYPES_DIFFER, None, "a float"
            )
        return Expression.made_by(BOOLEAN, pc.is_nan, found)

    def _element_of(self, name: str, lists: Node, found: Expression, value: Node) -> Part:
        if not is_list(found.kind) or not is_compared(kind_of(found.kind.value_type)):
            seen = f"{name} of {_called(found)}"
            raise self._refused(
                lists, seen, Reason.CONDITION_TYPES_DIFFER, None, "a list of comparable values"
            )
        kind = kind_of(found.kind.value_type)
        wanted = self._literal_like(value, kind).constant
        return Expression.made_by(
            BOOLEAN, lambda values: operations.list_contains(kind, values, wanted), found
        )

    def _arithmetic(self, node: Node, sign: str, nodes: Sequence[Node]) -> Part:
        if len(nodes) == 1:
            found = self._part(nodes[0])
            if sign in "+-" and isinstance(found, Number):
                return Number.of("0").joined(sign, found)
            raise self._unknown(node)
        left, right = (self._part(each) for each in nodes)
        if isinstance(left, Number) and isinstance(right, Number):
            return left.joined(sign, right)
        kind, parts = self._agreed(node, nodes, (left, right))
        if not pa.types.is_integer(kind):
            seen = f"{sign} of {type_name(kind)}"
            raise self._refused(
                node, seen, Reason.FUNCTION_NOT_ALLOWED, None, "arithmetic of whole numbers alone"
            )
        try:
            return Expression.made_by(kind, operations.ARITHMETIC[sign], *parts)
        except pa.ArrowException:
            raise Misfit(f"a number outside the range of {type_name(kind)}") from None

    def _length_of_time(self, node: Node, name: str, child: Node) -> Part:
        """INTERVAL 5 SECOND: the parser puts casts and `trunc` around the number, which is whole here."""
        while child.get("class") in ("CAST", "FUNCTION"):
            inner = child.get("child") or child.get("arguments", [{}])[0].get("expression", {})
            if child["class"] == "FUNCTION" and child.get("function_name") != "trunc":
                break
            child = inner
        text = child.get("literal", {}).get("text", "") if child.get("class") == "CONSTANT" else ""
        try:
            count = Decimal(text)
        except InvalidOperation:
            count = Decimal("NaN")
        if not count.is_finite() or abs(count) > 10**12 or count != count.to_integral_value():
            raise self._refused(
                node, "a length of time that is not a whole number", Reason.LITERAL_NOT_OF_TYPE,
                "write it in a smaller unit: INTERVAL 1500 MILLISECOND",
            )  # fmt: skip
        return Moment(int(count) * _LENGTHS[name], _DURATION)

    def _unknown(self, node: Node) -> InvalidRequestError:
        return self._refused(
            node, "a part of a kind that is not permitted in the condition", Reason.NOT_IN_A_CONDITION
        )


_RULES: Final[Mapping[str, Callable[[Typed, Node], Part]]] = {
    "BETWEEN": Typed._between,
    "CAST": Typed._cast,
    "COLUMN_REF": Typed._column,
    "COMPARISON": Typed._comparison,
    "CONJUNCTION": Typed._conjunction,
    "CONSTANT": Typed._constant,
    "FUNCTION": Typed._function,
    "OPERATOR": Typed._operator,
}


def _known_columns(schema: pa.Schema, topic: str) -> dict[str, str]:
    """The columns by their names in small letters. Raises `InvalidRequestError` where two differ by case alone."""
    known: dict[str, str] = {}
    for each in logical_schema(schema).names:
        other = known.setdefault(each.lower(), each)
        if other != each:
            raise refusal(
                f"columns {other!r} and {each!r} of topic {topic!r}",
                Reason.COLUMN_NAMES_ALIKE,
                expected="names that differ by more than case, because SQL does not tell these two apart",
                action="rename one of them, then erase",
            )
    return known


def _called(part: Part) -> str:
    """A part as errors call it. Values are left out."""
    if isinstance(part, Null):
        return "NULL"
    if isinstance(part, Number):
        return "a number"
    if isinstance(part, Moment) and part.kind == _DURATION:
        return "an INTERVAL"
    if isinstance(part, Moment) or part.constant is not None:
        return f"a {type_name(part.kind)} constant"
    if part.name is not None:
        return f"the {type_name(part.kind)} {'field' if '.' in part.name else 'column'} {part.name!r}"
    return f"an expression of type {type_name(part.kind)}"


def _cast_between(source: Expression, target: Expression) -> str | None:
    """The conversion of a part to the type of another one, as advice; None where there is none."""
    if not has_name(target.kind) or conversion(source.kind, target.kind) is None:
        return None
    return f"write the conversion out: CAST({source.name or '...'} AS {type_name(target.kind)})"


def _inside(kind: Kind) -> str | None:
    """What of a value is compared, where the value itself is not."""
    if pa.types.is_struct(kind):
        return "compare a field of it"
    if is_list(kind):
        return "ask whether a value is in it: list_contains(the column, 1)"
    if is_map(kind):
        return "compare what it has for a key: the_column['key']"
    return "ask whether it IS NULL"


def _kind_of_literals(parts: Sequence[Part]) -> Kind:
    """The type in which literals alone are compared, as in 1 = 1."""
    moments = [each.kind for each in parts if isinstance(each, Moment)]
    if moments:
        return moments[0]
    numbers = [each for each in parts if isinstance(each, Number)]
    if any(each.has_exponent for each in numbers):
        return pa.float64()
    scale = max((-int(each.value.as_tuple().exponent) for each in numbers), default=0)
    return pa.decimal256(76, min(max(scale, 0), 76)) if numbers else pa.null()


def _of_literal_text(text: str, kind: Kind) -> Part:
    """What a text in quotes is as a value of a type. Moments take the unit of what they are compared with."""
    if pa.types.is_timestamp(kind) or pa.types.is_time(kind):
        moment = moment_of_text(text, kind)
        constant(moment, kind)  # it has to fit the type that the user wrote, too
        return moment
    held = bytes_of_text(text) if kind == BYTES else value_of_text(text, kind)
    return Expression.of_constant(kind, held)
