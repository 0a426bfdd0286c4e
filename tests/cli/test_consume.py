"""`consume`: committed records in every format, and a group's offsets that follow them."""

from __future__ import annotations

import csv
import datetime as dt
import errno
import io
import json
import os
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from storage.reasons import StoreReason
from tests.cli.conftest import SCHEMA, Answer, Run
from tests.support.refusals import refused
from txn_engine import connect
from txn_engine.cli import record_text
from txn_engine.cli.consume import StoreAway
from txn_engine.cli.output import Output
from txn_engine.cli.record_text import JsonLines, ParquetFile
from txn_engine.cli.schema_text import parse_schema
from txn_engine.clock import Waiting
from txn_engine.errors import InvalidRequestError, OutcomeUnknownError, StoreFaultError, StoreUnavailableError
from txn_engine.protocol.log_time import LATEST_MS
from txn_engine.reasons import Reason


def lines(answer: Answer) -> list[dict[str, Any]]:
    assert answer.code == 0, answer.stderr
    return [json.loads(line) for line in answer.stdout.splitlines()]


def test_every_format_has_the_same_records(run: Run, loaded: str, tmp_path: Path) -> None:
    """jsonl, csv, parquet, one JSON document and a table show the topic's columns, then partition, offset and
    time."""
    found = lines(run("consume", loaded, "--format", "jsonl"))
    names = ["id", "account_id", "day", "amount", "note", "_partition", "_offset", "_timestamp"]
    assert [list(row) for row in found] == [names] * 3
    assert found[2] | {"_timestamp": ""} == {
        "id": 3,
        "account_id": 10,
        "day": "2026-01-02",
        "amount": "-7.50",
        "note": "a, quoted\nnote",
        "_partition": 0,
        "_offset": 2,
        "_timestamp": "",
    }
    assert found[0]["_timestamp"].endswith("Z")
    assert run("consume", loaded, "--json").json == {
        "records": found,
        "record_count": 3,
        "topic": loaded,
        "group": None,
    }
    as_csv = list(csv.DictReader(io.StringIO(run("consume", loaded, "--format", "csv").stdout)))
    assert [{k: v or None for k, v in row.items()} for row in as_csv] == [
        {k: None if v is None else str(v) for k, v in row.items()} for row in found
    ]
    out = tmp_path / "o.parquet"
    assert run("consume", loaded, "--format", "parquet", "--output", str(out)).code == 0
    assert [str(row["amount"]) for row in pq.read_table(out).to_pylist()] == ["100.00", "0.05", "-7.50"]
    table = run("consume", loaded)
    assert table.stdout.splitlines()[0].split() == names
    assert len(table.stdout.splitlines()) == 4
    assert "a, quoted\\nnote" in table.stdout
    assert table.stderr == "3 records\n"


def test_csv_comes_back_as_it_was(run: Run, url: str, tmp_path: Path) -> None:
    """A topic that `consume` writes as csv and `produce` loads again has the same records, nulls and empty texts
    included."""
    texts = ["", None, "NULL", "a\rb", 'q"', " ", ",", "\ufeff"]
    schema = pa.schema([("note", pa.string()), ("n", pa.int64()), ("raw", pa.binary())])
    records = pa.table(
        [pa.array(texts), pa.array([1, None] * 4), pa.array([b"\xff", b"", None, b"x"] * 2)], schema=schema
    )
    with connect(url) as engine:
        for topic in ("notes", "again"):
            engine.admin.create_topic(topic, partitions=1, schema=schema)
        engine.producer().produce("notes", records).result()
    file, options = str(tmp_path / "notes.csv"), ("--binary", "base64")
    assert run("consume", "notes", "--format", "csv", "--output", file, *options).code == 0
    assert run("produce", "again", file, *options).code == 0
    with connect(url) as engine:
        assert engine.scan("again").to_table(schema.names).to_pydict() == records.to_pydict()


