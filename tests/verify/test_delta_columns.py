"""`verify` names the columns of a Delta table that readers would read wrongly after a change."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

from txn_engine.verify.delta_columns import wrong_columns
from txn_engine.verify.schema_versions import Version, first_version

BEFORE = first_version(
    pa.schema([pa.field("id", pa.int64(), nullable=False), ("size", pa.int16()), ("old", pa.string())])
)
AFTER = Version(
    pa.schema([("size", pa.int64()), ("id", pa.int64()), ("tags", pa.list_(pa.string()))]),
    (2, 1, 4),
    (5, 4, 6),
    7,
    {"old": 3},
)
STEPS = [{"fromType": "short", "toType": "long"}]


def said() -> tuple[dict[str, Any], dict[str, Any]]:
    """A correct set of fields, by their names, and the protocol."""
    tags = {"type": "array", "elementType": "string", "containsNull": True}
    kinds = {"size": "long", "id": "long", "tags": tags, "_offset_delta": "long", "_timestamp": "timestamp"}
    fields = {
        name: {"name": name, "type": kind, "nullable": not name.startswith("_"), "metadata": {}}
        for name, kind in kinds.items()
    }
    fields["size"]["metadata"] = {"delta.typeChanges": STEPS}
    return fields, {"minReaderVersion": 3, "readerFeatures": ["typeWidening"]}


def judged(
    fields: dict[str, Any], protocol: dict[str, Any], after: Version = AFTER, number: int = 1
) -> tuple[str, str] | None:
    metadata = {"schemaString": json.dumps({"type": "struct", "fields": list(fields.values())})}
    return wrong_columns(metadata, protocol, number, [BEFORE, after])


def test_what_is_right() -> None:
    assert judged(*said()) is None


WRONG: dict[str, tuple[Callable[[dict[str, Any], dict[str, Any]], object], str]] = {
    "another name": (lambda fields, _: fields["id"].update(name="ID"), "columns {'size'"),
    "another order": (lambda fields, _: fields.update(size=fields.pop("size")), "columns {'id'"),
    "one too few": (lambda fields, _: fields.pop("tags"), "columns {'size'"),
    "never null": (lambda fields, _: fields["id"].update(nullable=False), "columns {'size'"),
    "a narrower type": (lambda fields, _: fields["size"].update(type="short"), "columns {'size': ('short'"),
    "another kind": (lambda fields, _: fields["tags"].update(type="string"), "columns {'size'"),
    "no steps of the type": (lambda fields, _: fields["size"].update(metadata={}), "changes of types {}"),
    "steps that were not": (
        lambda fields, _: fields["id"].update(metadata={"delta.typeChanges": STEPS}),
        "changes of types {'size'",
    ),
    "no feature": (lambda _, protocol: protocol.update(readerFeatures=["x"]), "reader features ['x']"),
    "a reader of before features": (lambda _, protocol: protocol.update(minReaderVersion=2), "reader features []"),
}  # fmt: skip


@pytest.mark.parametrize("case", WRONG)
def test_what_is_said_wrongly(case: str) -> None:
    change, seen = WRONG[case]
    fields, protocol = said()
    change(fields, protocol)
    found = judged(fields, protocol)
    assert found is not None
    assert found[0].startswith(seen)


@pytest.mark.parametrize(
    ("after", "seen"),
    [
        (AFTER._replace(retired={"old": 1}), "column 'id', and 'old' in older files"),
        (AFTER._replace(retired={"ID": 3}), "column 'id', and 'ID' in older files"),
        (AFTER._replace(filled=frozenset({2})), "column 'size', which has a default"),
    ],
)
def test_columns_that_no_delta_table_has(after: Version, seen: str) -> None:
    found = judged(*said(), after=after)
    assert found is not None
    assert found[0].startswith(seen)


@pytest.mark.parametrize("number", [-1, 2])
def test_a_version_that_there_is_not(number: int) -> None:
    assert judged(*said(), number=number) == (
        f"version {number} of the columns",
        "at most 1, as the topic's changes have",
    )
