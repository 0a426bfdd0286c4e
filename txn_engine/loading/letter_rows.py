"""Dead letters as rows again: what each is read with, and what still fails."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import groupby
from typing import Any

import pyarrow as pa

from txn_engine.errors import InvalidRecordError, InvalidRequestError, TxnEngineError
from txn_engine.files import BadRow, read_records
from txn_engine.loading.dead_letters import REPLAYED_WITH, reason_of
from txn_engine.names import json_printable

NO_COLUMNS = ("_partition", "_offset", "_reason", "_raw")
"""What a line that is to be mended says beside the columns."""
_LINE_END = re.compile(r"\r\n|\r|\n")
_NOT_CUT = "no columns, only bytes that could not be cut into some"


@dataclass(frozen=True, slots=True)
class Letter:
    """One dead letter, as it stands, and the line that somebody has mended it to."""

    values: Mapping[str, Any]
    partition: int
    offset: int
    repaired: str | None = None

    @property
    def group(self) -> tuple[str, str, tuple[str, ...]]:
        """Letters of one group are read together: the topic, how they are read, and of csv the columns."""
        names: tuple[str, ...] = ()
        if self.is_csv:
            names = tuple(self.fields() or ())
        return self.values["topic"], self.values["reading"] or "", names

    @property
    def is_csv(self) -> bool:
        """Whether the row is of csv, whose values are all text."""
        return self.reading().get("format") == "csv"

    def reading(self) -> Mapping[str, Any]:
        """What the row is read with; without a format where that cannot be."""
        return _reading(self.values["reading"])

    def text(self) -> str | None:
        """The row as a JSON object; None where there is none."""
        if self.repaired is not None:
            return self.repaired
        if self.values["columns"] is not None:
            return str(self.values["columns"])
        if self.values["raw"] is not None and not self.is_csv:
            try:
                return bytes(self.values["raw"]).decode().strip()
            except UnicodeDecodeError:
                return None
        return None

    def fields(self) -> dict[str, str] | None:
        """The row's texts by column, of csv; None where they are none."""
        found = _object(self.text() or "")
        if found is None or any(isinstance(value, dict | list) for value in found.values()):
            return None
        null = next(iter(self.reading().get("null_values", ("",))), "")
        decimal = self.reading().get("decimal", ".")
        return {name: _as_field(value, null, decimal) for name, value in found.items()}

    def again(self, error: TxnEngineError | str, failed_at_ms: int, run_id: str) -> dict[str, Any]:
        """The letter that comes back: what failed now, one try more."""
        mended = {} if self.repaired is None else {"columns": self.repaired, "raw": None}
        reason = error if isinstance(error, str) else reason_of(error)
        kind = InvalidRecordError if isinstance(error, str) else type(error)
        return {
            **self.values,
            **mended,
            "reason": reason,
            "error_class": kind.__name__,
            "failed_at": failed_at_ms,
            "run_id": run_id,
            "tries": min(self.values["tries"] + 1, 2**31 - 1),
        }


@lru_cache(maxsize=256)
def _reading(text: str | None) -> Mapping[str, Any]:
    """What a letter says of its reading, judged; empty where it cannot be."""
    found = _object(text or '{"format": "jsonl"}')
    if found is None or not set(found) <= {"format", *REPLAYED_WITH}:
        return {}
    texts = ("format", "date_format", "decimal", "binary", "missing_columns", "unknown_columns")
    columns, nulls = found.get("columns", {}), found.get("null_values", [])
    sound = (
        found.get("format") in ("csv", "jsonl")
        and all(type(found.get(name, "")) is str for name in texts)
        and found.get("binary", "text") in ("text", "base64")
        and isinstance(columns, dict)
        and all(type(value) is str for value in columns.values())
        and isinstance(nulls, list)
        and all(type(value) is str for value in nulls)
    )
    return found if sound else {}


def _object(text: str) -> dict[str, Any] | None:
    try:
        found = json.loads(text, parse_int=WrittenNumber, parse_float=WrittenNumber)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


class WrittenNumber(str):
    """A number as JSON has it written: no float that could be another one."""

    __slots__ = ()


def _as_field(value: Any, null: str, decimal: str) -> str:
    if value is None:
        return null
    if isinstance(value, bool):
        return str(value).lower()
    return str(value).replace(".", decimal) if isinstance(value, WrittenNumber) else str(value)


