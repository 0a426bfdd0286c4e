"""How a topic has grown: one object after the other, put if absent, the last one's partitions count.

The chain has a second use: programs from before topics could change their columns look at nothing else that could stop
them. So before the first such change an object of a later format is put there, a **gate**, which says that the topic
has as many partitions as before. Those programs refuse the topic from then on, in one line, and do not read its files
by names that have other meanings.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from storage import FORMAT, LATER_FORMAT
from txn_engine.errors import CorruptObjectError
from txn_engine.log.objects import checked_number, decode_json, encode_json
from txn_engine.log.store_config import MAX_PARTITIONS

_KIND: Final = "partitions"


class Growth(NamedTuple):
    """The partitions that a topic has, and whether older programs are kept out."""

    partitions: int
    is_gate: bool


def growth_key(name: str, incarnation: int, number: int) -> str:
    """The object that says how many partitions an incarnation has since it has grown so often."""
    return f"topics/{name}/{incarnation}/partitions/{number:020d}.json"


def encoded_growth(growth: Growth, topic: str, incarnation: int, created_ms: int, write_id: str) -> bytes:
    """The object."""
    fields = {
        "topic": topic,
        "incarnation": incarnation,
        "partitions": growth.partitions,
        "created_ms": created_ms,
        "write_id": write_id,
    }
    if not growth.is_gate:
        return encode_json(fields, _KIND)
    return encode_json({**fields, "gate": True}, _KIND, written_format=LATER_FORMAT)


def decoded_growth(data: bytes, key: str, before: int) -> Growth:
    """What the object says of a topic that had so many partitions before. `CorruptObjectError` for what it cannot."""
    held = decode_json(data, key=key, kind=_KIND, needed=["partitions"], formats=(FORMAT, LATER_FORMAT))
    is_gate = held.get("gate", False)
    if type(is_gate) is not bool:
        raise CorruptObjectError(f"gate {is_gate!r:.40}", place=key, expected="true, or no such field")
    low, high = (before, before) if is_gate else (before + 1, MAX_PARTITIONS)
    return Growth(checked_number(held, "partitions", low, high, key=key), is_gate)
