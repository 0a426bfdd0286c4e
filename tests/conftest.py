"""Fixtures that every suite may use: the real MinIO server and a fresh bucket on it."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from dataclasses import dataclass

import pytest
from hypothesis import settings
from minio import Minio

from tests.servers import MinioServer, minio_binary, minio_client

pytest_plugins = ["tests.shared_data", "tests.minio_build"]

settings.register_profile("engine", deadline=None)  # shared machines are slow at times; that is no failure
settings.load_profile("engine")


@dataclass(frozen=True)
class MinioBucket:
    """A bucket of one test's own, and how to get in."""

    name: str
    endpoint: str
    access_key: str
    secret_key: str

    @property
    def url(self) -> str:
        return f"s3://{self.name}"

    @property
    def environment(self) -> dict[str, str]:
        return {
            "TXN_ENGINE_S3_ENDPOINT": self.endpoint,
            "AWS_ACCESS_KEY_ID": self.access_key,
            "AWS_SECRET_ACCESS_KEY": self.secret_key,
            "AWS_REGION": "us-east-1",
        }

    def client(self) -> Minio:
        """A client that shares no code with the store under test."""
        return minio_client(self.endpoint, self.access_key, self.secret_key)


@pytest.fixture(scope="session")
def minio_server() -> Iterator[MinioServer]:
    """A running MinIO, one for the whole session."""
    binary = minio_binary()
    if binary is None:
        how = "no MinIO server: run `make minio`, or set TXN_ENGINE_MINIO to the binary"
        if os.environ.get("CI"):
            pytest.fail(how)
        pytest.skip(how)
    with MinioServer(binary) as server:
        yield server


@pytest.fixture
def minio_bucket(minio_server: MinioServer) -> MinioBucket:
    """A fresh bucket; it goes with the server."""
    bucket = MinioBucket(
        f"test-{secrets.token_hex(8)}", minio_server.url, minio_server.access_key, minio_server.secret_key
    )
    bucket.client().make_bucket(bucket.name)
    return bucket
