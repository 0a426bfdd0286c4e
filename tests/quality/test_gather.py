"""A check runs on the real engine, from its API to the verdict."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from immutables import Map

import txn_engine
from tests.quality.ledger import (
    BALANCES,
    CHECK,
    PAYMENTS,
    ROWS,
    SUMS,
    TURNOVERS,
    balances_table,
    payments_table,
    write_input,
)
from tests.quality.verdicts import Verdict, verdict_of
from tests.suite.tiers import in_shard
from tests.support.internal import FEW_INTERNAL
from tests.support.kills import ProcessDiedError, die
from txn_engine import Engine, OffsetAndMetadata, TopicPartition
from txn_engine.admin import Admin
from txn_engine.errors import (
    InvalidRecordError,
    InvalidRequestError,
    UnknownTopicOrPartitionError,
)
from txn_engine.maintain import MaintenancePolicy, by_key
from txn_engine.partition_log import PartitionLog
from txn_engine.producer import Producer
from txn_engine.protocol.file_names import parse_data_path
from txn_engine.quality import Amount, Declaration, Output, QualityResult, check_exactly_once
from txn_engine.quality.gather import gather
from txn_engine.quality.in_process import InProcess
from txn_engine.quality.standpoint import AtCut
from txn_engine.reasons import Reason
from txn_engine.testing import ManualClock
from txn_engine.types import AbortedTransaction

PLACES = [TopicPartition("payments", number) for number in range(2)]


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Engine]:
    with txn_engine.connect(f"memory://{tmp_path.name}", configs=FEW_INTERNAL) as connected:
        make_topics(connected)
        yield connected


def make_topics(engine: Engine, **of_topic: Mapping[str, Any]) -> None:
    """Create the input and the output topic. `of_topic` gives settings of one of them."""
    for name, schema in (("payments", PAYMENTS), ("balances", BALANCES)):
        config = of_topic.get(name, {})
        engine.admin.create_topic(name, partitions=2, schema=schema, key="account_id", **config)


def load(engine: Engine, transactional_id: str = "load") -> None:
    """Load the ledger's rows in two transactions, with an aborted try between them."""
    with engine.producer(transactional_id=transactional_id) as producer:
        producer.init_transactions()
        with producer.transaction():
            producer.produce("payments", payments_table(ROWS[:4]))
        producer.begin_transaction()
        producer.produce("payments", payments_table(ROWS[4:6]))
        producer.flush()
        producer.abort_transaction()
        with producer.transaction():
            producer.produce("payments", payments_table(ROWS[4:]))


def consume(engine: Engine, rows: list[tuple[int, str, int]] = TURNOVERS) -> None:
    """Write the consumer's output and its offsets in one transaction."""
    with engine.producer(transactional_id="balances") as producer:
        producer.init_transactions()
        producer.begin_transaction()
        produce_output(engine, producer, rows)
        producer.commit_transaction()


def produce_output(engine: Engine, producer: Producer, rows: list[tuple[int, str, int]]) -> None:
    with engine.consumer(group_id="balances") as consumer:
        consumer.subscribe(["payments"])
        while consumer.poll(max_records=100) is not None:
            pass
        producer.produce("balances", balances_table(rows))
        positions = {place: OffsetAndMetadata(consumer.position(place)) for place in PLACES}
        producer.send_offsets_to_transaction(positions, consumer.group_metadata())


def prove(engine: Engine, folder: Path, *, with_file: bool = True) -> QualityResult:
    path = write_input(folder / "trans.csv") if with_file else None
    return check_exactly_once(engine, CHECK, input_file=path, report_folder=folder / "report")


def counted(engine: Engine, folder: Path, check: Declaration = CHECK) -> Verdict:
    """The verdict of the checks, with the ledger's file."""
    return verdict_of(engine, check, input_file=write_input(folder / "trans.csv"))


def not_passed(result: QualityResult) -> dict[str, str]:
    return {check.name: check.status for check in result.checks if check.status != "passed"}


