"""A column of each of Arrow's types with its extremes, at top level and nested, and the values that it holds."""

from __future__ import annotations

import datetime as dt
import json
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from decimal import Decimal as D
from functools import cached_property
from typing import Any, Literal

import numpy as np
import pyarrow as pa

from txn_engine.held import nulls

Kind = Any
"""A `pa.DataType`. Its stubs do not know what decimals, timestamps and lists have besides."""
Shape = Literal["top", "nested"]
SHAPES: tuple[Shape, ...] = ("top", "nested")
UTC = dt.UTC
BIG = "long " * 400
ZONE = dt.timezone(dt.timedelta(hours=2))


def _at(*parts: int) -> dt.datetime:
    year, month, day, *time = parts
    return dt.datetime(year, month, day, *time)  # type: ignore[arg-type]  # noqa: DTZ001 -- the types are of both kinds


_MOMENTS = [_at(1970, 1, 1), _at(1, 1, 1), _at(9999, 12, 31, 23, 59, 59), _at(2024, 2, 29, 12, 30, 1)]
_ZONED = [each.replace(tzinfo=UTC) for each in _MOMENTS]
_DAYS = [dt.date(1970, 1, 1), dt.date(1, 1, 1), dt.date(9999, 12, 31)]
_TEXTS = ["a", "", 'a "quoted", line\nand \\. another', "ünïcödé 漢字 😀", BIG]
_BYTES = [b"a", b"", b"\x00\xff\\", b"\xf0\x9f", b"x" * 2_000]
_FLOATS = [1.5, -0.0, 0.0, float("nan"), float("inf"), float("-inf")]
_NANOS = [1, -1, 1_234_567_891_234_567_891, 0]
_ENDS = [-(2**63), 2**63 - 1]


def _deep(around: Callable[[Kind], Kind], levels: int) -> Kind:
    """A type inside so many others."""
    kind: Kind = pa.int64()
    for _ in range(levels):
        kind = around(kind)
    return kind


