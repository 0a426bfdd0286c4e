"""What compaction puts in the place of files, and how much of it there was."""

from __future__ import annotations

from dataclasses import dataclass

from storage import stored_checksum
from txn_engine.errors import CorruptObjectError, InvalidRequestError
from txn_engine.maintain.merging import FileMerger, Kept
from txn_engine.maintain.neighbours import Run
from txn_engine.maintain.target import Target
from txn_engine.protocol.batches import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, FileRef
from txn_engine.protocol.file_names import DataFileName
from txn_engine.protocol.partition import LogFile
from txn_engine.protocol.proposals import RewriteProposal, Verdict


@dataclass
class Count:
    """What was rewritten, in files, bytes and records."""

    files: int = 0
    bytes: int = 0
    outputs: int = 0
    output_bytes: int = 0
    records: int = 0
    dropped: int = 0
    overtaken: int = 0
    cleaned: bool = False

    def add(self, run: Run, output_bytes: int, *, dropped: int = 0, outputs: int = 1) -> None:
        """Note one rewrite."""
        self.files += len(run)
        self.bytes += sum(file.file.data_bytes for file in run)
        self.outputs += outputs
        self.output_bytes += output_bytes
        self.records += sum(file.record_count for file in run) - dropped
        self.dropped += dropped


def upload(target: Target, merger: FileMerger, run: Run, log_end: int, kept: Kept | None = None) -> LogFile:
    """A new file with the records of the run, or with those that are kept; a rewrite has to name it.

    Memory: about three times the files' size.
    """
    kept = kept or Kept.all_of(run)
    name = DataFileName(log_end, NO_PRODUCER_ID, NO_PRODUCER_EPOCH, target.tools.new_id())
    data = merger.merge(run, name.write_id, kept)
    key = f"{target.keys.prefix}/{name.data_path}"
    if not target.objects.create(key, data, max_bytes=len(data)).won:
        raise CorruptObjectError("another object", place=key, expected="a fresh name for every data file")
    return LogFile(
        producer_id=NO_PRODUCER_ID,
        producer_epoch=NO_PRODUCER_EPOCH,
        base_offset=kept.first_offset,
        last_offset=kept.last_offset,
        record_count=sum(file.record_count for file in run) if kept.mask is None else int(kept.mask.sum()),
        first_timestamp=kept.first_timestamp,
        max_timestamp=kept.max_timestamp,
        file=FileRef(name.data_path, len(data), stored_checksum(data)),
    )


def replace_inputs(target: Target, rewrite: RewriteProposal) -> Verdict | None:
    """Append the rewrite; None where another run has replaced or trimmed one of its inputs.

    Raises `InvalidRequestError` where it is refused though they are all live: then it is wrong.
    """
    try:
        return target.log.append_one(rewrite)
    except InvalidRequestError:
        live = target.read_back().live
        if all(live.get(file.base_offset) == file for file in rewrite.inputs):
            raise
        return None
