"""Objects check themselves: everything that is written comes back, and any change is found."""

from __future__ import annotations

import datetime as dt
import decimal
import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import xxhash
from hypothesis import given, settings
from hypothesis import strategies as st

from storage import (
    LARGE,
    SMALL,
    DamagedObjectError,
    ParquetProfile,
    UnknownFormatError,
    checksum_of,
    decode_json,
    decode_parquet,
    encode_json,
    encode_parquet,
    encode_parquet_parts,
    verify_checksum,
)
from storage.reasons import StoreReason

UTC = dt.UTC
ENTRY = pa.schema(
    [
        pa.field("base_offset", pa.int64(), nullable=False),
        ("producer_epoch", pa.int16()),
        ("base_sequence", pa.int32()),
        ("is_transactional", pa.bool_()),
        ("control", pa.string()),
        ("max_timestamp", pa.timestamp("ms", "UTC")),
        ("data_path", pa.string()),
    ]
)


def entry(rows: int = 1) -> pa.Table:
    return pa.table(
        [
            list(range(rows)), [1] * rows, [2] * rows, [True] * rows, ["none"] * rows,
            [1_700_000_000_123] * rows, ["data/x.parquet"] * rows,
        ],
        schema=ENTRY,
    )  # fmt: skip


PARQUET = encode_parquet(entry(), kind="entry", metadata={"write_id": "w-1"})
JSON = encode_json({"name": "ledger", "partitions": 50}, kind="store")


def damaged(decode: Callable[[], object]) -> DamagedObjectError:
    with pytest.raises(DamagedObjectError) as caught:
        decode()
    assert caught.value.place == "some/key"
    assert caught.value.expected
    assert "\n" not in str(caught.value)
    return caught.value


# -- Parquet: what goes in comes out


@pytest.mark.parametrize("profile", [SMALL, LARGE, replace(SMALL, compression="zstd")])
@pytest.mark.parametrize("rows", [0, 1, 100])
def test_a_table_and_its_metadata_come_back(profile: ParquetProfile, rows: int) -> None:
    """A table comes back with the same rows, schema, nullability, kind and metadata, in every profile."""
    data = encode_parquet(
        entry(rows), kind="entry", metadata={"write_id": "w-1", "empty": ""}, profile=profile
    )
    table, metadata = decode_parquet(data, key="some/key", kind="entry")
    assert table.equals(entry(rows))
    assert table.schema.equals(ENTRY)
    assert metadata == {
        "format": "2",
        "kind": "entry",
        "write_id": "w-1",
        "empty": "",
        "checksum": checksum_of(data),
    }


VALUES: list[tuple[pa.DataType, list[Any]]] = [
    (pa.int8(), [-128, 127]),
    (pa.int16(), [-1, 2]),
    (pa.int32(), [-(2**31), 2**31 - 1]),
    (pa.int64(), [-(2**63), 2**63 - 1]),
    (pa.uint8(), [0, 255]),
    (pa.uint16(), [0, 65_535]),
    (pa.uint32(), [0, 2**32 - 1]),
    (pa.uint64(), [0, 2**64 - 1]),
    (pa.float32(), [1.5, float("inf")]),
    (pa.float64(), [0.1, -0.0]),
    (pa.bool_(), [True, False]),
    (pa.string(), ["", "ü\0\n"]),
    (pa.binary(), [b"", b"\0\xff" * 10]),
    (pa.binary(3), [b"abc", b"\0\0\0"]),
    (pa.decimal128(18, 2), [decimal.Decimal("-1234567890123456.78"), decimal.Decimal("0.01")]),
    (pa.decimal128(38, 10), [decimal.Decimal("1234567890123456789012345678.0123456789")]),
    (pa.date32(), [dt.date(1, 1, 1), dt.date(2026, 11, 21)]),
    (pa.time32("ms"), [dt.time(23, 59, 59, 999_000)]),
    (pa.time64("us"), [dt.time(1, 2, 3, 4)]),
    (pa.timestamp("ms", "UTC"), [dt.datetime(2026, 11, 21, 1, 2, 3, 4_000, tzinfo=UTC)]),
    (pa.timestamp("us", "UTC"), [dt.datetime(1900, 1, 1, tzinfo=UTC)]),
    (pa.timestamp("us"), [dt.datetime(2026, 1, 1)]),  # noqa: DTZ001 -- a local timestamp is what is tested
    (pa.list_(pa.int32()), [[], [1, None, 3]]),
    (pa.struct([("a", pa.int32()), ("b", pa.string())]), [{"a": 1, "b": None}]),
    (
        pa.list_(pa.struct([pa.field("key", pa.string(), nullable=False), pa.field("value", pa.binary())])),
        [[], [{"key": "k", "value": None}, {"key": "", "value": b"\xff"}]],
    ),
    (pa.map_(pa.string(), pa.int32()), [[("a", 1)], []]),
]


