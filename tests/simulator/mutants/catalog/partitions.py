"""Bugs in what a partition checks and remembers: epochs, sequences, markers, the LSO, files."""

from __future__ import annotations

from tests.simulator.mutants.mutation import Edit, Mutant

_PRODUCERS = "txn_engine/protocol/producers.py"
_APPENDS = "txn_engine/protocol/appends.py"
_REPLAY = "txn_engine/protocol/replay.py"
_PARTITION = "txn_engine/protocol/partition.py"
_READING = "txn_engine/log/reading.py"

MUTANTS = (
    Mutant(
        "no-epoch-check",
        "a batch of an old epoch is taken: a zombie writes behind its successor",
        (
            Edit(
                _PRODUCERS,
                "if entry is not None and producer_epoch < entry.producer_epoch:\n        raise InvalidProducerEpochError(\n"
                '            f"epoch {producer_epoch}"',
                "if entry is not None and producer_epoch < entry.producer_epoch - 9999:\n"
                '        raise InvalidProducerEpochError(\n            f"epoch {producer_epoch}"',
            ),
        ),
        ("bank", "two_owners", "lists"),
    ),
    Mutant(
        "sequence-gap-allowed",
        "a batch may skip sequences: one that was lost on the way is not missed",
        (
            Edit(
                _PRODUCERS,
                "    elif not in_sequence(entry.last_sequence, base_sequence):",
                "    elif base_sequence <= entry.last_sequence:",
            ),
        ),
        ("idempotent", "lists", "requests"),
    ),
    Mutant(
        "no-duplicate-look-up",
        "a batch that is sent again is not recognised",
        (
            Edit(
                _APPENDS,
                "        if again is not None:\n            return Duplicate(again.base_offset, again.last_offset)\n"
                "    _check_file_name",
                "        again = None\n    _check_file_name",
            ),
        ),
        ("idempotent", "requests", "lists"),
    ),
    Mutant(
        "duplicates-written-again",
        "a batch that is sent again is written again: neither recognised nor out of sequence",
        (
            Edit(
                _APPENDS,
                "        if again is not None:\n            return Duplicate(again.base_offset, again.last_offset)\n"
                "    _check_file_name",
                "    _check_file_name",
            ),
            Edit(
                _PRODUCERS, "    elif not in_sequence(entry.last_sequence, base_sequence):", "    elif False:"
            ),
        ),
        ("idempotent", "requests", "lists"),
    ),
    Mutant(
        "window-of-four",
        "the last four batches of a producer are remembered, not five",
        (Edit(_PRODUCERS, "BATCHES_TO_RETAIN = 5", "BATCHES_TO_RETAIN = 4"),),
        ("idempotent", "requests", "bank"),
    ),
    Mutant(
        "new-epoch-anywhere",
        "a new epoch may begin with any sequence",
        (
            Edit(
                _PRODUCERS,
                "    if producer_epoch != entry.producer_epoch:\n        if base_sequence != 0:",
                "    if producer_epoch != entry.producer_epoch:\n        if base_sequence < 0:",
            ),
            Edit(
                _PRODUCERS,
                "    if is_transactional and base_sequence != 0 and (entry is None or not entry.batches):",
                "    if is_transactional and base_sequence < 0:",
            ),
        ),
        ("requests", "idempotent"),
    ),
    Mutant(
        "batch-of-another-epoch-in-an-open-transaction",
        "a batch whose epoch differs from its producer's open transaction is taken",
        (
            Edit(
                _PRODUCERS,
                "    if producer_epoch != entry.producer_epoch:\n        raise InvalidTxnStateError(",
                "    if False:\n        raise InvalidTxnStateError(",
            ),
        ),
        ("requests",),
    ),
    Mutant(
        "marker-without-fencing",
        "a marker leaves the epoch in the partition as it was: the fenced producer may write on",
        (
            Edit(
                _REPLAY,
                "    entry = before.with_marker(\n        marker.producer_epoch,",
                "    entry = before.with_marker(\n        before.producer_epoch,",
            ),
        ),
        ("bank", "two_owners", "lists"),
    ),
    Mutant(
        "repeated-marker-ends-an-open-transaction",
        "a marker at the stored epoch is taken while a transaction of that epoch is open",
        (
            Edit(
                _PRODUCERS,
                "        producer_epoch == entry.producer_epoch and entry.is_open and not ends_open\n",
                "        False\n",
            ),
            Edit(
                _PRODUCERS,
                "    return producer_epoch > entry.producer_epoch or ends_open",
                "    return producer_epoch > entry.producer_epoch or entry.is_open",
            ),
        ),
        ("controls", "late_end_txn"),
        marked="repeated-markers",
    ),
    Mutant(
        "a-repeated-marker-is-written-again",
        "a marker at the stored epoch with nothing open is written a second time",
        (
            Edit(
                _PRODUCERS,
                "    return producer_epoch > entry.producer_epoch or ends_open",
                "    return True",
            ),
        ),
        ("sweeps", "bank", "two_owners"),
        marked="repeated-markers",
    ),
    Mutant(
        "old-coordinator-not-fenced",
        "a marker of an older decision is taken after one of a newer",
        (
            Edit(
                _PRODUCERS,
                "    if producer_epoch < entry.producer_epoch or (\n",
                "    if producer_epoch < entry.producer_epoch - 9999 or (\n",
            ),
            Edit(
                _PRODUCERS,
                "    if coordinator_epoch < entry.coordinator_epoch:\n        raise TransactionCoordinatorFencedError(\n"
                '            f"coordinator epoch {coordinator_epoch}",\n            actor=actor,\n'
                '            expected=f"{entry.coordinator_epoch} or later",\n        )\n'
                "    return producer_epoch > entry.producer_epoch or ends_open",
                "    return True",
            ),
        ),
        ("sweeps", "bank", "two_owners"),
    ),
    Mutant(
        "lso-is-the-log-end",
        "the last stable offset is the log's end: undecided records are read",
        (
            Edit(
                _PARTITION,
                "        return self.log_end_offset if first is None else first",
                "        return self.log_end_offset",
            ),
        ),
        ("bank", "lists"),
    ),
    Mutant(
        "lso-off-by-one",
        "the last stable offset is one too far: the first record of an open transaction is below it",
        (
            Edit(
                _PARTITION,
                "        return self.log_end_offset if first is None else first",
                "        return self.log_end_offset if first is None else first + 1",
            ),
        ),
        ("bank", "lists"),
    ),
    Mutant(
        "lso-of-the-latest",
        "the last stable offset goes by the latest open transaction, not by the earliest",
        (
            Edit(
                _PARTITION,
                "return max(min(self.open_transactions.values()), self.log_start_offset)",
                "return max(max(self.open_transactions.values()), self.log_start_offset)",
            ),
        ),
        ("bank", "lists", "hanging"),
    ),
    Mutant(
        "undecided-files-are-live",
        "the files of open transactions count as committed",
        (
            Edit(
                _REPLAY,
                "        if batch.is_transactional:\n            undecided = ",
                "        if False:\n            undecided = ",
            ),
        ),
        ("bank", "lists"),
    ),
    Mutant(
        "abort-read-as-commit",
        "an abort marker makes the files live",
        (
            Edit(
                _REPLAY,
                "            dead = dead.update(_aborted(decided.values(), marker))",
                "            live = live.update(decided)",
            ),
        ),
        ("bank", "lists"),
    ),
    Mutant(
        "marker-decides-everybodys-files",
        "a marker decides the files of all producers, not of its own",
        (
            Edit(
                _REPLAY,
                "for base, file in undecided.items() if file.producer_id == producer_id}",
                "for base, file in undecided.items()}",
            ),
        ),
        ("bank", "lists", "two_owners"),
    ),
    Mutant(
        "aborted-index-ends-too-early",
        "an aborted range's own last stable offset is past the next open transaction",
        (
            Edit(
                _REPLAY,
                "    stable = min(opened.values(), default=marker.base_offset + 1)",
                "    stable = marker.base_offset + 1",
            ),
        ),
        ("bank", "lists", "sweeps"),
    ),
    Mutant(
        "a-file-of-another-try",
        "an entry may name a file that another producer or epoch has uploaded",
        (
            Edit(
                _APPENDS,
                "    if (name.producer_id, name.producer_epoch) != (proposal.producer_id, proposal.producer_epoch):",
                "    if name.producer_id < -1:",
            ),
        ),
        ("requests",),
        marked="file-names",
    ),
    Mutant(
        "a-file-named-twice",
        "two batches may name one file",
        (
            Edit(
                _APPENDS,
                "    if proposal.file.data_path in state.named:",
                "    if not proposal.file.data_path:",
            ),
        ),
        ("requests",),
    ),
    Mutant(
        "reader-to-the-end",
        "read_committed reads to the high watermark",
        (
            Edit(
                _READING,
                'return state.last_stable_offset if isolation_level == "read_committed" else state.high_watermark',
                "return state.high_watermark",
            ),
        ),
        ("lists", "bank", "pipeline"),
    ),
    Mutant(
        "aborted-files-are-read",
        "read_committed reads the files of aborted transactions too",
        (Edit(_READING, '    if isolation_level == "read_uncommitted":', "    if True:"),),
        ("bank", "lists"),
    ),
)
