"""Proofs as of a cut are made while loads go on, and give the same result later, whatever was written and
cleaned since."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import txn_engine
from storage import ObjectInfo
from tests.quality.ledger import CHECK, ROWS, TURNOVERS, balances_table, payments_table, write_input
from tests.quality.test_gather import (
    CONSUMED,
    PLACES,
    UNDER_WAY,
    consume,
    load,
    make_topics,
    more_payments,
    produce_output,
)
from tests.quality.verdicts import verdict_of
from tests.suite.tiers import in_shard
from tests.support.internal import FEW_INTERNAL
from tests.support.refusals import refused
from txn_engine import Cut, Engine, OffsetAndMetadata
from txn_engine.errors import InvalidRequestError, UnknownTopicOrPartitionError
from txn_engine.log.as_of import AsOfCut
from txn_engine.log.objects import Objects, decode_json, encode_json
from txn_engine.maintain import MaintenancePolicy
from txn_engine.maintain.policy import DAY_MS
from txn_engine.protocol.offset_commits import GroupOffsets
from txn_engine.protocol.proposals import MarkerProposal
from txn_engine.quality import QualityResult, SuiteOn, check_exactly_once
from txn_engine.quality.proof import ProofShelf, ProvedRange
from txn_engine.quality.standpoint import AtCut
from txn_engine.quality.suite import SUITES
from txn_engine.reasons import Reason
from txn_engine.testing import ManualClock
from txn_engine.verify import Place
from txn_engine.verify.cut_reading import read_cut

EAGER = MaintenancePolicy(orphan_age_ms=0, entries_age_ms=0, trim_step=1, min_files=2)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(1_700_000_000_000)


@pytest.fixture
def engine(tmp_path: Path, clock: ManualClock) -> Iterator[Engine]:
    with txn_engine.connect(f"memory://{tmp_path.name}", clock=clock, configs=FEW_INTERNAL) as connected:
        make_topics(connected, payments={"retention_ms": 3 * DAY_MS}, balances={"retention_ms": 3 * DAY_MS})
        yield connected


def prove(engine: Engine, folder: Path, check: Any = CHECK, **arguments: Any) -> QualityResult:
    return check_exactly_once(engine, check, report_folder=folder / "report", **arguments)


def verdict(result: QualityResult) -> dict[str, tuple[str, int, int]]:
    """The verdict of each check, without the number of rows of the group's log that were looked at, because
    they may be sealed later."""
    of_history = ("positions_never_fall", "output_with_offsets")
    return {
        check.name: (check.status, 0 if check.name in of_history else check.total, check.wrong)
        for check in result.checks
    }


def ranges_of(engine: Engine, result: QualityResult) -> tuple[ProvedRange, ...]:
    assert result.proof is not None
    return shelf_of(engine).read(result.proof.number)[0].ranges


def shelf_of(engine: Engine) -> ProofShelf:
    return ProofShelf(Objects(engine.store), "payments", 0)


def live_on(engine: Engine, clock: ManualClock, *, rounds: int = 2, days: int = 2) -> None:
    """Run rounds of loads, consumers and maintenance with all its jobs, each `days` days after the one
    before."""
    for day in range(rounds):
        clock.advance(days * DAY_MS)
        with engine.producer(transactional_id="later") as later:
            later.init_transactions()
            with later.transaction():
                row = (300 + day, 1, "930105", "PRIJEM", "5.00", "")
                later.produce("payments", payments_table([row]))
        consume(engine, [(1, "5.00", 1)])
        engine.admin.snapshot()
        engine.maintenance.compact(policy=EAGER)
        engine.maintenance.retain(policy=EAGER)
        report = engine.maintenance.clean(policy=EAGER)
        engine.maintenance.seal()
        assert report.failures == ()


def live_files(engine: Engine) -> set[str]:
    return {file.uri for topic in ("payments", "balances") for file in engine.scan(topic).files()}


# --- no quiet moment ------------------------------------------------------------------------------------------


def test_what_is_inside_is_proved_while_loads_go_on(engine: Engine, tmp_path: Path) -> None:
    """Transactions that are open, or were committed after the cut, are not judged as of the cut. A check of
    the store as it is would fail."""
    load(engine)
    consume(engine)
    cut = engine.cut()
    more_payments(engine)
    result = prove(engine, tmp_path, cut=cut)
    assert result.success, (result.failed, result.errored)
    names = {check.name for check in result.checks}
    assert names.isdisjoint(UNDER_WAY - {"group_at_lso", "group_lag_agrees", "visible_records_counted"})
    assert {"group_at_lso", "group_lag_agrees", "visible_records_counted", "totals_in_balances"} <= names
    assert result.statistics["committed_records"] == len(ROWS)
    assert result.statistics["aborted_records"] == 2
    assert result.cut == 0
    assert json.loads(result.json.read_text())["cut"] == 0
    page = result.report.read_text()
    assert "cut 0, made 14 Nov 2023, 22:13:20 UTC" in page
    assert "Only what is inside cut 0 was judged" in page
    assert not verdict_of(engine, CHECK).success


def test_a_run_of_the_consumer_that_is_under_way_is_not_waited_for(
    engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A proof as of a cut does not wait for a consumer's open transaction, because neither its output nor its
    position is inside the cut."""
    load(engine)
    consume(engine)
    more_payments(engine)
    producer = engine.producer(transactional_id="balances")
    producer.init_transactions()
    producer.begin_transaction()
    produce_output(engine, producer, [(1, "5.00", 1)])
    producer.flush()
    cut = engine.cut()
    monkeypatch.setattr("txn_engine.quality.gather.pause_ms", lambda _: pytest.fail("it was waited"))
    result = prove(engine, tmp_path, CONSUMED, cut=cut.number)
    assert result.success, (result.failed, result.errored)
    assert result.statistics["committed_records"] == len(ROWS)


