"""Triggers: what a deferred sensor waits for, looked at in the triggerer, with no worker held.

Each polls its store in a thread, so `run` never blocks the event loop, and keeps nothing that it cannot lose: what it
waits for stands in its arguments, so after a restart of the triggerer it goes on as if nothing had been. It ends with
one event: `{"done": ...}`, or `{"error": ..., "hopeless": ...}`.
"""

from __future__ import annotations

import asyncio
import logging
from abc import abstractmethod
from collections.abc import AsyncIterator, Mapping
from typing import TYPE_CHECKING, Any

from airflow.sdk.exceptions import AirflowException, AirflowFailException
from airflow.triggers.base import BaseTrigger, TriggerEvent

from txn_engine_airflow.connection import DEFAULT_CONN_ID
from txn_engine_airflow.engines import questions
from txn_engine_airflow.progress import (
    Position,
    committed_since,
    group_position,
    open_transaction,
    run_is_visible,
    transaction_state,
)

if TYPE_CHECKING:
    from txn_engine import Engine

log = logging.getLogger(__name__)

POLL_INTERVAL_MIN_S, POLL_INTERVAL_MAX_S = 1.0, 3_600.0
DEFAULT_POLL_INTERVAL_S = 15.0
FAILURES_MAX = 5
"""Looks that may fail one after the other before a waiting task hears of it."""

Answer = dict[str, Any]


def checked_poll_interval(seconds: float) -> float:
    """The seconds between two looks. Raises `ValueError` for what is not 1 to 3600."""
    if not POLL_INTERVAL_MIN_S <= seconds <= POLL_INTERVAL_MAX_S:  # which a NaN is not either
        raise ValueError(
            f"poll interval {seconds!r}; expected {POLL_INTERVAL_MIN_S:g} to {POLL_INTERVAL_MAX_S:g} seconds"
        )
    return float(seconds)


def event(payload: Mapping[str, Any]) -> TriggerEvent:
    """An event with this payload."""
    return TriggerEvent(dict(payload))  # type: ignore[no-untyped-call]


class StoreTrigger(BaseTrigger):
    """Looks at a store every `poll_interval_s` seconds (1 to 3600), until there is an answer.

    A look that fails is tried again; the fifth failure in a row ends the wait, and one that no try can mend the first.
    """

    def __init__(
        self, *, conn_id: str = DEFAULT_CONN_ID, poll_interval_s: float = DEFAULT_POLL_INTERVAL_S
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.conn_id = conn_id
        self.poll_interval_s = checked_poll_interval(poll_interval_s)

    @abstractmethod
    def look(self, engine: Engine) -> Answer | None:
        """The answer, small enough for an XCom, or None to look again. Runs in a thread."""

    @abstractmethod
    def arguments(self) -> dict[str, Any]:
        """What it waits for, as JSON."""

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """The class and all it needs to go on elsewhere."""
        kind = type(self)
        settings = {"conn_id": self.conn_id, "poll_interval_s": self.poll_interval_s}
        return f"{kind.__module__}.{kind.__qualname__}", settings | self.arguments()

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """One event, when there is an answer, or none to be had."""
        async with questions(self.conn_id) as store:
            failures = 0
            while True:
                try:
                    answer = await store.ask(self.look)
                    failures = 0
                except AirflowException as error:
                    failures += 1
                    hopeless = isinstance(error, AirflowFailException)
                    if hopeless or failures >= FAILURES_MAX:
                        yield event({"error": str(error), "hopeless": hopeless})
                        return
                    log.warning("look %d of %d failed: %s", failures, FAILURES_MAX, error)
                    answer = None
                if answer is not None:
                    yield event({"done": answer})
                    return
                await asyncio.sleep(self.poll_interval_s)


class NewRecordsTrigger(StoreTrigger):
    """Until a topic has at least `records_min` committed records behind a position."""

    def __init__(
        self, *, topic: str, since: Mapping[str, Any], records_min: int = 1, **settings: Any
    ) -> None:
        super().__init__(**settings)
        self.topic = topic
        self.since = dict(since)
        self.records_min = records_min

    def arguments(self) -> dict[str, Any]:
        """Topic, position, and how many."""
        return {"topic": self.topic, "since": self.since, "records_min": self.records_min}

    def look(self, engine: Engine) -> Answer | None:
        """From where to where, and how many."""
        from txn_engine_airflow.assets import topic_update

        found = committed_since(engine, self.topic, Position.of_json(self.since))
        return dict(topic_update(found)) if found.records >= self.records_min else None


class GroupCaughtUpTrigger(StoreTrigger):
    """Until a group has read all that was committed in a topic below `until`."""

    def __init__(self, *, topic: str, group_id: str, until: Mapping[str, Any], **settings: Any) -> None:
        super().__init__(**settings)
        self.topic = topic
        self.group_id = group_id
        self.until = dict(until)

    def arguments(self) -> dict[str, Any]:
        """Topic, group, and how far."""
        return {"topic": self.topic, "group_id": self.group_id, "until": self.until}

    def look(self, engine: Engine) -> Answer | None:
        """Where the group is, once no committed record is left for it."""
        position = group_position(engine, self.topic, self.group_id)
        left = committed_since(engine, self.topic, position, until=Position.of_json(self.until))
        if left.records:
            return None
        return {"topic": self.topic, "group_id": self.group_id, "position": position.to_json()["offsets"]}


class TransactionFinalTrigger(StoreTrigger):
    """Until a transaction is complete, its markers written: the one begun under this producer id and epoch, or the
    commit of `run_id`.
    """

    def __init__(
        self,
        *,
        transactional_id: str,
        producer_id: int = -1,
        producer_epoch: int = -1,
        run_id: str | None = None,
        **settings: Any,
    ) -> None:
        super().__init__(**settings)
        self.transactional_id = transactional_id
        self.producer_id = producer_id
        self.producer_epoch = producer_epoch
        self.run_id = run_id

    def arguments(self) -> dict[str, Any]:
        """Which transaction."""
        return {
            "transactional_id": self.transactional_id,
            "producer_id": self.producer_id,
            "producer_epoch": self.producer_epoch,
            "run_id": self.run_id,
        }

    def look(self, engine: Engine) -> Answer | None:
        """The id's state, once the transaction is behind it."""
        if self.run_id is not None:
            if self.run_id and not run_is_visible(engine, self.transactional_id, self.run_id):
                return None
        else:
            found = open_transaction(engine, self.transactional_id)
            waited_for = (self.producer_id, self.producer_epoch)
            if found is not None and (found.producer_id, found.producer_epoch) == waited_for:
                return None
        state = transaction_state(engine, self.transactional_id)
        return {"transactional_id": self.transactional_id, "state": state}
