"""Footers are parsed before Arrow sees them: a sound one is read as Arrow reads it, and any other is an
error."""

from __future__ import annotations

import ast
import io
import tracemalloc
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from random import Random
from time import process_time_ns

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

import storage
import txn_engine
from storage import (
    DATA_LIMITS,
    LARGE,
    SMALL,
    DamagedObjectError,
    ParquetProfile,
    decode_parquet,
    encode_parquet,
    open_parquet,
    parquet_footer,
    parquet_limits,
)
from storage.parquet_footer import Footer, Leaf, read_footer
from storage.parquet_limits import LimitError, ParquetLimits
from storage.reasons import StoreReason
from storage.thrift import ThriftError, small_number
from tests.support.refusals import refused
from tests.support.sealing import parquet_object, resealed, varint
from txn_engine.log.entry_format import ENTRY_LIMITS
from txn_engine.log.snapshot_format import SNAPSHOT_LIMITS

TABLE = pa.table(
    {
        "id": pa.array([1, 2, None], pa.int64()),
        "note": pa.array(["a", None, "c"]),
        "lines": pa.array([[1], [], [2, 3]], pa.list_(pa.int32())),
        "hash": pa.array([b"x" * 20, None, b"y" * 20], pa.binary(20)),
        "amount": pa.array([1, None, 2], pa.decimal128(18, 2)),
        "large": pa.array([1, None, 2], pa.decimal256(60, 2)),
        "who": pa.array([{"name": "x", "tags": [["t"]]}] * 3),
    }
)


def footer_of(data: bytes) -> bytes:
    size = int.from_bytes(data[-8:-4], "little")
    return data[-8 - size : -8]


def with_footer(data: bytes, footer: bytes) -> bytes:
    """The object with another footer and a correct checksum."""
    size = len(footer_of(data))
    return resealed(data[: -8 - size] + footer + len(footer).to_bytes(4, "little") + b"PAR1")


def as_arrow_reads(data: bytes) -> Footer:
    metadata = pq.ParquetFile(io.BytesIO(data)).metadata
    leaves = tuple(
        Leaf(column.path, column.max_repetition_level > 0, null_bytes(column))
        for column in map(metadata.schema.column, range(metadata.num_columns))
    )
    return Footer(
        metadata.num_rows,
        leaves,
        tuple(
            parquet_footer.RowGroup(
                group.num_rows, tuple(map(as_arrow_tells, map(group.column, range(len(leaves)))))
            )
            for group in map(metadata.row_group, range(metadata.num_row_groups))
        ),
    )


def null_bytes(column: pq.ColumnSchema) -> int:
    if column.logical_type.type == "DECIMAL":
        return 16 if column.precision <= 38 else 32
    return max(8, column.length if column.physical_type == "FIXED_LEN_BYTE_ARRAY" else 0)


def as_arrow_tells(column: pq.ColumnChunkMetaData) -> parquet_footer.Chunk:
    return parquet_footer.Chunk(
        {"UNCOMPRESSED": 0, "SNAPPY": 1, "ZSTD": 6}[column.compression],
        column.num_values,
        column.total_compressed_size,
        column.data_page_offset,
        column.dictionary_page_offset is not None,
    )


def without_statistics(footer: Footer) -> Footer:
    groups = (
        group._replace(chunks=tuple(chunk._replace(lowest=None, highest=None) for chunk in group.chunks))
        for group in footer.row_groups
    )
    return footer._replace(row_groups=tuple(groups))


@given(
    names=st.lists(
        st.text(min_size=1, max_size=200).filter(lambda name: "." not in name),
        min_size=1,
        max_size=20,
        unique=True,
    ),
    rows=st.integers(0, 40),
    group_rows=st.integers(1, 20),
    statistics=st.booleans(),
    dictionary=st.booleans(),
    compression=st.sampled_from(["none", "zstd", "snappy"]),
    kinds=st.randoms(use_true_random=False),
)
def test_a_sound_footer_is_read_as_arrow_reads_it(
    names: list[str],
    rows: int,
    group_rows: int,
    statistics: bool,
    dictionary: bool,
    compression: str,
    kinds: Random,
) -> None:
    columns = [TABLE.column(kinds.randrange(4)) for _ in names]
    table = pa.table(
        [column.take(pa.array([kinds.randrange(3) for _ in range(rows)], pa.int32())) for column in columns],
        names,
    )
    sink = io.BytesIO()
    pq.write_table(
        table,
        sink,
        row_group_size=group_rows,
        write_statistics=statistics,
        use_dictionary=dictionary,
        compression=compression,
    )
    data = sink.getvalue()
    assert without_statistics(read_footer(footer_of(data))) == as_arrow_reads(data)


