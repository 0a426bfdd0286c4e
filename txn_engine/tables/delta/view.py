"""The Delta table of one topic, in the store."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from contextlib import suppress
from typing import Final

from txn_engine.clock import Clock
from txn_engine.errors import CorruptObjectError
from txn_engine.ids import IdSource
from txn_engine.log.objects import Objects
from txn_engine.log.store_config import StoreConfig
from txn_engine.log.topic_cut import TopicCut
from txn_engine.log.topics import Topic
from txn_engine.reasons import Reason
from txn_engine.tables.changes import Step, StepKind
from txn_engine.tables.delta.checkpoint import decoded_hint, encoded_checkpoint, encoded_hint
from txn_engine.tables.delta.commits import TableName, decoded_commit, encoded_commit, encoded_withdrawal
from txn_engine.tables.delta.keys import checkpoint_key, commit_key, hint_key, log_prefix, parse_commit_key
from txn_engine.tables.delta.schema import delta_schema
from txn_engine.tables.files import TableFile
from txn_engine.tables.versions import last_version
from txn_engine.tables.views import Commit, Published

COMMITS_A_CHECKPOINT: Final = 100
COMMIT_BYTES_MAX: Final = 1 << 30
_HINT_BYTES_MAX: Final = 1 << 20


class DeltaView:
    """Commits in `_delta_log/` of the incarnation's folder. Files keep their place, and their paths are relative."""

    table_format: Final = "delta"
    looks_into_files: Final = False

    def __init__(
        self, objects: Objects, topic: Topic, config: StoreConfig, clock: Clock, new_id: IdSource
    ) -> None:
        self._objects = objects
        self._topic = topic
        self._name = TableName(config.store_id, config.ids, config.first_id, topic.name, topic.incarnation)
        self._folder = self._name.folder
        self._clock = clock
        self._new_id = new_id
        self._last_checkpoint: int | None = None

    def check(self) -> None:
        """Raise `InvalidRequestError` for a column of a type that Delta has not, or that its readers would not find."""
        delta_schema(self._topic)

    def uri(self, published: Published | None = None) -> str:  # noqa: ARG002 - all versions have one root
        """The table's root."""
        return self._objects.uri(self._folder)

    def elsewhere(self) -> str:
        """Paths are relative to the table's root, wherever that is."""
        return ""

    def newest(self) -> Published | None:
        """The newest version, by its number: versions have no gap, since each is put behind one that was read. It costs
        a look for each doubling of the way from the last checkpoint.
        """
        version = self._newest_version()
        if version is None:
            return None
        key = commit_key(self._folder, version)
        data = self._objects.find(key, max_bytes=COMMIT_BYTES_MAX)
        if data is None:
            raise CorruptObjectError("a commit that was there is gone", place=key, expected="commits stay")
        return decoded_commit(data, key, self._name, version)

    def missing(self, published: Published) -> str | None:
        """The first commit that is gone: readers begin at the newest checkpoint that they find, or at commit 0."""
        prefix = log_prefix(self._folder)
        found = self._objects.ours(prefix, lambda key: parse_commit_key(key, self._folder))
        there = {version for _, version in found}
        newest = max(
            (published.version, *there)
        )  # above it where the search for the newest ended before a gap
        gone = next((each for each in range(newest + 1) if each not in there), None)
        return None if gone is None or self._is_there(gone) else commit_key(self._folder, gone)

    def batches(self, steps: Sequence[Step]) -> list[tuple[Step, ...]]:
        """New records are shown by themselves, or beside merges of other files: a stream skips what changes old ones,
        and all that stands beside it.
        """
        if not steps or steps[0].kind is not StepKind.APPEND:
            return [tuple(steps)] if steps else []
        first, rest = list(steps[:1]), list(steps[1:])
        new = {file.path for file in steps[0].added}
        if rest and rest[0].kind is StepKind.REPLACE and new.isdisjoint(rest[0].removed):
            first.append(rest.pop(0))
        return [tuple(first), tuple(rest)] if rest else [tuple(first)]

    def misread(self, files: Sequence[TableFile], workers: Executor) -> dict[str, str]:  # noqa: ARG002
        """None: readers go by names."""
        return {}

    def commit(self, commit: Commit) -> bool:
        """Put the version if absent."""
        data = encoded_commit(self._name, self._topic, commit, self._clock(), self._new_id())
        return self._put(commit.version, data)

    def withdraw(self, version: int, paths: Sequence[str]) -> bool:
        """Put a version that needs a reader's feature that none has."""
        return self._put(
            version, encoded_withdrawal(self._name, version, paths, self._clock(), self._new_id())
        )

    def settle(self, published: Published, files: Callable[[TopicCut], Sequence[TableFile]]) -> None:
        """A checkpoint, where the last one is a hundred versions away. One that stands there already is as good."""
        due = (self._last_checkpoint or 0) + COMMITS_A_CHECKPOINT
        if published.at is None or published.version < due:
            return
        every = files(published.at)
        data = encoded_checkpoint(self._name, self._topic, published.at, every, self._clock())
        self._objects.create(
            checkpoint_key(self._folder, published.version), data, max_bytes=COMMIT_BYTES_MAX
        )
        rows = 2 + len(every) + len(published.at.partitions)
        self._objects.overwrite(hint_key(self._folder), encoded_hint(published.version, rows))
        self._last_checkpoint = published.version

    def _put(self, version: int, data: bytes) -> bool:
        key = commit_key(self._folder, version)
        won = self._objects.create(key, data, max_bytes=COMMIT_BYTES_MAX).won
        self._objects.confirm()
        return won

    # --- which version is the newest ------------------------------------------------------------------------

    def _newest_version(self) -> int | None:
        hint = self._hinted()
        for known in dict.fromkeys((hint, 0)):
            if self._is_there(known):
                self._last_checkpoint = known
                return last_version(known, self._is_there)
        return self._listed()

    def _hinted(self) -> int:
        with suppress(CorruptObjectError):
            return decoded_hint(self._objects.find(hint_key(self._folder), max_bytes=_HINT_BYTES_MAX))
        return 0

    def _is_there(self, version: int) -> bool:
        return self._objects.exists(commit_key(self._folder, version))

    def _listed(self) -> int | None:
        """Where the first commits are gone: ours never go, so somebody has cleaned up here."""
        prefix = log_prefix(self._folder)
        found = [
            each for _, each in self._objects.ours(prefix, lambda key: parse_commit_key(key, self._folder))
        ]
        if not found:
            return None
        raise CorruptObjectError(
            f"commits from {min(found)} on, and none before",
            place=prefix,
            expected="commits from 0 on, or a checkpoint",
            action="somebody deleted what the table needs: restore it, or move the folder away and publish again",
            reason=Reason.FIRST_VERSIONS_GONE,
        )
