"""Rewrite, clean, trim, expire, floor and erase rows: what they say (`control_value`), and their replay."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from txn_engine.errors import CorruptObjectError, UnsupportedFormatError
from txn_engine.protocol.batches import BatchDescriptor, Control, FileRef
from txn_engine.protocol.file_names import parse_data_path
from txn_engine.protocol.log_time import bounded_time
from txn_engine.protocol.partition import DeadFile, LogFile, PartitionState
from txn_engine.reasons import Reason

CONTROL_CHARS_MAX = 4 << 20
"""Of a `control_value`."""
KEEPS_ALL = -1
"""`tombstones_to` of a rewrite that leaves no record out."""
GRACE_MS = 24 * 60 * 60 * 1_000
"""How long a dead file is kept: long jobs hold lists of files."""


@dataclass(frozen=True, slots=True)
class Trim:
    """The records below `log_start_offset` are gone; the entries below `entries_start` may be sealed."""

    log_start_offset: int
    entries_start: int


@dataclass(frozen=True, slots=True)
class Expire:
    """These idle producers are forgotten."""

    producer_ids: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Floor:
    """No file whose name's log end is strictly below this may be named any more."""

    floor: int


@dataclass(frozen=True, slots=True)
class Rewrite:
    """The records of these files now live in those. Inputs by path.

    `tombstones_to`: `KEEPS_ALL`, or, in a rewrite by key, the offset below which tombstones were left out too.
    `delete_retention_ms`: by which that was judged; None: by what the topic was made with.
    """

    inputs: tuple[str, ...]
    outputs: tuple[LogFile, ...]
    tombstones_to: int = KEEPS_ALL
    delete_retention_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Clean:
    """Compaction by key has come so far: see `Cleaning`. `delete_retention_ms`: as a rewrite's."""

    cleaned_to: int
    tombstones_to: int
    delete_retention_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Exchange:
    """A file with records that are gone for good, by its path, and the one that stands for it: the same records at the
    same offsets, without those; None where none is left, or nobody reads that file any more.

    is_live: the input was live until this row; else it was dead, or forgotten.
    """

    input: str
    output: LogFile | None
    is_live: bool


@dataclass(frozen=True, slots=True)
class Erase:
    """Records were erased from these files, for good: by erasure `erasure` of the topic. Which, nothing here says."""

    erasure: int
    files: tuple[Exchange, ...]


ControlValue = Trim | Expire | Floor | Rewrite | Clean | Erase

_KINDS: Mapping[type[ControlValue], Control] = {
    Trim: Control.TRIM,
    Expire: Control.EXPIRE,
    Floor: Control.FLOOR,
    Rewrite: Control.REWRITE,
    Clean: Control.CLEAN,
    Erase: Control.ERASE,
}


def control_of(value: ControlValue) -> Control:
    """The descriptor's `control` for a value."""
    return _KINDS[type(value)]


# --- as it stands in a row ---------------------------------------------------------------------------------


def encode_control(value: ControlValue) -> str:
    """The value as a row's `control_value`."""
    fields = {name: held for name, held in asdict(value).items() if held is not None}
    if isinstance(value, Rewrite):
        fields["outputs"] = [_file_fields(output) for output in value.outputs]
    if isinstance(value, Erase):
        fields["files"] = [
            {
                "input": each.input,
                "output": None if each.output is None else _file_fields(each.output),
                "live": each.is_live,
            }
            for each in value.files
        ]
    return json.dumps(fields, sort_keys=True, separators=(",", ":"))


def _file_fields(log_file: LogFile) -> dict[str, Any]:
    fields = asdict(log_file)
    file: dict[str, Any] = fields.pop("file")
    return fields | file


