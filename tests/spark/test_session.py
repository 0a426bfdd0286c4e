"""spark_session makes a session from a URL in one call, or fails in one line, and shows no secret to
others."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
import traceback
from dataclasses import replace
from pathlib import Path

import pytest
from pyspark import SparkContext
from pyspark.errors import ArithmeticException
from pyspark.sql import SparkSession

from storage import BucketStore, Hadoop, open_store
from storage.reasons import StoreReason
from storage.s3 import S3Config, S3Store
from tests.conftest import S3Bucket
from tests.support.refusals import refused
from tests.support.servers import REPOSITORY, SeaweedServer, minio_client
from txn_engine.errors import InvalidRecordError, InvalidRequestError, TxnEngineError
from txn_engine.reasons import Reason
from txn_engine.spark import session, spark_session
from txn_engine.spark.errors import (
    Fault,
    SparkJobError,
    SparkSessionError,
    failure_of_tasks,
    fault_of,
    reason,
    reason_of,
    reasons_in_text,
)
from txn_engine.spark.hadoop import bucket_options, check_readable
from txn_engine.spark.java import JavaNotFoundError


@pytest.mark.spark
def test_a_running_session_is_used(spark: SparkSession) -> None:
    """There is one session in a process. A second call returns it, with the settings of `extra`."""
    again = spark_session("file:///elsewhere", extra={"spark.sql.shuffle.partitions": "3"})
    assert again is spark
    assert spark.conf.get("spark.sql.shuffle.partitions") == "3"
    spark_session("file:///elsewhere", extra={"spark.sql.shuffle.partitions": "4"})


@pytest.mark.spark
def test_it_listens_at_home_only(spark: SparkSession) -> None:
    """The session has no UI, listens on 127.0.0.1 only, never ignores missing files, and its workers use the
    driver's own Python."""
    conf = dict(spark.sparkContext.getConf().getAll())
    assert conf["spark.ui.enabled"] == "false"
    assert conf["spark.driver.host"] == conf["spark.driver.bindAddress"] == "127.0.0.1"
    assert spark.conf.get("spark.sql.files.ignoreMissingFiles") == "false"
    assert spark.sparkContext.pythonExec in (sys.executable, os.environ.get("PYSPARK_PYTHON"))


@pytest.mark.spark
@pytest.mark.parametrize("turn", ["first", "after a failed query"])
def test_a_failed_query_leaves_captured_logs_alone(
    spark: SparkSession, caplog: pytest.LogCaptureFixture, turn: str
) -> None:
    """A failed query does not change the format of captured logs, although PySpark gives the handlers of its
    loggers a JSON format."""
    with caplog.at_level("INFO"):
        logging.getLogger("txn_engine").info(turn)
    assert turn in caplog.messages
    assert "{" not in caplog.text
    with pytest.raises(ArithmeticException):
        spark.sql("SELECT 1 / 0").collect()


def test_a_store_in_memory_is_refused() -> None:
    """Spark's workers are other processes: a store in memory is refused before anything is started."""
    with refused(InvalidRequestError, Reason.STORE_IN_MEMORY):
        spark_session("memory://somewhere")


