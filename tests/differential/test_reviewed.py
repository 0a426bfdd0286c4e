"""Each reviewed difference excuses what its reason describes, and nothing that only looks like it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import pytest

from tests.differential.clients import Commit, CommitSync, OffsetForTime, Send, SendOffsets, SendPositions
from tests.differential.errors import Kind
from tests.differential.reviewed import REVIEWED, Difference, find_reviewed
from tests.differential.sides import Identity, KnownProducer, KnownTransaction, Place, Seen
from tests.differential.steps import (
    AddPartitions,
    Append,
    CommitOffset,
    CountMarkers,
    DeleteTopic,
    End,
    FetchOffset,
    Init,
    Look,
    Mark,
    Outcome,
    Produce,
    Read,
    SendOffset,
)

PLACE = Place("a", 0)
NOWHERE = Place("nowhere", 0)


def failed(code: str, kind: Kind) -> Outcome:
    return Outcome(code=code, kind=kind)


def row(state: str, epoch: int, producer_id: int = 7) -> KnownTransaction:
    return KnownTransaction(state, producer_id, epoch, 60_000, ())


def known(epoch: int, *, open_since: int = -1, decision: int = 0) -> KnownProducer:
    return KnownProducer(7, epoch, 3, decision, open_since)


def both(difference: Difference, **seen: Any) -> Difference:
    """The same difference, after both sides saw something else."""
    return replace(
        difference,
        ours_saw=replace(difference.ours_saw, **seen),
        kafka_saw=replace(difference.kafka_saw, **seen),
    )


def kafka_alone(difference: Difference, **seen: Any) -> Difference:
    """The same difference, after only Kafka saw something else."""
    return replace(difference, kafka_saw=replace(difference.kafka_saw, **seen))


def ours_alone(difference: Difference, **seen: Any) -> Difference:
    """The same difference, after only the engine saw something else."""
    return replace(difference, ours_saw=replace(difference.ours_saw, **seen))


@dataclass(frozen=True)
class Case:
    """A difference that the entry excuses, and others that look like it."""

    id: str
    excused: Difference
    refused: tuple[Difference, ...]


def _seen(**what: Any) -> tuple[Seen, Seen]:
    return Seen(**what), Seen(**what)


def _later(*, base_sequence: int = 0, is_transactional: bool = True) -> Append:
    return Append(Identity(7, 5), PLACE, base_sequence, (b"v",), is_transactional)


def _first(*, base_sequence: int = 4, is_transactional: bool = True) -> Append:
    return Append(Identity(7, 5), PLACE, base_sequence, (b"v",), is_transactional)


FENCED_WRITE = Difference(
    Produce("t0a", "t0", PLACE, (b"v",)),
    failed("PRODUCER_FENCED", "fatal"),
    failed("INVALID_PRODUCER_EPOCH", "abortable"),
    *_seen(writer=Identity(7, 3), row=row("Empty", 4)),
)
ZOMBIE = Difference(
    Send("t0a", PLACE, (b"v",)),
    failed("FENCED", "fatal"),
    failed("FENCED", "abortable"),
    *_seen(superseded=True),
)
BY_TABLE = Difference(
    End("t0a", "t0", committed=False),
    failed("INVALID_TXN_STATE", "fatal"),
    failed("CONCURRENT_TRANSACTIONS", "retriable"),
    *_seen(writer=Identity(7, 3), row=row("PrepareCommit", 4)),
    undecided=True,
)
REPEATED = Difference(
    Mark(Identity(7, 4), PLACE, committed=True, coordinator_epoch=2),
    Outcome("nothing written"),
    Outcome("marked"),
    *_seen(producer=known(4, decision=2)),
)
LATER_EPOCH = Difference(
    _later(),
    failed("INVALID_TXN_STATE", "abortable"),
    Outcome(9),
    *_seen(producer=known(4, open_since=2)),
)
FIRST_SEQUENCE = Difference(
    _first(),
    failed("OUT_OF_ORDER_SEQUENCE_NUMBER", "abortable"),
    Outcome(9),
)
STALE_HOLDER = Difference(
    Init("t0b", "t0", holding="t0a"),
    failed("PRODUCER_FENCED", "fatal"),
    failed("UNKNOWN_SERVER_ERROR", "fatal"),
    *_seen(writer=Identity(7, 32_760), row=row("Empty", 32_766)),
)
GIVEN_AGAIN = Difference(
    Init("t0b", "t0", holding="t0a"),
    Outcome("p0 epoch 32766"),
    failed("UNKNOWN_SERVER_ERROR", "fatal"),
    *_seen(writer=Identity(7, 32_765), row=row("Empty", 32_766)),
)
LAST_MARKED = Difference(
    Mark(Identity(7, 32_767), PLACE, committed=True, coordinator_epoch=3),
    failed("INVALID_PRODUCER_EPOCH", "refused"),
    Outcome("marked"),
    *_seen(producer=known(32_767, open_since=2, decision=3)),
)
PENDING = Difference(
    SendOffset("t0a", "t0", "g0", PLACE, 4),
    failed("OFFSETS_PENDING", "abortable"),
    Outcome("pending"),
    *_seen(writer=Identity(7, 3), pending=True),
)
MOVED = Difference(
    SendPositions("t0a"),
    failed("OFFSETS_MOVED", "abortable"),
    Outcome([(PLACE, 4)]),
    *_seen(moved=True),
)
TIMES = Difference(
    OffsetForTime(PLACE, "read_committed", 5),
    Outcome(4),
    Outcome(2),
    *_seen(visible=((0, False), (4, True), (5, True))),
)
UNKNOWN_TOPIC = Difference(
    AddPartitions("t0a", "t0", (NOWHERE,)),
    failed("UNKNOWN_TOPIC_OR_PARTITION", "refused"),
    failed("UNKNOWN_TOPIC_OR_PARTITION", "retriable"),
    *_seen(gone=True),
)
NO_OFFSETS = Difference(
    FetchOffset("g0", PLACE, require_stable=True),
    failed("UNKNOWN_TOPIC_OR_PARTITION", "refused"),
    Outcome(-1),
    *_seen(gone=True),
)
NAMESAKE = Difference(CountMarkers("t0", (PLACE, Place("a", 1))), Outcome((0, 2)), Outcome((1, 2)))

CASES = (
    Case(
        "fenced-at-the-coordinator",
        FENCED_WRITE,
        (
            both(FENCED_WRITE, writer=Identity(7, 4)),  # the id's own producer
            kafka_alone(FENCED_WRITE, row=row("Empty", 3)),  # Kafka knows no later epoch
            both(FENCED_WRITE, row=None),
            both(FENCED_WRITE, writer=Identity(8, 4)),  # another producer id has another code
            replace(FENCED_WRITE, ours=failed("PRODUCER_FENCED", "abortable")),
            replace(FENCED_WRITE, kafka=failed("INVALID_PRODUCER_EPOCH", "retriable")),
            replace(FENCED_WRITE, kafka=Outcome(3)),  # Kafka has taken it
            replace(FENCED_WRITE, kafka=failed("UNKNOWN_TOPIC_OR_PARTITION", "retriable")),  # which is there
            kafka_alone(
                replace(FENCED_WRITE, kafka=failed("UNKNOWN_TOPIC_OR_PARTITION", "retriable")), gone=True
            ),  # and here
            replace(FENCED_WRITE, step=End("t0a", "t0", committed=True)),
        ),
    ),
    Case(
        "a-zombie-is-finished-at-once",
        ZOMBIE,
        (
            both(ZOMBIE, superseded=False),  # nobody else has the id
            ours_alone(ZOMBIE, superseded=False),
            replace(ZOMBIE, ours=failed("FENCED", "abortable"), kafka=failed("FENCED", "fatal")),
            replace(ZOMBIE, ours=failed("ABORTABLE", "fatal")),
            replace(ZOMBIE, kafka=Outcome([0])),
        ),
    ),
    Case(
        "decided-answers-by-the-table",
        BY_TABLE,
        (
            replace(BY_TABLE, undecided=False),
            both(BY_TABLE, row=row("CompleteCommit", 4)),
            both(BY_TABLE, row=row("PrepareAbort", 4)),  # the decision that is asked for
            both(BY_TABLE, writer=Identity(8, 3)),
            replace(BY_TABLE, ours=failed("PRODUCER_FENCED", "fatal")),  # its own epoch is not fenced
            both(BY_TABLE, writer=Identity(7, 4)),  # another epoch is, and not told of a state
            replace(BY_TABLE, ours=Outcome("p0 epoch 4")),
        ),
    ),
    Case(
        "repeated-marker-writes-nothing",
        REPEATED,
        (
            both(REPEATED, producer=None),  # the first marker that the partition sees
            both(REPEATED, producer=known(3, decision=2)),  # a newer epoch
            both(REPEATED, producer=known(4, open_since=1, decision=2)),  # something to be ended
            both(REPEATED, producer=known(4, decision=5)),  # a later decision is in force
            kafka_alone(REPEATED, producer=known(3, decision=2)),
            replace(REPEATED, ours=Outcome("marked"), kafka=Outcome("nothing written")),
        ),
    ),
    Case(
        "one-epoch-a-transaction",
        LATER_EPOCH,
        (
            both(LATER_EPOCH, producer=known(4)),  # nothing is open
            both(LATER_EPOCH, producer=known(5, open_since=2)),  # at this very epoch
            both(LATER_EPOCH, producer=None),
            ours_alone(LATER_EPOCH, producer=known(4)),  # open there, and not here
            kafka_alone(LATER_EPOCH, producer=known(4)),  # open here, and not there
            replace(LATER_EPOCH, step=_later(is_transactional=False)),
            replace(LATER_EPOCH, step=_later(base_sequence=2)),
            replace(LATER_EPOCH, ours=failed("INVALID_TXN_STATE", "fatal")),
        ),
    ),
    Case(
        "first-sequence-of-a-transaction",
        FIRST_SEQUENCE,
        (
            both(FIRST_SEQUENCE, producer=known(5)),  # a gap
            both(FIRST_SEQUENCE, producer=known(4)),  # a new epoch that does not begin at 0
            ours_alone(FIRST_SEQUENCE, producer=known(5)),  # forgotten there
            kafka_alone(FIRST_SEQUENCE, producer=known(5)),  # forgotten here
            replace(FIRST_SEQUENCE, step=_first(is_transactional=False)),
            replace(FIRST_SEQUENCE, step=_first(base_sequence=0)),
            replace(
                FIRST_SEQUENCE, step=Produce("t0a", "t0", PLACE, (b"v",), "gap")
            ),  # a coordinator was asked
            replace(FIRST_SEQUENCE, ours=failed("OUT_OF_ORDER_SEQUENCE_NUMBER", "fatal")),
        ),
    ),
    Case(
        "stale-holders-of-the-last-epochs",
        STALE_HOLDER,
        (
            both(STALE_HOLDER, row=row("Empty", 32_765)),
            both(STALE_HOLDER, writer=Identity(7, 32_766)),  # the present holder
            both(STALE_HOLDER, writer=Identity(8, 32_760)),
            replace(STALE_HOLDER, step=Init("t0b", "t0")),
            kafka_alone(STALE_HOLDER, row=row("Empty", 12)),
        ),
    ),
    Case(
        "the-last-client-epoch-is-given-again",
        GIVEN_AGAIN,
        (
            both(GIVEN_AGAIN, writer=Identity(7, 32_764)),
            both(GIVEN_AGAIN, row=row("Empty", 32_767)),
            replace(GIVEN_AGAIN, ours=Outcome("p1 epoch 0")),
            replace(GIVEN_AGAIN, step=Init("t0b", "t0")),
            kafka_alone(GIVEN_AGAIN, row=row("Empty", 12)),
        ),
    ),
    Case(
        "old-markers-at-the-last-epoch",
        LAST_MARKED,
        (
            both(LAST_MARKED, producer=known(32_767, decision=3)),  # nothing is open
            both(LAST_MARKED, producer=known(32_767, open_since=2, decision=2)),  # a later decision
            both(LAST_MARKED, producer=known(32_766, open_since=2, decision=3)),  # an epoch is left
            kafka_alone(LAST_MARKED, producer=None),
            replace(LAST_MARKED, ours=Outcome("marked"), kafka=failed("INVALID_PRODUCER_EPOCH", "refused")),
        ),
    ),
    Case(
        "offsets-wait-for-pending-ones",
        PENDING,
        (
            both(PENDING, pending=False),  # nothing is pending, or the caller's own
            kafka_alone(PENDING, pending=False),
            ours_alone(PENDING, pending=False),
            replace(PENDING, ours=failed("OFFSETS_MOVED", "abortable")),
            replace(PENDING, ours=failed("OFFSETS_PENDING", "fatal")),
            replace(PENDING, kafka=failed("PRODUCER_FENCED", "fatal")),
            replace(PENDING, step=Commit("t0a")),
        ),
    ),
    Case(
        "a-range-is-processed-once",
        MOVED,
        (
            both(MOVED, moved=False),  # the group is where the reader was
            kafka_alone(MOVED, moved=False),
            both(MOVED, moved=False, pending=True),
            replace(MOVED, step=SendOffsets("t0a", "g", PLACE, 4)),  # an offset that nobody has fetched
            replace(MOVED, ours=failed("OFFSETS_MOVED", "fatal")),
            replace(MOVED, kafka=failed("CommitFailedException", "abortable")),
        ),
    ),
    Case(
        "times-of-what-can-be-read",
        TIMES,
        (
            replace(TIMES, ours=Outcome(5)),  # not the first record of that time
            replace(TIMES, ours=Outcome(None)),
            replace(TIMES, kafka=Outcome(0)),  # a record that can be read, and is too early
            kafka_alone(TIMES, visible=((0, False), (4, True))),  # another log
            replace(TIMES, ours=Outcome(2), kafka=Outcome(4)),
        ),
    ),
    Case(
        "an-unknown-topic-is-final",
        UNKNOWN_TOPIC,
        (
            both(UNKNOWN_TOPIC, gone=False),  # one that is there
            kafka_alone(UNKNOWN_TOPIC, gone=False),  # deleted here alone
            ours_alone(UNKNOWN_TOPIC, gone=False),
            replace(UNKNOWN_TOPIC, ours=failed("UNKNOWN_TOPIC_OR_PARTITION", "fatal")),
            replace(UNKNOWN_TOPIC, ours=failed("UNKNOWN_TOPIC_OR_PARTITION", "abortable")),  # nothing is lost
            replace(UNKNOWN_TOPIC, kafka=failed("PRODUCER_FENCED", "fatal")),
            replace(
                UNKNOWN_TOPIC, step=Produce("t0a", "t0", PLACE, (b"v",)), ours=Outcome(0)
            ),  # taken all the same
            replace(UNKNOWN_TOPIC, step=SendOffset("t0a", "t0", "g0", PLACE, 4)),  # its offsets are lost
            replace(UNKNOWN_TOPIC, step=End("t0a", "t0", committed=True)),  # a decision needs no topic
        ),
    ),
    Case(
        "an-unknown-topic-has-no-offsets",
        NO_OFFSETS,
        (
            replace(NO_OFFSETS, kafka=Outcome(4)),  # an offset that outlived its topic
            both(NO_OFFSETS, gone=False),
            kafka_alone(NO_OFFSETS, gone=False),
            replace(NO_OFFSETS, ours=failed("UNSTABLE_OFFSET_COMMIT", "retriable")),
            replace(NO_OFFSETS, ours=Outcome(4)),
        ),
    ),
    Case(
        "a-namesake-is-not-marked",
        NAMESAKE,
        (
            replace(
                NAMESAKE, ours=Outcome((1, 2)), kafka=Outcome((0, 2))
            ),  # ours marks it, and Kafka does not
            replace(NAMESAKE, kafka=Outcome((2, 2))),  # two markers of one transaction
            replace(NAMESAKE, kafka=Outcome((1, 1))),
            replace(NAMESAKE, kafka=Outcome((1,))),
            replace(NAMESAKE, step=Look(PLACE)),
            replace(NAMESAKE, ours=failed("UNKNOWN_TOPIC_OR_PARTITION", "refused")),
        ),
    ),
)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_an_entry_excuses_what_its_reason_speaks_of(case: Case) -> None:
    """The entry excuses the difference itself. No entry excuses a difference that only looks like it."""
    found = find_reviewed(case.excused)
    assert found is not None
    assert found.id == case.id
    for different in case.refused:
        assert find_reviewed(different) is None, different


def test_every_entry_has_its_negatives() -> None:
    """Every entry has differences that it must refuse."""
    assert {case.id for case in CASES if len(case.refused) >= 3} == {entry.id for entry in REVIEWED}


@pytest.mark.parametrize(
    "step",
    [CommitOffset("g0", PLACE, 4), CommitSync("g", PLACE, 4), SendOffsets("t0a", "g", PLACE, 4)],
    ids=str,
)
def test_offsets_wait_by_whatever_call(step: Any) -> None:
    """While another offset is pending, a plain commit may be tried again, and a transaction has to abort."""
    kind: Kind = "abortable" if isinstance(step, SendOffsets) else "retriable"
    pending = replace(PENDING, step=step, ours=failed("OFFSETS_PENDING", kind))
    assert find_reviewed(pending) is not None
    assert find_reviewed(both(pending, pending=False)) is None


@pytest.mark.parametrize(
    ("step", "kind"),
    [
        (Produce("t0a", "t0", PLACE, (b"v",)), "refused"),
        (Produce("p0", None, PLACE, (b"v",)), "abortable"),
        (SendOffset("t0a", "t0", "g0", PLACE, 4), "abortable"),
        (CommitOffset("g0", PLACE, 4), "refused"),
        (Read(PLACE, "read_committed"), "refused"),
        (DeleteTopic("a"), "refused"),
    ],
    ids=str,
)
def test_an_unknown_topic_is_final_by_whatever_call(step: Any, kind: Kind) -> None:
    """An unknown topic is excused only with the state in which this call leaves its caller."""
    unknown = replace(UNKNOWN_TOPIC, step=step, ours=failed("UNKNOWN_TOPIC_OR_PARTITION", kind))
    assert find_reviewed(unknown) is not None
    assert find_reviewed(both(unknown, gone=False)) is None
    other: Kind = "refused" if kind == "abortable" else "abortable"
    assert find_reviewed(replace(unknown, ours=failed("UNKNOWN_TOPIC_OR_PARTITION", other))) is None


def test_a_zombie_is_fenced_before_its_topic_is_looked_for() -> None:
    """The engine fences a zombie, although Kafka's broker looks for the topic first. If the writer is the
    id's own, the difference is not excused."""
    gone = both(replace(FENCED_WRITE, kafka=failed("UNKNOWN_TOPIC_OR_PARTITION", "retriable")), gone=True)
    found = find_reviewed(gone)
    assert found is not None
    assert found.id == "fenced-at-the-coordinator"
    assert find_reviewed(both(gone, writer=Identity(7, 4))) is None


def test_an_agreement_in_the_code_alone_is_a_difference() -> None:
    """The same code is a difference if it is abortable on one side and fatal on the other."""
    abortable, fatal = failed("INVALID_TXN_STATE", "abortable"), failed("INVALID_TXN_STATE", "fatal")
    assert abortable != fatal
    assert (
        find_reviewed(Difference(Append(Identity(7, 5), PLACE, 4, (b"v",), False), fatal, abortable)) is None
    )
