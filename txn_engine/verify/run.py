"""The audit as a whole: in which order what is read, and what is asked across logs at the end."""

from __future__ import annotations

import time
from collections.abc import Collection, Sequence
from typing import Final

from storage.store import ObjectStore
from txn_engine.suggested import command
from txn_engine.verify.control_rules import ControlRule
from txn_engine.verify.coordinator_audit import CoordinatorAudit, OpenTransaction
from txn_engine.verify.decisions import Decision
from txn_engine.verify.descriptor_rules import DescriptorRule
from txn_engine.verify.findings import FindingLog, Place
from txn_engine.verify.group_rules import GroupRule, HighestOffsets
from txn_engine.verify.judged_entry import Rule
from txn_engine.verify.layout import Layout, LayoutAudit, Topic
from txn_engine.verify.marker_rules import MarkerRule
from txn_engine.verify.objects import ObjectReader
from txn_engine.verify.partition_audit import Audit, PartitionAudit, Progress
from txn_engine.verify.producer_rules import HighestId, ProducerRule
from txn_engine.verify.report import PartitionStats, Replay, Tally, VerifyReport, VerifyStats
from txn_engine.verify.store_keys import KeySurvey, folders_in_the_way, survey_keys

_GROUPS = "__consumer_offsets"
_COORDINATOR = "__transaction_state"
WORKERS: Final = 8


def verify_store(
    store: ObjectStore,
    *,
    progress: Progress | None = None,
    now_ms: int | None = None,
    topics: Sequence[str] | None = None,
    check_data: bool = True,
    workers: int = WORKERS,
    files_of: Collection[str] = (),
) -> VerifyReport:
    """Audit a store from its raw objects: replay everything, judge every invariant (PROTOCOL.md, section 7).

    Guarantee: never changes the store and never raises for damage, which is what findings are for; a store in use
    gives no false ones. The same objects give the same report. Memory: one partition's live state at a time (16 bytes
    for each slot of the log, 220 for each data file listed), 50 bytes for each decided transaction, and for a compacted
    partition the keys of four million records.

    progress: called with what is being read, how many objects of it are done, and of how many.
    now_ms: what time-outs and grace periods are judged by; by default the latest append time in the store.
    topics: only these topics' data (the internal topics always); an unknown one is UnknownTopicOrPartitionError.
    check_data: read the data files too, not only whether they are there.
    workers: threads that read; 0: none, every call to the store comes from the caller's thread, in a fixed order.
    files_of: topics whose live data files the replay lists.
    Errors of the store itself (unreachable, no access) are raised as they come, `storage.errors.StorageError`.
    """
    started = time.perf_counter()
    tally = Tally()
    findings = FindingLog()
    with ObjectReader(store, tally, workers) as reader:
        audit = Audit(reader, findings, tally, progress or _silent)
        keys = survey_keys(store)
        layouts = LayoutAudit(reader, findings, keys)
        layouts.check_names(topics)
        replay = Replay(frozenset(files_of))
        run = _Run(audit, layouts, replay, now_ms=now_ms, only=topics, check_data=check_data)
        run.read_everything()
        run.judge_across_logs()
        for folder, seen in reader.not_folders.items():
            findings.add("object-damaged", folder, seen, expected="a folder of the store")
        in_the_way = folders_in_the_way(store)
        for folder in in_the_way:
            findings.add("folder-in-the-way", folder, "a folder", expected="an object, or nothing")
        _note_foreign(keys, [*reader.not_folders, *in_the_way], findings)
    partitions = tuple(sorted(run.stats, key=lambda stats: (stats.topic, stats.partition)))
    return VerifyReport(
        findings.sorted(run.owner_of),
        VerifyStats(
            objects=tally.objects,
            bytes=tally.bytes,
            entries=tally.entries,
            batches=tally.batches,
            records=tally.records,
            transactions=dict(sorted((+tally.transactions).items())),
            partitions=partitions,
            foreign_objects=keys.foreign_objects,
            orphan_files=sum(stats.orphan_files for stats in partitions),
            findings_not_listed=findings.not_listed,
            seconds=round(time.perf_counter() - started, 3),
        ),
        run.replay,
    )


