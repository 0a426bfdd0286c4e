"""Tables: what their pins hold is there, and each version that is pinned shows the log at its cut (docs/FORMAT.md)."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from txn_engine.verify.delta_audit import DeltaAudit
from txn_engine.verify.descriptors import MalformedError
from txn_engine.verify.file_table import DataFile
from txn_engine.verify.findings import FindingLog, Place, Witness
from txn_engine.verify.held_files import Holder
from txn_engine.verify.iceberg_audit import IcebergAudit
from txn_engine.verify.layout import Topic
from txn_engine.verify.limits import SNAPSHOT
from txn_engine.verify.lost_logs import LostLogs
from txn_engine.verify.objects import ObjectReader
from txn_engine.verify.raw_object import Damaged
from txn_engine.verify.snapshot_audit import snapshot_rows
from txn_engine.verify.store_keys import DELTA_LOG, ICEBERG, MAX_OFFSET, PINS
from txn_engine.verify.table_cut import ShownCut, Visible, shown_cut

_PIN: Final = re.compile(r"([0-9]{20})-([0-9]{20})\.json")
_FORMATS: Final = ("delta", "iceberg")


@dataclass(frozen=True, slots=True)
class _Pin:
    """A pin: its object, which version of a table it is for, what it holds."""

    key: str
    version: int
    at: ShownCut
    files: tuple[str, ...]


class TableAudit:
    """Audits the tables of topics, after their logs were. erased: what the logs say stands for which file. lost: who
    is told how far each log went by what is published.
    """

    def __init__(
        self,
        reader: ObjectReader,
        findings: FindingLog,
        store_ids: Collection[str] | None,
        erased: Mapping[Place, Mapping[str, DataFile | None]],
        lost: LostLogs,
    ) -> None:
        self._reader = reader
        self._findings = findings
        self._store_ids = store_ids
        self._erased = erased
        self._lost = lost
        self.cuts: dict[int, str] = {}
        """The cuts that pins name, each with the key of a pin."""

    def run(self, topics: Sequence[Topic]) -> None:
        """Those that these topics have."""
        for topic in topics:
            folder = f"topics/{topic.name}/{topic.incarnation}"
            there = self._reader.folders(folder)
            if not {PINS, DELTA_LOG, ICEBERG}.isdisjoint(there):
                self._audit(topic, folder)

    def holders(self, topic: Topic) -> Iterator[tuple[Place, Holder]]:
        """What each version that is pinned reads of which of the topic's logs."""
        folder = f"topics/{topic.name}/{topic.incarnation}"
        if PINS not in self._reader.folders(folder):
            return
        for name in _FORMATS:
            for pin in self._pins(folder, topic, name):
                for at, (offset, snapshot) in enumerate(pin.at.logs):
                    if snapshot > 0:
                        what = f"version {pin.version} of the {name} table"
                        yield (
                            Place(topic.name, topic.incarnation, at),
                            Holder(snapshot, offset, what, pin.key),
                        )

    def _audit(self, topic: Topic, folder: str) -> None:
        delta = DeltaAudit(self._reader, self._findings, self._store_ids, topic, folder)
        iceberg = IcebergAudit(self._reader, self._findings, self._store_ids, topic, folder)
        delta.list()  # before the pins: what is listed was pinned before
        iceberg.list()
        files = _Files(self._reader, topic, self._erased)
        pins = {name: self._pins(folder, topic, name) for name in _FORMATS}
        held: dict[int, ShownCut] = {}
        for name, pin in ((name, pin) for name, each in pins.items() for pin in each):
            self._lost.see(
                (
                    Place(topic.name, topic.incarnation, at),
                    Witness(offset, f"version {pin.version} of its {name} table"),
                )
                for at, (offset, _) in enumerate(pin.at.logs)
            )
            self.cuts[pin.at.number] = pin.key
            if self._is_kept(pin, files):
                held[pin.at.number] = pin.at
        delta.judge({pin.at.number for pin in pins["delta"]}, held, files.visible)
        iceberg.judge({pin.at.number for pin in pins["iceberg"]}, held, files.visible)

    def _pins(self, folder: str, topic: Topic, name: str) -> list[_Pin]:
        below = f"{folder}/{PINS}/{name}/"
        found = []
        for info in self._reader.listing(below):
            match = _PIN.fullmatch(info.key.removeprefix(below))
            if match is None or max(int(match[1]), int(match[2])) > MAX_OFFSET:
                continue
            held = self._reader.read(info.key, lambda raw: raw.json("pin"))
            try:
                if isinstance(held, Damaged):
                    raise MalformedError(held.reason)
                if held is not None:
                    found.append(_pin(info.key, held, topic, name, int(match[1]), int(match[2])))
            except MalformedError as error:
                self._findings.add(
                    "object-damaged",
                    info.key,
                    str(error),
                    expected="a pin as it was written",
                    action="`txn-engine tables unpublish` removes it; until then clean-up skips the topic",
                )
        return found

    def _is_kept(self, pin: _Pin, files: _Files) -> bool:
        """Whether all is there that the pin holds; what is not is a finding, unless the pin has gone meanwhile."""
        gone = files.missing(pin.at, pin.files)
        if gone is None:
            return True
        if self._reader.read(pin.key, lambda _: True) is not None:
            self._findings.add("table-broken", gone, "no such object", expected=f"what {pin.key} holds")
        return False


