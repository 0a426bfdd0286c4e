"""What the pages show, as JSON. Every answer is computed from what the background thread saw last."""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from typing import Annotated

from airflow.api_fastapi.core_api.security import GetUserDep
from fastapi import APIRouter, Depends, HTTPException, Query, Request, Response

from txn_engine.log.entry_log import EntryLog
from txn_engine.log.store_config import CONSUMER_OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC
from txn_engine_airflow.pages.answers import as_json
from txn_engine_airflow.pages.auth import (
    can_abort,
    can_see_records,
    can_see_runs,
    can_see_xcoms,
    may_see_records,
)
from txn_engine_airflow.pages.dag_runs import DagRunPlace, find_runs
from txn_engine_airflow.pages.letters_seen import TOPICS_MAX as LETTER_TOPICS_MAX
from txn_engine_airflow.pages.records import RECORDS_MAX, sample
from txn_engine_airflow.pages.routing import ReadRoute
from txn_engine_airflow.pages.store_poller import StorePoller
from txn_engine_airflow.pages.tails import TailRows
from txn_engine_airflow.pages.views_cuts import describe_cut, list_cuts
from txn_engine_airflow.pages.views_groups import describe_group
from txn_engine_airflow.pages.views_letters import (
    LetterList,
    LetterTopic,
    describe_letters,
    find,
    first_offset,
    letters_of,
    list_letters,
)
from txn_engine_airflow.pages.views_overview import damage_lines, topic_lines
from txn_engine_airflow.pages.views_partition import describe_partition, describe_topic
from txn_engine_airflow.pages.views_transactions import Filter, describe_transaction, list_transactions

FIRST_LOOK_MS = 8_000
LINES_MAX = 200
GROUPS_MAX = 500
LETTERS_MAX = 50
SAMPLES_AT_ONCE = 2
MAX_OFFSET = 2**63 - 1
INTERNAL = (TRANSACTION_STATE_TOPIC, CONSUMER_OFFSETS_TOPIC)

router = APIRouter(prefix="/api", route_class=ReadRoute)

Name = Annotated[str, Query(min_length=1, max_length=1_000)]
TopicName = Annotated[str, Query(min_length=1, max_length=249)]
Number = Annotated[int, Query(ge=0, le=100_000)]
Offset = Annotated[int, Query(ge=-1, le=MAX_OFFSET)]


def poller_of(request: Request) -> StorePoller:
    """The one poller of this process."""
    poller: StorePoller = request.app.state.poller
    return poller


_samples = threading.BoundedSemaphore(SAMPLES_AT_ONCE)

StorePollerDep = Annotated[StorePoller, Depends(poller_of)]


@router.get("/me")
def me(
    user: GetUserDep,
    aborts: Annotated[bool, Depends(can_abort)],
    sees_records: Annotated[bool, Depends(can_see_records)],
) -> Response:
    """Who asks, and what the pages may offer them."""
    return as_json({"user": user.get_name(), "can_abort": aborts, "can_see_records": sees_records})


@router.get("/overview")
def read_overview(poller: StorePollerDep) -> Response:
    """The Overview page's numbers, made once a look for everybody."""
    sight = poller.sight(wait_ms=FIRST_LOOK_MS)
    return Response(sight.overview, media_type="application/json")


@router.get("/health")
def health(poller: StorePollerDep, sees_records: Annotated[bool, Depends(can_see_records)]) -> Response:
    """How old what the pages show is, and what is wrong with looking; where the store is, for who may know that."""
    poller.touch()
    found = poller.health
    return as_json(replace(found, trouble=poller.whole_trouble) if sees_records else found)


@router.get("/runs")
def runs(user: GetUserDep, poller: StorePollerDep) -> Response:
    """The latest runs of the engine's DAGs that the user may see, with what they did where that may be seen."""
    found = [dag for dag in poller.airflow(wait_ms=FIRST_LOOK_MS).runs if can_see_runs(dag.dag_id, user)]
    shown = [dag if can_see_xcoms(dag.dag_id, user) else replace(dag, did="") for dag in found]
    return as_json({"dags": [asdict(dag) for dag in shown]})


