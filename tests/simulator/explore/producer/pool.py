"""The pool's threads, and what the machine's effects lead to (`txn_engine/producer/effects.py`,
`lanes.py`)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from tests.simulator.explore.producer import rules
from tests.simulator.explore.producer.calls import callback
from tests.simulator.explore.producer.remembered import Answered
from tests.simulator.explore.producer.surroundings import (
    JOIN,
    Surroundings,
    lane,
    lost,
    marked,
    submit,
)
from tests.simulator.explore.producer.threads import After, Handler, Step, pass_by, raise_again
from tests.simulator.explore.producer.world import (
    CONCURRENT,
    FATAL,
    NO_ANSWER,
    PARTITIONS,
    Instruction,
    Ref,
    Thread,
    Todo,
    World,
    as_failure,
)
from txn_engine.producer.machine import AddPartitions, AskEnd, Unfinished
from txn_engine.producer.states import Call
from txn_engine.protocol.transaction_rows import StoredRow, TransactionState
from txn_engine.types import ProducerIdAndEpoch

_GIVEN = ProducerIdAndEpoch(1, 0)
_SUCCESSOR = Thread("successor", (("succeed",),))
_IDLERS = {Thread("join", JOIN), *(Thread(f"lane {at}", (("drain", at),)) for at in range(len(PARTITIONS)))}
_SWEEPER = Thread("sweeper", (("finish the row",),))


# --- effects ------------------------------------------------------------------------------------------------


def _join_in_the_pool(_: Surroundings, world: World) -> Sequence[After]:
    joins = submit(world, "join", JOIN)
    return (After(joins) if joins is not None else After(world, (("fail", NO_ANSWER),)),)


def _start(at: Surroundings, world: World) -> Sequence[After]:
    """Start the lanes that have something to do and no thread yet, one after the other."""
    for partition in range(len(world.lanes)):
        lane_thread = Thread(f"lane {partition}", (("drain", partition),))
        if lane_thread in world.pool or not at.has_work(world, partition) or _is_locked(world, partition):
            continue
        if world.engine_closed:
            return (After(world, (("fail", NO_ANSWER), ("drain", partition), ("start",))),)
        return (After(world._replace(pool=world.pool | {lane_thread}), (("start",),)),)
    return (After(world),)


def without_idlers(at: Surroundings, world: World) -> World:
    """The pool without the threads that would find nothing to do now, because they have looked already. Later
    work asks for another thread."""
    idle = [thread for thread in world.pool if thread in _IDLERS and _is_idle(at, world, thread)]
    return world._replace(pool=world.pool.difference(idle)) if idle else world


def _is_idle(at: Surroundings, world: World, thread: Thread) -> bool:
    name, *arguments = thread.todo[0]
    if name == "drain":
        return not at.has_work(world, *arguments)
    return not at.known.move(world.machine, "join_begins").effects


def _is_locked(world: World, partition: int) -> bool:
    """Whether a thread is at work in the lane. It looks for more when it is done."""
    user: Todo = () if world.user is None else world.user.todo
    return any(
        step[0] in ("settle", "settled") and step[1] == partition
        for todo in (user, *(thread.todo for thread in world.pool))
        for step in todo
    )


# --- lanes --------------------------------------------------------------------------------------------------


def _drain(at: Surroundings, world: World, partition: int) -> Iterator[After]:
    """A lane's thread uploads what is queued and appends it if it may. Otherwise the lane sleeps."""
    refused = at.refusal(world, partition)
    if not at.has_work(world, partition) or _is_locked(world, partition):
        yield After(world)
    elif refused is not None:
        yield _failing(world, partition, refused)
    elif not at.admits(world, partition):
        yield After(lane(world, partition, "uploaded"))
    elif world.marks[partition] > world.machine.value.identity.producer_epoch:
        yield _failing(world, partition, NO_ANSWER)
    else:
        rules.check_append(world, partition)
        yield from _settle(at, lane(world, partition, "sent"), partition, "appended")
        if world.faults:
            yield _failing(world, partition, NO_ANSWER)._replace(fault="the batch is unknown")
            yield _failing(world, partition, FATAL)._replace(fault="the batch is refused for good")


def _failing(world: World, partition: int, error: BaseException) -> After:
    """The producer learns of a failure before anybody who waits for the batch."""
    return After(world, (("fail", as_failure(error)), ("settle", partition, "failed")))


