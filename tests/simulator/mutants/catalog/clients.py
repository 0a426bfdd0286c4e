"""Bugs in the clients: the producer's order of steps, its state machine, forks."""

from __future__ import annotations

from tests.simulator.mutants.mutation import Edit, Mutant

_PRODUCER = "txn_engine/producer/producer.py"
_LANES = "txn_engine/producer/lanes.py"
_TRANSACTIONS = "txn_engine/protocol/transactions.py"

MUTANTS = (
    Mutant(
        "append-before-add-partitions",
        "a partition's first entry does not wait until the coordinator knows of the partition",
        (
            Edit(
                _LANES,
                "        self._admission.wait_for(lambda: self._is_admitted or self._failure is not None)\n",
                "",
            ),
        ),
        ("bank", "lists", "two_owners"),
    ),
    Mutant(
        "no-check-of-a-stalled-first-write",
        "a first write after a reload, or behind a pause, does not ask the coordinator again",
        (
            Edit(
                _PRODUCER,
                "            if lane.log.token is not lane.view_token:\n",
                "            if lane.log.token is None:\n",
            ),
        ),
        ("stalled",),
        marked="first-writes",
    ),
    Mutant(
        "first-write-checked-once",
        "the coordinator is asked on the old view of its log, not after the slot is fixed",
        (
            Edit(
                "txn_engine/coordinator/coordinator.py",
                "        transactions.verify_partition(\n            self.current(transactional_id),",
                "        transactions.verify_partition(\n"
                "            self._logs.coordinator(transactional_id).view().transactions.get(transactional_id),",
            ),
        ),
        ("stalled",),
        marked="first-writes",
    ),
    Mutant(
        "first-write-checked-without-its-epoch",
        "the check of a first write does not carry the epoch that it asks about",
        (
            Edit(
                _TRANSACTIONS,
                "    if row.producer_epoch != producer_epoch:\n        raise _fenced(row, producer_id, producer_epoch)\n"
                '    if row.state.is_prepared:\n        raise _concurrent(row, "a write")',
                '    if row.state.is_prepared:\n        raise _concurrent(row, "a write")',
            ),
        ),
        ("stalled",),
        marked="first-writes",
    ),
    Mutant(
        "a-failed-write-may-commit",
        "a transaction with a failed or unknown write is committed all the same",
        (
            Edit(
                _PRODUCER,
                "            if began_in is ProducerState.IN_TRANSACTION:\n                self._check_writes()\n",
                "",
            ),
            Edit(
                _PRODUCER,
                "        return ProducerState.ABORTABLE_ERROR if is_open else self._state\n",
                "        return self._state\n",
            ),
        ),
        ("bank", "lists", "pipeline"),
        marked="failed-writes",
    ),
    Mutant(
        "a-fenced-commit-is-a-success",
        "a commit that finds its id taken over is reported as done",
        (
            Edit(
                _PRODUCER,
                "            answered = committed and self._was_committed()\n",
                "            answered = committed\n",
            ),
        ),
        ("two_owners", "bank", "late_end_txn", "reload"),
        marked="first-tries",
    ),
    Mutant(
        "a-lost-reply-is-a-failure",
        "a producer that was fenced after its commit was decided reports a failure, without asking the log",
        (
            Edit(
                _PRODUCER,
                "            answered = committed and self._was_committed()\n",
                "            answered = False\n",
            ),
        ),
        ("two_owners",),
        marked="first-tries",
    ),
    Mutant(
        "unknown-is-none",
        "a run that the log no longer knows counts as one that never committed",
        (
            Edit(
                "txn_engine/protocol/transaction_rows.py",
                "        return False if self.run_ids_complete else None",
                "        return False",
            ),
        ),
        ("reload",),
        marked="first-tries",
    ),
    Mutant(
        "an-unknown-batch-goes-out-under-a-new-epoch",
        "an idempotent producer that cannot know a batch's outcome bumps its epoch and sends the batch again",
        (
            Edit(
                _LANES,
                "        verdicts = self.log.append(proposals, self._first_write_check(self))\n",
                "        try:\n            verdicts = self.log.append(proposals, self._first_write_check(self))\n"
                "        except OutcomeUnknownError:\n            if batches[0].is_transactional:\n"
                "                raise\n            sequence = 0\n            for batch, encoded in uploaded:\n"
                "                batch.identity = batch.identity._replace(producer_epoch=1)\n"
                "                batch.base_sequence, sequence = sequence, sequence + encoded.record_count\n"
                "            proposals = [_proposal(batch, self._upload(batch)) for batch in batches]\n"
                "            verdicts = self.log.append(proposals, self._first_write_check(self))\n",
            ),
            Edit(
                _LANES,
                "    IllegalStateError,\n    TransactionAbortableError,\n",
                "    IllegalStateError,\n    OutcomeUnknownError,\n    TransactionAbortableError,\n",
            ),
        ),
        ("idempotent", "seals"),
        marked="unknown-outcomes",
    ),
    Mutant(
        "the-end-without-waiting",
        "a commit does not wait for the writes that are under way",
        (
            Edit(
                _PRODUCER,
                "        self._sender.wait()\n        with self._lock:\n            if began_in",
                "        with self._lock:\n            if began_in",
            ),
        ),
        ("bank", "lists"),
    ),
    Mutant(
        "a-commit-goes-by-the-state-it-finds",
        "a commit checks its writes only where nobody has noticed a failed one meanwhile",
        (
            Edit(
                _PRODUCER,
                "            if began_in is ProducerState.IN_TRANSACTION:",
                "            if self._state is ProducerState.IN_TRANSACTION:",
            ),
        ),
        ("threads",),
    ),
    Mutant(
        "a-forked-producer-goes-on",
        "a producer goes on in a forked child, under its parent's sequences",
        (
            Edit(
                "txn_engine/log/own_process.py",
                "        return os.getpid() == self._made_in",
                "        return True",
            ),
        ),
        ("fork",),
        marked="forks",
    ),
)
