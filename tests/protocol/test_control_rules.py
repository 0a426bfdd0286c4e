"""Trim, expire, floor and rewrite on the pure core: what is legal, and what state they lead to on replay."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from tests.protocol.memory_log import Log, at, busy, error
from txn_engine.errors import (
    CorruptObjectError,
    InvalidRequestError,
    OutOfOrderSequenceNumberError,
    UnsupportedFormatError,
)
from txn_engine.protocol.batches import BatchDescriptor, Control
from txn_engine.protocol.controls import (
    GRACE_MS,
    Expire,
    Floor,
    Rewrite,
    Trim,
    decode_control,
    encode_control,
)
from txn_engine.protocol.partition import PartitionState
from txn_engine.protocol.proposals import (
    Appended,
    Duplicate,
    ExpireProposal,
    FloorProposal,
    Proposal,
    Refused,
    RewriteProposal,
    TrimProposal,
    VerifiedSnapshot,
)
from txn_engine.protocol.replay import apply
from txn_engine.reasons import Reason

NOTHING = Duplicate(-1, -1)


def verdict(log: Log, proposal: Proposal) -> Appended | Duplicate | Refused:
    return log.append(proposal)[0]


def read_back(log: Log, control: Control, value: Trim | Expire | Floor | Rewrite) -> PartitionState:
    """The state after a row that no planner has judged."""
    end = log.state.log_end_offset
    row = BatchDescriptor(end, end, log.now, control=control, control_value=encode_control(value))
    return apply(log.state, row)


# --- trim -------------------------------------------------------------------------------------------------


def test_a_trim_moves_the_logs_start() -> None:
    """After a trim, live files wholly below the start are dead from the row's append time on. Files above it
    stay."""
    log = busy()
    log.now = 5_000
    assert at(log.append(TrimProposal(4, 0))[0]) == (13, 13)
    assert (log.state.log_start_offset, set(log.state.live)) == (4, {4, 9})
    trimmed = {dead.log_file.base_offset: (dead.status, dead.died_ms) for dead in log.state.dead.values()}
    assert trimmed == {0: ("replaced", 5_000), 3: ("replaced", 5_000), 6: ("aborted", 1_000)}


def test_a_trim_passes_aborted_ranges() -> None:
    """After a trim, the aborted index keeps transactions that reach to the start or beyond, and drops those
    wholly below it."""
    log = busy()
    log.append(TrimProposal(6, 0))
    assert set(log.state.aborted) == {8}
    log.append(TrimProposal(9, 0))
    assert not log.state.aborted


SNAPSHOTS = (VerifiedSnapshot(6, 4), VerifiedSnapshot(9, 8))


def test_the_entries_start_moves_to_the_last_entry_of_a_verified_snapshot() -> None:
    """A trim may move the entries' start to the last entry of a verified snapshot if a newer one is verified
    too. The records' start stays where it is."""
    log = busy()
    at(log.append(TrimProposal(0, 4, SNAPSHOTS))[0])
    assert (log.state.log_start_offset, log.state.entries_start) == (0, 4)
    assert set(log.state.live) == {0, 3, 4, 9}


@pytest.mark.parametrize(
    "illegal",
    [
        TrimProposal(3, 4, SNAPSHOTS),
        TrimProposal(9, 3, SNAPSHOTS),
        TrimProposal(13, 4),
        TrimProposal(10, 4),
        TrimProposal(4, 8),
        TrimProposal(4, 8, SNAPSHOTS),
        TrimProposal(4, 6, SNAPSHOTS),
        TrimProposal(4, 12, (VerifiedSnapshot(99, 12), VerifiedSnapshot(100, 99))),
        TrimProposal(4, 8, (VerifiedSnapshot(9, 8), VerifiedSnapshot(9, 8))),
    ],
    ids=[
        "log start falls",
        "entries start falls",
        "log start above the LSO",
        "log start inside a file",
        "entries start without a snapshot",
        "no newer snapshot",
        "not the last entry of a snapshot",
        "a snapshot from beyond the log's end",
        "the same snapshot twice",
    ],
)
def test_illegal_trims(illegal: TrimProposal) -> None:
    """A trim may not move anything back, trim anything undecided or half of a file, or seal what no two
    snapshots hold."""
    log = busy()
    at(log.append(TrimProposal(4, 4, SNAPSHOTS))[0])
    before = log.state
    assert error(verdict(log, illegal)) is InvalidRequestError
    assert log.state == before


