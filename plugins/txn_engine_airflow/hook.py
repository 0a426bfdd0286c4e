"""The engine of an Airflow connection: the hook behind its form, and the engine's errors as Airflow's."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from airflow.sdk import BaseHook
from airflow.sdk.exceptions import AirflowException, AirflowFailException
from airflow.sdk.log import mask_secret

from txn_engine_airflow.connection import DEFAULT_CONN_ID, StoreConnection
from txn_engine_airflow.deployment import STORE_MUST_EXIST_VARIABLE, permitted_connection, store_must_exist

if TYPE_CHECKING:
    from storage import Patience
    from txn_engine import Engine
    from txn_engine.log.store_config import StoreConfig

log = logging.getLogger(__name__)


@contextmanager
def open_engine(conn_id: str = DEFAULT_CONN_ID) -> Iterator[Engine]:
    """The engine of a connection, closed at the end of the block; errors inside it leave as `readable_errors` says."""
    store = StoreConnection.load(conn_id)
    with readable_errors(), connect_to(store) as engine:
        log.info("store %s, by %s", engine.url, store.source)
        yield engine


@contextmanager
def open_engine_of_run(conn_id: str) -> Iterator[Engine]:
    """`open_engine` for a connection that a run's params name: only one that the deployment lets them name."""
    with open_engine(permitted_connection(conn_id)) as engine:
        yield engine


def connect_to(store: StoreConnection, *, person_waits: bool = False) -> Engine:
    """The engine of a store, its secrets masked in the logs. Raises the engine's own errors.

    person_waits: Whether a person waits for its answers, so that a busy store is given up earlier.
    """
    from storage import JOB_PATIENCE, PERSON_PATIENCE
    from txn_engine import connect

    patience = PERSON_PATIENCE if person_waits else JOB_PATIENCE
    if store_must_exist():
        check_begun(store, patience)
    _mask(store)
    return connect(store.url, patience=patience, **store.access)


def check_begun(store: StoreConnection, patience: Patience) -> None:
    """Raise the engine's `StoreNotFoundError` if nobody has begun a store there. Nothing is written."""
    from txn_engine.errors import StoreNotFoundError

    url, config = _begun(store, patience)
    if config is None:
        raise StoreNotFoundError(
            "the place has no store (no store.json)",
            actor=store.source,
            place=url,
            expected=f"a store that was begun, because {STORE_MUST_EXIST_VARIABLE} is true",
            action="put the store back, or mend the URL",
        )


def _begun(store: StoreConnection, patience: Patience) -> tuple[str, StoreConfig | None]:
    """The place, and the configuration of the store that was begun there. Only reads. Raises the engine's errors."""
    from storage import open_store
    from txn_engine.log.objects import Objects, store_errors
    from txn_engine.log.store_config import read_store_config

    _mask(store)
    with store_errors():
        place = open_store(store.url, **store.access, create=False, patience=patience)
    try:
        return place.url, read_store_config(Objects(place))
    finally:
        place.close()


def _mask(store: StoreConnection) -> None:
    for secret in store.secrets:
        mask_secret(secret)


@contextmanager
def readable_errors() -> Iterator[None]:
    """Raise the engine's errors as Airflow's: the engine's own one line, and a retry only where one can help."""
    from txn_engine.errors import TxnEngineError

    try:
        yield
    except TxnEngineError as error:
        log.debug("the engine's own trace", exc_info=True)
        kind = AirflowException if error.retry_helps else AirflowFailException
        raise kind(str(error)) from None


class TxnEngineHook(BaseHook):
    """A store, by its connection of type `txn_engine`: what a task with Python of its own works with.

        with TxnEngineHook("txn_engine_default").engine() as engine:
            engine.admin.list_topics()

    The connection's fields: `txn_engine_airflow.connection`.
    """

    conn_name_attr = "conn_id"
    default_conn_name = DEFAULT_CONN_ID
    conn_type = "txn_engine"
    hook_name = "Transaction engine (txn-engine)"

    def __init__(self, conn_id: str = DEFAULT_CONN_ID, logger_name: str | None = None) -> None:
        super().__init__(logger_name=logger_name)
        self.conn_id = conn_id

    def get_conn(self) -> Engine:
        """An open engine, which the caller closes. Raises what `engine` raises."""
        with readable_errors():
            return connect_to(StoreConnection.load(self.conn_id))

    @contextmanager
    def engine(self) -> Iterator[Engine]:
        """The engine, closed at the end of the block.

        What goes wrong in the block leaves as one line: `AirflowFailException` where a retry cannot help, else
        `AirflowException`.
        """
        with open_engine(self.conn_id) as engine:
            yield engine

    def test_connection(self) -> tuple[bool, str]:
        """Whether the store answers and lets itself be read, and what it holds. Only reads: sets no store up."""
        try:
            with readable_errors():
                return True, _describe(StoreConnection.load(self.conn_id))
        except AirflowException as error:
            return False, str(error)


def _describe(store: StoreConnection) -> str:
    """One line on a store that was read. Raises the engine's errors."""
    from storage import PERSON_PATIENCE

    url, config = _begun(store, PERSON_PATIENCE)
    if config is None:
        return f"{url} answers; nothing is there yet: the first producer or topic sets it up"
    with connect_to(store, person_waits=True) as engine:
        topics = engine.admin.list_topics()
    return f"{url} answers: {len(topics)} {'topic' if len(topics) == 1 else 'topics'}"
