"""An erasure removes a person's records from every object and leaves all other records as they were, even if
it is killed at any write."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pyarrow as pa
import pytest
from numpy.typing import NDArray

from storage import MemoryStore
from tests.erasing.dying import attempt, erase
from tests.erasing.persons import (
    EAGER,
    PERSON,
    SCHEMA,
    START_MS,
    TOPIC,
    WHERE,
    commit,
    digests,
    ledger,
    objects_with,
    open_engine,
    rows,
    seen,
    without_person,
)
from tests.loading.refusals import because
from tests.suite.tiers import in_shard
from tests.support.faults import Fault, FaultyStore, Operation
from tests.support.kills import WRITES, ProcessDiedError, died
from tests.support.refusals import damaged_at, refused
from tests.support.stores import assert_sound, copy_of
from txn_engine.backup import prune, restore
from txn_engine.erasing import ErasureReport
from txn_engine.errors import InvalidRequestError, TxnEngineError
from txn_engine.log.cuts import Holds
from txn_engine.log.objects import encode_json
from txn_engine.log.pins import PinStore
from txn_engine.log.uploads import upload_records
from txn_engine.maintain.erasing import Candidate, candidates
from txn_engine.maintain.merging import FileMerger
from txn_engine.maintain.policy import DAY_MS
from txn_engine.maintain.target import Target
from txn_engine.protocol.partition import PartitionState
from txn_engine.protocol.proposals import DataProposal
from txn_engine.reasons import Reason
from txn_engine.schemas.layout import original
from txn_engine.testing import ManualClock
from txn_engine.types import CleanupPolicy


def test_gone_from_every_object() -> None:
    """The person is in no object's raw bytes, decoded columns, footers or manifests. The rest reads the same,
    also as of cuts and in the tables' newest versions."""
    store, clock = ledger()
    with open_engine(store, clock) as engine:
        before = {cut: seen(engine, cut) for cut in (None, 0, 2)}
        others, all_of_them = digests(engine, None, 0, 2, without=True), digests(engine, None, 0, 2)
        assert len(objects_with(store)) > 6
        report = erase(engine)
        assert objects_with(store) == []
        assert digests(engine, None, 0, 2) == others != all_of_them
        assert {cut: seen(engine, cut) for cut in before} == {
            cut: without_person(records) for cut, records in before.items()
        }
        assert report.records == sum(record[0] == PERSON for record in before[None].values())
        assert (report.cuts, report.erasures, report.still_held) == ((0, 1, 2, 3), (0,), ())
        assert set(report.tables) == {"delta", "iceberg"}
        assert_sound(engine)
    with open_engine(store, clock) as engine:
        assert seen(engine) == without_person(before[None])
        assert erase(engine).erasures == ()


def test_a_look_writes_nothing() -> None:
    """A look reports what an erasure would remove, and writes nothing."""
    store, clock = ledger()
    before = {info.key: store.get(info.key) for info in store.list("")}
    with open_engine(store, clock) as engine:
        report = engine.erase(TOPIC, WHERE)
    assert {info.key: store.get(info.key) for info in store.list("")} == before
    assert not report.executed
    first, second = report.partitions
    assert (first.records, first.unnamed_files, second.records) == (6, 1, 1)
    assert first.dead_files > 2
    assert len(report.cuts) == 4


@pytest.mark.shard("kills")
def test_what_comes_after_it() -> None:
    """After an erasure maintenance goes on, a second erasure works on the files that replaced the first
    one's, and cuts can still be read."""
    store, clock = ledger()
    with open_engine(store, clock) as engine:
        erase(engine)
        before = {cut: seen(engine, cut) for cut in (None, 0, 2)}
        for _ in range(3):
            clock.advance(2 * DAY_MS)
            commit(engine, 20, 21)
            engine.admin.snapshot()
            for job in ("compact", "retain", "seal", "clean"):
                getattr(engine.maintenance, job)(policy=EAGER) if job != "seal" else engine.maintenance.seal()
            assert {cut: seen(engine, cut) for cut in (0, 2)} == {cut: before[cut] for cut in (0, 2)}
        assert_sound(engine)
        engine.erase(TOPIC, "account_id IN (1, 3, 20)", execute=True)
        for cut in (None, 0, 2):
            assert not {1, 3, 20} & {record[0] for record in seen(engine, cut).values()}
        left = {at: record for at, record in before[0].items() if record[0] not in (1, 3)}
        assert seen(engine, 0) == left
        assert_sound(engine)
        engine.delete_cut(0)
        clock.advance(2 * DAY_MS)
        engine.maintenance.clean(policy=EAGER)
        assert_sound(engine)


