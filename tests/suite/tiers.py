"""Which tests `make test` runs, and which belong to a shard (a plugin of pytest).

A test without a mark is in `make test`. A test, a module or a single parameter that is marked `shard("NAME")` runs in
the shard of that name only (`tests/suite/shards.py` lists them). What is named on the command line runs in any tier:

    pytest                                  the tests of `make test`
    pytest --shard spark                    the tests of one shard
    pytest --shard all                      the tests of all shards
    pytest tests/spark -k kill              whatever is named, in any tier
    pytest --quick tests/storage            of what is named, the tests of `make test` that start no server
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import Any

import pytest

SHARDS = ("airflow", "damage", "engines", "kills", "machine", "protocol", "simulator", "spark")
ALL = "all"
SLOW_MARKS = ("airflow", "kafka", "minio", "shard", "slow", "spark")
SLOW_FIXTURES = frozenset(
    {"azurite_server", "gcs_front", "minio_program", "postgres_server", "seaweed_server"}
)


def in_shard(
    shard: str,
    values: Iterable[Any],
    *,
    keep: int | Collection[Any] | Callable[[Any], bool],
) -> list[Any]:
    """Return `values` as parameters of a test, of which `make test` runs only those to keep.

    keep: how many of the first ones, or which values or ids, or a predicate of a value. At least one is kept. A value
    may be a `pytest.param` already; then its id and its only argument (or the tuple of its arguments) are compared.
    """
    found = list(values)
    kept = [_is_kept(number, value, keep) for number, value in enumerate(found)]
    if not any(kept):
        raise ValueError(f"none of {len(found)} parameters is kept in `make test`")
    return [value if stays else _marked(value, shard) for value, stays in zip(found, kept, strict=True)]


def _is_kept(number: int, value: Any, keep: int | Collection[Any] | Callable[[Any], bool]) -> bool:
    if isinstance(keep, int):
        return number < keep
    bare, name = value, None
    if _is_parameter(value):
        bare, name = value.values[0] if len(value.values) == 1 else value.values, value.id
    if callable(keep):
        return keep(bare)
    return name in keep if name is not None and name in keep else bare in keep


def _is_parameter(value: Any) -> bool:
    return isinstance(value, type(pytest.param()))


def _marked(value: Any, shard: str) -> Any:
    mark = pytest.mark.shard(shard)
    if _is_parameter(value):
        return value._replace(marks=[*value.marks, mark])
    return pytest.param(*value, marks=mark) if isinstance(value, tuple) else pytest.param(value, marks=mark)


def pytest_addoption(parser: pytest.Parser) -> None:
    """`--shard NAME`."""
    parser.addoption(
        "--shard",
        action="append",
        choices=[*SHARDS, ALL],
        default=[],
        help="Run the tests of this shard, which `make test` leaves out. Can be repeated.",
    )
    parser.addoption(
        "--quick",
        action="store_true",
        help="Leave out tests that are slow, belong to a shard or start a server.",
    )


def shard_of(item: pytest.Item) -> str | None:
    """The shard that a test belongs to, or None for a test of `make test`. The closest mark decides."""
    mark = item.get_closest_marker("shard")
    return None if mark is None else str(mark.args[0])


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what belongs to another tier."""
    unknown = {shard for item in items if (shard := shard_of(item)) is not None} - set(SHARDS)
    if unknown:
        raise pytest.UsageError(f"unknown shards: {sorted(unknown)}; the shards are {SHARDS}")
    selected: list[pytest.Item] = []
    left_out: list[pytest.Item] = []
    for item in items:
        (selected if _belongs(item, config) else left_out).append(item)
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = selected


def _belongs(item: pytest.Item, config: pytest.Config) -> bool:
    shard, wanted = shard_of(item), config.getoption("--shard")
    if config.getoption("--quick") and _is_slow(item):
        return False
    if wanted:
        return shard in wanted or (ALL in wanted and shard is not None)
    return shard is None or _names_tests(config)


def _is_slow(item: pytest.Item) -> bool:
    fixtures: Collection[str] = getattr(item, "fixturenames", ())
    return any(item.get_closest_marker(name) for name in SLOW_MARKS) or not SLOW_FIXTURES.isdisjoint(fixtures)


def _names_tests(config: pytest.Config) -> bool:
    """Whether the caller named files, folders, tests or a keyword."""
    return config.args_source is pytest.Config.ArgsSource.ARGS or bool(config.getoption("keyword"))
