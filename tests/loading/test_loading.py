"""Files are loaded into a topic and its dead letters: every row, once, in one transaction."""

from __future__ import annotations

import json
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.loading.ledgers import (
    DEAD,
    HEADER,
    MIXED,
    SCHEMA,
    TOPIC,
    dead,
    dying_at_every_put,
    ids,
    lines,
    load,
    set_up,
)
from tests.loading.refusals import because
from tests.suite.tiers import in_shard
from tests.support.refusals import refused
from txn_engine import AddColumn, Engine, connect
from txn_engine.errors import (
    InvalidRecordError,
    InvalidRequestError,
    TxnEngineError,
    UnknownTopicOrPartitionError,
)
from txn_engine.files import read_records
from txn_engine.loading import (
    DEAD_LETTERS,
    LOADED_FILES,
    DeadLetterLimit,
    DeadLetters,
    FileLoad,
    counts,
    load_files,
    replay,
)
from txn_engine.log.topics import Topic
from txn_engine.producer import run_into
from txn_engine.reasons import Reason
from txn_engine.row_checks import RowCheck

Write = Callable[..., Path]


def test_input_is_output_and_dead_letters(engine: Engine, write: Write) -> None:
    """Each row is in the topic or in the dead letters, once. A letter says where it is from, why, and which
    run made it."""
    path = write("f.csv", MIXED)
    found = load(engine, path)
    assert (found.records, found.dead_letters) == (2, 3)
    assert ids(engine) == [1, 3]
    letters = dead(engine)
    assert [row["source_line"] for row in letters] == [3, 5, 6]
    assert len(letters) + len(ids(engine)) == len(list(lines(path)))
    first, second = letters[:2]
    assert json.loads(first["columns"]) == {"id": "2", "amount": "bad", "day": None, "paid": None}
    assert (second["columns"], second["raw"]) == (None, b"4,4\n")
    assert {row["source_file"] for row in letters} == {str(path)}
    assert {(row["topic"], row["run_id"], row["tries"]) for row in letters} == {(TOPIC, "monday", 1)}
    assert {row["error_class"] for row in letters} == {"InvalidRecordError"}
    assert first["reason"].startswith("amount does not fit; expected decimal(18,2)")
    assert "bad" not in first["reason"]
    offsets = engine.admin.list_offsets(TOPIC) | engine.admin.list_offsets(DEAD)
    assert all(at.last_stable_offset == at.high_watermark for at in offsets.values())


def test_a_run_is_loaded_once(engine: Engine, write: Write) -> None:
    """A run is loaded once, with its dead letters. Another run loads the file again."""
    path = write("f.csv", MIXED)
    load(engine, path)
    again = load(engine, path)
    assert (again.already_committed, again.records, again.dead_letters) == (True, 0, 0)
    assert (len(ids(engine)), len(dead(engine))) == (2, 3)
    load(engine, path, run_id="tuesday")
    assert (len(ids(engine)), len(dead(engine))) == (4, 6)


def test_a_file_of_dead_letters_alone_is_a_run(engine: Engine, write: Write) -> None:
    """A run that has only dead letters is committed and remembered."""
    path = write("f.csv", HEADER + "x,1,,\n")
    assert load(engine, path).dead_letters == 1
    assert load(engine, path).already_committed
    assert (ids(engine), len(dead(engine))) == ([], 1)


@pytest.mark.parametrize(
    ("most", "loads"),
    [
        (None, True),
        (3, True),
        (2, False),
        (0, False),
        ("60%", True),
        ("59.9%", False),
        ("0%", False),
        ("3", True),
    ],
)
def test_above_the_limit_nothing_is_loaded(
    engine: Engine, write: Write, most: int | str | None, loads: bool
) -> None:
    """If there are more dead letters than the limit, which is a number or a share of all rows, nothing is
    loaded."""
    path = write("f.csv", MIXED)
    if loads:
        assert load(engine, path, max_dead_letters=most).dead_letters == 3
        return
    with pytest.raises(InvalidRecordError, check=because(Reason.TOO_MANY_BAD_ROWS, f"{path} line 3")):
        load(engine, path, max_dead_letters=most)
    assert (ids(engine), dead(engine)) == ([], [])
    assert load(engine, path).records == 2


