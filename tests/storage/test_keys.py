from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage import InvalidKeyError, LogKeys, validate_key, validate_name
from storage.keys import validate_prefix
from tests.storage.conformance import ILLEGAL_KEYS, LEGAL_KEYS

OFFSETS = st.integers(0, 2**63 - 1)


@pytest.mark.parametrize("key", LEGAL_KEYS)
def test_legal_keys(key: str) -> None:
    """A legal key comes back as it is."""
    assert validate_key(key) == key


@pytest.mark.parametrize("key", ILLEGAL_KEYS)
def test_illegal_keys(key: str) -> None:
    """An illegal key is refused in one line, however it looks."""
    with pytest.raises(InvalidKeyError) as caught:
        validate_key(key)
    assert "\n" not in str(caught.value)


@given(st.text(max_size=30))
def test_a_legal_key_cannot_leave_the_store(key: str) -> None:
    """A legal key has no empty, dot or dot-dot segment, no backslash, no blank and no control character."""
    try:
        validate_key(key)
    except InvalidKeyError:
        return
    assert all(segment not in ("", ".", "..") for segment in key.split("/"))
    assert key.isascii()
    assert key.isprintable()
    assert "\\" not in key
    assert " " not in key


def test_prefixes() -> None:
    """A prefix is a folder, with or without a slash at its end, or the whole store."""
    assert [validate_prefix(prefix) for prefix in ("", "a", "a/", "a/b/")] == ["", "a/", "a/", "a/b/"]
    for prefix in ("/", "a//", "../", "/a"):
        with pytest.raises(InvalidKeyError):
            validate_prefix(prefix)


@pytest.mark.parametrize("name", ["a", "A.b_c-9", ".hidden", "__internal", "x" * 249, "..."])
def test_legal_names(name: str) -> None:
    """Names that Kafka accepts for a topic are accepted."""
    assert validate_name(name) == name
    validate_key(f"topics/{name}/0.json")


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "a b", "ä", "x" * 250, "a\n", "a+b"])
def test_illegal_names(name: str) -> None:
    """Names that Kafka refuses for a topic are refused."""
    with pytest.raises(InvalidKeyError):
        validate_name(name)


@given(OFFSETS, OFFSETS)
def test_offsets_in_keys(one: int, other: int) -> None:
    """An offset can be read back from its key, and keys sort in the order of their offsets."""
    keys = LogKeys("topics/t/0/3")
    assert keys.parse_entry(keys.entry(one)) == one
    assert keys.parse_snapshot(keys.snapshot(one)) == one
    assert (keys.entry(one) < keys.entry(other)) == (one < other)
    assert keys.entry(one).startswith(keys.log_prefix)
    assert keys.snapshot(one).startswith(keys.snapshots_prefix)


def test_layout() -> None:
    """The keys of a log directory are exactly these."""
    keys = LogKeys("topics/t/0/3")
    assert keys.entry(118) == "topics/t/0/3/log/00000000000000000118.parquet"
    assert keys.snapshot(7) == "topics/t/0/3/snapshots/00000000000000000007.parquet"
    assert keys.data("x-1.parquet") == "topics/t/0/3/data/x-1.parquet"
    assert keys.data_prefix == "topics/t/0/3/data/"
    assert keys.parse_entry("00000000000000000118.parquet") == 118


@pytest.mark.parametrize(
    "key",
    ["", "118.parquet", "topics/t/0/3/log/118.parquet", "topics/t/0/3/log/00000000000000000118",
     "topics/t/0/3/log/0000000000000000011x.parquet", "topics/t/0/3/snapshots/00000000000000000118.parquet",
     "topics/t/0/3/log/99999999999999999999.parquet", "topics/t/0/3/log/00000000000000000118.parquet\n"],
)  # fmt: skip
def test_foreign_entries(key: str) -> None:
    """A key that is not an entry's is refused, not read as some offset."""
    with pytest.raises(InvalidKeyError):
        LogKeys("topics/t/0/3").parse_entry(key)


@pytest.mark.parametrize("offset", [-1, 2**63])
def test_offsets_out_of_range(offset: int) -> None:
    """An offset outside 0 to 2^63-1 is refused."""
    with pytest.raises(InvalidKeyError):
        LogKeys("p").entry(offset)


def test_data_names_are_one_segment() -> None:
    """A data file's name cannot lead out of its folder."""
    for name in ("", "a/b", "..", "../log/x"):
        with pytest.raises(InvalidKeyError):
            LogKeys("p").data(name)
