"""The connection `txn_engine_default`: which fields hold what."""

from __future__ import annotations

import json
from typing import Any

import pytest

pytestmark = pytest.mark.airflow

UNREADABLE = (
    '{"conn_type": "txn_engine", "password": "HIDDEN"',
    '{"conn_typ": "txn_engine", "password": "HIDDEN"}',
    "txn-engine://KEY:HIDDEN@ledger:notaport/prod",
)
WITH_A_SECRET = (
    '{"conn_type": "txn_engine", "extra": {"url": "s3://KEY:HIDDEN@ledger/prod"}}',
    '{"conn_type": "txn_engine", "host": "s3://KEY:HIDDEN@ledger"}',
    '{"conn_type": "txn_engine", "host": "KEY:HIDDEN@ledger"}',
)


def _load(monkeypatch: pytest.MonkeyPatch, text: str) -> Any:
    from txn_engine_airflow.connection import StoreConnection

    monkeypatch.delenv("TXN_ENGINE_URL", raising=False)
    monkeypatch.setenv("AIRFLOW_CONN_TXN_ENGINE_DEFAULT", text)
    return StoreConnection.load()


@pytest.mark.parametrize(
    ("text", "url"),
    [
        ("txn-engine://ledger", "s3://ledger"),
        ("txn-engine://ledger/prod/eu", "s3://ledger/prod/eu"),
        ("txn-engine:///srv/ledger", "file:///srv/ledger"),
        ("txn-engine://s3://ledger/prod", "s3://ledger/prod"),
        ("txn-engine://?url=file%3A%2F%2F%2Fsrv%2Fledger", "file:///srv/ledger"),
        ('{"conn_type": "txn_engine", "host": "s3://ledger"}', "s3://ledger"),
        ('{"conn_type": "txn_engine", "host": "s3://ledger/", "schema": "prod"}', "s3://ledger/prod"),
        ('{"conn_type": "txn_engine", "host": "file:///srv/ledger"}', "file:///srv/ledger"),
        ('{"conn_type": "txn_engine", "host": "/srv/ledger"}', "file:///srv/ledger"),
        ('{"conn_type": "txn_engine", "host": "/srv/ledger", "schema": "file"}', "file:///srv/ledger"),
        ('{"conn_type": "txn_engine", "host": "ledger/prod", "schema": "s3"}', "s3://ledger/prod"),
        ('{"conn_type": "txn_engine", "schema": "/srv/ledger"}', "file:///srv/ledger"),
        ('{"conn_type": "txn_engine", "host": "ledger/prod", "schema": "az"}', "az://ledger/prod"),
        ('{"conn_type": "txn_engine", "host": "gs://ledger", "schema": "prod"}', "gs://ledger/prod"),
        (
            '{"conn_type": "txn_engine", "extra": {"url": "abfss://c01@ledger.dfs.core.windows.net/prod"}}',
            "abfss://c01@ledger.dfs.core.windows.net/prod",
        ),
        (
            '{"conn_type": "txn_engine", "host": "other", "extra": {"url": "s3://ledger/prod"}}',
            "s3://ledger/prod",
        ),
    ],
)
def test_the_url_stands_in_extra_or_host_and_schema(
    monkeypatch: pytest.MonkeyPatch, text: str, url: str
) -> None:
    """The store's URL is read from `extra`, or from host and schema, in each form of the documentation."""
    assert _load(monkeypatch, text).url == url


