"""What tests of many folders do with a whole store: copy it, and ask an engine on it what is there."""

from __future__ import annotations

from storage import MemoryStore, ObjectStore
from txn_engine import Engine
from txn_engine.types import IsolationLevel


def copy_of(store: ObjectStore, into: MemoryStore | None = None) -> MemoryStore:
    """Copy all objects into this store, or into a store in memory of its own. Returns the copy."""
    copy = MemoryStore() if into is None else into
    for info in store.list(""):
        copy.put(info.key, store.get(info.key))
    return copy


def accounts_in(
    engine: Engine, topic: str = "payments", isolation_level: IsolationLevel = "read_committed"
) -> list[int]:
    """The accounts of the records that a fresh reader sees, sorted."""
    table = engine.scan(topic, isolation_level=isolation_level).to_table(["account_id"])
    return sorted(table.column("account_id").to_pylist())


def states(engine: Engine) -> dict[str, str]:
    """The state of each transactional id."""
    return {listing.transactional_id: listing.state for listing in engine.admin.list_transactions()}


def assert_sound(engine: Engine) -> None:
    """The auditor finds nothing wrong."""
    report = engine.admin.verify()
    assert report.ok, [str(finding) for finding in report.findings]
