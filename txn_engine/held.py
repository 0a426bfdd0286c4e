"""The types under which records are held, and the way from and to Arrow's other layouts of the same values.

Arrow lays one value out in several ways: text and bytes also as views, lists by offsets or by views, and anything as a
dictionary. A topic keeps the type that it was made with, and readers get it. In between, in data files and in all that
compacts, erases, splits or compares records, there is one type for each kind of value (`held_type`), which Parquet and
Arrow's functions know. Records come in by `laid_out` to the held type, and leave by it to the topic's own.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

Cast = Callable[[Any, Any], Any]
"""Makes an array of another type of an array."""


def held_type(kind: Any) -> Any:
    """The type under which values of this one are held: itself, unless it or a type inside it is another layout."""
    if pa.types.is_dictionary(kind):
        return held_type(kind.value_type)
    if pa.types.is_string_view(kind):
        return pa.large_string()
    if pa.types.is_binary_view(kind):
        return pa.large_binary()
    if pa.types.is_list_view(kind):
        return held_type(pa.list_(kind.value_field))
    if pa.types.is_large_list_view(kind):
        return held_type(pa.large_list(kind.value_field))
    return _with_inner(kind, held_type)


def _with_inner(kind: Any, of: Callable[[Any], Any]) -> Any:
    """The type with what `of` makes of the types inside it."""

    def made(field: pa.Field[Any]) -> pa.Field[Any]:
        return field.with_type(of(field.type))

    if pa.types.is_struct(kind):
        return pa.struct([made(each) for each in kind])
    if pa.types.is_map(kind):
        return pa.map_(made(kind.key_field), made(kind.item_field), kind.keys_sorted)
    if pa.types.is_fixed_size_list(kind):
        return pa.list_(made(kind.value_field), kind.list_size)
    if pa.types.is_list(kind):
        return pa.list_(made(kind.value_field))
    return pa.large_list(made(kind.value_field)) if pa.types.is_large_list(kind) else kind


def in_microseconds(kind: Any) -> Any:
    """The type with times of microseconds in place of those of seconds and milliseconds, also inside it."""
    if pa.types.is_timestamp(kind):
        return pa.timestamp("us", kind.tz) if kind.unit in ("s", "ms") else kind
    return _with_inner(kind, in_microseconds)


def held_schema(schema: pa.Schema) -> pa.Schema:
    """The columns under the types that they are held under."""
    return pa.schema([each.with_type(held_type(each.type)) for each in schema])


def held_table(table: pa.Table) -> pa.Table:
    """The records under the types that they are held under."""
    schema = held_schema(table.schema)
    columns = [laid_out(column, field.type) for column, field in zip(table.columns, schema, strict=True)]
    return table if schema == table.schema else pa.Table.from_arrays(columns, schema=schema)


def in_a_file(table: pa.Table) -> pa.Table:
    """The records as a Parquet file of their own types can have them: dictionaries only of text and bytes, since
    Parquet's writer takes few others, and its reader gives none of them back; and no views inside of a nested type,
    which its writer cannot cut into parts.
    """
    for number, field in enumerate(table.schema):
        of = field.type.value_type if pa.types.is_dictionary(field.type) else None
        is_no_dictionary = _has_dictionary(field.type) and not (
            of is not None and (_is_text(of) or _is_bytes(of))
        )
        if is_no_dictionary or (field.type.num_fields and _has_view(field.type)):
            held = field.with_type(held_type(field.type))
            table = table.set_column(number, held, laid_out(table.column(number), held.type))
    return table


def is_layout_of(kind: Any, wanted: Any) -> bool:
    """Whether every value of the one type is a value of the other, and only its layout differs: views, dictionaries,
    large types, lists of any layout, members of a struct in another order, and nulls alone.
    """
    one, other = held_type(kind), held_type(wanted)
    if one == other or pa.types.is_null(one):
        return True
    if _is_text(one) or _is_bytes(one):
        return _is_text(other) if _is_text(one) else _is_bytes(other)
    if pa.types.is_struct(one) and pa.types.is_struct(other):
        names = [each.name for each in one]
        are_the_same = len(set(names)) == len(names) and sorted(names) == sorted(each.name for each in other)
        return are_the_same and all(is_layout_of(one.field(each.name).type, each.type) for each in other)
    if pa.types.is_map(one) and pa.types.is_map(other):
        return is_layout_of(one.key_type, other.key_type) and is_layout_of(one.item_type, other.item_type)
    if pa.types.is_fixed_size_list(other) and not pa.types.is_fixed_size_list(one):
        return False  # of other lists the lengths decide
    if _is_list(one) and _is_list(other):
        has_same_size = not pa.types.is_fixed_size_list(other) or one.list_size == other.list_size
        return has_same_size and is_layout_of(one.value_type, other.value_type)
    return False


def _is_text(kind: Any) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def _is_bytes(kind: Any) -> bool:
    return bool(pa.types.is_binary(kind) or pa.types.is_large_binary(kind))


def _is_list(kind: Any) -> bool:
    return any(is_such(kind) for is_such in (*_BY_OFFSETS, *_BY_VIEWS, pa.types.is_fixed_size_list))


_BY_OFFSETS: Final = (pa.types.is_list, pa.types.is_large_list)
_BY_VIEWS: Final = (pa.types.is_list_view, pa.types.is_large_list_view)


def no_records(schema: pa.Schema) -> pa.Table:
    """A table without rows, also of types of which Arrow's own `empty_table` knows none."""
    return pa.Table.from_batches([], schema)


