"""Dead letters are replayed into their topics, each once, repaired or unchanged. A letter that fails again
becomes a new one."""

from __future__ import annotations

import json
import sys
import tracemalloc
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.loading.ledgers import (
    DEAD,
    HEADER,
    MIXED,
    SCHEMA,
    TOPIC,
    dead,
    dying_at_every_put,
    ids,
    load,
    set_up,
)
from tests.loading.refusals import because
from tests.suite.tiers import in_shard
from txn_engine import AddColumn, DropColumn, Engine, RenameColumn, WidenColumn, connect
from txn_engine.errors import InvalidRequestError, OffsetsMovedError, ProducerFencedError
from txn_engine.loading import DEAD_LETTERS, counts, load_files, read_repaired, replay
from txn_engine.loading.letter_rows import repair_line
from txn_engine.reasons import Reason

Write = Callable[..., Path]


def mended(engine: Engine, changes: dict[int, dict[str, Any]]) -> dict[tuple[int, int], str]:
    """The repaired rows of the letters with these lines, after these changes."""
    found = {}
    for letter in dead(engine):
        change = changes.get(letter["source_line"])
        if change is not None:
            row = {**json.loads(repair_line(letter)), **change}
            columns = {name: value for name, value in row.items() if not name.startswith("_")}
            found[letter["_partition"], letter["_offset"]] = json.dumps(columns)
    return found


def test_repaired_rows_are_loaded_and_the_others_come_back(engine: Engine, write: Write) -> None:
    """Repaired rows are loaded. The other letters come back with one try more and no other change, and wait
    for the next replay."""
    load(engine, write("f.csv", MIXED))
    done = replay(engine, DEAD, repaired=mended(engine, {3: {"amount": "2.50"}}))
    assert (done.letters, done.records, done.failed_again) == (3, 1, 2)
    assert ids(engine) == [1, 2, 3]
    came_back = {row["source_line"]: (row["tries"], row["raw"]) for row in dead(engine)[3:]}
    assert came_back == {5: (2, b"4,4\n"), 6: (2, None)}
    assert sum(each.waiting for each in counts(engine, DEAD)) == 2
    whole = {"id": "4", "amount": 4, "day": None, "paid": True}
    done = replay(
        engine, DEAD, repaired={(0, row["_offset"]): json.dumps(whole) for row in dead(engine)[3:4]}
    )
    assert (done.letters, done.records + done.failed_again) == (2, 2)


def test_nothing_and_the_empty_text_stay_apart(engine: Engine, write: Write) -> None:
    """A letter of csv keeps what was null and what was an empty text, and a replay loads them as such."""
    texts = pa.schema([pa.field("a", pa.string()), pa.field("n", pa.int64())])
    engine.admin.create_topic("texts", schema=texts)
    load_files(
        engine,
        "texts",
        write("f.csv", 'a,n\n,x\n"",x\n"NULL",x\nNULL,x\n"1",x\n'),
        run_id="1",
        dead_letter_topic=DEAD,
        null_values=["", "NULL"],
    )
    rows = [json.loads(row["columns"])["a"] for row in dead(engine)]
    assert rows == [None, "", "NULL", None, "1"]
    repaired = {
        (row["_partition"], row["_offset"]): json.dumps({**json.loads(row["columns"]), "n": 1})
        for row in dead(engine)
    }
    assert replay(engine, DEAD, repaired=repaired).records == 5
    found = engine.scan("texts").to_table(["a"]).column("a").to_pylist()
    assert found == [None, "", "NULL", None, "1"]


@pytest.mark.parametrize("failed_at", [-(2**62), 2**62, -(2**63), 2**63 - 1])
def test_a_letter_of_any_time_stops_no_other(engine: Engine, write: Write, failed_at: int) -> None:
    """A letter may say that it failed at a time that Python does not have. It is replayed like the others."""
    load(engine, write("f.csv", MIXED))
    letters = engine.scan(DEAD).to_table(DEAD_LETTERS.names)
    times = pa.array([failed_at] * letters.num_rows, pa.int64()).cast(pa.timestamp("ms", "UTC"))
    with engine.producer() as producer:
        place = letters.schema.get_field_index("failed_at")
        producer.produce(DEAD, letters.set_column(place, DEAD_LETTERS.field("failed_at"), times)).result()
    done = replay(engine, DEAD)
    assert (done.letters, done.failed_again) == (6, 6)


