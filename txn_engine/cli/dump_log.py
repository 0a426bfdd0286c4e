"""`txn-engine dump-log`: a partition's log as kafka-dump-log.sh shows it, damaged or not."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

import click

from txn_engine.cli.command import SETTINGS, Command, Place, common_options
from txn_engine.cli.output import Output, as_json_text, snake_case
from txn_engine.names import printable
from txn_engine.suggested import command

if TYPE_CHECKING:
    from collections.abc import Iterator

    from txn_engine.verify.descriptors import Batch
    from txn_engine.verify.dump import Dumped, LogDump
    from txn_engine.verify.findings import Place as PartitionPlace

Fields = dict[str, Any]
"""What a line shows, in its order, by Kafka's names."""


@click.command(
    "dump-log",
    cls=Command,
    short_help="Show a partition's entries, damaged or not.",
    context_settings=SETTINGS,
    examples=(
        "txn-engine dump-log payments 0",
        "txn-engine dump-log payments 0 --start 1000 --end 2000 --records",
        "txn-engine dump-log payments 0 --verify-checksums --json",
        "txn-engine dump-log __transaction_state 7",
        "txn-engine dump-log __consumer_offsets 12 | grep group=balances",
    ),
)
@click.argument("topic")
@click.argument("partition", type=click.IntRange(min=0))
@click.option(
    "--start", type=click.IntRange(min=0), default=0, help="From the entry that holds this offset on."
)
@click.option("--end", type=click.IntRange(min=0), help="Only entries that begin below this offset.")
@click.option("--records", is_flag=True, help="Show the records of each batch too.")
@click.option("--files", is_flag=True, help="Show each batch's data file: name, size, checksum.")
@click.option(
    "--verify-checksums", is_flag=True, help="Read the data files and check them against their entries."
)
@click.option(
    "--incarnation", type=click.IntRange(min=0), help="Of a topic that was deleted: which life of it."
)
@common_options
def dump_log(
    topic: str,
    partition: int,
    start: int,
    end: int | None,
    records: bool,
    files: bool,
    verify_checksums: bool,
    incarnation: int | None,
    place: Place,
    out: Output,
) -> None:
    """Show the entries of a partition's log from its raw objects, one line a batch, as kafka-dump-log.sh does.

    A line begins with the batch's offsets; `position` is the object's key, `isvalid` whether its bytes are those that
    were written. Markers show endTxnMarker, other control rows their value; rows of __transaction_state and
    __consumer_offsets stand in words below (`transactions describe` tells the partition of an id: CoordinatorId).
    Sealed slots hold no rows any more.

    What is damaged is shown as such, the rest is dumped all the same, and the exit code is 1. Nothing is replayed and
    nothing changed: `verify` judges. With --json the document is whole also where the store fails midway ("complete"
    is false then); NaN and the infinities come as strings.
    """
    from txn_engine.log.objects import store_errors
    from txn_engine.verify.dump import LogDump

    with store_errors(), LogDump(place.open_store(), topic, partition, incarnation=incarnation) as log:
        shown = _JsonDump(log.place) if out.as_json else _TextDump(log.place)
        complete = False
        try:
            for slot in log.slots(start, end):
                _show(slot, log, shown, files=files, check=verify_checksums, records=records)
            complete = True
        finally:
            shown.close(complete=complete)
    if shown.damaged:
        look = command("verify", topic=topic)
        out.note(f"{shown.damaged:,} damaged: `{look}` says what to do about each")
        raise click.exceptions.Exit(1)


