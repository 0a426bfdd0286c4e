"""An erasure whose client dies, or whose store fails, at one of its writes."""

from __future__ import annotations

from storage import MemoryStore
from tests.erasing.persons import TOPIC, WHERE, open_engine
from tests.support.faults import FaultyStore
from tests.support.kills import WRITES, Blow, Death, ProcessDiedError
from txn_engine import Engine
from txn_engine.erasing import ErasureReport
from txn_engine.errors import TxnEngineError
from txn_engine.testing import ManualClock


def erase(engine: Engine) -> ErasureReport:
    return engine.erase(TOPIC, WHERE, execute=True)


def attempt(store: MemoryStore, now_ms: int, fault: Blow = "before", at: int | None = None) -> int:
    """Run an erasure whose client dies at its write of this number, or that fails there once. Returns the number of
    writes until then. Reads are not counted, because the number of early reads varies."""
    death = Death(fault, at, operations=WRITES)
    failing = FaultyStore(store, error=death.error)
    with open_engine(failing, ManualClock(now_ms)) as engine:
        failing.decide = death.client()
        try:
            erase(engine)
        except (TxnEngineError, ProcessDiedError):
            pass  # what it left is judged after the next one
        finally:
            failing.decide = None
    return death.calls
