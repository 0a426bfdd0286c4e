"""What a topic's owner changes after it was made (docs/FORMAT.md): one chain of objects.

Each says all settings, and of the schema what is other than before.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from storage import FORMAT, LATER_FORMAT
from txn_engine.configs import TOPIC, Value
from txn_engine.errors import CorruptObjectError
from txn_engine.log.objects import checked_number, decode_json, encode_json
from txn_engine.log.settings_format import decoded_settings
from txn_engine.protocol.log_time import bounded_time

CHANGES_FOLDER: Final = "changes"
_KIND: Final = "topic_change"
_INT64_MAX: Final = 2**63 - 1


@dataclass(frozen=True, slots=True)
class TopicChange:
    """Change `number` of a topic: its settings since then, all of them. `schema`: as the object has it (`schema_format`
    reads it), None where the topic's own object still holds.
    """

    number: int
    created_ms: int
    settings: Mapping[str, Value]
    schema: Mapping[str, Any] | None = None


def change_key(topic: str, incarnation: int, number: int) -> str:
    """The object that says what an incarnation is since it was changed so often before."""
    return f"topics/{topic}/{incarnation}/{CHANGES_FOLDER}/{number:020d}.json"


def encoded_change(change: TopicChange, topic: str, incarnation: int, write_id: str) -> bytes:
    """The object."""
    return encode_json(
        {
            "topic": topic,
            "incarnation": incarnation,
            "number": change.number,
            "created_ms": change.created_ms,
            "settings": dict(change.settings),
            "schema": change.schema,
            "write_id": write_id,
        },
        _KIND,
        written_format=FORMAT if change.schema is None else LATER_FORMAT,
    )


def decoded_change(data: bytes, key: str, topic: str, incarnation: int, number: int) -> TopicChange:
    """The change that the object says. `CorruptObjectError` for what no writer leaves under this key."""
    needed = ("topic", "incarnation", "number", "created_ms", "settings", "schema", "write_id")
    held = decode_json(data, key=key, kind=_KIND, needed=needed, formats=(FORMAT, LATER_FORMAT))
    seen = (held["topic"], held["incarnation"], held["number"])
    if seen != (topic, incarnation, number) or any(isinstance(each, bool) for each in seen):
        raise CorruptObjectError(
            f"change {seen[2]!r:.80} of topic {seen[0]!r:.80}, incarnation {seen[1]!r:.80}",
            place=key,
            expected=f"change {number} of topic {topic!r}, incarnation {incarnation}",
        )
    created_ms = bounded_time(checked_number(held, "created_ms", 0, _INT64_MAX, key=key))
    schema = held["schema"]
    if not isinstance(schema, dict | None):
        raise CorruptObjectError(f"schema {schema!r:.80}", place=key, expected="null, or fields")
    return TopicChange(number, created_ms, decoded_settings(held["settings"], TOPIC, key), schema)
