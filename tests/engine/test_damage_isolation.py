"""Damage is isolated: every kind of it is tried against everything that looks at more than one place.

The engine names what cannot be read, and lists, sweeps, maintains, writes and reads everything else as if
nothing had happened.
"""

from __future__ import annotations

import base64
import io
import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from tests.conftest import S3Bucket
from tests.suite.tiers import in_shard
from tests.support import damage
from tests.support.damage import (
    COORDINATOR,
    GROUPS,
    HURT_GROUP,
    HURT_ID,
    KINDS,
    SOUND_GROUP,
    SOUND_HOME,
    SOUND_ID,
    Damage,
)
from tests.support.faults import FaultyStore
from tests.support.internal import FEW_INTERNAL
from tests.support.refusals import damaged_at
from tests.support.sealing import json_object
from txn_engine import Engine, TopicPartition, connect
from txn_engine.errors import CorruptObjectError, StoreAccessError, TxnEngineError
from txn_engine.maintain import MaintenancePolicy
from txn_engine.names import printable
from txn_engine.protocol.transaction_rows import TransactionPartition
from txn_engine.testing import ManualClock, write_transaction_state
from txn_engine.unreadable import Unreadable

ONE_OF_EACH_PLACE = (
    "topic object, garbage",
    "last entry, garbage",
    "coordinator's last entry, garbage",
    "groups' entry, garbage",
    "a file for the folder of the snapshots",
    "all stray keys at once",
)
"""`make test` does one kind of damage to each place that a surface tells apart. `verify` meets every kind there."""
EACH = [pytest.param(kind, id=name) for name, kind in KINDS.items()]
HOUR_MS = 3_600_000


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("damage") / "ledger"
    damage.build(root)
    return root


@pytest.fixture(params=in_shard("damage", EACH, keep=ONE_OF_EACH_PLACE))
def hurt(request: pytest.FixtureRequest, sound: Path, tmp_path: Path) -> tuple[Path, Damage]:
    """A copy of the sound ledger with one kind of damage."""
    root, kind = tmp_path / "ledger", request.param
    shutil.copytree(sound, root)
    kind.do(root)
    return root, kind


@pytest.fixture
def engine(hurt: tuple[Path, Damage]) -> Iterator[Engine]:
    with connect(f"file://{hurt[0]}") as connected:
        yield connected


@pytest.fixture
def named(hurt: tuple[Path, Damage]) -> frozenset[str]:
    """The places that the damage makes unreadable."""
    return hurt[1].names


def places(unreadable: tuple[Unreadable, ...]) -> set[str]:
    for each in unreadable:
        assert "\n" not in str(each.error)
    return {each.place for each in unreadable}


def of_topics(named: frozenset[str]) -> set[str]:
    return {name for name in named if name == "payments"}


def of_logs(named: frozenset[str]) -> set[str]:
    return {name for name in named if not name.startswith("__")}


def test_topics_are_listed(engine: Engine, named: frozenset[str]) -> None:
    found = engine.admin.list_topics()
    assert found == ["balances", "payments"]
    assert places(found.unreadable) == of_topics(named)
    assert engine.admin.describe_topic("balances").partitions == 2


def test_offsets_are_listed(engine: Engine, named: frozenset[str]) -> None:
    assert set(damage.offsets_of(engine, "balances")) == {0, 1}
    if "payments" in named:
        with pytest.raises(TxnEngineError):
            engine.admin.list_offsets("payments")
        return
    found = engine.admin.list_offsets("payments")
    assert places(found.unreadable) == of_logs(named)
    assert TopicPartition("payments", 1) in found
    if named & {"payments-0"}:
        with pytest.raises(CorruptObjectError):
            found[damage.DAMAGED]
    else:
        assert found[damage.DAMAGED].high_watermark == found[TopicPartition("payments", 1)].high_watermark


def test_transactions_are_listed_and_described(engine: Engine, named: frozenset[str]) -> None:
    found = engine.admin.list_transactions()
    ids = {SOUND_ID} if COORDINATOR in named else {SOUND_ID, HURT_ID}
    assert {each.transactional_id for each in found} == ids
    assert places(found.unreadable) == named & {COORDINATOR}
    assert engine.admin.describe_transaction(SOUND_ID).state == "CompleteCommit"
    if COORDINATOR in named:
        with damaged_at("__transaction_state"):
            engine.admin.describe_transaction(HURT_ID)


