"""Whether a layout can have come of another one: what is read of a store is not believed."""

from __future__ import annotations

from txn_engine.schemas.layout import Column, Layout, owners_of
from txn_engine.schemas.widening import is_widening


def difference(before: Layout, after: Layout) -> str | None:
    """Why no change, nor several, make the one of the other; None where they may have."""
    # not the layouts' own, which they keep: of a thousand versions that is too much
    was = {each.id: each for each in before.columns}
    ids, names = {each.id for each in after.columns}, {each.name for each in after.columns}
    if after.version != before.version + 1 or after.next_id < before.next_id or not after.columns:
        return f"version {after.version} with ids below {after.next_id}, behind {before.version} below {before.next_id}"
    if len(ids) < len(after.columns) or len(names) < len(after.columns):
        return "a column twice"
    for column in after.columns:
        if was.get(column.id) is column:
            continue
        seen = _difference(was.get(column.id), column, before, after)
        if seen is not None:
            return seen
    for name, owner in after.retired:
        if name in names or not 0 < owner < after.next_id:
            return f"the retired name {name!r:.80}, of column {owner}"
    owners = owners_of(after)
    for name, owner in owners_of(before).items():
        if owners.get(name) != owner:
            return f"the name {name!r:.80}, which was column {owner}'s"
    return None


def _difference(was: Column | None, now: Column, before: Layout, after: Layout) -> str | None:
    if was is None:
        is_new = before.next_id <= now.id < after.next_id
        return None if is_new else f"column {now.name!r:.80} with the id {now.id}"
    if was.inside != now.inside or (was.nullable and not now.nullable):
        return f"column {now.name!r:.80}, which is another than it was"
    if was.type != now.type and not is_widening(was.type, now.type):
        return f"column {now.name!r:.80} of type {now.type}, which was {was.type}"
    return None
