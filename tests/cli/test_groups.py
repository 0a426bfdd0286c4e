"""`groups` has Kafka's columns. It shows a change first, and makes it with --execute."""

from __future__ import annotations

import re
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.cli.conftest import Run
from tests.support.aging import age_memory
from txn_engine import Engine, OffsetAndMetadata, TopicPartition, connect
from txn_engine.admin import Admin
from txn_engine.clock import system_clock
from txn_engine.producer import Producer
from txn_engine.types import ForgottenOffset

P0, P1 = TopicPartition("payments", 0), TopicPartition("payments", 1)


@pytest.fixture
def group(run: Run, payments: str, good: Path) -> str:
    """A group that has read the three records of partition 0. Partition 1 is empty."""
    assert run("produce", payments, str(good), "--partition", "0").code == 0
    assert run("consume", payments, "--group", "audit", "--format", "jsonl").code == 0
    return "audit"


def header(text: str) -> list[str]:
    return text.splitlines()[0].split()


def test_groups_list_and_describe(run: Run, group: str) -> None:
    """`groups describe` has Kafka's columns, with the lag to the last stable offset."""
    assert run("groups", "list").stdout == "GROUP\naudit\n"
    assert header(run("groups", "describe", group).stdout) == [
        "GROUP",
        "TOPIC",
        "PARTITION",
        "CURRENT-OFFSET",
        "LAST-STABLE-OFFSET",
        "LAG",
        "HELD-BACK",
        "PENDING-OFFSET",
        "PENDING-PRODUCER-ID",
        "BEYOND-END",
        "SKIPPED",
    ]
    rows = run("groups", "describe", "--group", group, "--json").json["offsets"]
    assert rows[0] == {
        "group": "audit",
        "topic": "payments",
        "partition": 0,
        "current_offset": 3,
        "last_stable_offset": 3,
        "lag": 0,
        "held_back": 0,
        "pending_offset": None,
        "pending_producer_id": None,
        "beyond_end": 0,
        "skipped": 0,
    }
    unknown = run("groups", "describe", "nobody")
    assert (unknown.code, unknown.error_code) == (1, "GROUP_ID_NOT_FOUND")


def test_a_reset_shows_and_executes(run: Run, group: str) -> None:
    """A group moves to the earliest, the latest or a given offset, for some partitions or all. Nothing moves
    without --execute."""
    reset = ["groups", "reset-offsets", group]
    shown = run(*reset, "--topic", "payments:0", "--to-earliest")
    assert header(shown.stdout) == ["GROUP", "TOPIC", "PARTITION", "CURRENT-OFFSET", "NEW-OFFSET"]
    assert "add --execute" in shown.stderr
    assert run("groups", "describe", group, "--json").json["offsets"][0]["current_offset"] == 3
    done = run(*reset, "--topic", "payments:0", "--to-offset", "1", "--execute", "--json").json
    assert done == {
        "offsets": [
            {"group": "audit", "topic": "payments", "partition": 0, "current_offset": 3, "new_offset": 1}
        ],
        "executed": True,
    }
    assert run("groups", "describe", group, "--json").json["offsets"][0]["lag"] == 2
    every = run(*reset, "--all-topics", "--to-latest", "--execute", "--json").json["offsets"]
    assert [(row["partition"], row["new_offset"]) for row in every] == [(0, 3), (1, 0)]
    fresh = run(
        "groups", "reset-offsets", "new", "--topic", "payments", "--to-earliest", "--execute", "--json"
    )
    assert [row["current_offset"] for row in fresh.json["offsets"]] == [None, None]


