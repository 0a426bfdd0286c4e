"""Bugs in compaction by key: what counts as the latest, what may be left out, and what is called clean."""

from __future__ import annotations

from tests.simulator.mutants.mutation import Edit, Mutant

_BY_KEY = "txn_engine/maintain/by_key.py"
_CLEANING = "txn_engine/protocol/cleaning.py"
_MAP = "txn_engine/maintain/offset_map.py"
_WHERE = ("compacted",)

MUTANTS: tuple[Mutant, ...] = (
    Mutant(
        "the-latest-by-the-files-order",
        "the record read last counts as the latest of its key, and files are read in the order of their upload",
        (
            Edit(_MAP, '.aggregate([(_OFFSET, "max")])', '.aggregate([(_OFFSET, "last")])'),
            Edit(_MAP, '{f"{_OFFSET}_max": _OFFSET}', '{f"{_OFFSET}_last": _OFFSET}'),
            Edit(_MAP, "(latest > offsets.to_numpy())", "(latest != offsets.to_numpy())"),
            Edit(
                _BY_KEY,
                "        for file, tables in self._merger.read(plan.dirty, ",
                "        for file, tables in self._merger.read(sorted(plan.dirty, key=lambda f: f.file.data_path), ",
            ),
            Edit(
                _BY_KEY,
                "            cleaned_to = file.last_offset + 1\n",
                "            cleaned_to = max(cleaned_to, file.last_offset + 1)\n",
            ),
        ),
        _WHERE,
    ),
    Mutant(
        "an-aborted-record-supersedes",
        "records of aborted transactions count as the latest of their keys",
        (
            Edit(
                _BY_KEY,
                "        for file, tables in self._merger.read(plan.dirty, ",
                "        gone = [d.log_file for d in plan.state.dead.values() if d.status == 'aborted']\n"
                "        gone = [f for f in gone if self._target.objects.exists(\n"
                "            f'{self._target.keys.prefix}/{f.file.data_path}')]\n"
                "        for table in (t for _, ts in self._merger.read(gone, [self._key, OFFSET]) for t in ts):\n"
                "            latest.add(table.column(self._key), table.column(OFFSET))\n"
                "        for file, tables in self._merger.read(plan.dirty, ",
            ),
        ),
        _WHERE,
    ),
    Mutant(
        "an-undecided-record-supersedes",
        "records of open transactions count as the latest of their keys",
        (
            Edit(
                _BY_KEY,
                "        for file, tables in self._merger.read(plan.dirty, ",
                "        open_files = list(plan.state.undecided.values())\n"
                "        for table in (t for _, ts in self._merger.read(open_files, [self._key, OFFSET]) for t in ts):\n"
                "            latest.add(table.column(self._key), table.column(OFFSET))\n"
                "        for file, tables in self._merger.read(plan.dirty, ",
            ),
        ),
        _WHERE,
    ),
    Mutant(
        "superseded-from-above-the-lso",
        "records that no reader sees yet, above the last stable offset, supersede those that readers see",
        (
            Edit(
                _BY_KEY,
                "        for file, tables in self._merger.read(plan.dirty, ",
                "        above = [f for f in plan.state.live.values() if f.last_offset >= plan.state.last_stable_offset]\n"
                "        for _, table in self._merger.read(above, [self._key, OFFSET]):\n"
                "            latest.add(table.column(self._key), table.column(OFFSET))\n"
                "        for file, tables in self._merger.read(plan.dirty, ",
            ),
        ),
        _WHERE,
    ),
    Mutant(
        "a-tombstone-goes-at-once",
        "a tombstone goes with the first pass after the one that removed what it supersedes",
        (
            Edit(
                _CLEANING,
                " and now_ms - self.horizon_ms >= delete_retention_ms:\n",
                ":\n",
            ),
        ),
        _WHERE,
    ),
    Mutant(
        "a-tombstone-goes-before-its-values",
        "tombstones go by the time of the last pass, also those that were written since",
        (
            Edit(
                _BY_KEY,
                "            due = state.cleaning.due_tombstones_to(self._now_ms, self._topic.delete_retention_ms)\n",
                "            due = state.cleaning.due_tombstones_to(self._now_ms, self._topic.delete_retention_ms)\n"
                "            due = state.last_stable_offset if due > state.cleaning.tombstones_to else due\n",
            ),
            Edit(
                "txn_engine/protocol/control_rules.py",
                "    if tombstones_to > limit:\n",
                "    if tombstones_to > state.last_stable_offset:\n",
            ),
        ),
        _WHERE,
    ),
    Mutant(
        "called-clean-though-overtaken",
        "a pass that another run has overtaken says clean all the same",
        (
            Edit(
                _BY_KEY,
                "            self._count.overtaken += 1\n            return False\n",
                "            self._count.overtaken += 1\n            return True\n",
            ),
        ),
        _WHERE,
    ),
    Mutant(
        "called-clean-beyond-the-map",
        "a pass whose map was full says that all is clean",
        (
            Edit(
                _BY_KEY,
                "            if latest.is_full:\n                break\n",
                "            if latest.is_full:\n                cleaned_to = plan.end\n                break\n",
            ),
        ),
        _WHERE,
    ),
    Mutant(
        "a-row-for-a-key-that-is-gone",
        "the offsets that are kept are counted from the first input, not from the first record kept",
        (
            Edit(
                "txn_engine/maintain/merging.py",
                "            held.append(self._at_deltas(staying, kept.first_offset))\n",
                "            held.append(self._at_deltas(staying, files[0].base_offset))\n",
            ),
        ),
        _WHERE,
    ),
    Mutant(
        "superseded-by-itself",
        "the latest record of a key is left out with those that it supersedes",
        (Edit(_MAP, "(latest > offsets.to_numpy())", "(latest >= offsets.to_numpy())"),),
        _WHERE,
    ),
)