def test_a_trim_to_where_the_log_starts_writes_nothing() -> None:
    """A trim to the log's present start is a duplicate and writes nothing."""
    log = busy()
    log.append(TrimProposal(4, 0))
    end = log.state.log_end_offset
    assert verdict(log, TrimProposal(4, 0)) == NOTHING
    assert log.state.log_end_offset == end


@pytest.mark.parametrize(("first", "second"), [(3, 4), (4, 3)])
def test_two_trims(first: int, second: int) -> None:
    """If two trims were planned on the same log, the later one is legal only if it moves the start forward."""
    log = busy()
    _, second_verdict = log.append(TrimProposal(first, 0), TrimProposal(second, 0))
    assert isinstance(second_verdict, Appended if second > first else Refused)
    assert log.state.log_start_offset == 4


def test_replay_takes_the_maximum() -> None:
    """On replay, a trim or a floor with a lower value does not move anything back."""
    log = busy()
    log.append(TrimProposal(4, 4, SNAPSHOTS), FloorProposal(5))
    after = read_back(log, Control.TRIM, Trim(0, 0))
    assert (after.log_start_offset, after.entries_start) == (4, 4)
    assert read_back(log, Control.FLOOR, Floor(1)).floor == 5


def test_log_09_first_unstable_is_never_below_the_logs_start() -> None:
    """LOG-09: if a transaction is open from before the log's start, the last stable offset is the log's
    start."""
    log = Log()
    log.data(1, 0, 0, count=5)
    log.plain(3)
    assert log.state.first_unstable_offset == 0
    after = read_back(log, Control.TRIM, Trim(5, 0))
    assert after.first_unstable_offset == after.last_stable_offset == 5


# --- expire -----------------------------------------------------------------------------------------------


def test_psm_16_producers_with_an_open_transaction_do_not_expire() -> None:
    """PSM-16: an expiry leaves out producers with an open transaction, and the first undecided offset
    stays."""
    log = Log()
    log.data(1, 5, 0)
    log.now += GRACE_MS
    assert verdict(log, ExpireProposal((1,), log.now)) == NOTHING
    assert (set(log.state.producers), log.state.last_stable_offset) == ({1}, 0)


def test_psm_17_an_expired_producer_is_unknown() -> None:
    """PSM-17: after an expiry a producer may begin with any sequence outside a transaction, and only with 0
    inside one."""
    log = Log()
    log.data(1, 5, 0, transactional=False)
    log.data(2, 5, 0)
    log.marker(2, 6, committed=True)
    at(log.append(ExpireProposal((1, 2), log.now))[0])
    assert not log.state.producers
    assert error(log.data(2, 5, 1)) is OutOfOrderSequenceNumberError
    assert at(log.data(1, 5, 1, transactional=False)) == (4, 4)
    assert (len(log.state.producers), log.state.producers[1].last_sequence) == (1, 1)


def test_a_producer_that_wrote_since_is_left_out() -> None:
    """An expiry leaves out a producer that has written since, by the log's time and not by the records'. The
    others expire all the same."""
    log = Log()
    for producer_id in (1, 2, 3):
        log.data(producer_id, 0, 0, transactional=False)
    idle_since = log.now
    log.now += 1
    log.append(replace(log.propose(2, 0, 1, transactional=False), first_timestamp=0, max_timestamp=0))
    at(log.append(ExpireProposal((3, 2, 1, 9), idle_since))[0])
    assert set(log.state.producers) == {2}


def test_replay_of_an_expiry_forgets_an_open_transaction_too() -> None:
    """On replay an expiry also forgets a producer with an open transaction, so that an unknown producer does
    not hold up readers."""
    log = Log()
    log.data(1, 0, 0)
    after = read_back(log, Control.EXPIRE, Expire((1, 7)))
    assert (after.last_stable_offset, set(after.producers)) == (2, set())


# --- floor ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("floor", [3, 15], ids=["falls", "above its own offset"])
def test_illegal_floors(floor: int) -> None:
    """A floor never falls, and is at most its own row's offset."""
    log = busy()
    at(log.append(FloorProposal(4))[0])
    assert log.state.log_end_offset == 14
    assert error(verdict(log, FloorProposal(floor))) is InvalidRequestError
    assert log.state.floor == 4


