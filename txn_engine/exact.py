"""Arrow columns in another type, and columns as Parquet can keep them: every value exactly, or an error.

No error here quotes a value. pyarrow's do, so they are not passed on, nor chained to ours.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from txn_engine.held import elements, held_type, laid_out, map_parts, storage_type_of, words_of_decimals

_WIDEST_INTEGER = pa.decimal128(20, 0)


class InexactError(ValueError):
    """A value that cannot be kept. `index`: of the first one."""

    def __init__(self, index: int) -> None:
        super().__init__(f"the value at index {index} does not fit")
        self.index = index


def cast_exactly(column: Any, kind: pa.DataType) -> Any:
    """An array, chunked or not, in another type. Raises `InexactError` where a value has no equal in that type.

    Between types that have one value written in two ways: integers, integers and decimals, decimals of another scale,
    times of another unit, the layouts of text and bytes, a dictionary and its values, and these inside others.
    """
    if column.type == kind:
        return column
    try:
        return _cast(column, kind)
    except ValueError:
        index = first_bad(column, lambda part: _cast(part, kind))
    raise InexactError(index)


def cast_and_back(column: Any, kind: pa.DataType) -> Any:
    """As `cast_exactly`, between any types that Arrow casts both ways: each value comes back as it was, so that no two
    become one (the text 007 is no number). Raises `pa.ArrowNotImplementedError` for other types.
    """
    if column.type == kind:
        return column
    column = laid_out(column, held_type(column.type))
    try:
        return _cast_and_back(column, kind)
    except ValueError:
        index = first_bad(column, lambda part: _cast_and_back(part, kind))
    raise InexactError(index)


def require_whole(column: Any) -> None:
    """Raise `InexactError` for a value that its own type does not have, and that a file would cut without a word.

    A decimal of more digits than its precision (what `cast(safe=False)` leaves), a date with a time of day, text that
    is no UTF-8; and a map that has a key twice, of which no reader says which value counts.
    """
    try:
        _validate(column)
    except ValueError:
        index = first_bad(column, _validate)
    else:
        return
    raise InexactError(index)


def first_bad(values: Any, convert: Callable[[Any], object]) -> int:
    """The index of the first value for which `convert` raises ValueError, by halving."""
    good, bad = 0, len(values)
    while bad - good > 1:
        middle = (good + bad) // 2
        try:
            convert(values.slice(good, middle - good))
        except ValueError:
            bad = middle
        else:
            good = middle
    return good


def every_bad(values: Any, convert: Callable[[Any], object]) -> list[int]:
    """The index of each value for which `convert` raises ValueError, by halving, in their order."""
    found: list[int] = []
    parts = [(0, len(values))]
    while parts:
        start, count = parts.pop()
        try:
            convert(values.slice(start, count))
        except ValueError:
            if count == 1:
                found.append(start)
            else:
                half = count // 2
                parts += [(start + half, count - half), (start, half)]
    return found


def _cast_and_back(column: Any, kind: pa.DataType) -> Any:
    found = _cast(column, kind)
    if not _same(_cast(found, column.type), column):
        raise ValueError("another value")
    return found


def _cast(column: Any, kind: pa.DataType) -> Any:
    column, held = laid_out(column, held_type(column.type)), held_type(kind)
    found = laid_out(column, held, _cast_leaf)
    if has_required(held):
        found = filled_below_nulls(found)
        _require_members(found)
    if _members(column.type) != _members(held) and not _same(
        laid_out(found, column.type, _cast_leaf), column
    ):
        raise ValueError("another value")
    return laid_out(found, kind)


def _cast_leaf(column: Any, kind: pa.DataType) -> Any:
    if _is_counted(column.type) and _is_counted(kind):
        return _rescaled(column, kind)
    found = column.cast(kind)
    if _may_be_changed(column.type, kind) and not _same(found.cast(column.type), column):
        raise ValueError("another value")
    return found


def _members(kind: pa.DataType) -> list[str]:
    """The names of members of structs, inside one another: a cast leaves out those that the other type lacks."""
    names = [each.name for each in kind] if pa.types.is_struct(kind) else []
    inside = (kind.field(number).type for number in range(kind.num_fields))
    return sorted([*names, *(name for each in inside for name in _members(each))])


def has_required(kind: pa.DataType) -> bool:
    """Whether a struct in the type has members that may not be null."""
    if pa.types.is_map(kind):
        return has_required(kind.key_type) or has_required(kind.item_type)
    required = pa.types.is_struct(kind) and not all(member.nullable for member in kind)
    return required or any(has_required(kind.field(number).type) for number in range(kind.num_fields))


def _require_members(array: Any) -> None:
    """ValueError for a null of a struct's member that may not be null."""
    if isinstance(array, pa.ChunkedArray):
        for chunk in array.chunks:
            _require_members(chunk)
    elif pa.types.is_struct(array.type):
        for number, field in enumerate(array.type):
            member = array.field(number)
            if member.null_count and not field.nullable:
                raise ValueError("a null of a member that may not be null")
            _require_members(member)
    elif pa.types.is_nested(array.type):
        for part in _parts(array)[1:]:
            _require_members(part)


