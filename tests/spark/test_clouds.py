"""Spark on a store that none of its connectors reads: by the data source, by writes, and what is refused."""

from __future__ import annotations

import pytest

import txn_engine
from tests.azurite import AzureContainer
from tests.spark.conftest import SCHEMA, load, payments
from txn_engine.spark import read_topic, register, spark_session, write_topic
from txn_engine.spark.errors import SparkSessionError
from txn_engine.spark.session import SHORT_JOB

pytestmark = [pytest.mark.spark, pytest.mark.slow]


def test_the_data_source_and_writes_need_no_connector(
    azure_container: AzureContainer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows of committed transactions come by `format("txn_engine")`, go by `write_topic` and by the sink, and read as a
    scan has them; a native read says in one line what to use instead. Spark's own processes
    have the environment of when it began; what executors write with is sent by the driver.
    """
    url = f"{azure_container.url}/ledger"
    for name, value in azure_container.environment.items():
        monkeypatch.setenv(name, value)
    with txn_engine.connect(url) as engine:
        for topic in ("payments", "copies", "again"):
            engine.admin.create_topic(topic, partitions=2, schema=SCHEMA, key="account_id")
        load(engine, 0, 50)
        load(engine, 100, 10, commit=False)
        spark = spark_session(url, extra=SHORT_JOB)
        register(spark)
        read = spark.read.format("txn_engine").option("url", url).option("endpoint", azure_container.endpoint)
        rows = read.option("subscribe", "payments").load().select(*SCHEMA.names)
        assert rows.count() == 50
        written = write_topic(rows, url, "copies", transactional_id="copy", run_id="1")
        assert written.records == 50
        sink = rows.write.format("txn_engine").mode("append")
        sink.option("url", url).option("topic", "again").option("transactionalId", "again").save()
        expected = payments(0, 50).sort_by("trans_id")
        for topic in ("copies", "again"):
            found = engine.scan(topic).to_table(SCHEMA.names).sort_by("trans_id")
            assert found.equals(expected), topic
        with pytest.raises(SparkSessionError, match=r"reads no az:// by itself here"):
            read_topic(spark, engine, "payments")
