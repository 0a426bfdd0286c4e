"""Topics whose new committed records start DAGs: an asset with a watcher, and no task that polls.

    with DAG("balances", schedule=watched_topic("payments", group_id="balances"), ...):

The asset is the watch, not the topic: `txn-engine-watch://<connection>/<topic>?group=<group>`. Airflow keeps an asset's
watchers as the DAG file has them that it parsed last, so an asset that producers name too, or another group's DAG,
would lose its watcher time and again. Give a watch the same settings wherever it is named.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import AsyncIterator, Callable
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
REMIND_MIN_S, REMIND_MAX_S = 60.0, 3_600.0
"""The pause before a group that has not moved is told of again: the first, and the longest."""
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

    An event says from where to where (`start_offsets`, `end_offsets`) and how many records. A topic that is not there
    yet, and a store that is away, are waited for. Transactions that are open or aborted, and markers, are no news.

    With a `group_id` an event names all that the group has not read. Where the group stays where it was, for its run
    failed, was skipped, or never came to be, it is told again: after a minute, then ever more seldom, at last hourly,
    until the group moves. This is safe because a consumer goes by its group's position and not by the event: a run that
    finds nothing new writes nothing. Without a group each record is named once; the next event goes on from there.

    After a restart of the triggerer nothing is lost. Airflow keeps a watcher's arguments, not how far it was, and an
    event is on disk only a moment after it left here; so nothing is remembered, and the start is found again: with a
    group where that has committed, else at the topic's beginning, so that without a group every start of the triggerer
    emits one event for all that the topic holds.

    A poll is one look at the end of each partition's log, in a thread, every `poll_interval_s` seconds (1 to 3600); the
    group is looked at where there is something to tell.
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
        reminder = _Reminder()
        async with questions(self.conn_id) as store:
            while True:
                is_due = reminder.is_due()
                since, found = await self._look_until_answered(
                    store, partial(self._look, seen=seen, all_left=is_due)
                )
                by_group = self.group_id is not None
                is_told = reminder.follow(since, found, was_due=is_due) if by_group else found.records > 0
                if is_told or not found.records:
                    seen = found.end
                if is_told:
                    update = topic_update(found)
                    yield event(update if self.group_id is None else {**update, "group_id": self.group_id})
                await asyncio.sleep(self.poll_interval_s)

    async def _look_until_answered(
        self, store: Questions, look: Callable[[Engine], tuple[Position, Committed]]
    ) -> tuple[Position, Committed]:
        """What is there; what is in the way is told once, and looked at again ever more seldom."""
        told, pause_s = "", self.poll_interval_s
        while True:
            try:
                answer = await store.ask(look)
            except AirflowException as error:
                if str(error) != told:
                    log.warning("watch of topic %r: %s", self.topic, error)
                told = str(error)
            else:
                if told:
                    log.info("watch of topic %r: there is an answer again", self.topic)
                return answer
            await asyncio.sleep(pause_s)
            pause_s = max(self.poll_interval_s, min(2 * pause_s, PAUSE_MAX_S))

    def _look(self, engine: Engine, *, seen: Position | None, all_left: bool) -> tuple[Position, Committed]:
        """What is new behind `seen`; with a group all that it has left, where there is news, or `all_left`.

        Before it the position that it is behind: of a group as it has committed, also where its log begins later.
        """
        group = self.group_id
        if seen is not None and not all_left:
            news = committed_since(engine, self.topic, seen)
            if group is None or not news.records:
                return seen, news
        since = Position() if group is None else group_position(engine, self.topic, group)
        return since, committed_since(engine, self.topic, since)


class _Reminder:
    """When what a group has left is told again: where the group has not moved, and ever more seldom."""

    def __init__(self) -> None:
        self._group: Position | None = None
        self._pause_s = REMIND_MIN_S
        self._at = math.inf

    def is_due(self) -> bool:
        """Whether it is time to look at the group."""
        return time.monotonic() >= self._at

    def follow(self, group: Position, found: Committed, *, was_due: bool) -> bool:
        """Whether to tell what was found: news, or, where a reminder was due, all that a group at rest has left.

        Records found are those behind the group's position. Retention moves a log's start, and no group.
        """
        if not found.records:
            if was_due:
                self._at = math.inf
            return False
        has_moved = group != self._group
        self._pause_s = min(2 * self._pause_s, REMIND_MAX_S) if was_due and not has_moved else REMIND_MIN_S
        self._group, self._at = group, time.monotonic() + self._pause_s
        return not (was_due and has_moved)
