"""An object or folder that the store refuses is a finding. A store that does not answer is an error."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from storage import AccessDeniedError, BucketNotFoundError, StoreUnreachableError
from storage.errors import ArchivedObjectError, StorageError
from tests.support.faults import FaultyStore, raising
from tests.verify.story import Story, healthy
from txn_engine.verify import verify_store

REFUSALS = {
    "access": AccessDeniedError,
    "a bad sector": StorageError,
    "an archive": ArchivedObjectError,
}
OBJECTS: dict[str, Callable[[Story], str]] = {
    "entry": lambda story: story.entry("payments", 0, 3),
    "first entry": lambda story: story.entry("payments", 0, 0),
    "last entry": lambda story: max(story.ledger.keys("topics/payments/0/0/log/")),
    "data file": lambda story: story.path("payments/0/first"),
    "snapshot": lambda story: max(story.ledger.keys("topics/payments/0/0/snapshots/")),
    "topic": lambda story: "topics/payments/0.json",
    "block of ids": lambda story: min(story.ledger.keys("producer_ids/")),
    "coordinator entry": lambda story: story.entry("__transaction_state", story.load_home, 0),
    "group entry": lambda story: story.entry("__consumer_offsets", story.group_home, 0),
}


def refusing(story: Story, place: str, kind: type[StorageError]) -> FaultyStore:
    """The ledger in a store that refuses one object or folder."""
    return FaultyStore(
        story.ledger.store,
        decide=lambda _, key, __: "before" if key.rstrip("/") == place else None,
        error=raising(kind, "no"),
    )


@pytest.mark.parametrize("kind", REFUSALS.values(), ids=REFUSALS)
@pytest.mark.parametrize("key_of", OBJECTS.values(), ids=OBJECTS)
def test_an_object_that_is_not_given_is_named(
    key_of: Callable[[Story], str], kind: type[StorageError]
) -> None:
    """A refused object is named, and everything else is judged: damage in another place is found as well."""
    story = healthy()
    key, elsewhere = key_of(story), story.path("balances/0/first")
    story.ledger.store.put(elsewhere, b"garbage")
    report = verify_store(refusing(story, key, kind))
    assert {key, elsewhere} <= {found.object for found in report.findings if found.severity == "error"}
    (seen, *_) = [found.seen for found in report.findings if found.object == key]
    assert "no: get" in seen
    assert ("archive" in seen) is (kind is ArchivedObjectError)


@pytest.mark.parametrize("kind", REFUSALS.values(), ids=REFUSALS)
@pytest.mark.parametrize(
    "folder", ["topics/payments", "topics/payments/0/0/log", "topics/payments/0/0/data", "producer_ids"]
)
def test_a_folder_that_is_not_listed_is_named(folder: str, kind: type[StorageError]) -> None:
    """A folder that may not be listed is named, and everything else is judged."""
    story = healthy()
    elsewhere = story.path("balances/0/first")
    story.ledger.store.put(elsewhere, b"garbage")
    report = verify_store(refusing(story, folder, kind))
    errors = {found.object.rstrip("/") for found in report.findings if found.severity == "error"}
    assert {folder, elsewhere} <= errors


@pytest.mark.parametrize("kind", REFUSALS.values(), ids=REFUSALS)
def test_a_root_that_is_not_listed_is_named(kind: type[StorageError]) -> None:
    """If the root may not be listed, foreign keys there are unknown, and everything of the format is
    judged."""
    story = healthy()
    elsewhere = story.path("balances/0/first")
    story.ledger.store.put(elsewhere, b"garbage")
    report = verify_store(refusing(story, "", kind))
    assert "keys-not-listed" in {found.code for found in report.findings}
    assert elsewhere in {found.object for found in report.findings}


@pytest.mark.parametrize("kind", [StoreUnreachableError, BucketNotFoundError])
@pytest.mark.parametrize(
    "place", ["topics/payments/0/0/log/00000000000000000003.parquet", "topics/payments", "producer_ids", ""]
)
def test_a_store_that_does_not_answer_is_an_error(place: str, kind: type[StorageError]) -> None:
    """A store that does not answer is an error, because that says nothing about the object."""
    with pytest.raises(kind):
        verify_store(refusing(healthy(), place, kind))


@pytest.mark.parametrize(
    ("place", "kind"),
    [
        *((place, kind) for place in ("store.json", "topics") for kind in (AccessDeniedError, StorageError)),
        ("store.json", ArchivedObjectError),  # a listing shows what is in an archive, too
    ],
)
def test_a_store_that_gives_nothing_is_an_error(place: str, kind: type[StorageError]) -> None:
    """If store.json or all topics are refused, the audit is an error, because wrong credentials are not
    damage."""
    with pytest.raises(kind):
        verify_store(refusing(healthy(), place, kind))
