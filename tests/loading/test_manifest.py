"""The manifest of loaded files: no file is loaded twice, whatever the run, and none that has changed
since."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.loading.ledgers import DEAD, HEADER, MIXED, TOPIC, dead, dying_at_every_put, ids, new_url, set_up
from tests.loading.refusals import because
from tests.suite.tiers import in_shard
from tests.support.internal import FEW_INTERNAL
from txn_engine import AddColumn, Engine, connect
from txn_engine.errors import InvalidRecordError, InvalidRequestError, OffsetsMovedError, OffsetsPendingError
from txn_engine.loading import LOADED_FILES, Manifest, load_files
from txn_engine.loading.manifest import SeenFile
from txn_engine.reasons import Reason

Write = Callable[..., Path]
FILES = "payments-files"


def prepare(engine: Engine) -> None:
    set_up(engine)
    engine.admin.create_topic(FILES, partitions=1, schema=LOADED_FILES)


@pytest.fixture
def engine() -> Iterator[Engine]:
    with connect(new_url(), configs=FEW_INTERNAL) as found:
        prepare(found)
        yield found


def load(engine: Engine, path: Any, run_id: str, **options: Any) -> Any:
    options = {"dead_letter_topic": DEAD, "manifest": FILES} | options
    return load_files(engine, TOPIC, path, run_id=run_id, **options)


def noted(engine: Engine) -> list[dict[str, Any]]:
    return engine.scan(FILES).to_table().to_pylist()


def test_a_file_is_loaded_once_whatever_the_run(engine: Engine, write: Write, tmp_path: Path) -> None:
    """A run loads only the new files of a folder. The manifest has each file's counts and run."""
    first = write("a.csv", MIXED)
    assert load(engine, tmp_path, "monday").records == 2
    second = write("b.csv", HEADER + "7,7,,\n")
    found = load(engine, tmp_path, "tuesday")
    assert (found.records, found.dead_letters, found.loaded_before) == (1, 0, (str(first),))
    again = load(engine, tmp_path, "wednesday")
    assert (again.records, again.loaded_before) == (0, (str(first), str(second)))
    assert ids(engine) == [1, 3, 7]
    rows = [(row["file"], row["records"], row["dead_letters"], row["run_id"]) for row in noted(engine)]
    assert rows == [(str(first), 2, 3, "monday"), (str(second), 1, 0, "tuesday")]
    assert all(len(row["sha256"]) == 64 for row in noted(engine))


@pytest.mark.parametrize("loaded_at", [-(2**62), 2**62, -(2**63), 2**63 - 1])
def test_a_record_of_any_time_stops_no_load(
    engine: Engine, write: Write, tmp_path: Path, loaded_at: int
) -> None:
    """A manifest may have a record whose time Python does not have. Other files are loaded, and its own is named if it
    has changed."""
    path = write("a.csv", MIXED)
    row = {
        "file": str(path),
        "sha256": "0" * 64,
        "bytes": 1,
        "topic": TOPIC,
        "records": 0,
        "dead_letters": 0,
        "incarnation": 0,
    }
    table = pa.Table.from_pylist([row], LOADED_FILES)
    at = LOADED_FILES.get_field_index("loaded_at")
    times = pa.array([loaded_at], pa.int64()).cast(LOADED_FILES.field(at).type)
    with engine.producer() as producer:
        producer.produce(FILES, table.set_column(at, LOADED_FILES.field(at), times))
    assert load(engine, write("b.csv", HEADER + "7,7,,\n"), "monday").records == 1
    with pytest.raises(InvalidRequestError, check=because(Reason.FILE_CHANGED_SINCE_LOAD, str(path))):
        load(engine, path, "tuesday")


def test_a_file_that_changed_since_is_named(engine: Engine, write: Write, tmp_path: Path) -> None:
    """A file that has changed since it was loaded is named with its run, and nothing of the load is
    visible."""
    path = write("a.csv", MIXED)
    load(engine, path, "monday")
    write("a.csv", MIXED + "8,8,,\n")
    write("b.csv", HEADER + "9,9,,\n")
    with pytest.raises(
        InvalidRequestError, check=because(Reason.FILE_CHANGED_SINCE_LOAD, str(path))
    ) as caught:
        load(engine, tmp_path, "tuesday")
    assert "by run 'monday'" in caught.value.seen
    assert ids(engine) == [1, 3]