_CHECKS = '{"format": "jsonl", "row_checks": [{"type": "range", "name": "n", "arguments": %s}]}'


_CHECK_NAMED = (
    '{"format": "jsonl", "row_checks": [{"type": "expect_column_values_to_not_be_null", "name": %s, '
    '"arguments": {"column": "id"}}]}'
)


@pytest.mark.parametrize(
    "reading",
    [
        pytest.param(_CHECKS % ('{"column": "id", "min": ' + "9" * 6_000 + "}"), id="long-number"),
        pytest.param(_CHECKS % '{"a": 1e99999999999999999999}', id="large-exponent"),
        pytest.param(_CHECKS % ("[" * 50_000), id="deep"),
        pytest.param('{"format": "jsonl", "encoding": "idna"}', id="idna"),
        pytest.param('{"format": "jsonl", "encoding": "punycode"}', id="punycode"),
        pytest.param('{"format": "jsonl", "encoding": "undefined"}', id="undefined"),
        pytest.param(_CHECK_NAMED % "5", id="name-of-a-check"),
        pytest.param(_CHECK_NAMED % "true", id="flag-for-a-check"),
        pytest.param('{"format": "jsonl", "columns": {"id": "\\ud800"}}', id="half-a-character"),
        pytest.param('{"format": "csv", "null_values": ["\\udfff"]}', id="half-a-null"),
    ],
)
def test_a_letter_that_says_anything_of_its_reading_stops_no_other(
    engine: Engine, write: Write, reading: str
) -> None:
    """A letter may hold whatever somebody wrote. It comes back, the others are replayed, and all are shown."""
    load(engine, write("f.csv", MIXED))
    letters = engine.scan(DEAD).to_table(DEAD_LETTERS.names).slice(0, 1)
    for name, value in {"reading": reading, "columns": None, "raw": b"\xff" * 70}.items():
        column = pa.array([value], DEAD_LETTERS.field(name).type)
        letters = letters.set_column(letters.schema.get_field_index(name), DEAD_LETTERS.field(name), column)
    with engine.producer() as producer:
        producer.produce(DEAD, letters).result()
    assert all(repair_line(letter) for letter in dead(engine))
    done = replay(engine, DEAD, repaired=mended(engine, {3: {"amount": "2.50"}}))
    assert (done.letters, done.records) == (4, 1)


def test_all_repaired(engine: Engine, write: Write) -> None:
    """After all letters are repaired, the topic has every row of the file exactly, whatever JSON type a
    repaired value has."""
    load(engine, write("f.csv", MIXED))
    whole = {"id": 4, "amount": 4.10, "day": None, "paid": False}
    done = replay(
        engine,
        DEAD,
        repaired=mended(engine, {3: {"amount": 2.50}, 5: whole, 6: {"amount": "5.01", "day": "2026-02-01"}}),
    )
    assert (done.records, done.failed_again) == (3, 0)
    rows = {row["id"]: row for row in engine.scan(TOPIC).to_table().to_pylist()}
    assert {number: row["amount"] for number, row in rows.items()} == {
        1: Decimal(1), 2: Decimal("2.50"), 3: Decimal(3), 4: Decimal("4.10"), 5: Decimal("5.01")
    }  # fmt: skip
    assert (rows[5]["paid"], rows[4]["paid"], rows[4]["day"]) == (True, False, None)


def test_twice_is_once(engine: Engine, write: Write) -> None:
    """A second replay with the same repaired rows, or without any, changes nothing. A file whose rows are
    partly replayed is refused."""
    load(engine, write("f.csv", MIXED))
    rows = mended(engine, {3: {"amount": "2"}, 5: {"id": "4", "amount": "4"}, 6: {"amount": "5"}})
    assert replay(engine, DEAD, repaired=rows).records + len(dead(engine)) - 3 == 3
    before = ids(engine), dead(engine)
    assert replay(engine, DEAD, repaired=rows).before
    assert (ids(engine), dead(engine)) == before
    load(engine, write("f.csv", MIXED), run_id="tuesday")
    waiting = dead(engine)[-1]["_offset"]
    with pytest.raises(InvalidRequestError, check=because(Reason.ALREADY_REPLAYED)):
        replay(engine, DEAD, repaired={**rows, (0, waiting): "{}"})


