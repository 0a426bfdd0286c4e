"""Topics: one small object an incarnation, the highest one counts. A topic deleted and made again is another topic.

A topic grows by small objects too, one after the other below its incarnation: the last one's partition count counts.
So does what its owner changes: the last change says all of its settings, and all of them its columns.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final, NamedTuple

import pyarrow as pa

from storage import (
    JSON_BYTES_MAX,
    UNREADABLE,
    InvalidKeyError,
    ObjectTooLargeError,
    PutOutcome,
    StorageError,
    decode_parquet,
    encode_parquet,
    validate_name,
)
from storage.arrow_schema import read_schema
from txn_engine.arguments import check_whole_numbers
from txn_engine.clock import Clock, monotonic_ms
from txn_engine.configs import INT64_MAX, TOPIC, Value, parsed
from txn_engine.errors import (
    CorruptObjectError,
    InvalidConfigError,
    InvalidPartitionsError,
    InvalidRecordError,
    InvalidRequestError,
    InvalidTopicError,
    RequestTimedOutError,
    TopicExistsError,
    UnknownTopicOrPartitionError,
)
from txn_engine.held import held_type, laid_out, no_records, nulls
from txn_engine.ids import IdSource
from txn_engine.log.chain import expect_from, last_of
from txn_engine.log.data_files import stored_schema
from txn_engine.log.growths import Growth, decoded_growth, encoded_growth, growth_key
from txn_engine.log.objects import Objects, checked_number, checked_text, decode_json, encode_json
from txn_engine.log.own_process import OwnLock
from txn_engine.log.read_ahead import ReadAhead
from txn_engine.log.schema_format import encoded_schema, layouts_after, said_version, says_all
from txn_engine.log.settings_format import decoded_settings
from txn_engine.log.store_config import CONSUMER_OFFSETS_TOPIC, MAX_PARTITIONS, TRANSACTION_STATE_TOPIC
from txn_engine.log.topic_changes import TopicChange, change_key, decoded_change, encoded_change
from txn_engine.names import NEW_NAME, is_new_name, is_storable, printable
from txn_engine.protocol.cleaning import DELETE_RETENTION_MS
from txn_engine.protocol.log_time import bounded_time
from txn_engine.reasons import Reason
from txn_engine.schemas.changes import Change
from txn_engine.schemas.column_names import first_alike, given_twice, names_unlike
from txn_engine.schemas.evolving import ANOTHER_TOPIC, Rules, evolved
from txn_engine.schemas.layout import Layout, Schemas, original
from txn_engine.schemas.plan import check_known
from txn_engine.schemas.storable import check_time_zones, check_types, fields_inside
from txn_engine.schemas.tombstones import same_tombstones, tombstone_columns
from txn_engine.types import CleanupPolicy
from txn_engine.unreadable import DAMAGE, WHOLE_TOPIC, Unreadable, one_place, raise_if_refused_everywhere

KAFKA_SCHEMA = pa.schema(
    [
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("headers", pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))),
    ]
)
FOOTER_BYTES_MAX = 1 << 20
"""Of an empty data file."""
_KEY_TYPES = (pa.int64(), pa.int32(), pa.string(), pa.large_string(), pa.binary(), pa.large_binary())
TOPIC_FIELDS = (
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
CACHED_MS = 5_000
"""How long a process uses what it has read before it asks the store again."""
_CHANGE_TRIES: Final = 1_000
_NUMBER = re.compile(r"0|[1-9][0-9]{0,8}")


@dataclass(frozen=True, slots=True)
class Topic:
    """One incarnation of a topic.

    `delete_retention_ms`, `min_compaction_lag_ms` and `min_cleanable_dirty_ratio` are Kafka's, and count where the
    topic is compacted; `retention_bytes`, a partition's, and `retention_ms` where old records are dropped.
    `tables_publish`: the formats in which maintenance publishes it. `max_message_bytes`: of a batch's data file.
    `message_timestamp_before_max_ms`, `message_timestamp_after_max_ms`: how far a given time may be from the clock.
    `changes`: how often its owner has changed it.
    `has_field_ids`: all its data files have the ids of its columns; False where it was made by code whose files had
    none, or others.
    `schema`: the columns as reads give them, of the `version` of all `layouts` that there have been; none where the
    columns never changed.
    """

    name: str
    incarnation: int
    partitions: int
    schema: pa.Schema
    key: str | None
    retention_ms: int
    created_ms: int
    cleanup_policy: CleanupPolicy = "delete"
    delete_retention_ms: int = DELETE_RETENTION_MS
    min_compaction_lag_ms: int = 0
    tables_publish: tuple[str, ...] = ()
    retention_bytes: int = -1
    min_cleanable_dirty_ratio: float = 0.5
    max_message_bytes: int = 1 << 30
    message_timestamp_before_max_ms: int = INT64_MAX
    message_timestamp_after_max_ms: int = 3_600_000
    has_field_ids: bool = False
    changes: int = 0
    layouts: tuple[Layout, ...] = ()
    version: int = 0

    @property
    def settings(self) -> dict[str, Value]:
        """What its owner may change, by Kafka's names."""
        held = {name: getattr(self, setting.field) for name, setting in TOPIC.items()}
        return held | {"tables.publish": ",".join(self.tables_publish)}

    def with_settings(self, settings: Mapping[str, Value]) -> Topic:
        """The topic with these, by Kafka's names; those that are not named stay."""
        fields: dict[str, Any] = {TOPIC[name].field: value for name, value in settings.items()}
        if "tables_publish" in fields:
            fields["tables_publish"] = tuple(filter(None, fields["tables_publish"].split(",")))
        return replace(self, **fields)

    @property
    def held(self) -> Topic:
        """The topic with the types that its values are held under: for all that compares, merges or erases records."""
        held = self.schemas.held
        return replace(self, schema=held.arrow, layouts=held.layouts if self.layouts else ())

    @property
    def schemas(self) -> Schemas:
        """Every version of its schema, and the one that is asked for: the latest, unless `at_version` chose another."""
        return Schemas(self.layouts, self.version) if self.layouts else Schemas.of(self.schema)

    def at_version(self, version: int) -> Topic:
        """The topic with the columns that it had then. Raises `InvalidRequestError` where there is no such version."""
        layouts = self.schemas.layouts
        if type(version) is not int or not 0 <= version < len(layouts):
            raise InvalidRequestError(
                f"version {version!r:.40} of the schema of topic {self.name!r}",
                expected=f"0 to {len(layouts) - 1}",
                reason=Reason.UNKNOWN_SCHEMA_VERSION,
            )
        return replace(self, schema=layouts[version].arrow, version=version)

    def with_layouts(self, layouts: tuple[Layout, ...]) -> Topic:
        """The topic with these versions of its schema, the last of which counts."""
        return replace(self, schema=layouts[-1].arrow, layouts=layouts, version=len(layouts) - 1)

    @property
    def is_compacted(self) -> bool:
        """Whether of each key only the latest record is kept."""
        return "compact" in self.cleanup_policy

    @property
    def trims_after_ms(self) -> int | None:
        """After how long records are dropped whatever their keys; None: never."""
        if self.retention_ms < 0 or "delete" not in self.cleanup_policy:
            return None
        return self.retention_ms

    @property
    def trims_above_bytes(self) -> int | None:
        """Above how many bytes of a partition its oldest records are dropped; None: never."""
        if self.retention_bytes < 0 or "delete" not in self.cleanup_policy:
            return None
        return self.retention_bytes

    @property
    def tombstone_columns(self) -> tuple[str, ...]:
        """The columns that are null in a tombstone, all of them; none where the topic can have no tombstones."""
        return tombstone_columns(self.schemas.layout, self.key)

    def check_settings(self) -> None:
        """Raise `InvalidConfigError` where the settings do not go with the columns."""
        if not self.is_compacted:
            return
        actor = f"topic {self.name!r}"
        if self.key is None:
            raise InvalidConfigError(
                "cleanup.policy compact and no key column",
                actor=actor,
                expected="a key column",
                reason=Reason.NO_KEY_COLUMN,
            )
        if self.schema.field(self.key).nullable:
            raise InvalidConfigError(
                f"cleanup.policy compact and a key column {self.key!r} that may be null",
                actor=actor,
                expected="a key in every record: one without may be there",
                action="make another topic with this policy and copy the records",
                reason=Reason.NULLABLE_KEY,
            )

    def prefix(self, partition: int) -> str:
        """The folder of one partition."""
        return partition_prefix(self.name, self.incarnation, partition)

    def check_partition(self, partition: int) -> None:
        """Raise unless the topic has this partition."""
        check_whole_numbers(f"topic {self.name!r}", partition=partition)
        if not 0 <= partition < self.partitions:
            raise UnknownTopicOrPartitionError(
                f"partition {partition} of topic {self.name!r}", expected=f"0 to {self.partitions - 1}"
            )