def nulls(count: int, kind: Any) -> Any:
    """So many nulls, also of types of which Arrow's own `nulls` knows none."""
    plain = storage_type_of(held_type(kind))
    return pa.nulls(count, kind) if plain == kind else laid_out(pa.nulls(count, plain), kind)


def storage_type_of(kind: Any) -> Any:
    """The type without extensions."""
    is_extension = isinstance(kind, pa.BaseExtensionType)
    return storage_type_of(kind.storage_type) if is_extension else _with_inner(kind, storage_type_of)


def _cast(array: Any, kind: Any) -> Any:
    return array.cast(kind)


def laid_out(column: Any, kind: Any, cast: Cast = _cast) -> Any:
    """The values of an array, chunked or not, in another layout. What is of another type, and not only laid out in
    another way, is made by `cast`; raises what that raises.

    Where a chunk has more different values than the indices of a dictionary can tell apart, it becomes several.
    """
    if column.type == kind:
        return column
    if not isinstance(column, pa.ChunkedArray):
        return _laid_out(column, kind, cast)
    if _has_dictionary(kind):
        chunks = [part for chunk in column.chunks for part in _in_parts(chunk, kind, cast)]
    else:
        chunks = [_laid_out(chunk, kind, cast) for chunk in column.chunks]
    return pa.chunked_array(chunks, kind)


def _in_parts(chunk: Any, kind: Any, cast: Cast) -> list[Any]:
    try:
        return [_laid_out(chunk, kind, cast)]
    except pa.ArrowInvalid:
        if len(chunk) < 2:
            raise
    half = len(chunk) // 2
    return [*_in_parts(chunk.slice(0, half), kind, cast), *_in_parts(chunk.slice(half), kind, cast)]


def _has_view(kind: Any) -> bool:
    return _has(kind, lambda each: pa.types.is_string_view(each) or pa.types.is_binary_view(each))


def _has_dictionary(kind: Any) -> bool:
    return _has(kind, pa.types.is_dictionary)


def _has(kind: Any, test: Callable[[Any], bool]) -> bool:
    """Whether the type is such a one, or has one inside."""
    if isinstance(kind, pa.BaseExtensionType):
        return _has(kind.storage_type, test)
    inside = (kind.field(number).type for number in range(kind.num_fields))
    return test(kind) or any(_has(each, test) for each in inside)


