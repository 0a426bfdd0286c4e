"""Records as programs hold them, as an Arrow table of a topic's types: frames, dicts of columns, lists of dicts.

Every value arrives as it was, or the call is refused with its column's name. No error quotes a value. pandas is only
looked at where the caller has imported it; Polars and others hand over Arrow data themselves (`__arrow_c_stream__`).
"""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final, Protocol, TypeAlias

import numpy as np
import pyarrow as pa

from txn_engine.errors import InvalidRecordError, InvalidRequestError
from txn_engine.exact import InexactError, cast_exactly
from txn_engine.held import held_type, laid_out
from txn_engine.producer.sender import Records
from txn_engine.reasons import Reason
from txn_engine.schemas.column_names import given_twice
from txn_engine.schemas.defaults import fills
from txn_engine.schemas.layout import Schemas

_ARROW: Final = (pa.Table, pa.RecordBatch, pa.RecordBatchReader)
_EXPECTED: Final = (
    "a pyarrow Table, RecordBatch or reader, a pandas or Polars frame, a dict of columns, or a list of dicts"
)
_NOT_BUILT: Final = (ValueError, TypeError, OverflowError, ArithmeticError, NotImplementedError)
"""What pyarrow raises for values that it does not make a column of."""


class ArrowStream(Protocol):
    """A frame that hands over Arrow data: Polars', pandas', DuckDB's."""

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """The records, by Arrow's PyCapsule interface."""


RecordsLike: TypeAlias = "Records | ArrowStream | Mapping[str, Any] | Sequence[Mapping[str, Any]]"
"""What a producer takes."""


def as_records(given: object, schemas: Schemas, *, topic: str, actor: str) -> Records:
    """The records as Arrow has them. Those that are Arrow's already are not looked at.

    Integers, decimals, floats, times and layouts are converted where each value has an equal in the topic's type. In
    pandas' columns NaN, NaT and None are nulls; an index with a name is a column, one without is left out. A dict
    of a list that lacks a column has its default there, or null.

    Raises `InvalidRequestError` for what holds no records, and `InvalidRecordError` for a value that does not fit.
    """
    if isinstance(given, _ARROW):
        return given
    if isinstance(given, Mapping):
        _check_indexes(given, topic)
    columns = _columns_of(given, schemas, actor)
    names = [name for name, _ in columns]
    odd: list[object] = [*filter(lambda name: not isinstance(name, str), names)]
    if odd:
        raise _refused(topic, f"a column name of type {type(odd[0]).__name__}", "names that are text")
    if given_twice(names) or not set(names) <= set(schemas.arrow.names):
        # `conform` refuses these names, as it does a table's: what they hold is not looked at.
        return pa.Table.from_arrays([pa.nulls(0)] * len(names), names=names)
    arrays = [_column(values, schemas.layout.by_name[name].type, name, topic) for name, values in columns]
    if len({len(array) for array in arrays}) > 1:
        lengths = ", ".join(f"{name!r} {len(array)}" for name, array in zip(names, arrays, strict=True))
        raise _refused(topic, f"columns of different lengths ({lengths:.200})", "one value for each record")
    return pa.Table.from_arrays(arrays, names=names)


def _columns_of(given: object, schemas: Schemas, actor: str) -> list[tuple[str, Any]]:
    """Names and values of the columns."""
    pandas = sys.modules.get("pandas")
    if pandas is not None and isinstance(given, pandas.DataFrame):
        return _of_pandas(given)
    if isinstance(given, Mapping):
        return list(given.items())
    if isinstance(given, Sequence) and all(isinstance(row, Mapping) for row in given):
        return _of_rows(given, schemas) if not isinstance(given, str | bytes) else _no_records(given, actor)
    if hasattr(given, "__arrow_c_stream__"):
        try:
            table = pa.table(given)
        except _NOT_BUILT:
            return _one_by_one(given, actor)
        return list(zip(table.schema.names, table.columns, strict=True))
    return _no_records(given, actor)


def _check_indexes(given: Mapping[Any, Any], topic: str) -> None:
    """Raise `InvalidRecordError` for pandas' Series whose rows have other labels, or labels in another order: pandas
    puts rows of one label together, and here they would be put together as they stand.
    """
    pandas = sys.modules.get("pandas")
    if pandas is None:
        return
    series = [(name, each) for name, each in given.items() if isinstance(each, pandas.Series)]
    for name, each in series[1:]:
        if not each.index.equals(series[0][1].index):
            raise InvalidRecordError(
                f"columns {series[0][0]!r} and {name!r}, which are pandas Series whose indexes differ",
                actor=f"produce to {topic!r}",
                expected="Series of one index",
                action="make a DataFrame of them, which puts rows of one label together, or give `series.array`",
                reason=Reason.BAD_ARGUMENT,
            )


