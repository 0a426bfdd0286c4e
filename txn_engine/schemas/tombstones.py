"""Which columns make a record a tombstone, in a topic that is compacted."""

from __future__ import annotations

from typing import Final

from txn_engine.schemas.layout import Layout

KAFKA_NAMES: Final = ("key", "value", "headers")


def tombstone_columns(layout: Layout, key: str | None) -> tuple[str, ...]:
    """The columns that are null in a tombstone, all of them; none where the topic can have no tombstones.

    With Kafka's columns its value; with others all but the key.
    """
    if tuple(each.name for each in layout.columns) == KAFKA_NAMES:
        return ("value",)
    others = [each for each in layout.columns if each.name != key]
    return tuple(each.name for each in others) if all(each.nullable for each in others) else ()


def same_tombstones(before: Layout, after: Layout, key: str | None) -> bool:
    """Whether a record that was written under the one is a tombstone under the other exactly if it was one."""
    was = {before.by_name[name].id for name in tombstone_columns(before, key)}
    now = {after.by_name[name].id for name in tombstone_columns(after, key)}
    added = {each.id for each in after.columns if each.id >= before.next_id}
    filled = any(after.by_id[number].default is not None for number in now & added)
    if was:
        return now - added == was and not filled
    never_null = any(not before.by_id[number].nullable for number in now - added)
    return not now or filled or never_null