# --- cut off, and beside others ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fault", "step"),
    in_shard(
        "kills",
        [
            ("dies after", 50),
            ("dies after", 25),
            ("before", 40),
            ("dies after", 1),
            ("dies before", 4),
            ("before", 5),
            ("after", 5),
        ],
        keep=1,
    ),
)
def test_every_write(fault: str, step: int) -> None:
    """At each `step`th write the process dies, or the write fails once, before or after it took effect.

    Readers see all other records, and may or may not see the person's. A second run finishes the erasure.
    """
    made, clock = ledger()
    with open_engine(copy_of(made), clock) as engine:
        before = {cut: seen(engine, cut) for cut in (None, 0, 2)}
    for at in range(0, attempt(copy_of(made), clock()), step):
        store = copy_of(made)
        attempt(store, clock(), fault, at)
        with open_engine(store, clock) as engine:
            for cut, records in before.items():
                now = seen(engine, cut)
                assert without_person(now) == without_person(records)
                assert now.items() <= records.items()
            report = erase(engine)
            assert report.is_complete
            assert objects_with(store) == []
            assert {cut: seen(engine, cut) for cut in before} == {
                cut: without_person(records) for cut, records in before.items()
            }
            assert_sound(engine)


def _dies_once_begun() -> Callable[[Operation, str, int], Fault | None]:
    """A client that dies once an erasure has begun, which it sees by the key."""
    has_begun: list[str] = []

    def decide(operation: Operation, key: str, _number: int) -> Fault | None:
        if has_begun:
            return "before"
        if operation == "put_if_absent" and "/erasures/" in key:
            has_begun.append(key)
            return "after"
        return None

    return decide


def test_one_that_was_begun_is_finished_without_the_condition() -> None:
    """`finish_erasures` finishes an erasure without its condition. An upload that no entry names stays for
    the next call with the condition."""
    made, clock = ledger()
    store = copy_of(made)
    dying = FaultyStore(store, decide=_dies_once_begun(), error=died)
    with open_engine(dying, clock) as engine, pytest.raises(ProcessDiedError):
        erase(engine)
    with open_engine(store, clock) as engine:
        look = engine.erase(TOPIC, WHERE)
        assert "erasure 0, which was begun" in look.still_held[-1].place
        (finished,) = engine.finish_erasures()
        assert finished.number == 0
        assert [key for key in objects_with(store) if "-p-1-e-1-" not in key] == []
        assert len(objects_with(store)) == 1
        assert erase(engine).deleted == 1
        assert objects_with(store) == []


def test_backups_are_without_them_once_older_ones_are_removed() -> None:
    """The report names each backup that holds the person, with the number of records and the command, and the
    files of an interrupted backup too.

    After a newer backup, and after the others were removed, the place has no byte of the person, and a
    restored store has all other records.
    """
    store, clock = ledger()
    place = MemoryStore("backups-of-a-person")
    with open_engine(store, clock) as engine:
        engine.backup(place)
        records = sum(record[0] == PERSON for record in seen(engine).values())
        commit(engine, PERSON)
        last = FaultyStore(place)
        last.decide = lambda operation, key, _: (
            "before" if "backups/" in key and operation in WRITES else None
        )
        with pytest.raises(TxnEngineError):
            engine.backup(last)
        report = engine.erase(TOPIC, WHERE, execute=True, backups=place)
        of_backup, loose = report.still_held
        assert (of_backup.place, of_backup.records) == (f"backup 0 in {place.url}", records)
        assert of_backup.until.endswith(f"txn-engine backup prune --keep 1 --execute {place.url}")
        assert "1 data files" in loose.place
        assert "that no backup names" in loose.place
        assert objects_with(store) == []
        assert len(objects_with(place)) > 2
        made = engine.backup(place)
        assert prune(place, keep=1, execute=True, clock=clock).removed == (0,)
        assert objects_with(place) == []
        assert engine.erase(TOPIC, WHERE, execute=True, backups=place).is_complete
        target = MemoryStore("restored-without-a-person")
        assert restore(place, target, clock=clock).backup == made
        with open_engine(target, clock) as again:
            assert seen(again) == seen(engine) == without_person(seen(engine))
            assert objects_with(target) == []
            assert_sound(again)