@pytest.mark.parametrize("given", ["many", "-1", -1, "101%", "1.5", 0.01, True, "%", ""])
def test_a_limit_that_is_none(given: Any) -> None:
    """An invalid limit is refused."""
    with pytest.raises(InvalidRequestError, check=because(Reason.BAD_ARGUMENT)):
        DeadLetterLimit.of(given)
    assert DeadLetterLimit.of("0.5%").share == Fraction(1, 200)


def test_a_fault_of_a_file_loads_nothing(engine: Engine, write: Write) -> None:
    """If one file has a fault, nothing is loaded, not even the file before it."""
    cut = write("g.csv", HEADER + '7,7.00,,"true\n')
    with pytest.raises(InvalidRecordError, check=because(Reason.UNCLOSED_QUOTE)):
        load(engine, [write("f.csv", MIXED), cut])
    assert (ids(engine), dead(engine)) == ([], [])


@pytest.mark.parametrize(
    "wrong",
    [
        {"run_id": ""},
        {"run_id": "a\u200b"},
        {"partition": 99},
        {"partition": -1},
        {"forgotten_runs": "maybe"},
        {"encoding": "klingon"},
        {"date_format": "%Q"},
        {"delimiter": 5},
        {"columns": {"id": 5}},
        {"missing_columns": "maybe"},
        {"format": "xls"},
        {"again": True},
        {"max_dead_letters": "many"},
        {"dead_letter_topic": "nowhere"},
    ],
    ids=str,
)
def test_a_wrong_argument_is_refused_before_anything_is_fenced(
    engine: Engine, write: Write, wrong: dict[str, Any]
) -> None:
    """A call that cannot work takes nothing from the instance that does: no epoch, and no open transaction."""
    path = write("f.csv", MIXED)
    with engine.producer(transactional_id=f"load-files/{TOPIC}") as works:
        works.init_transactions()
        works.begin_transaction()
        with pytest.raises(TxnEngineError):
            load_files(engine, TOPIC, path, **{"run_id": "monday", "dead_letter_topic": DEAD, **wrong})
        works.commit_transaction()


def test_a_dead_letter_topic_of_other_columns_is_refused(engine: Engine, write: Write) -> None:
    """A dead-letter topic with other columns, the topic itself, or one that does not exist is refused before
    the first row is read."""
    engine.admin.create_topic("other", partitions=1, schema=DEAD_LETTERS.remove(0))
    engine.admin.create_topic("events", partitions=1)
    missing = write("f.csv", MIXED).with_name("missing.csv")
    for name in ("other", "events", TOPIC):
        with pytest.raises(InvalidRequestError, check=because(Reason.NOT_A_DEAD_LETTER_TOPIC)):
            load_files(engine, TOPIC, missing, run_id="r", dead_letter_topic=name)
    with pytest.raises(UnknownTopicOrPartitionError):
        load_files(engine, TOPIC, missing, run_id="r", dead_letter_topic="none")
    with pytest.raises(InvalidRequestError, check=because(Reason.NO_DEAD_LETTER_TOPIC)):
        load_files(engine, TOPIC, missing, run_id="r", max_dead_letters=1)


def test_every_format_says_how_it_is_read_again(engine: Engine, write: Write, tmp_path: Path) -> None:
    """A letter has the options that a replay needs to read its row again, and no others, for each format."""
    load(
        engine, write("f.csv", MIXED.replace(",", ";")), delimiter=";", decimal=",", null_values=["NULL", ""]
    )
    load(engine, write("f.jsonl", '{"id": "x"}\n{"id": 1, "amount": 1}\n'), run_id="2")
    import pyarrow.parquet as pq

    odd = pa.table({"id": [1], "amount": pa.array([None], pa.int64()), "day": pa.nulls(1), "paid": [True]})
    pq.write_table(odd.set_column(1, "amount", pa.array([True])), tmp_path / "f.parquet")
    with pytest.raises(InvalidRecordError, check=because(Reason.TYPE_MISMATCH)):
        load(engine, tmp_path / "f.parquet", run_id="3")
    pq.write_table(odd.drop_columns("day"), tmp_path / "f.parquet")
    load(engine, tmp_path / "f.parquet", run_id="4", missing_columns="null")
    readings = [json.loads(row["reading"]) for row in dead(engine)]
    whose = {"incarnation": 0, "schema_version": 0}
    assert readings[0] == {"format": "csv", "decimal": ",", "null_values": ["NULL", ""], **whose}
    assert readings[-2] == {"format": "jsonl", **whose}
    of_parquet = {"format": "jsonl", "columns": {}, "binary": "base64", "missing_columns": "null"}
    assert readings[-1] == of_parquet | whose


