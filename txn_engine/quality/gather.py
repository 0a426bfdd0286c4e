"""The store's side of the evidence, through the engine's public API only. Reads; writes nothing."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import pyarrow as pa

from txn_engine.clock import pause_ms
from txn_engine.errors import (
    GroupIdNotFoundError,
    InvalidRequestError,
    RequestTimedOutError,
    TransactionalIdNotFoundError,
    TxnEngineError,
)
from txn_engine.protocol.file_names import parse_data_path
from txn_engine.quality.check import ExactlyOnceCheck
from txn_engine.quality.evidence import (
    FINAL_STATES,
    NOT_KNOWN,
    AbortedRange,
    AuditFinding,
    Evidence,
    LogFile,
    PartitionEvidence,
    ReplayedPartition,
    TopicRows,
    TransactionState,
)
from txn_engine.quality.input_file import InputRows, check_amounts, read_input
from txn_engine.quality.money import scale_of
from txn_engine.types import GroupOffset, ScanFile, TopicDescription, TopicPartition

if TYPE_CHECKING:
    from txn_engine.engine import Engine
    from txn_engine.protocol.partition import LogFile as LoggedFile
    from txn_engine.protocol.partition import PartitionState as LogState
    from txn_engine.verify.report import PartitionStats

_ACTOR = "exactly-once check"
_REST_TRIES, _REST_PAUSE_MS = 60, 500
_PRODUCER = re.compile(r"/data/\d{20}-p(\d+)-e\d+-[0-9a-f]{32}\.parquet$")

Part = TypeVar("Part")


def gather(
    engine: Engine, check: ExactlyOnceCheck, *, input_file: Path | None, progress: Callable[[str], None]
) -> Evidence:
    """Everything that the suite judges, as the store shows it now.

    Raises for a wrong call (unknown topic, missing column, inexact money, a broken input file). What cannot be read
    later on (a damaged file, a store that stops answering) becomes a named failure in the evidence.
    """
    if check.up_to_position and input_file is not None:
        raise InvalidRequestError(
            f"up_to_position with the input file {input_file.name}",
            actor=_ACTOR,
            expected="a file to be compared with everything, or the group's position",
        )
    schema = _check_columns(engine, check)
    rows = None if input_file is None else _input(input_file, check, schema, progress)
    reader = _Reader(engine, check, progress)
    topics = reader.consumed_rows() if check.up_to_position else reader.all_rows()
    group = reader.part("group", reader.group) if check.group_id is not None else None
    partitions = reader.part("offsets", reader.partitions)
    transactions = reader.part("transactions", reader.transactions)
    audit = reader.part("audit", reader.audit)
    return Evidence(
        check=check,
        store=engine.url,
        gathered_ms=engine.clock(),
        input=rows,
        rows={topic: found for topic, found in topics.items() if found is not None},
        partitions=partitions or (),
        group=group or (),
        transactions=transactions or (),
        replayed=audit.partitions if audit else (),
        replayed_transactions=audit.transactions if audit else (),
        replayed_pending=audit.pending if audit else {},
        findings=audit.findings if audit else (),
        findings_not_listed=audit.findings_not_listed if audit else 0,
        failures=reader.failures,
    )


@dataclass(frozen=True, slots=True)
class _Audit:
    """What the audit found, how many more it counted without listing them, and partitions, transactions that have not
    ended, and pending commits as it replayed them.
    """

    findings: tuple[AuditFinding, ...]
    findings_not_listed: int
    partitions: tuple[ReplayedPartition, ...]
    transactions: tuple[TransactionState, ...]
    pending: Mapping[int, int]


@dataclass(frozen=True, slots=True)
class _Moment:
    """Up to where the group has consumed each partition, where the output's logs end, and what of the group is under
    way, in words.
    """

    position: tuple[tuple[TopicPartition, int], ...]
    output_ends: tuple[int, ...]
    under_way: str


class _Reader:
    """Reads one part after the other and keeps why a part could not be had."""

    def __init__(self, engine: Engine, check: ExactlyOnceCheck, progress: Callable[[str], None]) -> None:
        self._engine = engine
        self._check = check
        self._tell = progress
        self.failures: dict[str, str] = {}

    def part(self, name: str, read: Callable[[], Part]) -> Part | None:
        """What `read` returns, or None with the reason kept."""
        try:
            return read()
        except TxnEngineError as error:
            self.failures[name] = f"{type(error).__name__}: {error}"
            return None

    def all_rows(self) -> dict[str, TopicRows | None]:
        """Both topics as they stand now."""
        topics = self._check.topics
        return {topic: self.part(f"rows:{topic}", partial(self.topic_rows, topic)) for topic in topics}

    def consumed_rows(self) -> dict[str, TopicRows | None]:
        """The output, and of the topic the records that it was made of: those below the group's committed offsets.

        Both belong together: no transaction of the group's was under way when the output was read, and none has ended
        meanwhile. Raises `RequestTimedOutError` (try again) where the group does not come to rest.
        """
        topic, output = self._check.topic, self._check.output_topic
        rows: dict[str, TopicRows | None] = {}
        for tries_left in reversed(range(_REST_TRIES)):
            before = self._moment()
            if output is not None:
                rows[output] = self.part(f"rows:{output}", partial(self.topic_rows, output))
            if not before.under_way and self._moment() == before:
                break
            if not tries_left:
                raise RequestTimedOutError(
                    before.under_way or f"group {self._check.group_id} moves on and on",
                    actor=_ACTOR,
                    expected="a moment in which no run of the consumer is under way",
                    action="check again; where a run died, `txn-engine coordinator sweep` ends it after its timeout",
                )
            pause_ms(_REST_PAUSE_MS)
        rows[topic] = self.part(f"rows:{topic}", partial(self.topic_rows, topic, dict(before.position)))
        return rows

    def _moment(self) -> _Moment:
        topic, output = self._check.topic, self._check.output_topic
        under_way = ""
        committed: dict[int, int] = {}
        for at in self.group():
            if at.pending_producer_id != NOT_KNOWN:
                under_way = (
                    f"group {self._check.group_id}: a commit of producer {at.pending_producer_id} is pending"
                )
            if at.topic == topic and at.last_stable_offset != NOT_KNOWN:
                committed[at.partition] = at.committed_offset
        ends: list[int] = []
        if output is not None:
            for place, offsets in sorted(self._engine.admin.list_offsets(output).items()):
                ends.append(offsets.high_watermark)
                if offsets.last_stable_offset < offsets.high_watermark:
                    under_way = under_way or f"a transaction is open on {place}"
        position = tuple(
            (place, max(committed.get(place.partition, 0), offsets.log_start_offset))
            for place, offsets in sorted(self._engine.admin.list_offsets(topic).items())
        )
        return _Moment(position, tuple(ends), under_way)

    def topic_rows(self, topic: str, end: Mapping[TopicPartition, int] | None = None) -> TopicRows:
        """Both readings of a topic, read_uncommitted first: what ends in between is explained by the later looks."""
        self._tell(f"reading {topic}")
        everything = self._engine.scan(topic, end=end, isolation_level="read_uncommitted")
        logged = self.part(f"log:{topic}", lambda: everything.to_table(columns=["_partition", "_offset"]))
        scan = self._engine.scan(topic, end=end, isolation_level="read_committed")
        committed = scan.to_table().combine_chunks()
        return TopicRows(
            committed=committed,
            logged=None if logged is None else logged.combine_chunks(),
            files=tuple(_log_file(file) for file in everything.files()),
            ends={place.partition: offset for place, offset in scan.offsets.items()},
        )

    def group(self) -> tuple[GroupOffset, ...]:
        """The group's offsets; none where it never committed, which its checks then say."""
        self._tell("looking at offsets and transactions")
        try:
            return self._engine.admin.describe_group(self._check.group_id or "").partitions
        except GroupIdNotFoundError:
            return ()

    def partitions(self) -> tuple[PartitionEvidence, ...]:
        """Offsets and open transactions of every partition, and whether compaction by key has been there."""
        return tuple(
            self._partition(topic, number)
            for topic in (self._engine.admin.describe_topic(name) for name in self._check.topics)
            for number in range(topic.partitions)
        )

    def _partition(self, topic: TopicDescription, number: int) -> PartitionEvidence:
        state = self._engine.partition(topic.topic, number).state
        return PartitionEvidence(
            topic.topic,
            number,
            state.log_start_offset,
            state.last_stable_offset,
            state.high_watermark,
            len(state.open_transactions),
            _is_compacted(state, topic.cleanup_policy),
        )

    def transactions(self) -> tuple[TransactionState, ...]:
        """Every transactional id; of those that have not ended, whether they touch the checked topics."""
        return tuple(
            TransactionState(
                listing.transactional_id,
                listing.state,
                listing.state in FINAL_STATES or self._concerns(listing.transactional_id),
            )
            for listing in self._engine.admin.list_transactions()
        )

    def _concerns(self, transactional_id: str) -> bool:
        try:
            partitions = self._engine.admin.describe_transaction(transactional_id).partitions
        except TransactionalIdNotFoundError:
            return True
        return self._touches({place.topic for place in partitions})

    def _touches(self, topics: Collection[str]) -> bool:
        """Whether a transaction over these topics touches the checked ones, or nobody can tell."""
        named = {topic for topic in topics if not topic.startswith("__")}
        return not named or not named.isdisjoint(self._check.topics)

    def audit(self) -> _Audit:
        """A replay of the whole store from its raw objects, by code of its own."""
        self._tell("replaying the whole store (verify)")
        report = self._engine.admin.verify()
        replay = report.replay
        findings = tuple(
            AuditFinding(str(finding), finding.severity == "error") for finding in report.findings
        )
        latest: dict[tuple[str, int], PartitionStats] = {}
        for (
            stats
        ) in report.stats.partitions:  # by topic and partition; of a topic made again the last life counts
            place = (stats.topic, stats.partition)
            if stats.topic in self._check.topics and (
                place not in latest or latest[place].incarnation < stats.incarnation
            ):
                latest[place] = stats
        partitions = tuple(
            ReplayedPartition(
                stats.topic,
                stats.partition,
                stats.last_stable_offset,
                stats.log_end_offset,
                stats.records.get("live", 0),
                stats.log_start_offset,
                len(replay.open.get(stats.place, ())),
                tuple(AbortedRange(*entry[:3]) for entry in replay.aborted.get(stats.place, ())),
            )
            for stats in latest.values()
            if stats.judged
        )
        transactions = tuple(
            TransactionState(each.transactional_id, each.state, self._touches(each.topics))
            for each in replay.open_ids
        )
        pending = {
            each.place.partition: each.producer_id
            for each in replay.pending
            if (each.group_id, each.place.topic) == (self._check.group_id, self._check.topic)
        }
        return _Audit(findings, report.stats.findings_not_listed, partitions, transactions, pending)