@pytest.mark.parametrize(
    ("option", "value", "offsets"),
    [
        ("--shift-by", "-2", [1, 0]),
        ("--shift-by", "-99", [0, 0]),
        ("--shift-by", "7", [3, 0]),
        ("--shift-by", "0", [3, 0]),
        ("--to-datetime", "2001-01-01T00:00:00.000", [0, 0]),
        ("--to-datetime", "2001-01-01", [0, 0]),
        ("--to-datetime", "9999-01-01T00:00:00+02:00", [3, 0]),
        ("--by-duration", "P20000D", [0, 0]),
        ("--by-duration", "P1DT2H3M4S", [0, 0]),
        ("--by-duration", "PT0S", [3, 0]),
    ],
)
def test_a_reset_by_time_and_from_where_it_is(
    run: Run, group: str, option: str, value: str, offsets: list[int]
) -> None:
    """A group moves to the first record from a time on, or by a number of offsets, and stops at the ends of the log."""
    assert run("groups", "reset-offsets", group, "--all-topics", "--to-latest", "--execute").code == 0
    time.sleep(0.002)  # a record of this very millisecond would be as new as now
    moved = run("groups", "reset-offsets", group, "--all-topics", option, value, "--execute", "--json")
    assert moved.code == 0, moved.stderr
    assert [row["new_offset"] for row in moved.json["offsets"]] == offsets
    now = run("groups", "describe", group, "--json").json["offsets"]
    assert [row["current_offset"] for row in now] == offsets


def test_a_shift_without_a_position(run: Run, payments: str, loaded: str) -> None:
    """A group that has committed nothing in a partition cannot be shifted there."""
    shift = ["groups", "reset-offsets", "half", "--topic", payments, "--shift-by", "1", "--execute"]
    assert run(*shift).error_code == "GROUP_ID_NOT_FOUND"
    begun = run("groups", "reset-offsets", "half", "--topic", f"{payments}:0", "--to-earliest", "--execute")
    assert begun.code == 0
    answer = run(*shift)
    assert answer.code == 1
    assert "payments-1" in answer.error
    assert "--to-earliest" in answer.error


@pytest.mark.parametrize("offset", ["-1", "4", "99999999999999999999"])
def test_a_negative_or_future_offset_is_refused(run: Run, group: str, offset: str) -> None:
    """The error has the valid range, and nothing moves."""
    answer = run(
        "groups", "reset-offsets", group, "--topic", "payments:0", "--to-offset", offset, "--execute"
    )
    assert (answer.code, answer.error_code) == (1, "OFFSET_OUT_OF_RANGE")
    assert "expected 0 to 3" in answer.error
    assert run("groups", "describe", group, "--json").json["offsets"][0]["current_offset"] == 3


@pytest.mark.parametrize(
    "options",
    [
        [],
        ["--topic", "payments"],
        ["--to-earliest"],
        ["--topic", "payments", "--to-earliest", "--to-latest"],
        ["--topic", "payments", "--all-topics", "--to-earliest"],
        ["--topic", "payments:x", "--to-earliest"],
        ["--topic", "payments", "--to-offset", "1.5"],
        ["--topic", "payments", "--to-earliest", "--execute", "--dry-run"],
        ["--topic", "payments", "--to-datetime", "yesterday"],
        ["--topic", "payments", "--by-duration", "P"],
        ["--topic", "payments", "--by-duration", "1h"],
        ["--topic", "payments", "--by-duration", "P1Y"],
        ["--topic", "payments", "--shift-by", "1.5"],
        ["--topic", "payments", "--shift-by", "1", "--to-latest"],
    ],
)
def test_an_ambiguous_reset_is_a_usage_error(run: Run, group: str, options: list[str]) -> None:
    """An ambiguous reset has exit code 2 and one line."""
    answer = run("groups", "reset-offsets", group, *options)
    assert (answer.code, bool(answer.error)) == (2, True)


# --- deletion and expiry ----------------------------------------------------------------------------------


def commit(engine: Engine, group: str, offset: int, partition: TopicPartition = P0) -> None:
    with engine.consumer(group_id=group) as consumer:
        consumer.assign([partition])
        consumer.positions()
        consumer.commit({partition: offset})


def pending(engine: Engine, group: str, offset: int) -> Producer:
    """A producer with an offset of the group in an open transaction."""
    consumer = engine.consumer(group_id=group)
    consumer.assign([P0])
    consumer.positions()
    producer = engine.producer(transactional_id=f"job-{group}")
    producer.init_transactions()
    producer.begin_transaction()
    producer.send_offsets_to_transaction({P0: OffsetAndMetadata(offset)}, consumer.group_metadata())
    return producer


