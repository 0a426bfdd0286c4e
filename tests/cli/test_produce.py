"""`produce` loads files into a topic, exactly, and all or nothing."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.cli.conftest import GOOD, Run
from txn_engine import connect

Write = Callable[..., Path]


def records(url: str, isolation_level: Any = "read_committed") -> list[dict[str, Any]]:
    with connect(url) as engine:
        found = engine.scan("payments", isolation_level=isolation_level).to_table()
    return sorted(found.to_pylist(), key=lambda row: row["id"])


def test_one_transaction_for_all_files(run: Run, url: str, payments: str, good: Path, write: Write) -> None:
    """Two files under one transactional id are loaded in one transaction, with all records, exact and by
    key."""
    more = write("more.jsonl", '{"id": 4, "account_id": 10, "day": "2026-01-03", "amount": "0.10"}\n')
    answer = run("produce", payments, str(good), str(more), "--transactional-id", "load", "--json")
    assert answer.code == 0, answer.stderr
    assert answer.json["records"] == 4
    assert answer.json["transactional_id"] == "load"
    assert sum(row["records"] for row in answer.json["produced"]) == 4
    assert set(answer.json["produced"][0]) == {"topic", "partition", "base_offset", "last_offset", "records"}
    found = records(url)
    assert [(row["id"], row["amount"], row["note"]) for row in found] == [
        (1, Decimal("100.00"), "salary"),
        (2, Decimal("0.05"), None),
        (3, Decimal("-7.50"), "a, quoted\nnote"),
        (4, Decimal("0.10"), None),
    ]
    assert len({row["_partition"] for row in found if row["account_id"] == 10}) == 1
    listed = run("transactions", "list", "--json").json["transactions"]
    assert [row["transactional_id"] for row in listed] == ["load"]


def test_a_table_says_where_records_went(run: Run, payments: str, good: Path) -> None:
    """The table on stdout has partition and offsets, and the count is on stderr."""
    answer = run("produce", payments, str(good), "--partition", "1")
    assert answer.stdout.splitlines() == [
        "Topic     Partition  BaseOffset  LastOffset  Records",
        "payments          1           0           2        3",
    ]
    assert answer.stderr == "3 records\n"


def test_a_run_that_was_committed_is_not_loaded_again(run: Run, url: str, payments: str, good: Path) -> None:
    """The same run id loads once, another one loads again."""
    arguments = ["produce", payments, str(good), "--transactional-id", "load", "--json", "--run-id"]
    assert run(*arguments, "monday").json["committed_before"] is False
    again = run(*arguments, "monday")
    assert (again.code, again.json["committed_before"], again.json["records"]) == (0, True, 0)
    dry = [run(*arguments, name, "--dry-run").json for name in ("monday", "tuesday")]
    assert [(each["records"], each.get("committed_before")) for each in dry] == [(0, True), (3, None)]
    assert run(*arguments, "tuesday").json["records"] == 3
    assert len(records(url)) == 6


def test_a_run_that_the_log_may_have_forgotten_is_refused(
    run: Run, url: str, payments: str, good: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The run is refused until --forgotten-runs says that it was never loaded."""
    monkeypatch.setattr("txn_engine.protocol.transactions.MAX_RUN_IDS", 1)
    arguments = ["produce", payments, str(good), "--transactional-id", "load", "--json", "--run-id"]
    for run_id in ("monday", "tuesday"):
        assert run(*arguments, run_id).json["records"] == 3
    assert run(*arguments, "monday", "--dry-run").stderr == (refused := run(*arguments, "monday")).stderr
    assert refused.code == 1
    assert "run 'monday' is none of the last 100 of transactional id 'load'" in refused.stderr
    assert len(records(url)) == 6
    assert run(*arguments, "wednesday", "--forgotten-runs", "load").json["records"] == 3