def test_credentials_endpoint_and_region_stand_where_the_aws_connection_has_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Credentials, endpoint and region are read from the fields of an AWS connection, and the object shows no
    secret."""
    extra = {
        "endpoint_url": "http://127.0.0.1:9000",
        "region_name": "eu-west-1",
        "aws_session_token": "TOKEN",
    }
    store = _load(
        monkeypatch,
        json.dumps(
            {
                "conn_type": "txn_engine",
                "host": "ledger",
                "login": "KEY",
                "password": "SECRET",
                "extra": extra,
            }
        ),
    )
    assert store.access == {
        "access_key": "KEY",
        "secret_key": "SECRET",
        "session_token": "TOKEN",
        "endpoint": "http://127.0.0.1:9000",
        "region": "eu-west-1",
    }
    assert store.secrets == ["SECRET", "TOKEN"]
    assert not {"KEY", "SECRET", "TOKEN"} & set(repr(store).replace("'", " ").split())


@pytest.mark.parametrize(
    ("text", "reason", "subject"),
    [
        ('{"conn_type": "txn_engine", "login": "KEY"}', "no_store", "txn_engine_default"),
        ("txn-engine://ledger:9000", "port_without_meaning", "port"),
        (
            '{"conn_type": "txn_engine", "host": "ledger", "extra": "not json"}',
            "unreadable_connection",
            "extra",
        ),
        ('{"conn_type": "txn_engine", "host": "ledger", "extra": "[1]"}', "unreadable_connection", "extra"),
        ('{"conn_type": "txn_engine", "extra": {"url": {"a": 1}}}', "not_text", "extra.url"),
        ('{"conn_type": "txn_engine", "host": 5}', "not_text", "host"),
        ("postgres://user:HIDDEN@db/ledger", "wrong_connection_type", "txn_engine_default"),
        (
            '{"conn_type": "aws", "extra": {"url": "s3://ledger"}}',
            "wrong_connection_type",
            "txn_engine_default",
        ),
        *((text, "unreadable_connection", "txn_engine_default") for text in UNREADABLE),
        *((text, "url_with_secrets", "connection 'txn_engine_default'") for text in WITH_A_SECRET),
    ],
)
def test_a_connection_that_cannot_be_used_is_refused_in_one_line(
    monkeypatch: pytest.MonkeyPatch, text: str, reason: str, subject: str
) -> None:
    """A connection that cannot be used is refused in one line that names it and shows no secret. The task is
    not retried."""
    from airflow.sdk.exceptions import AirflowFailException

    from txn_engine_airflow.errors import TaskError

    assert issubclass(TaskError, AirflowFailException)
    with pytest.raises(TaskError) as refused:
        _load(monkeypatch, text)
    assert str(refused.value).startswith("connection 'txn_engine_default': ")
    assert (refused.value.reason, refused.value.subject) == (reason, subject)
    assert "\n" not in str(refused.value)
    assert "HIDDEN" not in str(refused.value)


@pytest.mark.parametrize("text", [*UNREADABLE, *WITH_A_SECRET, '{"conn_type": "txn_engine", "host": 5}'])
def test_a_wrong_connection_in_the_environment_leaves_the_dags_there(
    monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    """With an invalid connection in the environment the DAGs still load: a topic's schedule goes by the
    connection, and the asset is refused in one line. The tasks report the rest."""
    from txn_engine_airflow import topic_alias, topic_asset, topic_schedule

    monkeypatch.setenv("TXN_ENGINE_URL", "s3://other")
    monkeypatch.setenv("AIRFLOW_CONN_TXN_ENGINE_DEFAULT", text)
    assert topic_schedule("payments") == topic_alias("payments")
    with pytest.raises(ValueError, match="asset of topic 'payments': connection ") as refused:
        topic_asset("payments")
    assert "\n" not in str(refused.value)
    assert "HIDDEN" not in str(refused.value)


@pytest.mark.parametrize(
    "url",
    [
        "s3://KEY:HIDDEN@ledger/prod",
        "s3://KEY:HID/DEN/HIDDEN@ledger",
        "s3a://HIDDEN@ledger",
        "s3:/KEY:HIDDEN@ledger/prod",
        "s3://ledger/prod?secret_key=HIDDEN",
        "s3://ledger/a/KEY:HIDDEN@b",
        "az://KEY:HIDDEN@ledger",
        "abfss://c01:HIDDEN@ledger.dfs.core.windows.net/prod",
        "abfss://c01@ledger.dfs.core.windows.net/a/KEY:HIDDEN@b",
    ],
)
def test_a_url_with_credentials_names_no_store(monkeypatch: pytest.MonkeyPatch, url: str) -> None:
    """A URL with credentials is refused, because the names of assets would show it. The line does not repeat
    it."""
    from txn_engine_airflow import topic_alias, topic_asset, topic_schedule
    from txn_engine_airflow.connection import StoreConnection
    from txn_engine_airflow.errors import TaskError

    monkeypatch.delenv("AIRFLOW_CONN_TXN_ENGINE_DEFAULT", raising=False)
    monkeypatch.setenv("TXN_ENGINE_URL", url)
    with pytest.raises(TaskError) as refused:
        StoreConnection.load()
    source = "TXN_ENGINE_URL in the environment"
    assert (refused.value.reason, refused.value.subject) == ("url_with_secrets", source)
    assert "HIDDEN" not in str(refused.value)
    assert topic_schedule("payments") == topic_alias("payments")
    with pytest.raises(ValueError, match="has credentials, a port or options in it") as unnamed:
        topic_asset("payments", url)
    assert "HIDDEN" not in str(unnamed.value)


def test_without_a_connection_the_environment_names_the_store(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a connection, TXN_ENGINE_URL names the store, for the default connection only. Any other
    connection has to exist."""
    from txn_engine_airflow.connection import StoreConnection
    from txn_engine_airflow.errors import TaskError

    monkeypatch.delenv("AIRFLOW_CONN_TXN_ENGINE_DEFAULT", raising=False)
    monkeypatch.setenv("TXN_ENGINE_URL", "s3://ledger")
    store = StoreConnection.load()
    assert (store.url, store.access, store.source) == (
        "s3://ledger",
        {},
        "TXN_ENGINE_URL in the environment",
    )
    with pytest.raises(TaskError) as other:
        StoreConnection.load("other")
    assert (other.value.reason, other.value.subject) == ("no_connection", "other")
    monkeypatch.delenv("TXN_ENGINE_URL")
    with pytest.raises(TaskError) as default:
        StoreConnection.load()
    assert (default.value.reason, default.value.subject) == ("no_connection", "txn_engine_default")