def filled_below_nulls(array: Any) -> Any:
    """The same values; where a struct is null, something in place of its members' nulls: pyarrow takes those for nulls
    of the members.
    """
    if isinstance(array, pa.ChunkedArray):
        return pa.chunked_array([filled_below_nulls(chunk) for chunk in array.chunks], array.type)
    kind, nulls = array.type, array.is_null()
    if pa.types.is_struct(kind):
        members = [filled_below_nulls(array.field(number)) for number in range(kind.num_fields)]
        members = [
            member if field.nullable else _filled_where(member, nulls)
            for field, member in zip(kind, members, strict=True)
        ]
        return pa.StructArray.from_arrays(members, fields=list(kind), mask=nulls)
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        make = pa.ListArray if pa.types.is_list(kind) else pa.LargeListArray
        return make.from_arrays(_offsets(array), filled_below_nulls(elements(array)), type=kind, mask=nulls)
    if pa.types.is_map(kind):
        ends, keys, items = map_parts(array)
        return pa.MapArray.from_arrays(  # type: ignore[call-overload]  # the stubs know a type with values alone
            ends, keys, filled_below_nulls(items), type=kind, mask=nulls
        )
    return array


def _offsets(array: Any) -> Any:
    """Where each of the lists begins among the values of them all."""
    lengths = pc.fill_null(pc.list_value_length(array), 0).to_numpy(zero_copy_only=False)
    wide = np.int64 if pa.types.is_large_list(array.type) else np.int32
    return pa.array(np.concatenate([[0], np.cumsum(lengths)]).astype(wide))


def _filled_where(member: Any, hidden: Any) -> Any:
    if not member.null_count:
        return member
    plain = storage_type_of(held_type(member.type))  # Arrow makes no values of extension types
    below_null: Any = pa.array([None], pa.struct([pa.field("", plain, nullable=False)]))
    places = pc.if_else(pc.and_(hidden, member.is_null()), len(member), np.arange(len(member)))
    both = pa.concat_arrays([laid_out(member, plain), below_null.field(0)])
    return laid_out(both.take(places), member.type)


def _is_counted(kind: pa.DataType) -> bool:
    return bool(pa.types.is_decimal(kind) or pa.types.is_integer(kind))


def _rescaled(column: Any, kind: pa.DataType) -> Any:
    """A cast among integers and decimals, in steps that pyarrow checks.

    By itself it raises a scale modulo the bits of the narrower type; asks of integers whether any of that type would
    fit, not whether these do; and has wrong bounds for integers wider than a decimal.
    """
    if pa.types.is_integer(column.type) and pa.types.is_integer(kind):
        return column.cast(kind)
    if pa.types.is_integer(column.type):
        column = column.cast(_WIDEST_INTEGER)
    like = kind if pa.types.is_decimal(kind) else _WIDEST_INTEGER
    make, most = (
        (pa.decimal128, 38) if max(column.type.bit_width, like.bit_width) <= 128 else (pa.decimal256, 76)
    )
    column = column.cast(make(most, column.type.scale))
    digits = like.precision - (
        like.scale - column.type.scale
    )  # what there is room for, at the scale as it is
    if digits < 1:
        if pc.any(pc.not_equal(column, pa.scalar(0, make(1, 0)))).as_py():
            raise ValueError("a number of more digits")
    elif digits < most:
        column = column.cast(make(digits, column.type.scale))
    return column.cast(make(most, like.scale)).cast(make(like.precision, like.scale)).cast(kind)


def _may_be_changed(kind: pa.DataType, other: pa.DataType) -> bool:
    """Whether a cast between the types may give another value, and say nothing.

    pyarrow raises a decimal's scale modulo its bits, leaves out members of a struct that the other has not, and makes
    infinities of numbers that a smaller float has not. The way back divides, which it does exactly or not at all.
    """
    return any(map(_is_doubtful, (*_leaves(kind), *_leaves(other)))) or kind.num_fields != other.num_fields


def _is_doubtful(kind: pa.DataType) -> bool:
    return bool(pa.types.is_decimal(kind) or pa.types.is_floating(kind) or pa.types.is_struct(kind))


