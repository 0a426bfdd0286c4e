"""The reviewed differences, each with its reason and with the state that the reason needs.

An entry excuses nothing else: `where` checks the state in which the two sides parted. The run fails if an
entry is no longer needed.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from tests.differential.errors import Kind
from tests.differential.sides import NOTHING, Seen
from tests.differential.steps import Append, Call, End, Init, Mark, Outcome, Produce, SendOffset

LAST_EPOCH = 32_767


@dataclass(frozen=True)
class Difference:
    """One step with a different outcome on each side. `undecided` says that the id's transaction is decided
    and not complete."""

    step: Call
    ours: Outcome
    kafka: Outcome
    ours_saw: Seen = NOTHING
    kafka_saw: Seen = NOTHING
    undecided: bool = False


@dataclass(frozen=True)
class Reviewed:
    """A difference that is as it should be.

    `ours` and `kafka` are the codes that each side may answer, each with the state in which it leaves the
    caller, or None for success. `answers` are patterns of our answer and Kafka's if both succeed. With `anew`
    the two are in different states afterwards, so both begin again there (`begin_anew` of the step) and go
    on. With `by_chance` a program meets the difference only if its next call reaches Kafka before Kafka has
    completed the transaction.
    """

    id: str
    steps: tuple[str, ...]
    ours: tuple[tuple[str, Kind] | None, ...]
    kafka: tuple[tuple[str, Kind] | None, ...]
    where: Callable[[Difference], bool]
    reason: str
    answers: tuple[str, str] | None = None
    anew: bool = False
    by_chance: bool = False

    def explains(self, difference: Difference) -> bool:
        """Whether this entry explains the difference."""
        return (
            type(difference.step).__name__ in self.steps
            and _error(difference.ours) in self.ours
            and _error(difference.kafka) in self.kafka
            and (
                difference.ours.code is not None
                or difference.kafka.code is not None
                or self.answers is not None
            )
            and self._has_those_answers(difference)
            and self.where(difference)
        )

    def _has_those_answers(self, difference: Difference) -> bool:
        if self.answers is None:
            return True
        found = zip(self.answers, (difference.ours, difference.kafka), strict=True)
        return all(re.fullmatch(wanted, str(seen)) for wanted, seen in found)


def _error(outcome: Outcome) -> tuple[str, Kind] | None:
    return None if outcome.code is None or outcome.kind is None else (outcome.code, outcome.kind)


# --- what stood there -------------------------------------------------------------------------------------


def _is_a_strangers_write(difference: Difference) -> bool:
    """On both sides the id has another epoch or another producer id than the writer, as the code says. Kafka
    names the topic if and only if it does not exist."""
    ours, kafka = difference.ours_saw, difference.kafka_saw
    if (difference.kafka.code == "UNKNOWN_TOPIC_OR_PARTITION") != (ours.gone and kafka.gone):
        return False
    if ours.row is None or kafka.row is None:
        return False
    wanted = difference.ours.code == "INVALID_PRODUCER_ID_MAPPING"
    for seen, row in ((ours, ours.row), (kafka, kafka.row)):
        other_id = row.producer_id != seen.writer.producer_id
        if other_id != wanted or (not other_id and row.producer_epoch == seen.writer.producer_epoch):
            return False
    return True


def _is_decided_otherwise(difference: Difference) -> bool:
    """The row is a Prepare row of the caller's producer id. The caller has its own epoch with the other
    decision, or neither of its epochs."""
    step, row, writer = difference.step, difference.ours_saw.row, difference.ours_saw.writer
    if not isinstance(step, End) or not difference.undecided or row is None:
        return False
    if not row.state.startswith("Prepare") or row.producer_id != writer.producer_id:
        return False
    is_retry = writer.producer_epoch == row.producer_epoch - 1
    if difference.ours.code == "INVALID_TXN_STATE":
        return is_retry and step.committed != (row.state == "PrepareCommit")
    return not is_retry


def _is_marked_already(difference: Difference) -> bool:
    """Both sides have the producer at the marker's epoch, with no open transaction and no later decision."""
    step = difference.step
    return isinstance(step, Mark) and all(
        known is not None
        and known.producer_epoch == step.who.producer_epoch
        and known.open_since < 0
        and known.coordinator_epoch <= step.coordinator_epoch
        for known in (difference.ours_saw.producer, difference.kafka_saw.producer)
    )