def test_the_floor_may_be_its_own_offset_and_is_written_once() -> None:
    """The highest legal floor is the row's own offset, and the same floor again writes nothing."""
    log = busy()
    assert at(log.append(FloorProposal(13))[0]) == (13, 13)
    assert verdict(log, FloorProposal(13)) == NOTHING


def test_a_file_from_below_the_floor_cannot_be_named() -> None:
    """A file whose upload began strictly below the floor is refused, and one at the floor is accepted. A
    batch that is in the log already is a duplicate before that."""
    log = Log()
    sent = log.propose(1, 0, 0, count=3, transactional=False)
    log.append(sent)
    log.append(FloorProposal(2))
    assert error(log.data(1, 0, 3, transactional=False, log_end=1)) is InvalidRequestError
    assert error(log.plain(log_end=1)) is InvalidRequestError
    assert log.append(sent)[0] == Duplicate(0, 2)
    assert at(log.data(1, 0, 3, transactional=False, log_end=2)) == (4, 4)


def test_a_dead_file_is_forgotten_by_a_floor_that_refuses_its_name() -> None:
    """A floor forgets a dead file once its grace period is over, and only if its name is below the floor.
    Otherwise the file could be named again."""
    log = Log()
    log.data(1, 0, 0, log_end=0)
    log.marker(1, 1, committed=False)
    log.data(1, 1, 0, log_end=2)
    log.marker(1, 2, committed=False)
    old, young = sorted(log.state.dead)
    log.now += GRACE_MS - 1
    log.append(FloorProposal(1))
    assert set(log.state.dead) == set(log.state.named) == {old, young}
    log.now += 1
    log.append(FloorProposal(2))
    assert set(log.state.dead) == set(log.state.named) == {young}
    again = replace(log.propose(1, 2, 0), file=log.state.dead[young].log_file.file)
    assert error(log.append(again)[0]) is InvalidRequestError


# --- rewrite ----------------------------------------------------------------------------------------------


def test_a_rewrite_takes_the_place_of_its_inputs() -> None:
    """After a rewrite, its inputs are dead from the row's append time on, and its output is live with all
    their records and gaps."""
    log = busy()
    log.now = 7_000
    rewrite = log.merged(3, 4, 9)
    assert at(log.append(rewrite)[0]) == (13, 13)
    assert set(log.state.live) == {0, 3}
    merged = log.state.live[3]
    assert (merged.last_offset, merged.record_count, merged.has_gaps) == (11, 6, True)
    replaced = [dead for dead in log.state.dead.values() if dead.status == "replaced"]
    assert {dead.log_file for dead in replaced} == set(rewrite.inputs)
    assert {dead.died_ms for dead in replaced} == {7_000}
    assert log.state.named[merged.file.data_path] == 3


def test_a_rewritten_file_may_be_rewritten_and_trimmed() -> None:
    """Files of several generations that begin at one offset are kept apart when they are rewritten and
    trimmed."""
    log = busy()
    log.append(log.merged(0, 3))
    log.append(log.merged(0, 4))
    assert set(log.state.live) == {0, 9}
    assert sorted(dead.log_file.base_offset for dead in log.state.dead.values()) == [0, 0, 3, 4, 6]
    assert error(verdict(log, TrimProposal(4, 0))) is InvalidRequestError
    at(log.append(TrimProposal(9, 0))[0])
    assert set(log.state.live) == {9}


def with_input(change: dict[str, object]) -> Callable[[Log], RewriteProposal]:
    def made(log: Log) -> RewriteProposal:
        rewrite = log.merged(0, 3)
        return replace(rewrite, inputs=(replace(rewrite.inputs[0], **change), rewrite.inputs[1]))  # type: ignore[arg-type]

    return made


def undecided(log: Log) -> RewriteProposal:
    return RewriteProposal((log.state.undecided[12],), (replace(log.merged(0).outputs[0], base_offset=12),))


def aborted(log: Log) -> RewriteProposal:
    file = next(iter(log.state.dead.values())).log_file
    return RewriteProposal((file,), log.merged(0).outputs)


def above_the_lso(log: Log) -> RewriteProposal:
    log.plain()
    return log.merged(9, 13)


