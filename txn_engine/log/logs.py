"""All logs of a store, one shared view each."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from dataclasses import dataclass

from txn_engine.errors import IllegalStateError, UnknownTopicOrPartitionError
from txn_engine.log.entry_format import OFFSETS_LOG, TRANSACTION_LOG, USER_LOG, LogKind
from txn_engine.log.entry_log import EntryLog, LogTools
from txn_engine.log.file_versions import FileVersions
from txn_engine.log.own_process import OwnLock, OwnProcess
from txn_engine.log.signal_handlers import refuse_in_a_signal_handler
from txn_engine.log.store_config import CONSUMER_OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC, StoreConfig
from txn_engine.log.store_settings import StoreSettings
from txn_engine.log.topics import Topic, TopicRegistry, partition_prefix
from txn_engine.protocol.hashing import partition_for_id
from txn_engine.protocol.partition import PartitionState
from txn_engine.protocol.transaction_rows import TransactionPartition
from txn_engine.reasons import Reason
from txn_engine.unreadable import DAMAGE, Unreadable, one_place, raise_if_refused_everywhere


@dataclass(frozen=True, slots=True)
class Looked:
    """The states of the logs that could be read, in the order asked, and the partitions that could not."""

    states: Mapping[TransactionPartition, PartitionState]
    unreadable: tuple[Unreadable, ...]


class Logs:
    """Where every part of the engine gets its logs from.

    `workers` runs whole operations on several logs at once. A task on it may wait for the logs' own
    read-ahead threads, never for another worker.
    """

    def __init__(
        self,
        tools: LogTools,
        config: StoreConfig,
        settings: StoreSettings,
        topics: TopicRegistry,
        workers: Executor,
    ) -> None:
        self.tools = tools
        self.workers = workers
        self.config = config
        self.settings = settings
        self.topics = topics
        self.file_versions = FileVersions(tools.objects, topics, workers)
        self._lock = OwnLock()
        self._logs: dict[str, EntryLog] = {}

    def get(self, topic: str, incarnation: int, partition: int) -> EntryLog:
        """The log of a partition; the same object for all who ask."""
        prefix = partition_prefix(topic, incarnation, partition)
        with self._lock.here():
            log = self._logs.get(prefix)
            if log is None:
                log = self._logs[prefix] = EntryLog(self.tools, prefix, _kind(topic))
            return log

    def of(self, partition: TransactionPartition) -> EntryLog:
        """The log of a transaction's partition."""
        return self.get(partition.topic, partition.incarnation, partition.partition)

    def coordinator(self, transactional_id: str) -> EntryLog:
        """The log that keeps a transactional id's rows."""
        return self.get(TRANSACTION_STATE_TOPIC, 0, self.coordinator_partition(transactional_id))

    def coordinator_partition(self, transactional_id: str) -> int:
        """The partition of `__transaction_state` that keeps an id's rows."""
        return partition_for_id(transactional_id, self.config.internal_partitions[TRANSACTION_STATE_TOPIC])

    def group_partition(self, group_id: str) -> TransactionPartition:
        """The partition of `__consumer_offsets` that keeps a group's offsets."""
        count = self.config.internal_partitions[CONSUMER_OFFSETS_TOPIC]
        return TransactionPartition(CONSUMER_OFFSETS_TOPIC, 0, partition_for_id(group_id, count))

    def check_internal(self, topic: str, partition: int) -> None:
        """Raise unless the internal topic has this partition."""
        count = self.config.internal_partitions[topic]
        if not 0 <= partition < count:
            raise UnknownTopicOrPartitionError(
                f"partition {partition} of {topic!r}", expected=f"0 to {count - 1}"
            )

    def internal(self, topic: str) -> list[TransactionPartition]:
        """All partitions of an internal topic."""
        count = self.config.internal_partitions[topic]
        return [TransactionPartition(topic, 0, number) for number in range(count)]

    def ask_whether_current(self, topic: str, incarnation: int) -> Future[bool]:
        """Ask whether this incarnation is still the topic of its name, while the caller goes on to upload.

        A writer asks in every call, after the call began: what goes to a deleted incarnation nobody will read. Where
        an object is a file away the answer costs less than a thread to wait for it.
        """
        if not self.tools.objects.is_near:
            return self.workers.submit(self.topics.is_current, topic, incarnation)
        answer: Future[bool] = Future()
        answer.set_result(self.topics.is_current(topic, incarnation))
        return answer

    def confirm_soon(self) -> Callable[[], None]:
        """Begin to confirm that what was written until now went into the store that was opened, while the caller goes
        on; what it returns waits for the answer, and raises as `Objects.confirm`.
        """
        objects = self.tools.objects
        return objects.confirm if objects.is_near else self.workers.submit(objects.confirm).result

    def look_up_topics(self, names: Iterable[str]) -> list[Topic]:
        """These topics as the store has them now, looked up at once. Raises `UnknownTopicOrPartitionError`."""
        return list(self.workers.map(self.topics.look_up, dict.fromkeys(names)))

    def refresh_all(self, logs: Iterable[EntryLog]) -> list[PartitionState]:
        """Look at the ends of several logs at once; raises where one of them cannot be read."""
        asked = list(logs)
        if len(asked) == 1:
            return [asked[0].refresh()]
        return list(self.workers.map(EntryLog.refresh, asked))

    def look(self, partitions: Iterable[TransactionPartition]) -> Looked:
        """Look at the ends of many logs at once: all that can be read, and the names of those that cannot.

        Raises where the store does not answer, or refuses every one of them.
        """
        looked = self.look_at_each(partitions)
        raise_if_refused_everywhere(looked.unreadable, found_any=bool(looked.states))
        return looked

    def look_at_each(self, partitions: Iterable[TransactionPartition]) -> Looked:
        """As `look`, for who has looked elsewhere too: raises where the store does not answer, and for no refusal."""
        asked = list(dict.fromkeys(partitions))
        states: dict[TransactionPartition, PartitionState] = {}
        unreadable: list[Unreadable] = []
        for partition, found in zip(asked, self.workers.map(self._state_or_damage, asked), strict=True):
            if isinstance(found, Unreadable):
                unreadable.append(found)
            else:
                states[partition] = found
        return Looked(states, tuple(unreadable))

    def _state_or_damage(self, partition: TransactionPartition) -> PartitionState | Unreadable:
        try:
            with one_place(partition.topic, partition.partition):
                return self.of(partition).refresh()
        except DAMAGE as error:
            return Unreadable(partition.topic, partition.partition, error)


