"""A restored store has the records, positions and runs of the cut at their offsets, and new identities."""

from __future__ import annotations

import threading
from concurrent.futures import Executor
from itertools import count

import pyarrow as pa
import pytest

from storage import MemoryStore
from tests.backup.conftest import (
    P0,
    P1,
    SCHEMA,
    begun,
    has_committed,
    load,
    opened,
    payments,
    places_in,
    restored,
    write,
)
from tests.support.stores import accounts_in
from txn_engine import AddColumn, DropColumn, Engine
from txn_engine.errors import (
    InvalidProducerIdMappingError,
    OutOfOrderSequenceNumberError,
    UnknownTopicOrPartitionError,
)
from txn_engine.log.topics import Survey, TopicRegistry
from txn_engine.maintain import MaintenancePolicy
from txn_engine.maintain.policy import DAY_MS
from txn_engine.protocol.proposals import MarkerProposal
from txn_engine.protocol.transaction_rows import MAX_RUN_IDS
from txn_engine.testing import ManualClock
from txn_engine.types import ProducerIdAndEpoch

EAGER = MaintenancePolicy(
    orphan_age_ms=0, entries_age_ms=0, trim_step=1, min_files=2, target_file_bytes=1 << 20
)


def mark(engine: Engine, transactional_id: str, partition: int) -> None:
    """Write the marker of the id's decided transaction in one partition only."""
    (stored,) = [each for each in engine.coordinator.rows() if each.row.transactional_id == transactional_id]
    row = stored.row
    proposal = MarkerProposal(row.producer_id, row.producer_epoch, True, coordinator_epoch=stored.offset)
    engine.logs.get("payments", 0, partition).append_one(proposal)


def test_records_stay_at_their_offsets_and_groups_where_they_were(
    engine: Engine, place: MemoryStore, clock: ManualClock
) -> None:
    """A consumer goes on at its position, and new records get later offsets."""
    load(engine, "one", 1, 2)
    consumer = engine.consumer(group_id="sums")
    consumer.subscribe(["payments"])
    consumer.poll(max_records=2)
    consumer.commit()
    position = consumer.committed([P0, P1])
    load(engine, "two", 3)
    before = places_in(engine)
    engine.backup(place)
    load(engine, "three", 4)
    with restored(place, clock) as again:
        assert places_in(again) == before
        reader = again.consumer(group_id="sums")
        assert reader.committed([P0, P1]) == position
        reader.subscribe(["payments"])
        table = reader.poll(max_records=100)
        assert table is not None
        assert sorted(table.column("account_id").to_pylist()) == [1, 2, 3, 3]
        load(again, "three", 4)
        rest = reader.poll(max_records=100)
        assert rest is not None
        assert rest.column("account_id").to_pylist() == [4, 4]
        added = [offset for _, offset, account in places_in(again) if account == 4]
        assert min(added) > max(offset for _, offset, _ in before)
        assert not again.admin.verify().findings


def test_loads_can_be_repeated_after_a_restore(
    engine: Engine, place: MemoryStore, clock: ManualClock
) -> None:
    """A restored store knows the runs that are inside, so a repeated load neither repeats nor loses records."""
    for number in range(4):
        load(engine, f"run-{number}", number, transactional_id=f"loader-{number % 2}")
    decided = begun(engine, "late", "late-run")
    write(decided, 9)
    decided.commit_transaction()  # and no marker: outside
    still_open = begun(engine, "open", "open-run")
    write(still_open, 8)
    engine.backup(place)
    still_open.commit_transaction()
    engine.coordinator.write_pending_markers()
    load(engine, "run-4", 4, transactional_id="loader-0")
    with restored(place, clock) as again:
        assert has_committed(again, "loader-0", "run-0", "run-1", "run-2", "run-4") == [
            True,
            False,
            True,
            False,
        ]
        assert has_committed(again, "loader-1", "run-1", "run-3") == [True, True]
        assert has_committed(again, "late", "late-run") == [False]
        assert has_committed(again, "open", "open-run") == [False]
        for name, run, account in (
            ("late", "late-run", 9),
            ("loader-0", "run-0", 0),
            ("loader-0", "run-4", 4),
        ):
            if has_committed(again, name, run) != [True]:
                load(again, run, account, transactional_id=name)
        assert accounts_in(again) == [0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 9, 9]


def test_a_marker_above_the_cut_does_not_put_a_run_outside(
    engine: Engine, place: MemoryStore, clock: ManualClock
) -> None:
    """A run whose records are inside is inside, even if one of its markers is above the cut."""
    first = begun(engine, "first", "one")
    write(first, 1)
    second = begun(engine, "second", "two")
    write(second, 2, partition=0)
    write(second, 2, partition=1)
    first.commit_transaction()
    second.commit_transaction()
    mark(engine, "first", 0)
    mark(engine, "second", 0)
    made = engine.backup(place)
    assert engine.find_cut(made.cut).offsets == {P0: 1, P1: 0}
    with restored(place, clock) as again:
        assert accounts_in(again) == [1]
        assert has_committed(again, "first", "one") == [True]
        assert has_committed(again, "second", "two") == [False]