def _log_file(file: ScanFile) -> LogFile:
    match = _PRODUCER.search(file.uri)
    return LogFile(file.partition, file.base_offset, None if match is None else int(match[1]))


def _is_compacted(state: LogState, cleanup_policy: str) -> bool:
    """Whether compaction by key may have left records out.

    The log says so once a pass has ended. What one rewrote that has not looks like a merge of small files: where the
    topic is compacted any rewritten file will do, live, or dead and not for having been trimmed.
    """
    if state.cleaning.cleaned_to > 0:
        return True
    if "compact" not in cleanup_policy:
        return False
    return any(_is_rewritten(file) for file in state.live.values()) or any(
        dead.status == "replaced" and dead.log_file.last_offset >= state.log_start_offset
        for dead in state.dead.values()
    )


def _is_rewritten(file: LoggedFile) -> bool:
    """A rewrite uploads its file when the records have their offsets already; a producer does before."""
    return parse_data_path(file.file.data_path).log_end > file.base_offset


def _check_columns(engine: Engine, check: ExactlyOnceCheck) -> pa.Schema:
    """The checked topic's schema. Raises for an unknown topic, a missing column, or money that is not exact."""
    schema = _schema(engine, check.topic, check.topic_columns)
    if check.amount is not None:
        scale_of(check.amount, schema.field(check.amount).type)
    if check.output_topic is not None:
        output = _schema(engine, check.output_topic, check.output_columns)
        scale_of(check.output_total, output.field(check.output_total).type)
        if check.output_count is not None and not pa.types.is_integer(output.field(check.output_count).type):
            raise InvalidRequestError(
                f"column {check.output_count!r} is {output.field(check.output_count).type}",
                actor=_ACTOR,
                place=f"topic {check.output_topic}",
                expected="an integer column that counts",
            )
    return schema


def _schema(engine: Engine, topic: str, columns: tuple[str, ...]) -> pa.Schema:
    schema = engine.admin.describe_topic(topic).schema
    if not isinstance(schema, pa.Schema):
        raise InvalidRequestError(
            f"topic {topic!r} has no schema", actor=_ACTOR, expected="a topic with columns"
        )
    missing = [name for name in columns if name not in schema.names]
    if missing:
        raise InvalidRequestError(
            f"no column {', '.join(missing)}",
            actor=_ACTOR,
            place=f"topic {topic}",
            expected=f"some of {', '.join(schema.names)}",
        )
    return schema


def _input(
    path: Path, check: ExactlyOnceCheck, schema: pa.Schema, progress: Callable[[str], None]
) -> InputRows:
    progress(f"reading {path.name} by another road")
    rows = read_input(path, check)
    if check.amount is not None:
        check_amounts(rows, check.amount, scale_of(check.amount, schema.field(check.amount).type))
    return rows