def _laid_out(array: Any, kind: Any, cast: Cast) -> Any:
    source = array.type
    if source == kind:
        return array
    if pa.types.is_null(source):
        return nulls(len(array), kind)
    if pa.types.is_dictionary(source):
        # not by Arrow's cast, which cannot decode views, and by the held type, which `take` knows
        values = _laid_out(array.dictionary, held_type(source.value_type), cast)
        return _laid_out(values.take(array.indices), kind, cast)
    if isinstance(kind, pa.BaseExtensionType):
        storage = array.storage if isinstance(array, pa.ExtensionArray) else array
        if _is_any_text(storage.type) and not _is_any_text(kind.storage_type):
            storage = _of_texts(storage, kind)
        elif _is_any_text(kind.storage_type) and not _is_any_text(storage.type):
            storage = _as_texts(array) if storage is not array else storage
        return pa.ExtensionArray.from_storage(kind, _laid_out(storage, kind.storage_type, cast))
    if isinstance(array, pa.ExtensionArray):
        plain = (
            _as_texts(array)
            if _is_any_text(kind) and not _is_any_text(source.storage_type)
            else array.storage
        )
        return _laid_out(plain, kind, cast)
    if pa.types.is_dictionary(kind):
        return _as_dictionary(array, kind, cast)
    for is_such, makers in _MAKERS:
        make = next((make for is_it, make in makers if is_it(kind)), None)
        if is_such(source) and make is not None:
            return make(array, kind, cast)
    return cast(array, kind)


def _is_any_text(kind: Any) -> bool:
    return _is_text(kind) or bool(pa.types.is_string_view(kind))


def _as_texts(array: Any) -> Any:
    """The values of an extension type as everybody writes them: UUIDs in 36 characters. Of others than these, what they
    are stored as is not their text.
    """
    _require_text(array.type)
    texts = [None if value is None else _uuid_text(value.hex()) for value in array.storage.to_pylist()]
    return pa.array(texts, pa.string())


def _uuid_text(digits: str) -> str:
    return "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))


def _of_texts(texts: Any, kind: Any) -> Any:
    """What texts stand for, as the extension type stores it. ValueError for a text that is not one of its values."""
    _require_text(kind)
    values = [None if text is None else bytes.fromhex(text.replace("-", "")) for text in texts.to_pylist()]
    return pa.array(values, kind.storage_type)


def _require_text(kind: Any) -> None:
    if kind != pa.uuid():
        raise pa.ArrowNotImplementedError(f"no text stands for {kind}")


def _as_dictionary(array: Any, kind: Any, cast: Cast) -> Any:
    plain = _laid_out(array, held_type(kind.value_type), cast)
    try:
        encoded = plain.dictionary_encode()
        values, indices = encoded.dictionary, encoded.indices
    except pa.ArrowNotImplementedError:  # then each value stands by itself
        places = np.arange(len(plain))
        values, indices = plain, pa.array(places, mask=plain.is_null().to_numpy(zero_copy_only=False))
    values = _laid_out(values, kind.value_type, cast)
    return pa.DictionaryArray.from_arrays(indices.cast(kind.index_type), values, ordered=kind.ordered)


def _as_struct(array: Any, kind: Any, cast: Cast) -> Any:
    names = [each.name for each in array.type]
    if len(set(names)) < len(names) or not set(names) >= {each.name for each in kind}:
        return cast(array, kind)
    members = [_laid_out(array.field(names.index(each.name)), each.type, cast) for each in kind]
    return pa.StructArray.from_arrays(members, fields=list(kind), mask=array.is_null())


def _as_map(array: Any, kind: Any, cast: Cast) -> Any:
    ends, keys, items = map_parts(array)
    return pa.MapArray.from_arrays(
        ends,
        _laid_out(keys, kind.key_type, cast),
        _laid_out(items, kind.item_type, cast),
        type=kind,
        mask=array.is_null(),
    )


def map_parts(array: Any) -> tuple[Any, Any, Any]:
    """Where each map begins among the entries of them all, and where the last one ends; their keys, and their items."""
    if not len(array):
        return pa.array([0], pa.int32()), array.keys.slice(0, 0), array.items.slice(0, 0)
    first, end = array.offsets[0].as_py(), array.offsets[-1].as_py()
    ends = pc.subtract(array.offsets, pa.scalar(first, pa.int32()))
    return ends, array.keys.slice(first, end - first), array.items.slice(first, end - first)


