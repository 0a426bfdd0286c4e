"""After random changes of topics' columns, published after each step, every engine gives the rows of a scan
at each version.

The seeds change every day, and a failure prints them.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import pytest

import txn_engine
from tests.readers.environments import SESSION, run
from tests.readers.programs.rows import digest_of
from tests.schemas.model import ModelTopic
from txn_engine import Engine
from txn_engine.errors import InvalidRequestError
from txn_engine.maintain import MaintenancePolicy

pytestmark = [pytest.mark.shard("engines"), pytest.mark.timeout(600)]

SEQUENCES = 20
_EAGER = MaintenancePolicy(min_files=2, min_dirty_ratio=0.0)
_DAY = datetime.now(UTC).toordinal()


@dataclass
class Shown:
    """A topic's tables: their places, and the expected answer for each version. The last one is the
    newest."""

    seed: int
    delta: str = ""
    iceberg: str = ""
    versions: list[int] = field(default_factory=list)
    snapshots: list[int] = field(default_factory=list)
    by_version: list[Any] = field(default_factory=list)
    by_snapshot: list[Any] = field(default_factory=list)
    wide: list[bool] = field(default_factory=list)

    @property
    def request(self) -> dict[str, Any]:
        held = {"delta": self.delta, "iceberg": self.iceberg}
        return {**held, "versions": self.versions, "snapshots": self.snapshots}


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Shown]]:
    """The tables of random sequences. Two of three have no renames, which Delta cannot express."""
    with txn_engine.connect(str(tmp_path_factory.mktemp("columns") / "ledger")) as engine:
        yield [sequence(engine, _DAY * SEQUENCES + at) for at in range(SEQUENCES)]


def sequence(engine: Engine, seed: int) -> Shown:
    chance = random.Random(seed)
    without = frozenset({"rename"}) if seed % 3 else frozenset[str]()
    model = ModelTopic(chance, with_defaults=False, without=without)
    topic, shown = f"t{seed}", Shown(seed)
    engine.admin.create_topic(topic, partitions=1, schema=model.schema)
    with engine.producer() as producer:
        for step in range(5):
            if step:
                engine.admin.alter_topic(topic, model.change())
            if chance.random() < 0.7 or not step:
                producer.produce(topic, model.produce(3)).result()
            if chance.random() < 0.3:
                engine.maintenance.compact(topic, policy=_EAGER)
            note(engine, topic, model, shown)
    return shown


def note(engine: Engine, topic: str, model: ModelTopic, shown: Shown) -> None:
    """Publish the topic in each format that can express it, and compare the scan at that time with the
    model."""
    cut = engine.cut()
    scanned = engine.scan(topic, cut=cut.number).to_table()
    rows = scanned.select(model.schema.names).to_pylist()
    assert sorted(rows, key=lambda row: row["id"]) == model.expected(), f"seed {shown.seed}"
    expected = digest_of(model.schema.names, [list(row.values()) for row in rows])
    shown.iceberg = engine.tables.publish(topic, ["iceberg"], cut=cut)["iceberg"]
    shown.by_snapshot.append(expected)
    key = shown.iceberg.removeprefix(engine.store.uri(""))
    shown.snapshots.append(json.loads(engine.store.get(key))["current-snapshot-id"])
    with suppress(InvalidRequestError):  # renamed
        shown.delta = engine.tables.publish(topic, ["delta"], cut=cut)["delta"]
        (status,) = (each for each in engine.tables.status(topic) if each.format == "delta")
        shown.versions.append(status.version)
        shown.by_version.append(expected)
        shown.wide.append(is_wide(engine, topic, status.version))


def is_wide(engine: Engine, topic: str, version: int) -> bool:
    """Whether readers need Delta's typeWidening. The last version that describes the columns says so."""
    log = f"topics/{topic}/0/_delta_log"
    commits = (engine.store.get(f"{log}/{at:020d}.json") for at in range(version, -1, -1))
    return b"typeWidening" in next(commit for commit in commits if b"metaData" in commit)


def test_the_libraries_of_python_and_duckdb(tables: list[Shown]) -> None:
    found = run("tables", "python_columns", {"tables": [each.request for each in tables]})
    assert sum(len(each.versions) for each in tables) > 2 * SEQUENCES
    for shown, of_delta, of_iceberg in zip(tables, found["delta"], found["iceberg"], strict=True):
        for seen, right in zip(of_iceberg, newest_first(shown.by_snapshot), strict=True):
            assert seen == dict.fromkeys(("pyiceberg", "polars", "duckdb"), right), f"seed {shown.seed}"
        for seen, right, is_wide in zip(
            of_delta, newest_first(shown.by_version), newest_first(shown.wide), strict=True
        ):
            assert seen["duckdb"] == right, f"seed {shown.seed}"
            for name in ("deltalake", "polars"):
                is_right = "typeWidening" in seen[name] if is_wide else seen[name] == right
                assert is_right, f"seed {shown.seed}, {name}: {seen[name]}"


def newest_first(every: list[Any]) -> list[Any]:
    return [every[-1], *every]


@pytest.mark.parametrize(
    "table_format",
    [pytest.param(each, marks=SESSION[each]) for each in ("delta", "iceberg")],
)
def test_spark(tables: list[Shown], table_format: str) -> None:
    """Spark reads some of the tables, and others each day."""
    chosen = tables[_DAY % 5 :: 5]
    asked = [
        {"root": each.delta, "versions": each.versions}
        if table_format == "delta"
        else {"root": each.iceberg.rpartition("/metadata/")[0], "versions": each.snapshots}
        for each in chosen
    ]
    found = run(table_format, "spark_columns", {"format": table_format, "tables": asked})
    for shown, seen in zip(chosen, found, strict=True):
        right = shown.by_version if table_format == "delta" else shown.by_snapshot
        assert seen == newest_first(right), f"seed {shown.seed}"
