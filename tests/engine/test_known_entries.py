"""Entries that are read without Arrow, because Arrow has read others with the same footer: the result is the
one of Arrow."""

from __future__ import annotations

from dataclasses import replace

import pytest

from storage import KnownParquet
from storage.reasons import StoreReason
from tests.suite.tiers import in_shard
from tests.support.refusals import refused
from tests.support.sealing import resealed
from txn_engine.errors import CorruptObjectError, TxnEngineError
from txn_engine.log.entry_format import USER_LOG, Entry, LogKind, decode_entry, encode_entry, encode_seal
from txn_engine.protocol.batches import BatchDescriptor, Control, FileRef
from txn_engine.protocol.file_names import DataFileName

KEY, BASE = "topics/payments/0/0/log/00000000000000000100.parquet", 100


def batch(at: int, records: int, *, producer_id: int = 7, is_transactional: bool = True) -> BatchDescriptor:
    """A batch of records with its data file."""
    path = DataFileName(BASE, producer_id, 3, f"{at:032x}").data_path
    return BatchDescriptor(
        at,
        at + records - 1,
        1_700_000_000_000,
        producer_id=producer_id,
        producer_epoch=3,
        base_sequence=at,
        is_transactional=is_transactional,
        first_timestamp=5,
        max_timestamp=6,
        record_count=records,
        file=FileRef(path, 1_000 + at, f"{at:032x}"),
    )


def marker(at: int, control: Control) -> BatchDescriptor:
    return BatchDescriptor(
        at,
        at,
        1_700_000_000_000,
        producer_id=7,
        producer_epoch=4,
        is_transactional=True,
        control=control,
        coordinator_epoch=2,
        first_timestamp=5,
        max_timestamp=5,
        record_count=1,
    )


ENTRIES = {
    "a batch": [batch(BASE, 10)],
    "three batches": [
        batch(BASE, 10),
        batch(BASE + 10, 1, producer_id=8, is_transactional=False),
        batch(BASE + 11, 3),
    ],
    "a marker": [marker(BASE, Control.COMMIT)],
    "a batch and a marker": [batch(BASE, 2), marker(BASE + 2, Control.ABORT)],
}


def knowing(*entries: list[BatchDescriptor]) -> LogKind:
    """A kind of log that has read each of these entries twice."""
    kind = replace(USER_LOG, known=KnownParquet())
    for number, entry in enumerate((*entries, *entries)):
        decode_entry(kind, encode_entry(kind, entry, f"{number:032x}"), key=KEY, base_offset=BASE)
    return kind


def is_read_without_arrow(kind: LogKind, data: bytes) -> bool:
    assert kind.known is not None
    return kind.known.read(data, KEY) is not None


def found(kind: LogKind, data: bytes) -> Entry | tuple[str, str]:
    """The entry, or the type and text of the error that refuses it."""
    try:
        return decode_entry(kind, data, key=KEY, base_offset=BASE)
    except TxnEngineError as error:
        return type(error).__name__, str(error)


@pytest.mark.parametrize("name", ENTRIES)
def test_each_entry_is_its_own(name: str) -> None:
    """An entry has its own values and its own write id, although others have the same footer."""
    kind = knowing(ENTRIES[name])
    for number in range(3):
        changed = [replace(each, first_timestamp=number, max_timestamp=10**12) for each in ENTRIES[name]]
        data = encode_entry(kind, changed, f"{number + 50:032x}")
        assert is_read_without_arrow(kind, data)
        assert found(kind, data) == Entry(changed, f"{number + 50:032x}")


@pytest.mark.parametrize(
    ("name", "step"),
    in_shard(
        "damage", [*((name, 13) for name in ENTRIES), *((name, 1) for name in ENTRIES)], keep=len(ENTRIES)
    ),
)
def test_a_changed_byte_is_judged_as_arrow_judges_it(name: str, step: int) -> None:
    """Bytes are changed one at a time, under three masks, and the checksum is corrected.

    `make test` changes every 13th byte, the shard changes all.
    """
    kind, nothing_known = knowing(ENTRIES[name]), replace(USER_LOG, known=None)
    data = encode_entry(kind, ENTRIES[name], "a" * 32)
    assert is_read_without_arrow(kind, data)
    for at in range(4, len(data) - 4, step):
        for mask in (1, 2, 0x80):
            changed = bytearray(data)
            changed[at] ^= mask
            whole = resealed(bytes(changed))
            assert found(kind, whole) == found(nothing_known, whole), at


def test_a_wrong_checksum_is_damage() -> None:
    """A wrong checksum is damage, and is found before anything else of the entry is read."""
    kind = knowing(ENTRIES["a batch"])
    data = bytearray(encode_entry(kind, ENTRIES["a batch"], "a" * 32))
    data[100] ^= 1
    with refused(CorruptObjectError, StoreReason.CHECKSUM):
        decode_entry(kind, bytes(data), key=KEY, base_offset=BASE)


@pytest.mark.parametrize("data", [b"", b"PAR1", b"PAR1" + bytes(8) + b"PAR1", b"{}"], ids=len)
def test_what_is_no_entry(data: bytes) -> None:
    """Data that is not an entry is refused just as if no footers were known."""
    assert found(knowing(ENTRIES["a batch"]), data) == found(replace(USER_LOG, known=None), data)


def test_seals_are_seals() -> None:
    """A seal is read as a seal, even if footers of entries are known."""
    kind = knowing(ENTRIES["a batch"])
    for _ in range(3):
        assert decode_entry(kind, encode_seal(kind, "b" * 32), key=KEY, base_offset=BASE).is_seal


def test_an_entry_that_was_refused_teaches_nothing() -> None:
    """An entry that is refused because it belongs in another slot is not remembered, although it has the same
    footer."""
    kind = replace(USER_LOG, known=KnownParquet())
    data = encode_entry(kind, ENTRIES["a batch"], "a" * 32)
    for _ in range(3):
        with pytest.raises(CorruptObjectError):
            decode_entry(kind, data, key=KEY, base_offset=BASE + 1)
    assert not is_read_without_arrow(kind, data)


def test_no_more_than_some_footers_are_kept() -> None:
    """At most 64 footers are remembered; the oldest are forgotten together."""
    kind = replace(USER_LOG, known=KnownParquet())
    for rows in range(1, 80):
        entry = [batch(BASE + at, 1) for at in range(rows)]
        for _ in range(2):
            decode_entry(kind, encode_entry(kind, entry, "a" * 32), key=KEY, base_offset=BASE)
    assert kind.known is not None
    assert 0 < len(kind.known._known) <= 64
