"""The auditor's own check of an object's bytes agrees with the writer's, and finds every changed byte."""

from __future__ import annotations

import json
from collections.abc import Callable

import pyarrow as pa
import pytest

from storage import (
    LARGE,
    SMALL,
    DamagedObjectError,
    StorageError,
    UnknownFormatError,
    checksum_of,
    encode_json,
    encode_parquet,
)
from storage.envelope import ParquetProfile
from storage.reasons import StoreReason
from tests.verify.story import healthy
from txn_engine.verify.checksums import check_json, check_parquet

KEY = "a/key"


def checked(data: bytes, part_bytes: int = 1 << 20) -> str:
    def part(start: int, length: int) -> bytes:
        assert start >= 0
        assert start + length <= len(data)
        return data[start : start + length]

    return check_parquet(part, len(data), KEY, part_bytes=part_bytes).checksum


@pytest.mark.parametrize("part_bytes", [1, 7, 64, 1 << 20])
@pytest.mark.parametrize("profile", [SMALL, LARGE])
def test_writer_and_auditor_agree(part_bytes: int, profile: ParquetProfile) -> None:
    """Two implementations compute the same checksum, however the object was written and however it is
    divided."""
    table = pa.table({"n": list(range(50)), "text": ["txn_engine.checksum"] * 50})
    data = encode_parquet(table, kind="data", metadata={"write_id": "w"}, profile=profile)
    assert checked(data, part_bytes) == checksum_of(data, KEY)


def test_every_object_of_a_ledger_agrees() -> None:
    """Both agree on the entries, data files, snapshots and JSON objects of a ledger."""
    store = healthy().ledger.store
    for info in store.list(""):
        data = store.get(info.key)
        if info.key.endswith(".json"):
            fields = json.loads(data)
            assert check_json(data, info.key, fields["kind"]).keys() == fields.keys() - {
                "kind",
                "format",
                "checksum",
            }
        else:
            assert checked(data) == checksum_of(data, info.key)


@pytest.mark.parametrize("what", ["entry", "data file", "snapshot"])
def test_every_byte_of_an_object_counts(what: str) -> None:
    """An object in which any one byte is changed, or whose end is cut off anywhere, is refused."""
    story = healthy()
    key = {
        "entry": story.entry("payments", 1, 3),
        "data file": story.path("payments/0/plain"),
        "snapshot": f"topics/payments/0/0/snapshots/{12:020d}.parquet",
    }[what]
    whole = story.ledger.store.get(key)
    checked(whole)
    for at in range(len(whole)):
        for mask in (1, 0xFF):
            changed = bytearray(whole)
            changed[at] ^= mask
            with pytest.raises(DamagedObjectError) as refused:
                checked(bytes(changed))
            assert refused.value.place == KEY
    for cut in (*(whole[:at] for at in range(0, len(whole), 7)), whole[1:], whole + b"x", b"{}" + whole):
        with pytest.raises(DamagedObjectError) as refused:
            checked(cut)
        assert refused.value.place == KEY


def test_every_byte_of_a_json_object_counts() -> None:
    data = encode_json({"a": 1, "deeper": {"checksum": "0" * 32, "list": ["x"]}}, "thing")
    assert check_json(data, KEY, "thing") == {"a": 1, "deeper": {"checksum": "0" * 32, "list": ["x"]}}
    for at in range(len(data)):
        for mask in (1, 0x20, 0xFF):
            changed = bytearray(data)
            changed[at] ^= mask
            with pytest.raises(StorageError) as refused:
                check_json(bytes(changed), KEY, "thing")
            assert refused.value.place == KEY
        with pytest.raises(DamagedObjectError) as refused:
            check_json(data[:at], KEY, "thing")
        assert refused.value.place == KEY


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda data: data.replace(b'"a": 1', b'"a": 2'), StoreReason.CHECKSUM),
        (lambda _: b'{"a": 1}', StoreReason.NO_CHECKSUM),
    ],
)
def test_a_changed_json_object_and_one_without_checksum_differ(
    change: Callable[[bytes], bytes], reason: StoreReason
) -> None:
    """The auditor distinguishes changed bytes from bytes that this program never wrote."""
    with pytest.raises(DamagedObjectError) as refused:
        check_json(change(encode_json({"a": 1}, "thing")), KEY, "thing")
    assert refused.value.reason is reason


def test_a_json_object_of_another_kind_or_format_is_refused() -> None:
    """A sound object of another kind, or in a format of a later version, is refused."""
    with pytest.raises(DamagedObjectError) as refused:
        check_json(encode_json({}, "thing"), KEY, "other")
    assert refused.value.reason is StoreReason.OTHER_KIND
    with pytest.raises(UnknownFormatError):
        check_json(_of_format_3(), KEY, "thing")


def _of_format_3() -> bytes:
    """A sound object of a format that does not exist yet."""
    import xxhash

    blank = encode_json({}, "thing").replace(b'"format": 2', b'"format": 3')
    at = blank.index(b'"checksum": "') + len(b'"checksum": "')
    zeros = blank[:at] + b"0" * 32 + blank[at + 32 :]
    return blank[:at] + xxhash.xxh3_128_hexdigest(zeros).encode() + blank[at + 32 :]
