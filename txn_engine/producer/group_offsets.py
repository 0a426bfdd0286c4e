"""A group's offsets as part of a producer's transaction (KIP-98's `TxnOffsetCommit`)."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from txn_engine.coordinator.groups import GroupCoordinator, check_group_id
from txn_engine.errors import (
    InvalidProducerEpochError,
    OffsetOutOfRangeError,
    ProducerFencedError,
    UnknownTopicOrPartitionError,
)
from txn_engine.log.logs import Logs
from txn_engine.producer import machine as events
from txn_engine.producer.calls import Calls
from txn_engine.producer.cell import Cell
from txn_engine.producer.effects import Effects
from txn_engine.producer.lanes import Lane
from txn_engine.producer.sender import Sender
from txn_engine.protocol.appends import FirstWriteCheck
from txn_engine.protocol.offset_commits import OffsetCommit
from txn_engine.protocol.proposals import OffsetCommitProposal, Refused
from txn_engine.types import ConsumerGroupMetadata, OffsetAndMetadata, TopicPartition


class GroupOffsets:
    """Writes them into the group's log, as one more partition of the transaction."""

    def __init__(
        self,
        logs: Logs,
        groups: GroupCoordinator,
        cell: Cell,
        sender: Sender,
        effects: Effects,
        calls: Calls,
        first_write_check: Callable[[Lane], FirstWriteCheck],
    ) -> None:
        self._logs = logs
        self._groups = groups
        self._cell = cell
        self._sender = sender
        self._effects = effects
        self._calls = calls
        self._first_write_check = first_write_check

    def send(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata | int], metadata: ConsumerGroupMetadata
    ) -> None:
        """Write these. Where it raises behind the first check, the transaction can only abort."""
        check_group_id(metadata.group_id)
        if not offsets:
            return
        try:
            commits = self._rows(offsets, metadata)
        except (
            UnknownTopicOrPartitionError,
            OffsetOutOfRangeError,
        ) as error:  # the output may not go without its input's offsets
            self._calls.fail(error)
            raise
        (lane,) = self._sender.lanes_for([self._logs.group_partition(metadata.group_id)])
        self._effects.join([lane.partition])
        try:
            self._cell.move(events.wrote_offsets, metadata, self._write(lane, commits))
        except InvalidProducerEpochError as error:
            # The group coordinator's answer to a fenced producer, which Kafka's client takes as just that.
            fenced = ProducerFencedError(error.seen, actor=error.actor, expected=error.expected)
            self._calls.fail(fenced)
            raise fenced from error
        except BaseException as error:
            self._calls.fail(error)
            raise

    def _rows(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata | int], metadata: ConsumerGroupMetadata
    ) -> list[OffsetCommit]:
        positions = {self._groups.target(metadata, tp): _position(at) for tp, at in offsets.items()}
        return self._groups.rows(self._cell.now.groups.current(metadata), positions)

    def _write(self, lane: Lane, commits: list[OffsetCommit]) -> dict[TopicPartition, int]:
        """Where each of them stands. The first that was refused is raised."""
        proposals = [OffsetCommitProposal(commit, *lane.identity) for commit in commits]
        verdicts = lane.log.append(proposals, self._first_write_check(lane), confirm=False)
        written: dict[TopicPartition, int] = {}
        for commit, verdict in zip(commits, verdicts, strict=True):
            if isinstance(verdict, Refused):
                raise verdict.error
            written[TopicPartition(commit.key.topic, commit.key.partition)] = verdict.base_offset
        return written


def _position(value: OffsetAndMetadata | int) -> OffsetAndMetadata:
    return OffsetAndMetadata(value) if isinstance(value, int) else value
