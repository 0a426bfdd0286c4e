"""`topics` creates, lists, describes, alters and deletes topics, and refuses some of them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.cli.conftest import Run
from txn_engine import connect


def test_create_list_describe_delete(run: Run, url: str) -> None:
    """A topic with columns and a key can be created, listed, described and deleted. The description has the
    offsets of each partition."""
    schema = "a:int32,b:int64?,c:float64,d:bool,e:string?,f:binary,g:date32,h:timestamp,i:decimal(18,2)?"
    assert run("topics", "create", "t", "--partitions", "3", "--key", "b", "--schema", schema).code == 0
    with connect(url) as engine:
        found = engine.admin.describe_topic("t")
    assert found.schema == pa.schema(
        [
            pa.field("a", pa.int32(), nullable=False),
            pa.field("b", pa.int64()),
            pa.field("c", pa.float64(), nullable=False),
            pa.field("d", pa.bool_(), nullable=False),
            pa.field("e", pa.string()),
            pa.field("f", pa.binary(), nullable=False),
            pa.field("g", pa.date32(), nullable=False),
            pa.field("h", pa.timestamp("ms", tz="UTC"), nullable=False),
            pa.field("i", pa.decimal128(18, 2)),
        ]
    )
    assert run("topics", "list", "--json").json == {
        "topics": [{"topic": "t", "partition_count": 3, "key": "b"}]
    }
    described = run("topics", "describe", "t", "--json").json
    assert (described["topic"], described["partition_count"], described["key"]) == ("t", 3, "b")
    assert ",".join(f"{column['column']}:{column['type']}" for column in described["schema"]) == schema
    assert described["partitions"] == [
        {
            "partition": number, "log_start_offset": 0, "last_stable_offset": 0, "high_watermark": 0,
            "held_back": 0, "held_by": None, "held_for_ms": None, "records": 0, "files": 0, "bytes": 0,
        }
        for number in range(3)
    ]  # fmt: skip
    text = run("topics", "describe", "t").stdout
    assert "Topic: t  PartitionCount: 3  Key: b" in text
    assert "Partition  LogStartOffset  LastStableOffset  HighWatermark" in text
    assert run("topics", "delete", "t").stdout == "would delete topic t: 3 partitions, 0 records\n"
    assert run("topics", "delete", "t", "--execute").stdout == "deleted topic t\n"
    assert run("topics", "list", "--json").json == {"topics": []}
    assert run("topics", "describe", "t").error_code == "UNKNOWN_TOPIC_OR_PARTITION"


def test_a_topic_that_exists_is_compared_with_the_one_that_is_asked_for(run: Run, url: str) -> None:
    """A second `create` says whether the topic is the same. With `--if-not-exists` it succeeds, as in Kafka, changes
    nothing, and still names each difference."""
    same = ["topics", "create", "t", "--partitions", "2", "--schema", "a:int64,b:decimal(9,2)", "--key", "a"]
    assert run(*same, "--json").json["created"] is True
    assert run(*same, "--json").error_reason == "topic_is_the_same"
    answer = run(*same, "--if-not-exists", "--json")
    assert (answer.code, answer.json["created"], answer.json["partition_count"]) == (0, False, 2)
    for change in (
        ["--partitions", "3"],
        ["--schema", "a:int64,b:decimal(9,3)"],
        ["--config", "retention.ms=1000"],
        ["--schema", "b:int64", "--key", "b"],
    ):
        refused = run(*same, *change, "--json")
        assert (refused.code, refused.error_reason) == (1, "topic_differs"), change
        assert (refused.error_code, run(*same, *change, "--if-not-exists").code) == (
            "TOPIC_ALREADY_EXISTS",
            0,
        )
    assert "3" in run(*same, "--partitions", "3", "--if-not-exists").stdout
    assert run("topics", "describe", "t", "--json").json["partition_count"] == 2


def test_a_new_store_is_said(run: Run, tmp_path: Path) -> None:
    """The first topic begins the store. A command in the wrong place so says that it began a new one."""
    place = f"file://{tmp_path}/ledger"
    first = run("topics", "create", "a", store=place)
    assert (first.code, place in first.stderr) == (0, True)
    assert run("topics", "create", "b", store=place).stderr == ""


def test_growing_a_topic(run: Run) -> None:
    """`alter --partitions` takes the new number. The present number and fewer are refused."""
    run("topics", "create", "t", "--partitions", "2")
    assert run("topics", "alter", "t", "--partitions", "4").stdout == "topic t has 4 partitions\n"
    assert run("topics", "describe", "t", "--json").json["partition_count"] == 4
    assert run("topics", "alter", "t", "--partitions", "6", "--json").json == {
        "topic": "t",
        "partition_count": 6,
    }
    shown = run("topics", "alter", "t", "--partitions", "9", "--dry-run")
    assert shown.stdout == "topic t would have 9 partitions\n"
    assert run("topics", "describe", "t", "--json").json["partition_count"] == 6
    refused = run("topics", "alter", "t", "--partitions", "6", "--dry-run")
    assert (refused.code, refused.error_code) == (1, "INVALID_PARTITIONS")
    refused = run("topics", "alter", "t", "--partitions", "6")
    assert (refused.code, refused.error_code) == (1, "INVALID_PARTITIONS")
    assert run("topics", "alter", "t").code == 2


def test_a_schema_from_a_file(run: Run, tmp_path: Path) -> None:
    """The schema comes from a Parquet file or an Arrow file. A file that cannot be read is a usage error that
    names it."""
    schema = pa.schema([("x", pa.int64()), ("y", pa.decimal128(9, 3))], metadata={"pandas": "noise"})
    pq.write_table(schema.empty_table(), tmp_path / "s.parquet")
    with pa.OSFile(str(tmp_path / "s.arrow"), "wb") as sink, pa.ipc.new_file(sink, schema):
        pass
    for name in ("s.parquet", "s.arrow"):
        topic = name.replace(".", "-")
        assert run("topics", "create", topic, "--schema-file", str(tmp_path / name)).code == 0
        columns = run("topics", "describe", topic, "--json").json["schema"]
        assert columns == [{"column": "x", "type": "int64?"}, {"column": "y", "type": "decimal(9,3)?"}]
    (tmp_path / "bad.parquet").write_text("no")
    pq.write_table(pa.table({"NAME": [1]}), tmp_path / "n.parquet", store_schema=False)
    (tmp_path / "n.parquet").write_bytes((tmp_path / "n.parquet").read_bytes().replace(b"NAME", b"NAM\xff"))
    for name in ("bad.parquet", "missing.parquet", "n.parquet"):
        answer = run("topics", "create", "t", "--schema-file", str(tmp_path / name))
        assert (answer.code, str(tmp_path / name) in answer.error) == (2, True)


def test_a_schema_file_of_any_size_is_not_read(run: Run, tmp_path: Path) -> None:
    """The schema is at the beginning of an Arrow file, of which no more is read."""
    schema = pa.schema([("x", pa.int64())])
    with pa.OSFile(str(tmp_path / "s.arrow"), "wb") as sink, pa.ipc.new_stream(sink, schema):
        pass
    (tmp_path / "no.arrow").touch()
    for name in ("s.arrow", "no.arrow"):
        with (tmp_path / name).open("r+b") as file:
            file.truncate(1 << 40)
    assert run("topics", "create", "t", "--schema-file", str(tmp_path / "s.arrow")).code == 0
    assert run("topics", "create", "u", "--schema-file", str(tmp_path / "no.arrow")).code == 2


def test_the_default_schema(run: Run) -> None:
    """The default schema is Kafka's key, value and headers, partitioned by key."""
    assert run("topics", "create", "events").code == 0
    described = run("topics", "describe", "events", "--json").json
    assert [column["column"] for column in described["schema"]] == ["key", "value", "headers"]
    assert described["key"] == "key"


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["payments"], 1, ["'payments'", "[TOPIC_ALREADY_EXISTS]"]),
        (["__mine"], 1, ["'__mine'", "[INVALID_TOPIC_EXCEPTION]"]),
        (["a/b"], 1, ["'a/b'", "[INVALID_TOPIC_EXCEPTION]"]),
        (["t", "--schema", "_offset:int64"], 1, ["'_offset'", "[INVALID_RECORD]"]),
        ([""], 1, ["name is empty", "[INVALID_TOPIC_EXCEPTION]"]),
        (["t", "--schema", "a:int64,a:int64"], 1, ["'a'", "[INVALID_RECORD]"]),
        (["t", "--schema", "a:float64", "--key", "a"], 1, ["'a'", "[INVALID_RECORD]"]),
        (["t", "--schema", "a:int64", "--key", "b"], 1, ["'b'", "[INVALID_RECORD]"]),
        (["t", "--partitions", "0"], 1, ["[INVALID_PARTITIONS]"]),
        (["t", "--partitions", "x"], 2, ["--partitions", "'x'"]),
        (["t", "--schema", "a:money"], 2, ["'a:money'", "decimal(18,2)"]),
        (["t", "--schema", "a:decimal(40,2)"], 2, ["'a:decimal(40,2)'", "1 to 38"]),
        (["t", "--schema", "a"], 2, ["'a'", "name:type"]),
        (["t", "--schema", ""], 2, ["name:type"]),
        (["t", "--schema", "a\udcff:int64"], 2, ["'a\\udcff:int64'", "UTF-8"]),
        (["t", "--schema", "a:int64", "--schema-file", "f"], 2, ["give one of them"]),
        ([], 2, ["TOPIC"]),
    ],
)
def test_what_cannot_be_created(
    run: Run, payments: str, arguments: list[str], code: int, words: list[str]
) -> None:
    """The error has one line with the wrong name or value, and nothing is created."""
    answer = run("topics", "create", *arguments)
    assert answer.code == code
    assert all(word in answer.error for word in words), answer.error
    assert [row["topic"] for row in run("topics", "list", "--json").json["topics"]] == [payments]