def test_groups_are_listed_and_described(engine: Engine, named: frozenset[str]) -> None:
    found = engine.admin.list_groups()
    assert set(found) == ({SOUND_GROUP} if GROUPS in named else {SOUND_GROUP, HURT_GROUP})
    assert places(found.unreadable) == named & {GROUPS}
    assert not engine.admin.describe_group(SOUND_GROUP).unreadable
    if GROUPS in named:
        with damaged_at("__consumer_offsets"):
            engine.admin.describe_group(HURT_GROUP)
        return
    described = engine.admin.describe_group(HURT_GROUP)
    lags = {at.partition: at.lag for at in described.partitions}
    if "payments" in named:
        assert {each.topic for each in described.unreadable} == {"payments"}
    elif "payments-0" in named:
        assert places(described.unreadable) == {"payments-0"}
        assert lags.get(0, -1) == -1
    else:
        assert not described.unreadable
        assert min(lags.values()) >= 0


def test_hanging_transactions_are_found(
    engine: Engine, named: frozenset[str], hurt: tuple[Path, Damage]
) -> None:
    """They are found in all partitions that can be read. A transaction is not called hanging if its owner may be in a
    partition that cannot be read.
    """
    engine.partition("balances", 0).append(
        damage.records(9), producer_id=77, producer_epoch=0, base_sequence=0, is_transactional=True
    )
    with connect(f"file://{hurt[0]}", clock=ManualClock(engine.clock() + HOUR_MS)) as later:
        found = later.admin.find_hanging_transactions()
        assert places(found.unreadable) == set(named)
        if COORDINATOR in named:
            assert found == []
            with pytest.raises(CorruptObjectError):
                later.admin.abort_transaction("balances", 0, found_start(later))
        else:
            assert [(at.topic, at.partition, at.producer_id) for at in found] == [("balances", 0, 77)]
            later.admin.abort_transaction("balances", 0, found[0].start_offset)


def found_start(engine: Engine) -> int:
    (entry,) = [p for p in engine.admin.describe_producers("balances", 0) if p.producer_id == 77]
    return entry.current_transaction_start_offset


def test_what_timed_out_is_aborted_and_completed(
    engine: Engine, named: frozenset[str], hurt: tuple[Path, Damage]
) -> None:
    """All three sweeps work wherever the id's own coordinator partition can be read. `failures` names the ids
    and partitions that could not be swept."""
    producer = engine.producer(transactional_id=SOUND_ID)
    producer.init_transactions()
    producer.begin_transaction()
    producer.produce("balances", damage.records(1), partition=0).result()
    with connect(f"file://{hurt[0]}", clock=ManualClock(engine.clock() + HOUR_MS)) as later:
        report = later.coordinator.abort_timed_out_transactions()
        assert report.transactional_ids == (SOUND_ID,)
        assert later.admin.describe_transaction(SOUND_ID).state == "CompleteAbort"
        assert [COORDINATOR in failure for failure in report.failures] == [True] * (COORDINATOR in named)
        assert len(later.coordinator.write_pending_markers().failures) == (COORDINATOR in named)
    with connect(f"file://{hurt[0]}", clock=ManualClock(engine.clock() + 8 * 24 * HOUR_MS)) as much_later:
        report = much_later.coordinator.expire_transactional_ids()
        assert SOUND_ID in report.transactional_ids
        assert (HURT_ID in report.transactional_ids) is (COORDINATOR not in named)
        assert len(report.failures) == (COORDINATOR in named)


def test_markers_go_everywhere_they_can(engine: Engine, named: frozenset[str]) -> None:
    """A decision with a damaged partition stays pending and is named. The other decisions are completed."""
    for transactional_id, topic in ((SOUND_ID, "balances"), ("both", "payments")):
        if topic == "payments" and "payments" in named:
            continue
        producer = engine.producer(transactional_id=transactional_id, markers="deferred")
        producer.init_transactions()
        producer.begin_transaction()
        producer.produce(topic, damage.records(1), partition=1).result()
        producer.commit_transaction()
    report = engine.coordinator.write_pending_markers()
    assert SOUND_ID in report.transactional_ids
    assert "both" in report.transactional_ids or "payments" in named


def test_ids_are_fenced(engine: Engine, named: frozenset[str]) -> None:
    """Every id that can be fenced is fenced. The error names the other ones at the end."""
    before = engine.admin.describe_transaction(SOUND_ID)
    if COORDINATOR in named:
        with pytest.raises(CorruptObjectError, match=rf"not fenced: '{HURT_ID}'; fenced: '{SOUND_ID}'"):
            engine.admin.fence_producers([HURT_ID, SOUND_ID])
    else:
        assert set(engine.admin.fence_producers([HURT_ID, SOUND_ID])) == {HURT_ID, SOUND_ID}
    after = engine.admin.describe_transaction(SOUND_ID)
    assert (after.producer_id, after.producer_epoch) > (before.producer_id, before.producer_epoch)