@pytest.mark.shard("kills")
def test_files_that_only_a_step_of_a_table_shows_are_erased_by_name() -> None:
    """The files were merged before the table's cut, and the log has forgotten them since. A pin holds them by
    their paths, and the erasure deletes them."""
    made, clock = ledger()
    store = copy_of(made)
    with open_engine(store, clock) as engine:
        clock.advance(2 * DAY_MS)
        commit(engine, 13)
        engine.maintenance.clean(policy=EAGER)
        pins = PinStore(engine.logs.tools.objects, clock, engine.logs.tools.new_id)
        held = pins.needed(TOPIC, 0, 0).files
        named = engine.logs.get(TOPIC, 0, 0).refresh().named
        assert {path for path in held if path not in named} & {
            key.removeprefix(f"topics/{TOPIC}/0/0/") for key in objects_with(store)
        }
        erase(engine)
        assert objects_with(store) == []
        assert_sound(engine)


def test_a_table_that_cannot_be_published_holds_its_files() -> None:
    """Readers of the topic see no erased record any more. The error says what to do, and then the erasure
    finishes."""
    made, clock = ledger()
    store = copy_of(made)
    folder = f"topics/{TOPIC}/0/_delta_log/"
    versions = [each.key for each in store.list(folder) if each.key.endswith(".json")]
    foreign = f"{folder}{len(versions):020d}.json"
    store.put(foreign, b"{}")
    with open_engine(store, clock) as engine:
        before = seen(engine)
        with pytest.raises(InvalidRequestError, check=because(Reason.FILES_HELD_BY_TABLE)):
            erase(engine)
        assert seen(engine) == without_person(before)
        assert objects_with(store) != []
        store.delete(foreign)
        assert erase(engine).finished_before == (0,)
        assert objects_with(store) == []
        assert_sound(engine)


def test_open_transactions_are_told_and_taken_later() -> None:
    """An erasure works up to the last stable offset. It reports later records, and a later erasure removes
    them once they are decided."""
    store, clock = ledger()
    with open_engine(store, clock) as engine:
        producer = engine.producer(transactional_id="open")
        producer.init_transactions()
        producer.begin_transaction()
        producer.produce(TOPIC, rows(PERSON, 30), partition=0).result()
        report = erase(engine)
        (held,) = report.still_held
        assert held.records == 1
        assert not report.is_complete
        producer.commit_transaction()
        assert erase(engine).is_complete
        assert objects_with(store) == []
        assert 30 in {record[0] for record in seen(engine).values()}


@pytest.mark.parametrize("ends", ["commit_transaction", "abort_transaction"])
def test_what_is_decided_while_it_runs_is_told(ends: str) -> None:
    """A transaction that is open at the search and decided at the end is reported, so that nobody takes its
    records for erased."""
    store, clock = ledger()
    with open_engine(store, clock) as engine:
        producer = engine.producer(transactional_id="open")
        producer.init_transactions()
        producer.begin_transaction()
        producer.produce(TOPIC, rows(PERSON, 30), partition=0).result()

        def decide(doing: str, done: int, of: int) -> None:
            if doing == "searching" and done == of:
                getattr(producer, ends)()

        report = engine.erase(TOPIC, WHERE, execute=True, progress=decide)
        (held,) = report.still_held
        assert (held.records, report.is_complete) == (1, False)
        assert objects_with(store)
        assert erase(engine).is_complete
        assert objects_with(store) == []