@pytest.mark.parametrize(
    ("added", "code", "words"),
    [
        ("a\udcff string", 2, ["--add", "'a\\udcff string'", "UTF-8"]),
        ("a string 'x\udcff'", 1, ["'x\\udcff'", "'a'", "[INVALID_REQUEST]"]),
        ("a binary 'x\udcff'", 2, ["--add", "a value of binary"]),
        ("a timestamp 2026-01-01T00:00:00.123456+00:00", 1, ["'a'", "[INVALID_REQUEST]"]),
        ("a decimal(10,2) 1E-10", 2, ["a value of decimal"]),
        ("a decimal(10,2) 1_0", 2, ["a value of decimal"]),
        ("a float64 1e999", 2, ["a value of double"]),
        ("a float64 9007199254740993", 2, ["a value of double"]),
        ("a int32 1_000", 2, ["a value of int32"]),
        ("a int32 \u0663", 2, ["a value of int32"]),
        ("a string 'x", 2, ["a value of string"]),
        ("a string 'it's'", 2, ["a value of string"]),
        (
            "a string null",
            2,
            ["default 'null'", "a text in quotes; without 'not null' the column may hold nulls"],
        ),
        ("a string DEFAULT 'EUR'", 2, ["one word, or a text in quotes"]),
        ("a string EUR not null", 2, ["one word, or a text in quotes"]),
        ("a binary NULL", 2, ["one word, or a text in quotes"]),
    ],
)
def test_what_cannot_be_added(run: Run, payments: str, added: str, code: int, words: list[str]) -> None:
    """A column with a wrong type or default is refused with one line, and not as an internal error."""
    answer = run("topics", "alter", payments, "--add", added)
    assert answer.code == code
    assert all(word in answer.error for word in words), answer.error
    assert "inside txn-engine" not in answer.error


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("remark:string?", "remark string?"),
        ("n:int64 not null 5", "n int64 not null 5"),
        ("amount2 : Decimal( 18 , 2 )", "amount2 decimal(18,2)"),
        ("at:timestamp 2026-01-01T00:00:00+00:00", "at timestamp 2026-01-01T00:00:00+00:00"),
        ("ratio:string 'a:b'", "ratio string 'a:b'"),
    ],
)
def test_a_column_is_spelled_in_two_ways(run: Run, payments: str, one: str, other: str) -> None:
    """`create --schema` and `alter --add` take `NAME:TYPE` and `NAME TYPE`, and both give the same column. Only a
    column of a new topic has no default."""
    shown = [
        run("topics", "alter", payments, "--add", text, "--json").json["schema"] for text in (one, other)
    ]
    assert shown[0] == shown[1]
    column = shown[0][-1]
    made = [run("topics", "create", f"t{at}", "--schema", text) for at, text in enumerate((one, other))]
    if one.endswith(("5", "00", "'")):
        assert [(each.code, "no default" in each.error) for each in made] == [(2, True)] * 2
        return
    assert [each.code for each in made] == [0, 0]
    created = [run("topics", "describe", f"t{at}", "--json").json["schema"] for at in (0, 1)]
    assert created[0] == created[1]
    assert created[0][0]["column"] == column["column"]
    assert created[0][0]["type"].rstrip("?") == column["type"].rstrip("?")