def test_letters_that_failed_again_are_counted_when_an_old_file_comes(engine: Engine, write: Write) -> None:
    """A replay gives letters that fail again new offsets. An older file of repaired rows then changes nothing, and the
    answer says how many letters still wait, and why the first one failed."""
    load(engine, write("f.csv", MIXED))
    rows = mended(
        engine,
        {3: {"amount": "2"}, 5: {"id": "4", "amount": "4", "day": None, "paid": None}, 6: {"amount": "5"}},
    )
    first = replay(engine, DEAD)
    assert (first.failed_again, first.before) == (3, False)
    assert first.reason == dead(engine)[-3]["reason"] != ""
    again = replay(engine, DEAD, repaired=rows)
    assert (again.before, again.waiting, again.records) == (True, 3, 0)
    fresh = {
        (letter["_partition"], letter["_offset"]): rows[0, number]
        for number, letter in enumerate(dead(engine)[-3:])
    }
    assert replay(engine, DEAD, repaired=fresh).failed_again == 0
    load(engine, write("f.csv", MIXED), run_id="tuesday")
    retried = replay(engine, DEAD, repaired=fresh)
    assert (retried.before, retried.waiting) == (True, 0)


@pytest.mark.parametrize("text", ["", "\n \n"])
def test_a_file_without_a_repaired_row_is_refused(write: Write, text: str) -> None:
    """The program that was to write the file may have failed, so an empty file does not mean "no repairs"."""
    with pytest.raises(InvalidRequestError, check=because(Reason.NO_REPAIRED_ROW)):
        read_repaired(write("repaired.jsonl", text))


def test_nothing_waits(engine: Engine) -> None:
    """A replay of an empty topic says so and writes nothing."""
    assert replay(engine, DEAD).before


@pytest.mark.parametrize("place", [(0, 99), (7, 0)])
def test_a_repaired_row_of_no_letter(engine: Engine, write: Write, place: tuple[int, int]) -> None:
    """A repaired row without a letter is refused, and nothing is replayed."""
    load(engine, write("f.csv", MIXED))
    with pytest.raises(InvalidRequestError, check=because(Reason.UNKNOWN_LETTER)):
        replay(engine, DEAD, repaired={place: "{}"})
    assert (ids(engine), len(dead(engine))) == ([1, 3], 3)


def test_what_a_change_of_columns_made_possible_goes_through(engine: Engine, write: Write) -> None:
    """A row that fits after a change of the topic's columns is loaded without a repair."""
    load(engine, write("f.jsonl", '{"id": 1, "amount": 1, "note": "x"}\n{"id": 2, "amount": 2}\n'))
    engine.admin.alter_topic(TOPIC, [AddColumn(pa.field("note", pa.string()))])
    assert replay(engine, DEAD).records == 1
    rows = {row["id"]: row["note"] for row in engine.scan(TOPIC).to_table().to_pylist()}
    assert rows == {1: "x", 2: None}


RENAMED = [RenameColumn("amount", "value"), DropColumn("paid"), AddColumn(pa.field("c", pa.string()), "EUR")]


def values(engine: Engine) -> list[dict[str, Any]]:
    rows = engine.scan(TOPIC).to_table(["id", "value", "day", "c"]).to_pylist()
    return sorted(rows, key=lambda row: row["id"])


@pytest.mark.parametrize("mend", ["then", "now", "by the file's name"])
def test_letters_of_before_a_rename_go_by_the_columns_of_then(
    engine: Engine, write: Write, tmp_path: Path, mend: str
) -> None:
    """After a rename, letters of every format are read by the columns of their time, even with names of the
    file's own. A repair may use the old or the new name."""
    row = {"id": [3], "amount": ["3"], "day": ["x"], "paid": ["y"]}
    renaming: dict[str, Any] = {}
    if mend == "by the file's name":
        row, renaming = {"id": [3], "Betrag": ["3"], "day": ["x"], "paid": ["y"]}, {"amount": "Betrag"}
    names = list(row)
    load(engine, write("f.csv", f"{','.join(names)}\n1,bad,,\n"), run_id="csv", columns=renaming)
    line = json.dumps({name: each[0] for name, each in row.items()} | {"id": 2})
    load(engine, write("f.jsonl", line), run_id="jsonl", columns=renaming)
    assert len(dead(engine)) == 2
    engine.admin.alter_topic(TOPIC, RENAMED)
    name = {"then": "amount", "now": "value"}.get(mend, "Betrag")
    mended_rows: dict[tuple[int, int], str] = {}
    for number, letter in enumerate(dead(engine), start=1):
        held = json.loads(letter["columns"]) | {"day": ""}
        held.pop(names[1])
        mended_rows[0, letter["_offset"]] = json.dumps(held | {name: f"{number}.50", "day": None})
    done = replay(engine, DEAD, repaired=mended_rows)
    assert (done.records, done.failed_again) == (2, 0)
    assert values(engine) == [
        {"id": number, "value": Decimal(f"{number}.50"), "day": None, "c": "EUR"} for number in (1, 2)
    ]