def test_a_later_run_of_an_id_may_be_inside_and_an_earlier_one_outside(
    engine: Engine, place: MemoryStore, clock: ManualClock
) -> None:
    """An open transaction holds back one partition, and with it only the runs that wrote there."""
    hanging = begun(engine)
    write(hanging, 7, partition=0)
    with engine.producer(transactional_id="loader") as producer:
        producer.init_transactions()
        for run, partition in (("outside", 0), ("inside", 1), ("outside too", 0), ("inside too", 1)):
            with producer.transaction(run_id=run):
                producer.produce("payments", payments(partition), partition=partition)
    engine.backup(place)
    with restored(place, clock) as again:
        assert accounts_in(again) == [1, 1]
        runs = ("outside", "inside", "outside too", "inside too")
        assert has_committed(again, "loader", *runs) == [False, True, False, True]


def test_a_run_that_was_repeated_outside_is_inside(
    engine: Engine, place: MemoryStore, clock: ManualClock
) -> None:
    """A run that was committed inside and again outside is committed in the restored store."""
    load(engine, "daily", 1)
    load(engine, "other", 2)
    hanging = begun(engine)
    write(hanging, 7, partition=0)
    load(engine, "daily", 1)
    load(engine, "third", 3)
    engine.backup(place)
    with restored(place, clock) as again:
        assert accounts_in(again) == [1, 1, 2, 2]
        assert has_committed(again, "loader", "daily", "other", "third") == [True, True, False]


def test_forgotten_runs_stay_forgotten(engine: Engine, place: MemoryStore, clock: ManualClock) -> None:
    """A run that the id no longer remembers is unknown in the restored store, too."""
    with engine.producer(transactional_id="loader") as producer:
        producer.init_transactions()
        for number in range(103):
            with producer.transaction(run_id=f"run-{number}"):
                producer.produce("payments", payments(number), partition=0)
    engine.backup(place)
    with restored(place, clock) as again:
        assert has_committed(again, "loader", "run-0", "run-3", "run-102") == [None, True, True]


def test_the_runs_of_an_expired_id_are_found(engine: Engine, place: MemoryStore, clock: ManualClock) -> None:
    """The id expired while a hanging transaction held its run outside. The restored store does not have the run."""
    hanging = begun(engine)
    write(hanging, 7, partition=0)
    load(engine, "outside", 1)
    clock.advance(engine.limits.transactional_id_expiration_ms + 1)
    assert "loader" in engine.coordinator.expire_transactional_ids().transactional_ids
    engine.backup(place)
    with restored(place, clock) as again:
        assert accounts_in(again) == []
        assert has_committed(again, "loader", "outside") == [False]


