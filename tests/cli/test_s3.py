"""The command line works on a real MinIO: a missing bucket, wrong credentials, a file in and out."""

from __future__ import annotations

import json
import os
import secrets
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from minio import MinioAdmin

from tests.cli.conftest import SCHEMA, Run
from tests.conftest import S3Bucket
from tests.deploy.conftest import admin
from tests.support.servers import MinioServer, minio_binary

__all__ = ["admin"]

pytestmark = pytest.mark.minio


def test_a_file_through_the_bucket(run: Run, minio_bucket: S3Bucket, good: Path) -> None:
    """A topic can be created, loaded, read and verified with the endpoint as an option instead of a
    variable."""
    env = minio_bucket.environment
    endpoint = env.pop("TXN_ENGINE_S3_ENDPOINT")
    store = f"{minio_bucket.url}/ledger"

    def call(*arguments: str) -> str:
        answer = run(*arguments, "--endpoint", endpoint, store=store, env=env)
        assert answer.code == 0, answer.stderr
        return answer.stdout

    call("topics", "create", "payments", "--schema", SCHEMA)
    call("produce", "payments", str(good), "--transactional-id", "load")
    assert call("consume", "payments", "--format", "csv").count("\n") == 5
    assert call("verify").startswith("no errors in s3://")
    told = call("doctor")
    for name in (
        "store",
        "credentials",
        "reachable",
        "bucket",
        "versioning",
        "lifecycle",
        "put-if-absent",
        "clock",
    ):
        assert f"✓ {name}" in told
    assert "AWS_ACCESS_KEY_ID" in told
    assert minio_bucket.secret_key not in told
    assert minio_bucket.access_key not in told


def test_a_missing_bucket(run: Run, minio_server: MinioServer, good: Path) -> None:
    """Every command names it in one line, and the doctor fails at that check."""
    env = minio_server.environment
    store = "s3://no-such-bucket/ledger"
    for arguments in (["topics", "create", "t"], ["topics", "list"], ["produce", "t", str(good)], ["verify"]):
        answer = run(*arguments, store=store, env=env)
        assert (answer.code, answer.error_code) == (1, "STORE_NOT_FOUND")
        assert "'no-such-bucket'" in answer.error
    answer = run("doctor", store=store, env=env)
    assert answer.code == 1
    assert "✗ bucket" in answer.stdout
    assert "create it" in answer.stdout


def test_wrong_credentials(run: Run, minio_bucket: S3Bucket) -> None:
    """An unknown key and a wrong secret have the same code, and neither key is shown."""
    wrong = (
        minio_bucket.environment | {"AWS_SECRET_ACCESS_KEY": "not-the-secret-key"},
        minio_bucket.environment | {"AWS_ACCESS_KEY_ID": "nobodys-key"},
    )
    for env in wrong:
        for arguments in (["topics", "create", "t"], ["topics", "list"], ["verify"]):
            answer = run(*arguments, store=minio_bucket.url, env=env)
            assert (answer.code, answer.error_code) == (1, "CLUSTER_AUTHORIZATION_FAILED")
            assert "not-the-secret-key" not in answer.error
        answer = run("doctor", store=minio_bucket.url, env=env)
        assert answer.code == 1
        assert "✗ reachable" in answer.stdout
        assert "not-the-secret-key" not in answer.stdout + answer.stderr


def user_who_may(admin: MinioAdmin, bucket: S3Bucket, *statements: dict[str, Any]) -> dict[str, str]:
    """The environment of a user with these rights, and no others."""
    key, secret = f"user-{secrets.token_hex(4)}", secrets.token_hex(16)
    allowed = [{"Effect": "Allow", "Sid": f"S{at}", **each} for at, each in enumerate(statements)]
    admin.policy_add(key, policy={"Version": "2012-10-17", "Statement": allowed})
    admin.user_add(key, secret)
    admin.policy_set(key, user=key)
    return S3Bucket(bucket.name, bucket.endpoint, key, secret).environment


def test_rights_below_the_prefix_alone(
    run: Run, minio_bucket: S3Bucket, admin: MinioAdmin, good: Path
) -> None:
    """A user who may list and use the store's prefix alone works, and the doctor sees what the engine sees."""
    bucket = f"arn:aws:s3:::{minio_bucket.name}"
    env = user_who_may(
        admin,
        minio_bucket,
        {
            "Action": ["s3:ListBucket"],
            "Resource": [bucket],
            "Condition": {"StringLike": {"s3:prefix": ["ledger/*"]}},
        },
        {
            "Action": ["s3:GetObject", "s3:PutObject", "s3:DeleteObject"],
            "Resource": [f"{bucket}/ledger/*"],
        },
    )
    store = f"{minio_bucket.url}/ledger"
    assert run("topics", "create", "payments", "--schema", SCHEMA, store=store, env=env).code == 0
    assert run("produce", "payments", str(good), store=store, env=env).code == 0
    answer = run("doctor", "--json", store=store, env=env)
    found = {check["check"]: check["status"] for check in answer.json["checks"]}
    assert answer.code == 0
    assert [found[name] for name in ("reachable", "bucket", "put-if-absent", "contents")] == ["ok"] * 4
    assert [found[name] for name in ("versioning", "lifecycle")] == ["warning"] * 2