def test_letters_that_need_no_mending_any_more_go_through_behind_a_rename(
    engine: Engine, write: Write
) -> None:
    """After a rename, a letter whose wrong column was dropped is loaded without a repair. A letter that fails
    again comes back unchanged."""
    engine.admin.alter_topic(TOPIC, RenameColumn("paid", "was_paid"))
    load(engine, write("f.csv", "id,amount,day,was_paid\n1,1.00,,maybe\n2,x,,true\n"))
    before = [row["columns"] for row in dead(engine)]
    engine.admin.alter_topic(TOPIC, [DropColumn("was_paid"), RenameColumn("amount", "value")])
    done = replay(engine, DEAD)
    assert (done.records, done.failed_again, ids(engine)) == (1, 1, [1])
    again = dead(engine)[-1]
    assert (again["columns"], again["reason"].partition(" ")[0], again["tries"]) == (before[1], "value", 2)


def test_columns_that_a_file_had_beside_the_topics_are_still_passed_over(
    engine: Engine, write: Write
) -> None:
    """A column that the file had and the load ignored stays ignored, even if a column of the topic has that
    name by now."""
    text = '{"id": 1, "amount": "x", "day": null, "paid": null, "value": "9"}'
    load(engine, write("f.jsonl", text), unknown_columns="ignore")
    engine.admin.alter_topic(TOPIC, [RenameColumn("amount", "value"), WidenColumn("value", CENTS)])
    row = {**json.loads(text), "amount": "1.50"}
    assert replay(engine, DEAD, repaired={(0, 0): json.dumps(row)}).records == 1
    assert engine.scan(TOPIC).to_table()["value"].to_pylist() == [Decimal("1.50")]


CENTS = pa.decimal128(20, 2)


@pytest.mark.parametrize("unknown", ["refuse", "ignore"])
def test_letters_that_do_not_say_their_version(engine: Engine, write: Write, unknown: str) -> None:
    """A letter of an older program has no version. If the file had no other columns, an old name means the
    column that had it. Otherwise the letter comes back with what to do."""
    load(engine, write("f.csv", HEADER + "1,x,,\n"), unknown_columns=unknown)
    (letter,) = dead(engine)
    old = {name: letter[name] for name in DEAD_LETTERS.names}
    reading = json.loads(old["reading"])
    del reading["incarnation"], reading["schema_version"]
    old["reading"] = json.dumps(reading)
    engine.producer().produce(DEAD, pa.Table.from_pylist([old], schema=DEAD_LETTERS)).result()
    engine.admin.alter_topic(TOPIC, RenameColumn("amount", "value"))
    row = {"id": "1", "amount": "1.50", "day": "", "paid": ""}
    done = replay(engine, DEAD, repaired={(0, dead(engine)[1]["_offset"]): json.dumps(row)})
    assert done.records == (1 if unknown == "refuse" else 0)
    if unknown == "ignore":
        back = next(each for each in dead(engine)[2:] if "may be the one" in each["reason"])
        assert "'value' now; expected a mended row with the names of now" in back["reason"]
        row["value"] = row.pop("amount")
        done = replay(engine, DEAD, repaired={(0, back["_offset"]): json.dumps(row)})
        assert done.records == 1
    assert engine.scan(TOPIC).to_table()["value"].to_pylist() == [Decimal("1.50")]


