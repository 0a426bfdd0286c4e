"""A topic's records into another topic, exactly once: what `topics copy` does."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from txn_engine.engine import Engine
from txn_engine.errors import InvalidRecordError, InvalidRequestError, UnknownTopicOrPartitionError
from txn_engine.exact import InexactError, cast_and_back
from txn_engine.held import nulls
from txn_engine.log.data_files import logical_schema
from txn_engine.log.topics import Topic
from txn_engine.protocol.log_time import LATEST_MS
from txn_engine.reasons import Reason
from txn_engine.schemas.defaults import filled, fills

SLICE_RECORDS: Final = 500_000
WAIT_MS: Final = 60_000
"""How long a copy waits for its next records."""


@dataclass(frozen=True, slots=True)
class Copy:
    """From which topic to which.

    columns: a column of the target, and the source's that it is made of; all others are of the same name. Those that
    the source has not are filled as the target's older records are where they are younger than the target, else null.
    """

    source: Topic
    target: Topic
    columns: Mapping[str, str]

    def __post_init__(self) -> None:
        actor = f"copy {self.source.name!r} to {self.target.name!r}"
        if self.source.name == self.target.name:
            raise InvalidRequestError(
                "a topic copied to itself",
                actor=actor,
                expected="another topic",
                reason=Reason.COPIED_TO_ITSELF,
            )
        for new, old in self.columns.items():
            if new not in self.target.schema.names or old not in self.source.schema.names:
                raise InvalidRequestError(
                    f"column {new!r} made of {old!r}",
                    actor=actor,
                    expected=f"one of {self.target.schema.names}, made of one of {self.source.schema.names}",
                    reason=Reason.UNKNOWN_COLUMN,
                )
        for field in self.target.schema:
            name = self._made_of(field.name)
            if name is None:
                self._check_absent(field, actor)
            elif not _may_become(self.source.schema.field(name).type, field.type):
                raise InvalidRequestError(
                    f"column {field.name!r} of {field.type}, made of {name!r} of {self.source.schema.field(name).type}",
                    actor=actor,
                    expected="types that have the same values; times of both with a zone, or of both without",
                    action="make the target with a type that has them; nothing was copied",
                    reason=Reason.TYPE_MISMATCH,
                )

    def _check_absent(self, field: pa.Field[Any], actor: str) -> None:
        """Refuse a column of the target's that is made of none, where nothing can stand for it."""
        if field.name in self.source.schemas.layout.owners:
            raise InvalidRequestError(
                f"column {field.name!r}, which {self.source.name!r} had once, and has not now",
                actor=actor,
                expected=f"one that it is made of (--column {field.name}=...), or a target without it",
                action="nothing was copied now; what was copied before stays",
            )
        if not field.nullable and field.name not in fills(self.target.schemas):
            raise InvalidRequestError(
                f"column {field.name!r}, which {self.source.name!r} has not",
                actor=actor,
                expected="a column that may be null, or one that it is made of (--column)",
                reason=Reason.MISSING_COLUMN,
            )

    def _made_of(self, name: str) -> str | None:
        found = self.columns.get(name, name)
        return found if found in self.source.schema.names else None

    def records(self, read: pa.Table) -> pa.Table:
        """Records of the source as the target's. `InvalidRecordError` for a value that has no equal there."""
        columns: list[Any] = []
        younger = fills(self.target.schemas)
        for field in self.target.schema:
            name = self._made_of(field.name)
            if name is None:
                columns.append(filled(field.type, younger.get(field.name), read.num_rows))
                continue
            try:
                columns.append(cast_and_back(read.column(name), field.type))
            except InexactError as error:
                where = f"{read.column('_partition')[error.index]} at {read.column('_offset')[error.index]}"
                raise InvalidRecordError(
                    f"a value of column {name!r} that {field.type} does not have, in partition {where}",
                    actor=f"copy {self.source.name!r} to {self.target.name!r}",
                    expected="a type that holds every value",
                    action="make the target with a wider type; nothing of this slice was copied",
                    reason=Reason.INEXACT_VALUE,
                ) from None
        return pa.Table.from_arrays(columns, schema=self.target.schema)


