"""What Airflow asks a provider for: the connection's form, and where hook, operators, sensors and triggers are.

Airflow reads it before it imports anything else of ours (entry point `apache_airflow_provider`), so it imports nothing.
"""

from __future__ import annotations

from typing import Any

_NAME = "txn-engine"
_PACKAGE = "txn_engine_airflow"
_OPERATORS = ("produce", "consume", "spark_consume", "cut", "abort")


def get_provider_info() -> dict[str, Any]:
    """The provider's description, in the form of Airflow's `provider.yaml` schema."""
    return {
        "package-name": _NAME,
        "name": "Transaction engine",
        "description": "Kafka's exactly-once transactions on an object store, with no broker.",
        "integrations": [
            {
                "integration-name": _NAME,
                "external-doc-url": "https://kafka.apache.org/documentation/#semantics",
            }
        ],
        "hooks": [_modules("hook")],
        "operators": [_modules(*(f"operators.{name}" for name in _OPERATORS))],
        "sensors": [_modules("sensors")],
        "triggers": [_modules("triggers", "watchers")],
        "connection-types": [_CONNECTION_TYPE],
    }


def _modules(*names: str) -> dict[str, Any]:
    return {"integration-name": _NAME, "python-modules": [f"{_PACKAGE}.{name}" for name in names]}


def _field(label: str, description: str, *, secret: bool = False) -> dict[str, Any]:
    kind: dict[str, Any] = {"type": ["string", "null"]}
    return {
        "label": label,
        "description": description,
        "schema": kind | {"format": "password"} if secret else kind,
    }


_CONNECTION_TYPE: dict[str, Any] = {
    "connection-type": "txn_engine",
    "hook-class-name": f"{_PACKAGE}.hook.TxnEngineHook",
    "hook-name": "Transaction engine (txn-engine)",
    "ui-field-behaviour": {
        "hidden-fields": ["port"],
        "relabeling": {
            "host": "Bucket, or folder",
            "schema": "Prefix in the bucket",
            "login": "Access key",
            "password": "Secret key",
        },
        "placeholders": {
            "host": "ledger, or /srv/ledger",
            "schema": "prod",
            "login": "empty: AWS_ACCESS_KEY_ID of the worker, or its role",
            "password": "empty: AWS_SECRET_ACCESS_KEY of the worker, or its role",
            "url": "s3://ledger/prod, or file:///srv/ledger",
            "endpoint_url": "http://minio:9000; empty: AWS",
            "region_name": "eu-west-1",
        },
    },
    "conn-fields": {
        "url": _field("Store URL", "Names the store in one field, and wins over bucket and prefix."),
        "endpoint_url": _field("Endpoint", "Of an S3 server that is not AWS."),
        "region_name": _field("Region", "Of the bucket; empty: AWS_REGION of the worker."),
        "aws_session_token": _field("Session token", "With temporary credentials only.", secret=True),
    },
}
