"""Arrow columns are cast exactly to another type, from a Parquet file and from the rows that Spark hands
over."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from tests.exact.arrays import arrays, counts_in, flat_types, is_whole
from tests.support.refusals import refused
from txn_engine.errors import InvalidRecordError
from txn_engine.exact import InexactError, cast_and_back, cast_exactly
from txn_engine.files import read_records
from txn_engine.reasons import Reason

pytestmark = [pytest.mark.exact, pytest.mark.timeout(21_600)]

_PER_SECOND = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("parquet")


def meaning(array: Any) -> list[Any]:
    """The meaning of each value by its bits, as a fraction: a number, or the seconds of a moment."""
    kind = array.type
    if pa.types.is_floating(kind):
        numbers: list[Any] = array.cast(pa.float64()).to_pylist()
        return [None if n is None else (Fraction(n) if abs(n) < float("inf") else str(n)) for n in numbers]
    counts = counts_in(array)
    unit = Fraction(1)
    if pa.types.is_decimal(kind):
        unit = Fraction(1, 10**kind.scale)
    elif pa.types.is_date32(kind):
        unit = Fraction(86_400)
    elif pa.types.is_date64(kind):
        unit = Fraction(1, 1_000)
    elif pa.types.is_timestamp(kind):
        unit = Fraction(1, _PER_SECOND[kind.unit])
    return [None if count is None else count * unit for count in counts]


def cast_or_index(array: Any, kind: Any) -> Any:
    """The array in the other type, or the index of the first value that does not fit there."""
    try:
        return cast_exactly(array, kind)
    except InexactError as error:
        return error.index


def has(kind: Any, value: Any) -> bool:
    """Whether a type of numbers or moments can hold a value."""
    if value is None:
        return True
    scale, low, high = Fraction(1), -(2 ** (kind.bit_width - 1)), 2 ** (kind.bit_width - 1) - 1
    if pa.types.is_decimal(kind):
        scale, high = Fraction(10**kind.scale), 10**kind.precision - 1
        low = -high
    elif pa.types.is_timestamp(kind):
        scale = Fraction(_PER_SECOND[kind.unit])
    elif pa.types.is_date(kind):
        scale = Fraction(1, 86_400) if pa.types.is_date32(kind) else Fraction(1_000)
    elif pa.types.is_unsigned_integer(kind):
        low, high = 0, 2**kind.bit_width - 1
    return (value * scale).denominator == 1 and low <= value * scale <= high


@pytest.mark.parametrize(
    ("value", "kind", "wanted"),
    [
        ("401069569058396736709.44", pa.decimal128(38, 2), pa.decimal128(38, 18)),
        ("10000000000000000000000", pa.decimal128(38, 0), pa.decimal32(9, 2)),
        ("9223372036854775807", pa.int64(), pa.decimal32(5, 2)),
        ("4294967295", pa.uint32(), pa.decimal32(5, 2)),
    ],
)
def test_a_decimal_that_pyarrow_would_give_the_remainder_of(value: str, kind: Any, wanted: Any) -> None:
    """pyarrow's safe cast raises the scale modulo the bits of the type, and checks only after that whether
    the result fits."""
    number = Decimal(value)
    array = pa.array([number if pa.types.is_decimal(kind) else int(number)], kind)
    for column in (array, pa.chunked_array([array.slice(0, 0), array]), pa.array([[number]], pa.list_(kind))):
        into = pa.list_(wanted) if pa.types.is_list(column.type) else wanted
        with pytest.raises(InexactError):
            cast_exactly(column, into)


@pytest.mark.parametrize(
    ("array", "wanted"),
    [
        (pa.array([{"a": 1, "b": 2}]), pa.struct([("a", pa.int64())])),
        (pa.array([1.5e300]), pa.float32()),
        (pa.array([{"a": 1.5e300}]), pa.struct([("a", pa.float32())])),
    ],
)
def test_what_a_type_has_no_place_for_is_not_left_out(array: Any, wanted: Any) -> None:
    """A cast that would drop a member of a struct, or a float's size, is refused."""
    with pytest.raises(InexactError):
        cast_exactly(array, wanted)


