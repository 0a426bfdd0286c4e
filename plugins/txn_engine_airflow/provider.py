"""What Airflow asks a provider for: the connection's form, and where hook, operators, sensors and triggers are.

Airflow reads it before it imports anything else of ours (entry point `apache_airflow_provider`), so it imports nothing
of the engine.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from txn_engine_airflow.kinds import Kind, KindSetting, kinds

_NAME = "txn-engine"
_PACKAGE = "txn_engine_airflow"
_OPERATORS = ("produce", "consume", "spark_consume", "to_postgres", "from_postgres", "cut", "abort")


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
        "connection-types": [_connection_type()],
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


def _connection_type() -> dict[str, Any]:
    return {
        "connection-type": "txn_engine",
        "hook-class-name": f"{_PACKAGE}.hook.TxnEngineHook",
        "hook-name": "Transaction engine (txn-engine)",
        "ui-field-behaviour": {
            "hidden-fields": ["port"],
            "relabeling": {
                "host": "Bucket, or folder",
                "schema": "Prefix in the bucket",
                "login": _of_each("login", lambda setting, _: setting.label),
                "password": _of_each("password", lambda setting, _: setting.label),
            },
            "placeholders": {
                "host": "ledger, or /srv/ledger",
                "schema": "prod",
                "login": _of_each("login", _where_empty),
                "password": _of_each("password", _where_empty),
                "url": ", ".join([*(kind.example for kind in kinds()), "or file:///srv/ledger"]),
                **{
                    field: _of_each(field, lambda setting, _: setting.placeholder)
                    for field in _extra_fields()
                },
            },
        },
        "conn-fields": {
            "url": _field("Store URL", "Names the store in one field, and wins over bucket and prefix."),
            **{
                field: _field(
                    _of_each(field, lambda setting, _: setting.label),
                    _of_each(field, lambda setting, kind: f"{kind.name}: {setting.help}", " "),
                    secret=secret,
                )
                for field, secret in _extra_fields().items()
            },
        },
    }


def _where_empty(setting: KindSetting, kind: Kind) -> str:
    return f"{kind.name}, empty: {setting.variable} of the worker, or its role"


def _extra_fields() -> dict[str, bool]:
    """The names in `extra` that some kind has a setting for, and whether it is a secret."""
    found: dict[str, bool] = {}
    for kind in kinds():
        for setting in kind.settings:
            if setting.field not in ("", "login", "password"):
                found[setting.field] = found.get(setting.field, False) or setting.secret
    return found


def _of_each(field: str, told: Callable[[KindSetting, Kind], str], between: str = "; ") -> str:
    """What is told of the field for each kind that has it, each once."""
    found = [told(each, kind) for kind in kinds() for each in kind.settings if each.field == field]
    return between.join(dict.fromkeys(filter(None, found)))
