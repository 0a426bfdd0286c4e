"""When a trim, expire, floor, rewrite, clean or erase row may be appended (PROTOCOL.md, sections 1, 3 and 6)."""

from __future__ import annotations

from collections.abc import Sequence

from txn_engine.errors import InvalidRequestError
from txn_engine.protocol.batches import BatchDescriptor
from txn_engine.protocol.controls import (
    Clean,
    ControlValue,
    Erase,
    Exchange,
    Expire,
    Floor,
    Rewrite,
    Trim,
    control_of,
    encode_control,
)
from txn_engine.protocol.file_names import check_not_below_floor, parse_data_path
from txn_engine.protocol.partition import LogFile, PartitionState
from txn_engine.protocol.proposals import (
    CleanProposal,
    ControlProposal,
    Duplicate,
    EraseProposal,
    ExpireProposal,
    FloorProposal,
    RewriteProposal,
    TrimProposal,
    VerifiedSnapshot,
)

_NOTHING_TO_WRITE = Duplicate(-1, -1)


def judge_control(
    state: PartitionState, proposal: ControlProposal, append_time: int
) -> BatchDescriptor | Duplicate:
    """The row to append at the log's end; `Duplicate` where it would change nothing. Raises where it is illegal."""
    value = _judged(state, proposal, append_time)
    if value is None:
        return _NOTHING_TO_WRITE
    return BatchDescriptor(
        base_offset=state.log_end_offset,
        last_offset=state.log_end_offset,
        append_time=append_time,
        control=control_of(value),
        first_timestamp=append_time,
        max_timestamp=append_time,
        control_value=encode_control(value),
    )


def _judged(state: PartitionState, proposal: ControlProposal, append_time: int) -> ControlValue | None:
    if isinstance(proposal, TrimProposal):
        return _judge_trim(state, proposal)
    if isinstance(proposal, ExpireProposal):
        return _judge_expire(state, proposal)
    if isinstance(proposal, FloorProposal):
        return _judge_floor(state, proposal)
    if isinstance(proposal, CleanProposal):
        return _judge_clean(state, proposal, append_time)
    if isinstance(proposal, EraseProposal):
        return _judge_erase(state, proposal)
    return _judge_rewrite(state, proposal, append_time)


# --- trim -------------------------------------------------------------------------------------------------


def _judge_trim(state: PartitionState, trim: TrimProposal) -> Trim | None:
    if (trim.log_start_offset, trim.entries_start) == (state.log_start_offset, state.entries_start):
        return None
    _check_starts_do_not_fall(state, trim)
    _check_log_start_is_stable(state, trim)
    _check_log_start_cuts_no_file(state, trim)
    if trim.entries_start > state.entries_start:
        _check_entries_start_is_kept(state, trim)
    return Trim(trim.log_start_offset, trim.entries_start)


def _check_starts_do_not_fall(state: PartitionState, trim: TrimProposal) -> None:
    if trim.log_start_offset < state.log_start_offset or trim.entries_start < state.entries_start:
        raise InvalidRequestError(
            f"a trim to log start {trim.log_start_offset}, entries start {trim.entries_start}",
            expected=f"at least {state.log_start_offset} and {state.entries_start}: neither moves back",
        )


def _check_log_start_is_stable(state: PartitionState, trim: TrimProposal) -> None:
    if trim.log_start_offset > state.last_stable_offset:
        raise InvalidRequestError(
            f"a trim to log start {trim.log_start_offset}",
            expected=f"at most the last stable offset {state.last_stable_offset}",
        )


def _check_log_start_cuts_no_file(state: PartitionState, trim: TrimProposal) -> None:
    start = trim.log_start_offset
    cut = next((file for file in state.live.values() if file.base_offset < start <= file.last_offset), None)
    if cut is not None:
        raise InvalidRequestError(
            f"a trim to log start {start}, inside {cut.file.data_path}",
            expected=f"a file's boundary: {cut.base_offset} or {cut.last_offset + 1}",
        )


