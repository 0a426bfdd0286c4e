"""What is to be proved: a topic, what its consumer made of it, and what ties the two together."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from txn_engine.errors import InvalidRequestError
from txn_engine.reasons import Reason

ACTOR = "exactly-once check"
RECORDS = "*"
"""For `Totals.count`: the output has a record for each record, and no column that counts."""


@dataclass(frozen=True, slots=True)
class Amount:
    """A column of the topic that is summed; with `direction` only where that column is one of `plus`, and taken away
    elsewhere.
    """

    column: str
    direction: str | None = None
    plus: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        _check_text(self.column, "the column of an amount")
        _check_text(self.direction, "direction", or_none=True)
        _put(self, "plus", _names(self.plus, "plus"))


@dataclass(frozen=True, slots=True)
class Totals:
    """For each key, the output's sums are those of the topic's amounts, and its count is their number.

    `by`: the key's columns, the output's name to the topic's. `sums`: an output column to what it sums. `count`: the
    output column that counts, `RECORDS` for its records, None where nothing counts.
    """

    by: Mapping[str, str]
    sums: Mapping[str, Amount] = field(default_factory=dict)
    count: str | None = None

    def __post_init__(self) -> None:
        _put(self, "by", _columns(self.by, "by"))
        _check_text(self.count, "count", or_none=True)
        for name, amount in _mapping(self.sums, "sums").items():
            if not isinstance(amount, Amount):
                raise _refused(
                    f"sums {name!r} of type {type(amount).__name__}", "an Amount", Reason.BAD_FIELD
                )


@dataclass(frozen=True, slots=True)
class SameSet:
    """The output holds the same distinct rows. `columns`: the output's name to the topic's."""

    columns: Mapping[str, str]

    def __post_init__(self) -> None:
        _put(self, "columns", _columns(self.columns, "columns"))


@dataclass(frozen=True, slots=True)
class SameRows:
    """The output holds the same rows, each as often (`identity`). `columns`: the output's name to the topic's."""

    columns: Mapping[str, str]

    def __post_init__(self) -> None:
        _put(self, "columns", _columns(self.columns, "columns"))


@dataclass(frozen=True, slots=True)
class LatestByKey:
    """For each key, the latest record of the output carries the values of the latest record of the topic.

    Both mappings: the output's name to the topic's. A key has to be in one partition: there is no order across several.
    """

    by: Mapping[str, str]
    columns: Mapping[str, str]

    def __post_init__(self) -> None:
        for name in ("by", "columns"):
            _put(self, name, _columns(getattr(self, name), name))


@dataclass(frozen=True, slots=True)
class SqlReduction:
    """Two queries that give the same rows, in whatever order: one over `topic`, one over `output`."""

    topic: str
    output: str

    def __post_init__(self) -> None:
        for name in ("topic", "output"):
            _check_text(getattr(self, name), f"the query over {name}", or_empty=True)


Relation = Totals | SameSet | SameRows | LatestByKey | SqlReduction


@dataclass(frozen=True, slots=True)
class Output:
    """A topic that a consumer wrote, and what it has to be.

    `dead_letter_topic`: where the consumer put, in place of its row, a record of the topic that did not fit. Of an
    identity alone, which has a row for each record.
    """

    topic: str
    relation: Relation
    dead_letter_topic: str | None = None

    def __post_init__(self) -> None:
        _check_text(self.topic, "the topic of an output")
        _check_text(self.dead_letter_topic, "dead_letter_topic", or_none=True)
        if not isinstance(self.relation, Relation):
            raise _refused(
                f"output {self.topic!r} with a relation of type {type(self.relation).__name__}",
                "Totals, SameSet, SameRows, LatestByKey or SqlReduction",
                Reason.BAD_FIELD,
            )


@dataclass(frozen=True, slots=True)
class SuiteOn:
    """A suite of Great Expectations, or a function, and the committed rows that it is held against.

    `checks`: what `txn_engine.quality.load_suite` takes. `topic`: the declared one, or one of its outputs. `severity`:
    `warning` lets nothing of it decide. At most one of: `offsets`, by partition the first offset and the one behind the
    last; `producer`, id and epoch, which is one transaction; `new_only`, what no earlier proof has looked at.
    """

    checks: Any
    topic: str | None = None
    severity: Literal["critical", "warning"] | None = None
    offsets: Mapping[int, tuple[int, int]] = field(default_factory=dict)
    producer: tuple[int, int] | None = None
    new_only: bool = False

    def __post_init__(self) -> None:
        if sum(map(bool, (self.offsets, self.producer is not None, self.new_only))) > 1:
            raise _refused(
                "a suite with several of offsets, producer and new_only",
                "one of them, or none",
                Reason.CONFLICTING_ARGUMENTS,
            )
        for partition, (start, end) in self.offsets.items():
            if partition < 0 or not 0 <= start < end:
                raise _refused(
                    f"a suite for offsets {start} to {end} of partition {partition}",
                    "a first offset and a higher one behind the last",
                    Reason.BAD_FIELD,
                )


@dataclass(frozen=True, slots=True)
class Declaration:
    """What a proof of exactly-once is about.

    `record_id` names the columns that together tell one record from another; one name may stand by itself. Without
    `outputs` or `group_id` what belongs to them is not checked, and the report says so.

    `up_to_position`: judge what `group_id` has consumed, while producers go on: the records below its committed offsets
    and the output that was committed with them. What lies behind, and what is under way, is not judged. Without it
    everything is, and whatever is under way makes checks fail.

    `input_delimiter` and `input_date_format` describe the input file (the Berka file's by default).
    `input_null_values` are its fields without quotes that mean null, as `null_values` of the load says. None: an empty
    field may be null, the empty text, or null without quotes and the empty text with them, but all of a column alike.
    `input_columns`: for columns of the file the topic's name, as `columns` of the load says; None: it was not loaded.
    `suites`: checks of the user's own, which count in the verdict. `dead_letter_topic`: where loads put rows of the
    input file that could not be used.
    """

    topic: str
    record_id: tuple[str, ...]
    outputs: tuple[Output, ...] = ()
    group_id: str | None = None
    up_to_position: bool = False
    input_delimiter: str = ";"
    input_date_format: str = "%y%m%d"
    suites: tuple[SuiteOn, ...] = ()
    dead_letter_topic: str | None = None
    input_null_values: tuple[str, ...] | None = None
    input_columns: Mapping[str, str | None] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._check_types()
        if not self.record_id:
            raise _refused(
                "no record_id", "the columns that tell one record from another", Reason.MISSING_FIELD
            )
        for output in self.outputs:
            _check_output(output)
            if output.dead_letter_topic is not None and not isinstance(output.relation, SameRows):
                raise _refused(
                    f"output {output.topic!r} has dead_letter_topic and no identity",
                    "a row for each record, by `identity`",
                    Reason.MISSING_FIELD,
                )
        for name in self.dead_letter_topics:
            if name in (self.topic, *self.output_topics):
                raise _refused(
                    f"dead_letter_topic {name!r}", "a topic of its own", Reason.NOT_A_DEAD_LETTER_TOPIC
                )
        for suite in self.suites:
            if suite.topic is not None and suite.topic not in self.topics:
                raise _refused(
                    f"a suite for {suite.topic}", f"one for {' or '.join(self.topics)}", Reason.BAD_FIELD
                )
        if self.up_to_position and self.group_id is None:
            raise _refused(
                "up_to_position is given without group_id",
                "the group whose position counts",
                Reason.MISSING_FIELD,
            )
        if len(self.input_delimiter) != 1:
            raise _refused(f"input_delimiter is {self.input_delimiter!r}", "one character", Reason.BAD_FIELD)
        if not _says_a_day(self.input_date_format):
            raise _refused(
                f"input_date_format is {self.input_date_format!r}",
                "one that strptime takes, with year, month and day, as %Y-%m-%d",
                Reason.BAD_FIELD,
            )

    def _check_types(self) -> None:
        _check_text(self.topic, "topic")
        _put(self, "record_id", _names(self.record_id, "record_id"))
        for name, kind in (("outputs", Output), ("suites", SuiteOn)):
            given = getattr(self, name)
            _put(self, name, _several((given,) if isinstance(given, kind) else given, name, kind))
        for name in ("group_id", "dead_letter_topic"):
            _check_text(getattr(self, name), name, or_none=True)
        for name in ("input_delimiter", "input_date_format"):
            _check_text(getattr(self, name), name, or_empty=True)
        for of_file, of_topic in _mapping(self.input_columns, "input_columns").items():
            _check_text(of_file, "input_columns")
            _check_text(of_topic, "input_columns", or_none=True)
        if self.input_null_values is not None:
            _put(self, "input_null_values", _several(self.input_null_values, "input_null_values", str))
        if not isinstance(self.up_to_position, bool):
            raise _refused(f"up_to_position {self.up_to_position!r}", "True or False", Reason.BAD_FIELD)

    @property
    def topics(self) -> tuple[str, ...]:
        """The topics that are read: the one checked, its outputs, those of dead letters."""
        return tuple(dict.fromkeys((self.topic, *self.output_topics, *self.dead_letter_topics)))

    @property
    def output_topics(self) -> tuple[str, ...]:
        """What consumers wrote, without dead letters."""
        return tuple(dict.fromkeys(output.topic for output in self.outputs))

    @property
    def written_topics(self) -> tuple[str, ...]:
        """What consumers wrote, dead letters among it."""
        dead = (output.dead_letter_topic for output in self.outputs)
        return tuple(dict.fromkeys((*self.output_topics, *(each for each in dead if each is not None))))

    @property
    def dead_letter_topics(self) -> tuple[str, ...]:
        """Where rows went that could not be used."""
        named = (self.dead_letter_topic, *(output.dead_letter_topic for output in self.outputs))
        return tuple(dict.fromkeys(each for each in named if each is not None))

    @property
    def topic_columns(self) -> tuple[str, ...]:
        """The columns of the topic that are named; the input file must have them too."""
        named = [*self.record_id]
        for output in self.outputs:
            named += columns_of_topic(output.relation)
        return tuple(dict.fromkeys(named))


def columns_of_topic(relation: Relation) -> tuple[str, ...]:
    """Those that the relation names; a query's are not known."""
    match relation:
        case Totals():
            named = [*relation.by.values()]
            for amount in relation.sums.values():
                named += [amount.column, *([amount.direction] if amount.direction else [])]
            return tuple(dict.fromkeys(named))
        case LatestByKey():
            return (*relation.by.values(), *relation.columns.values())
        case SqlReduction():
            return ()
        case SameSet() | SameRows():
            return tuple(relation.columns.values())


def columns_of_output(relation: Relation) -> tuple[str, ...]:
    """Those that the relation names; a query's are not known."""
    match relation:
        case Totals():
            counted = [relation.count] if relation.count not in (None, RECORDS) else []
            return tuple(dict.fromkeys([*relation.by, *relation.sums, *map(str, counted)]))
        case LatestByKey():
            return (*relation.by, *relation.columns)
        case SqlReduction():
            return ()
        case SameSet() | SameRows():
            return tuple(relation.columns)


def is_of_input(check: Declaration, output: Output) -> bool:
    """Whether the input file, where there is one, takes the topic's place: it has no offsets, no query knows it, and it
    does not have what a replay of dead letters has mended.
    """
    has_letters = check.dead_letter_topic is not None or output.dead_letter_topic is not None
    return isinstance(output.relation, Totals | SameSet | SameRows) and not has_letters


def _check_output(output: Output) -> None:
    relation, place = output.relation, f"output {output.topic!r}"
    match relation:
        case Totals():
            if not relation.by:
                raise _refused(f"{place} has no key", "the columns by which it sums", Reason.MISSING_FIELD)
            if not relation.sums and relation.count is None:
                raise _refused(
                    f"{place} neither sums nor counts", "sum, count, or both", Reason.MISSING_FIELD
                )
            counted = [] if relation.count in (None, RECORDS) else [str(relation.count)]
            _refuse_twice(place, [*relation.by, *relation.sums, *counted])
            for amount in relation.sums.values():
                if amount.direction is not None and not amount.plus:
                    raise _refused(
                        f"{place} has direction {amount.direction!r} without plus",
                        "the values of that column that count up",
                        Reason.MISSING_FIELD,
                    )
        case LatestByKey():
            if not relation.by or not relation.columns:
                raise _refused(
                    f"{place} lacks a key or values", "by and columns for `latest`", Reason.MISSING_FIELD
                )
            _refuse_twice(place, [*relation.by, *relation.columns])
        case SqlReduction():
            if not relation.topic.strip() or not relation.output.strip():
                raise _refused(
                    f"{place} lacks a query", "one for the topic and one for the output", Reason.MISSING_FIELD
                )
        case SameSet() | SameRows():
            if not relation.columns:
                raise _refused(f"{place} names no columns", "at least one", Reason.MISSING_FIELD)


def _refuse_twice(place: str, names: Sequence[str]) -> None:
    """A column of the output is a key, a sum or a count, and nothing else besides."""
    for at, name in enumerate(names):
        if name in names[:at]:
            raise _refused(f"{place} names column {name!r} twice", "each column once", Reason.BAD_FIELD)


def _refused(seen: str, expected: str, reason: Reason) -> InvalidRequestError:
    return InvalidRequestError(seen, actor=ACTOR, expected=expected, reason=reason)


def _put(held: object, name: str, value: object) -> None:
    object.__setattr__(held, name, value)


def _check_text(value: object, what: str, *, or_none: bool = False, or_empty: bool = False) -> None:
    if not ((value is None and or_none) or (isinstance(value, str) and (value or or_empty))):
        raise _refused(f"{what} {value!r:.80}", "a text" + " or None" * or_none, Reason.BAD_FIELD)


def _several(value: object, what: str, kind: type) -> tuple[Any, ...]:
    if not isinstance(value, list | tuple) or not all(isinstance(each, kind) for each in value):
        raise _refused(
            f"{what} of type {type(value).__name__}", f"{kind.__name__}, several or none", Reason.BAD_FIELD
        )
    return tuple(value)


def _names(value: object, what: str) -> tuple[str, ...]:
    """Names of columns; a text is one name, and not its letters."""
    names = _several((value,) if isinstance(value, str) else value, what, str)
    for name in names:
        _check_text(name, what)
    return names


def _mapping(value: object, what: str) -> Mapping[Any, Any]:
    if not isinstance(value, Mapping):
        raise _refused(f"{what} of type {type(value).__name__}", "a mapping", Reason.BAD_FIELD)
    return value


def _columns(value: object, what: str) -> Mapping[str, str]:
    """The output's name of each column to the topic's; one name or several stand for the same name on both sides."""
    if not isinstance(value, Mapping):
        return {name: name for name in _names(value, what)}
    for pair in value.items():
        for name in pair:
            _check_text(name, what)
    return value


def _says_a_day(date_format: str) -> bool:
    """Whether a date that is written so can be read again."""
    day = dt.date(2001, 12, 31)
    try:
        return dt.datetime.strptime(day.strftime(date_format), date_format).date() == day  # noqa: DTZ007 -- a day
    except (ValueError, re.error):
        return False