class _Latest(NamedTuple):
    """The highest incarnation of a topic (-1: none), the topic unless that is a tombstone, how often it has grown, and
    whether older programs are kept out.
    """

    incarnation: int
    topic: Topic | None
    growths: int = 0
    is_gated: bool = False


@dataclass(frozen=True, slots=True)
class Survey:
    """What is below `topics/`: the topics, those whose own objects cannot be read, and folders that are no topic's."""

    topics: tuple[Topic, ...]
    unreadable: tuple[Unreadable, ...]
    foreign: tuple[str, ...]

    @property
    def names(self) -> list[str]:
        """All topics that there are, those that cannot be read too, sorted."""
        return sorted([topic.name for topic in self.topics] + [each.topic for each in self.unreadable])


def partition_prefix(topic: str, incarnation: int, partition: int) -> str:
    """The folder that holds a partition's log, data and snapshots."""
    return f"topics/{topic}/{incarnation}/{partition}"


def topic_key(name: str, incarnation: int) -> str:
    """The object that says what an incarnation is, or that it is a tombstone of the one before."""
    return f"topics/{name}/{incarnation}.json"


class TopicRegistry:
    """The topics of a store. What it knows of a topic is looked up again after five seconds."""

    def __init__(
        self,
        objects: Objects,
        clock: Clock,
        new_id: IdSource,
        readers: Executor,
        cache_clock: Clock = monotonic_ms,
    ) -> None:
        self._objects = objects
        self._readers = readers
        self._clock = clock
        self._new_id = new_id
        self._cache_clock = cache_clock
        self._lock = OwnLock()
        self._known: dict[str, tuple[int, Topic]] = {}

    def get(self, name: str) -> Topic:
        """The topic as it is now, give or take five seconds. Raises `UnknownTopicOrPartitionError`."""
        return self._seen_lately(name) or self.look_up(name)

    def _seen_lately(self, name: str) -> Topic | None:
        with self._lock.here():
            known = self._known.get(name)
        if known is not None and self._cache_clock() - known[0] < CACHED_MS:
            return known[1]
        return None

    def having(self, name: str, partition: int) -> Topic:
        """The topic, known to have this partition: one that it seems to lack is looked for afresh."""
        topic = self.get(name)
        if partition >= topic.partitions:
            topic = self.look_up(name)
        topic.check_partition(partition)
        return topic

    def as_of_now(self, name: str, partition: int) -> Topic:
        """The topic as the store has it now, known to have this partition: one look at the store if nothing changed."""
        topic = self._seen_lately(name)
        if topic is None or partition >= topic.partitions or not self.is_current(name, topic.incarnation):
            topic = self.look_up(name)
        topic.check_partition(partition)
        return topic

    def look_up(self, name: str) -> Topic:
        """The topic as the store has it now. Raises `UnknownTopicOrPartitionError`."""
        return self._look_up(name)[0]

    def _look_up(self, name: str) -> tuple[Topic, _Latest]:
        """The topic as the store has it now, and what else there is to know of it."""
        _check_name(name)
        asked_ms = self._cache_clock()
        latest = self._latest(name)
        topic = latest.topic
        with self._lock.here():
            if topic is None:
                self._known.pop(name, None)
            else:
                self._known[name] = (asked_ms, topic)
        if topic is None:
            self._objects.check_identity_now()
            was_deleted = latest.incarnation >= 0
            raise UnknownTopicOrPartitionError(
                f"topic {name!r} {'was deleted' if was_deleted else 'does not exist'}",
                place=self._objects.store.url,
                reason=Reason.TOPIC_DELETED if was_deleted else None,
            )
        return topic, latest

    def incarnation(self, name: str, incarnation: int) -> Topic | None:
        """That incarnation as its own object says, with as many partitions as it was made with, also where it was
        deleted since; None for a tombstone. Raises `CorruptObjectError` where there is no such object.
        """
        key = topic_key(name, incarnation)
        data = self._find(key)
        if data is None:
            raise _lost(key, f"something that names incarnation {incarnation}")
        return _decode(data, key, name, incarnation)

    def deleted(self, name: str) -> list[Topic]:
        """The incarnations that were deleted, oldest first, each as its own object says. None of a topic that never was
        one.
        """
        found: list[Topic] = []
        topic: Topic | None = None
        number = 0
        while (data := self._find(key := topic_key(name, number))) is not None:
            before, topic = topic, _decode(data, key, name, number)
            if topic is None and before is not None:
                found.append(before)
            number += 1
        return found

    def as_left(self, created: Topic) -> Topic:
        """What an incarnation has become since, or until it was deleted, by what is left of it. Raises
        `CorruptObjectError` where only some of that is.
        """
        ahead = ReadAhead(self._find, self._readers)
        return self._changed(self._grown(created, ahead)[0], ahead, None)

    def is_current(self, name: str, incarnation: int) -> bool:
        """Whether this incarnation is still the topic of its name, as of now: one look at the store."""
        if self._find(topic_key(name, incarnation + 1)) is None:
            return True
        with self._lock.here():
            self._known.pop(name, None)
        return False

    def check_current(self, topic: Topic) -> None:
        """Raise `UnknownTopicOrPartitionError` where it was deleted since it was looked up."""
        if not self.is_current(topic.name, topic.incarnation):
            raise UnknownTopicOrPartitionError(
                f"topic {topic.name!r} was deleted since (its incarnation {topic.incarnation})",
                place=self._objects.store.url,
                reason=Reason.TOPIC_DELETED,
            )

    def has_new_columns(self, topic: Topic) -> bool:
        """Whether its columns were changed since it was looked up, as of now: one look at the store if nothing was."""
        if self._find(change_key(topic.name, topic.incarnation, topic.changes)) is None:
            return False
        return self.look_up(topic.name).layouts != topic.layouts

    def exists(self, name: str, incarnation: int) -> bool:
        """Whether this very incarnation, which something on the store names, is in use; False once it was deleted.

        Raises `CorruptObjectError` where no object says so: one that was there once never goes.
        """
        if name in (TRANSACTION_STATE_TOPIC, CONSUMER_OFFSETS_TOPIC):
            return incarnation == 0
        latest = self._latest(name)
        if latest.incarnation < incarnation:
            raise _lost(
                topic_key(name, latest.incarnation + 1), f"something that names incarnation {incarnation}"
            )
        return latest.topic is not None and latest.incarnation == incarnation

    def create(
        self,
        name: str,
        *,
        partitions: int,
        schema: pa.Schema | None,
        key: str | None,
        settings: Mapping[str, object],
    ) -> Topic:
        """Make the topic; exactly one of several callers does. `settings`: by Kafka's names.

        Raises `TopicExistsError`, `InvalidConfigError`.
        """
        _check_name(name)
        schema, key = checked_schema(name, schema, key)
        _refuse_unreadable(name, schema)
        _refuse_fields_alike(name, schema)
        check_time_zones(schema, f"topic {name!r}")
        _refuse_too_wide(name, original(schema))
        refuse_what_does_not_come_back(name, schema)
        chosen = {
            each: parsed(TOPIC[each], value, actor=f"topic {name!r}") for each, value in settings.items()
        }
        _check_count(name, partitions, 1)
        latest = self._latest(name)
        topic = Topic(
            name,
            latest.incarnation + 1,
            partitions,
            schema,
            key,
            -1,
            self._clock(),
            has_field_ids=True,
        ).with_settings(chosen)
        if topic.is_compacted:
            topic = replace(topic, schema=_with_key_in_every_record(name, schema, key))
        if latest.topic is not None:
            raise _exists(latest.topic, topic)
        object_key, write_id = topic_key(name, topic.incarnation), self._new_id()
        data = _encode(topic, write_id, deleted=False)
        with _read_back(name):
            read = _decode(data, object_key, name, topic.incarnation)
            same = read and _encode(replace(read, created_ms=topic.created_ms), write_id, deleted=False)
        _check_same(name, same == data)
        if not self._create(object_key, data).won:
            raise _exists(self._latest(name).topic, topic)
        return topic

    def add_partitions(self, name: str, total_partitions: int, *, dry_run: bool = False) -> Topic:
        """Let the topic have so many partitions, all told (`Admin.createPartitions`). `dry_run`: the same refusals and
        the same answer, and nothing is written.

        Put-if-absent, one growth after the other: of several callers each that succeeds has made the topic larger.
        Raises `InvalidPartitionsError` unless the number is above the present one.
        """
        while True:  # at most MAX_PARTITIONS times: each race that is lost has made the topic larger
            topic, latest = self._look_up(name)
            _check_count(name, total_partitions, topic.partitions + 1)
            if dry_run:
                return replace(topic, partitions=total_partitions)
            if not self._put_growth(topic, latest.growths, Growth(total_partitions, is_gate=False)):
                continue
            if not self.is_current(name, topic.incarnation):
                raise UnknownTopicOrPartitionError(
                    f"topic {name!r} was deleted by somebody else just now", reason=Reason.TOPIC_DELETED
                )
            return self.look_up(name)

    def _put_growth(self, topic: Topic, number: int, growth: Growth) -> bool:
        """Whether it is this one that stands there."""
        key = growth_key(topic.name, topic.incarnation, number)
        data = encoded_growth(growth, topic.name, topic.incarnation, self._clock(), self._new_id())
        return self._create(key, data).won

    def change(
        self, name: str, alter: Callable[[Topic], Topic], *, dry_run: bool = False
    ) -> tuple[Topic, Topic]:
        """Let the topic have what `alter` makes of it as it is; the topic before and after. `dry_run`: the same
        refusals, and nothing is written.

        Put-if-absent, one change after the other, each judged by all that there is: who loses the race has `alter`
        judge again what is there now. What `alter` raises is raised, and nothing was written then. Nothing is written
        either where it changes nothing, so that a call whose outcome was unknown may be made again.
        """
        for _ in range(_CHANGE_TRIES):
            topic, latest = self._look_up(name)
            wanted = alter(topic)
            if wanted == topic:
                return topic, topic
            schema = encoded_schema(topic.schemas.layouts, wanted.layouts) if wanted.layouts else None
            change = TopicChange(topic.changes, self._clock(), wanted.settings, schema)
            key = change_key(name, topic.incarnation, topic.changes)
            # before anything is put, since it refuses what is too large
            data = encoded_change(change, name, topic.incarnation, self._new_id())
            with _read_back(name):
                read = decoded_change(data, key, name, topic.incarnation, topic.changes)
                after = layouts_after(topic.schemas.layouts, [(key, read.schema)])
                same = encoded_schema(topic.schemas.layouts, after) if wanted.layouts else None
            _check_same(name, (read.settings, same) == (change.settings, schema))
            if dry_run:
                return topic, wanted
            if wanted.layouts and not latest.is_gated:
                gate = Growth(topic.partitions, is_gate=True)
                if not self._put_growth(topic, latest.growths, gate):
                    continue
            if not self._create(key, data).won:
                continue
            if not self.is_current(name, topic.incarnation):
                raise UnknownTopicOrPartitionError(
                    f"topic {name!r} was deleted by somebody else just now", reason=Reason.TOPIC_DELETED
                )
            return topic, self.look_up(name)
        raise RequestTimedOutError(
            f"{_CHANGE_TRIES} other changes came first", actor=f"topic {name!r}", expected="its turn"
        )

    def _changed(self, created: Topic, ahead: ReadAhead, seen: Topic | None) -> Topic:
        """The topic, which is as its own object says, as its changes say; `seen`: as it was when last looked up."""
        key_of = partial(change_key, created.name, created.incarnation)
        known = 0 if seen is None else seen.changes
        changes, found = last_of(ahead, key_of, known=known, is_near=self._objects.is_near)
        if not found:
            return created
        key = key_of(changes - 1)
        change = decoded_change(found[-1], key, created.name, created.incarnation, changes - 1)
        changed = replace(created.with_settings(change.settings), changes=changes)
        layouts = _layouts(created, seen, [*enumerate(found, changes - len(found))])
        if len(layouts) > 1:
            changed = changed.with_layouts(layouts)
        try:
            changed.check_settings()
        except InvalidConfigError as error:
            raise CorruptObjectError(error.seen, place=key, expected=error.expected) from error
        return changed

    def after_changes(self, topic: Topic, changes: int) -> Topic:
        """The topic with the columns that it had when its owner had changed it so often, as a cut has counted.

        Raises `CorruptObjectError` where there is no such change; `SchemaChangedError` where the topic was looked up
        before it.
        """
        if changes == 0:
            return topic.at_version(0)
        key = change_key(topic.name, topic.incarnation, changes - 1)
        data = self._find(key)
        if data is None:
            raise CorruptObjectError(
                f"no such object, and a cut that counts {changes} changes",
                place=key,
                expected="the change that it counts last",
                reason=Reason.OBJECT_GONE,
            )
        change = decoded_change(data, key, topic.name, topic.incarnation, changes - 1)
        version = said_version(change.schema, key)
        check_known(topic.schemas, version, topic=topic.name)
        return topic.at_version(version)

    def check_tombstones(self, topic: Topic) -> None:
        """Raise `InvalidConfigError` where a record would be a tombstone, or be none any more, that was judged by other
        columns while the topic was compacted. Looks at all of its changes.
        """
        if topic.version == 0:
            return
        layouts, now = topic.schemas.layouts, topic.schemas.layout
        for version in sorted(self._compacted_versions(topic)):
            if not same_tombstones(layouts[version], now, topic.key):
                raise InvalidConfigError(
                    f"cleanup.policy {topic.cleanup_policy}, as it was when the columns were those of version "
                    f"{version}: by those of now other records would be tombstones",
                    actor=f"topic {topic.name!r}",
                    expected="columns that keep what is one",
                    action=ANOTHER_TOPIC,
                    reason=Reason.TOMBSTONES_WOULD_CHANGE,
                )

    def _compacted_versions(self, topic: Topic) -> set[int]:
        """The versions of the schema that the topic has had while it was compacted."""
        created = self.incarnation(topic.name, topic.incarnation)
        found = {0} if created is not None and created.is_compacted else set()
        keys = [change_key(topic.name, topic.incarnation, number) for number in range(topic.changes)]
        for number, (key, data) in enumerate(zip(keys, self._readers.map(self._find, keys), strict=True)):
            if data is None:
                raise _lost(key, "a later change")
            change = decoded_change(data, key, topic.name, topic.incarnation, number)
            if created is not None and created.with_settings(change.settings).is_compacted:
                found.add(said_version(change.schema, key))
        return found

    def _grown(self, created: Topic, ahead: ReadAhead) -> tuple[Topic, int, bool]:
        """The topic, which is as its own object says, with the partitions it has by now; how often it has grown, and
        whether older programs are kept out.
        """
        growths, partitions, is_gated = 0, created.partitions, False
        while (data := ahead.find(key := growth_key(created.name, created.incarnation, growths))) is not None:
            partitions, is_gate = decoded_growth(data, key, partitions)
            growths, is_gated = growths + 1, is_gated or is_gate
        return replace(created, partitions=partitions), growths, is_gated

    def delete(self, name: str) -> Topic:
        """Put a tombstone as the next incarnation; the objects stay until the clean-up. Returns what was deleted."""
        topic = self.look_up(name)
        tombstone = replace(topic, incarnation=topic.incarnation + 1, created_ms=self._clock())
        outcome = self._create(
            topic_key(name, tombstone.incarnation), _encode(tombstone, self._new_id(), deleted=True)
        )
        with self._lock.here():
            self._known.pop(name, None)
        if not outcome.won:
            raise UnknownTopicOrPartitionError(
                f"topic {name!r} was deleted by somebody else just now", reason=Reason.TOPIC_DELETED
            )
        return topic

    def is_unknown(self, name: str) -> bool:
        """Whether no topic ever had this name, as far as the topics' own objects say."""
        return is_topic_name(name) and self._find(topic_key(name, 0)) is None

    def bury(self, name: str, incarnation: int) -> None:
        """Put a tombstone for each incarnation of a topic that was lost, up to this one, and as the next: from then on
        it is a topic that was deleted.
        """
        _check_name(name)
        schema, key = checked_schema(name, None, None)
        for number in range(incarnation + 2):
            tombstone = Topic(name, number, 1, schema, key, -1, self._clock(), has_field_ids=True)
            self._create(topic_key(name, number), _encode(tombstone, self._new_id(), deleted=True))

    def survey(self, workers: Executor | None = None) -> Survey:
        """Look at all topics, without the internal ones, each by itself: one that is damaged hides no other. Several at
        once with `workers`.

        Raises where the store does not answer, refuses to list them, or refuses every one of them.
        """
        survey = self.survey_each(workers)
        raise_if_refused_everywhere(survey.unreadable, found_any=bool(survey.topics))
        return survey

    def survey_each(self, workers: Executor | None = None) -> Survey:
        """As `survey`, for who looks elsewhere too: that every topic is refused is no error yet."""
        topics: list[Topic] = []
        unreadable: list[Unreadable] = []
        internal = (TRANSACTION_STATE_TOPIC, CONSUMER_OFFSETS_TOPIC)
        folders = [name for name in self._objects.folders("topics") if name not in internal]
        foreign = [name for name in folders if not is_topic_name(name)]
        names = [name for name in folders if is_topic_name(name)]
        each = map if workers is None else workers.map
        for name, found in zip(names, each(self._latest_or_damage, names), strict=True):
            if isinstance(found, Unreadable):
                unreadable.append(found)
            elif found.topic is not None:
                topics.append(found.topic)
            elif found.incarnation < 0:
                foreign.append(name)
        return Survey(tuple(sorted(topics, key=lambda topic: topic.name)), tuple(unreadable), tuple(foreign))

    def _latest_or_damage(self, name: str) -> _Latest | Unreadable:
        try:
            with one_place(name):
                return self._latest(name)
        except DAMAGE as error:
            return Unreadable(name, WHOLE_TOPIC, error)

    def _has_log(self, name: str) -> bool:
        """Whether a folder that no topic object speaks for holds a partition's log all the same."""
        folder = f"topics/{name}"
        return any(
            "log" in self._objects.folders(f"{folder}/{incarnation}/{partition}")
            for incarnation in filter(_NUMBER.fullmatch, self._objects.folders(folder))
            for partition in filter(_NUMBER.fullmatch, self._objects.folders(f"{folder}/{incarnation}"))
        )

    def _find(self, key: str) -> bytes | None:
        return self._objects.find(key, max_bytes=JSON_BYTES_MAX)

    def _create(self, key: str, data: bytes) -> PutOutcome:
        outcome = self._objects.create(key, data, max_bytes=JSON_BYTES_MAX)
        self._objects.confirm()
        return outcome

    def _latest(self, name: str) -> _Latest:
        """The highest incarnation.

        Raises `CorruptObjectError` where a log is there and no object: one made anew would take that log for its own.
        """
        ahead = ReadAhead(self._find, self._readers)
        with self._lock.here():
            known = self._known.get(name)
        seen = None if known is None else known[1]
        self._expect(ahead, name, 0, seen)
        incarnation, topic = -1, None
        while (data := ahead.find(key := topic_key(name, incarnation + 1))) is not None:
            incarnation += 1
            topic = _decode(data, key, name, incarnation)
            if topic is None:
                self._expect(ahead, name, incarnation + 1, seen)
        if incarnation < 0 and self._has_log(name):
            if self._objects.exists(key):  # made just now
                return self._latest(name)
            self._objects.check_identity_now()
            raise _lost(key, "a log of the topic")
        if topic is None:
            return _Latest(incarnation, None)
        grown, growths, is_gated = self._grown(topic, ahead)
        changed = self._changed(grown, ahead, _seen_of(seen, incarnation))
        return _Latest(incarnation, changed, growths, is_gated)

    def _expect(self, ahead: ReadAhead, name: str, incarnation: int, seen: Topic | None) -> None:
        """What there is of a topic that is there, has not grown, was not changed since it was seen and was not deleted:
        asked for in one round.
        """
        if not self._objects.is_near:
            first = growth_key(name, incarnation, 0)
            ahead.expect(topic_key(name, incarnation), topic_key(name, incarnation + 1), first)
            of_this = _seen_of(seen, incarnation)
            known = 0 if of_this is None else of_this.changes
            expect_from(ahead, partial(change_key, name, incarnation), known)


