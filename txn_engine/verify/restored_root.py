"""Where a store is in its place: a restored one is in a folder that its `store.json` names (docs/FORMAT.md)."""

from __future__ import annotations

import json
import re
from typing import Final

from storage import JSON_BYTES_MAX, ObjectNotFoundError, ObjectStore, OversizedObjectError, store_below

_ROOT: Final = re.compile(r"restored/[0-9a-f]{32}")


def store_within(place: ObjectStore) -> ObjectStore:
    """The store that is at the place. Where its `store.json` cannot be read that is the place, and a finding later."""
    try:
        held = json.loads(place.get("store.json", max_bytes=JSON_BYTES_MAX))
    except (ObjectNotFoundError, OversizedObjectError, ValueError, RecursionError):
        return place
    root = held.get("root") if isinstance(held, dict) else None
    if not isinstance(root, str) or _ROOT.fullmatch(root) is None:
        return place
    return store_below(place, root)


def is_root(store: ObjectStore) -> bool:
    """Whether the store is in the folder of a restored one."""
    return re.search(rf"/{_ROOT.pattern}/?$", store.url) is not None
