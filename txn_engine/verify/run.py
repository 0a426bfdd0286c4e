"""The audit as a whole: in which order what is read, and what is asked across logs at the end."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Final

from storage.store import ObjectStore
from txn_engine.errors import InvalidRequestError
from txn_engine.reasons import Reason
from txn_engine.suggested import command
from txn_engine.verify.audit_folder import AuditFolder, KeptAudit
from txn_engine.verify.begun_audit import BegunAudit
from txn_engine.verify.coordinator_audit import CoordinatorAudit, OpenTransaction
from txn_engine.verify.cut_audit import CutAudit
from txn_engine.verify.cut_spans import Spans
from txn_engine.verify.data_file_audit import ALL_FILES, FilesToRead
from txn_engine.verify.decisions import Decision
from txn_engine.verify.findings import FindingLog, Place, Witness
from txn_engine.verify.group_rules import GroupCommit, GroupCommits, GroupRule, HighestOffsets
from txn_engine.verify.held_files import Held, Holder
from txn_engine.verify.judged_entry import Rule
from txn_engine.verify.layout import Layout, LayoutAudit, Topic
from txn_engine.verify.lost_logs import LostLogs
from txn_engine.verify.marker_rules import MarkerRule
from txn_engine.verify.objects import ObjectReader
from txn_engine.verify.partition_audit import Audit, PartitionAudit, Progress
from txn_engine.verify.partition_task import (
    GROUPS,
    AuditElsewhere,
    Outcome,
    PartitionTask,
    log_rules,
    shared_of,
)
from txn_engine.verify.pickling import pickled
from txn_engine.verify.report import GroupLog, PartitionStats, Replay, Tally, VerifyReport, VerifyStats
from txn_engine.verify.restored_root import is_root, store_within
from txn_engine.verify.store_keys import KeySurvey, folders_in_the_way, survey_keys
from txn_engine.verify.table_audit import TableAudit

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
    processes: int = 0,
    kept_in: Path | None = None,
    whole: bool = False,
    elsewhere: AuditElsewhere | None = None,
    files_of: Collection[str] = (),
    groups_of: Collection[str] = (),
    data_to_read: Mapping[Place, FilesToRead] | None = None,
) -> VerifyReport:
    """Audit a store from its raw objects: replay everything, judge every invariant (PROTOCOL.md, section 8).

    Guarantee: never changes the store and never raises for damage, which is what findings are for; a store in use
    gives no false ones. The same objects give the same report. Memory: one partition's live state at a time (16 bytes
    for each slot of the log, 220 for each data file listed, 24 for each committed transaction), 50 bytes for each
    decided transaction, 16 more where there are cuts, 50 for each log of each cut, and for a compacted partition the
    keys of four million records.

    progress: called with what is being read, how many objects of it are done, and of how many.
    now_ms: what time-outs and grace periods are judged by; by default the latest append time in the store.
    topics: only these topics' data (the internal topics always); an unknown one is UnknownTopicOrPartitionError.
    check_data: read the data files too, not only whether they are there.
    workers: threads that read; 0: none, every call to the store comes from the caller's thread, in a fixed order.
    processes: as many decode, once that has taken a second; the store is sent to them as a pickle, and the
        program's main module must bear to be imported (multiprocessing's "spawn"). 0 or 1: none.
    kept_in: a folder, for this store alone, where a sound audit keeps what it found and a long one how far it is; the
        next goes on from there, and reads what is new or was written again. All partitions' state is in memory then.
        InvalidRequestError: somebody else may write to it, it has an audit of another store, or only a part of the
        store is asked for.
    whole: read everything all the same; what is found is kept.
    elsewhere: who audits the logs of groups and data, a call for each partition (`txn_engine.spark.audit_store`); not
        with `kept_in`. What holds across logs is judged here.
    files_of: topics whose live data files the replay lists.
    groups_of: groups whose commits the replay lists.
    data_to_read: by partition the data files that are read, by default all; names and sizes of the others are judged
        all the same.
    Errors of the store itself (unreachable, no access) are raised as they come, `storage.errors.StorageError`.
    """
    started = time.perf_counter()
    store = store_within(store)
    tally = Tally()
    findings = FindingLog()
    if kept_in is not None and (
        topics or not check_data or files_of or groups_of or data_to_read or elsewhere
    ):
        raise InvalidRequestError(
            "a folder for what was found, and a part of the store, or others who audit it",
            actor="verify",
            expected="the one or the other",
            reason=Reason.CONFLICTING_ARGUMENTS,
        )
    kept = None if kept_in is None else AuditFolder(kept_in, store, whole=whole)
    with ObjectReader(store, tally, workers, processes) as reader:
        keys = survey_keys(store)
        layouts = LayoutAudit(reader, findings, keys, is_root=is_root(store))
        layouts.check_names(topics)
        replay = Replay(frozenset(files_of), frozenset(groups_of))
        run = _Run(
            _Bench(store, reader, findings, tally, progress or _silent, layouts, kept, elsewhere, workers),
            replay,
            now_ms=now_ms,
            only=topics,
            check_data=check_data,
            data_to_read=data_to_read or {},
        )
        run.read_everything()
        run.judge_across_logs()
        for folder, seen in reader.not_folders.items():
            findings.add("object-damaged", folder, seen, expected="a folder of the store")
        in_the_way = folders_in_the_way(store)
        for folder in in_the_way:
            findings.add("folder-in-the-way", folder, "a folder", expected="an object, or nothing")
        _note_foreign(keys, [*reader.not_folders, *in_the_way], findings)
        run.forget_deleted()
        run.keep()
    partitions = tuple(sorted(run.stats, key=lambda stats: (stats.topic, stats.partition)))
    return VerifyReport(
        findings.sorted(run.owner_of),
        VerifyStats(
            objects=tally.objects,
            bytes=tally.bytes,
            unchanged=tally.unchanged,
            whole_for=kept.whole_for if kept else "",
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


@dataclass(frozen=True, slots=True)
class _Bench:
    """What an audit works with."""

    store: ObjectStore
    reader: ObjectReader
    findings: FindingLog
    tally: Tally
    progress: Progress
    layouts: LayoutAudit
    folder: AuditFolder | None
    elsewhere: AuditElsewhere | None
    workers: int


class _Run:
    """One audit under way."""

    def __init__(
        self,
        bench: _Bench,
        replay: Replay,
        *,
        now_ms: int | None,
        only: Sequence[str] | None,
        check_data: bool,
        data_to_read: Mapping[Place, FilesToRead],
    ) -> None:
        self.stats: list[PartitionStats] = []
        self.replay = replay
        self._bench = bench
        self._audit = Audit(bench.reader, bench.findings, bench.tally, self._advanced)
        self._layouts = layouts = bench.layouts
        self._now_ms = now_ms
        self._only = only
        self._check_data = check_data
        self._data_to_read = data_to_read
        self._counts = layouts.internal_partitions()
        self._layout = Layout(self._counts)
        self._before: CoordinatorAudit | None = None  # what the last audit knew, where it cannot go on
        # Of every log, and of those of groups: filled once it is known who decides.
        self._rules: list[Rule] = []
        self._group_rules: list[Rule] = []
        self._kept = self._begin()
        self._coordinator = self._kept.coordinator
        self._markers = MarkerRule(self._coordinator, self._kept.deferred)
        self._ids = self._kept.ids
        self._rules += log_rules(self._coordinator, self._markers, self._layout, self._ids)
        self._group_rules += [*self._rules, GroupRule(self._counts[GROUPS])]
        self._offsets = HighestOffsets()
        self._cuts = CutAudit(bench.reader, bench.findings)
        self._begun = BegunAudit(bench.reader, bench.findings, self._counts, layouts.store_ids)
        self._lost = LostLogs(bench.reader, bench.findings)
        self._held: Held = {}
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
        """Cuts and what was begun, coordinator, topics, groups, data, and the coordinator's log once more.

        In this order what a cut names, or was begun, is in a log read later, a topic that a complete transaction names
        is there or has left a tombstone, an offset that was committed is below the log end read later, a complete
        transaction shows in every partition read later, and a marker's decision stands in the log read last: also while
        others write.
        """
        self._cuts.read()
        self._begun.read()
        self._lost.see(self._begun.witnesses())
        self._lost.see(self._cuts.witnesses())
        self._coordinator.advance(self._lost)
        self._take_over()
        self._layouts.run(self._layout)
        self.replay.decisions = self._coordinator.decisions
        topics = self._audited_topics()
        self._held = self._find_holders(topics)
        if self._bench.elsewhere is not None:
            self._audit_elsewhere(self._bench.elsewhere, self._group_partitions())
            self._audit_elsewhere(
                self._bench.elsewhere, [place for topic in topics for place in topic.places()]
            )
        else:
            for place in self._group_partitions():
                commits = GroupCommits(self.replay.groups_of)
                rules = [*self._group_rules, commits] if self.replay.groups_of else self._group_rules
                self._keep_groups(self._read(place, rules, None), commits.found)
            for topic in topics:
                for place in topic.places():
                    self._read(place, self._rules, topic)
        self._coordinator.advance(self._lost)
        for audit in self._coordinator.audits:
            self.stats.append(audit.finish(None, to_read=None, now_ms=self.now_ms))
            if audit.sound:
                self.replay.keep(audit.place, audit.state)

    def _audited_topics(self) -> list[Topic]:
        return [
            topic
            for name, topic in sorted(self._layout.topics.items())
            if self._only is None or name in self._only
        ]

    def judge_across_logs(self) -> None:
        """What no single log tells: decisions carried out everywhere, nothing hanging, offsets within their logs."""
        self._markers.judge_deferred()
        findings, erased = self._audit.findings, self.replay.erased
        tables = TableAudit(self._bench.reader, findings, self._layouts.store_ids, erased, self._lost)
        tables.run(self._audited_topics())
        for witnesses in (self._offsets, self._coordinator):
            self._lost.see(witnesses.witnesses())
        for place in self._lost.judge(self._log_ends):
            self._log_ends[place] = None
            self._whole.discard(place)
        self._judge_topics()
        self._judge_carried_out()
        for opened in self._open:
            self._judge_hanging(opened)
        self._offsets.judge(self._log_ends, self._audit.findings)
        self._cuts.judge(self._log_ends)
        self._cuts.judge_lost(tables.cuts, self.now_ms)
        owned = self._coordinator.producer_ids
        self._ids.add(owned)
        self._layouts.judge_blocks(self._ids.blocks, has_owners=bool(owned))
        self._coordinator.judge_open(self.now_ms)
        self._coordinator.count(self._audit.tally.transactions)

    def _judge_topics(self) -> None:
        """What names a topic was written when its object was there, which nobody deletes."""
        decided = ((place, Witness(0, "a transaction")) for place in self._coordinator.decisions.places())
        every = (*self._cuts.witnesses(), *self._offsets.witnesses(), *decided)
        named = {(place.topic, place.incarnation): witness.name for place, witness in reversed(every)}
        for (topic, incarnation), witness in sorted(named.items()):
            if self._layouts.note_if_lost(topic, incarnation, witness, self._layout):
                self._layout.unclear.add(topic)

    def _find_holders(self, topics: Sequence[Topic]) -> Held:
        """What cuts and tables read of these topics. What is wrong with a pin is said by the audit of tables."""
        tables = TableAudit(
            self._bench.reader, FindingLog(), None, {}, LostLogs(self._bench.reader, FindingLog())
        )
        held: defaultdict[Place, list[Holder]] = defaultdict(list)
        of_tables = (each for topic in topics for each in tables.holders(topic))
        for place, holder in chain(self._cuts.holders(), of_tables):
            held[place].append(holder)
        return {place: tuple(each) for place, each in held.items()}

    def _group_partitions(self) -> list[Place]:
        """Those that hold anything, and those that something speaks of: one that is gone must not go unseen."""
        existing = self._layouts.existing(GROUPS, self._counts[GROUPS])
        named = {place for place in self._coordinator.decisions.places() if place.topic == GROUPS}
        named |= self._lost.named(GROUPS)
        return sorted(
            {Place(GROUPS, 0, number) for number in existing}
            | {place for place in named if self._layout.has(place)}
        )

    def _begin(self) -> KeptAudit:
        """Go on from what was kept, as far as that is still so; else from nothing."""
        fresh = KeptAudit(CoordinatorAudit(self._audit, self._counts[_COORDINATOR], self._layouts))
        folder = self._bench.folder
        kept = None if folder is None else folder.load(self._shared())
        if kept is None:
            return fresh
        if kept.coordinator.is_as_it_was():
            kept.coordinator.begin_again()
            return kept
        self._before = kept.coordinator
        return replace(kept, coordinator=fresh.coordinator)

    def _take_over(self) -> None:
        """Go on with the logs that were judged by what the coordinator's log said, if that still says so."""
        before, self._before = self._before, None
        if before is None:
            return
        if self._coordinator.continues(before):
            self._coordinator.decisions.take_over(before.decisions)
            return
        self._kept.logs.clear()
        self._kept.deferred.clear()
        if self._bench.folder is not None:
            self._bench.folder.whole_for = "the coordinator's log says something else than it did"

    def _shared(self) -> dict[str, object]:
        """What another audit has of its own."""
        return shared_of(self._audit, self._layouts, self._rules, self._group_rules)

    def _advanced(self, what: str, done: int, total: int) -> None:
        self._bench.progress(what, done, total)
        folder = self._bench.folder
        # Until the decisions have taken over who has shown them, what is kept would owe markers that are there.
        if folder is not None and folder.is_time_to_save() and self._before is None:
            self.keep()

    def forget_deleted(self) -> None:
        """Keep nothing of logs that are gone with their topic."""
        seen = {stats.place for stats in self.stats}
        for place in [place for place in self._kept.logs if place not in seen]:
            del self._kept.logs[place]

    def keep(self) -> None:
        """Save how far the audit is, where a folder for that was given, and nothing is wrong."""
        if self._bench.folder is not None and not self._bench.findings.has_errors:
            self._bench.folder.save(self._kept, self._shared())

    def _log(self, place: Place, rules: Sequence[Rule]) -> PartitionAudit:
        """The audit of a log: one that goes on, or a new one."""
        before = self._kept.logs.get(place)
        if before is not None and before.is_as_it_was():
            before.count_again()
            return before
        if before is not None:
            self._coordinator.decisions.hide(place)
        audit = PartitionAudit(self._audit, place, rules, before)
        if self._bench.folder is not None:
            self._kept.logs[place] = audit
        return audit

    def _audit_elsewhere(self, elsewhere: AuditElsewhere, places: Sequence[Place]) -> None:
        """Have these logs audited, and take up what was found."""
        task = PartitionTask(
            self._bench.store,
            pickled(self._coordinator, self._shared()),
            self._layout,
            self.replay.files_of,
            self.replay.groups_of,
            self._check_data,
            self._data_to_read,
            self._now_ms,
            self._audit.tally.latest_append_time,
            self._bench.workers,
            {place: self._held[place] for place in places if place in self._held},
        )
        answers = elsewhere(task, places) if places else ()
        for done, (place, answer) in enumerate(zip(places, answers, strict=True), start=1):
            self._take_up(place, Outcome.read(answer, self._shared()))
            self._bench.progress("partitions", done, len(places))

    def _take_up(self, place: Place, outcome: Outcome) -> None:
        bench, decisions = self._bench, self._coordinator.decisions
        bench.tally.take(outcome.tally)
        bench.findings.take(outcome.findings, outcome.not_listed)
        bench.reader.not_folders.update(outcome.not_folders)
        self._ids.blocks |= outcome.used_blocks
        self._markers.deferred += outcome.deferred
        for producer_id, offset in zip(outcome.shown[::2], outcome.shown[1::2], strict=True):
            decision = decisions.find(producer_id, offset)
            if decision is not None:
                decisions.show(decision, place)
        self._note(outcome.audit, outcome.stats)
        if place.topic == GROUPS:
            self._keep_groups(outcome.audit, outcome.commits)

    def _keep_groups(self, audit: PartitionAudit, commits: Mapping[str, Sequence[GroupCommit]]) -> None:
        if audit.sound:
            self._offsets.keep(audit.place, audit.state)
            for group_id, found in commits.items():
                self.replay.groups[group_id] = GroupLog(audit.starts_at == 0, tuple(found))

    def _read(self, place: Place, rules: Sequence[Rule], topic: Topic | None) -> PartitionAudit:
        audit = self._log(place, rules)
        audit.advance()
        to_read = self._data_to_read.get(audit.place, ALL_FILES) if self._check_data else None
        holders = self._held.get(place, ())
        self._note(audit, audit.finish(topic, to_read=to_read, now_ms=self.now_ms, holders=holders))
        return audit

    def _note(self, audit: PartitionAudit, stats: PartitionStats) -> None:
        """Keep what is judged across logs."""
        self.stats.append(stats)
        self._judge_cuts(audit)
        self._log_ends[audit.place] = audit.state.log_end_offset if audit.sound else None
        if audit.state.erased:
            self.replay.erased[audit.place] = audit.state.erased
        if not audit.sound:
            return
        self.replay.keep(audit.place, audit.state)
        if audit.starts_at == 0:
            self._whole.add(audit.place)
        else:
            self._ids.add(audit.state.producers)
            self._judge_behind_seals(audit)
        for producer_id, first_offset in audit.state.open.items():
            producer = audit.state.producers[producer_id]
            self._open.append(
                OpenTransaction(
                    audit.place, producer_id, producer.producer_epoch, first_offset, producer.last_timestamp
                )
            )

    def _judge_cuts(self, audit: PartitionAudit) -> None:
        """By the transactions that the log shows committed, and those of which it will."""
        self._cuts.see(audit.place, audit.spans)
        due = Spans()
        for producer_id, first in audit.state.open.items() if audit.sound else ():
            epoch, end = audit.state.producers[producer_id].producer_epoch, audit.spans.ends.get(producer_id)
            decision = self._coordinator.decisions.of_epoch(producer_id, epoch, audit.place)
            if end is not None and decision is not None and decision.committed:
                due.add(producer_id, epoch, first, end)
        self._cuts.see(audit.place, due)

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
