"""Bugs in what deletes: seals, trims, floors, expiry, rewriting, snapshots, grace."""

from __future__ import annotations

from tests.simulator.mutants.mutation import Edit, Mutant

_LOG = "txn_engine/log/entry_log.py"
_RULES = "txn_engine/protocol/control_rules.py"
_CONTROLS = "txn_engine/protocol/controls.py"
_SEALED = "txn_engine/protocol/sealed_slots.py"
_SEALING = "txn_engine/maintain/sealing.py"
_DELETING = "txn_engine/maintain/deleting.py"

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
        (
            Edit(
                _LOG,
                "            return settle_sealed(self._load_after_seal(key), plan, proposals)",
                "            self._load_after_seal(key)\n            return None",
            ),
        ),
        ("seals",),
        marked="seals-settle-nothing",
    ),
    Mutant(
        "a-seal-is-a-win",
        "a put that finds a seal in its slot is taken for won",
        (
            Edit(
                _LOG,
                "            return settle_sealed(self._load_after_seal(key), plan, proposals)",
                "            self._load_after_seal(key)\n            return plan.verdicts",
            ),
        ),
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
        (
            Edit(
                _LOG,
                "        if any(batch.control is Control.EXPIRE for batch in batches):\n            self._token = ViewToken()",
                "        if not batches:\n            self._token = ViewToken()",
            ),
        ),
        ("stalled",),
        marked="first-writes",
    ),
    Mutant(
        "the-entries-start-may-fall",
        "a trim of the records, planned before another cleaner's, moves the entries' start back",
        (
            Edit(
                _RULES,
                "    if trim.log_start_offset < state.log_start_offset or trim.entries_start < state.entries_start:\n",
                "    if trim.log_start_offset < state.log_start_offset:\n",
            ),
            Edit(
                _CONTROLS,
                "    entries_start = max(state.entries_start, value.entries_start)\n",
                "    entries_start = value.entries_start\n",
            ),
        ),
        ("controls", "seals"),
        marked="starts-never-fall",
    ),
    Mutant(
        "the-log-start-may-fall",
        "a trim may move the records' start back: records that were trimmed are read again",
        (
            Edit(
                _RULES,
                "    if trim.log_start_offset < state.log_start_offset or trim.entries_start < state.entries_start:\n",
                "    if trim.entries_start < state.entries_start:\n",
            ),
            Edit(
                _CONTROLS,
                "    log_start_offset = max(state.log_start_offset, value.log_start_offset)\n",
                "    log_start_offset = value.log_start_offset\n",
            ),
        ),
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
                "    return _log_start_at(state, min([state.last_stable_offset, *young]))\n",
                "    return _log_start_at(state, min([state.log_end_offset, *young]))\n",
            ),
        ),
        ("controls", "upkeep"),
    ),
    Mutant(
        "trimmed-inside-a-file",
        "a trim may cut a file",
        (
            Edit(
                _RULES,
                "    if cut is not None:\n",
                "    if cut is not None and start < 0:\n",
            ),
        ),
        ("controls",),
    ),
    Mutant(
        "entries-trimmed-on-trust",
        "the entries' start may move into a snapshot that nobody has read back",
        (
            Edit(
                _RULES,
                "    if kept is None or kept.log_end_offset > state.log_end_offset:\n",
                "    if kept is None:\n        return\n    if kept.log_end_offset > state.log_end_offset:\n",
            ),
        ),
        ("controls",),
        marked="two-snapshots",
    ),
    Mutant(
        "a-trim-into-the-newest-snapshot",
        "the entries' start may move into a snapshot that has no newer one behind it",
        (
            Edit(
                _RULES,
                "    if not any(newer.log_end_offset > kept.log_end_offset for newer in trim.verified_snapshots):\n",
                "    if not trim.verified_snapshots:\n",
            ),
        ),
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
            Edit(_RULES, "    if proposal.floor < state.floor:\n", "    if proposal.floor < 0:\n"),
            Edit(
                _CONTROLS,
                "    floor = max(state.floor, value.floor)\n",
                "    floor = value.floor\n",
            ),
        ),
        ("controls",),
        marked="orphans",
    ),
    Mutant(
        "the-floor-above-itself",
        "a floor may lie above its own entry",
        (
            Edit(
                _RULES,
                "    if proposal.floor > state.log_end_offset:\n",
                "    if proposal.floor > state.log_end_offset + 9999:\n",
            ),
        ),
        ("controls",),
        marked="orphans",
    ),
    Mutant(
        "files-below-the-floor-are-named",
        "an append may name a file that the clean-up may have deleted",
        (
            Edit(
                "txn_engine/protocol/file_names.py",
                "    if name.log_end < floor:\n",
                "    if name.log_end < 0:\n",
            ),
        ),
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
        (
            Edit(
                _DELETING,
                "    return now_ms - dead.died_ms >= GRACE_MS\n",
                "    return True\n",
            ),
        ),
        ("upkeep",),
    ),
    Mutant(
        "a-rewrite-of-what-is-not-live",
        "a rewrite may replace a file that another rewrite has replaced",
        (
            Edit(
                _RULES,
                "    if state.live.get(read.base_offset) != read:\n",
                "    if read.base_offset < 0:\n",
            ),
        ),
        ("controls",),
        marked="rewrites",
    ),
    Mutant(
        "a-rewrite-of-what-is-undecided",
        "a rewrite may take files at or above the last stable offset",
        (
            Edit(
                _RULES,
                "    if read.last_offset >= state.last_stable_offset:\n",
                "    if read.last_offset < 0:\n",
            ),
        ),
        ("controls",),
        marked="rewrites",
    ),
    Mutant(
        "a-rewrite-that-drops-records",
        "a rewrite need not cover its inputs",
        (
            Edit(
                _RULES,
                "    _check_outputs_cover_inputs(inputs, outputs)\n",
                "",
            ),
        ),
        ("controls",),
        marked="rewrites",
    ),
)
