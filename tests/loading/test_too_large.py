"""A row that is too large for a data file of its topic is named by its line or becomes a dead letter. It
never fails a load without a place."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.loading.ledgers import new_url
from tests.loading.refusals import because
from tests.support.internal import FEW_INTERNAL
from txn_engine import AddColumn, Engine, connect
from txn_engine.errors import InvalidRecordError, RecordTooLargeError
from txn_engine.files import BadRow, fit_records
from txn_engine.loading import DEAD_LETTERS, load_files, replay
from txn_engine.log import row_sizes
from txn_engine.log.data_files import encode_data_file
from txn_engine.log.row_sizes import RowSizes
from txn_engine.reasons import Reason

SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("note", pa.string())])
MOST = 20_000
LARGE = random.Random(18).randbytes(15_000).hex()
ROWS = [{"id": 1, "note": "a"}, {"id": 2, "note": LARGE}, {"id": 3, "note": "x" * 400_000}]
"""The second is too large; the third is larger, and hardly anything once it is compressed."""


@pytest.fixture
def engine() -> Iterator[Engine]:
    with connect(new_url(), configs=FEW_INTERNAL) as found:
        found.admin.create_topic("notes", partitions=2, schema=SCHEMA, key="id", max_message_bytes=MOST)
        found.admin.create_topic("dead", partitions=1, schema=DEAD_LETTERS)
        yield found


def as_csv(path: Path) -> None:
    path.write_text("id,note\n" + "".join(f"{row['id']},{row['note']}\n" for row in ROWS))


def as_json(path: Path) -> None:
    path.write_text("".join(json.dumps(row) + "\n" for row in ROWS))


def as_parquet(path: Path) -> None:
    pq.write_table(pa.Table.from_pylist(ROWS, schema=SCHEMA), path)


@pytest.mark.parametrize(
    ("name", "write", "place"),
    [("f.csv", as_csv, "line 3"), ("f.jsonl", as_json, "line 2"), ("f.parquet", as_parquet, "row 2")],
)
def test_a_row_that_is_too_large(
    engine: Engine, tmp_path: Path, name: str, write: Callable[[Path], None], place: str
) -> None:
    """A row that is too large is named by its line. With a dead-letter topic the others are loaded, and a
    replay loads it after the limit was raised."""
    path = tmp_path / name
    write(path)
    with pytest.raises(InvalidRecordError, check=because(Reason.ROW_TOO_LARGE, f"{path} {place}")) as caught:
        load_files(engine, "notes", path, run_id="1")
    assert "topic 'notes'" in str(caught.value.expected)
    assert LARGE not in str(caught.value)
    found = load_files(engine, "notes", path, run_id="1", dead_letter_topic="dead")
    assert (found.records, found.dead_letters) == (2, 1)
    (letter,) = engine.scan("dead").to_table().to_pylist()
    assert json.loads(letter["columns"])["note"] == LARGE
    assert (letter["source_line"], letter["reason"][:26]) == (int(place[-1]), "a record that is too large")
    assert replay(engine, "dead").failed_again == 1
    engine.admin.alter_configs({"max.message.bytes": 10 * MOST}, topic="notes")
    assert replay(engine, "dead").records == 1
    loaded = engine.scan("notes").to_table().select(SCHEMA.names).sort_by("id")
    assert loaded.to_pylist() == ROWS


def test_a_letter_that_is_too_large_itself(engine: Engine, tmp_path: Path) -> None:
    """If a dead letter itself is too large, the error names the row's line, and nothing is loaded."""
    engine.admin.alter_configs({"max.message.bytes": MOST}, topic="dead")
    as_csv(tmp_path / "f.csv")
    with pytest.raises(InvalidRecordError, check=because(Reason.DEAD_LETTER_TOO_LARGE, "f.csv line 3")):
        load_files(engine, "notes", tmp_path / "f.csv", run_id="1", dead_letter_topic="dead")
    assert engine.scan("notes").to_table().num_rows == 0


