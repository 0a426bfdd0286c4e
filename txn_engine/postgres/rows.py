"""Rows as the server writes them, as records of a topic: every value exactly, and rows that do not fit named, or handed
on as dead letters.
"""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from txn_engine.databases.rows import NoText, Rows
from txn_engine.files.batches import Faults, batch_of
from txn_engine.files.columns import converted
from txn_engine.files.conversion import Conversion
from txn_engine.files.layout import BadRow, BadRows, Sizes
from txn_engine.postgres.copying import parsed
from txn_engine.postgres.kinds import is_bytes, read_as


class ServerText(Conversion):
    """Text as the server writes it, where that is not as files have it."""

    __slots__ = ()

    def array(self, texts: pa.Array[Any], kind: pa.DataType) -> pa.Array[Any]:
        """The texts in a type. ValueError when any does not fit; it does not say which."""
        found: Any
        if is_bytes(kind):
            found = [
                None if text is None else bytes.fromhex(text.removeprefix("\\x"))
                for text in texts.to_pylist()
            ]
            return pa.array(found, kind)
        if pa.types.is_boolean(kind):
            found = pc.equal(texts, pa.scalar("t"))
            return found  # type: ignore[no-any-return]
        return super().array(texts, kind)


class RowReader:
    """Parts of what a query gives, as the topic has it.

    kinds: the query's columns in their order, by the server's types. number: one of them, of whole numbers, by which
    rows are named; else it is their place in the query. with_bad: rows that cannot be used are handed on; else the
    first is an error. sizes: what says which rows are too large. codec: of the server's texts.
    """

    def __init__(
        self,
        name: str,
        actor: str,
        schema: pa.Schema,
        kinds: Mapping[str, str],
        number: str | None,
        *,
        with_bad: bool,
        sizes: Sizes | None = None,
        codec: str = "utf-8",
    ) -> None:
        self._codec = codec
        self._names, self._number = list(kinds), number
        self._fields = [field for field in schema if field.name in kinds]
        self._bad: list[BadRow] = []
        taken = BadRows(self._bad.extend) if with_bad else None
        self._rows = Rows(name, pa.schema(self._fields), actor, taken, sizes)
        self._first = 1
        self._conversion = ServerText(None, "text")
        quick = {field.name: read_as(field.type, kinds[field.name]) for field in self._fields}
        self._quick = {name: kind for name, kind in quick.items() if kind is not None}

    def read(self, text: bytes) -> tuple[pa.Table, list[BadRow]]:
        """The records of the next part, and its rows that cannot be used.

        Raises `InvalidRecordError` for a value that does not fit, where such rows are not wanted.
        """
        self._bad.clear()
        sizes = self._rows.sizes
        try:
            records = self._at_once(text)
            if sizes is not None and any(map(sizes.too_large, records.to_batches())):
                records = self._judged(text)
        except ValueError:  # of pyarrow's: it quotes the text, and names no row of ours
            records = self._judged(text)
        self._first += records.num_rows + len(self._bad)
        return records, list(self._bad)

    def _at_once(self, text: bytes) -> pa.Table:
        """ValueError where any value does not fit."""
        if self._codec != "utf-8":
            text = text.decode(self._codec).encode()
        texts = parsed(text, self._names, self._quick)
        columns = []
        for field in self._fields:
            column: Any = texts[field.name]
            if column.null_count and not field.nullable:
                raise ValueError("a null")
            if field.name not in self._quick:
                column = self._conversion.array(_whole(column), field.type)
            columns.append(column)
        return pa.Table.from_arrays(columns, schema=self._rows.schema)

    def _judged(self, text: bytes) -> pa.Table:
        raw = parsed(text, self._names, dict.fromkeys(self._names, pa.binary()))
        values = {name: self._decoded(raw[name].to_pylist()) for name in self._names}
        numbers = self._numbers(values, raw.num_rows)

        def column(field: pa.Field[Any], faults: Faults) -> pa.Array[Any]:
            found = values[field.name]
            odd = [at for at, value in enumerate(found) if isinstance(value, NoText)]
            for index in odd:
                faults.add(index, self._rows.not_text(field.name, numbers[index]))
            texts = [None if isinstance(value, NoText) else value for value in found] if odd else found
            array = pa.array(texts, pa.string())
            return converted(self._rows, self._conversion, field, array, numbers, faults)

        batch = batch_of(
            self._rows, numbers, column, lambda places: [self._as_json(values, place) for place in places]
        )
        if self._rows.bad_rows is not None:
            self._rows.bad_rows.hand_on()
        return pa.Table.from_batches([batch])

    def _decoded(self, values: list[Any]) -> list[Any]:
        return [None if value is None else NoText.unless_text(value, self._codec) for value in values]

    def _numbers(self, values: Mapping[str, list[Any]], rows: int) -> Sequence[int]:
        if self._number is None:
            return range(self._first, self._first + rows)
        found = enumerate(values[self._number], self._first)
        return [at if number is None else int(number) for at, number in found]

    def _as_json(self, values: Mapping[str, list[Any]], index: int) -> str:
        """A row as a dead letter has it: text, but for nulls, true and false."""
        found = {}
        for field in self._fields:
            value = values[field.name][index]
            if isinstance(value, NoText):
                value = value.in_letter
            elif value is not None and pa.types.is_boolean(field.type):
                value = value == "t"
            elif value is not None and is_bytes(field.type):
                value = b64encode(bytes.fromhex(value.removeprefix("\\x"))).decode()
            found[field.name] = value
        return json.dumps(found, ensure_ascii=False)


def _whole(column: Any) -> Any:
    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