def _one_by_one(given: Any, actor: str) -> list[tuple[str, Any]]:
    """The columns of a frame that Arrow does not take as a whole: the one that it does not take is told by its name."""
    names = getattr(given, "columns", None)
    if not isinstance(names, Sequence) or isinstance(names, str):
        return _no_records(given, actor)
    return [(name, given[name]) for name in names]


def _no_records(given: object, actor: str) -> list[tuple[str, Any]]:
    raise InvalidRequestError(
        f"records as {type(given).__name__}", actor=actor, expected=_EXPECTED, reason=Reason.BAD_ARGUMENT
    )


def _of_pandas(frame: Any) -> list[tuple[str, Any]]:
    named = [number for number, name in enumerate(frame.index.names) if name is not None]
    levels = [
        (frame.index.names[number], frame.index.get_level_values(number).to_series()) for number in named
    ]
    return [*levels, *((name, frame.iloc[:, number]) for number, name in enumerate(frame.columns))]


def _of_rows(rows: Sequence[Mapping[str, Any]], schemas: Schemas) -> list[tuple[str, Any]]:
    """Columns of a list of dicts. A column that none of them has is left to what fills a topic's columns."""
    fill = fills(schemas)
    wanted = schemas.arrow.names
    names = dict.fromkeys(name for row in rows for name in row)
    names |= dict.fromkeys(name for name in wanted if name not in names and name not in fill)
    defaults = {name: value.as_py() for name, value in fill.items() if value is not None}
    return [(name, [row.get(name, defaults.get(name)) for row in rows]) for name in names]


# --- one column ---------------------------------------------------------------------------------------------------


def _column(values: Any, kind: Any, name: str, topic: str) -> Any:
    """The values in the topic's type."""
    pandas = sys.modules.get("pandas")
    if pandas is not None and isinstance(values, pandas.Series | pandas.Index):
        series = values.to_series() if isinstance(values, pandas.Index) else values
        if isinstance(series.dtype, pandas.SparseDtype):
            series = series.sparse.to_dense()
        elif isinstance(series.dtype, np.dtype):
            series = series.astype(series.dtype.newbyteorder("="), copy=False)
        if series.dtype != object:
            return _cast(_built(pa.Array.from_pandas, series, name, topic), kind, name, topic)
        values = [None if missing else value for value, missing in zip(series, series.isna(), strict=True)]
    elif isinstance(values, np.ndarray):
        if values.dtype != object and values.ndim == 1:
            native = values.astype(values.dtype.newbyteorder("="), copy=False)
            return _cast(_built(pa.array, native, name, topic), kind, name, topic)
        values = values.tolist()
    elif isinstance(values, pa.Array | pa.ChunkedArray):
        return _cast(values, kind, name, topic)
    elif hasattr(values, "__arrow_c_stream__"):
        return _cast(_built(pa.chunked_array, values, name, topic), kind, name, topic)
    if not isinstance(values, Sequence) or isinstance(values, str | bytes):
        raise _refused(
            topic, f"column {name!r} of type {type(values).__name__}", "a list or an array of values"
        )
    return _from_values(list(values), kind, name, topic)


def _built(make: Any, values: Any, name: str, topic: str) -> Any:
    try:
        return make(values)
    except _NOT_BUILT:
        pass  # its text quotes values
    raise _refused(topic, f"column {name!r} holds values that Arrow does not have", "a column of one type")


def _from_values(values: list[Any], kind: Any, name: str, topic: str) -> Any:
    """Python's values. pyarrow cuts some without a word (a time of day, a struct's member), so they are compared."""
    try:
        found = pa.array(values, kind)
        bad = next((at for at, back in enumerate(found.to_pylist()) if not _is_same(back, values[at])), None)
    except _NOT_BUILT:
        bad = _first_not_built(values, kind)
    if bad is None:
        return found
    raise _inexact(name, bad, type(values[bad]).__name__, kind, topic)


def _first_not_built(values: list[Any], kind: Any) -> int:
    for at, value in enumerate(values):
        try:
            if not _is_same(pa.array([value], kind)[0].as_py(), value):
                return at
        except _NOT_BUILT:
            return at
    return 0


