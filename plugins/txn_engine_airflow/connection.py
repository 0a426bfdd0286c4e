"""Which store, and how to get in: the Airflow connection `txn_engine_default`, else the environment.

The fields of a connection of type `txn_engine`:

    extra.url           the store's URL as `txn_engine.connect` takes it, without keys; wins over host and schema
    host, schema        where extra has no url, in this order:
                          host with "://"         the URL; schema, if any, is the prefix below it
                          schema file, s3, ...    the kind of store; host is bucket[/prefix], or the absolute path
                          host alone              an absolute path is a folder, anything else a bucket of S3
                          host and schema         bucket and prefix, likewise
                          schema alone            the absolute path of a folder (its leading slash may be left out)
    login, password, and names in extra     what opens it, by the kind of store: docs/STORES.md

So these name the same store: `txn-engine://KEY:SECRET@ledger/prod?region_name=eu-west-1` and
`{"conn_type": "txn_engine", "login": "KEY", "password": "SECRET",
"extra": {"url": "s3://ledger/prod", "region_name": "eu-west-1"}}`; and `txn-engine:///srv/ledger` is a local folder.
What a connection leaves out comes from the environment (`TXN_ENGINE_URL`, and the variables of its kind of store).
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import quote, unquote

from airflow.sdk import Connection
from airflow.sdk.exceptions import AirflowException, AirflowNotFoundException

from txn_engine_airflow.errors import TaskError, TaskReason
from txn_engine_airflow.kinds import kind_of, kinds

DEFAULT_CONN_ID = "txn_engine_default"
URL_VARIABLE = "TXN_ENGINE_URL"

_NEARLY_A_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")
_OF_THE_CONNECTION: Final = ("login", "password")
_TYPES: Final = ("txn_engine", "generic", "", None)
"""Airflow's form offers "generic" where the provider is not installed beside it."""
_HOW = (
    f"extra.url, or host and schema, of the connection, or {URL_VARIABLE} in the environment where {DEFAULT_CONN_ID!r} "
    "is not defined"
)


@dataclass(frozen=True, slots=True)
class StoreConnection:
    """A store's URL and what opens it; None is left to the environment. `repr` shows no secret.

    Raises `AirflowFailException` for a URL with credentials in it: it ends up in logs and in the names of assets.
    """

    url: str
    source: str
    settings: tuple[tuple[str, str], ...] = field(default=(), repr=False)

    def __post_init__(self) -> None:
        scheme, separator, rest = self.url.partition("://")
        kind = kind_of(self.url)
        if kind is not None and kind.may_hold_at(rest.partition("/")[0]):
            rest = rest.replace("@", "", 1)
        # A secret may hold a slash: then only the colon before it stands in front of the path.
        if (
            {"@", ":"} & set(rest.partition("/")[0])
            or (separator and scheme != "file" and {"@", "?", "#"} & set(rest))
            or (not separator and _NEARLY_A_URL.match(self.url))
        ):
            kind = kind or kinds()[0]
            raise TaskError(
                f"{self.source}: the store's URL has credentials, a port or options in it, or one slash too few;"
                f" expected {kind.example}, the keys in login and password of the connection or in {kind.credentials},"
                " the server in extra.endpoint_url",
                reason=TaskReason.URL_WITH_SECRETS,
                subject=self.source,
            )

    @property
    def access(self) -> dict[str, Any]:
        """What `connect` and `open_store` take beside the URL; what is not there is left to the environment."""
        return dict(self.settings)

    @property
    def secrets(self) -> list[str]:
        """What no log may show."""
        kind = kind_of(self.url)
        public = {each.keyword for each in (kind.settings if kind is not None else ()) if not each.secret}
        return [value for name, value in self.settings if name not in public]

    @classmethod
    def load(cls, conn_id: str = DEFAULT_CONN_ID) -> StoreConnection:
        """The connection of that id. For a task that runs: asks Airflow.

        Only the default id may be missing: then the environment names the store. Raises `AirflowFailException`, which
        no retry follows, where nothing names one, and where the connection in the environment cannot be read.
        """
        try:
            return cls.of(Connection.get(conn_id))
        except AirflowNotFoundException:
            unread = _read_environment(conn_id)  # Airflow says "not found" of what it could not read, too
        if unread is not None:
            return cls.of(unread)
        url = os.environ.get(URL_VARIABLE) if conn_id == DEFAULT_CONN_ID else None
        if not url:
            raise TaskError(
                f"connection {conn_id!r}: it is not defined, so no store is named; expected {_HOW}",
                reason=TaskReason.NO_CONNECTION,
                subject=conn_id,
            )
        return cls(url, f"{URL_VARIABLE} in the environment")

    @classmethod
    def of(cls, connection: Connection) -> StoreConnection:
        """What a connection says. Raises `AirflowFailException` for one that says nothing, or two things."""
        name = f"connection {connection.conn_id!r}"
        if connection.conn_type not in _TYPES:
            raise TaskError(
                f"{name}: it is of type {connection.conn_type!r:.40}; expected one of type txn_engine, which names a"
                " store",
                reason=TaskReason.WRONG_CONNECTION_TYPE,
                subject=str(connection.conn_id),
            )
        for place in ("host", "schema", "login", "password"):
            _check_text(name, place, getattr(connection, place))
        extra = _extra(connection)
        if connection.port:
            raise TaskError(
                f"{name}: port {connection.port} has no meaning here; expected the endpoint in extra.endpoint_url",
                reason=TaskReason.PORT_WITHOUT_MEANING,
                subject="port",
            )
        url = _text(name, extra, "url") or _url(connection) or os.environ.get(URL_VARIABLE)
        if not url:
            raise TaskError(
                f"{name}: it names no store; expected {_HOW}",
                reason=TaskReason.NO_STORE,
                subject=str(connection.conn_id),
            )
        return cls(url, name, _settings(name, url, connection, extra))

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
    """The default connection as far as the environment alone tells; asks nobody, so a DAG file may call it.

    Raises `AirflowFailException` for one that cannot be read or meant.
    """
    connection = _read_environment(DEFAULT_CONN_ID)
    if connection is not None:
        return StoreConnection.of(connection)
    url = os.environ.get(URL_VARIABLE)
    return StoreConnection(url, f"{URL_VARIABLE} in the environment") if url else None