def _settle(at: Surroundings, world: World, partition: int, became: str) -> Iterator[After]:
    """Settle the future. Its callbacks run in this thread, and one may produce to the other partition."""
    yield After(lane(world, partition, became))
    other = 1 - partition
    if at.setting.elsewhere:
        return
    if world.callbacks and world.batches and not world.lanes[other] and not _is_meant(world, other):
        calls: Instruction = ("callback", other)
        yield After(
            world._replace(callbacks=world.callbacks - 1, batches=world.batches - 1),
            (calls, ("settled", partition, became)),
        )


def _is_meant(world: World, partition: int) -> bool:
    """Whether the caller is about to send to this partition."""
    if world.user is None:
        return False
    sends_offsets = partition == 1 and world.user.name == Call.SEND_OFFSETS
    return sends_offsets or ("handed over", partition) in world.user.todo


def _callback(at: Surroundings, world: World, partition: int) -> Sequence[After]:
    """Run a callback. An end that has begun refuses it, and one that begins now waits for it."""
    if world.ender:
        return (After(world),)
    after = at.move(world, "callback_begins")
    return (After(world),) if after.error is not None else (After(after.world, callback(partition)),)


# --- requests to the coordinator ----------------------------------------------------------------------------


def _again(answer: Answered, world: World, step: Instruction) -> After | None:
    """Try again after CONCURRENT_TRANSACTIONS. This id's own markers come first."""
    if answer.error is not CONCURRENT:
        return None
    return After(world, (("finish the row",), step))


def _finish_row(at: Surroundings, world: World) -> Iterator[After]:
    stored = world.row.value
    if stored is None or not stored.row.state.is_prepared:
        yield After(world)
        return
    all_marked = marked(world, stored)
    complete = at.known.ask("complete", world.row, stored.offset).row
    yield After(at.write(all_marked, complete, by="fenced"))
    if world.faults:
        yield After(all_marked, fault="the Complete row fails")
        if stored.row.partitions:
            but = stored.row.partitions[0].partition
            yield After(marked(world, stored, but=but), fault="a marker fails")


def _ask_to_add(at: Surroundings, world: World, effect: Ref[AddPartitions]) -> Iterator[After]:
    answer = at.known.ask("add", world.row, effect)
    again = _again(answer, world, ("ask to add", effect))
    if again is not None:
        yield again
        return
    added = at.write(world, answer.row, by="")
    yield After(added, error=answer.error)
    yield from lost(world, added)


def _add_over(at: Surroundings, world: World, effect: Ref[AddPartitions]) -> Sequence[After]:
    rules.check_joined(world, effect.value)
    return (at.move(world, "joined"),)


def _join(at: Surroundings, world: World) -> Sequence[After]:
    after = at.move(world, "join_begins")
    return (after._replace(first=after.first + JOIN) if after.first else after,)


def _ask_to_init(at: Surroundings, world: World, held: ProducerIdAndEpoch) -> Iterator[After]:
    answer = at.known.ask("initialise", world.row, *held)
    step: Instruction = ("ask to init", held)
    again = _again(answer, world, step)
    if again is not None:
        yield again
        return
    if answer.error is not None:
        yield After(world, error=answer.error)
        return
    identity, is_concurrent = answer.reply
    after = at.write(world, answer.row, by="fenced")
    if is_concurrent:
        yield After(after, (("finish the row",), step))
    elif after.row.value is not None:
        history = at.known.refs.of(after.row.value.row)
        yield After(after, (("only move", "initialised", identity, history),))
    yield from lost(world, after)


def _take_over(at: Surroundings, world: World) -> Iterator[After]:
    answer = at.known.ask("take-over", world.row, *_GIVEN)
    again = _again(answer, world, ("take over",))
    if again is not None:
        yield again
    elif answer.error is not None:
        yield After(world, (("only move", "finished", FATAL), ("raise", answer.error)))
    else:
        history = at.known.refs.of(answer.reply)
        yield After(world, (("take it over", history),))
    yield from lost(world, world)


