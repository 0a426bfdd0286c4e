"""The connection's form in Airflow's UI, its Test button, and the hook that tasks use."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from storage import BACKENDS
from tests.blocks.payments import payments
from txn_engine import Engine
from txn_engine.errors import TxnEngineError

pytestmark = pytest.mark.airflow


def test_the_provider_fits_airflows_schemas_and_names_what_is_there() -> None:
    """The provider's information fits Airflow's schemas, and every class and module that it names can be
    imported."""
    from importlib import import_module

    import airflow
    import jsonschema

    from txn_engine_airflow.provider import get_provider_info

    info = get_provider_info()
    folder = Path(airflow.__file__).parent
    jsonschema.validate(info, json.loads((folder / "provider_info.schema.json").read_text()))
    form = json.loads((folder / "provider.yaml.schema.json").read_text())["properties"]["connection-types"]
    jsonschema.validate(info["connection-types"], form)
    for kind in ("hooks", "operators", "sensors", "triggers"):
        for entry in info[kind]:
            for module in entry["python-modules"]:
                import_module(module)


def test_the_form_has_a_field_for_each_thing_that_a_connection_says() -> None:
    """The form has a field for every setting that any kind of store reads from `extra`, with secrets hidden
    and without duplicates."""
    from airflow.sdk import Connection

    from txn_engine_airflow.connection import StoreConnection
    from txn_engine_airflow.hook import TxnEngineHook
    from txn_engine_airflow.provider import get_provider_info

    (form,) = get_provider_info()["connection-types"]
    assert form["connection-type"] == TxnEngineHook.conn_type
    assert form["hook-name"] == TxnEngineHook.hook_name
    fields = form["conn-fields"]
    filled = {name: f"x-{name}" for name in fields}
    secret, read = set(), {"url"}
    for backend in BACKENDS:
        extra = filled | {"url": f"{backend.schemes[0]}://ledger"}
        asked = {"login": "x-login", "password": "x-password", "extra": json.dumps(extra)}
        store = StoreConnection.of(Connection(conn_id="c", conn_type="txn_engine", **asked))
        assert store.access == {each.keyword: f"x-{each.field}" for each in backend.settings}
        of_extra = [each for each in backend.settings if each.field not in ("login", "password")]
        secret |= {each.field for each in of_extra if each.secret}
        read |= {each.field for each in of_extra}
        assert sorted(store.secrets) == sorted(f"x-{each.field}" for each in backend.settings if each.secret)
    assert set(fields) == read
    assert {name for name, field in fields.items() if field["schema"].get("format") == "password"} == secret
    behaviour = form["ui-field-behaviour"]
    assert set(behaviour["placeholders"]) <= {*fields, "host", "schema", "login", "password"}
    assert behaviour["hidden-fields"] == ["port"]  # it would be refused


def _test(monkeypatch: pytest.MonkeyPatch, **connection: Any) -> tuple[bool, str]:
    """What the Test button says, called as Airflow calls it."""
    from airflow.models import Connection

    from txn_engine_airflow.hook import TxnEngineHook

    text = json.dumps({"conn_type": "txn_engine", **connection})
    monkeypatch.setenv("AIRFLOW_CONN_UNDER_TEST", text)
    monkeypatch.setattr(Connection, "get_hook", lambda own: TxnEngineHook(conn_id=own.conn_id))
    return Connection(conn_id="under_test", conn_type="txn_engine").test_connection()


def test_a_store_is_tested_by_reading_it(
    engine: Engine, store_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The Test button says what the store has. In an empty folder it does not create a store."""
    assert _test(monkeypatch, extra={"url": store_url}) == (True, f"{engine.url} answers: 2 topics")
    (tmp_path / "empty").mkdir()
    is_well, told = _test(monkeypatch, host=f"{tmp_path}/empty")
    assert is_well
    assert "nothing is there yet" in told
    assert list((tmp_path / "empty").iterdir()) == []


def test_what_is_wrong_with_a_connection_is_told_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    """A fault of a connection is reported in one line without a secret."""
    from tests.support.servers import free_port

    is_well, told = _test(monkeypatch, host="/no/such/folder/at/all/ledger")
    assert not is_well
    assert "/no/such/folder/at/all" in told
    is_well, told = _test(monkeypatch, port=9000)
    assert not is_well
    assert "port 9000 has no meaning here" in told
    endpoint = f"http://127.0.0.1:{free_port()}"
    is_well, told = _test(
        monkeypatch,
        host="ledger",
        login="KEY",
        password="deepest-secret",
        extra={"endpoint_url": endpoint, "region_name": "us-east-1"},
    )
    assert not is_well
    assert "\n" not in told
    assert "deepest-secret" not in told