@pytest.mark.parametrize("transactional", [True, False])
@pytest.mark.parametrize(
    ("name", "text", "code", "shown"),
    [
        ("bad.csv", GOOD + "4,1,2026-01-01,1.005,\n", "INVALID_RECORD", "line 6"),
        ("bad.csv", GOOD + "4,1,2026-01", "INVALID_RECORD", "line 6"),
        ("bad.csv", "", "INVALID_RECORD", ""),
        ("bad.csv", "id,account_id,day,amount,note\n", "INVALID_RECORD", ""),
        ("bad.csv", "id,account_id,day,note\n1,1,2026-01-01,\n", "INVALID_RECORD", "'amount'"),
        ("bad.csv", "id,account_id,day,amount,note,x\n1,1,2026-01-01,1,,\n", "INVALID_RECORD", "'x'"),
        ("bad.csv", GOOD.replace("2026-01-02", "tomorrow"), "INVALID_RECORD", "'tomorrow' (at"),
        ("bad.csv", GOOD.replace("1,10,", "1,,"), "INVALID_RECORD", "line 2"),
        ("bad.jsonl", '{"id": 1', "INVALID_RECORD", "line 1"),
        ("bad.parquet", "PAR1", "INVALID_RECORD", ""),
        ("bad.doc", "x", "INVALID_REQUEST", "'.doc'"),
        (None, "", "INVALID_REQUEST", ""),
    ],
)
def test_a_bad_file_loads_nothing(
    run: Run,
    url: str,
    payments: str,
    good: Path,
    write: Write,
    transactional: bool,
    name: str | None,
    text: str,
    code: str,
    shown: str,
) -> None:
    """A bad file fails with exit code 1 and one line with the file and the place in it. No record of the good
    file before it is loaded either."""
    bad = write(name, text) if name else good.with_name("missing.csv")
    options = ["--transactional-id", "load"] if transactional else []
    answer = run("produce", payments, str(good), str(bad), *options, "--show-values")
    assert (answer.code, answer.error_code) == (1, code)
    assert all(word in answer.error for word in (shown, str(bad), "nothing was loaded")), answer.error
    assert records(url) == []
    with connect(url) as engine:
        for at in engine.admin.list_offsets(payments).values():
            assert at.last_stable_offset == at.high_watermark


