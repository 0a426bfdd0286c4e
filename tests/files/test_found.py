"""What is opened of a folder is what was found there, whatever somebody puts in its place meanwhile."""

from __future__ import annotations

import io
import os
import pickle
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.support.refusals import refused
from txn_engine.errors import InvalidRecordError, InvalidRequestError
from txn_engine.files import files_named, read_records
from txn_engine.files.inferring import infer_schema
from txn_engine.files.parquet_process import OpenedParquet
from txn_engine.found_files import FoundFile, check_opens, opened
from txn_engine.loading.manifest import SeenFile
from txn_engine.reasons import Reason

SCHEMA = pa.schema([("x", pa.int64())])
SUFFIXES = (".csv", ".jsonl", ".parquet", ".csv.gz")


def write(path: Path, number: int) -> Path:
    """A file with one record."""
    path.parent.mkdir(parents=True, exist_ok=True)
    match path.suffixes:
        case [".csv"]:
            path.write_text(f"x\n{number}\n")
        case [".jsonl"]:
            path.write_text(f'{{"x": {number}}}\n')
        case [".parquet"]:
            pq.write_table(pa.table({"x": [number]}), path)
        case _:
            with pa.CompressedOutputStream(str(path), "gzip") as stream:
                stream.write(f"x\n{number}\n".encode())
    return path


def by_a_link(file: Path, secret: Path) -> None:
    file.unlink()
    file.symlink_to(secret)


def by_a_linked_folder(file: Path, secret: Path) -> None:
    file.parent.rename(file.parent.with_name("moved"))
    file.parent.symlink_to(secret.parent)


def by_a_pipe(file: Path, _secret: Path) -> None:
    file.unlink()
    os.mkfifo(file)


def read(file: Path) -> list[int]:
    return [row for batch in read_records(file, SCHEMA) for row in batch.column("x").to_pylist()]


READERS: dict[str, Callable[[Path], object]] = {
    "read_records": read,
    "infer": infer_schema,
    "manifest": SeenFile.of,
    "opened": lambda file: opened(file).close(),
}


@pytest.mark.parametrize("suffix", SUFFIXES)
@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("replaced", [by_a_link, by_a_linked_folder])
@pytest.mark.parametrize("path", ["in", "in/day/*", "in/**"])
def test_a_file_that_is_replaced_by_a_link_after_it_was_found(
    tmp_path: Path, path: str, replaced: Callable[[Path, Path], None], reader: str, suffix: str
) -> None:
    """A link that leads out is refused by whatever opens the file, although it was a file when it was found."""
    file = write(tmp_path / "in" / "day" / f"a{suffix}", 1)
    secret = write(tmp_path / "secret" / f"a{suffix}", 7)
    (found,) = files_named([tmp_path / path])
    assert found == file
    replaced(file, secret)
    with refused(InvalidRequestError, Reason.LINK_LEADS_OUT) as caught:
        READERS[reader](found)
    assert caught.value.place == str(file)


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_a_file_that_is_replaced_by_a_pipe(tmp_path: Path, suffix: str) -> None:
    """Nobody waits for a pipe's writer."""
    file = write(tmp_path / "in" / f"a{suffix}", 1)
    (found,) = files_named([tmp_path / "in"])
    by_a_pipe(file, file)
    for reader in (read, infer_schema, SeenFile.of):
        with refused(InvalidRequestError, Reason.NOT_A_REGULAR_FILE):
            reader(found)


def test_a_parquet_file_is_read_as_it_was_opened(tmp_path: Path) -> None:
    """The process that reads Parquet opens the file once: a link that comes later is not followed."""
    file = write(tmp_path / "in" / "a.parquet", 1)
    secret = write(tmp_path / "a.parquet", 7)
    (found,) = files_named([tmp_path / "in"])
    with OpenedParquet(found) as opened_file:
        by_a_link(file, secret)
        batches = opened_file.batches(
            names=["x"],
            repeated=[],
            old_times=[],
            batch_rows=10,
            batch_chars=10_000,
            plain=opened_file.schema.serialize().to_pybytes().hex(),
            row_bytes=10_000,
        )
        assert [batch.to_pydict() for batch in batches] == [{"x": [1]}]


