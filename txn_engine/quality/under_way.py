"""What was under way when a run made its cut, and was still when all else was gathered.

While loads go on some transaction is open at any moment, and that is nobody's fault. One that was open at the cut and
stays so is. So where anything was written meanwhile, only what both looks have counts, and it has half a minute to end.
In a store at rest the second look and the auditor's replay are judged as they are.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from txn_engine.clock import pause_ms
from txn_engine.errors import TransactionalIdNotFoundError
from txn_engine.quality.evidence import (
    FINAL_STATES,
    NOT_KNOWN,
    Evidence,
    PartitionEvidence,
    ReplayedPartition,
    TransactionState,
)
from txn_engine.quality.standpoint import Now
from txn_engine.types import GroupOffset, TopicPartition

if TYPE_CHECKING:
    from txn_engine.engine import Engine
    from txn_engine.quality.audit_evidence import Audit
    from txn_engine.quality.declaration import Declaration

_TRIES, _PAUSE_MS = 60, 500
_Owner = tuple[int, int]
"""A producer id, and the epoch or the first offset of its transaction."""


@dataclass(frozen=True, slots=True)
class Look:
    """The checked partitions, the transactional ids and the group at one moment.

    opened: by partition who has a transaction open there. owners: by id that has not ended, whose transaction it is.
    """

    partitions: Mapping[TopicPartition, PartitionEvidence]
    opened: Mapping[TopicPartition, frozenset[_Owner]]
    transactions: Mapping[str, TransactionState]
    owners: Mapping[str, _Owner]
    group: tuple[GroupOffset, ...] = field(default=())

    @property
    def pending(self) -> dict[tuple[str, int], int]:
        """By topic and partition the producer whose commit for the group is pending."""
        return {
            (at.topic, at.partition): at.pending_producer_id
            for at in self.group
            if at.pending_producer_id != NOT_KNOWN
        }

    def is_as(self, other: Look) -> bool:
        """Whether nothing was written between the two that this tells of."""
        ends = [{at: each.high_watermark for at, each in look.partitions.items()} for look in (self, other)]
        same = (self.opened, self.owners, self.group) == (other.opened, other.owners, other.group)
        return same and ends[0] == ends[1]


class UnderWay:
    """Looks at what is under way, once when the cut was made and again when all else was gathered."""

    def __init__(
        self, engine: Engine, check: Declaration, touches: Callable[[Collection[str]], bool]
    ) -> None:
        self._engine = engine
        self._check = check
        self._touches = touches
        self._before = self._look()

    def still(self, evidence: Evidence, audit: Audit | None) -> Evidence:
        """The evidence with the engine's and the auditor's side of what is still under way; `audit`: of the store as it
        is, made since the first look.
        """
        after = self._look()
        if after.is_as(self._before) and _is_of(audit, after):
            return replace(
                evidence,
                partitions=tuple(after.partitions.values()),
                transactions=tuple(after.transactions.values()),
                group=after.group,
                replayed=audit.partitions if audit else (),
                replayed_transactions=audit.transactions if audit else (),
                replayed_pending=audit.pending if audit else {},
                replayed_positions=None,
            )
        for _ in range(_TRIES):
            if not self._common(after):
                break
            pause_ms(_PAUSE_MS)
            after = self._look()
        return self._of_both(evidence, after, audit)

    def _look(self) -> Look:
        now, check = Now(self._engine), self._check
        partitions: dict[TopicPartition, PartitionEvidence] = {}
        opened: dict[TopicPartition, frozenset[_Owner]] = {}
        for topic in check.topics:
            for number in range(now.partitions(topic)):
                at = TopicPartition(topic, number)
                partitions[at] = now.partition(topic, number)
                opened[at] = frozenset(self._engine.partition(topic, number).state.open_transactions.items())
        transactions: dict[str, TransactionState] = {}
        owners: dict[str, _Owner] = {}
        for listing in self._engine.admin.list_transactions():
            name, concerns = listing.transactional_id, True
            if listing.state not in FINAL_STATES:
                try:
                    found = self._engine.admin.describe_transaction(name)
                except TransactionalIdNotFoundError:
                    continue
                concerns = self._touches({place.topic for place in found.partitions})
                owners[name] = found.producer_id, found.producer_epoch
            transactions[name] = TransactionState(name, listing.state, concerns)
        group = () if check.group_id is None else now.group(check.group_id)
        return Look(partitions, opened, transactions, owners, group)

    def _common(self, after: Look) -> bool:
        """Whether anything that was under way before still is."""
        before = self._before
        return (
            any(before.opened.get(at, frozenset()) & owners for at, owners in after.opened.items())
            or any(after.transactions[name].concerns for name in self._still_open(after))
            or bool(self._still_pending(after))
        )

    def _still_open(self, after: Look) -> list[str]:
        before = self._before.owners
        return [name for name, owner in after.owners.items() if before.get(name) == owner]

    def _still_pending(self, after: Look) -> dict[tuple[str, int], int]:
        return {
            at: producer for at, producer in after.pending.items() if self._before.pending.get(at) == producer
        }

    def _of_both(self, evidence: Evidence, after: Look, audit: Audit | None) -> Evidence:
        """What both looks have; the auditor's side of it as far as its replay knew the place."""
        replayed = {} if audit is None else {TopicPartition(*each[:2]): each for each in _places(audit)}
        partitions: list[PartitionEvidence] = []
        replays: list[ReplayedPartition] = []
        for at, now in after.partitions.items():
            count = len(self._before.opened.get(at, frozenset()) & after.opened[at])
            end = now.high_watermark
            stable = now.last_stable_offset if count else end
            partitions.append(replace(now, last_stable_offset=stable, open_transactions=count))
            if (found := replayed.get(at)) is not None:
                replays.append(
                    replace(found[2], last_stable_offset=stable, log_end_offset=end, open_transactions=count)
                )
        open_ids, pending = set(self._still_open(after)), self._still_pending(after)
        return replace(
            evidence,
            partitions=tuple(partitions),
            replayed=tuple(replays),
            transactions=tuple(
                each if name in open_ids else replace(each, state=FINAL_STATES[0])
                for name, each in after.transactions.items()
            ),
            replayed_transactions=tuple(
                each for each in (audit.transactions if audit else ()) if each.transactional_id in open_ids
            ),
            group=tuple(
                at if (at.topic, at.partition) in pending else replace(at, pending_producer_id=NOT_KNOWN)
                for at in after.group
            ),
            replayed_pending={
                number: producer
                for (topic, number), producer in pending.items()
                if topic == self._check.topic
            },
            replayed_positions=None,
        )


def _places(audit: Audit) -> list[tuple[str, int, ReplayedPartition]]:
    return [(each.topic, each.partition, each) for each in audit.partitions]


def _is_of(audit: Audit | None, look: Look) -> bool:
    """Whether the replay ended where the log did at the look."""
    return audit is None or all(
        each.log_end_offset == at.high_watermark
        for each in audit.partitions
        if (at := look.partitions.get(TopicPartition(each.topic, each.partition))) is not None
    )
