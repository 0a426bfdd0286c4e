"""Files into a topic: what is shared by everybody who loads some, and `load_files` for a program."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import Future
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import pyarrow as pa

from txn_engine.arguments import check_flags, check_whole_numbers
from txn_engine.errors import InvalidRecordError, InvalidRequestError
from txn_engine.files import files_named, format_of, read_records
from txn_engine.found_files import check_opens
from txn_engine.loading.dead_letters import DeadLetters, check_dead_letter_topic, reading_of
from txn_engine.loading.limits import DeadLetterLimit
from txn_engine.loading.manifest import Manifest, SeenFile, changed_meanwhile, check_manifest, text_of_path
from txn_engine.log.row_sizes import RowSizes
from txn_engine.producer.runs import (
    ForgottenRuns,
    check_forgotten_runs,
    check_run_id,
    check_run_is_there,
    committed_before,
    run_into,
)
from txn_engine.producer.time_out import job_timeout_ms
from txn_engine.reasons import Reason
from txn_engine.schemas.defaults import fills

if TYPE_CHECKING:
    from txn_engine.engine import Engine
    from txn_engine.log.topics import Topic
    from txn_engine.producer import Producer, Uploads
    from txn_engine.types import RecordMetadata

SENT_BYTES = 32 * 1024 * 1024


@dataclass
class FileLoad:
    """Reads files, and uploads their records in parts that make large data files and fit memory.

    Reading may take long, so no transaction is open meanwhile: the caller begins one when everything is read, and
    `send` names what was uploaded. Rows that cannot be used go to `dead_letters`; without it the first is an error.
    Without `uploads` everything is read, and nothing is written.

    A file without rows, as Spark leaves in its folders, is no fault while another one has some: `empty` names them. It
    is one if it was `named`, and not found in a folder or by a pattern.
    """

    engine: Engine
    topic: Topic
    reading: Mapping[str, Any]
    partition: int | None = None
    dead_letters: DeadLetters | None = None
    manifest: Manifest | None = None
    run_id: str | None = None
    uploads: Uploads | None = None
    records: int = 0
    sent: list[Future[list[RecordMetadata]]] = field(default_factory=list)
    named: Collection[Path] = ()
    empty: dict[str, InvalidRecordError] = field(default_factory=dict)

    def take(
        self,
        source: Path | BinaryIO,
        *,
        name: str | None = None,
        progress: Callable[[int], None] | None = None,
    ) -> bool:
        """Read a file to its end, and upload what is in it; `name`: of a stream. Returns whether it has rows.

        Raises as `read_records` does, and `InvalidRecordError` for a file that somebody writes meanwhile.
        """
        rejected = None
        if self.dead_letters is not None:
            known = self.reading.get("format") or format_of(str(source)) or ""
            rejected = self.dead_letters.taker(
                name or text_of_path(str(source)),
                reading_of(known, self.reading, self.topic, self.partition),
            )
        held: list[pa.RecordBatch] = []
        held_bytes = 0
        before = _state_of(source)
        batches = read_records(
            source,
            self.topic.schema,
            fill=fills(self.topic.schemas),
            progress=progress,
            sizes=RowSizes(self.topic),
            rejected=rejected,
            **self.reading,
        )
        try:
            for batch in batches:
                self.records += batch.num_rows
                held.append(batch)
                held_bytes += batch.nbytes
                if held_bytes >= SENT_BYTES:
                    self._upload(held)
                    held, held_bytes = [], 0
        except InvalidRecordError as error:
            if error.reason is not Reason.NO_RECORDS or not isinstance(source, Path) or source in self.named:
                raise
            _check_whole(source, before)
            self.empty[str(source)] = error
            return False
        _check_whole(source, before)
        if held:
            self._upload(held)
        return True

    def take_seen(self, seen: SeenFile, *, progress: Callable[[int], None] | None = None) -> None:
        """Read a file that the manifest said is new, and note that it was loaded."""
        records, dead = self.records, self._dead_count
        has_rows = self.take(seen.path, progress=progress)
        if has_rows and self.manifest is not None and self.uploads is not None:
            self.manifest.add(
                seen,
                records=self.records - records,
                dead_letters=self._dead_count - dead,
                run_id=self.run_id,
            )

    @property
    def _dead_count(self) -> int:
        return 0 if self.dead_letters is None else self.dead_letters.count

    def upload_to(self, uploads: Uploads) -> None:
        """From here on upload what is read."""
        self.uploads = uploads
        if self.dead_letters is not None:
            self.dead_letters.target = uploads

    def check(self) -> None:
        """All files are read: wait for the uploads. Raises `InvalidRecordError` where none of them has rows, unless the
        manifest knew others, and where too many are dead letters; and what an upload failed with.
        """
        knew_others = self.manifest is not None and bool(self.manifest.passed_over)
        if self.empty and not knew_others and not self.records + self._dead_count:
            raise next(iter(self.empty.values()))
        if self.dead_letters is not None:
            self.dead_letters.check(self.records + self.dead_letters.count)
        if self.uploads is not None:
            self.uploads.wait()

    def send(self, producer: Producer) -> None:
        """Name what was uploaded, in the transaction that the producer has open, or without one.

        Raises as `Manifest.send` and `Uploads.send`, and `UnknownTopicOrPartitionError` where the topic is another one
        by now.
        """
        if self.manifest is not None:
            self.manifest.send(producer)
        if self.uploads is not None:
            sent = self.uploads.send().get(self.topic.name)
            self.sent = [] if sent is None else [sent]
        self.engine.logs.topics.check_current(self.topic)

    def _upload(self, held: Sequence[pa.RecordBatch]) -> None:
        if self.uploads is not None:
            records = pa.Table.from_batches(held)
            self.uploads.produce(self.topic.name, records, partition=self.partition)


def _state_of(source: Path | BinaryIO) -> tuple[int, int, int] | None:
    """What tells a file from what it was before somebody wrote to it; None of what is none."""
    try:
        found = os.stat(source) if isinstance(source, Path) else None
    except OSError:
        return None  # opening it says what is wrong with it; or it was moved away, and was read to its end
    if found is None or not stat.S_ISREG(found.st_mode):
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns


def _check_whole(source: Path | BinaryIO, before: tuple[int, int, int] | None) -> None:
    """Raise `InvalidRecordError` where somebody has written to the file since: its last value may be a part of one.

    Another file of that name says nothing of this one.
    """
    now = _state_of(source)
    if before is None or now is None or now[0] != before[0] or now == before:
        return
    raise changed_meanwhile(str(source))


@dataclass(frozen=True, slots=True)
class LoadResult:
    """What one load did: records and dead letters are all rows of the files.

    `already_committed`: a transaction with this run id had been committed before, so nothing was loaded now.
    `loaded_before`: files that the manifest knows, and that were passed over; `copies`: of these, the name under which
    the same content was loaded, where it is another. `passed_over`: names that `files_named` passed over. `empty`:
    files without rows.
    """

    topic: str
    records: int = 0
    dead_letters: int = 0
    batches: tuple[RecordMetadata, ...] = ()
    already_committed: bool = False
    loaded_before: tuple[str, ...] = ()
    copies: Mapping[str, str] = field(default_factory=dict)
    passed_over: tuple[str, ...] = ()
    empty: tuple[str, ...] = ()


def load_files(
    engine: Engine,
    topic: str,
    paths: str | Path | Sequence[str | Path],
    *,
    run_id: str,
    transactional_id: str | None = None,
    partition: int | None = None,
    dead_letter_topic: str | None = None,
    max_dead_letters: int | str | None = None,
    manifest: str | None = None,
    again: bool = False,
    forgotten_runs: ForgottenRuns = "refuse",
    transaction_timeout_ms: int | None = None,
    **reading: Any,
) -> LoadResult:
    """Load the files that `paths` name (`files_named`) in one transaction of the run; twice is once.

    `reading`: as `read_records` takes it. With a `dead_letter_topic` rows that cannot be used go there, in the same
    transaction, so that records and dead letters are all rows of the files; above `max_dead_letters` (a count, or a
    share as "1%") the load fails and nothing of it is visible. With a `manifest` files whose content was
    loaded before are passed over, whatever the run and their name, unless `again` is true, and what is loaded is noted
    there, in the same transaction. `transaction_timeout_ms` is 5 minutes unless given, or the store's limit if that is
    less. The transactional id is
    `load-files/<topic>` unless one is given. The log knows the last 100 runs of an id; from then on a run that is none
    of them is refused, for it may have been loaded, unless `forgotten_runs` is "load", or a manifest knows the files.

    Raises:
        InvalidRequestError: no such file, a dead-letter topic of other columns, or a run that the log may have
            forgotten; before anything is written.
        InvalidRecordError: a file does not fit the topic, or too many rows do not; nothing of the load is visible.
    """
    check_flags("load", again=again)
    if transaction_timeout_ms is not None:
        check_whole_numbers("load", transaction_timeout_ms=transaction_timeout_ms)
    if again and manifest is None:
        raise InvalidRequestError(
            "again without a manifest",
            actor="load",
            expected="a manifest that says what was loaded",
            reason=Reason.NO_MANIFEST,
        )
    hidden: list[Path] = []
    given = [paths] if isinstance(paths, str | Path) else paths
    files = files_named(given, reading.get("format"), passed_over=hidden.append)
    if not given:
        raise InvalidRequestError("no paths", actor="load", expected="one or more", reason=Reason.NO_FILES)
    name = f"load-files/{topic}" if transactional_id is None else transactional_id
    info = engine.logs.topics.look_up(topic)
    check_run_id(run_id, actor="load")
    run = run_into(run_id, info)
    dead = dead_letters_for(
        engine, dead_letter_topic, max_dead_letters, topic=topic, run_id=run_id, is_dry=False
    )
    check_load(
        engine,
        info,
        files,
        partition=partition,
        manifest=manifest,
        reading=reading,
        forgotten_runs=forgotten_runs,
    )
    forgotten: ForgottenRuns = "load" if manifest else forgotten_runs
    timeout_ms = job_timeout_ms(engine.limits, transaction_timeout_ms)
    with engine.producer(transactional_id=name, transaction_timeout_ms=timeout_ms) as producer:
        if not was_committed(engine, name, run, forgotten):
            check_opens(files)
        producer.init_transactions()
        if producer.committed_before(run, forgotten_runs=forgotten):
            check_run_is_there(engine.logs, name, run, info)
            return LoadResult(topic, already_committed=True)
        with ExitStack() as stack:
            kept = None
            if manifest is not None:
                kept = stack.enter_context(Manifest(engine, manifest, topic=info))
            load = FileLoad(engine, info, reading, partition, dead, kept, run_id, named=set(map(Path, given)))
            load.upload_to(producer.upload())
            new = files if kept is None else kept.new(files, again=again)
            before = LoadResult(
                topic,
                loaded_before=() if kept is None else kept.passed_over,
                copies={} if kept is None else kept.copies,
                passed_over=tuple(map(str, hidden)),
            )
            if not new:
                return before
            for file in new:
                load.take(file) if isinstance(file, Path) else load.take_seen(file)
            load.check()
            with producer.transaction(run):
                load.send(producer)
        batches = tuple(batch for future in load.sent for batch in future.result())
        dead_letters = 0 if dead is None else dead.count
        return replace(
            before,
            records=load.records,
            dead_letters=dead_letters,
            batches=batches,
            empty=tuple(load.empty),
        )


def check_load(
    engine: Engine,
    topic: Topic,
    files: Sequence[Path | BinaryIO],
    *,
    partition: int | None,
    manifest: str | None,
    reading: Mapping[str, Any],
    forgotten_runs: ForgottenRuns = "refuse",
) -> None:
    """Raise for whatever is wrong with a load of files, before anything is fenced, begun or opened."""
    if partition is not None:
        topic.check_partition(partition)
    check_forgotten_runs(forgotten_runs)
    if manifest is not None:
        check_manifest(engine, manifest, topic)
    fill = fills(topic.schemas)
    first_of_each_format = {format_of(str(file)): file for file in reversed(files)}
    for file in first_of_each_format.values():
        read_records(file, topic.schema, fill=fill, sizes=None, rejected=None, progress=None, **reading)


def was_committed(
    engine: Engine, transactional_id: str, run: str | None, forgotten_runs: ForgottenRuns
) -> bool:
    """Whether the log has the run, as it calls it: then its files may have been moved away since. Raises where nobody
    can tell, before anybody is fenced.
    """
    stored = engine.coordinator.current(transactional_id)
    return stored is not None and run is not None and committed_before(stored.row, run, forgotten_runs)


def dead_letters_for(
    engine: Engine,
    dead_letter_topic: str | None,
    max_dead_letters: int | str | None,
    *,
    topic: str,
    run_id: str | None,
    is_dry: bool,
) -> DeadLetters | None:
    """What takes a run's dead letters, its topic looked at; None where there is none. A dry run's needs no topic."""
    if dead_letter_topic is None and max_dead_letters is not None and not is_dry:
        raise InvalidRequestError(
            "max_dead_letters without a dead-letter topic",
            actor="load",
            expected="dead_letter_topic as well",
            reason=Reason.NO_DEAD_LETTER_TOPIC,
        )
    if dead_letter_topic is None and not is_dry:
        return None
    sizes = None
    if dead_letter_topic is not None:
        sizes = RowSizes(check_dead_letter_topic(engine, dead_letter_topic, topic=topic))
    limit = DeadLetterLimit.of(max_dead_letters)
    return DeadLetters(dead_letter_topic, topic, limit, run_id, engine.clock, sizes)