@pytest.mark.parametrize(
    ("array", "wanted"),
    [
        (pa.array([1.5, float("nan"), None], pa.float32()), pa.float64()),
        (
            pa.array([{"a": float("nan"), "b": 1}, None]),
            pa.struct([("b", pa.decimal128(25, 2)), ("a", pa.float64())]),
        ),
        (
            pa.array([[("k", float("nan"))], None], pa.map_(pa.string(), pa.float32())),
            pa.map_(pa.string(), pa.float64()),
        ),
        (
            pa.array([[Decimal(1)], None, []], pa.list_(pa.decimal128(9, 0))),
            pa.large_list(pa.decimal256(70, 8)),
        ),
    ],
)
def test_nulls_and_no_numbers_are_themselves(array: Any, wanted: Any) -> None:
    """Nulls and NaN stay as they are, in nested values too."""
    found = cast_exactly(array, wanted)
    assert str(found.cast(array.type).to_pylist()) == str(array.to_pylist())


_MEMBERS = [
    (pa.int32(), 5),
    (pa.string(), "x"),
    (pa.bool_(), True),
    (pa.binary(4), b"abcd"),
    (pa.decimal128(9, 2), Decimal("1.25")),
    (pa.timestamp("us", "UTC"), dt.datetime(2020, 1, 1, tzinfo=dt.UTC)),
    (pa.list_(pa.int32()), [1, None]),
    (pa.struct([("b", pa.int8())]), {"b": 1}),
    (pa.map_(pa.int8(), pa.string()), [(1, "x")]),
]


def _struct(kind: Any, *, nullable: bool) -> Any:
    return pa.struct([pa.field("a", kind, nullable=nullable)])


def _as_spark_hands_it_over(kind: Any, members: list[Any], nulls: list[bool]) -> Any:
    """A struct whose member is null wherever the struct is, as Spark hands it over."""
    member = pa.array(members, kind)
    return pa.StructArray.from_arrays(
        [member], fields=list(_struct(kind, nullable=True)), mask=pa.array(nulls)
    )


@pytest.mark.parametrize(("kind", "value"), _MEMBERS, ids=str)
@pytest.mark.parametrize("shown", [[True, False], [False, False], [False, True, False]])
def test_a_null_struct_is_no_null_of_a_member_that_may_not_be(
    kind: Any, value: Any, shown: list[bool]
) -> None:
    """A null struct may have null members, alone and within lists and maps. The result is what a Parquet file
    keeps."""
    structs = _as_spark_hands_it_over(kind, [value if s else None for s in shown], [not s for s in shown])
    wanted = _struct(kind, nullable=False)
    count = len(structs)
    keys = pa.array(range(count), pa.int32())
    for array, into in (
        (structs, wanted),
        (structs.slice(1), wanted),
        (pa.chunked_array([structs, structs.slice(1)]), wanted),
        (pa.ListArray.from_arrays(pa.array([0, 1, count], pa.int32()), structs), pa.list_(wanted)),
        (pa.LargeListArray.from_arrays([0, 0, count], structs), pa.large_list(wanted)),
        (pa.MapArray.from_arrays([0, count], keys, structs), pa.map_(pa.int32(), wanted)),
    ):
        found = cast_exactly(array, into)
        found.validate(full=True)
        assert found.type == into
        assert found.to_pylist() == array.to_pylist()
        file = pa.BufferOutputStream()
        pq.write_table(pa.table({"x": found}), file)
        assert pq.read_table(pa.BufferReader(file.getvalue())).column("x").to_pylist() == array.to_pylist()


