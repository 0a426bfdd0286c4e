"""The Iceberg table of one topic, in the store."""

from __future__ import annotations

from collections.abc import Callable, Container, Sequence
from concurrent.futures import Executor
from typing import TYPE_CHECKING, Any, Final

from txn_engine.clock import Clock
from txn_engine.errors import CorruptObjectError, InvalidRequestError, MissingPackageError
from txn_engine.extras import imports_named
from txn_engine.ids import IdSource
from txn_engine.log.data_files import stored_schema
from txn_engine.log.objects import Objects
from txn_engine.log.store_config import StoreConfig
from txn_engine.log.topic_cut import TopicCut
from txn_engine.log.topics import Topic
from txn_engine.reasons import Reason
from txn_engine.schemas.field_ids import other_field_id
from txn_engine.tables.changes import Step, StepKind
from txn_engine.tables.files import TableFile
from txn_engine.tables.iceberg.keys import (
    hint_key,
    metadata_key,
    metadata_prefix,
    parse_avro_key,
    parse_metadata_key,
    table_folder,
)
from txn_engine.tables.iceberg.metadata import (
    TableName,
    TableState,
    decoded_metadata,
    encoded_metadata,
    encoded_seal,
    first_state,
    next_state,
    withdrawn_state,
)
from txn_engine.tables.versions import last_version
from txn_engine.tables.views import Commit, Published

if TYPE_CHECKING:
    from txn_engine.tables.iceberg.manifests import Manifests

METADATA_BYTES_MAX: Final = 64 << 20
VERSIONS_A_CLEANUP: Final = 50
_HINT_BYTES_MAX: Final = 1 << 10
_NOT_IN_A_URI: Final = "%?#"
_NOTHING: Final = Step(StepKind.APPEND, (), ())
"""A snapshot of its own for columns that changed: a tag gives those of its snapshot, and so do some readers always."""


