"""Which files a topic was loaded from: a topic of their names and digests, written with their rows."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, Self

import pyarrow as pa

from txn_engine.errors import InvalidRecordError, InvalidRequestError, OffsetsPendingError
from txn_engine.found_files import opened, unreadable
from txn_engine.reasons import Reason
from txn_engine.types import OffsetAndMetadata, TopicPartition
from txn_engine.value_text import time_text

if TYPE_CHECKING:
    from txn_engine.engine import Engine
    from txn_engine.log.topics import Topic
    from txn_engine.producer import Producer

_FIELDS: list[pa.Field[Any]] = [
    pa.field("file", pa.string(), nullable=False),
    pa.field("sha256", pa.string(), nullable=False),
    pa.field("bytes", pa.int64(), nullable=False),
    pa.field("topic", pa.string(), nullable=False),
    pa.field("records", pa.int64(), nullable=False),
    pa.field("dead_letters", pa.int64(), nullable=False),
    pa.field("run_id", pa.string()),
    pa.field("loaded_at", pa.timestamp("ms", tz="UTC"), nullable=False),
    pa.field("incarnation", pa.int32()),
]
LOADED_FILES = pa.schema(_FIELDS)
"""The columns of a manifest. Without an incarnation a row is from before there was that column."""


@dataclass(frozen=True, slots=True)
class SeenFile:
    """A file as it was when it was looked at."""

    path: Path
    sha256: str
    bytes: int
    state: tuple[int, ...]

    @classmethod
    def of(cls, path: Path) -> Self:
        """Look at it. `InvalidRequestError` where it cannot be read, or not twice."""
        try:
            state = _state_of(path)
            if not path.is_file():
                raise InvalidRequestError(
                    "no file",
                    actor="load",
                    place=str(path),
                    expected="files: a manifest knows what is in them",
                    reason=Reason.NOT_A_REGULAR_FILE,
                )
            with opened(path) as stream:
                digest = hashlib.file_digest(stream, "sha256").hexdigest()
        except OSError as error:
            raise unreadable(str(path), error) from error
        return cls(path, digest, state[1], state)

    @property
    def name(self) -> str:
        """Its path from the root, without links, by which a manifest knows it."""
        return text_of_path(os.path.realpath(self.path))

    def check_same(self) -> None:
        """Raise `InvalidRecordError` where it is another file by now: what was loaded is not what was looked at."""
        try:
            same = _state_of(self.path) == self.state
        except OSError:
            same = False
        if not same:
            raise changed_meanwhile(str(self.path))


def changed_meanwhile(path: str) -> InvalidRecordError:
    """The error for a file that somebody has written to while it was read."""
    return InvalidRecordError(
        "the file changed while it was loaded",
        actor="load",
        place=path,
        expected="files that nobody writes any more",
        action="load it again once it is whole",
        reason=Reason.FILE_CHANGED,
    )


def text_of_path(path: str) -> str:
    """A path as text, where it is none with its bytes escaped."""
    return os.fsencode(path).decode(errors="backslashreplace")


def _plain(rows: pa.RecordBatch) -> pa.RecordBatch:
    """A manifest's rows with their time as milliseconds: Python does not know every time that a column holds."""
    at = rows.schema.get_field_index("loaded_at")
    return rows.set_column(at, "loaded_at", rows.column(at).cast(pa.int64()))


def _state_of(path: Path) -> tuple[int, ...]:
    """What tells a file from what it was before; whoever writes it may set the time of its contents, not the last."""
    found = os.stat(path)
    return found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns


def check_manifest(engine: Engine, name: str, topic: Topic) -> None:
    """Raise `InvalidRequestError` unless it has the columns of a manifest, and its first row is of this topic; what
    looking it up raises.
    """
    found = engine.logs.topics.look_up(name)
    if not found.schema.equals(LOADED_FILES):
        raise InvalidRequestError(
            f"columns {', '.join(found.schema.names)}",
            actor=f"manifest {name!r}",
            expected=f"the columns of a manifest: {', '.join(LOADED_FILES.names)}",
            action="make one: `topics create NAME --manifest`; to one that has no incarnation,"
            f" `topics alter {name} --add 'incarnation int32' --execute` adds it",
            reason=Reason.NOT_A_MANIFEST,
        )
    first = next(iter(engine.scan(name).to_batches(["topic"])), None)
    if first is not None:
        _check_topics(name, map(str, first.column("topic").to_pylist()), topic)