def test_letters_of_a_topic_that_was_made_again(engine: Engine, write: Write) -> None:
    """After a topic was created again, its letters are read by the new topic's names, because a version
    number of the deleted topic says nothing."""
    engine.admin.alter_topic(TOPIC, RenameColumn("amount", "value"))
    load(engine, write("f.csv", "id,value,day,paid,note\n1,x,,,other\n"), unknown_columns="ignore")
    engine.admin.delete_topic(TOPIC)
    engine.admin.create_topic(TOPIC, schema=SCHEMA, key="id")
    engine.admin.alter_topic(TOPIC, AddColumn(pa.field("note", pa.string())))
    engine.admin.alter_topic(TOPIC, RenameColumn("note", "remark"))
    row = {"id": "1", "amount": "1", "day": "", "paid": "true", "note": "other"}
    assert replay(engine, DEAD, repaired={(0, 0): json.dumps(row)}).records == 1
    assert engine.scan(TOPIC).to_table()["remark"].to_pylist() == [None]


def test_a_topic_that_is_gone_and_letters_that_are_damaged(engine: Engine, write: Write) -> None:
    """A letter whose topic is gone, or that is damaged, comes back with that reason. The others are
    replayed."""
    load(engine, write("f.csv", MIXED))
    good = {name: value for name, value in dead(engine)[0].items() if name in DEAD_LETTERS.names}
    columns = json.dumps({"id": "9", "amount": "9", "day": "", "paid": ""})
    odd = [
        good | {"topic": "gone"},
        good | {"topic": DEAD},
        good | {"columns": "[]"},
        good | {"columns": '{"id": {}}'},
        good | {"reading": '{"format": "csv", "columns": 5}'},
        good | {"reading": '{"format": "xml"}'},
        good | {"reading": "no JSON"},
        good | {"reading": '{"format": "csv", "date_format": "%d"}'},
        good | {"reading": '{"format": "csv", "encoding": "none"}'},
        good | {"reading": '{"format": "csv", "partition": true}'},
        good | {"reading": '{"format": "csv", "partition": -1}'},
        good | {"columns": '{"id": "\\ud800", "amount": "1", "day": "", "paid": ""}'},
        good | {"columns": "  ", "reading": '{"format": "jsonl"}'},
        good | {"columns": '{"id": 8, "amount": 1}', "reading": '{"format": "jsonl"}'},
        good | {"columns": columns},
    ]
    with engine.producer() as producer:
        producer.produce(DEAD, pa.Table.from_pylist(odd, schema=DEAD_LETTERS)).result()
    done = replay(engine, DEAD)
    assert (done.letters, done.records, done.failed_again) == (18, 2, 16)
    assert ids(engine) == [1, 3, 8, 9]
    reasons = {row["reason"].partition(";")[0] for row in dead(engine) if row["tries"] == 2}
    assert {"no such topic", "a dead letter that does not say how it is read"} <= reasons


def test_rows_are_read_as_their_file_was(engine: Engine, write: Write, tmp_path: Path) -> None:
    """Dates, decimal marks, nulls and names are read as in the letter's file, so only the wrong value has to
    be repaired."""
    text = 'Nr;amount;day;paid\n1;"1,50";31.01.2026;-\n2;"2,5x";01.02.2026;-\n'
    german = {
        "delimiter": ";",
        "decimal": ",",
        "date_format": "%d.%m.%Y",
        "null_values": ["-"],
        "columns": {"id": "Nr"},
    }
    load(engine, write("f.csv", text), **german)
    assert replay(engine, DEAD, repaired=mended(engine, {3: {"amount": "2,50"}})).records == 1
    rows = {
        row["id"]: (row["amount"], str(row["day"]), row["paid"])
        for row in engine.scan(TOPIC).to_table().to_pylist()
    }
    assert rows == {1: (Decimal("1.50"), "2026-01-31", None), 2: (Decimal("2.50"), "2026-02-01", None)}


def test_parquet_rows_and_bytes(engine: Engine, tmp_path: Path) -> None:
    """Rows of Parquet and bytes go through JSON without a loss."""
    schema = pa.schema([pa.field("key", pa.binary()), pa.field("n", pa.int32(), nullable=False)])
    engine.admin.create_topic("bytes", partitions=1, schema=schema)
    pq.write_table(
        pa.table({"key": [b"\x00\xff"], "n": pa.array([None], pa.int32())}), tmp_path / "f.parquet"
    )
    load_files(engine, "bytes", tmp_path / "f.parquet", run_id="1", dead_letter_topic=DEAD)
    assert replay(engine, DEAD, repaired=mended(engine, {1: {"n": 7}})).records == 1
    (row,) = engine.scan("bytes").to_table().to_pylist()
    assert (row["key"], row["n"]) == (b"\x00\xff", 7)