class IcebergView:
    """Metadata in a folder beside the partitions', which is the table's root, so that who drops the table deletes no
    more than that. Files keep their place, and are named by absolute URIs.
    """

    table_format: Final = "iceberg"
    looks_into_files: Final = True

    def __init__(
        self, objects: Objects, topic: Topic, config: StoreConfig, clock: Clock, new_id: IdSource
    ) -> None:
        self._objects = objects
        self._topic = topic
        files = f"topics/{topic.name}/{topic.incarnation}"
        self._folder = table_folder(topic.name, topic.incarnation)
        self._files = _location(objects.uri(files))
        self._name = TableName(
            config.store_id,
            config.ids,
            config.first_id,
            topic.name,
            topic.incarnation,
            _location(objects.uri(self._folder)),
        )
        self._clock = clock
        self._new_id = new_id
        self._newest: TableState | None = None
        self._hinted = -1

    def check(self) -> None:
        """Raise `InvalidRequestError` for columns that Iceberg has not so, for a store whose address is no URI, and
        where pyiceberg is missing.
        """
        self._manifests(first_state(self._name, self._topic))
        odd = [char for char in _NOT_IN_A_URI if char in self._name.location]
        if odd:
            raise InvalidRequestError(
                f"{odd[0]!r} in the store's address",
                actor=f"publish {self._topic.name!r} as iceberg",
                place=self._name.location,
                expected="an address that is the same as a URI: Iceberg names files by it",
                action="move the store, or publish another format; nothing was written",
                reason=Reason.ADDRESS_IS_NOT_A_URI,
            )

    def uri(self, published: Published) -> str:
        """The version's metadata."""
        return self._objects.uri(metadata_key(self._folder, published.version))

    def elsewhere(self) -> str:
        """Where the store was moved or copied: metadata names files by absolute URIs."""
        base = self._newest
        is_elsewhere = base is not None and base.at is not None and base.location != self._name.location
        return base.location if base is not None and is_elsewhere else ""

    def newest(self) -> Published | None:
        """The newest version, by its number: versions have no gap, since each is put behind one that was read, and none
        goes. It costs a look for each doubling of the way from what the hint says.
        """
        version = self._newest_version()
        if version is None:
            self._newest = None
        elif self._newest is None or self._newest.version != version:  # a version never becomes another
            self._newest = self._read(version)
        return None if self._newest is None else self._newest.published

    def missing(self, published: Published) -> str | None:
        """The first manifest list of a snapshot of the version, or manifest of its newest snapshot, that is gone; or
        the version's successor, where there are later ones.
        """
        newest = self._newest
        if newest is None or newest.version != published.version:
            return None
        versions = (version for _, version in self._objects.ours(self._prefix, self._version_of))
        after = metadata_key(self._folder, newest.version + 1)
        if max(versions, default=0) > newest.version and not self._objects.exists(after):
            return after
        if not newest.snapshots:
            return None
        found = self._objects.ours(self._prefix, lambda key: parse_avro_key(key, self._folder))
        there = {info.key for info, _ in found}
        lists = [snapshot["manifest-list"] for snapshot in newest.snapshots]
        gone = self._gone(lists, newest, there)
        if gone is not None:
            return gone
        try:
            manifests = self._manifests(dict(newest.fields))
        except MissingPackageError:  # the lists of manifests are Avro, which pyiceberg reads
            return None
        return self._gone([each.manifest_path for each in manifests.listed(lists[-1])], newest, there)

    def _gone(self, uris: Sequence[str], newest: TableState, there: Container[str]) -> str | None:
        keys = [f"{self._folder}{uri.removeprefix(newest.location)}" for uri in uris]
        return next((key for key in keys if key not in there and not self._objects.exists(key)), None)

    def batches(self, steps: Sequence[Step]) -> list[tuple[Step, ...]]:
        """All at once: a version may have several snapshots, and those who follow the table see each by itself."""
        return [tuple(steps)] if steps else []

    def misread(self, files: Sequence[TableFile], workers: Executor) -> dict[str, str]:
        """Those that have field ids, and not all of those of the topic's columns: readers go by them, and by names
        where there are none at all. In a topic that was made since files have ids no file is opened.
        """
        if self._topic.has_field_ids:
            return {}
        seen = workers.map(self._other_field_id, files)
        return {file.path: each for file, each in zip(files, seen, strict=True) if each is not None}

    def _other_field_id(self, file: TableFile) -> str | None:
        key = f"topics/{self._topic.name}/{self._topic.incarnation}/{file.path}"
        columns = self._objects.columns(key, file.log_file.file.data_bytes)
        return other_field_id(columns, stored_schema(self._topic.schemas.layout))

    def commit(self, commit: Commit) -> bool:
        """Put the version if absent. Raises `InvalidRequestError` for a table that was published under another
        address.
        """
        base = self._newest
        first = first_state(self._name, self._topic)
        self._check_address(base)
        made = self._snapshots(commit, base, first)
        before = "" if base is None else f"{self._name.location}{self._own(metadata_key, base.version)}"
        fields = next_state(base, first, commit.at, made, self._clock(), before)
        return self._put(fields, commit.version, commit.at)

    def withdraw(self, version: int, paths: Sequence[str]) -> bool:  # noqa: ARG002 - no file is named any more
        """Put a version of a format that no reader has."""
        if self._newest is None:
            return False
        return self._put(withdrawn_state(self._newest, self._clock()), version, None)

    def settle(self, published: Published, files: Callable[[TopicCut], Sequence[TableFile]]) -> None:  # noqa: ARG002
        """The hint, where it is not the newest; now and then, what no version that can be read needs any more."""
        if self._hinted != published.version:
            self._hint(published.version)
        if published.version % VERSIONS_A_CLEANUP == 0 and self._newest is not None:
            self._clean(self._newest)

    def _put(self, fields: dict[str, Any], version: int, at: TopicCut | None) -> bool:
        data = encoded_metadata(fields, self._name, version, at, self._new_id())
        key = metadata_key(self._folder, version)
        won = self._objects.create(key, data, max_bytes=METADATA_BYTES_MAX).won
        self._objects.confirm()
        if won:
            created_ms, sequence = fields["last-updated-ms"], fields["last-sequence-number"]
            self._newest = TableState(version, at, created_ms, sequence, fields)
            self._hint(version)
        return won

    # --- snapshots ------------------------------------------------------------------------------------------

    def _snapshots(
        self, commit: Commit, base: TableState | None, first: dict[str, Any]
    ) -> list[dict[str, Any]]:
        manifests = self._manifests(first)
        from txn_engine.tables.iceberg.snapshots import SnapshotWriter

        last = base.snapshots[-1] if base is not None and base.snapshots else None
        totals = {} if last is None else dict(last["summary"])
        writer = SnapshotWriter(
            manifests,
            commit.version,
            commit.at.number,
            0 if base is None else base.last_sequence,
            None if last is None else last["snapshot-id"],
            [] if last is None else manifests.listed(last["manifest-list"]),
            {name: int(total) for name, total in totals.items() if name.startswith("total-")},
            self._folder,
            self._topic.version,
        )
        steps = commit.steps
        if commit.is_new_schema and not steps and last is not None:
            steps = (_NOTHING,)
        for step in steps:
            writer.write(step)
        return writer.made

    def _manifests(self, first: dict[str, Any]) -> Manifests:
        with imports_named(f"publish {self._topic.name!r} as iceberg"):
            from txn_engine.tables.iceberg.manifests import Manifests
        location, files = self._name.location, self._files
        return Manifests(
            self._objects, self._folder, location, files, first["schemas"][-1], first["partition-specs"][0]
        )

    def _check_address(self, base: TableState | None) -> None:
        if base is not None and (other := self.elsewhere()):
            raise InvalidRequestError(
                f"the store is at {self._name.location}",
                actor=f"publish {self._topic.name!r} as iceberg",
                expected=f"{other}, by which the table names its files",
                action="open the store by that address; where it has moved, unpublish the table, then publish it anew",
                reason=Reason.TABLE_AT_OTHER_ADDRESS,
            )

    # --- which version is the newest --------------------------------------------------------------------------

    def _read(self, version: int) -> TableState:
        key = metadata_key(self._folder, version)
        data = self._objects.find(key, max_bytes=METADATA_BYTES_MAX)
        if data is None:
            raise CorruptObjectError("a version that was there is gone", place=key, expected="versions stay")
        return decoded_metadata(data, key, self._name, version)

    def _newest_version(self) -> int | None:
        self._hinted = self._hint_read()
        for known in dict.fromkeys((max(self._hinted, 0), 0)):
            if self._is_there(known):
                return last_version(known, self._is_there)
        return self._listed()

    def _is_there(self, version: int) -> bool:
        return self._objects.exists(metadata_key(self._folder, version))

    def _listed(self) -> int | None:
        """Where the first version is gone: ours never go, so somebody has cleaned up here."""
        found = [version for _, version in self._objects.ours(self._prefix, self._version_of)]
        if not found:
            return None
        raise CorruptObjectError(
            f"versions from {min(found) + 1} on, and none before",
            place=self._prefix,
            expected="versions from 1 on",
            action="somebody deleted what the table needs: restore it, or move the folder away and publish again",
            reason=Reason.FIRST_VERSIONS_GONE,
        )

    def _hint_read(self) -> int:
        """The version that the hint names, -1 for none; never believed."""
        try:
            data = self._objects.find(hint_key(self._folder), max_bytes=_HINT_BYTES_MAX)
        except CorruptObjectError:
            return -1
        text = (data or b"").strip()
        return int(text) - 1 if text.isdigit() and len(text) < 19 else -1

    def _hint(self, version: int) -> None:
        self._objects.overwrite(hint_key(self._folder), str(version + 1).encode())
        self._hinted = version

    # --- what nobody needs any more ---------------------------------------------------------------------------

    def _clean(self, newest: TableState) -> None:
        """Seal versions that nobody need be able to read any more, and delete Avro objects that none of the others
        names: of those made for a version that is decided, by now.
        """
        named = self._named(newest)
        since = newest.version - len(newest.fields["metadata-log"])
        for info, version in list(self._objects.ours(self._prefix, self._version_of)):
            seal = encoded_seal(version)
            if version < since and info.size != len(seal):
                self._objects.overwrite(info.key, seal)
        for info, name in list(
            self._objects.ours(self._prefix, lambda key: parse_avro_key(key, self._folder))
        ):
            if name.version <= newest.version and info.key not in named:
                self._objects.remove(info.key)

    def _named(self, newest: TableState) -> set[str]:
        """The keys of all manifests, and lists of them, that the newest version names."""
        manifests = self._manifests(first_state(self._name, self._topic))
        uris = {snapshot["manifest-list"] for snapshot in newest.snapshots}
        for uri in list(uris):
            uris.update(manifest.manifest_path for manifest in manifests.listed(uri))
        return {f"{self._folder}{uri.removeprefix(newest.location)}" for uri in uris}

    @property
    def _prefix(self) -> str:
        return metadata_prefix(self._folder)

    def _version_of(self, key: str) -> int:
        return parse_metadata_key(key, self._folder)

    def _own(self, key_of: Callable[[str, int], str], version: int) -> str:
        return key_of(self._folder, version).removeprefix(self._folder)


def _location(uri: str) -> str:
    """A folder of the disk by its URI; in a store of objects it is one."""
    return uri if "://" in uri else f"file://{uri}"