ADDED = [
    AddColumn(pa.field("currency", pa.string(), nullable=False), default="EUR"),
    AddColumn(pa.field("fee", pa.decimal128(6, 2)), default=Decimal("0.10")),
    AddColumn(pa.field("note", pa.string())),
]
WITHOUT = {"currency": "EUR", "fee": Decimal("0.10"), "note": None}


def added_to(engine: Engine) -> list[dict[str, Any]]:
    """The added columns of each payment, in the order of the ids."""
    rows = sorted(engine.scan(TOPIC).to_table().to_pylist(), key=lambda row: row["id"])
    return [{name: row[name] for name in WITHOUT} for row in rows]


def test_columns_that_were_added_may_be_missing(engine: Engine, write: Write, tmp_path: Path) -> None:
    """A file of any format may lack columns that were added to the topic, and a JSON record may too. They get
    the values of older records. A column that the topic was created with may not be missing."""
    import pyarrow.parquet as pq

    engine.admin.alter_topic(TOPIC, ADDED)
    lines_of = [
        '{"id": 2, "amount": 2, "day": null, "paid": true}',
        '{"id": 3, "amount": 3, "currency": "USD", "fee": null}',
        '{"id": 4, "amount": 4, "currency": null}',
    ]
    found = [load(engine, write("f.csv", HEADER + "1,1.00,,\n"), run_id="csv")]
    found.append(load(engine, write("f.jsonl", "\n".join(lines_of)), run_id="jsonl"))
    row = {"id": 5, "amount": Decimal("5.00"), "day": None, "paid": None}
    pq.write_table(pa.Table.from_pylist([row], schema=SCHEMA), tmp_path / "f.parquet")
    found.append(load(engine, tmp_path / "f.parquet", run_id="parquet"))
    assert [(each.records, each.dead_letters) for each in found] == [(1, 0), (2, 1), (1, 0)]
    assert ids(engine) == [1, 2, 3, 5]
    mixed = {"currency": "USD", "fee": None, "note": None}
    assert added_to(engine) == [WITHOUT, WITHOUT, mixed, WITHOUT]
    assert dead(engine)[0]["reason"].startswith("currency is empty")
    with pytest.raises(InvalidRecordError, check=because(Reason.MISSING_COLUMN)):
        load(engine, write("g.csv", "id,amount,paid\n1,1,\n"), run_id="g")
    ours = HEADER.replace("paid", "paid,fee")
    assert load(engine, write("h.csv", f"{ours}6,6,,,7\n"), run_id="h").records == 1
    assert added_to(engine)[-1] == WITHOUT | {"fee": Decimal("7.00")}


POSITIVE = RowCheck("expect_column_values_to_be_between", {"column": "amount", "min_value": 0}, "positive")


