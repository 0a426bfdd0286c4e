"""`verify` names every difference between an Iceberg table and the log at its cut, and nothing sound."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from itertools import count
from typing import Any

import pytest
import xxhash
from pyiceberg.manifest import DataFile, ManifestEntry, ManifestEntryStatus

from storage import MemoryStore
from tests.tables.ledgers import EAGER, SCHEMA, engine_on
from tests.tables.test_iceberg import METADATA, append, metadata, publish, versions
from txn_engine import Engine
from txn_engine.tables.iceberg.keys import avro_key
from txn_engine.tables.iceberg.manifests import Manifests
from txn_engine.tables.iceberg.metadata import encoded_seal
from txn_engine.verify.avro import avro_records
from txn_engine.verify.descriptors import MalformedError

_STORES = count()


@pytest.fixture
def engine() -> Iterator[Engine]:
    """A table of three versions: two that append and one that merges."""
    with engine_on(MemoryStore(f"iceberg-audit-{next(_STORES)}")) as engine:
        engine.admin.create_topic("payments", partitions=2, schema=SCHEMA, key="account")
        append(engine, 1)
        publish(engine)
        append(engine, 2, partition=1)
        append(engine, 3)
        publish(engine)
        engine.maintenance.compact(policy=EAGER)
        publish(engine)
        yield engine


def findings(engine: Engine) -> list[tuple[str, str, str]]:
    return [(found.code, found.object, found.seen) for found in engine.admin.verify().findings]


def key(version: int) -> str:
    return f"{METADATA}v{version}.metadata.json"


def changed(engine: Engine, version: int, change: Callable[[dict[str, Any]], object]) -> str:
    """A version's metadata after a change, with a correct checksum."""
    fields = metadata(engine, version)
    change(fields)
    fields["properties"]["txn-engine.checksum"] = "0" * 32
    text = json.dumps(fields, separators=(",", ":"))
    engine.store.put(key(version), text.replace("0" * 32, xxhash.xxh3_128_hexdigest(text.encode())).encode())
    return key(version)


def test_a_sound_table_is_sound(engine: Engine) -> None:
    assert findings(engine) == []


CHANGES: dict[str, tuple[Callable[[dict[str, Any]], object], str]] = {
    "open to writers": (lambda said: said["properties"].update({"gc.enabled": "true"}), "others may write"),
    "without a guard": (lambda said: said["properties"].pop("write.metadata.path"), "others may write"),
    "another format": (lambda said: said.update({"format-version": 3}), "format 3"),
    "another snapshot": (lambda said: said.update({"current-snapshot-id": 1}), "current snapshot 1"),
    "ids exchanged": (
        lambda said: [
            field.update(id=number)
            for field, number in zip(said["schemas"][0]["fields"], (2, 1), strict=False)
        ],
        "columns {'account': (2, 'long', True), 'amount': (1,",
    ),
    "another type": (
        lambda said: said["schemas"][0]["fields"][1].update(type="decimal(20, 2)"),
        "'amount': (2, 'decimal(20, 2)'",
    ),
    "never null": (lambda said: said["schemas"][0]["fields"][1].update(required=True), "'amount': (2,"),
    "another order": (lambda said: said["schemas"][0]["fields"].reverse(), "columns {'log_base_offset'"),
    "a schema that the topic never had": (
        lambda said: said["schemas"].append({**said["schemas"][0], "schema-id": 1}),
        "schema 1",
    ),
    "another schema": (lambda said: said.update({"current-schema-id": 1}), "schema 1"),
    "a snapshot of no schema": (
        lambda said: said["snapshots"][0].update({"schema-id": 3}),
        "snapshots of the schemas [3, 0, 0]",
    ),
    "other totals": (
        lambda said: said["snapshots"][-1]["summary"].update({"total-records": "9"}),
        "9 records, 2 files",
    ),
    "another operation": (
        lambda said: said["snapshots"][-1]["summary"].update({"operation": "append"}),
        "snapshot 3 (append)",
    ),
    "an operation of no name": (
        lambda said: said["snapshots"][-1]["summary"].update({"operation": "tidy"}),
        "an operation of no such name",
    ),
}


@pytest.mark.parametrize("change", CHANGES)
def test_metadata_that_says_something_else(engine: Engine, change: str) -> None:
    how, said = CHANGES[change]
    place = changed(engine, 3, how)
    found = findings(engine)
    assert {(code, where) for code, where, _ in found} == {("table-differs", place)}
    assert said in found[0][2]


def test_a_version_that_goes_back(engine: Engine) -> None:
    def earlier(said: dict[str, Any]) -> None:
        said["properties"]["txn-engine.at"] = metadata(engine, 1)["properties"]["txn-engine.at"]

    place = changed(engine, 3, earlier)
    assert ("table-differs", place, "cut 0") in findings(engine)


@pytest.mark.parametrize(
    ("data", "said"),
    [(b"{}", "checksum"), (b"\xff", "utf-8"), (b'{"a": ' * 5_000, "recursion"), (b"[]", "checksum")],
)
def test_metadata_that_is_not_ours(engine: Engine, data: bytes, said: str) -> None:
    engine.store.put(key(4), data)
    ((code, where, seen),) = findings(engine)
    assert (code, where) == ("table-foreign", key(4))
    assert said in seen.lower()


def test_metadata_of_another_store(engine: Engine) -> None:
    changed(engine, 3, lambda said: said["properties"].update({"txn-engine.store-id": "another"}))
    ((code, where, _),) = findings(engine)
    assert (code, where) == ("table-foreign", key(3))


