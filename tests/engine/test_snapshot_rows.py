"""What the rows of a snapshot may say: the engine and the auditor take nothing else."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest

from storage import decode_parquet, encode_parquet
from storage.memory import MemoryStore
from txn_engine.errors import CorruptObjectError
from txn_engine.log.snapshot_format import decode_snapshot, encode_snapshot
from txn_engine.log.snapshot_rows import SECTIONS
from txn_engine.protocol.batches import FileRef
from txn_engine.protocol.offset_commits import GroupOffsets, OffsetCommit, OffsetKey, StoredCommit
from txn_engine.protocol.partition import AbortedRange, LogFile, PartitionState
from txn_engine.protocol.producers import BatchMetadata, ProducerEntry
from txn_engine.protocol.transaction_rows import (
    StoredRow,
    TransactionPartition,
    TransactionRow,
    TransactionState,
)
from txn_engine.verify.descriptors import MalformedError
from txn_engine.verify.limits import SNAPSHOT
from txn_engine.verify.raw_object import RawObject
from txn_engine.verify.snapshot_audit import snapshot_rows

KEY = "topics/payments/0/0/snapshots/00000000000000000009.parquet"


def _file(offset: int) -> LogFile:
    path = f"data/{0:020d}-p7-e0-{offset:032x}.parquet"
    return LogFile(7, 0, offset, offset, 1, 5, 5, FileRef(path, 100, "c" * 32))


def _state() -> PartitionState:
    """A state with a row of every section, whether or not one log can have them all."""
    from immutables import Map

    key = OffsetKey("balances \U0001f600", "payments", 0, 1)
    commit = StoredCommit(3, OffsetCommit(key, 4, -1, "", 5, "", -2, -1), 5)
    row = TransactionRow(
        transactional_id="load",
        state=TransactionState.ONGOING,
        producer_id=7,
        producer_epoch=0,
        transaction_timeout_ms=1_000,
        start_ms=5,
        update_ms=5,
        partitions=(TransactionPartition("payments", 0, 1),),
    )
    batch = BatchMetadata(0, 0, 1, 1, 5)
    return PartitionState(
        log_end_offset=9,
        producers=Map({7: ProducerEntry(7, 0, -1, 5, 5, -1, (batch,))}),
        live=Map({1: _file(1)}),
        named=Map({_file(1).file.data_path: 1}),
        aborted=Map({2: AbortedRange(7, 1, 2, 2)}),
        transactions=Map({"load": StoredRow(3, row, 5, 5)}),
        group_offsets=GroupOffsets(Map({key: commit})),
        erased=Map({_file(3).file.data_path: None}),
    )


def _rows() -> list[tuple[str, dict[str, Any]]]:
    table, _ = decode_parquet(encode_snapshot(_state()), key=KEY)
    columns = (table[name].to_pylist() for name in ("section", "fields"))
    return [(section, json.loads(text)) for section, text in zip(*columns, strict=True)]


def _object(rows: list[tuple[str, str]]) -> bytes:
    schema = pa.schema([pa.field(name, pa.string(), nullable=False) for name in ("section", "fields")])
    columns = [[section for section, _ in rows], [text for _, text in rows]]
    return encode_parquet(pa.table(columns, schema=schema), kind="snapshot")


def _audited(data: bytes) -> list[Any]:
    raw = RawObject(KEY, len(data), data, MemoryStore("snapshot-rows"))
    return list(snapshot_rows(raw.parquet(SNAPSHOT)))


def _is_refused(rows: list[tuple[str, str]]) -> None:
    data = _object(rows)
    with pytest.raises(CorruptObjectError) as refused:
        decode_snapshot(data, key=KEY)
    assert refused.value.place == KEY
    with pytest.raises(MalformedError):
        _audited(data)


def _with(at: int, text: str) -> list[tuple[str, str]]:
    texts = [(section, json.dumps(fields)) for section, fields in _rows()]
    return [*texts[:at], (texts[at][0], text), *texts[at + 1 :]]


def test_a_state_comes_back() -> None:
    """A state with rows of every section comes back as it was, and its rows have the format's fields in order."""
    state = _state()
    assert decode_snapshot(encode_snapshot(state), key=KEY) == state
    assert {section: [*fields] for section, fields in _rows()} == {
        section: [*fields] for section, fields in SECTIONS.items()
    }
    assert [section for section, _ in _audited(encode_snapshot(state))] == [*SECTIONS]


@pytest.mark.parametrize("at", range(len(SECTIONS)), ids=list(SECTIONS))
def test_a_field_that_is_not_of_its_type(at: int) -> None:
    """A field that is missing, that the format does not have, or that is of another type or range is damage."""
    _, fields = _rows()[at]
    for name, value in fields.items():
        for other in _of_other_types(name, value):
            _is_refused(_with(at, json.dumps({**fields, name: other})))
        _is_refused(_with(at, json.dumps({key: held for key, held in fields.items() if key != name})))
    _is_refused(_with(at, json.dumps({**fields, "more": 1})))


def _of_other_types(name: str, value: object) -> list[Any]:
    texts = {
        "null",
        "1.0",
        "true",
        '"1"',
        "[]",
        "{}",
        str(2**63),
        str(-(2**63) - 1),
        "[null]",
        "[{}]",
        "[1.5]",
    }
    texts -= {str: {'"1"'}, bool: {"true"}, list: {"[]"}}.get(type(value), set())
    if name == "run_id":
        texts -= {"null", '"1"'}
    return [json.loads(text) for text in sorted(texts)]


@pytest.mark.parametrize(
    "text",
    ["", "null", "[]", "1", '"x"', "{", "[" * 100_000, '{"a":' * 100_000, "NaN", "{}"],
    ids=[
        "empty",
        "null",
        "list",
        "number",
        "text",
        "cut-off",
        "deep-lists",
        "deep-objects",
        "nan",
        "no-fields",
    ],
)
def test_a_row_that_is_no_object_of_fields(text: str) -> None:
    """A row whose fields are not one JSON object is damage."""
    _is_refused(_with(0, text))


def test_half_a_pair_of_surrogates() -> None:
    """Half a pair of surrogates, which no text has, is damage. A whole pair is a character."""
    at = [*SECTIONS].index("offset_commit")
    _, fields = _rows()[at]
    text = json.dumps(fields)
    assert "\\ud83d\\ude00" in text
    decode_snapshot(_object(_with(at, text)), key=KEY)
    _is_refused(_with(at, text.replace("\\ude00", "")))


def test_rows_of_other_sections() -> None:
    """A section that the format does not have is damage, and so is a snapshot without its first row."""
    texts = [(section, json.dumps(fields)) for section, fields in _rows()]
    _is_refused([*texts, ("more", "{}")])
    _is_refused(texts[1:])
    _is_refused([texts[0], *texts])