@pytest.mark.parametrize("profile", [SMALL, LARGE])
@pytest.mark.parametrize(("type_", "values"), VALUES, ids=[str(type_) for type_, _ in VALUES])
def test_types_come_back_as_they_are(type_: pa.DataType, values: list[Any], profile: ParquetProfile) -> None:
    """These types need no schema for reading: types and values come back equal, null included."""
    table = pa.table({"c": pa.array([*values, None], type_)})
    read, _ = decode_parquet(encode_parquet(table, kind="t", profile=profile), key="some/key")
    assert read.schema.equals(table.schema)
    assert read.equals(table)


@pytest.mark.parametrize(
    "type_",
    [pa.large_string(), pa.dictionary(pa.int32(), pa.string()), pa.timestamp("s", "UTC"),
     pa.timestamp("us", "Europe/Berlin"), pa.duration("ms"), pa.date64(), pa.time32("s"),
     pa.large_binary(), pa.large_list(pa.int8())],
    ids=str,
)  # fmt: skip
@pytest.mark.parametrize("profile", [SMALL, LARGE])
def test_other_types_come_back_by_the_schema(type_: pa.DataType, profile: ParquetProfile) -> None:
    """A type that Parquet does not have comes back if `schema` asks for it."""
    raw: list[Any] = ["a", "b"]
    if pa.types.is_large_binary(type_):
        raw = [b"a"]
    elif pa.types.is_large_list(type_):
        raw = [[1, 2], []]
    elif not (pa.types.is_large_string(type_) or pa.types.is_dictionary(type_)):
        raw = [0, 86_400_000]
        if pa.types.is_time32(type_):
            raw = [0, 86_399]
    table = pa.table({"c": pa.array([*raw, None], type_)})
    data = encode_parquet(table, kind="t", profile=profile)
    read, _ = decode_parquet(data, key="some/key", schema=table.schema)
    assert read.schema.equals(table.schema)
    assert read.equals(table)


def test_a_schema_that_does_not_fit_is_damage() -> None:
    """A table that cannot be cast to the schema asked for is reported as the object's fault, by key."""
    for schema in (pa.schema([("x", pa.int64())]), ENTRY.set(4, pa.field("control", pa.int64()))):
        damaged(lambda schema=schema: decode_parquet(PARQUET, key="some/key", schema=schema))  # type: ignore[misc]


def test_columns_can_be_chosen() -> None:
    """Only the columns asked for are read."""
    table, _ = decode_parquet(PARQUET, key="some/key", columns=["control", "base_offset"])
    assert sorted(table.column_names) == ["base_offset", "control"]


def test_any_engine_can_read_it() -> None:
    """The object is an ordinary Parquet file: pyarrow alone reads rows and metadata."""
    file = pq.ParquetFile(pa.BufferReader(PARQUET))
    assert file.read().to_pylist() == entry().to_pylist()
    assert file.metadata.metadata[b"txn_engine.kind"] == b"entry"
    assert file.metadata.metadata[b"txn_engine.format"] == b"2"


def test_the_checksum_is_of_the_whole_file_with_zeros_in_its_place() -> None:
    """The checksum is xxh3-128 over all bytes with the digits themselves as '0', so that a second
    implementation can compute it."""
    digits = pq.ParquetFile(pa.BufferReader(PARQUET)).metadata.metadata[b"txn_engine.checksum"]
    assert PARQUET.count(digits) == 1
    assert xxhash.xxh3_128(PARQUET.replace(digits, b"0" * 32)).hexdigest().encode() == digits
    assert checksum_of(PARQUET) == verify_checksum(PARQUET, "some/key") == digits.decode()


def test_mapped_memory_is_read_without_a_copy() -> None:
    """A read-only view (a mapped file) decodes as bytes do."""
    assert decode_parquet(memoryview(PARQUET), key="some/key")[0].equals(entry())
    assert decode_parquet(bytearray(PARQUET), key="some/key")[0].equals(entry())


def test_the_schema_s_own_metadata_is_left_out() -> None:
    """What pandas or Spark attach to a schema does not get into the object or out of it."""
    table = entry().replace_schema_metadata({"pandas": "{}", "txn_engine.kind": "forged"})
    read, metadata = decode_parquet(encode_parquet(table, kind="entry"), key="some/key", kind="entry")
    assert read.schema.metadata is None
    assert set(metadata) == {"format", "kind", "checksum"}