@pytest.mark.minio
def test_a_bucket_is_tested_by_reading_it(minio_bucket: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A bucket is read with the connection's own keys, and wrong keys are reported."""
    settings = {
        "host": minio_bucket.name,
        "login": minio_bucket.access_key,
        "extra": {"endpoint_url": minio_bucket.endpoint, "region_name": "us-east-1"},
    }
    is_well, told = _test(monkeypatch, password=minio_bucket.secret_key, **settings)
    assert is_well, told
    assert "nothing is there yet" in told
    is_well, told = _test(monkeypatch, password="no-such-secret", **settings)
    assert not is_well
    assert "no-such-secret" not in told


def test_the_hook_opens_and_closes_an_engine(engine: Engine, store_url: str) -> None:
    """An error leaves the hook's block as an error of Airflow's, in one line."""
    from airflow.sdk.exceptions import AirflowFailException

    from txn_engine_airflow import TxnEngineHook

    with TxnEngineHook().engine() as opened:
        assert sorted(opened.admin.list_topics()) == ["balances", "payments"]
    with pytest.raises(AirflowFailException, match="'nowhere'"), TxnEngineHook().engine() as opened:
        opened.admin.describe_topic("nowhere")
    with TxnEngineHook().get_conn() as opened, opened.producer() as producer:
        producer.produce("payments", payments(0, 3))
    assert engine.scan("payments").to_table().num_rows == 3


def _all_errors() -> list[type[TxnEngineError]]:
    import txn_engine.spark.errors
    import txn_engine.spark.java  # noqa: F401 -- their classes count

    found, left = set(), [TxnEngineError]
    while left:
        kinds = left.pop().__subclasses__()
        found.update(kinds)
        left += kinds
    return sorted(
        (kind for kind in found if kind.__module__.startswith("txn_engine.")), key=lambda kind: kind.code
    )


def test_a_store_that_must_exist_is_not_begun(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """If the deployment says that its store exists, a wrong URL, or a store that was moved away, is an error without a
    retry, and no new store is begun there."""
    from airflow.sdk.exceptions import AirflowFailException

    from txn_engine_airflow.errors import TaskError
    from txn_engine_airflow.hook import TxnEngineHook

    monkeypatch.delenv("AIRFLOW_CONN_TXN_ENGINE_DEFAULT", raising=False)
    monkeypatch.setenv("TXN_ENGINE_STORE_MUST_EXIST", "true")
    for folder in (tmp_path / "gone", tmp_path / "empty"):
        if folder.name == "empty":
            folder.mkdir()
        monkeypatch.setenv("TXN_ENGINE_URL", f"file://{folder}")
        with pytest.raises(AirflowFailException, match=r"\[STORE_NOT_FOUND\]$"), TxnEngineHook().engine():
            pass
        assert not folder.exists() or list(folder.iterdir()) == []
    monkeypatch.setenv("TXN_ENGINE_STORE_MUST_EXIST", "perhaps")
    with pytest.raises(TaskError) as refused, TxnEngineHook().engine():
        pass
    assert (refused.value.reason, refused.value.variable) == ("bad_setting", "TXN_ENGINE_STORE_MUST_EXIST")
    monkeypatch.setenv("TXN_ENGINE_STORE_MUST_EXIST", "")
    with TxnEngineHook().engine() as engine:
        assert engine.admin.list_topics() == []


def test_every_error_is_retried_where_its_class_says_that_a_retry_helps() -> None:
    """An error is retried if its class says that a retry helps, not by a list of codes."""
    from airflow.sdk.exceptions import AirflowException, AirflowFailException

    from txn_engine_airflow.hook import readable_errors

    kinds = _all_errors()
    assert {kind.code for kind in kinds} > {
        "INVALID_CONFIG",
        "NETWORK_EXCEPTION",
        "JAVA_NOT_FOUND",
        "SPARK_SESSION",
    }
    for kind in kinds:
        with pytest.raises(AirflowException) as raised, readable_errors():
            raise kind("seen")
        is_final = isinstance(raised.value, AirflowFailException)
        assert is_final != kind.retry_helps, kind
    final = {kind.code for kind in kinds if not kind.retry_helps}
    assert final >= {
        "INVALID_REQUEST",
        "INVALID_CONFIG",
        "INVALID_PARTITIONS",
        "PRODUCER_FENCED",
        "JAVA_NOT_FOUND",
    }