def trimmed(log: Log) -> RewriteProposal:
    rewrite = log.merged(0, 3)
    log.append(TrimProposal(4, 0))
    return rewrite


def rewritten(log: Log) -> RewriteProposal:
    rewrite = log.merged(0, 3)
    log.append(log.merged(3, 4))
    return rewrite


def below_the_floor(log: Log) -> RewriteProposal:
    log.append(FloorProposal(5))
    return log.merged(0, 3, log_end=4)


def named_before(log: Log) -> RewriteProposal:
    return log.merged(0, 3, file=log.state.live[9].file)


def two_outputs_that_overlap(log: Log) -> RewriteProposal:
    one, other = log.merged(0, 3), log.merged(3, 4)
    return RewriteProposal((*one.inputs, other.inputs[1]), (*one.outputs, *other.outputs))


def an_input_is_left_over(log: Log) -> RewriteProposal:
    return RewriteProposal(log.merged(0, 3, 4).inputs, log.merged(0, 3).outputs)


ILLEGAL: dict[str, Callable[[Log], RewriteProposal]] = {
    "no inputs": lambda log: RewriteProposal((), log.merged(0).outputs),
    "no outputs": lambda log: RewriteProposal(log.merged(0).inputs, ()),
    "another checksum": with_input({"file": replace(Log().propose(1, 0, 0).file, checksum="other")}),
    "another offset": with_input({"base_offset": 1}),
    "undecided": undecided,
    "aborted": aborted,
    "at the LSO and above": above_the_lso,
    "trimmed": trimmed,
    "rewritten by another": rewritten,
    "an output of a producer": lambda log: log.merged(0, 3, producer_id=1, producer_epoch=0),
    "an output named for a producer": lambda log: log.merged(0, 3, file=log.propose(1, 0, 0).file),
    "an output from beyond the log's end": lambda log: log.merged(0, 3, log_end=14),
    "an output below the floor": below_the_floor,
    "an output named before": named_before,
    "fewer records": lambda log: log.merged(0, 3, record_count=3),
    "more records": lambda log: log.merged(0, 3, record_count=5),
    "from later on": lambda log: log.merged(0, 3, base_offset=1),
    "shorter": lambda log: log.merged(0, 3, last_offset=2),
    "longer": lambda log: log.merged(0, 3, last_offset=4),
    "another time": lambda log: log.merged(0, 3, max_timestamp=9_999),
    "around a file that is not rewritten": lambda log: log.merged(0, 4),
    "outputs that overlap": two_outputs_that_overlap,
    "an input in no output": an_input_is_left_over,
}


@pytest.mark.parametrize("illegal", ILLEGAL.values(), ids=ILLEGAL.keys())
def test_illegal_rewrites(illegal: Callable[[Log], RewriteProposal]) -> None:
    """The inputs of a rewrite have to be live as they were read, decided and below the LSO. Its outputs have
    to be new files with exactly their records."""
    log = busy()
    rewrite = illegal(log)
    before = log.state
    assert error(verdict(log, rewrite)) is InvalidRequestError
    assert log.state == before


def test_two_rewrites_cannot_both_win() -> None:
    """If two compactors read the same files, the second one is refused, whatever it overlaps with. The first one, sent
    again, writes nothing.
    """
    log = busy()
    mine, theirs = log.merged(0, 3), log.merged(3, 4)
    won, lost = log.append(mine, theirs)
    assert isinstance(won, Appended)
    assert error(lost) is InvalidRequestError
    assert verdict(log, mine) == NOTHING


def test_rewrite_versus_trim() -> None:
    """If a rewrite and a trim are planned together, the second one is refused: a trim may not cut a merged
    file."""
    log = busy()
    rewrite, trim = log.merged(0, 3), TrimProposal(3, 0)
    won, lost = log.plan(rewrite, trim).verdicts
    assert isinstance(won, Appended)
    assert error(lost) is InvalidRequestError
    won, lost = log.plan(trim, rewrite).verdicts
    assert isinstance(won, Appended)
    assert error(lost) is InvalidRequestError


def test_several_outputs_at_once() -> None:
    """A rewrite may have several outputs, in any order, if each covers inputs that follow one another."""
    log = busy()
    one, other = log.merged(0, 3), log.merged(4, 9)
    at(log.append(RewriteProposal((*other.inputs, *one.inputs), (*other.outputs, *one.outputs)))[0])
    assert set(log.state.live) == {0, 4}


