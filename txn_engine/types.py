"""The values users pass and get: immutable, named and filled as Kafka's clients name and fill them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal, NamedTuple

IsolationLevel = Literal["read_committed", "read_uncommitted"]
MarkerMode = Literal["inline", "deferred"]
EngineChoice = Literal["auto", "local", "spark"]
"""Who works: `local`: this process. `spark`: Spark. `auto`: this process up to a limit, Spark above it."""
TABLE_FORMATS: Final = ("delta", "iceberg")
"""The formats in which a topic may be published as a table."""
CleanupPolicy = Literal["delete", "compact", "compact,delete"]


class TopicPartition(NamedTuple):
    """One partition of one topic."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


RESET_METADATA = "reset-offsets"
"""The note of a commit by which somebody moved a group on purpose."""


class OffsetAndMetadata(NamedTuple):
    """The next offset a group will read, with a note of the committer's."""

    offset: int
    metadata: str = ""
    leader_epoch: int = -1


class ProducerIdAndEpoch(NamedTuple):
    """What a producer writes under."""

    producer_id: int
    producer_epoch: int


class RecordMetadata(NamedTuple):
    """Where one partition's share of a `produce` call went; offsets inclusive."""

    topic: str
    partition: int
    base_offset: int
    last_offset: int
    timestamp_ms: int


class AppendResult(NamedTuple):
    """Where an append went, or where the original of a duplicate stands."""

    base_offset: int
    last_offset: int
    is_duplicate: bool


@dataclass(frozen=True, slots=True)
class ProducerState:
    """A producer as one partition knows it (Kafka's DescribeProducers); -1 for what is not there."""

    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_timestamp_ms: int
    coordinator_epoch: int
    current_transaction_start_offset: int


@dataclass(frozen=True, slots=True)
class AbortedTransaction:
    """One entry of a partition's aborted-transaction index; `last_offset` is the marker's."""

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


@dataclass(frozen=True, slots=True)
class TransactionDescription:
    """A transactional id as its coordinator knows it (Kafka's DescribeTransactions); -1 for what is not there.

    `transaction_start_ms` is the writer's own clock, as the row has it. `began_ms` and `age_ms` are of the transaction
    that is unfinished now, by the log's time: what time-outs, the DAGs' tables and the pages go by.
    """

    transactional_id: str
    state: str
    producer_id: int
    producer_epoch: int
    transaction_timeout_ms: int
    transaction_start_ms: int
    partitions: tuple[TopicPartition, ...]
    began_ms: int = field(default=-1, compare=False)
    age_ms: int = field(default=-1, compare=False)


@dataclass(frozen=True, slots=True)
class TransactionListing:
    """One line of `transactions list`."""

    transactional_id: str
    producer_id: int
    state: str


@dataclass(frozen=True, slots=True)
class HangingTransaction:
    """An open transaction on a partition that nobody will end (Kafka's find-hanging)."""

    topic: str
    partition: int
    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    start_offset: int
    last_timestamp_ms: int
    duration_ms: int


@dataclass(frozen=True, slots=True)
class ScanFile:
    """One committed data file of a scan, for a native reader.

    Whole files: where a bound lies inside one, rows `first_row` (inclusive) to `end_row` (exclusive) belong to the
    scan, those with `start_offset <= base_offset + _offset_delta < end_offset`: a rewritten file's deltas have gaps.
    `schema_version`: of the topic's schema, whose columns it has; files of one version may be read together as they
    are.
    """

    uri: str
    topic: str
    partition: int
    base_offset: int
    record_count: int
    bytes: int
    first_row: int
    end_row: int
    start_offset: int
    end_offset: int
    schema_version: int = 0


@dataclass(frozen=True, slots=True)
class FetchedRow:
    """The row of the group's log that a consumer's position came from; what its commit will name.

    `row_offset` -1: there was none, and `log_end` is the group log's end at that fetch.
    """

    row_offset: int
    log_end: int = -1