def test_a_version_that_is_missing(engine: Engine) -> None:
    engine.store.delete(key(2))
    assert ("object-missing", key(2), "no such object, and a version 2") in findings(engine)


def test_seals_are_old(engine: Engine) -> None:
    """A seal over an old version is sound. A seal over the newest version is damage."""
    engine.store.put(key(1), encoded_seal(0))
    assert findings(engine) == []
    engine.store.put(key(3), encoded_seal(2))
    assert ("table-broken", key(3), "a seal") in findings(engine)


def test_a_pin_that_is_missing(engine: Engine) -> None:
    for info in list(engine.store.list("topics/payments/0/published/iceberg/")):
        engine.store.delete(info.key)
    assert findings(engine) == [("table-unpinned", key(3), "no pin at cut 2")]


@pytest.mark.parametrize("kind", ["list", "manifest"])
@pytest.mark.parametrize("damage", ["gone", "cut", "another"])
def test_avro_that_is_gone_or_another(engine: Engine, kind: str, damage: str) -> None:
    place = max(info.key for info in engine.store.list(METADATA) if f"-{kind}-" in info.key)
    held = engine.store.get(place)
    engine.store.delete(place)
    if damage != "gone":
        engine.store.put(place, held[:50] if damage == "cut" else held[:-1] + bytes([held[-1] ^ 1]))
    assert {(code, where) for code, where, _ in findings(engine)} == {("table-broken", place)}


# --- manifests that say something else ------------------------------------------------------------------------------


def rewritten(engine: Engine, change: Callable[[list[ManifestEntry]], list[ManifestEntry]]) -> str:
    """The newest version with all its files in one manifest, after `change` was applied to them."""
    said = metadata(engine, 3)
    folder = "topics/payments/0/iceberg"
    location, files = said["location"], said["location"].removesuffix("/iceberg")
    made = Manifests(
        engine.logs.tools.objects, folder, location, files, said["schemas"][0], said["partition-specs"][0]
    )
    last = said["snapshots"][-1]
    entries = [entry for each in made.listed(last["manifest-list"]) for entry in made.entries(each)]
    manifest = made.write(2, last["snapshot-id"], change(entries))
    uri = made.write_list(2, last["snapshot-id"], last["parent-snapshot-id"], [manifest])

    def point(fields: dict[str, Any]) -> None:
        fields["snapshots"][-1]["manifest-list"] = uri
        fields["snapshots"] = fields["snapshots"][-1:]  # what it did then is not judged

    return changed(engine, 3, point)


def with_data(entry: ManifestEntry, **changes: Any) -> ManifestEntry:
    data = entry.data_file
    held = {
        "content": data.content,
        "file_path": data.file_path,
        "file_format": data.file_format,
        "partition": data.partition,
        "record_count": data.record_count,
        "file_size_in_bytes": data.file_size_in_bytes,
    }
    return ManifestEntry.from_args(
        status=ManifestEntryStatus.EXISTING,
        snapshot_id=entry.snapshot_id,
        sequence_number=entry.sequence_number,
        file_sequence_number=entry.file_sequence_number,
        data_file=DataFile.from_args(**held | changes),
    )


def moved(entry: ManifestEntry, partition: int) -> ManifestEntry:
    found = with_data(entry)
    found.data_file.partition[0] = partition
    return found


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda entries: entries[:1], "is not shown"),
        (lambda entries: [with_data(each, record_count=5) for each in entries], "5, "),
        (lambda entries: [with_data(each, file_size_in_bytes=5) for each in entries], "as (5, "),
        (lambda entries: [moved(each, 7) for each in entries], ", 7, "),
        (
            lambda entries: [
                *entries,
                with_data(entries[0], file_path=entries[0].data_file.file_path.replace("-p", "-p9")),
            ],
            "is shown",
        ),
    ],
    ids=["one less", "records", "bytes", "partition", "one more"],
)
def test_files_that_are_not_those_of_the_log(
    engine: Engine, change: Callable[[list[ManifestEntry]], list[ManifestEntry]], said: str
) -> None:
    place = rewritten(engine, change)
    found = findings(engine)
    assert {(code, where) for code, where, _ in found} == {("table-differs", place)}
    assert any(said in seen for _, _, seen in found), found


def test_a_manifest_as_it_stands_is_sound(engine: Engine) -> None:
    """The same manifest without a change is sound, so the other tests find the change."""
    rewritten(engine, lambda entries: [with_data(each) for each in entries])
    assert findings(engine) == []


def test_avro_that_lies_ends_nowhere(engine: Engine) -> None:
    """A manifest with any changed byte is read or refused, without a long delay."""
    place = max(info.key for info in engine.store.list(METADATA) if "-manifest-" in info.key)
    whole = engine.store.get(place)
    refused = 0
    for at in range(len(whole)):
        data = whole[:at] + bytes([whole[at] ^ 0x81]) + whole[at + 1 :]
        try:
            list(avro_records(data))
        except (MalformedError, ValueError, KeyError, TypeError, IndexError, AttributeError):
            refused += 1
    assert refused > len(whole) // 2
    with pytest.raises(MalformedError):
        list(avro_records(os.urandom(200)))
    assert avro_key("t", 0, "list", b"") != avro_key("t", 0, "list", b"x")
    assert versions(engine) == [1, 2, 3]