def _read_environment(conn_id: str) -> Connection | None:
    """The connection that the environment defines. The raw errors quote what stands there: they are not passed on."""
    variable = f"AIRFLOW_CONN_{conn_id.upper()}"
    text = os.environ.get(variable, "").strip()
    if not text:
        return None
    try:
        if text.startswith("{"):
            return Connection.from_json(text, conn_id=conn_id)
        return Connection.from_uri(text, conn_id=conn_id)
    except (AirflowException, AttributeError, LookupError, TypeError, ValueError):
        raise TaskError(
            f"connection {conn_id!r}: {variable} in the environment cannot be read; expected a JSON object with"
            " Airflow's names (conn_type, host, schema, login, password, extra), or a URI",
            reason=TaskReason.UNREADABLE_CONNECTION,
            subject=conn_id,
            variable=variable,
        ) from None


def _url(connection: Connection) -> str | None:
    host, schema = (connection.host or "").strip(), (connection.schema or "").strip()
    if "://" in host:
        return f"{host.rstrip('/')}/{schema.strip('/')}" if schema else host
    if schema == "file":
        return f"file:///{host.strip('/')}"
    schemes = [kind.schemes[0] for kind in kinds()]
    if schema in schemes:
        return f"{schema}://{host}"
    if host.startswith("/"):
        return f"file://{host}"
    if host:
        return f"{schemes[0]}://{host}/{schema.strip('/')}".rstrip("/")
    return f"file:///{schema.strip('/')}" if schema else None


def _settings(
    name: str, url: str, connection: Connection, extra: Mapping[str, object]
) -> tuple[tuple[str, str], ...]:
    """What the connection has of the settings of the URL's kind of store, by their keywords."""
    kind = kind_of(url)
    found = {}
    for setting in kind.settings if kind is not None else ():
        if setting.field in _OF_THE_CONNECTION:
            value = getattr(connection, setting.field)
        else:
            value = _text(name, extra, setting.field) if setting.field else None
        if value:
            found[setting.keyword] = value
    return tuple(found.items())


def _extra(connection: Connection) -> dict[str, object]:
    """The connection's extra. (`extra_dejson` would log what it cannot read, and mask the store's URL.)"""
    if not connection.extra:
        return {}
    try:
        found = json.loads(connection.extra)
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise TaskError(
            f"connection {connection.conn_id!r}: extra cannot be read; expected a JSON object",
            reason=TaskReason.UNREADABLE_CONNECTION,
            subject="extra",
        )
    return found


def _text(name: str, extra: Mapping[str, object], place: str) -> str | None:
    value = extra.get(place)
    _check_text(name, f"extra.{place}", value)
    return value if isinstance(value, str) else None


def _check_text(name: str, place: str, value: object) -> None:
    if value is not None and not isinstance(value, str):
        raise TaskError(
            f"{name}: {place} is of type {type(value).__name__}; expected text",
            reason=TaskReason.NOT_TEXT,
            subject=place,
        )