@pytest.mark.parametrize("name", ["format", "kind", "checksum"])
def test_the_envelope_s_names_are_its_own(name: str) -> None:
    """Metadata and JSON keys with the envelope's own names are refused."""
    with pytest.raises(ValueError, match=name):
        encode_parquet(entry(), kind="entry", metadata={name: "x"})
    with pytest.raises(ValueError, match=name):
        encode_json({name: "x"}, kind="store")


FORGED = "txn_engine.checksum\x18\x20" + "0" * 32


def test_a_value_that_looks_like_the_checksum() -> None:
    """Values and metadata that spell the checksum's field do not confuse writer or reader."""
    table = pa.table({"c": [FORGED] * 3})
    for profile in (SMALL, LARGE):
        data = encode_parquet(table, kind="t", metadata={"m": FORGED, "z": FORGED}, profile=profile)
        read, metadata = decode_parquet(data, key="some/key")
        assert read.equals(table)
        assert metadata["m"] == metadata["z"] == FORGED
    obj = {"a": '\n  "checksum": "' + "0" * 32, "deep": {"checksum": "0" * 32}, "checksum2": "0" * 32}
    assert decode_json(encode_json(obj, kind="t"), key="some/key", kind="t") == obj


def test_large_files_are_laid_out_as_asked() -> None:
    """A large file has zstd, page checksums, row groups up to the limit, and no dictionary."""
    table = pa.table({"country": ["DE", "FR"] * 5_000, "value": [f"v{i}" for i in range(10_000)]})
    profile = replace(LARGE, row_group_rows_max=4_000)
    file = pq.ParquetFile(pa.BufferReader(encode_parquet(table, kind="t", profile=profile)))
    assert [file.metadata.row_group(i).num_rows for i in range(file.num_row_groups)] == [4_000, 4_000, 2_000]
    country = file.metadata.row_group(0).column(0)
    assert (country.compression, country.has_dictionary_page, country.is_stats_set) == ("ZSTD", False, True)


def test_statistics_of_chosen_columns() -> None:
    """A small file can carry statistics of the columns a reader filters by."""
    profile = replace(SMALL, write_statistics=("base_offset",))
    row_group = pq.ParquetFile(
        pa.BufferReader(encode_parquet(entry(), kind="t", profile=profile))
    ).metadata.row_group(0)
    assert [row_group.column(i).is_stats_set for i in range(3)] == [True, False, False]


# -- Parquet: damage


def test_every_flipped_byte_is_found() -> None:
    """Each byte of a one-row file, with any one bit changed or inverted, is a DamagedObjectError."""
    for position in range(len(PARQUET)):
        for mask in (1, 2, 4, 8, 16, 32, 64, 128, 255):
            broken = bytearray(PARQUET)
            broken[position] ^= mask
            with pytest.raises(DamagedObjectError):
                decode_parquet(broken, key="some/key", kind="entry")


def test_every_truncation_is_found() -> None:
    """An object that is cut anywhere, at its end or its beginning, or is lengthened, is a
    DamagedObjectError."""
    for length in range(len(PARQUET)):
        with pytest.raises(DamagedObjectError):
            decode_parquet(PARQUET[:length], key="some/key")
        with pytest.raises(DamagedObjectError):
            decode_parquet(PARQUET[len(PARQUET) - length :], key="some/key")
    for longer in (PARQUET + b"\0", b"\0" + PARQUET, PARQUET + PARQUET, PARQUET[:4] + PARQUET):
        damaged(lambda longer=longer: decode_parquet(longer, key="some/key"))  # type: ignore[misc]


def test_an_empty_object_says_so() -> None:
    """An empty object is reported as damage of its own kind."""
    for decode in (
        lambda: decode_parquet(b"", key="some/key"),
        lambda: decode_json(b"", key="some/key", kind="store"),
    ):
        assert damaged(decode).reason is StoreReason.EMPTY_OBJECT


@given(st.data())
@settings(max_examples=200, deadline=None)
def test_damage_in_a_large_file_is_found(data: st.DataObject) -> None:
    """Random changes of a compressed file of many pages are found too."""
    position = data.draw(st.integers(0, len(LARGE_FILE) - 1))
    length = data.draw(st.integers(1, 50))
    patch = data.draw(st.binary(min_size=length, max_size=length))
    broken = LARGE_FILE[:position] + patch + LARGE_FILE[position + length :]
    if broken != LARGE_FILE:
        with pytest.raises(DamagedObjectError):
            decode_parquet(broken, key="some/key")


LARGE_FILE = encode_parquet(
    pa.table({"a": list(range(20_000)), "b": [f"value {i * 7}" for i in range(20_000)]}),
    kind="data",
    profile=LARGE,
)


