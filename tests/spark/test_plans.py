"""Which offsets of a journal name the rows of a micro-batch. `test_checkpoints.py` has journals that Spark wrote."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from txn_engine.spark.source.checkpoint import Checkpoint, Plan
from txn_engine.spark.source.options import StoreOptions

DELTA = {
    "sourceVersion": 1,
    "reservoirId": "5a6f",
    "reservoirVersion": 3,
    "index": -1,
    "isStartingVersion": False,
}
ICEBERG = {"version": 1, "snapshot_id": 17, "position": 2, "scan_all_files": False}


def journal(folder: Path, batch: int, *offsets: object, version: str = "v1") -> Checkpoint:
    """A checkpoint in which Spark has journalled these offsets of the sources, as its `OffsetSeqLog` spells them."""
    (folder / "offsets").mkdir(exist_ok=True)
    lines = [version, json.dumps({"batchTimestampMs": batch}), *map(json.dumps, offsets)]
    (folder / "offsets" / str(batch)).write_text("\n".join(lines))
    return Checkpoint(f"file://{folder}", StoreOptions("file:///store"))


def planned_later(folder: Path) -> None:
    """Let the journal say that batch 0 was planned at another time."""
    path = folder / "offsets" / "0"
    path.write_text(path.read_text().replace('"batchTimestampMs": 0', '"batchTimestampMs": 9'))


@pytest.mark.parametrize(
    "offset", [{"payments": {"0": 5, "1": 7}}, {"payments": {"0": 5}, "_store": "5a6f"}, DELTA, ICEBERG]
)
def test_offsets_that_name_rows(tmp_path: Path, offset: object) -> None:
    """Offsets of topics, and versions of tables. The time of the plan does not count."""
    checkpoint = journal(tmp_path, 0, offset)
    plan = checkpoint.plan(0)
    assert plan.names_rows
    assert checkpoint.names_rows()
    planned_later(tmp_path)
    assert checkpoint.plan(0) == plan


@pytest.mark.parametrize(
    "offset", [5, {"count": 5}, {"offset": 5, "timestamp": 7}, {"payments": {}}, {}, "5"]
)
def test_offsets_that_may_be_a_counter(tmp_path: Path, offset: object) -> None:
    """Any other offset names no rows, also beside one that does. The time tells two plans from each other."""
    checkpoint = journal(tmp_path, 0, {"payments": {"0": 5}}, offset)
    plan = checkpoint.plan(0)
    assert plan.digest
    assert not plan.names_rows
    assert not checkpoint.names_rows()
    planned_later(tmp_path)
    assert checkpoint.plan(0).digest not in ("", plan.digest)


@pytest.mark.parametrize("offset", [{"logOffset": 0}, {"logOffset": 10**15}, {"logOffset": "0"}])
def test_a_file_source_whose_log_is_not_there(tmp_path: Path, offset: object) -> None:
    """The plan is unknown, because the offset alone says nothing of the files."""
    assert journal(tmp_path, 0, offset).plan(0) == Plan()


def test_where_a_batch_begins_counts(tmp_path: Path) -> None:
    """Two batches that end at the same offsets are two plans if they begin elsewhere. A plan whose beginning cannot be
    read is unknown. A source that adds nothing to a batch need not name rows.
    """
    checkpoint = journal(tmp_path, 1, {"payments": {"0": 5}}, 3)
    assert checkpoint.plan(1) == Plan()
    journal(tmp_path, 0, {"payments": {"0": 1}}, 3)
    plan = checkpoint.plan(1)
    assert plan.names_rows
    journal(tmp_path, 0, {"payments": {"0": 2}}, 3)
    assert checkpoint.plan(1).digest not in ("", plan.digest)


def test_a_journal_of_another_version(tmp_path: Path) -> None:
    """Its offsets are not known to name rows."""
    assert not journal(tmp_path, 0, {"payments": {"0": 5}}, version="v2").plan(0).names_rows
