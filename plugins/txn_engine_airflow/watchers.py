"""Topics whose new committed records start DAGs: an asset with a watcher, and no task that polls.

    with DAG("balances", schedule=watched_topic("payments", group_id="balances"), ...):

The asset is the watch, not the topic: `txn-engine-watch://<connection>/<topic>?group=<group>`. Airflow keeps an asset's
watchers as the DAG file has them that it parsed last, so an asset that producers name too, or another group's DAG,
would lose its watcher time and again. Give a watch the same settings wherever it is named.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from functools import partial
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlencode

from airflow.sdk import Asset, AssetWatcher
from airflow.sdk.exceptions import AirflowException
from airflow.triggers.base import BaseEventTrigger, TriggerEvent

from txn_engine_airflow.assets import topic_update
from txn_engine_airflow.connection import DEFAULT_CONN_ID
from txn_engine_airflow.engines import Questions, questions
from txn_engine_airflow.progress import Committed, Position, committed_since, group_position
from txn_engine_airflow.triggers import DEFAULT_POLL_INTERVAL_S, checked_poll_interval, event

if TYPE_CHECKING:
    from txn_engine import Engine

log = logging.getLogger(__name__)

SCHEME = "txn-engine-watch"
PAUSE_MAX_S = 300.0
"""The longest pause between two looks at a store that does not answer, unless the interval is longer anyway."""


def watched_topic(
    topic: str,
    *,
    group_id: str | None = None,
    conn_id: str = DEFAULT_CONN_ID,
    poll_interval_s: float = DEFAULT_POLL_INTERVAL_S,
) -> Asset:
    """An asset that is updated whenever the topic has new committed records: for a DAG's schedule.

    What is promised, and what `group_id` is for: `CommittedRecordsTrigger`. Asks nobody, so a DAG file may call it.
    """
    trigger = CommittedRecordsTrigger(
        topic=topic, group_id=group_id, conn_id=conn_id, poll_interval_s=poll_interval_s
    )
    path = f"{conn_id}/{quote(topic, safe='')}"
    query = f"?{urlencode({'group': group_id})}" if group_id is not None else ""
    name = f"{path}, group {group_id}" if group_id is not None else path
    return Asset(
        name=f"watch {name}",
        uri=f"{SCHEME}://{path}{query}",
        watchers=[AssetWatcher(name=f"watch {name}", trigger=trigger)],
    )


class CommittedRecordsTrigger(BaseEventTrigger):
    """Emits an event when a topic has committed records, below the last stable offset, that no event has named yet.

    At least once: an event says from where to where (`start_offsets`, `end_offsets`) and how many records; the next one
    goes on from there. A topic that is not there yet, and a store that is away, are waited for. Transactions that are
    open or aborted, and markers, are no news.

    After a restart of the triggerer nothing is lost. Airflow keeps a watcher's arguments, not how far it was, and an
    event is on disk only a moment after it left here; so nothing is remembered, and the start is found again: with a
    `group_id` where the group has committed, else at the topic's beginning. What the group has not read is then named
    again, be it that an event was lost, that its run failed, or that the DAG was paused. This is safe because a
    consumer goes by its group's position and not by the event: a run that finds nothing new writes nothing. Without a
    group every start of the triggerer emits one event for all that the topic holds.

    A poll is one look at the end of each partition's log, in a thread, every `poll_interval_s` seconds (1 to 3600).
    """

    def __init__(
        self,
        *,
        topic: str,
        group_id: str | None = None,
        conn_id: str = DEFAULT_CONN_ID,
        poll_interval_s: float = DEFAULT_POLL_INTERVAL_S,
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.topic = topic
        self.group_id = group_id
        self.conn_id = conn_id
        self.poll_interval_s = checked_poll_interval(poll_interval_s)

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """The class and its arguments; equal ones are one watcher to Airflow."""
        return f"{__name__}.{type(self).__qualname__}", {
            "topic": self.topic,
            "group_id": self.group_id,
            "conn_id": self.conn_id,
            "poll_interval_s": self.poll_interval_s,
        }

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Events, until it is cancelled."""
        seen: Position | None = None
        async with questions(self.conn_id) as store:
            while True:
                found = await self._look_until_answered(store, seen)
                seen = found.end
                if found.records:
                    update = topic_update(found)
                    yield event(update if self.group_id is None else {**update, "group_id": self.group_id})
                await asyncio.sleep(self.poll_interval_s)

    async def _look_until_answered(self, store: Questions, seen: Position | None) -> Committed:
        """What is new; what is in the way is told once, and looked at again ever more seldom."""
        told, pause_s = "", self.poll_interval_s
        while True:
            try:
                found = await store.ask(partial(self._look, seen=seen))
            except AirflowException as error:
                if str(error) != told:
                    log.warning("watch of topic %r: %s", self.topic, error)
                told = str(error)
            else:
                if told:
                    log.info("watch of topic %r: there is an answer again", self.topic)
                return found
            await asyncio.sleep(pause_s)
            pause_s = max(self.poll_interval_s, min(2 * pause_s, PAUSE_MAX_S))

    def _look(self, engine: Engine, *, seen: Position | None) -> Committed:
        if seen is None:
            group = self.group_id
            seen = Position() if group is None else group_position(engine, self.topic, group)
        return committed_since(engine, self.topic, seen)