def _check_entries_start_is_kept(state: PartitionState, trim: TrimProposal) -> None:
    """What is sealed stands in a snapshot only: in one that was read back, with a newer one behind it."""
    kept = _snapshot_ending_with(trim.entries_start, trim.verified_snapshots)
    if kept is None or kept.log_end_offset > state.log_end_offset:
        raise InvalidRequestError(
            f"a trim to entries start {trim.entries_start}",
            expected="the base offset of the last entry inside a snapshot that was read back and verified",
        )
    if not any(newer.log_end_offset > kept.log_end_offset for newer in trim.verified_snapshots):
        raise InvalidRequestError(
            f"a trim to entries start {trim.entries_start}, inside the newest verified snapshot",
            expected=f"a verified snapshot beyond offset {kept.log_end_offset} too",
            action="write another snapshot first",
        )


def _snapshot_ending_with(entry_base: int, snapshots: Sequence[VerifiedSnapshot]) -> VerifiedSnapshot | None:
    return next((snapshot for snapshot in snapshots if snapshot.last_entry_base == entry_base), None)


# --- expire -----------------------------------------------------------------------------------------------


def _judge_expire(state: PartitionState, expire: ExpireProposal) -> Expire | None:
    """Each producer is judged alone; one that may not be forgotten is left out."""
    idle = [each for each in sorted(set(expire.producer_ids)) if _is_idle(state, each, expire.idle_since_ms)]
    return Expire(tuple(idle)) if idle else None


def _is_idle(state: PartitionState, producer_id: int, idle_since_ms: int) -> bool:
    entry = state.producers.get(producer_id)
    if entry is None:
        return False
    if entry.is_open:
        return False
    return entry.append_time <= idle_since_ms


# --- floor ------------------------------------------------------------------------------------------------


def _judge_floor(state: PartitionState, proposal: FloorProposal) -> Floor | None:
    if proposal.floor == state.floor:
        return None
    if proposal.floor < state.floor:
        raise InvalidRequestError(
            f"a floor of {proposal.floor}", expected=f"at least {state.floor}: it never falls"
        )
    if proposal.floor > state.log_end_offset:
        raise InvalidRequestError(
            f"a floor of {proposal.floor}", expected=f"at most its own offset {state.log_end_offset}"
        )
    return Floor(proposal.floor)


# --- rewrite ----------------------------------------------------------------------------------------------


def _judge_rewrite(state: PartitionState, rewrite: RewriteProposal, append_time: int) -> Rewrite | None:
    if not rewrite.inputs or not (rewrite.outputs or rewrite.is_by_key):
        raise InvalidRequestError(
            f"a rewrite of {len(rewrite.inputs)} files into {len(rewrite.outputs)}",
            expected="at least one of each",
        )
    if rewrite.outputs and all(state.live.get(output.base_offset) == output for output in rewrite.outputs):
        return None
    for read in rewrite.inputs:
        _check_input_is_live(state, read)
        _check_input_is_stable(state, read)
    for output in rewrite.outputs:
        _check_output_name(state, output)
    inputs = sorted(rewrite.inputs, key=lambda file: file.base_offset)
    outputs = sorted(rewrite.outputs, key=lambda file: file.base_offset)
    paths = tuple(file.file.data_path for file in inputs)
    value = Rewrite(paths, tuple(outputs), rewrite.tombstones_to, _said(rewrite))
    _check_nothing_between(state, inputs, outputs)
    if rewrite.is_by_key:
        _check_horizon(state, rewrite.tombstones_to, append_time, rewrite.delete_retention_ms)
        _check_outputs_within_inputs(inputs, outputs)
        return value
    _check_outputs_cover_inputs(inputs, outputs)
    return value