def _is_open_at_an_earlier_epoch(difference: Difference) -> bool:
    step = difference.step
    return (
        isinstance(step, Append)
        and step.is_transactional
        and step.base_sequence == 0
        and all(
            known is not None and known.open_since >= 0 and known.producer_epoch < step.who.producer_epoch
            for known in (difference.ours_saw.producer, difference.kafka_saw.producer)
        )
    )


def _is_unknown_and_does_not_begin_at_zero(difference: Difference) -> bool:
    step = difference.step
    return (
        isinstance(step, Append)
        and step.is_transactional
        and step.base_sequence > 0
        and difference.ours_saw.producer is None
        and difference.kafka_saw.producer is None
    )


def _names_an_older_epoch_of_an_exhausted_id(difference: Difference) -> bool:
    step = difference.step
    return (
        isinstance(step, Init)
        and step.holding is not None
        and all(
            seen.row is not None
            and seen.row.producer_epoch >= LAST_EPOCH - 1
            and seen.writer.producer_id == seen.row.producer_id
            and seen.writer.producer_epoch < seen.row.producer_epoch
            for seen in (difference.ours_saw, difference.kafka_saw)
        )
    )


def _asks_again_for_the_last_client_epoch(difference: Difference) -> bool:
    """The caller holds the epoch before the row's, which is a client's last one. The engine gives it the
    row's epoch again."""
    step = difference.step
    return (
        isinstance(step, Init)
        and step.holding is not None
        and str(difference.ours).endswith(f" epoch {LAST_EPOCH - 1}")
        and all(
            seen.row is not None
            and seen.row.producer_epoch == LAST_EPOCH - 1
            and seen.writer == (seen.row.producer_id, LAST_EPOCH - 2)
            for seen in (difference.ours_saw, difference.kafka_saw)
        )
    )


def _is_an_old_decision_at_the_last_epoch(difference: Difference) -> bool:
    step = difference.step
    return (
        isinstance(step, Mark)
        and step.who.producer_epoch == LAST_EPOCH
        and all(
            known is not None
            and known.producer_epoch == LAST_EPOCH
            and known.open_since >= 0
            and known.coordinator_epoch >= step.coordinator_epoch
            for known in (difference.ours_saw.producer, difference.kafka_saw.producer)
        )
    )


def _is_anothers_pending(difference: Difference) -> bool:
    return difference.ours_saw.pending and difference.kafka_saw.pending


def _has_moved_on(difference: Difference) -> bool:
    return difference.ours_saw.moved and difference.kafka_saw.moved


def _is_a_time_of_nothing_to_read(difference: Difference) -> bool:
    """Kafka's offset has no record that this reader gets. The engine's offset has the first readable record
    of that time or later."""
    found, seen = difference.kafka.answer, difference.kafka_saw
    following = [offset for offset, is_late in seen.visible if is_late]
    return (
        seen.visible == difference.ours_saw.visible
        and found not in dict(seen.visible)
        and difference.ours.answer == (following[0] if following else None)
    )


def _is_superseded(difference: Difference) -> bool:
    return difference.ours_saw.superseded and difference.kafka_saw.superseded


def _names_what_is_not_there(difference: Difference) -> bool:
    """The partition does not exist on both sides.

    In the engine the caller can only abort if the step sends an offset in a transaction, or is a write of an
    idempotent producer, whose errors are told apart by their codes.
    """
    step = difference.step
    is_lost = isinstance(step, SendOffset) or (isinstance(step, Produce) and step.transactional_id is None)
    return (
        difference.ours_saw.gone
        and difference.kafka_saw.gone
        and (difference.ours.kind == "abortable") == is_lost
    )


def _marks_what_was_made_anew(difference: Difference) -> bool:
    """Where Kafka has another number of markers than the engine, it has one more."""
    ours, kafka = difference.ours.answer, difference.kafka.answer
    if not (isinstance(ours, tuple) and isinstance(kafka, tuple) and len(ours) == len(kafka)):
        return False
    return all(theirs - own in (0, 1) for own, theirs in zip(ours, kafka, strict=True))


