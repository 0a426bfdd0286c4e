"""Packages that only some calls need: which extra of this project brings each, and one error where one is missing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.util import find_spec
from typing import Final

from txn_engine.errors import MissingPackageError
from txn_engine.reasons import Reason

EXTRAS: Final[Mapping[str, Mapping[str, str]]] = {
    "spark": {"pyspark": "pyspark", "pandas": "pandas"},
    "airflow": {
        "apache-airflow": "airflow",
        "apache-airflow-providers-standard": "airflow.providers.standard",
    },
    "postgres": {"psycopg": "psycopg"},
    "airflow-postgres": {"asyncpg": "asyncpg", "psycopg2-binary": "psycopg2"},
    "sql": {"duckdb": "duckdb", "fsspec": "fsspec"},
    "quality": {
        "great-expectations": "great_expectations",
        "grpcio-status": "grpc_status",
        "zstandard": "zstandard",
        "pandas": "pandas",
        "pyyaml": "yaml",
    },
    "tables": {"pyiceberg": "pyiceberg"},
}
"""By extra, as in pyproject.toml: each distribution, and the module by which it is imported."""
_NEEDED: Final[Mapping[str, tuple[str, ...]]] = {
    "spark": ("pyspark", "pandas"),
    "airflow": ("airflow",),
    "postgres": ("psycopg",),
    "sql": ("duckdb", "fsspec"),
    "quality": ("great_expectations", "pandas", "yaml", "duckdb", "fsspec"),
    "tables": ("pyiceberg",),
}
"""The modules without which the calls of an extra cannot work."""


def need(*extras: str, actor: str) -> None:
    """Raise `MissingPackageError` unless the packages of these extras are installed. None of them is imported.

    Called before any work is done: what is missing is not found out after minutes.
    """
    for extra in extras:
        for module in _NEEDED[extra]:
            if not is_installed(module):
                raise missing_package(module, actor=actor)


def is_installed(module: str) -> bool:
    """Whether a top-level module could be imported."""
    try:
        return find_spec(module) is not None
    except (ImportError, ValueError):
        return False


def missing_package(module: str, *, actor: str | None = None) -> MissingPackageError:
    """The error for a module that cannot be imported. It says which extra brings the module."""
    package = module.partition(".")[0]
    extra = extra_of(package)
    return MissingPackageError(
        f"the package {package!r} is not installed",
        actor=actor,
        action=f"pip install 'txn-engine[{extra}]'" if extra else f"pip install {package.replace('_', '-')}",
        reason=Reason.MISSING_PACKAGE,
    )


def extra_of(module: str) -> str | None:
    """The extra that brings a top-level module, or None."""
    found = (extra for extra, packages in EXTRAS.items() if module in packages.values())
    return next(found, None)


@contextmanager
def imports_named(actor: str) -> Iterator[None]:
    """Imports inside the block raise `MissingPackageError` for a package of an extra that is not installed."""
    try:
        yield
    except MissingPackageError:
        raise
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if extra_of(package) is None:
            raise
        raise missing_package(package, actor=actor) from error
