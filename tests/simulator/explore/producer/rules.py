"""The rules that must hold, each with a name and a sentence."""

from __future__ import annotations

from typing import Final

from tests.simulator.explore.producer.remembered import RIVALS_MS, Moved
from tests.simulator.explore.producer.world import NO_ANSWER, PARTITIONS, World
from txn_engine.producer.machine import AddPartitions, Machine
from txn_engine.producer.states import VALID_PREVIOUS_STATES, Call, ProducerState
from txn_engine.protocol.transaction_rows import StoredRow, TransactionState

RULES: Final = {
    "moves": "states move along VALID_PREVIOUS_STATES alone",
    "joined-first": "a lane appends only where the coordinator's Ongoing row of that very identity has the partition,"
    " or had it until a fence whose marker is not there yet",
    "all-or-nothing": "a commit is decided only when all that was sent is appended, and nothing failed or was"
    " broken off",
    "as-told": "after a commit returned the log holds its decision, and after an abort it never does",
    "one-row": "one AddPartitions row is under way at a time, and none beside a Complete row of the producer's own",
    "one-transaction": "nothing of one transaction counts in the next",
    "markers-first": "a Complete row is written only where every marker is",
    "no-rivals": "a producer that resumed its identity ends no transaction that another one began under it, unless"
    " its own row has no answer, so that nobody can tell whose it is",
    "fatal-is-told": "a fatal error is told by every later call but close",
    "refused-alone": "a call that is refused changes nothing",
    "nobody-waits-for-ever": "whoever waits has somebody who will wake him",
    "calls-end": "no call goes round in circles: each ends, whatever the others do",
    "futures-end": "where nothing moves any more every future is settled, unless a call was broken off that is to"
    " be made again, or the engine is closed and has no thread",
    "close-waits": "close returns when nothing of the producer's is under way to the coordinator",
}


class Broken(Exception):
    """A rule did not hold."""

    def __init__(self, rule: str, seen: str) -> None:
        super().__init__(f"{rule}: {RULES[rule]}; here {seen}")


class Seen:
    """The moves between the machine's states that were made, and the calls that were made in each state."""

    def __init__(self) -> None:
        self.states: set[ProducerState] = set()
        self.moves: set[tuple[ProducerState, ProducerState]] = set()
        self.calls: set[tuple[ProducerState, str]] = set()

    def missing(self) -> list[str]:
        """The rows of the tables of `states.py` that were never seen."""
        moves = {(before, after) for after, some in VALID_PREVIOUS_STATES.items() for before in some}
        return [
            *(f"state {state}" for state in ProducerState if state not in self.states),
            *(f"move {before} to {after}" for before, after in sorted(moves - self.moves)),
            *(
                f"{call} in {state}"
                for state in ProducerState
                for call in CALLS
                if (state, call) not in self.calls
            ),
        ]


CALLS: Final = (*(str(call) for call in Call), "flush", "close")


def check_move(seen: Seen, before: Machine, event: str, moved: Moved) -> None:
    """Check a move of the machine."""
    at = before.state
    for left, reached in moved.path:
        if left is not at or left not in VALID_PREVIOUS_STATES[reached]:
            raise Broken("moves", f"{event} leads from {at} to {reached}")
        seen.moves.add((left, reached))
        at = reached
        seen.states.add(at)
    if at is not moved.machine.value.state:
        raise Broken("moves", f"{event} leads from {at} to {moved.machine.value.state} by no move")


def check_append(world: World, partition: int) -> None:
    """Check an append of a batch, or of a group's offsets, to a partition."""
    identity, stored = world.machine.value.identity, world.row.value
    if stored is None:
        raise Broken("joined-first", "no row")
    row = stored.row
    has_it = PARTITIONS[partition] in row.partitions
    is_ongoing = row.state is TransactionState.ONGOING and (row.producer_id, row.producer_epoch) == identity
    is_fenced = world.outcome == "fenced" and (row.producer_id, row.last_producer_epoch) == identity
    if not has_it or not (is_ongoing or is_fenced):
        raise Broken("joined-first", f"partition {partition}, producer {identity}, row {words(stored)}")


