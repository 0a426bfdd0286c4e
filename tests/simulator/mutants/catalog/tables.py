"""Bugs in tables: what a version shows, what keeps it, and who was first."""

from __future__ import annotations

from tests.simulator.mutants.mutation import Edit, Mutant

_CHANGES = "txn_engine/tables/changes.py"
_FOLLOWING = "txn_engine/tables/following.py"
_VIEW = "txn_engine/tables/delta/view.py"
_TARGET = "txn_engine/maintain/target.py"
_WORKLOADS = ("tables",)

MUTANTS = (
    Mutant(
        "a-table-holds-nothing",
        "clean-up does not look for pins",
        (
            Edit(
                _TARGET,
                "snapshots=held.snapshots | pinned.snapshots, files=pinned.files)",
                "snapshots=held.snapshots)",
            ),
        ),
        _WORKLOADS,
        marked="pinned",
    ),
    Mutant(
        "a-version-over-another",
        "a version is put over one that stands there",
        (
            Edit(
                _VIEW,
                "        won = self._objects.create(key, data, max_bytes=COMMIT_BYTES_MAX).won\n",
                "        self._objects.overwrite(key, data)\n        won = True\n",
            ),
        ),
        _WORKLOADS,
    ),
    Mutant(
        "new-records-by-halves",
        "where some of the new files that were merged are gone, the others are shown before these",
        (
            Edit(
                _CHANGES,
                "        if any(each.hides or any(file.path not in kept for file in each.passing) for each in every):\n",
                "        if False:\n",
            ),
        ),
        _WORKLOADS,
        marked="tables-whole",
    ),
    Mutant(
        "a-table-shows-what-was-aborted",
        "a file counts as committed at any marker of its producer",
        (Edit(_FOLLOWING, "            if row.control is Control.COMMIT:\n", "            if True:\n"),),
        _WORKLOADS,
    ),
)
