"""Damage to tables: a topic's Delta table and its pins, written by hand."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import xxhash

from storage import encode_parquet
from tests.verify.damage import damage
from tests.verify.story import Story

FOLDER = "topics/payments/0"
LOG = f"{FOLDER}/_delta_log"
_LIVE = ("payments/0/first", "payments/0/second", "payments/0/plain")


def commit_key(version: int) -> str:
    return f"{LOG}/{version:020d}.json"


def pin_key(version: int = 0, cut: int = 3) -> str:
    return f"{FOLDER}/published/delta/{version:020d}-{cut:020d}.json"


def shown(**changed: Any) -> dict[str, Any]:
    """Cut 3, which goes through payments-0 after the first commit and through payments-1 at its start."""
    at = {"cut": 3, "offsets": [8, 0], "snapshots": [12, 0], "slots": [8, 0], "log_starts": [0, 0]}
    return at | changed


def adds(story: Story, *names: str, **stats: Any) -> list[dict[str, Any]]:
    found = []
    for name in names:
        row = story.files[name]
        told = json.dumps({"numRecords": row["record_count"]} | stats)
        found.append(
            {
                "add": {
                    "path": _path(story, name),
                    "size": row["data_bytes"],
                    "dataChange": True,
                    "stats": told,
                }
            }
        )
    return found


def _path(story: Story, name: str) -> str:
    return f"{name.split('/')[1]}/{story.files[name]['data_path']}"


def put_commit(story: Story, version: int, actions: list[dict[str, Any]], **changed: Any) -> str:
    ours = {
        "format": 2,
        "kind": "delta_commit",
        "store_id": "s",
        "topic": "payments",
        "incarnation": 0,
        "version": version,
        "at": shown(),
        "earlier": None,
        "done": None,
        "checksum": "0" * 32,
    } | changed
    has_columns = version > 0 or any("metaData" in action for action in actions)
    lines = [
        {"commitInfo": {"timestamp": 0, "txnEngine": ours}},
        *([] if has_columns else [columns()]),
        *actions,
    ]
    text = "\n".join(json.dumps(line, separators=(",", ":")) for line in lines) + "\n"
    checksum = xxhash.xxh3_128_hexdigest(text.encode())
    story.ledger.store.put(commit_key(version), text.replace("0" * 32, checksum, 1).encode())
    return commit_key(version)


def put_pin(story: Story, version: int = 0, cut: int = 3, **changed: Any) -> str:
    held = {
        "topic": "payments",
        "incarnation": 0,
        "table_format": "delta",
        "version": version,
        "created_ms": 0,
    }
    story.ledger.json(pin_key(version, cut), "pin", held | shown(cut=cut) | {"files": []} | changed)
    return pin_key(version, cut)


def protocol(*features: str) -> dict[str, Any]:
    return {"protocol": {"minReaderVersion": 1, "minWriterVersion": 7, "writerFeatures": list(features)}}


def columns(amount: str = "decimal(18,2)") -> dict[str, Any]:
    """The table's columns for the topic's first columns."""
    said = {"account_id": "long", "amount": amount, "note": "string", "_offset_delta": "long"}
    fields = [
        {"name": name, "type": kind, "nullable": not name.startswith("_"), "metadata": {}}
        for name, kind in {**said, "_timestamp": "timestamp"}.items()
    ]
    return {"metaData": {"schemaString": json.dumps({"type": "struct", "fields": fields})}}


def with_table(story: Story, *names: str, **stats: Any) -> str:
    """Write a table with one version that shows these files. Returns its key."""
    put_pin(story)
    return put_commit(story, 0, [protocol("txnEngineView"), *adds(story, *(names or _LIVE), **stats)])


def put_checkpoint(story: Story, version: int, names: tuple[str, ...], kind: str = "delta_checkpoint") -> str:
    key = f"{LOG}/{version:020d}.checkpoint.parquet"
    rows = [{"path": _path(story, name)} for name in names]
    table = pa.table({"add": pa.array(rows, pa.struct([("path", pa.string())]))})
    story.ledger.store.put(key, encode_parquet(table, kind=kind))
    return key


def publish(story: Story) -> None:
    """Write a sound table of two versions, the second without changes, and its checkpoint."""
    with_table(story)
    put_commit(story, 1, [])
    put_checkpoint(story, 1, _LIVE)


@damage("table-differs")
def file_that_a_table_does_not_show(story: Story) -> str:
    return with_table(story, *_LIVE[1:])


@damage("table-differs")
def aborted_file_in_a_table(story: Story) -> str:
    return with_table(story, *_LIVE, "payments/0/aborted")


@damage("table-differs")
def records_of_a_table_counted_wrong(story: Story) -> str:
    return with_table(story, numRecords=7)


@damage("table-differs")
def file_added_to_a_table_twice(story: Story) -> str:
    with_table(story)
    return put_commit(story, 1, adds(story, _LIVE[0]))


@damage("table-differs")
def file_removed_that_was_not_there(story: Story) -> str:
    with_table(story)
    return put_commit(story, 1, [{"remove": {"path": "0/data/x.parquet", "dataChange": True}}])


@damage("table-differs")
def merge_that_loses_records(story: Story) -> str:
    actions = [protocol("txnEngineView"), *adds(story, *_LIVE, "payments/0/plain2")]
    put_commit(story, 0, actions, at=shown(cut=2))
    put_pin(story, 1)
    path = _path(story, "payments/0/plain2")
    return put_commit(story, 1, [{"remove": {"path": path, "dataChange": False}}])


@damage("table-differs")
def table_that_goes_back(story: Story) -> str:
    with_table(story)
    put_pin(story, 1, 2)
    return put_commit(story, 1, [], at=shown(cut=2))


@damage("table-differs")
def table_without_its_guard(story: Story) -> str:
    put_pin(story)
    return put_commit(story, 0, [protocol(), *adds(story, *_LIVE)])


@damage("table-differs")
def table_with_other_columns(story: Story) -> str:
    with_table(story)
    return put_commit(story, 1, [columns(amount="decimal(20,2)")])


@damage("table-differs")
def table_with_columns_that_the_topic_never_had(story: Story) -> str:
    with_table(story)
    return put_commit(story, 1, [columns()], schema_version=1)


@damage("table-differs")
def new_columns_of_a_table_not_told(story: Story) -> str:
    with_table(story)
    return put_commit(story, 1, [], schema_version=1)


@damage("table-foreign")
def columns_of_a_table_that_are_no_schema(story: Story) -> str:
    with_table(story)
    return put_commit(story, 1, [{"metaData": {"schemaString": "{}"}}])


@damage("table-differs")
def checkpoint_without_a_file(story: Story) -> str:
    with_table(story)
    return put_checkpoint(story, 0, _LIVE[1:])


@damage("table-foreign")
def checkpoint_of_somebody_elses(story: Story) -> str:
    with_table(story)
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table({"add": pa.array([None], pa.struct([("path", pa.string())]))}), sink)
    key = f"{LOG}/{0:020d}.checkpoint.parquet"
    story.ledger.store.put(key, sink.getvalue().to_pybytes())
    return key


@damage("table-foreign")
def checkpoint_of_another_kind(story: Story) -> str:
    with_table(story)
    return put_checkpoint(story, 0, _LIVE, kind="snapshot")


@damage("table-foreign")
def commit_of_somebody_elses(story: Story) -> str:
    with_table(story)
    story.ledger.store.put(commit_key(1), b'{"commitInfo":{"operation":"DELETE"}}\n')
    return commit_key(1)


@damage("table-foreign")
def commit_with_a_changed_byte(story: Story) -> str:
    key = with_table(story)
    story.ledger.flip(key)
    return key


@damage("table-foreign")
def commit_of_another_topic(story: Story) -> str:
    put_pin(story)
    return put_commit(story, 0, adds(story, *_LIVE), topic="balances")


@damage("table-foreign")
def commit_of_another_store(story: Story) -> str:
    put_pin(story)
    return put_commit(story, 0, adds(story, *_LIVE), store_id="other")


@damage("table-foreign")
def commit_at_no_cut(story: Story) -> str:
    put_pin(story)
    return put_commit(story, 0, adds(story, *_LIVE), at=shown(slots=[1]))


@damage("object-missing")
def commit_of_a_table_lost(story: Story) -> str:
    with_table(story)
    put_commit(story, 2, [])
    return commit_key(1)


@damage("table-unpinned")
def pin_of_the_newest_version_lost(story: Story) -> str:
    key = with_table(story)
    story.ledger.store.delete(pin_key())
    return key


@damage("table-broken")
def snapshot_that_a_pin_holds_gone(story: Story) -> str:
    with_table(story)
    put_pin(story, snapshots=[3, 0])
    return f"{FOLDER}/0/snapshots/{3:020d}.parquet"


@damage("table-broken")
def file_that_a_pin_holds_gone(story: Story) -> str:
    with_table(story)
    path = _path(story, _LIVE[0]).replace("/data/0", "/data/1")
    put_pin(story, files=[path])
    return f"{FOLDER}/{path}"


@damage("object-damaged")
def pin_with_a_changed_byte(story: Story) -> str:
    with_table(story)
    key = put_pin(story, 1)
    story.ledger.flip(key)
    return key


@damage("object-damaged")
def pin_of_another_version(story: Story) -> str:
    with_table(story)
    return put_pin(story, 1, topic="balances")


@damage("object-damaged")
def pin_of_files_that_are_none(story: Story) -> str:
    with_table(story)
    return put_pin(story, 1, files=["../x"])
