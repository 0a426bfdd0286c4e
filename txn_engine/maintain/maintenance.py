"""The jobs that keep a ledger small and quick: compaction, retention, sealing, clean-up, producer expiry."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import TypeVar

from storage.reasons import StoreReason
from txn_engine.arguments import checks_arguments
from txn_engine.errors import (
    CorruptObjectError,
    InconsistentClusterIdError,
    InvalidRequestError,
    StoreFaultError,
    StoreUnavailableError,
    TxnEngineError,
)
from txn_engine.log.cuts import CutStore
from txn_engine.log.entry_log import EntryLog
from txn_engine.log.logs import Logs
from txn_engine.log.pins import PinStore
from txn_engine.log.store_config import CONSUMER_OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC
from txn_engine.log.store_time import Moment
from txn_engine.log.topics import Topic, is_topic_name
from txn_engine.maintain import compaction, idle_producers, retention, sealing
from txn_engine.maintain.deleted_topics import dead_incarnations, is_long_dead, remove
from txn_engine.maintain.deleting import Cleaner
from txn_engine.maintain.in_process import InProcess
from txn_engine.maintain.outcomes import Outcomes, Overtaken
from txn_engine.maintain.overtaken import OvertakenError
from txn_engine.maintain.policy import DEFAULT_POLICY, MaintenancePolicy
from txn_engine.maintain.reports import (
    Cleaned,
    Compacted,
    Expired,
    MaintenanceReport,
    Removed,
    Sealed,
    Trimmed,
)
from txn_engine.maintain.target import Target
from txn_engine.maintain.workers import Workers
from txn_engine.reasons import Reason
from txn_engine.unreadable import DAMAGE, WHOLE_TOPIC, Unreadable, one_place

Done = TypeVar("Done")
Result = TypeVar("Result")
Progress = Callable[[str, int, int], None]
"""Called with the partition that was done, how many are done, and of how many."""

_TRIES = 5
_INTERNAL = (TRANSACTION_STATE_TOPIC, CONSUMER_OFFSETS_TOPIC)


@checks_arguments
class Maintenance:
    """Retention, compaction and clean-up (PROTOCOL.md, sections 1 and 6), by hand or on a schedule.

    Every job may be run at any time, beside writers, readers and another run of itself, and may be killed anywhere:
    the next run goes on. It does what is due, and nothing where nothing is. Each decides on what it read back from the
    store. Ages are counted to the time that the store's clock says when the job begins (decision 33): a job that goes
    by ages raises `InvalidTimestampError` where this machine's clock is more than five minutes off it. A dry run does
    not ask, because that means to put an object: it goes by this machine's clock.

    All take a topic, or a topic and a partition; none means all of them, the internal topics too. With `dry_run`
    nothing is written, and the report says what would be. A partition that fails is in the report's `failures`, and the
    others are done all the same: whatever was raised there, what the store refused to give, list, write or delete too.

    `StoreUnavailableError` ends the job, and so does `InconsistentClusterIdError`. `StoreAccessError` is raised once
    all were tried: where the store gives nothing of any partition, or where nothing was done and all that failed is
    writes it refused.
    """

    def __init__(self, logs: Logs, cuts: CutStore, pins: PinStore) -> None:
        self._logs = logs
        self._cuts = cuts
        self._pins = pins

    def compact(
        self,
        topic: str | None = None,
        partition: int | None = None,
        *,
        policy: MaintenancePolicy = DEFAULT_POLICY,
        dry_run: bool = False,
        progress: Progress | None = None,
        workers: Workers | None = None,
    ) -> MaintenanceReport[Compacted]:
        """Merge small committed files with their neighbours into larger ones; compact by key where the topic says so.

        In a topic with `cleanup.policy` compact the committed records below the last stable offset stay that have no
        later one of their key, and tombstones for `delete.retention.ms` after what they supersede is gone. Readers of
        any other see the same records at the same offsets before, during and after (read_committed; of aborted
        transactions nothing is left in the merged ranges). Memory: about three times `policy.target_file_bytes`, or
        `policy.key_memory_bytes`, and a bit for each record of a partition; a compacted topic's keys take up to
        `policy.spill_bytes` of the local disk while they are looked at. `workers`: who reads keys and makes files,
        where that is not this process (`txn_engine.spark.compact_topic`, `maintain.by_size`).
        """
        moment = self._moment(dry_run=dry_run)
        workers = workers or InProcess(policy)

        def job(target: Target) -> Compacted | None:
            if target.records is None:
                return None
            return compaction.compact(target, target.records, policy, workers, moment, dry_run=dry_run)

        return self._run(job, topic, partition, dry_run, progress, at_once=False, with_internal=False)

    def retain(
        self,
        topic: str | None = None,
        partition: int | None = None,
        *,
        policy: MaintenancePolicy = DEFAULT_POLICY,
        dry_run: bool = False,
        progress: Progress | None = None,
    ) -> MaintenanceReport[Trimmed]:
        """Move where partitions begin: records older than the topic's `retention_ms`, entries that a snapshot holds.

        Records go by whole files, once the newest record of each is old and the log has had it for as long, and never
        at or above the last stable offset. Entries
        younger than `policy.entries_age_ms` stay, and so do all from the last one inside the newest snapshot of that
        age; it and the next one are read back and compared with a replay first. What a trim leaves behind is deleted
        and sealed by `clean` and `seal`.
        """
        moment = self._moment(dry_run=dry_run)
        job = partial(retention.retain, policy=policy, moment=moment, dry_run=dry_run)
        return self._run(job, topic, partition, dry_run, progress)

    def seal(
        self,
        topic: str | None = None,
        partition: int | None = None,
        *,
        dry_run: bool = False,
        progress: Progress | None = None,
    ) -> MaintenanceReport[Sealed]:
        """Overwrite the entries below each partition's `entries_start` with seals, upwards from where a run stopped.

        Only below an `entries_start` that was read back, and only where two sound snapshots reach beyond it.
        """
        job = partial(sealing.seal, dry_run=dry_run)
        return self._run(job, topic, partition, dry_run, progress)

    def clean(
        self,
        topic: str | None = None,
        partition: int | None = None,
        *,
        policy: MaintenancePolicy = DEFAULT_POLICY,
        dry_run: bool = False,
        progress: Progress | None = None,
    ) -> MaintenanceReport[Cleaned]:
        """Delete snapshots that two newer verified ones make needless, files dead for 24 hours, and orphans; cuts that
        have expired; pins of tables' versions that were superseded `policy.tables_age_ms` ago. What a cut or a table
        needs stays.

        A file without an entry is deleted only after a `floor` entry that refuses its name from then on was read back,
        with a replay through it that does not name the file.
        """
        moment = self._moment(dry_run=dry_run)
        has_room = self._tend_cuts(moment, dry_run=dry_run)

        def job(target: Target) -> Cleaned | None:
            if target.records is not None and target.partition == 0:
                incarnation = target.records.incarnation
                self._pins.tend(target.topic, incarnation, policy.tables_age_ms, moment, dry_run=dry_run)
            return Cleaner(target, policy, moment, dry_run=dry_run).run()

        report = self._run(job, topic, partition, dry_run, progress)
        if not has_room:
            self._cuts.tend(
                dry_run=dry_run, moment=moment
            )  # there is room now, or this says that there is none
        return report

    def _tend_cuts(self, moment: Moment, *, dry_run: bool) -> bool:
        """Delete cuts that have expired; False where a full disk does not take what says so. What they keep stays then,
        and the rest of the clean-up makes room.
        """
        try:
            self._cuts.tend(dry_run=dry_run, moment=moment)
        except StoreFaultError as error:
            if error.reason is not StoreReason.NO_ROOM:
                raise
            return False
        return True

    def expire_producers(
        self,
        topic: str | None = None,
        partition: int | None = None,
        *,
        dry_run: bool = False,
        progress: Progress | None = None,
    ) -> MaintenanceReport[Expired]:
        """Forget producers without a row for the store's `producer_id_expiration_ms`, none with a transaction open.

        Kafka's check of that name, every ten minutes there. A forgotten producer that comes back is a new one: its next
        batch is taken at any sequence number.
        """
        moment, idle_ms = self._moment(dry_run=dry_run), self._logs.settings.limits.producer_id_expiration_ms
        job = partial(idle_producers.expire_producers, moment=moment, idle_ms=idle_ms, dry_run=dry_run)
        return self._run(job, topic, partition, dry_run, progress)

    def remove_deleted_topics(
        self, topic: str | None = None, *, dry_run: bool = False
    ) -> MaintenanceReport[Removed]:
        """Delete the objects of incarnations that were deleted 24 hours ago; of one topic's name, or of all.

        Their tombstones stay, and so do the objects that say what they were.
        """
        moment = self._moment(dry_run=dry_run)
        objects = self._logs.tools.objects
        folders = [topic] if topic is not None else objects.folders("topics")
        outcomes: Outcomes[Removed] = Outcomes()
        for name in filter(is_topic_name, folders):  # what is under any other name is not ours
            try:
                with one_place(name):
                    for dead in dead_incarnations(objects, name):
                        if is_long_dead(objects, dead, moment):
                            outcomes.note(remove(objects, dead, dry_run=dry_run))
            except (StoreUnavailableError, InconsistentClusterIdError):
                raise
            except TxnEngineError as error:
                outcomes.note(Unreadable(name, WHOLE_TOPIC, error))
            else:
                outcomes.note(None)
        if outcomes.refusal is not None:
            raise outcomes.refusal
        objects.confirm()
        return outcomes.report(dry_run=dry_run)

    def _moment(self, *, dry_run: bool) -> Moment:
        """The store's time at the beginning of a job."""
        store_time = self._logs.tools.store_time
        return store_time.estimate() if dry_run else store_time.now()

    # --- which partitions, and one after the other ------------------------------------------------------------

    def _targets(self, topic: str | None, partition: int | None) -> tuple[list[Target], list[Unreadable]]:
        """The partitions that a job is about, and the topics of which no partition is known: their own objects cannot
        be read.
        """
        if topic is None and partition is not None:
            raise InvalidRequestError(
                "a partition without a topic",
                expected="both, or a topic alone, or neither",
                reason=Reason.PARTITION_WITHOUT_TOPIC,
            )
        if topic is not None:
            return list(self._partitions(topic, partition)), []
        survey = self._logs.topics.survey_each()
        targets = [target for name in _INTERNAL for target in self._partitions(name, None)]
        targets += [target for info in survey.topics for target in self._partitions_of(info)]
        return targets, list(survey.unreadable)

    def _partitions(self, name: str, partition: int | None) -> Iterator[Target]:
        if name not in _INTERNAL:
            yield from self._partitions_of(self._logs.topics.look_up(name), partition)
            return
        if partition is not None:
            self._logs.check_internal(name, partition)
        for at in self._logs.internal(name):
            if partition in (None, at.partition):
                yield self._target(name, at.partition, self._logs.of(at), None)

    def _partitions_of(self, topic: Topic, partition: int | None = None) -> Iterator[Target]:
        if partition is not None:
            topic.check_partition(partition)
        for number in range(topic.partitions) if partition is None else (partition,):
            log = self._logs.get(topic.name, topic.incarnation, number)
            yield self._target(topic.name, number, log, topic)

    def _target(self, name: str, partition: int, log: EntryLog, records: Topic | None) -> Target:
        tools, topics = self._logs.tools, self._logs.topics
        return Target(name, partition, log, tools, self._cuts, self._pins, records, topics)

    def _run(
        self,
        job: Callable[[Target], Done | None],
        topic: str | None,
        partition: int | None,
        dry_run: bool,
        progress: Progress | None,
        *,
        at_once: bool = True,
        with_internal: bool = True,
    ) -> MaintenanceReport[Done]:
        """Do the job on each partition, several at once unless each needs much memory; what cannot be read is among
        the failures.
        """
        every, unreadable = self._targets(topic, partition)
        targets = [target for target in every if with_internal or target.records is not None]
        outcomes: Outcomes[Done] = Outcomes()
        for each in unreadable:
            outcomes.note(each)
        attempt = partial(_attempt, job)
        results = self._at_once(attempt, targets) if at_once else map(attempt, targets)
        for number, (target, result) in enumerate(zip(targets, results, strict=True), start=1):
            outcomes.note(result)
            if progress is not None:
                progress(f"{target.topic}-{target.partition}", number, len(targets))
        if outcomes.refusal is not None and not any(map(_can_be_read, every)):
            raise outcomes.refusal
        self._logs.tools.objects.confirm()
        return outcomes.report(dry_run=dry_run)

    def _at_once(self, attempt: Callable[[Target], Result], targets: list[Target]) -> Iterator[Result]:
        """The results in the targets' order; whoever stops asking leaves those undone that were not begun."""
        futures = [self._logs.workers.submit(attempt, target) for target in targets]
        try:
            for future in futures:
                yield future.result()
        finally:
            for future in futures:
                future.cancel()


