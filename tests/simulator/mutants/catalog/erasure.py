"""Bugs in erasures: records that are still held, records that nobody asked to erase, and who finishes an
erasure."""

from __future__ import annotations

from tests.simulator.mutants.mutation import Edit, Mutant

_AS_OF = "txn_engine/log/as_of.py"
_CONTROLS = "txn_engine/protocol/controls.py"
_FORMER = "txn_engine/erasing/former.py"
_ERASING = "txn_engine/maintain/erasing.py"
_RULES = "txn_engine/protocol/control_rules.py"
_SNAPSHOTS = "txn_engine/log/snapshot_format.py"
_TARGET = "txn_engine/maintain/target.py"
_TOPIC = "txn_engine/erasing/topic_eraser.py"
_WORKLOADS = ("erasure",)
_OF_FORMER = ("former",)

MUTANTS = (
    Mutant(
        "erased-twice",
        "records are erased from a file that another eraser has put something in the place of meanwhile",
        (
            Edit(
                _RULES,
                "    if path in state.erased or (dead is not None and (dead.log_file != read or"
                ' dead.status == "erased")):\n',
                "    if False:\n",
            ),
        ),
        _WORKLOADS,
        marked="erased-as-read",
    ),
    Mutant(
        "a-cut-reads-what-it-lists",
        "who reads as of a cut reads the files that its snapshot lists, whatever stands for them",
        (
            Edit(
                _AS_OF,
                "        return readable_as_of(state, now.erased)\n",
                "        return state if now else readable_as_of(state, now.erased)\n",
            ),
        ),
        _WORKLOADS,
    ),
    Mutant(
        "nothing-stands-for-a-dead-file",
        "a replaced file of which records are erased has nothing in its place, though a cut reads it",
        (
            Edit(
                _ERASING,
                'candidate.status in ("live", "kept") or (',
                'candidate.status == "live" or (False and ',
            ),
        ),
        _WORKLOADS,
    ),
    Mutant(
        "a-file-goes-before-its-row",
        "an erased file is deleted before the log says what stands for it",
        (
            Edit(
                _ERASING,
                "            verdict = self._target.log.append_one(EraseProposal(self._erasure, tuple(pairs)))\n",
                "            for each in found:\n"
                "                self._target.objects.remove(self._key(each.file.file.data_path))\n"
                "            verdict = self._target.log.append_one(EraseProposal(self._erasure, tuple(pairs)))\n",
            ),
        ),
        _WORKLOADS,
    ),
    Mutant(
        "a-cut-holds-what-it-lists",
        "clean-up asks cuts for the files that they list, and not for what stands for these",
        (
            Edit(
                _TARGET,
                "frozenset(held & names.keys()) | {stood_for[path] for path in held & stood_for.keys()}",
                "frozenset(held & names.keys())",
            ),
        ),
        _WORKLOADS,
    ),
    Mutant(
        "a-second-erasure-breaks-the-chain",
        "what stood for a file is erased too, and the file is still said to be stood for by that",
        (Edit(_CONTROLS, "{**moved, **inputs}", "inputs"),),
        _WORKLOADS,
    ),
    Mutant(
        "a-snapshot-forgets-what-stands-for-what",
        "a snapshot does not say what stands for the files of which records were erased",
        (
            Edit(
                _SNAPSHOTS,
                "    for path, stands in sorted(state.erased.items()):\n",
                "    for path, stands in sorted(state.erased.items())[:0]:\n",
            ),
        ),
        _WORKLOADS,
    ),
    Mutant(
        "uploads-are-not-searched",
        "what was uploaded and is named by no entry is let be",
        (Edit(_TOPIC, "        if not found.unnamed:\n", "        if True or not found.unnamed:\n"),),
        _WORKLOADS,
    ),
    Mutant(
        "a-former-incarnation-is-let-be",
        "what a topic has left from before it was deleted stays, whatever it holds",
        (Edit(_FORMER, "            if found.records:\n", "            if False:\n"),),
        _OF_FORMER,
    ),
    Mutant(
        "a-former-incarnations-uploads-are-not-searched",
        "of a topic that was deleted only what its log names is searched",
        (
            Edit(
                _FORMER,
                "        if any(found.unnamed or found.unread for found in founds):\n",
                "        if False:\n",
            ),
        ),
        _OF_FORMER,
    ),
    Mutant(
        "a-deleted-topics-erasure-is-taken-for-done",
        "files that the log of a deleted topic calls erased are taken for gone, though nobody deletes them any more",
        (
            Edit(
                _FORMER,
                "                if any(any(erased_files(target)) for target in targets):\n",
                "                if False:\n",
            ),
        ),
        _OF_FORMER,
    ),
    Mutant(
        "what-cannot-be-searched-holds-nothing",
        "of a topic that was deleted, and is half removed, nothing more is removed",
        (
            Edit(
                _FORMER,
                "        except CANNOT_TELL:\n            return SOME\n",
                "        except CANNOT_TELL:\n            return 0\n",
            ),
        ),
        _OF_FORMER,
    ),
)
