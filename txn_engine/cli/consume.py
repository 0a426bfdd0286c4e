"""`txn-engine consume`: a topic's records, to a terminal, a pipe or a file."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import click

from txn_engine.cli.command import SETTINGS, Command, Place, common_options
from txn_engine.cli.failures import one_line
from txn_engine.cli.output import Output

if TYPE_CHECKING:
    import pyarrow as pa

    from txn_engine.cli.record_text import RecordWriter
    from txn_engine.clock import Waiting
    from txn_engine.consumer import Consumer
    from txn_engine.engine import Engine
    from txn_engine.types import TopicPartition
    from txn_engine.value_text import BinaryText

POLL_RECORDS = 10_000
POLL_RECORDS_PARQUET = 200_000
FOLLOW_WAIT_MS = 500
PAUSE_MS_MAX = 30_000
NOTE_EVERY = 10
Found = TypeVar("Found")
Format = Literal["table", "csv", "jsonl", "parquet"]


@click.command(
    cls=Command,
    short_help="Print a topic's records.",
    context_settings=SETTINGS,
    examples=(
        "txn-engine consume payments --max-records 10",
        "txn-engine consume payments --group audit --format jsonl | jq .amount",
        "txn-engine consume payments --format parquet --output payments.parquet",
        "txn-engine consume payments --follow",
    ),
)
@click.argument("topic")
@click.option(
    "--group",
    metavar="GROUP",
    help="Begin where this group is, and commit its offsets as records are written.",
)
@click.option(
    "--from-beginning", is_flag=True, help="Begin at the first record, whatever the group has committed."
)
@click.option(
    "--partition", "partitions", type=int, multiple=True, metavar="N", help="Only this partition. Repeatable."
)
@click.option(
    "--isolation-level",
    type=click.Choice(["read_committed", "read_uncommitted"]),
    default="read_committed",
    help="read_uncommitted shows records of open and aborted transactions too.",
)
@click.option(
    "--max-records",
    type=click.IntRange(min=1),
    metavar="N",
    help="Stop after so many records; all there are unless told.",
)
@click.option(
    "--follow",
    is_flag=True,
    help="Wait for more records until Ctrl-C, also while the store is away. Without a group, start at the end.",
)
@click.option(
    "--format",
    "output_format",
    type=click.Choice(["table", "csv", "jsonl", "parquet"]),
    default="table",
    help="How records are written.",
)
@click.option(
    "--output",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Write to this file instead of stdout; parquet needs one. With --group, the file must be new or empty.",
)
@click.option(
    "--binary",
    type=click.Choice(["text", "base64"]),
    default="text",
    help="How binary values are written as text; bytes that are no UTF-8 come as \\xNN.",
)
@common_options
def consume(
    topic: str,
    group: str | None,
    from_beginning: bool,
    partitions: tuple[int, ...],
    isolation_level: Literal["read_committed", "read_uncommitted"],
    max_records: int | None,
    follow: bool,
    output_format: Format,
    output: Path | None,
    binary: BinaryText,
    place: Place,
    out: Output,
) -> None:
    """Print TOPIC's records, and stop at the end.

    Without a group it reads from the first record on; with one from where the group is (a new group: from the first
    record on). The group's offsets are committed when what they cover has been written out: with --output, to disk. A
    group does not read a record again, so with --group a file that holds something is not written over. Records come in
    order within a partition. With --json, one document with all records. JSON has no number for NaN and the infinities:
    they come as the strings "NaN", "Infinity" and "-Infinity", which `produce` takes for such a column.
    """
    if output_format == "parquet" and output is None:
        raise click.UsageError("--format parquet needs --output FILE")
    if follow and (output_format == "parquet" or out.as_json):
        raise click.UsageError("--follow has no end: it goes with table, csv and jsonl only")
    if out.as_json and (output_format != "table" or output is not None):
        raise click.UsageError("--json goes without --format and --output: use --format jsonl")
    if group is not None and output is not None:
        from txn_engine.cli.record_text import check_is_new

        check_is_new(output)
    start_at_end = follow and group is None and not from_beginning
    with (
        place.open() as engine,
        engine.consumer(
            group_id=group,
            isolation_level=isolation_level,
            auto_offset_reset="latest" if start_at_end else "earliest",
        ) as consumer,
    ):
        assigned = _assign(engine, consumer, topic, partitions)
        if from_beginning:
            _rewind(consumer, assigned)
        with _writer(output_format, output, binary, out, keeps=group is not None) as writer:
            away = StoreAway(engine.logs.tools.waiting, out) if follow else None
            reading = _Reading(consumer, writer, group=group, in_parts=output_format != "parquet", away=away)
            limit = POLL_RECORDS if output_format != "parquet" else POLL_RECORDS_PARQUET
            count = reading.run(assigned, max_records, limit, follow=follow)
            if not count:
                writer.write(_no_records(engine, topic))
            writer.close(record_count=count, topic=topic, group=group)
            reading.commit()
    out.note(f"{count:,} record{'' if count == 1 else 's'}")


def _assign(
    engine: Engine, consumer: Consumer, topic: str, partitions: tuple[int, ...]
) -> list[TopicPartition]:
    from txn_engine.types import TopicPartition

    engine.admin.describe_topic(topic)
    if partitions:
        consumer.assign([TopicPartition(topic, number) for number in dict.fromkeys(partitions)])
    else:
        consumer.subscribe([topic])
    return consumer.assignment()


def _no_records(engine: Engine, topic: str) -> pa.Table:
    """The columns, for an output without records."""
    from txn_engine.held import no_records
    from txn_engine.log.data_files import logical_schema

    schema: Any = engine.admin.describe_topic(topic).schema
    return no_records(logical_schema(schema))


def _rewind(consumer: Consumer, assigned: list[TopicPartition]) -> None:
    """Go to the first records; what the group has is looked up first, so that its commit names what it replaces."""
    consumer.positions()
    for tp, offset in consumer.beginning_offsets(assigned).items():
        consumer.seek(tp, offset)


class _Reading:
    """Reads on and writes out; what was committed is what was written."""

    def __init__(
        self,
        consumer: Consumer,
        writer: RecordWriter,
        *,
        group: str | None,
        in_parts: bool,
        away: StoreAway | None,
    ) -> None:
        self._away = away
        self._consumer = consumer
        self._writer = writer
        self._group = group
        self._in_parts = in_parts

    def run(
        self, assigned: list[TopicPartition], max_records: int | None, poll_records: int, *, follow: bool
    ) -> int:
        """Up to the end as it was at the start, or for ever; the number of records."""
        ends = self._consumer.end_offsets(assigned)
        count = 0
        while max_records is None or count < max_records:
            left = poll_records if max_records is None else min(poll_records, max_records - count)
            records = self._patiently(partial(self._consumer.poll, left, FOLLOW_WAIT_MS if follow else 0))
            if records is not None:
                self._writer.write(records)
                count += records.num_rows
                if self._in_parts:
                    self._writer.flush()
                    self.commit()
            if not follow and (
                records is None or all(self._consumer.position(tp) >= end for tp, end in ends.items())
            ):
                break
        return count

    def commit(self) -> None:
        """Commit the group's offsets up to what was written."""
        if self._group is not None:
            self._patiently(self._consumer.commit)

    def _patiently(self, call: Callable[[], Found]) -> Found:
        """The call's answer: a follower waits for it. Both calls may be made again, whatever became of the first."""
        return call() if self._away is None else self._away.wait_for(call)


