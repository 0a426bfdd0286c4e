"""All jobs on a real MinIO: its listings, its conditional puts, its deletes."""

from __future__ import annotations

import pytest

from storage import open_store
from tests.conftest import S3Bucket
from tests.maintain.ledgers import JOBS, PREFIX, YOUNG, accounts, ledger, open_engine
from tests.support.stores import assert_sound

pytestmark = pytest.mark.minio


def test_all_jobs(minio_bucket: S3Bucket) -> None:
    """Each job finds something to do, the ledger is sound after each, and a second round has nothing to
    do."""
    made, clock = ledger()
    env = minio_bucket.environment
    store = open_store(
        f"{minio_bucket.url}/ledger", endpoint=env["TXN_ENGINE_S3_ENDPOINT"],
        access_key=minio_bucket.access_key, secret_key=minio_bucket.secret_key,
    )  # fmt: skip
    for info in made.list(""):
        store.put(info.key, made.get(info.key))
    with open_engine(store, clock) as engine:
        for job in JOBS.values():
            report = job(engine)
            assert report.failures == ()
            assert report.partitions
            assert_sound(engine)
        assert accounts(engine) == YOUNG
        left = [info.key for info in store.list(PREFIX)]
        assert all(job(engine).partitions == () for job in JOBS.values())
        assert [info.key for info in store.list(PREFIX)] == left
