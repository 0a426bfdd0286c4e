"""The pure functions under test, machine and coordinator. Each is called once for the same arguments."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from dataclasses import fields
from typing import Any, NamedTuple

from tests.simulator.explore.producer.world import NAME, PARTITIONS, Ref, Refs, kind_of
from txn_engine.producer import machine as events
from txn_engine.producer.machine import Effect, Machine, Step
from txn_engine.producer.states import Call, ProducerState
from txn_engine.protocol import transactions
from txn_engine.protocol.transaction_rows import StoredRow, TransactionPartition, TransactionRow, stored_row
from txn_engine.types import ProducerIdAndEpoch

_HASHED = tuple(field.name for field in fields(Machine) if field.name not in ("groups", "transaction"))
DAY_MS = 100_000_000
RIVALS_MS = 1


class Moved(NamedTuple):
    """The machine after an event, or the error that the event raised. `path`: its moves from state to state,
    one or two."""

    machine: Ref[Machine]
    effects: tuple[Ref[Effect], ...]
    error: BaseException | None
    path: tuple[tuple[ProducerState, ProducerState], ...] = ()


class Answered(NamedTuple):
    """The row that the coordinator writes (None: none) and its answer, or the error of its refusal."""

    row: Ref[StoredRow | None] | None
    reply: Any
    error: BaseException | None


class Remembered:
    """Machine and coordinator, by references."""

    def __init__(self) -> None:
        self.refs = Refs()
        self._moves: dict[Hashable, Moved] = {}
        self._answers: dict[Hashable, Answered] = {}
        self._machines: dict[Hashable, Ref[Machine]] = {}

    def machine(self, value: Machine) -> Ref[Machine]:
        """A machine's reference. Nobody commits a group's offsets here, so that memory is always empty. A
        transaction's number matters only to the lanes, which never name another one."""
        return self._machines.setdefault(tuple(getattr(value, name) for name in _HASHED), Ref(value))

    def move(self, machine: Ref[Machine], event: str, *args: Any, **kwargs: Any) -> Moved:
        """The event `event` of the real machine."""
        key = (machine, event, args, tuple(kwargs.items()))
        known = self._moves.get(key)
        if known is None:
            known = self._moves[key] = self._moved(machine, getattr(events, event), *args, **kwargs)
        return known

    def _moved(self, machine: Ref[Machine], event: Callable[..., Step], *args: Any, **kwargs: Any) -> Moved:
        given = [arg.value if isinstance(arg, Ref) else arg for arg in args]
        named = {name: arg.value if isinstance(arg, Ref) else arg for name, arg in kwargs.items()}
        path: list[tuple[ProducerState, ProducerState]] = []
        try:
            with _recorded(path):
                after, effects = event(machine.value, *given, **named)
        except Exception as error:  # noqa: BLE001 - whatever it is, the caller is told
            return Moved(machine, (), kind_of(error))
        return Moved(
            self.machine(after), tuple(self.refs.of(effect) for effect in effects), None, tuple(path)
        )

    def try_to_allow(self, machine: Ref[Machine], call: Call) -> BaseException | None:
        """The machine's answer to a call."""
        try:
            events.allow(machine.value, call)
        except Exception as error:  # noqa: BLE001 - as above
            return error if error is machine.value.error else kind_of(error)
        return None

    def try_to_send(self, machine: Ref[Machine], partition: TransactionPartition) -> BaseException | None:
        """The machine's answer to a batch."""
        refused = machine.value.refusal(partition)
        return None if refused is None else kind_of(refused)

    @property
    def machines(self) -> int:
        """The number of different machines so far."""
        return len(self._machines)

    # --- the coordinator ------------------------------------------------------------------------------------

    def ask(self, request: str, row: Ref[StoredRow | None], *args: Any) -> Answered:
        """The answer of the real coordinator's function to a request on this row."""
        key = (request, row, args)
        known = self._answers.get(key)
        if known is None:
            try:
                given = [arg.value if isinstance(arg, Ref) else arg for arg in args]
                after, reply = _REQUESTS[request](row.value, *given)
                known = Answered(self._stored(row.value, after), reply, None)
            except Exception as error:  # noqa: BLE001 - as above
                known = Answered(None, None, kind_of(error))
            self._answers[key] = known
        return known

    def _stored(self, before: StoredRow | None, row: TransactionRow | None) -> Ref[StoredRow | None] | None:
        """The row as the log stores it. Only decisions are counted, because their offsets distinguish
        them."""
        if row is None:
            return None
        last = -1 if before is None else before.offset
        return self.refs.of(stored_row(before, row, last + row.state.is_prepared, 0))