def decode_control(batch: BatchDescriptor) -> ControlValue:
    """What a control row says. `CorruptObjectError` where it is not the format's; `UnsupportedFormatError` for a
    control kind that this version does not know.
    """
    try:
        if len(batch.control_value) > CONTROL_CHARS_MAX:
            raise ValueError(f"{len(batch.control_value)} characters")
        fields = json.loads(batch.control_value)
        if batch.control is Control.TRIM:
            return Trim(_number(fields, "log_start_offset"), _number(fields, "entries_start"))
        if batch.control is Control.EXPIRE:
            return Expire(tuple(_checked(producer_id) for producer_id in _listed(fields, "producer_ids")))
        if batch.control is Control.FLOOR:
            return Floor(_number(fields, "floor"))
        if batch.control is Control.REWRITE:
            outputs = tuple(_output(output) for output in _listed(fields, "outputs"))
            inputs = tuple(str(path) for path in _listed(fields, "inputs"))
            return Rewrite(inputs, outputs, _number(fields, "tombstones_to"), _retention(fields))
        if batch.control is Control.CLEAN:
            return Clean(_number(fields, "cleaned_to"), _number(fields, "tombstones_to"), _retention(fields))
        if batch.control is Control.ERASE:
            return Erase(_number(fields, "erasure"), tuple(map(_exchange, _listed(fields, "files"))))
    except (KeyError, TypeError, ValueError, RecursionError) as error:
        raise CorruptObjectError(
            f"a {batch.control.value} row at offset {batch.base_offset} with the value {batch.control_value[:80]!r}",
            expected=f"the format's JSON with {error}"
            if isinstance(error, KeyError)
            else "the format's JSON",
            reason=Reason.BAD_CONTROL_VALUE,
        ) from error
    raise UnsupportedFormatError(
        f"control kind {batch.control.value!r} at offset {batch.base_offset}",
        expected="one that this version of the engine knows",
    )


def _number(fields: Mapping[str, Any], name: str) -> int:
    """A field of JSON that is a whole number of 63 bits, or -1."""
    return _checked(fields[name])


def _retention(fields: Mapping[str, Any]) -> int | None:
    return _number(fields, "delete_retention_ms") if "delete_retention_ms" in fields else None


def _checked(value: object) -> int:
    if type(value) is not int or not -1 <= value < 1 << 63:
        raise ValueError(f"{value!r:.80} is no offset, count or id")
    return value


def _listed(fields: Mapping[str, Any], name: str) -> list[Any]:
    held = fields[name]
    if not isinstance(held, list):
        raise TypeError(f"{name} is no list")
    return held


def _output(fields: Mapping[str, Any]) -> LogFile:
    file = FileRef(str(fields["data_path"]), _number(fields, "data_bytes"), str(fields["checksum"]))
    times = {name: bounded_time(_whole(fields[name])) for name in ("first_timestamp", "max_timestamp")}
    numbers = [name for name in LogFile.__dataclass_fields__ if name != "file" and name not in times]
    return LogFile(**{name: _number(fields, name) for name in numbers}, **times, file=file)


def _exchange(fields: Any) -> Exchange:
    output, is_live = fields["output"], fields["live"]
    if type(is_live) is not bool:
        raise ValueError(f"live {is_live!r:.80}")
    return Exchange(str(fields["input"]), None if output is None else _output(output), is_live)


def _whole(value: object) -> int:
    if type(value) is not int:
        raise ValueError(f"{value!r:.80} is no time")
    return value


# --- replay -----------------------------------------------------------------------------------------------


def apply_control(state: PartitionState, batch: BatchDescriptor) -> PartitionState:
    """The state after a rewrite, clean, trim, expire, floor or erase row."""
    value = decode_control(batch)
    if isinstance(value, Trim):
        return _trim(state, value, batch.append_time)
    if isinstance(value, Expire):
        return _expire(state, value)
    if isinstance(value, Floor):
        return _raise_floor(state, value, batch.append_time)
    if isinstance(value, Clean):
        cleaning = state.cleaning.without_tombstones(value.tombstones_to)
        return replace(state, cleaning=cleaning.with_clean(value.cleaned_to, batch.append_time))
    if isinstance(value, Erase):
        return _erase(state, value, batch.append_time)
    return _rewrite(state, value, batch.append_time)