def row(group: str, offset: int, partition: int = 0) -> dict[str, object]:
    return {"group": group, "topic": "payments", "partition": partition, "current_offset": offset}


def test_a_deletion_shows_and_executes(run: Run, engine: Engine, group: str) -> None:
    """With --execute the named groups are deleted with all their offsets, and no others."""
    commit(engine, "sums", 2)
    commit(engine, "kept", 1)
    shown = run("groups", "delete", group, "sums")
    assert header(shown.stdout) == ["GROUP", "TOPIC", "PARTITION", "CURRENT-OFFSET"]
    assert [line.split() for line in shown.stdout.splitlines()[1:]] == [
        ["audit", "payments", "0", "3"],
        ["audit", "payments", "1", "0"],
        ["sums", "payments", "0", "2"],
    ]
    assert shown.stderr == "nothing was changed: add --execute to do it\n"
    assert engine.admin.list_groups() == ["audit", "kept", "sums"]
    done = run("groups", "delete", group, "--group", "sums", "--group", group, "--execute", "--json")
    assert done.json == {"offsets": [row("audit", 3), row("audit", 0, 1), row("sums", 2)], "executed": True}
    assert done.stderr == ""
    assert run("groups", "list").stdout == "GROUP\nkept\n"
    assert run("verify").code == 0
    read_again = run("consume", "payments", "--group", group, "--json").json
    assert read_again["record_count"] == 3


@pytest.mark.parametrize("execute", [[], ["--execute"]])
def test_a_group_that_cannot_be_deleted_keeps_the_others(
    run: Run, engine: Engine, group: str, execute: list[str]
) -> None:
    """If a group is unknown or has pending offsets, no group is deleted, with and without --execute."""
    unknown = run("groups", "delete", group, "nobody", *execute)
    assert (unknown.code, unknown.stdout) == (1, "")
    assert unknown.error_code == "GROUP_ID_NOT_FOUND"
    producer = pending(engine, "sums", 1)
    refused = run("groups", "delete", group, "sums", *execute)
    assert (refused.code, refused.stdout) == (1, "")
    assert refused.error_code == "OFFSETS_PENDING"
    assert "transactions fence job-sums" in refused.stderr
    assert engine.admin.list_groups() == ["audit", "sums"]
    producer.abort_transaction()


def test_pending_offsets_name_the_transaction_that_holds_them(run: Run, engine: Engine, group: str) -> None:
    """A reset that is refused for pending offsets says which transactional id to fence. Once it is fenced, the reset
    goes through."""
    pending(engine, "sums", 1)
    reset = ("groups", "reset-offsets", "sums", "--topic", "payments", "--to-earliest", "--execute")
    refused = run(*reset)
    assert (refused.code, refused.error_code) == (1, "OFFSETS_PENDING")
    (command,) = re.findall(r"txn-engine (transactions fence \S+)", refused.stderr)
    assert run(*command.split()).code == 0
    assert run(*reset).code == 0


