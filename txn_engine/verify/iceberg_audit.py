"""A topic's Iceberg table: metadata and manifests by Iceberg's own rules, held against the log at the cuts shown."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, NamedTuple

import xxhash

from txn_engine.verify.avro import avro_records
from txn_engine.verify.descriptors import MalformedError
from txn_engine.verify.findings import FindingLog
from txn_engine.verify.iceberg_columns import wrong_schemas
from txn_engine.verify.layout import Topic
from txn_engine.verify.objects import ObjectReader
from txn_engine.verify.raw_object import Damaged, RawObject
from txn_engine.verify.store_keys import ICEBERG, MAX_OFFSET
from txn_engine.verify.table_cut import ShownCut, Visible, shown_cut

_NAME: Final = re.compile(r"v([1-9][0-9]{0,18})\.metadata\.json")
_AVRO: Final = re.compile(r"[0-9]{20}-(?:list|manifest)-([0-9a-f]{32})\.avro")
_DIGITS: Final = re.compile(rb'"txn-engine\.checksum":"([0-9a-f]{32})"')
_BYTES_MAX: Final = 256 << 20
_ADDED, _DELETED = 1, 2
_GUARDS: Final = ("write.location-provider.impl", "write.py-location-provider.impl", "write.metadata.path")


class _File(NamedTuple):
    """A file as a manifest has it."""

    size: int
    records: int
    partition: int
    base_offset: int


@dataclass(frozen=True, slots=True)
class _Manifest:
    """The files of a manifest that are there, those that were added and deleted, and by which snapshots."""

    live: Mapping[str, _File]
    added: frozenset[str]
    deleted: frozenset[str]
    by: frozenset[int]


class _Snapshot(NamedTuple):
    """A snapshot: its number, what it did, its list of manifests, and what it says of all files together."""

    number: int
    operation: str
    manifests: str
    totals: tuple[int, int, int]


@dataclass(frozen=True, slots=True)
class _Version:
    """A version: the cut that it shows (None: unpublished), its root, its snapshots. None of these: it is sealed."""

    at: ShownCut | None
    location: str
    snapshots: Sequence[_Snapshot]
    wrong: tuple[str, str] | None


class IcebergAudit:
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
        self._files = folder
        self._root = f"{folder}/{ICEBERG}"
        self._versions: list[int] = []
        self._known: dict[str, _Manifest] = {}
        self._lists: dict[str, dict[str, int] | None] = {}

    def list(self) -> None:
        """Note what there is by now."""
        names = (info.key.rpartition("/")[2] for info in self._reader.listing(f"{self._root}/metadata/"))
        matches = (_NAME.fullmatch(name) for name in names)
        self._versions = sorted(int(match[1]) - 1 for match in matches if match is not None)

    def judge(
        self,
        pinned: Collection[int],
        held: Mapping[int, ShownCut],
        visible: Callable[[ShownCut], Visible | None],
    ) -> None:
        """Judge what was listed. pinned: the cuts that its pins are of; held: those of which all is there."""
        last: _Version | None = None
        shown = -1
        for version, found in self._read():
            last = found
            if found.at is None:
                continue
            if found.wrong is not None:
                self._note("table-differs", version, *found.wrong)
            if found.at.number < shown:
                self._note("table-differs", version, f"cut {found.at.number}", f"cut {shown} or a later one")
            shown = found.at.number
            state = self._state(version, found)
            if state is not None and held.get(shown) == found.at:
                self._compare(version, state, visible(found.at))
        if last is None or last.at is None:
            return
        newest = self._versions[-1]
        self._judge_snapshots(newest, last)
        here = _as_uri(self._reader.uri(self._root))
        if last.location != here:
            self._note("table-elsewhere", newest, f"files below {last.location}", f"those below {here}")
        if last.at.number not in pinned and self._is_newest(newest):
            self._note(
                "table-unpinned",
                newest,
                f"no pin at cut {last.at.number}",
                "one, as long as it is the newest",
            )

    def _read(self) -> Iterator[tuple[int, _Version]]:
        """Each version that is not sealed; none behind one that is not ours, or is missing."""
        for due, version in enumerate(self._versions):
            if version != due:
                self._findings.add(
                    "object-missing",
                    self._key(due),
                    f"no such object, and a version {version}",
                    expected="one after the other",
                )
                return
            found = self._reader.read(self._key(version), partial(self._decoded, version))
            if found is None or isinstance(found, Damaged):
                seen = "no such object" if found is None else found.reason
                self._note("table-foreign", version, seen, f"version {version} as txn-engine wrote it")
                return
            if found != _SEALED:
                yield version, found
            elif version == self._versions[-1]:
                self._note("table-broken", version, "a seal", "the newest version, which is never sealed")

    # --- what a version shows -------------------------------------------------------------------------------

    def _state(self, version: int, found: _Version) -> dict[str, _File] | None:
        """The files of a version by their paths; None where something that says them is not there."""
        if not found.snapshots:
            return {}
        manifests = self._listed(version, found, found.snapshots[-1])
        if manifests is None:
            return None
        state: dict[str, _File] = {}
        for key in manifests:
            held = self._manifest(version, key)
            if held is None:
                return None
            both = state.keys() & held.live.keys()
            if both:
                self._note("table-differs", version, f"{min(both)} in two manifests", "each file once")
            state |= held.live
        totals = (
            sum(file.records for file in state.values()),
            len(state),
            sum(file.size for file in state.values()),
        )
        if totals != found.snapshots[-1].totals:
            seen = "{} records, {} files, {} bytes".format(*found.snapshots[-1].totals)
            expected = "{} records, {} files, {} bytes, as its manifests have".format(*totals)
            self._note("table-differs", version, seen, expected)
        return state

    def _compare(self, version: int, state: Mapping[str, _File], wanted: Visible | None) -> None:
        if wanted is None:
            return
        for path in sorted(wanted.keys() | state.keys()):
            file, seen = wanted.get(path), state.get(path)
            if file is None or seen is None:
                what = "is shown" if file is None else "is not shown"
                self._note(
                    "table-differs", version, f"{path} {what}", "the files that are live below its cut"
                )
                return
            right = _File(file.data_bytes, file.record_count, int(path.partition("/")[0]), file.base_offset)
            if seen != right:
                self._note(
                    "table-differs", version, f"{path} as {tuple(seen)}", f"{tuple(right)}, as the log says"
                )
                return

    def _judge_snapshots(self, version: int, found: _Version) -> None:
        """Each does what it says, and no more: by the manifests that it has and the one before has not."""
        for before, after in zip(found.snapshots, found.snapshots[1:], strict=False):
            old, new = self._listed(version, found, before), self._listed(version, found, after)
            if old is None or new is None:
                return
            dropped = [self._manifest(version, key) for key in old.keys() - new.keys()]
            fresh = [self._manifest(version, key) for key in new.keys() - old.keys()]
            if None in dropped or None in fresh:
                return
            gone: dict[str, _File] = {}
            come: dict[str, _File] = {}
            said_added: set[str] = set()
            said_deleted: set[str] = set()
            by: set[int] = set()
            for each in dropped:
                gone |= {} if each is None else each.live
            for each in fresh:
                come |= {} if each is None else each.live
                said_added |= set() if each is None else each.added
                said_deleted |= set() if each is None else each.deleted
                by |= set() if each is None else each.by
            lost = {path: gone[path] for path in gone.keys() - come.keys()}
            won = {path: come[path] for path in come.keys() - gone.keys()}
            problem = _problem(after.operation, lost, won)
            if set(won) != said_added or set(lost) != said_deleted or not by <= {after.number}:
                problem = f"{len(won)} files added, {len(lost)} removed, and its manifests say others"
            if problem:
                seen = f"snapshot {after.number} ({after.operation}): {problem}"
                self._note("table-differs", version, seen, "what its operation is")

    def _is_newest(self, version: int) -> bool:
        """Whether there is no other version by now, with a pin of its own."""
        return self._reader.read(self._key(version + 1), lambda _: True) is None

    # --- objects ----------------------------------------------------------------------------------------------

    def _listed(self, version: int, found: _Version, snapshot: _Snapshot) -> Mapping[str, int] | None:
        """The keys of a snapshot's manifests; None where they are not told, which is noted."""
        key = f"{self._root}{snapshot.manifests.removeprefix(found.location)}"
        if key not in self._lists:
            self._lists[key] = self._avro(version, key, partial(self._manifest_keys, found.location))
        return self._lists[key]

    def _manifest_keys(self, location: str, records: Iterator[dict[str, Any]]) -> dict[str, int]:
        return {
            f"{self._root}{each['manifest_path'].removeprefix(location)}": each["added_snapshot_id"]
            for each in records
        }

    def _manifest(self, version: int, key: str) -> _Manifest | None:
        if key not in self._known:
            found = self._avro(version, key, self._manifest_files)
            if found is None:
                return None
            self._known[key] = found
        return self._known[key]

    def _manifest_files(self, records: Iterator[dict[str, Any]]) -> _Manifest:
        live: dict[str, _File] = {}
        added, deleted, by = set(), set(), set()
        for each in records:
            data = each["data_file"]
            place = data["partition"]
            start = data["file_path"].rfind(f"/{self._files}/")
            path = data["file_path"][start + len(self._files) + 2 :] if start >= 0 else data["file_path"]
            if each["status"] in (_ADDED, _DELETED):
                by.add(each["snapshot_id"])
            if each["status"] == _DELETED:
                deleted.add(path)
                continue
            live[path] = _File(
                data["file_size_in_bytes"],
                data["record_count"],
                place["log_partition"],
                place["log_base_offset"],
            )
            if each["status"] == _ADDED:
                added.add(path)
        return _Manifest(live, frozenset(added), frozenset(deleted), frozenset(by))

    def _avro(self, version: int, key: str, made: Callable[[Iterator[dict[str, Any]]], Any]) -> Any:
        """What is made of an Avro object's records; None where it is not the one that its name says: noted, unless the
        version that names it was sealed meanwhile.
        """
        match = _AVRO.fullmatch(key.rpartition("/")[2])

        def decoded(raw: RawObject) -> Any:
            data = raw.store.get(raw.key, max_bytes=_BYTES_MAX) if raw.data is None else raw.data
            if match is None or xxhash.xxh3_128_hexdigest(data) != match[1]:
                raise MalformedError("other bytes than the hash in its name is of")
            try:
                return made(avro_records(data))
            except AttributeError as error:
                raise MalformedError(f"records of other types: {error}") from None

        found = self._reader.read(key, decoded)
        if found is not None and not isinstance(found, Damaged):
            return found
        if self._reader.read(self._key(version), partial(self._decoded, version)) != _SEALED:
            seen = "no such object" if found is None else found.reason
            self._findings.add("table-broken", key, seen, expected=f"what {self._key(version)} names")
        return None

    def _decoded(self, version: int, raw: RawObject) -> _Version:
        data = raw.store.get(raw.key, max_bytes=_BYTES_MAX) if raw.data is None else raw.data
        if json.loads(data) == {"txn-engine.kind": "iceberg_seal", "txn-engine.version": version}:
            return _SEALED
        fields = _checked(data)
        own = fields["properties"]
        owner = (own["txn-engine.topic"], own["txn-engine.incarnation"], own["txn-engine.version"])
        if owner != (self._topic.name, str(self._topic.incarnation), str(version)) or (
            self._store_ids is not None and own["txn-engine.store-id"] not in self._store_ids
        ):
            raise MalformedError(f"metadata of {owner!r}"[:200])
        at = json.loads(own["txn-engine.at"])
        snapshots = [_snapshot(each) for each in fields["snapshots"]]
        wrong = self._wrong(fields) if at is not None else None
        return _Version(None if at is None else shown_cut(at), fields["location"], snapshots, wrong)

    def _wrong(self, fields: Mapping[str, Any]) -> tuple[str, str] | None:
        """What the table says of itself and should not, and what it should."""
        schema = self._topic.schema
        wrong = None if schema is None else wrong_schemas(fields, schema.versions)
        if wrong is not None:
            return wrong
        properties = fields["properties"]
        if properties.get("gc.enabled") != "false" or any(not properties.get(name) for name in _GUARDS):
            return "a table that others may write", "gc.enabled=false, and no place for what is written"
        last = fields["snapshots"][-1]["snapshot-id"] if fields["snapshots"] else None
        if fields["format-version"] != 2 or fields["current-snapshot-id"] != last:
            seen = f"format {fields['format-version']!r}, current snapshot {fields['current-snapshot-id']!r}"
            return seen[:200], f"format 2, snapshot {last}"
        return None

    def _note(self, code: str, version: int, seen: str, expected: str) -> None:
        self._findings.add(code, self._key(version), seen, expected=expected)

    def _key(self, version: int) -> str:
        return f"{self._root}/metadata/v{version + 1}.metadata.json"


