"""What a query that somebody gave may consist of on Spark: kinds of nodes, tables, functions.

Spark's own parser makes the plan, and every field of every node is looked at. Only what is listed here goes through. So
a statement that Spark learns to parse is refused until somebody has listed it: `TRANSFORM ... USING` would start a
program on the workers, a table's name may be a file, and some functions call Java, open files or quote a value.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import TYPE_CHECKING, Any, Final, cast

from txn_engine.errors import InvalidRequestError
from txn_engine.reasons import Reason

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_CATALYST: Final = "org.apache.spark.sql.catalyst."
_TYPES: Final = "org.apache.spark.sql.types."
_EXPECTED: Final = "one SELECT over its rows, by Spark's functions that compute"

_PLANS: Final = frozenset(
    f"{_CATALYST}plans.logical.{name}"
    for name in (
        "Aggregate", "Distinct", "Except", "Filter", "Generate", "GlobalLimit", "Intersect", "Join", "LateralJoin",
        "LocalLimit", "LocalRelation", "Offset", "OneRowRelation", "Pivot", "Project", "Sort", "SubqueryAlias", "Union",
        "Unpivot", "UnresolvedWith", "WithWindowDefinition",
    )
)  # fmt: skip
_UNRESOLVED: Final = frozenset(
    f"{_CATALYST}analysis.{name}"
    for name in (
        "MultiAlias", "UnresolvedAlias", "UnresolvedAttribute", "UnresolvedExtractValue", "UnresolvedFunction",
        "UnresolvedGenerator", "UnresolvedHaving", "UnresolvedInlineTable", "UnresolvedOrdinal", "UnresolvedRelation",
        "UnresolvedStar", "UnresolvedStarExceptOrReplace", "UnresolvedSubqueryColumnAliases",
        "UnresolvedTableValuedFunction",
    )
)  # fmt: skip
_EXPRESSIONS: Final = frozenset(
    f"{_CATALYST}expressions.{name}"
    for name in (
        "Add", "Alias", "And", "AttributeReference", "BitwiseAnd", "BitwiseNot", "BitwiseOr", "BitwiseXor", "CaseWhen",
        "Cast", "Coalesce", "Concat", "CreateNamedStruct", "Cube", "CurrentRow$", "Divide", "EqualNullSafe", "EqualTo",
        "Exists", "GreaterThan", "GreaterThanOrEqual", "GroupingSets", "ILike", "In", "InSubquery", "IntegralDivide",
        "IsNotNull", "IsNull", "LambdaFunction", "LateralSubquery", "LessThan", "LessThanOrEqual", "Like", "LikeAll",
        "LikeAny", "ListQuery", "Literal", "Multiply", "Not", "NotLikeAll", "NotLikeAny", "Or", "Overlay", "RLike",
        "Remainder", "Rollup", "ScalarSubquery", "SortOrder", "SpecifiedWindowFrame", "StringLocate", "StringTrim",
        "StringTrimLeft", "StringTrimRight", "Substring", "Subtract", "TimestampAdd", "TimestampDiff", "UnaryMinus",
        "UnaryPositive", "UnboundedFollowing$", "UnboundedPreceding$", "UnresolvedNamedLambdaVariable",
        "UnresolvedWindowExpression", "UnspecifiedFrame$", "WindowExpression", "WindowSpecDefinition",
        "WindowSpecReference", "aggregate.AggregateExpression", "aggregate.AnyValue",
    )
)  # fmt: skip
_PARTS: Final = frozenset(
    f"{_CATALYST}{name}"
    for name in (
        "AliasIdentifier", "FunctionIdentifier", "expressions.Ascending$", "expressions.Descending$",
        "expressions.ExprId", "expressions.NullsFirst$", "expressions.NullsLast$", "expressions.NumericEvalContext",
        "expressions.RangeFrame$", "expressions.RowFrame$", "expressions.aggregate.Complete$", "plans.Cross$",
        "plans.FullOuter$", "plans.Inner$", "plans.LeftAnti$", "plans.LeftOuter$", "plans.LeftSemi$",
        "plans.NaturalJoin", "plans.RightOuter$", "plans.UsingJoin", "plans.logical.JoinHint",
    )
)  # fmt: skip
"""What nodes are made of besides nodes and values."""
_VALUES: Final = frozenset(
    (
        f"{_CATALYST}expressions.GenericInternalRow",
        "java.util.UUID",
        "org.apache.spark.sql.util.CaseInsensitiveStringMap",  # the options of a relation, which has none
        "org.apache.spark.unsafe.types.CalendarInterval",
        "org.apache.spark.unsafe.types.UTF8String",
        "scala.Enumeration$Val",
        "scala.None$",
        "scala.collection.immutable.Nil$",
    )
)
_PERMITTED: Final = _PLANS | _UNRESOLVED | _EXPRESSIONS | _PARTS | _VALUES
_SEQUENCES: Final = tuple(
    f"scala.collection.immutable.{name}" for name in ("$colon$colon", "Vector", "Map$Map", "HashMap")
)
_PRODUCTS: Final = ("scala.Some", "scala.Tuple")
_FUNCTION_GROUPS: Final = frozenset(
    f"{name}_funcs"
    for name in (
        "agg", "array", "bitwise", "collection", "conditional", "conversion", "csv", "datetime", "generator", "hash",
        "json", "lambda", "map", "math", "predicate", "string", "struct", "url", "variant", "window",
    )
)  # fmt: skip
"""Spark's groups of functions that compute a value of their arguments. Those of others open files, call programs, say
something of the session, or fail with a value in the error."""
_TABLE_FUNCTIONS: Final = frozenset(
    {"range", "explode", "explode_outer", "inline", "inline_outer", "posexplode", "posexplode_outer", "stack"}
)

Known = frozenset[str]


def permitted_query(
    spark: SparkSession, given: str, tables: Collection[str], *, what: str, actor: str
) -> str:
    """The query to run for the one that was given. Raises `InvalidRequestError` unless it is one query of what is
    permitted, over these tables and no others.

    Nothing is run. The error names the kind, the table or the function, and no value. what: the query, as errors call
    it.
    """
    text = given.strip().rstrip(";")
    if "${" in text:  # before it parses, Spark puts the values of settings and of the environment there
        raise InvalidRequestError(
            f"{what} with ${{...}}",
            actor=actor,
            expected="the value itself",
            reason=Reason.NOT_PERMITTED_IN_SQL,
        )
    query = f"SELECT * FROM ({text}\n) AS reduction"  # in brackets nothing but a query can be parsed
    plan = None
    for each in (text, query):  # by itself too: brackets of its own might close those
        plan = _parsed(spark, each, what=what, actor=actor)
    todo: list[tuple[Any, Known]] = [(plan, frozenset(tables))]
    while todo:
        value, known = todo.pop()
        refused = _refused(spark, value, known)
        if refused:
            raise InvalidRequestError(
                f"{what} with {refused}",
                actor=actor,
                expected=_EXPECTED,
                reason=Reason.NOT_PERMITTED_IN_SQL,
            )
        todo.extend(_inside(value, known))
    return query


def _parsed(spark: SparkSession, text: str, *, what: str, actor: str) -> Any:
    from py4j.protocol import Py4JJavaError
    from pyspark.errors import PySparkException

    try:
        return spark._jsparkSession.sessionState().sqlParser().parseQuery(text)
    except (PySparkException, Py4JJavaError) as error:
        said = " ".join(str(error).partition("\n\n==")[0].split())
        raise InvalidRequestError(
            f"{what}: {said}",
            actor=actor,
            expected="one SELECT, and nothing else",
            reason=Reason.NOT_ONE_SELECT,
        ) from error


def _computes(spark: SparkSession, name: str) -> bool:
    """Whether the name is that of a function of Spark's own that is permitted."""
    catalyst = cast("Any", spark._jvm).org.apache.spark.sql.catalyst
    found = catalyst.analysis.FunctionRegistry.builtin().lookupFunction(catalyst.FunctionIdentifier(name))
    return found.isDefined() and found.get().getGroup() in _FUNCTION_GROUPS