@pytest.mark.parametrize(("kind", "value"), _MEMBERS, ids=str)
def test_a_null_of_a_member_that_may_not_be_is_refused(kind: Any, value: Any) -> None:
    """A null member is refused in a struct that is not null, next to a struct that is null."""
    structs = _as_spark_hands_it_over(kind, [value, None, None], [False, True, False])
    wanted = _struct(kind, nullable=False)
    assert cast_or_index(structs, wanted) == 2
    assert cast_or_index(pa.ListArray.from_arrays([0, 1, 3], structs), pa.list_(wanted)) == 1


@given(arrays(), flat_types)
@example(pa.array([0]), pa.decimal32(9, 0))  # found by 100,000 examples
@example(pa.array([5], pa.decimal64(18, 0)), pa.uint64())
@example(pa.array([-999_999_999], pa.decimal32(9, 0)), pa.decimal64(18, 1))
@example(pa.array([2**64 - 86_400_000], pa.uint64()), pa.decimal128(38, 14))
def test_a_cast_keeps_every_value_or_names_the_first_it_cannot(array: Any, kind: Any) -> None:
    """A cast keeps every value or names the first one that does not fit, as for a DataFrame's rows
    (`conform_to_topic`)."""
    assume(is_whole(array) and not pa.types.is_floating(kind) and not pa.types.is_floating(array.type))
    assume(_are_alike(array.type, kind))
    wanted = meaning(array)
    found = cast_or_index(array, kind)
    if isinstance(found, int):
        assert not has(kind, wanted[found])
    else:
        assert meaning(found) == wanted


@given(array=arrays(), kind=flat_types)
def test_parquet(array: Any, kind: Any, folder: Path) -> None:
    """Whatever the file's type is, the topic's type gets the same values, or the refusal names the row."""
    path = folder / "x.parquet"
    assume(is_whole(array))
    try:
        pq.write_table(pa.table({"x": array}), path)
    except pa.ArrowInvalid:  # a moment in seconds that Parquet has no room for
        assume(False)
    try:
        (batch,) = read_records(path, pa.schema([("x", kind)]))
    except InvalidRecordError:
        if array.type == kind:
            raise
        return
    assert meaning(batch.column(0)) == meaning(array)


@given(
    counts=st.lists(st.one_of(st.none(), st.integers(-(2**62), 2**62)), min_size=1, max_size=3),
    unit=st.sampled_from(["us", "ns"]),
)
def test_parquet_times_of_96_bits(counts: list[int | None], unit: Any, folder: Path) -> None:
    """The deprecated INT96, in which Spark wrote times for years, is read exactly, even in the year 9999."""
    path = folder / "old.parquet"
    limit = 2**62 // (1 if unit == "ns" else 100)
    kept = [None if count is None else count % limit for count in counts]
    array: Any = pa.array(kept, pa.int64()).view(pa.timestamp(unit))
    pq.write_table(pa.table({"x": array}), path, use_deprecated_int96_timestamps=True)
    (batch,) = read_records(path, pa.schema([("x", pa.timestamp(unit))]))
    assert meaning(batch.column(0)) == meaning(array)


SPARK = b"org.apache.spark."
OF_SPARK_2 = {SPARK + b"version": b"2.4.8"}
LEGACY = {SPARK + b"version": b"4.0.0", SPARK + b"legacyDateTime": b""}
LEGACY_96 = {SPARK + b"version": b"4.0.0", SPARK + b"legacyINT96": b""}
EARLY = {SPARK + b"sql.parquet.row.metadata": b"{}"}
HIVES = {b"writer.date.proleptic": b"false"}
OLD_DAY, OLD_TIME = dt.date(1500, 1, 1), dt.datetime(1899, 12, 31, tzinfo=dt.UTC)
NEW_DAY, NEW_TIME = dt.date(1582, 10, 15), dt.datetime(1900, 1, 1, tzinfo=dt.UTC)
UTC_TIME = pa.timestamp("us", "UTC")


