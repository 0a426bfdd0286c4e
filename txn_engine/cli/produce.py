"""`txn-engine produce`: files into a topic, all or nothing."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Literal

import click

from txn_engine.cli.command import SETTINGS, Command, Place, common_options
from txn_engine.cli.failures import CommandFailed, code_and_message, one_line, reason_of
from txn_engine.cli.interrupts import Interrupted, held_back
from txn_engine.cli.output import Advance, Output, columns, number_of
from txn_engine.cli.produced import tell_committed_before, tell_produced
from txn_engine.cli.reading_options import reading_options
from txn_engine.cli.spark_load import load_by_spark

if TYPE_CHECKING:
    from txn_engine.engine import Engine
    from txn_engine.files import FileFormat
    from txn_engine.loading.dead_letters import DeadLetters
    from txn_engine.loading.load import FileLoad
    from txn_engine.loading.manifest import SeenFile
    from txn_engine.producer import ForgottenRuns, Producer
    from txn_engine.types import RecordMetadata

STDIN = Path("-")
_NOTHING = "nothing was loaded"
_REJECTED = columns("Rows>", "Reason", "First")
_WITH_VALUES = columns("Rows>", "Reason", "First", "Value")


@click.command(
    cls=Command,
    short_help="Load csv, jsonl or parquet files into a topic.",
    context_settings=SETTINGS,
    examples=(
        "txn-engine produce payments monday.csv tuesday.csv --transactional-id load-payments",
        "txn-engine produce payments trans.csv --delimiter ';' --date-format %y%m%d \\",
        "    --transactional-id load-payments --run-id 2026-11-21",
        "txn-engine produce payments 'landing/*.csv.gz' --transactional-id load-payments --run-id monday \\",
        "    --dead-letter-topic payments-dead --max-dead-letters 1%",
        "txn-engine produce payments german.csv --delimiter ';' --decimal , --encoding cp1252 --dry-run",
        "gunzip -c payments.jsonl.gz | txn-engine produce payments - --format jsonl --transactional-id load-payments",
        "txn-engine produce payments payments.parquet --partition 0",
        "txn-engine produce payments 's3a://landing/2026-11-21/*.csv' --engine spark --run-id 2026-11-21",
    ),
)
@click.argument("topic")
@click.argument("files", nargs=-1, required=True, type=click.Path(allow_dash=True), metavar="FILE...")
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
    "--forgotten-runs",
    type=click.Choice(["refuse", "load"]),
    default="refuse",
    help=(
        "A run that is none of the last 100 of its transactional id, which are all that the log knows: refuse it, "
        "for it may have been loaded, or load it. With --manifest files are known for longer."
    ),
)
@click.option(
    "--transaction-timeout",
    "timeout_s",
    type=click.IntRange(min=1),
    metavar="SECONDS",
    help=(
        "Abort the transaction this many seconds after it began if this process dies. Reading does not count. "
        "[default: 300, or the store's limit if that is less]"
    ),
)
@click.option(
    "--partition",
    type=int,
    metavar="N",
    help="Put everything into this partition; by the topic's key unless told.",
)
@reading_options
@click.option(
    "--dead-letter-topic",
    metavar="TOPIC",
    help=(
        "Put rows that cannot be used there, in the same transaction (`topics create TOPIC --dead-letters` "
        "makes one). Needs --transactional-id, or --engine spark."
    ),
)
@click.option(
    "--max-dead-letters",
    metavar="N|N%",
    help="Load nothing where more rows than that cannot be used: a count, or a share of all.",
)
@click.option(
    "--checks",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help=(
        "A suite of Great Expectations (JSON, YAML): rows that fail an expectation whose meta says on_failure: "
        "dead_letter go to the dead-letter topic. With --engine spark others vote before the commit."
    ),
)
@click.option(
    "--manifest",
    metavar="TOPIC",
    help=(
        "Pass over files that were loaded before, and note there, in the same transaction, which are loaded now "
        "(`topics create TOPIC --manifest` makes one). Needs --transactional-id."
    ),
)
@click.option(
    "--again",
    is_flag=True,
    help="With --manifest: load files whose content was loaded before, too.",
)
@click.option(
    "--dry-run",
    is_flag=True,
    help="Read everything and say what would be loaded, what not, and why; nothing is written.",
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
    forgotten_runs: ForgottenRuns,
    timeout_s: int | None,
    partition: int | None,
    dead_letter_topic: str | None,
    max_dead_letters: str | None,
    checks: Path | None,
    manifest: str | None,
    again: bool,
    dry_run: bool,
    reading: dict[str, Any],
    loader: Literal["local", "spark"],
    spark_conf: tuple[str, ...],
    show_values: bool,
    place: Place,
    out: Output,
) -> None:
    """Load FILE... into TOPIC: csv, jsonl or parquet; folders and patterns are all files in them, - is stdin.

    The files must have the topic's columns, under their names, in any order. Values are taken exactly: a decimal
    with too many digits, a date that is none, a missing or unknown column or a truncated line stops the load, and the
    error names file, line and column. Money never passes through a float. The value itself is told to a terminal, and
    elsewhere (a log, a task of Airflow) only with --show-values. With --dead-letter-topic such rows go there, and the
    others are loaded: records and dead letters are all rows, in one transaction.

    All files are read and uploaded before anything is written to the log. With --transactional-id an error, Ctrl-C or
    SIGTERM leaves nothing of the load that a reader sees. Without it, records that were written to the log before the
    store failed, or before Ctrl-C, stay.

    With --engine spark, FILE... is what Spark can list, with its patterns (s3a://bucket/day/*.csv), each file a task's,
    and the load is one transaction; its id is load-files/TOPIC unless told.
    """
    if loader == "spark":
        _check_for_spark(run_id, partition, show_values, bool(manifest or again or dry_run))
        rejecting = {
            "dead_letter_topic": dead_letter_topic,
            "max_dead_letters": max_dead_letters,
            "checks": checks,
        }
        load_by_spark(
            place,
            out,
            topic,
            files,
            transactional_id,
            run_id or "",
            forgotten_runs,
            timeout_s,
            spark_conf,
            reading,
            rejecting,
        )
        return
    if spark_conf:
        raise click.UsageError("--spark-conf needs --engine spark")
    if again and manifest is None:
        raise click.UsageError("--again needs --manifest")
    if run_id is not None and transactional_id is None:
        raise click.UsageError("--run-id needs --transactional-id")
    if (dead_letter_topic or manifest) and transactional_id is None and not dry_run:
        option = "--dead-letter-topic" if dead_letter_topic else "--manifest"
        raise click.UsageError(f"{option} needs --transactional-id")
    if checks is not None and dead_letter_topic is None and not dry_run:
        raise click.UsageError("--checks needs --dead-letter-topic, or --engine spark")
    from txn_engine.loading.load import FileLoad, dead_letters_for
    from txn_engine.producer.time_out import job_timeout_ms

    if checks is not None:
        from txn_engine.quality import row_checks

        reading = {**reading, "row_checks": row_checks(checks)}
    with place.open() as engine:
        info = engine.logs.topics.look_up(topic)
        if partition is not None:
            engine.partition(topic, partition)  # refused before any file is read
        dead = dead_letters_for(
            engine, dead_letter_topic, max_dead_letters, topic=topic, run_id=run_id, is_dry=dry_run
        )
        load = _Load(
            FileLoad(engine, info, reading, partition, dead, run_id=run_id, named=set(map(Path, files))),
            _sources(files, reading["format"], manifest, out),
            out,
            show_values or sys.stderr.isatty(),
            again,
        )
        if dry_run and dead is not None:
            if not _is_committed(engine, load, transactional_id, "load" if manifest else forgotten_runs):
                with _manifest(engine, load, manifest):
                    _try_dry(load, dead)
        elif transactional_id is None:
            _load_plainly(engine, load)
        else:
            timeout_ms = job_timeout_ms(engine.limits, None if timeout_s is None else timeout_s * 1_000)
            _load_in_transaction(engine, load, transactional_id, manifest, timeout_ms, forgotten_runs)


def _sources(
    files: Sequence[str], file_format: FileFormat | None, manifest: str | None, out: Output
) -> list[Path]:
    """The files that are named; stdin as the path "-"."""
    from txn_engine.files import files_named

    if "-" in files:
        if len(files) > 1:
            raise click.UsageError("- is stdin, which is all of a load: name no file beside it")
        if file_format is None:
            raise click.UsageError("- is stdin, whose format nothing says: give --format")
        if manifest is not None:
            raise click.UsageError("- is stdin, which has no name that a manifest could know")
        return [STDIN]
    hidden: list[Path] = []
    found = files_named(files, file_format, passed_over=hidden.append)
    if hidden:
        out.note(f"passed over, as Spark does, for how their names begin or end: {_some(hidden)}")
    return found


def _some(names: Sequence[object]) -> str:
    more = f" and {len(names) - 3:,} more" if len(names) > 3 else ""
    return ", ".join(map(str, names[:3])) + more


def _check_for_spark(run_id: str | None, partition: int | None, show_values: bool, is_other: bool) -> None:
    if is_other:
        raise click.UsageError("--manifest, --again and --dry-run are not for --engine spark")
    if run_id is None:
        raise click.UsageError("--engine spark needs --run-id")
    if partition is not None or show_values:
        option = "--partition" if partition is not None else "--show-values"
        raise click.UsageError(f"{option} is not for --engine spark")


@dataclass
class _Load:
    """One call: what is loaded where, and how far it is."""

    of: FileLoad
    files: Sequence[Path]
    out: Output
    shows_values: bool
    again: bool = False
    seen: dict[Path, SeenFile] = field(default_factory=dict)

    def read(self, what: str) -> None:
        """Read every file, and upload what is in it where the load has uploads; raises for the first fault."""
        with self.out.progress(what, self.total_bytes(), unit="bytes") as advance:
            done = 0
            for file in self.files:
                self._read_file(file, done, advance)
                done += _size(file)
            self.of.check()

    def _read_file(self, file: Path, done_bytes: int, advance: Advance) -> None:
        def tell(read_bytes: int) -> None:
            advance(completed=done_bytes + read_bytes, description=file.name)

        seen = self.seen.get(file)
        if seen is not None:
            self.of.take_seen(seen, progress=tell)
        else:
            self.of.take(self.source(file), name="<stdin>" if file == STDIN else None, progress=tell)

    def source(self, file: Path) -> Path | BinaryIO:
        """What is read: the file, or standard input."""
        return sys.stdin.buffer if file == STDIN else file

    def total_bytes(self) -> int | None:
        """Of all files; None where one of them has no size."""
        sizes = [_size(file) for file in self.files]
        return sum(sizes) if all(sizes) else None

    def landed(self) -> list[RecordMetadata]:
        """Where the batches went that are in the log."""
        return [
            metadata
            for future in self.of.sent
            if future.done() and not future.cancelled() and future.exception() is None
            for metadata in future.result()
        ]

    def tell(self, **more: object) -> None:
        """All is loaded: print where the records went."""
        self.tell_empty()
        dead = self.of.dead_letters
        if dead is not None:
            more |= {"dead_letters": dead.count, "dead_letter_topic": dead.dead_letter_topic}
        if self.of.manifest is not None:
            more |= {
                "loaded_before": list(self.of.manifest.passed_over),
                "copies": self.of.manifest.copies,
            }
        tell_produced(self.out, self.landed(), **more)

    def tell_empty(self) -> None:
        """Name the files that have no rows."""
        if self.of.empty:
            self.out.note(f"files without rows: {_some(list(self.of.empty))}")


@contextmanager
def _manifest(engine: Engine, load: _Load, name: str | None) -> Iterator[None]:
    """The load over the files that the manifest does not know."""
    if name is None:
        yield
        return
    from txn_engine.loading import Manifest

    with Manifest(engine, name, topic=load.of.topic) as manifest:
        load.of.manifest = manifest
        load.seen = {seen.path: seen for seen in manifest.new(load.files, again=load.again)}
        load.files = list(load.seen)
        for path in manifest.passed_over:
            known = f" (as {manifest.copies[path]})" if path in manifest.copies else ""
            load.out.note(f"loaded before: {path}{known}")
        yield


def _size(file: Path) -> int:
    try:
        return file.stat().st_size
    except OSError:
        return 0  # reading it gives the error


# --- without a word to the store ---------------------------------------------------------------------------


def _is_committed(
    engine: Engine, load: _Load, transactional_id: str | None, forgotten_runs: ForgottenRuns
) -> bool:
    """Whether the run was committed, which is said then: the load would load nothing. Raises where nobody can tell."""
    from txn_engine.loading.load import was_committed
    from txn_engine.producer import check_run_is_there, run_into

    run_id = load.of.run_id
    if run_id is None or transactional_id is None:
        return False
    run = run_into(run_id, load.of.topic)
    if not was_committed(engine, transactional_id, run, forgotten_runs):
        return False
    check_run_is_there(engine.logs, transactional_id, run, load.of.topic)
    tell_committed_before(load.out, transactional_id, run_id)
    return True


def _try_dry(load: _Load, dead: DeadLetters) -> None:
    """Say what would be loaded, and what not; not done where the load would not be."""
    failed: BaseException | None = None
    try:
        load.read("reading")
    except Exception as error:  # noqa: BLE001 -- told behind what was found up to there
        failed = error
    rows = [
        {
            "rows": count,
            "reason": reason,
            "first": error.place,
            "value": error.value if load.shows_values else None,
        }
        for reason, (count, error) in dead.reasons.items()
    ]
    load.tell_empty()
    told = {"records": load.of.records, "dead_letters": dead.count, "files": len(load.files)}
    out = load.out
    if failed is None:
        out.done()
    titles = _WITH_VALUES if load.shows_values else _REJECTED
    good, bad = number_of(load.of.records, "record"), number_of(dead.count, "row")
    if rows or out.as_json:
        out.table("rejected", titles, rows, **told, dry_run=True)
    out.note(
        f"{good} would be loaded, {bad} not; nothing was written"
        if failed is None
        else f"up to the error: {good}, {bad} that cannot be used"
    )
    if failed is not None:
        raise _with_note(failed, _NOTHING, load) from failed
    if dead.count and dead.dead_letter_topic is None:
        raise CommandFailed(
            "INVALID_RECORD",
            f"{bad} cannot be used; the load takes them with --dead-letter-topic [INVALID_RECORD]",
            as_json=out.as_json,
        )


# --- without a transaction --------------------------------------------------------------------------------


def _load_plainly(engine: Engine, load: _Load) -> None:
    """Upload all files, then name what was uploaded: no fault of a file leaves a part of it in the topic."""
    producer = engine.producer()
    _upload(producer, load)
    try:
        load.of.send(producer)
        producer.flush()
    except BaseException as error:
        raise _left_behind(error, producer, load) from error
    load.tell()


def _upload(producer: Producer, load: _Load) -> None:
    """Read and upload all files; where that fails nothing is visible, and no transaction is open."""
    load.of.upload_to(producer.upload())
    try:
        load.read("loading")
    except BaseException as error:
        raise _with_note(error, _NOTHING, load) from error


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
    engine: Engine,
    load: _Load,
    transactional_id: str,
    manifest: str | None,
    timeout_ms: int,
    forgotten_runs: ForgottenRuns,
) -> None:
    from txn_engine.found_files import check_opens
    from txn_engine.loading.load import check_load, was_committed
    from txn_engine.producer.runs import check_run_id, check_run_is_there, run_into

    run_id, run = load.of.run_id, None
    if run_id is not None:
        check_run_id(run_id, actor="load")
        run = run_into(run_id, load.of.topic)
    forgotten: ForgottenRuns = "load" if manifest else forgotten_runs
    is_committed = was_committed(engine, transactional_id, run, forgotten)
    sources = [load.source(file) for file in load.files]
    try:
        check_load(
            engine,
            load.of.topic,
            sources,
            partition=load.of.partition,
            manifest=manifest,
            reading=load.of.reading,
            forgotten_runs=forgotten_runs,
        )
        if not is_committed:
            check_opens(sources)
    except Exception as error:
        raise _with_note(error, _NOTHING, load) from error
    producer = engine.producer(transactional_id=transactional_id, transaction_timeout_ms=timeout_ms)
    producer.init_transactions()
    if run is not None and run_id is not None and producer.committed_before(run, forgotten_runs=forgotten):
        check_run_is_there(engine.logs, transactional_id, run, load.of.topic)
        tell_committed_before(load.out, transactional_id, run_id)
        return
    with _manifest(engine, load, manifest):
        if not load.files:
            load.out.done()
            load.out.line(
                "every file was loaded before: nothing to load",
                produced=[],
                records=0,
                transactional_id=transactional_id,
                run_id=run_id,
                committed_before=False,
                loaded_before=list(load.of.manifest.passed_over) if load.of.manifest else [],
                copies=load.of.manifest.copies if load.of.manifest else {},
            )
            return
        _upload(producer, load)
        producer.begin_transaction(run)
        try:
            load.of.send(producer)
            producer.flush()
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
    return CommandFailed(code, told, reason=reason_of(error), as_json=load.out.as_json)