def test_a_right_run_is_proven(engine: Engine, tmp_path: Path) -> None:
    """Two loads, an aborted try and a consumer pass every check, and progress is reported."""
    load(engine)
    consume(engine)
    told: list[str] = []
    result = check_exactly_once(
        engine,
        CHECK,
        input_file=write_input(tmp_path / "trans.csv"),
        report_folder=tmp_path / "report",
        run_name="nightly",
        progress=told.append,
    )
    assert not_passed(result) == {}
    assert result.success
    assert result.statistics["input_rows"] == result.statistics["committed_records"] == 8
    assert result.statistics["aborted_records"] == 2
    assert len(told) >= 5
    assert "nightly" in result.report.read_text(encoding="utf-8")


def test_without_a_file(engine: Engine, tmp_path: Path) -> None:
    """Without a file, the sums are computed from the committed records."""
    load(engine)
    consume(engine)
    assert prove(engine, tmp_path, with_file=False).success


@pytest.mark.shard("damage")
def test_a_load_that_ran_twice(engine: Engine, tmp_path: Path) -> None:
    """If a load ran again under another id, the checks find its records twice, and that the consumer has not
    read the second ones."""
    load(engine)
    consume(engine)
    load(engine, "load-again")
    assert counted(engine, tmp_path).not_passed == {"record_ids_unique": "failed", "group_at_lso": "failed"}


def test_an_open_transaction(engine: Engine, tmp_path: Path) -> None:
    """Three checks say that a transaction is open, and two that its rows are missing. Hiding its records is
    right."""
    with engine.producer(transactional_id="load") as producer:
        producer.init_transactions()
        with producer.transaction():
            producer.produce("payments", payments_table(ROWS[:4]))
        consume(engine, [(1, "649.95", 2), (2, "999.90", 2)])
        producer.begin_transaction()
        producer.produce("payments", payments_table(ROWS[4:]))
        producer.flush()
        found = counted(engine, tmp_path).not_passed
        producer.abort_transaction()
    assert found == dict.fromkeys(
        [
            "no_input_row_missing",
            "totals_in_balances",
            "lso_at_log_end",
            "no_open_transaction",
            "transactions_final",
        ],
        "failed",
    )


@contextmanager
def output_without_commit(engine: Engine) -> Iterator[None]:
    """Flush the balances' output and offsets in a transaction that is aborted at the end."""
    with engine.producer(transactional_id="balances") as producer:
        producer.init_transactions()
        producer.begin_transaction()
        produce_output(engine, producer, TURNOVERS)
        producer.flush()
        yield
        producer.abort_transaction()


def test_a_consumer_between_output_and_commit(engine: Engine, tmp_path: Path) -> None:
    """If the consumer's transaction is open, its offsets are pending and its output is not visible, and the
    checks say so."""
    load(engine)
    with output_without_commit(engine):
        found = counted(engine, tmp_path).not_passed
    assert {"nothing_pending", "group_at_lso", "transactions_final", "lso_at_log_end"} <= found.keys()
    assert set(found.values()) == {"failed"}


def test_a_group_that_never_committed(engine: Engine, tmp_path: Path) -> None:
    """A group that never committed is not an error: the check finds that nothing was consumed."""
    load(engine)
    found = counted(engine, tmp_path).not_passed
    assert found == {
        "group_at_lso": "failed",
        "totals_in_balances": "failed",
    }


def test_another_topics_transaction_is_left_alone(engine: Engine, tmp_path: Path) -> None:
    """An open transaction on other topics of the store does not matter."""
    load(engine)
    consume(engine)
    engine.admin.create_topic("other", schema=pa.schema([pa.field("x", pa.int64())]))
    with engine.producer(transactional_id="elsewhere") as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.produce("other", pa.table({"x": [1]}))
        producer.flush()
        found = counted(engine, tmp_path)
        producer.abort_transaction()
    assert found.success