@contextmanager
def _read_back(name: str) -> Iterator[None]:
    """What is to be written is read first: an object that nobody can read cannot even be deleted."""
    try:
        yield
    except CorruptObjectError as error:
        raise InvalidRecordError(
            f"what could not be read again: {error.seen}",
            actor=f"topic {name!r}",
            expected=error.expected,
            reason=Reason.UNSTORABLE_TYPE,
        ) from error


def _check_same(name: str, is_same: bool) -> None:
    if not is_same:
        raise InvalidRecordError(
            "columns or settings that come back as others",
            actor=f"topic {name!r}",
            expected="types that Arrow keeps",
            reason=Reason.TYPE_NOT_KEPT,
        )


def evolved_topic(topic: Topic, changes: Sequence[Change]) -> Topic:
    """The topic with its columns changed.

    Raises `InvalidRequestError` for what cannot be, `InvalidRecordError` for more columns than a data file can hold.
    """
    layouts = topic.schemas.layouts
    layout = evolved(layouts[-1], changes, Rules(topic.name, topic.key, topic.is_compacted))
    _refuse_too_wide(topic.name, layout)
    return topic.with_layouts((*layouts, layout))


def _seen_of(seen: Topic | None, incarnation: int) -> Topic | None:
    return seen if seen is not None and seen.incarnation == incarnation else None


