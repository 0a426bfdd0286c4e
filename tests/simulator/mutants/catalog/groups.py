"""Bugs in the groups' offsets: what is pending, what a commit names."""

from __future__ import annotations

from tests.simulator.mutants.mutation import Edit, Mutant

_OFFSETS = "txn_engine/protocol/offset_commits.py"
_GROUPS = "txn_engine/coordinator/groups.py"
_INTAKE = "txn_engine/producer/intake.py"

MUTANTS = (
    Mutant(
        "pending-offsets-applied-at-once",
        "a transaction's offsets count as committed before its marker",
        (
            Edit(
                _OFFSETS,
                "        if not is_transactional:\n            return replace(self, committed=",
                "        if True:\n            return replace(self, committed=",
            ),
        ),
        ("pipeline",),
    ),
    Mutant(
        "aborted-offsets-applied",
        "an abort marker commits the pending offsets too",
        (
            Edit(
                _OFFSETS,
                "        applied = self.committed.update(mine) if committed else self.committed",
                "        applied = self.committed.update(mine)",
            ),
        ),
        ("pipeline",),
    ),
    Mutant(
        "a-commit-applies-one-offset",
        "a commit marker applies the pending offset of one of the group's partitions and drops the others",
        (
            Edit(
                _OFFSETS,
                "        applied = self.committed.update(mine) if committed else self.committed",
                "        applied = self.committed.update(dict([max(mine.items())])) if committed else self.committed",
            ),
        ),
        ("pipeline",),
    ),
    Mutant(
        "asking-for-an-offset-renews-what-is-named",
        "a commit names the row that the group's offset stood in when it was last asked for, not where it read from",
        (
            Edit(
                "txn_engine/consumer/group_position.py",
                "[at for at in event.partitions if _is_news(state, at)]",
                "event.partitions",
            ),
        ),
        ("pipeline",),
    ),
    Mutant(
        "pending-offsets-of-others-ignored",
        "a commit is taken while another producer's for the same partition is pending",
        (
            Edit(
                _OFFSETS,
                "        if other is not None:\n            raise OffsetsPendingError(",
                "        if other is not None and other < -1:\n            raise OffsetsPendingError(",
            ),
        ),
        ("pipeline", "upkeep"),
        marked="group-commits",
    ),
    Mutant(
        "commits-name-nothing",
        "a commit does not name the row that its reader fetched: two overlapping owners both commit",
        (
            Edit(
                _OFFSETS,
                "        if not unmoved and not self._is_own_pending(commit, producer_id):",
                "        if not unmoved and commit.fetched_row < -2:",
            ),
        ),
        ("pipeline",),
        marked="group-commits",
    ),
    Mutant(
        "commits-name-the-value",
        "a commit names the offset that its reader fetched, not the row: a reset can bring the value back",
        (
            Edit(
                _OFFSETS,
                "            unmoved = latest is not None and latest.offset == commit.fetched_row",
                "            unmoved = latest is not None and latest.commit.offset <= commit.offset",
            ),
        ),
        ("pipeline",),
        marked="group-commits",
    ),
    Mutant(
        "none-is-none-for-ever",
        "a commit of a reader that found nothing is taken although somebody has committed since",
        (
            Edit(
                _OFFSETS,
                "            unmoved = latest is None or (\n"
                "                latest.commit.offset == TOMBSTONE_OFFSET and latest.offset < commit.fetched_end\n"
                "            )",
                "            unmoved = True",
            ),
        ),
        ("pipeline",),
        marked="group-commits",
    ),
    Mutant(
        "unstable-offsets-are-told",
        "a read_committed consumer is told an offset while a transaction's commit for it is pending",
        (
            Edit(
                _GROUPS,
                "        if require_stable and pending is not None:",
                "        if require_stable and pending is not None and pending < -1:",
            ),
            Edit(
                _OFFSETS,
                "        if other is not None:\n            raise OffsetsPendingError(",
                "        if other is not None and other < -1:\n            raise OffsetsPendingError(",
            ),
        ),
        ("pipeline",),
    ),
    Mutant(
        "offsets-outside-the-transaction",
        "a transaction's offsets are committed plainly",
        (
            Edit(
                "txn_engine/producer/group_offsets.py",
                "        proposals = [OffsetCommitProposal(commit, *lane.identity) for commit in commits]",
                "        proposals = [OffsetCommitProposal(commit) for commit in commits]",
            ),
        ),
        ("pipeline",),
    ),
    Mutant(
        "a-position-goes-by-name",
        "a position is committed in whatever topic has the name now",
        (
            Edit(
                _GROUPS,
                "        read = group.incarnations.get(TopicPartition(*partition))\n",
                "        read = None\n",
            ),
        ),
        ("remade",),
    ),
    Mutant(
        "files-go-by-name",
        "uploaded files are named in whatever topic has the name now",
        (
            Edit(
                _INTAKE,
                "            (TransactionPartition(topic.name, topic.incarnation, number), encoded)\n",
                "            (\n"
                "                TransactionPartition(\n"
                "                    topic.name, self._tools.logs.topics.get(topic.name).incarnation, number\n"
                "                ),\n"
                "                encoded,\n"
                "            )\n",
            ),
        ),
        ("remade",),
    ),
)
