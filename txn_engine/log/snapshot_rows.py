"""The rows of a snapshot (docs/FORMAT.md): the fields of each section to a table of two columns, and back.

A small Parquet object costs by the column, to write as to read: a column for each field took ten times as long as all
fields of a row in one text.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import fields
from itertools import islice
from typing import Any, Final, TypeAlias

import pyarrow as pa
import pyarrow.parquet as pq

from txn_engine.log.entry_format import OFFSET_COMMIT_FIELDS, TRANSACTION_FIELDS
from txn_engine.protocol.cleaning import Cleaning

SectionRow: TypeAlias = tuple[str, Mapping[str, Any]]
"""A row: its section, and the values of the section's fields."""

SCHEMA: Final = pa.schema([pa.field(name, pa.string(), nullable=False) for name in ("section", "fields")])
ROW_CHARS_MAX: Final = 64 << 20
"""Of the fields of one row. A transaction over all the partitions that an entry can list takes 40 MB."""
_ROWS_AT_ONCE: Final = 8_192

_Check: TypeAlias = Callable[[Any], bool]


def _is_text(value: Any) -> bool:
    return type(value) is str


def _is_flag(value: Any) -> bool:
    return type(value) is bool


def _is_integer(bits: int) -> _Check:
    most = 2 ** (bits - 1)
    return lambda value: type(value) is int and -most <= value < most


def _is_object(checks: Mapping[str, _Check]) -> _Check:
    return lambda value: type(value) is dict and _problem(value, checks) is None


def _is_list(check: _Check) -> _Check:
    return lambda value: type(value) is list and all(map(check, value))


def _check_of(kind: Any) -> _Check:
    """For the JSON of a value that an entry has in a column of this type."""
    if pa.types.is_struct(kind):
        return _is_object({field.name: _check_of(field.type) for field in kind})
    if pa.types.is_list(kind):
        return _is_list(_check_of(kind.value_type))
    if pa.types.is_integer(kind):
        return _is_integer(kind.bit_width)
    return {pa.string(): _is_text, pa.bool_(): _is_flag}[kind]


def _checks_of(columns: Iterable[tuple[str, pa.DataType]]) -> dict[str, _Check]:
    return {name: _check_of(kind) for name, kind in columns}


_I16, _I32, _I64 = _is_integer(16), _is_integer(32), _is_integer(64)

HEADER: Final = (
    "log_end_offset",
    "last_append_time",
    "log_start_offset",
    "entries_start",
    "floor",
    "last_stable_offset",
)
_BATCH: Final = {
    "base_sequence": _I32,
    "last_sequence": _I32,
    "base_offset": _I64,
    "last_offset": _I64,
    "timestamp": _I64,
}
_LOG_FILE: Final = {
    "producer_id": _I64,
    "producer_epoch": _I16,
    "base_offset": _I64,
    "last_offset": _I64,
    "record_count": _I32,
    "first_timestamp": _I64,
    "max_timestamp": _I64,
    "data_path": _is_text,
    "data_bytes": _I64,
    "checksum": _is_text,
}

SECTIONS: Final[Mapping[str, Mapping[str, _Check]]] = {
    "partition": dict.fromkeys((*HEADER, *(field.name for field in fields(Cleaning))), _I64),
    "producer": {
        "producer_id": _I64,
        "producer_epoch": _I16,
        "coordinator_epoch": _I64,
        "last_timestamp": _I64,
        "append_time": _I64,
        "open_first_offset": _I64,
        "batches": _is_list(_is_object(_BATCH)),
    },
    "file": {"status": _is_text, "died_ms": _I64, **_LOG_FILE},
    "aborted": dict.fromkeys(("producer_id", "first_offset", "last_offset", "last_stable_offset"), _I64),
    "transaction": {
        **dict.fromkeys(("row_offset", "append_time", "start_append_time"), _I64),
        **_checks_of(TRANSACTION_FIELDS),
        "run_id": lambda value: value is None or _is_text(value),
    },
    "offset_commit": {
        **dict.fromkeys(("row_offset", "append_time", "pending_producer_id"), _I64),
        **_checks_of(OFFSET_COMMIT_FIELDS),
    },
    "erased": {"input": _is_text, **_LOG_FILE},
}
"""Of each section, in the rows' order: its fields, and what their values are."""

_text_of = json.JSONEncoder(ensure_ascii=False, check_circular=False, separators=(",", ":")).encode
_value_of = json.JSONDecoder().decode


def snapshot_tables(rows: Iterable[SectionRow]) -> Iterator[pa.Table]:
    """These rows as a snapshot has them, some thousand at a time: as dicts they take ten times the memory."""
    rows = iter(rows)
    while some := list(islice(rows, _ROWS_AT_ONCE)):
        sections, texts = [section for section, _ in some], [_text_of(values) for _, values in some]
        # Without `from_pandas` pandas is loaded, to ask it whether these are its own.
        columns = [pa.array(column, pa.string(), from_pandas=False) for column in (sections, texts)]
        yield pa.Table.from_arrays(columns, schema=SCHEMA)


def rows_by_section(file: pq.ParquetFile) -> dict[str, list[dict[str, Any]]]:
    """The fields of each section's rows, in their order. ValueError for what no snapshot says.

    Memory: of the rows as dicts, and of some thousand as text.
    """
    if not file.schema_arrow.equals(SCHEMA):
        raise ValueError(f"columns {file.schema_arrow.names!r:.400}")
    sections: dict[str, list[dict[str, Any]]] = {name: [] for name in SECTIONS}
    for batch in file.iter_batches(_ROWS_AT_ONCE, use_threads=False):
        for section, text in zip(*(column.to_pylist() for column in batch.columns), strict=True):
            if section not in sections:
                raise ValueError(f"a row of section {section!r:.80}")
            sections[section].append(_fields(section, text))
    return sections


def _fields(section: str, text: str) -> dict[str, Any]:
    if len(text) > ROW_CHARS_MAX:
        raise ValueError(f"a row of section {section!r} with {len(text)} characters")
    values = _value_of(text)
    problem = _problem(values, SECTIONS[section]) if type(values) is dict else "no JSON object"
    if problem is not None:
        raise ValueError(f"a row of section {section!r}: {problem}")
    if "\\u" in text:
        _text_of(values).encode()  # half a pair of surrogates is no text
    return dict(values)


def _problem(values: dict[str, Any], checks: Mapping[str, _Check]) -> str | None:
    if values.keys() != checks.keys():
        return f"fields {[*values]!r:.400}"
    for name, check in checks.items():
        if not check(value := values[name]):
            return f"{name} {value!r:.80}"
    return None
