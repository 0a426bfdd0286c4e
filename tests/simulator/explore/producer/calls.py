"""The caller's thread: the steps of `Producer` in each call (`txn_engine/producer/producer.py`)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from tests.simulator.explore.producer import rules
from tests.simulator.explore.producer.surroundings import Surroundings, is_undecided, lane, lost, submit
from tests.simulator.explore.producer.threads import After, Handler, Step
from tests.simulator.explore.producer.world import (
    FATAL,
    NO_ANSWER,
    OTHER,
    PARTITIONS,
    Todo,
    World,
    as_failure,
)
from txn_engine.errors import TxnEngineError
from txn_engine.producer.effects import STORE_ERRORS
from txn_engine.producer.states import Call, ProducerState, is_fatal_to_a_write
from txn_engine.protocol.transactions import NOBODY

_WAIT_FOR_WRITES: Todo = (("wait for callbacks",), ("join what waits",), ("wait for lanes",))
_WAIT_FOR_ROWS: Todo = (("join what waits",), ("wait for rows",))
_PRODUCE = Call.PRODUCE.value


def produce(partition: int) -> Todo:
    """Produce a batch for one partition."""
    return (("enter", _PRODUCE, True, _send(partition)), ("handed over", partition))


def callback(partition: int) -> Todo:
    """Produce in a callback that has begun."""
    return (
        ("enter in callback", _send(partition)),
        ("handed over", partition),
        ("callback ends",),
        ("to the log",),
    )


def _send(partition: int) -> Todo:
    return (
        ("load the view",),
        ("count the batch", partition),
        ("queue the batch", partition),
        ("start the new lane", partition),
        ("want", partition),
        ("a later part",),
    )


def in_turn(call: str, *body: tuple[object, ...], goes_on: bool = True) -> Todo:
    """A transactional call that does not end the transaction."""
    return (("enter", call, goes_on, (*body, ("learn",))),)


SEND_OFFSETS = in_turn(
    Call.SEND_OFFSETS.value,
    ("want", 1),
    ("join what waits",),
    ("wait to be joined", 1),
    ("offsets",),
)
INIT = in_turn(Call.INIT_TRANSACTIONS.value, ("move", "init_called"), goes_on=False)
FLUSH: Todo = (("absorb",), ("join what waits",), ("wait for lanes",), ("raise what is fatal",))
CLOSE: Todo = (("close",),)
COMMIT: Todo = (("end", Call.COMMIT_TRANSACTION.value),)
ABORT: Todo = (("end", Call.ABORT_TRANSACTION.value),)
_ENDS: Mapping[str, Todo] = {
    Call.COMMIT_TRANSACTION.value: (
        *_WAIT_FOR_WRITES,
        ("want a row for the run",),
        *_WAIT_FOR_ROWS,
        ("move", "committing"),
    ),
    Call.ABORT_TRANSACTION.value: (
        ("begin aborting",),
        *_WAIT_FOR_WRITES,
        *_WAIT_FOR_ROWS,
        ("move", "aborted"),
    ),
}


def begin(run_id: str | None) -> Todo:
    """`begin_transaction`."""
    return in_turn(Call.BEGIN_TRANSACTION.value, ("begin", run_id))


BEGINNINGS = (INIT, begin(None), (("enter", _PRODUCE, True, ()),), SEND_OFFSETS, COMMIT, ABORT, CLOSE)
"""Every call up to where it is refused while another thread's call ends the transaction."""

# --- the frames of calls ------------------------------------------------------------------------------------


def _absorbing(world: World) -> Todo:
    """The first step of a call after one that was broken off before the machine had heard of it."""
    if world.broken_off is None:
        return ()
    return (("fail", world.broken_off), ("start",), ("forget what was broken off",))


def _enter(at: Surroundings, world: World, call: str, goes_on: bool, body: Todo) -> Iterator[After]:
    if world.ender:
        yield After(world, error=OTHER)
    elif world.broken_off is not None:
        yield After(world, (*_absorbing(world), ("enter", call, goes_on, body)))
    elif (refused := at.refusal_of(world, call)) is not None:
        yield After(world, error=refused)
    else:
        yield After(world, body)
        if goes_on:
            yield from _renewed(at, world)


def _renewed(at: Surroundings, world: World) -> Iterator[After]:
    """A day has passed, and another producer has the id."""
    now = world.machine.value
    is_new = now.unfinished is not None and now.unfinished.is_marked
    if world.faults and now.identity != NOBODY and not now.asked and not is_new:
        refused = at.known.ask("renew", world.row, *now.identity).error
        if refused is not None:
            told = world._replace(broken_off=FATAL)
            yield After(told, (*_absorbing(told), ("raise", FATAL)), fault="a day later")


