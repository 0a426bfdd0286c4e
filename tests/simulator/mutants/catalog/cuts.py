"""Bugs in cuts: what is inside, what is kept for them, and who was first."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tests.simulator.mutants.mutation import Edit, Mutant, Replace

_RULE = "txn_engine/protocol/cuts.py"
_MAKING = "txn_engine/cuts/making.py"
_LOOKING = "txn_engine/cuts/looking.py"
_DELETING = "txn_engine/maintain/deleting.py"
_WORKLOADS = ("cuts",)


def _not_lowered(stable: Mapping[Any, int], spans: Any, boundaries: Any, positions: Any) -> dict[Any, int]:
    return dict(stable)


def _no_positions(looks: Any) -> dict[Any, Any]:
    return {}


MUTANTS = (
    Mutant(
        "a-cut-at-the-stable-offsets",
        "a cut is the vector of last stable offsets at the first look",
        (Replace("txn_engine.protocol.cuts.lowered", _not_lowered),),
        _WORKLOADS,
        marked="cuts-by-offsets",
    ),
    Mutant(
        "a-cut-lowered-once",
        "whoever reaches above a cut is drawn out, and not who reaches above what that leaves",
        (Edit(_RULE, "            todo.append(place)\n", "            pass\n"),),
        _WORKLOADS,
        marked="lowered",
    ),
    Mutant(
        "a-cut-before-what-its-readers-read",
        "a group's position inside a cut may be ahead of the cut",
        (Replace("txn_engine.cuts.making._positions", _no_positions),),
        _WORKLOADS,
        marked="read-inside",
    ),
    Mutant(
        "a-cut-goes-by-what-is-open-now",
        "a transaction counts only as long as it has no marker in the log that is read",
        (
            Edit(
                _RULE,
                "        elif not committed:\n            del self.spans[key]",
                "        else:\n            del self.spans[key]",
            ),
        ),
        _WORKLOADS,
        marked="cuts-by-offsets",
    ),
    Mutant(
        "a-cut-below-compaction",
        "a cut comes down to an offset since which compaction by key left records out",
        (
            Edit(
                _MAKING, "            elif each.leaves_out_behind(vector[at]):\n", "            elif False:\n"
            ),
        ),
        _WORKLOADS,
        marked="passed-by-compaction",
    ),
    Mutant(
        "a-cut-of-groups-at-the-first-look",
        "the group offsets of a cut are those at the first look, rows above the cut among them",
        (
            Edit(
                _LOOKING,
                "        state = self._log.state_at(offset)\n",
                "        state = self._log.state_at(self.end)\n",
            ),
        ),
        _WORKLOADS,
    ),
    Mutant(
        "a-cut-forgets-pending-commits",
        "commits that were pending at the cut and committed later do not count",
        (
            Edit(
                _LOOKING,
                "state.log_end_offset, slot, self._committed_behind(state))",
                "state.log_end_offset, slot, ())",
            ),
        ),
        _WORKLOADS,
    ),
    Mutant(
        "a-cut-holds-no-files",
        "clean-up deletes files that only a cut needs",
        (Edit(_DELETING, "            if name.data_path not in held:\n", "            if True:\n"),),
        _WORKLOADS,
        marked="claims",
    ),
    Mutant(
        "a-cut-holds-no-forgotten-files",
        "clean-up deletes files that only a cut needs, once the log has forgotten them",
        (
            Edit(
                _DELETING,
                "            if name.data_path not in held:\n",
                "            if name.data_path not in held or counted is self._orphans:\n",
            ),
        ),
        _WORKLOADS,
    ),
    Mutant(
        "a-cut-holds-no-snapshots",
        "clean-up deletes snapshots that a cut names",
        (
            Edit(
                _DELETING,
                "snapshots.deletable(below, state.entries_start, holds.snapshots, self._moment)",
                "snapshots.deletable(below, state.entries_start, (), self._moment)",
            ),
        ),
        _WORKLOADS,
    ),
)