class StoreAway:
    """Waits for a store that does not answer, as long as it takes; says so at the first wait and at every tenth."""

    def __init__(self, waiting: Waiting, out: Output) -> None:
        self._waiting = waiting
        self._out = out

    def wait_for(self, call: Callable[[], Found]) -> Found:
        """The answer of a call that may be made again."""
        from txn_engine.errors import OutcomeUnknownError, StoreUnavailableError

        waits = 0
        while True:
            try:
                found = call()
            except (StoreUnavailableError, OutcomeUnknownError) as error:
                if waits % NOTE_EVERY == 0:
                    self._out.note(f"{one_line(str(error))}; waiting for the store")
                waits += 1
                self._waiting.pause_ms(min(PAUSE_MS_MAX, 500 * 2 ** min(waits, 10)))
            else:
                if waits:
                    self._out.note("the store answers again")
                return found


@contextlib.contextmanager
def _writer(
    output_format: Format, output: Path | None, binary: BinaryText, out: Output, *, keeps: bool
) -> Iterator[RecordWriter]:
    """What writes the records. keeps: whether it leaves a file that holds something."""
    from txn_engine.cli import record_text

    if output_format == "parquet" and output is not None:
        file = record_text.ParquetFile(output, keeps=keeps)
        try:
            yield file
        except BaseException:
            file.discard()
            raise
        return
    kinds = {"table": record_text.Aligned, "csv": record_text.Csv, "jsonl": record_text.JsonLines}
    kind = record_text.JsonDocument if out.as_json else kinds[output_format]
    with contextlib.ExitStack() as stack:
        stream: record_text.TextSink = record_text.standard_output()
        if output is not None:
            stream = stack.enter_context(contextlib.closing(record_text.LateFile(output, keeps=keeps)))
        yield kind(stream, binary, sync=output is not None or record_text.is_file(stream))