def test_who_may_not_delete(run: Run, minio_bucket: S3Bucket, admin: MinioAdmin, good: Path) -> None:
    """The doctor proves put-if-absent for a user who may not delete, and says once that its probes stay."""
    bucket = f"arn:aws:s3:::{minio_bucket.name}"
    env = user_who_may(
        admin,
        minio_bucket,
        {"Action": ["s3:ListBucket"], "Resource": [bucket]},
        {"Action": ["s3:GetObject", "s3:PutObject"], "Resource": [f"{bucket}/*"]},
    )
    assert run("topics", "create", "payments", "--schema", SCHEMA, store=minio_bucket.url, env=env).code == 0
    assert run("produce", "payments", str(good), store=minio_bucket.url, env=env).code == 0
    answer = run("doctor", "--json", store=minio_bucket.url, env=env)
    names = [check["check"] for check in answer.json["checks"]]
    found = {check["check"]: check["status"] for check in answer.json["checks"]}
    assert (answer.code, names.count("put-if-absent")) == (0, 1)
    assert (found["put-if-absent"], found["clock"], found["probes"]) == ("ok", "ok", "warning")


def test_conformance(run: Run, minio_bucket: S3Bucket, monkeypatch: pytest.MonkeyPatch) -> None:
    """The store conforms, and no probe is left there."""
    monkeypatch.setattr("txn_engine.cli.conform.PAUSE_S", 0)
    answer = run(
        "doctor", "--conformance", "--json", store=f"{minio_bucket.url}/ledger", env=minio_bucket.environment
    )
    assert (answer.code, answer.json["conforms"], answer.json["left"]) == (0, True, 0), answer.stdout
    assert list(minio_bucket.client().list_objects(minio_bucket.name, recursive=True)) == []


def test_a_lifecycle_rule_that_deletes_is_unusable(run: Run, minio_bucket: S3Bucket) -> None:
    """The doctor names the rule and says to remove it."""
    from minio.commonconfig import ENABLED, Filter
    from minio.lifecycleconfig import Expiration, LifecycleConfig, Rule

    rule = Rule(ENABLED, rule_filter=Filter(prefix="ledger/"), rule_id="tidy", expiration=Expiration(days=30))
    minio_bucket.client().set_bucket_lifecycle(minio_bucket.name, LifecycleConfig([rule]))
    answer = run("doctor", store=f"{minio_bucket.url}/ledger", env=minio_bucket.environment)
    assert answer.code == 1
    assert "✗ lifecycle" in answer.stdout
    assert "'tidy'" in answer.stdout


def test_a_store_that_went_down(run: Run, minio_server: MinioServer) -> None:
    """If nobody listens at the endpoint, the command fails with one line."""
    env = minio_server.environment | {"TXN_ENGINE_S3_ENDPOINT": "http://127.0.0.1:1"}
    answer = run("topics", "list", store="s3://bucket/x", env=env)
    assert (answer.code, answer.error_code) == (1, "NETWORK_EXCEPTION")


@pytest.mark.shard("kills")
def test_a_follower_outlives_its_server(run: Run, good: Path, tmp_path: Path) -> None:
    """A follower waits while its server is down, says so, and goes on where it was once the server is back."""
    binary = minio_binary()
    assert binary is not None
    with MinioServer(binary) as server:
        server.client().make_bucket("ledger")
        env = {**os.environ, **server.environment}
        store = "s3://ledger/prod"
        assert (
            run("topics", "create", "payments", "--schema", SCHEMA, store=store, env=server.environment).code
            == 0
        )
        arguments = ["consume", "payments", "--group", "g", "--follow", "--format", "jsonl", "--url", store]
        with subprocess.Popen(
            [sys.executable, "-m", "txn_engine", *arguments],
            env=env,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        ) as follower:
            assert follower.stdout is not None
            assert follower.stderr is not None
            try:
                assert run("produce", "payments", str(good), store=store, env=server.environment).code == 0
                first = [follower.stdout.readline() for _ in range(3)]
                server.kill()
                assert any("waiting for the store" in line for line in follower.stderr)
                server.start()
                assert any("answers again" in line for line in follower.stderr)
                assert run("produce", "payments", str(good), store=store, env=server.environment).code == 0
                second = [follower.stdout.readline() for _ in range(3)]
                assert [json.loads(line)["id"] for line in first] == [
                    json.loads(line)["id"] for line in second
                ]
                follower.send_signal(signal.SIGINT)
                assert follower.wait(60) == 130
            finally:
                follower.kill()
