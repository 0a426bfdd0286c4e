"""The committed records beside the rows of the input file."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from txn_engine.quality.canonical import cells_text, column_text, row_text
from txn_engine.quality.evidence import Evidence, EvidenceMissingError, need, rows_of
from txn_engine.quality.input_file import InputRows


def records(evidence: Evidence) -> pa.Table:
    """Each committed record: `record_id`, `partition`, `offset`, and `input_rows`, how often the file has it."""
    table = rows_of(evidence, evidence.check.topic).committed
    ids = column_text(table[evidence.check.record_id])
    columns = {"record_id": ids, "partition": table["_partition"], "offset": table["_offset"]}
    if evidence.input is not None:
        columns["input_rows"] = _occurrences(ids, _input_ids(evidence))
    return pa.table(columns)


def input_rows(evidence: Evidence) -> pa.Table:
    """Each row of the file: `line`, `record_id`, and `committed_rows`, how many committed records have that id."""
    need(evidence, "offsets")  # they say whether the topic is whole
    table = rows_of(evidence, evidence.check.topic).committed
    ids = _input_ids(evidence)
    return pa.table(
        {
            "line": pa.array(_input(evidence).lines, pa.int64()),
            "record_id": ids,
            "committed_rows": _occurrences(ids, column_text(table[evidence.check.record_id])),
        }
    )


def matched(evidence: Evidence) -> pa.Table:
    """Each committed record that the file has: its id, where both stand, and both rows written out for comparison."""
    table = rows_of(evidence, evidence.check.topic).committed
    ids = column_text(table[evidence.check.record_id])
    row = pc.index_in(ids, value_set=_input_ids(evidence))
    found = pc.is_valid(row)
    table, ids, row = table.filter(found), ids.filter(found), row.filter(found)
    names = compared_columns(evidence)
    cells = _input(evidence).columns
    date_format = evidence.check.input_date_format
    expected = row_text(
        [(name, cells_text(cells[name], table.schema.field(name).type, date_format)) for name in names]
    )
    return pa.table(
        {
            "record_id": ids,
            "line": pa.array(_input(evidence).lines, pa.int64()).take(row),
            "partition": table["_partition"],
            "offset": table["_offset"],
            "input_row": expected.take(row),
            "committed_row": row_text([(name, column_text(table[name])) for name in names]),
        }
    )


def compared_columns(evidence: Evidence) -> list[str]:
    """The columns that both the file and the topic have, in the file's order."""
    schema = rows_of(evidence, evidence.check.topic).committed.schema
    return [name for name in _input(evidence).columns if name in schema.names]


def _input(evidence: Evidence) -> InputRows:
    if evidence.input is None:
        raise EvidenceMissingError("no input file was given")
    return evidence.input


def _input_ids(evidence: Evidence) -> Any:
    check = evidence.check
    kind = rows_of(evidence, check.topic).committed.schema.field(check.record_id).type
    return cells_text(_input(evidence).columns[check.record_id], kind, check.input_date_format)


def _occurrences(values: Any, among: Any) -> Any:
    """For each value, how often it stands in the other column."""
    counts = pc.value_counts(among)
    place = pc.index_in(values, value_set=counts.field("values"))
    return pc.fill_null(counts.field("counts").take(place), 0)