def test_snapshots_are_written(engine: Engine, hurt: tuple[Path, Damage]) -> None:
    found = engine.admin.snapshot()
    assert places(found.unreadable) == hurt[1].names | hurt[1].closed
    assert {TopicPartition("balances", 0), TopicPartition("balances", 1)} <= set(found)
    assert TopicPartition("__transaction_state", SOUND_HOME) in found


def test_maintenance_does_all_it_can(
    engine: Engine, hurt: tuple[Path, Damage], named: frozenset[str]
) -> None:
    """Every job finishes, and names what it could not do."""
    jobs = engine.maintenance
    for job in (jobs.compact, jobs.retain, jobs.seal, jobs.expire_producers, jobs.clean):
        report = job()
        failed = {
            each.topic if each.partition < 0 else f"{each.topic}-{each.partition}" for each in report.failures
        }
        assert failed <= named | hurt[1].closed
        if job != jobs.compact:  # which has nothing to do with so few files, nor with an internal topic
            assert failed >= {name for name in named if name == "payments"}
    assert {each.topic for each in jobs.remove_deleted_topics().failures} <= of_topics(named)


def test_others_write_and_read(engine: Engine, named: frozenset[str]) -> None:
    """Producers, consumers and scans of other topics, ids, groups and partitions go on."""
    with engine.producer(transactional_id=SOUND_ID) as producer:
        producer.init_transactions()
        with producer.transaction():
            producer.produce("balances", damage.records(100), partition=0)
    with engine.producer(transactional_id="a new one") as producer:
        producer.init_transactions()
        with producer.transaction():
            producer.produce("balances", damage.records(101), partition=1)
    assert damage.accounts(engine, "balances") == [*sorted([*range(7)] * 2), 100, 101]
    with engine.consumer(group_id=SOUND_GROUP) as consumer:
        consumer.subscribe(["balances"])
        found = consumer.poll(max_records=100)
        assert found is not None
        consumer.commit()
    if "payments" not in named:
        assert damage.accounts(engine, "payments", 1) == [*range(7)]


@pytest.mark.parametrize("hurt", EACH, indirect=True)
def test_verify_names_it_and_nothing_else(engine: Engine, hurt: tuple[Path, Damage]) -> None:
    """The audit has a finding for the damage, and none for a sound topic, because it reads on through
    everything else."""
    report = engine.admin.verify()
    codes = {finding.code for finding in report.findings}
    assert hurt[1].codes <= codes
    for finding in report.findings:
        assert "balances" not in finding.object
        assert str(finding).encode("utf-8", "strict")
        assert str(finding).isprintable()


@pytest.mark.parametrize(
    "keys",
    in_shard(
        "damage",
        [pytest.param(damage.STRAY_KEYS[::18], id="some"), pytest.param(damage.STRAY_KEYS, id="all")],
        keep=1,
    ),
)
def test_every_stray_key_is_passed_over_and_named(sound: Path, tmp_path: Path, keys: tuple[str, ...]) -> None:
    """Each key by itself: the engine sees what it saw without the key, and `verify` finds no damage."""
    for key in keys:
        root = tmp_path / "ledger"
        shutil.copytree(sound, root)
        damage.put(root, key)
        with connect(f"file://{root}") as engine:
            assert engine.admin.list_topics() == ["balances", "payments"], key
            assert damage.offsets_of(engine, "payments") == damage.offsets_of(engine, "balances"), key
            assert not engine.admin.snapshot().unreadable, key
            report = engine.admin.verify()
            assert [found.code for found in report.findings] == ["object-foreign"], (key, report.findings)
            named = report.findings[0].object
            assert printable(key).startswith(named), named
            assert named.endswith("/") or printable(key) == named
            assert (report.ok, report.stats.foreign_objects) == (True, 1)
        shutil.rmtree(root)