def _trim(state: PartitionState, value: Trim, time_ms: int) -> PartitionState:
    log_start_offset = max(state.log_start_offset, value.log_start_offset)
    entries_start = max(state.entries_start, value.entries_start)
    passed = [file for file in state.live.values() if file.last_offset < log_start_offset]
    forgotten = [last for last in state.aborted if last < log_start_offset]
    aborted = state.aborted
    for last in forgotten:
        aborted = aborted.delete(last)
    return replace(
        _replaced(state, passed, time_ms),
        log_start_offset=log_start_offset,
        entries_start=entries_start,
        aborted=aborted,
    )


def _replaced(state: PartitionState, files: list[LogFile], time_ms: int) -> PartitionState:
    """Live files, dead from now on."""
    live, dead = state.live, state.dead
    for file in files:
        live = live.delete(file.base_offset)
        dead = dead.set(file.file.data_path, DeadFile(file, "replaced", time_ms))
    return replace(state, live=live, dead=dead)


def _expire(state: PartitionState, value: Expire) -> PartitionState:
    producers, opened = state.producers, state.open_transactions
    for producer_id in value.producer_ids:
        if producer_id in producers:
            producers = producers.delete(producer_id)
        if producer_id in opened:
            opened = opened.delete(producer_id)
    return replace(state, producers=producers, open_transactions=opened)


def _raise_floor(state: PartitionState, value: Floor, time_ms: int) -> PartitionState:
    """A dead file is forgotten once its grace is over, but only where the floor refuses its name from now on:
    otherwise it could be named a second time.
    """
    floor = max(state.floor, value.floor)
    dead, named = state.dead, state.named
    for path, file in state.dead.items():
        if parse_data_path(path).log_end < floor and time_ms - file.died_ms >= GRACE_MS:
            dead, named = dead.delete(path), named.delete(path)
    return replace(state, floor=floor, dead=dead, named=named)


def _rewrite(state: PartitionState, value: Rewrite, time_ms: int) -> PartitionState:
    by_path = {path: state.live.get(state.named.get(path, -1)) for path in value.inputs}
    inputs = [file for path, file in by_path.items() if file is not None and file.file.data_path == path]
    after = _replaced(state, inputs, time_ms)
    live, named = after.live, after.named
    for output in value.outputs:
        live = live.set(output.base_offset, output)
        named = named.set(output.file.data_path, output.base_offset)
    cleaning = state.cleaning.without_tombstones(value.tombstones_to)
    return replace(after, live=live, named=named, cleaning=cleaning)


def _erase(state: PartitionState, value: Erase, time_ms: int) -> PartitionState:
    """The files are dead. What takes the place of a live one is live; of a dead one, dead: it is read as of earlier
    ends of the log alone, where the first one stands.
    """
    live, dead, named = state.live, state.dead, state.named
    inputs = {each.input: each.output for each in value.files}
    for path, output in inputs.items():
        held = live.get(named.get(path, -1))
        is_live = held is not None and held.file.data_path == path
        if held is not None and is_live:
            live = live.delete(held.base_offset)
            dead = dead.set(path, DeadFile(held, "erased", time_ms))
        elif path in dead:
            dead = dead.set(path, DeadFile(dead[path].log_file, "erased", time_ms))
        if output is None:
            continue
        named = named.set(output.file.data_path, output.base_offset)
        if is_live:
            live = live.set(output.base_offset, output)
        else:
            dead = dead.set(output.file.data_path, DeadFile(output, "replaced", time_ms))
    moved = {
        path: inputs[stands.file.data_path]
        for path, stands in state.erased.items()
        if stands is not None and stands.file.data_path in inputs
    }
    return replace(state, live=live, dead=dead, named=named, erased=state.erased.update({**moved, **inputs}))