def test_a_consumer_that_lags_is_found_and_one_that_is_judged_by_its_position_is_not(engine: Engine) -> None:
    load(engine)
    consume(engine)
    more_payments(engine).abort_transaction()
    cut = engine.cut()
    consume(engine, [(1, "5.00", 1)])
    everything = verdict_of(engine, CHECK, cut=cut)
    assert (everything.failed, everything.errored) == ({"group_at_lso", "totals_in_balances"}, {})
    assert verdict_of(engine, CONSUMED, cut=cut).success


# --- the same later -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "check", in_shard("damage", [CHECK, CONSUMED], keep=[CONSUMED]), ids=["everything", "consumed"]
)
def test_verdict_and_digests_stay_the_same(
    tmp_path: Path, engine: Engine, clock: ManualClock, check: Any
) -> None:
    """The verdict and the digests as of a cut stay the same after days of compaction, retention, sealing and
    clean-up, even of the group and its topics."""
    load(engine)
    consume(engine)
    cut = engine.cut()
    before_files = live_files(engine)
    before = prove(engine, tmp_path, check, cut=cut, record=True)
    assert before.success, (before.failed, before.errored)
    live_on(engine, clock)
    assert live_files(engine).isdisjoint(before_files)  # neither a file nor a record of then is left
    assert verdict_of(engine, check).not_applicable
    with txn_engine.connect(engine.url, clock=clock) as another:
        after = prove(another, tmp_path, check, cut=cut, record=True, whole=True)
        again = prove(another, tmp_path, check, cut=cut)
    assert after.success, (after.failed, after.errored)
    assert ranges_of(engine, after) == ranges_of(engine, before)
    assert verdict(again) == verdict(before)
    as_proved = {name: found for name, found in verdict(after).items() if name != "digest_as_proved"}
    assert as_proved == verdict(before)
    assert verdict(after)["digest_as_proved"][0] == "passed"
    assert before.proof is not None
    assert (before.proof.cut, before.proof.scope) == (0, "everything, as of cut 0 (no proof was there)")


