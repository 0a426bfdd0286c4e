"""A declaration as a file of YAML (JSON is YAML too)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, cast

from txn_engine.errors import InvalidRequestError
from txn_engine.quality.declaration import (
    ACTOR,
    Amount,
    Declaration,
    LatestByKey,
    Output,
    Relation,
    SameRows,
    SameSet,
    SqlReduction,
    SuiteOn,
    Totals,
)
from txn_engine.quality.documents import DocumentError, read_document
from txn_engine.reasons import Reason

FILE_BYTES_MAX = 256 * 1024
_KINDS = ("sum", "count", "set", "identity", "latest", "sql")


def read_declaration(path: Path) -> Declaration:
    """The declaration that the file holds; `InvalidRequestError`, naming file and field, where it is none."""
    try:
        held = read_document(path, bytes_max=FILE_BYTES_MAX)
    except DocumentError as error:
        where = str(path) if error.line is None else f"{path} line {error.line}"
        expected = "a readable file" if error.reason is Reason.FILE_UNREADABLE else "a declaration"
        raise _refused(where, error.seen, expected, error.reason) from error
    return declaration_from(held, str(path), path.parent)


def declaration_from(held: object, place: str, folder: Path = Path()) -> Declaration:
    """The declaration in values as YAML gives them; `place` is what errors name, `folder` where files are that it names
    by no absolute path.
    """
    at = _Fields(held, place)
    given = _Fields(at.take("input", {}), f"{place} input")
    declared: dict[str, Any] = {
        "topic": at.text("topic"),
        "record_id": at.names("record_id"),
        "outputs": tuple(
            _output(each, f"{place} outputs[{number}]") for number, each in enumerate(at.list("outputs"))
        ),
        "group_id": at.optional_text("group_id"),
        "up_to_position": at.flag("up_to_position"),
        "dead_letter_topic": at.optional_text("dead_letter_topic"),
    }
    for field, name in (("input_delimiter", "delimiter"), ("input_date_format", "date_format")):
        if (value := given.optional_text(name)) is not None:
            declared[field] = value
    if "columns" in given.left:
        declared["input_columns"] = given.renamed("columns")
    if "null_values" in given.left:
        declared["input_null_values"] = given.texts("null_values")
    given.nothing_left()
    declared["suites"] = tuple(
        _suite(each, f"{place} suites[{number}]", folder) for number, each in enumerate(at.list("suites"))
    )
    at.nothing_left()
    return Declaration(**declared)


def _suite(held: object, place: str, folder: Path) -> SuiteOn:
    """A suite: its file, from the declaration's folder, or a mapping with it and what rows it is for."""
    if isinstance(held, str):
        return SuiteOn(folder / held)
    at = _Fields(held, place)
    file = folder / at.text("file")
    severity = at.optional_text("severity")
    if severity not in (None, "critical", "warning"):
        raise _refused(f"{place} severity", repr(severity), "critical or warning")
    offsets = _Fields(at.take("offsets", {}), f"{place} offsets", of=int)
    producer = at.list("producer")
    if producer and (len(producer) != 2 or not all(map(_is_whole, producer))):
        raise _refused(f"{place} producer", "a list that is no pair", "[producer id, epoch]")
    suite = SuiteOn(
        file,
        topic=at.optional_text("topic"),
        severity=cast("Literal['critical', 'warning'] | None", severity),
        offsets={
            partition: _span(offsets.take(partition), f"{place} offsets {partition}")
            for partition in list(offsets.left)
        },
        producer=(producer[0], producer[1]) if producer else None,
        new_only=at.flag("new_only"),
    )
    at.nothing_left()
    return suite


def _span(held: object, place: str) -> tuple[int, int]:
    if not isinstance(held, list) or len(held) != 2 or not all(map(_is_whole, held)):
        raise _refused(place, f"a {type(held).__name__}", "[first offset, the one behind the last]")
    return held[0], held[1]


def _is_whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _output(held: object, place: str) -> Output:
    at = _Fields(held, place)
    topic = at.text("topic")
    kinds = [kind for kind in _KINDS if kind in at.left]
    if not kinds or (len(kinds) > 1 and set(kinds) != {"sum", "count"}):
        seen = ", ".join(kinds) or "none of them"
        raise _refused(
            place, seen, f"one of {', '.join(_KINDS)} (sum and count go together)", Reason.NOT_ONE_RELATION
        )
    relation = _relation(kinds[0], at, place)
    dead_letter_topic = at.optional_text("dead_letter_topic")
    at.nothing_left()
    return Output(topic, relation, dead_letter_topic)