def _leaves(kind: pa.DataType) -> Iterator[pa.DataType]:
    """The type, and those in it."""
    yield kind
    for number in range(kind.num_fields):
        yield from _leaves(kind.field(number).type)


def _same(one: Any, other: Any) -> bool:
    """Whether two arrays of one type hold the same values, NaN being itself, and -0.0 another one than 0.0."""
    if isinstance(one, pa.ChunkedArray):
        both = pa.Table.from_arrays([one, other], names=["one", "other"])
        return all(_same(*batch.columns) for batch in both.to_batches())
    if pa.types.is_floating(one.type):
        left, right = (part.cast(pa.float64()).to_numpy(zero_copy_only=False) for part in (one, other))
        are_equal = (left == right) & (np.signbit(left) == np.signbit(right))
        are_alike = are_equal | (np.isnan(left) & np.isnan(right))
        return bool(one.is_null().equals(other.is_null()) and are_alike.all())
    if not any(map(pa.types.is_floating, _leaves(one.type))) and one.equals(other):
        return True
    if not pa.types.is_nested(one.type) or not one.is_null().equals(other.is_null()):
        return False
    return all(_same(*parts) for parts in zip(_parts(one), _parts(other), strict=True))


def _parts(array: Any) -> list[Any]:
    """What an array of a nested type is made of, what lies below its nulls left out."""
    if pa.types.is_struct(array.type):
        return list(array.flatten())
    if pa.types.is_map(array.type):
        array = array.cast(pa.list_(pa.struct([array.type.key_field, array.type.item_field])))
    return [pc.list_value_length(array), elements(array)]


def _validate(column: Any) -> None:
    """pyarrow's own validation, and what it lets pass: the lowest number of a decimal's bits, of which the abs is
    itself.
    """
    column.validate(full=True)
    chunks = column.chunks if isinstance(column, pa.ChunkedArray) else [column]
    if any(_holds_lowest(chunk) for chunk in chunks):
        raise ValueError("a decimal beyond its precision")
    held = held_type(column.type)
    if any(map(pa.types.is_map, _leaves(held))) and any(
        _has_key_twice(laid_out(each, held)) for each in chunks
    ):
        raise ValueError("a key twice in one map")


def _codes(keys: Any) -> Any:
    """A number for each key, the same for equal ones: 0.0 and -0.0 are one key to DuckDB and Spark, and all NaN are."""
    if pa.types.is_floating(keys.type):
        numbers = keys.cast(pa.float64()).to_numpy(zero_copy_only=False)
        keys = pa.array(np.where(np.isnan(numbers), np.nan, numbers + 0.0))
    try:
        encoded = keys.dictionary_encode()
    except pa.ArrowNotImplementedError:  # of nested types
        encoded = pa.array([repr(_unsigned(each.as_py())) for each in keys], pa.string()).dictionary_encode()
    return encoded.indices.to_numpy().astype(np.int64)


def _unsigned(value: Any) -> Any:
    """The value, with 0.0 in place of -0.0, also inside it."""
    if isinstance(value, float):
        return value + 0.0
    if isinstance(value, dict):
        return {name: _unsigned(each) for name, each in value.items()}
    return [*map(_unsigned, value)] if isinstance(value, list | tuple) else value


def _has_key_twice(array: Any) -> bool:
    kind = array.type
    if not pa.types.is_nested(kind):
        return False
    if pa.types.is_map(kind):
        array = array.cast(pa.list_(pa.struct([kind.key_field, kind.item_field])))
        codes = _codes(elements(array).field(0))
        places = pc.list_parent_indices(array).to_numpy().astype(np.int64) * (len(codes) + 1) + codes
        if len(np.unique(places)) < len(places):
            return True
    return any(map(_has_key_twice, array.flatten() if pa.types.is_struct(kind) else [elements(array)]))


def _holds_lowest(array: Any) -> bool:
    kind = array.type
    if pa.types.is_struct(kind):
        return any(_holds_lowest(part) for part in array.flatten())
    if pa.types.is_map(kind):
        return _holds_lowest(array.keys) or _holds_lowest(array.items)
    if pa.types.is_nested(kind):
        return _holds_lowest(elements(array))
    if not pa.types.is_decimal(kind) or not len(array):
        return False
    bits = words_of_decimals(array, np.uint32)
    lowest = bits[:, -1] == 1 << 31
    if not lowest.any():
        return False
    lowest &= (bits[:, :-1] == 0).all(axis=1)
    return bool((lowest & array.is_valid().to_numpy(zero_copy_only=False)).any())