def _note_foreign(keys: KeySurvey, named: Collection[str], findings: FindingLog) -> None:
    """A file where a folder should be was named as such, and so was a folder where a file should be."""
    for refusal in keys.refused:
        findings.add("keys-not-listed", "/", refusal, expected="a listing of every key of the store")
    for key, count in sorted(keys.foreign.items()):
        if not any(f"{folder}/".startswith(f"{key.removesuffix('/')}/") for folder in named):
            seen = f"objects below it: {count:,}" if key.endswith("/") else "an object"
            findings.add("object-foreign", key, seen, expected="only keys that the format has there")
    findings.leave_out(keys.not_named)


class _Run:
    """One audit under way."""

    def __init__(
        self,
        audit: Audit,
        layouts: LayoutAudit,
        replay: Replay,
        *,
        now_ms: int | None,
        only: Sequence[str] | None,
        check_data: bool,
    ) -> None:
        self.stats: list[PartitionStats] = []
        self.replay = replay
        self._audit = audit
        self._layouts = layouts
        self._now_ms = now_ms
        self._only = only
        self._check_data = check_data
        self._counts = layouts.internal_partitions()
        self._layout = Layout(self._counts)
        self._coordinator = CoordinatorAudit(
            audit,
            self._counts[_COORDINATOR],
            lambda: layouts.existing(_COORDINATOR, self._counts[_COORDINATOR]),
        )
        self._markers = MarkerRule(self._coordinator)
        self._ids = HighestId()
        self._group_rule = GroupRule(self._counts[_GROUPS])
        self._offsets = HighestOffsets()
        self._log_ends: dict[Place, int | None] = {}  # None: not judged to its end
        self._whole: set[Place] = set()  # judged from offset 0 on
        self._open: list[OpenTransaction] = []

    @property
    def now_ms(self) -> int:
        """The time given, else the latest in the store."""
        return self._audit.tally.latest_append_time if self._now_ms is None else self._now_ms

    def owner_of(self, producer_id: int) -> str | None:
        """The transactional id that writes as this producer; None where the coordinator's log does not tell."""
        return self._coordinator.owner_of(producer_id)

    def read_everything(self) -> None:
        """Coordinator, topics, groups, data, and the coordinator's log once more.

        In this order a topic that a complete transaction names is there or has left a tombstone, an offset that was
        committed is below the log end read later, a complete transaction shows in every partition read later, and a
        marker's decision stands in the log read last: also while others write.
        """
        self._coordinator.advance()
        self._layout = self._layouts.run(self._counts)
        shared: list[Rule] = [
            DescriptorRule(),
            ProducerRule(self._coordinator.owner_of),
            self._markers,
            ControlRule(self._layout),
            self._ids,
        ]
        for place in self._group_partitions():
            audit = PartitionAudit(self._audit, place, [*shared, self._group_rule])
            self._read(audit, None)
            if audit.sound:
                self._offsets.keep(place, audit.state)
        for name, topic in sorted(self._layout.topics.items()):
            if self._only is None or name in self._only:
                self._read_topic(topic, shared)
        self._coordinator.advance()
        for audit in self._coordinator.audits:
            self.stats.append(audit.finish(None, check_data=self._check_data, now_ms=self.now_ms))
            if audit.sound:
                self.replay.keep(audit.place, audit.state)

    def judge_across_logs(self) -> None:
        """What no single log tells: decisions carried out everywhere, nothing hanging, offsets within their logs."""
        self._markers.judge_deferred()
        self._judge_carried_out()
        for opened in self._open:
            self._judge_hanging(opened)
        self._offsets.judge(self._log_ends, self._audit.findings)
        owned = self._coordinator.highest_id
        self._layouts.judge_blocks(max(self._ids.highest, owned), owned)
        self._coordinator.judge_open(self.now_ms)
        self._coordinator.count(self._audit.tally.transactions)

    def _group_partitions(self) -> list[Place]:
        """Those that hold anything, and those that a decision names: one that is gone must not go unseen."""
        existing = self._layouts.existing(_GROUPS, self._counts[_GROUPS])
        named = {place for place in self._coordinator.decisions.places() if place.topic == _GROUPS}
        return sorted(
            {Place(_GROUPS, 0, number) for number in existing}
            | {place for place in named if self._layout.has(place)}
        )

    def _read_topic(self, topic: Topic, rules: list[Rule]) -> None:
        for place in topic.places():
            self._read(PartitionAudit(self._audit, place, rules), topic)

    def _read(self, audit: PartitionAudit, topic: Topic | None) -> None:
        audit.advance()
        self.stats.append(audit.finish(topic, check_data=self._check_data, now_ms=self.now_ms))
        self._log_ends[audit.place] = audit.state.log_end_offset if audit.sound else None
        if not audit.sound:
            return
        self.replay.keep(audit.place, audit.state)
        if audit.starts_at == 0:
            self._whole.add(audit.place)
        else:
            self._ids.highest = max(self._ids.highest, *audit.state.producers, -1)
            self._judge_behind_seals(audit)
        for producer_id, first_offset in audit.state.open.items():
            producer = audit.state.producers[producer_id]
            self._open.append(
                OpenTransaction(
                    audit.place, producer_id, producer.producer_epoch, first_offset, producer.last_timestamp
                )
            )

    def _judge_behind_seals(self, audit: PartitionAudit) -> None:
        """Of the decisions that no entry shows, those whose marker no seal can hide.

        A producer that the first snapshot knows keeps the epoch and the decision of its last marker; one that it does
        not know may have been forgotten since, so only its open transaction tells.
        """
        decisions, place = self._coordinator.decisions, audit.place
        owed: dict[tuple[int, int], Decision] = {}
        for producer_id, (epoch, last_decision) in audit.known_at_start.items():
            for decision in decisions.owed(producer_id, place, last_decision):
                if decision.producer_epoch > epoch:
                    owed[producer_id, decision.offset] = decision
        for producer_id in audit.state.open:
            epoch = audit.state.producers[producer_id].producer_epoch
            opened = decisions.of_epoch(producer_id, epoch, place)
            if opened is not None and opened in decisions.owed(producer_id, place, opened.offset - 1):
                owed[producer_id, opened.offset] = opened
        for _, decision in sorted(owed.items()):
            self._note_not_carried_out(decision, place)

    def _judge_carried_out(self) -> None:
        for decision, places in self._coordinator.decisions.not_shown():
            for place in places:
                if place not in self._whole and (
                    place in self._log_ends or self._layout.has(place) is not False
                ):
                    continue  # deleted since, damaged, sealed (and judged when it was read), or not asked for
                self._note_not_carried_out(decision, place)

    def _note_not_carried_out(self, decision: Decision, place: Place) -> None:
        by = self._coordinator.locate(decision.producer_id, decision.offset)
        self._audit.findings.add(
            "decision-not-carried-out",
            f"{place.prefix}/log/",
            f"no {decision.kind} marker at epoch {decision.producer_epoch}, though the transaction is complete",
            expected=f"one for {by}",
            place=place,
            producer_id=decision.producer_id,
            since_ms=decision.append_time,
        )

    def _judge_hanging(self, opened: OpenTransaction) -> None:
        problem = self._coordinator.unexplained(opened)
        if problem is None:
            return
        at = opened.place
        ending = command(
            "transactions abort",
            topic=at.topic,
            partition=at.partition,
            start_offset=opened.first_offset,
        )
        self._audit.findings.add(
            "hanging-transaction",
            f"{at.prefix}/log/",
            f"an open transaction of epoch {opened.producer_epoch} that nobody will decide: {problem}",
            expected="a transactional id with this transaction Ongoing or prepared, and this partition in its list",
            action=f"`{ending}` ends it",
            place=at,
            offsets=(opened.first_offset, opened.first_offset),
            producer_id=opened.producer_id,
            since_ms=opened.since_ms,
        )


def _silent(_what: str, _done: int, _total: int) -> None:
    """Tell nobody."""
