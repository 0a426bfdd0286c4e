"""On Spark, a proof finds every check, relation and anomaly that this process finds, with the same
numbers."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.logger import PySparkLogger
from pyspark.sql import SparkSession

import txn_engine
from storage import LocalStore, ObjectStore
from storage.memory import MemoryStore
from tests.quality import (
    test_anomalies,
    test_changed_columns,
    test_empty_cells,
    test_relations,
    test_suite,
)
from tests.quality.anomalous import INJECTED, Books
from tests.quality.ledger import good_evidence
from tests.spark.conftest import load
from tests.suite.tiers import in_shard
from txn_engine import AddColumn, DropColumn, RenameColumn, WidenColumn
from txn_engine.engine import Engine
from txn_engine.errors import InvalidRequestError, OneProcessLimitError, TxnEngineError
from txn_engine.quality import (
    Declaration,
    Output,
    SameRows,
    SqlReduction,
    SuiteOn,
    Totals,
    check_exactly_once,
)
from txn_engine.quality.choosing import chosen_reducer
from txn_engine.quality.counting import count
from txn_engine.quality.declaration import RECORDS
from txn_engine.quality.evidence import Evidence, EvidenceMissingError
from txn_engine.quality.in_process import InProcess
from txn_engine.quality.records import Reductions
from txn_engine.quality.reducer import Reducer
from txn_engine.quality.result import Counted
from txn_engine.reasons import Reason
from txn_engine.spark.errors import SparkSessionError
from txn_engine.spark.reducing import SparkReducer
from txn_engine.spark_query_log import FAILED_QUERIES

Reduce = Callable[[ObjectStore], SparkReducer]


@pytest.fixture
def reduce(spark: SparkSession, tmp_path: Path) -> Reduce:
    """A reducer over a store. A memory store is copied into a folder, which executors can read."""

    def made(store: ObjectStore) -> SparkReducer:
        if isinstance(store, MemoryStore):
            copy = LocalStore(tmp_path / "copy")
            for info in store.list(""):
                copy.put(info.key, store.get(info.key))
            store = copy
        return SparkReducer(spark, store)

    return made


@pytest.fixture
def on_spark(reduce: Reduce, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let every reduction of this process run on Spark."""
    for place in ("txn_engine.quality.in_process", "tests.quality.test_suite"):
        monkeypatch.setattr(f"{place}.InProcess", reduce)


@pytest.fixture
def queries_logged() -> Iterator[list[logging.LogRecord]]:
    """What PySpark logs of queries that fail, which quotes values."""
    found: list[logging.LogRecord] = []
    noting = logging.NullHandler()
    noting.handle = lambda record: found.append(record) is None  # type: ignore[method-assign]
    loggers = [PySparkLogger.getLogger(name) for name in FAILED_QUERIES]
    for logger in loggers:
        logger.addHandler(noting)
    yield found
    for logger in loggers:
        logger.removeHandler(noting)


# --- what this process finds -------------------------------------------------------------------------------


def _counts(evidence: Evidence, reducer: Reducer) -> Mapping[str, Counted | str]:
    found = count(evidence, Reductions(evidence, reducer))
    return {
        name: "missing" if isinstance(each, EvidenceMissingError) else each for name, each in found.items()
    }


@pytest.mark.shard("damage")
@pytest.mark.parametrize("breaker", [None, *(broken for broken, _ in test_suite.VIOLATIONS)])
def test_every_violation_comes_to_the_same_numbers(
    reduce: Reduce, tmp_path: Path, breaker: test_suite.Breaker | None
) -> None:
    """The counts and examples of all checks agree, for sound evidence and for evidence that breaks one check."""
    evidence = good_evidence(tmp_path)
    broken = evidence if breaker is None else breaker(evidence)
    with InProcess(MemoryStore()) as own, reduce(MemoryStore()) as spark:
        assert _counts(broken, spark) == _counts(broken, own)


@pytest.mark.shard("spark")
@pytest.mark.parametrize(
    ("make", "anomaly", "check"),
    INJECTED,
    ids=lambda each: getattr(each, "__name__", ""),
)
@pytest.mark.usefixtures("on_spark")
def test_an_anomaly_is_found_by_its_name(
    make: Callable[[], Books], anomaly: str, check: str, tmp_path: Path
) -> None:
    """Each anomaly is found by the check that is meant for it."""
    test_anomalies.test_an_anomaly_is_found_by_its_name(make, anomaly, check, tmp_path)