@pytest.mark.shard("damage")
def test_what_was_wrong_stays_wrong(engine: Engine, clock: ManualClock) -> None:
    """A consumer that took a payment twice is found as of the cut, even after its output was corrected."""
    load(engine)
    consume(engine, [*TURNOVERS, (2, "3.00", 1)])
    cut = engine.cut()
    consume(engine, [(2, "-3.00", -1)])
    assert "totals_in_balances" not in verdict_of(engine, CHECK).failed
    live_on(engine, clock, rounds=1)
    assert verdict_of(engine, CHECK, cut=cut).failed == {"totals_in_balances"}


def test_records_that_were_gone_before_do_not_apply(tmp_path: Path, clock: ManualClock) -> None:
    """If retention had already removed records, the sums do not apply as of the cut. What retention removes
    after the cut does not matter."""
    with txn_engine.connect(f"memory://{tmp_path.name}-trimmed", clock=clock, configs=FEW_INTERNAL) as engine:
        make_topics(engine, payments={"retention_ms": 3_600_000})
        load(engine)
        consume(engine)
        whole = engine.cut()
        clock.advance(7_200_000)
        assert engine.maintenance.retain("payments").partitions
        trimmed = engine.cut()
        assert not verdict_of(engine, CHECK, cut=whole).not_applicable
        found = verdict_of(engine, CHECK, cut=trimmed)
    assert found.success, (found.failed, found.errored)
    assert found.not_applicable == {"totals_in_balances"}


def test_the_input_file_and_suites_see_what_was_there_then(engine: Engine, tmp_path: Path) -> None:
    load(engine)
    consume(engine)
    cut = engine.cut()
    more_payments(engine)
    suite = tmp_path / "amounts.json"
    held = {
        "name": "amounts",
        "expectations": [
            {"type": "expect_table_row_count_to_equal", "kwargs": {"value": len(ROWS)}},
            {"type": "expect_column_values_to_be_unique", "kwargs": {"column": "trans_id"}},
        ],
    }
    suite.write_text(json.dumps(held))
    check = replace(CHECK, suites=(SuiteOn(suite), SuiteOn(suite, new_only=True)))
    file = write_input(tmp_path / "trans.csv")
    result = prove(engine, tmp_path, check, input_file=file, cut=cut)
    assert result.success, (result.failed, result.errored)
    assert sum(each.section == SUITES for each in result.checks) == 4
    assert "no_record_beyond_input" in verdict_of(engine, check, input_file=file).failed


def test_a_position_that_fell_since_is_no_fault_of_then(engine: Engine) -> None:
    load(engine)
    consume(engine)
    cut = engine.cut()
    with engine.consumer(group_id="balances") as consumer:
        consumer.assign(PLACES)
        consumer.commit({PLACES[0]: OffsetAndMetadata(1)})
    assert "positions_never_fall" in verdict_of(engine, CHECK).failed
    assert verdict_of(engine, CHECK, cut=cut).success


# --- two sources ----------------------------------------------------------------------------------------------


