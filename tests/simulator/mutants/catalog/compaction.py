"""Bugs in compaction by key: what counts as the latest, what may be left out, and what is called clean."""

from __future__ import annotations

from typing import Any

from numpy.typing import NDArray

from tests.simulator.mutants.mutation import Edit, Mutant, Replace
from txn_engine.protocol.cleaning import Cleaning
from txn_engine.protocol.partition import PartitionState

_BY_KEY = "txn_engine/maintain/by_key.py"
_CHOSEN = "txn_engine/maintain/chosen.py"
_HASH = "txn_engine/maintain/key_hash.py"
_IN_PROCESS = "txn_engine/maintain/in_process.py"
_LATEST = "txn_engine/maintain/latest_keys.py"
_WHERE = ("compacted",)
_BITS = "            bits = keys.latest()\n"
_ABORTED = "[d.log_file for d in state.dead.values() if d.status == 'aborted']"
_ABOVE = "[f for f in state.live.values() if f.last_offset >= state.last_stable_offset]"


def _superseded_by(files: str) -> str:
    """A replacement for `_BITS`: whatever these files hold, as far as they exist, supersedes every record of
    its keys below."""
    return (
        f"            bits = keys.latest()\n"
        f"            state = target.read_back()\n"
        f"            later = [(f.base_offset, t) for f in {files}\n"
        f"                if target.objects.exists(f'{{target.keys.prefix}}/{{f.file.data_path}}')\n"
        f"                for _, ts in merger.files.read([f], [key]) for t in ts]\n"
        f"            wrong, row = np.unpackbits(bits), 0\n"
        f"            for f, ts in merger.files.read(files, [key]):\n"
        f"                for name in (name for t in ts for name in t.column(key).to_pylist()):\n"
        f"                    if any(at > f.base_offset and name in t.column(key).to_pylist() for at, t in later):\n"
        f"                        wrong[row] = 0\n"
        f"                    row += 1\n"
        f"            bits = np.packbits(wrong)\n"
    )


def _tombstones_go_at_once(self: Cleaning, now_ms: int, delete_retention_ms: int) -> int:
    return max(self.horizon_to, self.tombstones_to)


def _horizon_of_any_age(
    original: Any, state: PartitionState, tombstones_to: int, append_time: int, delete_retention_ms: int
) -> None:
    original(state, tombstones_to, append_time, -(1 << 62))


def _all_but_the_first(original: Any, bits: NDArray[Any], positions: NDArray[Any]) -> None:
    original(bits, positions[1:])


