"""The store's side of the evidence: what the engine says, what its files hold, and what the raw entries say."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import pyarrow as pa

from storage.errors import StorageError
from txn_engine.clock import pause_ms
from txn_engine.errors import (
    InvalidRequestError,
    RequestTimedOutError,
    SchemaChangedError,
    TransactionalIdNotFoundError,
    TxnEngineError,
)
from txn_engine.loading import group_of
from txn_engine.loading.dead_letters import is_dead_letter_schema
from txn_engine.quality.audit_evidence import AuditReader, fates_of
from txn_engine.quality.declaration import ACTOR, Declaration
from txn_engine.quality.evidence import (
    FINAL_STATES,
    NOT_KNOWN,
    AuditFinding,
    Evidence,
    EvidenceMissingError,
    GroupHistory,
    InputRows,
    PartitionEvidence,
    SeenFile,
    TopicRows,
    TransactionState,
)
from txn_engine.quality.input_file import read_input
from txn_engine.quality.reducer import Reducer
from txn_engine.quality.relations import check_columns, check_held_exactly, need_columns
from txn_engine.quality.rows import FileRows
from txn_engine.quality.standpoint import AtFreshCut, Standpoint, fresh_cut
from txn_engine.quality.under_way import UnderWay
from txn_engine.quality.visibility import files_as_replayed
from txn_engine.reasons import Reason
from txn_engine.schemas.layout import Schemas
from txn_engine.sql.columns import refuse_names_alike
from txn_engine.sql.file_parts import part_of
from txn_engine.types import GroupOffset, ScanFile, TopicPartition

if TYPE_CHECKING:
    from txn_engine.engine import Engine
    from txn_engine.scan import Scan

_REST_TRIES, _REST_PAUSE_MS = 60, 500
_LOOKS = 5
"""How often scan and audit are repeated where maintenance has rewritten files between the two."""
_PRODUCER = re.compile(r"/data/\d{20}-p(\d+)-e(\d+)-[0-9a-f]{32}\.parquet$")

_TOLD = 4
"""How often it is told how far the reading of a topic has come."""

Part = TypeVar("Part")


def gather(
    engine: Engine,
    check: Declaration,
    *,
    input_file: Path | None,
    reducer: Reducer,
    progress: Callable[[str], None],
    since: Mapping[TopicPartition, int] | None = None,
    again: Mapping[TopicPartition, range] | None = None,
    at: Standpoint | None = None,
) -> Evidence:
    """Everything that the suite judges, as the store shows it `at` a cut, a fresh one by default; `reducer` looks at
    the records, and has a folder for what takes room.

    `since`: by partition the offset up to which an earlier proof went; records below are not looked at again.
    `again`: of these, the offsets whose data files the audit reads once more.
    Raises for a wrong call (unknown topic, missing column, inexact amounts, a broken input file). What cannot be read
    later on (a damaged file, a store that stops answering) becomes a named failure in the evidence.
    """
    if check.up_to_position and input_file is not None:
        raise InvalidRequestError(
            f"up_to_position with the input file {input_file.name}",
            actor=ACTOR,
            expected="a file to be compared with everything, or the group's position",
            reason=Reason.CONFLICTING_ARGUMENTS,
        )
    standpoint = at or fresh_cut(engine, check)

    def begun() -> tuple[EvidenceReader, InputRows | None]:
        schemas = _check_columns(engine, check, standpoint)
        rows = None
        if input_file is not None:
            rows = _input(input_file, check, schemas[check.topic].arrow, reducer.folder, progress)
        return EvidenceReader(engine, check, schemas, progress, since or {}, again or {}, standpoint), rows

    reader, rows = begun()
    for looks_left in reversed(range(_LOOKS)):
        if reader.changed_topic:
            reader, rows = begun()
        reader.failures.clear()
        evidence = reader.evidence(rows)
        if not looks_left or not (reader.changed_topic or _is_overtaken(evidence)):
            break
        standpoint.look_again()
    if reader.changed_topic:
        raise SchemaChangedError(
            f"topic {reader.changed_topic!r}, whose columns changed while its files were listed, {_LOOKS} times",
            actor=ACTOR,
            action="check again",
        )
    return reader.with_facts(evidence, reducer)


def _is_overtaken(evidence: Evidence) -> bool:
    """Whether scan and raw entries list other files, as they do where a rewrite came in between."""
    try:
        return files_as_replayed(evidence).wrong > 0
    except EvidenceMissingError:
        return False


@dataclass(frozen=True, slots=True)
class _Moment:
    """Up to where the group has consumed each partition, where the outputs' logs end, and what of the group is under
    way, in words.
    """

    position: tuple[tuple[TopicPartition, int], ...]
    output_ends: tuple[int, ...]
    under_way: str


class EvidenceReader:
    """Reads one part after the other and keeps why a part could not be had."""

    def __init__(
        self,
        engine: Engine,
        check: Declaration,
        schemas: Mapping[str, Schemas],
        progress: Callable[[str], None],
        since: Mapping[TopicPartition, int],
        again: Mapping[TopicPartition, range],
        at: Standpoint,
    ) -> None:
        self._since = since
        self._at = at
        self._audit = AuditReader(engine, check, since, again, progress, at)
        self._engine = engine
        self._check = check
        self._schemas = schemas
        self._tell = progress
        self._root = engine.store.uri("topics").removesuffix("topics")
        self.failures: dict[str, str] = {}
        self.changed_topic = ""
        """One whose columns changed since `schemas` were looked up."""

    def part(self, name: str, read: Callable[[], Part]) -> Part | None:
        """What `read` returns, or None with the reason kept."""
        try:
            return read()
        except (TxnEngineError, StorageError) as error:
            self.failures[name] = f"{type(error).__name__}: {error}"
            return None

    def evidence(self, rows: InputRows | None) -> Evidence:
        """All but what is in the files, which are listed only."""
        under_way = None
        if isinstance(self._at, AtFreshCut) and not self._check.up_to_position:
            under_way = self.part("under_way", self._looked_under_way)
        if not self._check.up_to_position:
            topics = self.all_rows()
        else:
            topics = self.consumed_rows() if self._at.cut is None else self.consumed_by_then()
        group = self.part("group", self.group) if self._check.group_id is not None else None
        letters = self.part("letters", self.replayed_letters)
        partitions = self.part("offsets", self.partitions)
        transactions = self.part("transactions", self.transactions)
        audit = self.part("audit", self._audit.read)
        evidence = Evidence(
            check=self._check,
            store=self._engine.url,
            gathered_ms=self._engine.clock(),
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
            fates=fates_of(topics.values(), audit),
            group_history=audit.group_history if audit else GroupHistory(),
            as_of=self._at.cut,
            replayed_positions=audit.positions if audit else None,
            replayed_letters=letters or {},
            failures=self.failures,
        )
        if under_way is None:
            return evidence
        now = None if audit is None else audit.now
        still = self.part("under_way", lambda: under_way.still(evidence, now))
        return replace(evidence, under_way=still)

    def _looked_under_way(self) -> UnderWay:
        return UnderWay(self._engine, self._check, self._audit.touches)

    def with_facts(self, evidence: Evidence, reducer: Reducer) -> Evidence:
        """The evidence with a look into every file; not into those of a topic of which the audit found one damaged."""
        found: dict[str, TopicRows] = {}
        for topic, rows in evidence.rows.items():
            damage = next((each for each in evidence.findings if _is_damage(each, topic)), None)
            if damage is not None:
                self.failures[f"rows:{topic}"] = f"a data file is damaged: {damage.text}"
                continue
            looked = self.part(f"rows:{topic}", partial(self._looked, topic, rows, reducer))
            if looked is not None:
                found[topic] = looked
        return replace(evidence, rows=found)

    def _looked(self, topic: str, rows: TopicRows, reducer: Reducer) -> TopicRows:
        if not isinstance(rows.rows, FileRows):
            return rows
        parts = rows.rows.parts
        try:
            facts = reducer.look_at(rows.schemas, parts, partial(self._tell_now_and_then, topic))
        except (pa.ArrowException, OSError) as error:
            raise TxnEngineError(
                f"a data file cannot be read: {type(error).__name__}", actor=ACTOR, place=f"topic {topic}"
            ) from error
        looked = tuple(
            replace(
                listed,
                records=fact.records,
                first_offset=fact.first_offset,
                last_offset=fact.last_offset,
                falls=fact.falls,
                repeats=fact.repeats,
                first_fault=fact.first_fault,
                digest=fact.digest,
            )
            for listed, fact in zip(rows.inside, facts, strict=True)
        )
        return replace(rows, looked=looked) if rows.since else replace(rows, files=looked)

    def _tell_now_and_then(self, topic: str, done: int, of: int) -> None:
        if done * _TOLD // of > (done - 1) * _TOLD // of:
            self._tell(f"reading {topic}: {done:,} of {of:,} files")

    def all_rows(self) -> dict[str, TopicRows | None]:
        """All topics as they stand now."""
        return {
            topic: self.part(f"rows:{topic}", partial(self.topic_rows, topic)) for topic in self._check.topics
        }

    def consumed_rows(self) -> dict[str, TopicRows | None]:
        """The outputs, and of the topic the records that they were made of: those below the group's committed offsets.

        All belong together: no transaction of the group's was under way when the outputs were listed, and none has
        ended meanwhile. Raises `RequestTimedOutError` (try again) where the group does not come to rest.
        """
        topic, outputs = self._check.topic, self._check.topics[1:]
        rows: dict[str, TopicRows | None] = {}
        for tries_left in reversed(range(_REST_TRIES)):
            before = self._moment()
            for output in outputs:
                rows[output] = self.part(f"rows:{output}", partial(self.topic_rows, output))
            if not before.under_way and self._moment() == before:
                break
            if not tries_left:
                raise RequestTimedOutError(
                    before.under_way or f"group {self._check.group_id} moves on and on",
                    actor=ACTOR,
                    expected="a moment in which no run of the consumer is under way",
                    action="check again; where a run died, `txn-engine coordinator sweep` ends it after its timeout",
                )
            pause_ms(_REST_PAUSE_MS)
        position = dict(before.position)
        rows[topic] = self.part(f"rows:{topic}", lambda: self.topic_rows(topic, position))
        return rows

    def consumed_by_then(self) -> dict[str, TopicRows | None]:
        """As of a cut: the outputs, and of the topic the records below the group's offsets, which are inside too."""
        topic = self._check.topic
        committed = {at.partition: at.committed_offset for at in self.group() if at.topic == topic}
        position = {
            TopicPartition(topic, at.partition): max(
                min(committed.get(at.partition, 0), at.last_stable_offset), at.log_start_offset
            )
            for at in (self._at.partition(topic, number) for number in range(self._at.partitions(topic)))
        }
        ends = {topic: position}
        return {
            name: self.part(f"rows:{name}", partial(self.topic_rows, name, ends.get(name)))
            for name in self._check.topics
        }

    def _moment(self) -> _Moment:
        topic = self._check.topic
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
        for output in self._check.written_topics:
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
        """Both lists of a topic's files, read_uncommitted first: later looks explain what ends in between."""
        self._tell(f"listing {topic}")
        everything = self.part(
            f"log:{topic}",
            lambda: self._at.everything(topic, end),
        )
        scan = self._at.scan(topic, end=end)
        files = self._files(scan)
        seen = tuple(self._seen(file) for file in files)
        known = {file.key for file in seen}
        rows = TopicRows(
            schema=self._schemas[topic].arrow,
            rows=self._file_rows(topic, files),
            files=seen,
            hidden=None
            if everything is None
            else tuple(found for file in everything if (found := self._seen(file)).key not in known),
            ends={place.partition: offset for place, offset in scan.offsets.items()},
        )
        since = {place: offset for place, offset in self._since.items() if place.topic == topic}
        return self._parted(rows, topic, since, scan.offsets) if since else rows

    def _parted(
        self,
        rows: TopicRows,
        topic: str,
        since: Mapping[TopicPartition, int],
        end: Mapping[TopicPartition, int],
    ) -> TopicRows:
        """The rows in two: those that an earlier proof has looked at, and the others."""
        before = {place: min(offset, end[place]) for place, offset in since.items()}
        earlier = self._files(self._at.scan(topic, end=before))
        later = self._files(self._at.scan(topic, start=before, end=end))
        return replace(
            rows,
            rows=self._file_rows(topic, later),
            since={place.partition: offset for place, offset in before.items()},
            earlier=self._file_rows(topic, earlier),
            looked=tuple(self._seen(file) for file in later),
        )

    def _files(self, scan: Scan) -> list[ScanFile]:
        """The scan's files; notes where its topic has other columns by now than when the run began."""
        files = scan.files()
        (topic,) = scan.topics
        known = self._schemas[topic.name]
        if (len(topic.schemas.layouts), topic.version) != (len(known.layouts), known.version):
            self.changed_topic = topic.name
        return files

    def _file_rows(self, topic: str, files: Sequence[ScanFile]) -> FileRows:
        return FileRows(self._schemas[topic], tuple(part_of(file, self._root) for file in files))

    def _seen(self, file: ScanFile) -> SeenFile:
        match = _PRODUCER.search(file.uri)
        return SeenFile(
            file.uri.removeprefix(self._root),
            file.partition,
            file.end_row - file.first_row,
            file.start_offset,
            file.end_offset - 1,
            None if match is None else int(match[1]),
            None if match is None else int(match[2]),
        )

    def group(self) -> tuple[GroupOffset, ...]:
        """The group's offsets; none where it never committed, which its checks then say."""
        self._tell("looking at offsets and transactions")
        return self._at.group(self._check.group_id or "")

    def replayed_letters(self) -> Mapping[str, Mapping[int, int]]:
        """Up to where dead letters were replayed, by their topic and partition; what was not is not there."""
        return {
            topic: {
                at.partition: at.committed_offset
                for at in self._at.group(group_of(topic))
                if at.topic == topic and at.committed_offset != NOT_KNOWN
            }
            for topic in self._check.dead_letter_topics
        }

    def partitions(self) -> tuple[PartitionEvidence, ...]:
        """Offsets and open transactions of every partition, and whether compaction by key has been there."""
        return tuple(
            self._at.partition(topic, number)
            for topic in self._check.topics
            for number in range(self._at.partitions(topic))
        )

    def transactions(self) -> tuple[TransactionState, ...]:
        """Every transactional id; of those that have not ended, whether they touch the checked topics. As of a cut:
        none, for what was under way is not inside.
        """
        if self._at.cut is not None:
            return ()
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
        return self._audit.touches({place.topic for place in partitions})


