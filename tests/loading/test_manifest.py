"""Which files were loaded: none twice, whatever the run, and none that has changed since."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.loading.ledgers import DEAD, HEADER, MIXED, TOPIC, dead, dying_at_every_put, ids, new_url, set_up
from txn_engine import Engine, connect
from txn_engine.errors import InvalidRecordError, InvalidRequestError, OffsetsMovedError, OffsetsPendingError
from txn_engine.loading import LOADED_FILES, Manifest, load_files

Write = Callable[..., Path]
FILES = "payments-files"


def prepare(engine: Engine) -> None:
    set_up(engine)
    engine.admin.create_topic(FILES, partitions=1, schema=LOADED_FILES)


@pytest.fixture
def engine() -> Iterator[Engine]:
    with connect(new_url()) as found:
        prepare(found)
        yield found


def load(engine: Engine, path: Any, run_id: str, **options: Any) -> Any:
    options = {"dead_letter_topic": DEAD, "manifest": FILES} | options
    return load_files(engine, TOPIC, path, run_id=run_id, **options)


def noted(engine: Engine) -> list[dict[str, Any]]:
    return engine.scan(FILES).to_table().to_pylist()


def test_a_file_is_loaded_once_whatever_the_run(engine: Engine, write: Write, tmp_path: Path) -> None:
    """Only what is new of a folder; each file's counts and its run are noted."""
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


def test_a_file_that_changed_since_is_named(engine: Engine, write: Write, tmp_path: Path) -> None:
    """With its run, and nothing of the load is visible."""
    path = write("a.csv", MIXED)
    load(engine, path, "monday")
    write("a.csv", MIXED + "8,8,,\n")
    write("b.csv", HEADER + "9,9,,\n")
    with pytest.raises(
        InvalidRequestError, match="changed since it was loaded by run 'monday' at 20"
    ) as caught:
        load(engine, tmp_path, "tuesday")
    assert str(path) in str(caught.value)
    assert ids(engine) == [1, 3]


def test_a_file_that_changes_meanwhile(engine: Engine, write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    """Is refused: nobody knows of which of the two its digest is."""
    path = write("a.csv", MIXED)
    new = Manifest.new

    def and_change(self: Manifest, files: Any) -> Any:
        found = new(self, files)
        write("a.csv", MIXED + "8,8,,\n")
        return found

    monkeypatch.setattr(Manifest, "new", and_change)
    with pytest.raises(InvalidRecordError, match="changed while it was loaded"):
        load(engine, path, "monday")
    assert (ids(engine), noted(engine), dead(engine)) == ([], [], [])


def test_two_loads_at_once(engine: Engine, write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    """Under ids of their own: the second to commit is refused, and the file's rows are there once."""
    path = write("a.csv", MIXED)
    new = Manifest.new
    inner: list[Any] = []

    def beside(self: Manifest, files: Any) -> Any:
        found = new(self, files)
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
    """Whose rows the manifest may have in a moment: one waits, or tries again."""
    with engine.producer(transactional_id="other") as producer:
        producer.init_transactions()
        producer.begin_transaction()
        import pyarrow as pa

        row = dict.fromkeys(LOADED_FILES.names) | {"file": "f", "sha256": "", "bytes": 0, "topic": TOPIC}
        table = pa.Table.from_pylist(
            [row | {"records": 0, "dead_letters": 0, "loaded_at": 0}], schema=LOADED_FILES
        )
        producer.produce(FILES, table).result()
        with pytest.raises(OffsetsPendingError, match="a load that is not over"):
            load(engine, write("a.csv", MIXED), "monday")
        producer.abort_transaction()
    assert load(engine, write("a.csv", MIXED), "monday").records == 2


def test_a_manifest_that_is_none_or_anothers(engine: Engine, write: Write) -> None:
    """Refused before anything is read of a file."""
    with pytest.raises(InvalidRequestError, match="the columns of a manifest"):
        load(engine, write("a.csv", "x"), "monday", manifest=DEAD)
    load(engine, write("a.csv", MIXED), "monday")
    engine.admin.create_topic("other", partitions=1, schema=engine.admin.describe_topic(TOPIC).schema)
    with pytest.raises(InvalidRequestError, match="files of topic 'payments'"):
        load_files(engine, "other", write("b.csv", MIXED), run_id="r", dead_letter_topic=DEAD, manifest=FILES)


@pytest.mark.parametrize("after", [False, True])
def test_dying_at_every_put(write: Write, after: bool) -> None:
    """And another run over the same folder: each file's rows once."""
    path = write("a.csv", MIXED)
    at = -1
    for url in dying_at_every_put(prepare, lambda engine: load(engine, path, "monday"), after=after):
        at += 1
        with connect(url) as engine:
            load(engine, path, "tuesday")
            assert (ids(engine), len(dead(engine)), len(noted(engine))) == ([1, 3], 3, 1)
    assert at >= 6