def _relation(kind: str, at: _Fields, place: str) -> Relation:
    match kind:
        case "set":
            return SameSet(at.columns("set"))
        case "identity":
            return SameRows(at.columns("identity"))
        case "latest":
            inner = _Fields(at.take("latest"), f"{place} latest")
            latest = LatestByKey(inner.columns("by"), inner.columns("columns"))
            inner.nothing_left()
            return latest
        case "sql":
            inner = _Fields(at.take("sql"), f"{place} sql")
            queries = SqlReduction(inner.text("topic"), inner.text("output"))
            inner.nothing_left()
            return queries
    sums = _Fields(at.take("sum", {}), f"{place} sum")
    amounts = {name: _amount(sums.take(name), f"{place} sum {name}") for name in list(sums.left)}
    return Totals(at.columns("by"), amounts, at.optional_text("count"))


def _amount(held: object, place: str) -> Amount:
    if isinstance(held, str):
        return Amount(held)
    at = _Fields(held, place)
    plus = tuple(at.list("plus"))
    if any(not isinstance(value, str) for value in plus):
        raise _refused(f"{place} plus", "a value that is no text", "texts (in quotes where YAML needs them)")
    amount = Amount(at.text("of"), at.optional_text("direction"), plus)
    at.nothing_left()
    return amount


class _Fields:
    """A mapping whose fields are taken out one by one, so that a mistyped one is left and refused by name."""

    def __init__(self, held: object, place: str, of: type = str) -> None:
        if not isinstance(held, Mapping) or any(type(name) is not of for name in held):
            expected = "a mapping with names" if of is str else "a mapping with whole numbers"
            raise _refused(place, f"a {type(held).__name__}", expected)
        self.left: dict[Any, Any] = dict(held)
        self._place = place

    def take(self, name: str | int, default: object = None) -> Any:
        if name not in self.left and default is None:
            raise _refused(self._place, f"no {name}", "that field", Reason.MISSING_FIELD)
        return self.left.pop(name, default)

    def text(self, name: str) -> str:
        value = self.take(name)
        if not isinstance(value, str) or not value:
            raise _refused(f"{self._place} {name}", f"a {type(value).__name__}", "a text")
        return value

    def optional_text(self, name: str) -> str | None:
        return self.text(name) if self.left.get(name) is not None else self.left.pop(name, None)

    def flag(self, name: str) -> bool:
        value = self.left.pop(name, False)
        if not isinstance(value, bool):
            raise _refused(f"{self._place} {name}", f"a {type(value).__name__}", "true or false")
        return value

    def list(self, name: str) -> Sequence[Any]:
        value = self.left.pop(name, [])
        if not isinstance(value, list):
            raise _refused(f"{self._place} {name}", f"a {type(value).__name__}", "a list")
        return value

    def texts(self, name: str) -> tuple[str, ...]:
        """A list of texts, which may be empty, as the list may."""
        value = self.list(name)
        if any(not isinstance(each, str) for each in value):
            raise _refused(f"{self._place} {name}", "a value that is no text", "texts")
        return tuple(value)

    def names(self, name: str) -> tuple[str, ...]:
        """One name, or a list of them."""
        value = self.take(name)
        found = [value] if isinstance(value, str) else value
        if not isinstance(found, list) or any(not isinstance(each, str) or not each for each in found):
            raise _refused(
                f"{self._place} {name}", f"a {type(value).__name__}", "a column, or a list of them"
            )
        return tuple(found)

    def columns(self, name: str) -> Mapping[str, str]:
        """Names that both topics have, or a mapping from the output's to the topic's."""
        value = self.left.get(name)
        if not isinstance(value, Mapping):
            return {each: each for each in self.names(name)}
        self.left.pop(name)
        if any(not isinstance(each, str) or not each for pair in value.items() for each in pair):
            raise _refused(f"{self._place} {name}", "a name that is no text", "column: column")
        return dict(value)

    def renamed(self, name: str) -> Mapping[str, str | None]:
        """A name, or nothing, for each name."""
        value = self.take(name)
        sound = isinstance(value, Mapping) and all(
            isinstance(key, str) and key and (each is None or (isinstance(each, str) and each))
            for key, each in value.items()
        )
        if not sound:
            raise _refused(f"{self._place} {name}", "no such mapping", "column of the file: column, or null")
        return dict(value)

    def nothing_left(self) -> None:
        if self.left:
            raise _refused(
                self._place,
                f"a field {min(self.left)!r}",
                "only fields that a declaration has",
                Reason.UNKNOWN_FIELD,
            )


def _refused(place: str, seen: str, expected: str, reason: Reason = Reason.BAD_FIELD) -> InvalidRequestError:
    return InvalidRequestError(seen, actor=ACTOR, place=place, expected=expected, reason=reason)
