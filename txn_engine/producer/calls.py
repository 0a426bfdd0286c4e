"""The frames of a producer's calls: who may call what now, and what a call that fails or breaks off leaves behind."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import TypeVar

from txn_engine.coordinator.coordinator import Coordinator
from txn_engine.errors import (
    IllegalStateError,
    InvalidProducerIdMappingError,
    ProducerFencedError,
    TxnEngineError,
)
from txn_engine.log.own_process import OwnProcess
from txn_engine.log.signal_handlers import refuse_in_a_signal_handler
from txn_engine.producer import machine as events
from txn_engine.producer.cell import Cell
from txn_engine.producer.effects import STORE_ERRORS
from txn_engine.producer.receipts import Receipt
from txn_engine.producer.sender import Sender
from txn_engine.producer.states import Call, ProducerState, is_fatal_to_a_write
from txn_engine.protocol.transactions import NOBODY
from txn_engine.reasons import Reason

T = TypeVar("T")
_LOGGER = logging.getLogger(__name__)


class Calls:
    """Calls of threads that share a producer, one after the other, each in a state that allows it.

    Ctrl-C may land anywhere. What it broke off is told to the machine before anything else is done: by the call itself,
    or, where a second Ctrl-C ended that too, by the next one.
    """

    def __init__(self, coordinator: Coordinator, cell: Cell, sender: Sender) -> None:
        self.process = OwnProcess("a producer", "make one in the child, of its own engine")
        self.has_told = False
        self._coordinator = coordinator
        self._cell = cell
        self._sender = sender
        # Callers queue for it, all but callbacks. Nobody holds it while waiting for writes.
        self._turn = threading.RLock()
        self._broken_off: BaseException | None = None  # a call, until the machine has heard of it

    # --- how a call begins ----------------------------------------------------------------------------------

    def enter(self, call: Call, *, goes_on: bool = True) -> None:
        """A call begins. Raises unless the producer's state allows it. `goes_on`: under an id that is kept from
        expiring, unless the call gives up what there was.
        """
        if not self._sender.is_calling_back():  # an end that has begun since waits for a callback
            self._cell.refuse_while_ending()
        self.hear_of_what_was_broken_off()
        try:
            events.allow(self._cell.now, call)
        except BaseException as error:
            self.has_told = self.has_told or error is self._cell.now.error
            raise
        if goes_on:
            self._renew()

    def in_turn(self, call: Call, body: Callable[[], T], *, goes_on: bool = True) -> T:
        """A transactional call."""
        self._refuse_without_an_id()
        self.refuse_in_a_callback()
        with self._turn:
            self.enter(call, goes_on=goes_on)
            try:
                return body()
            except TxnEngineError as error:
                self._learn_from(error)
                raise

    def ending(self, call: Call, end: Callable[[], None]) -> None:
        """The end of a transaction: no other call until it is over, and no lock held while it waits for writes."""
        self._refuse_without_an_id()

        def enter() -> bool:
            self.enter(call, goes_on=False)
            return True

        self._alone(enter, end)

    def closing(self, close: Callable[[], None]) -> None:
        """The producer's own end: from here on nobody else ends its transaction."""

        def enter() -> bool:
            self.hear_of_what_was_broken_off()
            return self._cell.now.transactional_id is not None

        self._alone(enter, close)

    def _alone(self, enter: Callable[[], bool], end: Callable[[], None]) -> None:
        """`enter` says whether there may be a transaction that others could end."""
        self.refuse_in_a_callback()
        this_call = object()
        try:
            with self._turn:
                self._refuse_in_a_reader()
                if enter():
                    self._cell.begin_ending(this_call)
            end()
        finally:
            if self._cell.ender is this_call:
                self._cell.ender = None

    def handing_over(self, receipt: Receipt, send: Callable[[], None]) -> None:
        """Batches as one call's: all of them go out, or the transaction fails.

        While it waits for room others may send from callbacks. A callback itself waits for nobody: nothing ends the
        transaction before all of its call is in it.
        """
        self.process.check()
        refuse_in_a_signal_handler()
        try:
            if self._sender.is_calling_back():
                self._cell.begin_callback()
                try:
                    self._whole(receipt, send)
                finally:
                    self._cell.move(events.callback_ends)
            else:
                with self._turn:
                    outer, self._cell.is_handing_over = self._cell.is_handing_over, True
                    try:
                        self._whole(receipt, send)
                    finally:
                        self._cell.is_handing_over = outer
        except BaseException as error:
            if not receipt.is_broken_off:  # an interrupt on the way out: nobody tells that all was sent
                self._break_off(receipt, error)
            raise

    # --- who is refused -------------------------------------------------------------------------------------

    def _refuse_without_an_id(self) -> None:
        if self._cell.now.transactional_id is None:
            raise IllegalStateError(
                "a transactional call",
                actor="an idempotent producer",
                expected="a producer made with a transactional_id",
            )

    def refuse_in_a_callback(self) -> None:
        """In this process; and not in a callback, whose thread has the next batches to send (KIP-1118)."""
        self.process.check()
        refuse_in_a_signal_handler()
        if self._sender.is_calling_back():
            raise IllegalStateError(
                "a call that waits for writes, in a callback of one of them",
                actor=self._cell.now.actor,
                expected="in a callback only produce()",
                action="call it in another thread",
                reason=Reason.IN_A_CALLBACK,
            )

    def _refuse_in_a_reader(self) -> None:
        """The records that `produce` reads belong to the transaction that it began in: they may not end it."""
        if self._cell.is_handing_over:
            raise IllegalStateError(
                "the transaction's end inside the reader that produce() reads",
                actor=self._cell.now.actor,
                expected="after produce() has returned",
                reason=Reason.IN_A_READER,
            )

    # --- what a call leaves behind --------------------------------------------------------------------------

    def hear_of_what_was_broken_off(self) -> None:
        """A second Ctrl-C may have ended what the first one, or an error, was to lead to."""
        if self._broken_off is not None:
            self._sender.fail(self._broken_off)
            self._sender.start()  # where the failure was heard of, and the lanes were not
            self._broken_off = None

    def fail(self, error: BaseException) -> None:
        """The transaction may lack what it was to have: at once, for a second Ctrl-C may end what follows."""
        self._broken_off = self._broken_off or error
        self.hear_of_what_was_broken_off()

    def _learn_from(self, error: TxnEngineError) -> None:
        """What a call's own error makes of the producer. What the store did not take may be missing from the
        transaction, even where the caller goes on: it can only abort.
        """
        is_open = self._cell.now.state is ProducerState.IN_TRANSACTION
        if is_fatal_to_a_write(error) or (is_open and isinstance(error, STORE_ERRORS)):
            self.fail(error)

    def _whole(self, receipt: Receipt, send: Callable[[], None]) -> None:
        """A call that fails has failed its transaction before anybody else may end that, or begin another."""
        try:
            send()
            receipt.close()
        except BaseException as error:
            self._break_off(receipt, error)
            raise

    def _break_off(self, receipt: Receipt, error: BaseException) -> None:
        """The call can only be undone as a whole."""
        receipt.is_broken_off = True
        if receipt.has_batches:
            self.fail(error)
        if isinstance(error, TxnEngineError):
            self._learn_from(error)

    def _renew(self) -> None:
        """Let the id of a job that runs for days not expire: its row is written again once it is a day old.

        Raises, and is finished, where the id is not this producer's any more. A store that does not answer now is
        asked again by the next call: there are days left.
        """
        now = self._cell.now
        # A transaction that is decided and marked renewed the id: its Complete row is not to be waited for.
        is_new = now.unfinished is not None and now.unfinished.is_marked
        if now.transactional_id is None or now.identity == NOBODY or now.asked or is_new:
            return
        try:
            self._coordinator.renew(now.transactional_id, *now.identity)
        except (ProducerFencedError, InvalidProducerIdMappingError) as error:
            self._learn_from(error)
            raise
        except STORE_ERRORS as error:
            _LOGGER.warning("%s: the transactional id was not renewed: %s", now.actor, error)
