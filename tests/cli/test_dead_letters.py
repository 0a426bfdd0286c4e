"""Rows that cannot be used are loaded, listed, shown, repaired and replayed from the command line."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.cli.conftest import GOOD, Run
from txn_engine import connect
from txn_engine.loading import DEAD_LETTERS

Write = Callable[..., Path]
BAD = GOOD + "4,10,2026-01-03,hunter2,\n5,10\n"


@pytest.fixture
def dead(run: Run, payments: str) -> str:
    """A dead-letter topic for the payments."""
    made = run("topics", "create", "payments-dead", "--dead-letters")
    assert made.code == 0, made.stderr
    return "payments-dead"


def load(run: Run, dead: str, path: Path, *options: str) -> Any:
    return run(
        "produce", "payments", str(path), "--transactional-id", "load", "--dead-letter-topic", dead, *options
    )


def test_from_the_load_to_the_replay(run: Run, url: str, dead: str, write: Write, tmp_path: Path) -> None:
    """After load, list, show, repair and replay, every row of the file is a payment."""
    answer = load(run, dead, write("f.csv", BAD), "--json")
    assert answer.code == 0, answer.stderr
    assert (answer.json["records"], answer.json["dead_letters"]) == (3, 2)
    assert answer.json["dead_letter_topic"] == dead
    (row,) = run("dead-letters", "list", "--json").json["dead_letter_topics"]
    assert (row["topic"], row["waiting"], row["total"]) == ("payments", 2, 2)
    reasons = run("dead-letters", "list", dead, "--json").json["reasons"]
    assert sorted(row["reason"].partition(";")[0] for row in reasons) == ["2 fields", "amount does not fit"]
    shown = run("dead-letters", "show", dead, "--json").json["dead_letters"]
    assert [row["source"].rpartition(":")[2] for row in shown] == ["6", "7"]
    lines = [json.loads(line) for line in run("dead-letters", "show", dead, "--repair").stdout.splitlines()]
    assert lines[0]["amount"] == "hunter2"
    assert lines[1]["_raw"] == "5,10\n"
    lines[0]["amount"] = "4.00"
    lines[1] |= {"id": 5, "account_id": 10, "day": "2026-01-03", "amount": "5.00", "note": None}
    mended = write("mended.jsonl", "\n".join(map(json.dumps, lines)))
    dry = run("dead-letters", "replay", dead, "--repaired", str(mended), "--dry-run", "--json")
    assert (dry.json["records"], dry.json["failed_again"], dry.json["dry_run"]) == (2, 0, True)
    done = run("dead-letters", "replay", dead, "--repaired", str(mended))
    assert done.stdout == "2 letters: 2 loaded in one transaction, 0 failed again\n"
    assert "nothing to replay" in run("dead-letters", "replay", dead, "--repaired", str(mended)).stdout
    with connect(url) as engine:
        assert sorted(engine.scan("payments").to_table().column("id").to_pylist()) == [1, 2, 3, 4, 5]
    (row,) = run("dead-letters", "list", "--json").json["dead_letter_topics"]
    assert (row["waiting"], row["total"]) == (0, 2)


def test_a_replay_after_which_letters_wait_fails(run: Run, dead: str, write: Write) -> None:
    """The exit code is 1 if letters failed again, or would, and if an older file names none of those that wait. The
    code says which, and nothing is said of a dry run that happened only in a real one."""
    load(run, dead, write("f.csv", BAD))
    lines = run("dead-letters", "show", dead, "--repair").stdout
    unrepaired = write("letters.jsonl", lines)
    rows = [json.loads(line) for line in lines.splitlines()]
    rows[0]["amount"] = "4.00"
    rows[1] |= {"id": 5, "account_id": 10, "day": "2026-01-03", "amount": "5.00", "note": None}
    repaired = write("mended.jsonl", "\n".join(map(json.dumps, rows)))
    for options in (["--dry-run"], []):
        answer = run("dead-letters", "replay", dead, "--repaired", str(unrepaired), *options)
        assert (answer.code, "[LETTERS_FAILED_AGAIN]" in answer.error) == (1, True)
        assert answer.stdout.startswith("2 letters: 0 ")
        assert ("would" in answer.stdout, "would" in answer.error) == (bool(options), bool(options))
        assert "amount does not fit" in answer.error
    late = run("dead-letters", "replay", dead, "--repaired", str(repaired), "--json")
    assert (late.code, late.error_code) == (1, "LETTERS_FAILED_AGAIN")
    found = json.loads(late.stdout)
    assert (found["replayed_before"], found["waiting"]) == (True, 2)
    (row, _) = run("dead-letters", "show", dead, "--json").json["dead_letters"]
    assert ("hunter2" in row["row"], row["tries"]) == (True, 2)


def test_one_letter_is_no_plural(run: Run, dead: str, write: Write) -> None:
    """Counts of one are told in the singular."""
    told = load(run, dead, write("f.csv", GOOD.splitlines()[0] + "\n" + BAD.splitlines()[1] + "\n5,10\n"))
    assert told.stderr.startswith("1 record and 1 dead letter committed")


def test_a_letter_of_any_time_is_shown(run: Run, url: str, dead: str, write: Write) -> None:
    """A letter may say that it failed at a time that Python does not have. It is shown with the others."""
    load(run, dead, write("f.csv", BAD))
    with connect(url) as engine:
        letters = engine.scan(dead).to_table(DEAD_LETTERS.names)
        times = pa.array([-(2**62)] * 2, pa.int64()).cast(pa.timestamp("ms", "UTC"))
        place = letters.schema.get_field_index("failed_at")
        with engine.producer() as producer:
            producer.produce(dead, letters.set_column(place, DEAD_LETTERS.field("failed_at"), times))
    shown = run("dead-letters", "show", dead, "--json").json["dead_letters"]
    assert [letter["reason"] for letter in shown[2:]] == [letter["reason"] for letter in shown[:2]]
    assert shown[-1]["failed_at"].startswith("-")
    repaired = run("dead-letters", "show", dead, "--repair")
    assert (repaired.code, len(repaired.stdout.splitlines())) == (0, 4)


def test_letters_that_cannot_be_read_are_named_and_the_others_counted(
    run: Run, url: str, dead: str, write: Write
) -> None:
    """`dead-letters list` has exit code 1, names the unreadable letters and counts the readable ones."""
    load(run, dead, write("f.csv", BAD), "--run-id", "one")
    with connect(url) as engine:
        (key,) = [info.key for info in engine.store.list(f"topics/{dead}/") if "/data/" in info.key]
        load(run, dead, write("g.csv", GOOD + "6,10\n"), "--run-id", "two")
        engine.store.put(key, b"no Parquet")
    listed = run("dead-letters", "list", dead, "--json")
    assert listed.code == 1
    (row,) = json.loads(listed.stdout)["reasons"]
    assert (row["error_class"], row["waiting"], row["total"], row["came_back"]) == (
        "InvalidRecordError", 1, 1, 0,
    )  # fmt: skip
    assert row["first_failed"] == row["last_failed"]
    (place,) = json.loads(listed.stdout)["unreadable"]
    assert (place["topic"], key in place["message"]) == (dead, True)
    assert f"{dead}-0 cannot be read; all else was done" in run("dead-letters", "list").stderr


def test_too_many_dead_letters(run: Run, url: str, dead: str, write: Write) -> None:
    """The load fails with one line, and its transaction is aborted."""
    answer = load(run, dead, write("f.csv", BAD), "--max-dead-letters", "1")
    assert (answer.code, answer.error_code) == (1, "INVALID_RECORD")
    assert "hunter2" not in answer.error
    with connect(url) as engine:
        assert engine.scan("payments").to_table().num_rows == 0
        assert engine.scan(dead).to_table().num_rows == 0
    assert load(run, dead, write("f.csv", BAD), "--max-dead-letters", "40%").code == 0


def test_a_dry_run_reports_every_row(run: Run, url: str, payments: str, write: Write) -> None:
    """It counts each reason with its first place, shows values only on request, and writes nothing."""
    path = write("f.csv", BAD + "6,1,2026-01-01,hunter2,\n")
    answer = run("produce", payments, str(path), "--dry-run")
    assert answer.code == 1
    assert "3 rows cannot be used; the load takes them with --dead-letter-topic" in answer.stderr
    assert "3 records would be loaded, 3 rows not; nothing was written" in answer.stderr
    assert f"{path} line 6" in answer.stdout
    assert "hunter2" not in answer.stdout + answer.stderr
    told = run("produce", payments, str(path), "--dry-run", "--json", "--show-values")
    document = json.loads(told.stdout)
    assert [(row["rows"], row["value"]) for row in document["rejected"]] == [(2, "'hunter2'"), (1, None)]
    assert (document["records"], document["dead_letters"]) == (3, 3)
    good = run("produce", payments, str(write("g.csv", GOOD)), "--dry-run")
    assert (good.code, "3 records would be loaded, 0 rows not" in good.stderr) == (0, True)
    assert good.stdout == ""  # no head of a table without rows
    with connect(url) as engine:
        assert engine.scan(payments).to_table().num_rows == 0
        assert engine.admin.list_transactions() == []


def test_a_dry_run_ends_at_a_fault_of_a_file(run: Run, payments: str, write: Write) -> None:
    """The dry run fails and says how far it read."""
    answer = run("produce", payments, str(write("f.csv", BAD + '7,1,2026-01-01,1,"')), "--dry-run")
    assert answer.code == 1
    assert "a quoted field that is never closed" in answer.stderr
    assert "up to the error:" in answer.stderr


def test_a_dead_letter_topic_of_other_columns(run: Run, payments: str, write: Write) -> None:
    """The load is refused before the file is read."""
    answer = load(run, payments, write("f.csv", "x"))
    assert (answer.code, answer.error_code) == (1, "INVALID_REQUEST")
    assert run("topics", "create", "odd", "--schema", "topic:string").code == 0
    answer = load(run, "odd", write("f.csv", "x"))
    assert (answer.code, answer.error_code) == (1, "INVALID_REQUEST")
    for command in (["list", "odd"], ["show", "odd"], ["replay", "odd"]):
        answer = run("dead-letters", *command)
        assert (answer.code, answer.error_code) == (1, "INVALID_REQUEST")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--dead-letter-topic", "d"], "--dead-letter-topic needs --transactional-id"),
        (["--engine", "spark", "--run-id", "r", "--dry-run"], "not for --engine spark"),
        (["--checks", "suite.json"], "--checks needs --dead-letter-topic"),
        (["--no-header", "--header", "a"], "give one of them"),
        (["--decimal", ";"], "--decimal"),
    ],
)
def test_a_wrong_call(run: Run, payments: str, good: Path, options: list[str], words: str) -> None:
    """A wrong call has exit code 2 and one line."""
    answer = run("produce", payments, str(good), *options)
    assert (answer.code, words in answer.error) == (2, True), answer.error


@pytest.mark.parametrize(
    ("options", "code"),
    [
        (["--max-dead-letters", "1"], "INVALID_REQUEST"),
        (["--dry-run", "--max-dead-letters", "many"], "INVALID_REQUEST"),
        (["--encoding", "utf-9"], "INVALID_REQUEST"),
        (["--dry-run", "--dead-letter-topic", "none"], "UNKNOWN_TOPIC_OR_PARTITION"),
    ],
)
def test_a_call_that_is_refused(run: Run, payments: str, good: Path, options: list[str], code: str) -> None:
    """A refused call has exit code 1 and one line."""
    answer = run("produce", payments, str(good), *options)
    assert (answer.code, answer.error_code) == (1, code), answer.error


def test_checks_of_rows(run: Run, url: str, dead: str, write: Write) -> None:
    """The checks of rows hold in a dry run, in a load and in a replay, and a replay can do without them."""
    check = {
        "type": "expect_column_values_to_be_between",
        "kwargs": {"column": "id", "max_value": 2},
        "meta": {"on_failure": "dead_letter", "name": "small"},
    }
    suite = write("suite.json", json.dumps({"name": "ids", "expectations": [check]}))
    path = write("f.csv", GOOD)
    dry = run("produce", "payments", str(path), "--dry-run", "--checks", str(suite), "--json").json
    assert (dry["records"], dry["dead_letters"]) == (2, 1)
    assert dry["rejected"][0]["reason"].startswith("check small failed; expected")
    answer = load(run, dead, path, "--checks", str(suite), "--json")
    assert (answer.json["records"], answer.json["dead_letters"]) == (2, 1), answer.stderr
    assert run("dead-letters", "replay", dead, "--json").json["failed_again"] == 1
    assert run("dead-letters", "replay", dead, "--without-checks", "--json").json["records"] == 1
    with connect(url) as engine:
        assert sorted(engine.scan("payments").to_table().column("id").to_pylist()) == [1, 2, 3]


def test_creating_a_dead_letter_topic(run: Run, dead: str) -> None:
    """Its columns are fixed, and it has no key."""
    schema = run("topics", "describe", dead, "--json").json["schema"]
    assert [field["column"] for field in schema][:3] == ["topic", "source_topic", "source_partition"]
    for options in (["--key", "topic"], ["--schema", "a:int64"]):
        answer = run("topics", "create", "other", "--dead-letters", *options)
        assert (answer.code, "--dead-letters" in answer.error) == (2, True)


def test_folders_patterns_and_forms(run: Run, url: str, payments: str, tmp_path: Path) -> None:
    """`produce` takes a folder, a pattern, and a file with another delimiter, decimal mark, encoding and date
    format."""
    (tmp_path / "a.csv").write_text(GOOD)
    (tmp_path / "b.csv").write_text(GOOD.replace("\n1,", "\n4,").replace("\n2,", "\n5,"))
    assert run("produce", payments, str(tmp_path)).code == 0
    assert run("produce", payments, str(tmp_path / "*.csv"), "--transactional-id", "load").code == 0
    german = tmp_path / "german.txt"
    german.write_bytes("7;7;31.01.2026;7,50;Zürich\n".encode("cp1252"))
    options = ["--delimiter", ";", "--decimal", ",", "--encoding", "cp1252", "--date-format", "%d.%m.%Y"]
    assert run("produce", payments, str(german), *options, "--no-header").code == 0
    names = "id,account_id,day,amount,note"
    assert run("produce", payments, str(german), *options, "--header", names).code == 0
    with connect(url) as engine:
        rows = engine.scan(payments).to_table().to_pylist()
    assert len(rows) == 14
    assert {(str(row["amount"]), row["note"]) for row in rows if row["id"] == 7} == {("7.50", "Zürich")}


def test_stdin(run: Run, url: str, payments: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """It can be read only once, so the load needs a transaction, and its format has to be named."""
    from click.testing import CliRunner

    from txn_engine.cli.main import cli

    line = '{"id": 1, "account_id": 1, "day": "2026-01-01", "amount": "1.00"}\n'
    arguments = ["produce", payments, "-", "--url", url, "--format", "jsonl", "--transactional-id", "load"]
    result = CliRunner().invoke(cli, arguments, input=io.BytesIO(line.encode()))
    assert result.exit_code == 0, result.stderr
    with connect(url) as engine:
        assert engine.scan(payments).to_table().num_rows == 1
    assert "give --format" in run("produce", payments, "-").error
    assert "name no file beside it" in run("produce", payments, "-", "x.csv", "--format", "csv").error
    plain = CliRunner().invoke(cli, arguments[:-2], input=io.BytesIO(line.encode()))
    assert plain.exit_code == 0, plain.stderr
    with connect(url) as engine:
        assert engine.scan(payments).to_table().num_rows == 2


def test_help_has_examples(run: Run) -> None:
    """The help of every command of the group shows an example."""
    for command in (["list"], ["show"], ["replay"]):
        assert "txn-engine dead-letters" in run("dead-letters", *command, "--help").stdout
    assert run("dead-letters", "--help").code == 0


def test_a_manifest(run: Run, url: str, dead: str, write: Write) -> None:
    """A file that was loaded is skipped in every later run. A file that has changed since is refused."""
    assert run("topics", "create", "files", "--manifest").code == 0
    path = write("a.csv", BAD)
    first = load(run, dead, path, "--manifest", "files", "--json")
    assert (first.json["records"], first.json["loaded_before"]) == (3, [])
    again = load(run, dead, path, "--manifest", "files", "--json")
    assert (again.json["records"], again.json["loaded_before"]) == (0, [str(path)])
    assert "every file was loaded before" in load(run, dead, path, "--manifest", "files").stdout
    copy = write("copy.csv", BAD)
    told = load(run, dead, copy, "--manifest", "files")
    assert f"loaded before: {copy} (as {path})" in told.stderr
    assert "--again needs --manifest" in load(run, dead, copy, "--again").error
    dry = run("produce", "payments", str(path), "--manifest", "files", "--dry-run", "--json")
    assert (dry.code, dry.json["files"]) == (0, 0)
    write("a.csv", GOOD)
    changed = load(run, dead, path, "--manifest", "files")
    assert (changed.code, changed.error_code) == (1, "INVALID_REQUEST")
    assert str(path) in changed.error
    assert (
        "--manifest needs --transactional-id" in run("produce", "payments", "x", "--manifest", "files").error
    )
    with connect(url) as engine:
        assert engine.scan("payments").to_table().num_rows == 3
    assert load(run, dead, copy, "--manifest", "files", "--again", "--json").json["records"] == 3


def test_inferring_a_schema(run: Run, url: str, write: Write) -> None:
    """The schema is shown, a topic is created with it, and the file fits."""
    shown = run("topics", "infer", str(write("f.csv", GOOD)), "--json", store="")
    text = shown.json["schema_text"]
    assert text == "id:int64,account_id:int64,day:date32,amount:decimal(18,2),note:string?"
    assert run("topics", "create", "inferred", "--schema", text).code == 0
    assert run("produce", "inferred", str(write("f.csv", GOOD))).code == 0
    with connect(url) as engine:
        assert engine.scan("inferred").to_table().num_rows == 3
    assert (
        "txn-engine topics create TOPIC --schema"
        in run("topics", "infer", str(write("f.csv", GOOD)), store="").stderr
    )


def test_what_infer_says_of_a_bank_file(run: Run, write: Write) -> None:
    """The delimiter, the encoding and the marks of numbers that a file seems to need are named, one after the other,
    until its columns are what they should be."""
    text = "Datum;Betrag;Text\n31.01.2026;-1.091,09;caf\xe9\n01.02.2026;12,5;x\nSumme\n"
    path = str(write("f.csv", text.encode("cp1252")))
    answer = run("topics", "infer", str(write("g.csv", "a;b;c\n1;2;3\n")), store="")
    assert "the header has ';' 2 times: try `--delimiter ';'`" in answer.stderr
    options = ["--delimiter", ";"]
    assert "try `--encoding cp1252`" in run("topics", "infer", path, *options, store="").error
    options += ["--encoding", "cp1252"]
    assert run("topics", "infer", path, *options, store="").code == 1
    options += ["--skip-footer", "1"]
    answer = run("topics", "infer", path, *options, store="")
    assert (
        "column 'Betrag' is text because line 2 is '-1.091,09': try `--decimal , --thousands .`"
        in answer.stderr
    )
    assert (
        "column 'Datum' is text because line 2 is '31.01.2026': try `--date-format %d.%m.%Y`" in answer.stderr
    )
    options += ["--decimal", ",", "--thousands", ".", "--date-format", "%d.%m.%Y"]
    found = run("topics", "infer", path, *options, "--json", store="").json
    assert found["schema_text"] == "Datum:date32,Betrag:decimal(18,2),Text:string"
    assert [row["text_because"] for row in found["schema"]] == [None, None, "line 2 is 'caf\xe9'"]


@pytest.mark.parametrize("name", [" amount", "a,b", "a:b", "_a", ""])
def test_a_column_name_that_schema_text_cannot_express(run: Run, write: Write, name: str) -> None:
    """No command is suggested that would be refused or would create another column."""
    answer = run("topics", "infer", str(write("f.csv", f'id,"{name}"\n1,2\n')), store="")
    assert (answer.code, "topics create TOPIC" in answer.stderr) == (0, False)
    assert f"the column {name!r}" in answer.stderr


def test_a_type_that_schema_text_cannot_express(run: Run, url: str, tmp_path: Path) -> None:
    """The suggested command names the Parquet file itself."""
    path = tmp_path / "f.parquet"
    pq.write_table(pa.table({"small": pa.array([1], pa.int8())}), path)
    (line,) = run("topics", "infer", str(path), store="").stderr.splitlines()
    assert line == f"txn-engine topics create TOPIC --schema-file {path}"
    assert run("topics", "create", "small", *line.split()[-2:]).code == 0
