"""Every type goes through every feature exactly, or is refused in one sentence: the table of docs/TYPES.md."""

from __future__ import annotations

from functools import partial
from itertools import product
from typing import Any

import pytest

from tests.suite.tiers import in_shard
from tests.types.checking import wrong_with
from tests.types.columns import SHAPES, TYPES, Column, LongColumn, NullColumn, RequiredColumn, Shape, columns
from tests.types.expected import CREATION
from tests.types.features import FEATURES
from tests.types.world import World

_SLOW = ("dead_letters", "erase", "compact_by_key", "alter", "default", "delta", "iceberg")
"""Features that take several seconds: `make test` tries them at top level, the shard nested too."""

_LONG = ("same_rows",)
"""A proof of each type: of the shard alone."""


def _is_quick(cell: tuple[str, Shape]) -> bool:
    feature, shape = cell
    return feature not in _LONG and (shape == "top" or feature not in _SLOW)


@pytest.mark.parametrize(("feature", "shape"), in_shard("engines", product(FEATURES, SHAPES), keep=_is_quick))
def test_every_type(world: World, feature: str, shape: Shape) -> None:
    """What comes back is what was given, bit by bit and under the topic's type, or the refusal is the one expected."""
    run = partial(FEATURES[feature], world)
    made = [column for column in columns(shape) if column.type_name not in CREATION]
    wrong = {str(column): found for column in made if (found := wrong_with(feature, column, run)) is not None}
    assert wrong == {}


_OF_VIEWS = [name for name in TYPES if "view" in name]
_NOT_OF_NULLS = ("default", "sqlite", "delta", "iceberg")
"""A default is a value, SQLite refuses values and no types, and the tables are published with all columns at once."""
_ODD_COLUMNS = in_shard(
    "engines", [each for each in FEATURES if each not in _NOT_OF_NULLS], keep=["produce", "parquet"]
)


@pytest.mark.parametrize(
    "feature",
    _ODD_COLUMNS,
)
def test_columns_of_nulls_alone(world: World, feature: str) -> None:
    """Arrow has functions that fail where a column has no value at all."""
    run = partial(FEATURES[feature], world)
    made = [NullColumn(name, shape) for name, shape in product(TYPES, SHAPES) if name not in CREATION]
    wrong = {str(column): found for column in made if (found := wrong_with(feature, column, run)) is not None}
    assert wrong == {}


@pytest.mark.parametrize(
    "feature",
    _ODD_COLUMNS,
)
def test_structs_of_required_members(world: World, feature: str) -> None:
    """Arrow takes nulls of a struct for nulls of members that may not be null, and fails on some of them."""
    run = partial(FEATURES[feature], world)
    every = [RequiredColumn(name, "nested") for name in TYPES if name not in CREATION]
    made = [column for column in every if column.can_be]
    wrong = {str(column): found for column in made if (found := wrong_with(feature, column, run)) is not None}
    assert wrong == {}


def test_files_of_many_rows(world: World) -> None:
    """What `consume` writes of more records than go into one part of a file is read again."""
    run = partial(FEATURES["parquet_consumed"], world)
    made = [LongColumn(name, "nested") for name in _OF_VIEWS]
    wrong = {str(column): found for column in made if (found := wrong_with("parquet_consumed", column, run))}
    assert wrong == {}


def test_types_that_no_topic_can_have(world: World) -> None:
    """They are refused when the topic is made, nested ones too, and nothing of it is written."""
    before = world.engine.admin.list_topics()

    def create(column: Column) -> list[Any]:
        world.topic(column.schema)
        return []

    refused = [column for column in columns(*SHAPES) if column.type_name in CREATION]
    wrong = {
        str(column): found
        for column in refused
        if (found := wrong_with("produce", column, create)) is not None
    }
    assert wrong == {}
    assert world.engine.admin.list_topics() == before


@pytest.mark.shard("engines")  # the features' checks have to be there, and it looks at all that they left
def test_the_store_is_sound_after_all_of_it(world: World) -> None:
    """What every feature has left is right by every rule, and can be cleaned."""
    assert not world.engine.maintenance.clean().failures
    assert world.engine.admin.verify().ok
