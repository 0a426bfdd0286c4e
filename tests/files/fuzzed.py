"""`python -m tests.files.fuzzed`: files of every format with random changes, read as a load reads them.

--minutes 60          as long; by default 1
--seed today          the first part of each case's name; by default a fresh one
--case SEED/NUMBER    this one alone, and the file that it leaves in the folder of now

A reader of our own, which knows nothing but the format's rules, says which rows a changed file of text has. Each is a
record or a bad row; a record has exactly the values that stand there, and a row that nobody changed is a record. Of
Parquet, PyArrow reads the same file.
"""

from __future__ import annotations

import argparse
import json
import random
import re
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from tests.types.columns import plain
from tests.types.random_values import maker
from txn_engine.errors import TxnEngineError
from txn_engine.files import read_records
from txn_engine.files.layout import BadRow

KINDS: Sequence[Any] = (
    pa.int64(),
    pa.int16(),
    pa.decimal128(18, 2),
    pa.float64(),
    pa.string(),
    pa.bool_(),
    pa.date32(),
    pa.timestamp("us"),
)
_ROWS_MAX = 40
_SLOW_S = 20.0
_UNDECODABLE = range(0xDC80, 0xDD00)


class WrongError(Exception):
    """What is not as it should be."""


_MARK = "\ufeff"


@dataclass(frozen=True)
class Row:
    """A row of text on the line that it begins on: its fields, each with whether it stood in quotes; None where it
    cannot be cut into fields.
    """

    line: int
    raw: str
    fields: Sequence[tuple[str, bool]] | None


# --- files --------------------------------------------------------------------------------------------------


def table_of(chance: random.Random) -> pa.Table:
    """A few columns of random values, nulls among them."""
    rows = chance.randint(1, _ROWS_MAX)
    columns: dict[str, Any] = {}
    for at in range(chance.randint(1, 4)):
        kind = chance.choice(KINDS)
        make = maker(kind)
        columns[f"c{at}"] = pa.array(
            [None if chance.random() < 0.1 else make(chance) for _ in range(rows)], kind
        )
    return pa.table(columns)


def as_csv(table: pa.Table, chance: random.Random) -> bytes:
    """The table as CSV; each text in quotes or not, as it may be."""
    end = chance.choice(("\n", "\r\n"))
    lines = [",".join(table.column_names)]
    for row in table.to_pylist():
        fields = [_csv_field(value, chance) for value in row.values()]
        lines.append(",".join(fields))
    return (end.join(lines) + chance.choice((end, ""))).encode()


def _csv_field(value: Any, chance: random.Random) -> str:
    if value is None:
        return ""
    text = _text_of(value)
    if (
        isinstance(value, str)
        and (not text or text.startswith(_MARK) or any(mark in text for mark in '",\r\n'))
    ) or chance.random() < 0.1:
        return '"' + text.replace('"', '""') + '"'
    return text


def _text_of(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, date):
        return value.isoformat()
    return repr(value) if isinstance(value, float) else str(value)


def as_json_lines(table: pa.Table, chance: random.Random) -> bytes:
    """The table as JSON lines; a null is written or left out."""
    lines = []
    for row in table.to_pylist():
        given = {
            name: value if isinstance(value, str | bool | int) or value is None else _text_of(value)
            for name, value in row.items()
        }
        lines.append(json.dumps(given, ensure_ascii=chance.random() < 0.5))
    return ("\n".join(lines) + "\n").encode()


def as_parquet(table: pa.Table, chance: random.Random) -> bytes:
    """The table as Parquet, written in one of its many ways."""
    sink = pa.BufferOutputStream()
    pq.write_table(
        table,
        sink,
        compression=chance.choice(("none", "snappy", "zstd", "gzip", "lz4")),
        use_dictionary=chance.random() < 0.5,
        data_page_version=chance.choice(("1.0", "2.0")),
        row_group_size=chance.choice((1, 7, 1_000)),
        write_statistics=chance.random() < 0.5,
        store_schema=chance.random() < 0.5,
    )
    return bytes(sink.getvalue())


def changed(data: bytes, chance: random.Random, *, first: int, words: Sequence[bytes]) -> bytes:
    """The bytes with a few changes behind `first`."""
    found = bytearray(data)
    for _ in range(chance.choice((0, 1, 1, 1, 2, 5, 20))):
        if len(found) <= first:
            return bytes(found)
        at = chance.randrange(first, len(found))
        until = min(len(found), at + chance.choice((1, 1, 2, 10, 100)))
        match chance.randrange(6):
            case 0:
                found[at] = chance.randrange(256)
            case 1:
                found[at] ^= 1 << chance.randrange(8)
            case 2:
                del found[at:until]
            case 3:
                found[at:at] = found[at:until]
            case 4:
                found[at:at] = chance.choice(words)
            case _:
                del found[at if chance.random() < 0.2 else until :]
    return bytes(found)


# --- a reader that knows the rules alone ------------------------------------------------------------------------