@pytest.mark.minio
def test_a_connection_opens_the_store_on_minio(monkeypatch: pytest.MonkeyPatch, minio_bucket: Any) -> None:
    """A connection alone opens the store on MinIO, without the environment."""
    from txn_engine_airflow import open_engine

    for name in list(minio_bucket.environment):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv(
        "AIRFLOW_CONN_TXN_ENGINE_DEFAULT",
        json.dumps(
            {
                "conn_type": "txn_engine",
                "host": minio_bucket.name,
                "schema": "prod",
                "login": minio_bucket.access_key,
                "password": minio_bucket.secret_key,
                "extra": {"endpoint_url": minio_bucket.endpoint},
            }
        ),
    )
    with open_engine() as engine:
        engine.admin.create_topic("payments")
        assert engine.url == f"s3://{minio_bucket.name}/prod"
        assert engine.admin.list_topics() == ["payments"]


@pytest.mark.parametrize(
    ("url", "asset"),
    [
        ("s3://ledger", "ledger/payments"),
        ("s3://ledger/prod/eu", "ledger/prod/eu/payments"),
        ("s3a://ledger/", "ledger/payments"),
        ("file:///srv/ledger", "srv/ledger/payments"),
        ("/srv/ledger", "srv/ledger/payments"),
        ("file:///srv/my%20ledger#1", "srv/my%20ledger%231/payments"),
        ("memory://here", "here/payments"),
    ],
)
def test_a_topics_asset_is_named_by_its_store(url: str, asset: str) -> None:
    """A topic's asset is named after its store in one way, so that a producer's event and a schedule have the
    same URI."""
    from txn_engine_airflow import topic_asset

    found = topic_asset("payments", url)
    assert (found.name, found.uri) == (asset, f"txn-engine://{asset}")


def test_a_dag_file_learns_the_store_from_the_environment_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """A DAG file learns the store from the environment, without asking Airflow. If it is not there, the topic
    has no asset and is scheduled by its connection."""
    from airflow.sdk import AssetAlias

    from txn_engine_airflow import topic_alias, topic_asset, topic_schedule

    monkeypatch.delenv("TXN_ENGINE_URL", raising=False)
    monkeypatch.delenv("AIRFLOW_CONN_TXN_ENGINE_DEFAULT", raising=False)
    assert topic_schedule("payments") == topic_alias("payments") == AssetAlias("txn_engine_default/payments")
    with pytest.raises(ValueError, match="asset of topic 'payments': no store is named"):
        topic_asset("payments")
    monkeypatch.setenv("TXN_ENGINE_URL", "s3://ledger")
    assert topic_schedule("payments") == topic_alias("payments") | topic_asset("payments", "s3://ledger")
    assert topic_schedule("payments", "other") == AssetAlias("other/payments")
    monkeypatch.setenv("AIRFLOW_CONN_TXN_ENGINE_DEFAULT", "txn-engine://KEY:SECRET@other/prod")
    assert topic_asset("payments").uri == "txn-engine://other/prod/payments"
