"""Bugs in the transaction coordinator: decisions, markers, ids, sweeps."""

from __future__ import annotations

from tests.simulator.mutants.mutation import Edit, Mutant

_TRANSACTIONS = "txn_engine/protocol/transactions.py"
_COORDINATOR = "txn_engine/coordinator/coordinator.py"
_MARKERS = "txn_engine/coordinator/markers.py"
_IDS = "txn_engine/coordinator/producer_ids.py"

MUTANTS = (
    Mutant(
        "no-bump-at-the-end",
        "the end of a transaction leaves the epoch as it is (transactions V1): a delayed EndTxn decides the next one (KAFKA-17754)",
        (
            Edit(
                _TRANSACTIONS,
                "        producer_epoch=row.producer_epoch + 1 if row.producer_epoch < MAX_EPOCH else MAX_EPOCH,",
                "        producer_epoch=row.producer_epoch,",
            ),
        ),
        ("late_end_txn", "bank"),
    ),
    Mutant(
        "end-ignores-the-epoch",
        "EndTxn is answered whatever epoch it carries",
        (
            Edit(
                _TRANSACTIONS,
                "    is_current = producer_epoch == row.producer_epoch and not over",
                "    is_current = not over",
            ),
        ),
        ("late_end_txn", "two_owners", "bank"),
    ),
    Mutant(
        "a-commit-after-an-abort-is-confirmed",
        "a commit that is sent again after the transaction was aborted is answered as done",
        (
            Edit(
                _TRANSACTIONS,
                "            if committed == (row.state is TransactionState.COMPLETE_COMMIT):\n",
                "            if True:\n",
            ),
        ),
        ("late_end_txn", "two_owners", "requests"),
    ),
    Mutant(
        "a-decision-may-change",
        "an abort turns a decided commit round",
        (
            Edit(
                _TRANSACTIONS,
                "    if row.state.is_prepared and is_retry:\n",
                "    if row.state.is_prepared and not committed:\n"
                "        return Decision(replace(row, state=TransactionState.PREPARE_ABORT, update_ms=now_ms),"
                " ProducerIdAndEpoch(row.producer_id, row.producer_epoch))\n"
                "    if row.state.is_prepared and is_retry:\n",
            ),
        ),
        ("late_end_txn", "two_owners", "requests", "bank"),
    ),
    Mutant(
        "init-does-not-fence",
        "InitProducerId gives out the next epoch while a transaction is open, without aborting it",
        (
            Edit(
                _TRANSACTIONS,
                "    if row.state is TransactionState.ONGOING:\n        return Decision(fence_and_abort(row, now_ms),"
                " ProducerIdAndEpoch(-1, -1), concurrent=True)\n",
                "",
            ),
        ),
        ("two_owners", "bank"),
    ),
    Mutant(
        "init-does-not-wait",
        "InitProducerId does not wait until what was decided is complete",
        (
            Edit(
                _TRANSACTIONS,
                '    if row.state.is_prepared:\n        raise _concurrent(row, "InitProducerId")\n',
                "",
            ),
        ),
        ("two_owners", "bank", "sweeps"),
    ),
    Mutant(
        "fence-without-a-bump",
        "a fenced transaction is aborted under its own epoch",
        (
            Edit(
                _TRANSACTIONS,
                "        producer_epoch=min(row.producer_epoch + 1, MAX_EPOCH),\n",
                "",
            ),
        ),
        ("two_owners", "bank", "sweeps"),
    ),
    Mutant(
        "add-partitions-ignores-the-epoch",
        "AddPartitionsToTxn is taken from a fenced producer",
        (
            Edit(
                _TRANSACTIONS,
                "    if row.producer_epoch != producer_epoch:\n        raise _fenced(row, producer_id, producer_epoch)\n"
                "    ongoing =",
                "    ongoing =",
            ),
        ),
        ("two_owners", "bank", "late_end_txn"),
    ),
    Mutant(
        "add-partitions-does-not-wait",
        "AddPartitionsToTxn is taken while the transaction before is not complete",
        (
            Edit(
                _TRANSACTIONS,
                '    if row.state.is_prepared:\n        raise _concurrent(row, "AddPartitionsToTxn")\n',
                "",
            ),
        ),
        ("requests", "bank", "two_owners", "late_end_txn"),
    ),
    Mutant(
        "complete-without-its-decision",
        "a Complete row is written whatever the id's latest row is",
        (
            Edit(
                _TRANSACTIONS,
                "    if current.offset != decision_offset:\n        return None\n",
                "",
            ),
        ),
        ("sweeps", "bank", "two_owners"),
        marked="complete-rows",
    ),
    Mutant(
        "run-ids-dropped-by-an-abort",
        "an abort forgets which runs were committed",
        (
            Edit(
                _TRANSACTIONS,
                "        state=TransactionState.PREPARE_ABORT,\n        producer_epoch=min(",
                "        state=TransactionState.PREPARE_ABORT,\n        committed_run_ids=(),\n        producer_epoch=min(",
            ),
        ),
        ("reload",),
        marked="run-ids",
    ),
    Mutant(
        "run-ids-dropped-by-an-expiry",
        "an id's tombstone forgets which runs were committed",
        (
            Edit(
                _TRANSACTIONS,
                "        transaction_timeout_ms=row.transaction_timeout_ms,\n"
                "        committed_run_ids=row.committed_run_ids,",
                "        transaction_timeout_ms=row.transaction_timeout_ms,\n        committed_run_ids=(),",
            ),
        ),
        ("reload",),
        marked="run-ids",
    ),
    Mutant(
        "time-out-without-a-second-look",
        "the time-out sweep aborts what it saw, whatever has become of it since",
        (
            Edit(
                _TRANSACTIONS,
                "    return fence_and_abort(current.row, now_ms) if has_timed_out(current, now_ms) else None",
                "    return fence_and_abort(replace(current.row, state=TransactionState.ONGOING), now_ms)",
            ),
            Edit(
                _TRANSACTIONS,
                "    if current is None or (current.row.producer_id, current.row.producer_epoch) != (\n"
                "        producer_id,\n        producer_epoch,\n    ):\n        return None\n",
                "    if current is None:\n        return None\n",
            ),
        ),
        ("deadlines",),
    ),
    Mutant(
        "open-transactions-expire",
        "an id with an open transaction expires",
        (
            Edit(
                _TRANSACTIONS,
                "    return stored.row.state.is_expirable and _idle_ms(stored, now_ms) >= expiration_ms",
                "    return stored.row.state is not TransactionState.DEAD and _idle_ms(stored, now_ms) >= expiration_ms",
            ),
        ),
        ("sweeps", "reload"),
    ),
    Mutant(
        "expiry-without-a-second-look",
        "the expiry sweep puts its tombstone on what it saw, whatever has become of the id since",
        (
            Edit(
                _TRANSACTIONS,
                "    if current is None or not has_expired(current, now_ms, expiration_ms):\n        return None\n"
                "    row = current.row",
                "    if current is None:\n        return None\n    row = current.row",
            ),
        ),
        ("deadlines",),
    ),
    Mutant(
        "markers-for-the-first-partition",
        "only the first of a transaction's partitions gets a marker",
        (
            Edit(
                _MARKERS,
                "            for partition in decision.row.partitions:",
                "            for partition in decision.row.partitions[:1]:",
            ),
        ),
        ("bank", "lists"),
    ),
    Mutant(
        "markers-where-data-is",
        "a partition gets a marker only where the transaction has written data",
        (
            Edit(
                _MARKERS,
                "            verdicts = log.append([_marker(decision) for decision in decisions])\n",
                "            opened = log.refresh().open_transactions\n"
                "            decisions = [d for d in decisions if d.row.producer_id in opened]\n"
                "            verdicts = log.append([_marker(decision) for decision in decisions])\n",
            ),
        ),
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
                "                failed[decision] = str(verdict.error)\n",
                "            if not isinstance(verdict, Appended):\n                failed[decision] = str(verdict)\n",
            ),
        ),
        ("sweeps", "bank", "two_owners"),
        marked="repeated-markers",
    ),
    Mutant(
        "a-refused-marker-is-done",
        "a partition that refused the marker counts as done, whatever the reason",
        (
            Edit(
                _MARKERS,
                "            if isinstance(verdict, Refused) and not _is_marked(",
                "            if False and not _is_marked(",
            ),
            Edit(
                _MARKERS,
                "            return _PartitionOutcome(dict.fromkeys(decisions, str(error)), 0, 0)",
                "            return _PartitionOutcome({}, 0, 0)",
            ),
        ),
        ("bank", "sweeps"),
        marked="repeated-markers",
    ),
    Mutant(
        "a-deleted-topic-blocks",
        "a marker for a deleted topic's incarnation never counts as done",
        (
            Edit(
                _MARKERS,
                "            if not self._exists(partition):\n                return _PartitionOutcome({}, 0, 0)\n",
                "            if not self._exists(partition):\n"
                '                return _PartitionOutcome(dict.fromkeys(decisions, "gone"), 0, 0)\n',
            ),
        ),
        ("remade",),
        marked="deleted-topics",
    ),
    Mutant(
        "marker-token-of-yesterday",
        "a marker's coordinator epoch is not the offset of its decision, but always 0",
        (
            Edit(
                _MARKERS,
                "committed, coordinator_epoch=decision.offset)",
                "committed, coordinator_epoch=0)",
            ),
        ),
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
        (
            Edit(
                _IDS,
                "            return self._objects.create(_key(block), data, max_bytes=JSON_BYTES_MAX).won\n",
                "            self._objects.create(_key(block), data, max_bytes=JSON_BYTES_MAX)\n"
                "            return True\n",
            ),
        ),
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
        (
            Edit(
                "txn_engine/protocol/hashing.py",
                "    return (0 if value == -(1 << 31) else abs(value)) % partitions\n",
                "    return (value & 0x7FFFFFFF) % partitions\n",
            ),
        ),
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
        (
            Edit(
                "txn_engine/protocol/producers.py",
                "    if entry is None or entry.open_first_offset != start_offset:",
                "    if entry is None or not entry.is_open:",
            ),
            Edit(
                "txn_engine/protocol/producers.py",
                "    if producer_epoch != entry.producer_epoch:\n        raise InvalidProducerEpochError(",
                "    if producer_epoch > entry.producer_epoch:\n        raise InvalidProducerEpochError(",
            ),
        ),
        ("controls",),
        marked="hanging",
    ),
    Mutant(
        "the-last-epoch-is-given-out",
        "who was fenced at the last epoch but one is answered with the fence's own epoch, which nothing can fence",
        (
            Edit(
                _TRANSACTIONS,
                "                    row.producer_epoch == MAX_EPOCH\n",
                "                    row.producer_epoch > MAX_EPOCH\n",
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
                "                decision = decide(current, self._producer_ids.take())\n",
                "                taken = taken or [self._producer_ids.take()]\n                decision = decide(current, taken[0])\n",
            ),
            Edit(
                _COORDINATOR,
                "        def next_row(current: StoredRow | None) -> TransactionRow | None:\n"
                "            decision = decide(current, -1)\n",
                "        def next_row(current: StoredRow | None) -> TransactionRow | None:\n"
                "            nonlocal taken\n            decision = decide(current, -1)\n",
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
                "            decision = decide(current, -1)\n",
                "            if made and made[-1].used_new_producer_id:\n"
                "                self._producer_ids._free.appendleft(made[-1].reply.producer_id)\n"
                "            decision = decide(current, -1)\n",
            ),
        ),
        ("lives",),
    ),
)