def test_groups_that_were_deleted_before_a_refusal_are_shown(
    run: Run, engine: Engine, group: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A group that is used again between the check and the deletion stays."""
    commit(engine, "sums", 2)
    delete = Admin.delete_group

    def overtaken(admin: Admin, name: str, *, dry_run: bool = False) -> list[ForgottenOffset]:
        if name == "sums" and not dry_run:
            pending(engine, "sums", 3)
        return delete(admin, name, dry_run=dry_run)

    monkeypatch.setattr(Admin, "delete_group", overtaken)
    answer = run("groups", "delete", group, "sums", "--execute", "--json")
    assert answer.code == 1
    assert answer.json == {"offsets": [row("audit", 3), row("audit", 0, 1)], "executed": True}
    assert answer.error_code == "OFFSETS_PENDING"
    assert engine.admin.list_groups() == ["sums"]


@pytest.mark.parametrize(
    "arguments",
    [
        ["delete"],
        ["delete", "audit", "--execute", "--dry-run"],
        ["expire-offsets"],
        ["expire-offsets", "--retention-minutes", "-1"],
        ["expire-offsets", "--retention-minutes", "1", "--execute", "--dry-run"],
    ],
)
def test_an_ambiguous_deletion_is_a_usage_error(run: Run, group: str, arguments: list[str]) -> None:
    """Nothing is deleted, and offsets do not expire without an explicit limit."""
    answer = run("groups", *arguments)
    assert (answer.code, bool(answer.error)) == (2, True)
    assert run("groups", "list").stdout == "GROUP\naudit\n"


def test_offsets_expire_on_request(run: Run, engine: Engine, payments: str) -> None:
    """Offsets of all groups expire if they are at least as old as the limit. Younger and pending ones
    stay."""
    with connect(engine.url, clock=lambda: system_clock() - 61 * 60_000) as earlier:
        commit(earlier, "old", 0)
        commit(earlier, "old", 0, P1)
        commit(earlier, "busy", 0)
    age_memory(engine.store, 61 * 60_000)
    pending(engine, "busy", 0)
    commit(engine, "young", 0)
    expire = ["groups", "expire-offsets", "--retention-minutes"]
    assert run(*expire, "62", "--execute", "--json").json == {"offsets": [], "executed": True}
    shown = run(*expire, "60")
    assert header(shown.stdout) == ["GROUP", "TOPIC", "PARTITION", "CURRENT-OFFSET"]
    assert len(shown.stdout.splitlines()) == 3
    assert "add --execute" in shown.stderr
    assert engine.admin.list_groups() == ["busy", "old", "young"]
    done = run(*expire, "60", "--execute", "--json").json
    assert done == {"offsets": [row("old", 0), row("old", 0, 1)], "executed": True}
    assert engine.admin.list_groups() == ["busy", "young"]
    assert run(*expire, "0", "--execute", "--json").json["offsets"] == [row("young", 0)]


# --- topics that were deleted -----------------------------------------------------------------------------


@pytest.mark.parametrize(("option", "wanted"), [("--to-latest", [4, 5]), ("--to-earliest", [1, 2, 3, 4, 5])])
def test_a_reset_uses_one_incarnation_of_a_topic(
    run: Run, engine: Engine, option: str, wanted: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """If the topic is deleted and created again just before the move, the group moves to the new topic's own
    end."""
    schema = pa.schema([("id", pa.int64())])

    def make(ids: range) -> None:
        engine.admin.create_topic("ids", schema=schema)
        engine.producer().produce("ids", pa.table({"id": list(ids)}, schema=schema)).result()

    make(range(2))
    reset = Admin.reset_offsets

    def overtaken(admin: Admin, *args: Any, **kwargs: Any) -> Any:
        engine.admin.delete_topic("ids")
        make(range(1, 4))
        moved = reset(admin, *args, **kwargs)
        engine.producer().produce("ids", pa.table({"id": [4, 5]}, schema=schema)).result()
        return moved

    monkeypatch.setattr(Admin, "reset_offsets", overtaken)
    assert run("groups", "reset-offsets", "new", "--topic", "ids", option, "--execute").code == 0
    with engine.consumer(group_id="new") as consumer:
        consumer.subscribe(["ids"])
        batch = consumer.poll()
    assert batch is not None
    assert batch["id"].to_pylist() == wanted


def test_a_deleted_topic_does_not_block_a_reset(run: Run, engine: Engine, group: str) -> None:
    """The offsets of a deleted topic are reported and skipped with --all-topics. If there are no others, the
    reset is refused."""
    engine.admin.create_topic("other", schema=pa.schema([("id", pa.int64())]))
    commit(engine, group, 0, TopicPartition("other", 0))
    engine.admin.delete_topic("payments")
    described = run("groups", "describe", group)
    assert "payments-0, payments-1: offsets in a topic that was deleted" in described.stderr
    done = run("groups", "reset-offsets", group, "--all-topics", "--to-latest", "--execute")
    assert done.code == 0
    assert [line.split()[1] for line in done.stdout.splitlines()[1:]] == ["other"]
    assert "payments-0, payments-1: offsets in a topic that was deleted" in done.stderr
    engine.admin.delete_topic("other")
    refused = run("groups", "reset-offsets", group, "--all-topics", "--to-latest", "--execute")
    assert "all its offsets are in topics that were deleted" in refused.error
    assert (refused.code, refused.error_code) == (1, "INVALID_REQUEST")