def _enter_in_callback(at: Surroundings, world: World, body: Todo) -> Sequence[After]:
    """Enter a callback's produce. An end that has begun meanwhile waits for the callback."""
    if world.broken_off is not None:
        return (After(world, (*_absorbing(world), ("enter in callback", body))),)
    refused = at.refusal_of(world, _PRODUCE)
    return (After(world, body) if refused is None else After(world, error=refused),)


def _end(at: Surroundings, world: World, call: str) -> Sequence[After]:
    if world.ender:
        return (After(world, error=OTHER),)
    if world.broken_off is not None:
        return (After(world, (*_absorbing(world), ("end", call))),)
    refused = at.refusal_of(world, call)
    if refused is not None:
        return (After(world, error=refused),)
    return (After(world._replace(ender=True), (*_ENDS[call], ("the end is over",))),)


def _close(_: Surroundings, world: World) -> Sequence[After]:
    if world.machine.value.state is ProducerState.CLOSED:
        return (After(world, _absorbing(world)),)
    if world.broken_off is not None:
        return (After(world, (*_absorbing(world), ("close",))),)
    if world.ender:
        return (After(world, error=OTHER),)
    todo: Todo = (
        ("close what is open",),
        ("wait for completion",),
        ("closing is over",),
        ("let go",),
        ("the end is over",),
    )
    return (After(world._replace(ender=True), todo),)


def _learn(_: Surroundings, world: World, error: BaseException) -> After:
    """Let the producer learn from a call's own error."""
    is_open = world.machine.value.state is ProducerState.IN_TRANSACTION
    is_fatal = isinstance(error, TxnEngineError) and is_fatal_to_a_write(error)
    if is_fatal or (is_open and isinstance(error, STORE_ERRORS)):
        told = world._replace(broken_off=world.broken_off or as_failure(error))
        return After(told, _absorbing(told), error)
    return After(world, error=error)


def _handed_over(at: Surroundings, world: World, error: BaseException, partition: int) -> After:
    """Fail the transaction if a call was broken off and anything of it is on its way."""
    if not world.lanes[partition]:
        return _learn(at, world, error)
    told = world._replace(broken_off=world.broken_off or as_failure(error), is_torn=True)
    return After(told, _absorbing(told), error)


# --- steps --------------------------------------------------------------------------------------------------


def _begin(at: Surroundings, world: World, run_id: str | None) -> Sequence[After]:
    after = at.move(world, "begun", run_id)
    if after.error is not None:
        return (after,)
    rules.check_begin(after.world)
    epoch, row = world.machine.value.identity.producer_epoch, world.row.value
    is_owed = row is not None and row.row.state.is_prepared
    begun = after.world._replace(
        lanes=("",) * len(PARTITIONS),
        pool=frozenset(thread for thread in world.pool if thread.todo[0][0] != "drain"),
        marks=tuple(mark if is_owed or mark > epoch else -1 for mark in world.marks),
        outcome="run" if run_id else "",
        is_torn=False,
    )
    return (after._replace(world=begun),)


def _load(_: Surroundings, world: World) -> Iterator[After]:
    yield After(world)
    if world.faults:
        yield After(world, error=NO_ANSWER, fault="the partition's log cannot be read")


def _later_part(_: Surroundings, world: World) -> Iterator[After]:
    yield After(world)
    if world.faults:
        yield After(world._replace(is_torn=True), error=OTHER, fault="a later part is refused")


def _start_new(at: Surroundings, world: World, partition: int) -> Sequence[After]:
    started = submit(world, f"lane {partition}", (("drain", partition),))
    if started is not None:
        return (After(started),)
    todo: Todo = (("fail", NO_ANSWER), ("drain", partition), ("raise", OTHER))
    return (After(world, todo),)


def _join_what_waits(_: Surroundings, world: World) -> Sequence[After]:
    return (After(world, (("join in the pool",),) if world.machine.value.waiting is not None else ()),)


def _want(at: Surroundings, world: World, partition: int) -> Sequence[After]:
    return (at.move(world, "wanted", (PARTITIONS[partition],)),)


def _want_a_row(at: Surroundings, world: World) -> Sequence[After]:
    now = world.machine.value
    if now.run_id is None or now.state is not ProducerState.IN_TRANSACTION:
        return (After(world),)
    return (at.move(world, "row_wanted"),)