def _is_same(back: Any, given: Any) -> bool:
    """Whether a value came back as it was: no date is a time, no truth a number, and nothing is cut off."""
    if back is None or given is None:
        return back is given
    if isinstance(back, bool) != isinstance(given, bool | np.bool_):
        return False
    if isinstance(given, Mapping):
        if not isinstance(back, Mapping):
            return _is_same(back, list(given.items()))
        return given.keys() <= back.keys() and all(_is_same(back[name], given.get(name)) for name in back)
    if isinstance(back, list | tuple):
        if not isinstance(given, list | tuple | np.ndarray) or len(back) != len(given):
            return False
        return all(_is_same(*pair) for pair in zip(back, given, strict=True))
    if isinstance(back, datetime) and isinstance(given, datetime) and back.tzinfo and given.tzinfo:
        # Python compares times of two zones as unequal in an hour that comes twice.
        return back.astimezone(UTC) == given.astimezone(UTC)
    if isinstance(given, float | np.floating) and isinstance(back, int) and _are_unclear(np.asarray(given)):
        return False
    if isinstance(back, float) and math.isnan(back):
        return bool(given != given)
    return bool(back == given)


def _cast(column: Any, kind: Any, name: str, topic: str) -> Any:
    """A column of Arrow's in the topic's type."""
    if pa.types.is_null(column.type):
        return pa.nulls(len(column), kind)
    seen = column.type
    column = laid_out(column, held_type(seen)) if pa.types.is_dictionary(seen) else column
    if not _may_fit(column.type, kind):
        raise InvalidRecordError(
            f"column {name!r} of type {seen}",
            actor=f"produce to {topic!r}",
            expected=str(kind),
            action="convert it as you mean it; nothing was written",
            reason=Reason.TYPE_MISMATCH,
        )
    try:
        if pa.types.is_floating(column.type) and pa.types.is_integer(kind):
            unclear = _are_unclear(column.to_numpy(zero_copy_only=False))
            if unclear.any():
                raise InexactError(int(unclear.argmax()))
        return cast_exactly(column, kind)
    except InexactError as error:
        bad = error.index
    except _NOT_BUILT:
        bad = 0
    raise _inexact(name, bad, str(column.type), kind, topic)


def _are_unclear(floats: Any) -> Any:
    """Which floats of an array are no integer's only float: from 2^53 on a float of 64 bits stands for several, and
    nobody can tell which one was meant; from 2^24 on one of 32 bits; and -0.0 has a sign that no integer has.
    """
    first = 2.0 ** (np.finfo(floats.dtype).nmant + 1)
    return (np.abs(floats) >= first) | ((floats == 0) & np.signbit(floats))


def _may_fit(kind: Any, wanted: Any) -> bool:
    """Whether values of one type may have equals in the other; each value is held against that after."""
    from txn_engine.files import is_convertible

    if kind == wanted or is_convertible(kind, wanted):
        return True
    is_number = pa.types.is_integer(kind) or pa.types.is_floating(kind)
    if is_number and (pa.types.is_floating(wanted) or pa.types.is_integer(wanted)):
        return True
    if (pa.types.is_time(kind) and pa.types.is_time(wanted)) or (
        pa.types.is_duration(kind) and pa.types.is_duration(wanted)
    ):
        return True
    if pa.types.is_map(kind) or pa.types.is_map(wanted):
        return (
            kind.num_fields == wanted.num_fields
            and pa.types.is_map(kind)
            and pa.types.is_map(wanted)
            and (_may_hold(kind.key_type, wanted.key_type) and _may_hold(kind.item_type, wanted.item_type))
        )
    if _is_list(kind) and _is_list(wanted):
        return _may_hold(kind.value_type, wanted.value_type)
    if pa.types.is_struct(kind) and pa.types.is_struct(wanted):
        return [each.name for each in kind] == [each.name for each in wanted] and all(
            _may_hold(one.type, other.type) for one, other in zip(kind, wanted, strict=True)
        )
    return False


def _may_hold(kind: Any, wanted: Any) -> bool:
    """As `_may_fit`, of what is inside other values: floats there are no integers."""
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    is_doubtful = pa.types.is_floating(kind) and pa.types.is_integer(wanted)
    return pa.types.is_null(kind) or (not is_doubtful and _may_fit(kind, wanted))


def _is_list(kind: Any) -> bool:
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind))


def _inexact(name: str, row: int, seen: str, kind: Any, topic: str) -> InvalidRecordError:
    return InvalidRecordError(
        f"column {name!r}, row {row}: a value of type {seen}",
        actor=f"produce to {topic!r}",
        expected=f"one that {kind} holds exactly",
        action="round or convert it as you mean it; nothing was written",
        reason=Reason.INEXACT_VALUE,
    )


def _refused(topic: str, seen: str, expected: str) -> InvalidRecordError:
    return InvalidRecordError(
        seen, actor=f"produce to {topic!r}", expected=expected, reason=Reason.BAD_ARGUMENT
    )
