"""Bugs in everything that deletes: seals, trims, floors, expiry, rewriting, snapshots, grace."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from tests.simulator.mutants.mutation import Edit, Mutant, Replace
from txn_engine.protocol.appends import EntryPlan
from txn_engine.protocol.batches import BatchDescriptor
from txn_engine.protocol.controls import Floor, Trim
from txn_engine.protocol.file_names import DataFileName
from txn_engine.protocol.partition import DeadFile, LogFile, PartitionState
from txn_engine.protocol.proposals import FloorProposal, Proposal, TrimProposal, Verdict, VerifiedSnapshot

_LOG = "txn_engine/log/entry_log.py"
_RULES = "txn_engine/protocol/control_rules.py"
_SEALED = "txn_engine/protocol/sealed_slots.py"
_SEALING = "txn_engine/maintain/sealing.py"
_DELETING = "txn_engine/maintain/deleting.py"

_ENTRIES_START_IS_KEPT = "txn_engine.protocol.control_rules._check_entries_start_is_kept"
_JUDGE_FLOOR = "txn_engine.protocol.control_rules._judge_floor"
_SETTLE_SEALED = "txn_engine.protocol.sealed_slots.settle_sealed"
_STARTS = "txn_engine.protocol.control_rules._check_starts_do_not_fall"
_TRIM = "txn_engine.protocol.controls._trim"


def _seal_is_a_loss(
    state: PartitionState, plan: EntryPlan, proposals: Sequence[Proposal]
) -> tuple[Verdict, ...] | None:
    return None


def _seal_is_a_win(
    state: PartitionState, plan: EntryPlan, proposals: Sequence[Proposal]
) -> tuple[Verdict, ...] | None:
    return plan.verdicts


def _expiry_is_not_noted(self: Any, batches: Sequence[BatchDescriptor]) -> None:
    pass


def _entries_start_may_fall(original: Any, state: PartitionState, trim: TrimProposal) -> None:
    original(state, replace(trim, entries_start=state.entries_start))


def _log_start_may_fall(original: Any, state: PartitionState, trim: TrimProposal) -> None:
    original(state, replace(trim, log_start_offset=state.log_start_offset))


def _trimmed_to_any_entries_start(
    original: Any, state: PartitionState, value: Trim, time_ms: int
) -> PartitionState:
    return replace(original(state, value, time_ms), entries_start=value.entries_start)


def _trimmed_to_any_log_start(
    original: Any, state: PartitionState, value: Trim, time_ms: int
) -> PartitionState:
    return replace(original(state, value, time_ms), log_start_offset=value.log_start_offset)


def _file_may_be_cut(state: PartitionState, trim: TrimProposal) -> None:
    pass


def _entries_start_on_trust(original: Any, state: PartitionState, trim: TrimProposal) -> None:
    if any(snapshot.last_entry_base == trim.entries_start for snapshot in trim.verified_snapshots):
        original(state, trim)


def _newest_snapshot_is_enough(original: Any, state: PartitionState, trim: TrimProposal) -> None:
    ends = [snapshot.log_end_offset for snapshot in trim.verified_snapshots]
    newer = [VerifiedSnapshot(max(ends) + 1, -1)] if ends else []
    original(state, replace(trim, verified_snapshots=(*trim.verified_snapshots, *newer)))


def _floor_may_fall(original: Any, state: PartitionState, proposal: FloorProposal) -> Floor | None:
    floor: Floor | None = Floor(proposal.floor) if proposal.floor < state.floor else original(state, proposal)
    return floor


def _floor_set_back(original: Any, state: PartitionState, value: Floor, time_ms: int) -> PartitionState:
    return replace(original(state, value, time_ms), floor=value.floor)


def _floor_above_itself(original: Any, state: PartitionState, proposal: FloorProposal) -> Floor | None:
    is_above = proposal.floor > state.log_end_offset
    floor: Floor | None = Floor(proposal.floor) if is_above else original(state, proposal)
    return floor


def _below_the_floor(name: DataFileName, floor: int) -> None:
    pass


def _no_grace(dead: DeadFile, now_ms: int) -> bool:
    return True


def _any_input(state: PartitionState, read: LogFile) -> None:
    pass


def _any_outputs(inputs: Sequence[LogFile], outputs: Sequence[LogFile]) -> None:
    pass


MUTANTS = (
    Mutant(
        "deleted-not-sealed",
        "clean-up deletes entries instead of sealing them: a writer that slept finds its old slot free",
        (
            Edit(
                _SEALING,
                "            target.objects.overwrite(\n"
                "                target.keys.entry(slot.base_offset), encode_seal(target.log.kind, write_id)\n            )",
                "            target.objects.remove(target.keys.entry(slot.base_offset))",
            ),
        ),
        ("seals", "upkeep"),
        marked="seals",
    ),
    Mutant(
        "a-seal-is-a-lost-race",
        "a put that finds a seal in its slot is taken for lost, and judged again without a question",
        (Replace(_SETTLE_SEALED, _seal_is_a_loss),),
        ("seals",),
        marked="seals-settle-nothing",
    ),
    Mutant(
        "a-seal-is-a-win",
        "a put that finds a seal in its slot is taken for won",
        (Replace(_SETTLE_SEALED, _seal_is_a_win),),
        ("seals",),
        marked="seals-settle-nothing",
    ),
    Mutant(
        "a-plain-append-is-sent-again",
        "what the state cannot identify behind a seal is sent again, not unknown",
        (
            Edit(
                _SEALED,
                "    if _Fate.UNKNOWN in fates:\n",
                "    if not fates:\n",
            ),
        ),
        ("seals",),
        marked="seals-settle-nothing",
    ),
    Mutant(
        "a-searched-decision-is-none",
        "a decision that is searched for where there are seals is 'not committed', not unknown",
        (
            Edit(
                "txn_engine/coordinator/coordinator.py",
                "        return False if never else None\n",
                "        return False\n",
            ),
        ),
        ("seals",),
        marked="seals-settle-nothing",
    ),
    Mutant(
        "a-seal-is-the-end",
        "who meets a seal on the way takes it for the end of the log, instead of loading another view",
        (
            Edit(
                _LOG,
                "        except SealedSlotError:\n            return self._load()\n        return self._state",
                "        except SealedSlotError:\n            self._state = state\n        return self._state",
            ),
        ),
        ("seals", "upkeep"),
        marked="seals",
    ),
    Mutant(
        "a-view-survives-a-reload",
        "a view loaded anew is taken for the one from before AddPartitions",
        (
            Edit(
                _LOG,
                "        self._state, self._token = None, ViewToken()\n        loaded_from",
                "        self._state = None\n        loaded_from",
            ),
        ),
        ("stalled",),
        marked="first-writes",
    ),
    Mutant(
        "a-view-survives-an-expiry",
        "what was known of a producer before it was expired still counts for its first write",
        (Replace("txn_engine.log.entry_log.EntryLog._note_expiry", _expiry_is_not_noted),),
        ("stalled",),
        marked="first-writes",
    ),
    Mutant(
        "the-entries-start-may-fall",
        "a trim of the records, planned before another cleaner's, moves the entries' start back",
        (Replace(_STARTS, _entries_start_may_fall), Replace(_TRIM, _trimmed_to_any_entries_start)),
        ("controls", "seals"),
        marked="starts-never-fall",
    ),
    Mutant(
        "the-log-start-may-fall",
        "a trim may move the records' start back: records that were trimmed are read again",
        (Replace(_STARTS, _log_start_may_fall), Replace(_TRIM, _trimmed_to_any_log_start)),
        ("controls",),
        marked="starts-never-fall",
    ),
    Mutant(
        "trimmed-beyond-the-lso",
        "a trim may pass the last stable offset",
        (
            Edit(
                _RULES,
                "    if trim.log_start_offset > state.last_stable_offset:\n",
                "    if trim.log_start_offset > state.log_end_offset:\n",
            ),
            Edit(
                "txn_engine/maintain/retention.py",
                "    bound = min([state.last_stable_offset, *young])\n",
                "    bound = min([state.log_end_offset, *young])\n",
            ),
        ),
        ("controls", "upkeep"),
    ),
    Mutant(
        "trimmed-inside-a-file",
        "a trim may cut a file",
        (Replace("txn_engine.protocol.control_rules._check_log_start_cuts_no_file", _file_may_be_cut),),
        ("controls",),
    ),
    Mutant(
        "entries-trimmed-on-trust",
        "the entries' start may move into a snapshot that nobody has read back",
        (Replace(_ENTRIES_START_IS_KEPT, _entries_start_on_trust),),
        ("controls",),
        marked="two-snapshots",
    ),
    Mutant(
        "a-trim-into-the-newest-snapshot",
        "the entries' start may move into a snapshot that has no newer one behind it",
        (Replace(_ENTRIES_START_IS_KEPT, _newest_snapshot_is_enough),),
        ("controls",),
        marked="two-snapshots",
    ),
    Mutant(
        "sealed-above-the-trim",
        "the cleaner seals by its own plan, up to the newest snapshot, not below an entries' start read back",
        (
            Edit(
                _SEALING,
                "    entries_start = target.read_back().entries_start\n",
                "    entries_start = max(\n        [target.read_back().entries_start, *(s.end for s in target.snapshots.all)]\n    )\n",
            ),
            Edit(_SEALING, "    _check_snapshots(target, entries_start)\n", ""),
        ),
        ("seals", "upkeep"),
        marked="two-snapshots",
    ),
    Mutant(
        "a-snapshot-deleted-too-early",
        "a snapshot is deleted although one newer one alone is there",
        (
            Edit(
                "txn_engine/maintain/deleting.py",
                "        below = newest[0].end\n",
                "        below = newest[1].end\n",
            ),
        ),
        ("seals", "decay", "upkeep"),
        marked="damaged-snapshots",
    ),
    Mutant(
        "a-damaged-snapshot-is-deleted",
        "a reader deletes a damaged snapshot",
        (
            Edit(
                _LOG,
                "                damaged.append(info.key)\n                continue\n",
                "                objects.remove(info.key)\n                continue\n",
            ),
        ),
        ("decay",),
        marked="damaged-snapshots",
    ),
    Mutant(
        "a-damaged-snapshot-stops-the-reader",
        "a reader does not fall back from a damaged snapshot to an older one",
        (
            Edit(
                _LOG,
                "                damaged.append(info.key)\n                continue\n",
                "                raise\n",
            ),
        ),
        ("decay",),
        marked="damaged-snapshots",
    ),
    Mutant(
        "an-open-producer-expires",
        "a producer with an open transaction is forgotten",
        (
            Edit(_RULES, "    if entry.is_open:\n        return False\n", ""),
            Edit(
                "txn_engine/maintain/idle_producers.py",
                "        if not entry.is_open and entry.append_time",
                "        if entry.append_time",
            ),
        ),
        ("stalled", "upkeep"),
    ),
    Mutant(
        "a-busy-producer-expires",
        "a producer that has written since the sweep looked is forgotten all the same",
        (
            Edit(
                _RULES,
                "    return entry.append_time <= idle_since_ms\n",
                "    return True\n",
            ),
            Edit(
                "txn_engine/maintain/idle_producers.py",
                " and entry.append_time <= idle_since_ms\n",
                "\n",
            ),
        ),
        ("controls",),
    ),
    Mutant(
        "the-floor-may-fall",
        "a floor may fall",
        (
            Replace(_JUDGE_FLOOR, _floor_may_fall),
            Replace("txn_engine.protocol.controls._raise_floor", _floor_set_back),
        ),
        ("controls",),
        marked="orphans",
    ),
    Mutant(
        "the-floor-above-itself",
        "a floor may lie above its own entry",
        (Replace(_JUDGE_FLOOR, _floor_above_itself),),
        ("controls",),
        marked="orphans",
    ),
    Mutant(
        "files-below-the-floor-are-named",
        "an append may name a file that the clean-up may have deleted",
        (Replace("txn_engine.protocol.file_names.check_not_below_floor", _below_the_floor),),
        ("seals", "upkeep"),
        marked="orphans",
    ),
    Mutant(
        "orphans-without-a-floor",
        "the cleaner takes a file for an orphan that its view does not name, without a floor behind it",
        (
            Edit(
                _DELETING,
                "            if name.log_end < settled and name.data_path not in state.named\n",
                "            if name.data_path not in state.named\n",
            ),
        ),
        ("seals", "upkeep"),
        marked="orphans",
    ),
    Mutant(
        "orphans-by-an-old-view",
        "the cleaner takes a file for an orphan by a replay that ends before its floor's entry",
        (
            Edit(
                _DELETING,
                "        before = self._target.read_back()\n",
                "        before = self._before = self._target.read_back()\n",
            ),
            Edit(
                _DELETING,
                "        state = self._target.read_back()\n        settled = floor if self._dry_run else state.floor\n",
                "        state, settled = self._before, floor\n",
            ),
        ),
        ("seals", "decay"),
        marked="orphans",
    ),
    Mutant(
        "no-grace",
        "a dead file is deleted at once",
        (Replace("txn_engine.maintain.deleting.grace_is_over", _no_grace),),
        ("upkeep",),
    ),
    Mutant(
        "a-rewrite-of-what-is-not-live",
        "a rewrite may replace a file that another rewrite has replaced",
        (Replace("txn_engine.protocol.control_rules._check_input_is_live", _any_input),),
        ("controls",),
        marked="rewrites",
    ),
    Mutant(
        "a-rewrite-of-what-is-undecided",
        "a rewrite may take files at or above the last stable offset",
        (Replace("txn_engine.protocol.control_rules._check_input_is_stable", _any_input),),
        ("controls",),
        marked="rewrites",
    ),
    Mutant(
        "a-rewrite-that-drops-records",
        "a rewrite need not cover its inputs",
        (Replace("txn_engine.protocol.control_rules._check_outputs_cover_inputs", _any_outputs),),
        ("controls",),
        marked="rewrites",
    ),
)
