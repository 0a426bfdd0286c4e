"""`txn-engine produce`: files into a topic, all or nothing."""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click

from txn_engine.cli.command import SETTINGS, Command, Place, common_options
from txn_engine.cli.failures import CommandFailed, code_and_message, one_line
from txn_engine.cli.interrupts import Interrupted, held_back
from txn_engine.cli.output import Advance, Output
from txn_engine.cli.produced import tell_committed_before, tell_produced
from txn_engine.cli.spark_load import load_by_spark

if TYPE_CHECKING:
    import pyarrow as pa

    from txn_engine.engine import Engine
    from txn_engine.producer import Producer
    from txn_engine.types import RecordMetadata

SENT_BYTES = 32 * 1024 * 1024
_NOTHING = "nothing was loaded"


@click.command(
    cls=Command,
    short_help="Load csv, jsonl or parquet files into a topic.",
    context_settings=SETTINGS,
    examples=(
        "txn-engine produce payments monday.csv tuesday.csv --transactional-id load-payments",
        "txn-engine produce payments trans.csv --delimiter ';' --date-format %y%m%d \\",
        "    --transactional-id load-payments --run-id 2026-11-21",
        "txn-engine produce payments payments.parquet --partition 0",
        "txn-engine produce payments 's3a://landing/2026-11-21/*.csv' --engine spark --run-id 2026-11-21",
    ),
)
@click.argument("topic")
@click.argument("files", nargs=-1, required=True, type=click.Path(dir_okay=False), metavar="FILE...")
@click.option(
    "--transactional-id",
    metavar="ID",
    help="Load all files in one transaction under this id: readers see all of them or none.",
)
@click.option(
    "--run-id",
    metavar="ID",
    help=(
        "Name this run of the load: run again after its transaction was committed, it loads "
        "nothing. Needs --transactional-id, or --engine spark."
    ),
)
@click.option(
    "--transaction-timeout",
    "timeout_s",
    type=click.IntRange(min=1),
    default=300,
    metavar="SECONDS",
    help="After so long a sweep may abort the transaction, should this process die.",
)
@click.option(
    "--partition",
    type=int,
    metavar="N",
    help="Put everything into this partition; by the topic's key unless told.",
)
@click.option(
    "--format",
    "file_format",
    type=click.Choice(["csv", "jsonl", "parquet"]),
    help="What the files are; by their extension unless told.",
    show_default=False,
)
@click.option(
    "--delimiter", metavar="CHAR", help="Between the fields of csv: ',' unless told (a tab for .tsv)."
)
@click.option(
    "--date-format",
    metavar="FORMAT",
    help="Of dates and timestamps in csv and jsonl, as strptime has it: %y%m%d. ISO 8601 unless told.",
)
@click.option(
    "--null",
    "nulls",
    multiple=True,
    default=("",),
    metavar="TEXT",
    help="A field of csv that means null. Repeatable.",
    show_default="the empty field",
)
@click.option(
    "--binary",
    type=click.Choice(["text", "base64"]),
    default="text",
    help="What csv and jsonl hold for a binary column.",
)
@click.option(
    "--engine",
    "loader",
    type=click.Choice(["local", "spark"]),
    default="local",
    help="What reads the files: this process, or Spark's executors, in one transaction under --run-id.",
)
@click.option(
    "--spark-conf",
    "spark_conf",
    multiple=True,
    metavar="KEY=VALUE",
    help="With --engine spark: a setting of Spark's, such as spark.master. Repeatable.",
)
@click.option(
    "--show-values",
    is_flag=True,
    help="Let an error show the value, or the names in the file, that do not fit. A terminal shows them anyway.",
)
@common_options
def produce(
    topic: str,
    files: tuple[str, ...],
    transactional_id: str | None,
    run_id: str | None,
    timeout_s: int,
    partition: int | None,
    file_format: Literal["csv", "jsonl", "parquet"] | None,
    delimiter: str | None,
    date_format: str | None,
    nulls: tuple[str, ...],
    binary: Literal["text", "base64"],
    loader: Literal["local", "spark"],
    spark_conf: tuple[str, ...],
    show_values: bool,
    place: Place,
    out: Output,
) -> None:
    """Load FILE... into TOPIC: csv with a header line, jsonl, or parquet.

    The files must have the topic's columns, under their names, in any order. Values are taken exactly: a decimal
    with too many digits, a date that is none, a missing or unknown column or a truncated line stops the load, and the
    error names file, line and column. Money never passes through a float. The value itself is told to a terminal, and
    elsewhere (a log, a task of Airflow) only with --show-values.

    With --transactional-id an error, Ctrl-C or SIGTERM aborts, and readers see nothing of the load. Without it, all
    files are read through and checked before the first record is sent; what was sent before the store failed, or
    before Ctrl-C, stays.

    With --engine spark, FILE... is what Spark can list, with its patterns (s3a://bucket/day/*.csv), each file a task's,
    and the load is one transaction; its id is load-files/TOPIC unless told.
    """
    if loader == "spark":
        _check_for_spark(run_id, partition, show_values)
    elif spark_conf:
        raise click.UsageError("--spark-conf needs --engine spark")
    elif run_id is not None and transactional_id is None:
        raise click.UsageError("--run-id needs --transactional-id")
    reading = {
        "format": file_format,
        "delimiter": delimiter,
        "date_format": date_format,
        "null_values": nulls,
        "binary": binary,
    }
    if loader == "spark":
        load_by_spark(
            place, out, topic, files, transactional_id, run_id or "", timeout_s, spark_conf, reading
        )
        return
    with place.open() as engine:
        described = engine.admin.describe_topic(topic)
        if partition is not None:
            engine.partition(topic, partition)  # refused before any file is read
        shows_values = show_values or sys.stderr.isatty()
        load = _Load(
            topic, [Path(file) for file in files], partition, described.schema, reading, out, shows_values
        )
        if transactional_id is None:
            _load_plainly(engine, load)
        else:
            limit_ms = engine.limits.max_transaction_timeout_ms
            _load_in_transaction(engine, load, transactional_id, run_id, min(timeout_s * 1_000, limit_ms))


