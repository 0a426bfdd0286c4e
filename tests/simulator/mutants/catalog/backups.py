"""Bugs in backups and restores: what is inside, what counts as complete, and who owns the place."""

from __future__ import annotations

from tests.simulator.mutants.mutation import Edit, Mutant

_AS_OF = "txn_engine/protocol/as_of_cut.py"
_STATES = "txn_engine/backup/states.py"
_MAKING = "txn_engine/backup/making.py"
_RESTORING = "txn_engine/backup/restoring.py"
_WORKLOADS = ("backups",)

MUTANTS = (
    Mutant(
        "a-run-is-inside-once-it-is-decided",
        "a run that was decided below a cut's ends of the coordinator's logs counts as committed in a restored store",
        (Edit(_AS_OF, "            outside.add(row.run_id)\n", "            pass\n"),),
        _WORKLOADS,
        marked="runs-inside",
    ),
    Mutant(
        "a-run-is-inside-by-its-marker",
        "a run is outside where its marker is above the cut, not where a record is",
        (
            Edit(
                _AS_OF,
                "            self.decided_at[key] = batch.coordinator_epoch\n",
                "            self.decided_at[key] = batch.coordinator_epoch\n"
                "            self.keys |= {key} if batch.base_offset >= offset else set()\n",
            ),
            Edit(_AS_OF, "batch.is_transactional and batch.last_offset >= offset:", "False:"),
        ),
        _WORKLOADS,
        marked="runs-inside",
    ),
    Mutant(
        "runs-of-unmarked-transactions-are-inside",
        "a run whose transaction has no marker yet counts as committed: its decision is looked for by markers alone",
        (Edit(_STATES, "and key_of(stored.row) in above.keys\n", "and False\n"),),
        _WORKLOADS,
        marked="runs-inside",
    ),
    Mutant(
        "a-file-that-a-cut-goes-through-is-left-out",
        "of a file with records on both sides of the cut none are restored",
        (
            Edit(
                _AS_OF,
                "        inside = file if file.last_offset < offset else shortened.get(file.file.data_path)\n",
                "        inside = file if file.last_offset < offset else None\n",
            ),
        ),
        _WORKLOADS,
    ),
    Mutant(
        "a-manifest-before-its-files",
        "a manifest is put before the data files are copied",
        (
            Edit(
                _MAKING,
                "        refs = self._copy_files(refs)\n        objects = self._copy_topics()\n"
                "        return self._finish(refs, objects, cut_after)\n",
                "        objects = self._copy_topics()\n        made = self._finish(refs, objects, cut_after)\n"
                "        self._copy_files(refs)\n        return made\n",
            ),
        ),
        _WORKLOADS,
    ),
    Mutant(
        "a-restored-store-is-opened-at-once",
        "a restore says that it has come to its end as soon as it has the place",
        (
            Edit(
                _RESTORING,
                "        run.fill(config, anew)\n        _end(anew, clock, new_id)\n",
                "        _end(anew, clock, new_id)\n        run.fill(config, anew)\n",
            ),
        ),
        _WORKLOADS,
        marked="restored-last",
    ),
)
