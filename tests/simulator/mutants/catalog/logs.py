"""Bugs in the append: outcomes of puts, lost races, views, snapshots, store-wide settings."""

from __future__ import annotations

from tests.simulator.mutants.mutation import Edit, Mutant

_LOG = "txn_engine/log/entry_log.py"
_SETTLE = "storage/settle.py"
_SNAPSHOT = "txn_engine/log/snapshot_format.py"
_APPENDS = "txn_engine/protocol/appends.py"

MUTANTS = (
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
        marked="2",
    ),
    Mutant(
        "conflict-is-a-lost-race",
        "409 or 'taken' with nothing at the key is taken for a lost race: the slot is left empty, the next one written",
        (
            Edit(
                _SETTLE,
                "            if store.put_if_absent(key, data):\n                return PutOutcome(won=True, winner=data)",
                "            store.put_if_absent(key, data)\n            return PutOutcome(won=True, winner=data)",
            ),
        ),
        ("lists", "bank"),
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
        (
            Edit(
                _LOG,
                "data = encode_entry(self.kind, plan.batches, self._tools.new_id())",
                'data = encode_entry(self.kind, plan.batches, "0" * 32)',
            ),
        ),
        ("two_owners",),
        marked="2",
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
        marked="2",
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
        marked="2",
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
                "            for _ in range(MAX_LOST_RACES):\n                state = self._loaded()\n"
                "                plan = plan_entry(state,",
                "            stale = self._loaded()\n            for _ in range(MAX_LOST_RACES):\n"
                "                state = self._loaded()\n                stale = replace(stale,"
                " log_end_offset=state.log_end_offset, last_append_time=state.last_append_time)\n"
                "                plan = plan_entry(stale,",
            ),
            Edit(_LOG, "from dataclasses import dataclass\n", "from dataclasses import dataclass, replace\n"),
        ),
        ("two_owners", "bank", "pipeline", "lists"),
    ),
    Mutant(
        "one-refusal-blocks-the-entry",
        "an illegal descriptor makes the whole entry illegal, instead of being left out",
        (
            Edit(
                _APPENDS,
                "            verdicts.append(Refused(error))\n            continue",
                "            return EntryPlan(state.log_end_offset, (), (Refused(error),) * len(proposals), state)",
            ),
        ),
        ("controls",),
        marked="1",
    ),
    Mutant(
        "snapshot-from-the-plan",
        "a snapshot is taken from the view in memory and one entry early, not from entries read back",
        (
            Edit(
                _LOG,
                "        reader = EntryLog(self._tools, self.keys.prefix, self.kind)\n        state = reader.refresh()\n"
                "        key = self.keys.snapshot(state.log_end_offset)",
                "        state = self.refresh()\n        key = self.keys.snapshot(state.log_end_offset + 1)",
            ),
            Edit(
                _LOG,
                "            if state.log_end_offset == self.keys.parse_snapshot(key):\n                return state",
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
        marked="5",
    ),
    Mutant(
        "snapshot-without-row-offsets",
        "a snapshot does not know at which offset an id's latest row stands",
        (
            Edit(
                _SNAPSHOT,
                '                    v["row_offset"], transaction_from_dict(v),',
                '                    v["row_offset"] + 1, transaction_from_dict(v),',
            ),
        ),
        ("sweeps", "bank", "lists", "two_owners"),
        marked="5",
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
        marked="5",
    ),
    Mutant(
        "settings-from-the-code",
        "the number of internal partitions comes from the code and not from the store: writers disagree where a log is",
        (
            Edit(
                "txn_engine/log/logs.py",
                "return partition_for_id(transactional_id, self.config.internal_partitions[TRANSACTION_STATE_TOPIC])",
                "return partition_for_id(transactional_id, 50)",
            ),
        ),
        ("bank", "two_owners"),
        marked="1",
    ),
)