def test_special_floats_and_distant_years(run: Run, url: str, tmp_path: Path) -> None:
    """JSON stays valid, every format shows any year, and jsonl and csv can be loaded again unchanged."""
    schema = pa.schema(
        [("x", pa.float64()), ("at", pa.timestamp("us", tz="UTC")), ("y", pa.list_(pa.float32()))]
    )
    numbers = [float("nan"), float("inf"), float("-inf"), 0.5, None]
    times = pa.array([10**18, None, None, None, None], pa.int64()).cast(schema.field("at").type)
    with connect(url) as engine:
        engine.admin.create_topic(
            "odd", partitions=1, schema=schema, message_timestamp_after_max_ms=2**63 - 1
        )
        data = pa.table(
            [pa.array(numbers), times, pa.array([[n] for n in numbers], schema.field("y").type)], schema
        )
        engine.producer().produce("odd", data, timestamp_ms=LATEST_MS).result()

    def refuse(constant: str) -> None:
        raise AssertionError(constant)

    text = run("consume", "odd", "--format", "jsonl").stdout
    found = [json.loads(line, parse_constant=refuse) for line in text.splitlines()]
    assert [row["x"] for row in found] == ["NaN", "Infinity", "-Infinity", 0.5, None]
    assert [row["y"] for row in found] == [[row["x"]] for row in found]
    assert found[0]["at"] == "+33658-09-27T01:46:40.000Z"
    assert found[0]["_timestamp"] == "9999-12-31T23:59:59.999Z"
    document = run("consume", "odd", "--json").stdout
    assert json.loads(document, parse_constant=refuse)["records"] == found
    for shown in (run("consume", "odd"), run("consume", "odd", "--format", "csv")):
        assert shown.code == 0
        assert "+33658-09-27T01:46:40.000Z" in shown.stdout
    dumped = run("dump-log", "odd", "0", "--records", "--json").stdout
    payloads = [
        record["payload"] for record in json.loads(dumped, parse_constant=refuse)["batches"][0]["records"]
    ]
    assert [payload["x"] for payload in payloads] == [row["x"] for row in found]

    back = tmp_path / "back.jsonl"
    back.write_text("".join(json.dumps({**row, "at": None}) + "\n" for row in found))
    with connect(url) as engine:
        engine.admin.create_topic("same", partitions=1, schema=schema)
    assert run("produce", "same", str(back)).code == 0
    again = lines(run("consume", "same", "--format", "jsonl"))
    assert [(row["x"], row["y"]) for row in again] == [(row["x"], row["y"]) for row in found]


def test_a_group_goes_on_where_it_was(run: Run, loaded: str) -> None:
    """A group reads each record once over several calls, and --from-beginning starts over."""
    arguments = ["consume", loaded, "--group", "g", "--format", "jsonl"]
    assert [row["id"] for row in lines(run(*arguments, "--max-records", "2"))] == [1, 2]
    assert [row["id"] for row in lines(run(*arguments))] == [3]
    assert lines(run(*arguments)) == []
    assert [row["id"] for row in lines(run(*arguments, "--from-beginning", "--max-records", "1"))] == [1]
    assert [row["id"] for row in lines(run(*arguments))] == [2, 3]
    offsets = run("groups", "describe", "g", "--json").json["offsets"]
    assert [(row["partition"], row["current_offset"], row["lag"]) for row in offsets] == [
        (0, 3, 0),
        (1, 0, 0),
    ]


def test_without_a_group_nothing_is_committed(run: Run, loaded: str) -> None:
    """Without a group `consume` shows the whole topic every time."""
    assert len(lines(run("consume", loaded, "--format", "jsonl"))) == 3
    assert len(lines(run("consume", loaded, "--format", "jsonl"))) == 3
    assert run("groups", "list", "--json").json == {"groups": []}


def test_the_isolation_level_decides_what_is_seen(run: Run, url: str, loaded: str, good: Path) -> None:
    """Records of an open transaction are shown only with read_uncommitted."""
    with connect(url) as engine:
        producer = engine.producer(transactional_id="t")
        producer.init_transactions()
        producer.begin_transaction()
        data = engine.scan(loaded).to_table().drop_columns(["_partition", "_offset", "_timestamp"])
        producer.produce(loaded, data, partition=0).result()
        producer.flush()
        seen = ["consume", loaded, "--format", "jsonl", "--isolation-level"]
        assert len(lines(run(*seen, "read_committed"))) == 3
        assert len(lines(run(*seen, "read_uncommitted"))) == 6
        producer.abort_transaction()
    assert len(lines(run(*seen, "read_committed"))) == 3


