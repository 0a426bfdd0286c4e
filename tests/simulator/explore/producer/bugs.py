"""Deliberate bugs that only this search can find: Ctrl-C between two steps, and orders that need too much
luck.

The simulator interrupts no call, so these are not in its catalogue. They change the machine, or the shell as
it is modelled here.
"""

from __future__ import annotations

from tests.simulator.mutants.mutation import Edit, Mutant

_MACHINE = "txn_engine/producer/machine.py"
_CALLS = "tests/simulator/explore/producer/calls.py"
_POOL = "tests/simulator/explore/producer/pool.py"

MUTANTS = (
    Mutant(
        "a-join-is-asked-for-once",
        "a produce asks for a thread that joins only where nothing waits yet, though Ctrl-C took the one before",
        (
            Edit(
                _MACHINE,
                "    return replace(machine, waiting=waiting, asked=True), (Join(),)\n\n\ndef row_wanted",
                "    is_first = machine.waiting is None\n"
                "    return replace(machine, waiting=waiting, asked=True), (Join(),) if is_first else ()\n\n\n"
                "def row_wanted",
            ),
        ),
        (),
    ),
    Mutant(
        "what-a-closed-producer-holds-sleeps",
        "a batch that a broken-off close left behind is told nothing",
        (
            Edit(
                _MACHINE,
                "        if self.state is ProducerState.CLOSED:\n            return IllegalStateError(",
                "        if self.state is ProducerState.CLOSED and self.error is not None:\n"
                "            return IllegalStateError(",
            ),
        ),
        (),
    ),
    Mutant(
        "two-rows-at-once",
        "a second AddPartitions row begins while the first one is under way",
        (
            Edit(
                _MACHINE,
                "    if machine.waiting is None or machine.joining is not None or",
                "    if machine.waiting is None or",
            ),
        ),
        (),
    ),
    Mutant(
        "a-row-beside-the-complete-row",
        "an AddPartitions row begins while the last transaction's Complete row is being written",
        (Edit(_MACHINE, " or machine.is_completing or not is_open:\n", " or not is_open:\n"),),
        (),
    ),
    Mutant(
        "joined-for-good",
        "the partitions that a transaction joined count in the next one",
        (Edit(_MACHINE, "        joined=frozenset(),\n        waiting=None,\n", "        waiting=None,\n"),),
        (),
    ),
    Mutant(
        "a-fatal-error-is-told-once",
        "a finished producer's later calls are merely out of order",
        (
            Edit(
                _MACHINE,
                "    if machine.state is ProducerState.FATAL_ERROR and machine.error is not None:\n",
                "    if machine.state is ProducerState.FATAL_ERROR and machine.error is None:\n",
            ),
        ),
        (),
    ),
    Mutant(
        "a-failure-wakes-no-lane",
        "lanes that wait to be joined do not hear that the transaction has failed",
        (
            Edit(
                _MACHINE,
                "        return replace(_to(machine, ProducerState.ABORTABLE_ERROR), error=error), (Start(),)\n",
                "        return replace(_to(machine, ProducerState.ABORTABLE_ERROR), error=error), ()\n",
            ),
        ),
        (),
    ),
    Mutant(
        "a-commit-asks-once",
        "a commit that is made again after its answer was lost asks for nothing, and returns",
        (
            Edit(
                _MACHINE,
                "        return machine, (ask,)\n    moved",
                "        return machine, ()\n    moved",
            ),
        ),
        (),
    ),
    Mutant(
        "an-abort-takes-a-rivals-transaction",
        "an abort whose producer was finished meanwhile, by a rival under its identity, asks for the end all the same",
        (
            Edit(
                _MACHINE,
                "    allow(machine, Call.ABORT_TRANSACTION)\n    is_untouched",
                "    is_untouched",
            ),
        ),
        (),
    ),
    Mutant(
        "an-end-does-not-wait-for-callbacks",
        "a callback that produces does not hold up the end of its transaction",
        (
            Edit(
                _MACHINE,
                "    return replace(machine, sending=machine.sending + 1), ()\n",
                "    return machine, ()\n",
            ),
            Edit(
                _MACHINE,
                "    return replace(machine, sending=machine.sending - 1), ()\n",
                "    return machine, ()\n",
            ),
        ),
        (),
    ),
    Mutant(
        "a-callback-is-over-before-it-has-failed",
        "the end of a transaction need not wait until a callback's produce that broke off has failed it",
        (
            Edit(
                _CALLS,
                '        ("handed over", partition),\n        ("callback ends",),\n',
                '        ("callback ends",),\n        ("handed over", partition),\n',
            ),
        ),
        (),
    ),
    Mutant(
        "a-second-thread-is-let-in",
        "a call of another thread begins while the transaction is being ended",
        (Edit(_CALLS, "    if world.ender:\n        yield After(world, error=OTHER)\n    elif", "    if"),),
        (),
    ),
    Mutant(
        "whoever-completes-looks-no-further",
        "the thread that wrote a Complete row leaves what waited for it to be joined",
        (
            Edit(
                _POOL,
                "    return (after._replace(first=after.first + JOIN),)\n\n\n# --- others",
                "    return (after,)\n\n\n# --- others",
            ),
        ),
        (),
    ),
    Mutant(
        "close-waits-for-the-last-thread-alone",
        "close does not ask whether an earlier thread has taken the last Complete row",
        (
            Edit(
                _POOL,
                "world.completion < 0 and not world.machine.value.is_completing",
                "world.completion < 0",
            ),
        ),
        (),
    ),
    Mutant(
        "a-marker-that-failed-counts",
        "a decision with a marker missing is taken for one that is marked everywhere",
        (
            Edit(
                _POOL,
                "    missing = at.known.refs.of(Unfinished(decision.value, is_marked=False))\n",
                "    missing = at.known.refs.of(Unfinished(decision.value, is_marked=not at.setting.deferred))\n",
            ),
        ),
        (),
    ),
    Mutant(
        "a-move-that-no-table-has",
        "a commit that finds a failure goes back to READY, as if it had been aborted",
        (
            Edit(
                _MACHINE,
                "    allow(machine, Call.COMMIT_TRANSACTION)\n    ask = ",
                "    if machine.state is ProducerState.ABORTABLE_ERROR:\n"
                "        return replace(_at_rest(machine), state=ProducerState.READY), ()\n"
                "    allow(machine, Call.COMMIT_TRANSACTION)\n    ask = ",
            ),
        ),
        (),
    ),
)