def csv_rows(text: str, line: int) -> Iterator[Row]:
    """The rows of CSV in their order, the first on this line; one behind a byte order mark is bad. WrongError where a
    quote is never closed.
    """
    at = 0
    while at < len(text):
        fields: list[tuple[str, bool]] = []
        is_bad, begin = text[at] == _MARK, at
        while text[at : at + 1] == _MARK:
            at += 1
        first = at
        while True:
            field, is_quoted, at, bad = _csv_cell(text, at)
            fields.append((field, is_quoted))
            is_bad = is_bad or bad
            if bad:
                while at < len(text) and text[at] not in "\r\n":
                    at += 1
            if at >= len(text) or text[at] != ",":
                break
            at += 1
        end = at
        if at < len(text):
            at += 2 if text.startswith("\r\n", at) else 1
        yield Row(line, text[first:end], None if is_bad else fields)
        line += _line_ends(text[begin:at])


def _csv_cell(text: str, at: int) -> tuple[str, bool, int, bool]:
    """A field, whether it is in quotes, where it ends, and whether its quotes are wrong."""
    if text[at : at + 1] != '"':
        end = at
        while end < len(text) and text[end] not in ",\r\n":
            end += 1
        return text[at:end], False, end, False
    found = []
    at += 1
    while True:
        end = text.find('"', at)
        if end < 0:
            raise WrongError("never closed")
        found.append(text[at:end])
        at = end + 1
        if text[at : at + 1] != '"':
            return "".join(found), True, at, at < len(text) and text[at] not in ",\r\n"
        found.append('"')
        at += 1


def json_rows(text: str, line: int) -> Iterator[Row]:
    """The lines that are not blank, the first of them this one."""
    for number, whole in enumerate(re.split("\r\n|\r|\n", text), line):
        raw = whole.lstrip(_MARK)
        if raw.strip(" \t"):
            yield Row(number, raw, None)


def value_of(text: str, kind: Any) -> Any:
    """The value that a text stands for; None where it stands for none. WrongError where the rules say nothing."""
    try:
        if pa.types.is_integer(kind):
            number = Decimal(text)
            return int(number) if number == number.to_integral_value() else None
        if pa.types.is_decimal(kind):
            return Decimal(text)
        if pa.types.is_floating(kind):
            return float(text).hex()
        if pa.types.is_date(kind):
            return (date.fromisoformat(text) - date(1970, 1, 1)).days
        if pa.types.is_timestamp(kind):
            past = datetime.fromisoformat(text) - datetime(1970, 1, 1)  # noqa: DTZ001 -- the column has no zone
            return ((past.days * 86_400 + past.seconds) * 10**6 + past.microseconds) * 1_000
    except (ValueError, InvalidOperation, OverflowError, TypeError):
        return None
    if pa.types.is_boolean(kind):
        return {"true": True, "1": True, "t": True, "yes": True}.get(text.lower(), False)
    return text


# --- a case -------------------------------------------------------------------------------------------------------


def run_case(name: str, folder: Path) -> str:
    """What came of the case. WrongError where that is not as it should be."""
    chance = random.Random(name)
    form = chance.choice(("csv", "csv", "jsonl", "parquet"))
    table = table_of(chance)
    path = folder / f"case.{form}"
    if form == "parquet":
        path.write_bytes(changed(as_parquet(table, chance), chance, first=0, words=(b"PAR1", b"\x00" * 8)))
        return _parquet_case(path, table.schema)
    write = as_csv if form == "csv" else as_json_lines
    original = write(table, chance)
    header = original.index(b"\n") + 1 if form == "csv" else 0
    words: Sequence[bytes] = (
        b'"',
        b'""',
        b",",
        b"\n",
        b"\r",
        b"\r\n",
        b"\n\n",
        b"\xff",
        b"\x00",
        b"null",
        b"1e400",
        b"{",
    )
    data = changed(original, chance, first=header, words=words)
    path.write_bytes(data)
    return _text_case(path, table, original, data, form, header)


def _read(
    path: Path, schema: pa.Schema, rejected: Callable[[Sequence[BadRow]], None] | None
) -> pa.Table | TxnEngineError:
    try:
        return pa.Table.from_batches(list(read_records(path, schema, rejected=rejected)), schema)
    except TxnEngineError as error:
        if "\n" in str(error):
            raise WrongError(f"more than one line: {error}") from None
        return error


def _parquet_case(path: Path, schema: pa.Schema) -> str:
    bad: list[BadRow] = []
    found = _read(path, schema, bad.extend)
    if isinstance(found, TxnEngineError):
        return "parquet refused"
    expected = pq.ParquetFile(path).read(use_threads=False)
    if len(found) + len(bad) != len(expected):
        raise WrongError(f"{len(found)} records and {len(bad)} bad rows of {len(expected)}")
    kept = pa.array(sorted(set(range(len(expected))) - {row.line - 1 for row in bad}), pa.int64())
    for name in schema.names:
        if plain(found.column(name)) != plain(expected.column(name).take(kept)):
            raise WrongError(f"other values in {name}")
    return "parquet read"


