"""A topic as an Airflow asset: `txn-engine://<bucket or path>/<topic>`.

Airflow takes an unknown scheme as it comes, but drops the empty host of `scheme:///path`; so a local path
loses its leading slash: the topic `payments` of `file:///srv/ledger` is `txn-engine://srv/ledger/payments`.
Name and URI both hold the store, for Airflow wants the names of active assets to be unique too.
"""

from __future__ import annotations

from urllib.parse import quote

from airflow.sdk import Asset

from txn_engine_airflow.connection import StoreConnection, connection_of_environment

SCHEME = "txn-engine"


def topic_asset(topic: str, store: StoreConnection | str | None = None) -> Asset:
    """The asset of a topic in `store`: a connection, a URL, or None for the one that the environment names.

    Asks nobody, so a DAG file may call it. Raises `ValueError` where None is given and the environment names no store.
    """
    if isinstance(store, str):
        store = StoreConnection(store, "the call")
    store = store or connection_of_environment()
    if store is None:
        raise ValueError(
            f"asset of topic {topic!r}: no store is named; expected a URL, or TXN_ENGINE_URL or "
            "AIRFLOW_CONN_TXN_ENGINE_DEFAULT in the environment"
        )
    name = f"{store.place}/{quote(topic, safe='')}"
    return Asset(name=name, uri=f"{SCHEME}://{name}")


def topic_schedule(topic: str) -> list[Asset] | None:
    """The schedule "whenever the topic's asset is updated"; None (by hand only) where the environment names no store.

    A DAG file must not ask Airflow for a connection while it is parsed, so one that is kept in Airflow does not count.
    """
    return [topic_asset(topic)] if connection_of_environment() is not None else None
