"""Compaction: by key, where the topic is compacted, and of small files: neighbours become one larger file.

Which files go together is `neighbours`, what is said of it in the log is here and in `by_key`; the `workers` choose
records and make files of them, and a `rewrite` puts these in their place.
"""

from __future__ import annotations

from txn_engine.log.store_time import Moment
from txn_engine.log.topics import Topic
from txn_engine.maintain.by_key import KeyCompactor
from txn_engine.maintain.merged_files import Count, replace_inputs
from txn_engine.maintain.neighbours import committed_files, runs, span_of
from txn_engine.maintain.policy import MaintenancePolicy
from txn_engine.maintain.reports import Compacted
from txn_engine.maintain.target import Target
from txn_engine.maintain.workers import Rule, Workers
from txn_engine.protocol.proposals import Appended, RewriteProposal


def compact(
    target: Target,
    topic: Topic,
    policy: MaintenancePolicy,
    workers: Workers,
    moment: Moment,
    *,
    dry_run: bool,
) -> Compacted | None:
    """Compact the partition; None where that is not worth it.

    Readers of a topic that is not compacted by key see the same records before, during and after; those of one that is
    see of each key its latest record, and fewer of the others as it goes on. What they planned on stays for 24 hours. A
    run that stops anywhere leaves at most a file that no entry names.
    """
    count = Count()
    if topic.is_compacted:
        KeyCompactor(target, topic, policy, workers, moment, count, dry_run=dry_run).run()
    if not (dry_run and count.files):  # what would be left to merge is not known then
        _merge_small(target, topic, policy, workers, count, dry_run=dry_run)
    if not count.files and not count.overtaken and not count.cleaned:
        return None
    return Compacted(
        target.topic,
        target.partition,
        files=count.files,
        bytes=count.bytes,
        outputs=count.outputs,
        output_bytes=count.output_bytes,
        records=count.records,
        dropped=count.dropped,
        overtaken=count.overtaken,
        engine=count.by.engine,
        why=count.by.why,
    )


def _merge_small(
    target: Target,
    topic: Topic,
    policy: MaintenancePolicy,
    workers: Workers,
    count: Count,
    *,
    dry_run: bool,
) -> None:
    """Merge the small committed files, a run of neighbours at a time."""
    state = target.read_back()
    files = committed_files(state)
    found = runs(files, policy, span_of(topic))
    if not found:
        return
    rule = Rule(state.log_end_offset, by_key=False, dry_run=dry_run)
    with workers.every(target, topic, files) as every:
        for merged in every.merge(found, rule):
            if merged.output is None:
                count.add(merged)
                continue
            verdict = replace_inputs(target, RewriteProposal(merged.run, (merged.output,)))
            if verdict is None:
                count.overtaken += 1
            elif isinstance(verdict, Appended):
                count.add(merged)
        count.note(every.by)
