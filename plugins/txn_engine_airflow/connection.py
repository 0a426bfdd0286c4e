"""Which store, and how to get in: the Airflow connection `txn_engine_default`, else the environment.

The fields of a connection of type `txn_engine`:

    extra.url           the store's URL as `txn_engine.connect` takes it; wins over host and schema
    host, schema        where extra has no url, in this order:
                          host with "://"         the URL; schema, if any, is the prefix below it
                          schema s3 or file       the kind of store; host is bucket[/prefix], or the absolute path
                          host alone              an absolute path is a folder, anything else a bucket
                          host and schema         bucket and prefix
                          schema alone            the absolute path of a folder (its leading slash may be left out)
    login, password     access key and secret key
    extra.endpoint_url, extra.region_name, extra.aws_session_token     as in an `aws` connection

So these name the same store: `txn-engine://KEY:SECRET@ledger/prod?region_name=eu-west-1` and
`{"conn_type": "txn_engine", "login": "KEY", "password": "SECRET",
"extra": {"url": "s3://ledger/prod", "region_name": "eu-west-1"}}`; and `txn-engine:///srv/ledger` is a local folder.
What a connection leaves out comes from the environment (`TXN_ENGINE_URL`, `TXN_ENGINE_S3_ENDPOINT`, `AWS_*`).
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, field
from urllib.parse import quote, unquote

from airflow.sdk import Connection
from airflow.sdk.exceptions import AirflowFailException, AirflowNotFoundException

DEFAULT_CONN_ID = "txn_engine_default"
URL_VARIABLE = "TXN_ENGINE_URL"

_HOW = (
    f"extra.url, or host and schema, of the connection, or {URL_VARIABLE} in the environment where {DEFAULT_CONN_ID!r} "
    "is not defined"
)


@dataclass(frozen=True, slots=True)
class StoreConnection:
    """A store's URL and what opens it; None is left to the environment. `repr` shows no secret."""

    url: str
    source: str
    endpoint: str | None = None
    region: str | None = None
    access_key: str | None = field(default=None, repr=False)
    secret_key: str | None = field(default=None, repr=False)
    session_token: str | None = field(default=None, repr=False)

    @classmethod
    def load(cls, conn_id: str = DEFAULT_CONN_ID) -> StoreConnection:
        """The connection of that id. For a task that runs: asks Airflow.

        Only the default id may be missing: then the environment names the store. Raises `AirflowFailException`, which
        no retry follows, where nothing names one.
        """
        try:
            connection = Connection.get(conn_id)
        except AirflowNotFoundException:
            url = os.environ.get(URL_VARIABLE) if conn_id == DEFAULT_CONN_ID else None
            if not url:
                raise AirflowFailException(
                    f"connection {conn_id!r}: it is not defined, so no store is named; expected {_HOW}"
                ) from None
            return cls(url, f"{URL_VARIABLE} in the environment")
        return cls.of(connection)

    @classmethod
    def of(cls, connection: Connection) -> StoreConnection:
        """What a connection says. Raises `AirflowFailException` for one that says nothing, or two things."""
        extra = _extra(connection)
        name = f"connection {connection.conn_id!r}"
        if connection.port:
            raise AirflowFailException(
                f"{name}: port {connection.port} has no meaning here; expected the endpoint in extra.endpoint_url"
            )
        url = extra.get("url") or _url(connection) or os.environ.get(URL_VARIABLE)
        if not url:
            raise AirflowFailException(f"{name}: it names no store; expected {_HOW}")
        return cls(
            url,
            name,
            endpoint=extra.get("endpoint_url") or None,
            region=extra.get("region_name") or None,
            access_key=connection.login or None,
            secret_key=connection.password or None,
            session_token=extra.get("aws_session_token") or None,
        )

    @property
    def place(self) -> str:
        """Bucket and prefix, or the path without its leading slash: the first part of an asset's URI."""
        scheme, separator, rest = self.url.partition("://")
        if not separator:
            rest = os.path.abspath(os.path.expanduser(self.url))
        elif scheme == "file":
            rest = unquote(rest.removeprefix("localhost"))
        return quote(rest.strip("/"), safe="/")


def connection_of_environment() -> StoreConnection | None:
    """The default connection as far as the environment alone tells; asks nobody, so a DAG file may call it."""
    text = os.environ.get(f"AIRFLOW_CONN_{DEFAULT_CONN_ID.upper()}", "").strip()
    if text:
        read = Connection.from_json if text.startswith("{") else Connection.from_uri
        return StoreConnection.of(read(text, conn_id=DEFAULT_CONN_ID))
    url = os.environ.get(URL_VARIABLE)
    return StoreConnection(url, f"{URL_VARIABLE} in the environment") if url else None


def _url(connection: Connection) -> str | None:
    host, schema = (connection.host or "").strip(), (connection.schema or "").strip()
    if "://" in host:
        return f"{host.rstrip('/')}/{schema.strip('/')}" if schema else host
    if schema == "file":
        return f"file:///{host.strip('/')}"
    if schema == "s3":
        return f"s3://{host}"
    if host.startswith("/"):
        return f"file://{host}"
    if host:
        return f"s3://{host}/{schema.strip('/')}".rstrip("/")
    return f"file:///{schema.strip('/')}" if schema else None


def _extra(connection: Connection) -> dict[str, str]:
    """The connection's extra. (`extra_dejson` would log what it cannot read, and mask the store's URL.)"""
    if not connection.extra:
        return {}
    try:
        found = json.loads(connection.extra)
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise AirflowFailException(
            f"connection {connection.conn_id!r}: extra cannot be read; expected a JSON object"
        )
    return {name: str(value) for name, value in found.items() if value is not None}