def test_a_row_of_types(engine: Engine) -> None:
    """A row of a typed batch, of a DataFrame for example, is named by its index."""
    topic = engine.logs.topics.look_up("notes")
    bad: list[BadRow] = []
    records: Any = pa.RecordBatch.from_pylist(ROWS, schema=SCHEMA)
    fitting = fit_records(records, topic.schema, rejected=bad.extend, sizes=RowSizes(topic))
    assert fitting.column("id").to_pylist() == [1, 3]
    assert [(row.line, row.error.seen) for row in bad] == [(1, "a record that is too large")]


def is_refused(engine: Engine, records: pa.RecordBatch) -> bool:
    with engine.producer(transactional_id="probe") as producer:
        producer.init_transactions()
        producer.begin_transaction()
        error = producer.produce("notes", pa.Table.from_batches([records])).exception()
        producer.abort_transaction()
    assert error is None or isinstance(error, RecordTooLargeError)
    return error is not None


@pytest.mark.parametrize("note", ["a", LARGE, LARGE * 20, "x" * 400_000])
def test_it_is_told_as_the_producer_has_it(engine: Engine, note: str) -> None:
    """A row's size is computed to a few bytes, and never as small enough if the producer refuses the row."""
    record: Any = pa.RecordBatch.from_pylist([{"id": 7, "note": note}], schema=SCHEMA)
    engine.admin.alter_configs({"max.message.bytes": 1 << 30}, topic="notes")
    with engine.producer() as producer:
        producer.produce("notes", pa.Table.from_batches([record])).result()
    (part,) = engine.scan("notes").files()
    size = part.bytes
    told = []
    for most in (size + 64, *range(size + 2, size - 3, -1), size - 64):
        engine.admin.alter_configs({"max.message.bytes": most}, topic="notes")
        found = RowSizes(engine.logs.topics.look_up("notes")).too_large(record)
        told.append((found == [0], is_refused(engine, record)))
    assert (told[0], told[-1]) == ((False, False), (True, True))
    assert (False, True) not in told


def test_of_many_rows_each_that_is_too_large(engine: Engine) -> None:
    """Of many rows each one that is too large is found, also if an added column is missing, and if a list has
    too many nulls for any limit."""
    engine.admin.alter_topic(
        "notes", [AddColumn(pa.field("currency", pa.string(), nullable=False), default="EUR")]
    )
    rows = [{"id": at, "note": LARGE if at % 70 == 3 else "a"} for at in range(500)]
    records: Any = pa.RecordBatch.from_pylist(rows, schema=SCHEMA)
    assert RowSizes(engine.logs.topics.look_up("notes")).too_large(records) == list(range(3, 500, 70))
    lists = pa.schema([pa.field("flags", pa.list_(pa.bool_()))])
    engine.admin.create_topic("lists", partitions=1, schema=lists)
    flags = pa.array([[None], [None] * ((8 << 20) + 1), [True]], pa.list_(pa.bool_()))
    of_lists: Any = pa.RecordBatch.from_arrays([flags], schema=lists)
    assert RowSizes(engine.logs.topics.look_up("lists")).too_large(of_lists) == [1]


WIDE = pa.schema([pa.field(f"c{at}", pa.int64()) for at in range(80)])
VIEWS = pa.schema([pa.field("note", pa.string_view())])


@pytest.mark.parametrize(
    ("schema", "records", "most"),
    [
        (WIDE, pa.record_batch([pa.array(range(500), pa.int64())] * 80, schema=WIDE), 64 << 10),
        (VIEWS, pa.record_batch([pa.array(["x" * 2_000] * 500, pa.string_view())], schema=VIEWS), 100_000),
    ],
)
def test_small_rows_are_not_written_one_by_one(
    engine: Engine, monkeypatch: pytest.MonkeyPatch, schema: pa.Schema, records: pa.RecordBatch, most: int
) -> None:
    """Small rows are not measured one by one, even if a file has more columns than values, or if Arrow counts
    a whole buffer for every part of it."""
    engine.admin.create_topic("others", partitions=1, schema=schema, max_message_bytes=most)
    written = []

    def encode(table: pa.Table, *rest: Any) -> Any:
        written.append(table.num_rows)
        return encode_data_file(table, *rest)

    monkeypatch.setattr(row_sizes, "encode_data_file", encode)
    assert RowSizes(engine.logs.topics.look_up("others")).too_large(records) == []
    assert len(written) < 100