def test_names_with_spaces_and_lists_of_both_spellings(run: Run) -> None:
    """A name before a colon may hold spaces, also if one of its words is a type."""
    text = "account id:int64, a int64:string?,b decimal(18, 2) NOT NULL,c  string?"
    assert run("topics", "create", "t", "--schema", text).code == 0
    assert run("topics", "describe", "t", "--json").json["schema"] == [
        {"column": "account id", "type": "int64"},
        {"column": "a int64", "type": "string?"},
        {"column": "b", "type": "decimal(18,2)"},
        {"column": "c", "type": "string?"},
    ]


def test_texts_as_defaults(run: Run, payments: str, good: Path) -> None:
    """A default of one word needs no quotes. Several words, or the word null, need them."""
    run("produce", payments, str(good))
    added = ("--add", "a string EUR", "--add", "b string 'null'", "--add", 'c string not null "a b"')
    assert run("topics", "alter", payments, *added, "--execute").code == 0
    found = run("sql", "SELECT a, b, c FROM payments LIMIT 1", "--format", "csv")
    assert found.stdout.splitlines()[1] == "EUR,null,a b", found.stdout


def test_numbers_with_exponents(run: Run, payments: str, good: Path) -> None:
    """A default may have an exponent, and SQL shows the number for older records."""
    run("produce", payments, str(good))
    added = ("--add", "r decimal(10,10) 1E-10", "--add", "z decimal(18,18) 0", "--add", "f float64 1e-10")
    assert run("topics", "alter", payments, *added, "--execute").code == 0
    found = run("sql", "SELECT r, z, f FROM payments LIMIT 1", "--format", "csv")
    assert found.stdout.splitlines()[1] == "0.0000000001,0.000000000000000000,1e-10", found.stdout


