"""The data files that a log has named, kept small: a log of many small batches is one of many files."""

from __future__ import annotations

import re
from array import array
from collections import Counter
from collections.abc import Iterable, Iterator
from functools import lru_cache
from itertools import groupby
from operator import attrgetter
from typing import Any, Final, NamedTuple

import numpy as np
import xxhash

from txn_engine.verify.descriptors import data_path, parse_data_path

STATUSES: Final = ("live", "undecided", "aborted", "replaced", "erased")
_CODES: Final = {status: code for code, status in enumerate(STATUSES)}
_GONE: Final = -1
_CHECKSUM = re.compile(r"[0-9a-f]{32}")
_NO_IDS: Final = "0" * 64
_REPACK_MIN: Final = 1_024


class DataFile(NamedTuple):
    """A data file that an entry named, and what became of it: one of STATUSES. Fields as in a snapshot."""

    status: str
    died_ms: int
    producer_id: int
    producer_epoch: int
    base_offset: int
    last_offset: int
    record_count: int
    first_timestamp: int
    max_timestamp: int
    data_path: str
    data_bytes: int
    checksum: str


_NUMBERS: Final = (
    ("died_ms", "q"),
    ("producer_id", "q"),
    ("producer_epoch", "h"),
    ("base_offset", "q"),
    ("last_offset", "q"),
    ("record_count", "i"),
    ("first_timestamp", "q"),
    ("max_timestamp", "q"),
    ("data_bytes", "q"),
)


_numbers_of: Final = attrgetter(*(name for name, _ in _NUMBERS))


