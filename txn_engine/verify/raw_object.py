"""One raw object: fetched, its checksum and what it claims checked before a parser sees it, and decoded."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from typing import Any, Final, TypeVar

import pyarrow as pa
import pyarrow.parquet as pq

from storage.errors import (
    ArchivedObjectError,
    DamagedObjectError,
    ObjectNotFoundError,
    OversizedObjectError,
    StorageError,
    UnknownFormatError,
)
from storage.parquet_footer import Footer, read_footer
from storage.parquet_limits import DATA_LIMITS, LimitError, ParquetLimits, check_claims
from storage.plain_columns import Cut, PlainColumns
from storage.store import ObjectStore
from txn_engine.verify.checksums import FORMAT, JSON_BYTES_MAX, TAIL_BYTES, Whole, check_json, check_parquet
from txn_engine.verify.descriptors import MalformedError
from txn_engine.verify.known_footers import FooterKey, KnownFooter, KnownFooters
from txn_engine.verify.ranged_file import RangedFile
from txn_engine.verify.store_keys import NO_ANSWER

_PREFIX: Final = b"txn_engine."
_STORE_KEY: Final = "store.json"
WHOLE_BYTES_MAX: Final = 8 << 20  # a larger object is read in parts and is never in memory as a whole
PART_BYTES: Final = 4 << 20
BUFFER_BYTES: Final = 1 << 20  # of a large object's column
_WINDOW_BYTES: Final = 64 << 10  # of a large object, about a page's header
_BATCH_ROWS: Final = 8_192

UNREADABLE: Final = (
    pa.ArrowException,
    json.JSONDecodeError,
    OSError,
    ValueError,
    KeyError,
    TypeError,
    IndexError,
    OverflowError,
    RecursionError,
)
"""What bytes that are not what they claim to be raise where they are read."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Damaged:
    """An object that is there and cannot be used: what is wrong with it."""

    reason: str
    size: int
    malformed: bool = False


@dataclass(frozen=True, slots=True)
class RawObject:
    """One object as the store gave it: in memory, or, a large one, still on the store."""

    key: str
    size: int
    data: bytes | None
    store: ObjectStore

    def json(self, kind: str, formats: Collection[str] = (FORMAT,)) -> dict[str, Any]:
        """The JSON object's fields; DamagedObjectError unless checksum, format and kind are right."""
        data = self.store.get(self.key, max_bytes=JSON_BYTES_MAX) if self.data is None else self.data
        return check_json(data, self.key, kind, formats)

    def parquet(
        self, limits: ParquetLimits = DATA_LIMITS, columns: Collection[str] | None = None
    ) -> ParquetObject:
        """The Parquet object, for these columns of it to be read (None: all); DamagedObjectError where its checksum is
        wrong, LimitError where it is larger than it may be, or would be in memory.
        """
        return self._judged(self._whole(), limits, columns)[0]

    def parquet_like(self, known: KnownFooters) -> ParquetObject:
        """As `parquet`, by the limits and for the columns of `known`, whose footers are not judged a second time."""
        whole = self._whole()
        key = None if self.data is None else known.key_of(whole)
        if key is None or self.data is None:
            return self._judged(whole, known.limits, known.columns)[0]
        before = known.get(key)
        if before is None:
            return self._of_form(whole, key, known, self.data)
        cut = None if before.plain is None else before.plain.cut(self.data)
        if cut is not None:
            return _known(before, key, whole, lambda: self._opened(before.metadata), cut)
        check_claims(before.footer, self._window, self.size, known.limits, known.columns)
        file = self._opened(before.metadata)
        before.learn(file, self.data, known)
        return _known(before, key, whole, lambda: file)

    def _of_form(self, whole: Whole, key: FooterKey, known: KnownFooters, data: bytes) -> ParquetObject:
        """The object whose footer was not judged before, though perhaps one of the same form."""
        form = known.form_of(whole, key)
        like = known.like(form)
        if form is not None and like is not None and like.plain is not None:
            known.limits.check_footer_bytes(len(whole.tail) - TAIL_BYTES, self.size)
            cut = like.plain.cut_at(data, form.places, whole.footer_at)
            if cut is not None:
                return _known(
                    like, key, whole, lambda: self._judged(whole, known.limits, known.columns)[0].file, cut
                )
        found, footer = self._judged(whole, known.limits, known.columns)
        fresh = KnownFooter(
            footer, found.file.metadata, found.schema, found.kind, found.write_id, found.version
        )
        if like is not None and like.plain is None:
            fresh.learn(found.file, data, known)
        known.keep(key, fresh, whole, form)
        return found

    def _whole(self) -> Whole:
        return check_parquet(self._part, self.size, self.key, part_bytes=PART_BYTES)

    def _judged(
        self, whole: Whole, limits: ParquetLimits, columns: Collection[str] | None
    ) -> tuple[ParquetObject, Footer]:
        footer_bytes = len(whole.tail) - TAIL_BYTES
        limits.check_footer_bytes(footer_bytes, self.size)
        footer = read_footer(whole.tail[:footer_bytes])
        file = self._opened()
        check_claims(footer, self._window, self.size, limits, columns)
        held = file.metadata.metadata or {}
        own = {
            name.removeprefix(_PREFIX).decode(): value.decode()
            for name, value in held.items()
            if name.startswith(_PREFIX)
        }
        if own.get("format") != FORMAT:
            raise MalformedError(f"format {own.get('format')!r}, not {FORMAT!r}")
        kind, write_id = own.get("kind", ""), own.get("write_id", "")
        found = ParquetObject(
            kind, write_id, whole.checksum, file.schema_arrow, footer.rows, own.get("schema"), lambda: file
        )
        return found, footer

    def _opened(self, metadata: pq.FileMetaData | None = None) -> pq.ParquetFile:
        """Arrow's reader of it; `metadata`: of its footer, if that was parsed before."""
        if self.data is None:
            source = pa.PythonFile(RangedFile(self._part, self.size), mode="r")
            return pq.ParquetFile(source, metadata=metadata, buffer_size=BUFFER_BYTES, pre_buffer=False)
        return pq.ParquetFile(pa.BufferReader(self.data), metadata=metadata, pre_buffer=False)

    def _window(self, start: int) -> tuple[bytes, int]:
        if self.data is not None:
            return self.data, start
        return self._part(start, min(_WINDOW_BYTES, self.size - start)), 0

    def _part(self, start: int, length: int) -> bytes:
        if self.data is None:
            return self.store.get_range(self.key, start, length)
        return self.data[start : start + length]


