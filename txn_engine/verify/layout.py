"""What there is to audit: the store's own objects, its topics and their partitions (docs/FORMAT.md, "JSON objects")."""

from __future__ import annotations

import base64
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeGuard

import pyarrow as pa
import pyarrow.parquet as pq

from storage.arrow_schema import read_schema
from txn_engine.errors import UnknownTopicOrPartitionError
from txn_engine.verify.checksums import FORMAT
from txn_engine.verify.data_file_audit import RecordSchema
from txn_engine.verify.descriptors import MalformedError
from txn_engine.verify.findings import LISTED_MAX, FindingLog, Place
from txn_engine.verify.key_audit import KeyRules, key_rules
from txn_engine.verify.objects import ObjectReader
from txn_engine.verify.raw_object import Damaged
from txn_engine.verify.settings_audit import SettingsAudit
from txn_engine.verify.store_keys import (
    BLOCK_IDS,
    CHANGES,
    COUNTED_OBJECT,
    DELTA_LOG,
    ERASURES,
    GROWTHS,
    ICEBERG,
    INTERNAL,
    MAX_BLOCK,
    NUMBER,
    PINS,
    KeySurvey,
    foreign_part,
    is_topic_name,
)

_INTERNAL_PARTITIONS: Final = 50
_PARTITIONS_MAX: Final = 10_000  # of any topic
_GATE_FORMAT: Final = "3"  # of the object that keeps older programs out of a topic whose columns changed
# Objects asked for behind the last of a topic: lists across folders have another order on every server.
_BEHIND_A_GAP: Final = 3
_LOG: Final = frozenset({"log", "data", "snapshots"})
_TOPIC_FIELDS: Final = (
    "topic",
    "incarnation",
    "partitions",
    "key",
    "arrow_schema",
    "retention_ms",
    "cleanup_policy",
    "delete_retention_ms",
    "min_compaction_lag_ms",
    "created_ms",
    "deleted",
)


@dataclass(frozen=True, slots=True)
class Topic:
    """The incarnation of a topic that counts. `schema` is None where its object does not tell; `keys` where it is not
    compacted by key.
    """

    name: str
    incarnation: int
    partitions: int
    schema: RecordSchema | None
    keys: KeyRules | None = None

    def places(self) -> list[Place]:
        """Its partitions."""
        return [Place(self.name, self.incarnation, number) for number in range(self.partitions)]


@dataclass(slots=True)
class Layout:
    """The store as its JSON objects describe it.

    `latest`: each topic's highest incarnation, a tombstone's too; `unclear`: topics whose object is missing or damaged.
    """

    internal_partitions: dict[str, int]
    topics: dict[str, Topic] = field(default_factory=dict)
    latest: dict[str, int] = field(default_factory=dict)
    unclear: set[str] = field(default_factory=set)

    def has(self, place: Place) -> bool | None:
        """Whether the partition is there now; None where it was deleted with its incarnation, or damage hides it."""
        if place.topic in INTERNAL:
            return place.incarnation == 0 and 0 <= place.partition < self.internal_partitions[place.topic]
        if place.topic in self.unclear or place.incarnation < self.latest.get(place.topic, 0):
            return None
        topic = self.topics.get(place.topic)
        return (
            topic is not None
            and place.incarnation == topic.incarnation
            and 0 <= place.partition < topic.partitions
        )


