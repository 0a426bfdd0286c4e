"""load_files loads files into a topic by Spark, with every value exact, once for each run."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from tests.spark.conftest import SCHEMA, payments
from tests.suite.tiers import in_shard
from tests.support.refusals import refused
from txn_engine import AddColumn
from txn_engine.engine import Engine
from txn_engine.errors import InvalidRecordError, InvalidRequestError
from txn_engine.files import read_records
from txn_engine.loading import load_files as load_locally
from txn_engine.reasons import Reason
from txn_engine.spark import load_files, loading
from txn_engine.spark.errors import SparkJobError

pytestmark = pytest.mark.spark


def csv_of(table: pa.Table) -> str:
    """The table as csv with a header, with amounts to the last digit."""
    lines = [",".join(table.schema.names)]
    lines += [",".join(map(str, row.values())) for row in table.to_pylist()]
    return "\n".join(lines) + "\n"


@pytest.fixture
def days(tmp_path: Path) -> Path:
    """Three days of payments as csv."""
    folder = tmp_path / "days of may"
    folder.mkdir()
    for number in range(3):
        (folder / f"day{number}.csv").write_text(csv_of(payments(100 * number, 100)))
    return folder


def loaded(engine: Engine) -> list[dict[str, object]]:
    return engine.scan("payments").to_table(SCHEMA.names).sort_by("trans_id").to_pylist()


@pytest.mark.parametrize("is_local", [True, False])
def test_files_are_loaded_once(
    spark: SparkSession, ledger: Engine, days: Path, monkeypatch: pytest.MonkeyPatch, is_local: bool
) -> None:
    """Every value is the file's, whether a task opens the file itself or gets its content. The same run again
    loads nothing."""
    if not is_local:
        monkeypatch.setattr(loading, "is_local", lambda uri: False)
    first = load_files(spark, ledger, "payments", f"{days}/*.csv", run_id="may")
    assert (first.records, first.already_committed) == (300, False)
    assert loaded(ledger) == payments(0, 300).to_pylist()
    for file in days.iterdir():
        file.unlink()
    again = load_files(spark, ledger, "payments", f"{days}/*.csv", run_id="may")
    assert (again.records, again.already_committed) == (0, True)
    assert ledger.admin.describe_transaction("load-files/payments").state == "CompleteCommit"


def test_every_format(spark: SparkSession, ledger: Engine, tmp_path: Path) -> None:
    """Csv, jsonl and Parquet give the same records as `read_records`, without a cast by Spark. An added
    column is filled if a file lacks it."""
    ledger.admin.alter_topic("payments", AddColumn(pa.field("currency", pa.string()), default="EUR"))
    row = {"trans_id": 1, "account_id": 2, "date": "2026-01-31", "type": "PRIJEM"}
    amount = "9999999999999999.99"
    (tmp_path / "a.csv").write_text(f"{','.join(row)},amount\n{','.join(map(str, row.values()))},{amount}\n")
    (tmp_path / "b.jsonl").write_text(
        '{"trans_id":1,"account_id":2,"date":"2026-01-31","type":"PRIJEM","amount":' + amount + "}\n"
    )
    table = pa.Table.from_batches(read_records(tmp_path / "a.csv", SCHEMA))
    pq.write_table(table, tmp_path / "c.parquet")
    for name in ("a.csv", "b.jsonl", "c.parquet"):
        load_files(spark, ledger, "payments", str(tmp_path / name), run_id=name)
    assert loaded(ledger) == table.to_pylist() * 3
    assert ledger.scan("payments").to_table(["currency"])["currency"].to_pylist() == ["EUR"] * 3
    assert table.column("amount").to_pylist() == [Decimal(amount)]


@pytest.mark.parametrize("is_local", in_shard("spark", [True, False], keep=1))
def test_a_bad_row_is_named_by_file_and_line(
    spark: SparkSession, ledger: Engine, days: Path, monkeypatch: pytest.MonkeyPatch, is_local: bool
) -> None:
    """A bad row fails the whole load with one line that says where it is and what was expected, and shows no
    value."""
    if not is_local:
        monkeypatch.setattr(loading, "is_local", lambda uri: False)
    bad = days / "day1.csv"
    lines = bad.read_text().splitlines()
    lines[41] = "140,0,2000-01-01,PRIJEM,77.125"
    bad.write_text("\n".join(lines))
    with refused(SparkJobError, Reason.BAD_DECIMAL) as failed:
        load_files(spark, ledger, "payments", f"{days}/*.csv", run_id="may")
    assert "day1.csv line 42" in str(failed.value)
    assert "decimal(18,2)" in str(failed.value)
    assert "77.125" not in str(failed.value)
    assert "txn-engine-load" not in str(failed.value)
    assert loaded(ledger) == []
    bad.write_text(csv_of(payments(100, 100)))
    assert load_files(spark, ledger, "payments", f"{days}/*.csv", run_id="may").records == 300


def test_files_that_cannot_be_loaded(spark: SparkSession, ledger: Engine, tmp_path: Path) -> None:
    """Missing files and files of unknown formats are refused in one line, before a transaction begins."""
    (tmp_path / "notes.doc").write_text("x")
    for paths in (f"{tmp_path}/*.csv", str(tmp_path / "nowhere.csv"), str(tmp_path / "notes.doc"), []):
        with pytest.raises(InvalidRequestError) as refused:
            load_files(spark, ledger, "payments", paths, run_id="may")
        assert "\n" not in str(refused.value)
    assert ledger.admin.list_transactions() == []


NAMES = [
    "a b.csv",
    "h#x.csv",
    "q?x.csv",
    "p%41.csv",
    "pA.csv",
    "br[1].csv",
    "br1.csv",
    "c,d;e=f.csv",
    "ä\\{x}.csv",
]


@pytest.mark.shard("spark")
@pytest.mark.parametrize("is_local", [True, False])
def test_names_are_taken_as_they_are(
    spark: SparkSession, ledger: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_local: bool
) -> None:
    """A path that is the name of a file is not a pattern, nothing in it is an escape, and names of folders
    make no columns."""
    if not is_local:
        monkeypatch.setattr(loading, "is_local", lambda uri: False)
    folder = tmp_path / "path=7" / "amount=1"
    folder.mkdir(parents=True)
    for number, name in enumerate(NAMES):
        (folder / name).write_text(csv_of(payments(number, 1)))
    named = [str(folder / name) for name in NAMES]
    for run_id, paths in (
        ("names", named),
        ("folder", [str(tmp_path / "path=7")]),
        ("glob", [f"{folder}/*.csv"]),
    ):
        load_files(spark, ledger, "payments", paths, run_id=run_id)
    assert loaded(ledger) == [row for row in payments(0, len(NAMES)).to_pylist() for _ in range(3)]
    load_files(spark, ledger, "payments", named[5], run_id="bracket")
    assert len(loaded(ledger)) == 3 * len(NAMES) + 1


def test_no_file_is_passed_over_or_taken_twice(spark: SparkSession, ledger: Engine, tmp_path: Path) -> None:
    """A named file that Spark would skip is refused, and so is one that two paths name. A folder may have
    such files."""
    folder = tmp_path / "files"
    folder.mkdir()
    for name in ("_x.csv", ".h.csv", "x.csv", "_SUCCESS", ".x.csv.crc"):
        (folder / name).write_text(csv_of(payments(0, 1)))
    (tmp_path / "empty.csv").write_bytes(b"")
    for paths, reason in (
        (f"{folder}/_x.csv", Reason.HIDDEN_FILE),
        (f"{folder}/.h.csv", Reason.HIDDEN_FILE),
        (f"{folder}/*.csv", Reason.HIDDEN_FILE),
        ([f"{folder}/x.csv", f"{folder}/x*"], Reason.DUPLICATE_FILE),
        ([f"{folder}/x.csv", f"{folder}/y*"], Reason.NO_FILES),
        ([f"{folder}/x.csv", f"{tmp_path}/empty.csv"], Reason.NO_RECORDS),
    ):
        with refused(InvalidRequestError, reason):
            load_files(spark, ledger, "payments", paths, run_id="may")
    assert loaded(ledger) == []
    for run_id, paths in (("folder", str(folder)), ("glob", f"{folder}/x*")):
        assert load_files(spark, ledger, "payments", paths, run_id=run_id).records == 1


@pytest.mark.parametrize("kind", ["csv", "json", "parquet"])
def test_a_folder_that_spark_wrote(spark: SparkSession, ledger: Engine, tmp_path: Path, kind: str) -> None:
    """Spark's own folders are loaded, by Spark and without: their first part may have no rows, and `_SUCCESS` and
    hidden files are none. A folder of nothing but empty parts is refused."""
    rows = spark.range(0, 8, 1, 2).where("id >= 4")
    rows = rows.selectExpr(
        "id AS trans_id",
        "id AS account_id",
        "date'2026-01-31' AS date",
        "'PRIJEM' AS type",
        "cast(id AS decimal(18,2)) AS amount",
    )
    folder = tmp_path / kind
    rows.write.format(kind).option("header", "true").save(str(folder))
    assert len(list(folder.glob("part-*"))) == 2
    form = "jsonl" if kind == "json" else None
    assert any(path.name == "_SUCCESS" for path in folder.iterdir())
    assert load_files(spark, ledger, "payments", str(folder), run_id="spark", format=form).records == 4
    found = load_locally(ledger, "payments", folder, run_id="local", format=form)
    assert (found.records, len(found.empty)) == (4, 1)
    for path in folder.glob("part-*"):
        if path.name != Path(found.empty[0]).name:
            path.unlink()
    for load in (load_files, load_locally):
        session = [spark] if load is load_files else []
        with pytest.raises((InvalidRecordError, InvalidRequestError)) as caught:
            load(*session, ledger, "payments", str(folder), run_id="none", format=form)
        assert caught.value.reason is Reason.NO_RECORDS


@pytest.mark.parametrize(
    "path", ["in", "in/*", "in/*.csv", "in/{a,x}.csv", "{in,other}", "i\\n", "in/[^z].csv", "{in/x,in/a}.csv"]
)
def test_a_link_that_leads_out_of_the_folder_is_refused(
    spark: SparkSession, ledger: Engine, tmp_path: Path, path: str
) -> None:
    """As without Spark: who may put files into a folder chooses no file elsewhere."""
    landing, secret = tmp_path / "landing", tmp_path / "secret.csv"
    (landing / "in").mkdir(parents=True)
    for file in (landing / "in" / "a.csv", secret):
        file.write_text("x\n1\n")
    (landing / "in" / "x.csv").symlink_to(secret)
    for named in (f"{landing}/{path}", f"file:{landing}/{path}", f"file://{landing}/{path}"):
        with pytest.raises(InvalidRequestError) as caught:
            load_files(spark, ledger, "payments", named, run_id="r", transactional_id="t")
        assert caught.value.reason is Reason.LINK_LEADS_OUT
        assert caught.value.place == str(landing / "in" / "x.csv")


@pytest.mark.shard("spark")
def test_a_bomb_is_refused_in_one_sentence(spark: SparkSession, ledger: Engine, tmp_path: Path) -> None:
    """A Parquet file of a few kilobytes that holds one text of 400 MiB is refused by its name, and nothing of it is
    taken into memory but by the process that reads Parquet, within its limit."""
    ledger.admin.create_topic("texts", partitions=1, schema=pa.schema([("s", pa.string())]))
    (tmp_path / "in").mkdir()
    pq.write_table(pa.table({"s": ["good"]}), tmp_path / "in" / "a.parquet")
    bomb = tmp_path / "in" / "bomb.parquet"
    pq.write_table(pa.table({"s": ["x" * (400 << 20)]}), bomb, compression="zstd")
    assert bomb.stat().st_size < 20_000
    with refused(SparkJobError, Reason.PARQUET_TOO_LARGE) as caught:
        load_files(spark, ledger, "texts", str(tmp_path / "in"), run_id="r")
    assert str(bomb) in str(caught.value)
    assert ledger.scan("texts").to_table().num_rows == 0


@pytest.mark.parametrize(
    "log",
    [
        "_delta_log/0.json",
        "metadata/v1.metadata.json.gz",
        "_spark_metadata/0",
        "data/_committed_1234",
        "data/delta_0000001_0000001/x",
    ],
)
def test_the_folder_of_a_table_is_refused(
    spark: SparkSession, ledger: Engine, tmp_path: Path, log: str
) -> None:
    """Files in a folder with a log that says which of them count are refused, however they are named, as without
    Spark."""
    folder = tmp_path / "in" / "table[1]"
    (folder / "data").mkdir(parents=True)
    (folder / "data" / "a.csv").write_text(csv_of(payments(0, 1)))
    (folder / log).parent.mkdir(exist_ok=True)
    (folder / log).write_text("{}")
    paths = (
        tmp_path / "in",
        folder,
        folder / "data",
        folder / "data" / "a.csv",
        f"{tmp_path}/in/*/data/*.csv",
    )
    for path in paths:
        with refused(InvalidRequestError, Reason.FOLDER_OF_A_TABLE):
            load_files(spark, ledger, "payments", str(path), run_id="r", format="csv")
    assert loaded(ledger) == []


@pytest.mark.parametrize("is_local", [True, False])
def test_a_column_that_a_folders_name_has(
    spark: SparkSession, ledger: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_local: bool
) -> None:
    """A file that lacks a column whose value its folder's name has is refused, also where it is copied first."""
    if not is_local:
        monkeypatch.setattr(loading, "is_local", lambda uri: False)
    (tmp_path / "in" / "type=VYDAJ").mkdir(parents=True)
    rows = payments(0, 2).drop_columns(["type"])
    (tmp_path / "in" / "type=VYDAJ" / "a.csv").write_text(csv_of(rows))
    with refused(SparkJobError, Reason.MISSING_COLUMN):
        load_files(spark, ledger, "payments", str(tmp_path / "in"), run_id="r", missing_columns="null")
    assert loaded(ledger) == []