@pytest.mark.minio
def test_a_name_with_a_control_character_in_a_bucket(minio_bucket: S3Bucket) -> None:
    """File managers leave an object with this name right below `topics/`. It is named, and nothing stops."""
    keys = {"access_key": minio_bucket.access_key, "secret_key": minio_bucket.secret_key}
    with connect(minio_bucket.url, endpoint=minio_bucket.endpoint, configs=FEW_INTERNAL, **keys) as engine:
        engine.admin.create_topic("payments", partitions=1)
        for key in ("topics/Icon\r", "topics/payments/0/0/log/\x1b", "topics/x\n/y"):
            minio_bucket.client().put_object(minio_bucket.name, key, io.BytesIO(b"x"), 1)
        assert engine.admin.list_topics() == ["payments"]
        assert engine.admin.find_hanging_transactions() == []
        assert not engine.maintenance.clean().failures
        report = engine.admin.verify()
        assert report.ok
        assert [found.object for found in report.findings] == [
            r"topics/Icon\r",
            r"topics/payments/0/0/log/\x1b",
            r"topics/x\n/",
        ]


@pytest.mark.parametrize("levels", in_shard("damage", [1_200, 2_100], keep=1))
def test_folders_of_any_depth_stop_nothing(sound: Path, tmp_path: Path, levels: int) -> None:
    """A foreign folder is named once and stops nothing, however deep its folders are nested. The shard nests
    them deeper than the system can open."""
    root = tmp_path / "ledger"
    shutil.copytree(sound, root)
    with damage.nested(root / "topics", "a", levels), connect(f"file://{root}") as engine:
        assert engine.admin.list_topics() == ["balances", "payments"]
        assert not engine.admin.list_topics().unreadable
        assert engine.admin.find_hanging_transactions() == []
        assert not engine.maintenance.clean().failures
        assert not engine.maintenance.remove_deleted_topics().failures
        report = engine.admin.verify()
        assert [(found.code, found.object) for found in report.findings] == [
            ("object-foreign", "topics/a/a/")
        ]


@pytest.mark.parametrize("within", [None, "deeper", "x"])
@pytest.mark.parametrize(
    "key",
    [
        f"topics/payments/0/0/log/{9_999:020d}.parquet",
        f"topics/payments/0/0/snapshots/{9_999:020d}.parquet",
        f"topics/payments/0/partitions/{0:020d}.json",
        "topics/payments/1.json",
        f"producer_ids/{7:020d}.json",
    ],
)
def test_a_folder_in_the_place_of_an_object_is_an_error(
    sound: Path, tmp_path: Path, key: str, within: str | None
) -> None:
    """If a folder, empty or not, has the name of an object, `verify` reports it once and as an error, because
    nothing can be written there."""
    root = tmp_path / "ledger"
    shutil.copytree(sound, root)
    (root / key).mkdir(parents=True)
    if within == "deeper":
        (root / key / within).mkdir()
    elif within is not None:
        (root / key / within).write_bytes(b"x")
    with connect(f"file://{root}") as engine:
        report = engine.admin.verify()
    (found,) = report.findings
    assert (found.code, found.severity, found.object) == ("folder-in-the-way", "error", f"{key}/")


def test_a_folder_in_the_place_of_the_next_entry(sound: Path, tmp_path: Path) -> None:
    """The error names the folder. Once the folder is removed, writers go on."""
    root = tmp_path / "ledger"
    shutil.copytree(sound, root)
    with connect(f"file://{root}") as engine:
        end = damage.offsets_of(engine, "payments")[0]
        in_the_way = root / f"topics/payments/0/0/log/{end:020d}.parquet"
        in_the_way.mkdir()
        with damaged_at(in_the_way.name):
            engine.partition("payments", 0).append(damage.records(7))
        in_the_way.rmdir()
        engine.partition("payments", 0).append(damage.records(7))
        assert damage.offsets_of(engine, "payments")[0] == end + 1


def test_what_the_store_does_not_give_is_named(sound: Path, tmp_path: Path) -> None:
    """If the store refuses an entry, a topic object or a snapshot, only that partition, topic or snapshot is
    named, and everything else works."""
    root = tmp_path / "ledger"
    shutil.copytree(sound, root)
    newest = max((root / "topics/payments/0/0/snapshots").iterdir())
    refused: dict[str, set[str]] = {
        "topics/payments/0/0/log/": {"payments-0"},
        "topics/payments/0.json": {"payments"},
        newest.relative_to(root).as_posix(): set(),
        f"topics/__transaction_state/0/{damage.HURT_HOME}/log/": {COORDINATOR},
        f"topics/__consumer_offsets/0/{damage.HURT_GROUP_HOME}/log/": {GROUPS},
    }
    for prefix, named in refused.items():
        with Engine(refusing(root, prefix)) as engine:
            assert places(engine.admin.snapshot().unreadable) == named, prefix
            assert engine.admin.list_topics() == ["balances", "payments"]
            assert SOUND_GROUP in engine.admin.list_groups()
            assert len(damage.accounts(engine, "balances")) == 14
            assert {f"{each.topic}-{each.partition}" for each in engine.maintenance.retain().failures} == {
                name if "-" in name else f"{name}--1" for name in named
            }