def test_a_file_that_readers_are_not_given_is_found(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file that readers are not given is found by comparison with the auditor's list, which comes from the
    snapshots that the cut names."""
    load(engine)
    consume(engine)
    cut = engine.cut()
    scan = AtCut.scan

    def without_one(self: AtCut, topic: str, **bounds: Any) -> Any:
        found = scan(self, topic, **bounds)
        files = found.files()
        monkeypatch.setattr(found, "files", lambda: files[1:] if topic == "payments" else files)
        return found

    monkeypatch.setattr(AtCut, "scan", without_one)
    failed = verdict_of(engine, CHECK, cut=cut).failed
    assert {"files_as_replayed", "visible_records_counted"} <= failed


def test_a_position_that_the_raw_objects_do_not_have_is_found(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    load(engine)
    consume(engine)
    cut = engine.cut()
    offsets = AsOfCut.group_offsets

    def moved_back(self: AsOfCut, partition: int) -> GroupOffsets:
        found = offsets(self, partition).committed
        return GroupOffsets(
            type(found)(
                {key: replace(each, commit=replace(each.commit, offset=1)) for key, each in found.items()}
            )
        )

    monkeypatch.setattr(AsOfCut, "group_offsets", moved_back)
    failed = verdict_of(engine, CHECK, cut=cut).failed
    assert {"group_lag_agrees", "group_at_lso"} <= failed


def test_positions_are_those_of_commits_that_were_pending_when_the_cut_looked(engine: Engine) -> None:
    """The positions of commits that were pending when the cut was made count as inside, because the cut says
    so to both readers, although their marker comes after it in the group's log."""
    load(engine)
    first, second = (engine.producer(transactional_id=name, markers="deferred") for name in ("one", "two"))
    with engine.consumer(group_id="balances") as consumer:
        consumer.assign(PLACES)
        consumer.poll()
        offset = consumer.position(PLACES[0])
        for producer, place in ((first, PLACES[0]), (second, PLACES[1])):
            producer.init_transactions()
            producer.begin_transaction()
            if producer is second:
                producer.produce("balances", balances_table(TURNOVERS[:1])).result()
            offsets = {place: OffsetAndMetadata(consumer.position(place))}
            producer.send_offsets_to_transaction(offsets, consumer.group_metadata())
    group = engine.logs.of(engine.logs.group_partition("balances"))
    for producer in (first, second):
        producer.commit_transaction()
        stored = engine.coordinator.current(str(producer.transactional_id))
        assert stored is not None
        row = stored.row
        marker = MarkerProposal(row.producer_id, row.producer_epoch, True, coordinator_epoch=stored.offset)
        group.append_one(marker)
    cut = engine.cut()
    at = engine.logs.group_partition("balances").partition
    assert cut.groups[at].committed == (first.producer_id,)
    found = read_cut(
        engine.store, cut.number, topics=["payments"], group_id="balances", known={}, data_from={}, erased={}
    )
    places = [Place("payments", 0, place.partition) for place in PLACES]
    assert found.positions == {places[0]: offset}
    stands = AtCut(engine, cut, CHECK).group("balances")
    assert [(each.partition, each.committed_offset) for each in stands] == [(0, offset)]


@pytest.mark.shard("damage")
@pytest.mark.parametrize("damage", ["changed", "gone"])
def test_a_file_that_only_the_cut_has_is_held_against_its_checksum(
    engine: Engine, clock: ManualClock, damage: str
) -> None:
    """A file that only the cut needs is compared with its checksum. An audit of the present store does not
    look at it."""
    load(engine)
    consume(engine)
    cut = engine.cut()
    (file, *_) = engine.scan("payments", cut=cut).files()
    live_on(engine, clock, rounds=3)
    (key,) = [info.key for info in engine.store.list("topics/payments/") if info.key in file.uri]
    if damage == "gone":
        engine.store.delete(key)
    else:
        data = bytearray(engine.store.get(key))
        data[len(data) // 3] ^= 1
        engine.store.put(key, bytes(data))
    found = verdict_of(engine, CHECK, cut=cut)
    assert found.failed == {"audit_clean"}
    assert key in found.errored["record_ids_unique"]
    assert "audit_clean" not in verdict_of(engine, CHECK).failed


def test_a_cut_whose_snapshot_is_gone_proves_nothing(engine: Engine, tmp_path: Path) -> None:
    load(engine)
    consume(engine)
    cut = engine.cut()
    infos: list[ObjectInfo] = list(engine.store.list("topics/payments/"))
    (key, *_) = [info.key for info in infos if "/snapshots/" in info.key]
    engine.store.delete(key)
    result = prove(engine, tmp_path, cut=cut)
    assert not result.success
    assert "audit_clean" in {check.name for check in result.failed}
    assert any(key in check.detail for check in result.errored)


# --- the chain ------------------------------------------------------------------------------------------------


def test_proofs_of_cuts_go_on_from_one_another(engine: Engine, tmp_path: Path) -> None:
    """A proof of an earlier cut starts a new chain and says why. A proof of the present store goes on from
    the last proof, whichever that was."""
    load(engine)
    consume(engine)
    first = engine.cut()
    more_payments(engine).abort_transaction()
    consume(engine, [(1, "5.00", 1)])
    second = engine.cut()
    scopes = []
    for at in (first, second, first, None):
        result = prove(engine, tmp_path, cut=at, record=True)
        assert result.success, (result.failed, result.errored)
        assert result.proof is not None
        scopes.append(result.proof.scope.partition(";")[0])
    assert scopes == [
        "everything, as of cut 0 (no proof was there)",
        "what is new since proof 0, as of cut 1",
        "everything, as of cut 0 (cut 0 lies before what was proved)",
        "what is new since proof 2",
    ]


def test_a_proof_of_an_earlier_version_names_no_cut(engine: Engine, tmp_path: Path) -> None:
    load(engine)
    consume(engine)
    assert prove(engine, tmp_path, record=True).success
    key = f"proofs/payments/0/{0:020d}.json"
    held = decode_json(engine.store.get(key), key=key, kind="proof", needed=())
    fields = {name: held[name] for name in held if name not in ("cut", "kind", "format", "checksum")}
    for cut, readable in ((None, True), (3, True), ("3", False), (-2, False), (True, False)):
        told = fields if cut is None else fields | {"cut": cut}
        engine.store.put(key, encode_json(told, "proof"))
        if readable:
            assert shelf_of(engine).read(0)[0].cut == (-1 if cut is None else cut)
        else:
            with pytest.raises(txn_engine.errors.CorruptObjectError):
                shelf_of(engine).read(0)


# --- wrong calls ----------------------------------------------------------------------------------------------


def other_cut(engine: Engine) -> Cut:
    engine.cut()
    with txn_engine.connect("memory://") as other:
        other.admin.create_topic("payments")
        return other.cut()


def deleted_cut(engine: Engine) -> int:
    cut = engine.cut()
    engine.delete_cut(cut)
    return cut.number


def cut_of_another_topic(engine: Engine) -> int:
    return engine.cut(["payments"]).number


def cut_of_an_earlier_life(engine: Engine) -> int:
    cut = engine.cut()
    schema = engine.admin.describe_topic("balances").schema
    engine.admin.delete_topic("balances")
    engine.admin.create_topic("balances", partitions=2, schema=schema, key="account_id")
    return cut.number


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda _: 7, Reason.CUT_NOT_FOUND),
        (lambda _: -1, Reason.BAD_ARGUMENT),
        (deleted_cut, Reason.CUT_DELETED),
        (other_cut, Reason.CUT_OF_ANOTHER_STORE),
        (cut_of_another_topic, Reason.TOPIC_NOT_IN_CUT),
        (cut_of_an_earlier_life, Reason.TOPIC_MADE_AGAIN),
    ],
)
def test_a_cut_that_cannot_be_meant_is_refused_in_one_line(
    engine: Engine, tmp_path: Path, make: Any, reason: Reason
) -> None:
    """A cut that no proof can use is refused before anything is written."""
    load(engine)
    with pytest.raises(InvalidRequestError) as refused:
        prove(engine, tmp_path, cut=make(engine))
    assert refused.value.reason is reason
    assert "\n" not in str(refused.value)
    assert not (tmp_path / "report").exists()


def test_a_topic_that_was_deleted_since_is_named(engine: Engine, tmp_path: Path) -> None:
    load(engine)
    cut = engine.cut()
    engine.admin.delete_topic("balances")
    with refused(UnknownTopicOrPartitionError, Reason.TOPIC_DELETED):
        prove(engine, tmp_path, cut=cut)
