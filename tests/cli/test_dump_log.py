"""`dump-log` shows every slot of a log as it is, even if the log is damaged."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from storage import open_store
from storage.envelope import checksum_of, encode_parquet
from storage.errors import AccessDeniedError, StorageError, StoreUnreachableError
from storage.local import LocalStore
from tests.cli.conftest import Run
from tests.verify.story import GROUP, LOAD, Story, healthy, sealed


@pytest.fixture
def story() -> Story:
    return healthy()


@pytest.fixture
def store(story: Story, tmp_path: Path) -> str:
    """The URL at which `put_all` puts the story's objects."""
    return f"file://{tmp_path}/ledger"


def put_all(story: Story, url: str) -> None:
    """Put the objects in their present state."""
    target = open_store(url, create=True)
    for info in list(target.list("")):
        target.delete(info.key)
    for info in story.ledger.store.list(""):
        target.put(info.key, story.ledger.store.get(info.key))


def lines(text: str) -> list[dict[str, str]]:
    """The `name: value` pairs of each line that is not a record."""
    found = []
    for line in text.splitlines()[1:]:
        if not line.startswith("|"):
            words = line.split(" ")
            found.append({name[:-1]: value for name, value in zip(words[::2], words[1::2], strict=False)})
    return found


def test_entries_as_kafka_shows_them(run: Run, story: Story, store: str) -> None:
    """Each batch has one line with Kafka's names. A marker has its kind and the coordinator's epoch."""
    put_all(story, store)
    answer = run("dump-log", "payments", "0", store=store)
    assert answer.code == 0
    assert answer.stdout.startswith("Dumping topics/payments/0/0/log\n")
    shown = lines(answer.stdout)
    assert [(line["baseOffset"], line["lastOffset"]) for line in shown] == [
        ("0", "2"),
        ("3", "4"),
        ("5", "6"),
        ("7", "7"),
        ("8", "9"),
        ("10", "10"),
        ("11", "11"),
    ]
    first, commit, abort = shown[0], shown[3], shown[5]
    wanted = {"count": "3", "baseSequence": "0", "lastSequence": "2", "producerId": "0", "producerEpoch": "0"}
    assert wanted.items() <= first.items()
    assert (first["isTransactional"], first["isControl"], first["isvalid"]) == ("true", "false", "true")
    assert first["position"] == story.entry("payments", 0, 0)
    assert int(first["size"]) == len(story.ledger.store.get(first["position"]))
    assert (commit["endTxnMarker"], commit["coordinatorEpoch"]) == ("COMMIT", str(story.commit_row))
    assert (abort["endTxnMarker"], abort["coordinatorEpoch"]) == ("ABORT", str(story.abort_row))


def test_a_part_of_the_log(run: Run, story: Story, store: str) -> None:
    """The dump begins with the entry that holds the start, and ends with the last entry that begins before
    the end."""
    put_all(story, store)
    answer = run("dump-log", "payments", "0", "--start", "4", "--end", "8", "--json", store=store)
    assert [batch["base_offset"] for batch in answer.json["batches"]] == [3, 5, 7]
    assert answer.json["damaged"] == 0
    beyond = run("dump-log", "payments", "0", "--start", "99", "--json", store=store)
    assert [batch["base_offset"] for batch in beyond.json["batches"]] == [11]


def test_records_and_files(run: Run, story: Story, store: str) -> None:
    """Each record is shown with its offset, time and sequence, and each batch with its data file."""
    put_all(story, store)
    answer = run("dump-log", "payments", "0", "--end", "1", "--records", "--files", store=store)
    row = story.files["payments/0/first"]
    (batch,) = lines(answer.stdout)
    assert (batch["dataFile"], batch["dataChecksum"]) == (row["data_path"], row["checksum"])
    stamp = row["first_timestamp"]
    payload = '{"account_id": null, "amount": null, "note": null}'
    assert answer.stdout.splitlines()[2:] == [
        f"| offset: {offset} CreateTime: {stamp} sequence: {offset} payload: {payload}" for offset in range(3)
    ]
    document = run("dump-log", "payments", "0", "--end", "1", "--records", "--json", store=store).json
    assert [record["offset"] for record in document["batches"][0]["records"]] == [0, 1, 2]
    assert document["batches"][0]["records"][0]["payload"] == json.loads(payload)


def test_internal_topics_in_words(run: Run, story: Story, store: str) -> None:
    """Transactions and offset commits are shown as Kafka's decoders write them, and as JSON with every
    field."""
    put_all(story, store)
    text = run("dump-log", "__transaction_state", str(story.load_home), store=store).stdout
    assert f"| offset: 1 key: transaction_metadata::transactionalId={LOAD} payload: state=Ongoing," in text
    assert "partitions=[payments-0,payments-1]" in text
    document = run("dump-log", "__transaction_state", str(story.load_home), "--json", store=store).json
    assert document["batches"][3]["row"]["state"] == "PrepareCommit"
    assert document["batches"][3]["row"]["committed_run_ids"] == ["day-1"]
    offsets = run("dump-log", "__consumer_offsets", str(story.group_home), store=store).stdout
    assert f"| offset: 0 key: offset_commit::group={GROUP},partition=payments-0 payload: " in offsets
    assert ",offset=12," in offsets