def _kind(topic: str) -> LogKind:
    return {TRANSACTION_STATE_TOPIC: TRANSACTION_LOG, CONSUMER_OFFSETS_TOPIC: OFFSETS_LOG}.get(
        topic, USER_LOG
    )


class _IdleThreads(threading.Semaphore):
    """How many threads of a pool have nothing to do. A real semaphore takes its lock in Python code: Ctrl-C there, in
    `submit`, would leave it held, and no thread of the pool would ever fetch work again.
    """

    def __init__(self) -> None:
        super().__init__(0)
        self._idle: deque[None] = deque()

    def acquire(self, blocking: bool = True, timeout: float | None = None) -> bool:  # noqa: ARG002 - it never waits
        """Whether one was idle; it is not counted any more."""
        try:
            self._idle.pop()
        except IndexError:
            return False
        return True

    def release(self, n: int = 1) -> None:
        """So many more."""
        self._idle.extend([None] * n)


class ForkSafeExecutor(ThreadPoolExecutor):
    """Threads that know their process: used in a forked child, it refuses instead of waiting for ever."""

    def __init__(self, threads: int, name: str) -> None:
        super().__init__(threads, thread_name_prefix=name)
        self._idle_semaphore = _IdleThreads()
        self._process = OwnProcess()

    def submit(self, fn, /, *args, **kwargs):  # type: ignore[no-untyped-def]
        """Run in a thread of this process."""
        self._process.check()
        refuse_in_a_signal_handler()  # the pool's locks may be held by what it interrupted
        try:
            return super().submit(fn, *args, **kwargs)
        except RuntimeError as error:
            if "cannot schedule" not in str(error):
                raise  # no thread could be started
            raise IllegalStateError(
                "the engine is closed", expected="an open engine", reason=Reason.ENGINE_CLOSED
            ) from error

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """End the threads. A child has none of them, and its copy of their lock may be held."""
        if self._process.is_here:
            super().shutdown(wait, cancel_futures=cancel_futures)
