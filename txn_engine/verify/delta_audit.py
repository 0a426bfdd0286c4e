"""A topic's Delta table: its commits replayed by Delta's own rules, and held against the log at the cuts they show."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, NamedTuple

import xxhash

from txn_engine.verify.delta_columns import Wrong, wrong_columns
from txn_engine.verify.descriptors import MalformedError
from txn_engine.verify.findings import FindingLog
from txn_engine.verify.layout import Topic
from txn_engine.verify.objects import ObjectReader
from txn_engine.verify.raw_object import Damaged, RawObject
from txn_engine.verify.store_keys import DELTA_LOG, MAX_OFFSET
from txn_engine.verify.table_cut import ShownCut, Visible, shown_cut

_NAME: Final = re.compile(r"([0-9]{20})\.(json|checkpoint\.parquet)")
_DIGITS: Final = re.compile(rb'"checksum":"([0-9a-f]{32})"')
_COMMIT_BYTES_MAX: Final = 1 << 30
_GUARD: Final = "txnEngineView"


class _File(NamedTuple):
    """A file that a commit adds: what it says of it."""

    size: int
    records: int


@dataclass(frozen=True, slots=True)
class _Commit:
    """A version: the cut that it shows (None: unpublished), which columns it has, and what it does."""

    at: ShownCut | None
    is_complete: bool
    added: Mapping[str, tuple[_File, bool]]
    removed: Mapping[str, bool]
    schema_version: int
    protocol: Mapping[str, Any] | None
    metadata: Mapping[str, Any] | None
    wrong: Wrong


class DeltaAudit:
    """The audit of one table: listed, then judged."""

    def __init__(
        self,
        reader: ObjectReader,
        findings: FindingLog,
        store_ids: Collection[str] | None,
        topic: Topic,
        folder: str,
    ) -> None:
        self._reader = reader
        self._findings = findings
        self._store_ids = store_ids
        self._topic = topic
        self._folder = f"{folder}/{DELTA_LOG}/"
        self._commits: list[int] = []
        self._checkpoints: set[int] = set()
        self._state: dict[str, _File] = {}
        self._columns: int | None = None

    def list(self) -> None:
        """Note what there is by now."""
        for info in self._reader.listing(self._folder):
            match = _NAME.fullmatch(info.key.removeprefix(self._folder))
            if match is None or int(match[1]) > MAX_OFFSET:
                continue
            if match[2] == "json":
                self._commits.append(int(match[1]))
            else:
                self._checkpoints.add(int(match[1]))

    def judge(
        self,
        pinned: Collection[int],
        held: Mapping[int, ShownCut],
        visible: Callable[[ShownCut], Visible | None],
    ) -> None:
        """Replay what was listed. pinned: the cuts that its pins are of; held: those of which all is there."""
        last: _Commit | None = None
        shown = -1
        for version, commit in self._replayed():
            last = commit
            if commit.at is None:
                shown = -1  # what is published again may begin anywhere
                continue
            if commit.at.number < shown:
                self._note("table-differs", version, f"cut {commit.at.number}", f"cut {shown} or a later one")
            shown = commit.at.number
            if commit.is_complete and held.get(shown) == commit.at:
                self._compare(version, visible(commit.at))
            if version in self._checkpoints:
                self._judge_checkpoint(version)
        if last is not None and last.at is not None and last.at.number not in pinned:
            self._judge_unpinned(self._commits[-1], last.at)

    def _replayed(self) -> Iterator[tuple[int, _Commit]]:
        """Each version, with the state behind it in `_state`; none behind one that is not ours, or is missing."""
        for due, version in enumerate(self._commits):
            if version != due:
                key = self._key(due)
                self._findings.add(
                    "object-missing",
                    key,
                    f"no such object, and a version {version}",
                    expected="one after the other",
                )
                return
            found = self._reader.read(self._key(version), partial(self._decoded, version))
            if found is None or isinstance(found, Damaged):
                self._note(
                    "table-foreign",
                    version,
                    "no such object" if found is None else found.reason,
                    f"version {version} as txn-engine wrote it",
                )
                return
            self._apply(version, found)
            yield version, found

    def _apply(self, version: int, commit: _Commit) -> None:
        """What the version makes of the state. Files without `dataChange` keep all records between them."""
        kept = 0
        for path, data_change in commit.removed.items():
            gone = self._state.pop(path, None)
            if gone is None:
                self._note("table-differs", version, f"{path} removed", "a file that was there")
            elif not data_change:
                kept -= gone.records
        for path, (file, data_change) in commit.added.items():
            if path in self._state:
                self._note("table-differs", version, f"{path} added twice", "a file that was not there")
            self._state[path] = file
            kept += 0 if data_change else file.records
        if kept:
            self._note("table-differs", version, f"{kept:+d} records by a merge", "as many as before")
        features = (_GUARD,) if commit.protocol is None else tuple(commit.protocol["writerFeatures"])
        if _GUARD not in features:
            seen = f"writer features {features}"
            self._note("table-differs", version, seen, f"{_GUARD}, which keeps other writers away")
        self._judge_columns(version, commit)

    def _judge_columns(self, version: int, commit: _Commit) -> None:
        """Its metadata says the columns of the version that it says to have; without, they are those of before."""
        if commit.wrong is not None:
            self._note("table-differs", version, *commit.wrong)
        if commit.metadata is not None:
            self._columns = commit.schema_version
        elif commit.at is not None and commit.schema_version != self._columns:
            before = "none" if self._columns is None else f"version {self._columns}"
            seen = f"version {commit.schema_version} of the columns, and no metaData"
            self._note("table-differs", version, seen, f"{before}, as before, or what the columns are")

    def _compare(self, version: int, wanted: Visible | None) -> None:
        if wanted is None:
            return
        for path in sorted(wanted.keys() | self._state.keys()):
            file, seen = wanted.get(path), self._state.get(path)
            if file is None or seen is None:
                what = "is shown" if file is None else "is not shown"
                self._note(
                    "table-differs", version, f"{path} {what}", "the files that are live below its cut"
                )
                return
            if seen != (file.data_bytes, file.record_count):
                text = f"{path} of {seen.size} bytes, {seen.records} records"
                expected = f"{file.data_bytes} and {file.record_count}, as the log says"
                self._note("table-differs", version, text, expected)
                return

    def _judge_checkpoint(self, version: int) -> None:
        key = f"{self._folder}{version:020d}.checkpoint.parquet"
        found = self._reader.read(key, _checkpoint_files)
        if isinstance(found, Damaged):
            self._findings.add(
                "table-foreign", key, found.reason, expected="a checkpoint as txn-engine writes it"
            )
        elif found is not None and found != self._state.keys():
            path = min(found ^ self._state.keys())
            what = "is in the checkpoint" if path in found else "is not in the checkpoint"
            self._findings.add("table-differs", key, f"{path} {what}", expected="the files of its version")

    def _judge_unpinned(self, version: int, at: ShownCut) -> None:
        """Unless there is another version by now, with a pin of its own."""
        if self._reader.read(self._key(version + 1), lambda _: True) is None:
            self._note(
                "table-unpinned", version, f"no pin at cut {at.number}", "one, as long as it is the newest"
            )

    def _decoded(self, version: int, raw: RawObject) -> _Commit:
        data = raw.store.get(raw.key, max_bytes=_COMMIT_BYTES_MAX) if raw.data is None else raw.data
        head, *lines = _checked_lines(data)
        ours = head["commitInfo"]["txnEngine"]
        owner = (ours["topic"], ours["incarnation"], ours["version"])
        if owner != (self._topic.name, self._topic.incarnation, version) or (
            self._store_ids is not None and ours["store_id"] not in self._store_ids
        ):
            raise MalformedError(f"a commit of {owner!r}, store {ours['store_id']!r}"[:200])
        added, removed = {}, {}
        said: dict[str, Mapping[str, Any]] = {}
        for action in lines:
            ((kind, value),) = action.items()
            if kind == "add":
                stats = json.loads(value["stats"])
                added[value["path"]] = _File(value["size"], stats["numRecords"]), value["dataChange"]
            elif kind == "remove":
                removed[value["path"]] = value["dataChange"]
            elif kind in ("protocol", "metaData"):
                said[kind] = value
            elif kind != "txn":
                raise MalformedError(f"an action {kind!r}"[:200])
        at = None if ours["at"] is None else shown_cut(ours["at"])
        number, protocol, metadata = ours.get("schema_version", 0), said.get("protocol"), said.get("metaData")
        if type(number) is not int:
            raise MalformedError(f"version {number!r} of the columns"[:200])
        wrong = None if metadata is None else self._wrong_columns(metadata, protocol or {}, number)
        return _Commit(at, ours["done"] is None, added, removed, number, protocol, metadata, wrong)

    def _wrong_columns(self, metadata: Mapping[str, Any], protocol: Mapping[str, Any], number: int) -> Wrong:
        schema = self._topic.schema
        return None if schema is None else wrong_columns(metadata, protocol, number, schema.versions)

    def _note(self, code: str, version: int, seen: str, expected: str) -> None:
        self._findings.add(code, self._key(version), seen, expected=expected)

    def _key(self, version: int) -> str:
        return f"{self._folder}{version:020d}.json"


def _checked_lines(data: bytes) -> list[dict[str, Any]]:
    """The commit's actions; MalformedError unless its checksum is that of its bytes."""
    found = _DIGITS.search(data, 0, max(data.find(b"\n"), 0))
    if found is None:
        raise MalformedError("no checksum in the first line")
    start, end = found.span(1)
    if xxhash.xxh3_128_hexdigest(data[:start] + b"0" * (end - start) + data[end:]) != found[1].decode():
        raise MalformedError("another checksum than its bytes have")
    return [json.loads(line) for line in data.splitlines()]


def _checkpoint_files(raw: RawObject) -> set[str]:
    found = raw.parquet()
    if found.kind != "delta_checkpoint":
        raise MalformedError(f"kind {found.kind!r}, not 'delta_checkpoint'")
    paths: set[str] = set()
    for batch in found.batches(["add"]):
        paths |= {each["path"] for each in batch.column("add").to_pylist() if each is not None}
    return paths