def _show(slot: Dumped, log: LogDump, shown: _Dump, *, files: bool, check: bool, records: bool) -> None:
    from txn_engine.verify.dump import DumpedDamage, DumpedSeal

    where: Fields = {"position": slot.key, "size": slot.size}
    if isinstance(slot, DumpedDamage):
        shown.line({"baseOffset": slot.base_offset, **where, "isvalid": False, "problem": slot.problem})
        return
    if isinstance(slot, DumpedSeal):
        shown.line({"baseOffset": slot.base_offset, **where, "isvalid": True, "sealed": True})
        return
    for batch in slot.batches:
        problem = log.file_problem(batch) if check and batch.data_path else None
        fields = {**_descriptor(batch), **where, "isvalid": problem is None}
        if problem is not None:
            fields["problem"] = problem
        fields.update(_control(batch))
        if files and batch.data_path:
            named = {
                "dataFile": batch.data_path,
                "dataBytes": batch.data_bytes,
                "dataChecksum": batch.checksum,
            }
            fields.update(named)
        inline = _inline(batch)
        shown.line(fields, inline)
        if records and batch.data_path:
            _show_records(batch, log, shown)


def _show_records(batch: Batch, log: LogDump, shown: _Dump) -> None:
    import pyarrow as pa

    from txn_engine.errors import CorruptObjectError

    found = _records(batch, log)
    while True:
        try:
            record = next(found, None)
        except CorruptObjectError as error:
            shown.unreadable(error.seen)
            return
        except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
            shown.unreadable(f"columns that cannot be shown: {' '.join(str(error).split())[:200]}")
            return
        if record is None:
            return
        shown.record(*record)


def _records(batch: Batch, log: LogDump) -> Iterator[tuple[Fields, str]]:
    """Each record's own fields, and the topic's columns as JSON."""
    import pyarrow as pa

    from txn_engine.value_text import json_records

    for part in log.records(batch):
        deltas = part.column("_offset_delta").to_pylist()
        times = part.column("_timestamp").cast(pa.int64()).to_pylist()
        rest = pa.Table.from_batches([part]).drop_columns(["_offset_delta", "_timestamp"])
        for delta, time_ms, payload in zip(deltas, times, json_records(rest, "text"), strict=True):
            offset = None if delta is None else batch.base_offset + delta
            sequence = None if delta is None else batch.sequence_of(delta)
            yield {"offset": offset, "CreateTime": time_ms, "sequence": sequence}, payload


def _descriptor(batch: Batch) -> Fields:
    return {
        "baseOffset": batch.base_offset,
        "lastOffset": batch.last_offset,
        "count": batch.record_count,
        "baseSequence": batch.base_sequence,
        "lastSequence": batch.last_sequence,
        "producerId": batch.producer_id,
        "producerEpoch": batch.producer_epoch,
        "isTransactional": batch.is_transactional,
        "isControl": batch.control != "none",
        "CreateTime": batch.max_timestamp,
        "LogAppendTime": batch.append_time,
    }


def _control(batch: Batch) -> Fields:
    if batch.is_marker:
        return {"endTxnMarker": batch.control.upper(), "coordinatorEpoch": batch.coordinator_epoch}
    if batch.control != "none":
        return {"control": batch.control.upper(), "value": batch.control_value}
    return {}


def _inline(batch: Batch) -> Fields | None:
    """The row that an internal topic keeps in its entry."""
    return None if batch.row is None else dict(zip(batch.row._fields, batch.row, strict=True))


class _Dump:
    """Where the lines go. `damaged` counts what was not valid."""

    def __init__(self, place: PartitionPlace) -> None:
        self.damaged = 0
        self._place = place

    def line(self, fields: Fields, inline: Fields | None = None) -> None:
        """A batch, a seal, or what is damaged; `inline`: an internal topic's row."""
        self.damaged += not fields["isvalid"]
        self._write_line(fields, inline)

    def unreadable(self, problem: str) -> None:
        """The records that should follow cannot be read."""
        self.damaged += 1
        self._write_unreadable(problem)

    def record(self, fields: Fields, payload: str) -> None:
        """A record of the batch before; `payload` is its JSON."""
        raise NotImplementedError

    def close(self, *, complete: bool) -> None:
        """End the output; not `complete` where the store could not be read to the end."""

    def _write_line(self, fields: Fields, inline: Fields | None) -> None:
        raise NotImplementedError

    def _write_unreadable(self, problem: str) -> None:
        raise NotImplementedError


