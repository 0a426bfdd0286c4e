"""The objects that say which partitions of the internal topics were begun (docs/FORMAT.md, "JSON objects")."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from typing import Final

from txn_engine.verify.findings import FindingLog, Place, Witness
from txn_engine.verify.objects import ObjectReader
from txn_engine.verify.raw_object import Damaged
from txn_engine.verify.store_keys import BEGUN, INTERNAL, NUMBER

_KEY: Final = re.compile(rf"{BEGUN}/({'|'.join(INTERNAL)})/({NUMBER.pattern})\.json")


class BegunAudit:
    """Reads them before any log is read: a log that one names had an entry by then.

    counts: how many partitions the internal topics have. store_ids: those that an object may name; None: nobody knows.
    """

    def __init__(
        self,
        reader: ObjectReader,
        findings: FindingLog,
        counts: Mapping[str, int],
        store_ids: Collection[str] | None,
    ) -> None:
        self._reader = reader
        self._findings = findings
        self._counts = counts
        self._store_ids = store_ids
        self._begun: dict[Place, str] = {}

    def read(self) -> None:
        """Each of them."""
        infos = [info for info in self._reader.listing(BEGUN) if _KEY.fullmatch(info.key)]
        for info, held in self._reader.read_in_order(infos, lambda raw: raw.json("begun")):
            place = _place_of(info.key)
            if isinstance(held, Damaged):
                self._damaged(info.key, held.reason)
            elif held is None:
                continue
            elif place.partition >= self._counts[place.topic]:
                expected = f"partitions 0 to {self._counts[place.topic] - 1}"
                self._findings.add(
                    "object-misnamed", info.key, f"partition {place.partition}", expected=expected
                )
            elif (held.get("topic"), held.get("partition")) != (place.topic, place.partition):
                self._damaged(info.key, f"{held.get('topic')!r}, partition {held.get('partition')!r}"[:200])
            elif self._store_ids is not None and held.get("store_id") not in self._store_ids:
                self._damaged(info.key, f"store {held.get('store_id')!r}, another one than this"[:200])
            else:
                self._begun[place] = info.key

    def witnesses(self) -> Iterator[tuple[Place, Witness]]:
        """Each log that was begun had an entry."""
        for place, key in self._begun.items():
            yield place, Witness(1, key)

    def _damaged(self, key: str, seen: str) -> None:
        self._findings.add(
            "object-damaged",
            key,
            seen,
            expected="the partition of its key, and this store, as it was written",
            action="remove it if that partition's log has entries: the next writer puts it again",
        )


def _place_of(key: str) -> Place:
    match = _KEY.fullmatch(key)
    if match is None:
        raise ValueError(key)
    return Place(match[1], 0, int(match[2]))
