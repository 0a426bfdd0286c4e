"""Commands on a damaged store do what is possible, name every damaged place, and end with exit code 1."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.cli.conftest import Answer, Run
from tests.support import damage
from tests.support.damage import COORDINATOR, GROUPS, HURT_GROUP, HURT_ID, KINDS, SOUND_GROUP, SOUND_ID
from txn_engine import connect
from txn_engine.clock import system_clock

HURT = ("last entry, garbage", "coordinator's last entry, garbage", "groups' entry, garbage")
PARTITION = "payments-0"
LOST = "lost"
HOUR_MS = 3_600_000


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("damage") / "ledger"
    url = damage.build(root)
    with connect(url) as engine:
        engine.admin.create_topic(LOST, partitions=1, schema=damage.SCHEMA)
    return root


@pytest.fixture
def root(sound: Path, tmp_path: Path) -> Path:
    """A store with four damages: a topic, one of its partitions, a log of the coordinator and a log of groups."""
    copy = tmp_path / "ledger"
    shutil.copytree(sound, copy)
    for kind in HURT:
        KINDS[kind].do(copy)
    damage.overwrite(copy, f"topics/{LOST}/0.json")
    return copy


@pytest.fixture
def url(root: Path) -> str:
    return f"file://{root}"


def check(answer: Answer, *places: str) -> None:
    """The command failed, and stderr names these places and no others, without a traceback."""
    assert answer.code == 1, answer.stderr
    assert "Traceback" not in answer.stderr
    lines = answer.stderr.splitlines()
    for place in places:
        assert any(line.startswith(("damaged ", "failed ")) and place in line for line in lines), place
    for other in {LOST, PARTITION, COORDINATOR, GROUPS} - set(places):
        assert f" {other}" not in answer.stderr


def unreadable(answer: Answer) -> set[str]:
    assert answer.code == 1
    found = answer.json["unreadable"]
    assert all(each["code"] == "CORRUPT_MESSAGE" and each["message"] for each in found)
    return {
        each["topic"] if each["partition"] < 0 else f"{each['topic']}-{each['partition']}" for each in found
    }


def test_topics_list(run: Run) -> None:
    """Every topic is listed, and the damaged one is named."""
    answer = run("topics", "list")
    check(answer, LOST)
    assert [line.split()[0] for line in answer.stdout.splitlines()[1:]] == ["balances", LOST, "payments"]
    found = run("topics", "list", "--json")
    assert unreadable(found) == {LOST}
    assert [row["topic"] for row in found.json["topics"]] == ["balances", LOST, "payments"]


def test_topics_describe(run: Run) -> None:
    """The damaged partition is named, and other topics are described as usual."""
    answer = run("topics", "describe", "payments")
    check(answer, PARTITION)
    found = run("topics", "describe", "payments", "--json")
    assert unreadable(found) == {PARTITION}
    assert run("topics", "describe", "balances").code == 0
    assert f"topics/{LOST}/0.json" in run("topics", "describe", LOST).error


def test_transactions_list(run: Run) -> None:
    """The transactions of the readable logs are listed."""
    answer = run("transactions", "list")
    check(answer, COORDINATOR)
    assert SOUND_ID in answer.stdout
    found = run("transactions", "list", "--json")
    assert unreadable(found) == {COORDINATOR}
    assert [row["transactional_id"] for row in found.json["transactions"]] == [SOUND_ID]
    assert "__transaction_state" in run("transactions", "describe", HURT_ID).error


def test_transactions_find_hanging(run: Run, url: str) -> None:
    """No transaction is reported as hanging while its owner may be in an unreadable log."""
    with connect(url, clock=lambda: system_clock() - 24 * HOUR_MS) as engine:
        engine.admin.create_topic("older", partitions=1, schema=damage.SCHEMA)
        engine.partition("older", 0).append(
            damage.records(9), producer_id=77, producer_epoch=0, base_sequence=0, is_transactional=True
        )
    check(run("transactions", "find-hanging"), LOST, PARTITION, COORDINATOR, GROUPS)
    found = run("transactions", "find-hanging", "--json")
    assert unreadable(found) == {LOST, PARTITION, COORDINATOR, GROUPS}
    assert found.json["hanging_transactions"] == []


def test_groups_list_and_describe(run: Run) -> None:
    """The groups of the readable logs are listed and described."""
    answer = run("groups", "list")
    check(answer, GROUPS)
    assert answer.stdout.splitlines()[1:] == [SOUND_GROUP]
    found = run("groups", "list", "--json")
    assert unreadable(found) == {GROUPS}
    assert run("groups", "describe", SOUND_GROUP).code == 0
    assert "__consumer_offsets" in run("groups", "describe", HURT_GROUP).error


def test_a_group_that_reads_a_damaged_partition(run: Run, sound: Path, url: str, root: Path) -> None:
    """Its offsets are shown, without the lag of the damaged partition."""
    shutil.rmtree(root)
    shutil.copytree(sound, root)
    KINDS[HURT[0]].do(root)
    answer = run("groups", "describe", HURT_GROUP)
    check(answer, PARTITION)
    found = run("groups", "describe", HURT_GROUP, "--json")
    assert unreadable(found) == {PARTITION}
    assert all(row["lag"] is None for row in found.json["offsets"] if row["partition"] == 0)


@pytest.mark.parametrize("verb", ["sweep", "markers", "expire"])
def test_sweeps(run: Run, verb: str) -> None:
    """Every transaction in a readable log is ended, and the unreadable log is named."""
    answer = run("coordinator", verb)
    assert answer.code == 1
    assert COORDINATOR in answer.error
    found = run("coordinator", verb, "--json")
    assert found.code == 1
    assert [COORDINATOR in failure for failure in found.json["failures"]] == [True]


def test_a_sweep_of_two_damaged_partitions_names_both(run: Run, root: Path) -> None:
    """The sweep names each of two damaged partitions on a line of its own."""
    damage.overwrite(root, f"topics/__transaction_state/0/{damage.SOUND_HOME}/log/*", which=-1)
    both = (COORDINATOR, f"__transaction_state-{damage.SOUND_HOME}")
    for verb in ("sweep", "markers", "expire"):
        check(run("coordinator", verb), *both)


def test_snapshot(run: Run) -> None:
    """Every readable log gets its snapshot, and the others are named."""
    answer = run("coordinator", "snapshot")
    check(answer, LOST, PARTITION, COORDINATOR, GROUPS)
    assert "balances" in answer.stdout
    assert unreadable(run("coordinator", "snapshot", "--json")) == {LOST, PARTITION, COORDINATOR, GROUPS}


@pytest.mark.parametrize("verb", ["retention", "clean"])
def test_maintenance(run: Run, verb: str) -> None:
    """Every place is named once for each job that failed there."""
    check(run("maintain", verb), LOST, PARTITION, COORDINATOR, GROUPS)
    found = run("maintain", verb, "--json")
    assert found.code == 1
    places = {
        each["topic"] if each["partition"] < 0 else f"{each['topic']}-{each['partition']}"
        for each in found.json["failures"]
    }
    assert places == {LOST, PARTITION, COORDINATOR, GROUPS}


def test_compaction(run: Run) -> None:
    """Compaction does not look at the internal topics."""
    check(run("maintain", "compact"), LOST, PARTITION)


def test_data_files_that_are_gone_or_cut(run: Run, sound: Path, tmp_path: Path) -> None:
    """`doctor` and `topics describe` find them by listing, name the object, and show everything else."""
    copy = tmp_path / "gaps"
    shutil.copytree(sound, copy)
    url = f"file://{copy}"
    assert run("doctor", "--json", store=url).code == 0
    gone, *_ = sorted((copy / "topics/balances/0/0/data").iterdir())
    cut, *_ = sorted((copy / "topics/balances/0/1/data").iterdir())
    gone.unlink()
    cut.write_bytes(cut.read_bytes()[:-1])
    described = run("topics", "describe", "balances", "--json", store=url)
    assert unreadable(described) == {"balances-0", "balances-1"}
    assert [row["records"] for row in described.json["partitions"]] == [7, 7]
    assert run("topics", "describe", "payments", store=url).code == 0
    seen = {line["check"]: line for line in run("doctor", "--json", store=url).json["checks"]}["contents"]
    assert seen["status"] == "failed"
    assert all(file.name in seen["seen"] for file in (gone, cut))
