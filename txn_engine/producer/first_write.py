"""The stalled first write (PROTOCOL.md, section 4; KIP-890's verification)."""

from __future__ import annotations

from collections.abc import Callable

from txn_engine.coordinator.coordinator import Coordinator
from txn_engine.producer.lanes import Lane
from txn_engine.protocol.appends import FirstWriteCheck, allow_first_write
from txn_engine.protocol.partition import PartitionState
from txn_engine.protocol.proposals import Proposal


def first_write_check(
    coordinator: Coordinator, transactional_id: str | None
) -> Callable[[Lane], FirstWriteCheck]:
    """What a lane asks before a transaction's first write to its partition.

    On a view that is not the one from before AddPartitions the coordinator is asked again, for each slot anew, and for
    the very producer and epoch that the batch is of.
    """
    if transactional_id is None:
        return lambda _: allow_first_write

    def of(lane: Lane) -> FirstWriteCheck:
        def check(_: PartitionState, __: Proposal) -> None:
            if lane.log.token is not lane.view_token:
                coordinator.verify(transactional_id, *lane.identity, lane.partition)

        return check

    return of
