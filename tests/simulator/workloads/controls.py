"""Illegal control rows are proposed together with batches: trims, floors, expiries, rewrites, operators'
markers.

Each has to be refused alone, because the batch in the same entry is legal. Meanwhile maintenance moves the
entries' start by legal trims.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from random import Random

from tests.simulator.applications import Application, create_topics, records
from tests.simulator.history import RecordId, Writing
from tests.simulator.kernel import MS, SECOND, sleep
from tests.simulator.process import Process
from tests.simulator.workloads.common import add_background, keeper
from tests.simulator.world import Body, World
from txn_engine import Engine
from txn_engine.errors import TxnEngineError
from txn_engine.log.entry_log import EntryLog
from txn_engine.log.uploads import upload_records
from txn_engine.producer import Producer
from txn_engine.protocol.partition import LogFile, PartitionState
from txn_engine.protocol.proposals import (
    Appended,
    DataProposal,
    ExpireProposal,
    FloorProposal,
    MarkerProposal,
    Proposal,
    Refused,
    RewriteProposal,
    TrimProposal,
    VerifiedSnapshot,
)
from txn_engine.schemas.layout import original

TOPICS = ("controlled",)
_MAX_OFFSET = 2**62


def set_up(world: World) -> None:
    """Two clients that propose illegal rows, two whose transactions stay open for a while, and one that trims
    when it is due."""
    world.run_alone("setup", lambda _, engine: create_topics(engine, world.knobs.partitions, *TOPICS))
    for number in range(2):
        world.client(f"keeper{number}", _keeper(max(world.knobs.transactions // 2, 8)))
        world.client(f"opener{number}", _opener(number, max(world.knobs.transactions // 4, 3)))
    world.client("trimmer", keeper(("snapshot", "retain"), TOPICS[0], high=20 * SECOND), worker=False)
    add_background(world, TOPICS, sweepers=1)


# --- the writers ------------------------------------------------------------------------------------------


def _opener(number: int, transactions: int) -> Body:
    def body(process: Process, engine: Engine) -> None:
        app = Application(process, engine, f"opener-{number}")
        for index in range(transactions):
            app.transact(f"{process.name}-{index}", lambda producer, writing: _write(app, producer, writing))
            app.rest()

    return body


def _write(app: Application, producer: Producer, writing: Writing) -> None:
    draw = app.world.chance.random("opened", writing.name)
    app.write(producer, writing, TOPICS[0], draw.randrange(app.world.knobs.partitions), draw.randint(1, 3))
    app.rest(high=20 * SECOND)


# --- the proposals ----------------------------------------------------------------------------------------


def _keeper(steps: int) -> Body:
    def body(process: Process, engine: Engine) -> None:
        world = process.world
        for index in range(steps):
            draw = world.chance.random("keeper", process.name, index)
            try:
                log = engine.logs.get(TOPICS[0], 0, draw.randrange(world.knobs.partitions))
                seen = log.refresh()
                proposal = _PROPOSALS[draw.choice(sorted(_PROPOSALS))](seen, draw)
                if proposal is not None:
                    _propose(process, engine, log, seen, proposal, f"{process.name}-{index}")
            except TxnEngineError:
                pass
            sleep(world.chance.spread(10 * MS, 5 * SECOND, "rest", process.name, index))

    return body


def _propose(
    process: Process, engine: Engine, log: EntryLog, seen: PartitionState, odd: Proposal, name: str
) -> None:
    """Propose the illegal row, and a legal batch in the same entry. Each is judged alone."""
    writing = process.world.history.begin(name, process.name, atomic=False)
    partition = int(log.keys.prefix.rpartition("/")[2])
    ids: list[RecordId] = [(name, 0), (name, 1)]
    writing.records[TOPICS[0], partition] = ids
    end = log.view().log_end_offset
    file = upload_records(
        engine.logs.tools.objects,
        process.new_id,
        log.keys.prefix,
        records(ids),
        original(records([]).schema),
        log_end=end,
        producer_id=-1,
        producer_epoch=-1,
        timestamp_ms=process.clock(),
    )
    if isinstance(odd, RewriteProposal):  # it may have become legal by then: what it names has to be there
        objects, source = engine.logs.tools.objects, odd.inputs[0].file.data_path
        copy = bytes(objects.read(f"{log.keys.prefix}/{source}", max_bytes=1 << 30))
        objects.create(f"{log.keys.prefix}/{odd.outputs[0].file.data_path}", copy, max_bytes=len(copy))
    batch = DataProposal(2, file.first_timestamp, file.max_timestamp, file.file)
    row, beside = log.append([odd, batch])
    if isinstance(beside, Refused):
        if log.view().floor <= end:  # else the other keeper, or this very row, has made the upload too old
            process.world.history.complain(
                f"{name}: a batch in order was refused beside {odd}: {beside.error}"
            )
        return
    writing.placed.update(zip(ids, range(beside.base_offset, beside.last_offset + 1), strict=True))
    process.world.history.end(writing, "ok")
    if isinstance(row, Appended) and not _became_legal(odd, seen, log.view()):
        process.world.history.complain(f"{name}: {odd} was taken")


def _became_legal(proposal: Proposal, seen: PartitionState, state: PartitionState) -> bool:
    """Whether the row was legal when it was judged, because the log had moved on, or because it is a legal
    kind of row."""
    if isinstance(proposal, TrimProposal):
        start = proposal.log_start_offset
        falls = start < seen.log_start_offset
        undecided = any(first < start for first in state.open_transactions.values())
        inside = any(file.base_offset < start <= file.last_offset for file in state.live.values())
        moves_entries = (
            proposal.entries_start != seen.entries_start
        )  # and none of these has two snapshots to show
        return not (falls or undecided or inside or moves_entries)
    if isinstance(proposal, FloorProposal):
        return seen.floor <= proposal.floor < state.log_end_offset
    if isinstance(proposal, RewriteProposal):
        inputs = [state.dead.get(file.file.data_path) for file in proposal.inputs]
        return len(inputs) == 1 and all(
            dead is not None
            and dead.log_file in proposal.inputs
            and dead.log_file.last_offset < state.last_stable_offset
            for dead in inputs
        )
    return False


def _trim_back(state: PartitionState, draw: Random) -> Proposal | None:
    start = state.log_start_offset
    return TrimProposal(draw.randrange(start), state.entries_start) if start else None


def _trim_entries_back(state: PartitionState, draw: Random) -> Proposal | None:
    """A trim that was planned before another one moved the entries' start."""
    start = state.entries_start
    return TrimProposal(state.log_start_offset, draw.randrange(start)) if start else None


