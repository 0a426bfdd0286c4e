"""Bugs in the groups' offsets: what is pending, and what a commit names."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from immutables import Map

from tests.simulator.mutants.mutation import Edit, Mutant, Replace
from txn_engine.protocol.offset_commits import (
    FETCHED_NOTHING,
    NO_ROW,
    GroupOffsets,
    OffsetCommit,
    StoredCommit,
)
from txn_engine.protocol.transaction_rows import TransactionPartition
from txn_engine.types import ConsumerGroupMetadata, TopicPartition

_INTAKE = "txn_engine/producer/intake.py"

_CHECK = "txn_engine.protocol.offset_commits.GroupOffsets.check"
_WITH_MARKER = "txn_engine.protocol.offset_commits.GroupOffsets.with_marker"


def _commit_at_once(
    original: Any, self: GroupOffsets, stored: StoredCommit, producer_id: int, *, is_transactional: bool
) -> GroupOffsets:
    after: GroupOffsets = original(self, stored, producer_id, is_transactional=False)
    return after


def _marker_commits(original: Any, self: GroupOffsets, producer_id: int, *, committed: bool) -> GroupOffsets:
    after: GroupOffsets = original(self, producer_id, committed=True)
    return after


def _marker_commits_one(
    original: Any, self: GroupOffsets, producer_id: int, *, committed: bool
) -> GroupOffsets:
    mine = self.pending.get(producer_id)
    if committed and mine:
        self = replace(self, pending=self.pending.set(producer_id, Map([max(mine.items())])))
    after: GroupOffsets = original(self, producer_id, committed=committed)
    return after


def _everything_is_news(state: Any, at: TransactionPartition) -> bool:
    return True


def _pending_of_others_ignored(
    original: Any, self: GroupOffsets, commit: OffsetCommit, producer_id: int
) -> None:
    mine = {producer: held for producer, held in self.pending.items() if producer == producer_id}
    original(replace(self, pending=Map(mine)), commit, producer_id)


def _commit_names_nothing(original: Any, self: GroupOffsets, commit: OffsetCommit, producer_id: int) -> None:
    original(self, replace(commit, fetched_row=FETCHED_NOTHING), producer_id)


def _commit_names_the_value(
    original: Any, self: GroupOffsets, commit: OffsetCommit, producer_id: int
) -> None:
    latest = self.committed.get(commit.key)
    if commit.fetched_row >= 0 and latest is not None and latest.commit.offset <= commit.offset:
        commit = replace(commit, fetched_row=latest.offset)
    original(self, commit, producer_id)


def _none_for_ever(original: Any, self: GroupOffsets, commit: OffsetCommit, producer_id: int) -> None:
    if commit.fetched_row == NO_ROW:
        commit = replace(commit, fetched_row=FETCHED_NOTHING)
    original(self, commit, producer_id)


def _fetched_unstable(
    original: Any, state: Any, group_id: str, partitions: Any, *, require_stable: bool
) -> Any:
    return original(state, group_id, partitions, require_stable=False)


def _target_by_name(
    original: Any, self: Any, group: ConsumerGroupMetadata, partition: TopicPartition
) -> TransactionPartition:
    target: TransactionPartition = original(self, replace(group, incarnations={}), partition)
    return target


MUTANTS = (
    Mutant(
        "pending-offsets-applied-at-once",
        "a transaction's offsets count as committed before its marker",
        (Replace("txn_engine.protocol.offset_commits.GroupOffsets.with_commit", _commit_at_once),),
        ("pipeline",),
    ),
    Mutant(
        "aborted-offsets-applied",
        "an abort marker commits the pending offsets too",
        (Replace(_WITH_MARKER, _marker_commits),),
        ("pipeline",),
    ),
    Mutant(
        "a-commit-applies-one-offset",
        "a commit marker applies the pending offset of one of the group's partitions and drops the others",
        (Replace(_WITH_MARKER, _marker_commits_one),),
        ("pipeline",),
    ),
    Mutant(
        "asking-for-an-offset-renews-what-is-named",
        "a commit names the row that the group's offset stood in when it was last asked for, not where it read from",
        (Replace("txn_engine.consumer.group_position._is_news", _everything_is_news),),
        ("pipeline",),
    ),
    Mutant(
        "pending-offsets-of-others-ignored",
        "a commit is taken while another producer's for the same partition is pending",
        (Replace(_CHECK, _pending_of_others_ignored),),
        ("pipeline", "upkeep"),
        marked="group-commits",
    ),
    Mutant(
        "commits-name-nothing",
        "a commit does not name the row that its reader fetched: two overlapping owners both commit",
        (Replace(_CHECK, _commit_names_nothing),),
        ("pipeline",),
        marked="group-commits",
    ),
    Mutant(
        "commits-name-the-value",
        "a commit names the offset that its reader fetched, not the row: a reset can bring the value back",
        (Replace(_CHECK, _commit_names_the_value),),
        ("pipeline",),
        marked="group-commits",
    ),
    Mutant(
        "none-is-none-for-ever",
        "a commit of a reader that found nothing is taken although somebody has committed since",
        (Replace(_CHECK, _none_for_ever),),
        ("pipeline",),
        marked="group-commits",
    ),
    Mutant(
        "unstable-offsets-are-told",
        "a read_committed consumer is told an offset while a transaction's commit for it is pending",
        (
            Replace("txn_engine.coordinator.groups.fetched_from", _fetched_unstable),
            Replace(_CHECK, _pending_of_others_ignored),
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
        (Replace("txn_engine.coordinator.groups.GroupCoordinator.target", _target_by_name),),
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