def _text_case(path: Path, table: pa.Table, original: bytes, data: bytes, form: str, header: int) -> str:
    bad: list[BadRow] = []
    found = _read(path, table.schema, bad.extend)
    text = data[header:].decode("utf-8", "surrogateescape")
    rows_of = csv_rows if form == "csv" else json_rows
    try:
        rows = list(rows_of(text, 2 if header else 1))
    except WrongError:
        if isinstance(found, TxnEngineError):
            return f"{form} refused: a quote that nothing closes"
        raise WrongError("a quote that nothing closes, and read") from None
    is_one = len(table.schema) == 1
    rows = [row for row in rows if row.raw or is_one]
    if isinstance(found, TxnEngineError):
        if rows:
            raise WrongError(f"{len(rows)} rows, refused as a whole: {found}")
        return f"{form} refused: nothing in it"
    if len(found) + len(bad) != len(rows):
        raise WrongError(f"{len(found)} records and {len(bad)} bad rows of {len(rows)} rows")
    whole = {row.raw for row in rows_of(original[header:].decode(), 1)}
    records = (
        found.to_pylist() if not len(found) else [*zip(*(plain(each) for each in found.columns), strict=True)]
    )
    _compare(rows, records, _bad_numbers(rows, bad), table.schema, whole, form)
    return f"{form} read, {'some' if bad else 'no'} bad rows"


def _bad_numbers(rows: Sequence[Row], bad: Sequence[BadRow]) -> set[int]:
    """Which of the rows the bad ones are, by the lines that they begin on."""
    of_line = {row.line: number for number, row in enumerate(rows)}
    unknown = [each.line for each in bad if each.line not in of_line]
    if unknown:
        raise WrongError(f"a bad row on line {unknown[0]}, on which none begins")
    return {of_line[each.line] for each in bad}


def _line_ends(text: str) -> int:
    return text.count("\n") + text.count("\r") - text.count("\r\n")


def _compare(
    rows: Sequence[Row], records: Sequence[Any], bad: set[int], schema: pa.Schema, whole: set[str], form: str
) -> None:
    for number in bad:
        if rows[number].raw in whole:
            raise WrongError(f"a row that nobody changed is bad: {rows[number].raw!r:.200}")
    good = (row for number, row in enumerate(rows) if number not in bad)
    for row, record in zip(good, records, strict=True):
        if any(ord(char) in _UNDECODABLE for char in row.raw):
            raise WrongError(f"a record of bytes that are no text: {row.raw!r:.200}")
        given = _json_texts(row.raw, schema) if form == "jsonl" else row.fields
        if given is None or len(given) != len(schema):
            raise WrongError(f"a record of {row.raw!r:.200}")
        for (text, is_quoted), value, field in zip(given, record, schema, strict=True):
            is_text = pa.types.is_string(field.type)
            if value is None:
                is_right = text is None or (text == "" and form == "csv" and not (is_quoted and is_text))
            else:
                is_right = text is not None and value_of(text, field.type) == value
            if not is_right:
                raise WrongError(f"{field.type} {value!r} of {text!r}")


def _json_texts(raw: str, schema: pa.Schema) -> list[tuple[Any, bool]] | None:
    """The values by the schema's names, as texts; None for what is no JSON object."""
    try:
        found = json.loads(raw, parse_float=str, parse_int=str, parse_constant=str)
    except ValueError:
        return None
    if not isinstance(found, dict):
        return None
    values = [found.get(name) for name in schema.names]
    return [(str(value).lower() if isinstance(value, bool) else value, False) for value in values]


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.files.fuzzed")
    parser.add_argument("--minutes", type=float, default=1)
    parser.add_argument("--seed", default=f"{int(time.time())}")
    parser.add_argument("--case")
    asked = parser.parse_args()
    if asked.case:
        sys.stdout.write(f"{run_case(asked.case, Path())}\n")
        return 0
    until, number, wrong = time.monotonic() + 60 * asked.minutes, 0, 0
    seen: Counter[str] = Counter()
    with tempfile.TemporaryDirectory(prefix="txn-engine-fuzzed-") as folder:
        while time.monotonic() < until:
            name, begun = f"{asked.seed}/{number}", time.monotonic()
            try:
                seen[run_case(name, Path(folder))] += 1
                if time.monotonic() - begun > _SLOW_S:
                    raise WrongError(f"{time.monotonic() - begun:.0f} s")
            except Exception as error:  # noqa: BLE001 -- whatever it is, it is wrong, and the next case is tried too
                wrong += 1
                sys.stdout.write(f"WRONG {name}: {type(error).__name__}: {error}\n")
                sys.stdout.flush()
            number += 1
    for what, count in sorted(seen.items()):
        sys.stdout.write(f"{count:>10,} {what}\n")
    sys.stdout.write(f"{number:,} files, {wrong} wrong, seed {asked.seed}\n")
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