def test_a_parquet_file_that_is_replaced_between_two_openings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process opens the file that was checked in this one, or none."""
    file = write(tmp_path / "in" / "a.parquet", 1)
    secret = write(tmp_path / "a.parquet", 7)
    (found,) = files_named([tmp_path / "in"])
    first = OpenedParquet._process

    def replacing(memory_mb: int) -> object:
        by_a_link(file, secret)
        return first(memory_mb)

    monkeypatch.setattr(OpenedParquet, "_process", staticmethod(replacing))
    with refused(InvalidRecordError, Reason.FILE_CHANGED):
        read(found)


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_links_that_stay_inside_and_links_that_are_named(tmp_path: Path, suffix: str) -> None:
    """A link inside the folder is read. A link that the caller names may lead anywhere, also to a folder."""
    write(tmp_path / "in" / "_kept" / f"a{suffix}", 1)
    secret = write(tmp_path / "secret" / f"b{suffix}", 7)
    (tmp_path / "in" / f"b{suffix}").symlink_to(tmp_path / "in" / "_kept" / f"a{suffix}")
    (tmp_path / "alias").symlink_to(tmp_path / "in")
    (tmp_path / f"named{suffix}").symlink_to(secret)
    for path, rows in (("in", [1]), ("alias", [1]), ("alias/*", [1]), (f"named{suffix}", [7])):
        (found,) = files_named([tmp_path / path])
        assert read(found) == rows
        assert SeenFile.of(found).bytes > 0


def test_a_file_that_was_found_is_a_path_that_pickles(tmp_path: Path) -> None:
    write(tmp_path / "a.csv", 1)
    (found,) = files_named([tmp_path])
    again = pickle.loads(pickle.dumps(found))
    assert isinstance(again, FoundFile)
    assert (again, again.inside, hash(again)) == (tmp_path / "a.csv", str(tmp_path), hash(tmp_path / "a.csv"))


@pytest.mark.parametrize(
    "log",
    [
        "_delta_log/00000000000000000000.json",
        ".hoodie/x",
        "metadata/v1.metadata.json",
        "metadata/v1.metadata.json.gz",
        "metadata/00001-0b7ad6ee.gz.metadata.json",
        "_spark_metadata/0",
        "_spark_metadata/9.compact",
        "snapshot/snapshot-1",
        "log/00000000000000000000.parquet",
    ],
)
def test_the_folder_of_a_table_is_refused(tmp_path: Path, log: str) -> None:
    """Files in a folder with a log that says which of them count are refused, however they are named: other files
    there hold rows that were deleted or replaced, or that nobody committed."""
    folder = tmp_path / "in" / "table"
    file = write(folder / "data" / "a.parquet", 1)
    (folder / log).parent.mkdir(exist_ok=True)
    (folder / log).touch()
    linked = tmp_path / "linked"
    linked.symlink_to(folder / "data")
    for path in (
        tmp_path / "in",
        folder,
        file.parent,
        file,
        linked,
        f"{folder}/data/*.parquet",
        f"{tmp_path}/**/*.parquet",
    ):
        with refused(InvalidRequestError, Reason.FOLDER_OF_A_TABLE) as error:
            files_named([path], "parquet")
        assert error.value.place in {str(folder), os.path.realpath(folder)}


@pytest.mark.parametrize(
    ("entry", "kind"),
    [
        ("_started_1234", "file"),
        ("_committed_1234", "file"),
        ("_committed_vacuum1234", "file"),
        (".hoodie_partition_metadata", "file"),
        ("base_0000001", "folder"),
        ("base_12345678_v0000012", "folder"),
        ("delta_0000002_0000002", "folder"),
        ("delta_0000002_0000002_0000", "folder"),
        ("delete_delta_12345678_12345678_0000", "folder"),
    ],
)
def test_an_entry_that_tells_a_table_is_refused(tmp_path: Path, entry: str, kind: str) -> None:
    """Some folders have no log, but entries by which a table's reader knows which files count: also these are refused,
    from a file beside such an entry, and from a file in it."""
    folder = tmp_path / "in" / "table"
    file = write(folder / "a.parquet", 1)
    paths = [tmp_path / "in", folder, file, f"{folder}/*.parquet"]
    if kind == "file":
        (folder / entry).touch()
    else:
        inner = write(folder / entry / "b.parquet", 1)
        paths += [inner, inner.parent, f"{folder}/*/*.parquet"]
    for path in paths:
        with refused(InvalidRequestError, Reason.FOLDER_OF_A_TABLE) as error:
            files_named([path])
        assert error.value.place == str(folder)


@pytest.mark.parametrize(
    "folder",
    [
        "base_20260131",
        "delta_20260101_20260131",
        "metadata",
        "snapshot",
        "log",
        "base_1",
        "_other/_delta_log",
    ],
)
def test_names_that_tell_no_table_are_taken(tmp_path: Path, folder: str) -> None:
    """Folders of somebody's own names, with files that no table has there, are loaded."""
    file = write(tmp_path / folder / "snapshot-1.parquet", 1)
    write(tmp_path / "a.parquet", 2)
    if folder == "_other/_delta_log":  # the log of another folder, which is not above the files
        assert files_named([f"{tmp_path}/*.parquet"]) == [tmp_path / "a.parquet"]
    else:
        assert files_named([tmp_path]) == sorted([tmp_path / "a.parquet", file])


@pytest.mark.parametrize("suffix", SUFFIXES)
@pytest.mark.parametrize("folder", ["y=10", "Y=10", "a/y=10/b"])
def test_a_column_that_a_folders_name_has(tmp_path: Path, suffix: str, folder: str) -> None:
    """A file that lacks a column whose value its folder's name has is refused, whatever stands for missing columns:
    Spark and PyArrow would read that value. A file with the column is read as it is."""
    file = write(tmp_path / folder / f"a{suffix}", 1)
    schema = pa.schema([("x", pa.int64()), ("y", pa.int64())])
    for fill in ({}, {"y": None}, {"y": pa.scalar(7)}):
        with refused(InvalidRecordError, Reason.MISSING_COLUMN):
            list(read_records(file, schema, missing_columns="null", fill=fill))
        other = write(tmp_path / "z=10" / f"b{suffix}", 1)
        (batch,) = read_records(other, schema, missing_columns="null", fill=fill)
        assert batch.column("x").to_pylist() == [1]
    assert read(file) == [1]


def test_a_stream_without_bytes_is_refused_and_no_byte_is_taken() -> None:
    """What waits on standard input stays there."""
    stream = io.BufferedReader(io.BytesIO(b"x\n1\n"))
    check_opens([stream])
    assert stream.read() == b"x\n1\n"
    with pytest.raises(InvalidRecordError) as empty:
        check_opens([stream])
    assert empty.value.reason is Reason.NO_RECORDS


def test_a_named_pipe_is_not_opened_before_it_is_read(tmp_path: Path) -> None:
    """Its writer would wait for ever, or see it close."""
    pipe = tmp_path / "a.csv"
    os.mkfifo(pipe)
    check_opens([pipe])