def _check_input_is_live(state: PartitionState, read: LogFile) -> None:
    """Exactly the file that was read, decided, and not trimmed: path, checksum and offsets."""
    if state.live.get(read.base_offset) != read:
        raise InvalidRequestError(
            f"a rewrite of {read.file.data_path}, which is not live as it was read",
            expected="files that are decided, and that nobody rewrote or trimmed meanwhile",
            action="plan the rewrite again",
        )


def _check_input_is_stable(state: PartitionState, read: LogFile) -> None:
    if read.last_offset >= state.last_stable_offset:
        raise InvalidRequestError(
            f"a rewrite of offsets up to {read.last_offset}",
            expected=f"files below the last stable offset {state.last_stable_offset}",
        )


def _check_output_name(state: PartitionState, output: LogFile) -> None:
    path = output.file.data_path
    name = parse_data_path(path)
    if {name.producer_id, name.producer_epoch, output.producer_id, output.producer_epoch} != {-1}:
        raise InvalidRequestError(f"a rewrite into {path}", expected="a file of no producer (p-1, e-1)")
    if path in state.named:
        raise InvalidRequestError(
            f"a rewrite into {path}, which is named at offset {state.named[path]}", expected="a new file"
        )
    if name.log_end > state.log_end_offset:
        raise InvalidRequestError(
            f"a rewrite into {path}",
            expected=f"a log end of at most {state.log_end_offset} in its name",
        )
    check_not_below_floor(name, state.floor)


def _check_outputs_cover_inputs(inputs: Sequence[LogFile], outputs: Sequence[LogFile]) -> None:
    """Every output is, in offsets, records and times, inputs that follow one another; together they are all of them."""
    left = list(inputs)
    for output in outputs:
        taken = [file for file in left if file.last_offset <= output.last_offset]
        left = left[len(taken) :]
        if not taken or _span(taken) != _span([output]):
            raise InvalidRequestError(
                f"an output of {output.record_count} records at offsets {output.base_offset} to {output.last_offset}",
                expected="the records, offsets and times of inputs that follow one another",
            )
    if left:
        raise InvalidRequestError(
            f"a rewrite without the records from offset {left[0].base_offset} on",
            expected="an output for every input",
        )


def _span(files: Sequence[LogFile]) -> tuple[int, int, int, int, int]:
    return (
        files[0].base_offset,
        files[-1].last_offset,
        sum(file.record_count for file in files),
        min(file.first_timestamp for file in files),
        max(file.max_timestamp for file in files),
    )


def _check_nothing_between(
    state: PartitionState, inputs: Sequence[LogFile], outputs: Sequence[LogFile]
) -> None:
    """A file's records are read together, so that no other live file may lie among them."""
    taken = {file.base_offset for file in inputs}
    for output in outputs:
        for base in state.live:
            if output.base_offset <= base <= output.last_offset and base not in taken:
                raise InvalidRequestError(
                    f"a rewrite into offsets {output.base_offset} to {output.last_offset} around a live file at {base}",
                    expected="inputs that follow one another",
                )


def _check_outputs_within_inputs(inputs: Sequence[LogFile], outputs: Sequence[LogFile]) -> None:
    """By key: what is kept of the inputs stands in one file, each record at its own offset and time."""
    base, last, records, oldest, newest = _span(inputs)
    for output in outputs:
        within = base <= output.base_offset <= output.last_offset <= last
        in_time = oldest <= output.first_timestamp <= output.max_timestamp <= newest
        span = output.last_offset - output.base_offset + 1
        counted = 1 <= output.record_count <= min(records, span)
        if len(outputs) > 1 or not (within and in_time and counted):
            raise InvalidRequestError(
                f"{len(outputs)} outputs by key, one of {output.record_count} records at offsets"
                f" {output.base_offset} to {output.last_offset}",
                expected=f"one of at most {records} records from {base} to {last}, of the inputs' times",
            )


# --- clean ------------------------------------------------------------------------------------------------


