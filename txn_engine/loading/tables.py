"""Tables that a program has, into a topic: rows that do not fit are dead letters, in the same transaction."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from txn_engine.errors import InvalidRecordError, InvalidRequestError
from txn_engine.files import fit_records, is_convertible
from txn_engine.loading.dead_letters import DeadLetters, reading_of
from txn_engine.log.row_sizes import RowSizes
from txn_engine.producer.sender import tables_of
from txn_engine.reasons import Reason
from txn_engine.row_checks import RowCheck
from txn_engine.schemas.column_names import given_twice, names_unlike
from txn_engine.schemas.defaults import fills

if TYPE_CHECKING:
    from txn_engine.log.topics import Topic
    from txn_engine.producer import TakesRecords

_BATCH_ROWS = 32_768


@dataclass
class TableLoad:
    """Uploads the records of tables, and gives their rows that cannot be used to `dead_letters`.

    name: what letters call where the rows are from; they are numbered from 1, over all tables. `row_checks`: what each
    row has to pass. Columns may have wider types than the topic's: values that do not fit make their row a letter.
    """

    topic: Topic
    target: TakesRecords
    dead_letters: DeadLetters
    name: str
    partition: int | None = None
    row_checks: Sequence[RowCheck] = ()
    rows: int = 0

    def take(self, records: pa.Table | pa.RecordBatch | pa.RecordBatchReader) -> None:
        """Some more. Raises `InvalidRecordError` where the columns are not the topic's, or too many rows are dead."""
        if not isinstance(records, pa.Table | pa.RecordBatch | pa.RecordBatchReader):
            raise InvalidRequestError(
                f"records as {type(records).__name__}",
                actor=self.name,
                expected="a pyarrow Table, RecordBatch or RecordBatchReader",
                reason=Reason.BAD_ARGUMENT,
            )
        self._check_columns(records.schema)
        for table in tables_of(records):
            fitting = [self._fitting(batch) for batch in table.to_batches(max_chunksize=_BATCH_ROWS)]
            if any(batch.num_rows for batch in fitting):
                records_of_topic = pa.Table.from_batches(fitting)
                self.target.produce(self.topic.name, records_of_topic, partition=self.partition)

    def check(self) -> None:
        """That was all. Raises `InvalidRecordError` where too many rows are dead."""
        self.dead_letters.check(self.rows)

    def _fitting(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        reading = reading_of("parquet", {"row_checks": self.row_checks}, self.topic, self.partition)
        self.dead_letters.target = self.target
        fitting = fit_records(
            batch,
            self.topic.schema,
            rejected=self.dead_letters.taker(self.name, reading),
            row_checks=self.row_checks,
            sizes=RowSizes(self.topic),
            fill=fills(self.topic.schemas),
            name=self.name,
            first_row=self.rows + 1,
        )
        self.rows += batch.num_rows
        return fitting

    def _check_columns(self, schema: pa.Schema) -> None:
        wanted, names = self.topic.schema, schema.names
        may_lack = fills(self.topic.schemas)
        missing = [name for name in wanted.names if name not in names and name not in may_lack]
        unknown = [name for name in names if name not in wanted.names]
        twice = given_twice(names)
        if missing or unknown or twice:
            reason = Reason.UNKNOWN_COLUMN if unknown else Reason.DUPLICATE_COLUMN
            reason = Reason.MISSING_COLUMN if missing else reason
            raise self._refused(names_unlike(missing, unknown, twice), f"the columns {wanted.names}", reason)
        for each in schema:
            kind = wanted.field(each.name).type
            if not is_convertible(each.type, kind):
                raise self._refused(
                    f"column {each.name!r} of type {each.type}",
                    f"{kind}, or a type whose values it may hold",
                    Reason.TYPE_MISMATCH,
                )

    def _refused(self, seen: str, expected: str, reason: Reason) -> InvalidRecordError:
        actor = f"produce to {self.topic.name!r}"
        return InvalidRecordError(seen, actor=actor, place=self.name, expected=expected, reason=reason)
