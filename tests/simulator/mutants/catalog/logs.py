"""Bugs in the append: outcomes of puts, lost races, views, snapshots, store-wide settings."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from tests.simulator.kernel import current_task
from tests.simulator.mutants.mutation import Edit, Mutant, Replace
from txn_engine.log.logs import Logs
from txn_engine.log.store_config import TRANSACTION_STATE_TOPIC
from txn_engine.protocol.appends import EntryPlan, FirstWriteCheck, allow_first_write
from txn_engine.protocol.hashing import partition_for_id
from txn_engine.protocol.partition import PartitionState
from txn_engine.protocol.proposals import Proposal, Refused

_LOG = "txn_engine/log/entry_log.py"
_OPENERS = "txn_engine/log/openers_snapshot.py"
_SETTLE = "storage/settle.py"
_SNAPSHOT = "txn_engine/log/snapshot_format.py"


def _write_id_of_nobody(self: Any) -> str:
    return "0" * 32


def _one_refusal_refuses_all(
    original: Any,
    state: PartitionState,
    proposals: Sequence[Proposal],
    now_ms: int,
    check_first_write: FirstWriteCheck = allow_first_write,
) -> EntryPlan:
    plan: EntryPlan = original(state, proposals, now_ms, check_first_write)
    refusal = next((verdict for verdict in plan.verdicts if isinstance(verdict, Refused)), None)
    if refusal is None:
        return plan
    return EntryPlan(state.log_end_offset, (), (refusal,) * len(proposals), state)


def _one_partition_less_in_every_second_process(self: Logs, transactional_id: str) -> int:
    count = self.config.internal_partitions[TRANSACTION_STATE_TOPIC]
    task = current_task()
    pid = os.getpid() if task is None else task.process.pid
    return partition_for_id(transactional_id, max(count - pid % 2, 1))


MUTANTS = (
    Mutant(
        "an-openers-snapshot-of-what-was-planned",
        "a writer leaves a snapshot of the state that its put would lead to, before anybody knows who holds the slot",
        (
            Edit(
                _LOG,
                "            outcome = self._create_entry(key, data)\n        except OutcomeUnknownError:\n"
                "            self._unsettled =",
                "            self._openers_snapshot.opened(plan.state, self._replayed)\n"
                "            self._openers_snapshot.written()\n"
                "            outcome = self._create_entry(key, data)\n        except OutcomeUnknownError:\n"
                "            self._unsettled =",
            ),
        ),
        ("lists", "bank", "two_owners", "upkeep"),
    ),
    Mutant(
        "an-openers-snapshot-under-another-end",
        "a snapshot of the log as it was opened goes under the log's end as it is once its writer has written",
        (
            Edit(
                _OPENERS,
                "from txn_engine.log.left_snapshot import leave_snapshot\n",
                "from txn_engine.log.snapshot_format import encode_snapshot\n",
            ),
            Edit(
                _OPENERS,
                "leave_snapshot(self._objects, self._keys, state)",
                "self._objects.create(\n                self._keys.snapshot(state.log_end_offset + 1), encode_snapshot(state), max_bytes=1 << 30\n            )",
            ),
        ),
        ("lists", "bank", "two_owners", "upkeep"),
    ),
    Mutant(
        "put-decided-by-status",
        "the outcome of a put is what the store answered: an error or 'taken' means lost",
        (
            Edit(
                _SETTLE,
                "return PutOutcome(won=winner == data, winner=winner)",
                "return PutOutcome(won=False, winner=winner)",
            ),
        ),
        ("lists", "idempotent", "pipeline"),
        marked="unknown-outcomes",
    ),
    Mutant(
        "conflict-is-a-lost-race",
        "409 or 'taken' with nothing at the key is taken for a lost race: the slot is left empty, the next one written",
        (
            Edit(
                _SETTLE,
                "        if winner is not None:\n            return PutOutcome(won=winner == data, winner=winner)\n",
                "        if winner is not None:\n            return PutOutcome(won=winner == data, winner=winner)\n"
                '        if problem is None:\n            return PutOutcome(won=False, winner=b"")\n',
            ),
            Edit(
                _LOG,
                "            self._win(plan)\n            return plan.verdicts\n        try:\n",
                "            self._win(plan)\n            return plan.verdicts\n        if not outcome.winner:\n"
                "            state = self._loaded()\n"
                "            self._state = replace(state, log_end_offset=state.log_end_offset + 1)\n"
                "            return None\n        try:\n",
            ),
            Edit(_LOG, "from dataclasses import dataclass\n", "from dataclasses import dataclass, replace\n"),
        ),
        ("lists", "bank"),
    ),
    Mutant(
        "a-time-out-proves-nothing-written",
        "a put without an answer is told as failed, although it may land later",
        (
            Edit(
                _SETTLE,
                "not isinstance(problem, _NOTHING_WRITTEN)\n",
                "not isinstance(problem, (*_NOTHING_WRITTEN, StoreUnreachableError))\n",
            ),
        ),
        ("lists", "idempotent", "resets"),
        marked="unknown-outcomes",
    ),
    Mutant(
        "only-a-part-is-compared",
        "reading back compares the length, not the whole object: another's entry of the same size is taken for ours",
        (
            Edit(
                _SETTLE,
                "return PutOutcome(won=winner == data, winner=winner)",
                "return PutOutcome(won=len(winner) == len(data), winner=winner)",
            ),
            Edit(
                _SETTLE,
                "            if store.put_if_absent(key, data):\n                return PutOutcome(won=True, winner=data)",
                "            if store.put_if_absent(key, data):\n                return PutOutcome(won=True, winner=data)"
                "\n            problem = None",
            ),
        ),
        ("lists", "two_owners", "bank"),
    ),
    Mutant(
        "no-write-id-of-its-own",
        "an entry's bytes carry no write id of their own: two writers of equal bytes are both told that they won",
        (Replace("txn_engine.log.entry_log.LogTools.new_entry_id", _write_id_of_nobody),),
        ("two_owners",),
        marked="write-ids",
    ),
    Mutant(
        "an-unknown-append-is-sent-again",
        "a plain append whose outcome nobody knows is sent again, as if it had failed",
        (
            Edit(
                "txn_engine/partition_log.py",
                "        return _result(log.append([replace(shape, file=encoded.file)])[0])\n",
                "        try:\n            return _result(log.append([replace(shape, file=encoded.file)])[0])\n"
                "        except Exception as error:\n"
                "            if type(error).__name__ != 'OutcomeUnknownError':\n                raise\n"
                "            return self.append(table, **identity, base_sequence=base_sequence)\n",
            ),
        ),
        ("seals", "lists"),
        marked="unknown-outcomes",
    ),
    Mutant(
        "unknown-outcome-in-another-slot",
        "a put with an unknown outcome is taken for lost and judged again, without its bytes having been settled",
        (
            Edit(
                _LOG,
                "            self._unsettled = _Unsettled(key, data, plan)\n            raise",
                "            self._advance(self._loaded())\n            return None",
            ),
        ),
        ("seals", "lists", "idempotent"),
        marked="unknown-outcomes",
    ),
    Mutant(
        "verdict-carried-over",
        "after a lost race the same verdicts are given, without a second judgement",
        (
            Edit(
                _LOG,
                "        self._advance(self._state)\n        return None",
                "        self._advance(self._state)\n        return plan.verdicts",
            ),
        ),
        ("bank", "lists", "two_owners"),
    ),
    Mutant(
        "judged-on-the-old-state",
        "a lost race is judged again on the state from before it",
        (
            Edit(
                _LOG,
                "        is_fresh = self._await_turn()\n",
                "        is_fresh = self._await_turn()\n        self._stale = self.view()\n",
            ),
            Edit(
                _LOG,
                "        plan = plan_entry(state,",
                "        stale = replace(self._stale,"
                " log_end_offset=state.log_end_offset, last_append_time=state.last_append_time)\n"
                "        plan = plan_entry(stale,",
            ),
            Edit(_LOG, "from dataclasses import dataclass\n", "from dataclasses import dataclass, replace\n"),
        ),
        ("two_owners", "bank", "pipeline", "lists"),
    ),
    Mutant(
        "one-refusal-blocks-the-entry",
        "an illegal descriptor makes the whole entry illegal, instead of being left out",
        (Replace("txn_engine.protocol.appends.plan_entry", _one_refusal_refuses_all),),
        ("controls",),
        marked="judged-alone",
    ),
    Mutant(
        "snapshot-from-the-plan",
        "a snapshot is taken from the view in memory and one entry early, not from entries read back",
        (
            Edit(
                _LOG,
                "        state = EntryLog(self._tools, self.keys.prefix, self.kind).refresh()\n",
                "        state = self.refresh()\n",
            ),
            Edit(
                _LOG,
                "        leave_snapshot(objects, self.keys, state)\n",
                "        objects.create(self.keys.snapshot(end + 1), encode_snapshot(state), max_bytes=1 << 30)\n",
            ),
            Edit(
                _LOG,
                "import SNAPSHOT_LIMITS, decode_snapshot\n",
                "import SNAPSHOT_LIMITS, decode_snapshot, encode_snapshot\n",
            ),
            Edit(
                _LOG,
                "            if state.log_end_offset == end:\n                return state",
                "            return state",
            ),
        ),
        ("sweeps", "bank", "lists"),
    ),
    Mutant(
        "snapshot-without-undecided-files",
        "a snapshot forgets the files of open transactions",
        (
            Edit(
                _SNAPSHOT,
                'for status, files in (("live", state.live), ("undecided", state.undecided)):',
                'for status, files in (("live", state.live),):',
            ),
        ),
        ("sweeps", "bank", "lists"),
        marked="snapshots",
    ),
    Mutant(
        "snapshot-without-row-offsets",
        "a snapshot does not know at which offset an id's latest row stands",
        (
            Edit(
                _SNAPSHOT,
                '                    v["row_offset"],\n                    transaction_from_dict(v),',
                '                    max(v["row_offset"] - 1, 0),\n                    transaction_from_dict(v),',
            ),
        ),
        ("sweeps", "bank", "lists", "two_owners"),
        marked="snapshots",
    ),
    Mutant(
        "snapshot-without-pending-offsets",
        "a snapshot holds the committed offsets of groups only, not the pending ones",
        (
            Edit(
                _SNAPSHOT,
                "    for producer_id, pending in state.group_offsets.pending.items():\n        commits +=",
                "    for producer_id, pending in ():\n        commits +=",
            ),
        ),
        ("pipeline",),
        marked="snapshots",
    ),
    Mutant(
        "two-counts-of-internal-partitions",
        "every second process knows one internal partition less than the store: writers disagree where an id's log is",
        (
            Replace(
                "txn_engine.log.logs.Logs.coordinator_partition", _one_partition_less_in_every_second_process
            ),
        ),
        ("bank", "two_owners"),
        marked="settings",
    ),
)