@pytest.mark.shard("spark")
@pytest.mark.usefixtures("on_spark")
def test_a_sound_store_shows_none(tmp_path: Path) -> None:
    """A sound store passes every check."""
    test_anomalies.test_a_sound_store_shows_none(tmp_path)


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Engine]:
    with txn_engine.connect(f"file://{tmp_path}/relations") as connected:
        yield connected


@pytest.mark.usefixtures("on_spark")
class TestRelations:
    """The relations of `tests.quality.test_relations`, on Spark."""

    @pytest.mark.parametrize(
        "holds",
        in_shard(
            "spark",
            [
                test_relations.test_right_outputs_pass,
                test_relations.test_a_row_twice_and_one_left_out,
                test_relations.test_a_set_with_another_member,
                test_relations.test_a_key_that_comes_to_nothing_on_both_sides,
                test_relations.test_an_older_record_is_not_the_latest,
                test_relations.test_the_latest_of_a_key_in_two_partitions,
                test_relations.test_queries_of_unlike_types_are_errored,
                test_relations.test_queries_of_numbers_are_compared_exactly,
            ],
            keep=[test_relations.test_a_set_with_another_member],
        ),
    )
    def test_relation(self, engine: Engine, tmp_path: Path, holds: Callable[[Engine, Path], None]) -> None:
        """Rows, sets, totals, the latest record of a key, and queries give the same result as in this
        process."""
        holds(engine, tmp_path)

    @pytest.mark.shard("spark")
    @pytest.mark.parametrize(
        ("reading", "kind"),
        [("a load", pa.string()), ("Python's csv", pa.binary()), ("pandas", pa.large_string())],
    )
    def test_empty_cells(self, engine: Engine, tmp_path: Path, reading: str, kind: pa.DataType) -> None:
        """Spark finds the same reading of a file's empty cells."""
        test_empty_cells.test_each_reading_is_proven(engine, tmp_path, reading, kind)

    @pytest.mark.shard("spark")
    def test_a_cell_that_is_read_otherwise(self, engine: Engine, tmp_path: Path) -> None:
        """Spark finds the one record that deviates from its column."""
        test_empty_cells.test_one_cell_that_is_read_otherwise(engine, tmp_path, "pandas", 2)

    @pytest.mark.parametrize(
        "query",
        in_shard(
            "spark",
            [
                "SELECT 1 AS n; SELECT 2 AS n",
                "INSERT INTO topic VALUES (1)",
                "DROP VIEW topic",
                "CREATE TABLE t AS SELECT 1 AS n",
                "SELECT 1 AS n) AS a UNION ALL (SELECT 2 AS n",
                "SET spark.sql.runSQLOnFiles = true",
            ],
            keep=1,
        ),
    )
    def test_a_query_that_is_no_select_is_refused(self, engine: Engine, tmp_path: Path, query: str) -> None:
        """A query that is not a SELECT is refused in one line, and nothing is run."""
        test_relations.load_payments(engine)
        test_relations.load_copies(engine)
        with pytest.raises(InvalidRequestError) as refused:
            test_relations.prove(engine, tmp_path / "report", "copies", SqlReduction(query, query))
        assert refused.value.reason is Reason.NOT_ONE_SELECT
        assert "\n" not in str(refused.value)

    @pytest.mark.parametrize(
        "query",
        [
            pytest.param("SELECT n FROM topic", marks=pytest.mark.shard("spark")),
            "SELECT CAST(type AS INT) AS n FROM topic",
        ],
    )
    def test_a_query_that_fails_is_errored(
        self,
        engine: Engine,
        tmp_path: Path,
        query: str,
        queries_logged: list[logging.LogRecord],
    ) -> None:
        """A query that Spark cannot run is errored. The reason shows no value, and PySpark logs no query."""
        test_relations.load_payments(engine)
        test_relations.load_copies(engine)
        result = test_relations.prove(engine, tmp_path / "report", "copies", SqlReduction(query, query))
        (check,) = result.errored
        assert check.detail.startswith("Spark: ")
        assert not any(f"'{kind}'" in check.detail for kind in ("PRIJEM", "VYDAJ", "VYBER"))
        assert queries_logged == []

    def test_a_query_starts_no_program(self, engine: Engine, tmp_path: Path) -> None:
        """A query that would start a program on the workers is refused, and the program does not run."""
        test_relations.load_payments(engine)
        test_relations.load_copies(engine)
        query = f"SELECT TRANSFORM(amount) USING 'touch {tmp_path}/started; cat' AS (n) FROM topic"
        with pytest.raises(InvalidRequestError) as refused:
            test_relations.prove(engine, tmp_path / "report", "copies", SqlReduction(query, query))
        assert refused.value.reason is Reason.NOT_PERMITTED_IN_SQL
        assert not (tmp_path / "started").exists()