@dataclass(frozen=True, slots=True)
class ParquetObject:
    """A Parquet object whose checksum is right; the columns are read when asked for.

    version: which of its topic's schema it says it has; None: it says nothing of that.
    cut: the values of its columns as they are stored, where they can be cut out (`PlainColumns`).
    """

    kind: str
    write_id: str
    checksum: str
    schema: pa.Schema
    rows: int
    version: str | None
    _open: Callable[[], pq.ParquetFile]
    _plain: PlainColumns | None = None
    cut: Cut | None = None

    @property
    def file(self) -> pq.ParquetFile:
        """Arrow's reader of it."""
        return self._open()

    def values(self) -> list[tuple[Any, ...]] | None:
        """The values of the columns that were cut out; None where they were not, or are not of their types."""
        return None if self._plain is None or self.cut is None else self._plain.values(self.cut)

    def table(self) -> pa.Table:
        """All of it: for what is small."""
        return self.file.read(use_threads=False)

    def batches(self, columns: list[str] | None = None) -> Iterator[pa.RecordBatch]:
        """The columns named, or all, some thousand rows in memory at a time."""
        return self.file.iter_batches(batch_size=_BATCH_ROWS, columns=columns, use_threads=False)


def _known(
    before: KnownFooter,
    key: FooterKey,
    whole: Whole,
    opened: Callable[[], pq.ParquetFile],
    cut: Cut | None = None,
) -> ParquetObject:
    """An object of which all but its digits and its values are known."""
    write_id = before.write_id if key.write_id is None else key.write_id
    return ParquetObject(
        before.kind,
        write_id,
        whole.checksum,
        before.schema,
        before.footer.rows,
        before.version,
        opened,
        before.plain,
        cut,
    )


Decode = Callable[[RawObject], T]
Fetched = tuple[int, T | Damaged | None]  # size (-1: gone), and what was made of it


def fetch(store: ObjectStore, key: str, size: int, decode: Decode[T]) -> Fetched[T]:
    """Read an object and decode it. Damage is an answer, a store that does not answer at all an error."""
    try:
        data = None if size > WHOLE_BYTES_MAX else _whole(store, key)
        if data is None and size <= WHOLE_BYTES_MAX:
            size = store.head(key).size
        read = size if data is None else len(data)
        return read, _decoded(RawObject(key, read, data, store), decode)
    except ObjectNotFoundError:
        return -1, None
    except UnknownFormatError:
        raise  # of store.json
    except StorageError as error:  # a link or a device by its name, access refused, a bad sector
        is_archived = isinstance(error, ArchivedObjectError)
        is_damage = isinstance(error, DamagedObjectError) and not is_archived
        if isinstance(error, NO_ANSWER) or (key == _STORE_KEY and not is_damage):
            raise
        archived = ": it is in an archive of the store, and can be restored from there" * is_archived
        return size, Damaged(error.seen + archived, size)


def _whole(store: ObjectStore, key: str) -> bytes | None:
    """The object; None for one that is too large to be read in one go."""
    try:
        return store.get(key, max_bytes=WHOLE_BYTES_MAX)
    except OversizedObjectError:
        return None


def _decoded(found: RawObject, decode: Decode[T]) -> T | Damaged:
    try:
        return decode(found)
    except DamagedObjectError as error:
        if isinstance(error, UnknownFormatError) and found.key == _STORE_KEY:
            raise  # nothing here can be judged by this version's rules
        text = f"{error.seen}, expected {error.expected}" if error.expected else error.seen
        return Damaged(text, found.size)
    except (MalformedError, LimitError) as error:
        return Damaged(str(error), found.size, malformed=True)
    except UNREADABLE as error:
        return Damaged(f"cannot be read: {' '.join(str(error).split())[:200]}", found.size, malformed=True)
