"""What the pages show, as JSON. Every answer is computed from what the background thread saw last."""

from __future__ import annotations

import threading
from dataclasses import asdict, replace
from typing import Annotated

from airflow.api_fastapi.core_api.security import GetUserDep
from fastapi import APIRouter, Depends, HTTPException, Query, Request, Response

from txn_engine.clock import system_clock
from txn_engine.log.entry_log import EntryLog
from txn_engine.protocol.batches import BatchDescriptor
from txn_engine_airflow.pages.answers import as_json
from txn_engine_airflow.pages.auth import (
    can_abort,
    can_see_records,
    can_see_runs,
    can_see_xcoms,
    may_see_records,
)
from txn_engine_airflow.pages.records import RECORDS_MAX, sample
from txn_engine_airflow.pages.routing import ReadRoute
from txn_engine_airflow.pages.views_groups import describe_group
from txn_engine_airflow.pages.views_overview import topic_lines
from txn_engine_airflow.pages.views_partition import describe_partition, describe_topic
from txn_engine_airflow.pages.views_transactions import Filter, describe_transaction, list_transactions
from txn_engine_airflow.pages.watcher import Watcher

FIRST_LOOK_MS = 8_000
LINES_MAX = 200
GROUPS_MAX = 500
SAMPLES_AT_ONCE = 2
MAX_OFFSET = 2**63 - 1

router = APIRouter(prefix="/api", route_class=ReadRoute)

Name = Annotated[str, Query(min_length=1, max_length=1_000)]
TopicName = Annotated[str, Query(min_length=1, max_length=249)]
Number = Annotated[int, Query(ge=0, le=100_000)]
Offset = Annotated[int, Query(ge=-1, le=MAX_OFFSET)]


def watcher_of(request: Request) -> Watcher:
    """The one watcher of this process."""
    watcher: Watcher = request.app.state.watcher
    return watcher


_samples = threading.BoundedSemaphore(SAMPLES_AT_ONCE)

WatcherDep = Annotated[Watcher, Depends(watcher_of)]


@router.get("/me")
def me(
    user: GetUserDep,
    aborts: Annotated[bool, Depends(can_abort)],
    sees_records: Annotated[bool, Depends(can_see_records)],
) -> Response:
    """Who asks, and what the pages may offer them."""
    return as_json({"user": user.get_name(), "can_abort": aborts, "can_see_records": sees_records})


@router.get("/overview")
def read_overview(watcher: WatcherDep) -> Response:
    """The Overview page's numbers, made once a look for everybody."""
    sight = watcher.sight(wait_ms=FIRST_LOOK_MS)
    return Response(sight.overview, media_type="application/json")


@router.get("/health")
def health(watcher: WatcherDep) -> Response:
    """How old what the pages show is, and what is wrong with looking."""
    watcher.touch()
    return as_json(asdict(watcher.health) | {"now_ms": system_clock()})


@router.get("/runs")
def runs(user: GetUserDep, watcher: WatcherDep) -> Response:
    """The latest runs of the engine's DAGs, of those that the user may see, with the numbers that they may see."""
    found = [dag for dag in watcher.airflow(wait_ms=FIRST_LOOK_MS).runs if can_see_runs(dag.dag_id, user)]
    shown = [dag if can_see_xcoms(dag.dag_id, user) else replace(dag, numbers={}) for dag in found]
    return as_json({"dags": [asdict(dag) for dag in shown]})


@router.get("/transactions")
def transactions(
    watcher: WatcherDep,
    state: Annotated[list[str] | None, Query(max_length=10)] = None,
    older_than_s: Annotated[int, Query(ge=0, le=10**9)] = 0,
    pattern: Annotated[str, Query(max_length=200)] = "",
    topic: Annotated[str, Query(max_length=249)] = "",
    first: Annotated[int, Query(ge=0, le=10**7)] = 0,
    count: Annotated[int, Query(ge=1, le=LINES_MAX)] = 50,
) -> Response:
    """Transactional ids that the filter lets through, and all hanging transactions."""
    moment = watcher.sight(wait_ms=FIRST_LOOK_MS).moment
    wanted = Filter(frozenset(state or ()), older_than_s, pattern, topic)
    found = list_transactions(moment, wanted, first=first, count=count)
    return as_json(asdict(found) | {"hanging": [asdict(each) for each in moment.hanging]})


