"""Dead letters as rows again: what each is read with, and what still fails."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from functools import lru_cache
from itertools import count
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from txn_engine.errors import InvalidRecordError, InvalidRequestError, TxnEngineError
from txn_engine.files import BadRow, read_records
from txn_engine.files.text import checked_encoding, is_blank
from txn_engine.loading.dead_letters import REPLAYED_WITH, reason_of
from txn_engine.loading.letter_names import OF_THE_TOPIC, Names, Row, is_count
from txn_engine.loading.written import WrittenNumber, dumped, object_of
from txn_engine.log.row_sizes import RowSizes
from txn_engine.names import json_printable
from txn_engine.row_checks import RowCheck
from txn_engine.schemas.defaults import fills
from txn_engine.value_text import csv_line

if TYPE_CHECKING:
    from txn_engine.log.topics import Topic

NO_COLUMNS = ("_partition", "_offset", "_reason", "_raw")
"""What a line that is to be mended says beside the columns."""
_LINE_END = re.compile(r"\r\n|\r|\n")
OF_THE_LOAD = ("encoding", "partition")
"""What a letter's `reading` says beside that, of its bytes and of where it goes."""
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
                return bytes(self.values["raw"]).decode(self.encoding).strip()
            except UnicodeError:
                return None
        return None

    @property
    def encoding(self) -> str:
        """Of its bytes."""
        return str(self.reading().get("encoding", "utf-8"))

    @property
    def target(self) -> int | None:
        """The partition that it is for; None where the topic's key says."""
        found = self.reading().get("partition")
        return None if found is None else int(found)

    def fields(self) -> dict[str, str | None] | None:
        """The texts and nulls of a csv row by column; None where the letter has something else."""
        found = object_of(self.text() or "")
        if found is None or any(isinstance(value, dict | list) for value in found.values()):
            return None
        decimal = self.reading().get("decimal", ".")
        return {name: _as_field(value, decimal) for name, value in found.items()}

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
    found = object_of(text or '{"format": "jsonl"}')
    if found is None or not set(found) <= {
        "format",
        "row_checks",
        *OF_THE_LOAD,
        *OF_THE_TOPIC,
        *REPLAYED_WITH,
    }:
        return {}
    texts = ("format", "date_format", "decimal", "thousands", "binary", "missing_columns", "unknown_columns")
    columns, nulls = found.get("columns", {}), found.get("null_values", [])
    sound = (
        found.get("format") in ("csv", "jsonl")
        and all(type(found.get(name, "")) is str for name in texts)
        and found.get("binary", "text") in ("text", "base64")
        and isinstance(columns, dict)
        and all(type(value) is str for value in columns.values())
        and isinstance(nulls, list)
        and all(type(value) is str for value in nulls)
        and all(is_count(found[name]) for name in (*OF_THE_TOPIC, "partition") if name in found)
        and _is_encoding(found.get("encoding", "utf-8"))
        and _has_characters(found)
    )
    checks = _checks(text) if sound and "row_checks" in found else ()
    return {**found, "row_checks": checks} if sound and checks is not None else {}


def _checks(text: str | None) -> tuple[RowCheck, ...] | None:
    """The checks that a letter's row has to pass; None where they are none."""
    try:  # numbers of any length are what the file may say, and not what Python's parser or a Decimal takes
        held = json.loads(text or "{}", parse_float=Decimal)["row_checks"]
        return tuple(RowCheck(each["type"], each["arguments"], each["name"]) for each in held)
    except (InvalidRequestError, TypeError, LookupError, ValueError, ArithmeticError, RecursionError):
        return None


def _has_characters(found: Mapping[str, Any]) -> bool:
    """Whether all its texts are of characters: JSON may escape half of one, which no column and no error can hold."""
    try:
        return bool(dumped(found).encode())
    except UnicodeEncodeError:
        return False


def _is_encoding(name: object) -> bool:
    try:
        return isinstance(name, str) and checked_encoding(name) == name
    except InvalidRequestError:
        return False


def _as_field(value: Any, decimal: str) -> str | None:
    if value is None:
        return None
    if isinstance(value, bool):
        return str(value).lower()
    return str(value).replace(".", decimal) if isinstance(value, WrittenNumber) else str(value)


Failed = tuple[Letter, "TxnEngineError | str"]


@dataclass(frozen=True, slots=True)
class ReadAgain:
    """Letters for one topic, and one partition or by their key, in their order: the records, and those that fail
    again.
    """

    topic: str
    partition: int | None
    records: pa.Table | None
    failed: list[Failed]


def read_again(
    letters: Sequence[Letter], topics: Mapping[str, Topic], *, has_checks: bool = True
) -> Iterator[ReadAgain]:
    """The letters as records: those that are read alike together, whatever stands between them.

    `has_checks`: whether rows have to pass the checks that they were read with.
    """
    alike: dict[Any, list[int]] = {}
    for place, letter in enumerate(letters):
        alike.setdefault(letter.group, []).append(place)
    found: dict[tuple[str, int | None], list[_Read]] = {}
    for places in alike.values():
        group = [letters[place] for place in places]
        topic = group[0].values["topic"]
        records, failed = _group_again(group, topics.get(topic), has_checks)
        bad = {(letter.partition, letter.offset) for letter, _ in failed}
        good = [place for place in places if (letters[place].partition, letters[place].offset) not in bad]
        found.setdefault((topic, group[0].target), []).append((records, good, failed))
    for (topic, partition), reads in found.items():
        failed = [each for _, _, some in reads for each in some]
        failed.sort(key=lambda each: (each[0].partition, each[0].offset))
        yield ReadAgain(topic, partition, _in_order(reads), failed)


