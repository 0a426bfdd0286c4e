"""The fixtures give the deployment's script, and a MinIO to administer."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType

import pytest
from minio import MinioAdmin
from minio.credentials import StaticProvider
from minio.error import S3Error

from tests.support.servers import REPOSITORY, MinioServer

SETUP = REPOSITORY / "deploy" / "minio_setup.py"


@contextmanager
def access_denied() -> Iterator[None]:
    """MinIO refuses what the block does because of the user's policy."""
    with pytest.raises(S3Error) as refused:
        yield
    assert refused.value.code == "AccessDenied"


@pytest.fixture(scope="session")
def minio_setup() -> ModuleType:
    """The script of the deployment, imported from its file."""
    spec = importlib.util.spec_from_file_location("minio_setup", SETUP)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def admin(minio_server: MinioServer) -> MinioAdmin:
    root = StaticProvider(minio_server.access_key, minio_server.secret_key)
    endpoint = minio_server.url.removeprefix("http://")
    return MinioAdmin(endpoint=endpoint, credentials=root, region="us-east-1", secure=False)