def test_control_rows_and_seals(run: Run, story: Story, store: str) -> None:
    """A sealed slot says so, and a control row shows its value."""
    sealed(story)
    put_all(story, store)
    answer = run("dump-log", "payments", "1", "--json", store=store)
    assert answer.code == 0
    first, *_, trim = answer.json["batches"]
    assert (first["base_offset"], first["sealed"], "last_offset" in first) == (0, True, False)
    assert (trim["control"], json.loads(trim["value"])) == (
        "TRIM",
        {"entries_start": 3, "log_start_offset": 3},
    )
    assert "sealed: true" in run("dump-log", "payments", "1", store=store).stdout


def test_a_damaged_entry_does_not_hide_the_rest(run: Run, story: Story, store: str) -> None:
    """Its line has its key and `isvalid: false`. Every other entry is dumped, and the exit code is 1."""
    key = story.entry("payments", 0, 3)
    story.ledger.flip(key)
    story.ledger.store.delete(story.entry("payments", 0, 8))
    put_all(story, store)
    answer = run("dump-log", "payments", "0", store=store)
    assert answer.code == 1
    shown = lines(answer.stdout)
    assert [line["baseOffset"] for line in shown] == ["0", "3", "5", "7", "8", "10", "11"]
    assert [line["position"] for line in shown if line["isvalid"] == "false"] == [
        key,
        story.entry("payments", 0, 8),
    ]
    assert "nothing from offset 8 to the entry at 10" in answer.stdout
    assert answer.stderr == "2 damaged: `txn-engine verify --topic payments` says what to do about each\n"
    document = run("dump-log", "payments", "0", "--json", store=store)
    assert (document.code, document.json["damaged"], document.stderr) == (1, 2, "")


def test_a_log_whose_own_objects_are_damaged(run: Run, story: Story, store: str) -> None:
    """A log can be dumped without store.json and without the topic's object."""
    story.ledger.flip("store.json", 20)
    story.ledger.flip("topics/payments/0.json", 20)
    put_all(story, store)
    for topic, partition in (("payments", "0"), ("__transaction_state", str(story.load_home))):
        answer = run("dump-log", topic, partition, store=store)
        assert (answer.code, answer.stderr) == (0, "")
        assert "baseOffset: 0" in answer.stdout


@pytest.mark.parametrize("damage", ["changed", "gone", "another"])
def test_verify_checksums_reads_the_data_files(run: Run, story: Story, store: str, damage: str) -> None:
    """A damaged data file is named only with the option, or if its records are requested."""
    key = story.path("payments/0/first")
    if damage == "changed":
        story.ledger.flip(key, 40)
    elif damage == "gone":
        story.ledger.store.delete(key)
    else:
        story.ledger.store.put(key, story.ledger.store.get(story.path("payments/0/plain2")))
    put_all(story, store)
    assert run("dump-log", "payments", "0", store=store).code == 0
    answer = run("dump-log", "payments", "0", "--verify-checksums", store=store)
    assert answer.code == 1
    assert [line["baseOffset"] for line in lines(answer.stdout) if line["isvalid"] == "false"] == ["0"]
    assert "problem: " in answer.stdout
    dumped = run("dump-log", "payments", "0", "--records", "--json", store=store)
    assert dumped.code == 1
    assert "records_problem" in dumped.json["batches"][0]
    assert len(dumped.json["batches"][1]["records"]) == 2


def put_records(story: Story, table: pa.Table) -> None:
    """Add a batch of payments-1 whose data file holds this table, with right checksums, and a batch after
    it."""
    ledger = story.ledger
    write_id = ledger.write_id()
    data = encode_parquet(table, kind="data", metadata={"write_id": write_id})
    path = f"data/{4:020d}-p-1-e-1-{write_id}.parquet"
    ledger.store.put(f"topics/payments/0/1/{path}", data)
    row = {"data_path": path, "data_bytes": len(data), "checksum": checksum_of(data)}
    ledger.entry("payments", 1, row)
    ledger.entry("payments", 1, ledger.batch("payments", 1, count=1))


DELTA, STAMP = pa.array([0], pa.int64()), pa.array([1], pa.timestamp("ms", tz="UTC"))