def _may_become(kind: Any, wanted: Any) -> bool:
    """Whether values of a type may have equals in another one; of a time without its zone nobody knows which it is."""
    is_zoned = {pa.types.is_timestamp(each) and each.tz is not None for each in (kind, wanted)}
    if all(map(pa.types.is_temporal, (kind, wanted))) and len(is_zoned) > 1:
        return False
    try:
        cast_and_back(nulls(0, kind), wanted)
    except pa.ArrowNotImplementedError:
        return False
    return True


def copy_records(
    engine: Engine, copy: Copy, name: str, *, slice_records: int, progress: Callable[[int], None]
) -> int:
    """Copy what the source has now, slice by slice, each with the position of the group `name` in one transaction of
    that id; how many records it was. Called again it goes on behind what was committed, so that each record is in the
    target once, whenever it was cut off. Raises `OffsetsMovedError` where another copy under the name runs too,
    `UnknownTopicOrPartitionError` where one of the topics is deleted meanwhile, and made again or not.
    """
    copied = 0
    timeout_ms = engine.limits.max_transaction_timeout_ms
    with (
        engine.consumer(group_id=name) as consumer,
        engine.producer(transactional_id=name, transaction_timeout_ms=timeout_ms) as producer,
    ):
        producer.init_transactions()
        consumer.subscribe([copy.source.name])
        ends = consumer.end_offsets(consumer.assignment())

        def left() -> int:
            return sum(max(0, ends.get(tp, 0) - at.offset) for tp, at in consumer.positions().items())

        progress(left())
        while left():
            read = consumer.poll(slice_records, timeout_ms=WAIT_MS)
            now = _same(engine, copy.source)
            positions = consumer.positions()
            run_id = (
                f"{copy.source.name}/{copy.source.incarnation}/{sum(at.offset for at in positions.values())}"
            )
            with producer.transaction(run_id):
                if read is not None:
                    copy = replace(copy, source=_as_read(now, read))
                    producer.produce(copy.target.name, copy.records(read), timestamp_ms=_times(read))
                    _same(engine, copy.target)
                producer.send_offsets_to_transaction(positions, consumer.group_metadata())
            copied += 0 if read is None else read.num_rows
            progress(left())
    return copied


def _same(engine: Engine, topic: Topic) -> Topic:
    """The topic as it is now. `UnknownTopicOrPartitionError` where it was deleted: another one has other records."""
    now = engine.logs.topics.look_up(topic.name)
    if now.incarnation == topic.incarnation:
        return now
    raise UnknownTopicOrPartitionError(
        f"topic {topic.name!r} was deleted and made again while it was copied",
        actor="topics copy",
        expected=f"incarnation {topic.incarnation}, and not {now.incarnation}",
        action="run it again, and it is about the new one; nothing of this slice was copied",
        reason=Reason.TOPIC_MADE_AGAIN,
    )


def _times(read: pa.Table) -> pa.ChunkedArray[Any]:
    """The records' times; one that a producer may not give, which is none of a calendar, is the nearest."""
    known: Any = pc.max_element_wise(read.column("_timestamp").cast(pa.int64()), pa.scalar(0))
    found: pa.ChunkedArray[Any] = pc.min_element_wise(known, pa.scalar(LATEST_MS))
    return found


def _as_read(topic: Topic, read: pa.Table) -> Topic:
    """The topic as of the version whose columns the records have: others may have changed it since they were read."""
    own = pa.schema([each for each in read.schema if not each.name.startswith("_")])
    versions = map(topic.at_version, range(len(topic.schemas.layouts) - 1, -1, -1))
    return next(each for each in versions if logical_schema(each.schema, each.schema.names) == own)