@pytest.mark.parametrize(
    ("text", "hidden"),
    [
        ("hunter2,id\n1,2\n", "hunter2"),
        (GOOD + "hunter2,1,2026-01-01,1,\n", "hunter2"),
        (GOOD + "4,hunter2", "hunter2"),
        (GOOD + '4,1,2026-01-01,1,"hunter2', "hunter2"),
    ],
)
def test_values_of_a_file_are_shown_only_on_request(
    run: Run, payments: str, write: Write, text: str, hidden: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If stderr is not a terminal (a log, an Airflow task), an error quotes no cell and no header."""
    bad = write("bad.csv", text)
    for options in ((), ("--transactional-id", "load"), ("--json",), ("--debug",)):
        answer = run("produce", payments, str(bad), *options)
        assert answer.code == 1
        assert f"{bad} line" in answer.error
        assert hidden not in answer.error + answer.stdout


@pytest.mark.parametrize("transaction", [["--transactional-id", "load"], []], ids=["transaction", "plain"])
def test_a_bad_file_after_a_part_was_uploaded(
    run: Run,
    url: str,
    payments: str,
    good: Path,
    write: Write,
    monkeypatch: pytest.MonkeyPatch,
    transaction: list[str],
) -> None:
    """Nothing of the part that was uploaded is in the topic, and no transaction was begun."""
    monkeypatch.setattr("txn_engine.loading.load.SENT_BYTES", 1)
    bad = write("bad.csv", GOOD + "x,1,2026-01-01,1,\n")
    answer = run("produce", payments, str(good), str(bad), *transaction, "--json")
    assert answer.code == 1
    assert answer.stdout == ""
    assert answer.error_code == "INVALID_RECORD"
    assert records(url, "read_uncommitted") == []
    if transaction:
        described = run("transactions", "describe", "load", "--json").json
        assert described["transaction_state"] == "Empty"


def test_a_record_of_another_type_is_refused(run: Run, url: str, payments: str, tmp_path: Path) -> None:
    """A Parquet file with money as floats is refused."""
    path = tmp_path / "f.parquet"
    floats = {"id": [1], "account_id": [1], "day": pa.array([0], pa.date32()), "amount": [1.5], "note": ["x"]}
    pq.write_table(pa.table(floats), path)
    answer = run("produce", payments, str(path))
    assert (answer.code, answer.error_code) == (1, "INVALID_RECORD")
    assert records(url) == []


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--run-id", "r"], "--run-id needs --transactional-id"),
        (["--format", "xml"], "'xml'"),
        (["--transaction-timeout", "0"], "--transaction-timeout"),
        (["--partition", "one"], "'one'"),
    ],
)
def test_a_wrong_call(run: Run, payments: str, good: Path, options: list[str], words: str) -> None:
    """A wrong call has exit code 2 and one line that says where the help is."""
    answer = run("produce", payments, str(good), *options)
    assert answer.code == 2
    assert words in answer.error
    assert "`txn-engine produce --help`" in answer.error


@pytest.mark.parametrize("option", ["--transactional-id", "--run-id"])
def test_an_id_that_is_not_utf8(run: Run, url: str, payments: str, good: Path, option: str) -> None:
    """The id is refused with one line before anything is sent."""
    bad = b"\xfe".decode(errors="surrogateescape")
    answer = run("produce", payments, str(good), "--transactional-id", "load", option, bad)
    assert (answer.code, answer.error_code) == (1, "INVALID_REQUEST")
    assert records(url, "read_uncommitted") == []


def test_an_empty_folder_is_refused(run: Run, payments: str, tmp_path: Path) -> None:
    """An empty folder is refused with a transaction and without one."""
    for options in ([], ["--transactional-id", "load"]):
        answer = run("produce", payments, str(tmp_path), *options)
        assert (answer.code, answer.error_code) == (1, "INVALID_REQUEST")


def test_a_wrong_delimiter_is_refused(run: Run, payments: str, good: Path) -> None:
    """A delimiter of two characters and a quote are refused, and an empty one counts as the default."""
    for mark in (";;", '"', ""):
        answer = run("produce", payments, str(good), "--delimiter", mark)
        assert answer.code == (0 if mark == "" else 1)


def test_consumed_records_can_be_produced_again(
    run: Run, url: str, payments: str, good: Path, tmp_path: Path
) -> None:
    """Records that were consumed as csv, jsonl or parquet are the same after they are produced again."""
    assert run("produce", payments, str(good)).code == 0
    first = [{k: v for k, v in row.items() if k[0] != "_"} for row in records(url)]
    for name in ("out.csv", "out.jsonl", "out.parquet"):
        path = tmp_path / name
        out = run("consume", payments, "--format", path.suffix[1:], "--output", str(path))
        assert (out.code, out.stdout) == (0, ""), out.stderr
        assert run("topics", "delete", payments, "--execute").code == 0
        schema = "id:int64,account_id:int64,day:date32,amount:decimal(18,2),note:string?"
        assert run("topics", "create", payments, "--schema", schema).code == 0
        assert run("produce", payments, str(path)).code == 0
        assert [{k: v for k, v in row.items() if k[0] != "_"} for row in records(url)] == first


def test_binary_values(run: Run, url: str, write: Write) -> None:
    """Text is stored as its UTF-8 bytes. Base64 is decoded to any bytes."""
    assert run("topics", "create", "events").code == 0
    assert run("produce", "events", str(write("a.csv", "key,value\nk,é\n"))).code == 0
    assert (
        run("produce", "events", str(write("b.csv", "key,value\nAA==,/w==\n")), "--binary", "base64").code
        == 0
    )
    shown = run("consume", "events", "--format", "csv").stdout.splitlines()
    assert shown[1].startswith("k,é,,0,0,")
    assert shown[2].startswith("\x00,\\xff,,0,1,")
    assert (
        run("consume", "events", "--format", "csv", "--binary", "base64")
        .stdout.splitlines()[2]
        .startswith("AA==,/w==,")
    )
