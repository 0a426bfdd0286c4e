"""The calendar of the Quality page: the proofs in the store, each read once. A damaged proof is marked as damaged."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.pages.conftest import PREFIX
from tests.support.internal import FEW_INTERNAL
from tests.support.waiting import wait_for
from txn_engine import Engine, connect
from txn_engine.log.objects import Objects
from txn_engine.quality import Declaration, check_exactly_once

pytestmark = pytest.mark.airflow

SCHEMA = pa.schema([("id", pa.int64())])
FOLDER = "proofs/orders"


def prove(engine: Engine, reports: Path, *ids: int) -> None:
    """Append these ids, and prove the topic as far as it is now."""
    table = pa.table([pa.array(ids, pa.int64())], schema=SCHEMA)
    engine.partition("orders", 0).append(table)
    asked = Declaration(topic="orders", record_id=("id",))
    check_exactly_once(engine, asked, report_folder=reports, record=True)


@pytest.fixture(scope="module")
def proven(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store of a topic with three proofs. The third failed because a record is there twice."""
    folder = tmp_path_factory.mktemp("proven")
    with connect(f"file://{folder / 'ledger'}", configs=FEW_INTERNAL) as engine:
        engine.admin.create_topic("orders", partitions=1, schema=SCHEMA)
        engine.admin.create_topic("quiet", partitions=1, schema=SCHEMA)
        for ids in ((1, 2), (3,), (4, 4)):
            prove(engine, folder / "reports", *ids)
    return folder / "ledger"


@pytest.fixture
def engine(tmp_path: Path, proven: Path) -> Iterator[Engine]:
    """A copy of the store with three proofs."""
    shutil.copytree(proven, tmp_path / "ledger")
    with connect(f"file://{tmp_path / 'ledger'}") as connected:
        yield connected


@pytest.fixture
def album() -> Any:
    from txn_engine_airflow.pages.proofs import ProofAlbum

    return ProofAlbum()


def outcomes(album: Any, engine: Engine) -> list[tuple[int, str]]:
    kept = album.look(engine, engine.logs.topics.survey_each().topics)
    assert [found.topic for found in kept.topics] == ["orders"]
    return [(line.number, line.outcome) for line in kept.topics[0].proofs]


def test_the_newest_first_with_outcome_scope_and_counts(album: Any, engine: Engine) -> None:
    first = album.look(engine, engine.logs.topics.survey_each().topics).topics[0].proofs
    assert [line.outcome for line in first] == ["not proven", "proven", "proven"]
    assert [line.scope.split()[0] for line in first[1:]] == ["what", "everything"]
    assert all(0 < line.passed <= line.checks for line in first)
    assert all(abs(time.time() * 1000 - line.created_ms) < 600_000 for line in first)


def test_a_damaged_one_is_told_as_such_and_the_others_stay(
    album: Any, engine: Engine, tmp_path: Path
) -> None:
    folder = next((tmp_path / "ledger" / FOLDER).iterdir())
    numbers = sorted(path for path in folder.iterdir() if path.suffix == ".json")
    numbers[1].write_bytes(b'{"kind": "proof", "created_ms": 1e400}')
    newest, damaged, oldest = outcomes(album, engine)
    assert (damaged[1], oldest[1], newest[1]) == ("damaged", "proven", "not proven")


def test_each_is_read_once(
    album: Any, engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    outcomes(album, engine)
    read: list[str] = []
    whole = Objects.read
    monkeypatch.setattr(Objects, "read", lambda self, key, **of: read.append(key) or whole(self, key, **of))
    assert len(outcomes(album, engine)) == 3
    prove(engine, tmp_path / "reports", 5)
    del read[:]
    assert len(outcomes(album, engine)) == 4
    assert len([key for key in read if key.startswith(FOLDER)]) == 1


def test_more_than_fit_a_look_are_read_in_the_next(
    album: Any, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    from txn_engine_airflow.pages import proofs

    monkeypatch.setattr(proofs, "READ_AT_ONCE", 2)
    newest = outcomes(album, engine)
    assert [outcome for _, outcome in newest] == ["not proven", "proven"]
    assert len(outcomes(album, engine)) == 3
    monkeypatch.setattr(proofs, "PROOFS_MAX", 2)
    assert outcomes(album, engine) == newest


def test_proofs_of_a_topic_that_was_made_again_are_not_its_own(album: Any, engine: Engine) -> None:
    engine.admin.delete_topic("orders")
    engine.admin.create_topic("orders", partitions=1, schema=SCHEMA)
    assert album.look(engine, engine.logs.topics.survey_each().topics).topics == ()


def test_topics_above_the_limit_are_counted(
    album: Any, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    from txn_engine_airflow.pages import proofs

    monkeypatch.setattr(proofs, "TOPICS_MAX", 0)
    kept = album.look(engine, engine.logs.topics.survey_each().topics)
    assert (kept.topics, kept.left_off) == ((), 1)


def test_a_viewer_has_the_calendar(store_url: str, tmp_path: Path, client: Callable[..., Any]) -> None:
    """A viewer gets the calendar with outcomes and counts only, from the store that the pages show."""
    with connect(store_url) as engine:
        asked = Declaration(topic="payments", record_id=("account_id",))
        check_exactly_once(engine, asked, report_folder=tmp_path, record=True)
    browser = client("vera")
    found = wait_for(
        lambda: browser.get(f"{PREFIX}/api/proofs").json()["topics"],
        what="the proof on the page",
        every_s=0.2,
    )
    (line,) = found[0]["proofs"]
    assert (found[0]["topic"], line["number"]) == ("payments", 0)
    assert set(line) == {"number", "created_ms", "outcome", "scope", "passed", "checks"}
