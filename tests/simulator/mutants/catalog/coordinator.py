"""Bugs in the transaction coordinator: decisions, markers, ids, sweeps."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from tests.simulator.mutants.mutation import Edit, Mutant, Replace
from txn_engine.coordinator.markers import MarkerWriter
from txn_engine.coordinator.producer_ids import ProducerIds
from txn_engine.errors import TxnEngineError
from txn_engine.protocol.hashing import java_hash
from txn_engine.protocol.producers import ProducerEntry
from txn_engine.protocol.proposals import MarkerProposal
from txn_engine.protocol.transaction_rows import (
    StoredRow,
    TransactionPartition,
    TransactionRow,
    TransactionState,
)
from txn_engine.protocol.transactions import NOBODY, Decision, fence_and_abort
from txn_engine.types import ProducerIdAndEpoch

_TRANSACTIONS = "txn_engine/protocol/transactions.py"
_COORDINATOR = "txn_engine/coordinator/coordinator.py"
_MARKERS = "txn_engine/coordinator/markers.py"
_IDS = "txn_engine/coordinator/producer_ids.py"

_ADD = "txn_engine.protocol.transactions.add_partitions"
_END = "txn_engine.protocol.transactions.end_transaction"
_EXPIRE = "txn_engine.protocol.transactions.expire"
_FENCE = "txn_engine.protocol.transactions.fence_and_abort"
_INIT = "txn_engine.protocol.transactions.init_producer_id"
_MARK = "txn_engine.coordinator.markers.MarkerWriter._mark"


def _in_state(current: StoredRow, state: TransactionState) -> StoredRow:
    return replace(current, row=replace(current.row, state=state))


def _without_a_bump(
    original: Any, row: TransactionRow, committed: bool, run_id: str | None, new_producer_id: int, now_ms: int
) -> Decision:
    made: Decision = original(row, committed, run_id, new_producer_id, now_ms)
    assert made.row is not None
    own = ProducerIdAndEpoch(row.producer_id, row.producer_epoch)
    return replace(
        made,
        row=replace(made.row, producer_epoch=row.producer_epoch),
        reply=made.reply if made.used_new_producer_id else own,
    )


def _end_at_any_epoch(
    original: Any,
    current: StoredRow | None,
    *,
    producer_id: int,
    producer_epoch: int,
    committed: bool,
    run_id: str | None,
    new_producer_id: int,
    now_ms: int,
) -> Decision:
    if (
        current is not None
        and current.row.producer_id == producer_id
        and current.row.producer_epoch >= 0
        and not current.row.state.is_prepared
    ):
        producer_epoch = current.row.producer_epoch
    decision: Decision = original(
        current,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        committed=committed,
        run_id=run_id,
        new_producer_id=new_producer_id,
        now_ms=now_ms,
    )
    return decision


def _either_end_is_confirmed(
    original: Any,
    current: StoredRow | None,
    *,
    producer_id: int,
    producer_epoch: int,
    committed: bool,
    run_id: str | None,
    new_producer_id: int,
    now_ms: int,
) -> Decision:
    over = (TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT)
    if current is not None and current.row.state in over and current.row.producer_epoch != producer_epoch:
        current = _in_state(current, over[0] if committed else over[1])
    decision: Decision = original(
        current,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        committed=committed,
        run_id=run_id,
        new_producer_id=new_producer_id,
        now_ms=now_ms,
    )
    return decision


def _a_decision_turned_round(
    original: Any,
    current: StoredRow | None,
    *,
    producer_id: int,
    producer_epoch: int,
    committed: bool,
    run_id: str | None,
    new_producer_id: int,
    now_ms: int,
) -> Decision:
    if (
        current is not None
        and current.row.producer_id == producer_id
        and current.row.state.is_prepared
        and not committed
    ):
        row = replace(current.row, state=TransactionState.PREPARE_ABORT, update_ms=now_ms)
        return Decision(row, ProducerIdAndEpoch(row.producer_id, row.producer_epoch))
    decision: Decision = original(
        current,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        committed=committed,
        run_id=run_id,
        new_producer_id=new_producer_id,
        now_ms=now_ms,
    )
    return decision


def _init_beside_an_open_transaction(
    original: Any,
    current: StoredRow | None,
    *,
    transactional_id: str,
    transaction_timeout_ms: int,
    expected: ProducerIdAndEpoch | None,
    new_producer_id: int,
    now_ms: int,
) -> Decision:
    if current is not None and current.row.state is TransactionState.ONGOING:
        current = _in_state(current, TransactionState.EMPTY)
    decision: Decision = original(
        current,
        transactional_id=transactional_id,
        transaction_timeout_ms=transaction_timeout_ms,
        expected=expected,
        new_producer_id=new_producer_id,
        now_ms=now_ms,
    )
    return decision


def _init_beside_a_decision(
    original: Any,
    current: StoredRow | None,
    *,
    transactional_id: str,
    transaction_timeout_ms: int,
    expected: ProducerIdAndEpoch | None,
    new_producer_id: int,
    now_ms: int,
) -> Decision:
    if current is not None and current.row.state.is_prepared:
        current = _in_state(current, TransactionState.EMPTY)
    decision: Decision = original(
        current,
        transactional_id=transactional_id,
        transaction_timeout_ms=transaction_timeout_ms,
        expected=expected,
        new_producer_id=new_producer_id,
        now_ms=now_ms,
    )
    return decision


def _fence_at_the_same_epoch(
    original: Any, row: TransactionRow, new_producer_id: int, now_ms: int
) -> Decision:
    made: Decision = original(row, new_producer_id, now_ms)
    assert made.row is not None
    return replace(made, row=replace(made.row, producer_epoch=row.producer_epoch))


def _abort_without_run_ids(original: Any, row: TransactionRow, new_producer_id: int, now_ms: int) -> Decision:
    made: Decision = original(row, new_producer_id, now_ms)
    assert made.row is not None
    return replace(made, row=replace(made.row, committed_run_ids=()))


def _add_at_any_epoch(
    original: Any,
    current: StoredRow | None,
    *,
    producer_id: int,
    producer_epoch: int,
    partitions: Sequence[TransactionPartition],
    now_ms: int,
    begins: bool = False,
) -> TransactionRow | None:
    row: TransactionRow | None = original(
        current,
        producer_id=producer_id,
        producer_epoch=producer_epoch if current is None else current.row.producer_epoch,
        partitions=partitions,
        now_ms=now_ms,
        begins=begins,
    )
    return row


def _add_beside_a_decision(
    original: Any,
    current: StoredRow | None,
    *,
    producer_id: int,
    producer_epoch: int,
    partitions: Sequence[TransactionPartition],
    now_ms: int,
    begins: bool = False,
) -> TransactionRow | None:
    if current is not None and current.row.state.is_prepared:
        current = _in_state(current, TransactionState.COMPLETE_COMMIT)
    row: TransactionRow | None = original(
        current,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        partitions=partitions,
        now_ms=now_ms,
        begins=begins,
    )
    return row


def _complete_any_decision(
    original: Any, current: StoredRow | None, *, decision_offset: int, now_ms: int
) -> TransactionRow | None:
    at = decision_offset if current is None else current.offset
    row: TransactionRow | None = original(current, decision_offset=at, now_ms=now_ms)
    return None if row is None else replace(row, decision_offset=decision_offset)


def _expire_without_run_ids(
    original: Any, current: StoredRow | None, *, now_ms: int, expiration_ms: int
) -> TransactionRow | None:
    row: TransactionRow | None = original(current, now_ms=now_ms, expiration_ms=expiration_ms)
    return None if row is None else replace(row, committed_run_ids=())


def _time_out_as_seen(
    current: StoredRow | None, new_producer_id: int, *, producer_id: int, producer_epoch: int, now_ms: int
) -> Decision:
    if current is None:
        return Decision(None, NOBODY)
    return fence_and_abort(replace(current.row, state=TransactionState.ONGOING), new_producer_id, now_ms)


def _open_ids_expire(original: Any, stored: StoredRow, now_ms: int, expiration_ms: int) -> bool:
    if stored.row.state is TransactionState.DEAD:
        return False
    return bool(original(_in_state(stored, TransactionState.EMPTY), now_ms, expiration_ms))


def _expire_as_seen(
    original: Any, current: StoredRow | None, *, now_ms: int, expiration_ms: int
) -> TransactionRow | None:
    seen = None if current is None else _in_state(current, TransactionState.EMPTY)
    row: TransactionRow | None = original(seen, now_ms=now_ms, expiration_ms=-(1 << 62))
    return row


def _first_partitions(decisions: Sequence[StoredRow]) -> dict[TransactionPartition, list[StoredRow]]:
    found: dict[TransactionPartition, list[StoredRow]] = defaultdict(list)
    for decision in decisions:
        for partition in decision.row.partitions[:1]:
            found[partition].append(decision)
    return found


def _mark_where_data_is(
    original: Any, self: MarkerWriter, partition: TransactionPartition, decisions: Sequence[StoredRow]
) -> Any:
    try:
        if self._exists(partition):
            opened = self._logs.of(partition).refresh().open_transactions
            decisions = [decision for decision in decisions if decision.row.producer_id in opened]
    except TxnEngineError:
        pass  # the code below meets it too, and says so
    return original(self, partition, decisions)


def _mark_whatever_is_refused(
    original: Any, self: MarkerWriter, partition: TransactionPartition, decisions: Sequence[StoredRow]
) -> Any:
    return replace(original(self, partition, decisions), failed={})


def _deleted_topics_block(
    original: Any, self: MarkerWriter, partition: TransactionPartition, decisions: Sequence[StoredRow]
) -> Any:
    outcome = original(self, partition, decisions)
    if outcome.failed or self._exists(partition):
        return outcome
    return replace(outcome, failed=dict.fromkeys(decisions, "gone"))


def _no_coordinator_epoch(original: Any, decision: StoredRow) -> MarkerProposal:
    return replace(original(decision), coordinator_epoch=0)


def _claims_always(original: Any, self: ProducerIds, block: int) -> bool:
    original(self, block)
    return True


def _masked(name: str, partitions: int) -> int:
    return (java_hash(name) & 0x7FFFFFFF) % partitions


def _abort_whatever_is_open(
    original: Any,
    entry: ProducerEntry | None,
    *,
    producer_id: int,
    producer_epoch: int,
    coordinator_epoch: int,
    start_offset: int,
) -> None:
    if entry is not None and entry.is_open:
        start_offset = entry.open_first_offset
        producer_epoch = max(producer_epoch, entry.producer_epoch)
    original(
        entry,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        coordinator_epoch=coordinator_epoch,
        start_offset=start_offset,
    )


MUTANTS = (
    Mutant(
        "no-bump-at-the-end",
        "the end of a transaction leaves the epoch as it is (transactions V1): a delayed EndTxn decides the next one (KAFKA-17754)",
        (Replace("txn_engine.protocol.transactions._decide", _without_a_bump),),
        ("late_end_txn", "bank"),
    ),
    Mutant(
        "end-ignores-the-epoch",
        "EndTxn is answered whatever epoch it carries",
        (Replace(_END, _end_at_any_epoch),),
        ("late_end_txn", "two_owners", "bank"),
    ),
    Mutant(
        "a-commit-after-an-abort-is-confirmed",
        "a commit that is sent again after the transaction was aborted is answered as done",
        (Replace(_END, _either_end_is_confirmed),),
        ("late_end_txn", "two_owners", "requests"),
    ),
    Mutant(
        "a-decision-may-change",
        "an abort turns a decided commit round",
        (Replace(_END, _a_decision_turned_round),),
        ("late_end_txn", "two_owners", "requests", "bank"),
    ),
    Mutant(
        "init-does-not-fence",
        "InitProducerId gives out the next epoch while a transaction is open, without aborting it",
        (Replace(_INIT, _init_beside_an_open_transaction),),
        ("two_owners", "bank"),
    ),
    Mutant(
        "init-does-not-wait",
        "InitProducerId does not wait until what was decided is complete",
        (Replace(_INIT, _init_beside_a_decision),),
        ("two_owners", "bank", "sweeps"),
    ),
    Mutant(
        "fence-without-a-bump",
        "a fenced transaction is aborted under its own epoch",
        (Replace(_FENCE, _fence_at_the_same_epoch),),
        ("two_owners", "bank", "sweeps"),
    ),
    Mutant(
        "add-partitions-ignores-the-epoch",
        "AddPartitionsToTxn is taken from a fenced producer",
        (Replace(_ADD, _add_at_any_epoch),),
        ("two_owners", "bank", "late_end_txn"),
    ),
    Mutant(
        "add-partitions-does-not-wait",
        "AddPartitionsToTxn is taken while the transaction before is not complete",
        (Replace(_ADD, _add_beside_a_decision),),
        ("requests", "bank", "two_owners", "late_end_txn"),
    ),
    Mutant(
        "complete-without-its-decision",
        "a Complete row is written whatever the id's latest row is",
        (Replace("txn_engine.protocol.transactions.complete_transaction", _complete_any_decision),),
        ("sweeps", "bank", "two_owners"),
        marked="complete-rows",
    ),
    Mutant(
        "run-ids-dropped-by-an-abort",
        "an abort forgets which runs were committed",
        (Replace(_FENCE, _abort_without_run_ids),),
        ("reload",),
        marked="run-ids",
    ),
    Mutant(
        "run-ids-dropped-by-an-expiry",
        "an id's tombstone forgets which runs were committed",
        (Replace(_EXPIRE, _expire_without_run_ids),),
        ("reload",),
        marked="run-ids",
    ),
    Mutant(
        "time-out-without-a-second-look",
        "the time-out sweep aborts what it saw, whatever has become of it since",
        (Replace("txn_engine.protocol.transactions.time_out", _time_out_as_seen),),
        ("deadlines",),
    ),
    Mutant(
        "open-transactions-expire",
        "an id with an open transaction expires",
        (Replace("txn_engine.protocol.transactions.has_expired", _open_ids_expire),),
        ("sweeps", "reload"),
    ),
    Mutant(
        "expiry-without-a-second-look",
        "the expiry sweep puts its tombstone on what it saw, whatever has become of the id since",
        (Replace(_EXPIRE, _expire_as_seen),),
        ("deadlines",),
    ),
    Mutant(
        "markers-for-the-first-partition",
        "only the first of a transaction's partitions gets a marker",
        (Replace("txn_engine.coordinator.markers.decisions_by_partition", _first_partitions),),
        ("bank", "lists"),
    ),
    Mutant(
        "markers-where-data-is",
        "a partition gets a marker only where the transaction has written data",
        (Replace(_MARK, _mark_where_data_is),),
        ("two_owners", "bank", "sweeps", "lists"),
        marked="markers-everywhere",
    ),
    Mutant(
        "complete-before-the-markers",
        "the Complete row does not wait for partitions whose marker failed",
        (
            Edit(
                _MARKERS,
                "            [decision for decision in decisions if decision not in failures]\n",
                "            list(decisions)\n",
            ),
        ),
        ("bank", "sweeps"),
    ),
    Mutant(
        "a-refused-marker-drops-the-transaction",
        "a roll-forward that meets its own repeated marker takes it for a failure, for ever",
        (
            Edit(
                _MARKERS,
                "            if isinstance(verdict, Refused) and not _is_marked(\n"
                "                producers.get(decision.row.producer_id), decision\n            ):\n"
                "                failed[decision] = verdict.error\n",
                "            if not isinstance(verdict, Appended):\n                failed[decision] = str(verdict)\n",
            ),
        ),
        ("sweeps", "bank", "two_owners"),
        marked="repeated-markers",
    ),
    Mutant(
        "a-refused-marker-is-done",
        "a partition that refused the marker counts as done, whatever the reason",
        (Replace(_MARK, _mark_whatever_is_refused),),
        ("bank", "sweeps"),
        marked="repeated-markers",
    ),
    Mutant(
        "a-deleted-topic-blocks",
        "a marker for a deleted topic's incarnation never counts as done",
        (Replace(_MARK, _deleted_topics_block),),
        ("remade",),
        marked="deleted-topics",
    ),
    Mutant(
        "marker-token-of-yesterday",
        "a marker's coordinator epoch is not the offset of its decision, but always 0",
        (Replace("txn_engine.coordinator.markers._marker", _no_coordinator_epoch),),
        ("bank", "sweeps"),
    ),
    Mutant(
        "markers-before-the-decision",
        "the markers are written before the decision stands in the log",
        (
            Edit(
                _COORDINATOR,
                "        decision = self._decide(transactional_id, decide)\n        stored = None if decision.row is None",
                "        open_now = self.current(transactional_id)\n"
                "        if open_now is not None and open_now.row.state is TransactionState.ONGOING:\n"
                "            state = TransactionState.PREPARE_COMMIT if committed else TransactionState.PREPARE_ABORT\n"
                "            row = replace(open_now.row, state=state, producer_epoch=open_now.row.producer_epoch + 1)\n"
                "            self._markers.finish([replace(open_now, row=row)])\n"
                "        decision = self._decide(transactional_id, decide)\n        stored = None if decision.row is None",
            ),
        ),
        ("bank", "two_owners", "sweeps", "lists"),
    ),
    Mutant(
        "producer-ids-without-a-claim",
        "a block of producer ids is used whoever claimed it",
        (Replace("txn_engine.coordinator.producer_ids.ProducerIds._claims", _claims_always),),
        ("bank", "idempotent", "lists"),
    ),
    Mutant(
        "producer-ids-survive-a-fork",
        "a forked child takes ids out of its parent's block",
        (
            Edit(
                _IDS,
                "        with self._lock.here():\n            if not self._free:",
                "        if True:\n            if not self._free:",
            ),
        ),
        ("fork",),
        marked="forks",
    ),
    Mutant(
        "a-negative-hash-is-masked",
        "an id with a negative hash loses its sign as keys do, not as Kafka's ids: its log is another partition's",
        (Replace("txn_engine.protocol.hashing.partition_for_id", _masked),),
        ("bank", "two_owners", "lists"),
    ),
    Mutant(
        "hanging-abort-without-asking",
        "the operator's abort does not ask whether a coordinator row shows the transaction open",
        (
            Edit(
                "txn_engine/admin.py",
                "        if (entry.producer_id, topic, partition) in owners.owned:",
                "        if not entry:",
            ),
        ),
        ("hanging",),
        marked="hanging",
    ),
    Mutant(
        "hanging-abort-of-whatever-is-open",
        "the operator's abort ends the producer's transaction, whether or not it is the one that was looked at",
        (Replace("txn_engine.protocol.producers.check_operator_abort", _abort_whatever_is_open),),
        ("controls",),
        marked="hanging",
    ),
    Mutant(
        "the-last-epoch-is-given-out",
        "who was fenced at the last epoch but one is answered with the fence's own epoch, which nothing can fence",
        (
            Edit(
                _TRANSACTIONS,
                "    rotates = is_exhausted(row.producer_epoch)\n",
                "    rotates = False\n",
            ),
        ),
        ("epochs",),
    ),
    Mutant(
        "a-taken-producer-id-is-kept-for-the-next-try",
        "a row that is judged again takes the producer id of the first try, which may have landed",
        (
            Edit(
                _COORDINATOR,
                "        made: list[Decision] = []\n",
                "        made: list[Decision] = []\n        taken: list[int] = []\n",
            ),
            Edit(
                _COORDINATOR,
                "            made.append(self._judged(current, decide))\n",
                "            first = decide(current, NO_PRODUCER_ID)\n"
                "            if first.used_new_producer_id and not taken:\n"
                "                taken.append(self._producer_ids.take())\n"
                "            made.append(decide(current, taken[0]) if first.used_new_producer_id else first)\n",
            ),
        ),
        ("lives",),
    ),
    Mutant(
        "an-unused-producer-id-goes-back",
        "a producer id that the last judging of a row did not use is given to the next who asks",
        (
            Edit(
                _COORDINATOR,
                "            made.append(self._judged(current, decide))\n",
                "            if made and made[-1].reply.producer_id >= 0 and made[-1].used_new_producer_id:\n"
                "                self._producer_ids._free.appendleft(made[-1].reply.producer_id)\n"
                "            made.append(self._judged(current, decide))\n",
            ),
        ),
        ("lives",),
    ),
)