@pytest.mark.parametrize(
    ("columns", "words"),
    [
        ({"_offset_delta": pa.array(["zero"]), "_timestamp": STAMP}, "_offset_delta"),
        ({"_offset_delta": DELTA, "_timestamp": pa.array(["x"])}, "_timestamp"),
        ({"_offset_delta": DELTA}, "_timestamp"),
        (
            {
                "_offset_delta": DELTA,
                "_timestamp": STAMP,
                "text": pa.Array.from_buffers(
                    pa.string(), 1, [None, pa.py_buffer(b"\0\0\0\0\2\0\0\0"), pa.py_buffer(b"\xff\xfe")]
                ),
            },
            "utf-8",
        ),
    ],
)
def test_records_of_strange_columns(
    run: Run, story: Story, store: str, columns: dict[str, pa.Array[Any]], words: str
) -> None:
    """A data file whose columns are all different is damage of its batch. The rest is dumped, and JSON stays
    valid."""
    put_records(story, pa.table(columns))
    put_all(story, store)
    answer = run("dump-log", "payments", "1", "--records", "--json", store=store)
    assert answer.code == 1
    *_, strange, last = answer.json["batches"]
    assert words in strange["records_problem"]
    assert len(last["records"]) == 1
    assert (answer.json["damaged"], answer.json["complete"]) == (1, True)
    text = run("dump-log", "payments", "1", "--records", store=store)
    assert text.code == 1
    assert words in text.stdout


def test_a_data_file_with_an_illegal_name(run: Run, story: Story, store: str) -> None:
    """A path that no object can have is damage of its batch."""
    row = story.ledger.batch("payments", 1)
    story.ledger.entry("payments", 1, {**row, "data_path": "../../../../../store.json"})
    put_all(story, store)
    answer = run("dump-log", "payments", "1", "--verify-checksums", "--json", store=store)
    assert answer.code == 1
    assert "is not a legal object key" in answer.json["batches"][-1]["problem"]


def test_a_row_with_a_null_inside(run: Run, story: Story, store: str) -> None:
    """Its entry is damaged, as text and as JSON."""
    ledger = story.ledger
    key = ledger.entry_key("__transaction_state", story.load_home, 1)
    ledger.change(key, lambda rows: rows[0]["transaction"].update(partitions=[None]))
    put_all(story, store)
    answer = run("dump-log", "__transaction_state", str(story.load_home), store=store)
    assert answer.code == 1
    assert [line["isvalid"] for line in lines(answer.stdout)].count("false") == 1


def test_an_object_that_the_store_refuses(
    run: Run, story: Story, store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The problem belongs to its batch. The other batches are dumped and checked."""
    put_all(story, store)
    get_fails(monkeypatch, story.path("payments/0/second"), AccessDeniedError("permission denied"))
    answer = run("dump-log", "payments", "0", "--verify-checksums", "--json", store=store)
    assert answer.code == 1
    problems = {batch["base_offset"]: batch.get("problem") for batch in answer.json["batches"]}
    assert problems.pop(3) == "data file damaged: permission denied"
    assert list(problems) == [0, 5, 7, 8, 10, 11]
    assert set(problems.values()) == {None}
    assert (answer.json["damaged"], answer.json["complete"]) == (1, True)


def test_a_store_that_fails_midway(
    run: Run, story: Story, store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The JSON document is closed and says that it is incomplete, and the error is reported."""
    put_all(story, store)
    get_fails(monkeypatch, story.path("payments/0/second"), StoreUnreachableError("no answer"))
    answer = run("dump-log", "payments", "0", "--verify-checksums", "--json", store=store)
    assert answer.code == 1
    assert [batch["base_offset"] for batch in answer.json["batches"]] == [0]
    assert answer.json["complete"] is False
    assert "no answer" in json.loads(answer.stderr)["error"]["message"]


def get_fails(monkeypatch: pytest.MonkeyPatch, refused: str, error: StorageError) -> None:
    """From now on a store on disk cannot read this object."""
    read = LocalStore.get

    def get(self: LocalStore, key: str, *, max_bytes: int | None = None) -> bytes:
        if key == refused:
            raise error
        return read(self, key, max_bytes=max_bytes)

    monkeypatch.setattr(LocalStore, "get", get)


def test_an_unknown_log(run: Run, story: Story, store: str) -> None:
    """An unknown topic, partition or incarnation is an error of the engine."""
    put_all(story, store)
    for arguments in (("nope", "0"), ("payments", "2"), ("payments", "0", "--incarnation", "3")):
        answer = run("dump-log", *arguments, store=store)
        assert (answer.code, answer.error_code) == (1, "UNKNOWN_TOPIC_OR_PARTITION")


def test_a_deleted_incarnation_of_a_topic(run: Run, story: Story, store: str) -> None:
    """A deleted topic's log can be dumped as long as it exists on the store."""
    story.ledger.topic("payments", 2, 1, deleted=True)
    put_all(story, store)
    assert run("dump-log", "payments", "0", store=store).error_code == "UNKNOWN_TOPIC_OR_PARTITION"
    answer = run("dump-log", "payments", "0", "--incarnation", "0", "--json", store=store)
    assert answer.json["incarnation"] == 0
    assert len(answer.json["batches"]) == 7
