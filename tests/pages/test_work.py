"""The pages say in words what a run did. "Nothing to do" is never shown for a run that did something, failed
or returned nothing."""

from __future__ import annotations

from typing import Any

import pytest

from txn_engine_airflow.pages.work import NOTHING, said

COMPACTED = {"columns": ["topic", "partition", "files", "bytes", "outputs"], "rows": [["payments", 0, 20, 9, 1],
             ["payments", 1, 3, 9, 1]], "rows_left_out": 0}  # fmt: skip
NO_ROWS = {"columns": ["topic", "partition"], "rows": [], "rows_left_out": 0}


@pytest.mark.parametrize(
    ("dag_id", "returned", "told"),
    [
        ("txn_maintain", {"compact": [COMPACTED], "retain": [NO_ROWS], "clean": [NO_ROWS]}, "merged 23 files into 2"),
        ("txn_maintain", {"compact": [COMPACTED | {"rows_left_out": 7}]}, "at least merged 23 files into 2"),
        ("txn_maintain", {"compact": [NO_ROWS], "seal": [NO_ROWS], "expire_group_offsets": [NO_ROWS]}, NOTHING),
        ("txn_maintain", {"seal": [{"columns": ["seals"], "rows": [[1]], "rows_left_out": 0}]}, "sealed 1 entry"),
        ("txn_maintain", {"clean": [{"columns": ["orphans", "dead_files", "snapshots"], "rows": [[1, 2, 4]],
                                     "rows_left_out": 0}]}, "deleted 7 objects"),
        ("txn_maintain", {"expire_group_offsets": [NO_ROWS | {"rows_left_out": 2_000}]}, "forgot 2,000 group offsets"),
        ("txn_coordinator_sweep", {"abort_timed_out_transactions": [{"transactions": 1}],
                                   "expire_transactional_ids": [{"transactions": 2}]},
         "aborted 1 transaction, expired 2 ids"),
        ("txn_coordinator_sweep", {"abort_timed_out_transactions": [{"transactions": 0}]}, NOTHING),
        ("txn_write_markers", {"find_pending": [[]]}, NOTHING),
        ("txn_write_markers", {"find_pending": [[{"partition": 1}]], "write_markers": [{"transactions": 1_200},
                               {"transactions": 56}], "check_complete": [{"transactions": 1_256}]},
         "completed 1,256 transactions"),
        ("txn_write_markers", {"find_pending": [[]], "make_cut": [{"cut": 1_012, "offsets": NO_ROWS}]},
         "made cut 1,012"),
        ("txn_compute_lso", {"write_snapshots": [{"payments": 2, "till": 1}],
                             "last_stable_offsets": [NO_ROWS | {"rows_left_out": 90}]}, "wrote 3 snapshots"),
        ("txn_spark_consume", {"consume": [{"records": 4, "committed_before": False, "input": {"records": 50}}]},
         "50 records in, 4 records out"),
        ("txn_verify_exactly_once", {"verify": [{"passed": 11, "checks": 12}]}, "11 of 12 checks passed"),
        ("txn_maintain", {}, ""),
        ("txn_maintain", {"compact": [None], "retain": ["?"], "clean": [{"rows": 3}]}, ""),
        ("somebody_else", {"compact": [COMPACTED]}, ""),
    ],
)  # fmt: skip
def test_a_run_says_what_it_did(dag_id: str, returned: dict[str, list[Any]], told: str) -> None:
    assert said(dag_id, returned, ended=counted(returned), succeeded=True) == told


def counted(returned: dict[str, list[Any]]) -> dict[str, int]:
    """One finished instance for each returned value."""
    return {task_id: len(values) for task_id, values in returned.items()}


@pytest.mark.parametrize(
    ("returned", "ended", "told"),
    [
        (
            {"compact": ["s3://xcom/1"], "retain": [NO_ROWS]},
            {"compact": 1, "retain": 1},
            "what compact did is not known",
        ),
        ({"retain": [NO_ROWS]}, {"compact": 1, "retain": 1}, "what compact did is not known"),
        (
            {"compact": [COMPACTED]},
            {"compact": 1, "clean": 1},
            "merged 23 files into 2, what clean did is not known",
        ),
        ({"retain": [NO_ROWS]}, {"retain": 1, "all_done": 1}, NOTHING),
        ({}, {"compact": 1}, ""),
    ],
)
def test_what_a_task_did_and_did_not_say(
    returned: dict[str, list[Any]], ended: dict[str, int], told: str
) -> None:
    """A result that is kept elsewhere, of another version or gone does not make it a run without work."""
    assert said("txn_maintain", returned, ended=ended, succeeded=True) == told


def test_one_of_many_instances_said_nothing() -> None:
    """If an instance returned nothing, the results of the others are not shown as everything."""
    returned = {"find_pending": [[{"partition": 1}]], "write_markers": [{"transactions": 5}]}
    ended = {"find_pending": 1, "write_markers": 2}
    told = said("txn_write_markers", returned, ended=ended, succeeded=True)
    assert told.endswith("what write_markers did is not known")


def test_a_run_that_failed_never_had_nothing_to_do() -> None:
    """A failed run shows what it did before it failed."""
    assert said("txn_maintain", {"compact": [NO_ROWS]}, ended={"compact": 1}, succeeded=False) == ""
    done = {"compact": [COMPACTED], "retain": [NO_ROWS]}
    assert said("txn_maintain", done, ended=counted(done), succeeded=False) == "merged 23 files into 2"


def test_a_dry_run_did_nothing_and_says_what_is_due() -> None:
    told = said(
        "txn_maintain", {"compact": [COMPACTED]}, ended={"compact": 1}, succeeded=True, is_dry_run=True
    )
    assert told == "a dry run, to be done: merge 23 files into 2"
    assert (
        said("txn_maintain", {"compact": [NO_ROWS]}, ended={"compact": 1}, succeeded=True, is_dry_run=True)
        == NOTHING
    )