def _layouts(created: Topic, seen: Topic | None, changes: Sequence[tuple[int, bytes]]) -> tuple[Layout, ...]:
    """All versions of the schema, by these changes, each with its number: back to the last that says all of them, or
    that was seen.
    """
    known, since = created.schemas.layouts, []
    for number, data in reversed(changes):
        if seen is not None and number < seen.changes:
            known = seen.schemas.layouts
            break
        key = change_key(created.name, created.incarnation, number)
        since.append((key, decoded_change(data, key, created.name, created.incarnation, number).schema))
        if says_all(since[-1][1]):
            break
    return layouts_after(known, since[::-1])


def _check_count(name: str, partitions: object, least: int) -> None:
    if type(partitions) is not int or not least <= partitions <= MAX_PARTITIONS:
        raise InvalidPartitionsError(
            f"{partitions!r:.80} partitions", actor=f"topic {name!r}", expected=f"{least} to {MAX_PARTITIONS}"
        )


def _exists(found: Topic | None, asked: Topic) -> TopicExistsError:
    """The refusal of a topic whose name is taken. It says whether the one that exists is what was asked for."""
    different = ["it was deleted meanwhile"] if found is None else _differences(found, asked)
    if different:
        return TopicExistsError(
            f"topic {asked.name!r} exists, and is not what was asked for: {'; '.join(different)}",
            action="use it as it is, change it, or choose another name",
            reason=Reason.TOPIC_DIFFERS,
        )
    return TopicExistsError(
        f"topic {asked.name!r} exists, with the columns, key, partitions and settings that were asked for",
        action="use it",
        reason=Reason.TOPIC_IS_THE_SAME,
    )


