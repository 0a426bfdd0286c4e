"""Bugs in columns that change: who learns of it when, which version a file counts as, and what a merge makes
of it."""

from __future__ import annotations

from tests.simulator.mutants.mutation import Edit, Mutant

_WHERE = ("schemas",)

MUTANTS: tuple[Mutant, ...] = (
    Mutant(
        "columns-by-their-names",
        "a column is looked for in a file under the name that it has now, not by its id",
        (
            Edit(
                "txn_engine/schemas/plan.py",
                "    stored = layout.by_id.get(column.id)\n",
                "    stored = layout.by_name.get(column.name)\n",
            ),
        ),
        _WHERE,
    ),
    Mutant(
        "merged-by-the-columns-of-the-beginning",
        "compaction writes the columns that the topic was made with: what came since is gone from the files that it makes",
        (
            Edit(
                "txn_engine/maintain/merging.py",
                "        self._topic = topic.held\n",
                "        self._topic = topic.at_version(0).held\n",
            ),
        ),
        _WHERE,
    ),
    Mutant(
        "who-altered-hears-of-it-later",
        "the engine that changed a topic's columns goes on with what it knew of the topic, for up to five seconds",
        (
            Edit(
                "txn_engine/log/topics.py",
                "            return topic, self.look_up(name)\n",
                "            return topic, replace(wanted, changes=topic.changes + 1)\n",
            ),
        ),
        _WHERE,
    ),
)