def _ask_to_end(at: Surroundings, world: World, effect: Ref[AskEnd]) -> Iterator[After]:
    committed = effect.value.committed
    answer = at.known.ask("end", world.row, effect)
    again = _again(answer, world, ("ask to end", effect))
    if again is not None:
        yield again
        return
    if answer.error is FATAL:
        yield After(world, (("ask what the log holds", effect, answer.error),))
    elif answer.error is not None:
        yield After(world, (("only move", "finished", FATAL), ("raise", answer.error)))
    else:
        ended = at.write(world, answer.row, by="commit" if committed else "abort")
        is_decided = ended.row.value is not None and ended.row.value.row.state.is_prepared
        decision = ended.row if is_decided else None
        yield After(ended, (("make it visible", decision, committed, answer.reply),))
        yield from lost(world, ended)
        return
    yield from lost(world, world)


def _ask_the_log(
    at: Surroundings, world: World, effect: Ref[AskEnd], error: BaseException
) -> Iterator[After]:
    """Ask the log whether the first try committed, after a successor has taken the id."""
    if effect.value.committed and world.outcome == "commit":
        yield After(world, (("only move", "decided_before", FATAL),))
    else:
        yield After(world, (("only move", "finished", FATAL), ("raise", error)))
    if effect.value.committed:
        yield from lost(world, world)


def _make_visible(
    at: Surroundings,
    world: World,
    decision: Ref[StoredRow] | None,
    committed: bool,
    identity: ProducerIdAndEpoch,
) -> Iterator[After]:
    if decision is None:
        yield After(world, (("decided", committed, identity, None), ("complete soon",)))
        return
    owed, marks_all = Unfinished(decision.value, is_marked=True), marked(world, decision.value)
    missing = at.known.refs.of(Unfinished(decision.value, is_marked=False))
    if at.setting.deferred:
        yield After(world, (("decided", committed, identity, missing), ("complete soon",)))
        return
    yield After(marks_all, (("decided", committed, identity, at.known.refs.of(owed)), ("complete soon",)))
    if world.faults and decision.value.row.partitions:
        but = marked(world, decision.value, but=decision.value.row.partitions[0].partition)
        todo: Todo = (("decided", committed, identity, missing), ("complete soon",))
        yield After(but, todo, fault="a marker fails")


def _decided(
    at: Surroundings,
    world: World,
    committed: bool,
    identity: ProducerIdAndEpoch,
    unfinished: Ref[Unfinished] | None,
) -> Sequence[After]:
    return (at.move(world, "decided", committed=committed, identity=identity, unfinished=unfinished),)


def _mark_owed(_: Surroundings, world: World, decision: Ref[StoredRow]) -> Iterator[After]:
    yield After(marked(world, decision.value), (("ask to complete", decision),))
    if world.faults and decision.value.row.partitions:
        but = decision.value.row.partitions[0].partition
        yield After(marked(world, decision.value, but=but), fault="a marker fails")


def _ask_to_complete(at: Surroundings, world: World, decision: Ref[StoredRow]) -> Iterator[After]:
    answer = at.known.ask("complete", world.row, decision.value.offset)
    yield After(at.write(world, answer.row, by=""))
    if world.faults and answer.row is not None:
        yield After(world, fault="the Complete row fails")


def _complete_soon(_: Surroundings, world: World) -> Sequence[After]:
    now = world.machine.value
    if now.unfinished is None or not now.unfinished.is_marked:
        return (After(world),)
    number = now.identity.producer_epoch
    step: Instruction = ("submit completion", number, world.completion)
    return (After(world._replace(completion=number), (step,)),)


def _submit_completion(_: Surroundings, world: World, number: int, earlier: int) -> Sequence[After]:
    todo: Todo = (("begin completion",), ("completion over", number))
    submitted = submit(world, f"completion {number}", todo)
    return (After(_as_before(world, earlier) if submitted is None else submitted),)


def _as_before(world: World, number: int) -> World:
    """Make the earlier completion the last one again, unless it is over by now."""
    is_on_its_way = any(("completion over", number) in thread.todo for thread in world.pool)
    return world._replace(completion=number if is_on_its_way else -1)


def _over(world: World, number: int) -> World:
    return world._replace(completion=-1) if world.completion == number else world


def _wait_for_completion(_: Surroundings, world: World) -> Sequence[After]:
    is_over = world.completion < 0 and not world.machine.value.is_completing
    return (After(world),) if is_over else ()


def _completed(at: Surroundings, world: World, decision: Ref[StoredRow]) -> Sequence[After]:
    after = at.move(world, "completed", decision)
    return (after._replace(first=after.first + JOIN),)


# --- others -------------------------------------------------------------------------------------------------