def test_replay_of_a_rewrite_that_lost_its_inputs() -> None:
    """Replay skips an input of a rewrite that is not live, and the outputs are live."""
    log = busy()
    output = log.merged(0, 3).outputs[0]
    after = read_back(
        log, Control.REWRITE, Rewrite(("data/nobody.parquet",), (replace(output, base_offset=20),))
    )
    assert set(after.live) == {0, 3, 4, 9, 20}


# --- as it stands in the log ------------------------------------------------------------------------------


def test_replay_gives_what_was_planned() -> None:
    """Replaying the rows of all controls leads to the planner's state."""
    log = busy()
    plan = log.plan(
        log.merged(0, 3), TrimProposal(4, 4, SNAPSHOTS), FloorProposal(3), ExpireProposal((1,), log.now)
    )
    assert [batch.control.value for batch in plan.batches] == ["rewrite", "trim", "floor", "expire"]
    replayed = log.state
    for batch in plan.batches:
        replayed = apply(replayed, batch)
    assert replayed == plan.state


def test_control_values_are_the_formats() -> None:
    """Control values are JSON with sorted keys and no spaces. A rewrite's output has the file columns of a
    snapshot without status and time."""
    rewrite = Log()
    rewrite.plain(2)
    value = Rewrite(("data/a",), rewrite.merged(0).outputs)
    assert encode_control(Trim(5, 3)) == '{"entries_start":3,"log_start_offset":5}'
    assert encode_control(Expire((4, 2))) == '{"producer_ids":[4,2]}'
    assert encode_control(Floor(9)) == '{"floor":9}'
    assert encode_control(value) == (
        '{"inputs":["data/a"],"outputs":[{"base_offset":0,"checksum":"'
        + "d" * 32
        + '","data_bytes":1,"data_path":'
        '"data/00000000000000000000-p-1-e-1-00000000000000000000000000000001.parquet","first_timestamp":1000,'
        '"last_offset":1,"max_timestamp":1000,"producer_epoch":-1,"producer_id":-1,"record_count":2}],"tombstones_to":-1}'
    )
    row = BatchDescriptor(0, 0, 0, control=Control.REWRITE, control_value=encode_control(value))
    assert decode_control(row) == value


@pytest.mark.parametrize("control", [Control.TRIM, Control.EXPIRE, Control.FLOOR, Control.REWRITE])
@pytest.mark.parametrize(
    "text", ["", "{", "{}", "[]", "null", '{"floor":"x","producer_ids":[null],"inputs":1}']
)
def test_a_control_row_that_says_nothing(control: Control, text: str) -> None:
    """A control row whose value does not have the format's form stops the replay, because guessing would be
    worse."""
    with pytest.raises(CorruptObjectError) as damaged:
        apply(PartitionState(), BatchDescriptor(0, 0, 0, control=control, control_value=text))
    assert damaged.value.reason is Reason.BAD_CONTROL_VALUE
    assert f"a {control.value} row at offset 0" in damaged.value.seen


def test_a_marker_is_no_control_value() -> None:
    """The value of a marker is not decoded as a rewrite, trim, expire or floor."""
    with pytest.raises(UnsupportedFormatError):
        decode_control(BatchDescriptor(0, 0, 0, control=Control.COMMIT, control_value="{}"))


# --- late transactions ------------------------------------------------------------------------------------


def test_psm_18_a_late_transaction() -> None:
    """PSM-18: a partition has a late transaction once its oldest open one is older than the longest time-out
    and five minutes, until that one has ended."""
    log = Log()
    limit, buffer = 300_000, 300_000
    assert not log.state.has_late_transaction(log.now, limit)
    log.data(1, 0, 0)
    log.now += 500
    log.data(2, 0, 0)
    log.now += limit + buffer - 500
    assert not log.state.has_late_transaction(log.now, limit)
    log.now += 1
    assert log.state.has_late_transaction(log.now, limit)
    log.now += 500
    log.marker(1, 1, committed=False)
    assert log.state.has_late_transaction(log.now, limit)
    log.marker(2, 1, committed=False)
    assert not log.state.has_late_transaction(log.now, limit)
