"""The producer ids that the logs of a store show."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor
from contextlib import suppress
from dataclasses import replace
from typing import Final

from txn_engine.log.as_of import EarlierLog
from txn_engine.log.entry_log import LogTools
from txn_engine.log.logs import Logs
from txn_engine.log.objects import Objects
from txn_engine.protocol.partition import PartitionState
from txn_engine.protocol.transaction_rows import TransactionPartition
from txn_engine.unreadable import DAMAGE, one_place

_AT_ONCE: Final = 16
_TOPICS: Final = "topics/"
_LEVELS_OF_A_LOG: Final = 5
"""Of a key of a log's object: topics/NAME/INCARNATION/PARTITION/log/... has more than this many slashes or as many."""


def ids_in_use(logs: Logs, executors: Callable[[int, str], Executor]) -> set[int]:
    """The ids that logs show now. A log that cannot be read shows none; `verify` names it.

    The store's topics are listed up to the first log. Where there is one, every log is loaded, afresh and in threads of
    their own: the caller may hold the lock of one of them, and be one of the engine's threads.
    """
    if not _has_logs(logs.tools.objects):
        return set()
    tools = replace(logs.tools, loss_of=lambda _: None)
    executor = executors(_AT_ONCE, "txn-ids")
    try:
        states = executor.map(lambda at: _state(tools, at), _every_partition(logs))
        return ids_of(state for state in states if state is not None)
    finally:
        executor.shutdown()


def _state(tools: LogTools, at: TransactionPartition) -> PartitionState | None:
    try:
        with one_place(at.topic, at.partition):
            return EarlierLog.of(tools, at).state_now()
    except DAMAGE:
        return None


def ids_of(states: Iterable[PartitionState]) -> set[int]:
    """The producer ids that these states name, of whichever kind their logs are."""
    return {each for state in states for each in _ids(state) if each >= 0}


def _ids(state: PartitionState) -> Iterator[int]:
    yield from state.producers
    for stored in state.transactions.values():
        row = stored.row
        yield from (row.producer_id, row.previous_producer_id, row.next_producer_id)
    for files in (state.live, state.undecided):
        yield from (file.producer_id for file in files.values())


def _has_logs(objects: Objects) -> bool:
    return any(info.key.count("/") >= _LEVELS_OF_A_LOG for info in objects.infos(_TOPICS))


def _every_partition(logs: Logs) -> list[TransactionPartition]:
    found = [at for topic in logs.config.internal_partitions for at in logs.internal(topic)]
    with suppress(*DAMAGE):
        found += [
            TransactionPartition(topic.name, topic.incarnation, number)
            for topic in logs.topics.survey_each().topics
            for number in range(topic.partitions)
        ]
    return found