@pytest.mark.parametrize("statistics", [False, True], ids=["bare", "statistics"])
@pytest.mark.parametrize("codec", ["none", "zstd"])
def test_the_usual_column_is_read_as_any_other(
    codec: str, statistics: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The fast path for columns as Arrow writes them gives the same result as the general one."""
    sink = io.BytesIO()
    pq.write_table(TABLE, sink, use_dictionary=False, write_statistics=statistics, compression=codec)
    footer = footer_of(sink.getvalue())
    monkeypatch.setattr(parquet_footer, "_any_chunk", None)
    usual = read_footer(footer)
    monkeypatch.undo()
    monkeypatch.setattr(parquet_footer, "_usual_chunk", lambda raw, at: None)
    assert read_footer(footer) == usual


def test_statistics_of_integers() -> None:
    table = pa.table(
        {"a": pa.array([-3, 7], pa.int32()), "b": pa.array([-1 << 40, 1], pa.int64()), "c": ["x", "y"]}
    )
    sink = io.BytesIO()
    pq.write_table(table, sink)
    chunks = read_footer(footer_of(sink.getvalue())).row_groups[0].chunks
    assert [chunk.integers() for chunk in chunks] == [(-3, 7), (-1 << 40, 1), None]


# As Arrow writes the column `id` of three values: its type, encodings, path, codec.
_CODEC = b"\x18\x02id\x15\x00"


def swap(old: bytes, new: bytes) -> Callable[[bytes], bytes]:
    def changed(footer: bytes) -> bytes:
        assert footer.count(old) == 1, old
        return footer.replace(old, new)

    return changed


BROKEN = {
    # Each of the first four ended the process, in Arrow, where the column was asked for.
    "a codec that there is not": swap(_CODEC, b"\x18\x02id\x15\x7e"),
    "one that the format does not have": swap(_CODEC, b"\x18\x02id\x15\x02"),
    "histograms of other levels": swap(b"\x3c\x29\x06\x19\x26", b"\x3c\x29\x06\x19\x36\x02"),
    "an encrypted column": swap(b"\x02\x04\x00\x00\x00\x16", b"\x02\x04\x00\x00\x5c\x1c\x00\x00\x00\x16"),
    "a codec of another type": swap(_CODEC, b"\x18\x02id\x16\x00"),
    "encodings of another type": swap(b"\x19\x25\x06\x00", b"\x19\x23\x06\x00"),
    "a codec twice": swap(_CODEC, b"\x18\x02id\x15\x00\x05\x08\x00"),
    "more row groups than there are": swap(b"\x16\x06\x19\x1c\x19", b"\x16\x06\x19\x2c\x19"),
    "a list of 2^31 row groups": swap(b"\x16\x06\x19\x1c\x19", b"\x16\x06\x19\xfc\xff\xff\xff\xff\x07\x19"),
    "a number without an end": swap(_CODEC, b"\x18\x02id\x15" + b"\xff" * 40),
    "a name behind the footer": swap(b"\x18\x02id\x15", b"\x18\xff\xff\xff\x7fid\x15"),
    "bytes behind it": lambda footer: footer + b"\x00",
    "no end": lambda footer: footer[:-1],
    "nothing": lambda footer: b"",
}


def one_more_field(field: bytes) -> Callable[[bytes], bytes]:
    """A field that no version has, at the footer's end."""
    return lambda footer: footer[:-1] + b"\x09\x1e" + field + b"\x00"


def long_names(footer: bytes) -> bytes:
    """A footer with a group that has a name of 60,000 characters and 10,000 columns, for each of which the
    name would be repeated."""
    group = b"\x48" + varint(60_000) + b"g" * 60_000 + b"\x15" + varint(20_000) + b"\x00"
    column = b"\x15\x02\x25\x02\x18\x01a\x00"
    root = b"\x48\x01s\x15\x02\x00"
    return b"\x15\x04\x19\xfc" + varint(10_002) + root + group + column * 10_000 + b"\x16\x00\x19\x0c\x00"


BROKEN |= {
    # A few kilobytes of these took gigabytes, or all of the stack.
    "lists in lists": one_more_field(b"\x19" * 2_000 + b"\x15\x00"),
    "a list of one long value and many short ones": one_more_field(
        b"\xf8" + varint(60_001) + varint(60_000) + b"b" * 60_000 + b"\x00" * 59_999
    ),
    "names of groups told again and again": long_names,
    "a number of more bits than its type has": swap(
        b"\x25\x02\x18\x02id", b"\x25\x84\x80\x80\x80\x20\x18\x02id"
    ),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_footer_is_a_damaged_object(name: str) -> None:
    table = TABLE.select(["id"])
    data = encode_parquet(table, kind="data")
    broken = with_footer(data, BROKEN[name](footer_of(data)))
    tracemalloc.start()
    try:
        with pytest.raises(DamagedObjectError) as caught:
            decode_parquet(broken, key="a/b", limits=ENTRY_LIMITS)
        most = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert caught.value.place == "a/b"
    assert most < 64 << 20


def test_any_changed_byte_is_read_or_refused() -> None:
    """Whatever a footer holds, the reader soon returns a footer or raises a ThriftError."""
    footer = footer_of(encode_parquet(TABLE, kind="data"))
    random = Random(1)
    refused = 0
    for at in range(len(footer)):
        changed = bytearray(footer)
        changed[at] = random.randrange(256)
        try:
            read_footer(bytes(changed))
        except ThriftError:
            refused += 1
    assert 0 < refused < len(footer)


@pytest.mark.parametrize("statistics", [True, False])
def test_a_footer_that_is_accepted_is_read_as_arrow_reads_it(statistics: bool) -> None:
    """A changed footer is refused, or is read just as Arrow understands it. Arrow's understanding is what
    Arrow writes down again."""
    sink = io.BytesIO()
    pq.write_table(TABLE, sink, row_group_size=2, use_dictionary=False, write_statistics=statistics)
    footer = footer_of(sink.getvalue())
    random = Random(2)
    compared = 0
    for _ in range(4_000):
        changed = mutated(footer, random)
        try:
            own = read_footer(changed)
            arrow = pq.ParquetFile(
                io.BytesIO(b"PAR1" + changed + len(changed).to_bytes(4, "little") + b"PAR1")
            )
        except (ThriftError, OSError, UnicodeDecodeError, pa.ArrowException):
            continue
        understood = io.BytesIO()
        arrow.metadata.write_metadata_file(understood)
        assert read_footer(footer_of(understood.getvalue())) == own, changed.hex()
        compared += 1
    assert compared > 100


def mutated(footer: bytes, random: Random) -> bytes:
    changed = bytearray(footer)
    for _ in range(random.choice((1, 1, 2, 3))):
        at = random.randrange(len(changed))
        match random.randrange(4):
            case 0:
                changed[at] = random.randrange(256)
            case 1:
                changed[at] ^= 1 << random.randrange(8)
            case 2:
                changed[at:at] = random.randbytes(random.randrange(1, 4))
            case _:
                del changed[at : at + random.randrange(1, 4)]
    return bytes(changed)


PAGES = pa.table(
    {
        "id": pa.array([1, 2, None] * 20_000, pa.int64()),
        "day": pa.array([7] * 60_000, pa.date32()),
        "note": pa.array(["", None, "c" * 60] * 20_000),
        "amount": pa.array([1, None, 2] * 20_000, pa.decimal128(18, 2)),
        "large": pa.array([1, None, 2] * 20_000, pa.decimal256(60, 2)),
        "rate": pa.array([0.5, None, 2.0] * 20_000),
        "nothing": pa.array([None] * 60_000, pa.int32()),
        "lines": pa.array([[1], [], [2, 3]] * 20_000, pa.list_(pa.int32())),
        "good": pa.array([True, False, None] * 20_000),
    }
)


def pages_of(data: bytes) -> list[tuple[int, tuple[int, ...]]]:
    """The place of each page's header, and what the general reader returns for it."""
    found = []
    for chunk in read_footer(footer_of(data)).row_groups[0].chunks:
        at = chunk.at
        while at < chunk.at + chunk.stored:
            told = parquet_limits._page(data, at)
            found.append((at, told))
            at += told[3] + told[1]
    return found


def as_the_pattern_reads(data: bytes, at: int) -> tuple[int, ...] | None:
    match = parquet_limits._PAGE.match(data, at)
    if match is None:
        return None
    return (*map(small_number, match.groups()), match.end() - at)


@pytest.mark.parametrize("profile", [SMALL, LARGE], ids=["small", "large"])
def test_a_page_that_arrow_writes_is_read_by_the_pattern(profile: ParquetProfile) -> None:
    data = encode_parquet(PAGES, kind="data", profile=profile)
    pages = pages_of(data)
    assert len(pages) >= 3 * len(PAGES.column_names)
    for at, told in pages:
        assert as_the_pattern_reads(data, at) == told


def test_whatever_the_pattern_reads_the_whole_reader_reads_alike() -> None:
    random = Random(15)
    data = encode_parquet(PAGES, kind="data", profile=LARGE)
    headers = [data[at : at + told[3]] for at, told in pages_of(data)]
    alike = refused = 0
    for _ in range(20_000):
        header = mutated(random.choice(headers), random) + bytes(16)
        found = as_the_pattern_reads(header, 0)
        if found is None:
            refused += 1
        else:
            assert parquet_limits._page(header, 0) == found
            alike += 1
    assert alike > 1_000 < refused


def test_nobody_asks_arrow_for_a_column_of_a_row_group() -> None:
    """Only two modules use `row_group`, because `row_group(i).column(j)` ends the process for some footers. One asks
    it of footers that it has just written, the other is a process of its own and asks for no column."""
    asked = set()
    for package in (storage, txn_engine):
        root = Path(next(iter(package.__path__))).parent
        for path in Path(next(iter(package.__path__))).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.Attribute) and node.attr == "row_group":
                    asked.add(str(path.relative_to(root)))
    assert asked == {"storage/parquet_limits.py", "txn_engine/files/parquet_child.py"}


@pytest.mark.shard("damage")
def test_a_name_of_dots_takes_no_time() -> None:
    """A column whose name is many dots is read in less than a second of processor time. It took 4 s when each
    dot was looked at for each column."""
    table = pa.table({"a" + "." * 200_000: [1], "b": [2]})
    data = encode_parquet(table, kind="data")
    began = process_time_ns()
    assert decode_parquet(data, key="k", columns=["b"])[0].num_rows == 1
    assert process_time_ns() - began < 1_000_000_000


def test_nulls_count_by_their_width() -> None:
    """A null of a fixed width counts as a value, because Arrow takes the same memory for it."""
    data = encode_parquet(pa.table({"a": pa.array([None] * 16, pa.binary(1 << 20))}), kind="data")
    assert open_parquet(data, key="k").row_group_bytes == (16 << 20,)
    with refused(DamagedObjectError, StoreReason.TOO_LARGE_IN_MEMORY):
        open_parquet(data, key="k", limits=replace(DATA_LIMITS, row_group_memory=8 << 20))


def test_a_name_with_dots_is_checked_like_any_other() -> None:
    """A column with a dot in its name is checked when it is read, and also when its first part is asked for,
    because `a.b` may be a column of that name."""
    table = pa.table({"a.b": ["x", "y"], "c": [1, 2]})
    metadata = {b"txn_engine.format": b"2", b"txn_engine.kind": b"data", b"txn_engine.checksum": b"0" * 32}
    data = parquet_object(table, metadata, use_dictionary=["a.b"])
    for columns in (["a.b"], ["a"], None):
        with refused(DamagedObjectError, StoreReason.PACKED_COLUMN):
            decode_parquet(data, key="k", columns=columns)
    assert decode_parquet(data, key="k", columns=["c"])[0].num_rows == 2


@pytest.mark.parametrize("limits", [ENTRY_LIMITS, SNAPSHOT_LIMITS], ids=["entry", "snapshot"])
def test_only_a_data_file_may_have_a_larger_footer_for_being_large(limits: ParquetLimits) -> None:
    """Only a data file may have a larger footer if it is large itself. FORMAT.md has a table of these
    limits."""
    limits.check_footer_bytes(limits.footer_bytes, limits.object_bytes)
    with pytest.raises(LimitError):
        limits.check_footer_bytes(limits.footer_bytes + 1, limits.object_bytes)
    DATA_LIMITS.check_footer_bytes(16 << 20, 256 << 20)
    with pytest.raises(LimitError):
        DATA_LIMITS.check_footer_bytes((16 << 20) + 1, 256 << 20)
