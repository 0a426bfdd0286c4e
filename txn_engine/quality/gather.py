"""The store's side of the evidence, through the engine's public API only. Reads; writes nothing."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import pyarrow as pa

from txn_engine.errors import (
    GroupIdNotFoundError,
    InvalidRequestError,
    TransactionalIdNotFoundError,
    TxnEngineError,
)
from txn_engine.quality.check import ExactlyOnceCheck
from txn_engine.quality.evidence import (
    FINAL_STATES,
    AuditFinding,
    Evidence,
    LogFile,
    PartitionState,
    TopicRows,
    TransactionState,
)
from txn_engine.quality.input_file import InputRows, check_amounts, read_input
from txn_engine.quality.money import scale_of
from txn_engine.types import GroupOffset, ScanFile

if TYPE_CHECKING:
    from txn_engine.engine import Engine

_ACTOR = "exactly-once check"
_PRODUCER = re.compile(r"/data/\d{20}-p(\d+)-e\d+-[0-9a-f]{32}\.parquet$")

Part = TypeVar("Part")


def gather(
    engine: Engine, check: ExactlyOnceCheck, *, input_file: Path | None, progress: Callable[[str], None]
) -> Evidence:
    """Everything that the suite judges, as the store shows it now.

    Raises for a wrong call (unknown topic, missing column, inexact money, a broken input file). What cannot be read
    later on (a damaged file, a store that stops answering) becomes a named failure in the evidence.
    """
    schema = _check_columns(engine, check)
    rows = None if input_file is None else _input(input_file, check, schema, progress)
    reader = _Reader(engine, check, progress)
    topics = {
        topic: reader.part(f"rows:{topic}", partial(reader.topic_rows, topic)) for topic in check.topics
    }
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
        findings=audit[0] if audit else (),
        findings_not_listed=audit[1] if audit else 0,
        failures=reader.failures,
    )


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

    def topic_rows(self, topic: str) -> TopicRows:
        """Both readings of a topic, read_uncommitted first: what ends in between is explained by the later looks."""
        self._tell(f"reading {topic}")
        everything = self._engine.scan(topic, isolation_level="read_uncommitted")
        logged = self.part(f"log:{topic}", lambda: everything.to_table(columns=["_partition", "_offset"]))
        scan = self._engine.scan(topic, isolation_level="read_committed")
        committed = scan.to_table().combine_chunks()
        partitions = sorted(place.partition for place in scan.offsets)
        return TopicRows(
            committed=committed,
            logged=None if logged is None else logged.combine_chunks(),
            files=tuple(_log_file(file) for file in everything.files()),
            aborted={
                number: tuple(self._engine.partition(topic, number).aborted_transactions(0, _END))
                for number in partitions
            },
            ends={place.partition: offset for place, offset in scan.offsets.items()},
        )

    def group(self) -> tuple[GroupOffset, ...]:
        """The group's offsets; none where it never committed, which its checks then say."""
        self._tell("looking at offsets and transactions")
        try:
            return self._engine.admin.describe_group(self._check.group_id or "").partitions
        except GroupIdNotFoundError:
            return ()

    def partitions(self) -> tuple[PartitionState, ...]:
        """Offsets and open transactions of every partition."""
        admin = self._engine.admin
        return tuple(
            PartitionState(
                place.topic,
                place.partition,
                offsets.log_start_offset,
                offsets.last_stable_offset,
                offsets.high_watermark,
                sum(
                    producer.current_transaction_start_offset >= 0
                    for producer in admin.describe_producers(place.topic, place.partition)
                ),
            )
            for topic in self._check.topics
            for place, offsets in sorted(admin.list_offsets(topic).items())
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
        topics = {place.topic for place in partitions if not place.topic.startswith("__")}
        return not topics or not topics.isdisjoint(self._check.topics)

    def audit(self) -> tuple[tuple[AuditFinding, ...], int]:
        """The audit's findings, and how many more it counted without listing them."""
        self._tell("replaying the whole store (verify)")
        report = self._engine.admin.verify()
        findings = tuple(
            AuditFinding(str(finding), finding.severity == "error") for finding in report.findings
        )
        return findings, report.stats.findings_not_listed


_END = 2**63 - 1


def _log_file(file: ScanFile) -> LogFile:
    match = _PRODUCER.search(file.uri)
    return LogFile(file.partition, file.base_offset, None if match is None else int(match[1]))


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