def test_no_java_is_one_line(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Without Java nothing is started, and one line says what to install."""
    monkeypatch.setattr(SparkContext, "_active_spark_context", None)

    def no_java() -> Path:
        raise JavaNotFoundError("no Java for Spark", actor="spark", expected="Java 17 or later")

    monkeypatch.setattr(session, "find_java_home", no_java)
    with pytest.raises(JavaNotFoundError) as caught:
        spark_session(f"file://{tmp_path}")
    assert "install Java 17" in str(caught.value.action)


@pytest.mark.slow
def test_what_does_not_start_is_one_line(tmp_path: Path) -> None:
    """If the JVM ends at once, or a context cannot be made, the error is one line with what they reported."""
    script = f"""
from txn_engine.spark import spark_session
from txn_engine.spark.errors import SparkSessionError
for settings in ({{"spark.driver.extraJavaOptions": "-agentpath:/no/such/agent"}}, {{"spark.master": "local[x]"}}):
    try:
        spark_session("file:///", extra=settings, log_path={str(tmp_path / "log")!r})
    except SparkSessionError as error:
        print(error)
"""
    said = subprocess.run(
        [sys.executable, "-c", script], cwd=REPOSITORY, capture_output=True, text=True, check=True
    )
    jvm, context = said.stdout.splitlines()
    assert "Spark did not start" in jvm
    assert "/no/such/agent" in jvm
    assert "Spark did not start" in context
    assert "local[x]" in context


def test_the_line_that_says_why() -> None:
    """From the many lines of a failure, the one that explains it is chosen: a worker's Python error, Spark's
    condition, or Java's cause."""
    assert (
        reason(ValueError("Traceback (most recent call last):\n  File x\nKeyError: 'a'\n\n\tat org.spark"))
        == "KeyError: 'a'"
    )
    assert (
        reason(ValueError("x\n[A.B_C] something broke. SQLSTATE: 4242\n\tat y")) == "[A.B_C] something broke."
    )
    assert (
        reason(ValueError("An error\n\tat a.b\nCaused by: java.io.IOException: disk\n\tat c"))
        == "java.io.IOException: disk"
    )
    assert reason(ValueError("An error\n: java.io.IOException: disk\n\tat c")) == "java.io.IOException: disk"
    assert reason(ValueError("")) == "ValueError"
    assert "nothing of this run is visible" in str(SparkJobError("x"))


def as_text_of(error: TxnEngineError) -> ValueError:
    """What arrives in the caller's process of an error that a Python process of Spark's raised."""
    try:
        with reasons_in_text():
            raise error
    except TxnEngineError:
        return ValueError(f"[A.B] It failed. {traceback.format_exc()} SQLSTATE: 42\n\tat org.apache.spark")


@pytest.mark.parametrize("why", [Reason.BAD_DECIMAL, StoreReason.NO_ANSWER, None])
def test_the_fault_in_a_text_of_spark(why: Reason | StoreReason | None) -> None:
    """Class, code and reason of an error of the engine are found in the text, and the error is made again from
    it, however long its words are."""
    for words in ("line 3", "a long line " * 60):
        text = as_text_of(InvalidRecordError(words, actor="load", reason=why))
        assert fault_of(text) == Fault("InvalidRecordError", "INVALID_RECORD", why)
        assert reason_of(text) is why
        again = failure_of_tasks(text, actor="a job", action="")
        assert (type(again), again.reason) == (InvalidRecordError, why)
        assert str(again).count("INVALID_RECORD") == 1


def test_a_text_without_a_fault_of_the_engine() -> None:
    """The error of a library has neither a code nor a reason of the engine."""
    text = ValueError("Traceback (most recent call last):\n  File x\nKeyError: 'a [B c]'\n\tat org.spark")
    assert fault_of(text) is None
    assert reason_of(text) is None


def test_a_store_without_a_connector() -> None:
    """A store without a connector is refused before Spark is asked for anything. The error names the data
    source, which can read the store."""
    store = open_store("az://container", account="ledger")
    assert isinstance(store, BucketStore)
    with pytest.raises(SparkSessionError) as refused:
        bucket_options(None, store)  # type: ignore[arg-type]
    assert refused.value.reason is Reason.NO_CONNECTOR
    assert 'format("txn_engine")' in str(refused.value.action)


def test_a_checkpoint_in_a_store_without_a_connector() -> None:
    """It is refused before a query begins, whatever the session has."""
    with refused(SparkSessionError, Reason.NO_CONNECTOR):
        check_readable(None, "az://container/checkpoint")  # type: ignore[arg-type]
    check_readable(None, "/srv/checkpoint")  # type: ignore[arg-type]


def test_a_read_does_not_take_the_endpoint_of_its_session() -> None:
    """A session is told of one server, and of no secret. A read names its own server, also where that is AWS."""
    server = S3Store(S3Config("bucket", endpoint="http://minio:9000", access_key="AKIA", secret_key="s3cr3t"))
    told = server.hadoop_session_settings()
    assert told["fs.s3a.endpoint"] == "http://minio:9000"
    assert not {"AKIA", "s3cr3t"} & set(told.values())
    amazon = S3Store(S3Config("bucket")).hadoop_options()
    assert amazon["fs.s3a.bucket.bucket.endpoint"] == ""
    assert amazon["fs.s3a.bucket.bucket.path.style.access"] == "false"


@pytest.mark.spark
def test_a_session_without_the_jars_of_a_connector(spark: SparkSession) -> None:
    """A bucket that the running session cannot read is refused, and the session keeps no key of it. The shared JVM has
    the jars of S3A, so the connector here is one that no JVM has; `test_clouds.py` has a session without S3A.
    """
    store = StoreOfAnotherConnector(S3Config("bucket", access_key="AKIA", secret_key="s3cr3t"))
    with pytest.raises(SparkSessionError) as refused:
        bucket_options(spark, store)
    assert refused.value.reason is Reason.NO_CONNECTOR_JARS
    assert spark.sparkContext._jsc.hadoopConfiguration().get("fs.s3a.bucket.bucket.secret.key") is None


class StoreOfAnotherConnector(S3Store):
    """A bucket of S3 that Spark has to read by a connector of the scheme `elsewhere`."""

    backend = replace(S3Store.backend, hadoop=Hadoop(scheme="elsewhere", jars="none.txt"))


@pytest.mark.shard("spark")  # `make test` has tests/dags/test_spark_consume_s3.py
@pytest.mark.spark
@pytest.mark.minio
@pytest.mark.slow
def test_s3a_on_a_real_server(minio_bucket: S3Bucket, tmp_path: Path) -> None:
    """Reads and writes over S3A with the credentials of the environment, which no command line and no log shows."""
    environment = os.environ | minio_bucket.environment
    environment.setdefault("TXN_ENGINE_CACHE", str(REPOSITORY / ".cache"))
    log = tmp_path / "spark.log"
    done = subprocess.run(
        [sys.executable, "-m", "tests.spark.s3a_round_trip", f"{minio_bucket.url}/a/ledger", str(log)],
        cwd=REPOSITORY,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    seen = json.loads(done.stdout)
    assert seen == {"rows_agree": True, "sums_agree": True, "records_out": 7, "skipped": True, "findings": []}
    for secret in (minio_bucket.access_key, minio_bucket.secret_key):
        assert secret not in log.read_text() + done.stdout + done.stderr


@pytest.mark.shard("spark")
@pytest.mark.spark
@pytest.mark.minio
@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("of", ["environment", "connect"])
def test_streams_on_a_real_server(minio_bucket: S3Bucket, tmp_path: Path, of: str) -> None:
    """Files and streams work with the credentials of the environment, and with credentials that only
    `connect()` got. With the environment's, a query's checkpoint may be in the bucket, under s3a:// and s3://: a query
    that is started again there writes nothing twice.
    """
    environment = os.environ | (minio_bucket.environment if of == "environment" else {})
    if of == "connect":
        environment["STORE"] = f"{minio_bucket.endpoint} {minio_bucket.access_key} {minio_bucket.secret_key}"
    environment |= {"PYSPARK_PYTHON": sys.executable}
    environment.setdefault("TXN_ENGINE_CACHE", str(REPOSITORY / ".cache"))
    log = tmp_path / "spark.log"
    done = subprocess.run(
        [sys.executable, "-m", "tests.spark.s3a_streams", f"{minio_bucket.url}/a/ledger", str(log)],
        cwd=REPOSITORY,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=800,
    )
    assert done.returncode == 0, done.stderr[-3_000:]
    seen = json.loads(done.stdout.splitlines()[-1])
    streamed = {"streamed": True, "from_a_bucket": [True, True]} if of == "environment" else {}
    assert seen == {"loads": [100, 0], "copied": True, "findings": [], **streamed}
    for secret in (minio_bucket.access_key, minio_bucket.secret_key):
        assert secret not in log.read_text() + done.stdout + done.stderr


@pytest.mark.shard("spark")
@pytest.mark.spark
@pytest.mark.minio
@pytest.mark.slow
def test_keys_stay_with_their_read(minio_bucket: S3Bucket, seaweed_server: SeaweedServer) -> None:
    """In one session, reads of two servers with a bucket of the same name each go to their own server, and
    the session has no key of them."""
    minio_client(seaweed_server.url, seaweed_server.access_key, seaweed_server.secret_key).make_bucket(
        minio_bucket.name
    )
    environment = os.environ | {
        "BUCKET": minio_bucket.name,
        "FIRST": f"{minio_bucket.endpoint} {minio_bucket.access_key} {minio_bucket.secret_key}",
        "SECOND": f"{seaweed_server.url} {seaweed_server.access_key} {seaweed_server.secret_key}",
    }
    environment.setdefault("TXN_ENGINE_CACHE", str(REPOSITORY / ".cache"))
    done = subprocess.run(
        [sys.executable, "-m", "tests.spark.s3a_connections"],
        cwd=REPOSITORY,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    seen = json.loads(done.stdout)
    assert not seen.pop("stolen").isdigit()
    assert seen == {
        "counts": [100, 7, 100, 107],
        "again": 7,
        "in_the_plan": False,
        "in_the_session": False,
    }