def test_an_unknown_topic_is_named(run: Run, payments: str, good: Path) -> None:
    """Every command that takes a topic names it."""
    for arguments in (
        ["topics", "describe", "nope"],
        ["topics", "delete", "nope"],
        ["topics", "delete", "nope", "--execute"],
        ["produce", "nope", str(good)],
        ["consume", "nope"],
        ["transactions", "describe-producers", "--topic", "nope", "--partition", "0"],
        ["transactions", "find-hanging", "--topic", "nope"],
        ["transactions", "abort", "--topic", "nope", "--partition", "0", "--start-offset", "0"],
        ["groups", "reset-offsets", "g", "--topic", "nope", "--to-earliest"],
        ["coordinator", "snapshot", "--topic", "nope"],
    ):
        answer = run(*arguments)
        assert (answer.code, answer.error_code) == (1, "UNKNOWN_TOPIC_OR_PARTITION"), arguments
        assert "'nope'" in answer.error


def test_a_partition_out_of_range(run: Run, payments: str, good: Path) -> None:
    """Every command that takes a partition shows the valid range."""
    for number in ("2", "-1"):
        for arguments in (
            ["produce", payments, str(good), "--partition", number],
            ["consume", payments, "--partition", number],
            ["transactions", "describe-producers", "--topic", payments, "--partition", number],
            ["groups", "reset-offsets", "g", "--topic", f"{payments}:{number}", "--to-earliest"],
            ["coordinator", "snapshot", "--topic", payments, "--partition", number],
        ):
            answer = run(*arguments)
            assert (answer.code, answer.error_code) == (1, "UNKNOWN_TOPIC_OR_PARTITION"), arguments
            assert "0 to 1" in answer.error