@pytest.mark.parametrize("kind", ["date", "timestamp"])
def test_a_file_in_the_legacy_calendar(
    spark: SparkSession, ledger: Engine, tmp_path: Path, kind: str
) -> None:
    """A Parquet file that Spark wrote in its legacy calendar is refused where it has old days, by Spark and without,
    because their numbers mean other days there."""
    ledger.admin.create_topic(
        "days",
        partitions=1,
        schema=pa.schema([("date", pa.date32()), ("timestamp", pa.timestamp("us", "UTC"))]),
    )
    session = spark.newSession()
    session.conf.set("spark.sql.parquet.datetimeRebaseModeInWrite", "LEGACY")
    session.conf.set("spark.sql.parquet.outputTimestampType", "TIMESTAMP_MICROS")
    values = {"date": "date'2026-01-31'", "timestamp": "timestamp'2026-01-31 00:00:00'"}
    for year, folder in (("2026", "new"), ("1500", "old")):
        row = {name: value.replace("2026", year) if name == kind else value for name, value in values.items()}
        rows = session.range(1).selectExpr(*(f"{value} AS {name}" for name, value in row.items()))
        rows.coalesce(1).write.parquet(str(tmp_path / folder))
    with refused(InvalidRecordError, Reason.LEGACY_CALENDAR):
        load_locally(ledger, "days", tmp_path / "old", run_id="old")
    with refused(SparkJobError, Reason.LEGACY_CALENDAR):
        load_files(spark, ledger, "days", str(tmp_path / "old"), run_id="old")
    assert load_files(spark, ledger, "days", str(tmp_path / "new"), run_id="new").records == 1


def test_a_file_that_a_link_replaces_before_a_task_opens_it(
    spark: SparkSession, ledger: Engine, tmp_path: Path
) -> None:
    """The driver lists the files, and a task opens them later: it refuses a link that leads out by then."""
    (tmp_path / "in").mkdir()
    file, secret = tmp_path / "in" / "a.csv", tmp_path / "secret.csv"
    for path in (file, secret):
        path.write_text(csv_of(payments(0, 1)))
    topic = ledger.logs.topics.look_up("payments")
    rows = loading.files_of(spark, ledger, topic, str(tmp_path / "in"), {})
    listed = [pa.RecordBatch.from_pylist([{"path": f"file:{file}"}])]
    assert sum(batch.num_rows for batch in rows.rows_of(iter(listed))) == 1
    file.unlink()
    file.symlink_to(secret)
    with refused(InvalidRequestError, Reason.LINK_LEADS_OUT):
        list(rows.rows_of(iter(listed)))
