"""Chains of changes: a topic's and the store's (docs/FORMAT.md, "Changes"), by the auditor's own table of settings."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from txn_engine.verify.checksums import FORMAT
from txn_engine.verify.findings import LISTED_MAX, FindingLog
from txn_engine.verify.objects import ObjectReader
from txn_engine.verify.raw_object import Damaged
from txn_engine.verify.store_keys import CHANGES, COUNTED_OBJECT, MAX_OFFSET, SETTINGS, foreign_part

_COLUMNS_FORMAT: Final = "3"  # of a change that says what of the columns is other than before
_POLICIES: Final = ("delete", "compact", "compact,delete")
_PUBLISHED: Final = ("", "delta", "iceberg", "delta,iceberg")


def _within(low: int, high: int = MAX_OFFSET, *, never: bool = False) -> Callable[[object], bool]:
    def judge(value: object) -> bool:
        return (
            isinstance(value, int)
            and not isinstance(value, bool)
            and (low <= value <= high or (never and value == -1))
        )

    return judge


_TOPIC: Final[Mapping[str, Callable[[object], bool]]] = {
    "cleanup.policy": lambda value: value in _POLICIES,
    "retention.ms": _within(0, never=True),
    "retention.bytes": _within(0, never=True),
    "min.cleanable.dirty.ratio": lambda value: type(value) is float and 0 <= value <= 1,
    "delete.retention.ms": _within(0),
    "min.compaction.lag.ms": _within(0),
    "max.message.bytes": _within(0, 1 << 30),
    "message.timestamp.before.max.ms": _within(0),
    "message.timestamp.after.max.ms": _within(0),
    "tables.publish": lambda value: value in _PUBLISHED,
}
_STORE: Final[Mapping[str, Callable[[object], bool]]] = {
    "transaction.max.timeout.ms": _within(1, 2**31 - 2),
    "transactional.id.expiration.ms": _within(2 * 86_400_000),
    "producer.id.expiration.ms": _within(600_000),
    "offsets.retention.minutes": _within(1, 2**31 - 1, never=True),
}


class SettingsAudit:
    """Reads the changes of topics and of the store, and judges each."""

    def __init__(self, reader: ObjectReader, findings: FindingLog) -> None:
        self._reader = reader
        self._findings = findings

    def of_topic(self, topic: str, incarnation: int) -> list[dict[str, Any]]:
        """The sound changes of a topic, in order."""
        folder = f"topics/{topic}/{incarnation}/{CHANGES}/"
        held = []
        for number, key in self._numbered(folder):
            change = self._read(key, "topic_change", number, _TOPIC)
            if change is None:
                continue
            seen = (change.get("topic"), change.get("incarnation"))
            if seen != (topic, incarnation) or not isinstance(change.get("schema", 0), dict | None):
                self._damaged(
                    key, f"topic {seen[0]!r}, incarnation {seen[1]!r}", f"those of {topic}, {incarnation}"
                )
            else:
                held.append(change)
        return held

    def of_store(self) -> None:
        """Judge the changes of the store's settings."""
        for number, key in self._numbered(f"{SETTINGS}/"):
            self._read(key, "settings", number, _STORE)

    def _numbered(self, folder: str) -> Iterator[tuple[int, str]]:
        """Number and key of each change that there is; one that is missing before it is a finding."""
        due = 0
        for info in self._reader.listing(folder.removesuffix("/")):
            match = COUNTED_OBJECT.fullmatch(info.key.removeprefix(folder))
            if match is None or foreign_part(info.key) is not None:
                continue
            number = int(match[1])
            for missing in range(due, min(number, due + LISTED_MAX)):
                self._findings.add(
                    "object-missing",
                    f"{folder}{missing:020d}.json",
                    f"no such object, and a later one of number {number}",
                    expected="one after the other from 0",
                )
            due = number + 1
            yield number, info.key

    def _read(
        self, key: str, kind: str, number: int, known: Mapping[str, Callable[[object], bool]]
    ) -> dict[str, Any] | None:
        """The change, where it is sound; what is wrong with it is a finding."""
        formats = (FORMAT, _COLUMNS_FORMAT) if kind == "topic_change" else (FORMAT,)
        found = self._reader.read(key, lambda raw: raw.json(kind, formats))
        if found is None:
            self._findings.add("object-missing", key, "no such object", expected=f"a {kind}")
            return None
        if isinstance(found, Damaged):
            self._damaged(key, found.reason, "the object as it was written")
            return None
        settings = found.get("settings")
        seen = (found.get("number"), found.get("created_ms"))
        if not (_within(number, number)(seen[0]) and _within(0)(seen[1]) and isinstance(settings, dict)):
            told = f"number {seen[0]!r}, created_ms {seen[1]!r}, settings {settings!r}"
            self._damaged(key, told, f"number {number}, a time, and settings")
            return None
        wrong = [name for name, value in settings.items() if name not in known or not known[name](value)]
        if wrong:
            self._damaged(key, f"{wrong[0]} {settings[wrong[0]]!r}", "a setting that there is, in its range")
            return None
        return found

    def _damaged(self, key: str, seen: str, expected: str) -> None:
        self._findings.add("object-damaged", key, seen[:200], expected=expected)
