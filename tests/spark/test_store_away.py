"""While a stream's store is away for a minute, the stream goes on or ends with a reason, and each record is
written once."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

import txn_engine
from tests.conftest import fresh_bucket
from tests.spark.conftest import SCHEMA, load
from tests.support.servers import REPOSITORY, MinioServer
from tests.support.waiting import must_run, wait_for

pytestmark = [pytest.mark.spark, pytest.mark.minio, pytest.mark.slow, pytest.mark.shard("kills")]
RECORDS = 1_500
AWAY_S = 60


@pytest.mark.timeout(900)
def test_a_minute_without_the_store(tmp_path: Path, minio_program: Path) -> None:
    """MinIO is killed in the middle of a query with micro-batches of 40 records, and comes back a minute later."""
    with MinioServer(minio_program) as server:
        bucket = fresh_bucket(server)
        url = f"{bucket.url}/ledger"
        environment = os.environ | bucket.environment | {"DYING": str(tmp_path)}
        environment.setdefault("TXN_ENGINE_CACHE", str(REPOSITORY / ".cache"))
        with txn_engine.connect(
            url, endpoint=bucket.endpoint, access_key=bucket.access_key, secret_key=bucket.secret_key
        ) as engine:
            for topic in ("payments", "copies"):
                engine.admin.create_topic(topic, partitions=2, schema=SCHEMA, key="account_id")
            load(engine, 0, RECORDS)

            def copied() -> list[int]:
                return sorted(engine.scan("copies").to_table(["trans_id"]).column(0).to_pylist())

            def started() -> subprocess.Popen[bytes]:
                command = [sys.executable, "-m", "tests.spark.dying_stream", url, str(tmp_path / "ck")]
                with (tmp_path / "log").open("ab") as log:
                    return subprocess.Popen(command, cwd=REPOSITORY, env=environment, stdout=log, stderr=log)

            query = started()
            wait_for(
                lambda: len(copied()) >= 100,
                what="the first 100 records in the copy",
                limit_s=120,
                every_s=0.5,
                meanwhile=must_run(query, lambda: (tmp_path / "log").read_text()[-2_000:]),
            )
            server.kill()
            assert query.poll() is None
            time.sleep(AWAY_S)
            server.start()
            assert len(copied()) < RECORDS, "it was done before the store went away"
            codes = [query.wait(300)]
            while codes[-1]:
                assert len(codes) < 3, (tmp_path / "log").read_text()[-3_000:]
                codes.append(started().wait(300))
            print(f"exit codes: {codes}")
            assert copied() == list(range(RECORDS))
            assert engine.admin.verify().ok