def _succeed(at: Surroundings, world: World) -> Iterator[After]:
    """Another instance initialises the id, and first ends what it finds."""
    answer = at.known.ask("initialise", world.row, -1, -1)
    again = _again(answer, world, ("succeed",))
    if again is not None:
        yield again
        return
    _, is_concurrent = answer.reply
    after = at.write(world, answer.row, by="fenced")
    yield After(after, (("finish the row",), ("succeed",)) if is_concurrent else ())


def callback_elsewhere(at: Surroundings, world: World) -> World | None:
    """A callback of another producer's batch begins to produce, to the first free partition."""
    free = [number for number, what in enumerate(world.lanes) if not what and not _is_meant(world, number)]
    is_open = at.refusal_of(world, Call.PRODUCE.value) is None and world.broken_off is None
    if not (at.setting.elsewhere and world.callbacks and world.batches and free and is_open):
        return None
    thread = Thread("elsewhere", (("callback", free[0]),))
    spent = world._replace(callbacks=world.callbacks - 1, batches=world.batches - 1)
    return spent._replace(pool=spent.pool | {thread})


def others(at: Surroundings, world: World) -> Iterator[tuple[str, World]]:
    """What another client may do now. Each of these counts as one of the things that go wrong."""
    if not world.faults or world.row.value is None:
        return
    spent = world._replace(faults=world.faults - 1)
    if not any(thread.name == "successor" for thread in world.pool):
        started = spent._replace(pool=spent.pool | {_SUCCESSOR})
        yield "a successor comes", started
    if at.setting.resumes and world.row.value.row.state is TransactionState.EMPTY:
        rival = at.known.ask("rival", world.row, *_GIVEN).row
        if rival is not None:
            yield "a rival has resumed the identity too, and begins", at.write(spent, rival, by="")
    if world.row.value.row.state is TransactionState.ONGOING:
        fenced = at.write(spent, at.known.ask("fence", world.row).row, by="fenced")
        yield "the transaction has timed out", fenced._replace(pool=fenced.pool | {_SWEEPER})
    if not world.engine_closed:
        yield "the engine is closed", spent._replace(engine_closed=True)


STEPS: Mapping[str, Step] = {
    "move": lambda at, world, event, *arguments: (at.move(world, event, *arguments),),
    "only move": lambda at, world, event, *arguments: (at.move(world, event, *arguments)._replace(first=()),),
    "raise": raise_again,
    "fail": lambda at, world, error: (at.move(world, "failed", error),),
    "start": _start,
    "join in the pool": _join_in_the_pool,
    "drain": _drain,
    "settle": _settle,
    "settled": lambda _, world, partition, became: (After(lane(world, partition, became)),),
    "callback": _callback,
    "finish the row": _finish_row,
    "join": _join,
    "ask to add": _ask_to_add,
    "add over": _add_over,
    "ask to init": _ask_to_init,
    "take over": _take_over,
    "take it over": lambda at, world, history: (
        at.move(world, "initialised", _GIVEN, history, is_resumed=True),
    ),
    "ask to end": _ask_to_end,
    "ask what the log holds": _ask_the_log,
    "make it visible": _make_visible,
    "decided": _decided,
    "mark what is owed": _mark_owed,
    "ask to complete": _ask_to_complete,
    "complete soon": _complete_soon,
    "submit completion": _submit_completion,
    "wait for completion": _wait_for_completion,
    "begin completion": lambda at, world: (at.move(world, "completion_begins"),),
    "completed": _completed,
    "completion over": lambda _, world, number: (After(_over(world, number)),),
    "succeed": _succeed,
}
HANDLERS: Mapping[str, Handler] = {
    "add over": lambda _, world, error, effect: After(world, (("move", "join_failed", as_failure(error)),)),
    "completed": lambda at, world, error, decision: After(world, (("completed", decision),), error),
    "completion over": lambda _, world, error, number: After(_over(world, number), error=error),
    "submit completion": lambda _, world, error, number, earlier: After(
        _as_before(world, earlier), error=error
    ),
    "to the log": pass_by,
}
LOOKS = frozenset({"wait for completion", "drain", "start", "join", "fail"})
"""Steps that change nothing by themselves, where they find nothing to do."""

ALONG = frozenset({"add over", "completed", "start", "completion over", "settle", "settled"})
"""What commutes with all that others may do before the step that comes before it."""