@pytest.mark.parametrize("work", ["merge", "compaction by key", "erasure"])
def test_who_had_read_the_records_before_takes_its_file_back(work: str) -> None:
    """If a merge or another erasure had read the records before the person was erased, the log refuses its
    file.

    The file does not stay for a week as an upload that no entry names.
    """
    store, clock = MemoryStore(), ManualClock()
    policy = "compact" if work == "compaction by key" else "delete"
    with open_engine(store, clock) as engine:
        engine.admin.create_topic(TOPIC, partitions=1, schema=SCHEMA, key="account_id", cleanup_policy=policy)
        commit(engine, 1, PERSON, 2)
        commit(engine, 3, 1)
        commit(engine, 4, 5)
    reports: list[ErasureReport] = []

    def erased_first(operation: Operation, key: str, _number: int) -> None:
        if operation == "put_if_absent" and "/data/" in key and not reports:
            with open_engine(store, clock) as other:
                reports.append(erase(other))

    beside = FaultyStore(store, decide=erased_first)
    with open_engine(beside, clock) as engine:
        if work == "erasure":
            erased = {3}
            assert engine.erase(TOPIC, "account_id = 3", execute=True).is_complete
        else:
            erased = set()
            engine.maintenance.compact(policy=EAGER)
    assert reports[0].is_complete
    assert reports[0].records == 1
    with open_engine(store, clock) as engine:
        assert objects_with(store) == []
        named = engine.logs.get(TOPIC, 0, 0).refresh().named
        assert {info.key.partition("/0/0/")[2] for info in store.list(f"topics/{TOPIC}/0/0/data/")} <= set(
            named
        )
        assert {account for account, _ in seen(engine).values()} == {1, 2, 3, 4, 5} - erased
        assert_sound(engine)


def test_a_backup_that_is_made_meanwhile_is_named() -> None:
    """The backup copied the files before they were erased, so the report names it."""
    store, clock = ledger()
    place = MemoryStore("backups-made-meanwhile")

    def back_up(operation: Operation, key: str, _number: int) -> None:
        if operation == "put_if_absent" and key.endswith("/erasures/00000000000000000000.json"):
            with open_engine(store, clock) as other:
                other.backup(place)

    with open_engine(store, clock) as engine:
        engine.backup(place)
    with open_engine(FaultyStore(store, decide=back_up), clock) as engine:
        report = engine.erase(TOPIC, WHERE, execute=True, backups=place)
    assert [held.place for held in report.still_held] == [f"backup {each} in {place.url}" for each in (0, 1)]


def test_a_topic_that_is_made_again_while_its_tables_are_published() -> None:
    """The new topic has no tables, and the erasure publishes none for it. The deleted topic goes as a
    whole."""
    store, clock = ledger()
    done: list[str] = []

    def meanwhile(operation: Operation, key: str, _number: int) -> None:
        if operation == "put_if_absent" and "/published/iceberg/" in key and not done:
            done.append(key)
            with open_engine(store, clock) as other:
                other.admin.delete_topic(TOPIC)
                other.admin.create_topic(TOPIC, partitions=2, schema=SCHEMA)

    with open_engine(FaultyStore(store, decide=meanwhile), clock) as engine:
        report = erase(engine)
        assert (report.tables, report.is_complete) == ({}, True)
        assert engine.tables.status(TOPIC) == []
    assert objects_with(store) == []


def test_the_numbers_of_erasures_have_no_gap() -> None:
    """Readers as of a cut ask for the first erasure, so numbers have no gap. A foreign object with another
    number is ignored."""
    store, clock = ledger()
    for number in (5, 2**63 - 1):
        store.put(f"topics/{TOPIC}/0/erasures/{number:020d}-done.json", b"{}")
    store.put(f"topics/{TOPIC}/0/erasures/{1:020d}-done.json", b"{}")
    with open_engine(store, clock) as engine:
        before = seen(engine, 0)
        assert erase(engine).erasures == (0,)
        assert engine.erase(TOPIC, "account_id = 3", execute=True).erasures == (2,)
        assert seen(engine, 0) == {
            at: record for at, record in before.items() if record[0] not in (PERSON, 3)
        }