def _judge_clean(state: PartitionState, clean: CleanProposal, append_time: int) -> Clean | None:
    """What another run has cleaned further stays as it is."""
    now = state.cleaning
    cleaned_to = max(now.cleaned_to, clean.cleaned_to)
    tombstones_to = max(now.tombstones_to, clean.tombstones_to)
    if (cleaned_to, tombstones_to) == (now.cleaned_to, now.tombstones_to):
        return None
    if cleaned_to > state.last_stable_offset:
        raise InvalidRequestError(
            f"a partition clean up to offset {cleaned_to}",
            expected=f"at most the last stable offset {state.last_stable_offset}",
        )
    _check_horizon(state, tombstones_to, append_time, clean.delete_retention_ms)
    return Clean(cleaned_to, tombstones_to, _said(clean))


def _said(proposal: RewriteProposal | CleanProposal) -> int | None:
    """What the row says of the retention by which it was judged."""
    return proposal.delete_retention_ms if proposal.says_retention else None


def _check_horizon(
    state: PartitionState, tombstones_to: int, append_time: int, delete_retention_ms: int
) -> None:
    """A tombstone goes only after the records that it supersedes, and has stood alone by the log's own time: the clock
    that the proposer went by may be another one by now.
    """
    limit = state.cleaning.due_tombstones_to(append_time, delete_retention_ms)
    if tombstones_to > limit:
        raise InvalidRequestError(
            f"tombstones left out below offset {tombstones_to}",
            expected=f"at most {limit}: those that stand alone since {delete_retention_ms} ms, by the log's time",
            action="compact again: nothing was written",
        )


# --- erase ------------------------------------------------------------------------------------------------


def _judge_erase(state: PartitionState, erase: EraseProposal) -> Erase | None:
    """Each file by itself: decided, as it was read, and not erased yet."""
    paths = [read.file.data_path for read, _ in erase.files]
    if not paths or len(set(paths)) < len(paths):
        raise InvalidRequestError(f"an erasure in {len(paths)} files", expected="one at the least, each once")
    if all(
        path in state.erased and state.erased[path] == left
        for path, (_, left) in zip(paths, erase.files, strict=True)
    ):
        return None
    for read, left in erase.files:
        _check_erased_from(state, read, left)
        if left is not None:
            _check_output_name(state, left)
            _check_left(read, left)
    exchanged = (
        Exchange(read.file.data_path, left, state.live.get(read.base_offset) == read)
        for read, left in erase.files
    )
    return Erase(erase.erasure, tuple(exchanged))


def _check_erased_from(state: PartitionState, read: LogFile, left: LogFile | None) -> None:
    path = read.file.data_path
    if state.live.get(read.base_offset) == read and path not in state.erased:
        _check_input_is_stable(state, read)
        return
    dead = state.dead.get(path)
    if path in state.erased or (dead is not None and (dead.log_file != read or dead.status == "erased")):
        seen = "of which records were erased"
    elif dead is None and (path in state.named or parse_data_path(path).log_end >= state.floor):
        seen = "which is not in the log as it was read"
    elif dead is not None and dead.status == "aborted" and left is not None:
        seen = "which was aborted, and something that stands for it"
    else:
        return
    raise InvalidRequestError(
        f"an erasure in {path}, {seen}",
        expected="files that are decided, and that nobody rewrote or trimmed meanwhile",
        action="plan the erasure again",
    )


def _check_left(read: LogFile, left: LogFile) -> None:
    within = read.base_offset <= left.base_offset <= left.last_offset <= read.last_offset
    in_time = read.first_timestamp <= left.first_timestamp <= left.max_timestamp <= read.max_timestamp
    span = left.last_offset - left.base_offset + 1
    if not (within and in_time and 1 <= left.record_count <= min(read.record_count, span)):
        raise InvalidRequestError(
            f"{left.record_count} records left at offsets {left.base_offset} to {left.last_offset}",
            expected=f"some of the {read.record_count} from {read.base_offset} to {read.last_offset}, of their times",
        )