def test_a_store_that_refuses_everything_is_one_error(sound: Path) -> None:
    """A store that refuses everything is one access error, because no single object is to blame."""
    with Engine(refusing(sound, "topics/")) as engine:
        for call in (
            engine.admin.list_transactions,
            engine.admin.list_groups,
            engine.admin.list_topics,
            engine.maintenance.retain,
            engine.coordinator.abort_timed_out_transactions,
        ):
            with pytest.raises(StoreAccessError):
                call()


def refusing(root: Path, prefix: str) -> FaultyStore:
    from storage import AccessDeniedError, open_store

    return FaultyStore(
        open_store(f"file://{root}"),
        decide=lambda operation, key, _: "before" if operation == "get" and key.startswith(prefix) else None,
        error=lambda operation, key: AccessDeniedError("permission denied", actor="store", place=key),
    )


def test_a_damaged_store_object_stops_everything_in_one_line(sound: Path, tmp_path: Path) -> None:
    """A damaged store.json stops every call with an error of one line, because no call can do without it."""
    for content in (damage.GARBAGE, b""):
        root = tmp_path / f"ledger-{len(content)}"
        shutil.copytree(sound, root)
        damage.overwrite(root, "store.json", content)
        with damaged_at("store.json") as caught:
            connect(f"file://{root}")
        assert "\n" not in str(caught.value)


DEEP: pa.DataType = pa.int64()
for _ in range(60):
    DEEP = pa.list_(DEEP)


@pytest.mark.parametrize(
    "kind",
    [
        pa.dense_union([pa.field("x", pa.int64())]),
        pa.month_day_nano_interval(),
        pa.run_end_encoded(pa.int32(), pa.int64()),
        pa.struct([]),
        DEEP,
    ],
    ids=["union", "interval", "runs", "nothing", "deep"],
)
def test_columns_that_no_file_can_have_are_damage_of_their_topic(
    sound: Path, tmp_path: Path, kind: pa.DataType
) -> None:
    """An Arrow schema with a correct checksum has a type that Parquet does not support."""
    root = tmp_path / "ledger"
    shutil.copytree(sound, root)
    file = root / "topics/balances/0.json"
    whole = json.loads(file.read_text())
    schema = pa.schema([("account_id", pa.int64()), ("amount", kind)])
    whole["arrow_schema"] = base64.b64encode(schema.serialize().to_pybytes()).decode()
    damage.overwrite(root, "topics/balances/0.json", json_object(whole))
    with connect(f"file://{root}") as engine:
        assert [each.place for each in engine.admin.list_topics().unreadable] == ["balances"]
        report = engine.maintenance.compact(policy=MaintenancePolicy(min_files=2))
        assert [(failure.topic, failure.code) for failure in report.failures] == [
            ("balances", "CORRUPT_MESSAGE")
        ]
        assert {done.topic for done in report.partitions} == {"payments"}
        named = [found.object for found in engine.admin.verify().findings if found.code == "object-damaged"]
        assert named == ["topics/balances/0.json"]