TYPES: dict[str, tuple[Kind, list[Any]]] = {
    "null": (pa.null(), [None, None]),
    "bool": (pa.bool_(), [True, False]),
    "int8": (pa.int8(), [-128, 127, 0]),
    "int16": (pa.int16(), [-(2**15), 2**15 - 1]),
    "int32": (pa.int32(), [-(2**31), 2**31 - 1]),
    "int64": (pa.int64(), [-(2**63), 2**63 - 1, 2**53 + 1]),
    "uint8": (pa.uint8(), [255, 0]),
    "uint16": (pa.uint16(), [2**16 - 1, 0]),
    "uint32": (pa.uint32(), [2**32 - 1, 0]),
    "uint64": (pa.uint64(), [2**64 - 1, 0]),
    "float16": (pa.float16(), [*map(np.float16, _FLOATS), np.float16(65_504), np.float16(6e-8)]),
    "float32": (pa.float32(), [*_FLOATS, 3.4028234663852886e38, 1.401298464324817e-45]),
    "float64": (pa.float64(), [*_FLOATS, 1.7976931348623157e308, 5e-324, 0.1]),
    "decimal32": (pa.decimal32(9, 2), [D("1234567.89"), D("-1234567.89"), D("0.00")]),
    "decimal64": (pa.decimal64(18, 4), [D("12345678901234.5678"), D("-0.0001")]),
    "decimal128": (pa.decimal128(18, 2), [D("9999999999999999.99"), D("-0.01"), D("0.00")]),
    "decimal128(38,10)": (pa.decimal128(38, 10), [D("9999999999999999999999999999.0123456789"), D("-1E-10")]),
    "decimal256(38,5)": (pa.decimal256(38, 5), [D("1.12345"), D("-1.00000")]),
    "decimal256(76,10)": (pa.decimal256(76, 10), [D("9" * 66 + ".0123456789"), D("-1E-10")]),
    "string": (pa.string(), _TEXTS),
    "large_string": (pa.large_string(), _TEXTS),
    "string_view": (pa.string_view(), _TEXTS),
    "binary": (pa.binary(), _BYTES),
    "large_binary": (pa.large_binary(), _BYTES),
    "binary_view": (pa.binary_view(), _BYTES),
    "fixed_size_binary": (pa.binary(3), [b"abc", b"\x00\xff\\"]),
    "date32": (pa.date32(), _DAYS),
    "date64": (pa.date64(), _DAYS),
    "time32[s]": (pa.time32("s"), [dt.time(1, 2, 3), dt.time(0), dt.time(23, 59, 59)]),
    "time32[ms]": (pa.time32("ms"), [dt.time(1, 2, 3), dt.time(0), dt.time(23, 59, 59, 999_000)]),
    "time64[us]": (pa.time64("us"), [dt.time(1, 2, 3, 4), dt.time(0), dt.time(23, 59, 59, 999_999)]),
    "time64[ns]": (pa.time64("ns"), [1_234_567_891, 0, 86_399_999_999_999]),
    "timestamp[s]": (pa.timestamp("s"), _MOMENTS),
    "timestamp[ms]": (pa.timestamp("ms"), _MOMENTS),
    "timestamp[us]": (pa.timestamp("us"), [*_MOMENTS, _at(2020, 1, 1, 0, 0, 0, 1)]),
    "timestamp[ns]": (pa.timestamp("ns"), [*_NANOS, *_ENDS]),
    "timestamp[s, UTC]": (pa.timestamp("s", "UTC"), _ZONED),
    "timestamp[ms, UTC]": (pa.timestamp("ms", "UTC"), _ZONED),
    "timestamp[us, UTC]": (pa.timestamp("us", "UTC"), _ZONED),
    "timestamp[ns, UTC]": (pa.timestamp("ns", "UTC"), [*_NANOS, *_ENDS]),
    "timestamp[us, Europe/Prague]": (pa.timestamp("us", "Europe/Prague"), _ZONED[::3]),
    "timestamp[us, +02:00]": (pa.timestamp("us", "+02:00"), _ZONED[::3]),
    "duration[s]": (pa.duration("s"), [0, -1, 10**9]),
    "duration[ms]": (pa.duration("ms"), [0, -1, 10**12]),
    "duration[us]": (pa.duration("us"), [0, -1, 10**15]),
    "duration[ns]": (pa.duration("ns"), [*_NANOS, *_ENDS]),
    "list": (pa.list_(pa.int64()), [[1, None], [], [2**53 + 1]]),
    "large_list": (pa.large_list(pa.int64()), [[1, None], [], [2**53 + 1]]),
    "fixed_size_list": (pa.list_(pa.int64(), 2), [[1, 2], [3, None]]),
    "fixed_size_list of such lists": (pa.list_(pa.list_(pa.int64(), 2), 2), [[[1, 2], None], [[3, None], [4, 5]]]),
    "list_view": (pa.list_view(pa.int64()), [[1, None], [], [2**53 + 1]]),
    "large_list_view": (pa.large_list_view(pa.int64()), [[1, None], [], [2**53 + 1]]),
    "list of lists": (pa.list_(pa.list_(pa.string())), [[["a", None], None, []], []]),
    "struct": (pa.struct([("a", pa.int64()), ("b", pa.string())]), [{"a": 1, "b": "x"}, {"a": None, "b": ""}]),
    "struct of a required field": (pa.struct([pa.field("a", pa.int64(), nullable=False)]), [{"a": 1}, {"a": 2}]),
    "map": (pa.map_(pa.string(), pa.int64()), [[("a", 1), ("b", None)], []]),
    "map of integers": (pa.map_(pa.int32(), pa.list_(pa.string())), [[(1, ["x"]), (2, None)], []]),
    "dictionary[int8, string]": (pa.dictionary(pa.int8(), pa.string()), ["a", "b", "", "a"]),
    "dictionary[int32, string]": (pa.dictionary(pa.int32(), pa.string()), ["a", "b", "", "a"]),
    "dictionary[int32, large_string]": (pa.dictionary(pa.int32(), pa.large_string()), ["a", "b", "a"]),
    "dictionary[int32, binary]": (pa.dictionary(pa.int32(), pa.binary()), [b"a", b"\xff", b"a"]),
    "dictionary[int32, int64]": (pa.dictionary(pa.int32(), pa.int64()), [5, 2**53 + 1, 5]),
    "dictionary[int32, decimal128]": (pa.dictionary(pa.int32(), pa.decimal128(18, 2)), [D("1.23"), D("0.00")]),
    "dictionary[int32, timestamp]": (pa.dictionary(pa.int32(), pa.timestamp("us")), _MOMENTS),
    "dictionary[int32, string_view]": (pa.dictionary(pa.int32(), pa.string_view()), ["a", "b", "a"]),
    "dictionary[int32, duration]": (pa.dictionary(pa.int32(), pa.duration("us")), [0, -1, 10**15]),
    "dictionary[int32, list]": (pa.dictionary(pa.int32(), pa.list_(pa.int64())), [[1, None], [], [2**53 + 1]]),
    "dictionary[int32, struct]": (pa.dictionary(pa.int32(), pa.struct([("a", pa.int64())])), [{"a": 1}, {"a": None}]),
    "dictionary, ordered": (pa.dictionary(pa.int8(), pa.string(), ordered=True), ["low", "high"]),
    "uuid": (pa.uuid(), [uuid.UUID(int=1).bytes, uuid.UUID(int=2**128 - 1).bytes]),
    "json": (pa.json_(), ['{"a":1}', "[]"]),
    "bool8": (pa.bool8(), [1, 0]),
    "opaque": (pa.opaque(pa.int64(), "some", "vendor"), [1, 2]),
    "fixed_shape_tensor": (pa.fixed_shape_tensor(pa.int8(), [2]), [[1, 2], [3, 4]]),
    "run_end_encoded": (pa.run_end_encoded(pa.int32(), pa.int64()), [5, 5, 6]),
    "month_day_nano_interval": (pa.month_day_nano_interval(), [(1, 2, 3)]),
    "dense_union": (pa.dense_union([pa.field("a", pa.int64()), pa.field("b", pa.string())]), []),
    "sparse_union": (pa.sparse_union([pa.field("a", pa.int64()), pa.field("b", pa.string())]), []),
    "struct without fields": (pa.struct([]), [{}]),
    "fixed_size_binary[0]": (pa.binary(0), [b""]),
    "fixed_size_list[0]": (pa.list_(pa.int64(), 0), [[]]),
    "decimal128, negative scale": (pa.decimal128(5, -2), [D("1.2E4")]),
    "dictionary[int32, uuid]": (pa.dictionary(pa.int32(), pa.uuid()), [uuid.UUID(int=1).bytes]),
    "fixed_size_binary of more than 16 MiB": (pa.binary(2**31 - 1), []),
    "fixed_size_list of more than 16 MiB": (pa.list_(pa.list_(pa.int8(), 2**20), 2**20), []),
    "list, 32 levels deep": (_deep(pa.list_, 32), []),
    "struct, 63 levels deep": (_deep(lambda inner: pa.struct([("a", inner)]), 63), []),
    "struct of a required fixed_size_list": (
        pa.struct([pa.field("a", pa.list_(pa.int64(), 2), nullable=False)]), [{"a": [1, 2]}],
    ),
    "timestamp of an unknown time zone": (pa.timestamp("us", "X/../../etc/passwd"), []),
}  # fmt: skip
"""By the name that the page has for it: the type, and its values besides null."""


