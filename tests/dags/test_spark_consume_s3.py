"""txn_spark_consume on S3, with credentials in the Airflow connection only."""

from __future__ import annotations

import json

import pytest

from tests.conftest import S3Bucket
from tests.dags.ledger import SUMS, fill, sums
from tests.quality.ledger import ROWS
from tests.support.finished_run import RunDag
from tests.support.internal import FEW_INTERNAL
from txn_engine import connect


@pytest.mark.airflow
@pytest.mark.spark
@pytest.mark.minio
@pytest.mark.slow
def test_driver_readers_and_executors_get_in_by_the_connection(
    minio_bucket: S3Bucket, monkeypatch: pytest.MonkeyPatch, run_dag: RunDag
) -> None:
    """With the connection's credentials, the first run sums up the payments and emits an event with the
    offsets, and the next one finds nothing. The secret is in no log, XCom or event."""
    for name in ("TXN_ENGINE_URL", "AWS_SESSION_TOKEN", *minio_bucket.environment):
        monkeypatch.delenv(name, raising=False)
    connection = {
        "conn_type": "txn_engine",
        "login": minio_bucket.access_key,
        "password": minio_bucket.secret_key,
        "extra": {"url": f"{minio_bucket.url}/prod", "endpoint_url": minio_bucket.endpoint},
    }
    monkeypatch.setenv("AIRFLOW_CONN_TXN_ENGINE_DEFAULT", json.dumps(connection))
    with connect(
        f"{minio_bucket.url}/prod",
        endpoint=minio_bucket.endpoint,
        access_key=minio_bucket.access_key,
        secret_key=minio_bucket.secret_key,
        configs=FEW_INTERNAL,
    ) as engine:
        fill(engine)
        run = run_dag("txn_spark_consume")
        assert run.state == "success", run.errors
        done = run.xcom("consume")
        assert (done["records"], done["input"]["records"]) == (len(SUMS), len(ROWS))
        assert done["committed_before"] is False
        assert sums(engine) == SUMS
        ends = engine.admin.list_offsets("payments")
        assert done["input"]["end"] == {str(at.partition): ends[at].last_stable_offset for at in ends}
        assert {at.lag for at in engine.admin.describe_group("balances").partitions} == {0}
        ((name, uri, extra),) = run.events
        place = minio_bucket.url.removeprefix("s3://") + "/prod"
        assert (name, uri) == (f"{place}/balances", f"txn-engine://{place}/balances")
        assert run.aliases == {"txn_spark_consume", "txn_engine_default/balances"}
        assert extra["offsets"] == done["offsets"]
        assert sum(last - first + 1 for first, last in extra["offsets"].values()) == len(SUMS)
        assert extra["run_id"] == f"txn_spark_consume/consume@{run.dag_run.logical_date.isoformat()}"

        again = run_dag("txn_spark_consume", wait_s=0)
        assert again.state == "success"
        assert again.tasks == {"wait_for_records": "skipped", "consume": "skipped"}
        assert again.events == []
        assert sums(engine) == SUMS
    assert minio_bucket.secret_key not in run.log + json.dumps([done, extra])