class FileTable:
    """Files by path, about 220 bytes each, whatever became of them; forgotten ones take no room for long.

    They stand in columns, a path as what it says. One whose path says something else than its row does (a finding of
    its own) is kept as it is.
    """

    def __init__(self) -> None:
        self._clear()

    def _clear(self) -> None:
        self._numbers: dict[str, array[int]] = {name: array(kind) for name, kind in _NUMBERS}
        self._status = array("b")
        self._log_ends = array("q")
        self._ids = bytearray()  # write id and checksum, 16 bytes each
        self._present = bytearray()
        self._marks = array("Q")  # of the object that was read and judged; 0: none was
        self._odd: dict[int, DataFile] = {}
        self._rows: dict[bytes, int] = {}  # by the path's digest

    def __len__(self) -> int:
        return len(self._rows)

    def __contains__(self, path: str) -> bool:
        return _digest(path) in self._rows

    def get(self, path: str) -> DataFile | None:
        """The file of that path; None where none was named, or it was forgotten."""
        row = self._rows.get(_digest(path))
        return None if row is None else self._file(row)

    def put(self, file: DataFile) -> None:
        """Add a file, in place of the one that had its path."""
        digest = _digest(file.data_path)
        if digest in self._rows:
            self._status[self._rows[digest]] = _GONE
        row = self._rows[digest] = len(self._status)
        for column, number in zip(self._numbers.values(), _numbers_of(file), strict=True):
            column.append(number)
        self._status.append(_CODES[file.status])
        self._present.append(0)
        self._marks.append(0)
        named = parse_data_path(file.data_path)
        # A name that can be parsed is written in one way only.
        own = named is not None and named[1:3] == (file.producer_id, file.producer_epoch)
        if named is not None and own and _CHECKSUM.fullmatch(file.checksum) is not None:
            self._log_ends.append(named.log_end)
            self._ids += bytes.fromhex(named.write_id + file.checksum)
        else:
            self._log_ends.append(0)
            self._ids += bytes.fromhex(_NO_IDS)
            self._odd[row] = file

    def settle(self, path: str, status: str, died_ms: int) -> None:
        """Give the file another status; nothing where there is no such file."""
        row = self._rows.get(_digest(path))
        if row is not None:
            self._status[row] = _CODES[status]
            self._numbers["died_ms"][row] = died_ms

    def forget(self, paths: Iterable[str]) -> None:
        """Let go of these files."""
        for path in paths:
            row = self._rows.pop(_digest(path), None)
            if row is not None:
                self._status[row] = _GONE
        if len(self._status) > max(2 * len(self._rows), _REPACK_MIN):
            held = [(file, *self._seen(file.data_path)) for file in self.in_order()]
            self._clear()
            for row, (file, present, mark) in enumerate(held):
                self.put(file)
                self._present[row], self._marks[row] = present, mark

    def in_order(self) -> Iterator[DataFile]:
        """All files, by base offset and path."""
        bases = self._numbers["base_offset"]
        rows = sorted((row for row, code in enumerate(self._status) if code != _GONE), key=bases.__getitem__)
        for _, group in groupby(rows, key=bases.__getitem__):
            files = [self._file(row) for row in group]
            yield from files if len(files) == 1 else sorted(files, key=lambda file: file.data_path)

    def ending_below(self, offset: int) -> list[DataFile]:
        """The live files whose records all lie below `offset`."""
        return self._chosen(self._is("live") & (self._column("last_offset") < offset))

    def across(self, offset: int) -> list[DataFile]:
        """The live files with records on both sides of `offset`."""
        bases, lasts = self._column("base_offset"), self._column("last_offset")
        return self._chosen(self._is("live") & (bases < offset) & (offset <= lasts))

    def between(self, first: int, last: int) -> list[DataFile]:
        """The live files that begin from `first` to `last`."""
        bases = self._column("base_offset")
        return self._chosen(self._is("live") & (first <= bases) & (bases <= last))

    def dead_by(self, time_ms: int) -> list[DataFile]:
        """The aborted, replaced and erased files that had died by then."""
        dead = self._is("aborted") | self._is("replaced") | self._is("erased")
        return self._chosen(dead & (self._column("died_ms") <= time_ms))

    def records(self) -> Counter[str]:
        """How many records there are of each status."""
        counted: Counter[str] = Counter()
        for code, count in zip(self._status, self._numbers["record_count"], strict=True):
            if code != _GONE:
                counted[STATUSES[code]] += count
        return counted

    def mark_present(self, path: str) -> int | None:
        """Note that this object is on the store, and say where its file ends; None where it is no file of this log."""
        row = self._rows.get(_digest(path))
        if row is None:
            return None
        self._present[row] = 1
        return self._numbers["last_offset"][row]

    def is_present(self, path: str) -> bool:
        """Whether this file was marked present."""
        row = self._rows.get(_digest(path))
        return row is not None and self._present[row] == 1

    def absent(self) -> Iterator[DataFile]:
        """The files that were not marked present, by base offset and path."""
        status, present = np.frombuffer(self._status, np.int8), np.frombuffer(self._present, np.uint8)
        return iter(
            sorted(
                self._chosen((status != _GONE) & (present == 0)),
                key=lambda file: (file.base_offset, file.data_path),
            )
        )

    def forget_presence(self) -> None:
        """No file is marked present any more: the store is listed again."""
        self._present = bytearray(len(self._present))

    def note_read(self, path: str, mark: int) -> None:
        """Note that the object of this mark was read and judged as this file."""
        row = self._rows.get(_digest(path))
        if row is not None:
            self._marks[row] = mark

    def was_read(self, path: str, mark: int) -> bool:
        """Whether the object of this mark was read and judged as this file before."""
        row = self._rows.get(_digest(path))
        return row is not None and self._marks[row] == mark

    def forget_reads(self) -> None:
        """Every file has to be read again."""
        self._marks = array("Q", bytes(8 * len(self._marks)))

    def carry_reads(self, before: FileTable) -> None:
        """Take over what was read of files that another table of the same log says the same of."""
        for digest, row in self._rows.items():
            known = before._rows.get(digest)
            if known is not None and _facts(before._file(known)) == _facts(self._file(row)):
                self._marks[row] = before._marks[known]

    def _seen(self, path: str) -> tuple[int, int]:
        row = self._rows[_digest(path)]
        return self._present[row], self._marks[row]

    def _is(self, status: str) -> Any:
        return np.frombuffer(self._status, np.int8) == _CODES[status]

    def _column(self, name: str) -> Any:
        return np.frombuffer(self._numbers[name], np.int64)

    def _chosen(self, mask: Any) -> list[DataFile]:
        return [self._file(int(row)) for row in np.flatnonzero(mask)]

    def _file(self, row: int) -> DataFile:
        status = STATUSES[self._status[row]]
        odd = self._odd.get(row)
        if odd is not None:
            return odd._replace(status=status, died_ms=self._numbers["died_ms"][row])
        died_ms, producer_id, epoch, base, last, count, first, latest, size = (
            column[row] for column in self._numbers.values()
        )
        ids = self._ids[32 * row : 32 * row + 32].hex()
        path = data_path(self._log_ends[row], producer_id, epoch, ids[:32])
        return DataFile(
            status, died_ms, producer_id, epoch, base, last, count, first, latest, path, size, ids[32:]
        )


def _facts(file: DataFile) -> DataFile:
    return file._replace(status="", died_ms=-1)


@lru_cache(maxsize=16)  # one file is asked about several times in a row
def _digest(path: str) -> bytes:
    return xxhash.xxh3_128_digest(path.encode("utf-8", "surrogatepass"))
