"""Erase rows on the pure core: what is legal, and what state they lead to on replay."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import count

import pytest

from tests.protocol.memory_log import Log, at, busy, error
from txn_engine.errors import CorruptObjectError, InvalidRequestError
from txn_engine.log.snapshot_format import decode_snapshot, encode_snapshot
from txn_engine.protocol.batches import BatchDescriptor, Control, FileRef
from txn_engine.protocol.controls import GRACE_MS, Erase, Exchange, decode_control, encode_control
from txn_engine.protocol.partition import LogFile
from txn_engine.protocol.proposals import Duplicate, EraseProposal, FloorProposal, TrimProposal
from txn_engine.protocol.replay import apply
from txn_engine.reasons import Reason

_IDS = count(1 << 64)


def left_of(file: LogFile, *, log_end: int = 0, **changes: object) -> LogFile:
    """The file that takes this file's place once its first record is erased."""
    path = f"data/{log_end:020d}-p-1-e-1-{next(_IDS):032x}.parquet"
    left = replace(
        file,
        producer_id=-1,
        producer_epoch=-1,
        base_offset=file.base_offset + 1,
        record_count=file.record_count - 1,
        file=FileRef(path, 1, "e" * 32),
    )
    return replace(left, **changes)  # type: ignore[arg-type]


def erase(log: Log, *bases: int) -> EraseProposal:
    """Propose to erase the first record of each of these live files."""
    files = [log.state.live[base] for base in bases]
    return EraseProposal(0, tuple((file, left_of(file) if file.record_count > 1 else None) for file in files))


def test_what_is_left_takes_the_place_of_what_was_there() -> None:
    """After an erasure, the replacements are live and the files are dead as erased from the row's time on.
    Producers, transactions and the last stable offset do not change."""
    log = busy()
    before, log.now = log.state, 7_000
    proposal = erase(log, 0, 3, 9)
    assert at(log.append(proposal)[0]) == (13, 13)
    assert sorted(log.state.live) == [1, 4, 10]
    assert [file.record_count for _, file in sorted(log.state.live.items())] == [2, 2, 2]
    gone = {path: dead.died_ms for path, dead in log.state.dead.items() if dead.status == "erased"}
    assert gone == {read.file.data_path: 7_000 for read, _ in proposal.files}
    assert dict(log.state.erased) == {read.file.data_path: left for read, left in proposal.files}
    for name in (
        "producers",
        "open_transactions",
        "undecided",
        "aborted",
        "log_start_offset",
        "last_stable_offset",
    ):
        assert getattr(log.state, name) == getattr(before, name)


def test_sent_again_it_is_a_duplicate() -> None:
    """A writer that never got the answer may send the erasure again."""
    log = busy()
    proposal = erase(log, 0, 9)
    log.append(proposal)
    end = log.state.log_end_offset
    assert log.append(proposal)[0] == Duplicate(-1, -1)
    assert log.state.log_end_offset == end


def test_a_dead_file_may_have_one_that_stands_for_it() -> None:
    """A dead file may get a replacement too, which only cuts read and which is dead itself. After a second
    erasure, both the file and the first replacement lead to the second one."""
    log = busy()
    first = log.state.live[0]
    log.append(log.merged(0, 3))
    left = left_of(first)
    at(log.append(EraseProposal(0, ((first, left),)))[0])
    assert log.state.dead[left.file.data_path].status == "replaced"
    assert log.state.erased[first.file.data_path] == left
    again = left_of(left)
    at(log.append(EraseProposal(1, ((left, again),)))[0])
    assert log.state.erased[first.file.data_path] == log.state.erased[left.file.data_path] == again
    assert log.state.dead[left.file.data_path].status == "erased"
    at(log.append(EraseProposal(2, ((again, None),)))[0])
    assert set(log.state.erased.values()) == {None}


def test_an_aborted_file_has_nothing_in_its_place() -> None:
    """An aborted file is erased without a replacement, because its records never counted."""
    log = busy()
    (dead,) = log.state.dead.values()
    assert (
        error(log.append(EraseProposal(0, ((dead.log_file, left_of(dead.log_file)),)))[0])
        is InvalidRequestError
    )
    at(log.append(EraseProposal(0, ((dead.log_file, None),)))[0])
    assert [each.status for each in log.state.dead.values()] == ["erased"]
    assert set(log.state.aborted) == {8}


def test_a_file_that_the_log_has_forgotten() -> None:
    """A file that the log does not know may only be erased if its name is below the floor, because the log
    may have forgotten it. An unknown file above the floor may be a writer's upload."""
    log = busy()
    forgotten = replace(
        log.state.live[0], file=FileRef(f"data/{0:020d}-p-1-e-1-{7:032x}.parquet", 1, "e" * 32)
    )
    proposal = EraseProposal(0, ((forgotten, left_of(forgotten, log_end=1)),))
    assert error(log.append(proposal)[0]) is InvalidRequestError
    log.append(FloorProposal(1))
    at(log.append(proposal)[0])
    assert forgotten.file.data_path not in log.state.dead
    assert log.state.erased[forgotten.file.data_path] == proposal.files[0][1]


