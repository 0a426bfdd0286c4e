"""Compaction: by key, where the topic is compacted, and of small files: neighbours become one larger file.

Which files go together is `runs`, which records of them stay is `by_key`, how they become one file is `merging`; a
`rewrite` puts it in their place.
"""

from __future__ import annotations

from txn_engine.log.topics import Topic
from txn_engine.maintain.by_key import KeyCompactor
from txn_engine.maintain.merged_files import Count, replace_inputs, upload
from txn_engine.maintain.merging import FileMerger
from txn_engine.maintain.neighbours import committed_files, runs, span_of
from txn_engine.maintain.policy import MaintenancePolicy
from txn_engine.maintain.reports import Compacted
from txn_engine.maintain.target import Target
from txn_engine.protocol.proposals import Appended, RewriteProposal


def compact(
    target: Target, topic: Topic, policy: MaintenancePolicy, now_ms: int, *, dry_run: bool
) -> Compacted | None:
    """Compact the partition; None where that is not worth it.

    Readers of a topic that is not compacted by key see the same records before, during and after; those of one that is
    see of each key its latest record, and fewer of the others as it goes on. What they planned on stays for 24 hours. A
    run that stops anywhere leaves at most a file that no entry names.
    """
    count = Count()
    if topic.is_compacted:
        KeyCompactor(target, topic, policy, now_ms, count, dry_run=dry_run).run()
    if not (dry_run and count.files):  # what would be left to merge is not known then
        _merge_small(target, topic, policy, count, dry_run=dry_run)
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
    )


def _merge_small(
    target: Target, topic: Topic, policy: MaintenancePolicy, count: Count, *, dry_run: bool
) -> None:
    """Merge the small committed files, a run of neighbours at a time."""
    state = target.read_back()
    merger = FileMerger(target.objects, target.tools.executor, topic, target.partition)
    for run in runs(committed_files(state), policy, span_of(topic)):
        if dry_run:
            count.add(run, sum(file.file.data_bytes for file in run))
            continue
        output = upload(target, merger, run, state.log_end_offset)
        verdict = replace_inputs(target, RewriteProposal(run, (output,)))
        if verdict is None:
            count.overtaken += 1
        elif isinstance(verdict, Appended):
            count.add(run, output.file.data_bytes)
