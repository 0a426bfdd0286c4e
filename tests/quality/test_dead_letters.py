"""The equation input = output + dead letters is proved for loads and for consumers, and a lost or doubled row
is found."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import txn_engine
from tests.suite.tiers import in_shard
from tests.support.internal import FEW_INTERNAL
from txn_engine import Engine, OffsetAndMetadata, TopicPartition
from txn_engine.errors import InvalidRecordError, InvalidRequestError
from txn_engine.files import BadRow
from txn_engine.loading import DEAD_LETTERS, load_files, replay
from txn_engine.loading.dead_letters import letters_of
from txn_engine.quality import Declaration, Output, QualityResult, SameRows, check_exactly_once
from txn_engine.quality.declaration_file import declaration_from
from txn_engine.quality.result import Account
from txn_engine.reasons import Reason

COLUMNS: list[pa.Field[Any]] = [
    pa.field("id", pa.int64(), nullable=False),
    pa.field("amount", pa.decimal128(10, 2)),
    pa.field("note", pa.string()),
]
SCHEMA = pa.schema(COLUMNS)
LOADED, CONSUMED = "input_is_records_and_dead_letters", "input_is_copies_and_dead_letters"
OF_FILE = Declaration("payments", ("id",), input_delimiter=",", dead_letter_topic="loads-dead")
OF_CONSUMER = Declaration(
    "payments",
    ("id",),
    (Output("copies", SameRows({"id": "id", "amount": "amount"}), dead_letter_topic="copies-dead"),),
    group_id="copier",
)
HEADER = "id,amount,note\n"
ROWS = '1,1.00,a\n2,bad,b\n\n3,3.00,"two\nlines"\n4,4.00\n5,5.005,c\n6,6.00,d\n7,7.00,"e"f\n'
"""Three good rows of seven; the fields of one are too few, a quote of another stands inside."""


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Engine]:
    with txn_engine.connect(f"memory://{tmp_path.name}", configs=FEW_INTERNAL) as connected:
        for name in ("payments", "copies"):
            connected.admin.create_topic(name, partitions=2, schema=SCHEMA, key="id")
        for name in ("loads-dead", "copies-dead"):
            connected.admin.create_topic(name, partitions=2, schema=DEAD_LETTERS)
        yield connected


def prove(engine: Engine, folder: Path, check: Declaration, **options: Any) -> QualityResult:
    return check_exactly_once(engine, check, report_folder=folder / "report", record=True, **options)


def account(result: QualityResult, name: str) -> tuple[str, Account | None]:
    (check,) = [check for check in result.checks if check.name == name]
    return check.status, check.account


def failed(result: QualityResult) -> set[str]:
    assert not result.errored
    return {check.name for check in result.failed}


# --- a file into a topic ----------------------------------------------------------------------------------------


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "payments.csv"
    path.write_text(HEADER + ROWS)
    return path


def load(engine: Engine, path: Path, run_id: str = "monday") -> None:
    load_files(engine, "payments", path, run_id=run_id, dead_letter_topic="loads-dead")


def mended(engine: Engine, line: int, **columns: Any) -> dict[tuple[int, int], str]:
    """The repair of the letter with this line, as `replay` takes it."""
    for letter in engine.scan("loads-dead").to_table().to_pylist():
        if letter["source_line"] == line:
            return {(letter["_partition"], letter["_offset"]): json.dumps(columns)}
    raise AssertionError(line)


def test_of_a_file(engine: Engine, file: Path, tmp_path: Path) -> None:
    """Rows that the loader could not parse count as rows. A letter that was repaired counts as a record from
    then on, whatever its id is."""
    load(engine, file)
    result = prove(engine, tmp_path, OF_FILE, input_file=file)
    assert not result.failed, result.failed
    assert account(result, LOADED) == ("passed", Account(7, 3, 4))
    assert result.statistics["dead_letters"] == 4
    page = result.report.read_text()
    for number in (
        "<b>7</b> <span>of the file",
        "<b>= 3</b> <span>of payments",
        "<b>+ 4</b> <span>that wait",
    ):
        assert number in page
    (told,) = [check for check in json.loads(result.json.read_text())["checks"] if check["name"] == LOADED]
    assert told["account"] == {"rows": 7, "records": 3, "dead_letters": 4}
    replay(
        engine,
        "loads-dead",
        repaired=mended(engine, 3, id=22, amount="2.00", note="b")
        | mended(engine, 8, id=4, amount="4.00", note=""),
    )
    result = prove(engine, tmp_path, OF_FILE, input_file=file)
    assert not result.failed, result.failed
    assert account(result, LOADED) == ("passed", Account(7, 5, 2))


@pytest.mark.shard("damage")
def test_of_a_file_with_bytes_that_are_no_text_and_a_long_row(
    engine: Engine, file: Path, tmp_path: Path
) -> None:
    """The check takes the same rows for letters and for records as the loader: bytes that are not text are a
    letter, and a long row is a record."""
    file.write_bytes(f"{HEADER}1,1.00,{'x' * 200_000}\n".encode() + b"2,2.00,\xff\n3,3.00,c\n")
    load(engine, file)
    result = prove(engine, tmp_path, OF_FILE, input_file=file)
    assert not result.failed, result.failed
    assert account(result, LOADED) == ("passed", Account(3, 2, 1))


@pytest.mark.parametrize(
    ("wrong", "numbers", "also"),
    in_shard(
        "damage",
        [
            ("a row lost", Account(7, 2, 4), {"no_input_row_missing"}),
            ("a letter doubled", Account(7, 3, 5), set()),
            ("a letter lost", Account(7, 3, 3), {"no_input_row_missing"}),
            ("a letter of another file", Account(7, 3, 4), {"no_input_row_missing"}),
        ],
        keep=2,
    ),
)
def test_of_a_file_what_is_wrong(
    engine: Engine, file: Path, tmp_path: Path, wrong: str, numbers: Account, also: set[str]
) -> None:
    """A lost or doubled row or letter is found by the numbers, and by its row if there is one."""
    loaded = tmp_path / "day" / "payments.csv"
    loaded.parent.mkdir()
    lost = {"a row lost": "1,1.00,a\n", "a letter lost": "5,5.005,c\n"}.get(wrong, "")
    filler = "\n" if lost else ""  # blank lines are no rows: the others stay where they are
    loaded.write_text(HEADER + (ROWS.replace(lost, filler) if lost else ROWS))
    if wrong == "a letter of another file":
        loaded = loaded.rename(loaded.with_name("other.csv"))
    load(engine, loaded)
    if wrong == "a letter doubled":
        extra = tmp_path / "twice" / "payments.csv"
        extra.parent.mkdir()
        extra.write_text(HEADER + "\n2,bad,b\n")
        load(engine, extra, "tuesday")
    result = prove(engine, tmp_path, OF_FILE, input_file=file)
    assert account(result, LOADED) == ("failed", numbers)
    assert failed(result) == {LOADED} | also


# --- a topic into a topic ---------------------------------------------------------------------------------------


def payments(ids: Collection[int]) -> pa.Table:
    amounts = pa.array([Decimal(number) for number in ids], pa.decimal128(10, 2))
    return pa.table([pa.array(ids, pa.int64()), amounts, pa.nulls(len(ids), pa.string())], schema=SCHEMA)


def add(engine: Engine, ids: range) -> None:
    with engine.producer(transactional_id="load") as producer:
        producer.init_transactions()
        with producer.transaction():
            producer.produce("payments", payments(ids))


def consume(
    engine: Engine, *, lost: Collection[int] = (), both: Collection[int] = (), twice: Collection[int] = ()
) -> None:
    """Copy the new payments. Those with an id that is divisible by seven become dead letters."""
    with engine.consumer(group_id="copier") as consumer, engine.producer(transactional_id="job") as producer:
        consumer.subscribe(["payments"])
        rows = consumer.poll(10_000).to_pylist()  # type: ignore[union-attr]
        dead = [row for row in rows if row["id"] % 7 == 0 and row["id"] not in lost]
        dead += [row for row in dead if row["id"] in twice]
        good = [row["id"] for row in rows if row["id"] % 7 or row["id"] in both]
        producer.init_transactions()
        with producer.transaction():
            producer.send_offsets_to_transaction(ends_of(engine, "payments"), consumer.group_metadata())
            producer.produce("copies", payments([each for each in good if each not in lost]))
            if dead:
                producer.produce("copies-dead", letters(dead))


def ends_of(engine: Engine, topic: str) -> dict[TopicPartition, OffsetAndMetadata]:
    return {place: OffsetAndMetadata(at) for place, at in engine.scan(topic).offsets.items()}


def letters(rows: list[dict[str, Any]], **changes: Any) -> pa.Table:
    source = {
        "source_topic": "payments",
        "source_partition": [row["_partition"] for row in rows],
        "source_offset": [row["_offset"] for row in rows],
        **changes,
    }
    error = InvalidRecordError("amount does not fit", expected="decimal128(10, 2)")
    bad = [
        BadRow(0, error, columns=json.dumps({"id": row["id"], "amount": str(row["amount"]), "note": None}))
        for row in rows
    ]
    reading = json.dumps({"format": "jsonl", "binary": "base64"})
    return letters_of(bad, source, reading, topic="copies", run_id="1", failed_at_ms=1)


def test_of_a_consumer(engine: Engine, tmp_path: Path) -> None:
    """Each proof judges only new records. A replayed letter counts as output from then on."""
    add(engine, range(40))
    consume(engine)
    first = prove(engine, tmp_path, OF_CONSUMER)
    assert not failed(first)
    assert account(first, CONSUMED) == ("passed", Account(40, 34, 6))
    add(engine, range(40, 100))
    consume(engine)
    second = prove(engine, tmp_path, OF_CONSUMER)
    assert account(second, CONSUMED) == ("passed", Account(100, 85, 15))
    assert not failed(second)
    assert second.proof is not None
    assert second.proof.scope.startswith("what is new since proof 0; ")
    assert {each.topic for each in second.proof.ranges} == {"payments", "copies", "copies-dead"}
    row = {"id": 707, "amount": "7.07", "note": "mended"}
    replay(engine, "copies-dead", repaired={_first_letter(engine): json.dumps(row)})
    add(engine, range(100, 110))
    consume(engine)
    third = prove(engine, tmp_path, OF_CONSUMER)
    assert account(third, CONSUMED) == ("passed", Account(110, 109, 1))
    assert not failed(third)
    assert not failed(prove(engine, tmp_path, OF_CONSUMER, whole=True))
    cut = engine.cut()
    add(engine, range(110, 120))
    at_cut = prove(engine, tmp_path, OF_CONSUMER, cut=cut)
    assert account(at_cut, CONSUMED) == ("passed", Account(110, 109, 1))
    assert not failed(at_cut)


def _first_letter(engine: Engine) -> tuple[int, int]:
    row = engine.scan("copies-dead").to_table().to_pylist()[0]
    return row["_partition"], row["_offset"]


@pytest.mark.parametrize("after_a_proof", in_shard("damage", [False, True], keep=[False]))
@pytest.mark.parametrize(
    ("wrong", "numbers", "also"),
    in_shard(
        "damage",
        [
            ({"lost": {5}}, (50, 41, 8), {"identity_in_copies"}),
            ({"lost": {7}}, (50, 42, 7), {"identity_in_copies"}),
            ({"both": {7}}, (50, 43, 8), {"identity_in_copies"}),
            ({"twice": {7}}, (50, 42, 9), set()),
            ({"lost": {5}, "twice": {7}}, (50, 41, 9), {"identity_in_copies"}),
        ],
        keep=1,
    ),
)
def test_of_a_consumer_what_is_wrong(
    engine: Engine,
    tmp_path: Path,
    wrong: dict[str, set[int]],
    numbers: tuple[int, int, int],
    also: set[str],
    after_a_proof: bool,
) -> None:
    """Lost records, doubled ones and those that are in both topics are found. Where the numbers agree by
    chance, the rows do not."""
    if after_a_proof:
        add(engine, range(1_000, 1_010))
        consume(engine)
        assert not failed(prove(engine, tmp_path, OF_CONSUMER))
        numbers = (numbers[0] + 10, numbers[1] + 8, numbers[2] + 2)
    add(engine, range(50))
    consume(engine, **wrong)
    result = prove(engine, tmp_path, OF_CONSUMER)
    agrees = numbers[0] == numbers[1] + numbers[2]
    assert account(result, CONSUMED) == ("passed" if agrees else "failed", Account(*numbers))
    assert failed(result) == also | (set() if agrees else {CONSUMED})


@pytest.mark.shard("damage")
def test_a_replay_whose_record_is_not_there(engine: Engine, tmp_path: Path) -> None:
    """A letter that the group says was replayed, but whose record does not exist, is found."""
    add(engine, range(50))
    consume(engine)
    prove(engine, tmp_path, OF_CONSUMER)
    group = "dead-letters/copies-dead"
    with engine.consumer(group_id=group) as consumer:
        consumer.subscribe(["copies-dead"])
        consumer.commit(ends_of(engine, "copies-dead"))
    for whole in (False, True):
        result = prove(engine, tmp_path, OF_CONSUMER, whole=whole)
        assert account(result, CONSUMED) == ("failed", Account(50, 42, 0))
        assert failed(result) - {"identity_in_copies"} == {CONSUMED}


def test_letters_that_do_not_say_of_which_record(engine: Engine, tmp_path: Path) -> None:
    """If a letter does not say which record it is about, the checks are errored, and the report says what to
    do."""
    add(engine, range(50))
    consume(engine)
    with engine.producer(transactional_id="job") as producer:
        producer.init_transactions()
        with producer.transaction():
            row = {"id": 1, "amount": 1, "_partition": None, "_offset": None}
            producer.produce("copies-dead", letters([row]))
    result = prove(engine, tmp_path, OF_CONSUMER)
    assert {check.name for check in result.errored} == {"identity_in_copies", CONSUMED}
    assert all("keep _partition and _offset" in check.detail for check in result.errored)


def test_what_a_declaration_may_say(engine: Engine, tmp_path: Path) -> None:
    """A declaration file may name a dead letter topic."""
    held = {
        "topic": "payments",
        "record_id": "id",
        "group_id": "copier",
        "outputs": [
            {"topic": "copies", "identity": ["id", "amount"], "dead_letter_topic": "copies-dead"},
        ],
    }
    assert declaration_from(held, "x.yaml") == OF_CONSUMER
    with pytest.raises(InvalidRequestError) as no_identity:
        declaration_from({**held, "outputs": [{"topic": "a", "set": ["id"], "dead_letter_topic": "b"}]}, "x")
    assert no_identity.value.reason is Reason.MISSING_FIELD
    with pytest.raises(InvalidRequestError) as checked_topic:
        declaration_from({**held, "dead_letter_topic": "payments"}, "x")
    assert checked_topic.value.reason is Reason.NOT_A_DEAD_LETTER_TOPIC
    with pytest.raises(InvalidRequestError) as other_columns:
        prove(engine, tmp_path, Declaration("payments", ("id",), dead_letter_topic="copies"))
    assert other_columns.value.reason is Reason.NOT_A_DEAD_LETTER_TOPIC