def test_one_partition(run: Run, loaded: str) -> None:
    """An empty partition shows only the columns."""
    assert len(lines(run("consume", loaded, "--partition", "0", "--format", "jsonl"))) == 3
    empty = run("consume", loaded, "--partition", "1", "--format", "csv")
    assert empty.stdout == "id,account_id,day,amount,note,_partition,_offset,_timestamp\n"
    assert run("consume", loaded, "--partition", "1", "--json").json["records"] == []


def test_an_empty_topic_as_parquet(run: Run, payments: str, tmp_path: Path) -> None:
    """The Parquet file of an empty topic has the columns and no rows."""
    out = tmp_path / "o.parquet"
    assert run("consume", payments, "--format", "parquet", "--output", str(out)).code == 0
    assert pq.read_table(out).num_rows == 0
    assert [path.name for path in tmp_path.iterdir()] == ["o.parquet"]


def test_a_file_that_cannot_be_written_commits_nothing(run: Run, loaded: str, tmp_path: Path) -> None:
    """The command fails with one line, and the group does not move."""
    for name in ("csv", "parquet"):
        out = tmp_path / "missing" / f"o.{name}"
        answer = run("consume", loaded, "--group", "g", "--format", name, "--output", str(out))
        assert (answer.code, answer.error_code) == (1, "CLUSTER_AUTHORIZATION_FAILED")
        assert str(out) in answer.error
    assert run("groups", "list", "--json").json == {"groups": []}


@pytest.mark.parametrize("form", ["csv", "jsonl", "parquet", "table"])
def test_what_a_group_has_written_is_never_written_over(
    run: Run, loaded: str, tmp_path: Path, form: str
) -> None:
    """A group reads a record once. So a file that holds what it committed is refused, and stays as it is."""
    out = tmp_path / f"o.{form}"
    out.touch()
    arguments = ["consume", loaded, "--group", "g", "--format", form, "--max-records", "2", "--output"]
    assert run(*arguments, str(out)).code == 0
    first = out.read_bytes()
    for _ in range(2):
        again = run(*arguments, str(out))
        assert (again.code, again.error_code) == (1, "INVALID_REQUEST")
        assert out.read_bytes() == first
    (offset,) = [
        row["current_offset"]
        for row in run("groups", "describe", "g", "--json").json["offsets"]
        if row["partition"] == 0
    ]
    assert offset == 2
    other = tmp_path / f"p.{form}"
    assert run(*arguments, str(other)).code == 0
    assert other.read_bytes() != first
    without = [each for each in arguments if each not in {"--group", "g"}]
    assert run(*without, str(other)).code == 0
    assert {path.name for path in tmp_path.iterdir()} >= {out.name, other.name}
    assert not list(tmp_path.glob(".*"))


@pytest.mark.parametrize("form", ["csv", "parquet"])
def test_a_file_that_came_meanwhile_is_not_written_over(
    run: Run, loaded: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, form: str
) -> None:
    """The look that counts is where the file is opened, or gets its name. Nothing is committed then."""
    out = tmp_path / f"o.{form}"
    monkeypatch.setattr(record_text, "check_is_new", lambda path: path.write_text("theirs"))
    arguments = ["consume", loaded, "--group", "g", "--format", form, "--output", str(out)]
    if form == "parquet":
        kept = record_text.ParquetFile(out, keeps=True)
        out.write_text("theirs")
        monkeypatch.undo()
        kept.write(pa.table({"x": [1]}))
        with refused(InvalidRequestError, Reason.OUTPUT_EXISTS):
            kept.close()
        kept.discard()
    else:
        answer = run(*arguments)
        assert (answer.code, answer.error_code) == (1, "INVALID_REQUEST")
        assert run("groups", "list", "--json").json == {"groups": []}
    assert out.read_text() == "theirs"
    assert [path.name for path in tmp_path.glob("*o.*")] == [out.name]