def test_another_kind_or_format_is_refused() -> None:
    """A sound object of another kind, or of a later format, is refused."""
    other = damaged(lambda: decode_parquet(PARQUET, key="some/key", kind="snapshot"))
    assert other.reason is StoreReason.OTHER_KIND
    later = restamped(PARQUET, b"txn_engine.format\x18\x012", b"txn_engine.format\x18\x013")
    refused = damaged(lambda: decode_parquet(later, key="some/key", kind="entry"))
    assert isinstance(refused, UnknownFormatError)
    assert "format '3'; expected format '2'; open the store with the version" in str(refused)


def test_a_foreign_parquet_file_is_refused() -> None:
    """A Parquet file without our checksum is not one of ours."""
    sink = pa.BufferOutputStream()
    pq.write_table(entry(), sink)
    refused = damaged(lambda: decode_parquet(sink.getvalue().to_pybytes(), key="some/key"))
    assert refused.reason is StoreReason.NO_CHECKSUM


def test_a_sound_checksum_around_nonsense() -> None:
    """An object with a correct checksum that is not a Parquet file is a DamagedObjectError."""
    body = b"PAR1 nonsense txn_engine.checksum\x18\x20" + b"0" * 32 + b" PAR1"
    broken = body.replace(b"0" * 32, xxhash.xxh3_128(body).hexdigest().encode())
    checksum_of(broken)
    damaged(lambda: decode_parquet(broken, key="some/key"))


def restamped(data: bytes, old: bytes, new: bytes) -> bytes:
    """Change the object and make its checksum fit again."""
    assert data.count(old) == 1
    digits = checksum_of(data).encode()
    zeroed = data.replace(old, new).replace(digits, b"0" * 32)
    return zeroed.replace(b"0" * 32, xxhash.xxh3_128(zeroed).hexdigest().encode())


# -- JSON

VALUES_OF_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@given(
    st.dictionaries(st.text().filter(lambda name: name not in ("format", "kind", "checksum")), VALUES_OF_JSON)
)
def test_json_comes_back(obj: dict[str, Any]) -> None:
    """Any JSON object comes back equal."""
    assert decode_json(encode_json(obj, kind="t"), key="some/key", kind="t") == obj


def test_json_is_for_people_too() -> None:
    """The object is indented, sorted, ends with a line break and says its format and kind."""
    text = JSON.decode()
    assert text.endswith("}\n")
    whole = json.loads(text)
    assert list(whole) == sorted(whole)
    assert (whole["format"], whole["kind"], whole["name"]) == (2, "store", "ledger")
    assert checksum_of(JSON) == whole["checksum"]


def test_json_that_no_one_could_read_back_is_not_written() -> None:
    """NaN is not valid JSON."""
    with pytest.raises(ValueError, match="JSON"):
        encode_json({"x": float("nan")}, kind="t")


def test_damaged_json_is_found() -> None:
    """Every flipped byte and every truncation of a JSON object is DamagedObjectError."""
    for position in range(len(JSON)):
        for mask in (1, 4, 32, 128, 255):
            broken = bytearray(JSON)
            broken[position] ^= mask
            with pytest.raises(DamagedObjectError):
                decode_json(broken, key="some/key", kind="store")
        with pytest.raises(DamagedObjectError):
            decode_json(JSON[:position], key="some/key", kind="store")
    damaged(lambda: decode_json(JSON + b" ", key="some/key", kind="store"))


def test_json_of_another_kind_is_refused() -> None:
    """A sound JSON object of another kind is refused, and so is a Parquet object."""
    damaged(lambda: decode_json(JSON, key="some/key", kind="topic"))
    damaged(lambda: decode_json(PARQUET, key="some/key", kind="entry"))
    damaged(lambda: decode_parquet(JSON, key="some/key"))


# --- a Parquet object that is read in parts ---------------------------------------------------------------


@pytest.mark.parametrize("profile", [SMALL, LARGE])
def test_a_table_in_parts(profile: ParquetProfile) -> None:
    """A table that is written in parts has one row group for each, and is read back whole. A table without
    parts has no rows."""
    taken: list[int] = []

    def parts() -> Iterator[pa.Table]:
        for rows in (3, 1, 4):
            taken.append(rows)
            yield entry(rows)

    data = encode_parquet_parts(parts(), ENTRY, kind="data", metadata={"write_id": "w"}, profile=profile)
    table, metadata = decode_parquet(data, key="k", kind="data")
    assert taken == [3, 1, 4]
    assert table.equals(pa.concat_tables([entry(3), entry(1), entry(4)]).cast(table.schema))
    assert metadata["write_id"] == "w"
    assert pq.ParquetFile(pa.BufferReader(data)).metadata.num_row_groups == 3
    empty = encode_parquet_parts(iter(()), ENTRY, kind="data", profile=profile)
    assert decode_parquet(empty, key="k")[0].num_rows == 0