_SEALED: Final = _Version(None, "", (), ("sealed", ""))


def _as_uri(address: str) -> str:
    return address if "://" in address else f"file://{address}"


def _snapshot(held: Mapping[str, Any]) -> _Snapshot:
    summary = held["summary"]
    totals = [int(summary[f"total-{name}"]) for name in ("records", "data-files", "files-size")]
    number = held["snapshot-id"]
    if type(number) is not int or not 0 < number <= MAX_OFFSET or held["sequence-number"] != number:
        raise MalformedError(f"snapshot {number!r} of sequence number {held['sequence-number']!r}"[:200])
    return _Snapshot(number, summary["operation"], held["manifest-list"], (totals[0], totals[1], totals[2]))


def _problem(operation: str, lost: Mapping[str, _File], won: Mapping[str, _File]) -> str:
    """What an operation did that it may not, by its name."""
    change = sum(file.records for file in won.values()) - sum(file.records for file in lost.values())
    if operation == "append" and lost:
        return f"{min(lost)} removed"
    if operation == "delete" and won:
        return f"{min(won)} added"
    if operation == "replace" and change:
        return f"{change:+d} records"
    return "" if operation in ("append", "replace", "overwrite", "delete") else "an operation of no such name"


def _checked(data: bytes) -> dict[str, Any]:
    """The metadata's fields; MalformedError unless its checksum is that of its bytes."""
    found = list(_DIGITS.finditer(data))
    if len(found) != 1:
        raise MalformedError("no checksum among its properties")
    start, end = found[0].span(1)
    if xxhash.xxh3_128_hexdigest(data[:start] + b"0" * (end - start) + data[end:]) != found[0][1].decode():
        raise MalformedError("another checksum than its bytes have")
    fields = json.loads(data)
    if not isinstance(fields, dict):
        raise MalformedError(f"{fields!r}"[:80])
    return fields
