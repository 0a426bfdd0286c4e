"""The two hashes whose results are part of the format: where an id's rows live, and where a key's records go."""

from __future__ import annotations

from functools import lru_cache

_MASK = 0xFFFFFFFF


def java_hash(text: str) -> int:
    """Java's `String.hashCode`: over UTF-16 units, a signed 32-bit int."""
    value = 0
    units = text.encode("utf-16-be", "surrogatepass")
    for index in range(0, len(units), 2):
        value = (31 * value + (units[index] << 8 | units[index + 1])) & _MASK
    return value - (1 << 32) if value & 0x80000000 else value


@lru_cache(maxsize=4_096)
def partition_for_id(name: str, partitions: int) -> int:
    """The partition of `__transaction_state` or `__consumer_offsets` that keeps an id (Kafka's `Utils.abs`).

    The absolute value of the smallest int is 0, as in Kafka, not itself, as in Java.
    """
    value = java_hash(name)
    return (0 if value == -(1 << 31) else abs(value)) % partitions


def murmur2(data: bytes) -> int:
    """Kafka's murmur2 (`Utils.murmur2`), a signed 32-bit int. The producer's vectorised one is tested against this."""
    mix = 0x5BD1E995
    length = len(data)
    value = (0x9747B28C ^ length) & _MASK
    for start in range(0, length - length % 4, 4):
        word = int.from_bytes(data[start : start + 4], "little")
        word = word * mix & _MASK
        word = (word ^ word >> 24) * mix & _MASK
        value = (value * mix & _MASK) ^ word
    tail = data[length - length % 4 :]
    if tail:
        value = (value ^ int.from_bytes(tail, "little")) * mix & _MASK
    value = (value ^ value >> 13) * mix & _MASK
    value ^= value >> 15
    return value - (1 << 32) if value & 0x80000000 else value


def partition_for_key(key: bytes, partitions: int) -> int:
    """The partition of a record with this key, as Kafka's default partitioner chooses it."""
    return (murmur2(key) & 0x7FFFFFFF) % partitions
