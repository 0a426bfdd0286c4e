"""The changes of bytes, of pages and footers, of cells and of JSON. Each uses one `Random`, so that a seed is
a case."""

from __future__ import annotations

import base64
import json
import re
from random import Random
from typing import Any

import pyarrow as pa

from tests.fuzz.ledger import Objects
from tests.storage.schema_bombs import shared_children, shared_metadata, shared_names
from tests.support.sealing import checksum, json_object, parquet_object, resealed, taken_apart, varint

NUMBERS = [
    -(2**63), -(2**31), -(2**15), -3, -2, -1, 0, 1, 2, 5, 99, 2**15 - 1, 2**15, 2**31 - 2, 2**31 - 1, 2**31,
    253_402_300_799_999, 253_402_300_800_000, 2**53, 2**62, 2**63 - 2, 2**63 - 1,
]  # fmt: skip
TEXTS = [
    "", ".", "..", "../x", "a/b", "\0", "\n\x1b[2J", "ä" * 9, "x" * 300, "x" * 70_000, "Ongoing", "PrepareCommit",
    "Dead", "none", "commit", "abort", "trim", "floor", "rewrite", "expire", "clean", "live", "undecided", "aborted",
    "replaced", "payments", "events", "gone", "__consumer_offsets", "__transaction_state", "load", "readers",
    "data/../../../../../etc/passwd", "data/" + "0" * 20 + "-p-1-e-1-" + "a" * 32 + ".parquet",
    "../1/data/" + "0" * 20 + "-p0-e0-" + "a" * 32 + ".parquet", "0" * 32, "{}", "[]", "null",
    '{"entries_start":9223372036854775807,"log_start_offset":9223372036854775807}', '{"floor":-5}',
    '{"floor":1e400}', '{"producer_ids":[1,"2",null]}', '{"cleaned_to":true,"tombstones_to":0}',
    '{"inputs":["../x"],"outputs":[{}],"tombstones_to":-1}', "[" * 5_000, '{"producer_ids":' + "[" * 50_000,
    '{"inputs":[],"outputs":[],"tombstones_to":99999999999999999999999}',
]  # fmt: skip
JSON_VALUES: list[Any] = [
    None, True, False, -1, 0, 1, 2, 3, 10_000, 10_001, 2**31, 2**53, 2**63 - 1, 2**63, 10**30, -(2**63), 0.5,
    float("nan"), float("inf"), "", "x", "\ud800", "../..", "a\x1b[0m", [], {}, [[]], {"a": 1}, "0", "x" * 100_000,
]  # fmt: skip


def change(random: Random, objects: Objects) -> tuple[Objects, str, str]:
    """The objects with one of them (or a few) changed, its key, and what was done."""
    kind = random.choices(list(KINDS), [weight for _, weight in KINDS.values()])[0]
    keys = sorted(key for key in objects if KINDS[kind][0].search(key))
    key = random.choice(keys)
    ways = JSON_WAYS if key.endswith(".json") else PARQUET_WAYS
    way = random.choices(list(ways), [weight for _, weight in ways.values()])[0]
    changed = dict(objects)
    try:
        changed[key] = ways[way][0](random, objects[key], objects)
    except (pa.ArrowException, ValueError, TypeError, OverflowError):  # no writer can put that together
        changed[key], way = bytes_sealed(random, objects[key], objects), "bytes, sealed"
    if kind == "data" and random.random() < 0.7:
        _name_again(changed, key)
        way += "+named"
    return changed, key, f"{kind}: {way}"


KINDS: dict[str, tuple[re.Pattern[str], int]] = {
    "entry": (re.compile(r"topics/[a-z].*/log/"), 5),
    "coordinator": (re.compile(r"__transaction_state/.*/log/"), 4),
    "group": (re.compile(r"__consumer_offsets/.*/log/"), 4),
    "data": (re.compile(r"/data/"), 4),
    "snapshot": (re.compile(r"/snapshots/"), 4),
    "json": (re.compile(r"\.json$"), 4),
}