def _differences(found: Topic, asked: Topic) -> list[str]:
    """How a topic that exists differs from the one that was asked for."""
    different = []
    if not found.schema.equals(asked.schema):
        different.append("it has other columns")
    if found.key != asked.key:
        different.append(f"its key is {found.key!r} instead of {asked.key!r}")
    if found.partitions != asked.partitions:
        different.append(f"its number of partitions is {found.partitions} instead of {asked.partitions}")
    wanted = asked.settings
    different += [
        f"{name} is {value!r} instead of {wanted[name]!r}"
        for name, value in found.settings.items()
        if value != wanted[name]
    ]
    return different


def _lost(key: str, witness: str) -> CorruptObjectError:
    return CorruptObjectError(
        f"no such object, and {witness}", place=key, expected="an object that says what the topic is"
    )


def is_topic_name(name: str) -> bool:
    """Whether a topic can have this name: what is below `topics/` under another one is not ours."""
    try:
        _check_name(name)
    except InvalidTopicError:
        return False
    return True


def _check_name(name: object) -> None:
    if not isinstance(name, str):
        raise InvalidTopicError(f"topic name {name!r:.80}", expected="a text")
    if not name:
        raise InvalidTopicError(
            "the topic's name is empty", expected="1 to 249 of letters, digits, '.', '_' and '-'"
        )
    if name.startswith("__"):
        raise InvalidTopicError(
            f"topic name {name!r}", expected="a name that does not begin with two underscores"
        )
    try:
        validate_name(name)
    except InvalidKeyError as error:
        raise InvalidTopicError(
            f"topic name {name!r}", expected="1 to 249 of letters, digits, '.', '_' and '-'"
        ) from error