@pytest.mark.shard("kills")
def test_many_cuts_are_not_read_one_by_one() -> None:
    """A few snapshots of the cuts tell which of them list a file. A file that the log has forgotten is not an
    upload."""
    store, clock = MemoryStore(), ManualClock()
    with open_engine(store, clock) as engine:
        engine.admin.create_topic(TOPIC, partitions=1, schema=SCHEMA)
        for number in range(30):
            commit(engine, 1, *([PERSON] if number == 12 else []))
            engine.cut()
        engine.maintenance.compact(policy=EAGER)
        clock.advance(2 * DAY_MS)
        commit(engine, 2)
        engine.maintenance.clean(policy=EAGER)
        commit(engine, 3)
    watched = FaultyStore(store)
    with open_engine(watched, clock) as engine:
        assert engine.logs.get(TOPIC, 0, 0).refresh().floor > 0
        found = engine.erase(TOPIC, WHERE)
        (partition,) = found.partitions
        assert (partition.records, partition.live_files, partition.dead_files) == (1, 1, 1)
        assert (partition.unnamed_files, found.still_held) == (0, ())
        assert found.cuts == tuple(range(12, 30))
        read = {key for operation, key, _ in watched.calls if operation == "get" and "/snapshots/" in key}
        assert len(read) < 20
        report = erase(engine)
        assert (report.files, report.cuts, report.still_held) == (2, found.cuts, ())
        assert [len(seen(engine, cut)) for cut in (11, 12, 29)] == [12, 13, 30]
        assert objects_with(store) == []
        assert_sound(engine)


def test_files_are_read_ahead_and_the_condition_is_asked_of_many() -> None:
    """The engine reads files ahead and asks the condition about many records, because a list of accounts
    takes seconds to plan."""
    store, clock = ledger()

    class Counted:
        columns = ("account_id",)
        is_constant = False
        asked = 0

        def matches(self, records: pa.Table) -> NDArray[np.bool_]:
            Counted.asked += 1
            return np.asarray(records.column("account_id").to_numpy() == PERSON)

    with open_engine(store, clock) as engine:
        wanted = engine.erase(TOPIC, WHERE)
        assert replace(engine.erase(TOPIC, Counted()), leftovers=wanted.leftovers) == wanted
        uploads, partitions = 2, 2
        assert Counted.asked <= uploads + partitions


# --- bad input --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "partitions",
    [
        [{"partition": 7, "to": 5, "offsets": [0, 0]}],
        [{"partition": 0, "to": 5.5, "offsets": [0, 0]}],
        [{"partition": 0, "to": 5, "offsets": None}],
        {},
    ],
)
def test_an_erasure_that_is_damaged_is_named(partitions: object) -> None:
    """The erasure writes nothing. The auditor names a damaged erasure that is under way too."""
    store, clock = ledger()
    key = f"topics/{TOPIC}/0/erasures/{0:020d}.json"
    fields = {"topic": TOPIC, "incarnation": 0, "number": 0, "created_ms": 1, "partitions": partitions}
    store.put(key, encode_json({**fields, "write_id": "0" * 32}, "erasure"))
    with open_engine(store, clock) as engine:
        before = seen(engine)
        with damaged_at(key):
            erase(engine)
        assert [each.error.place for each in engine.finish_erasures().unreadable] == [key]
        assert seen(engine) == before
        findings = [finding.object for finding in engine.admin.verify().findings]
    # How many partitions a topic has by now, an audit beside writers does not know.
    assert findings == ([] if partitions and partitions[0]["partition"] == 7 else [key])


def test_functions_of_a_records_own_values() -> None:
    """A condition may use sums, and some functions of a record's own values. Times are in UTC."""
    store, clock = ledger()
    with open_engine(store, clock) as engine:
        looked = engine.erase(
            TOPIC,
            f"account_id - 1 + 1 = {PERSON} AND lower(name) = 'arthur philip dent' "
            "AND _timestamp BETWEEN TIMESTAMPTZ '2023-11-14 22:13:20' AND TIMESTAMPTZ '2024-01-01 00:00:00+00'",
        )
        assert looked.records == engine.erase(TOPIC, WHERE).records > 0