def _is_damage(finding: AuditFinding, topic: str) -> bool:
    """Whether the audit says that a data file of the topic's latest life is not what was written."""
    return (
        finding.is_error
        and finding.code.startswith("data-file-")
        and finding.object.startswith(f"topics/{topic}/")
    )


def _check_columns(engine: Engine, check: Declaration, at: Standpoint) -> Mapping[str, Schemas]:
    """The topics' columns. Raises for an unknown topic, a missing column, or what does not compare exactly."""
    schemas = {topic: _schemas(engine, topic, at) for topic in check.topics}
    for topic, found in schemas.items():
        refuse_names_alike(topic, found.arrow, "rename one of them: `txn-engine topics alter --rename`")
    columns = schemas[check.topic].arrow
    need_columns(check.topic, columns, check.topic_columns)
    for name in check.record_id:
        check_held_exactly(check.topic, columns.field(name))
    for topic in check.dead_letter_topics:
        if not is_dead_letter_schema(schemas[topic].arrow):
            raise InvalidRequestError(
                f"topic {topic!r} as dead_letter_topic",
                actor=ACTOR,
                expected="the columns of dead letters: `topics create NAME --dead-letters` makes such a topic",
                reason=Reason.NOT_A_DEAD_LETTER_TOPIC,
            )
    for output in check.outputs:
        check_columns(output, columns, schemas[output.topic].arrow, check.topic)
    return schemas


def _schemas(engine: Engine, topic: str, at: Standpoint) -> Schemas:
    if not isinstance(engine.admin.describe_topic(topic).schema, pa.Schema):
        raise InvalidRequestError(
            f"topic {topic!r} has no schema", actor=ACTOR, expected="a topic with columns"
        )
    return at.schemas(topic)


def _input(
    path: Path, check: Declaration, schema: pa.Schema, folder: Path, progress: Callable[[str], None]
) -> InputRows:
    progress(f"reading {path.name} by another road")
    return read_input(path, check, schema, folder / "input.parquet", progress)