@pytest.mark.parametrize(
    ("written", "kind", "rows", "is_96"),
    [
        (LEGACY, pa.date32(), [NEW_DAY, OLD_DAY], False),
        (LEGACY, UTC_TIME, [NEW_TIME, OLD_TIME], False),
        (LEGACY, pa.list_(pa.date32()), [[NEW_DAY, None], [NEW_DAY, OLD_DAY]], False),
        (LEGACY, pa.struct([("x", pa.date32())]), [{"x": NEW_DAY}, {"x": OLD_DAY}], False),
        (LEGACY, pa.map_(pa.date32(), pa.int64()), [[(NEW_DAY, 1)], [(OLD_DAY, 1)]], False),
        (LEGACY, pa.map_(pa.int64(), UTC_TIME), [[(1, NEW_TIME)], [(1, OLD_TIME)]], False),
        (OF_SPARK_2, pa.date32(), [None, OLD_DAY], False),
        (OF_SPARK_2, UTC_TIME, [NEW_TIME, OLD_TIME], True),
        (EARLY, UTC_TIME, [NEW_TIME, OLD_TIME], True),
        (LEGACY_96, UTC_TIME, [NEW_TIME, OLD_TIME], True),
        (HIVES, pa.date32(), [NEW_DAY, OLD_DAY], False),
    ],
)
def test_parquet_in_the_legacy_calendar(
    written: dict[bytes, bytes], kind: Any, rows: list[Any], is_96: bool, tmp_path: Path
) -> None:
    """A file whose writer says that old days are Julian is refused at its first old day or time, also inside of others.
    Files without old days are taken, and so are the same days of a writer that says nothing."""
    path, schema = tmp_path / "legacy.parquet", pa.schema([("c", pa.timestamp("us") if is_96 else kind)])

    def read(rows: list[Any], written: dict[bytes, bytes]) -> list[Any]:
        table = pa.table({"c": pa.array(rows, kind)})
        if is_96:  # has no zone
            table = table.cast(schema)
        with pq.ParquetWriter(path, table.schema, use_deprecated_int96_timestamps=is_96) as writer:
            writer.write_table(table)
            writer.add_key_value_metadata(written)
        (batch,) = read_records(path, schema)
        return batch.column("c").to_pylist()

    with refused(InvalidRecordError, Reason.LEGACY_CALENDAR) as error:
        read(rows, written)
    assert str(error.value.place).endswith("legacy.parquet row 2")
    assert len(read(rows[:1], written)) == 1
    assert len(read(rows, {SPARK + b"version": b"3.5.1"})) == 2
    assert len(read(rows, {})) == 2


@pytest.mark.parametrize("name", ["when", "when.at"])
@pytest.mark.parametrize("wrap", [pa.list_, lambda kind: pa.struct([("t", kind)])])
def test_parquet_times_of_96_bits_inside_others(name: str, wrap: Any, tmp_path: Path) -> None:
    """They are refused, whatever the column is called, because pyarrow wraps them around."""
    kind = wrap(pa.timestamp("us"))
    moment = dt.datetime(9999, 12, 31)  # noqa: DTZ001
    rows = [[moment]] if pa.types.is_list(kind) else [{"t": moment}]
    path = tmp_path / "old.parquet"
    table = pa.table({name: pa.array(rows, kind)})
    pq.write_table(table, path, use_deprecated_int96_timestamps=True, store_schema=False)
    schema = pa.schema([(name, pq.read_schema(path).field(name).type)])
    with refused(InvalidRecordError, Reason.UNSUPPORTED_TYPE):
        list(read_records(path, schema))


@pytest.mark.parametrize("kind", [pa.struct([("HEADER", pa.int64())]), pa.timestamp("us", "HEADER")])
def test_a_parquet_files_own_names_are_in_no_error(kind: pa.DataType, tmp_path: Path) -> None:
    """The names inside a type are only in the error's value, not in its text."""
    path = tmp_path / "odd.parquet"
    pq.write_table(pa.table({"x": pa.nulls(1, kind)}), path)
    with pytest.raises(InvalidRecordError) as refused:
        list(read_records(path, pa.schema([("x", pa.int64())])))
    assert "HEADER" not in str(refused.value)
    assert "HEADER" in str(refused.value.value)


