"""`txn-engine doctor --conformance`: what a store must do, asked of the store that is named."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from txn_engine.cli.failures import one_line
from txn_engine.cli.output import Output, columns

if TYPE_CHECKING:
    from storage.conformance import Checked
    from txn_engine.cli.command import Place

_TABLE = columns("HELD", "CHECK", "SEEN", "MS>")
FOLDER = "probes/conformance-"
PAUSE_S = 1.1
"""Between two writes of one object, of which Google takes one a second."""


def run(place: Place, out: Output) -> None:
    """Ask all, tell all, remove what was put there; exit code 1 where anything did not hold.

    Raises the engine's error where the store cannot be asked at all: no such bucket, no credentials, nobody there.
    """
    from storage.conformance import Probes, all_held, checks, conformance
    from txn_engine.ids import new_write_id
    from txn_engine.log.objects import store_errors

    store = place.open_store()
    folder = f"{FOLDER}{new_write_id()}"
    with store_errors():
        list(store.list(folder))
    probes = Probes(store, folder, PAUSE_S)
    found: list[Checked] = []
    left = 0
    with out.progress("conformance", total=len(checks()) + 1) as advance:
        try:
            for each in conformance(probes, lambda name: advance(description=name)):
                found.append(each)
                advance(completed=len(found))
            skew = clock(probes)
            found.append(skew)
        finally:
            advance(description="removing what was put there")
            left = probes.remove()
    held = all_held(found)
    out.table(
        "checks",
        _TABLE,
        [_row(each, as_json=out.as_json) for each in found],
        store=store.url,
        conforms=held,
        left=left,
    )
    if left:
        out.note(f"{left} objects could not be removed: they stand below {folder}, and nothing reads them")
    if not held:
        raise click.exceptions.Exit(1)


def clock(probes: Any) -> Checked:
    """Times of the store, against this machine's."""
    import time

    from storage import StorageError
    from storage.conformance import Checked
    from txn_engine.cli.checkup import SKEW_MS_MAX
    from txn_engine.clock import system_clock

    name, started, key = "its clock goes as this machine's", time.perf_counter(), probes.key("clock")
    try:
        before_ms = system_clock()
        probes.store.put(key, b"what time is it")
        after_ms = system_clock()
        told_ms = probes.store.head(key).modified_ms
    except StorageError as error:
        return Checked(name, False, str(error), (time.perf_counter() - started) * 1_000, "an answer")
    off_ms = max(before_ms - 1_000 - told_ms, told_ms - after_ms, 0)  # buckets tell whole seconds
    held = off_ms <= SKEW_MS_MAX
    seen = f"within {max(1, round(off_ms / 1_000))} s"
    return Checked(
        name, held, seen, (time.perf_counter() - started) * 1_000, f"{SKEW_MS_MAX // 1_000} s at most"
    )


def _row(each: Checked, *, as_json: bool) -> dict[str, object]:
    seen = one_line(each.seen)
    if as_json:
        return {
            "check": each.name,
            "held": each.held,
            "seen": seen,
            "expected": each.expected,
            "ms": round(each.ms, 1),
        }
    if not each.held and each.expected:
        seen = f"{seen}; expected {one_line(each.expected)}"
    return {"held": "yes" if each.held else "NO", "check": each.name, "seen": seen, "ms": f"{each.ms:,.0f}"}
