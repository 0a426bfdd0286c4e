"""The rules that docs/PROTOCOL.md marks (▲), named: each was broken by a review or a model checker once, and at least
one bug of the catalogue takes it away.
"""

from __future__ import annotations

import re

from tests.simulator.mutants.mutation import ROOT

PAGE = ROOT / "docs" / "PROTOCOL.md"

MARKED = {
    "settings": "written once ▲",
    "judged-alone": "Each descriptor is judged alone ▲",
    "file-names": "an entry that names the file must match ▲",
    "rewrites": "decided, and below the last stable offset ▲",
    "write-ids": "whatever is rebuilt gets a fresh one ▲",
    "unknown-outcomes": "no epoch is bumped and nothing is sent to another slot ▲",
    "failed-writes": "A transaction with a failed or unknown write can only abort ▲",
    "seals-settle-nothing": "settles nothing ▲",
    "forks": "**Fork** ▲",
    "markers-everywhere": "whether it has data or not ▲",
    "complete-rows": "is refused unless that is the id's latest row ▲",
    "first-writes": "**The stalled first write** ▲",
    "repeated-markers": "**Repeated markers** ▲",
    "first-tries": "**Did my first try commit?** ▲",
    "run-ids": "an abort's and a tombstone's too ▲",
    "hanging": "the start offset and the epoch that the operator saw ▲",
    "deleted-topics": "A marker for a deleted incarnation counts as done ▲",
    "snapshots": "for internal topics the latest rows with their offsets ▲",
    "group-commits": "judged at the append, in this order ▲",
    "seals": "**Seal, do not delete** ▲",
    "starts-never-fall": "moved by a `trim` row and never back; replay takes the maximum ▲",
    "two-snapshots": "only after that snapshot *and a newer one* were read back and verified ▲",
    "damaged-snapshots": "A reader never deletes a damaged one ▲",
    "orphans": "**Orphans** ▲",
    "erased-as-read": "below the last stable offset, and just as it was read ▲",
    "cuts-by-offsets": "never by what the store says of it now ▲",
    "lowered": "**Lowered until nothing is torn** ▲",
    "read-inside": "Nobody inside has read what is outside** ▲",
    "claims": "**Claim, then look; read, then ask** ▲",
    "passed-by-compaction": "would come down to ▲",
    "runs-inside": "**Which runs are inside** is told by records ▲",
    "pinned": "**Pin, then look for the cut** ▲",
    "tables-whole": "**Whole, and each record once** ▲",
    "restored-last": "`restored.json` last**, each put if absent ▲",
}
"""By name: the words that lead to the mark on the page. They stand there once."""


class WrongMarkError(LookupError):
    """The page does not mark exactly the named rules.

    `names`: the rules that it does not mark; empty if it marks something else in `section`, or a rule twice.
    """

    def __init__(self, message: str, *, names: tuple[str, ...] = (), section: str = "") -> None:
        super().__init__(message)
        self.names = names
        self.section = section


def marked_sections() -> dict[str, str]:
    """The section in which each named rule is marked. Raises `WrongMarkError` unless the page marks exactly the named
    rules, each once.
    """
    sections: dict[str, str] = {}
    for part in re.split(r"^## ", PAGE.read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]:
        text = re.sub(r"\s+", " ", part)
        found = [name for name, words in MARKED.items() for _ in range(text.count(words))]
        if len(found) != text.count("▲") or len(found) != len(set(found)) or sections.keys() & set(found):
            raise WrongMarkError(
                f"{PAGE.name}, section {text[:40]!r}: {text.count('▲')} marks, known are {found}",
                section=text.partition(".")[0],
            )
        sections |= dict.fromkeys(found, text.partition(".")[0])
    if missing := MARKED.keys() - sections.keys():
        raise WrongMarkError(
            f"{PAGE.name} does not mark {', '.join(sorted(missing))}", names=tuple(sorted(missing))
        )
    return sections