def test_only_create_sets_up_a_ledger(run: Run, tmp_path: Path, good: Callable[..., Path]) -> None:
    """Every other command refuses a place without a ledger and does not change it."""
    folder = tmp_path / "ledger"
    for arguments in (
        ["topics", "list"],
        ["produce", "t", str(good)],
        ["consume", "t"],
        ["transactions", "list"],
        ["groups", "list"],
        ["coordinator", "sweep"],
    ):
        missing = run(*arguments, store=f"file://{folder}")
        assert (missing.code, missing.error_code) == (1, "STORE_NOT_FOUND"), arguments
        assert not folder.exists()
    folder.mkdir()
    empty = run("topics", "list", store=f"file://{folder}")
    assert (empty.code, empty.error_code) == (1, "STORE_NOT_FOUND")
    assert "`txn-engine restore`" in empty.error
    assert "`topics create`" in empty.error
    assert not list(folder.iterdir())
    assert run("topics", "create", "t", store=f"file://{folder}").code == 0


def test_configuration(run: Run, url: str) -> None:
    """`--config` takes Kafka's names. An unknown name is a usage error, a forbidden value an error of the store."""
    made = [
        "topics",
        "create",
        "t",
        "--config",
        "cleanup.policy=compact",
        "--config",
        "delete.retention.ms=60000",
    ]
    assert run(*made).code == 0
    with connect(url) as engine:
        found = engine.admin.describe_topic("t")
    assert (found.cleanup_policy, found.delete_retention_ms, found.retention_ms) == ("compact", 60_000, -1)
    configs = {
        "cleanup.policy": "compact",
        "retention.ms": -1,
        "delete.retention.ms": 60_000,
        "min.compaction.lag.ms": 0,
        "min.cleanable.dirty.ratio": 0.5,
        "retention.bytes": -1,
        "max.message.bytes": 1 << 30,
        "message.timestamp.before.max.ms": 2**63 - 1,
        "message.timestamp.after.max.ms": 3_600_000,
        "tables.publish": "",
    }
    assert run("topics", "describe", "t", "--json").json["configs"] == configs
    text = (
        "Configs: cleanup.policy=compact  retention.ms=-1  delete.retention.ms=60000  min.compaction.lag.ms=0"
    )
    assert text in run("topics", "describe", "t").stdout
    for wrong in ("cleanup.policy", "segment.ms=1", "retention.ms=soon", "retention.ms"):
        if wrong == "cleanup.policy":
            assert run("topics", "create", "u", "--config", wrong).error_code == "INVALID_CONFIG"
        else:
            assert run("topics", "create", "u", "--config", wrong).code == 2