@contextmanager
def _recorded(path: list[tuple[ProducerState, ProducerState]]) -> Iterator[None]:
    """Note each move from state to state. All moves go through one function."""
    real = events._to

    def to(machine: Machine, state: ProducerState) -> Machine:
        path.append((machine.state, state))
        return real(machine, state)

    events._to = to
    try:
        yield
    finally:
        events._to = real


def _initialise(
    row: StoredRow | None, producer_id: int, producer_epoch: int
) -> tuple[TransactionRow | None, Any]:
    expected = ProducerIdAndEpoch(producer_id, producer_epoch) if producer_id >= 0 else None
    decision = transactions.init_producer_id(
        row,
        transactional_id=NAME,
        transaction_timeout_ms=60_000,
        expected=expected,
        new_producer_id=1,
        now_ms=0,
    )
    return decision.row, (decision.reply, decision.concurrent)


def _add(row: StoredRow | None, effect: events.AddPartitions) -> tuple[TransactionRow | None, Any]:
    identity = effect.identity
    return transactions.add_partitions(
        row,
        producer_id=identity.producer_id,
        producer_epoch=identity.producer_epoch,
        partitions=effect.partitions,
        begins=effect.begins,
        now_ms=0,
    ), None


def _end(row: StoredRow | None, effect: events.AskEnd) -> tuple[TransactionRow | None, Any]:
    decision = transactions.end_transaction(
        row,
        producer_id=effect.identity.producer_id,
        producer_epoch=effect.identity.producer_epoch,
        committed=effect.committed,
        run_id=effect.run_id,
        new_producer_id=2,
        now_ms=0,
    )
    return decision.row, decision.reply


def _rival(row: StoredRow | None, producer_id: int, producer_epoch: int) -> tuple[TransactionRow | None, Any]:
    """Another producer that resumed the same identity begins first. Its time distinguishes its transaction
    from ours."""
    added = transactions.add_partitions(
        row,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        partitions=PARTITIONS[:1],
        begins=True,
        now_ms=RIVALS_MS,
    )
    return added, None


def _complete(row: StoredRow | None, offset: int) -> tuple[TransactionRow | None, Any]:
    return transactions.complete_transaction(row, decision_offset=offset, now_ms=0), None


def _renew(row: StoredRow | None, producer_id: int, producer_epoch: int) -> tuple[TransactionRow | None, Any]:
    """Renew the row a day later. The row's time stays as it was, so that a second renewal is the same as the
    first."""
    transactions.renew(row, producer_id=producer_id, producer_epoch=producer_epoch, now_ms=DAY_MS)
    return None, None


def _take_over(row: StoredRow | None, producer_id: int, producer_epoch: int) -> tuple[None, TransactionRow]:
    return None, transactions.resume_identity(row, producer_id=producer_id, producer_epoch=producer_epoch)


def _fence(row: StoredRow | None) -> tuple[TransactionRow | None, Any]:
    """A sweep fences a transaction that was open for too long."""
    return transactions.fence_and_abort(row.row, 0) if row is not None else None, None


_REQUESTS: dict[str, Callable[..., tuple[TransactionRow | None, Any]]] = {
    "initialise": _initialise,
    "add": _add,
    "end": _end,
    "rival": _rival,
    "complete": _complete,
    "renew": _renew,
    "take-over": _take_over,
    "fence": _fence,
}


def first_row() -> StoredRow:
    """The row of an id that was initialised once."""
    decision = transactions.init_producer_id(
        None,
        transactional_id=NAME,
        transaction_timeout_ms=60_000,
        expected=None,
        new_producer_id=1,
        now_ms=0,
    )
    if decision.row is None:
        raise LookupError("a first row is always written")
    return stored_row(None, decision.row, 0, 0)