def test_json_of_another_encoding(engine: Engine, write: Write) -> None:
    """A JSON row in another encoding is read, and shown, in the encoding of its file."""
    schema = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("note", pa.string())])
    engine.admin.create_topic("notes", partitions=1, schema=schema)
    text = '{"id": 1, "note": "Caf\u00c3\u00a9", "extra": "x"}\n{"id": 2, "note": "\u00e9"\n'
    options = {"run_id": "1", "dead_letter_topic": DEAD, "encoding": "latin-1"}
    assert load_files(engine, "notes", write("f.jsonl", text.encode("latin-1")), **options).dead_letters == 2
    first, second = dead(engine)
    assert json.loads(first["reading"])["encoding"] == "latin-1"
    assert json.loads(repair_line(second))["_raw"] == '{"id": 2, "note": "\u00e9"\n'
    engine.admin.alter_topic("notes", [AddColumn(pa.field("extra", pa.string()))])
    done = replay(engine, DEAD, repaired=mended(engine, {2: {"id": 2}}))
    assert (done.records, done.failed_again) == (2, 0)
    found = engine.scan("notes").to_table().to_pylist()
    assert [(row["id"], row["note"]) for row in found] == [(1, "Caf\u00c3\u00a9"), (2, None)]


def test_a_name_twice_is_never_one_of_the_two(engine: Engine, write: Write) -> None:
    """If a name is in a row twice, neither value is used: the name is not shown for repair, and a repair with
    it twice is refused."""
    load(engine, write("f.jsonl", '{"id": 1, "amount": 1, "amount": 2}\n'))
    shown = json.loads(repair_line(dead(engine)[0]))
    assert ("amount" in shown, shown["_raw"]) == (False, '{"id": 1, "amount": 1, "amount": 2}\n')
    twice = '{"_partition": 0, "_offset": 0, "id": 1, "amount": 1, "amount": 2}'
    with pytest.raises(InvalidRequestError, check=because(Reason.BAD_REPAIRED_ROW, "line 1")):
        read_repaired(write("r.jsonl", twice))
    assert replay(engine, DEAD).failed_again == 1
    assert ids(engine) == []


def test_a_row_goes_into_the_partition_that_its_file_was_for(engine: Engine, write: Write) -> None:
    """A row goes into the partition that its file was loaded into, not into its key's. If that partition does
    not exist, the letter comes back."""
    load(engine, write("f.csv", MIXED), partition=1)
    rows = mended(engine, {3: {"amount": "2"}, 6: {"amount": "5"}})
    assert replay(engine, DEAD, repaired=rows).records == 2
    assert {row["_partition"] for row in engine.scan(TOPIC).to_table().to_pylist()} == {1}
    engine.admin.delete_topic(TOPIC)
    engine.admin.create_topic(TOPIC, partitions=1, schema=SCHEMA, key="id")
    assert replay(engine, DEAD).failed_again == 1
    assert dead(engine)[-1]["reason"] == "a partition that the topic does not have"


def test_text_of_parquet_that_is_no_utf_8(engine: Engine, tmp_path: Path) -> None:
    """Text of a Parquet file that is not UTF-8 becomes a dead letter with its bytes, and no replay takes them
    for text."""
    schema = pa.schema(
        [pa.field("n", pa.int32()), pa.field("s", pa.string()), pa.field("l", pa.list_(pa.string()))]
    )
    engine.admin.create_topic("texts", partitions=1, schema=schema)
    odd = pa.array([b"ok", b"\xff\xfe", b"ok"]).view(pa.string())
    table = pa.table(
        {"n": [1, 2, 3], "s": odd, "l": pa.ListArray.from_arrays([0, 1, 2, 3], odd.take([0, 0, 1]))}
    )
    pq.write_table(table, tmp_path / "f.parquet")
    found = load_files(engine, "texts", tmp_path / "f.parquet", run_id="1", dead_letter_topic=DEAD)
    assert (found.records, found.dead_letters) == (1, 2)
    assert [row["reason"].partition(";")[0] for row in dead(engine)] == ["s does not fit", "l does not fit"]
    assert json.loads(dead(engine)[0]["columns"])["s"] == {"not_utf8": "//4="}
    assert json.loads(dead(engine)[1]["columns"])["l"] == {"not_utf8": ["//4="]}
    assert replay(engine, DEAD).failed_again == 2
    rows = mended(engine, {2: {"s": "x"}, 3: {"l": ["y"]}})
    rows = {place: row for place, row in rows.items() if place[1] > 1}
    assert replay(engine, DEAD, repaired=rows).records == 2
    assert [row["s"] for row in engine.scan("texts").to_table().to_pylist()] == ["ok", "x", "ok"]