def _wait_for_lanes(_: Surroundings, world: World) -> Sequence[After]:
    newest = [number for number, what in enumerate(world.lanes) if what in ("queued", "uploaded", "sent")]
    return (After(world, (("start",), *(("wait for the batch", number) for number in newest))),)


def _wait_for_batch(_: Surroundings, world: World, partition: int) -> Sequence[After]:
    return (After(world),) if world.lanes[partition] in ("", "appended", "failed") else ()


def _wait_to_be_joined(at: Surroundings, world: World, partition: int) -> Sequence[After]:
    refused = at.refusal(world, partition)
    if refused is not None:
        return (After(world, error=refused),)
    return (After(world),) if at.admits(world, partition) else ()


def _append_offsets(_: Surroundings, world: World, partition: int) -> Iterator[After]:
    if world.marks[partition] > world.machine.value.identity.producer_epoch:
        yield After(world, error=FATAL)
        return
    rules.check_append(world, partition)
    yield After(lane(world, partition, "appended"))
    yield from lost(world, world)


def _offsets_over(_: Surroundings, world: World, error: BaseException) -> After:
    told = lane(world, 1, "failed")._replace(broken_off=world.broken_off or as_failure(error))
    return After(told, _absorbing(told), error)


def _raise_fatal(_: Surroundings, world: World) -> Sequence[After]:
    now = world.machine.value
    return (After(world, error=now.error if now.state is ProducerState.FATAL_ERROR else None),)


def _ended(world: World) -> World:
    return world._replace(ender=False)


STEPS: Mapping[str, Step] = {
    "enter": _enter,
    "enter in callback": _enter_in_callback,
    "end": _end,
    "close": _close,
    "begin aborting": lambda at, world: (at.move(world, "aborting"),),
    "absorb": lambda _, world: (After(world, _absorbing(world)),),
    "forget what was broken off": lambda _, world: (After(world._replace(broken_off=None)),),
    "begin": _begin,
    "load the view": _load,
    "count the batch": lambda _, world, partition: (After(lane(world, partition, "expected")),),
    "queue the batch": lambda _, world, partition: (After(lane(world, partition, "queued")),),
    "start the new lane": _start_new,
    "a later part": _later_part,
    "join what waits": _join_what_waits,
    "want": _want,
    "want a row for the run": _want_a_row,
    "wait for callbacks": lambda _, world: () if world.machine.value.sending else (After(world),),
    "wait for lanes": _wait_for_lanes,
    "wait for the batch": _wait_for_batch,
    "wait for rows": lambda _, world: () if world.machine.value.is_joining else (After(world),),
    "wait to be joined": _wait_to_be_joined,
    "offsets": lambda _, world: (After(world, (("append the offsets", 1), ("offsets over",))),),
    "append the offsets": _append_offsets,
    "raise what is fatal": _raise_fatal,
    "close what is open": lambda _, world: (After(world, _ENDS[ABORT[0][1]] if is_undecided(world) else ()),),
    "closing is over": lambda at, world: (at.move(world, "closed"),),
    "the end is over": lambda _, world: (After(_ended(world)),),
    "callback ends": lambda at, world: (at.move(world, "callback_ends"),),
}
HANDLERS: Mapping[str, Handler] = {
    "learn": _learn,
    "handed over": _handed_over,
    "offsets over": _offsets_over,
    "the end is over": lambda _, world, error: After(_ended(world), error=error),
    "let go": lambda _, world, error: After(world._replace(broken_off=NO_ANSWER), error=error),
    "closing is over": lambda _, world, error: After(world, (("move", "closed"),), error),
    "callback ends": lambda _, world, error: After(world, (("move", "callback_ends"),), error),
}
LOOKS = frozenset(
    {
        "absorb",
        "wait for callbacks",
        "join what waits",
        "wait for lanes",
        "wait for the batch",
        "want a row for the run",
        "wait for rows",
        "wait to be joined",
        "offsets",
        "load the view",
        "a later part",
        "close what is open",
        "raise what is fatal",
    }
)
"""Steps that change nothing by themselves."""

ALONG = frozenset(
    {
        "count the batch",
        "queue the batch",
        "start the new lane",
        "want",
        "join in the pool",
        "make it visible",
        "decided",
        "complete soon",
        "submit completion",
        "only move",
        "end",
        "begin aborting",
        "start",
        "the end is over",
        "closing is over",
        "forget what was broken off",
    }
)
"""What commutes with all that others may do before the step that comes before it, once no interrupt may come."""