def _trim_to_a_boundary(state: PartitionState, draw: Random) -> Proposal | None:
    """A legal trim, so that a later proposal can ask to move the start back."""
    ends = [f.last_offset + 1 for f in state.live.values() if f.last_offset < state.last_stable_offset]
    return TrimProposal(draw.choice(sorted(ends)), state.entries_start) if ends else None


def _trim_beyond_what_is_stable(state: PartitionState, draw: Random) -> Proposal | None:
    end, stable = state.log_end_offset, state.last_stable_offset
    return TrimProposal(draw.randint(stable + 1, end), state.entries_start) if stable < end else None


def _trim_inside_a_file(state: PartitionState, draw: Random) -> Proposal | None:
    long = [file for file in _live(state) if file.record_count > 1]
    return TrimProposal(draw.choice(long).base_offset + 1, state.entries_start) if long else None


def _trim_entries_without_a_snapshot(state: PartitionState, draw: Random) -> Proposal | None:
    end = state.log_end_offset
    return TrimProposal(state.log_start_offset, draw.randrange(end) + 1, ()) if end else None


def _trim_entries_into_the_newest_snapshot(state: PartitionState, draw: Random) -> Proposal | None:
    """A trim up to the newest snapshot, without a second one after it."""
    later = [file for file in _live(state) if file.base_offset > 0]
    if not later:
        return None
    last = draw.choice(later)
    snapshot = VerifiedSnapshot(last.last_offset + 1, last.base_offset)
    return TrimProposal(state.log_start_offset, last.base_offset, (snapshot,))