def test_a_floor_forgets_what_was_erased_and_not_what_stands_for_it() -> None:
    """An erased file is forgotten like other dead files. A cut needs its replacement for as long as the cut is kept."""
    log = busy()
    proposal = erase(log, 0)
    log.append(proposal)
    log.now += GRACE_MS
    log.append(FloorProposal(1))
    path = proposal.files[0][0].file.data_path
    assert path not in log.state.dead
    assert path not in log.state.named
    assert log.state.erased[path] == proposal.files[0][1]


def undecided(log: Log) -> EraseProposal:
    return EraseProposal(0, ((log.state.undecided[12], None),))


def above_the_lso(log: Log) -> EraseProposal:
    log.plain()
    return EraseProposal(0, ((log.state.live[13], None),))


def overtaken(log: Log) -> EraseProposal:
    proposal = erase(log, 0)
    log.append(log.merged(0, 3))
    assert at(log.append(proposal)[0])  # dead, and just as it was read: it stands for it as of cuts
    return EraseProposal(0, ((proposal.files[0][0], left_of(proposal.files[0][0])),))


def changed(**changes: object) -> Callable[[Log], EraseProposal]:
    def made(log: Log) -> EraseProposal:
        file = log.state.live[0]
        return EraseProposal(0, ((file, left_of(file, **changes)),))

    return made


def read_otherwise(log: Log) -> EraseProposal:
    file = replace(log.state.live[0], record_count=2)
    return EraseProposal(0, ((file, None),))


def twice(log: Log) -> EraseProposal:
    return EraseProposal(0, erase(log, 0).files + erase(log, 0).files)


def below_the_floor(log: Log) -> EraseProposal:
    log.append(FloorProposal(5))
    return erase(log, 0)


ILLEGAL: dict[str, Callable[[Log], EraseProposal]] = {
    "nothing": lambda log: EraseProposal(0, ()),
    "the same file twice": twice,
    "undecided": undecided,
    "above the LSO": above_the_lso,
    "erased before": overtaken,
    "not as it was read": read_otherwise,
    "what is left is below the floor": below_the_floor,
    "more records than there were": changed(record_count=4),
    "no record left": changed(record_count=0),
    "from before the file": changed(base_offset=-1),
    "behind the file": changed(last_offset=3),
    "of another time": changed(max_timestamp=9_999),
    "of a producer": changed(producer_id=1, producer_epoch=0),
    "from beyond the log's end": changed(log_end=14),
}


@pytest.mark.parametrize("illegal", ILLEGAL.values(), ids=ILLEGAL)
def test_illegal(illegal: Callable[[Log], EraseProposal]) -> None:
    """An erasure may not name undecided files, name a file twice, or replace a file with records that it did
    not hold."""
    log = busy()
    proposal = illegal(log)
    before = log.state
    assert error(log.append(proposal)[0]) is InvalidRequestError
    assert log.state == before


def test_a_rewrite_that_was_planned_before_is_refused() -> None:
    """A rewrite that was planned before an erasure is refused, because its input is no longer live. No erased
    record comes back."""
    log = busy()
    rewrite = log.merged(0, 3)
    log.append(erase(log, 0))
    assert error(log.append(rewrite)[0]) is InvalidRequestError


def test_a_trim_over_it() -> None:
    """A trim applies to a replacement like to any other file."""
    log = busy()
    log.append(erase(log, 0))
    at(log.append(TrimProposal(3, 0))[0])
    assert sorted(log.state.live) == [3, 4, 9]


def test_a_snapshot_of_it() -> None:
    """A snapshot says which file replaces each erased one."""
    log = busy()
    assert decode_snapshot(encode_snapshot(log.state), key="k") == log.state
    log.append(erase(log, 0, 3))
    assert decode_snapshot(encode_snapshot(log.state), key="k") == log.state


def test_as_the_format_says() -> None:
    """An erase row's JSON is as the format says, and is decoded to the same row."""
    log = busy()
    file = left_of(log.state.live[0])
    value = Erase(3, (Exchange("data/a", None, False), Exchange("data/b", file, True)))
    text = encode_control(value)
    first = (
        '{"erasure":3,"files":[{"input":"data/a","live":false,"output":null},{"input":"data/b","live":true,'
    )
    assert text.startswith(first)
    row = BatchDescriptor(13, 13, 0, control=Control.ERASE, control_value=text)
    assert decode_control(row) == value
    replayed = apply(log.state, row)  # of files that nobody knows: nothing but what stands for them
    assert (replayed.live, set(replayed.erased)) == (log.state.live, {"data/a", "data/b"})


@pytest.mark.parametrize(
    "text",
    [
        "{}",
        '{"erasure":0,"files":[{}]}',
        '{"erasure":0,"files":[{"input":"a","output":1,"live":true}]}',
        '{"erasure":0,"files":[{"input":"a","output":null,"live":1}]}',
    ],
)
def test_what_is_no_erase_row(text: str) -> None:
    """An erase row whose value does not have the format's form is damage."""
    with pytest.raises(CorruptObjectError) as damaged:
        decode_control(BatchDescriptor(0, 0, 0, control=Control.ERASE, control_value=text))
    assert damaged.value.reason is Reason.BAD_CONTROL_VALUE
