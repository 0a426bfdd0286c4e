"""The command line, the DAGs' tables and the pages show the same numbers of one store."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from click.testing import CliRunner

from tests.pages import busy_store
from tests.support.aging import age_memory
from txn_engine import Engine, OffsetAndMetadata, TopicPartition, connect
from txn_engine.cli.main import cli
from txn_engine.clock import system_clock
from txn_engine.protocol.offset_commits import OffsetCommit, OffsetKey
from txn_engine.protocol.proposals import OffsetCommitProposal, TrimProposal
from txn_engine_airflow import tables
from txn_engine_airflow.pages.cuts_seen import SeenCuts
from txn_engine_airflow.pages.moment import Moment, look
from txn_engine_airflow.pages.views_groups import describe_group, group_lines
from txn_engine_airflow.pages.views_overview import overview
from txn_engine_airflow.pages.views_partition import describe_topic
from txn_engine_airflow.pages.views_transactions import transaction_line

pytestmark = pytest.mark.airflow

URL = "memory://same-numbers"
CONNECTION = "txn_engine_default"
WAITING = 1_256


@pytest.fixture(scope="module")
def busy() -> Iterator[Engine]:
    """The pages' store with committed records after a dead producer's, whose group has read everything readable."""
    busy_store.build(URL)
    with connect(URL) as engine:
        engine.admin.create_topic("till", partitions=1, schema=busy_store.SCHEMA)
        engine.partition("till", 0).append(busy_store.records(0, 10))
        dead = engine.producer(transactional_id="dead", transaction_timeout_ms=600_000)
        dead.init_transactions()
        dead.begin_transaction()
        dead.produce("till", busy_store.records(10, 4), partition=0)
        dead.flush()
        engine.partition("till", 0).append(busy_store.records(20, WAITING))
        with engine.consumer(group_id="readers") as consumer:
            consumer.assign([TopicPartition("till", 0)])
            assert consumer.poll(max_records=100).num_rows == 10  # type: ignore[union-attr]
            consumer.commit()
    now_ms = system_clock() + 7_000
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("txn_engine.engine.system_clock", lambda: now_ms)
        patch.setitem(Engine.__init__.__kwdefaults__, "clock", lambda: now_ms)
        extra = {"conn_type": "txn_engine", "extra": {"url": URL}}
        patch.setenv(f"AIRFLOW_CONN_{CONNECTION.upper()}", json.dumps(extra))
        patch.setenv("TXN_ENGINE_CONNECTIONS", CONNECTION)
        with connect(URL) as engine:
            yield engine


@pytest.fixture
def moment(busy: Engine) -> Moment:
    return look(busy, busy.logs.topics.survey(), SeenCuts())


def command(*arguments: str) -> Any:
    result = CliRunner().invoke(cli, [*arguments, "--json", "--url", URL], catch_exceptions=False)
    assert result.exit_code == 0, result.stderr
    return json.loads(result.stdout)


def test_a_lag_of_nothing_stands_beside_what_waits(busy: Engine, moment: Moment) -> None:
    """The lag is 0 while 1,256 committed records wait for a dead producer's transaction to end."""
    detail = describe_group(moment, "readers", busy.logs.group_partition("readers").partition, None)
    assert detail is not None
    (page,) = detail.partitions
    (told,) = command("groups", "describe", "readers")["offsets"]
    (row,) = [row for row in tables.rows_of(tables.group_lags(CONNECTION)) if row["group"] == "readers"]
    assert (told["lag"], told["held_back"]) == (0, 4 + WAITING)
    assert (row["lag"], row["held_back"]) == (page.lag, page.held_back) == (0, 4 + WAITING)
    (line,) = [line for line in group_lines(moment) if line.group_id == "readers"]
    assert (line.lag, line.held_back, line.gone) == (0, 4 + WAITING, 0)
    held = {at.topic: at for at in overview(moment, group_lines(moment)).held}
    assert (held["till"].behind, held["till"].waiting_records) == (4 + WAITING, WAITING)


def test_offsets_holders_and_their_ages_are_the_same(busy: Engine, moment: Moment) -> None:
    rows = {
        (row["topic"], row["partition"]): row
        for row in tables.rows_of(tables.last_stable_offsets(CONNECTION))
    }
    seen = 0
    for topic in busy.admin.list_topics():
        page = describe_topic(moment, topic)
        assert page is not None
        for told, line in zip(
            command("topics", "describe", topic)["partitions"], page.partitions, strict=True
        ):
            row = rows[topic, line.partition]
            offsets = (line.log_start, line.last_stable, line.log_end, line.behind)
            assert offsets == tuple(
                told[name]
                for name in ("log_start_offset", "last_stable_offset", "high_watermark", "held_back")
            )
            assert offsets == tuple(
                row[name] for name in ("log_start_offset", "last_stable_offset", "high_watermark", "behind")
            )
            assert (told["records"], told["files"], told["bytes"]) == (line.records, line.files, line.bytes)
            if line.producer_id >= 0:
                seen += 1
                name = line.held_by or f"producer {line.producer_id}"
                assert row["held_by"] == told["held_by"] == name
                assert told["held_for_ms"] == moment.now_ms - line.since_ms > 0
                assert row["held_for_s"] == told["held_for_ms"] // 1_000
            else:
                assert (told["held_by"], told["held_for_ms"], row["held_by"], row["held_for_s"]) == (
                    None,
                    None,
                    "",
                    -1,
                )
    assert seen == 5