class LayoutAudit:
    """Reads every JSON object of the store and judges it.

    keys: what was listed before anything else was read. A folder is misplaced only where an object of the format's was
    in it by then: a topic may be made, or grow, meanwhile.
    """

    def __init__(
        self, reader: ObjectReader, findings: FindingLog, keys: KeySurvey, *, is_root: bool = False
    ) -> None:
        self._reader = reader
        self._is_root = is_root  # the folder of a restored store, which the place's store.json names
        self._findings = findings
        self._keys = keys
        self._settings = SettingsAudit(reader, findings)
        self._misplaced: set[str] = set()  # folders already called so
        self.store_ids: frozenset[str] | None = None  # None: nobody knows
        self._first_block = 0  # of producer ids

    def check_names(self, only: Sequence[str] | None) -> None:
        """Raise for a topic that the store has not."""
        names = {*self._reader.folders("topics"), *INTERNAL} if only else set()
        for name in only or ():
            if name not in names:
                raise UnknownTopicOrPartitionError(
                    f"topic {name!r}", actor="verify", expected="a topic of this store"
                )

    def existing(self, topic: str, count: int) -> list[int]:
        """The partitions of an internal topic that hold anything; a folder beyond the count is a finding."""
        found = []
        for name in self._reader.folders(f"topics/{topic}/0"):
            if NUMBER.fullmatch(name) and int(name) < count:
                found.append(int(name))
            else:
                self._note_partition(f"topics/{topic}/0/{name}/", count)
        return sorted(found)

    def find(self, name: str) -> Topic | None:
        """The topic of that name, as far as its objects tell; None where there is none, or it was deleted."""
        if name in INTERNAL:
            return Topic(name, 0, self.internal_partitions()[name], None)
        layout = Layout({})
        if is_topic_name(name) and name in self._reader.folders("topics"):
            self._read_topic(name, layout)
        return layout.topics.get(name)

    def run(self, layout: Layout) -> None:
        """Take up all topics of the store as they are now, and judge its settings."""
        self._settings.of_store()
        for name in self._reader.folders("topics"):
            if name in INTERNAL:
                self._judge_internal(f"topics/{name}")
            elif is_topic_name(name):
                self._read_topic(name, layout)

    def note_if_lost(self, name: str, incarnation: int, witness: str, layout: Layout) -> bool:
        """Name a topic's incarnation that something names and no object tells of. It is asked for once more: it may
        have been made meanwhile.
        """
        if name in INTERNAL or name in layout.unclear or incarnation <= layout.latest.get(name, -1):
            return False
        if self._read_incarnation(name, incarnation) is not None:
            return False
        self._findings.add(
            "topic-lost",
            _topic_key(name, incarnation),
            f"no such object, and {witness} names topic {name!r}",
            expected="the topic's object, or a later one of that name",
        )
        return True

    def _judge_internal(self, folder: str) -> None:
        """An internal topic has one incarnation."""
        for name in self._reader.folders(folder):
            if name != "0":
                self._note_folder(f"{folder}/{name}/", "a folder of no incarnation", "incarnation 0 only")

    def internal_partitions(self) -> dict[str, int]:
        """How many partitions the internal topics have; what store.json does not tell is 50."""
        counts = dict.fromkeys(INTERNAL, _INTERNAL_PARTITIONS)
        missing = "restore-unfinished" if self._is_root else "object-missing"
        held = self._json("store.json", "store", "the store's own object", missing=missing)
        if held is None:
            return counts
        self._judge_restored(held.get("restored"))
        self.store_ids = _ids(held)
        found = held.get("internal_partitions")
        for name in INTERNAL:
            count = found.get(name) if isinstance(found, dict) else None
            if _is_count(count):
                counts[name] = count
            else:
                seen = f"internal_partitions {found!r}"[:200]
                self._findings.add(
                    "object-damaged", "store.json", seen, expected=f"a partition count of {name}"
                )
        return counts

    def _judge_restored(self, restored: object) -> None:
        """Of a store that was restored: whether that has come to its end, and with which block its ids begin."""
        if restored is None:
            return
        first = restored.get("first_block") if isinstance(restored, dict) else None
        if type(first) is not int or not 0 <= first <= MAX_BLOCK:
            seen = f"restored {restored!r}"[:200]
            self._findings.add(
                "object-damaged", "store.json", seen, expected="the first block of producer ids"
            )
            return
        self._first_block = first
        found = self._reader.read("restored.json", lambda raw: raw.json("restored"))
        if found is None:
            self._findings.add(
                "restore-unfinished",
                "restored.json",
                "no such object, and store.json says that the store is being restored",
                expected="an object that says that all of it is there",
            )
        elif isinstance(found, Damaged):
            self._findings.add(
                "object-damaged", "restored.json", found.reason, expected="the object as it was written"
            )

    def _read_topic(self, name: str, layout: Layout) -> None:
        folder = f"topics/{name}"
        names = self._reader.folders(folder)
        if folder in self._reader.not_folders:
            layout.unclear.add(name)
            return
        latest, held = self._read_incarnations(name)
        logs = {number for number in _numbers(names) if number > latest and self._holds_log(folder, number)}
        behind = range(latest + 2, latest + 2 + _BEHIND_A_GAP)
        later = [number for number in behind if self._read_incarnation(name, number) is not None]
        while later and self._read_incarnation(name, later[-1] + 1) is not None:
            later.append(later[-1] + 1)
        for number in sorted(logs.union(later)):
            found = self._incarnation(name, number)
            for earlier in range(latest + 1, min(number, latest + 1 + LISTED_MAX)):
                self._incarnation(name, earlier)
            latest, held = number, found
        for number in sorted(each for each in self._keys.incarnations[name] if each > latest)[:LISTED_MAX]:
            if self._read_incarnation(name, number) is not None and number > latest + 1:
                expected = f"incarnations 0 to {latest}, one after another: nobody reads one behind a gap"
                self._findings.add(
                    "object-misnamed", _topic_key(name, number), "an incarnation", expected=expected
                )
        for known in names:
            if NUMBER.fullmatch(known) is None or int(known) > latest:
                expected = "the folder of an incarnation whose object is there"
                self._note_folder(f"{folder}/{known}/", "a folder of no incarnation", expected)
        if latest >= 0:
            self._take_latest(name, latest, held, layout)

    def _read_incarnations(self, name: str) -> tuple[int, dict[str, Any] | None]:
        """The last of those that follow one another from 0 on (-1: none), and its object where that is sound."""
        number, held = 0, None
        while (found := self._read_incarnation(name, number)) is not None:
            held = self._judge_topic(name, number, found)
            number += 1
        return number - 1, held

    def _incarnation(self, name: str, number: int) -> dict[str, Any] | None:
        """The object of an incarnation that there must be; None where it is missing or damaged, which is a finding."""
        found = self._read_incarnation(name, number)
        if found is not None:
            return self._judge_topic(name, number, found)
        self._findings.add(
            "object-missing",
            _topic_key(name, number),
            f"no such object, and a later one of topic {name!r}, or a log of it",
            expected="an object for each incarnation from 0 on: without it an older one counts again",
        )
        return None

    def _read_incarnation(self, name: str, number: int) -> dict[str, Any] | Damaged | None:
        return self._reader.read(_topic_key(name, number), lambda raw: raw.json("topic"))

    def _holds_log(self, folder: str, incarnation: int) -> bool:
        """Whether there is anything of a partition."""
        below = f"{folder}/{incarnation}"
        return any(
            not _LOG.isdisjoint(self._reader.folders(f"{below}/{number}"))
            for number in _numbers(self._reader.folders(below))
        )

    def _take_latest(self, name: str, latest: int, held: dict[str, Any] | None, layout: Layout) -> None:
        layout.latest[name] = latest
        folder = f"topics/{name}/{latest}"
        if held is None:  # its logs can be judged all the same
            layout.unclear.add(name)
            numbers = _numbers(self._reader.folders(folder))
            partitions = max((each for each in numbers if each < _PARTITIONS_MAX), default=-1) + 1
            layout.topics[name] = Topic(name, latest, partitions, None)
        elif not held["deleted"]:
            names = self._reader.folders(
                folder
            )  # before the counts: a partition never comes before its count
            partitions = self._grown(name, latest, held["partitions"])
            changes = self._settings.of_topic(name, latest)
            schema, keys = self._schema(held, changes, f"{folder}.json")
            layout.topics[name] = Topic(name, latest, partitions, schema, keys)
            self._judge_folders(folder, names, partitions)

    def _judge_topic(
        self, name: str, incarnation: int, found: dict[str, Any] | Damaged
    ) -> dict[str, Any] | None:
        key = _topic_key(name, incarnation)
        if isinstance(found, Damaged):
            self._findings.add("object-damaged", key, found.reason, expected="the object as it was written")
            return None
        if missing := [field for field in _TOPIC_FIELDS if field not in found]:
            seen = f"no {', '.join(missing)}"
            self._findings.add("object-damaged", key, seen, expected="every field of a topic object")
            return None
        deleted, partitions = found.get("deleted"), found.get("partitions")
        named = (found.get("topic"), found.get("incarnation")) == (name, incarnation)
        if not named or not isinstance(deleted, bool) or not (_is_count(partitions) or deleted):
            seen = f"topic {found.get('topic')!r} incarnation {found.get('incarnation')!r} partitions {partitions!r}"
            expected = f"topic {name!r} incarnation {incarnation}, {_count_from(1)}"
            self._findings.add("object-damaged", key, seen, expected=expected)
            return None
        return found

    def _schema(
        self, held: dict[str, Any], changes: list[dict[str, Any]], key: str
    ) -> tuple[RecordSchema | None, KeyRules | None]:
        try:
            encoded = base64.b64decode(held.get("arrow_schema", ""), validate=True)
            schema = read_schema(encoded)
            pq.write_table(pa.Table.from_batches([], schema=schema), pa.BufferOutputStream())
            columns = RecordSchema(schema, changes)
            return columns, key_rules(held, columns.versions, changes)
        except MalformedError as error:
            expected = (
                "a cleanup policy, a key column and delete_retention_ms where that is compact, sound versions"
            )
            self._findings.add("object-damaged", key, str(error), expected=expected)
            return None, None
        except (pa.ArrowException, ValueError, OSError, TypeError) as error:
            seen = f"an arrow_schema that cannot be read: {' '.join(str(error).split())[:120]}"
            self._findings.add("object-damaged", key, seen, expected="base64 of an Arrow IPC schema message")
            return None, None

    def _grown(self, topic: str, incarnation: int, partitions: int) -> int:
        """How many partitions the topic has, by the objects that say how it grew; judges each of them."""
        folder = f"topics/{topic}/{incarnation}/{GROWTHS}/"
        due = 0
        for info in self._reader.listing(folder):
            match = COUNTED_OBJECT.fullmatch(info.key.removeprefix(folder))
            if match is None or foreign_part(info.key) is not None:
                continue
            for number in range(due, min(int(match[1]), due + LISTED_MAX)):
                seen = f"no such object, and a later one of number {int(match[1])}"
                self._findings.add(
                    "object-missing",
                    f"{folder}{number:020d}.json",
                    seen,
                    expected="one after the other from 0",
                )
            due = int(match[1]) + 1
            formats = (FORMAT, _GATE_FORMAT)
            held = self._json(info.key, "partitions", f"how many partitions topic {topic!r} has", formats)
            if held is None:
                continue
            count = held.get("partitions")
            named = (held.get("topic"), held.get("incarnation")) == (topic, incarnation)
            if named and held.get("gate") is True and type(count) is int and count == partitions:
                continue
            if not named or not _is_count(count) or count <= partitions:
                seen = f"topic {held.get('topic')!r} incarnation {held.get('incarnation')!r} partitions {count!r}"
                expected = f"topic {topic!r} incarnation {incarnation}, {_count_from(partitions + 1)}"
                self._findings.add("object-damaged", info.key, seen, expected=expected)
            else:
                partitions = count
        return partitions

    def _judge_folders(self, folder: str, names: list[str], partitions: int) -> None:
        for name in names:
            if name not in (GROWTHS, CHANGES, ERASURES, PINS, DELTA_LOG, ICEBERG) and (
                NUMBER.fullmatch(name) is None or int(name) >= partitions
            ):
                self._note_partition(f"{folder}/{name}/", partitions)

    def _note_partition(self, key: str, partitions: int) -> None:
        self._note_folder(key, "a folder of no partition", f"partitions 0 to {partitions - 1}")

    def _note_folder(self, key: str, seen: str, expected: str) -> None:
        if key in self._keys.folders and key not in self._misplaced:
            self._misplaced.add(key)
            self._findings.add("object-misnamed", key, seen, expected=expected)

    def judge_blocks(self, used: Collection[int], *, has_owners: bool) -> None:
        """Judge the claims of producer ids; `used`: the blocks of which ids are in use; `has_owners`: by transactional
        ids too. A store without these and without claims may have had callers alone who chose ids of their own.

        Asked after everything else was read: before its first id is used, a block is claimed, and so is a block above.
        """
        used = {
            block for block in used if block >= self._first_block
        }  # others: of the store it was restored from
        listed = self._judge_listed_blocks(used)
        if "producer_ids" in self._reader.not_folders:
            return
        above = {max(used) + 1} if used else set()
        for block in sorted(above.union(used) - listed):
            key = f"producer_ids/{block:020d}.json"
            if block <= MAX_BLOCK and self._reader.read(key, lambda raw: raw.json("producer_ids")) is None:
                whose = "ids of it" if block in used else "ids of the block below it"
                self._findings.add(
                    "producer-id-block",
                    key,
                    f"no such object, and {whose} are in use",
                    expected="a claim to each block of which ids are in use, and to one above them",
                    action="put the object back from a copy of the store, and find out what removed it",
                    severity="error" if listed or has_owners else None,
                )

    def _judge_listed_blocks(self, used: Collection[int]) -> set[int]:
        """The numbers of the blocks that a listing shows."""
        due, listed = self._first_block, set()
        for info in self._reader.listing("producer_ids"):
            match = COUNTED_OBJECT.fullmatch(info.key.removeprefix("producer_ids/"))
            if match is None or foreign_part(info.key) is not None:
                continue
            number = int(match[1])
            listed.add(number)
            if number > due and due not in used:
                seen = f"no block {due}, and a block {number}"
                expected = "blocks claimed one after another: ids of a lost block may be given out again"
                self._findings.add(
                    "producer-id-block", f"producer_ids/{due:020d}.json", seen, expected=expected
                )
            if number < self._first_block:
                expected = (
                    f"blocks from {self._first_block} on: the store it was restored from gave out those below"
                )
                self._findings.add(
                    "producer-id-block", info.key, f"block {number}", expected=expected, severity="error"
                )
            due = max(due, number + 1)
            held = self._json(info.key, "producer_ids", "a producer id block")
            wanted = (number * BLOCK_IDS, BLOCK_IDS)
            if held is not None and (held.get("first_producer_id"), held.get("count")) != wanted:
                seen = f"ids from {held.get('first_producer_id')!r}, {held.get('count')!r} of them"
                expected = f"{BLOCK_IDS} ids from {wanted[0]}: blocks must not overlap"
                self._findings.add("producer-id-block", info.key, seen, expected=expected, severity="error")
        return listed

    def _json(
        self,
        key: str,
        kind: str,
        what: str,
        formats: Collection[str] = (FORMAT,),
        *,
        missing: str = "object-missing",
    ) -> dict[str, Any] | None:
        found = self._reader.read(key, lambda raw: raw.json(kind, formats))
        if found is None:
            self._findings.add(missing, key, "no such object", expected=what)
            return None
        if isinstance(found, Damaged):
            self._findings.add("object-damaged", key, found.reason, expected=f"{what}, as it was written")
            return None
        return found


def _ids(held: Mapping[str, Any]) -> frozenset[str] | None:
    """The store's id, and those that it had as a copy of another; None where that is not said."""
    former = held.get("former_ids", [])
    ids = [held.get("store_id"), *(former if isinstance(former, list) else [])]
    return frozenset(map(str, ids)) if isinstance(ids[0], str) else None


def _is_count(partitions: object) -> TypeGuard[int]:
    """Whether a topic can have this number of partitions. The audit would count up to a larger one before it reads."""
    return type(partitions) is int and 1 <= partitions <= _PARTITIONS_MAX


def _count_from(least: int) -> str:
    return f"{least} to {_PARTITIONS_MAX} partitions"


def _topic_key(name: str, incarnation: int) -> str:
    return f"topics/{name}/{incarnation}.json"


def _numbers(names: Sequence[str]) -> list[int]:
    return [int(name) for name in names if NUMBER.fullmatch(name)]