def check_decision(world: World, *, committed: bool) -> None:
    """Check the decision of the producer's own end."""
    stored, is_unknown = world.row.value, world.machine.value.join_error is NO_ANSWER
    is_open = stored is not None and stored.row.state is TransactionState.ONGOING
    if stored is not None and is_open and stored.row.start_ms == RIVALS_MS and not is_unknown:
        raise Broken("no-rivals", words(stored))
    wrong = [
        f"partition {at} is {lane!r}" for at, lane in enumerate(world.lanes) if lane not in ("", "appended")
    ]
    if world.is_torn:
        wrong.append("a produce failed half-way")
    if world.machine.value.sending:
        wrong.append("a callback is still sending")
    if committed and wrong:
        raise Broken("all-or-nothing", ", ".join(wrong))


def check_begin(world: World) -> None:
    """Check the begin of a transaction."""
    now = world.machine.value
    left = [
        name
        for name in ("joined", "joining", "waiting", "error", "join_error", "asked", "sending")
        if getattr(now, name) not in (None, False, 0, frozenset())
    ]
    left += [
        f"a batch that is {lane}"
        for lane in world.lanes
        if lane not in ("", "expected", "appended", "failed")
    ]
    if left:
        raise Broken("one-transaction", f"it begins with {', '.join(left)}")


def check_joined(world: World, row: AddPartitions) -> None:
    """Check a row that is taken for the open transaction's."""
    if row.identity != world.machine.value.identity:
        raise Broken("one-transaction", f"a row of {row.identity} counts for {world.machine.value.identity}")


def check_complete(world: World) -> None:
    """Check a Complete row that is being written."""
    if world.row.value is None:
        return
    row = world.row.value.row
    for number, epoch in enumerate(world.marks):
        if PARTITIONS[number] in row.partitions and epoch < row.producer_epoch:
            raise Broken("markers-first", f"partition {number} has no marker of epoch {row.producer_epoch}")


def check_pool(world: World) -> None:
    """Check what is on its way to the coordinator."""
    at_work = [
        thread for thread in world.pool if any(step[0] in ("add over", "completed") for step in thread.todo)
    ]
    if len(at_work) > 1:
        raise Broken("one-row", " and ".join(sorted(thread.name for thread in at_work)))


def check_return(world: World, call: str) -> None:
    """Check a call that has returned without an error."""
    now = world.machine.value
    is_owed = bool(world.outcome or any(world.lanes)) and world.outcome != "commit"
    if call == Call.COMMIT_TRANSACTION and is_owed:
        raise Broken("as-told", f"a commit returned, the log holds {world.outcome or 'nothing'}")
    if call == Call.ABORT_TRANSACTION and world.outcome == "commit":
        raise Broken("as-told", "an abort returned, the log holds a commit")
    if call == "close":
        if now.state is not ProducerState.CLOSED:
            raise Broken("close-waits", f"it left the producer in {now.state}")
        if any(step[0] == "completed" for thread in world.pool for step in thread.todo):
            raise Broken("close-waits", "a Complete row is under way")


def check_refusal(world: World, call: str, error: BaseException | None) -> None:
    """Check a call that was refused."""
    now = world.machine.value
    if now.state is ProducerState.FATAL_ERROR and error is not now.error:
        raise Broken("fatal-is-told", f"{call} said {error!r}")


def check_rest(world: World) -> None:
    """Check a state in which nobody calls and nothing moves by itself any more."""
    is_owed = world.broken_off is not None or world.machine.value.state is ProducerState.ABORTING_TRANSACTION
    if world.user is None and not world.pool and not is_owed and not world.engine_closed:
        for number, lane in enumerate(world.lanes):
            if lane not in ("", "expected", "appended", "failed"):
                raise Broken("futures-end", f"partition {number}'s batch is {lane}")


def words(stored: StoredRow) -> str:
    """A coordinator's row in a few words."""
    row = stored.row
    numbers = ",".join(str(partition.partition) for partition in row.partitions)
    return f"{row.state} epoch {row.producer_epoch} of [{numbers}]"