_Read = tuple[list[pa.RecordBatch], list[int], list[Failed]]
"""Records, the places of the letters that they are of, and letters that fail."""


def _in_order(reads: Sequence[_Read]) -> pa.Table | None:
    """The records in the order of their letters."""
    batches = [batch for records, _, _ in reads for batch in records]
    if not batches:
        return None
    places = np.concatenate([np.array(good, np.int64) for _, good, _ in reads])
    records = pa.Table.from_batches(batches)
    order: Any = pa.array(np.argsort(places))
    return records.take(order) if (np.diff(places) < 0).any() else records


def _group_again(
    letters: Sequence[Letter], topic: Topic | None, has_checks: bool
) -> tuple[list[pa.RecordBatch], list[Failed]]:
    if topic is None:
        return [], [(letter, "no such topic") for letter in letters]
    target, reading = letters[0].target, letters[0].reading()
    if target is not None and target >= topic.partitions:
        return [], [(letter, "a partition that the topic does not have") for letter in letters]
    if not reading:
        return [], [(letter, "a dead letter that does not say how it is read") for letter in letters]
    names = Names.of(reading, topic)
    cut, failed = _cut(letters, names)
    if not cut:
        return [], failed
    rows = [row for _, row in cut]
    kept = {name: value for name, value in reading.items() if name not in (*OF_THE_LOAD, *OF_THE_TOPIC)}
    if letters[0].is_csv:
        null = _word_of_none(rows)
        kept["null_values"] = [*kept.get("null_values", [""]), null]
        text, lines = _as_csv(rows, null)
    else:
        text, lines = _as_json_lines(rows)
    by_line = dict(zip(lines, (letter for letter, _ in cut), strict=True))
    if not has_checks:
        kept.pop("row_checks", None)
    bad: list[BadRow] = []
    try:
        batches = list(
            read_records(
                io.BytesIO(text.encode(errors="surrogatepass")),
                topic.schema,
                fill=fills(topic.schemas),
                sizes=RowSizes(topic),
                rejected=bad.extend,
                **{**kept, **names.columns},
            )
        )
    except (
        InvalidRecordError,
        InvalidRequestError,
    ) as error:  # a fault of them all: columns that the topic has not
        return [], [*failed, *((letter, error) for letter, _ in cut)]
    return batches, [*failed, *((by_line[row.line], row.error) for row in bad)]


def _cut(letters: Sequence[Letter], names: Names) -> tuple[list[tuple[Letter, Row]], list[Failed]]:
    """Those that have columns, under the names of now, and those that are bytes still, or of which nobody can tell."""
    cut: list[tuple[Letter, Row]] = []
    failed: list[Failed] = []
    for letter in letters:
        text = letter.text()
        row: Row | None = text if not letter.is_csv or text is None else letter.fields()
        if not row or (isinstance(row, str) and is_blank(row)):
            failed.append((letter, _not_cut(letter)))
            continue
        try:
            cut.append((letter, names.of_now(row)))
        except InvalidRecordError as error:
            failed.append((letter, error))
    return cut, failed


def _not_cut(letter: Letter) -> str:
    """Why bytes are no row: what was wrong with them, which nobody has mended."""
    is_as_it_was = letter.repaired is None and letter.values["columns"] is None
    return str(letter.values["reason"]) if is_as_it_was else _NOT_CUT


def _word_of_none(rows: Sequence[Any]) -> str:
    """A word that no row has, to stand for null."""
    taken = {text for row in rows for text in row.values()}
    return next(word for word in ("null" + "l" * more for more in count()) if word not in taken)


def _as_csv(rows: Sequence[Any], null: str) -> tuple[str, list[int]]:
    """A csv file of the rows, which have the same columns, and the line that each begins on. Texts are in quotes, and
    the word for null is not.
    """
    header = csv_line(list(rows[0]), is_quoted=True)
    parts, lines = [header], []
    line = 1 + len(_LINE_END.findall(header))
    for row in rows:
        parts.append(csv_line(list(row.values()), is_quoted=True, null=null))
        lines.append(line)
        line += len(_LINE_END.findall(parts[-1]))
    return "".join(parts), lines


def _as_json_lines(rows: Sequence[Any]) -> tuple[str, list[int]]:
    texts = [" ".join(_LINE_END.split(row)) for row in rows]
    return "\n".join(texts) + "\n", list(range(1, len(texts) + 1))


def repair_line(values: Mapping[str, Any]) -> str:
    """A letter as a line of JSON that can be mended: where it stands, why it failed, and its columns as they were."""
    letter = Letter(values, values["_partition"], values["_offset"])
    told = {"_partition": letter.partition, "_offset": letter.offset, "_reason": values["reason"]}
    text = letter.text()
    columns = None if text is None else object_of(text)
    if columns is None:
        told["_raw"] = (values["raw"] or b"").decode(letter.encoding, errors="backslashreplace")
    own = {name: value for name, value in (columns or {}).items() if name not in NO_COLUMNS}
    parts = [f"{json.dumps(name)}: {dumped(value)}" for name, value in {**told, **own}.items()]
    return json_printable("{" + ", ".join(parts) + "}")


def with_repaired(letter: Letter, repaired: str | None) -> Letter:
    """The letter, mended. Halves of characters, which JSON may name and UTF-8 has not, stay as JSON names them."""
    if repaired is None:
        return letter
    return replace(letter, repaired=repaired.encode(errors="backslashreplace").decode())