class _Files:
    """The data files of a topic: those that snapshots list, and those that are there."""

    def __init__(
        self,
        reader: ObjectReader,
        topic: Topic,
        erased: Mapping[Place, Mapping[str, DataFile | None]],
    ) -> None:
        self._reader = reader
        self._topic = topic
        self._erased = erased
        self._listed: dict[
            int, tuple[int, dict[str, DataFile] | None]
        ] = {}  # by partition the last snapshot read
        self._there: dict[int, set[str]] = {}

    def missing(self, at: ShownCut, more: Sequence[str]) -> str | None:
        """The key of something that is needed for this state and not there; None: all is."""
        for partition, (_, snapshot) in enumerate(at.logs):
            listed = self._live(partition, snapshot)
            if listed is None:
                return f"{self._place(partition).prefix}/snapshots/{snapshot:020d}.parquet"
            there = self._existing(partition)
            for path in listed:
                needed = self._stands_for(partition, path)
                if needed is not None and needed not in there:
                    return f"{self._place(partition).prefix}/{needed}"
        for path in more:
            number, _, data_path = path.partition("/")
            needed = self._stands_for(int(number), data_path)
            if needed is not None and needed not in self._existing(int(number)):
                return f"{self._place(int(number)).prefix}/{needed}"
        return None

    def _stands_for(self, partition: int, path: str) -> str | None:
        """The file that has what is left of that one; None: nothing is left of it."""
        erased = self._erased.get(self._place(partition), {})
        if path not in erased:
            return path
        left = erased[path]
        return None if left is None else left.data_path

    def visible(self, at: ShownCut) -> Visible | None:
        """What is visible at a cut, by path below the tables' root; None where a snapshot is gone."""
        found: Visible = {}
        for partition, (offset, snapshot) in enumerate(at.logs):
            listed = self._live(partition, snapshot)
            if listed is None:
                return None
            found |= {
                f"{partition}/{path}": file for path, file in listed.items() if file.last_offset < offset
            }
        return found

    def _live(self, partition: int, snapshot: int) -> Mapping[str, DataFile] | None:
        if snapshot == 0:
            return {}
        known = self._listed.get(partition)
        if known is None or known[0] != snapshot:
            key = f"{self._place(partition).prefix}/snapshots/{snapshot:020d}.parquet"
            rows = self._reader.read(
                key, lambda raw: [row for row in snapshot_rows(raw.parquet(SNAPSHOT)) if row[0] == "file"]
            )
            files = None
            if rows is not None and not isinstance(rows, Damaged):
                every = (DataFile._make(row) for _, row in rows)
                files = {file.data_path: file for file in every if file.status == "live"}
            known = self._listed[partition] = snapshot, files
        return known[1]

    def _existing(self, partition: int) -> set[str]:
        if partition not in self._there:
            folder = f"{self._place(partition).prefix}/"
            listed = self._reader.listing(f"{folder}data/")
            self._there[partition] = {info.key.removeprefix(folder) for info in listed}
        return self._there[partition]

    def _place(self, partition: int) -> Place:
        return Place(self._topic.name, self._topic.incarnation, partition)


def _pin(key: str, held: Mapping[str, Any], topic: Topic, name: str, version: int, cut: int) -> _Pin:
    seen = tuple(held.get(each) for each in ("topic", "incarnation", "table_format", "version", "cut"))
    if seen != (topic.name, topic.incarnation, name, version, cut):
        raise MalformedError(f"a pin of {seen!r}"[:200])
    files = held.get("files")
    if not isinstance(files, list) or not all(
        isinstance(path, str) and re.fullmatch(r"[0-9]{1,9}/data/[^/]+", path) for path in files
    ):
        raise MalformedError(f"files {files!r}"[:200])
    return _Pin(key, version, shown_cut(held), tuple(files))