def checked_schema(name: str, schema: pa.Schema | None, key: str | None) -> tuple[pa.Schema, str | None]:
    """The columns and the key column of a topic that is made with these: without a schema it has Kafka's.

    Raises `InvalidRecordError` for what no topic can have.
    """
    if schema is None:
        schema, key = KAFKA_SCHEMA, "key" if key is None else key
    actor = f"topic {name!r}"
    if not isinstance(schema, pa.Schema):
        raise InvalidRecordError(
            f"a schema given as {schema!r:.80}", actor=actor, expected="a pyarrow schema"
        )
    if not len(schema):
        raise InvalidRecordError("a schema without columns", actor=actor, expected="at least one column")
    check_types(schema, actor)
    if not _has_utf8_names(schema):
        raise InvalidRecordError(
            "a column whose name is not UTF-8", actor=actor, expected="names in UTF-8", reason=Reason.NOT_UTF8
        )
    if twice := given_twice(schema.names):
        raise InvalidRecordError(names_unlike([], [], twice), actor=actor, expected="different names")
    reserved = [column for column in schema.names if column.startswith("_") or not column]
    if reserved:
        raise InvalidRecordError(
            f"column {reserved[0]!r}",
            actor=actor,
            expected="names that do not begin with an underscore (those are ours)",
        )
    if key is not None and key not in schema.names:
        raise InvalidRecordError(
            f"key column {key!r}",
            actor=actor,
            expected=f"one of {schema.names}",
            reason=Reason.UNKNOWN_COLUMN,
        )
    if key is not None and held_type(schema.field(key).type) not in _KEY_TYPES:
        raise InvalidRecordError(
            f"key column {key!r} of type {schema.field(key).type}",
            actor=actor,
            expected="int64, int32, string or binary",
            reason=Reason.UNSUPPORTED_KEY_TYPE,
        )
    return schema.remove_metadata(), key


