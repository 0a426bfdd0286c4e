"""Keys that do not belong to the format are named, counted and escaped, and none of them is called damage."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from storage import AccessDeniedError, LocalStore, MemoryStore, ObjectInfo
from tests.verify.story import Story, healthy
from txn_engine.verify import Finding, verify_store
from txn_engine.verify.findings import LISTED_MAX
from txn_engine.verify.store_keys import foreign_part, survey_keys

OFFSET, ID = f"{7:020d}", "0123456789abcdef" * 2
LARGEST = f"{2**63 - 1:020d}"
NAME = f"{OFFSET}-p-1-e-1-{ID}.parquet"
LOG = "topics/payments/0/0"
INTERNAL = "topics/__consumer_offsets/0/49"

OURS = (
    "store.json",
    f"producer_ids/{OFFSET}.json",
    f"probes/clock-{ID}",
    f"probes/{ID}/taken",
    f"probes/{ID}/race",
    "topics/payments/0.json",
    "topics/a.b-c_D/999999999.json",
    "topics/.../0.json",
    f"topics/{'x' * 249}/0.json",
    f"topics/payments/0/partitions/{OFFSET}.json",
    f"{LOG}/log/{OFFSET}.parquet",
    f"{LOG}/log/{LARGEST}.parquet",
    f"{LOG}/snapshots/{OFFSET}.parquet",
    f"{LOG}/data/{NAME}",
    f"{LOG}/data/{OFFSET}-p{2**63 - 1}-e32767-{ID}.parquet",
    f"{INTERNAL}/log/{OFFSET}.parquet",
    f"{INTERNAL}/snapshots/{OFFSET}.parquet",
    f"topics/__transaction_state/0/0/log/{OFFSET}.parquet",
)

FOREIGN = {
    # key: what of it is named
    "a file": "a file",
    ".DS_Store": ".DS_Store",
    "store.json.bak": "store.json.bak",
    "store_json": "store_json",
    "store.json/x": "store.json/",
    "lost+found/x": "lost+found/",
    "producer_ids/zzz.json": "producer_ids/zzz.json",
    f"producer_ids/{OFFSET}.json/x": f"producer_ids/{OFFSET}.json/",
    f"producer_ids/2/{OFFSET}.json": "producer_ids/2/",
    f"probes/{ID}/other": f"probes/{ID}/other",
    "topics": "topics",
    "topics/a file": "topics/a file",
    "topics/.DS_Store": "topics/.DS_Store",
    "topics/a b/log/x": "topics/a b/",
    "topics/@eaDir/payments/x": "topics/@eaDir/",
    "topics/../0.json": "topics/../",
    f"topics/{'x' * 250}/0.json": f"topics/{'x' * 250}/",
    "topics/__mine/0.json": "topics/__mine/",
    "topics/__transaction_state/0.json": "topics/__transaction_state/0.json",
    f"{INTERNAL}/data/{NAME}": f"{INTERNAL}/data/",
    "topics/payments/0.json.bak": "topics/payments/0.json.bak",
    "topics/payments/00.json": "topics/payments/00.json",
    "topics/payments/a b/x": "topics/payments/a b/",
    "topics/payments/00/0/log/x": "topics/payments/00/",
    "topics/payments/0/0": "topics/payments/0/0",
    "topics/payments/0/partitions/x": "topics/payments/0/partitions/x",
    f"{LOG}/snapshots": f"{LOG}/snapshots",
    f"{LOG}/notes/x": f"{LOG}/notes/",
    f"{LOG}/log/notes.txt": f"{LOG}/log/notes.txt",
    f"{LOG}/log/{OFFSET}.parquet.tmp": f"{LOG}/log/{OFFSET}.parquet.tmp",
    f"{LOG}/log/{2**63:020d}.parquet": f"{LOG}/log/{2**63:020d}.parquet",
    f"{LOG}/log/@eaDir/{OFFSET}.parquet": f"{LOG}/log/@eaDir/",
    f"{LOG}/data/{NAME.upper()}": f"{LOG}/data/{NAME.upper()}",
    f"{LOG}/data/{NAME}\n": f"{LOG}/data/{NAME}\n",
    f"{LOG}/snapshots/copy of {OFFSET}.parquet": f"{LOG}/snapshots/copy of {OFFSET}.parquet",
}


class Listed(MemoryStore):
    """A store that also lists keys that no call of ours could have put."""

    def __init__(self, held: MemoryStore, foreign: list[str]) -> None:
        super().__init__()
        self._shelf = held._shelf
        self._foreign = [ObjectInfo(key, 1, 0) for key in foreign]

    def list(self, prefix: str, *, start_after: str | None = None) -> Iterator[ObjectInfo]:
        yield from super().list(prefix, start_after=start_after)
        yield from (info for info in self._foreign if not prefix)


class NotListed(MemoryStore):
    """A store that refuses to list these folders."""

    def __init__(self, held: MemoryStore, *folders: str) -> None:
        super().__init__()
        self._shelf = held._shelf
        self._refused = folders

    def list(self, prefix: str, *, start_after: str | None = None) -> Iterator[ObjectInfo]:
        if prefix.rstrip("/") in self._refused:
            raise AccessDeniedError("list failed: 403", place=prefix, action="check the policy")
        return super().list(prefix, start_after=start_after)


def foreign_of(findings: tuple[Finding, ...]) -> dict[str, str]:
    assert {(found.code, found.severity) for found in findings} <= {("object-foreign", "warning")}, findings
    return {found.object: found.seen for found in findings}


@pytest.mark.parametrize("key", OURS)
def test_keys_of_the_format(key: str) -> None:
    """Each form of key in docs/FORMAT.md is accepted, at its bounds."""
    assert foreign_part(key) is None


@pytest.mark.parametrize(("key", "named"), FOREIGN.items())
def test_keys_of_nobody(key: str, named: str) -> None:
    """A foreign key is named, or the topmost folder on its path that the format does not have."""
    assert foreign_part(key) == named


def test_what_a_store_has_is_its_own() -> None:
    """No key of a healthy ledger is foreign."""
    ledger = healthy().ledger
    assert list(filter(foreign_part, ledger.keys())) == []


def test_all_of_them_are_named_once() -> None:
    """All foreign keys or folders are named once, with their number of objects. The store is sound all the
    same."""
    story = healthy()
    few = dict(list(FOREIGN.items())[: LISTED_MAX - 1])
    report = verify_store(Listed(story.ledger.store, [*few, "lost+found/y"]))
    found = foreign_of(report.findings)
    assert set(found) == set(few.values())
    assert found["lost+found/"] == "objects below it: 2"
    assert report.ok
    assert report.stats.foreign_objects == len(few) + 1
    assert report.stats.findings_not_listed == 0


def test_of_many_twenty_are_named_and_all_are_counted() -> None:
    """Of 5,000 foreign keys a few are named and all are counted, so neither the report nor memory grows with
    them."""
    story = healthy()
    report = verify_store(Listed(story.ledger.store, [f"topics/{number:05d}.bak" for number in range(5_000)]))
    assert len(foreign_of(report.findings)) == LISTED_MAX
    assert report.stats.foreign_objects == 5_000
    assert report.stats.findings_not_listed == 5_000 - LISTED_MAX


def test_their_names_are_escaped() -> None:
    """A foreign key may move a cursor or not be text at all, so it is shown escaped."""
    story = healthy()
    report = verify_store(Listed(story.ledger.store, ["a\x1b[31m\nb", "not-utf-8-\udcff/x"]))
    assert set(foreign_of(report.findings)) == {r"a\x1b[31m\nb", r"not-utf-8-\udcff/"}
    assert all(str(found).isprintable() for found in report.findings)


def test_a_root_that_may_not_be_listed_is_said_once() -> None:
    """If the root may not be listed, the audit says so once. It names foreign keys below the format's own
    folders all the same."""
    story = healthy()
    story.ledger.store.put("topics/payments/0/0/log/notes.txt", b"x")
    store = NotListed(story.ledger.store, "")
    report = verify_store(store)
    assert {(found.code, found.severity, found.object) for found in report.findings} == {
        ("keys-not-listed", "warning", "/"),
        ("object-foreign", "warning", "topics/payments/0/0/log/notes.txt"),
    }
    assert "403" in next(found.seen for found in report.findings if found.code == "keys-not-listed")
    assert report.stats.foreign_objects == 1
    assert report.ok


def test_a_listing_may_end_early() -> None:
    """A listing may stop after a number of objects and say that there are more, as `doctor` needs it."""
    store = healthy().ledger.store
    all_of_them = len(list(store.list("")))
    assert survey_keys(store, most=all_of_them).complete
    survey = survey_keys(store, most=all_of_them - 1)
    assert (survey.complete, survey.objects) == (False, all_of_them - 1)


def test_damage_behind_foreign_keys_is_found() -> None:
    """Foreign keys in logs, snapshots, growths and blocks hide no damage."""
    story: Story = healthy()
    for key in (f"{LOG}/log/a", f"{LOG}/snapshots/z", "topics/payments/0/partitions/x", "producer_ids/x"):
        story.ledger.store.put(key, b"x")
    story.ledger.store.delete(story.entry("payments", 0, 3))
    codes = [found.code for found in verify_store(story.ledger.store).findings]
    assert sorted(codes) == ["entry-missing", *["object-foreign"] * 4]


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everywhere")
def test_an_unreadable_folder_in_the_root(tmp_path: Path) -> None:
    """A folder in the root that cannot be read, like a disk's `lost+found`, is named in one line, and
    everything else is audited."""
    root = tmp_path / "ledger"
    store = LocalStore(root)
    held = healthy().ledger.store
    for info in held.list(""):
        store.put(info.key, held.get(info.key))
    (root / "lost+found").mkdir(mode=0)
    (root / "topics" / "a file").write_bytes(b"x")
    findings = verify_store(store).findings
    assert {found.code for found in findings} == {"keys-not-listed", "object-foreign"}
    assert "lost+found" in next(found.seen for found in findings if found.code == "keys-not-listed")


@pytest.mark.parametrize("folder", ["topics", "topics/payments/0", LOG, f"{LOG}/snapshots", "producer_ids"])
def test_a_file_for_a_folder(tmp_path: Path, folder: str) -> None:
    """A file in the place of a folder is one error that names it, and everything else is audited."""
    store = LocalStore(tmp_path / "ledger")
    held = healthy().ledger.store
    for info in held.list(""):
        if not info.key.startswith(f"{folder}/"):
            store.put(info.key, held.get(info.key))
    (tmp_path / "ledger" / folder).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / "ledger" / folder).write_bytes(b"x")
    findings = verify_store(store).findings
    assert any(
        found.code == "object-damaged"
        and found.object.startswith(folder)
        and found.seen == "a file stands there"
        for found in findings
    ), [str(found) for found in findings]
    assert "object-foreign" not in {found.code for found in findings}