def _name_again(objects: Objects, key: str) -> None:
    """Make the log describe the changed file. Nothing can then tell that it was changed, as if a writer had
    made it."""
    folder, _, name = key.rpartition("/data/")
    data = objects[key]
    try:
        rows = taken_apart(data)[0].num_rows
    except (pa.ArrowException, OSError, ValueError):
        rows = None
    for other in [other for other in objects if other.startswith((f"{folder}/log/", f"{folder}/snapshots/"))]:
        if name.encode() not in objects[other]:
            continue
        table, metadata = taken_apart(objects[other])
        if "/snapshots/" in other:
            del objects[other]
            continue
        held = table.to_pylist()
        for row in held:
            if row["data_path"] == f"data/{name}":
                row["data_bytes"], row["checksum"] = len(data), checksum(data)
                if (
                    rows
                    and row["record_count"] != rows
                    and row["base_offset"] + rows - 1 == row["last_offset"]
                ):
                    row["record_count"] = rows
        objects[other] = parquet_object(pa.Table.from_pylist(held, table.schema), metadata)


# --- bytes --------------------------------------------------------------------------------------------------


def bytes_unsealed(random: Random, data: bytes, objects: Objects) -> bytes:
    changed = bytearray(data)
    for _ in range(random.choice([1, 1, 2, 8])):
        changed[random.randrange(len(changed))] ^= random.randrange(1, 256)
    return bytes(changed)


def cut(random: Random, data: bytes, objects: Objects) -> bytes:
    at = random.randrange(len(data))
    return random.choice([data[:at], data[at:], data + data[:at], b"", data[:at] + data[at + 1 :]])


def bytes_sealed(random: Random, data: bytes, objects: Objects) -> bytes:
    return resealed(bytes_unsealed(random, data, objects))


def swapped(random: Random, data: bytes, objects: Objects) -> bytes:
    return objects[random.choice(sorted(objects))]


# --- Parquet ------------------------------------------------------------------------------------------------


def footer(random: Random, data: bytes, objects: Objects) -> bytes:
    """Change numbers and types of the footer."""
    length = int.from_bytes(data[-8:-4], "little")
    changed = bytearray(data)
    for _ in range(random.choice([1, 1, 1, 3])):
        at = len(data) - 8 - length + random.randrange(length)
        changed[at] = random.choice([0, 1, 2, 0x7F, 0x80, 0xFE, 0xFF, random.randrange(256)])
    if random.random() < 0.1:
        changed[-8:-4] = random.choice([0, 1, length - 1, length + 1, len(data), 2**31 - 1]).to_bytes(
            4, "little"
        )
    return resealed(bytes(changed))


def more_fields(random: Random, data: bytes, objects: Objects) -> bytes:
    """Add one more field to the footer or to one of its structs. The field is long, deep, or already
    there."""
    length = int.from_bytes(data[-8:-4], "little")
    begin = len(data) - 8 - length
    ends = [at for at in range(begin, begin + length) if data[at] == 0]  # of structs, most of them
    at = random.choice([begin + length - 1, random.choice(ends)])
    size = random.choice([1, 50, 2_000, 60_000])
    count = size if random.random() < 0.7 else random.choice([0, 1, 2**20, 2**31 - 1, 2**63])
    values = {
        "lists in lists": b"\x19" * size + b"\x15\x00",
        "structs in structs": b"\x1c" * size + b"\x00" * size,
        "long, then short": b"\xf8" + varint(count) + varint(size) + b"b" * size + b"\x00" * (size - 1),
        "numbers": b"\xf5" + varint(count) + b"\x02" * size,
        "text": varint(count) + b"t" * size,
    }
    name = random.choice(sorted(values))
    kind = {"structs in structs": 12, "text": 8}.get(name, 9)
    number = random.choice([1, 2, 3, 4, 5, 7, 15, 17, 100])
    field = bytes([kind]) + varint(2 * number) + values[name]
    footer = data[begin:at] + field + data[at : begin + length]
    return resealed(data[:begin] + footer + len(footer).to_bytes(4, "little") + b"PAR1")


_PAGE = re.compile(rb"\x15\x00\x15[\x80-\xff]{0,4}[\x00-\x7f]\x15[\x80-\xff]{0,4}[\x00-\x7f]")