@dataclass(frozen=True)
class Column:
    """A column `c` of a type, at top level or nested; with the column `id` that counts from 0."""

    type_name: str
    shape: Shape

    def __str__(self) -> str:
        return f"{self.type_name}, {self.shape}"

    @cached_property
    def inner(self) -> Kind:
        """The type that the column is about."""
        return TYPES[self.type_name][0]

    @property
    def kind(self) -> Kind:
        """The column's type."""
        if self.shape == "top":
            return self.inner
        members = [("x", self.inner), ("l", pa.list_(self.inner)), ("m", pa.map_(pa.string(), self.inner))]
        return pa.struct(members)

    @property
    def schema(self) -> pa.Schema:
        """The columns of its topics."""
        return pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("c", self.kind)])

    @property
    def given(self) -> list[Any]:
        """The values of the inner type, nulls among them; the last row is null."""
        return TYPES[self.type_name][1]

    @cached_property
    def records(self) -> pa.Table:
        """The values, nulls among them, one in each row."""
        values = array_of([*self.given, None], self.inner)
        column = values if self.shape == "top" else _nested(values, self.kind)
        return pa.Table.from_arrays([pa.array(range(len(column)), pa.int64()), column], schema=self.schema)

    @property
    def whole(self) -> pa.Table:
        """The records without those that are null. At top level."""
        kept = [(at, value) for at, value in enumerate(self.given) if value is not None]
        numbers, values = pa.array([at for at, _ in kept], pa.int64()), [value for _, value in kept]
        return pa.Table.from_arrays([numbers, array_of(values, self.kind)], schema=self.schema)

    @property
    def values(self) -> list[Any]:
        """What the column holds, in the order of `id`."""
        return plain(self.records.column("c"))