def test_letters_of_several_kinds_by_turns(engine: Engine, write: Write) -> None:
    """Letters of several kinds in turn make few files, and records and returned letters keep their order.
    Bytes that nobody has repaired keep their reason."""
    load(engine, write("f.csv", HEADER + "1,x,,\n1\n" * 20))
    by_turns = [{"id": 1, "amount": at, "day": None, "paid": None} for at in range(30)]
    rows = {
        (0, at): json.dumps(dict(list(row.items())[:: 1 if at % 2 else -1]))
        for at, row in enumerate(by_turns)
    }
    done = replay(engine, DEAD, repaired=rows)
    assert (done.letters, done.records, done.failed_again) == (40, 30, 10)
    records = engine.scan(TOPIC)
    assert [row["amount"] for row in records.to_table().to_pylist()] == list(range(30))
    assert len(list(records.files())) == 1
    assert len(list(engine.scan(DEAD).files())) == 2
    back = dead(engine)[40:]
    assert [row["source_line"] for row in back] == list(range(32, 42))
    assert {row["reason"] for row in back if row["raw"]} == {"1 field; expected 4, as the header has"}


def test_a_dry_run_writes_nothing(engine: Engine, write: Write) -> None:
    """A dry run writes nothing and says what the replay would do."""
    load(engine, write("f.csv", MIXED))
    rows = mended(engine, {3: {"amount": "2"}})
    found = replay(engine, DEAD, repaired=rows, dry_run=True)
    assert (found.letters, found.records, found.failed_again) == (3, 1, 2)
    assert (ids(engine), len(dead(engine))) == ([1, 3], 3)
    done = replay(engine, DEAD, repaired=rows)
    assert (done.letters, done.records, done.failed_again) == (3, 1, 2)