def _check_for_spark(run_id: str | None, partition: int | None, show_values: bool) -> None:
    if run_id is None:
        raise click.UsageError("--engine spark needs --run-id")
    if partition is not None or show_values:
        option = "--partition" if partition is not None else "--show-values"
        raise click.UsageError(f"{option} is not for --engine spark")


@dataclass
class _Load:
    """One call: what is loaded where, and how far it is."""

    topic: str
    files: Sequence[Path]
    partition: int | None
    schema: Any
    reading: dict[str, Any]
    out: Output
    shows_values: bool
    sent: list[Future[list[RecordMetadata]]] = field(default_factory=list)

    def batches(self, file: Path, done_bytes: int, advance: Advance) -> Iterator[pa.RecordBatch]:
        """A file's records, telling the progress."""
        from txn_engine.files import read_records

        def tell(read_bytes: int) -> None:
            advance(completed=done_bytes + read_bytes, description=file.name)

        return read_records(file, self.schema, progress=tell, **self.reading)

    def check(self) -> None:
        """Read every file through; raises for the first fault."""
        with self.out.progress("checking", self.total_bytes(), unit="bytes") as advance:
            done = 0
            for file in self.files:
                for _ in self.batches(file, done, advance):
                    pass
                done += _size(file)

    def send(self, producer: Producer) -> None:
        """Send every file's records, in parts that make large data files and fit memory."""
        import pyarrow as pa

        with self.out.progress("loading", self.total_bytes(), unit="bytes") as advance:
            done = 0
            for file in self.files:
                held: list[pa.RecordBatch] = []
                for batch in self.batches(file, done, advance):
                    held.append(batch)
                    if sum(part.nbytes for part in held) >= SENT_BYTES:
                        self._send_part(producer, pa.Table.from_batches(held))
                        held = []
                if held:
                    self._send_part(producer, pa.Table.from_batches(held))
                done += _size(file)
            producer.flush()

    def _send_part(self, producer: Producer, records: pa.Table) -> None:
        self.sent.append(producer.produce(self.topic, records, partition=self.partition))

    def total_bytes(self) -> int | None:
        """Of all files; None where one of them has no size."""
        sizes = [_size(file) for file in self.files]
        return sum(sizes) if all(sizes) else None

    def landed(self) -> list[RecordMetadata]:
        """Where the batches went that are in the log."""
        return [
            metadata
            for future in self.sent
            if future.done() and not future.cancelled() and future.exception() is None
            for metadata in future.result()
        ]

    def tell(self, **more: object) -> None:
        """All is loaded: print where the records went."""
        tell_produced(self.out, self.landed(), **more)


def _size(file: Path) -> int:
    try:
        return file.stat().st_size
    except OSError:
        return 0  # reading it gives the error


# --- without a transaction --------------------------------------------------------------------------------


def _load_plainly(engine: Engine, load: _Load) -> None:
    """Check all files, then send them: no fault of a file leaves a part of it in the topic."""
    for file in load.files:
        if file.exists() and not stat.S_ISREG(file.stat().st_mode):
            raise click.UsageError(
                f"{file} cannot be read twice, which a load without --transactional-id does: give one"
            )
    try:
        load.check()
    except BaseException as error:
        raise _with_note(error, _NOTHING, load) from error
    before = [_state_of(file) for file in load.files]
    producer = engine.producer()
    try:
        load.send(producer)
        for future in load.sent:
            future.result()
        for file, state in zip(load.files, before, strict=True):
            if _state_of(file) != state:
                raise CommandFailed("FILE_CHANGED", f"{file} changed while it was loaded")
    except BaseException as error:
        raise _left_behind(error, producer, load) from error
    load.tell()


