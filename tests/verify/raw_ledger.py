"""Write a ledger's raw objects by docs/FORMAT.md, without the engine, for the auditor's tests to audit and
damage."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from storage.envelope import checksum_of, encode_json, encode_parquet
from storage.memory import MemoryStore

Row = dict[str, Any]

PAYMENTS = pa.schema(
    [("account_id", pa.int64()), ("amount", pa.decimal128(18, 2)), ("note", pa.large_string())]
)

PARTITIONS = pa.list_(
    pa.struct([("topic", pa.string()), ("incarnation", pa.int32()), ("partition", pa.int32())])
)
TRANSACTION = [
    ("transactional_id", pa.string()),
    ("state", pa.string()),
    ("producer_id", pa.int64()),
    ("producer_epoch", pa.int16()),
    ("last_producer_epoch", pa.int16()),
    ("previous_producer_id", pa.int64()),
    ("next_producer_id", pa.int64()),
    ("transaction_timeout_ms", pa.int32()),
    ("start_ms", pa.int64()),
    ("update_ms", pa.int64()),
    ("partitions", PARTITIONS),
    ("run_id", pa.string()),
    ("committed_run_ids", pa.list_(pa.string())),
    ("run_ids_complete", pa.bool_()),
    ("decision_offset", pa.int64()),
]
OFFSET_COMMIT = [
    ("group_id", pa.string()),
    ("topic", pa.string()),
    ("incarnation", pa.int32()),
    ("partition", pa.int32()),
    ("offset", pa.int64()),
    ("leader_epoch", pa.int32()),
    ("metadata", pa.string()),
    ("commit_ms", pa.int64()),
    ("member_id", pa.string()),
    ("fetched_row", pa.int64()),
    ("fetched_end", pa.int64()),
]
DESCRIPTOR = [
    ("base_offset", pa.int64()),
    ("last_offset", pa.int64()),
    ("producer_id", pa.int64()),
    ("producer_epoch", pa.int16()),
    ("base_sequence", pa.int32()),
    ("is_transactional", pa.bool_()),
    ("control", pa.string()),
    ("coordinator_epoch", pa.int64()),
    ("first_timestamp", pa.int64()),
    ("max_timestamp", pa.int64()),
    ("record_count", pa.int32()),
    ("data_path", pa.string()),
    ("data_bytes", pa.int64()),
    ("checksum", pa.string()),
    ("append_time", pa.int64()),
    ("control_value", pa.string()),
]
ROW_COLUMN = {
    "__transaction_state": ("transaction", TRANSACTION),
    "__consumer_offsets": ("offset_commit", OFFSET_COMMIT),
}


def schema_of(topic: str) -> pa.Schema:
    """The columns of an entry."""
    fields: list[Any] = [pa.field(name, kind, nullable=False) for name, kind in DESCRIPTOR]
    if topic in ROW_COLUMN:
        name, columns = ROW_COLUMN[topic]
        fields.append((name, pa.struct(columns)))
    return pa.schema(fields)


@dataclass(slots=True)
class Ledger:
    """A store, its partitions' log ends, and a clock that moves a second with every entry."""

    store: MemoryStore = field(default_factory=MemoryStore)
    ends: dict[tuple[str, int], int] = field(default_factory=dict)
    now_ms: int = 1_700_000_000_000
    serial: int = 0
    internal_partitions: int = 50

    # --- the store's own objects --------------------------------------------------------------------------

    def create(self) -> None:
        """Write store.json and the first block of producer ids."""
        counts = {
            "__transaction_state": self.internal_partitions,
            "__consumer_offsets": self.internal_partitions,
        }
        held = {
            "store_id": "s",
            "created_ms": 0,
            "internal_partitions": counts,
            "limits": {
                "max_transaction_timeout_ms": 900_000,
                "transactional_id_expiration_ms": 604_800_000,
                "producer_id_expiration_ms": 86_400_000,
            },
            "put_if_absent_proof": {},
        }
        self.json("store.json", "store", held)
        self.block(0)
        self.block(1)

    def block(self, number: int, **changed: Any) -> None:
        """Write one block of producer ids."""
        held = {
            "first_producer_id": number * 1000,
            "count": 1000,
            "claimed_ms": 0,
            "write_id": self.write_id(),
            **changed,
        }
        self.json(f"producer_ids/{number:020d}.json", "producer_ids", held)

    def topic(self, name: str, partitions: int, incarnation: int = 0, **changed: Any) -> None:
        """Write a topic of payments."""
        held = {
            "topic": name,
            "incarnation": incarnation,
            "partitions": partitions,
            "key": "account_id",
            "schema": [],
            "arrow_schema": base64.b64encode(PAYMENTS.serialize().to_pybytes()).decode(),
            "retention_ms": -1,
            "cleanup_policy": "delete",
            "delete_retention_ms": 86_400_000,
            "min_compaction_lag_ms": 0,
            "created_ms": 0,
            "deleted": False,
            **changed,
        }
        self.json(f"topics/{name}/{incarnation}.json", "topic", held)

    def grow(self, name: str, number: int, partitions: int, incarnation: int = 0) -> None:
        """Let the topic have this many partitions from here on."""
        held = {
            "topic": name,
            "incarnation": incarnation,
            "partitions": partitions,
            "created_ms": 0,
            "write_id": self.write_id(),
        }
        self.json(f"topics/{name}/{incarnation}/partitions/{number:020d}.json", "partitions", held)

    def json(self, key: str, kind: str, held: dict[str, Any]) -> None:
        """Write one JSON object."""
        self.store.put(key, encode_json(held, kind))

    def write_id(self) -> str:
        """A fresh write id."""
        self.serial += 1
        return f"{self.serial:032x}"

    # --- entries ------------------------------------------------------------------------------------------

    def entry(self, topic: str, partition: int, *rows: Row, tick: bool = True) -> int:
        """Append rows as one entry; return the offset of its first row."""
        if tick:
            self.now_ms += 1_000
        base = offset = self.ends.get((topic, partition), 0)
        placed = []
        for row in rows:
            placed.append(self.placed(row, offset))
            offset = placed[-1]["last_offset"] + 1
        self.put_entry(self.entry_key(topic, partition, base), topic, placed)
        self.ends[topic, partition] = offset
        return base

    def placed(self, row: Row, offset: int) -> Row:
        """The row with its offsets, and with the columns that it does not give."""
        count = row.get("record_count", 1)
        stamps = row.get("first_timestamp", self.now_ms)
        return {
            "base_offset": offset,
            "last_offset": offset + count - 1,
            "producer_id": -1,
            "producer_epoch": -1,
            "base_sequence": -1,
            "is_transactional": False,
            "control": "none",
            "coordinator_epoch": -1,
            "first_timestamp": stamps,
            "max_timestamp": stamps,
            "record_count": count,
            "data_path": "",
            "data_bytes": 0,
            "checksum": "",
            "append_time": self.now_ms,
            "control_value": "",
            **row,
        }

    def put_entry(
        self, key: str, topic: str, rows: Sequence[Row], *, schema: pa.Schema | None = None
    ) -> None:
        """Write these rows into the entry, whatever they say."""
        table = pa.Table.from_pylist(list(rows), schema=schema or schema_of(topic))
        self.store.put(key, encode_parquet(table, kind="entry", metadata={"write_id": self.write_id()}))

    def entry_key(self, topic: str, partition: int, base: int) -> str:
        """The key of an entry."""
        return f"topics/{topic}/0/{partition}/log/{base:020d}.parquet"

    def rows(self, key: str) -> list[Row]:
        """The rows of an entry."""
        return pq.read_table(pa.BufferReader(self.store.get(key))).to_pylist()

    def change(self, key: str, edit: Callable[[list[Row]], None]) -> None:
        """Change an entry's rows in place with a correct checksum. Only a replay can find this damage."""
        rows = self.rows(key)
        edit(rows)
        self.put_entry(key, key.split("/")[1], rows)

    def edit(self, topic: str, partition: int, base: int, **changed: Any) -> None:
        """Change columns of the first row of an entry."""
        self.change(self.entry_key(topic, partition, base), lambda rows: rows[0].update(changed))

    # --- rows ---------------------------------------------------------------------------------------------

    def batch(
        self,
        topic: str,
        partition: int,
        pid: int = -1,
        epoch: int = -1,
        sequence: int = -1,
        *,
        count: int = 3,
        transactional: bool = False,
        log_end: int | None = None,
        deltas: Sequence[int] | None = None,
        stamps: Sequence[int] | None = None,
        keys: Sequence[tuple[int, int | None]] | None = None,
        field_ids: Sequence[int | None] | None = None,
    ) -> Row:
        """Write a data file and return the row that names it. `keys`: the account and the amount of each record."""
        count = count if keys is None else len(keys)
        end = self.ends.get((topic, partition), 0) if log_end is None else log_end
        write_id = self.write_id()
        path = f"data/{end:020d}-p{pid}-e{epoch}-{write_id}.parquet"
        stamp = self.now_ms
        data = encode_records(
            count, stamp, write_id, deltas=deltas, stamps=stamps, keys=keys, field_ids=field_ids
        )
        self.store.put(f"topics/{topic}/0/{partition}/{path}", data)
        return {
            "producer_id": pid,
            "producer_epoch": epoch,
            "base_sequence": sequence,
            "is_transactional": transactional,
            "record_count": count,
            "first_timestamp": stamp,
            "data_path": path,
            "data_bytes": len(data),
            "checksum": checksum_of(data),
        }

    def transaction(self, tid: str, state: str, pid: int, epoch: int, **more: Any) -> int:
        """Append a coordinator's row as an entry of its own; return its offset."""
        partition = java_partition(tid, self.internal_partitions)
        places = more.pop("partitions", ())
        row = {
            "transactional_id": tid,
            "state": state,
            "producer_id": pid,
            "producer_epoch": epoch,
            "last_producer_epoch": -1,
            "previous_producer_id": -1,
            "next_producer_id": -1,
            "transaction_timeout_ms": 60_000,
            "start_ms": self.now_ms if state == "Ongoing" else -1,
            "update_ms": self.now_ms,
            "partitions": [{"topic": t, "incarnation": i, "partition": p} for t, i, p in places],
            "run_id": None,
            "committed_run_ids": [],
            "run_ids_complete": True,
            "decision_offset": -1,
            **more,
        }
        return self.entry("__transaction_state", partition, {"transaction": row})

    def commit(
        self, group: str, topic: str, partition: int, offset: int, pid: int = -1, epoch: int = -1, **more: Any
    ) -> int:
        """Append a group's offset as an entry of its own; return its offset."""
        home = java_partition(group, self.internal_partitions)
        row = {
            "group_id": group,
            "topic": topic,
            "incarnation": 0,
            "partition": partition,
            "offset": offset,
            "leader_epoch": -1,
            "metadata": "",
            "commit_ms": self.now_ms,
            "member_id": "",
            "fetched_row": -2,
            "fetched_end": -1,
            **more,
        }
        descriptor = {"producer_id": pid, "producer_epoch": epoch, "is_transactional": pid >= 0}
        return self.entry("__consumer_offsets", home, {**descriptor, "offset_commit": row})

    def control(self, topic: str, partition: int, kind: str, value: dict[str, Any]) -> int:
        """Append a rewrite, clean, trim, expire or floor row."""
        return self.entry(
            topic,
            partition,
            {"control": kind, "control_value": json.dumps(value, sort_keys=True, separators=(",", ":"))},
        )

    # --- snapshots ----------------------------------------------------------------------------------------

    def snapshot(self, topic: str, partition: int, end: int, rows: Sequence[tuple[str, Row]]) -> str:
        """Write a snapshot of these rows; return its key."""
        texts = [json.dumps(row, separators=(",", ":")) for _, row in rows]
        schema = pa.schema([pa.field(name, pa.string(), nullable=False) for name in ("section", "fields")])
        table = pa.table([[section for section, _ in rows], texts], schema=schema)
        key = f"topics/{topic}/0/{partition}/snapshots/{end:020d}.parquet"
        self.store.put(key, encode_parquet(table, kind="snapshot"))
        return key

    def seal(self, topic: str, partition: int, base: int) -> None:
        """Overwrite an entry with a seal."""
        table = schema_of(topic).empty_table()
        sealed = encode_parquet(table, kind="seal", metadata={"write_id": self.write_id()})
        self.store.put(self.entry_key(topic, partition, base), sealed)

    # --- damage to bytes ----------------------------------------------------------------------------------

    def flip(self, key: str, at: int = -200) -> None:
        """Change one bit of one byte."""
        data = bytearray(self.store.get(key))
        data[at] ^= 1
        self.store.put(key, bytes(data))

    def keys(self, prefix: str = "") -> list[str]:
        """The keys of all objects below this prefix."""
        return [info.key for info in self.store.list(prefix)]