# --- on the store -------------------------------------------------------------------------------------------

COPY = SameRows({name: name for name in ("trans_id", "account_id", "date", "type", "amount")})
COPIED = Declaration("payments", ("trans_id",), (Output("copies", COPY),))


def _copy(engine: Engine) -> None:
    rows = engine.scan("payments").to_table(["trans_id", "account_id", "date", "type", "amount"])
    with engine.producer() as producer:
        producer.produce("copies", rows.select(["trans_id", "account_id", "date", "type", "amount"]))


@pytest.mark.shard("spark")
def test_a_proof_by_spark_is_a_link_of_the_chain(spark: SparkSession, copies: Engine, tmp_path: Path) -> None:
    """A proof by Spark has the same digests as one of this process, over whole files and parts of files with
    an aborted load between them. The next proof goes on from it."""
    load(copies, 1, 300)
    load(copies, 301, 50, commit=False)
    _copy(copies)
    with SparkReducer(spark, copies.store) as reducer:
        first = check_exactly_once(copies, COPIED, report_folder=tmp_path / "1", reducer=reducer, record=True)
    assert first.success, first.failed
    assert first.proof is not None
    assert first.proof.engine == "Spark"
    second = check_exactly_once(copies, COPIED, report_folder=tmp_path / "2", record=True, whole=True)
    assert second.success, second.failed
    assert second.proof is not None
    assert [each.digest for each in second.proof.ranges] == [each.digest for each in first.proof.ranges]
    load(copies, 351, 40)
    with SparkReducer(spark, copies.store) as reducer:
        third = check_exactly_once(copies, COPIED, report_folder=tmp_path / "3", reducer=reducer, record=True)
    assert {check.name for check in third.failed} == {"identity_in_copies"}


@pytest.mark.shard("spark")
def test_columns_that_change_come_to_the_same_numbers(spark: SparkSession, tmp_path: Path) -> None:
    """Spark and this process agree on the ranges of each schema version, on an old digest that is computed again, and
    on damage.
    """
    changes = [
        WidenColumn("id", pa.int64()),
        WidenColumn("amount", pa.decimal128(20, 2)),
        WidenColumn("weight", pa.float64()),
        RenameColumn("note", "text"),
        AddColumn(pa.field("rank", pa.int16(), nullable=False), default=7),
    ]
    with txn_engine.connect(f"file://{tmp_path}/changed") as engine:
        test_changed_columns.set_up(engine)
        test_changed_columns.load(engine, 0, 40)
        check = replace(test_changed_columns.CHECK, outputs=())
        prove = partial(test_changed_columns.proved, engine, tmp_path, check)
        prove()
        engine.admin.alter_topic("payments", changes)
        test_changed_columns.load(engine, 40, 40)
        engine.maintenance.compact("payments", 1, policy=test_changed_columns.EAGER)
        with SparkReducer(spark, engine.store) as reducer:
            second = prove(reducer=reducer)
            assert test_changed_columns.versions(second) == [(0, 14), (1, 13), (0, 26), (1, 27)]
            whole = prove(reducer=reducer, whole=True)
            assert whole.first == 0
            assert prove(whole=True).ranges == whole.ranges
            engine.admin.alter_topic("payments", DropColumn("weight"))
            test_changed_columns.load(engine, 80, 80)
            engine.maintenance.compact("payments", 1, policy=test_changed_columns.EAGER)
            without = prove(reducer=reducer, whole=True)
        assert "payments-1 what was proved cannot be judged: column 'weight'" in without.began
        assert prove(whole=True).ranges == without.ranges