MUTANTS: tuple[Mutant, ...] = (
    Mutant(
        "the-latest-by-the-files-order",
        "the record read last counts as the latest of its key, and keys are read in the order of their files' upload",
        (
            Edit(
                _IN_PROCESS,
                "            for _, tables in merger.files.read(files, [key]):\n",
                "            for _, tables in merger.files.read(sorted(files, key=lambda f: f.file.data_path), [key]):\n",
            ),
        ),
        _WHERE,
    ),
    Mutant(
        "an-aborted-record-supersedes",
        "records of aborted transactions count as the latest of their keys",
        (Edit(_IN_PROCESS, _BITS, _superseded_by(_ABORTED)),),
        _WHERE,
    ),
    Mutant(
        "an-undecided-record-supersedes",
        "records of open transactions count as the latest of their keys",
        (Edit(_IN_PROCESS, _BITS, _superseded_by("state.undecided.values()")),),
        _WHERE,
    ),
    Mutant(
        "superseded-from-above-the-lso",
        "records that no reader sees yet, above the last stable offset, supersede those that readers see",
        (Edit(_IN_PROCESS, _BITS, _superseded_by(_ABOVE)),),
        _WHERE,
    ),
    Mutant(
        "only-new-keys-are-read",
        "a round reads the keys of the dirty files alone, and keeps all below: what they supersede there stays",
        (
            Edit(
                _BY_KEY,
                "        with choose(self._target, self._topic, plan.files) as staying:\n",
                "        plan = replace(plan, files=tuple(plan.dirty) or plan.files)\n"
                "        with choose(self._target, self._topic, plan.files) as staying:\n",
            ),
            Edit(
                _BY_KEY, "from dataclasses import dataclass\n", "from dataclasses import dataclass, replace\n"
            ),
        ),
        _WHERE,
    ),
    Mutant(
        "keys-in-a-bucket-are-one",
        "keys are told apart by their hashes alone, as Kafka's map does, with few bits of them",
        (
            Edit(
                _LATEST,
                "        buckets = buckets_of(held.column(_KEY).combine_chunks())\n",
                "        buckets = buckets_of(held.column(_KEY).combine_chunks())\n"
                "        same = pa.array([b'%d' % bucket for bucket in buckets], self._schema.field(_KEY).type)\n"
                "        held = held.set_column(0, _KEY, same)\n",
            ),
            Edit(
                _HASH,
                "    return (hashes >> _TOP).astype(np.uint8)\n",
                "    return (hashes >> _TOP).astype(np.uint8) & 1\n",
            ),
        ),
        _WHERE,
    ),
    Mutant(
        "a-bucket-by-its-last-part",
        "of a bucket that comes back in parts each part is judged alone: what a later one supersedes stays",
        (
            Edit(
                _LATEST,
                "            _mark(bits, self._last_of(pa.Table.from_batches([batch]) for batch in self._spill.read(bucket)))\n",
                "            for batch in self._spill.read(bucket):\n"
                "                _mark(bits, self._last_of([pa.Table.from_batches([batch])]))\n",
            ),
        ),
        _WHERE,
    ),
    Mutant(
        "what-is-held-is-not-put-aside",
        "once keys went to the disk, those that came last and stay in memory are forgotten: records without a bit go",
        (
            Edit(
                _LATEST,
                "            return bits\n        self._put_aside()\n",
                "            return bits\n",
            ),
        ),
        _WHERE,
    ),
    Mutant(
        "bits-of-the-run-before",
        "a run that begins inside a byte of the bits is given those from that byte's begin",
        (
            Edit(
                _CHOSEN,
                "        return whole[first % 8 : first % 8 + behind - first].view(np.bool_)\n",
                "        return whole[: behind - first].view(np.bool_)\n",
            ),
        ),
        _WHERE,
    ),
    Mutant(
        "a-tombstone-goes-at-once",
        "a tombstone goes with the first pass after the one that removed what it supersedes",
        (Replace("txn_engine.protocol.cleaning.Cleaning.due_tombstones_to", _tombstones_go_at_once),),
        _WHERE,
    ),
    Mutant(
        "a-tombstone-goes-by-the-planners-clock",
        "a tombstone goes by the clock of whoever planned it, which was set back before its row",
        (Replace("txn_engine.protocol.control_rules._check_horizon", _horizon_of_any_age),),
        _WHERE,
    ),
    Mutant(
        "a-tombstone-goes-before-its-values",
        "tombstones go by the time of the last pass, also those that were written since",
        (
            Edit(
                _BY_KEY,
                "            due = state.cleaning.due_tombstones_to(self._moment.now_ms, self._topic.delete_retention_ms)\n",
                "            due = state.cleaning.due_tombstones_to(self._moment.now_ms, self._topic.delete_retention_ms)\n"
                "            due = state.last_stable_offset if due > state.cleaning.tombstones_to else due\n",
            ),
            Edit(
                "txn_engine/protocol/control_rules.py",
                "    if tombstones_to > limit:\n",
                "    if tombstones_to > state.last_stable_offset:\n",
            ),
        ),
        _WHERE,
    ),
    Mutant(
        "called-clean-though-overtaken",
        "a pass that another run has overtaken says clean all the same",
        (
            Edit(
                _BY_KEY,
                "            self._count.overtaken += 1\n            return False\n",
                "            self._count.overtaken += 1\n            return True\n",
            ),
        ),
        _WHERE,
    ),
    Mutant(
        "called-clean-to-the-log-end",
        "a pass says that all is clean, also the records above those that it has looked at",
        (
            Edit(
                _BY_KEY,
                "        cleaned_to = max(plan.end, plan.state.cleaning.cleaned_to)\n",
                "        cleaned_to = self._target.read_back().last_stable_offset\n",
            ),
        ),
        _WHERE,
    ),
    Mutant(
        "called-clean-first",
        "a pass says that all is clean before it has rewritten anything",
        (
            Edit(
                _BY_KEY,
                "        if not self._rewrite_all(plan) or self._dry_run or self._is_altered():\n",
                "        if self._dry_run or self._is_altered():\n",
            ),
            Edit(
                _BY_KEY,
                "        self._count.cleaned |= isinstance(verdict, Appended)\n",
                "        self._count.cleaned |= isinstance(verdict, Appended)\n        self._rewrite_all(plan)\n",
            ),
        ),
        _WHERE,
    ),
    Mutant(
        "runs-in-any-order",
        "a pass goes downwards: a rewrite says that no tombstone is left below it, where none was looked at yet",
        (
            Edit(
                _BY_KEY,
                "for merged in staying.merge(runs, rule))\n",
                "for merged in staying.merge(runs[::-1], rule))\n",
            ),
        ),
        _WHERE,
    ),
    Mutant(
        "a-row-for-a-key-that-is-gone",
        "the offsets that are kept are counted from the first input, not from the first record kept",
        (
            Edit(
                "txn_engine/maintain/merging.py",
                "            held.append(self._at_deltas(staying, kept.first_offset))\n",
                "            held.append(self._at_deltas(staying, files[0].base_offset))\n",
            ),
        ),
        _WHERE,
    ),
    Mutant(
        "superseded-by-itself",
        "a record that has its key to itself is left out with those that are superseded",
        (Replace("txn_engine.maintain.latest_keys._mark", _all_but_the_first),),
        _WHERE,
    ),
)