def marker(pid: int, epoch: int, control: str, coordinator_epoch: int) -> Row:
    """A commit or abort marker."""
    return {
        "producer_id": pid,
        "producer_epoch": epoch,
        "is_transactional": True,
        "control": control,
        "coordinator_epoch": coordinator_epoch,
    }


def encode_records(
    count: int,
    stamp: int,
    write_id: str,
    *,
    deltas: Sequence[int] | None = None,
    stamps: Sequence[int] | None = None,
    schema: pa.Schema = PAYMENTS,
    keys: Sequence[tuple[int, int | None]] | None = None,
    field_ids: Sequence[int | None] | None = None,
) -> bytes:
    """A data file of this many payments. They are empty, or have the accounts and amounts of `keys`."""
    columns: list[Any] = [pa.nulls(count, field.type) for field in schema]
    if keys is not None:
        columns[0] = pa.array([key for key, _ in keys], schema.field(0).type)
        columns[1] = pa.array([amount for _, amount in keys], pa.int64()).cast(pa.decimal128(19, 0))
        columns[1] = columns[1].cast(schema.field(1).type, safe=False)
    columns.append(pa.array(range(count) if deltas is None else deltas, pa.int64()))
    columns.append(pa.array([stamp] * count if stamps is None else stamps, pa.timestamp("ms", tz="UTC")))
    table = pa.table(columns, names=[*schema.names, "_offset_delta", "_timestamp"])
    if field_ids is not None:
        fields = zip(table.schema, field_ids, strict=True)
        named = [
            field if number is None else field.with_metadata({"PARQUET:field_id": str(number)})
            for field, number in fields
        ]
        table = table.cast(pa.schema(named))
    return encode_parquet(table, kind="data", metadata={"write_id": write_id})


def java_partition(name: str, partitions: int) -> int:
    """The partition of an ASCII id's rows."""
    value = 0
    for char in name:
        value = (31 * value + ord(char)) & 0xFFFFFFFF
    signed = value - (1 << 32) if value >> 31 else value
    return (0 if signed == -(1 << 31) else abs(signed)) % partitions
