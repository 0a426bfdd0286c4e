"""The engine: one connection to one store, from which everything else is had."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Self, Unpack

import pyarrow as pa

from storage import ObjectStore, open_store
from storage.patience import JOB_PATIENCE, Patience, jittered_pause
from txn_engine.admin import Admin
from txn_engine.arguments import checked_texts, checks_arguments
from txn_engine.backup import BackupMaker, Cuts, Manifest, Progress
from txn_engine.backup.copying import silent
from txn_engine.backup.new_identity import WATCHED_MS, NewStoreId, give_new_id, refuse_if_written_to
from txn_engine.clock import Clock, Waiting, system_clock
from txn_engine.configs.client import (
    ConsumerKeywords,
    ProducerKeywords,
    consumer_settings,
    producer_settings,
)
from txn_engine.consumer import Consumer
from txn_engine.coordinator.coordinator import Coordinator
from txn_engine.coordinator.groups import GroupCoordinator
from txn_engine.coordinator.ids_in_use import ids_in_use, ids_of
from txn_engine.coordinator.producer_ids import ProducerIds, lost_blocks, unreadable_blocks
from txn_engine.cuts import CutChanges, CutMaker, changes_between
from txn_engine.erasing import (
    BackupsSearch,
    ErasureReport,
    Finished,
    FormerEraser,
    Matcher,
    StillHeld,
    TopicEraser,
    held_by_versions,
    refuse_constant,
    take_leftovers,
)
from txn_engine.errors import (
    CorruptObjectError,
    InconsistentClusterIdError,
    InvalidRequestError,
    StoreUnavailableError,
    TxnEngineError,
    UnknownTopicOrPartitionError,
)
from txn_engine.extras import imports_named
from txn_engine.ids import IdSource, new_write_id
from txn_engine.log.altering import store_begun_with
from txn_engine.log.as_of import AsOfCut, UnkeptCut
from txn_engine.log.begun import BegunLogs
from txn_engine.log.cut_format import Cut
from txn_engine.log.cuts import CutNumber, CutStore
from txn_engine.log.entry_log import LogTools
from txn_engine.log.erasures import Erasures
from txn_engine.log.logs import ForkSafeExecutor, Logs, Looked
from txn_engine.log.missing_of_cuts import CutsAudit
from txn_engine.log.objects import Objects, store_errors
from txn_engine.log.pins import PinStore
from txn_engine.log.store_config import StoreConfig, StoreLimits, open_store_config, store_at
from txn_engine.log.store_identity import StoreIdentity
from txn_engine.log.store_settings import StoreSettings
from txn_engine.log.store_time import StoreTime, store_time_of
from txn_engine.log.topics import Survey, Topic, TopicRegistry
from txn_engine.log.turns import WRITER_CHARS
from txn_engine.log.witnesses import Witnesses
from txn_engine.maintain import Maintenance
from txn_engine.partition_log import PartitionLog
from txn_engine.producer import Producer, ProducerTools
from txn_engine.protocol.transaction_rows import TransactionPartition
from txn_engine.scan import Scan, SchemaVersion, begin_behind
from txn_engine.tables import Tables
from txn_engine.tables.tables import KEEP_CUT_MS
from txn_engine.types import IsolationLevel, MarkerMode, ProducerIdAndEpoch, TopicPartition
from txn_engine.unreadable import WHOLE_TOPIC, Listing, Unreadable, one_place

if TYPE_CHECKING:
    from txn_engine.sql.query import SqlEngine

URL_VARIABLE = "TXN_ENGINE_URL"
_NEAR, _FAR = (16, 16, 16, 16), (128, 32, 32, 16)
"""Readers, those who look for witnesses of empty logs, workers and senders at once, where an object is a file away and
where it is a round trip.
"""
_REAL_WAITING = Waiting()


def connect(
    url: str | None = None,
    *,
    endpoint: str | None = None,
    clock: Clock | None = None,
    configs: Mapping[str, object] | None = None,
    patience: Patience = JOB_PATIENCE,
    credentials: Callable[[], Sequence[str | None]] | None = None,
    **settings: str | None,
) -> Engine:
    """Open a store, setting it up if it was never used.

    `url`: `file:///path`, `memory://name` or a bucket's, as `s3://bucket/prefix`; else the environment's
    TXN_ENGINE_URL. `endpoint`: its server, where that is not the provider's own. `settings`: keys and the like, by the
    keywords of the URL's kind of store (docs/STORES.md); what is not given comes from the environment. `clock` gives
    milliseconds since the epoch; maintenance refuses one that is more than five minutes off the store's. `configs`: the
    store's settings, by Kafka's names, with which a fresh one begins; refused with `InvalidConfigError` where the store
    is there and has others. `credentials`: where keys come in pairs,
    gives a key, its secret and, if there is one, a token whenever they are needed, so that they may be exchanged.
    `patience`: how long calls wait for a store that is busy (`storage.PERSON_PATIENCE` where a person waits for them).
    A store that does not keep put-if-absent is refused with `StoreAccessError`; a reader needs no right to write once
    the store is set up.
    """
    url = url or os.environ.get(URL_VARIABLE)
    if not url:
        raise InvalidRequestError(
            "no store was named", expected=f"a URL, or {URL_VARIABLE} in the environment"
        )
    with store_errors():
        store = open_store(
            url, create=True, patience=patience, credentials=credentials, endpoint=endpoint, **settings
        )
    return Engine(store, clock=clock or system_clock, configs=configs)


@checks_arguments
class Engine:
    """One store, and the producers, consumers and tools over it. `txn_engine.connect(url)` gives one. Threads may share
    it; a forked child connects again.

    All that is not the store comes in as an argument: time (`clock`, `waiting`, `pause` before try 1, 2, ... of a
    store operation), write ids, and what runs tasks beside the caller (`executors(how many at once, name)`).
    `snapshot_after`: a writer that had to replay more entries than that to open a log leaves a snapshot behind.
    `configs`: as `connect`'s. `store_time`: how the store's time is known, by which old things are removed; by default
    the store is asked, unless the clock is one that stands for the store's (`txn_engine.testing.ManualClock`).
    """

    def __init__(
        self,
        store: ObjectStore,
        *,
        clock: Clock = system_clock,
        new_id: IdSource = new_write_id,
        pause: Callable[[int], None] = jittered_pause,
        waiting: Waiting = _REAL_WAITING,
        executors: Callable[[int, str], Executor] = ForkSafeExecutor,
        snapshot_after: int = 1_000,
        configs: Mapping[str, object] | None = None,
        store_time: StoreTime | None = None,
    ) -> None:
        opened = Objects(store, pause)
        self.place = store
        self.clock = clock
        begun, began_ms = store_begun_with(configs), waiting.monotonic_ms()
        self.config: StoreConfig = open_store_config(opened, clock, new_id, begun)
        identity = StoreIdentity(self.config.store_id, opened.find, store.url, waiting.monotonic_ms, began_ms)
        self.store = store_at(store, self.config)
        self._objects = objects = opened.of_store(self.store, identity)
        sizes = _NEAR if objects.is_near else _FAR
        names = ("txn-read", "txn-look", "txn-work", "txn-send")
        readers, lookers, workers, senders = self._pools = [
            executors(size, name) for size, name in zip(sizes, names, strict=True)
        ]
        self._new_id = new_id
        self._waiting = waiting
        writer = new_id()[:WRITER_CHARS]
        store_time = store_time or store_time_of(objects, clock, new_id)
        self._cuts = CutStore(objects, clock, new_id, self.config, readers, store_time)
        self._pins = pins = PinStore(objects, clock, new_id)
        witnesses = Witnesses(objects, self._cuts, pins, waiting, lookers)
        begun_logs = BegunLogs(objects, self.config.store_id, self.config.ids, waiting.monotonic_ms, readers)
        internal = tuple(f"topics/{topic}/" for topic in self.config.internal_partitions)
        tools = LogTools(
            objects,
            clock,
            waiting,
            new_id,
            readers,
            writer,
            snapshot_after,
            store_time,
            lambda prefix: (
                begun_logs.loss(prefix) if prefix.startswith(internal) else witnesses.loss(self.logs, prefix)
            ),
            begun_logs,
        )
        topics = TopicRegistry(objects, clock, new_id, readers, waiting.monotonic_ms)
        settings = StoreSettings(objects, self.config, clock, new_id, readers, waiting.monotonic_ms)
        if begun:
            settings.check(begun)
        self.logs = Logs(tools, self.config, settings, topics, workers)
        producer_ids = ProducerIds(
            objects, clock, new_id, readers, self.config.first_block, lambda: ids_in_use(self.logs, executors)
        )
        self.coordinator = Coordinator(self.logs, producer_ids, clock)
        self._groups = GroupCoordinator(self.logs, clock)
        self._witnesses = witnesses
        self.admin = Admin(self.logs, self.coordinator, self._groups, clock, self.lost_topics)
        self._erasures = Erasures(objects, clock, new_id)
        self.maintenance = Maintenance(self.logs, self._cuts, pins)
        self.tables = Tables(
            self.logs,
            self._cuts,
            pins,
            clock,
            waiting,
            make_cut=lambda: self.cut(keep_ms=KEEP_CUT_MS),
            drive=self.coordinator.write_pending_markers,
        )
        self._sql: SqlEngine | None = None
        self._producer_tools = ProducerTools(self.logs, self.coordinator, self._groups, senders, waiting)

    @property
    def url(self) -> str:
        """The store's URL, without secrets."""
        return self.place.url

    @property
    def limits(self) -> StoreLimits:
        """What holds for every client of the store, as it is now, give or take five seconds."""
        return self.logs.settings.limits

    def producer(
        self,
        config: Mapping[str, object] | None = None,
        *,
        markers: MarkerMode = "inline",
        resume: ProducerIdAndEpoch | None = None,
        **settings: Unpack[ProducerKeywords],
    ) -> Producer:
        """A producer: idempotent, and with a `transactional_id` transactional. `markers="deferred"` leaves them
        to the sweep.

        Kafka's settings of a producer (docs/CONFIGS.md) are keywords, with underscores for dots, or a dict under
        Kafka's names: `producer({"transactional.id": "load", "linger.ms": 50})`. `InvalidConfigError` for one that can
        have no meaning here: none is ignored.

        `resume`: an identity that another process initialised, to go on with where that one prepared the work: its
        `init_transactions()` fences nobody, and is refused once something was added under that epoch.
        """
        return Producer(
            self._producer_tools,
            producer_settings(config, settings),
            markers=markers,
            resume=resume,
        )

    def consumer(
        self, config: Mapping[str, object] | None = None, **settings: Unpack[ConsumerKeywords]
    ) -> Consumer:
        """A consumer, with a group's offsets (`group_id`) or without. Settings are as a producer's."""
        return Consumer(
            self.logs,
            self._groups,
            self._new_id,
            self._waiting,
            self.find_cut,
            consumer_settings(config, settings),
        )

    def scan(
        self,
        topic: str | Sequence[str],
        *,
        partitions: Iterable[int] | None = None,
        start: Mapping[TopicPartition, int] | None = None,
        end: Mapping[TopicPartition, int] | None = None,
        start_timestamp: int | None = None,
        end_timestamp: int | None = None,
        isolation_level: IsolationLevel = "read_committed",
        cut: Cut | int | None = None,
        schema_version: SchemaVersion | None = None,
    ) -> Scan:
        """A bounded read of one topic or several, up to where they are now, or as of a cut.

        `start_timestamp`, in place of `start`, and `end_timestamp`, in place of `end` (ms): the first offset of that
        time in every partition, as `Consumer.offsets_for_times` has it; the end where there is none. A time is what the
        record's writer gave: `Scan.left_out` names partitions where the store got records since then that say an
        earlier one, as those of a host whose clock is behind do. `schema_version`:
        the columns as of that version of the topic's schema, not as they are now; `"cut"`: as they were when the cut
        was made.
        """
        return Scan(
            self.logs,
            [topic] if isinstance(topic, str) else list(topic),
            partitions=None if partitions is None else list(partitions),
            start=start,
            end=end,
            start_timestamp=start_timestamp,
            end_timestamp=end_timestamp,
            isolation_level=isolation_level,
            as_of=None if cut is None else AsOfCut(self.logs.tools, self.find_cut(cut)),
            schema_version=schema_version,
        )

    # --- cuts -----------------------------------------------------------------------------------------------

    def cut(self, topics: Iterable[str] | None = None, *, keep_ms: int | None = None) -> Cut:
        """A cut of these topics, or of all, and of all groups: offsets as of which everything can be read together.

        Guarantee: every committed transaction lies wholly below the cut or wholly at or above it, in all its partitions
        and groups; what is needed to read as of it is kept until it is deleted. Producers go on meanwhile, and it ends
        whatever they do. `keep_ms`: after so long clean-up deletes it; None: never.
        """
        names = None
        if topics is not None:
            names = checked_texts("cut", "topics", [topics] if isinstance(topics, str) else topics)
            if not names:
                raise InvalidRequestError(
                    "a cut of no topic", expected="some topics, or None for all of them"
                )
            for name in names:
                self.logs.topics.get(name)  # a wrong name takes no number
        return self._cut_maker().make(names, keep_ms)

    def look_at_cut(self, topics: Iterable[str], *, groups: Iterable[str] = ()) -> UnkeptCut:
        """A cut as `cut` makes it that nothing keeps: nothing is written, and its files stay as those of a scan do.
        `groups`: those whose offsets as of the cut can be asked for.
        """
        partitions = {self.logs.group_partition(group).partition for group in groups}
        return self._cut_maker().look(list(dict.fromkeys(topics)), group_logs=partitions)

    def _cut_maker(self) -> CutMaker:
        drive = self.coordinator.write_pending_markers
        return CutMaker(self.logs, self._cuts, self.clock, self._waiting, drive)

    def cuts(self) -> Listing[Cut]:
        """The cuts that there are, oldest first; in `unreadable` those that are damaged."""
        return self._cuts.all()

    def missing_of_cuts(
        self, cuts: Iterable[Cut] | None = None, *, with_files: bool = True
    ) -> list[Unreadable]:
        """One error for each partition that lacks a snapshot which one of these cuts reads, or a data file, or has the
        file in another size; of all cuts when none is given. Data files are listed and not read. `with_files=False`:
        snapshots are listed as well, and none is read.
        """
        audit = CutsAudit(self.logs, self._cuts, with_files=with_files)
        return audit.missing(self.cuts() if cuts is None else cuts)

    def newest_cuts(self) -> Iterator[CutNumber]:
        """What became of the numbers whose cuts were not deleted, newest first, each read when it is asked for: for who
        needs the newest few of many. One made or deleted a moment ago may be missed.
        """
        return self._cuts.newest()

    def find_cut(self, cut: Cut | int) -> Cut:
        """The cut, or that of this number, which is there now. Raises `InvalidRequestError` where it is not."""
        return self._cuts.find(cut)

    def delete_cut(self, cut: Cut | int) -> None:
        """Delete a cut; a damaged one by its number. What only it needs may be deleted 24 hours later."""
        self._cuts.delete(self.find_cut(cut).number if isinstance(cut, Cut) else cut)

    def offsets_behind_cut(
        self, cut: Cut | int, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, int]:
        """The first offset of each partition that is not inside: where to begin with what came since. Raises
        `OffsetOutOfRangeError` where retention has deleted some of that.
        """
        found, wanted = self.find_cut(cut), list(partitions)
        topics = {topic.name: topic for topic in self.logs.look_up_topics(tp.topic for tp in wanted)}
        logs = [self.logs.get(tp.topic, topics[tp.topic].incarnation, tp.partition) for tp in wanted]
        states = self.logs.refresh_all(logs)
        return {
            tp: begin_behind(found, topics[tp.topic], tp.partition, state)
            for tp, state in zip(wanted, states, strict=True)
        }

    def cut_changes(self, earlier: Cut | int, later: Cut | int) -> CutChanges:
        """What became visible between two cuts: records by partition, and groups' positions."""
        return changes_between(self.logs, self.find_cut(earlier), self.find_cut(later))

    # --- backups --------------------------------------------------------------------------------------------

    def backup(
        self, to: str | ObjectStore, *, cut: int | None = None, progress: Progress = silent
    ) -> Manifest:
        """A backup of all topics and groups in the place of this URL, as of the cut of this number or of a fresh one.

        Guarantee: once it returns the backup is whole; it is incremental, and goes on where an earlier call was cut
        off. Producers go on meanwhile. `txn_engine.backup.restore` restores it. For a URL access and endpoint come from
        the environment, as in `connect`.
        """
        for lost in self.lost_topics():
            raise lost.error
        with store_errors():
            place = open_store(to) if isinstance(to, str) else to
        maker = BackupMaker(
            self.logs,
            Cuts(
                self.find_cut,
                lambda keep_ms: self.cut(keep_ms=keep_ms),
                self.delete_cut,
                self._cuts.claim_id,
            ),
            self.clock,
        )
        return maker.make(place, cut, progress)

    def take_new_id(self, *, execute: bool = False, watch_ms: int = WATCHED_MS) -> NewStoreId:
        """Give this store, which is a copy of another one's files, an id of its own; without `execute` only look
        whether that may be done.

        Guarantee: it may be killed anywhere, and run again. This engine, and whoever else has the copy open, is refused
        from then on. Raises `ConcurrentTransactionsError` where somebody writes to the copy within `watch_ms`.
        """

        def ends() -> dict[TransactionPartition, int]:
            looked = self.look_at_everything()[1]
            return {partition: state.log_end_offset for partition, state in looked.states.items()}

        refuse_if_written_to(ends, self._waiting, watch_ms, self.url)
        if not execute:
            return NewStoreId(self.url, self.config.store_id, "", executed=False)
        self._objects.check_identity_now()
        return give_new_id(self._objects, self.config, self._new_id)

    # --- erasure --------------------------------------------------------------------------------------------

    def erase(
        self,
        topic: str,
        where: str | Matcher,
        *,
        execute: bool = False,
        everything: bool = False,
        backups: str | ObjectStore | None = None,
        progress: Progress = silent,
    ) -> ErasureReport:
        """Erase the records of a topic that a condition in SQL (or a `Matcher`) chooses, for good; without `execute`
        only say which.

        Guarantee: once it returns, no data file of the topic holds one of them below the offsets that the report says,
        live, replaced, aborted or kept for a cut. What the report names is excepted, such as old versions that a bucket
        keeps of deleted objects. Other records stay as they were, at their offsets. Neither the condition nor a value
        is written anywhere. A read as of a cut, or of an earlier version of a table, does not show them either. It may
        be killed anywhere: the next erasure or clean-up goes on.
        What the topic has left from before it was deleted goes whole where it holds any; the topic may be deleted.

        `everything`: also where no record would be left. `backups`: where this store's backups are: those that hold any
        are named. Needs `txn-engine[sql]`. Raises `InvalidRequestError` for an invalid condition; nothing was written
        then.
        """
        info, is_deleted = self._erasable(topic)
        matcher_of = partial(self._matcher, where)
        former = FormerEraser(self.logs, topic, self._cuts, self._pins)
        matcher = matcher_of(info)
        if execute and not everything:
            refuse_constant(matcher)
        search: BackupsSearch | None = None
        held: list[StillHeld] = []
        stores = [self._objects.store]
        if backups is not None:
            with store_errors():
                place = open_store(backups, create=False) if isinstance(backups, str) else backups
            search = BackupsSearch(self.logs, place, info, matcher_of)
            held = search.held()  # before anything is done: the place may be the wrong one
            stores.append(place)
        report = ErasureReport(topic, info.incarnation, execute, ())
        if not is_deleted:
            eraser = self._topic_eraser(info, progress)
            report = eraser.erase(matcher, everything=everything) if execute else eraser.look(matcher)
        before, written = former.erase(matcher_of) if execute else (former.look(matcher_of), [])
        if execute and search is not None:
            held = search.held()  # one may have been made meanwhile
        leftovers, staged = take_leftovers(stores, execute=execute)
        would_delete = 0 if execute else report.records
        versions = held_by_versions(stores[0], topic, would_delete=would_delete)
        versions += [each for store in stores[1:] for each in held_by_versions(store, topic)]
        return replace(
            report,
            former=tuple(before),
            leftovers=leftovers,
            still_held=(*report.still_held, *written, *staged, *versions, *held),
        )

    def _erasable(self, topic: str) -> tuple[Topic, bool]:
        """The topic, or the last one of this name, and whether that was deleted."""
        try:
            return self.logs.topics.look_up(topic), False
        except UnknownTopicOrPartitionError:
            if not (deleted := self.logs.topics.deleted(topic)):
                raise
            last = deleted[-1]
        with suppress(CorruptObjectError):  # half removed: it is as it was made then
            last = self.logs.topics.as_left(last)
        return last, True

    def _matcher(self, where: str | Matcher, topic: Topic) -> Matcher:
        if not isinstance(where, str):
            return where
        with imports_named("erase"):
            from txn_engine.sql.interruptible import interruptibly
            from txn_engine.sql.predicate import SqlPredicate
        return interruptibly(lambda: SqlPredicate(where, topic.held.schema, topic=topic.name))

    def finish_erasures(self, topic: str | None = None, *, progress: Progress = silent) -> Listing[Finished]:
        """Finish the erasures that were begun and cut off, of one topic or of all; in `unreadable` the topics where
        that could not be done.
        """
        survey = None if topic is not None else self.logs.topics.survey_each()
        topics = [self.logs.topics.look_up(topic)] if topic is not None else ()
        done: list[Finished] = []
        unreadable = [] if survey is None else list(survey.unreadable)
        for info in topics if survey is None else survey.topics:
            try:
                with one_place(info.name):
                    done += self._topic_eraser(info, progress).finish_begun()
            except (StoreUnavailableError, InconsistentClusterIdError):
                raise
            except TxnEngineError as error:
                unreadable.append(Unreadable(info.name, WHOLE_TOPIC, error))
        return Listing(done, unreadable)

    def _topic_eraser(self, topic: Topic, progress: Progress) -> TopicEraser:
        return TopicEraser(self.logs, topic, self._erasures, self._cuts, self._pins, self.tables, progress)

    # --- SQL ------------------------------------------------------------------------------------------------

    def sql(
        self,
        query: str,
        *,
        cut: Cut | int | None = None,
        schema_version: SchemaVersion | None = None,
        memory_mb: int | None = None,
        threads: int | None = None,
    ) -> pa.Table:
        """The rows of one SELECT, by DuckDB over the committed files of the topics that it names.

        Each topic is a table: its columns, `_topic`, `_partition`, `_offset` and `_timestamp`; a name with dots or
        dashes stands in double quotes. All topics are read as of the same cut: the one that is named, or one made for
        this query, which writes nothing and is gone with it; its files stay for 24 hours. A column that is selected as
        it stands has the type that `scan` gives it, all else DuckDB's. Checksums are not looked at.
        `schema_version`: the columns of the topics, as `scan` has it.

        `memory_mb`, `threads`: what the query may take; else TXN_ENGINE_SQL_MEMORY_MB and TXN_ENGINE_SQL_THREADS, or
        half of the machine's memory and all of its cores. Needs `txn-engine[sql]`. Raises `InvalidRequestError` for
        what is no query, for SQL that does more than read topics, and for what DuckDB refuses.
        """
        with imports_named("sql"):
            from txn_engine.sql.query import SqlEngine
        if self._sql is None:
            self._sql = SqlEngine(self.logs, self._cut_maker().look)
        found = None if cut is None else self.find_cut(cut)
        return self._sql.run(
            query, found, schema_version=schema_version, memory_mb=memory_mb, threads=threads
        )

    def partition(self, topic: str, partition: int) -> PartitionLog:
        """The log of one partition. Raises `UnknownTopicOrPartitionError`."""
        return PartitionLog(self.logs, topic, partition)

    def unreadable_producer_ids(self, looked: Looked | None = None) -> list[CorruptObjectError]:
        """What has the name of a block of producer ids and is none, of the newest hundred. `looked`: the logs, whose
        producers' blocks have to be there.
        """
        wrong = unreadable_blocks(self._objects)
        if looked is not None:
            wrong += lost_blocks(self._objects, ids_of(looked.states.values()), self.config.first_block)
        return wrong

    def look_at_everything(self) -> tuple[Survey, Looked]:
        """All topics, and the end of every log: what can be read, and the names of what cannot."""
        survey = self.logs.topics.survey_each()
        internal = [at for topic in self.config.internal_partitions for at in self.logs.internal(topic)]
        users = [
            TransactionPartition(topic.name, topic.incarnation, number)
            for topic in survey.topics
            for number in range(topic.partitions)
        ]
        return survey, self.logs.look([*internal, *users])

    def lost_topics(self) -> list[Unreadable]:
        """The topics that cuts, groups or transactions name and of which no object is left, each with its error."""
        return self._witnesses.lost_topics(self.logs)

    def close(self) -> None:
        """Let go of threads and connections, once what is under way is settled."""
        if self._sql is not None:
            self._sql.close()
        for pool in reversed(self._pools):  # each pool works with those before it
            pool.shutdown(wait=True)
        self.store.close()
        self.place.close()

    def __repr__(self) -> str:
        return f"<Engine of {self.url}>"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