def test_a_neighbour_that_is_the_same_float_stays() -> None:
    """The record of one number is erased, and the record of the next number, which is the same float, is kept."""
    with open_engine(MemoryStore(), ManualClock()) as engine:
        engine.admin.create_topic("near", schema=pa.schema([("id", pa.int64())]), partitions=1)
        engine.partition("near", 0).append(pa.table({"id": [2**53, 2**53 + 1]}))
        with refused(InvalidRequestError, Reason.FLOAT_COMPARISON):
            engine.erase("near", "id = 9007199254740993e0", execute=True)
        assert engine.erase("near", "id = 9007199254740993", execute=True).records == 1
        assert engine.scan("near").to_table()["id"].to_pylist() == [2**53]


@pytest.mark.parametrize("kind", [pa.float16(), pa.decimal256(50, 2)])
def test_columns_that_duckdb_has_no_type_for(kind: pa.DataType) -> None:
    """DuckDB only parses a condition, so its types do not matter."""
    with open_engine(MemoryStore(), ManualClock()) as engine:
        schema = pa.schema([("id", pa.int64()), ("odd", kind)])
        engine.admin.create_topic("odd", schema=schema, partitions=1)
        odd = pa.array(np.array([1, 2], np.float16)) if pa.types.is_floating(kind) else pa.array([1, 2], kind)
        engine.partition("odd", 0).append(pa.table({"id": [1, 2], "odd": odd}, schema=schema))
        assert engine.erase("odd", "odd = 1.0").records == 1
        assert engine.erase("odd", "id = 1").records == 1


@pytest.mark.parametrize(
    ("where", "reason"),
    [
        ("true", Reason.CONDITION_TAKES_ALL),
        ("account_id > 0", Reason.CONDITION_TAKES_ALL),
        ("account_id", Reason.CONDITION_NOT_BOOLEAN),
        ("nobody = 1", Reason.UNKNOWN_COLUMN),
        ("account_id IN (SELECT 1)", Reason.NOT_IN_A_CONDITION),
        ("random() > 0.5", Reason.FUNCTION_NOT_ALLOWED),
        ("account_id = 'Arthur'", Reason.CONDITION_TYPES_DIFFER),
        ("account_id = 1; DROP TABLE x", Reason.BAD_CONDITION),
        ("account_id = #1", Reason.NOT_IN_A_CONDITION),
        ("account_id = 4.242424242424242E+15", Reason.FLOAT_COMPARISON),
        ("amount > 5 AND account_id NOT IN (3, -1e3)", Reason.FLOAT_COMPARISON),
        ("account_id BETWEEN 1e15 AND account_id", Reason.FLOAT_COMPARISON),
        ("age(_timestamp) > INTERVAL 1 YEAR", Reason.FUNCTION_NOT_ALLOWED),
        ("", Reason.NO_CONDITION),
    ],
)
def test_what_is_refused_writes_nothing(where: str, reason: Reason) -> None:
    """A refused condition writes nothing, and the error shows no value."""
    store, clock = ledger()
    keys = [info.key for info in store.list("")]
    with open_engine(store, clock) as engine, refused(InvalidRequestError, reason) as raised:
        engine.erase(TOPIC, where, execute=True)
    assert "Arthur" not in str(raised.value)
    assert [info.key for info in store.list("")] == keys


def test_everything() -> None:
    """`everything=True` erases all records of the topic."""
    store, clock = ledger()
    with open_engine(store, clock) as engine:
        engine.erase(TOPIC, "true", execute=True, everything=True)
        assert seen(engine) == seen(engine, 0) == {}
        assert [info.key for info in store.list(f"topics/{TOPIC}/0/0/data")] == []
        commit(engine, 50)
        assert len(seen(engine)) == 1
        assert_sound(engine)


def test_proofs_hold_no_value(tmp_path: Path) -> None:
    """A proof does not even hold values of rows that a failed check shows in its report, which is outside the
    store."""
    from txn_engine.quality import Declaration, check_exactly_once

    store, clock = ledger()
    with open_engine(store, clock) as engine:
        declaration = Declaration(topic=TOPIC, record_id=("account_id",))
        result = check_exactly_once(engine, declaration, report_folder=tmp_path, record=True)
        assert not result.success
        assert any(
            str(PERSON).encode() in path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()
        )
        assert list(store.list("proofs/"))
        assert objects_with(store, "proofs/") == []
        erase(engine)
        assert objects_with(store) == []