@dataclass(frozen=True, slots=True)
class ConsumerGroupMetadata:
    """Who commits, and from which fetched rows (PROTOCOL.md, section 5).

    `incarnations`: which topic of its name each position is about. A topic that was deleted and made again is another.
    """

    group_id: str
    member_id: str
    fetched: Mapping[TopicPartition, FetchedRow] = field(default_factory=dict)
    incarnations: Mapping[TopicPartition, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ConfigEntry:
    """A setting as it is. default: what holds where nobody has said otherwise. is_fixed: it was chosen when the store
    was set up, and stays. what: what it does.
    """

    name: str
    value: int | float | str | bool
    default: int | float | str | bool
    is_fixed: bool
    what: str

    @property
    def is_default(self) -> bool:
        """Whether it is as it is where nobody has said otherwise."""
        return self.value == self.default


@dataclass(frozen=True, slots=True)
class ConfigChange:
    """A setting before and after."""

    name: str
    before: int | float | str | bool
    after: int | float | str | bool


@dataclass(frozen=True, slots=True)
class WouldDrop:
    """Records that retention drops at its next run, and the bytes of their data files.

    unreadable: partitions of which it is not known.
    """

    records: int
    bytes: int
    unreadable: tuple[int, ...] = ()


class Configs(dict[str, int | float | str | bool]):
    """The settings of a store or a topic: {Kafka's name: value}; `entries` says more of each. `changes`: what
    `alter_configs` changed, or would; `version`: how often they were changed. `would_drop`: where a dry run changes
    what retention keeps of a topic, what its next run drops.
    """

    def __init__(
        self,
        entries: Iterable[ConfigEntry],
        version: int,
        changes: Iterable[ConfigChange] = (),
        would_drop: WouldDrop | None = None,
    ) -> None:
        self.would_drop = would_drop
        self.entries = {entry.name: entry for entry in entries}
        self.version = version
        self.changes = tuple(changes)
        super().__init__((name, entry.value) for name, entry in self.entries.items())


@dataclass(frozen=True, slots=True)
class TopicDescription:
    """A topic as `describe_topic` shows it; `schema` is a pyarrow schema."""

    topic: str
    incarnation: int
    partitions: int
    key: str | None
    schema: object
    retention_ms: int
    created_ms: int
    cleanup_policy: CleanupPolicy
    delete_retention_ms: int
    min_compaction_lag_ms: int
    tables_publish: str
    retention_bytes: int
    min_cleanable_dirty_ratio: float
    max_message_bytes: int
    message_timestamp_before_max_ms: int
    message_timestamp_after_max_ms: int


@dataclass(frozen=True, slots=True)
class PartitionOffsets:
    """A partition's offsets (`list_offsets`)."""

    topic: str
    partition: int
    log_start_offset: int
    last_stable_offset: int
    high_watermark: int


@dataclass(frozen=True, slots=True)
class GroupOffset:
    """One partition of `describe_group`; -1 for what is not known.

    `lag` counts offsets to the last stable one. `held_back_offsets` counts those from there to the high watermark,
    which wait behind an open transaction. `gone_offsets` is the part of the lag that was deleted before it was read.
    `beyond_offsets` is how far the committed offset is beyond the log's end, and `lag` is -1 then. `skipped_offsets` is
    how many offsets the group never read, because they were deleted before it came to them.
    """

    topic: str
    partition: int
    committed_offset: int
    pending_offset: int
    pending_producer_id: int
    last_stable_offset: int
    lag: int
    metadata: str
    commit_ms: int
    high_watermark: int = -1
    held_back_offsets: int = -1
    gone_offsets: int = -1
    beyond_offsets: int = -1
    skipped_offsets: int = 0


@dataclass(frozen=True, slots=True)
class GroupDescription:
    """A consumer group with all its partitions.

    `unreadable`: an `Unreadable` for each whose log cannot be read; its `last_stable_offset` and `lag` are -1, as a
    deleted topic's.
    """

    group_id: str
    partitions: tuple[GroupOffset, ...]
    unreadable: tuple[Any, ...] = ()


@dataclass(frozen=True, slots=True)
class ForgottenOffset:
    """A committed offset that was forgotten, or would be: a reset to it brings the group back."""

    group_id: str
    topic: str
    partition: int
    offset: int


@dataclass(frozen=True, slots=True)
class SweepReport:
    """What a sweep did: transactional ids it acted on, entries it wrote, and what it could not finish and why."""

    transactional_ids: tuple[str, ...] = ()
    partitions_marked: int = 0
    objects_written: int = 0
    failures: tuple[str, ...] = ()