def _state_of(file: Path) -> tuple[int, int, int]:
    found = os.stat(file)
    return found.st_ino, found.st_size, found.st_mtime_ns


def _left_behind(error: BaseException, producer: Producer, load: _Load) -> BaseException:
    """The error, with what of the load stays in the topic."""
    least = "at least "
    try:
        with held_back():
            producer.flush()
            least = ""
    except (Interrupted, Exception):  # noqa: BLE001
        pass  # what is under way may still arrive: the count is of what did
    count = sum(sent.last_offset - sent.base_offset + 1 for sent in load.landed())
    left = f"{least}{count:,} records are in the topic and stay; with --transactional-id a load is all or nothing"
    return _with_note(error, left if count or least else _NOTHING, load)


# --- in one transaction -----------------------------------------------------------------------------------


def _load_in_transaction(
    engine: Engine, load: _Load, transactional_id: str, run_id: str | None, timeout_ms: int
) -> None:
    producer = engine.producer(transactional_id=transactional_id, transaction_timeout_ms=timeout_ms)
    producer.init_transactions()
    if run_id is not None:
        known = producer.has_committed(run_id)
        if known:
            tell_committed_before(load.out, transactional_id, run_id)
            return
        if known is None:
            load.out.note(
                f"the last 100 runs of {transactional_id!r} are known, and {run_id!r} is none of them: loading it"
            )
    producer.begin_transaction(run_id)
    try:
        load.send(producer)
    except BaseException as error:
        raise _aborted(error, producer, load) from error
    _commit(producer, load)
    load.tell(transactional_id=transactional_id, run_id=run_id, committed_before=False)


def _commit(producer: Producer, load: _Load) -> None:
    """Commit, and if that cannot be: abort, or say what is not known."""
    from txn_engine.errors import OutcomeUnknownError
    from txn_engine.producer.states import ProducerState

    committed = False
    try:
        with held_back():
            producer.commit_transaction()
            committed = True
    except Interrupted as error:
        note = "the transaction is committed all the same" if committed else _not_known(producer)
        raise Interrupted(error.signum, note) from error
    except Exception as error:
        if producer.state in (ProducerState.IN_TRANSACTION, ProducerState.ABORTABLE_ERROR):
            raise _aborted(error, producer, load) from error
        if producer.state is ProducerState.COMMITTING_TRANSACTION or isinstance(error, OutcomeUnknownError):
            raise _with_note(error, _not_known(producer), load) from error
        raise _with_note(error, _NOTHING, load) from error


def _not_known(producer: Producer) -> str:
    from txn_engine.suggested import command

    name = str(producer.transactional_id)
    return (
        f"whether the transaction of {name!r} is committed is not known here: "
        f"`{command('transactions describe', name)}` tells; the same load with the same --run-id is safe"
    )


def _aborted(error: BaseException, producer: Producer, load: _Load) -> BaseException:
    """Abort the transaction; the error to raise, with how that went."""
    from txn_engine.errors import TransactionAbortableError, TxnEngineError
    from txn_engine.producer.states import ProducerState

    ended = False
    note = (
        f"transactional id {producer.transactional_id!r} is left open, its records invisible: "
        "`txn-engine coordinator sweep` aborts it once its timeout is over"
    )
    if isinstance(error, TransactionAbortableError) and isinstance(error.__cause__, TxnEngineError):
        error = error.__cause__
    if producer.state is ProducerState.FATAL_ERROR:
        return _with_note(error, _NOTHING, load)  # fenced: the transaction is its successor's to end
    try:
        with held_back():
            producer.abort_transaction()
            ended = True
    except Interrupted as second:
        if not isinstance(error, Interrupted):
            error = second
    except Exception:  # noqa: BLE001 -- the error to tell is the one that came first
        ended = False
    return _with_note(error, f"the transaction was aborted, {_NOTHING}" if ended else note, load)


def _with_note(error: BaseException, note: str, load: _Load) -> BaseException:
    """The error, saying also what became of the load."""
    from txn_engine.errors import InvalidRecordError

    if isinstance(error, Interrupted):
        return Interrupted(error.signum, note)
    if not isinstance(error, Exception):
        return error
    if isinstance(error, CommandFailed):
        code, message = error.code, error.message
    else:
        code, message = code_and_message(error)
        if load.shows_values and isinstance(error, InvalidRecordError):
            message = one_line(error.with_value())
    told = f"{message.removesuffix(f' [{code}]')}; {note} [{code}]"
    return CommandFailed(code, told, as_json=load.out.as_json)
