"""txn_spark_consume on S3, where nothing but the Airflow connection knows the way in."""

from __future__ import annotations

import json

import pytest

from tests.conftest import S3Bucket
from tests.dags.ledger import SUMS, fill, sums
from tests.support.finished_run import RunDag
from txn_engine import connect


@pytest.mark.airflow
@pytest.mark.spark
@pytest.mark.minio
@pytest.mark.slow
def test_driver_readers_and_executors_get_in_by_the_connection(
    minio_bucket: S3Bucket, monkeypatch: pytest.MonkeyPatch, run_dag: RunDag
) -> None:
    """Its secret stands in no log, XCom or event."""
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
    ) as engine:
        fill(engine)
        run = run_dag("txn_spark_consume")
        assert run.state == "success", run.errors
        assert run.xcom("consume")["records"] == len(SUMS)
        assert sums(engine) == SUMS
    assert minio_bucket.secret_key not in run.log + json.dumps(run.xcom("consume"))