def _attempt(job: Callable[[Target], Done | None], target: Target) -> Done | Overtaken | Unreadable | None:
    """The job on one partition; again from the start where another run was quicker. Raises only where the store does
    not answer.
    """
    try:
        with one_place(target.topic, target.partition):
            return _in_its_tries(job, target)
    except (StoreUnavailableError, InconsistentClusterIdError):
        raise
    except TxnEngineError as error:
        return Unreadable(target.topic, target.partition, error)


def _in_its_tries(job: Callable[[Target], Done | None], target: Target) -> Done | Overtaken | None:
    for _ in range(_TRIES):
        try:
            return job(target.as_of_now())
        except OvertakenError as error:
            overtaken = str(error)
        except CorruptObjectError as error:
            if not _was_erased(target, error):
                raise
            overtaken = f"records were erased from {error.place}"
    seen = f"another run of maintenance was quicker {_TRIES} times; the last time {overtaken}; run it again"
    return Overtaken(target.topic, target.partition, seen)


def _was_erased(target: Target, error: CorruptObjectError) -> bool:
    """Whether what a job missed is a file of which records were erased meanwhile: it was live, and went at once."""
    _, found, name = str(error.place).rpartition("/data/")
    return bool(found) and f"data/{name}" in target.read_back().erased


def _can_be_read(target: Target) -> bool:
    try:
        with one_place(target.topic, target.partition):
            target.read_back()
    except DAMAGE:
        return False
    return True
