"""A topic as an Airflow asset: `txn-engine://<bucket or path>/<topic>`.

Airflow takes an unknown scheme as it comes, but drops the empty host of `scheme:///path`; so a local path
loses its leading slash: the topic `payments` of `file:///srv/ledger` is `txn-engine://srv/ledger/payments`.
Name and URI both hold the store, for Airflow wants the names of active assets to be unique too.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NotRequired, TypedDict, cast
from urllib.parse import quote

from airflow.sdk import Asset, AssetAlias
from airflow.sdk.exceptions import AirflowFailException

from txn_engine_airflow.connection import DEFAULT_CONN_ID, StoreConnection, connection_of_environment
from txn_engine_airflow.progress import by_name

if TYPE_CHECKING:
    from airflow.sdk.definitions.asset import BaseAsset

    from txn_engine_airflow.progress import Committed

SCHEME = "txn-engine"
COORDINATOR_TOPIC = "__transaction_state"
"""The topic whose event says that decided transactions wait for their markers: `txn_write_markers` starts on it. A
producer with `markers="deferred"` emits it, through `topic_alias(COORDINATOR_TOPIC, conn_id)`, once it has committed.
"""

CUTS = "__cuts"
"""No topic, but named as one: the event says that a cut of the store stands, and has its number."""

CONSUMED_ALIAS = AssetAlias("txn_spark_consume")
"""New output of `txn_spark_consume`, of whichever topic: starts `txn_verify_exactly_once`."""

VERIFIED_ALIAS = AssetAlias("txn_verify_exactly_once")
"""What `txn_verify_exactly_once` has proved: the schedule of whatever must wait for that."""

RENDERED_ALIAS = AssetAlias("txn_engine_rendered")
"""Through it go the events of a task whose topic or connection is a template, so that only its run knows the asset.
They start what `topic_schedule` schedules where the environment names the store.
"""


def topic_asset(topic: str, store: StoreConnection | str | None = None) -> Asset:
    """The asset of a topic in `store`: a connection, a URL, or None for the one that the environment names.

    Asks nobody, so a DAG file may call it. Raises `ValueError` where None is given and the environment names no store,
    or none that can be meant.
    """
    try:
        if isinstance(store, str):
            store = StoreConnection(store, "the call")
        store = store or connection_of_environment()
    except AirflowFailException as error:
        raise ValueError(f"asset of topic {topic!r}: {error}") from None
    if store is None:
        raise ValueError(
            f"asset of topic {topic!r}: no store is named; expected a URL, or TXN_ENGINE_URL or "
            "AIRFLOW_CONN_TXN_ENGINE_DEFAULT in the environment"
        )
    name = f"{store.place}/{quote(topic, safe='')}"
    return Asset(name=name, uri=f"{SCHEME}://{name}")


def topic_alias(topic: str, conn_id: str = DEFAULT_CONN_ID) -> AssetAlias:
    """The topic by its connection: what a DAG file may name before anybody knows the store.

    Who writes has it among its outlets and adds `topic_asset` to it when it runs; whoever has it for a schedule, or as
    a part of one, starts then.
    """
    return AssetAlias(f"{conn_id}/{quote(topic, safe='')}")


def verified_asset(topic: str, store: StoreConnection | str | None = None) -> Asset:
    """The asset of what `txn_verify_exactly_once` has proved of a topic: updated only by a run that passed."""
    name = f"{topic_asset(topic, store).name}/verified"
    return Asset(name=name, uri=f"{SCHEME}://{name}")


def topic_schedule(topic: str, conn_id: str = DEFAULT_CONN_ID) -> BaseAsset:
    """The schedule "whenever the topic is written to": its alias, and its asset where the environment names the store.

    A DAG file must not ask Airflow for a connection while it is parsed; the alias needs none. One in the environment
    that cannot be read leaves the alias too: the DAG is there, and its tasks say what is wrong.
    """
    alias = topic_alias(topic, conn_id)
    if conn_id != DEFAULT_CONN_ID:
        return alias
    try:
        store = connection_of_environment()
    except AirflowFailException:
        return alias
    return alias if store is None else alias | topic_asset(topic, store)


class TopicUpdate(TypedDict):
    """What an event of a topic stands for: its committed records from `start_offsets`, inclusive, to `end_offsets`,
    exclusive, by partition.

    A producer's event has no `start_offsets` but `offsets`, the first and last of each partition that it wrote, and
    `end_offsets` is the last stable offset when it was sent. Consumers go by their group's position, whatever it says.
    """

    topic: str
    incarnation: NotRequired[int]
    start_offsets: NotRequired[dict[str, int]]
    end_offsets: dict[str, int]
    offsets: NotRequired[dict[str, list[int]]]
    records: int
    group_id: NotRequired[str]
    run_id: NotRequired[str | None]
    committed_before: NotRequired[bool]


def topic_update(committed: Committed) -> TopicUpdate:
    """The event for records that a look has found."""
    return TopicUpdate(
        topic=committed.topic,
        incarnation=committed.end.incarnation,
        start_offsets=by_name(committed.start.offsets or {}),
        end_offsets=by_name(committed.end.offsets or {}),
        records=committed.records,
    )


def update_of_event(extra: Mapping[str, Any]) -> TopicUpdate:
    """What an asset event's `extra` says, whether an operator or a watcher sent it.

    Raises `ValueError` for an event that is neither's, as one that a person made in the UI.
    """
    told = extra.get("payload") if extra.get("from_trigger") else extra
    if not isinstance(told, dict) or "end_offsets" not in told:
        raise ValueError(f"asset event with {dict(extra)!r:.200}; expected topic and end_offsets")
    return cast("TopicUpdate", told)
