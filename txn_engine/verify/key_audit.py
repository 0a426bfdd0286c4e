"""Compaction by key: is what it left out superseded, and is what it calls clean so? (docs/FORMAT.md, "Compaction").

Files that rewrites have replaced stay for 24 hours; as long as they are there they are the evidence. Each record in
one of them has in the live files a record of its key at its own or a higher offset, below the last stable offset; or
it is a tombstone that was due, or there is a later one that was. That holds whichever rewrite left it out, and however
many have followed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import xxhash

from storage.store import ObjectInfo
from txn_engine.verify.audited_partition import GRACE_MS, AuditedPartition
from txn_engine.verify.descriptors import MalformedError
from txn_engine.verify.file_table import DataFile
from txn_engine.verify.findings import FindingLog, Place
from txn_engine.verify.objects import ObjectReader
from txn_engine.verify.raw_object import Damaged, RawObject
from txn_engine.verify.schema_versions import Version

_DELETE_RETENTION_MS: Final = 86_400_000
RECORDS_A_PASS: Final = 4_000_000
_FOLD_ROWS: Final = 1 << 18
_DELTA: Final = "_offset_delta"
_NONE: Final = -1
_EVER: Final = 2**63 - 1
_COLUMNS: Final = ("live", "evidence", "clean")
_HOW: Final = (("live", "max"), ("evidence", "max"), ("clean", "sum"))


@dataclass(frozen=True, slots=True)
class KeyRules:
    """What a topic that is compacted, or was, says of itself.

    tombstone_columns: by the version of the schema that a file has, its columns that are null in a tombstone, all of
    them; none: it has no tombstones. delete_retention_ms: by which a row was judged that names none. later: those since
    it was made.
    """

    key: str
    tombstone_columns: tuple[tuple[str, ...], ...]
    delete_retention_ms: int
    later: frozenset[int] = frozenset()


def key_rules(
    held: dict[str, Any], versions: Sequence[Version], changes: Sequence[Mapping[str, Any]] = ()
) -> KeyRules | None:
    """The rules of a topic by its object and its changes; None where it was never compacted. MalformedError: they
    cannot be had.
    """
    policy, key, retention = (held.get(name) for name in ("cleanup_policy", "key", "delete_retention_ms"))
    settings = [change["settings"] for change in changes]
    policies = {policy, *(each.get("cleanup.policy", "delete") for each in settings)}
    if policies == {"delete"}:
        return None
    if not policies <= {"delete", "compact", "compact,delete"} or not isinstance(retention, int):
        raise MalformedError(f"cleanup_policy {policy!r}, delete_retention_ms {retention!r}")
    if not isinstance(key, str) or any(key not in each.columns.names for each in versions):
        raise MalformedError(f"cleanup_policy {policy!r} and key {key!r}")
    later = frozenset(each.get("delete.retention.ms", _DELETE_RETENTION_MS) for each in settings)
    return KeyRules(key, _tombstones(key, versions), retention, later)


def _tombstones(key: str, versions: Sequence[Version]) -> tuple[tuple[str, ...], ...]:
    """By version, the columns of its files that are null in a tombstone; columns that came later are null there."""
    last = versions[-1]
    if last.columns.names == ["key", "value", "headers"]:
        ids = {last.owners["value"]}
    else:
        others = [field for field in last.columns if field.name != key]
        ids = (
            {last.owners[field.name] for field in others}
            if all(field.nullable for field in others)
            else set()
        )
    return tuple(_null_in(each, ids, last.filled) for each in versions)


def _null_in(version: Version, ids: set[int], filled: frozenset[int]) -> tuple[str, ...]:
    if any(number in filled and number >= version.free for number in ids):
        return ()  # it has a value there
    return tuple(
        name for name, number in zip(version.columns.names, version.ids, strict=True) if number in ids
    )


@dataclass(slots=True)
class KeyAudit:
    """The keys of one compacted partition, after its log was replayed and its data files were looked for.

    Memory: the keys of four million records, and 24 bytes for each; a partition of more is read several times.
    """

    place: Place
    reader: ObjectReader
    findings: FindingLog
    rules: KeyRules

    def run(self, state: AuditedPartition, now_ms: int) -> None:
        """Judge every key. Nothing is said where a live file is missing or damaged: that is a finding already."""
        absent = list(state.files.absent())
        live, evidence = self._files(state, absent, now_ms)
        if not (live or evidence) or any(file.status == "live" for file in absent):
            return
        records = sum(file.record_count for file in (*live, *evidence))
        passes = -(-records // RECORDS_A_PASS)
        for number in range(passes):
            keys = self._keys(live, evidence, state, number, passes)
            if keys is None:
                return
            if keys:
                self._judge(_folded(keys), evidence, state)

    def _files(
        self, state: AuditedPartition, absent: list[DataFile], now_ms: int
    ) -> tuple[list[DataFile], list[DataFile]]:
        """The live files, and those that can be held against them; all below the last stable offset.

        What died at or before a file that is gone, or so long ago that others may be forgotten, proves nothing: what
        superseded its records may have gone since. Nor does anything in the 24 hours after an erasure: the record that
        superseded others may be the one that was erased.
        """
        gone = max((file.died_ms for file in absent), default=_NONE)
        gone = max(gone, now_ms - GRACE_MS)
        if any(file.status == "erased" and file.died_ms > gone for file in state.files.in_order()):
            gone = _EVER
        live, evidence = [], []
        for file in state.files.in_order():
            if file.last_offset >= state.last_stable_offset:
                continue
            if file.status == "live":
                live.append(file)
            elif file.status == "replaced" and file.died_ms > gone:
                evidence.append(file)
        return live, evidence

    def _keys(
        self,
        live: list[DataFile],
        evidence: list[DataFile],
        state: AuditedPartition,
        number: int,
        passes: int,
    ) -> list[pa.Table] | None:
        """The keys of this pass, to be folded: the latest live offset, twice the latest offset in the evidence (and one
        more where that is a tombstone), and how many live records there are in the clean part; -1: no such record.
        None: a live file is damaged.
        """
        by_key = {f"{self.place.prefix}/{file.data_path}": file for file in (*live, *evidence)}
        infos = (ObjectInfo(key, file.data_bytes, 0) for key, file in by_key.items())
        decode = self._decoder(by_key, state, number, passes)
        held: list[pa.Table] = []
        rows = 0
        for info, found in self.reader.read_in_order(infos, decode):
            if isinstance(found, Damaged) and by_key[info.key].status == "live":
                return None
            if found is None or isinstance(found, Damaged):
                continue
            held.append(found)
            rows += found.num_rows
            if rows >= _FOLD_ROWS:
                held = [_folded(held)]
                rows = 0
        return held

    def _decoder(
        self, by_key: dict[str, DataFile], state: AuditedPartition, number: int, passes: int
    ) -> Callable[[RawObject], pa.Table | None]:
        every = list(dict.fromkeys(name for names in self.rules.tombstone_columns for name in names))

        def decode(raw: RawObject) -> pa.Table | None:
            file = by_key[raw.key]
            found = raw.parquet(columns=[self.rules.key, _DELTA, *every])
            if found.checksum != file.checksum or found.kind != "data":
                raise MalformedError("another file than its entry names")
            version = int(found.version or 0)
            if version >= len(self.rules.tombstone_columns):
                raise MalformedError(f"version {version} of the schema")
            nulls = self.rules.tombstone_columns[version]
            columns = [self.rules.key, _DELTA, *nulls]
            batches = (_of_pass(batch, self.rules.key, number, passes) for batch in found.batches(columns))
            tables = [self._facts(batch, file, state, nulls) for batch in batches if batch.num_rows]
            return _folded(tables) if tables else None

        return decode

    def _facts(
        self, batch: pa.RecordBatch, file: DataFile, state: AuditedPartition, nulls: Sequence[str]
    ) -> pa.Table:
        offsets = np.asarray(np.from_dlpack(batch.column(_DELTA)), np.int64) + file.base_offset
        absent = np.full(len(offsets), _NONE, np.int64)
        live, proof, clean = absent, absent, np.zeros(len(offsets), np.int64)
        if file.status == "live":
            live = offsets
            clean = (offsets < state.cleaned_to).astype(np.int64)
        else:
            counts = offsets >= state.log_start_offset
            proof = np.where(counts, 2 * offsets + _are_null(batch, nulls), _NONE)
        key = _plain(batch.column(self.rules.key))
        return pa.Table.from_arrays([key, *map(pa.array, (live, proof, clean))], names=["key", *_COLUMNS])

    # --- judging --------------------------------------------------------------------------------------------

    def _judge(self, keys: pa.Table, evidence: list[DataFile], state: AuditedPartition) -> None:
        live, proof, clean = (np.asarray(keys.column(name).to_pylist(), np.int64) for name in _COLUMNS)
        latest, is_tombstone = proof >> 1, (proof >= 0) & (proof & 1 == 1)
        may_be_gone = is_tombstone & (latest < state.tombstones_to)
        lost = (proof >= 0) & (live < latest) & ~(may_be_gone & (live == _NONE))
        for row in np.flatnonzero(lost):
            key = _shown(keys.column("key")[int(row)])
            self._note_lost(key, int(latest[row]), bool(is_tombstone[row]), int(live[row]), evidence)
        for row in np.flatnonzero(clean > 1):
            seen = f"{int(clean[row])} live records of key {_shown(keys.column('key')[int(row)])}"
            expected = f"one at the most below offset {state.cleaned_to}, up to which a clean row says so"
            self.findings.add(
                "key-doubled", f"{self.place.prefix}/data/", seen, expected=expected, place=self.place
            )

    def _note_lost(
        self, key: str, offset: int, is_tombstone: bool, live: int, evidence: list[DataFile]
    ) -> None:
        held = [file for file in evidence if file.base_offset <= offset <= file.last_offset]
        file = max(held, key=lambda file: file.died_ms)
        what = "tombstone" if is_tombstone else "latest committed record"
        rest = f"the live one at {live} is older" if live >= 0 else "there is no live one"
        self.findings.add(
            "key-lost",
            f"{self.place.prefix}/{file.data_path}",
            f"the {what} of key {key}, at offset {offset}, was left out, and {rest}",
            expected="a later committed record of the key, or a tombstone that had its time and nothing before it",
            place=self.place,
            offsets=(offset, offset),
            since_ms=file.died_ms,
        )


def _are_null(batch: pa.RecordBatch, names: Sequence[str]) -> npt.NDArray[np.int64]:
    """Whether these are null, all of them; of none: no."""
    null = np.full(batch.num_rows, bool(names))
    for name in names:
        valid: Any = pc.cast(pc.is_null(batch.column(name)), pa.int8())
        null &= np.from_dlpack(valid) == 1
    return null.astype(np.int64)


def _plain(key: pa.Array[Any]) -> pa.Array[Any]:
    """Integers as they are, all else as bytes: files may differ in how they hold a string."""
    return key if pa.types.is_integer(key.type) else key.cast(pa.large_binary())


def _folded(tables: list[pa.Table]) -> pa.Table:
    """One row a key."""
    table = pa.concat_tables(tables)
    folded = table.group_by("key", use_threads=False).aggregate(list(_HOW))
    names = {f"{name}_{how}": name for name, how in _HOW}
    return folded.rename_columns([names.get(name, name) for name in folded.schema.names]).select(
        ["key", *_COLUMNS]
    )


def _of_pass(batch: pa.RecordBatch, key: str, number: int, passes: int) -> pa.RecordBatch:
    """The rows whose keys belong to this pass."""
    if passes == 1:
        return batch
    digests = (xxhash.xxh3_64_intdigest(repr(value).encode()) for value in batch.column(key).to_pylist())
    return batch.filter(pa.array([digest % passes == number for digest in digests]))


def _shown(key: pa.Scalar[Any]) -> str:
    text = repr(key.as_py())
    return text if len(text) <= 80 else f"{text[:77]}..."
