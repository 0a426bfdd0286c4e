"""`cuts`: what it prints for people and as JSON, and how it fails."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.conftest import Run
from txn_engine import Engine
from txn_engine.protocol.proposals import TrimProposal


def test_a_cut_is_made_listed_described_and_deleted(run: Run, payments: str, good: Path) -> None:
    """`cuts create`, `list`, `describe` and `delete` show what they did, for people and as JSON."""
    assert run("produce", payments, str(good), "--partition", "0").code == 0
    made = run("cuts", "create", "--keep-days", "7")
    assert (made.code, made.stdout) == (0, "created cut 0 of 1 topic, 2 partitions\n")
    lines = [line.split() for line in run("cuts", "list").stdout.splitlines()]
    assert lines[0] == ["CUT", "CREATED", "EXPIRES", "TOPICS", "PARTITIONS"]
    assert (lines[1][0], lines[1][3:]) == ("0", ["all", "2"])
    offsets = run("cuts", "describe", "0", "--json").json["offsets"]
    assert offsets == [
        {"topic": "payments", "partition": 0, "offset": 3},
        {"topic": "payments", "partition": 1, "offset": 0},
    ]
    assert run("cuts", "delete", "0").stdout.startswith("would delete cut 0: 1 topic, created ")
    assert run("cuts", "delete", "0", "--execute").stdout == "deleted cut 0\n"
    assert run("cuts", "list", "--json").json == {"cuts": []}
    assert run("cuts", "describe", "0", "--json").error_reason == "cut_deleted"


def test_the_difference_of_two_cuts(run: Run, payments: str, good: Path) -> None:
    """`cuts diff` shows the records that were added, and the groups that moved."""
    assert run("cuts", "create", "--topic", payments).code == 0
    assert run("produce", payments, str(good), "--partition", "0").code == 0
    assert run("consume", payments, "--group", "audit", "--format", "jsonl").code == 0
    assert run("cuts", "create").code == 0
    found = run("cuts", "diff", "0", "1", "--json").json
    assert found["partitions"] == [
        {"topic": "payments", "partition": 0, "start_offset": 0, "end_offset": 3, "records": 3}
    ]
    assert [(row["group"], row["partition"], row["before"], row["after"]) for row in found["groups"]] == [
        ("audit", 0, None, 3),
        ("audit", 1, None, 0),
    ]
    assert "RECORDS" in run("cuts", "diff", "0", "1").stdout
    assert run("cuts", "diff", "1", "0").error_code == "INVALID_REQUEST"


def test_a_group_is_moved_to_a_cut(run: Run, payments: str, good: Path) -> None:
    """`groups reset-offsets --to-cut` moves every partition to its offset in the cut."""
    assert run("cuts", "create").code == 0
    assert run("produce", payments, str(good), "--partition", "0").code == 0
    assert run("consume", payments, "--group", "audit", "--format", "jsonl").code == 0
    moved = run("groups", "reset-offsets", "audit", "--all-topics", "--to-cut", "0", "--execute", "--json")
    assert [(row["partition"], row["new_offset"]) for row in moved.json["offsets"]] == [(0, 0), (1, 0)]
    unknown = run("groups", "reset-offsets", "audit", "--all-topics", "--to-cut", "7", "--json")
    assert unknown.error_reason == "cut_not_found"


def test_a_group_cannot_move_to_a_cut_that_retention_has_passed(
    run: Run, payments: str, good: Path, engine: Engine
) -> None:
    """`groups reset-offsets --to-cut` is refused if records that came after the cut were deleted."""
    assert run("cuts", "create").code == 0
    assert run("produce", payments, str(good), "--partition", "0").code == 0
    assert run("consume", payments, "--group", "audit", "--format", "jsonl").code == 0
    engine.logs.get(payments, 0, 0).append([TrimProposal(3, 0)])
    moved = run("groups", "reset-offsets", "audit", "--all-topics", "--to-cut", "0", "--json")
    assert (moved.code, moved.error_reason) == (1, "cut_before_log_start")


@pytest.mark.parametrize(("folder", "noticed"), [("data", ("describe", "0")), ("snapshots", ("list",))])
def test_what_a_cut_reads_is_missing(
    run: Run, loaded: str, engine: Engine, folder: str, noticed: tuple[str, ...]
) -> None:
    """`cuts describe` and the doctor name a missing data file, `cuts list` a missing snapshot. What is known is shown
    all the same."""
    assert run("cuts", "create").code == 0
    (key, *_) = [info.key for info in engine.store.list(f"topics/{loaded}/0/0/{folder}/")]
    engine.store.delete(key)
    answer = run("cuts", *noticed, "--json")
    assert answer.code == 1
    assert [(each["topic"], each["partition"]) for each in answer.json["unreadable"]] == [(loaded, 0)]
    assert key in answer.json["unreadable"][0]["message"]
    assert set(answer.json) & {"cuts", "offsets"}
    contents = {each["check"]: each for each in run("doctor", "--json").json["checks"]}["contents"]
    assert contents["status"] == "failed"
    assert key in contents["seen"]


def test_a_lost_cut(run: Run, loaded: str, monkeypatch: pytest.MonkeyPatch, engine: Engine) -> None:
    """The doctor warns of a number that was claimed over an hour ago and has no cut."""
    assert run("cuts", "create").code == 0
    engine.store.delete(f"cuts/{0:020d}/cut.json")
    for age_ms, status in ((3_600_000, "ok"), (-1, "warning")):
        monkeypatch.setattr("txn_engine.log.cuts.CLAIM_MS", age_ms)
        contents = {each["check"]: each for each in run("doctor", "--json").json["checks"]}["contents"]
        assert contents["status"] == status


def test_wrong_calls(run: Run, payments: str) -> None:
    """An unknown topic is an error of the engine, and days that are not a sensible number are a usage
    error."""
    assert run("cuts", "create", "--topic", "nowhere").error_code == "UNKNOWN_TOPIC_OR_PARTITION"
    for days in ("0", "nan", "inf", "36501"):
        assert run("cuts", "create", "--keep-days", days).code == 2
    assert run("cuts", "describe", "x").code == 2