def test_rows_that_fail_a_check(engine: Engine, write: Write) -> None:
    """Rows that fail a check become dead letters like rows that do not fit. A replay checks them again by
    default."""
    path = write("f.csv", HEADER + "1,1.00,,\n2,-2.00,,\n3,x,,\n4,-4.00,,\n5,5.00,,\n")
    found = load(engine, path, row_checks=[POSITIVE])
    assert (found.records, found.dead_letters, ids(engine)) == (2, 3, [1, 5])
    letters = {row["source_line"]: row for row in dead(engine)}
    assert letters[3]["reason"].startswith(
        "check positive failed; expected expect_column_values_to_be_between"
    )
    assert "-2.00" not in letters[3]["reason"]
    mended = {(0, letters[3]["_offset"]): json.dumps({"id": "2", "amount": "2.00", "day": "", "paid": ""})}
    done = replay(engine, DEAD, repaired=mended)
    assert (done.letters, done.records, done.failed_again) == (3, 1, 2)
    done = replay(engine, DEAD, without_checks=True)
    assert (done.records, done.failed_again, ids(engine)) == (1, 1, [1, 2, 4, 5])
    with pytest.raises(InvalidRecordError, check=because(Reason.CHECK_FAILED, "line 3")):
        load_files(
            engine, TOPIC, write("g.csv", HEADER + "1,1,,\n2,-2.00,,\n"), run_id="2", row_checks=[POSITIVE]
        )
    with pytest.raises(InvalidRequestError, check=because(Reason.UNKNOWN_COLUMN)):
        load(
            engine, path, run_id="2", row_checks=[RowCheck(POSITIVE.type, {"column": "none", "min_value": 0})]
        )


def test_counts_by_topic_and_reason(engine: Engine, write: Write) -> None:
    """One fault in many rows counts as one reason, whatever the values are."""
    load(engine, write("f.csv", HEADER + "".join(f"{row},x{row},,\n" for row in range(20)) + "1\n"))
    found = {each.reason.partition(";")[0]: each for each in counts(engine, DEAD)}
    assert {reason: (each.waiting, each.total) for reason, each in found.items()} == {
        "amount does not fit": (20, 20),
        "1 field": (1, 1),
    }