def _as_list(array: Any, kind: Any, cast: Cast) -> Any:
    values, is_large = _laid_out(elements(array), kind.value_type, cast), pa.types.is_large_list(kind)
    make = pa.LargeListArray if is_large else pa.ListArray
    ends = _ends(array, np.int64 if is_large else np.int32)
    return make.from_arrays(ends, values, type=kind, mask=array.is_null())


def _as_list_view(array: Any, kind: Any, cast: Cast) -> Any:
    values, is_large = _laid_out(elements(array), kind.value_type, cast), pa.types.is_large_list_view(kind)
    make: Any = pa.LargeListViewArray if is_large else pa.ListViewArray
    ends = _ends(array, np.int64 if is_large else np.int32)
    sizes = pc.subtract(ends.slice(1), ends.slice(0, len(array)))
    return make.from_arrays(ends.slice(0, len(array)), sizes, values, type=kind, mask=array.is_null())


def _as_fixed_size_list(array: Any, kind: Any, cast: Cast) -> Any:
    size = kind.list_size
    if pc.any(pc.not_equal(pc.list_value_length(array), size)).as_py():
        raise pa.ArrowInvalid(f"lists that do not have {size} elements")
    values = _laid_out(elements(array), held_type(kind.value_type), cast)
    if array.null_count:  # null lists have as many elements: nulls, since none else fits all types inside
        is_valid = array.is_valid().to_numpy(zero_copy_only=False)
        firsts = np.repeat((np.cumsum(is_valid) - 1) * size, size)
        places = firsts + np.tile(np.arange(size), len(array))
        values = values.take(pa.array(places, mask=np.repeat(~is_valid, size)))
    values = _laid_out(values, kind.value_type, cast)
    return pa.FixedSizeListArray.from_arrays(values, type=kind, mask=array.is_null())


def elements(array: Any) -> Any:
    """The values of all lists that are not null. As `flatten`, which cannot for dictionaries of nested values, and
    makes no array without values where an extension type is inside.
    """
    kind = array.type
    if array.null_count == len(array):
        return array.values.slice(0, 0)
    if not _has_dictionary(kind.value_type):
        return array.flatten()
    lengths = pc.fill_null(pc.list_value_length(array), 0).to_numpy(zero_copy_only=False)
    if pa.types.is_fixed_size_list(kind):
        firsts = (np.arange(len(array)) + array.offset) * kind.list_size
    else:
        firsts = array.offsets.to_numpy()[: len(array)]
    places = np.repeat(firsts - np.cumsum(lengths) + lengths, lengths) + np.arange(lengths.sum())
    return _laid_out(array.values, held_type(kind.value_type), _cast).take(pa.array(places))


def words_of_decimals(array: Any, word: Any) -> Any:
    """The bits of decimals as unsigned integers of this width, a row each, the lower ones first; at nulls anything. A
    buffer may be longer than its values, by any number of bytes.
    """
    each = array.type.bit_width // np.dtype(word).itemsize // 8
    if not len(array):
        return np.empty((0, each), word)
    first = array.offset * array.type.bit_width // 8
    found = np.frombuffer(array.buffers()[1], word, count=len(array) * each, offset=first)
    return found.reshape(-1, each)


def _ends(array: Any, width: Any) -> Any:
    """Where each of the lists begins among the values of them all, and where the last one ends."""
    lengths = pc.fill_null(pc.list_value_length(array), 0).to_numpy(zero_copy_only=False)
    return pa.array(np.concatenate([[0], np.cumsum(lengths)]).astype(width))


Test = Callable[[Any], bool]
Make = Callable[[Any, Any, Cast], Any]
_MAKERS: Final[tuple[tuple[Test, tuple[tuple[Test, Make], ...]], ...]] = (
    (pa.types.is_struct, ((pa.types.is_struct, _as_struct),)),
    (pa.types.is_map, ((pa.types.is_map, _as_map),)),
    (
        _is_list,
        (
            *((is_such, _as_list) for is_such in _BY_OFFSETS),
            *((is_such, _as_list_view) for is_such in _BY_VIEWS),
            (pa.types.is_fixed_size_list, _as_fixed_size_list),
        ),
    ),
)
"""By what a type is, how what is made of it, and of which kind that is."""
