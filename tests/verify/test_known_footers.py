"""If an object's footer is known, the audit finds the same as Arrow would, whatever was changed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

import pyarrow as pa
import pytest

from storage import LARGE, encode_parquet
from storage.memory import MemoryStore
from tests.suite.tiers import in_shard
from tests.support.sealing import parquet_object, resealed, taken_apart
from tests.verify.raw_ledger import PAYMENTS, Ledger, encode_records, schema_of
from txn_engine.verify import data_file_audit, log_walk
from txn_engine.verify.data_file_audit import FileDecoder, RecordSchema
from txn_engine.verify.field_ids import WrongId
from txn_engine.verify.findings import Place
from txn_engine.verify.known_footers import KnownFooters
from txn_engine.verify.limits import ENTRY
from txn_engine.verify.log_walk import SlotDecoder
from txn_engine.verify.raw_object import RawObject, fetch

PLACE = Place("payments", 0, 0)
TEXTS = ("", "a", "ß" * 9, "\N{GRINNING FACE}")


def entry(rows: int, **changed: Any) -> bytes:
    """An entry of this many batches."""
    ledger = Ledger()
    placed = [
        ledger.placed({"producer_id": number, "is_transactional": number % 3 == 0, **changed}, number)
        for number in range(rows)
    ]
    table = pa.Table.from_pylist(placed, schema=schema_of("payments"))
    return encode_parquet(table, kind="entry", metadata={"write_id": "7" * 32})


def file(count: int = 5, write_id: str = "7" * 32, **given: Any) -> bytes:
    """A data file."""
    return encode_records(count, 1_700_000_000_000, write_id, **given)


def noted(*notes: str | None, write_id: str = "7" * 32, **given: Any) -> bytes:
    """A data file that has a text column before the columns that are read."""
    table, _ = taken_apart(file(len(notes), **given))
    table = table.set_column(table.column_names.index("note"), "note", pa.array(notes, pa.string()))
    return encode_parquet(table, kind="data", metadata={"write_id": write_id})


def raw(data: bytes) -> RawObject:
    """The object, as the audit reads it."""
    return RawObject("a/key", len(data), data, MemoryStore())


def found(data: bytes) -> Any:
    """What the audit makes of an object, an entry or a data file."""
    store = MemoryStore()
    store.put("a/key", data)
    decode: Any = SlotDecoder(PLACE) if b"coordinator_epoch" in data else FileDecoder(None, {})
    return fetch(store, "a/key", len(data), decode)


@contextmanager
def nothing_known() -> Iterator[None]:
    """Forget all footers for the length of a block."""
    with (
        mock.patch.object(log_walk, "KNOWN_FOOTERS", like(log_walk.KNOWN_FOOTERS)),
        mock.patch.object(data_file_audit, "KNOWN_FOOTERS", like(data_file_audit.KNOWN_FOOTERS)),
    ):
        yield


def like(known: KnownFooters) -> KnownFooters:
    """A new cache of the same kind, which knows no footer yet."""
    return KnownFooters(known.limits, known.columns, known.paths)


def is_cut(data: bytes) -> bool:
    """Whether the object is read without Arrow, after others were read."""
    known = log_walk.KNOWN_FOOTERS if b"coordinator_epoch" in data else data_file_audit.KNOWN_FOOTERS
    return raw(data).parquet_like(known).cut is not None


@pytest.mark.parametrize(
    ("before", "data"),
    [
        pytest.param([entry(1)], entry(1), id="entry"),
        pytest.param([entry(3, data_path="data/x")], entry(3, data_path="data/x"), id="entry of three rows"),
        pytest.param([file()], file(), id="file"),
        pytest.param([file(1)], file(1), id="file of one record"),
        pytest.param([noted("a", "b"), noted("a", "bc")], noted("x" * 70, None), id="file of a known form"),
    ],
)
@pytest.mark.parametrize("every", in_shard("damage", [1, 31], keep=[31]))
def test_a_changed_byte_is_judged_as_if_nothing_were_known(
    before: list[bytes], data: bytes, every: int
) -> None:
    """Known footers change no finding about an object with a changed byte and the right checksum."""
    with nothing_known():
        for each in (*before, *before):
            found(each)
        assert is_cut(data)
        for at in range(4, len(data) - 4, every):
            for mask in (1, 2, 0x80):
                changed = bytearray(data)
                changed[at] ^= mask
                whole = resealed(bytes(changed))
                seen = found(whole)
                with nothing_known():
                    assert seen == found(whole), at


def test_files_whose_texts_differ_are_of_one_form() -> None:
    """Data files whose texts have different lengths are recognised as one form, and each is read with its own
    values."""
    with nothing_known():
        for length in (0, 1):
            found(noted("x" * length, "y"))
        for number, length in enumerate((3, 60, 200, 20_000, 300_000)):
            data = noted("x" * length, "y", write_id=f"{number:032x}", stamps=[length, length + 1])
            assert is_cut(data)
            seen = found(data)
            assert seen[1].write_id == f"{number:032x}"
            with nothing_known():
                assert found(data) == seen


def test_what_differs_beside_its_numbers_is_of_another_form() -> None:
    """An object with another schema, kind, number of records or metadata is of another form, and is read by
    Arrow."""
    table, metadata = taken_apart(noted("a", "b"))
    others = [
        noted("a", "b", "c"),
        parquet_object(table.rename_columns(["other", *table.column_names[1:]]), metadata),
        parquet_object(table, {**metadata, b"txn_engine.kind": b"date"}),
        parquet_object(table, {**metadata, b"more": b"1"}),
        parquet_object(table.drop_columns(["amount"]), metadata),
        parquet_object(table, metadata, compression="zstd"),
        parquet_object(table, metadata, write_statistics=True),
    ]
    for data in others:
        with nothing_known():
            for note in ("a", "bc", "def"):
                found(noted(note, "x"))
            assert not is_cut(data)
            seen = found(data)
            with nothing_known():
                assert found(data) == seen


@pytest.mark.parametrize("rows", [1, 2, 7, 8, 9, 100])
def test_what_is_cut_out_is_what_arrow_reads(rows: int) -> None:
    """Rows that are read without Arrow have the values that Arrow reads: numbers at their bounds, and texts
    of all lengths."""
    for low, high in ((-1, 0), (-(2**15), 2**15 - 1)):
        for path in TEXTS:
            datas = [
                entry(rows, producer_epoch=epoch, data_path=path, append_time=time_ms, control="none")
                for epoch, time_ms in (
                    (low, -(2**63)),
                    (high, 2**63 - 1),
                    (low, 5),
                    (high, 1_700_000_000_000),
                )
            ]
            with nothing_known():
                seen = [found(data) for data in (*datas, *datas)]
                assert is_cut(datas[-1])
            for data, answer in zip((*datas, *datas), seen, strict=True):
                with nothing_known():
                    assert found(data) == answer
                    table, _ = taken_apart(data)
                    assert [batch[:-1] for batch in answer[1]] == [
                        tuple(row.values()) for row in table.to_pylist()
                    ]


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"deltas": [0, 1, 2, 3, 5]},
        {"deltas": [0, 1, 2, 2, 3]},
        {"deltas": [-1, 0, 1, 2, 3]},
        {"stamps": [5, 4, 3, 2, 1]},
        {"stamps": [2**62] * 5},
        {"stamps": [-(2**62), 1, 2, 3, 2**62]},
    ],
)
def test_facts_of_a_file_that_is_cut_are_those_of_one_that_is_read(given: dict[str, Any]) -> None:
    with nothing_known():
        for number in range(3):
            found(file(write_id=f"{number:032x}"))
        assert is_cut(file(**given))
        seen = found(file(**given))
    with nothing_known():
        assert seen == found(file(**given))


def test_field_ids_are_looked_at_in_every_footer() -> None:
    """A file that differs only in one field id has another schema, so a wrong id is found among correct
    files."""
    right, wrong = [1, 2, 3, 2_147_483_001, 2_147_483_002], [1, 3, 2, 2_147_483_001, 2_147_483_002]
    decode = FileDecoder(RecordSchema(PAYMENTS), {})
    store = MemoryStore()
    seen = []
    with nothing_known():
        for ids in (right, right, right, None, wrong, wrong, wrong, right):
            data = file(field_ids=ids)
            store.put("a/key", data)
            seen.append(fetch(store, "a/key", len(data), decode)[1].wrong_id)
    problem = WrongId("column 'amount' with field id 3", "2, or none in the whole file", is_old=False)
    assert seen == [None, None, None, None, problem, problem, problem, None]


def test_write_ids_and_checksums_are_each_objects_own() -> None:
    """Each object has its own write id and checksum, although its footer is known by everything else."""
    with nothing_known():
        seen = [found(file(write_id=f"{number:032x}"))[1] for number in range(4)]
    assert [facts.write_id for facts in seen] == [f"{number:032x}" for number in range(4)]
    assert len({facts.checksum for facts in seen}) == 4


@pytest.mark.parametrize("text", ["txn_engine.write_id", "txn_engine.checksum"])
def test_a_footer_that_names_its_digits_twice_is_not_kept(text: str) -> None:
    """A footer with a text that looks like the name of its write id or checksum is not remembered, so Arrow
    reads it."""
    table, metadata = taken_apart(file())
    twice = parquet_object(table, {text.encode() + b"2": b"0" * 32, **metadata})
    with nothing_known():
        found(twice)
        found(twice)
        found(twice)
        assert not is_cut(twice)


def test_what_is_not_plain_is_left_to_arrow() -> None:
    """Objects with nulls, compressed pages, several pages or row groups, more columns or many rows are read
    by Arrow."""
    table, metadata = taken_apart(file())
    compressed = encode_parquet(table, kind="data", metadata={"write_id": "7" * 32}, profile=LARGE)
    grouped = parquet_object(table, metadata, row_group_size=2)
    null = table.set_column(
        table.column_names.index("_offset_delta"), "_offset_delta", pa.array([None, 1, 2, 3, 4], pa.int64())
    )
    paged = parquet_object(taken_apart(file(4_000))[0], metadata, data_page_size=1_000, write_batch_size=100)
    wide, of_entry = taken_apart(entry(2))
    further = parquet_object(wide.append_column("more", pa.array([1, 2])), of_entry)
    for data in (compressed, grouped, parquet_object(null, metadata), paged, further, file(5_000)):
        with nothing_known():
            first = found(data)
            assert found(data) == found(data) == first
            assert not is_cut(data)


def test_few_footers_are_kept() -> None:
    """At most 64 footers are remembered, and each object is still read correctly."""
    with nothing_known():
        files = data_file_audit.KNOWN_FOOTERS
        for count in range(1, 150):
            assert raw(noted(*["x"] * count)).parquet_like(files).rows == count
        assert len(files._known) <= 64
        assert len(files._of_form) <= 64
    known = KnownFooters(ENTRY, None, tuple(log_walk.KNOWN_FOOTERS.paths))
    for rows in range(1, 200):
        assert raw(entry(rows)).parquet_like(known).rows == rows
    assert len(known._known) <= 64