@router.get("/transactions")
def transactions(
    poller: StorePollerDep,
    state: Annotated[list[str] | None, Query(max_length=10)] = None,
    older_than_s: Annotated[int, Query(ge=0, le=10**9)] = 0,
    pattern: Annotated[str, Query(max_length=200)] = "",
    topic: Annotated[str, Query(max_length=249)] = "",
    first: Annotated[int, Query(ge=0, le=10**7)] = 0,
    count: Annotated[int, Query(ge=1, le=LINES_MAX)] = 50,
) -> Response:
    """Transactional ids that the filter lets through, and all hanging transactions."""
    moment = poller.sight(wait_ms=FIRST_LOOK_MS).moment
    wanted = Filter(frozenset(state or ()), older_than_s, pattern, topic)
    found = list_transactions(moment, wanted, first=first, count=count)
    damage = damage_lines(moment, TRANSACTION_STATE_TOPIC)
    return as_json(
        asdict(found)
        | {"hanging": [asdict(each) for each in moment.hanging], "damage": [asdict(each) for each in damage]}
    )


@router.get("/transaction")
def transaction(poller: StorePollerDep, id: Name) -> Response:  # noqa: A002 - the query's name
    """One transactional id with its time line."""
    moment = poller.sight(wait_ms=FIRST_LOOK_MS).moment
    engine = poller.engine
    coordinator = engine.logs.coordinator_partition(id)
    moment.raise_damage(TRANSACTION_STATE_TOPIC, coordinator)
    stored = moment.transactions.get(id)
    if stored is None:
        raise HTTPException(
            404, f"The transactional id {id!r} is not known: never used, or idle and expired."
        )
    rows = _rows(poller, engine.logs.coordinator(id))
    return as_json(describe_transaction(moment, stored, rows, coordinator))


@router.get("/topics")
def topics(poller: StorePollerDep) -> Response:
    """All topics."""
    moment = poller.sight(wait_ms=FIRST_LOOK_MS).moment
    damage = [asdict(line) for line in damage_lines(moment) if line.topic not in INTERNAL]
    topics = [asdict(line) for line in topic_lines(moment)]
    return as_json({"now_ms": moment.now_ms, "topics": topics, "damage": damage})


@router.get("/topic")
def topic(poller: StorePollerDep, topic: TopicName) -> Response:
    """One topic with its partitions."""
    found = describe_topic(poller.sight(wait_ms=FIRST_LOOK_MS).moment, topic)
    if found is None:
        raise HTTPException(404, f"There is no topic {topic!r}.")
    return as_json(found)


@router.get("/partition")
def partition(
    poller: StorePollerDep, topic: TopicName, partition: Number, first: Offset = -1, last: Offset = -1
) -> Response:
    """One partition; its strip of offsets from `first` to `last`."""
    moment = poller.sight(wait_ms=FIRST_LOOK_MS).moment
    found = describe_partition(moment, topic, partition, first=first, last=last)
    if found is None:
        raise HTTPException(404, f"There is no partition {partition} of a topic {topic!r}.")
    return as_json(found)


@router.get("/records", dependencies=[Depends(may_see_records)])
def records(
    poller: StorePollerDep,
    topic: TopicName,
    partition: Number,
    offset: Annotated[int, Query(ge=0, le=MAX_OFFSET)],
    count: Annotated[int, Query(ge=1, le=RECORDS_MAX)] = 20,
    uncommitted: bool = False,
) -> Response:
    """A few records by offset. Reads the store: a bounded size, for a bounded number of requests at a time."""
    poller.sight(wait_ms=FIRST_LOOK_MS)
    with _one_of_few():
        found = sample(poller.engine, topic, partition, offset=offset, count=count, uncommitted=uncommitted)
    return as_json(found)


@contextmanager
def _one_of_few() -> Iterator[None]:
    """While records are read: a bounded number of requests at a time."""
    if not _samples.acquire(blocking=False):
        told = (
            f"{SAMPLES_AT_ONCE} samples of records are being read, as many as may be: ask again in a moment."
        )
        raise HTTPException(503, told, {"Retry-After": "2"})
    try:
        yield
    finally:
        _samples.release()


@router.get("/dead-letters")
def dead_letters(poller: StorePollerDep) -> Response:
    """The dead-letter topics, and how many letters have which reason."""
    moment = poller.sight(wait_ms=FIRST_LOOK_MS).moment
    found = list_letters(moment, poller.letter_readings.ask(), LETTER_TOPICS_MAX)
    return _read_on(poller, found)