def _refuse_unreadable(name: str, schema: pa.Schema) -> None:
    """Of new topics; old ones are read, and shown escaped."""
    unreadable = [name for name in _all_names(schema) if not is_new_name(name)]
    if unreadable:
        raise InvalidRecordError(
            f"column '{printable(unreadable[0])}'",
            actor=f"topic {name!r}",
            expected=NEW_NAME,
            reason=Reason.UNPRINTABLE_NAME,
        )


def _refuse_fields_alike(name: str, schema: pa.Schema) -> None:
    """Of new topics: readers find the fields of a struct by their names, and SQL and Spark do not tell upper from lower
    case, so that one of two such fields would be read as the other one, or as null.
    """
    for column in schema:
        for fields in _structs_in(column.type):
            alike = first_alike(fields)
            if alike is not None:
                raise InvalidRecordError(
                    f"column {column.name!r:.80} with a struct that has fields {alike[0]!r:.80} and {alike[1]!r:.80}",
                    actor=f"topic {name!r}",
                    expected="field names that differ by more than case",
                    reason=Reason.COLUMN_NAMES_ALIKE,
                )


def _structs_in(kind: Any) -> Iterator[list[str]]:
    """The field names of every struct in the type."""
    fields = fields_inside(kind)
    yield [field.name for field in fields]
    for field in fields:
        yield from _structs_in(field.type)