def test_columns_that_sql_does_not_tell_apart() -> None:
    """A condition on `id` is refused if there is a column `ID`, because another person's records could be
    erased."""
    with open_engine(MemoryStore(), ManualClock()) as engine:
        engine.admin.create_topic(
            "twins", partitions=1, schema=pa.schema([("id", pa.int64()), ("ID", pa.int64())])
        )
        engine.partition("twins", 0).append(pa.table({"id": [1, 42], "ID": [42, 1]}))
        with refused(InvalidRequestError, Reason.COLUMN_NAMES_ALIKE):
            engine.erase("twins", "id = 42", execute=True)
        assert engine.scan("twins").to_table().num_rows == 2


@pytest.mark.parametrize(
    "place",
    in_shard("kills", ["txn_engine.maintain.erasing", "txn_engine.erasing.searching"], keep=1),
)
def test_two_erasures_at_once(place: str) -> None:
    """If another erasure has taken the files that one was about to read, it reads the files that replaced
    them."""
    store, clock = ledger()
    looks = 0

    def overtaken(target: Target, state: PartitionState, holds: Holds) -> list[Candidate]:
        nonlocal looks
        found = list(candidates(target, state, holds))
        looks += 1
        if looks <= 2:
            with open_engine(store, clock) as other:
                other.erase(TOPIC, f"account_id in ({looks}, {9 + looks})", execute=True)
        return found

    with open_engine(store, clock) as engine:
        before = seen(engine)
        with mock.patch(f"{place}.candidates", overtaken):
            assert erase(engine).still_held == ()
        assert objects_with(store) == []
        kept = {at: each for at, each in without_person(before).items() if each[0] not in (1, 2, 10, 11)}
        assert seen(engine) == kept
        assert_sound(engine)


@pytest.mark.parametrize("policy", ["delete", "compact"])
def test_a_compaction_beside_an_erasure(policy: CleanupPolicy) -> None:
    """If an erasure has taken the files that a compaction was about to read, the compaction merges the files
    that replaced them, and reports no damage."""
    store, clock = MemoryStore(), ManualClock(START_MS)
    merge, merges = FileMerger.merge, 0

    def overtaken(self: FileMerger, *given: Any) -> Any:
        nonlocal merges
        merges += 1
        if merges == 1:
            with open_engine(store, clock) as other:
                erase(other)
        return merge(self, *given)

    with open_engine(store, clock) as engine:
        engine.admin.create_topic(TOPIC, partitions=1, schema=SCHEMA, key="account_id", cleanup_policy=policy)
        for account in range(3):
            commit(engine, account, PERSON, account)
        with mock.patch.object(FileMerger, "merge", overtaken):
            report = engine.maintenance.compact(TOPIC, policy=EAGER)
        assert report.failures == ()
        assert [each.outputs for each in report.partitions] == [1]
        assert {record[0] for record in seen(engine).values()} == {0, 1, 2}
        assert objects_with(store) == []
        assert_sound(engine)


def test_records_of_a_time_behind_the_calendar_s_end() -> None:
    """Older writers could write such a time. The log counts it as the end of the calendar, and so does the
    file that replaces it."""
    store, clock = MemoryStore(), ManualClock()
    with open_engine(store, clock) as engine:
        engine.admin.create_topic(TOPIC, partitions=1, schema=SCHEMA, key="account_id")
        log = engine.logs.get(TOPIC, 0, 0)
        tools = engine.logs.tools
        late = upload_records(
            tools.objects, tools.new_id, log.keys.prefix, rows(1, PERSON, 2), original(SCHEMA),
            log_end=0, producer_id=-1, producer_epoch=-1, timestamp_ms=2**62,
        )  # fmt: skip
        log.append([DataProposal(3, late.first_timestamp, late.max_timestamp, late.file)])
    with open_engine(store, clock) as engine:
        assert erase(engine).records == 1
        assert engine.scan(TOPIC).to_table()["account_id"].to_pylist() == [1, 2]
        assert_sound(engine)
