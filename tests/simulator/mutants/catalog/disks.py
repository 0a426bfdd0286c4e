"""Bugs in the local store: what it acknowledges or shows before it is on the disk."""

from __future__ import annotations

from tests.simulator.mutants.mutation import Edit, Mutant

_LOCAL = "storage/local.py"
_WORKLOADS = ("lists", "idempotent", "two_owners")

MUTANTS = (
    Mutant(
        "bytes-not-synced",
        "local store: an object gets its name before its bytes are on the disk",
        (Edit(_LOCAL, "                _sync_file(descriptor)\n", ""),),
        _WORKLOADS,
        local=True,
    ),
    Mutant(
        "names-not-synced",
        "local store: a put is acknowledged before the object's name is on the disk",
        (
            Edit(
                _LOCAL,
                "            if linked:\n                self._confirm(key, inode)\n",
                "            if linked:\n                self._confirmed[key] = inode\n",
            ),
        ),
        _WORKLOADS,
        local=True,
    ),
    Mutant(
        "new-folders-not-synced",
        "local store: a put is acknowledged before the name of a folder above it, made just now, is on the disk",
        (
            Edit(
                _LOCAL,
                "            self._refuse_links(folder)\n        _fsync_folder(parent)\n",
                "            self._refuse_links(folder)\n",
            ),
        ),
        _WORKLOADS,
        local=True,
    ),
    Mutant(
        "what-is-seen-is-believed",
        "local store: a reader goes on from an object whose writer died before its name was on the disk",
        (
            Edit(
                _LOCAL,
                "        if self._may_be_unsynced(path, found.st_ctime_ns) and self._confirmed.get(key) != found.st_ino:\n",
                "        if self._confirmed.get(key, 0) < 0:\n",
            ),
        ),
        ("power",),
        local=True,
    ),
)