def _refused(spark: SparkSession, value: Any, known: Known) -> str:
    """What is wrong with this part of a plan by itself, or an empty text."""
    if not hasattr(value, "getClass"):  # a text, a number, a truth value: py4j's own
        return ""
    name = str(value.getClass().getName())
    short = name.rpartition(".")[2]
    if not (name in _PERMITTED or name.startswith((_TYPES, *_SEQUENCES, *_PRODUCTS))):
        return f"a part of the kind {short}"
    match short:
        case "UnresolvedRelation":
            parts = _texts(value.multipartIdentifier())
            is_known = len(parts) == 1 and parts[0] in known and value.options().isEmpty()
            return "" if is_known else f"the table {'.'.join(parts)!r}"
        case "UnresolvedFunction":
            parts = _texts(value.nameParts())
            return (
                "" if len(parts) == 1 and _computes(spark, parts[0]) else f"the function {'.'.join(parts)!r}"
            )
        case "UnresolvedTableValuedFunction":
            parts = _texts(value.name())
            is_known = len(parts) == 1 and parts[0].lower() in _TABLE_FUNCTIONS
            return "" if is_known else f"the table function {'.'.join(parts)!r}"
        case "UnresolvedGenerator":
            function = value.name()
            is_known = function.database().isEmpty() and function.funcName().lower() in _TABLE_FUNCTIONS
            return "" if is_known else f"the table function {function.unquotedString()!r}"
    return ""


def _inside(value: Any, known: Known) -> Iterator[tuple[Any, Known]]:
    """The parts of a part, with the tables that are known there."""
    if not hasattr(value, "getClass"):
        return
    name = str(value.getClass().getName())
    if name in _VALUES or name.startswith(_TYPES):
        return
    if name.startswith(_SEQUENCES):
        yield from ((each, known) for each in _elements(value))
    elif name.endswith(".UnresolvedWith"):
        yield from _of_with(value, known)
    else:
        yield from ((value.productElement(at), known) for at in range(value.productArity()))


def _of_with(value: Any, known: Known) -> Iterator[tuple[Any, Known]]:
    """What a WITH defines is known behind its definition, and in it where it may be recursive."""
    is_recursive = value.allowRecursion()
    for definition in _elements(value.cteRelations()):
        name, query = definition._1(), definition._2()
        yield query, known | {name} if is_recursive else known
        known = known | {name}
    yield value.child(), known


def _elements(sequence: Any) -> Iterator[Any]:
    each = sequence.iterator()
    while each.hasNext():
        yield each.next()


def _texts(sequence: Any) -> list[str]:
    return [str(each) for each in _elements(sequence)]
