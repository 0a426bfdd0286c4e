"""Kafka's transaction coordinator as a library: InitProducerId, AddPartitionsToTxn, EndTxn, and the sweeps."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import cache, partial

from txn_engine.arguments import check_flags
from txn_engine.clock import Clock
from txn_engine.coordinator.markers import MarkerWriter
from txn_engine.coordinator.producer_ids import ProducerIds
from txn_engine.errors import (
    ConcurrentTransactionsError,
    InvalidRequestError,
    InvalidTimestampError,
    TxnEngineError,
)
from txn_engine.log.logs import Logs
from txn_engine.log.store_config import CONSUMER_OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC
from txn_engine.names import NEW_NAME, is_new_name, is_storable, printable
from txn_engine.protocol import transactions
from txn_engine.protocol.batches import NO_PRODUCER_ID
from txn_engine.protocol.partition import PartitionState
from txn_engine.protocol.proposals import Appended, TransactionProposal
from txn_engine.protocol.transaction_rows import (
    StoredRow,
    TransactionPartition,
    TransactionRow,
    TransactionState,
)
from txn_engine.protocol.transactions import Decision
from txn_engine.reasons import Reason
from txn_engine.types import MarkerMode, ProducerIdAndEpoch, SweepReport, TopicPartition
from txn_engine.unreadable import Listing, one_place

MAX_TRANSACTIONAL_ID_CHARS = 1_000
_LOGGER = logging.getLogger(__name__)


class Coordinator:
    """Answers as Kafka's broker does; every answer rests on a row that is durable, or on the log's end as it
    was then.
    """

    def __init__(self, logs: Logs, producer_ids: ProducerIds, clock: Clock) -> None:
        self._logs = logs
        self._producer_ids = producer_ids
        self._clock = clock
        self._markers = MarkerWriter(logs, clock)

    # --- requests -------------------------------------------------------------------------------------------

    def check_id(self, transactional_id: str) -> None:
        """Raise `InvalidRequestError` for what is no id, and for a new one that nobody could tell from others."""
        _check_id(transactional_id)
        if not is_new_name(transactional_id) and self.current(transactional_id) is None:
            _check_new_id(transactional_id)

    def init_producer_id(
        self,
        transactional_id: str | None,
        *,
        transaction_timeout_ms: int = 60_000,
        producer_id: int = -1,
        producer_epoch: int = -1,
    ) -> ProducerIdAndEpoch:
        """Give out a producer id and epoch, fencing whoever had the transactional id before (KIP-98, KIP-360).

        `producer_id`, `producer_epoch`: what the caller holds, to go on after an error without being fenced by itself.
        Raises `ConcurrentTransactionsError` while a transaction of this id is being ended (and where this very call
        decided to abort it): finish its markers and try again.
        """
        if transactional_id is None:
            return ProducerIdAndEpoch(self._producer_ids.take(), 0)
        identity, _ = self.initialise(
            transactional_id,
            transaction_timeout_ms=transaction_timeout_ms,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
        )
        return identity

    def initialise(
        self, transactional_id: str, *, transaction_timeout_ms: int, producer_id: int, producer_epoch: int
    ) -> tuple[ProducerIdAndEpoch, TransactionRow | None]:
        """As `init_producer_id`, with the id's row as it stands then."""
        _check_id(transactional_id)
        if (producer_id < 0) != (producer_epoch < 0):
            raise InvalidRequestError(
                f"producer id {producer_id} with epoch {producer_epoch}", expected="both or neither"
            )
        expected = ProducerIdAndEpoch(producer_id, producer_epoch) if producer_id >= 0 else None
        self._logs.settings.look_ahead()
        log = self._logs.coordinator(transactional_id)
        if not log.is_loaded:
            self._producer_ids.look_ahead()
            log.refresh()
        transactions.check_timeout(
            transaction_timeout_ms, self._logs.settings.limits.max_transaction_timeout_ms
        )

        def decide(current: StoredRow | None, new_producer_id: int) -> Decision:
            if current is None:
                _check_new_id(transactional_id)
            return transactions.init_producer_id(
                current,
                transactional_id=transactional_id,
                transaction_timeout_ms=transaction_timeout_ms,
                expected=expected,
                new_producer_id=new_producer_id,
                now_ms=self._clock(),
            )

        decision = self._decide(transactional_id, decide)
        if decision.concurrent:
            raise ConcurrentTransactionsError(
                "InitProducerId fenced an open transaction, which is being aborted",
                actor=f"transactional id {transactional_id!r}",
            )
        stored = self._stored(transactional_id)
        return decision.reply, None if stored is None else stored.row

    def _stored(self, transactional_id: str) -> StoredRow | None:
        """The id's latest row as last seen."""
        return self._logs.coordinator(transactional_id).view().transactions.get(transactional_id)

    def add_partitions(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: Iterable[TopicPartition],
    ) -> None:
        """Make partitions part of the transaction, durably, before anything is written there (AddPartitionsToTxn)."""
        _check_id(transactional_id)
        self.add(
            transactional_id,
            producer_id,
            producer_epoch,
            [self.resolve(partition) for partition in partitions],
        )
        self._logs.tools.objects.confirm()

    def add(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: Sequence[TransactionPartition],
        *,
        begins: bool = False,
    ) -> None:
        """As `add_partitions`, for partitions whose incarnation is known; nothing is acknowledged by it.

        `begins`: nobody may have added anything at this epoch before (`InvalidTxnStateError`).
        """
        decide = partial(
            transactions.add_partitions,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            partitions=partitions,
            begins=begins,
            now_ms=self._clock(),
        )
        proposal = TransactionProposal(transactional_id, decide)
        self._logs.coordinator(transactional_id).append_one(proposal, confirm=False)

    def verify(
        self, transactional_id: str, producer_id: int, producer_epoch: int, partition: TransactionPartition
    ) -> None:
        """Raise unless the transaction is Ongoing, at this epoch, with this partition in it, as of now."""
        transactions.verify_partition(
            self.current(transactional_id),
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            partition=partition,
        )

    def end_transaction(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        *,
        committed: bool,
        markers: MarkerMode = "inline",
        run_id: str | None = None,
    ) -> ProducerIdAndEpoch:
        """Decide a transaction, and answer with the id and epoch to go on with (EndTxn, transactions V2).

        Guarantee: once this returns the transaction is decided and can only roll forward. "inline" also writes the
        markers and completes it, as far as that goes: what is left is for the marker sweep.
        """
        if markers not in ("inline", "deferred"):
            raise InvalidRequestError(f"markers={markers!r}", expected="'inline' or 'deferred'")
        reply, decision = self.decide_end(
            transactional_id, producer_id, producer_epoch, committed=committed, run_id=run_id
        )
        confirmed = self._logs.confirm_soon()
        if markers == "inline" and decision is not None:
            for failure in self.mark(decision) or self.complete(decision):
                _LOGGER.warning("decided, but not complete yet; the marker sweep will finish it: %s", failure)
        confirmed()
        return reply

    def decide_end(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        *,
        committed: bool,
        run_id: str | None = None,
    ) -> tuple[ProducerIdAndEpoch, StoredRow | None]:
        """As `end_transaction`, of which only the decision is written: the answer, and the decision for `mark` and
        `complete`; None where nothing is left to do. It is for the caller to confirm that it went into this store.
        """
        check_flags("EndTxn", committed=committed)
        _check_id(transactional_id)

        def decide(current: StoredRow | None, new_producer_id: int) -> Decision:
            return transactions.end_transaction(
                current,
                producer_id=producer_id,
                producer_epoch=producer_epoch,
                committed=committed,
                run_id=run_id,
                new_producer_id=new_producer_id,
                now_ms=self._clock(),
            )

        decision = self._decide(transactional_id, decide)
        stored = None if decision.row is None else self._stored(transactional_id)
        return decision.reply, stored if stored is not None and stored.row.state.is_prepared else None

    def mark(self, decision: StoredRow) -> tuple[str, ...]:
        """Write the decision's markers: readers see it once they are all there. Returns what failed, and raises
        nothing: the decision stands whatever happens here.
        """
        return self._markers.mark_alone(decision)

    def complete(self, decision: StoredRow) -> tuple[str, ...]:
        """Write the Complete row of a decision whose markers are all there. As `mark`, what fails is returned."""
        return self._markers.complete_alone(decision)

    def _decide(self, transactional_id: str, decide: Callable[[StoredRow | None, int], Decision]) -> Decision:
        """Write the row that `decide` asks for; its last call, on the state that the row was written on, is
        the answer.
        """
        made: list[Decision] = []

        def next_row(current: StoredRow | None) -> TransactionRow | None:
            made.append(self._judged(current, decide))
            return made[-1].row

        proposal = TransactionProposal(transactional_id, next_row)
        self._logs.coordinator(transactional_id).append_one(proposal, confirm=False)
        return made[-1]

    def _judged(
        self, current: StoredRow | None, decide: Callable[[StoredRow | None, int], Decision]
    ) -> Decision:
        """What `decide` says of the state. Each call takes a producer id of its own where it needs one: that a put is
        judged again does not mean that it left no row, so that the id of the first try may long be in use.
        """
        decision = decide(current, NO_PRODUCER_ID)
        return decide(current, self._producer_ids.take()) if decision.used_new_producer_id else decision

    def finish(self, transactional_id: str, *, has_looked: bool = False) -> SweepReport:
        """Write what is missing of this id's decided transaction, whoever decided it.

        `has_looked`: who was told CONCURRENT_TRANSACTIONS need not ask the store again who is meant. Such a caller
        would ask again at once, so a disk that is full or has failed is raised as `StoreFaultError`.
        """
        current = self._stored(transactional_id) if has_looked else self.current(transactional_id)
        if current is None or not current.row.state.is_prepared:
            return SweepReport()
        return self._markers.finish([current], raises_faults=has_looked)

    # --- what stands in the log -----------------------------------------------------------------------------

    def current(self, transactional_id: str) -> StoredRow | None:
        """The id's latest row as of now; None for one that was never initialised."""
        _check_id(transactional_id)
        return self._logs.coordinator(transactional_id).refresh().transactions.get(transactional_id)

    def renew(self, transactional_id: str, producer_id: int, producer_epoch: int) -> None:
        """Write the id's row again where it has been at rest for a day; without a look at the store before that.

        Raises `ProducerFencedError` or `InvalidProducerIdMappingError` where another has the id, or it has expired.
        """
        log = self._logs.coordinator(transactional_id)
        seen = log.view().transactions.get(transactional_id)
        now_ms = self._clock()
        if seen is not None and not transactions.is_renewal_due(seen, now_ms):
            return
        decide = partial(
            transactions.renew, producer_id=producer_id, producer_epoch=producer_epoch, now_ms=now_ms
        )
        log.append_one(TransactionProposal(transactional_id, decide))

    def was_committed(
        self, transactional_id: str, producer_id: int, producer_epoch: int, run_id: str | None = None
    ) -> bool | None:
        """Whether the log holds the decision to commit that was made by this very producer at this epoch.

        The client's own decision bumps its epoch by one, so nobody else's row can be mistaken for it. Where it is not
        found and the log's first entries are sealed, the id's latest row may still know that the run was never
        committed; else the answer is None: unknown, never "not committed".
        """
        log = self._logs.coordinator(transactional_id)
        for batch in log.batches():
            row = batch.row
            if (
                isinstance(row, TransactionRow)
                and row.transactional_id == transactional_id
                and row.state is TransactionState.PREPARE_COMMIT
                and (row.producer_id, row.last_producer_epoch) == (producer_id, producer_epoch)
            ):
                return True
        state = log.refresh()
        if state.entries_start == 0:
            return False
        latest = state.transactions.get(transactional_id)
        never = run_id is not None and latest is not None and latest.row.has_committed(run_id) is False
        return False if never else None

    def rows(self, partitions: Sequence[int] | None = None) -> Listing[StoredRow]:
        """The latest row of every id as of now, tombstones too, by coordinator partition and id.

        A coordinator partition that cannot be read is named in `unreadable`; its ids are not among the rows.
        """
        looked = self._logs.look(self._coordinators(partitions))
        rows = [row for state in looked.states.values() for _, row in sorted(state.transactions.items())]
        return Listing(rows, looked.unreadable)

    def _coordinators(self, partitions: Sequence[int] | None) -> list[TransactionPartition]:
        every = self._logs.internal(TRANSACTION_STATE_TOPIC)
        if partitions is None:
            return every
        unknown = [number for number in partitions if not 0 <= number < len(every)]
        if unknown:
            raise InvalidRequestError(f"coordinator partitions {unknown}", expected=f"0 to {len(every) - 1}")
        return [every[number] for number in partitions]

    def resolve(self, partition: TopicPartition) -> TransactionPartition:
        """The partition with the incarnation that its topic has now."""
        if partition.topic == CONSUMER_OFFSETS_TOPIC:
            self._logs.check_internal(*partition)
            return TransactionPartition(partition.topic, 0, partition.partition)
        topic = self._logs.topics.as_of_now(*partition)
        return TransactionPartition(topic.name, topic.incarnation, partition.partition)

    # --- sweeps ---------------------------------------------------------------------------------------------

    def abort_timed_out_transactions(self, *, partitions: Sequence[int] | None = None) -> SweepReport:
        """Fence and abort every transaction that has been open for longer than its timeout, and finish it."""
        now_ms = self._clock()

        def propose(stored: StoredRow) -> TransactionProposal | None:
            row = stored.row
            if not transactions.has_timed_out(stored, now_ms):
                return None
            time_out = partial(
                transactions.time_out,
                producer_id=row.producer_id,
                producer_epoch=row.producer_epoch,
                now_ms=now_ms,
            )
            return TransactionProposal(
                row.transactional_id, lambda current: self._judged(current, time_out).row
            )

        swept = self._sweep(partitions, propose)
        rows = [self._logs.coordinator(name).view().transactions[name] for name in swept.transactional_ids]
        finished = self._markers.finish([stored for stored in rows if stored.row.state.is_prepared])
        self._confirm(swept, finished)
        return replace(
            swept,
            partitions_marked=finished.partitions_marked,
            objects_written=swept.objects_written + finished.objects_written,
            failures=(*swept.failures, *finished.failures),
        )

    def write_pending_markers(self, *, partitions: Sequence[int] | None = None) -> SweepReport:
        """Finish every decided transaction, however young."""
        rows = self.rows(partitions)
        self._leave_snapshots(partitions)
        report = self._markers.finish([stored for stored in rows if stored.row.state.is_prepared])
        self._confirm(report)
        return replace(report, failures=(*map(str, rows.unreadable), *report.failures))

    def _confirm(self, *reports: SweepReport) -> None:
        """That this is the store still, before anybody is told that something was done."""
        if any(report.transactional_ids or report.objects_written for report in reports):
            self._logs.tools.objects.confirm()

    def expire_transactional_ids(self, *, partitions: Sequence[int] | None = None) -> SweepReport:
        """Put a tombstone for every id idle for the store's expiration time; its run ids stay known.

        An id that is idle by this machine's clock is judged by the store's, which is asked only then: this sweep runs
        every minute. `InvalidTimestampError`: the two clocks are too far apart.
        """
        clock_ms = self._clock()
        after_ms = self._logs.settings.limits.transactional_id_expiration_ms
        store_ms = cache(lambda: self._logs.tools.store_time.now().now_ms)

        def propose(stored: StoredRow) -> TransactionProposal | None:
            if not transactions.has_expired(stored, clock_ms, after_ms):
                return None
            now_ms = store_ms()
            if not transactions.has_expired(stored, now_ms, after_ms):
                return None
            decide = partial(transactions.expire, now_ms=now_ms, expiration_ms=after_ms)
            return TransactionProposal(stored.row.transactional_id, decide)

        return self._sweep(partitions, propose)

    def _leave_snapshots(self, partitions: Sequence[int] | None) -> None:
        """Where no snapshots are taken each sweep would replay all that the coordinator's logs ever held."""
        for partition in self._coordinators(partitions):
            self._logs.of(partition).leave_snapshot_of_a_sweep()

    def _sweep(
        self, partitions: Sequence[int] | None, propose: Callable[[StoredRow], TransactionProposal | None]
    ) -> SweepReport:
        """Put what `propose` asks for, one entry a coordinator partition; an id that moved on meanwhile is
        left alone. A coordinator partition that cannot be read is among the failures; the others are swept.
        """
        looked = self._logs.look(self._coordinators(partitions))
        self._leave_snapshots(partitions)
        swept: list[str] = []
        failures = [str(each) for each in looked.unreadable]
        objects = 0
        for partition, state in looked.states.items():
            try:
                with one_place(partition.topic, partition.partition):
                    done = self._sweep_one(partition, state, propose)
            except InvalidTimestampError:
                raise
            except TxnEngineError as error:
                failures.append(str(error))
                continue
            swept += done
            objects += bool(done)
        return SweepReport(tuple(swept), objects_written=objects, failures=tuple(failures))

    def _sweep_one(
        self,
        partition: TransactionPartition,
        state: PartitionState,
        propose: Callable[[StoredRow], TransactionProposal | None],
    ) -> list[str]:
        """The ids of this coordinator partition for which a row was put."""
        proposals = [
            p for _, stored in sorted(state.transactions.items()) if (p := propose(stored)) is not None
        ]
        verdicts = self._logs.of(partition).append(proposals) if proposals else ()
        return [
            p.transactional_id for p, v in zip(proposals, verdicts, strict=True) if isinstance(v, Appended)
        ]


def _check_id(transactional_id: str) -> None:
    if not isinstance(transactional_id, str):
        raise InvalidRequestError(f"transactional id {transactional_id!r:.60}", expected="a text")
    if not transactional_id:
        raise InvalidRequestError("an empty transactional id", expected="1 to 1000 characters")
    if len(transactional_id) > MAX_TRANSACTIONAL_ID_CHARS:
        raise InvalidRequestError(
            f"a transactional id of {len(transactional_id)} characters", expected="at most 1000"
        )
    if not is_storable(transactional_id):
        raise InvalidRequestError(
            f"transactional id {transactional_id!r}", expected="UTF-8", reason=Reason.NOT_UTF8
        )


def _check_new_id(transactional_id: str) -> None:
    """Of an id that the log does not know yet: those that it has from before this rule can still be used and ended."""
    if not is_new_name(transactional_id):
        raise InvalidRequestError(
            f"transactional id '{printable(transactional_id)}'",
            expected=NEW_NAME,
            action="choose another id",
            reason=Reason.UNPRINTABLE_NAME,
        )