Failed = tuple[Letter, "TxnEngineError | str"]


def read_again(
    letters: Sequence[Letter], schemas: Mapping[str, pa.Schema]
) -> Iterator[tuple[str, list[pa.RecordBatch], list[Failed]]]:
    """The letters as records, group by group in their order: the topic, its records, the letters that fail again."""
    for (topic, _, _), group in groupby(letters, key=lambda letter: letter.group):
        yield topic, *_group_again(list(group), schemas.get(topic))


def _group_again(
    letters: Sequence[Letter], schema: pa.Schema | None
) -> tuple[list[pa.RecordBatch], list[Failed]]:
    if schema is None:
        return [], [(letter, "no such topic") for letter in letters]
    if not letters[0].reading():
        return [], [(letter, "a dead letter that does not say how it is read") for letter in letters]
    cut, failed = _cut(letters)
    if not cut:
        return [], failed
    text, lines = _as_csv(cut) if cut[0].is_csv else _as_json_lines(cut)
    reading = cut[0].reading()
    by_line = dict(zip(lines, cut, strict=True))
    bad: list[BadRow] = []
    try:
        batches = list(
            read_records(
                io.BytesIO(text.encode(errors="surrogatepass")),
                schema,
                rejected=bad.extend,
                **reading,
            )
        )
    except (
        InvalidRecordError,
        InvalidRequestError,
    ) as error:  # a fault of them all: columns that the topic has not
        return [], [*failed, *((letter, error) for letter in cut)]
    return batches, [*failed, *((by_line[row.line], row.error) for row in bad)]


def _cut(letters: Sequence[Letter]) -> tuple[list[Letter], list[Failed]]:
    """Those that have columns, and those that are bytes still."""
    cut: list[Letter] = []
    failed: list[Failed] = []
    for letter in letters:
        text = letter.text()
        if text is None or (letter.is_csv and not letter.fields()):
            failed.append((letter, _NOT_CUT))
        else:
            cut.append(letter)
    return cut, failed


def _as_csv(letters: Sequence[Letter]) -> tuple[str, list[int]]:
    """A csv file of the letters, and the line that each begins on."""
    stream = io.StringIO()
    writer = csv.writer(stream, quoting=csv.QUOTE_ALL, lineterminator="\n")
    rows = [letter.fields() or {} for letter in letters]
    writer.writerow(list(rows[0]))
    lines = []
    line = 1 + len(_LINE_END.findall(stream.getvalue()))
    for row in rows:
        before = stream.tell()
        writer.writerow(list(row.values()))
        lines.append(line)
        stream.seek(before)
        line += len(_LINE_END.findall(stream.read()))
    return stream.getvalue(), lines


def _as_json_lines(letters: Sequence[Letter]) -> tuple[str, list[int]]:
    texts = [" ".join(_LINE_END.split(letter.text() or "")) for letter in letters]
    return "\n".join(texts) + "\n", list(range(1, len(texts) + 1))


def repair_line(values: Mapping[str, Any]) -> str:
    """A letter as a line of JSON that can be mended: where it stands, why it failed, and its columns as they were."""
    letter = Letter(values, values["_partition"], values["_offset"])
    told = {"_partition": letter.partition, "_offset": letter.offset, "_reason": values["reason"]}
    text = letter.text()
    columns = None if text is None else _object(text)
    if columns is None:
        told["_raw"] = (values["raw"] or b"").decode(errors="backslashreplace")
    own = {name: value for name, value in (columns or {}).items() if name not in NO_COLUMNS}
    parts = [f"{json.dumps(name)}: {dumped(value)}" for name, value in {**told, **own}.items()]
    return json_printable("{" + ", ".join(parts) + "}")


def dumped(value: Any) -> str:
    """JSON, in which a number has the digits that it was read with."""
    if isinstance(value, WrittenNumber):
        return str(value)
    if isinstance(value, dict):
        return "{" + ", ".join(f"{json.dumps(str(k))}: {dumped(v)}" for k, v in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(dumped, value)) + "]"
    return json.dumps(value, ensure_ascii=False)


def with_repaired(letter: Letter, repaired: str | None) -> Letter:
    """The letter, mended."""
    return letter if repaired is None else replace(letter, repaired=repaired)
