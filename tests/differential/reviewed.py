"""The differences that were looked at, each with its reason. An entry that no run needs any more fails the run."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from tests.differential.steps import Append, Call, Mark, Outcome, always

LAST_EPOCH = 32_767


@dataclass(frozen=True)
class Reviewed:
    """A difference that is as it should be.

    `ours`, `kafka`: the error codes that it may be on either side, None for success. `answers`: patterns of ours and
    Kafka's, where both succeed. `undecided`: only while the id's transaction is decided and not complete. `parts`: the
    two are in different states afterwards, and the program ends.
    """

    id: str
    steps: tuple[str, ...]
    ours: tuple[str | None, ...]
    kafka: tuple[str | None, ...]
    reason: str
    answers: tuple[str, str] | None = None
    where: Callable[[Call], bool] = always
    undecided: bool = False
    parts: bool = False

    def explains(self, step: Call, ours: Outcome, kafka: Outcome, *, undecided: bool) -> bool:
        """Whether this is that difference."""
        return (
            type(step).__name__ in self.steps
            and ours.code in self.ours
            and kafka.code in self.kafka
            and (ours.code != kafka.code or self._explains_answers(ours, kafka))
            and undecided >= self.undecided
            and self.where(step)
        )

    def _explains_answers(self, ours: Outcome, kafka: Outcome) -> bool:
        found = zip(self.answers or (), (ours, kafka), strict=False)
        return self.answers is not None and all(re.fullmatch(wanted, str(seen)) for wanted, seen in found)


REVIEWED = (
    Reviewed(
        "fenced-at-the-coordinator",
        ("Produce", "SendOffset"),
        ours=("PRODUCER_FENCED", "INVALID_PRODUCER_ID_MAPPING"),
        kafka=("INVALID_PRODUCER_EPOCH",),
        reason="A zombie's write. A V2 broker adds the partition itself, renames the coordinator's "
        "PRODUCER_FENCED for old clients, and may know the later epoch without asking it; here the producer "
        "asks the coordinator and gets its own answer. Nothing is written either way, and both are fatal.",
    ),
    Reviewed(
        "decided-answers-by-the-table",
        ("End",),
        ours=("PRODUCER_FENCED", "INVALID_TXN_STATE"),
        kafka=("CONCURRENT_TRANSACTIONS",),
        undecided=True,
        reason="Kafka's coordinator has the completion under way in memory and says so before it looks at the "
        "epoch. Here there is no such memory: the row alone answers, by Kafka's own table for it, and "
        "final at once.",
    ),
    Reviewed(
        "repeated-marker-writes-nothing",
        ("Mark",),
        ours=(None,),
        kafka=(None,),
        answers=("nothing written", "marked"),
        parts=True,
        reason="A marker at the stored epoch with nothing open succeeds in both (KAFKA-19999). Kafka appends it "
        "again, which takes an offset; here whoever meets a decided transaction rolls it forward, so "
        "repeats are common and write nothing.",
    ),
    Reviewed(
        "one-epoch-a-transaction",
        ("Append",),
        ours=("INVALID_TXN_STATE",),
        kafka=(None,),
        where=lambda step: isinstance(step, Append) and step.is_transactional and step.base_sequence == 0,
        parts=True,
        reason="A batch at a later epoch than its producer's open transaction. Kafka's partition takes it into "
        "that transaction, and relies on the coordinator that none ever comes. Here it is refused: a "
        "record's fate is its own epoch's decision.",
    ),
    Reviewed(
        "first-sequence-of-a-transaction",
        ("Append",),
        ours=("OUT_OF_ORDER_SEQUENCE_NUMBER",),
        kafka=(None,),
        where=lambda step: isinstance(step, Append) and step.is_transactional and step.base_sequence > 0,
        parts=True,
        reason="A transactional batch of a producer without stored batches has to begin at 0. Kafka asks that of "
        "batches that the coordinator has verified, which these programs do without; those with a "
        "coordinator agree.",
    ),
    Reviewed(
        "the-last-epoch-is-recovered-from",
        ("End", "Init"),
        ours=(None, "CONCURRENT_TRANSACTIONS"),
        kafka=("UNKNOWN_SERVER_ERROR",),
        parts=True,
        reason="A transaction open at epoch 32767, where nothing is left to bump: Kafka 4.2 throws "
        "IllegalStateException, for ever. Here, as in Kafka after 4.2, the epoch stays, and the producer "
        "id is rotated.",
    ),
    Reviewed(
        "nobody-is-given-the-last-epoch",
        ("End",),
        ours=(None,),
        kafka=(None,),
        answers=(r"p\d+ epoch 0", rf"p\d+ epoch {LAST_EPOCH}"),
        parts=True,
        reason="A transaction fenced at epoch 32766, and its producer's abort sent again. Kafka 4.2 answers with the "
        "fence's own epoch, 32767, which no later fence can be above: a swept transaction could write on. Here the "
        "producer id is rotated.",
    ),
    Reviewed(
        "stale-holders-of-the-last-epochs",
        ("Init",),
        ours=("PRODUCER_FENCED",),
        kafka=("UNKNOWN_SERVER_ERROR",),
        reason="InitProducerId that names an older epoch, of an id whose epochs have run out. Kafka 4.2 "
        "throws IllegalStateException before it looks at the name; here the caller is fenced as at any epoch.",
    ),
    Reviewed(
        "the-last-epoch-is-marked",
        ("Mark",),
        ours=(None,),
        kafka=("INVALID_PRODUCER_EPOCH",),
        where=lambda step: isinstance(step, Mark) and step.who.producer_epoch == LAST_EPOCH,
        parts=True,
        reason="The marker that goes with the recovery above: at epoch 32767 a newer decision ends what is open "
        "there, since no marker can have a higher epoch.",
    ),
    Reviewed(
        "offsets-wait-for-pending-ones",
        ("CommitOffset", "SendOffset", "CommitSync", "SendOffsets"),
        ours=("OFFSETS_PENDING",),
        kafka=(None,),
        parts=True,
        reason="Another producer's commit for the same group and partition is pending. Kafka lets the record "
        "that is later in its log win, and so a range may be read twice or not at all; here the commit is "
        "refused, to be tried again.",
    ),
)


def find_reviewed(step: Call, ours: Outcome, kafka: Outcome, *, undecided: bool) -> Reviewed | None:
    """The entry that explains a difference; None where nobody has looked at it."""
    return next((each for each in REVIEWED if each.explains(step, ours, kafka, undecided=undecided)), None)


def page_table() -> str:
    """The list as docs/DIFFERENTIAL.md shows it."""
    rows = [f"| `{each.id}` | {', '.join(each.steps)} | {each.reason} |" for each in REVIEWED]
    return "\n".join(["| id | calls | why |", "|---|---|---|", *rows]) + "\n"
