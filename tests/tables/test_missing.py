"""A published table of which something is missing is named by `status`, by listing."""

from __future__ import annotations

import pytest

from tests.tables.ledgers import append
from txn_engine import Engine
from txn_engine.errors import CorruptObjectError
from txn_engine.reasons import Reason

FOLDER = "topics/payments/0/"


def published(engine: Engine) -> None:
    """Three versions of both tables."""
    for account in range(3):
        append(engine, account)
        engine.tables.publish("payments")


def broken(engine: Engine) -> set[str | None]:
    """The objects that the tables lack. They are shown all the same."""
    for found in (engine.tables.status(), engine.tables.status("payments")):
        assert {each.format for each in found} == {"delta", "iceberg"}
        for each in found.unreadable:
            assert isinstance(each.error, CorruptObjectError)
            assert each.error.reason is Reason.TABLE_BROKEN
    return {each.error.place for each in found.unreadable}


@pytest.mark.parametrize(
    "lost",
    [
        "_delta_log/*1.json",
        *("iceberg/metadata/*-manifest-*", "iceberg/metadata/*-list-*"),
        "0/data/*",
    ],
)
def test_an_object_that_a_table_reads(engine: Engine, lost: str) -> None:
    """Commits, manifests, their lists and data files."""
    published(engine)
    assert broken(engine) == set()
    folder, _, name = lost.rpartition("/")
    start, _, end = name.rpartition("*")
    part = start.strip("*")
    keys = [
        info.key
        for info in engine.store.list(f"{FOLDER}{folder}/")
        if info.key.endswith(end) and part in info.key.rpartition("/")[2]
    ]
    for key in keys:
        engine.store.delete(key)
    named = broken(engine)
    assert named
    assert named <= set(keys)