def pages(random: Random, data: bytes, objects: Objects) -> bytes:
    """Change a page's header and the levels right after it."""
    found = [match.start() for match in _PAGE.finditer(data)]
    if not found:
        return bytes_sealed(random, data, objects)
    changed = bytearray(data)
    for _ in range(random.choice([1, 1, 2])):
        at = random.choice(found) + random.randrange(28)
        if at < len(changed):
            changed[at] = random.choice([0, 1, 2, 4, 0x7E, 0x7F, 0xFE, 0xFF, random.randrange(256)])
    return resealed(bytes(changed))


def number(value: int) -> bytes:
    """A number as a zigzag varint."""
    return varint((value << 1) ^ (value >> 63))


def lying_page(random: Random, data: bytes, objects: Objects) -> bytes:
    """Let the last column's last page claim as many values as a number can, and repeat its levels as
    often."""
    found = list(_PAGE.finditer(data))
    if not found:
        return bytes_sealed(random, data, objects)
    at = found[-1].start() if random.random() < 0.6 else random.choice(found).start()
    length = int.from_bytes(data[-8:-4], "little")
    many = random.choice([2**20, 2**24, 2**28, 2**31 - 1])
    run = varint(many << 1)
    levels = len(run) + 1
    body = (levels.to_bytes(4, "little") + run + random.choice([b"\0", b"\1", b"\2"])) * random.choice([1, 2])
    sizes = number(len(body)) + b"\x15" + number(len(body))
    page = (
        b"\x15\x00\x15"
        + sizes
        + b"\x2c\x15"
        + number(many)
        + b"\x15\x00\x15\x06\x15\x06\x1c\x00\x00\x00"
        + body
    )
    end = len(data) - 8 - length
    return resealed((data[:at] + page + data[at + len(page) :])[:end].ljust(end, b"\0") + data[end:])


def settings(random: Random, data: bytes, objects: Objects) -> bytes:
    """Write the same rows by another writer, with other codecs, dictionaries, encodings, page versions or row
    groups."""
    table, metadata = taken_apart(data)
    return parquet_object(
        table,
        metadata,
        compression=random.choice(["none", "zstd", "snappy", "gzip", "brotli", "lz4"]),
        use_dictionary=random.random() < 0.5,
        data_page_version=random.choice(["1.0", "2.0"]),
        write_statistics=random.random() < 0.5,
        write_page_checksum=random.random() < 0.5,
        row_group_size=random.choice([None, 1, 2]),
    )