def _refuse_too_wide(name: str, layout: Layout) -> None:
    """Of new topics and changed ones: the footer of a data file names each column, and readers take footers of some
    MiB.
    """
    try:
        data_file = encode_parquet(no_records(layout.physical), kind="data")
        decode_parquet(data_file, key="")
    except (pa.ArrowException, OSError, StorageError) as error:  # an OSError is Parquet's own
        raise InvalidRecordError(
            f"columns that no data file can hold: {' '.join(str(error).split())[:200]}",
            actor=f"topic {name!r}",
            expected="fewer, or others",
            reason=Reason.TOO_WIDE if isinstance(error, ObjectTooLargeError) else Reason.UNSTORABLE_TYPE,
        ) from error
    if len(data_file) > FOOTER_BYTES_MAX:
        raise InvalidRecordError(
            f"{len(layout.columns)} columns, which make a footer of {len(data_file)} bytes",
            actor=f"topic {name!r}",
            expected=f"at most {FOOTER_BYTES_MAX}: about 10,000 columns with short names",
            reason=Reason.TOO_WIDE,
        )


def refuse_what_does_not_come_back(name: str, schema: pa.Schema) -> None:
    """Of new topics: what Parquet has no name for is stored as its nearest type, and Arrow has to make the one of the
    other again.
    """
    stored = stored_schema(original(schema))
    for field in schema:
        kind = stored.field(field.name).type
        try:
            laid_out(laid_out(nulls(1, kind), held_type(field.type)), field.type)
        except pa.ArrowNotImplementedError:
            raise InvalidRecordError(
                f"column {field.name!r} of type {field.type}",
                actor=f"topic {name!r}",
                expected=f"{kind}, as which it would be stored: Arrow does not make the one of the other",
                reason=Reason.TYPE_NOT_KEPT,
            ) from None


def _has_utf8_names(schema: pa.Schema) -> bool:
    """Whether pyarrow can say the names: it keeps those of a file as they are, and decodes them when it is asked."""
    try:
        return all(is_storable(name) for name in _all_names(schema))
    except UnicodeDecodeError:
        return False


def _all_names(fields: Iterable[pa.Field[Any]]) -> Iterator[str]:
    """The names of the fields and of those inside them."""
    for field in fields:
        yield field.name
        yield from _all_names(fields_inside(field.type))


def _with_key_in_every_record(name: str, schema: pa.Schema, key: str | None) -> pa.Schema:
    """The schema of a compacted topic: a record without a key is refused, as in Kafka."""
    if key is None:
        raise InvalidConfigError(
            "cleanup.policy compact and no key column",
            actor=f"topic {name!r}",
            expected="a key column",
            reason=Reason.NO_KEY_COLUMN,
        )
    index = schema.get_field_index(key)
    return schema.set(index, schema.field(index).with_nullable(False))


def _encode(topic: Topic, write_id: str, *, deleted: bool) -> bytes:
    fields = [{"name": f.name, "type": str(f.type), "nullable": f.nullable} for f in topic.schema]
    return encode_json(
        {
            "topic": topic.name,
            "incarnation": topic.incarnation,
            "partitions": topic.partitions,
            "key": topic.key,
            "schema": fields,
            "arrow_schema": base64.b64encode(topic.schema.serialize().to_pybytes()).decode("ascii"),
            **{TOPIC[name].field: value for name, value in topic.settings.items()},
            "field_ids": topic.has_field_ids,
            "created_ms": topic.created_ms,
            "deleted": deleted,
            "write_id": write_id,
        },
        "topic",
    )


def _decode(data: bytes, key: str, name: str, incarnation: int) -> Topic | None:
    """The topic that the object says, None for a tombstone; `CorruptObjectError` for what `create` cannot have put."""
    values: dict[str, Any] = decode_json(data, key=key, kind="topic", needed=TOPIC_FIELDS)
    seen = (values["topic"], values["incarnation"], type(values["deleted"]))
    if seen != (name, incarnation, bool):
        raise CorruptObjectError(
            f"topic {seen[0]!r:.80}, incarnation {seen[1]!r:.80}, deleted {values['deleted']!r:.80}",
            place=key,
            expected=f"topic {name!r}, incarnation {incarnation}",
        )
    if values["deleted"]:
        return None
    schema, key_column = _decoded_schema(values, key)

    def number(field: str, low: int = 0, high: int = 2**63 - 1) -> int:
        return checked_number(values, field, low, high, key=key)

    return Topic(
        name,
        incarnation,
        number("partitions", 1, MAX_PARTITIONS),
        schema,
        key_column,
        -1,
        bounded_time(number("created_ms", -(2**63))),
        has_field_ids=values.get("field_ids") is True,
    ).with_settings(_decoded_settings(values, key))


def _decoded_settings(values: Mapping[str, Any], key: str) -> dict[str, Value]:
    """What the topic was made with; a setting that there was not yet is as it is without being set."""
    number = checked_number(values, "retention_ms", -(2**63), 2**63 - 1, key=key)
    held = {name: values[setting.field] for name, setting in TOPIC.items() if setting.field in values}
    return decoded_settings(held | {"retention.ms": max(number, -1)}, TOPIC, key)


def _decoded_schema(values: Mapping[str, Any], key: str) -> tuple[pa.Schema, str | None]:
    """The columns and the key column."""
    encoded = checked_text(values, "arrow_schema", key=key)
    try:
        schema = read_schema(base64.b64decode(encoded, validate=True))
        checked, key_column = checked_schema(str(values["topic"]), schema, values["key"])
        stored_schema(original(checked))
    except UNREADABLE as error:
        raise CorruptObjectError(
            f"an arrow_schema that cannot be read: {' '.join(str(error).split())[:120]}",
            place=key,
            expected="base64 of an Arrow IPC schema message",
        ) from error
    except InvalidRecordError as error:
        raise CorruptObjectError(error.seen, place=key, expected=error.expected) from error
    return checked, key_column
