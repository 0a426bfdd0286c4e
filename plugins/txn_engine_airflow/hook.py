"""The engine of an Airflow connection, and its errors as Airflow's."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from airflow.sdk.exceptions import AirflowException, AirflowFailException
from airflow.sdk.log import mask_secret

from txn_engine_airflow.connection import DEFAULT_CONN_ID, StoreConnection

if TYPE_CHECKING:
    from txn_engine import Engine

log = logging.getLogger(__name__)

# What stays as it is until a person mends the call, the store, the data or the machine, or belongs to a successor now.
_HOPELESS = frozenset(
    {
        "CLUSTER_AUTHORIZATION_FAILED",
        "CORRUPT_MESSAGE",
        "INVALID_GROUP_ID",
        "INVALID_RECORD",
        "INVALID_REQUEST",
        "INVALID_TOPIC_EXCEPTION",
        "JAVA_NOT_FOUND",
        "PRODUCER_FENCED",
        "UNKNOWN_TOPIC_OR_PARTITION",
        "UNSUPPORTED_VERSION",
    }
)


@contextmanager
def open_engine(conn_id: str = DEFAULT_CONN_ID) -> Iterator[Engine]:
    """The engine of a connection, closed at the end of the block; errors inside it leave as `readable_errors` says."""
    from txn_engine import connect

    store = StoreConnection.load(conn_id)
    for secret in (store.secret_key, store.session_token):
        if secret:
            mask_secret(secret)
    with (
        readable_errors(),
        connect(
            store.url,
            endpoint=store.endpoint,
            access_key=store.access_key,
            secret_key=store.secret_key,
            session_token=store.session_token,
            region=store.region,
        ) as engine,
    ):
        log.info("store %s, by %s", engine.url, store.source)
        yield engine


@contextmanager
def readable_errors() -> Iterator[None]:
    """Raise the engine's errors as Airflow's: the engine's own one line, and a retry only where one can help."""
    from txn_engine.errors import TxnEngineError

    try:
        yield
    except TxnEngineError as error:
        log.debug("the engine's own trace", exc_info=True)
        kind = AirflowFailException if error.code in _HOPELESS else AirflowException
        raise kind(str(error)) from None