def test_reasons_are_held_up_to_a_number(
    engine: Engine, write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Reasons are counted up to a number, and later ones are counted together. Each letter has its own."""
    monkeypatch.setattr("txn_engine.loading.dead_letters.REASONS_MAX", 2)
    letters = DeadLetters(DEAD, TOPIC, DeadLetterLimit(), "r", engine.clock)
    path = write("f.csv", HEADER + "".join("x," * fields + "\n" for fields in (4, 5, 6, 6, 5)))
    list(read_records(path, SCHEMA, rejected=letters.taker("f", "{}")))
    assert {reason.partition(";")[0]: count for reason, (count, _) in letters.reasons.items()} == {
        "5 fields": 1,
        "6 fields": 2,
        "other reasons": 2,
    }


@pytest.mark.parametrize("after", in_shard("kills", [True, False], keep=1))
def test_dying_at_every_put(write: Write, after: bool) -> None:
    """If a load dies at any put and is run again, each row is there once in one of the two topics, and never
    one topic without the other."""
    path = write("f.csv", MIXED)
    at = -1
    for url in dying_at_every_put(set_up, lambda engine: load(engine, path), after=after):
        at += 1
        with connect(url) as engine:
            engine.coordinator.write_pending_markers()
            seen = ids(engine), [row["source_line"] for row in dead(engine)]
            assert seen in (([], []), ([1, 3], [3, 5, 6]))
            load(engine, path)
            assert (ids(engine), [row["source_line"] for row in dead(engine)]) == ([1, 3], [3, 5, 6])
    assert at >= 5


# --- which run it is --------------------------------------------------------------------------------------


def test_a_run_that_the_log_may_have_forgotten_is_refused(
    engine: Engine, write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run that is older than the log remembers is refused, whether or not it was loaded, until the caller
    says that it was not."""
    monkeypatch.setattr("txn_engine.protocol.transactions.MAX_RUN_IDS", 3)
    path = write("f.csv", HEADER + "1,1,,\n")
    for run_id in ("a", "b", "c", "d"):
        assert load(engine, path, run_id=run_id).records == 1
    for run_id in ("a", "e"):
        with refused(InvalidRequestError, Reason.RUN_FORGOTTEN) as caught:
            load(engine, path, run_id=run_id)
        assert "'load-files/payments'" in caught.value.seen
    assert load(engine, path, run_id="b").already_committed
    assert ids(engine) == [1] * 4
    assert load(engine, path, run_id="e", forgotten_runs="load").records == 1
    assert load(engine, path, run_id="e", forgotten_runs="load").already_committed
    with refused(InvalidRequestError, Reason.BAD_ARGUMENT):
        load(engine, path, run_id="f", forgotten_runs="maybe")
    assert ids(engine) == [1] * 5


def made_again(engine: Engine) -> None:
    engine.admin.delete_topic(TOPIC)
    engine.admin.create_topic(TOPIC, partitions=2, schema=SCHEMA, key="id")


def test_a_topic_made_again_has_loaded_nothing(engine: Engine, write: Write) -> None:
    """After a topic was created again, the same run is loaded into it once."""
    path = write("f.csv", HEADER + "1,1,,\n")
    for _ in range(2):
        assert load(engine, path).records == 1
        assert load(engine, path).already_committed
        assert ids(engine) == [1]
        made_again(engine)


def test_a_topic_made_again_while_it_is_loaded(
    engine: Engine, write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If a topic is created again during a load, nothing is loaded, because the run would have the name that
    it has in the deleted topic."""
    path = write("f.csv", HEADER + "1,1,,\n")
    take = FileLoad.take
    with monkeypatch.context() as patched:
        patched.setattr(FileLoad, "take", lambda *given, **more: (made_again(engine), take(*given, **more)))
        with refused(UnknownTopicOrPartitionError, Reason.TOPIC_DELETED):
            load(engine, path)
    assert ids(engine) == []
    assert load(engine, path).records == 1
    assert load(engine, path).already_committed


RUN_IDS = st.text("ab@incarnation=01,", max_size=20) | st.sampled_from(["a@incarnation=1", "a@incarnation=0"])


@given(st.dictionaries(st.tuples(RUN_IDS, st.integers(0, 3)), st.none(), max_size=20))
def test_no_two_runs_get_one_name(runs: dict[tuple[str, int], None]) -> None:
    """No two runs into incarnations of a topic get the same name, whatever their ids are."""
    names = {run_into(run_id, Topic("t", number, 1, SCHEMA, None, -1, 0)) for run_id, number in runs}
    assert len(names) == len(runs)
    assert run_into("monday", Topic("t", 0, 1, SCHEMA, None, -1, 0)) == "monday"


def test_a_file_that_somebody_still_writes(engine: Engine, write: Write) -> None:
    """A file that still grows is refused, because its last value may be incomplete. A file that is replaced
    or moved away is whole."""
    path = write("f.csv", "1,1.0")
    reading = {"missing_columns": "null", "header": ["id", "amount"]}

    def read_while(change: Callable[[int], object]) -> int:
        reads = FileLoad(engine, engine.logs.topics.look_up(TOPIC), reading)
        reads.take(path, progress=change)
        return reads.records

    with pytest.raises(InvalidRecordError, check=because(Reason.FILE_CHANGED, "f.csv")):
        read_while(lambda _: path.write_text("1,1.05\n"))
    other = write("g.csv", "2,2.0")
    assert read_while(lambda _: other.rename(path) if other.exists() else None) == 1
    assert read_while(lambda _: path.unlink(missing_ok=True)) == 1


def test_a_file_without_rows_beside_others(engine: Engine, write: Write) -> None:
    """A file without rows is named, and the others are loaded. Without any rows, nothing is loaded, unless a
    manifest knows the others."""
    engine.admin.create_topic("loaded", partitions=1, schema=LOADED_FILES)
    (write("x", "").parent / "in").mkdir()
    whole, empty = write("in/b.csv", MIXED), [write("in/a.csv", HEADER), write("in/c.csv", "")]
    for run_id in ("1", "2"):
        done = load_files(
            engine, TOPIC, whole.parent, run_id=run_id, dead_letter_topic=DEAD, manifest="loaded"
        )
        assert (done.records, done.empty) == ((2, 0)[int(run_id) - 1], tuple(map(str, empty)))
    with refused(InvalidRecordError, Reason.NO_RECORDS):
        load_files(engine, TOPIC, whole.parent / "[ac].csv", run_id="3")
    with refused(InvalidRecordError, Reason.NO_RECORDS):
        load_files(engine, TOPIC, [whole, empty[0]], run_id="4", dead_letter_topic=DEAD)
    assert len(ids(engine)) == 2
