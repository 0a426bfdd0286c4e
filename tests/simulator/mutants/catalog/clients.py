"""Bugs in the clients: the producer's order of steps, its state machine, forks."""

from __future__ import annotations

from typing import Any

from tests.simulator.mutants.mutation import Edit, Mutant, Replace
from txn_engine.coordinator.coordinator import Coordinator
from txn_engine.producer.machine import Machine, ProducerState, is_fatal_to_a_write
from txn_engine.protocol import transactions
from txn_engine.protocol.transaction_rows import StoredRow, TransactionPartition, TransactionRow

_PRODUCER = "txn_engine/producer/producer.py"
_LANES = "txn_engine/producer/lanes.py"
_MACHINE = "txn_engine/producer/machine.py"
_EFFECTS = "txn_engine/producer/effects.py"


def _verify_on_the_old_view(
    self: Coordinator,
    transactional_id: str,
    producer_id: int,
    producer_epoch: int,
    partition: TransactionPartition,
) -> None:
    transactions.verify_partition(
        self._stored(transactional_id),
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        partition=partition,
    )


def _verify_at_any_epoch(
    original: Any,
    current: StoredRow | None,
    *,
    producer_id: int,
    producer_epoch: int,
    partition: TransactionPartition,
) -> None:
    original(
        current,
        producer_id=producer_id,
        producer_epoch=producer_epoch if current is None else current.row.producer_epoch,
        partition=partition,
    )


def _failed_and_forgotten(original: Any, machine: Machine, error: BaseException) -> Any:
    if (
        machine.state is ProducerState.IN_TRANSACTION
        and machine.transactional_id is not None
        and not is_fatal_to_a_write(error)
    ):
        return machine, ()
    return original(machine, error)


def _never_committed(
    self: Coordinator,
    transactional_id: str,
    producer_id: int,
    producer_epoch: int,
    run_id: str | None = None,
) -> bool | None:
    return False


def _forgotten_is_not_committed(original: Any, self: TransactionRow, run_id: str) -> bool | None:
    return bool(original(self, run_id))


def _here_everywhere(self: Any) -> bool:
    return True


MUTANTS = (
    Mutant(
        "append-before-add-partitions",
        "a partition's first entry does not wait until the coordinator knows of the partition",
        (
            Edit(
                _LANES,
                "        if self._owner.admits(self.partition):\n            self._append(",
                "        if self._queue:\n            self._append(",
            ),
        ),
        ("bank", "lists", "two_owners"),
    ),
    Mutant(
        "a-row-stands-for-those-that-wait",
        "a durable AddPartitions row admits the partitions of later calls too, which wait for the next one",
        (
            Edit(
                _MACHINE,
                "        joined=machine.joined.union(machine.joining or ()),\n",
                "        joined=machine.joined.union(machine.joining or (), machine.waiting or ()),\n",
            ),
        ),
        ("bank", "lists", "two_owners", "threads"),
    ),
    Mutant(
        "complete-with-a-marker-missing",
        "the Complete row that is written behind the caller's back does not ask whether every marker is there",
        (
            Edit(
                _EFFECTS,
                "        return Unfinished(decision, is_marked=not failures)\n",
                "        return Unfinished(decision, is_marked=True)\n",
            ),
        ),
        ("bank", "lists", "pipeline", "sweeps"),
    ),
    Mutant(
        "no-check-of-a-stalled-first-write",
        "a first write after a reload, or behind a pause, does not ask the coordinator again",
        (
            Edit(
                "txn_engine/producer/first_write.py",
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
        (Replace("txn_engine.coordinator.coordinator.Coordinator.verify", _verify_on_the_old_view),),
        ("stalled",),
        marked="first-writes",
    ),
    Mutant(
        "first-write-checked-without-its-epoch",
        "the check of a first write does not carry the epoch that it asks about",
        (Replace("txn_engine.protocol.transactions.verify_partition", _verify_at_any_epoch),),
        ("stalled",),
        marked="first-writes",
    ),
    Mutant(
        "a-failed-write-may-commit",
        "a transaction with a failed or unknown write is committed all the same",
        (Replace("txn_engine.producer.machine.failed", _failed_and_forgotten),),
        ("bank", "lists", "pipeline"),
        marked="failed-writes",
    ),
    Mutant(
        "a-fenced-commit-is-a-success",
        "a commit that finds its id taken over is reported as done",
        (Edit(_EFFECTS, "        if was_committed:\n", "        if effect.committed:\n"),),
        ("two_owners", "bank", "late_end_txn", "reload"),
        marked="first-tries",
    ),
    Mutant(
        "a-lost-reply-is-a-failure",
        "a producer that was fenced after its commit was decided reports a failure, without asking the log",
        (Replace("txn_engine.coordinator.coordinator.Coordinator.was_committed", _never_committed),),
        ("two_owners",),
        marked="first-tries",
    ),
    Mutant(
        "unknown-is-none",
        "a run that the log no longer knows counts as one that never committed",
        (
            Replace(
                "txn_engine.protocol.transaction_rows.TransactionRow.has_committed",
                _forgotten_is_not_committed,
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
                "        verdicts = self.log.append(proposals, self._first_write_check(self), confirm=is_plain)\n",
                "        try:\n            verdicts = self.log.append(proposals, self._first_write_check(self), confirm=is_plain)\n"
                "        except OutcomeUnknownError:\n            if uploaded[0][0][0].is_transactional:\n"
                "                raise\n            sequence = 0\n            for (batch, *_), encoded in uploaded:\n"
                "                batch.identity = batch.identity._replace(producer_epoch=1)\n"
                "                batch.base_sequence, sequence = sequence, sequence + encoded.record_count\n"
                "            for group, _ in uploaded:\n                group[0].uploaded = None\n"
                "                self._upload(group)\n"
                "            proposals = [_proposal(group[0], group[0].uploaded) for group, _ in uploaded]\n"
                "            verdicts = self.log.append(proposals, self._first_write_check(self), confirm=is_plain)\n",
            ),
            Edit(
                _LANES,
                "    IllegalStateError,\n    RequestTimedOutError,\n",
                "    IllegalStateError,\n    OutcomeUnknownError,\n    RequestTimedOutError,\n",
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
                "        self._cell.wait_for(lambda now: now.sending == 0)\n        self._effects.join_what_waits()\n"
                "        self._sender.wait()\n",
                "        self._effects.join_what_waits()\n",
            ),
        ),
        ("bank", "lists"),
    ),
    Mutant(
        "a-failure-during-the-end-is-not-heard",
        "a write that fails while another thread's commit waits for it does not reach the state that the commit goes by",
        (
            Edit(
                "txn_engine/producer/sender.py",
                "        if self._cell.move(failed, error):\n            self.start()\n",
                "        if self._cell.ender is None and self._cell.move(failed, error):\n            self.start()\n",
            ),
        ),
        ("threads", "bank", "lists"),
    ),
    Mutant(
        "an-explanation-asks-the-store",
        "what a refusal after a time-out says is asked of the store: where it does not answer, nobody is told",
        (
            Edit(
                "txn_engine/producer/time_out.py",
                "            seen = self._logs.settings.last_seen\n",
                "            seen = self._logs.settings.look_up()\n",
            ),
        ),
        ("stalled",),
    ),
    Mutant(
        "a-forked-producer-goes-on",
        "a producer goes on in a forked child, under its parent's sequences",
        (Replace("txn_engine.log.own_process.OwnProcess.is_here", _here_everywhere),),
        ("fork",),
        marked="forks",
    ),
)