@pytest.mark.parametrize(
    "at",
    [
        TopicPartition("payments", 9_999),
        TopicPartition("__consumer_offsets", 50),
    ],
)
def test_a_decision_is_not_carried_out_where_no_partition_is(
    sound: Path, tmp_path: Path, at: TopicPartition, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A sweep writes no marker into a partition that does not exist, because the topic would find it there
    once it grows. The decision is a failure that names the partition."""
    root = tmp_path / "ledger"
    shutil.copytree(sound, root)
    with connect(f"file://{root}") as engine:
        monkeypatch.setattr(
            engine.coordinator, "resolve", lambda at: TransactionPartition(at.topic, 0, at.partition)
        )
        write_transaction_state(
            engine, "wrong", state="PrepareAbort", producer_id=5_000, producer_epoch=1, partitions=[at]
        )
        report = engine.coordinator.write_pending_markers()
        assert (report.transactional_ids, report.objects_written) == ((), 0)
        (failure,) = report.failures
        assert failure.startswith("wrong: ")
        assert str(at.partition) in failure
        assert list(engine.store.list(f"topics/{at.topic}/0/{at.partition}")) == []


def test_a_decision_for_a_partition_that_the_topic_has_grown_since(sound: Path, tmp_path: Path) -> None:
    """A sweep that has an older view of a topic looks again if a decision names a partition that the topic
    has got since."""
    root = tmp_path / "ledger"
    shutil.copytree(sound, root)
    with connect(f"file://{root}") as sweeper, connect(f"file://{root}") as engine:
        count = len(sweeper.admin.list_offsets("payments"))
        engine.admin.add_partitions_to_topic("payments", count + 1)
        write_transaction_state(
            engine,
            "grown",
            state="PrepareAbort",
            producer_id=5_000,
            producer_epoch=1,
            partitions=[TopicPartition("payments", count)],
        )
        assert sweeper.coordinator.write_pending_markers().transactional_ids == ("grown",)


def test_an_undecided_one_whose_partition_is_damaged_stays_pending(sound: Path, tmp_path: Path) -> None:
    """Each sweep names it, and completes another decision in the same coordinator partition."""
    root = tmp_path / "ledger"
    shutil.copytree(sound, root)
    KINDS["last entry, garbage"].do(root)
    with connect(f"file://{root}") as engine:
        for name, topic in (("hurt", "payments"), ("sound", "balances")):
            write_transaction_state(
                engine,
                name,
                state="PrepareAbort",
                producer_id=5_000,
                producer_epoch=1,
                partitions=[TopicPartition(topic, 0)],
            )
        report = engine.coordinator.write_pending_markers()
        assert report.transactional_ids == ("sound",)
        assert len(report.failures) == 1
        assert report.failures[0].startswith("hurt: ")
        assert engine.admin.describe_transaction("hurt").state == "PrepareAbort"


@pytest.mark.parametrize("what", ["garbage", "another block's claim", "folder"])
@pytest.mark.parametrize("block", ["next", "last"])
def test_what_stands_where_a_block_of_producer_ids_would(
    sound: Path, tmp_path: Path, what: str, block: str
) -> None:
    """If garbage, another claim or a folder is in the way of a block of producer ids, new producers get
    unused ids after it, and `doctor` names the object."""
    root = tmp_path / "ledger"
    shutil.copytree(sound, root)
    claims = root / "producer_ids"
    number = len(list(claims.iterdir())) if block == "next" else (1 << 63) // 1_000 - 1
    in_the_way = claims / f"{number:020d}.json"
    if what == "folder":
        in_the_way.mkdir()
    elif what == "garbage":
        in_the_way.write_bytes(damage.GARBAGE)
    else:
        shutil.copy(claims / f"{0:020d}.json", in_the_way)
    taken = {int(path.stem) for path in claims.iterdir()}
    ids = set()
    for _ in range(3):
        with connect(f"file://{root}") as engine, engine.producer() as producer:
            producer.produce("payments", damage.records(1))
            producer.flush()
            ids.add(engine.coordinator._producer_ids.take())
            named = [error.place for error in engine.unreadable_producer_ids()]
            assert named == ([] if what == "folder" else [f"producer_ids/{number:020d}.json"])
    assert len(ids) == 3
    assert not {each // 1_000 for each in ids} & taken


@pytest.mark.shard("damage")
@pytest.mark.minio
def test_the_markers_of_folders_stand_for_no_object(minio_bucket: S3Bucket) -> None:
    """Maintenance and the audit skip the empty object that a file manager writes for a folder: its name is an
    object's name with a slash at the end."""
    url = f"s3://{minio_bucket.name}/markers"
    access = {
        "endpoint": minio_bucket.endpoint,
        "access_key": minio_bucket.access_key,
        "secret_key": minio_bucket.secret_key,
    }
    with connect(url, **access) as engine:
        damage.build_in(engine)
        for key in (
            f"topics/payments/0/0/snapshots/{9_999:020d}.parquet/",
            f"topics/payments/0/0/log/{9_999:020d}.parquet/",
            f"producer_ids/{(1 << 63) // 1_000 - 1:020d}.json/",
        ):
            minio_bucket.client().put_object(minio_bucket.name, f"markers/{key}", io.BytesIO(b""), 0)
        report = engine.maintenance.clean()
        assert not report.failures
        assert {found.code for found in engine.admin.verify().findings} == {"object-foreign"}
    with connect(url, **access) as later, later.producer() as producer:
        producer.produce("payments", damage.records(1))
        producer.flush()