@pytest.mark.parametrize("name", ["csv", "jsonl"])
def test_an_output_on_a_full_disk(run: Run, loaded: str, name: str) -> None:
    """The command says that the disk is full, and the group does not move."""
    answer = run("consume", loaded, "--group", "g", "--format", name, "--output", "/dev/full")
    assert (answer.code, answer.error_code) == (1, "KAFKA_STORAGE_ERROR")
    assert "/dev/full" in answer.error
    assert run("groups", "list", "--json").json == {"groups": []}


def test_a_parquet_file_on_a_full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error names the disk, and nothing is left of the file."""

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(pq.ParquetWriter, "write_table", full)
    file = ParquetFile(tmp_path / "o.parquet")
    with pytest.raises(StoreFaultError) as caught:
        file.write(pa.table({"n": [1]}))
    assert caught.value.reason is StoreReason.NO_ROOM
    file.discard()
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--format", "parquet"], "needs --output"),
        (["--follow", "--format", "parquet", "--output", "x"], "--follow has no end"),
        (["--json", "--format", "csv"], "use --format jsonl"),
        (["--max-records", "0"], "--max-records"),
        (["--isolation-level", "read_all"], "read_all"),
    ],
)
def test_a_wrong_call(run: Run, loaded: str, options: list[str], words: str) -> None:
    """A wrong call has exit code 2 and one line."""
    answer = run("consume", loaded, *options)
    assert answer.code == 2
    assert words in answer.error


def test_many_records_are_written_in_parts(
    run: Run, url: str, payments: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The group's offsets follow the written parts. After a failure the next call prints only the rest."""
    rows = [
        {"id": i, "account_id": 0, "day": dt.date(2026, 1, 1), "amount": Decimal(1), "note": None}
        for i in range(5)
    ]
    with connect(url) as engine:
        records = pa.Table.from_pylist(rows, parse_schema(SCHEMA))
        engine.producer().produce(payments, records, partition=0).result()
    monkeypatch.setattr("txn_engine.cli.consume.POLL_RECORDS", 2)
    write, written = JsonLines.write, [0]

    def full_at_the_second_part(self: JsonLines, table: pa.Table) -> None:
        written[0] += 1
        if written[0] == 2:
            raise OSError(28, "No space left on device")
        write(self, table)

    monkeypatch.setattr(JsonLines, "write", full_at_the_second_part)
    arguments = ["consume", payments, "--group", "g", "--format", "jsonl"]
    first = run(*arguments)
    assert first.code == 1
    assert first.error == "error: No space left on device [IO_ERROR]"
    ids = [json.loads(line)["id"] for line in first.stdout.splitlines()]
    assert ids == [0, 1]
    ids += [row["id"] for row in lines(run(*arguments))]
    assert ids == [0, 1, 2, 3, 4]


def test_a_follower_waits_for_its_store(capsys: pytest.CaptureFixture[str]) -> None:
    """A follower makes its call again until the store answers. It says so at the first wait and at every tenth."""
    pauses: list[int] = []
    answers = iter([*[StoreUnavailableError("no answer")] * 12, OutcomeUnknownError("a commit"), "an answer"])

    def call() -> str:
        answer = next(answers)
        if isinstance(answer, Exception):
            raise answer
        return answer

    away = StoreAway(Waiting(pause_ms=pauses.append), Output())
    assert away.wait_for(call) == "an answer"
    assert (len(pauses), pauses[0], max(pauses)) == (13, 1_000, 30_000)
    told = capsys.readouterr().err.splitlines()
    assert ["waiting for the store" in line for line in told] == [True, True, False]


def test_what_is_wrong_with_a_call_ends_a_follower() -> None:
    """An error that says nothing of the store being away is raised at once."""

    def call() -> None:
        raise InvalidRequestError("a fault")

    with pytest.raises(InvalidRequestError):
        StoreAway(Waiting(pause_ms=lambda _: None), Output()).wait_for(call)
