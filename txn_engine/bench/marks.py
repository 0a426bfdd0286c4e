"""When a transaction was decided, visible and complete, told by the objects that it put."""

from __future__ import annotations

import re
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from storage import ObjectStore
from txn_engine.bench.watched import Call, WatchedStore
from txn_engine.errors import RequestTimedOutError
from txn_engine.verify.descriptors import TransactionRow
from txn_engine.verify.dump import DumpedEntry, LogDump

_ENTRY = re.compile(r"topics/([^/]+)/(0|[1-9]\d*)/(0|[1-9]\d*)/log/(\d{20})\.parquet")
_DECISIONS = {"PrepareCommit", "PrepareAbort"}
_COMPLETIONS = {"CompleteCommit", "CompleteAbort"}
_MARKER = "marker"
_COORDINATOR = "topics/__transaction_state/"
PATIENCE_S, _PAUSE_S = 30.0, 0.0005


@dataclass(frozen=True, slots=True)
class Marks:
    """When puts of one transaction had returned, in seconds of `time.perf_counter`.

    `visible`: its Prepare row and all its markers, those of a group's offsets too: a read_committed reader that looks
    now sees it. `complete`: its Complete row too. None where that is not among the calls.
    """

    visible: float | None
    complete: float | None


@dataclass(frozen=True, slots=True)
class EntryKinds:
    """What stands in the entries of a store, by their keys: the states of transactions' rows, and `marker`."""

    kinds: dict[str, frozenset[str]]

    def marks(self, calls: Iterable[Call]) -> Marks:
        """Those of the one transaction that these calls are of."""
        puts = [(self.kinds.get(call.key, frozenset()), call.ended) for call in calls if call.stored]
        decided = [ended for kinds, ended in puts if kinds & _DECISIONS]
        settled = [ended for kinds, ended in puts if _MARKER in kinds]
        completed = [ended for kinds, ended in puts if kinds & _COMPLETIONS]
        return Marks(
            max([*decided, *settled]) if decided and settled else None,
            max(completed) if completed else None,
        )


def entry_kinds(store: ObjectStore, calls: Iterable[Call]) -> EntryKinds:
    """What these calls put into logs, read from the store by the auditor's decoders: whatever version of the format."""
    logs: dict[tuple[str, int, int], int] = defaultdict(lambda: 2**63 - 1)
    for call in calls:
        if call.stored and (match := _ENTRY.fullmatch(call.key)):
            place = (match[1], int(match[2]), int(match[3]))
            logs[place] = min(logs[place], int(match[4]))
    kinds: dict[str, frozenset[str]] = {}
    for (topic, incarnation, partition), start in logs.items():
        with LogDump(store, topic, partition, incarnation=incarnation) as log:
            kinds.update(_kinds(slot for slot in log.slots(start) if isinstance(slot, DumpedEntry)))
    return EntryKinds(kinds)


def _kinds(entries: Iterable[DumpedEntry]) -> Iterator[tuple[str, frozenset[str]]]:
    for entry in entries:
        states = {batch.row.state for batch in entry.batches if isinstance(batch.row, TransactionRow)}
        markers = {_MARKER for batch in entry.batches if batch.is_marker}
        yield entry.key, frozenset(states | markers)


def wait_until_complete(store: WatchedStore, *, patience_s: float = PATIENCE_S) -> None:
    """Return once the newest row of a transaction that was put since the last `take`, if there is one, is a Complete
    row. An engine may write it after the commit has returned, and be quiet before.

    Raises `RequestTimedOutError` if the row does not come. For markers that are not deferred.
    """
    deadline = time.perf_counter() + patience_s
    looked_at: Call | None = None
    while time.perf_counter() < deadline:
        newest = store.newest_put(_COORDINATOR)
        if newest is None:
            return
        if newest != looked_at:
            looked_at = newest
            if entry_kinds(store.watched, [newest]).kinds[newest.key] & _COMPLETIONS:
                return
        time.sleep(_PAUSE_S)
    raise RequestTimedOutError("a transaction that is not complete", actor="bench", place=store.url)


def objects_put(calls: Sequence[Call]) -> int:
    """How many objects these calls left."""
    return sum(call.stored for call in calls)