def test_nothing_written_yet(engine: Engine, tmp_path: Path) -> None:
    """With empty topics the checks are made, and only the file's rows are missing."""
    found = counted(engine, tmp_path).not_passed
    assert set(found) == {"no_input_row_missing", "totals_in_balances"}


def _one_file(folder: Path, topic: str) -> Path:
    return max((folder / "topics" / topic).rglob("data/*.parquet"), key=lambda path: path.stat().st_size)


def test_a_damaged_data_file_errs_and_is_named(tmp_path: Path) -> None:
    """If a data file is damaged, checks that need its records are errored, the others are made, and the audit
    names the file."""
    store = tmp_path / "store"
    with txn_engine.connect(store.as_uri(), configs=FEW_INTERNAL) as engine:
        make_topics(engine)
        load(engine)
        consume(engine)
        victim = _one_file(store, "payments")
        content = bytearray(victim.read_bytes())
        content[len(content) // 2] ^= 1
        victim.chmod(0o600)
        victim.write_bytes(content)
    with txn_engine.connect(store.as_uri()) as engine:
        result = prove(engine, tmp_path)
    found = not_passed(result)
    assert found["record_ids_unique"] == found["totals_in_balances"] == "errored"
    assert found["audit_clean"] == "failed"
    assert "lso_at_log_end" not in found
    assert "group_at_lso" not in found
    assert not result.success
    assert victim.name in result.report.read_text(encoding="utf-8")


def with_output(topic: str = "balances", **changes: Any) -> Declaration:
    """The declaration with another output, or another relation of it."""
    return replace(CHECK, outputs=(Output(topic, replace(SUMS, **changes)),))


def test_a_wrong_call_is_refused_before_anything_is_written(engine: Engine, tmp_path: Path) -> None:
    """An unknown topic, a missing column or a broken file is an error of one line, without a report."""
    load(engine)
    report = tmp_path / "report"
    wrong = [
        (replace(CHECK, topic="absent"), UnknownTopicOrPartitionError, None),
        (with_output(topic="absent"), UnknownTopicOrPartitionError, None),
        (replace(CHECK, record_id=("id",)), InvalidRequestError, Reason.UNKNOWN_COLUMN),
        (with_output(sums={"sum": Amount("amount")}), InvalidRequestError, Reason.UNKNOWN_COLUMN),
        (with_output(sums={"turnover": Amount("type")}), InvalidRequestError, Reason.NOT_A_NUMBER),
        (with_output(sums={}, count="turnover"), InvalidRequestError, Reason.NOT_AN_INTEGER),
    ]
    for check, kind, reason in wrong:
        with pytest.raises(kind) as refused:
            check_exactly_once(engine, check, report_folder=report)
        assert refused.value.reason is reason
    bad = write_input(tmp_path / "trans.csv", [(1, 1, "930101", "PRIJEM", "1,00", "")])
    with pytest.raises(InvalidRecordError) as broken:
        check_exactly_once(engine, CHECK, input_file=bad, report_folder=report)
    assert (broken.value.reason, broken.value.place) == (Reason.BAD_DECIMAL, f"{bad} line 2")
    assert not report.exists()


def _gathered(engine: Engine) -> Any:
    with InProcess(engine.store) as reducer:
        return gather(engine, CHECK, input_file=None, reducer=reducer, progress=lambda _: None)


def test_the_evidence_names_the_producers_of_files(engine: Engine, tmp_path: Path) -> None:
    """The producer of a record is read from its file's name, so that aborted ranges are judged by
    producer."""
    load(engine)
    evidence = _gathered(engine)
    files = evidence.rows["payments"].files
    assert files
    assert all(file.producer_id is not None for file in files)
    aborted = {one.producer_id for found in evidence.replayed for one in found.aborted}
    assert aborted
    assert aborted <= {file.producer_id for file in files}
    assert evidence.failures == {}
    assert evidence.store == engine.url


# --- an engine that says what the raw entries do not -----------------------------------------------------------

BOTH_SIDES = {"no_open_transaction", "transactions_final", "nothing_pending"}


def failed_checks(engine: Engine) -> frozenset[str]:
    found = verdict_of(engine, CHECK)
    assert found.errored == {}
    return found.failed


def falsify(
    monkeypatch: pytest.MonkeyPatch, *, state: str, pending: int, open_transactions: Map[int, int]
) -> None:
    """Make the engine give these answers, whatever is on the store."""
    list_transactions, describe_group = Admin.list_transactions, Admin.describe_group
    state_of = PartitionLog.state.fget

    def transactions(admin: Admin) -> Any:
        return [replace(each, state=state) for each in list_transactions(admin)]

    def group(admin: Admin, group_id: str) -> Any:
        found = describe_group(admin, group_id)
        offsets = tuple(replace(each, pending_producer_id=pending) for each in found.partitions)
        return replace(found, partitions=offsets)

    monkeypatch.setattr(Admin, "list_transactions", transactions)
    monkeypatch.setattr(Admin, "describe_group", group)
    monkeypatch.setattr(
        PartitionLog,
        "state",
        property(lambda log: replace(state_of(log), open_transactions=open_transactions)),
    )


def test_an_engine_that_overlooks_what_is_open(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """If the engine says that a transaction has ended, but by the raw entries it is open with pending
    offsets, the checks find that."""
    load(engine)
    consume(engine)
    with output_without_commit(engine), monkeypatch.context() as falsified:
        falsify(falsified, state="CompleteCommit", pending=-1, open_transactions=Map())
        failed = failed_checks(engine)
    assert failed >= BOTH_SIDES


def test_an_engine_that_makes_up_what_is_open(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """If the engine says that a transaction is open, but by the raw entries it has ended, the checks find
    that, because sweeps and readers act on it."""
    load(engine)
    consume(engine)
    falsify(monkeypatch, state="Ongoing", pending=3, open_transactions=Map({3: 0}))
    assert failed_checks(engine) >= BOTH_SIDES


def test_an_engine_that_makes_up_an_abort(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """If the engine hides a committed file as aborted, the checks find that the raw entries say committed."""
    load(engine)
    consume(engine)
    scan = AtCut.scan
    withheld = engine.scan("balances").files()[0]

    class Withholding:
        def __init__(self, real: Any) -> None:
            self.offsets, self.topics = real.offsets, real.topics
            self._files = [file for file in real.files() if file.uri != withheld.uri]

        def files(self) -> list[Any]:
            return self._files

    def falsified(of: AtCut, topic: str, **how: Any) -> Any:
        real = scan(of, topic, **how)
        return Withholding(real) if topic == "balances" else real

    aborted = (AbortedTransaction(_producer(withheld), 0, withheld.base_offset + withheld.record_count, 0),)
    monkeypatch.setattr(AtCut, "scan", falsified)
    monkeypatch.setattr(PartitionLog, "aborted_transactions", lambda *_: aborted)
    assert failed_checks(engine) >= {
        "hidden_records_explained",
        "files_as_replayed",
        "visible_records_counted",
    }


def _producer(file: Any) -> int:
    return parse_data_path(f"data/{file.uri.rpartition('/')[2]}").producer_id


# --- up to the group's position, while others go on -----------------------------------------------------------

CONSUMED = replace(CHECK, up_to_position=True)
UNDER_WAY = {
    "visible_records_counted",
    "lso_at_log_end",
    "no_open_transaction",
    "group_at_lso",
    "group_lag_agrees",
    "nothing_pending",
    "transactions_final",
}


def more_payments(engine: Engine) -> Producer:
    """Commit a load after the group's position, and leave another one open."""
    with engine.producer(transactional_id="later") as later:
        later.init_transactions()
        with later.transaction():
            later.produce("payments", payments_table([(201, 1, "930105", "PRIJEM", "5.00", "")]))
    open_one = engine.producer(transactional_id="open")
    open_one.init_transactions()
    open_one.begin_transaction()
    open_one.produce("payments", payments_table([(202, 2, "930105", "PRIJEM", "6.00", "")]))
    open_one.flush()
    return open_one


def test_what_was_consumed_is_proved_while_loads_go_on(engine: Engine, tmp_path: Path) -> None:
    """With `up_to_position`, records after the position and open ones are not judged, and the report says so.
    A check of everything would fail."""
    load(engine)
    consume(engine)
    more_payments(engine)
    result = check_exactly_once(engine, CONSUMED, report_folder=tmp_path / "consumed")
    assert result.success, result.failed
    names = {check.name for check in result.checks}
    assert names.isdisjoint(UNDER_WAY)
    assert {"totals_in_balances", "nothing_aborted_visible", "audit_clean"} <= names
    assert result.statistics["committed_records"] == len(ROWS)
    assert "Only what group balances has consumed was judged" in result.report.read_text()

    everything = {"totals_in_balances", "lso_at_log_end", "group_at_lso", "transactions_final"}
    assert everything <= verdict_of(engine, CHECK).failed


@pytest.mark.parametrize(
    ("rows", "failed"),
    in_shard(
        "damage",
        [
            ([*TURNOVERS, (2, "3.00", 1)], {"totals_in_balances"}),
            (TURNOVERS[:-1], {"totals_in_balances"}),
            ([*TURNOVERS, (1, "0.00", 1)], {"totals_in_balances"}),
        ],
        keep=1,
    ),
)
def test_a_record_taken_twice_or_not_at_all_is_found_while_loads_go_on(
    engine: Engine, tmp_path: Path, rows: list[tuple[int, str, int]], failed: set[str]
) -> None:
    """With `up_to_position`, every record below the position has to be in the output exactly once."""
    load(engine)
    consume(engine, rows)
    more_payments(engine)
    found = verdict_of(engine, CONSUMED)
    assert (found.failed, found.errored) == (failed, {})


def test_a_run_of_the_consumer_that_is_under_way_is_outside(engine: Engine, tmp_path: Path) -> None:
    """A consumer's open transaction is outside of the cut with its output and its position, so nothing waits for it.
    Once it is committed both are inside."""
    load(engine)
    producer = engine.producer(transactional_id="balances")
    producer.init_transactions()
    producer.begin_transaction()
    produce_output(engine, producer, TURNOVERS)
    producer.flush()
    before = check_exactly_once(engine, CONSUMED, report_folder=tmp_path / "before")
    assert before.success, before.failed
    assert before.statistics["committed_records"] == 0

    producer.commit_transaction()
    result = check_exactly_once(engine, CONSUMED, report_folder=tmp_path / "then")
    assert result.success, result.failed
    assert result.statistics["committed_records"] == len(ROWS)


def test_the_groups_run_that_ends_while_its_output_is_read_does_not_mix_two_moments(
    engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If the consumer commits while its output is read, that is outside of the cut: both sides are those from
    before."""
    import txn_engine.quality.gather as gathering

    load(engine)
    consume(engine)
    read, consumed_in_between = gathering.EvidenceReader.topic_rows, []

    def topic_rows(self: gathering.EvidenceReader, topic: str, *ends: object) -> object:
        if topic == "balances" and not consumed_in_between:
            consumed_in_between.append(1)
            with engine.producer(transactional_id="later") as later:
                later.init_transactions()
                with later.transaction():
                    later.produce("payments", payments_table([(201, 1, "930105", "PRIJEM", "5.00", "")]))
            consume(engine, [(1, "5.00", 1)])
        return read(self, topic, *ends)  # type: ignore[arg-type]

    monkeypatch.setattr(gathering.EvidenceReader, "topic_rows", topic_rows)
    result = check_exactly_once(engine, CONSUMED, report_folder=tmp_path)
    assert consumed_in_between
    assert result.success, result.failed
    assert result.statistics["committed_records"] == len(ROWS)
    again = check_exactly_once(engine, CONSUMED, report_folder=tmp_path)
    assert again.success, again.failed
    assert again.statistics["committed_records"] == len(ROWS) + 1


def test_up_to_a_position_needs_a_group_and_no_file(engine: Engine, tmp_path: Path) -> None:
    """`up_to_position` without a group, or with a file, is refused and nothing is written."""
    load(engine)
    with pytest.raises(InvalidRequestError) as without_group:
        replace(CONSUMED, group_id=None)
    assert without_group.value.reason is Reason.MISSING_FIELD
    with pytest.raises(InvalidRequestError) as with_file, InProcess(engine.store) as reducer:
        gather(
            engine, CONSUMED, input_file=write_input(tmp_path / "trans.csv"), reducer=reducer, progress=print
        )
    assert with_file.value.reason is Reason.CONFLICTING_ARGUMENTS


def test_a_group_that_never_committed_has_consumed_nothing(engine: Engine, tmp_path: Path) -> None:
    """If the group never committed, no record is judged and no output is expected."""
    load(engine)
    result = check_exactly_once(engine, CONSUMED, report_folder=tmp_path)
    assert result.success, result.failed
    assert result.statistics["committed_records"] == 0


# --- after maintenance -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "check", in_shard("damage", [CHECK, CONSUMED], keep=1), ids=["everything", "consumed"]
)
@pytest.mark.parametrize("gone", in_shard("damage", ["payments", "balances"], keep=1))
def test_after_retention_the_rest_is_still_proven(tmp_path: Path, check: Declaration, gone: str) -> None:
    """After retention, sums over removed records do not apply. Everything else is judged, and nothing
    fails."""
    clock = ManualClock(1_700_000_000_000)
    with txn_engine.connect((tmp_path / "store").as_uri(), clock=clock, configs=FEW_INTERNAL) as engine:
        make_topics(engine, **{gone: {"retention_ms": 3_600_000}})
        load(engine)
        consume(engine)
        assert not verdict_of(engine, check).not_applicable
        clock.advance(7_200_000)
        assert engine.maintenance.retain(gone).partitions
        result = check_exactly_once(engine, check, report_folder=tmp_path / "after")
    assert result.success, (result.failed, result.errored)
    assert {check.name for check in result.not_applicable} == {"totals_in_balances"}
    assert f"retention, or a delete, has removed records of {gone}: partition 0" in result.report.read_text()


@pytest.mark.parametrize("policy", in_shard("damage", ["compact,delete", "compact"], keep=1))
def test_a_policy_alone_excuses_nothing(tmp_path: Path, policy: str) -> None:
    """A policy of compaction alone excuses nothing: before the first pass, wrong sums of the output and
    missing rows are found."""
    with txn_engine.connect((tmp_path / "store").as_uri(), configs=FEW_INTERNAL) as engine:
        make_topics(engine, balances={"cleanup_policy": policy}, payments={"cleanup_policy": policy})
        load(engine)
        consume(engine, [(account, "999999.00", count) for account, _, count in TURNOVERS])
        file = write_input(tmp_path / "trans.csv", [*ROWS, (109, *ROWS[-1][1:])])
        found = verdict_of(engine, CHECK, input_file=file)
    assert found.failed == {"no_input_row_missing", "totals_in_balances"}
    assert (found.errored, found.not_applicable) == ({}, frozenset())


def compact_output(engine: Engine, **policy: Any) -> None:
    assert engine.maintenance.compact("balances", policy=MaintenancePolicy(**policy)).failures == ()


@pytest.mark.parametrize("dies", [False, True], ids=["ended", "died"])
@pytest.mark.parametrize("runs", in_shard("damage", [1, 2], keep=1), ids=["a part of a file", "whole files"])
def test_sums_of_an_output_that_was_compacted_do_not_apply(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, dies: bool, runs: int
) -> None:
    """The sums of a compacted output do not apply, even if the pass died, because it has dropped whole files
    or parts of one."""
    with txn_engine.connect((tmp_path / "store").as_uri(), configs=FEW_INTERNAL) as engine:
        make_topics(engine, balances={"cleanup_policy": "compact"})
        load(engine)
        for _ in range(runs):
            consume(engine, TURNOVERS if runs == 1 else TURNOVERS[:3])
        if dies:
            monkeypatch.setattr(by_key, "CleanProposal", die)
            with pytest.raises(ProcessDiedError):
                compact_output(engine, target_file_bytes=1)
        else:
            compact_output(engine, target_file_bytes=1)
        states = [engine.partition("balances", number).state for number in range(2)]
        assert any(state.cleaning.cleaned_to for state in states) is not dies
        found = counted(engine, tmp_path)
    assert found.success, (found.failed, found.errored)
    assert found.not_applicable == {"totals_in_balances"}


def test_a_pass_that_has_not_ended_is_seen_when_what_it_replaced_is_forgotten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A pass that died is recognised by the name of its rewritten file, even after the files that it replaced
    are forgotten."""
    clock = ManualClock(1_700_000_000_000)
    with txn_engine.connect((tmp_path / "store").as_uri(), clock=clock, configs=FEW_INTERNAL) as engine:
        make_topics(engine, balances={"cleanup_policy": "compact"})
        load(engine)
        consume(engine)
        monkeypatch.setattr(by_key, "CleanProposal", die)
        for number in range(2):
            with pytest.raises(ProcessDiedError):
                engine.maintenance.compact("balances", number)
        clock.advance(30 * 24 * 3_600_000)
        assert engine.maintenance.clean("balances").failures == ()
        states = [engine.partition("balances", number).state for number in range(2)]
        assert [(state.cleaning.cleaned_to, len(state.dead)) for state in states] == [(0, 0), (0, 0)]
        found = counted(engine, tmp_path)
    assert found.not_applicable == {"totals_in_balances"}


def test_small_files_that_were_merged_excuse_nothing(tmp_path: Path) -> None:
    """A merge excuses nothing, because a topic that keeps everything has the same records afterwards."""
    with txn_engine.connect((tmp_path / "store").as_uri(), configs=FEW_INTERNAL) as engine:
        make_topics(engine)
        load(engine)
        consume(engine)
        consume(engine)
        assert engine.maintenance.compact("balances", policy=MaintenancePolicy(min_files=2)).partitions
        found = counted(engine, tmp_path)
    assert found.failed == {"totals_in_balances"}


def test_rows_that_were_lost_are_missed_beside_those_that_retention_took(tmp_path: Path) -> None:
    """If more rows are missing than offsets lie below the log's start, the check of missing rows fails."""
    clock = ManualClock(1_700_000_000_000)
    lost = [(300 + number, *ROWS[0][1:]) for number in range(9)]
    with txn_engine.connect((tmp_path / "store").as_uri(), clock=clock, configs=FEW_INTERNAL) as engine:
        make_topics(engine, payments={"retention_ms": 3_600_000})
        engine.partition("payments", 0).append(payments_table(ROWS[:1]))
        clock.advance(7_200_000)
        load_rest(engine)
        assert engine.maintenance.retain("payments").partitions
        for rows, status in ((ROWS, "not_applicable"), ([*ROWS, *lost], "failed")):
            file = write_input(tmp_path / "trans.csv", rows)
            found = verdict_of(engine, LOADED, input_file=file)
            assert found.not_passed == {"no_input_row_missing": status}


LOADED = Declaration(topic="payments", record_id=("trans_id",))


def load_rest(engine: Engine) -> None:
    with engine.producer(transactional_id="load") as producer:
        producer.init_transactions()
        with producer.transaction():
            producer.produce("payments", payments_table(ROWS[1:]))