def test_a_suite_is_judged_on_spark(spark: SparkSession, ledger: Engine, tmp_path: Path) -> None:
    """A suite is judged on Spark, where its rows are; here with a query, which only Spark can run."""
    import great_expectations.expectations as gxe

    load(ledger, 1, 100)
    few = gxe.UnexpectedRowsExpectation(unexpected_rows_query="SELECT * FROM {batch} WHERE amount < 0")
    declared = Declaration("payments", ("trans_id",), suites=(SuiteOn([few]),))
    with SparkReducer(spark, ledger.store) as reducer:
        result = check_exactly_once(ledger, declared, report_folder=tmp_path / "report", reducer=reducer)
    assert result.success, (result.failed, result.errored)


def test_a_type_that_spark_has_none_for_is_errored(
    spark: SparkSession, ledger: Engine, tmp_path: Path
) -> None:
    """A column of a type that Spark does not have is errored with the name of the type."""
    schema = pa.schema([("id", pa.int64()), ("at", pa.time64("us"))])
    ledger.admin.create_topic("times", partitions=1, schema=schema)
    with ledger.producer() as producer:
        producer.produce("times", pa.table([pa.array([1]), pa.array([1], pa.time64("us"))], schema=schema))
    with SparkReducer(spark, ledger.store) as reducer:
        result = check_exactly_once(
            ledger, Declaration("times", ("id",)), report_folder=tmp_path / "report", reducer=reducer
        )
    assert any("time64" in check.detail for check in result.errored)


@pytest.mark.shard("spark")
def test_nothing_is_left_in_the_session(spark: SparkSession, ledger: Engine, tmp_path: Path) -> None:
    """After a proof the session has no view, no changed setting and nothing cached."""
    load(ledger, 1, 100)
    before = {row["key"]: row["value"] for row in spark.sql("SET").collect()}
    with SparkReducer(spark, ledger.store) as reducer:
        folder = reducer.folder
        check_exactly_once(
            ledger, Declaration("payments", ("trans_id",)), report_folder=tmp_path / "report", reducer=reducer
        )
    assert not folder.exists()
    assert {row["key"]: row["value"] for row in spark.sql("SET").collect()} == before
    assert spark.catalog.listTables() == []
    assert spark._jsc.sc().getPersistentRDDs().size() == 0  # type: ignore[attr-defined]


# --- who reduces --------------------------------------------------------------------------------------------


def _chosen(engine: Engine, choice: str, above: int, spark: Callable[[], Reducer]) -> tuple[str, list[str]]:
    told: list[str] = []
    with chosen_reducer(
        choice,  # type: ignore[arg-type]
        engine,
        Declaration(
            "payments",
            ("trans_id",),
            (Output("balances", Totals({"account_id": "account_id"}, count=RECORDS)),),
        ),
        spark=spark,  # type: ignore[arg-type]
        spark_above=above,
        tell=told.append,
    ) as reducer:
        return reducer.name, told


def test_the_engine_is_chosen_by_size(spark: SparkSession, ledger: Engine) -> None:
    """The size of all topics together decides, and the reason is reported."""
    load(ledger, 1, 100)

    def given() -> SparkReducer:
        return SparkReducer(spark, ledger.store)

    records = 101  # and a marker
    assert _chosen(ledger, "auto", records + 10, given)[0] == "in process (DuckDB)"
    name, told = _chosen(ledger, "auto", 99, given)
    assert name == "Spark"
    assert "more than 99 for one process" in told[0]
    assert _chosen(ledger, "local", 0, given)[0] == "in process (DuckDB)"
    assert _chosen(ledger, "spark", 10_000, given) == ("Spark", ["Spark reduces, as was asked for"])


@pytest.mark.parametrize(
    "error", [SparkSessionError("no Java"), ModuleNotFoundError("no pyspark", name="pyspark")]
)
def test_without_spark_the_size_is_said(ledger: Engine, error: TxnEngineError | ModuleNotFoundError) -> None:
    """The error says how much memory one process would need, why Spark did not start, and how to configure it."""
    load(ledger, 1, 100)

    @contextmanager
    def given() -> Iterator[SparkReducer]:
        raise error
        yield  # as the command's and the DAG's: it begins where the block is entered

    with pytest.raises(
        OneProcessLimitError, match=r"records: more than 5 for one process; and no Spark"
    ) as raised:
        _chosen(ledger, "auto", 5, given)
    assert "spark.master" in str(raised.value)
    assert "\n" not in str(raised.value)