def test_a_run_into_a_topic_that_is_newer_than_the_cut_is_outside(
    engine: Engine, place: MemoryStore, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No log of the cut has a record of the run. Only the coordinator's log says that it was decided."""
    load(engine, "one", 1)
    survey, surveys = TopicRegistry.survey, count()

    def and_then(topics: TopicRegistry, workers: Executor | None = None) -> Survey:
        found = survey(topics, workers)
        if next(surveys) == 1:  # a cut looks for topics twice
            with opened(engine.store, clock) as another:
                another.admin.create_topic("new", partitions=1, schema=SCHEMA)
                with another.producer(transactional_id="late") as producer:
                    producer.init_transactions()
                    with producer.transaction(run_id="late-run"):
                        producer.produce("new", payments(9))
        return found

    monkeypatch.setattr(TopicRegistry, "survey", and_then)
    engine.backup(place)
    assert next(surveys) == 2
    with restored(place, clock) as again:
        assert again.admin.list_topics() == ["payments"]
        assert has_committed(again, "loader", "one") == [True]
        assert has_committed(again, "late", "late-run") == [False]


def test_old_identities_are_refused_and_producer_ids_are_new(
    engine: Engine, place: MemoryStore, clock: ManualClock
) -> None:
    """A producer of the backed-up store cannot go on in the restored one, and no producer id is used twice."""
    load(engine, "one", 1)
    held = begun(engine, "loader")
    identity = ProducerIdAndEpoch(held.producer_id, held.producer_epoch)
    log = engine.partition("payments", 0)
    log.append(payments(5), producer_id=40_000, producer_epoch=3, base_sequence=0)
    engine.backup(place)
    log.append(payments(6), producer_id=40_000, producer_epoch=3, base_sequence=1)
    later = begun(engine)  # of an id that the backup has not seen
    with restored(place, clock) as again:
        resumed = again.producer(transactional_id="loader", resume=identity)
        with pytest.raises(InvalidProducerIdMappingError):
            resumed.init_transactions()
        fresh = begun(again, "loader")
        assert fresh.producer_id > max(held.producer_id, later.producer_id)
        assert fresh.producer_id >= again.config.first_block * 1_000
        assert again.unreadable_producer_ids(again.look_at_everything()[1]) == []
        with pytest.raises(OutOfOrderSequenceNumberError):  # its batch of sequence 1 is not here
            again.partition("payments", 0).append(
                payments(7), producer_id=40_000, producer_epoch=3, base_sequence=2
            )
        known = again.partition("payments", 0).append(
            payments(5), producer_id=40_000, producer_epoch=3, base_sequence=0
        )
        assert known.is_duplicate
        fresh.abort_transaction()
        place_of_its = MemoryStore()
        again.backup(place_of_its)
        clock.advance(1)
        with restored(place_of_its, clock) as third:
            assert begun(third, "loader").producer_id > fresh.producer_id


def test_topics_keep_their_incarnations_and_partitions(
    engine: Engine, place: MemoryStore, clock: ManualClock
) -> None:
    """The same holds for topics that were deleted, created again or extended before the cut."""
    admin = engine.admin
    for _ in range(2):
        admin.create_topic("gone", partitions=1, schema=SCHEMA)
        admin.delete_topic("gone")
    admin.create_topic("again", partitions=1, schema=SCHEMA)
    admin.delete_topic("again")
    admin.create_topic("again", partitions=1, schema=SCHEMA)
    admin.add_partitions_to_topic("payments", 3)
    admin.add_partitions_to_topic("payments", 5)
    consumer = engine.consumer(group_id="old")
    consumer.assign([P0])
    consumer.poll()
    consumer.commit()
    cut = engine.cut()
    admin.add_partitions_to_topic("payments", 6)
    admin.create_topic("new", partitions=1, schema=SCHEMA)
    admin.delete_topic("again")
    engine.backup(place, cut=cut.number)
    with restored(place, clock) as later:
        assert later.admin.list_topics() == ["again", "payments"]
        assert later.admin.describe_topic("payments").partitions == 5
        assert later.admin.describe_topic("again").incarnation == 2
        with pytest.raises(UnknownTopicOrPartitionError):
            later.admin.describe_topic("gone")
        later.admin.create_topic("gone", partitions=1, schema=SCHEMA)
        assert later.admin.describe_topic("gone").incarnation == 4
        assert not later.admin.verify().findings


def test_a_file_that_the_cut_goes_through_is_shortened(
    engine: Engine, place: MemoryStore, clock: ManualClock
) -> None:
    """A compacted file has two transactions. Only one of them is inside the cut."""
    first, second = begun(engine, "first", "one"), begun(engine, "second", "two")
    write(first, 1, 2)
    write(second, 3, 4, 5, 6)
    write(second, 3, partition=1)
    first.commit_transaction()
    second.commit_transaction()
    mark(engine, "first", 0)
    mark(engine, "second", 0)
    assert engine.maintenance.compact(policy=EAGER).partitions
    assert len(engine.scan("payments").files()) == 1
    made = engine.backup(place)
    assert engine.find_cut(made.cut).offsets == {P0: 2, P1: 0}
    with restored(place, clock) as again:
        assert places_in(again) == [(0, 0, 1), (0, 1, 2)]
        assert has_committed(again, "second", "two") == [False]


@pytest.mark.parametrize("when", ["before the merge", "behind it", "both"])
def test_a_file_that_the_cut_goes_through_keeps_its_columns(
    engine: Engine, place: MemoryStore, clock: ManualClock, when: str
) -> None:
    """The shortened file keeps its columns, even if columns were added before the merge or dropped after
    it."""
    if when != "behind it":
        engine.admin.alter_topic("payments", AddColumn(pa.field("note", pa.string()), "none"))
    first, second = begun(engine, "first", "one"), begun(engine, "second", "two")
    write(first, 1, 2)
    write(second, 3, 4, 5, 6)
    write(second, 3, partition=1)
    first.commit_transaction()
    second.commit_transaction()
    mark(engine, "first", 0)
    mark(engine, "second", 0)
    assert engine.maintenance.compact(policy=EAGER).partitions
    version = engine.logs.topics.look_up("payments").version
    if when != "before the merge":
        engine.admin.alter_topic("payments", DropColumn("amount"))
    made = engine.backup(place)
    assert engine.find_cut(made.cut).offsets == {P0: 2, P1: 0}
    with restored(place, clock) as again:
        found = again.scan("payments", schema_version=version).to_table()
        assert found.column("account_id").to_pylist() == [1, 2]
        assert found.column("amount").to_pylist() == [1, 1]
        assert again.scan("payments").to_table().column("account_id").to_pylist() == [1, 2]
        assert not again.admin.verify().findings


def test_positions_and_output_agree(engine: Engine, place: MemoryStore, clock: ManualClock) -> None:
    """The output of a transaction and its offsets are restored together, or neither of them."""
    engine.admin.create_topic("totals", partitions=1, schema=SCHEMA)
    load(engine, "one", 1)
    consumer = engine.consumer(group_id="sums")
    consumer.subscribe(["payments"])
    consumer.poll()
    with engine.producer(transactional_id="sum", markers="deferred") as producer:
        producer.init_transactions()
        producer.begin_transaction()
        write(producer, 9, topic="totals")
        producer.send_offsets_to_transaction({P0: 1, P1: 1}, consumer.group_metadata())
        producer.commit_transaction()
    engine.backup(place)
    engine.coordinator.write_pending_markers()
    engine.backup(place)
    for number, expected in ((0, ([], {})), (1, ([9], {P0: 1, P1: 1}))):
        with restored(place, clock, number) as again:
            found = again.consumer(group_id="sums").committed([P0, P1])
            assert (accounts_in(again, "totals"), {at: each.offset for at, each in found.items()}) == expected


def test_a_store_whose_entries_are_sealed(engine: Engine, place: MemoryStore, clock: ManualClock) -> None:
    """The store stays sound after days of maintenance before the backup, and as many after the restore."""

    def live(life: Engine) -> None:
        for day in range(3):
            clock.advance(DAY_MS)
            load(life, f"day-{clock()}", day)
            life.admin.snapshot()
            for job in (life.maintenance.compact, life.maintenance.retain, life.maintenance.clean):
                assert not job(policy=EAGER).failures
            assert not life.maintenance.seal().failures

    live(engine)
    before = places_in(engine)
    engine.backup(place)
    with restored(place, clock) as again:
        assert places_in(again) == before
        live(again)
        assert len(places_in(again)) == len(before) + 6
        again.cut()
        assert not again.admin.verify().findings


@pytest.mark.shard("kills")
def test_sums_hold_while_transfers_go_on(engine: Engine, place: MemoryStore, clock: ManualClock) -> None:
    """Two tellers move money between partitions. Each backup adds up, and has the runs whose records it has.

    A teller makes at most as many runs as the log remembers, so a restored store knows all of them.
    """
    stop = threading.Event()
    runs: dict[str, list[str]] = {"teller-0": [], "teller-1": []}

    def teller(name: str) -> None:
        with engine.producer(transactional_id=name) as producer:
            producer.init_transactions()
            while not stop.is_set() and len(runs[name]) < MAX_RUN_IDS:
                run = f"{name}-{len(runs[name])}"
                runs[name].append(run)
                with producer.transaction(run_id=run):
                    for partition, amount in ((0, -5), (1, 5)):
                        table = payments(len(runs[name])).set_column(1, "amount", [[amount]])
                        producer.produce("payments", table.cast(SCHEMA), partition=partition)

    threads = [threading.Thread(target=teller, args=(name,)) for name in runs]
    for thread in threads:
        thread.start()
    try:
        for _ in range(4):
            engine.backup(place)
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    for number in range(4):
        with restored(place, clock, number) as again:
            table = again.scan("payments").to_table(["_partition", "amount"])
            assert sum(table.column("amount").to_pylist()) == 0
            halves = [table.column("_partition").to_pylist().count(each) for each in (0, 1)]
            inside = sum(
                each is True for name, made in runs.items() for each in has_committed(again, name, *made)
            )
            assert halves[0] == halves[1] == inside


def test_settings_are_those_of_the_cut(engine: Engine, place: MemoryStore, clock: ManualClock) -> None:
    """A restored store has the settings of the topic and of the store at the cut. Later changes are not in
    it."""
    engine.admin.alter_configs({"retention.ms": 30 * DAY_MS}, topic="payments")
    engine.admin.alter_configs({"transaction.max.timeout.ms": 3_600_000})
    load(engine, "one", 1)
    cut = engine.cut()
    engine.admin.alter_configs({"retention.ms": 1}, topic="payments")
    engine.admin.alter_configs({"transaction.max.timeout.ms": 1})
    engine.backup(place, cut=cut.number)
    with restored(place, clock) as again:
        assert again.admin.describe_configs("payments")["retention.ms"] == 30 * DAY_MS
        assert again.admin.describe_configs("payments").version == 1
        assert again.limits.max_transaction_timeout_ms == 3_600_000
        again.admin.alter_configs({"transaction.max.timeout.ms": 60_000})
        again.admin.alter_configs({"retention.ms": 2}, topic="payments")
        assert not again.admin.verify().findings