def test_two_at_once(engine: Engine, write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of two replays at the same time, one is refused and nothing of it is visible."""
    load(engine, write("f.csv", MIXED))
    rows = mended(engine, {3: {"amount": "2"}})
    module = sys.modules["txn_engine.loading.replay"]  # the package's own name is the function
    inner = module.letters_in
    calls = []

    def overtaken(batch: Any) -> Any:
        calls.append(1)
        if len(calls) == 1:
            assert replay(engine, DEAD, repaired=rows).records == 1
        return inner(batch)

    monkeypatch.setattr(module, "letters_in", overtaken)
    with pytest.raises((ProducerFencedError, OffsetsMovedError)):
        replay(engine, DEAD, repaired=rows)
    assert ids(engine) == [1, 2, 3]
    assert len(dead(engine)) == 5


@pytest.mark.parametrize("after", in_shard("kills", [True, False], keep=1))
def test_dying_at_every_put(write: Write, after: bool) -> None:
    """If a replay dies at any put and is run again, the repaired row is loaded once and the others come back
    once."""
    path = write("f.csv", MIXED)
    rows: dict[tuple[int, int], str] = {}

    def prepare(engine: Engine) -> None:
        set_up(engine)
        load(engine, path)
        rows.update(mended(engine, {3: {"amount": "2"}}))

    at = -1
    for url in dying_at_every_put(prepare, lambda engine: replay(engine, DEAD, repaired=rows), after=after):
        at += 1
        with connect(url) as engine:
            engine.coordinator.write_pending_markers()
            assert (ids(engine), len(dead(engine))) in (([1, 3], 3), ([1, 2, 3], 5))
            replay(engine, DEAD, repaired=rows)
            assert (ids(engine), len(dead(engine))) == ([1, 2, 3], 5)
            assert max(row["tries"] for row in dead(engine)) == 2
    assert at >= 4


BAD_REPAIRED = {
    "no JSON": "x",
    "no object": "[]",
    "no place": '{"id": 1}',
    "no number": '{"_partition": "0", "_offset": 1}',
    "a fraction": '{"_partition": 0, "_offset": 1.0}',
    "below 0": '{"_partition": 0, "_offset": -1}',
    "no offset": f'{{"_partition": 0, "_offset": {"9" * 5_000}}}',
    "named twice": '{"_partition": 0, "_offset": 0}\n{"_partition": 0, "_offset": 0}',
}


@pytest.mark.parametrize("name", BAD_REPAIRED)
def test_a_file_of_repaired_rows_that_is_none(write: Write, name: str) -> None:
    """An invalid file of repaired rows is refused with the line of its fault."""
    text = BAD_REPAIRED[name]
    with pytest.raises(
        InvalidRequestError, check=because(Reason.BAD_REPAIRED_ROW, f"line {len(text.splitlines()) + 1}")
    ):
        read_repaired(write("r.jsonl", f"\n{text}\n"))
    with pytest.raises(InvalidRequestError, check=because(Reason.FILE_UNREADABLE)):
        read_repaired(Path("/none/at/all"))
    with pytest.raises(InvalidRequestError, check=because(Reason.BAD_ENCODING)):
        read_repaired(write("r.jsonl", b"\xff\n"))


def test_a_repaired_row_with_half_a_character(engine: Engine, write: Write) -> None:
    """A repaired row with half a surrogate pair, which JSON can have and UTF-8 cannot, comes back. The others
    are loaded."""
    engine.admin.create_topic(
        "texts", partitions=1, schema=pa.schema([("n", pa.int32()), ("s", pa.string())])
    )
    rows = '{"n": "x", "s": "\\ud800"}\n{"n": "y", "s": "\\ud83d\\ude00"}\n'
    load_files(engine, "texts", write("f.jsonl", rows), run_id="1", dead_letter_topic=DEAD)
    mended_rows = "\n".join(map(repair_line, dead(engine))).replace('"x"', "1").replace('"y"', "2")
    done = replay(engine, DEAD, repaired=read_repaired(write("r.jsonl", mended_rows)))
    assert (done.records, done.failed_again) == (1, 1)
    assert engine.scan("texts").to_table().select(["n", "s"]).to_pylist() == [{"n": 2, "s": "\U0001f600"}]
    assert dead(engine)[-1]["columns"] == '{"n": 1, "s": "\\ud800"}'


def test_a_repaired_row_keeps_its_digits(write: Write) -> None:
    """A repaired row keeps all digits of its numbers, because no float is used. An editor's byte order mark
    is ignored."""
    line = '{"_partition": 0, "_offset": 3, "_reason": "r", "_raw": "x", "amount": 0.10, "deep": [1.0, {"a": 1e400}]}'
    assert read_repaired(write("r.jsonl", f"\ufeff{line}")) == {
        (0, 3): '{"amount": 0.10, "deep": [1.0, {"a": 1e400}]}'
    }


def test_a_repaired_row_of_any_length_is_not_read(write: Write) -> None:
    """A line is read no further than a row of a load. A file may be longer than the disk."""
    path = write("r.jsonl", "")
    with path.open("r+b") as file:
        file.truncate(1 << 30)
    tracemalloc.start()
    try:
        with pytest.raises(InvalidRequestError) as refused:
            read_repaired(path)
        assert tracemalloc.get_traced_memory()[1] < 150 << 20
    finally:
        tracemalloc.stop()
    assert refused.value.reason is Reason.ROW_TOO_LONG


def test_a_repaired_row_with_too_many_values_is_not_read(write: Write) -> None:
    """Its values would take a hundred times the memory of its text."""
    ones = ",".join(["1"] * 1_000_001)
    tracemalloc.start()
    try:
        with pytest.raises(InvalidRequestError) as refused:
            read_repaired(write("r.jsonl", f'{{"_partition": 0, "_offset": 3, "deep": [{ones}]}}'))
        assert tracemalloc.get_traced_memory()[1] < 40 << 20
    finally:
        tracemalloc.stop()
    assert refused.value.reason is Reason.BAD_REPAIRED_ROW
