"""A bucket on MinIO and a user who may do with it what `policies/maintainer.json` says, and nothing else.

Run once before Airflow starts, or as often as you like: what is there stays, the user's secret and policy are set anew.
Everything comes from the environment; see `store-setup` in docker-compose.yml. On AWS: make the bucket and a role, and
attach the policy files.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from minio import Minio, MinioAdmin
from minio.credentials import StaticProvider

POLICIES = Path(__file__).with_name("policies")
BUCKET_IN_FILES = "ledger"


def policy_of(role: str, bucket: str) -> dict[str, Any]:
    """The policy of a role, for that bucket."""
    text = (POLICIES / f"{role}.json").read_text(encoding="utf-8")
    policy: dict[str, Any] = json.loads(
        text.replace(f"arn:aws:s3:::{BUCKET_IN_FILES}", f"arn:aws:s3:::{bucket}")
    )
    return policy


def add_user(admin: MinioAdmin, bucket: str, role: str, access_key: str, secret_key: str) -> None:
    """A user of that role, and of no other."""
    name = f"txn-engine-{role}-{bucket}"
    admin.policy_add(name, policy=policy_of(role, bucket))
    admin.user_add(access_key, secret_key)
    admin.policy_set(name, user=access_key)


def main() -> None:
    """The bucket, unless it is there, and the user."""
    given = os.environ
    endpoint, bucket = given["MINIO_ENDPOINT"], given["TXN_ENGINE_BUCKET"]
    root = StaticProvider(given["MINIO_ROOT_USER"], given["MINIO_ROOT_PASSWORD"])
    client = Minio(endpoint=endpoint, credentials=root, secure=False, region="us-east-1")
    if not client.bucket_exists(bucket):
        client.make_bucket(bucket)
    admin = MinioAdmin(endpoint=endpoint, credentials=root, region="us-east-1", secure=False)
    add_user(admin, bucket, "maintainer", given["TXN_ENGINE_ACCESS_KEY"], given["TXN_ENGINE_SECRET_KEY"])


if __name__ == "__main__":
    main()
