"""Users' Parquet files are read by another process, within a limit of memory, and nothing a file does ends this one."""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.suite.tiers import in_shard
from txn_engine.errors import InvalidRecordError, InvalidRequestError
from txn_engine.files import parquet_child, parquet_process
from txn_engine.files.inferring import infer_schema
from txn_engine.files.parquet_process import MEMORY_VARIABLE, ParquetProcess, ReaderDiedError
from txn_engine.files.records import read_records
from txn_engine.reasons import Reason

TEXT = pa.schema([("s", pa.string())])
LIMIT_MB = 350
VALUE = "y" * (1 << 20)


@pytest.fixture(autouse=True)
def limit(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A small limit, and processes of the test's own."""
    parquet_process.close_idle()
    monkeypatch.setenv(MEMORY_VARIABLE, str(LIMIT_MB))
    yield
    parquet_process.close_idle()


def written(path: Path, table: pa.Table, **options: Any) -> Path:
    pq.write_table(table, path, compression="zstd", **options)
    return path


def rows(path: Path, schema: pa.Schema) -> int:
    return sum(batch.num_rows for batch in read_records(path, schema))


def one_value() -> pa.Table:
    return pa.table({"s": ["x" * (200 << 20)]})


def one_list() -> pa.Table:
    return pa.table({"s": pa.array([[VALUE] * 350])})


def one_map() -> pa.Table:
    return pa.table(
        {"s": pa.array([[(f"k{n}", VALUE) for n in range(350)]], pa.map_(pa.string(), pa.string()))}
    )


def prefixes() -> pa.Table:
    return pa.table({"s": [VALUE + str(n) for n in range(350)]})


def wide() -> pa.Table:
    return pa.table({f"c{n}": ["z" * (3 << 20)] for n in range(130)})


@pytest.mark.parametrize(
    ("table", "options"),
    in_shard(
        "damage",
        [
            (one_value, {}),
            (one_value, {"use_dictionary": False}),
            (one_value, {"use_dictionary": False, "data_page_version": "2.0"}),
            (one_list, {}),
            (one_map, {}),
            (prefixes, {"use_dictionary": False, "column_encoding": {"s": "DELTA_BYTE_ARRAY"}}),
            (wide, {}),
        ],
        keep=lambda values: not values[1] or "column_encoding" in values[1],
    ),
)
def test_a_bomb_is_refused_and_the_next_file_is_read(
    tmp_path: Path, table: Any, options: dict[str, Any]
) -> None:
    """A file of a few kilobytes that takes more than the limit to read is refused by name, whatever page, encoding or
    type it hides that in."""
    made = table()
    path = written(tmp_path / "bomb.parquet", made, **options)
    assert path.stat().st_size < 200_000
    with pytest.raises(InvalidRecordError) as refused:
        rows(path, made.schema)
    assert refused.value.reason is Reason.PARQUET_TOO_LARGE
    assert str(path) in str(refused.value.place)
    assert MEMORY_VARIABLE in str(refused.value.action)
    assert rows(written(tmp_path / "good.parquet", pa.table({"s": ["a", "b"]})), TEXT) == 2


def test_a_value_that_many_rows_share_is_read_in_small_batches(tmp_path: Path) -> None:
    """Rows that are far more than the limit together are read, because only some are in memory at a time."""
    path = written(tmp_path / "shared.parquet", pa.table({"s": pa.array([VALUE[:10_000]] * 60_000)}))
    sizes = [batch.nbytes for batch in read_records(path, TEXT)]
    assert sum(sizes) > LIMIT_MB * 1_000_000
    assert max(sizes) < 20 << 20


def test_one_process_reads_many_files_and_has_no_secret(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process starts once. It has nothing of the environment that it does not need."""
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "a secret")
    seen = set()
    for number in range(3):
        path = written(tmp_path / f"{number}.parquet", pa.table({"s": ["a"]}))
        assert infer_schema(path).names == ["s"]
        assert rows(path, TEXT) == 1
        (reader,) = parquet_process.idle()
        seen.add(reader.pid)
    (pid,) = seen
    assert "secret" not in Path(f"/proc/{pid}/environ").read_text().lower()


def test_a_file_that_ends_the_process_is_damaged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A footer by which Arrow ends its process costs one file: here the process is killed when it is asked."""
    path = written(tmp_path / "a.parquet", pa.table({"s": ["a"]}))
    ask = ParquetProcess.ask

    def killed(self: ParquetProcess, question: Any) -> Any:
        if "names" in question:
            os.kill(self.pid, signal.SIGKILL)
        return ask(self, question)

    with monkeypatch.context() as patched:
        patched.setattr(ParquetProcess, "ask", killed)
        with pytest.raises(InvalidRecordError) as refused:
            rows(path, TEXT)
    assert refused.value.reason is Reason.DAMAGED_FILE
    assert rows(path, TEXT) == 1


def test_reading_that_stops_early_ends_the_process(tmp_path: Path) -> None:
    """A reader that is in the middle of a file is not given another one."""
    path = written(tmp_path / "long.parquet", pa.table({"s": pa.array([VALUE[:10_000]] * 10_000)}))
    batches = read_records(path, TEXT)
    assert next(batches).num_rows
    batches.close()  # type: ignore[attr-defined]
    assert parquet_process.idle() == ()
    assert rows(path, TEXT) == 10_000


def test_a_forked_process_has_readers_of_its_own(tmp_path: Path) -> None:
    """Two processes never share a reader: each would get half of the other's answers."""
    path = written(tmp_path / "a.parquet", pa.table({"s": ["a"] * 5}))
    assert rows(path, TEXT) == 5
    forked = multiprocessing.get_context("fork").Process(target=_fails_unless, args=(path, 5))
    forked.start()
    assert rows(path, TEXT) == 5
    forked.join(60)
    assert forked.exitcode == 0


def _fails_unless(path: Path, count: int) -> None:
    assert parquet_process.idle() == ()
    assert rows(path, TEXT) == count


@pytest.mark.parametrize("value", ["much", "0", "-1", "1e3"])
def test_the_limit_is_a_number_of_megabytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, value: str
) -> None:
    """A limit that is not a whole number above 0 is refused by its name."""
    path = written(tmp_path / "a.parquet", pa.table({"s": ["a"]}))
    monkeypatch.setenv(MEMORY_VARIABLE, value)
    with pytest.raises(InvalidRequestError) as refused:
        rows(path, TEXT)
    assert refused.value.reason is Reason.BAD_ARGUMENT
    assert MEMORY_VARIABLE in str(refused.value)


def test_a_reader_that_does_not_start_is_not_a_damaged_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If the process cannot start, the error names the command that failed."""
    path = written(tmp_path / "a.parquet", pa.table({"s": ["a"]}))
    monkeypatch.setattr("sys.executable", "/bin/false")
    with pytest.raises(InvalidRequestError) as refused:
        rows(path, TEXT)
    assert "/bin/false" in str(refused.value)


def in_list(values: pa.Array[Any]) -> Any:
    return pa.ListArray.from_arrays(pa.array([*range(len(values)), len(values)], pa.int32()), values)


def in_struct(values: pa.Array[Any]) -> Any:
    return pa.StructArray.from_arrays([values], ["x"])


def in_map(values: pa.Array[Any]) -> Any:
    keys = pa.array([str(number) for number in range(len(values))])
    return pa.MapArray.from_arrays(pa.array([*range(len(values)), len(values)], pa.int32()), keys, values)


def as_it_is(values: pa.Array[Any]) -> Any:
    return values


WRAPPED = in_shard("damage", [as_it_is, in_list, in_struct, in_map], keep=[in_list])


@pytest.mark.parametrize("wrapped", WRAPPED)
def test_a_row_that_takes_this_process_too_much_is_refused(tmp_path: Path, wrapped: Any) -> None:
    """The process that reads has a limit, and a row that it may hold can take this process many times as much."""
    table = pa.table({"s": wrapped(pa.array(["a", "x" * 23_000_000]))})
    path = written(tmp_path / "row.parquet", table)
    with pytest.raises(InvalidRecordError) as refused:
        rows(path, table.schema)
    assert refused.value.reason is Reason.PARQUET_TOO_LARGE
    assert str(refused.value.place).startswith(str(path))
    assert MEMORY_VARIABLE in str(refused.value.action)


def test_values_that_are_null_by_their_type_count(tmp_path: Path) -> None:
    """They take no bytes in the file or in Arrow, but do in the column that they are converted to."""
    table = pa.table(
        {"s": pa.ListArray.from_arrays(pa.array([0, 5_000_000], pa.int32()), pa.nulls(5_000_000))}
    )
    with pytest.raises(InvalidRecordError) as refused:
        rows(written(tmp_path / "nulls.parquet", table), table.schema)
    assert refused.value.reason is Reason.PARQUET_TOO_LARGE


@pytest.mark.parametrize("kind", [pa.string(), pa.dictionary(pa.int32(), pa.string())], ids=str)
@pytest.mark.parametrize("wrapped", WRAPPED)
def test_values_inside_others_come_in_small_batches(tmp_path: Path, wrapped: Any, kind: Any) -> None:
    """Text in lists, structs and maps is written out a part at a time, as text in a column of its own is."""
    texts = pa.array([VALUE[:10_000]] * 6_000)
    values = texts.dictionary_encode() if pa.types.is_dictionary(kind) else texts.cast(kind)
    table = pa.table({"s": wrapped(values)})
    path = written(tmp_path / "shared.parquet", table)
    sizes = [batch.nbytes for batch in read_records(path, table.schema)]
    assert sum(sizes) > 60_000_000
    assert max(sizes) < 20 << 20


def test_an_answer_is_no_longer_than_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that a file has taken over cannot make this one reserve memory."""
    process = ParquetProcess(LIMIT_MB)
    answer = [parquet_child.FRAME.pack(b"B", LIMIT_MB * 1_000_000 + 1)]
    monkeypatch.setattr(process, "_exactly", lambda _length: answer.pop())
    try:
        with pytest.raises(ReaderDiedError):
            list(process.ask({"open": "nowhere"}))
    finally:
        process.close()