@dataclass(frozen=True)
class NullColumn(Column):
    """A column of nulls alone."""

    @property
    def given(self) -> list[Any]:
        return [None, None]

    @cached_property
    def records(self) -> pa.Table:
        return pa.Table.from_arrays([pa.array(range(3), pa.int64()), nulls(3, self.kind)], schema=self.schema)


@dataclass(frozen=True)
class LongColumn(Column):
    """A column of so many rows that Parquet's writer takes them in several parts."""

    @property
    def given(self) -> list[Any]:
        few = TYPES[self.type_name][1]
        return (few * (1_100 // max(len(few), 1) + 1))[:1_100]


@dataclass(frozen=True)
class RequiredColumn(Column):
    """A column of structs with a member that may not be null. Where the struct is null, the file has something there
    that stands for nothing.
    """

    @property
    def kind(self) -> Kind:
        return pa.struct([pa.field("x", self.inner, nullable=False)])

    @property
    def can_be(self) -> bool:
        """Whether there is such a type."""
        kind = self.inner.storage_type if isinstance(self.inner, pa.BaseExtensionType) else self.inner
        return not (pa.types.is_null(kind) or pa.types.is_fixed_size_list(kind))

    @cached_property
    def records(self) -> pa.Table:
        whole = [each for each in self.given if each is not None]
        missing = pa.array([*[False] * len(whole), True])
        structs = pa.StructArray.from_arrays(
            [array_of([*whole, None], self.inner)], fields=list(self.kind), mask=missing
        )
        return pa.Table.from_arrays([pa.array(range(len(structs)), pa.int64()), structs], schema=self.schema)


def array_of(values: list[Any], kind: Kind) -> pa.Array[Any]:
    """An array of any type that may be a column's."""
    if pa.types.is_dictionary(kind):
        plain: Any = array_of(values, kind.value_type)
        if plain.type.num_fields or isinstance(
            plain.type, pa.BaseExtensionType
        ):  # Arrow encodes no such values
            indices, dictionary = (
                pa.array([n if each.is_valid else None for n, each in enumerate(plain)]),
                plain,
            )
        else:
            encoded = plain.dictionary_encode()
            indices, dictionary = encoded.indices, encoded.dictionary
        return pa.DictionaryArray.from_arrays(indices.cast(kind.index_type), dictionary, ordered=kind.ordered)
    if isinstance(kind, pa.BaseExtensionType):
        return pa.ExtensionArray.from_storage(kind, array_of(values, kind.storage_type))
    found: pa.Array[Any] = pa.array(values, kind)
    return found


def _nested(values: Any, kind: Kind) -> pa.Array[Any]:
    """Rows with each value as a member, in a list and in a map; rows in which these are null or empty; a null row."""
    count = len(values)
    at = pa.array([*range(count), None, None, None], pa.int64())  # values of the member x
    in_lists = pa.array([each for n in range(count) for each in (n, count - 1)], pa.int64())
    list_ends = pa.array([*range(0, 2 * count + 1, 2), 2 * count, 2 * count, 2 * count], pa.int32())
    keys = [key for _ in range(count) for key in ("a", "null")]
    no_list = pa.array([*[False] * count, True, False, True])
    missing = pa.array([*[False] * (count + 2), True])
    lists: Any = pa.ListArray.from_arrays(
        list_ends, _taken(values, in_lists), type=kind.field("l").type, mask=no_list
    )
    maps: Any = pa.MapArray.from_arrays(  # type: ignore[call-overload]  # the stubs know a type with values alone
        list_ends, pa.array(keys), _taken(values, in_lists), kind.field("m").type, mask=no_list
    )
    return pa.StructArray.from_arrays([_taken(values, at), lists, maps], fields=list(kind), mask=missing)


def _taken(values: Any, places: Any) -> Any:
    """As `take`, of types that do not have it."""
    kind = values.type
    if isinstance(values, pa.ExtensionArray):
        return pa.ExtensionArray.from_storage(kind, _taken(values.storage, places))
    if pa.types.is_string_view(kind) or pa.types.is_binary_view(kind):
        return _taken(values.cast(pa.large_binary()), places).cast(kind)
    if pa.types.is_list_view(kind) or pa.types.is_large_list_view(kind):
        return pa.array([None if at is None else values[at].as_py() for at in places.to_pylist()], kind)
    return values.take(places)


def columns(*shapes: Shape) -> Iterator[Column]:
    """Each type in these shapes."""
    return (Column(name, shape) for name in TYPES for shape in shapes)


# --- values ---------------------------------------------------------------------------------------------------


def plain(array: Any) -> list[Any]:
    """The values of an array: equal for equal values, whatever the layout or the width of their types."""
    return [plain_value(each) for each in array]


def plain_value(scalar: Any) -> Any:
    """A value. Times count nanoseconds, a float has all its bits, but that all that are no number are alike."""
    kind = scalar.type
    if not scalar.is_valid:
        return None
    if isinstance(scalar, pa.ExtensionScalar) or pa.types.is_dictionary(kind):
        return plain_value(scalar.value)
    for is_such, read in _READ:
        if is_such(kind):
            return read(scalar)
    return scalar.as_py()


def _members(scalar: Any) -> dict[str, Any]:
    return {scalar.type.field(at).name: plain_value(scalar[at]) for at in range(scalar.type.num_fields)}


def _entries(scalar: Any) -> list[Any]:
    return [[plain_value(each[0]), plain_value(each[1])] for each in scalar.values]


def _nanos(scalar: Any) -> int:
    unit = {"s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}
    return int(scalar.value) * unit[scalar.type.unit]


def _days(scalar: Any) -> int:
    return int(scalar.value) // (1 if pa.types.is_date32(scalar.type) else 86_400_000)


def _float(scalar: Any) -> str:
    return float(scalar.as_py()).hex()


_READ: tuple[tuple[Callable[[Kind], bool], Callable[[Any], Any]], ...] = (
    (pa.types.is_struct, _members),
    (pa.types.is_map, _entries),
    (pa.types.is_nested, lambda scalar: plain(scalar.values)),
    (pa.types.is_date, _days),
    (pa.types.is_temporal, _nanos),
    (pa.types.is_floating, _float),
    (pa.types.is_decimal, lambda scalar: scalar.as_py()),
)


def as_json(value: Any) -> str:
    """A value to be shown beside another one."""
    return json.dumps(value, default=str, ensure_ascii=False)[:400]