def bomb(random: Random, data: bytes, objects: Objects) -> bytes:
    """Write the rows very many times, or with one very long value, which needs little space on the store."""
    table, metadata = taken_apart(data)
    if not table.num_rows:
        return bytes_sealed(random, data, objects)
    times = random.choice([1_000, 30_000, 300_000])
    rows = table.take(pa.array([random.randrange(table.num_rows)]))
    texts = [i for i, field in enumerate(table.schema) if pa.types.is_string(field.type)]
    if texts and random.random() < 0.7:
        at = random.choice(texts)
        long = "x" * random.choice([1_000, 1_000_000])
        times = min(times, 400_000_000 // len(long))
        rows = rows.set_column(at, table.schema.field(at), pa.array([long]))
    if random.random() < 0.5:
        nulls = pa.table([pa.nulls(times, field.type) for field in table.schema], names=table.schema.names)
        if not any(pa.types.is_decimal(field.type) for field in table.schema):
            return parquet_object(nulls, metadata, compression="zstd")
    many = pa.concat_tables([rows] * 1_000).combine_chunks()
    big = pa.concat_tables([many] * max(1, times // 1_000))
    return parquet_object(
        big,
        metadata,
        compression=random.choice(["zstd", "zstd", "none"]) if big.nbytes < 64 << 20 else "zstd",
        use_dictionary=random.random() < 0.5,
        row_group_size=random.choice([None, None, 10_000]),
    )


def cells(random: Random, data: bytes, objects: Objects) -> bytes:
    """Change values of the rows, as another writer might have written them. The types stay if they can."""
    table, metadata = taken_apart(data)
    rows = table.to_pylist()
    if not rows:
        return bytes_sealed(random, data, objects)
    for _ in range(random.choice([1, 1, 1, 2, 4])):
        row = random.choice(rows)
        name = random.choice(table.schema.names)
        filled = [name for name in row if row[name] is not None]
        row[name] = _value(random, table.schema.field(name), row[name])
        if random.random() < 0.3 and filled:
            name = random.choice(filled)
            row[name] = _value(random, table.schema.field(name), row[name])
    return _encoded(random, rows, table.schema, metadata)


def rows_moved(random: Random, data: bytes, objects: Objects) -> bytes:
    """Leave rows out, write them twice, or change their order."""
    table, metadata = taken_apart(data)
    rows = table.to_pylist()
    random.shuffle(rows)
    rows = random.choice([rows, rows[1:], rows * 2, rows[:1] * 70_000, []])
    return _encoded(random, rows, table.schema, metadata)


def columns(random: Random, data: bytes, objects: Objects) -> bytes:
    """Leave columns out, rename them, write them twice, or change their type."""
    table, metadata = taken_apart(data)
    at = random.randrange(table.num_columns)
    field = table.schema.field(at)
    other = random.choice(
        [pa.int64(), pa.string(), pa.binary(), pa.float64(), pa.bool_(), pa.list_(pa.int64())]
    )
    ways = [
        lambda: table.remove_column(at),
        lambda: table.append_column(field.name, table.column(at)),
        lambda: table.rename_columns(["x" if i == at else n for i, n in enumerate(table.schema.names)]),
        lambda: table.set_column(at, field.name, pa.nulls(table.num_rows, other)),
        lambda: table.append_column("more", pa.nulls(table.num_rows, other)),
        lambda: table.set_column(at, field.with_nullable(True), pa.nulls(table.num_rows, field.type)),
    ]
    return parquet_object(random.choice(ways)(), metadata)


def own_metadata(random: Random, data: bytes, objects: Objects) -> bytes:
    """Change format, kind and write id in the footer."""
    table, metadata = taken_apart(data)
    name = random.choice([b"txn_engine.format", b"txn_engine.kind", b"txn_engine.write_id", b"txn_engine.x"])
    value = random.choice(
        [b"", b"1", b"3", b"seal", b"entry", b"snapshot", b"data", b"\xff\xfe", b"x" * 300_000]
    )
    return parquet_object(table, metadata | {name: value})


def _encoded(random: Random, rows: list[Any], schema: pa.Schema, metadata: dict[bytes, bytes]) -> bytes:
    if any(row[field.name] is None for row in rows for field in schema if not field.nullable):
        schema = pa.schema([field.with_nullable(True) for field in schema])
    return parquet_object(pa.Table.from_pylist(rows, schema), metadata)


def _value(random: Random, field: pa.Field[Any], old: Any) -> Any:
    kind = field.type
    if field.nullable and random.random() < 0.1:
        return None
    if pa.types.is_integer(kind):
        low, high = -(2 ** (kind.bit_width - 1)), 2 ** (kind.bit_width - 1) - 1
        near = [(old or 0) + random.choice([-1, 1, 2, 1_000])]
        return random.choice([value for value in [*NUMBERS, *near, *near, *near] if low <= value <= high])
    if pa.types.is_string(kind):
        return _text(random, old)
    if pa.types.is_boolean(kind):
        return not old
    if pa.types.is_struct(kind):
        value = dict(old) if old else {kind.field(i).name: None for i in range(kind.num_fields)}
        inner = kind.field(random.randrange(kind.num_fields))
        value[inner.name] = _value(random, inner, value[inner.name])
        return value
    if pa.types.is_list(kind):
        held = list(old or [])
        inside = kind.value_field
        ways = [
            lambda: held * 2,
            lambda: held[1:],
            lambda: [*held, _value(random, inside, held[0] if held else None)],
            lambda: (held[:1] or [_value(random, inside, None)]) * random.choice([101, 200_000]),
            lambda: [None] * random.choice([1, 100_000]),
        ]
        return random.choice(ways)()
    if pa.types.is_timestamp(kind):
        return random.choice([None, 0, 253_402_300_800_000, 2**62, -(2**62)])
    if pa.types.is_binary(kind):
        return random.choice([b"", b"\xff\x00", b"x" * 70_000])
    return old


def _text(random: Random, old: Any) -> Any:
    if old and random.random() < 0.4:
        at = random.randrange(len(old))
        digit = random.choice(["0", "9", "-", "/", ".", "\u0661", "x", ""])
        return old[:at] + digit + old[at + 1 :]
    return random.choice(TEXTS)


# --- JSON ---------------------------------------------------------------------------------------------------


def json_value(random: Random, data: bytes, objects: Objects) -> bytes:
    """Change some of the values, at any depth."""
    whole = json.loads(data)
    for _ in range(random.choice([1, 1, 1, 2, 3])):
        held, name = whole, random.choice(sorted(whole))
        while isinstance(held[name], dict) and held[name] and random.random() < 0.7:
            held = held[name]
            name = random.choice(sorted(held))
        action = random.random()
        if action < 0.15:
            del held[name]
        elif isinstance(held[name], str) and held[name] and action < 0.5:
            held[name] = _text(random, held[name])
        else:
            held[name] = random.choice(JSON_VALUES)
        if not whole:
            break
    return json_object(whole, indent=random.choice([2, 2, 2, None]))


def json_schema(random: Random, data: bytes, objects: Objects) -> bytes:
    """Give a topic's columns other types, which Parquet may not even have, or give it very many equal
    columns."""
    whole = json.loads(data)
    if "arrow_schema" not in whole:
        return json_value(random, data, objects)
    deep = pa.int64()
    for _ in range(random.choice([3, 20, 70])):
        deep = pa.list_(deep)
    kinds = [
        pa.float64(),
        pa.null(),
        pa.struct([]),
        pa.list_view(pa.int64()),
        pa.month_day_nano_interval(),
        deep,
    ]
    kinds += [pa.run_end_encoded(pa.int32(), pa.int64()), pa.dense_union([pa.field("x", pa.int8())])]
    kinds += [pa.timestamp("ms", "No/Where"), pa.binary(2**31 - 1), pa.list_(pa.int64(), 2**31 - 1)]
    schema = pa.ipc.read_schema(pa.py_buffer(base64.b64decode(whole["arrow_schema"])))
    number = random.randrange(len(schema))
    changed = schema.set(number, schema.field(number).with_type(random.choice(kinds)))
    message = random.choice(
        [
            lambda: changed.serialize().to_pybytes(),
            lambda: shared_children(random.choice([10, 60]), random.choice([10, 20_000])),
            lambda: shared_names(random.choice([10, 20_000]), random.choice([10, 1_000_000])),
            lambda: shared_metadata(random.choice([10, 20_000]), random.choice([10, 1_000_000])),
        ]
    )()
    whole["arrow_schema"] = base64.b64encode(message).decode()
    return json_object(whole)


def json_deep(random: Random, data: bytes, objects: Objects) -> bytes:
    """Put a value into the JSON that is nested without an end, very long, or one of very many."""
    whole = json.loads(data)
    name = random.choice(sorted(whole))
    whole[name] = "@"
    raw = json_object(whole)
    filling = random.choice(
        [b"[" * 100_000, b"[]," * 1_000_000, b"1" * 10_000, b'{"a":' * 5_000, b'"' + b"x" * 5_000_000 + b'"']
    )
    filling = b"[" + filling[:-1] + b"]" if filling.startswith(b"[],") else filling
    return resealed(raw.replace(b'"@"', filling, 1))


PARQUET_WAYS: dict[str, tuple[Any, int]] = {
    "bytes": (bytes_unsealed, 1),
    "cut": (cut, 1),
    "bytes, sealed": (bytes_sealed, 6),
    "another object": (swapped, 2),
    "footer": (footer, 6),
    "more fields": (more_fields, 6),
    "page headers": (pages, 6),
    "lying page": (lying_page, 3),
    "another writer": (settings, 2),
    "bomb": (bomb, 1),
    "cells": (cells, 20),
    "rows": (rows_moved, 3),
    "columns": (columns, 3),
    "metadata": (own_metadata, 1),
}
JSON_WAYS: dict[str, tuple[Any, int]] = {
    "bytes": (bytes_unsealed, 1),
    "cut": (cut, 1),
    "bytes, sealed": (bytes_sealed, 5),
    "another object": (swapped, 2),
    "values": (json_value, 20),
    "deep": (json_deep, 1),
    "schema": (json_schema, 4),
}