class _TextDump(_Dump):
    """`name: value name: value ...`, and a line with `|` for each record or row."""

    def __init__(self, place: PartitionPlace) -> None:
        super().__init__(place)
        sys.stdout.write(f"Dumping {place.prefix}/log\n")

    def record(self, fields: Fields, payload: str) -> None:
        """`| offset: 5 CreateTime: ... sequence: 0 payload: {...}`."""
        sys.stdout.write(printable(f"| {_fields_text(fields)} payload: {payload}") + "\n")

    def _write_line(self, fields: Fields, inline: Fields | None) -> None:
        sys.stdout.write(printable(_fields_text(fields)) + "\n")
        if inline is not None:
            row = f"| offset: {fields['baseOffset']} {_row_text(inline)}"
            sys.stdout.write(printable(row) + "\n")

    def _write_unreadable(self, problem: str) -> None:
        sys.stdout.write(printable(f"| isvalid: false problem: {problem}") + "\n")


class _JsonDump(_Dump):
    """One document, written as the entries come, and always ended.

    {"topic", "partition", "incarnation", "batches": [...], "damaged", "complete"}
    """

    def __init__(self, place: PartitionPlace) -> None:
        super().__init__(place)
        self._batches = self._records = 0
        named = {"topic": place.topic, "partition": place.partition, "incarnation": place.incarnation}
        sys.stdout.write(as_json_text(named)[:-1] + ', "batches": [')

    def record(self, fields: Fields, payload: str) -> None:
        """An item of the batch's `records`."""
        sys.stdout.write(",\n  " if self._records else ', "records": [\n  ')
        sys.stdout.write(f'{_json(fields)[:-1]}, "payload": {payload}}}')
        self._records += 1

    def close(self, *, complete: bool) -> None:
        """Close the list, and say how much is damaged, and whether this is all."""
        self._end_batch()
        sys.stdout.write(f'\n], "damaged": {self.damaged}, "complete": {json.dumps(complete)}}}\n')

    def _write_line(self, fields: Fields, inline: Fields | None) -> None:
        self._end_batch()
        row = {} if inline is None else {"row": inline}
        sys.stdout.write((",\n" if self._batches else "\n") + _json({**fields, **row})[:-1])
        self._batches += 1

    def _write_unreadable(self, problem: str) -> None:
        if self._records:
            sys.stdout.write("]")
        self._records = 0
        sys.stdout.write(f', "records_problem": {as_json_text(problem)}')

    def _end_batch(self) -> None:
        if self._batches:
            sys.stdout.write(("]" if self._records else "") + "}")
        self._records = 0


def _fields_text(fields: Fields) -> str:
    return " ".join(
        f"{name}: {str(value).lower() if isinstance(value, bool) else value}"
        for name, value in fields.items()
    )


def _json(fields: Fields) -> str:
    return as_json_text({snake_case(name): value for name, value in fields.items()})


def _row_text(row: Fields) -> str:
    """A row of an internal topic, as Kafka's decoders write it: key and payload."""
    if "transactional_id" in row:
        key = f"transaction_metadata::transactionalId={row['transactional_id']}"
        shown = {
            **row,
            "partitions": f"[{','.join(f'{topic}-{number}' for topic, _, number in row['partitions'])}]",
        }
        hidden = {"transactional_id"}
    else:
        key = f"offset_commit::group={row['group_id']},partition={row['topic']}-{row['partition']}"
        shown, hidden = row, {"group_id", "topic", "partition"}
    told = (f"{name}={_value(value)}" for name, value in shown.items() if name not in hidden)
    return f"key: {key} payload: {','.join(told)}"


def _value(value: object) -> str:
    if isinstance(value, tuple):
        return f"[{','.join(map(str, value))}]"
    return "null" if value is None else str(value).lower() if isinstance(value, bool) else str(value)