def test_a_transaction_is_as_old_everywhere(busy: Engine, moment: Moment) -> None:
    for name, stored in moment.transactions.items():
        line, told = transaction_line(stored, moment.now_ms), command("transactions", "describe", name)
        if line.began_ms < 0:
            assert told["current_transaction_start_time_ms"] is told["transaction_duration_ms"] is None
        else:
            assert told["current_transaction_start_time_ms"] == line.began_ms
            assert told["transaction_duration_ms"] == moment.now_ms - line.began_ms > 0


def test_readable_files_are_the_files_of_the_readable_records(busy: Engine, moment: Moment) -> None:
    """The bytes, the records and the number of files are those of the files that a scan reads."""
    for topic in busy.admin.list_topics():
        page = describe_topic(moment, topic)
        assert page is not None
        files = busy.scan(topic).files()
        assert sum(line.files for line in page.partitions) == len(files)
        assert sum(line.bytes for line in page.partitions) == sum(file.bytes for file in files)
        assert sum(line.records for line in page.partitions) == sum(file.record_count for file in files)


def test_what_was_deleted_unread_is_part_of_the_lag_and_said(busy: Engine) -> None:
    """After retention the lag still counts offsets that are gone, and each place that shows it says how
    many."""
    clock = system_clock() - 10 * busy_store.HOUR_MS
    with connect("memory://gone", clock=lambda: clock) as past:
        past.admin.create_topic(
            "short", partitions=1, schema=busy_store.SCHEMA, retention_ms=busy_store.HOUR_MS
        )
        past.partition("short", 0).append(busy_store.records(0, 8))
        past.consumer(group_id="slow").commit({TopicPartition("short", 0): OffsetAndMetadata(3)})
        age_memory(past.store, 10 * busy_store.HOUR_MS)
    with connect("memory://gone") as engine:
        engine.partition("short", 0).append(busy_store.records(8, 2))
        engine.maintenance.retain()
        (at,) = engine.admin.describe_group("slow").partitions
        assert (at.lag, at.gone_offsets) == (8, 5)  # the trim is a row too
        (line,) = group_lines(look(engine, engine.logs.topics.survey(), SeenCuts()))
        assert (line.lag, line.gone) == (8, 5)
    told = CliRunner().invoke(
        cli, ["groups", "describe", "slow", "--url", "memory://gone"], catch_exceptions=False
    )
    assert "deleted before the group read them: short-0 5" in told.stderr


def test_what_a_group_skipped_and_how_far_it_is_beyond_the_end_is_the_same_everywhere(busy: Engine) -> None:
    """What a group skipped stays in its description, and a group beyond the end has no lag: on the pages, too."""
    with connect("memory://skipped") as engine:
        engine.admin.create_topic("short", partitions=2, schema=busy_store.SCHEMA)
        for partition in (0, 1):
            engine.partition("short", partition).append(busy_store.records(0, 8))
        place = TopicPartition("short", 0)
        engine.consumer(group_id="slow").commit({place: OffsetAndMetadata(3)})
        engine.logs.get("short", 0, 0).append([TrimProposal(8, 0)])
        with engine.consumer(group_id="slow") as consumer:
            consumer.assign([place])
            consumer.commit()
        lost = OffsetCommitProposal(OffsetCommit(OffsetKey("slow", "short", 0, 1), 20))
        engine.logs.of(engine.logs.group_partition("slow")).append([lost])
        described = engine.admin.describe_group("slow").partitions
        assert [(at.skipped_offsets, at.beyond_offsets, at.lag) for at in described] == [
            (5, 0, 1),
            (0, 12, -1),
        ]
        (line,) = group_lines(look(engine, engine.logs.topics.survey(), SeenCuts()))
        assert (line.skipped, line.beyond, line.lag, line.unknown) == (5, 12, 1, 1)
        told = CliRunner().invoke(cli, ["groups", "describe", "slow", "--url", "memory://skipped", "--json"])
        rows = json.loads(told.stdout)["offsets"]
        assert [(row["skipped"], row["beyond_end"], row["lag"]) for row in rows] == [(5, 0, 1), (0, 12, None)]