def _floor_above_itself(state: PartitionState, draw: Random) -> Proposal | None:
    return FloorProposal(state.log_end_offset + draw.randint(1, 9))


def _floor(state: PartitionState, draw: Random) -> Proposal | None:
    """A legal floor."""
    end = state.log_end_offset
    return FloorProposal(draw.randint(state.floor, end)) if state.floor <= end else None


def _floor_that_falls(state: PartitionState, draw: Random) -> Proposal | None:
    return FloorProposal(draw.randrange(state.floor)) if state.floor else None


def _expiry_of_a_busy_producer(state: PartitionState, draw: Random) -> Proposal | None:
    closed = [entry for _, entry in sorted(state.producers.items()) if not entry.is_open]
    if not closed:
        return None
    entry = draw.choice(closed)
    return ExpireProposal((entry.producer_id,), entry.append_time - 1)


def _abort_of_another_transaction(state: PartitionState, draw: Random) -> Proposal | None:
    if not state.open_transactions:
        return None
    entry = state.producers[draw.choice(sorted(state.open_transactions))]
    start = entry.open_first_offset + 1
    return MarkerProposal(entry.producer_id, entry.producer_epoch, False, _MAX_OFFSET, start)


def _marker_of_the_transaction_before(state: PartitionState, draw: Random) -> Proposal | None:
    """A marker of a sweeper that has slept since: it would end the transaction that is open now."""
    opened = [state.producers[producer_id] for producer_id in sorted(state.open_transactions)]
    later = [entry for entry in opened if entry.coordinator_epoch >= 0]
    if not later:
        return None
    entry = draw.choice(later)
    return MarkerProposal(
        entry.producer_id, entry.producer_epoch, draw.random() < 0.5, entry.coordinator_epoch
    )


def _rewrite_of_what_is_open(state: PartitionState, draw: Random) -> Proposal | None:
    undecided = [file for _, file in sorted(state.undecided.items())]
    return _rewrite(draw.choice(undecided)) if undecided else None


def _rewrite_above_what_is_stable(state: PartitionState, draw: Random) -> Proposal | None:
    above = [file for file in _live(state) if file.last_offset >= state.last_stable_offset]
    return _rewrite(draw.choice(above)) if above else None


def _rewrite_that_drops_records(state: PartitionState, draw: Random) -> Proposal | None:
    live = _live(state)
    return replace(_rewrite(live[0]), inputs=(live[0], live[1])) if len(live) > 1 else None


def _rewrite_of_another_file(state: PartitionState, draw: Random) -> Proposal | None:
    live = _live(state)
    if not live:
        return None
    file = draw.choice(live)
    return _rewrite(replace(file, file=replace(file.file, checksum="0" * 32)))


def _live(state: PartitionState) -> list[LogFile]:
    return [file for _, file in sorted(state.live.items()) if file.base_offset >= state.log_start_offset]


def _rewrite(file: LogFile) -> RewriteProposal:
    """A rewrite of one file into another of the same extent."""
    name = f"data/{file.file.data_path[5:25]}-p-1-e-1-{file.file.data_path[-40:-8]}.parquet"
    output = replace(file, producer_id=-1, producer_epoch=-1, file=replace(file.file, data_path=name))
    return RewriteProposal((file,), (output,))


_PROPOSALS: Mapping[str, Callable[[PartitionState, Random], Proposal | None]] = {
    odd.__name__: odd
    for odd in (
        _trim_back,
        _trim_entries_back,
        _trim_to_a_boundary,
        _trim_beyond_what_is_stable,
        _trim_inside_a_file,
        _trim_entries_without_a_snapshot,
        _trim_entries_into_the_newest_snapshot,
        _floor_above_itself,
        _floor,
        _floor_that_falls,
        _expiry_of_a_busy_producer,
        _abort_of_another_transaction,
        _marker_of_the_transaction_before,
        _rewrite_of_what_is_open,
        _rewrite_above_what_is_stable,
        _rewrite_that_drops_records,
        _rewrite_of_another_file,
    )
}