def _check_topics(name: str, topics: Iterable[str], topic: Topic) -> None:
    others = set(topics) - {topic.name}
    if others:
        raise InvalidRequestError(
            f"files of topic {min(others)!r}",
            actor=f"manifest {name!r}",
            expected=f"those of {topic.name!r} alone",
            reason=Reason.MANIFEST_OF_ANOTHER_TOPIC,
        )


class Manifest:
    """What a topic was loaded from, as of now; one load at a time may add to it.

    Its position in the group `loaded-files/<manifest>` is committed with the rows and the names of their files. So of
    two loads that have read the same manifest one is refused, by `OffsetsMovedError`, and loads nothing.
    """

    def __init__(self, engine: Engine, name: str, *, topic: Topic) -> None:
        """Read it. `InvalidRequestError`: it is none, or another topic's. `OffsetsPendingError`: a load goes on."""
        check_manifest(engine, name, topic)
        self._name, self._topic, self._clock = name, topic, engine.clock
        self._consumer = engine.consumer(group_id=f"loaded-files/{name}")
        self._consumer.subscribe([name])
        self._consumer.positions()  # fetched before what stands there is read: whoever commits after this is noticed
        for at, offsets in engine.admin.list_offsets(name).items():
            if offsets.last_stable_offset < offsets.high_watermark:
                raise OffsetsPendingError(
                    "a load that is not over",
                    actor=f"manifest {name!r}",
                    place=str(at),
                    expected="one at a time",
                )
        scan = engine.scan(name)
        self._ends: dict[TopicPartition, int] = scan.offsets
        rows = [row for batch in scan.to_batches() for row in _plain(batch).to_pylist()]
        self._known = {row["file"]: row for row in rows if row["incarnation"] in (None, topic.incarnation)}
        self._loaded: list[dict[str, Any]] = []
        self._by_content = {row["sha256"]: row["file"] for row in self._known.values()}
        self.passed_over: tuple[str, ...] = ()
        self.copies: dict[str, str] = {}
        _check_topics(name, (row["topic"] for row in rows), topic)

    def new(self, files: Sequence[Path], *, again: bool = False) -> list[SeenFile]:
        """Those whose content was not loaded yet, under whatever name; with `again` the others too.

        `passed_over` are those that were; `copies` says under which other name. Of two that are alike here the first is
        new. `InvalidRequestError` names a file that was loaded, and has changed since.
        """
        found = []
        by_content = dict(self._by_content)
        for seen in map(SeenFile.of, files):
            known = self._known.get(seen.name)
            if known is not None and known["sha256"] != seen.sha256:
                self._refuse(seen, known)
            first = by_content.setdefault(seen.sha256, seen.name)
            if again or (known is None and first == seen.name):
                found.append(seen)
                continue
            self.passed_over = (*self.passed_over, str(seen.path))
            if known is None:
                self.copies[str(seen.path)] = first
        return found

    def _refuse(self, seen: SeenFile, known: dict[str, Any]) -> NoReturn:
        run = f" by run {known['run_id']!r}" if known["run_id"] is not None else ""
        raise InvalidRequestError(
            f"changed since it was loaded{run} at {time_text(known['loaded_at'])}",
            actor=f"manifest {self._name!r}",
            place=str(seen.path),
            expected=f"{known['bytes']:,} bytes of SHA-256 {known['sha256'][:16]}...",
            action="its rows are in the topic: give what is new a name of its own",
            reason=Reason.FILE_CHANGED_SINCE_LOAD,
        )

    def add(self, seen: SeenFile, *, records: int, dead_letters: int, run_id: str | None) -> None:
        """A file that was read and handed over. Raises `InvalidRecordError` where it changed meanwhile."""
        seen.check_same()
        self._loaded.append(
            {
                "file": seen.name,
                "sha256": seen.sha256,
                "bytes": seen.bytes,
                "topic": self._topic.name,
                "records": records,
                "dead_letters": dead_letters,
                "run_id": run_id,
                "loaded_at": self._clock(),
                "incarnation": self._topic.incarnation,
            }
        )

    def send(self, producer: Producer) -> None:
        """Write the names of what was added, in the producer's transaction, and hold on to the manifest that was read.

        Raises `OffsetsMovedError`: another load has added to it since; `OffsetsPendingError`: one is about to.
        """
        offsets = {at: OffsetAndMetadata(end) for at, end in self._ends.items()}
        producer.send_offsets_to_transaction(offsets, self._consumer.group_metadata())
        producer.produce(self._name, pa.Table.from_pylist(self._loaded, schema=LOADED_FILES))

    def close(self) -> None:
        """Let go."""
        self._consumer.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
