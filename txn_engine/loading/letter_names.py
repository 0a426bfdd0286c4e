"""The names of a dead letter's columns, where the topic's columns have got other ones since."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from txn_engine.errors import InvalidRecordError
from txn_engine.loading.written import WrittenNumber, dumped, object_of
from txn_engine.reasons import Reason

if TYPE_CHECKING:
    from txn_engine.log.topics import Topic

OF_THE_TOPIC: Final = ("incarnation", "schema_version")
"""What a letter's `reading` says of the columns that its row was meant to have. Letters of before do not."""
_DIGITS_MAX: Final = 9
Row: TypeAlias = "str | dict[str, str | None]"
"""The text of a JSON object; of csv the texts and nulls by their columns."""


def is_count(value: object) -> bool:
    """Whether it is a number as `OF_THE_TOPIC` are."""
    return isinstance(value, WrittenNumber) and value.isdecimal() and len(value) <= _DIGITS_MAX


@dataclass(frozen=True, slots=True)
class Names:
    """What becomes of the names in a row.

    renamed: names of then, and those of now. gone: of columns that were dropped. unclear: names that columns have had,
    in a letter that does not say when it was written, and whose row may have other columns of such a name. columns:
    what `read_records` is told of the file's names. passes_over: what else the row has does not matter.
    """

    renamed: Mapping[str, str]
    gone: frozenset[str]
    unclear: Mapping[str, str]
    columns: Mapping[str, Any]
    passes_over: bool

    @classmethod
    def of(cls, reading: Mapping[str, Any], topic: Topic) -> Names:
        """Of letters that were read so, in the topic as it is."""
        schemas, given = topic.schemas, reading.get("columns", {})
        said = [int(reading[name]) for name in OF_THE_TOPIC if name in reading]
        passes_over = reading.get("unknown_columns") == "ignore"
        gone: frozenset[str] = frozenset()
        if len(said) < len(OF_THE_TOPIC):
            then: Mapping[str, int] = dict(schemas.layout.retired)  # no other column ever gets such a name
        elif said[0] == topic.incarnation and said[1] < len(schemas.layouts):
            then = {each.name: each.id for each in schemas.layouts[said[1]].columns}
            gone = frozenset(name for name, number in then.items() if number not in schemas.layout.by_id)
        else:
            then = {}
        known = schemas.layout.by_id
        now = {name: known[number].name for name, number in then.items() if number in known}
        told = {now.get(name, name): file for name, file in given.items() if name not in gone}
        told = {name: file for name, file in told.items() if name in topic.schema.names}
        renamed = {name: new for name, new in now.items() if new != name and name not in given}
        is_unclear = passes_over and len(said) < len(OF_THE_TOPIC)
        return cls(
            {} if is_unclear else renamed,
            frozenset(given.get(name, name) for name in gone),
            renamed if is_unclear else {},
            {"columns": told} if "columns" in reading else {},
            passes_over,
        )

    def of_now(self, row: Row) -> Row:
        """The row under the names of now. Raises `InvalidRecordError` where nobody can tell what a name means."""
        if not (self.renamed or self.gone or self.unclear):
            return row
        if isinstance(row, dict):
            return self._moved(row)
        found = object_of(row)
        if found is None:
            return row  # which says by itself what is wrong with it
        moved = self._moved(found)
        return row if moved == found else dumped(moved)

    def _moved(self, row: Mapping[str, Any]) -> dict[str, Any]:
        unclear = _first(self.unclear, row)
        if unclear is not None:
            raise InvalidRecordError(
                f"column {unclear!r}, which may be the one that is called {self.unclear[unclear]!r} now",
                expected="a mended row with the names of now",
                reason=Reason.AMBIGUOUS_COLUMN,
            )
        new = {name: each for name, each in self.renamed.items() if name in row}
        if not self.passes_over:
            new = {name: each for name, each in new.items() if each not in row}
        taken = set(new.values())
        return {
            new.get(name, name): value
            for name, value in row.items()
            if name not in self.gone and (name in new or name not in taken)
        }


def _first(names: Iterable[str], row: Mapping[str, Any]) -> str | None:
    return next((name for name in names if name in row), None)