REVIEWED = (
    Reviewed(
        "fenced-at-the-coordinator",
        ("Produce", "SendOffset"),
        ours=(("PRODUCER_FENCED", "fatal"), ("INVALID_PRODUCER_ID_MAPPING", "fatal")),
        kafka=(
            ("INVALID_PRODUCER_EPOCH", "abortable"),
            ("INVALID_PRODUCER_EPOCH", "fatal"),
            ("UNKNOWN_TOPIC_OR_PARTITION", "retriable"),
        ),
        where=_is_a_strangers_write,
        reason="A zombie's write. A V2 broker adds the partition itself, renames the coordinator's "
        "PRODUCER_FENCED for old clients, and may know the later epoch without asking it: a client may abort, "
        "and is told then that it is fenced. Here the producer asks the coordinator and gets its own answer, "
        "which is final at once; Kafka's broker has looked for the topic before. Nothing is written "
        "either way.",
    ),
    Reviewed(
        "a-zombie-is-finished-at-once",
        ("Begin", "Send", "Process", "SendOffsets", "SendPositions", "Commit"),
        ours=(("FENCED", "fatal"),),
        kafka=(("FENCED", "abortable"),),
        where=_is_superseded,
        reason="The same, as a client meets it: Kafka's producer that writes after its successor came may abort, and "
        "learns by that that it is fenced; here the write tells it.",
    ),
    Reviewed(
        "decided-answers-by-the-table",
        ("End",),
        ours=(("PRODUCER_FENCED", "fatal"), ("INVALID_TXN_STATE", "fatal")),
        kafka=(("CONCURRENT_TRANSACTIONS", "retriable"),),
        where=_is_decided_otherwise,
        by_chance=True,
        reason="Kafka's coordinator has the completion under way in memory and says so before it looks at the "
        "epoch. Here there is no such memory: the row alone answers, by Kafka's own table for it, and "
        "final at once.",
    ),
    Reviewed(
        "repeated-marker-writes-nothing",
        ("Mark",),
        ours=(None,),
        kafka=(None,),
        where=_is_marked_already,
        answers=("nothing written", "marked"),
        anew=True,
        reason="A marker at the stored epoch with nothing open succeeds in both (KAFKA-19999). Kafka appends it "
        "again, which takes an offset; here whoever meets a decided transaction rolls it forward, so "
        "repeats are common and write nothing.",
    ),
    Reviewed(
        "one-epoch-a-transaction",
        ("Append",),
        ours=(("INVALID_TXN_STATE", "abortable"),),
        kafka=(None,),
        where=_is_open_at_an_earlier_epoch,
        anew=True,
        reason="A batch at a later epoch than its producer's open transaction. Kafka's partition takes it into "
        "that transaction, and relies on the coordinator that none ever comes. Here it is refused: a "
        "record's fate is its own epoch's decision.",
    ),
    Reviewed(
        "first-sequence-of-a-transaction",
        ("Append",),
        ours=(("OUT_OF_ORDER_SEQUENCE_NUMBER", "abortable"),),
        kafka=(None,),
        where=_is_unknown_and_does_not_begin_at_zero,
        anew=True,
        reason="A transactional batch of a producer that the partition does not know has to begin at 0. Kafka asks "
        "that of batches that the coordinator has verified, which these programs do without; those with a "
        "coordinator agree.",
    ),
    Reviewed(
        "stale-holders-of-the-last-epochs",
        ("Init",),
        ours=(("PRODUCER_FENCED", "fatal"),),
        kafka=(("UNKNOWN_SERVER_ERROR", "fatal"),),
        where=_names_an_older_epoch_of_an_exhausted_id,
        reason="InitProducerId that names an older epoch, of an id whose epochs have run out. Kafka "
        "throws IllegalStateException before it looks at the name; here the caller is fenced as at any epoch.",
    ),
    Reviewed(
        "the-last-client-epoch-is-given-again",
        ("Init",),
        ours=(None,),
        kafka=(("UNKNOWN_SERVER_ERROR", "fatal"),),
        where=_asks_again_for_the_last_client_epoch,
        anew=True,
        reason="InitProducerId sent again, whose first answer was epoch 32766. Kafka throws as above; here the "
        "answer is given again, as at any epoch.",
    ),
    Reviewed(
        "old-markers-at-the-last-epoch",
        ("Mark",),
        ours=(("INVALID_PRODUCER_EPOCH", "refused"),),
        kafka=(None,),
        where=_is_an_old_decision_at_the_last_epoch,
        anew=True,
        reason="A marker at epoch 32767 for what is open there. No marker can have a higher epoch, so Kafka takes any; "
        "here only a later decision than the last marker's ends what is open.",
    ),
    Reviewed(
        "offsets-wait-for-pending-ones",
        ("CommitOffset", "SendOffset", "CommitSync", "SendOffsets", "SendPositions"),
        ours=(("OFFSETS_PENDING", "abortable"), ("OFFSETS_PENDING", "retriable")),
        kafka=(None,),
        where=_is_anothers_pending,
        anew=True,
        reason="Another producer's commit for the same group and partition is pending. Kafka lets the record "
        "that is later in its log win, and so a range may be read twice or not at all; here the commit is "
        "refused, to be tried again.",
    ),
    Reviewed(
        "a-range-is-processed-once",
        ("SendPositions",),
        ours=(("OFFSETS_MOVED", "abortable"),),
        kafka=(None,),
        where=_has_moved_on,
        anew=True,
        reason="The group has been moved on by another since this consumer fetched its position. Kafka knows by the "
        "member's generation only, which an assigned consumer has none of, and the later commit wins; here a commit "
        "names the row that was fetched, and of two runs over one range one is refused.",
    ),
    Reviewed(
        "times-of-what-can-be-read",
        ("OffsetForTime",),
        ours=(None,),
        kafka=(None,),
        where=_is_a_time_of_nothing_to_read,
        answers=(r"None|\d+", r"\d+"),
        reason="The first offset of a time. Kafka's search finds markers and aborted records too, and a reader goes on "
        "from there; here the answer is a record that the reader gets.",
    ),
    Reviewed(
        "an-unknown-topic-is-final",
        ("AddPartitions", "Produce", "SendOffset", "CommitOffset", "Read", "DeleteTopic"),
        ours=(("UNKNOWN_TOPIC_OR_PARTITION", "refused"), ("UNKNOWN_TOPIC_OR_PARTITION", "abortable")),
        kafka=(("UNKNOWN_TOPIC_OR_PARTITION", "retriable"),),
        where=_names_what_is_not_there,
        reason="A topic that is not there, or not any more. Kafka's client asks again, since a broker hears of a new "
        "topic late; here the store is asked itself, and what it does not have nobody has made. Offsets that were to "
        "go with a transaction leave it only to be aborted.",
    ),
    Reviewed(
        "an-unknown-topic-has-no-offsets",
        ("FetchOffset",),
        ours=(("UNKNOWN_TOPIC_OR_PARTITION", "refused"),),
        kafka=(None,),
        where=_names_what_is_not_there,
        answers=(r"UNKNOWN_TOPIC_OR_PARTITION .*", r"-1"),
        reason="A group's offset for a topic that is not there, or not any more. Kafka has none, and says no more; "
        "here the topic is looked up first, since an offset is one of that very topic.",
    ),
    Reviewed(
        "a-namesake-is-not-marked",
        ("CountMarkers",),
        ours=(None,),
        kafka=(None,),
        where=_marks_what_was_made_anew,
        answers=(r"\(.*\)", r"\(.*\)"),
        anew=True,
        reason="A transaction that was open in a topic when that was deleted and made anew. Kafka's coordinator knows "
        "partitions by name, and writes its marker into the new one, where it takes an offset; here a partition of the "
        "transaction is one of that very topic, and the deleted one counts as done.",
    ),
)


def find_reviewed(difference: Difference) -> Reviewed | None:
    """The entry that explains a difference, or None if nobody has looked at it."""
    return next((each for each in REVIEWED if each.explains(difference)), None)


def page_table() -> str:
    """The list as it is shown in docs/DIFFERENTIAL.md."""
    rows = [f"| `{each.id}` | {', '.join(each.steps)} | {each.reason} |" for each in REVIEWED]
    return "\n".join(["| id | calls | why |", "|---|---|---|", *rows]) + "\n"
