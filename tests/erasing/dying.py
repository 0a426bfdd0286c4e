"""An erasure whose client dies, or whose store fails, at one of its writes."""

from __future__ import annotations

from storage import MemoryStore
from tests.erasing.persons import TOPIC, WHERE, open_engine
from tests.support.faults import Fault, FaultyStore, Operation, ProcessDiedError
from txn_engine import Engine
from txn_engine.erasing import ErasureReport
from txn_engine.errors import TxnEngineError
from txn_engine.testing import ManualClock


def erase(engine: Engine) -> ErasureReport:
    return engine.erase(TOPIC, WHERE, execute=True)


def assert_sound(engine: Engine) -> None:
    report = engine.admin.verify()
    assert report.ok, [str(finding) for finding in report.findings]


WRITES = ("put_if_absent", "put", "delete")


def attempt(store: MemoryStore, now_ms: int, fault: str = "", at: int = -1) -> int:
    """Run an erasure whose client dies at its write of this number, or that fails there once. Returns the
    number of writes. Reads are not counted, because the number of early reads varies."""
    dies, effect = fault.startswith("dies "), fault.removeprefix("dies ")
    done = 0

    def decide(operation: Operation, _key: str, _number: int) -> Fault | None:
        nonlocal done
        gone = dies and done > at >= 0
        if operation not in WRITES:
            return "before" if gone else None
        done += 1
        if done - 1 == at:
            return effect  # type: ignore[return-value]
        return "before" if gone else None

    failing = FaultyStore(store, error=died) if dies else FaultyStore(store)
    with open_engine(failing, ManualClock(now_ms)) as engine:
        failing.decide = decide
        try:
            erase(engine)
        except (TxnEngineError, ProcessDiedError):
            pass  # what it left is judged after the next one
        finally:
            failing.decide = None
    return done


def died(operation: Operation, key: str) -> ProcessDiedError:  # type: ignore[return]
    raise ProcessDiedError(f"{operation} {key}")