@router.get("/transaction")
def transaction(watcher: WatcherDep, id: Name) -> Response:  # noqa: A002 - the query's name
    """One transactional id with its time line."""
    moment = watcher.sight(wait_ms=FIRST_LOOK_MS).moment
    stored = moment.transactions.get(id)
    if stored is None:
        raise HTTPException(
            404, f"The transactional id {id!r} is not known: never used, or idle and expired."
        )
    engine = watcher.engine
    rows = _rows(watcher, engine.logs.coordinator(id))
    return as_json(describe_transaction(moment, stored, rows, engine.logs.coordinator_partition(id)))


@router.get("/topics")
def topics(watcher: WatcherDep) -> Response:
    """All topics."""
    moment = watcher.sight(wait_ms=FIRST_LOOK_MS).moment
    return as_json({"now_ms": moment.now_ms, "topics": [asdict(line) for line in topic_lines(moment)]})


@router.get("/topic")
def topic(watcher: WatcherDep, topic: TopicName) -> Response:
    """One topic with its partitions."""
    found = describe_topic(watcher.sight(wait_ms=FIRST_LOOK_MS).moment, topic)
    if found is None:
        raise HTTPException(404, f"There is no topic {topic!r}.")
    return as_json(found)


@router.get("/partition")
def partition(
    watcher: WatcherDep, topic: TopicName, partition: Number, first: Offset = -1, last: Offset = -1
) -> Response:
    """One partition; its strip of offsets from `first` to `last`."""
    moment = watcher.sight(wait_ms=FIRST_LOOK_MS).moment
    found = describe_partition(moment, topic, partition, first=first, last=last)
    if found is None:
        raise HTTPException(404, f"There is no partition {partition} of a topic {topic!r}.")
    return as_json(found)


@router.get("/records", dependencies=[Depends(may_see_records)])
def records(
    watcher: WatcherDep,
    topic: TopicName,
    partition: Number,
    offset: Annotated[int, Query(ge=0, le=MAX_OFFSET)],
    count: Annotated[int, Query(ge=1, le=RECORDS_MAX)] = 20,
    uncommitted: bool = False,
) -> Response:
    """A few records by offset. Reads the store: a bounded size, for a bounded number of requests at a time."""
    watcher.sight(wait_ms=FIRST_LOOK_MS)
    if not _samples.acquire(blocking=False):
        told = (
            f"{SAMPLES_AT_ONCE} samples of records are being read, as many as may be: ask again in a moment."
        )
        raise HTTPException(503, told, {"Retry-After": "2"})
    try:
        found = sample(watcher.engine, topic, partition, offset=offset, count=count, uncommitted=uncommitted)
    finally:
        _samples.release()
    return as_json(found)


@router.get("/groups")
def groups(watcher: WatcherDep) -> Response:
    """The consumer groups that lag most; `found` are all."""
    sight = watcher.sight(wait_ms=FIRST_LOOK_MS)
    lines = [asdict(line) for line in sight.groups[:GROUPS_MAX]]
    return as_json({"now_ms": sight.moment.now_ms, "found": len(sight.groups), "groups": lines})


@router.get("/group")
def group(watcher: WatcherDep, group: Name) -> Response:
    """One consumer group."""
    moment = watcher.sight(wait_ms=FIRST_LOOK_MS).moment
    logs = watcher.engine.logs
    at = logs.group_partition(group)
    found = describe_group(moment, group, at.partition, _rows(watcher, logs.of(at)))
    if found is None:
        raise HTTPException(404, f"The group {group!r} has no offsets.")
    return as_json(found)


def _rows(watcher: Watcher, log: EntryLog) -> tuple[BatchDescriptor, ...] | None:
    rows = watcher.tails.ask(log)
    if rows is None:
        watcher.ask_for_tails()
    return rows