@router.get("/dead-letter-topic")
def dead_letter_topic(poller: StorePollerDep, topic: TopicName) -> Response:
    """One of them."""
    moment = poller.sight(wait_ms=FIRST_LOOK_MS).moment
    found = describe_letters(moment, topic, poller.letter_readings.ask())
    if found is None:
        raise HTTPException(404, f"There is no topic {topic!r} that takes dead letters.")
    return _read_on(poller, found)


def _read_on(poller: StorePoller, found: LetterList | LetterTopic) -> Response:
    if not found.is_read:
        poller.read_now()
    return as_json(found)


@router.get("/letters", dependencies=[Depends(may_see_records)])
def letters(
    user: GetUserDep,
    poller: StorePollerDep,
    topic: TopicName,
    partition: Number,
    offset: Offset = -1,
    count: Annotated[int, Query(ge=1, le=LETTERS_MAX)] = 20,
) -> Response:
    """A few letters, the newest first, from that offset (-1: the last one) back. Reads the store as `records` does."""
    moment = poller.sight(wait_ms=FIRST_LOOK_MS).moment
    taker = find(moment, topic)
    state = taker.partitions.get(partition) if taker is not None else None
    if state is None:
        moment.raise_damage(topic, partition)
        raise HTTPException(404, f"There is no partition {partition} of a topic {topic!r} of dead letters.")
    stable = state.last_stable_offset
    end = stable if offset < 0 else min(offset + 1, stable)
    first = first_offset(state, partition, end, count)
    with _one_of_few():
        found = sample(
            poller.engine, topic, partition, offset=first, count=max(end - first, 0), uncommitted=False
        )

    def runs_found(run_ids: Collection[str]) -> dict[str, DagRunPlace]:
        runs = find_runs(run_ids)
        seen = {dag_id: can_see_runs(dag_id, user) for dag_id in {place.dag_id for place in runs.values()}}
        return {run_id: place for run_id, place in runs.items() if seen[place.dag_id]}

    start = state.log_start_offset
    return as_json(letters_of(moment, topic, partition, found, start=start, runs_found=runs_found))


@router.get("/groups")
def groups(poller: StorePollerDep) -> Response:
    """The consumer groups that lag most; `found` are all."""
    sight = poller.sight(wait_ms=FIRST_LOOK_MS)
    lines = [asdict(line) for line in sight.groups[:GROUPS_MAX]]
    damage = [asdict(each) for each in damage_lines(sight.moment, CONSUMER_OFFSETS_TOPIC)]
    return as_json(
        {"now_ms": sight.moment.now_ms, "found": len(sight.groups), "groups": lines, "damage": damage}
    )


@router.get("/group")
def group(poller: StorePollerDep, group: Name) -> Response:
    """One consumer group."""
    moment = poller.sight(wait_ms=FIRST_LOOK_MS).moment
    logs = poller.engine.logs
    at = logs.group_partition(group)
    found = describe_group(moment, group, at.partition, _rows(poller, logs.of(at)))
    if found is None:
        raise HTTPException(404, f"The group {group!r} has no offsets.")
    return as_json(found)


@router.get("/cuts")
def cuts(poller: StorePollerDep) -> Response:
    """The newest cuts."""
    return as_json(list_cuts(poller.sight(wait_ms=FIRST_LOOK_MS).moment))


@router.get("/cut")
def cut(poller: StorePollerDep, number: Annotated[int, Query(ge=0, le=MAX_OFFSET)]) -> Response:
    """One of the newest cuts, and what is inside."""
    moment = poller.sight(wait_ms=FIRST_LOOK_MS).moment
    known = moment.cuts.find(number)
    if known is not None and known.error is not None:
        raise known.error
    if known is None or known.cut is None:
        raise HTTPException(
            404,
            f"Cut {number} is not among the newest; `txn-engine cuts describe {number}` shows an older one.",
        )
    found = describe_cut(moment, known.cut, poller.cut_readings.ask(known.cut))
    if not found.is_read:
        poller.read_now()
    return as_json(found)


def _rows(poller: StorePoller, log: EntryLog) -> TailRows | None:
    rows = poller.tails.ask(log)
    if rows is None:
        poller.read_now()
    return rows