def test_a_file_that_changes_meanwhile(engine: Engine, write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file that changes during the load is refused, because its digest may belong to either content."""
    path = write("a.csv", MIXED)
    new = Manifest.new

    def and_change(self: Manifest, files: Any, **more: Any) -> Any:
        found = new(self, files, **more)
        write("a.csv", MIXED + "8,8,,\n")
        return found

    monkeypatch.setattr(Manifest, "new", and_change)
    with pytest.raises(InvalidRecordError, check=because(Reason.FILE_CHANGED)):
        load(engine, path, "monday")
    assert (ids(engine), noted(engine), dead(engine)) == ([], [], [])


def test_two_loads_at_once(engine: Engine, write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of two loads with ids of their own, the second to commit is refused, and the file's rows are there
    once."""
    path = write("a.csv", MIXED)
    new = Manifest.new
    inner: list[Any] = []

    def beside(self: Manifest, files: Any, **more: Any) -> Any:
        found = new(self, files, **more)
        if not inner:
            inner.append(None)
            inner.append(load(engine, path, "other", transactional_id="other"))
        return found

    monkeypatch.setattr(Manifest, "new", beside)
    with pytest.raises(OffsetsMovedError):
        load(engine, path, "monday")
    assert inner[1].records == 2
    assert (ids(engine), len(dead(engine)), len(noted(engine))) == ([1, 3], 3, 1)
    assert load(engine, path, "monday").loaded_before == (str(path),)


def test_a_load_that_is_not_over(engine: Engine, write: Write) -> None:
    """While another load's transaction is open, a load is refused with a retriable error, because the
    manifest may have its files in a moment."""
    with engine.producer(transactional_id="other") as producer:
        producer.init_transactions()
        producer.begin_transaction()
        row = dict.fromkeys(LOADED_FILES.names) | {"file": "f", "sha256": "", "bytes": 0, "topic": TOPIC}
        table = pa.Table.from_pylist(
            [row | {"records": 0, "dead_letters": 0, "loaded_at": 0}], schema=LOADED_FILES
        )
        producer.produce(FILES, table).result()
        with pytest.raises(OffsetsPendingError):
            load(engine, write("a.csv", MIXED), "monday")
        producer.abort_transaction()
    assert load(engine, write("a.csv", MIXED), "monday").records == 2


def test_a_manifest_that_is_none_or_anothers(engine: Engine, write: Write) -> None:
    """A topic that is not a manifest, or the manifest of another topic, is refused before a file is read."""
    with pytest.raises(InvalidRequestError, check=because(Reason.NOT_A_MANIFEST)):
        load(engine, write("a.csv", "x"), "monday", manifest=DEAD)
    load(engine, write("a.csv", MIXED), "monday")
    engine.admin.create_topic("other", partitions=1, schema=engine.admin.describe_topic(TOPIC).schema)
    with pytest.raises(InvalidRequestError, check=because(Reason.MANIFEST_OF_ANOTHER_TOPIC)):
        load_files(engine, "other", write("b.csv", MIXED), run_id="r", dead_letter_topic=DEAD, manifest=FILES)


def test_a_run_that_the_log_has_forgotten(
    engine: Engine, write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run that the log has forgotten needs no confirmation, because the manifest knows its files."""
    monkeypatch.setattr("txn_engine.protocol.transactions.MAX_RUN_IDS", 2)
    paths = [write(f"{number}.csv", HEADER + f"{number},7,,\n") for number in range(4)]
    for number, path in enumerate(paths):
        assert load(engine, path, str(number)).records == 1
    assert load(engine, paths[0], "0").loaded_before == (str(paths[0]),)
    assert ids(engine) == [0, 1, 2, 3]


def test_files_of_a_topic_that_was_made_again(engine: Engine, write: Write) -> None:
    """After a topic was created again, each file is loaded once into the new one."""
    path = write("a.csv", MIXED)
    description = engine.admin.describe_topic(TOPIC)
    for _ in range(2):
        assert load(engine, path, "monday").records == 2
        assert load(engine, path, "tuesday").loaded_before == (str(path),)
        assert ids(engine) == [1, 3]
        engine.admin.delete_topic(TOPIC)
        engine.admin.create_topic(TOPIC, partitions=2, schema=description.schema, key="id")
    assert [row["incarnation"] for row in noted(engine)] == [0, 2]


def test_a_manifest_of_before_gets_its_column(engine: Engine, write: Write) -> None:
    """A manifest from before the column `incarnation` gets it by `topics alter`. Its rows count for every
    incarnation of the topic."""
    engine.admin.create_topic("old", partitions=1, schema=LOADED_FILES.remove(8))
    path = write("a.csv", MIXED)
    with pytest.raises(InvalidRequestError, check=because(Reason.NOT_A_MANIFEST)):
        load(engine, path, "monday", manifest="old")
    seen = SeenFile.of(path)
    row = {"file": seen.name, "sha256": seen.sha256, "bytes": seen.bytes, "topic": TOPIC, "records": 2}
    with engine.producer() as producer:
        old = pa.Table.from_pylist([row | {"dead_letters": 3, "loaded_at": 0}], schema=LOADED_FILES.remove(8))
        producer.produce("old", old).result()
    engine.admin.alter_topic("old", AddColumn(pa.field("incarnation", pa.int32())))
    assert load(engine, path, "monday", manifest="old").loaded_before == (str(path),)


def test_what_was_loaded_under_another_name(engine: Engine, write: Write, tmp_path: Path) -> None:
    """A copy, a hard link, a symbolic link, a renamed file or a path through a linked folder is reported and
    not loaded, unless the caller asks for it."""
    path = write("a.csv", MIXED)
    assert load(engine, path, "monday").records == 2
    write("copy.csv", MIXED)
    (tmp_path / "hard.csv").hardlink_to(path)
    (tmp_path / "link.csv").symlink_to(path)
    for name in ("copy.csv", "hard.csv"):
        found = load(engine, tmp_path / name, name)
        assert (found.records, found.copies) == (0, {str(tmp_path / name): str(path)})
    assert load(engine, tmp_path / "link.csv", "link").loaded_before == (str(tmp_path / "link.csv"),)
    (tmp_path / "sub").mkdir()
    path.rename(tmp_path / "sub" / "b.csv")
    (tmp_path / "linked").symlink_to(tmp_path / "sub")
    assert load(engine, tmp_path / "linked", "moved").copies == {f"{tmp_path}/linked/b.csv": str(path)}
    assert ids(engine) == [1, 3]
    assert load(engine, tmp_path / "copy.csv", "again", again=True).records == 2
    assert load(engine, tmp_path / "copy.csv", "and again", again=True).records == 2
    assert ids(engine) == [1, 1, 1, 3, 3, 3]
    write("copy.csv", MIXED + "9,9,,\n")
    with pytest.raises(InvalidRequestError, check=because(Reason.FILE_CHANGED_SINCE_LOAD)):
        load(engine, tmp_path / "copy.csv", "changed", again=True)
    with pytest.raises(InvalidRequestError, check=because(Reason.NO_MANIFEST)):
        load(engine, tmp_path / "copy.csv", "none", again=True, manifest=None)


def test_two_of_one_load_that_are_alike(engine: Engine, write: Write, tmp_path: Path) -> None:
    """Of two equal files in one load, the first is loaded and the other one is reported."""
    first, second = write("a.csv", MIXED), write("b.csv", MIXED)
    found = load(engine, tmp_path, "monday")
    assert (found.records, found.loaded_before, found.copies) == (
        2,
        (str(second),),
        {str(second): str(first)},
    )
    assert [row["file"] for row in noted(engine)] == [str(first)]


def test_names_that_are_passed_over_are_told(engine: Engine, write: Write, tmp_path: Path) -> None:
    """The result has the names that a load skipped."""
    write("a.csv", MIXED)
    hidden = write("_SUCCESS", "")
    assert load(engine, tmp_path, "monday").passed_over == (str(hidden),)
    assert load(engine, tmp_path, "tuesday").passed_over == (str(hidden),)


def test_contents_that_change_under_an_old_time(
    engine: Engine, write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file that changes and gets its old time back has changed all the same."""
    path = write("a.csv", HEADER + "1,1,,\n")
    new = Manifest.new

    def and_change(self: Manifest, files: Any, **more: Any) -> Any:
        found, state = new(self, files, **more), path.stat()
        path.write_text(HEADER + "2,2,,\n")
        os.utime(path, ns=(state.st_atime_ns, state.st_mtime_ns))
        return found

    monkeypatch.setattr(Manifest, "new", and_change)
    with pytest.raises(InvalidRecordError, check=because(Reason.FILE_CHANGED)):
        load(engine, path, "monday")
    assert ids(engine) == []


@pytest.mark.parametrize("after", in_shard("kills", [True, False], keep=1))
def test_dying_at_every_put(write: Write, after: bool) -> None:
    """If a load dies at any put and another run loads the same folder, each file's rows are there once."""
    path = write("a.csv", MIXED)
    at = -1
    for url in dying_at_every_put(prepare, lambda engine: load(engine, path, "monday"), after=after):
        at += 1
        with connect(url) as engine:
            load(engine, path, "tuesday")
            assert (ids(engine), len(dead(engine)), len(noted(engine))) == ([1, 3], 3, 1)
    assert at >= 6