def _are_alike(one: Any, other: Any) -> bool:
    """Whether both types are of the same kind."""
    moments = [pa.types.is_timestamp(kind) for kind in (one, other)]
    days = [pa.types.is_date(kind) for kind in (one, other)]
    return moments[0] == moments[1] and days[0] == days[1]


@pytest.mark.parametrize("is_nested", [False, True])
@pytest.mark.parametrize("wanted", [pa.int64(), pa.decimal128(10, 2), pa.bool_()])
@pytest.mark.parametrize("kind", [pa.float32(), pa.float64()])
def test_a_zero_with_a_sign_does_not_come_back(kind: Any, wanted: Any, is_nested: bool) -> None:
    """`topics copy` makes one type of another where each value comes back. -0.0 would come back as 0.0."""
    rows = [[[0.0, None], [1.0]], [[0.0, -0.0]]] if is_nested else [[0.0, None, 1.0], [-0.0]]
    kind, wanted = (pa.list_(each) if is_nested else each for each in (kind, wanted))
    good, bad = (pa.array(each, kind) for each in rows)
    assert cast_and_back(good, wanted).cast(kind).equals(good)
    with pytest.raises(InexactError):
        cast_and_back(bad, wanted)
    assert cast_and_back(bad, pa.list_(pa.string()) if is_nested else pa.string()) is not None


UUIDS = pa.ExtensionArray.from_storage(pa.uuid(), pa.array([b"a" * 16, None, b"\xff" * 16], pa.binary(16)))
UUID_TEXTS = ["61616161-6161-6161-6161-616161616161", None, "ffffffff-ffff-ffff-ffff-ffffffffffff"]


@pytest.mark.parametrize(
    "kind", [pa.string(), pa.large_string(), pa.string_view(), pa.dictionary(pa.int8(), pa.string())]
)
def test_the_text_of_a_uuid_is_its_36_characters(kind: Any) -> None:
    """The bytes of a UUID may happen to be text, and are not its text. Of texts only the usual one is a UUID."""
    assert cast_and_back(UUIDS, kind).to_pylist() == UUID_TEXTS
    lists = pa.ListArray.from_arrays(pa.array([0, 2, 3], pa.int32()), UUIDS)
    assert cast_and_back(lists, pa.list_(kind)).to_pylist() == [UUID_TEXTS[:2], UUID_TEXTS[2:]]
    assert cast_and_back(pa.array(UUID_TEXTS), pa.uuid()).equals(UUIDS)
    for text in (16 * "a", UUID_TEXTS[2].upper(), UUID_TEXTS[2].replace("-", ""), f"{{{UUID_TEXTS[2]}}}", ""):
        with pytest.raises(InexactError) as caught:
            cast_and_back(pa.array([*UUID_TEXTS, text]), pa.uuid())
        assert caught.value.index == 3
    assert cast_and_back(UUIDS, pa.binary(16)).equals(UUIDS.storage)


@pytest.mark.parametrize(
    "kind", [pa.bool8(), pa.opaque(pa.int64(), "some", "vendor"), pa.opaque(pa.binary(), "some", "vendor")]
)
def test_an_extension_without_a_text(kind: Any) -> None:
    """What a value is stored as is not its text."""
    array = pa.ExtensionArray.from_storage(kind, pa.array([None], kind.storage_type))
    for one, other in ((array, pa.string()), (pa.array(["1"]), kind), (array, pa.json_())):
        with pytest.raises(pa.ArrowNotImplementedError):
            cast_and_back(one, other)


def test_the_text_of_json() -> None:
    """A JSON value is its text."""
    array = pa.ExtensionArray.from_storage(pa.json_(), pa.array(['{"a":1}', None]))
    assert cast_and_back(array, pa.string()).to_pylist() == ['{"a":1}', None]
    assert cast_and_back(pa.array(['{"a":1}', None]), pa.json_()).equals(array)
