"""A partition in memory: appends through the planner, as the engine does, without a store."""

from __future__ import annotations

from dataclasses import replace
from itertools import count
from typing import Any

from txn_engine.errors import TxnEngineError
from txn_engine.protocol.appends import EntryPlan, plan_entry
from txn_engine.protocol.batches import FileRef
from txn_engine.protocol.partition import LogFile, PartitionState
from txn_engine.protocol.proposals import (
    Appended,
    DataProposal,
    MarkerProposal,
    Proposal,
    Refused,
    RewriteProposal,
    Verdict,
)


class Log:
    """A partition in memory: appends through the planner, as the engine does, without a store."""

    def __init__(self) -> None:
        self.state = PartitionState()
        self.now = 1_000
        self.write_ids = count()

    def plan(self, *proposals: Proposal) -> EntryPlan:
        return plan_entry(self.state, proposals, self.now)

    def append(self, *proposals: Proposal) -> tuple[Verdict, ...]:
        plan = self.plan(*proposals)
        self.state = plan.state
        return plan.verdicts

    def propose(
        self,
        pid: int,
        epoch: int,
        seq: int,
        *,
        count: int = 1,
        transactional: bool = True,
        named: tuple[int, int] | None = None,
        log_end: int = 0,
    ) -> DataProposal:
        name_pid, name_epoch = named or (pid, epoch)
        path = f"data/{log_end:020d}-p{name_pid}-e{name_epoch}-{next(self.write_ids):032x}.parquet"
        return DataProposal(
            count, self.now, self.now, FileRef(path, 1, "c" * 32), pid, epoch, seq, transactional
        )

    def data(self, pid: int, epoch: int, seq: int, **more: Any) -> Verdict:
        return self.append(self.propose(pid, epoch, seq, **more))[0]

    def marker(
        self, pid: int, epoch: int, *, committed: bool, coordinator_epoch: int = 0, **more: Any
    ) -> Verdict:
        return self.append(MarkerProposal(pid, epoch, committed, coordinator_epoch, **more))[0]

    def plain(self, count: int = 1, **more: Any) -> Verdict:
        return self.data(-1, -1, -1, count=count, transactional=False, **more)

    def merged(self, *bases: int, log_end: int = 0, **changes: Any) -> RewriteProposal:
        """A rewrite that merges the live files at these offsets into one. `changes` are made to the correct
        output."""
        inputs = tuple(self.state.live[base] for base in bases)
        path = f"data/{log_end:020d}-p-1-e-1-{next(self.write_ids):032x}.parquet"
        output = LogFile(
            -1,
            -1,
            inputs[0].base_offset,
            inputs[-1].last_offset,
            sum(file.record_count for file in inputs),
            min(file.first_timestamp for file in inputs),
            max(file.max_timestamp for file in inputs),
            FileRef(path, 1, "d" * 32),
        )
        return RewriteProposal(inputs, (replace(output, **changes),))


def error(verdict: Verdict) -> type[TxnEngineError]:
    assert isinstance(verdict, Refused), verdict
    return type(verdict.error)


def at(verdict: Verdict) -> tuple[int, int]:
    assert isinstance(verdict, Appended), verdict
    return verdict.base_offset, verdict.last_offset


def busy() -> Log:
    """A log with files at 0-2, 3-3 and 4-5, an aborted file at 6-7 with its marker at 8, a file at 9-11, and
    an open one from 12."""
    log = Log()
    log.plain(3)
    log.plain(1)
    log.plain(2)
    log.data(1, 0, 0, count=2)
    log.marker(1, 1, committed=False)
    log.plain(3)
    log.data(2, 0, 0)
    return log
