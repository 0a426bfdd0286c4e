"""A ledger on a local disk with something of everything, and every kind of damage that may befall one place
of it.

The sound half must stay live whatever happens to the other. Topic `payments` is damaged, and `balances` is
not. One of the ids, one of the groups and one of the partitions is damaged too, and another one is not.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from txn_engine import Engine, TopicPartition, connect
from txn_engine.log.store_config import CONSUMER_OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC
from txn_engine.protocol.hashing import partition_for_id

SCHEMA = pa.schema([("account_id", pa.int64())])
HURT_ID, SOUND_ID = "load-payments", "load-balances"
HURT_GROUP, SOUND_GROUP = "reads-payments", "reads-balances"
INTERNAL = 6
"""Partitions of each internal topic: few, and those that are damaged have nothing of the sound ids and groups."""
CONFIGS = {"transaction.state.log.num.partitions": INTERNAL, "offsets.topic.num.partitions": INTERNAL}
HURT_HOME, SOUND_HOME = (partition_for_id(name, INTERNAL) for name in (HURT_ID, SOUND_ID))
HURT_GROUP_HOME, SOUND_GROUP_HOME = (partition_for_id(name, INTERNAL) for name in (HURT_GROUP, SOUND_GROUP))
COORDINATOR = f"{TRANSACTION_STATE_TOPIC}-{HURT_HOME}"
GROUPS = f"{CONSUMER_OFFSETS_TOPIC}-{HURT_GROUP_HOME}"
GARBAGE = b"PAR1 this is no object of ours PAR1"


def records(*accounts: int) -> pa.Table:
    return pa.table({"account_id": pa.array(accounts, pa.int64())}, schema=SCHEMA)


def build(root: Path) -> str:
    """Build two topics of two partitions, an id and a group for each, and snapshots in the middle. Returns
    the store's URL."""
    url = f"file://{root}"
    with connect(url, configs=CONFIGS) as engine:
        build_in(engine)
    return url


def build_in(engine: Engine) -> None:
    """Build the same in a store that is open."""
    for topic, transactional_id, group in (
        ("payments", HURT_ID, HURT_GROUP),
        ("balances", SOUND_ID, SOUND_GROUP),
    ):
        engine.admin.create_topic(topic, partitions=2, schema=SCHEMA)
        _load(engine, topic, transactional_id, range(4))
        _read(engine, topic, group)
        engine.admin.snapshot(topic)
        _load(engine, topic, transactional_id, range(4, 7))


def _load(engine: Engine, topic: str, transactional_id: str, turns: range) -> None:
    with engine.producer(transactional_id=transactional_id) as producer:
        producer.init_transactions()
        for turn in turns:
            with producer.transaction():
                for partition in (0, 1):
                    producer.produce(topic, records(turn), partition=partition)


def _read(engine: Engine, topic: str, group: str) -> None:
    with engine.consumer(group_id=group) as consumer:
        consumer.subscribe([topic])
        consumer.poll(max_records=2)
        consumer.commit()


def accounts(engine: Engine, topic: str, partition: int | None = None) -> list[int]:
    """The accounts that a scan of a topic, or of one of its partitions, returns."""
    partitions = None if partition is None else [partition]
    return sorted(engine.scan(topic, partitions=partitions).to_table().column("account_id").to_pylist())


def offsets_of(engine: Engine, topic: str) -> dict[int, int]:
    """The log end of each partition that can be read."""
    found = engine.admin.list_offsets(topic)
    return {tp.partition: at.high_watermark for tp, at in found.items()}


# --- what is done -------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Damage:
    """A kind of damage.

    `names` are the places that cannot be read after it. `closed` are the places that can be read and written,
    but cannot get a snapshot. `codes` are the findings of `verify`.
    """

    do: Callable[[Path], None]
    names: frozenset[str] = frozenset()
    codes: frozenset[str] = frozenset()
    closed: frozenset[str] = frozenset()


def put(root: Path, key: str, content: bytes = b"not ours") -> None:
    path = os.path.join(os.fsencode(root), os.fsencode(key))
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "wb") as file:
        file.write(content)


def _put_all(root: Path) -> None:
    for key in STRAY_KEYS:
        put(root, key)


def overwrite(root: Path, pattern: str, content: bytes | None = GARBAGE, *, which: int = 0) -> None:
    """Put `content` into one of these files, or half of its present content if it is None. `which` is the
    file's number in order."""
    path = sorted(root.glob(pattern))[which]
    held = path.read_bytes()
    path.unlink()
    path.write_bytes(held[: len(held) // 2] if content is None else content)


def remove(root: Path, pattern: str, *, which: int = 0) -> None:
    sorted(root.glob(pattern))[which].unlink()


def every(root: Path, pattern: str, content: bytes = GARBAGE) -> None:
    for path in root.glob(pattern):
        path.unlink()
        path.write_bytes(content)


def _file_for_folder(root: Path, folder: str) -> None:
    shutil.rmtree(root / folder)
    (root / folder).write_bytes(b"a file")


def _moved_behind_a_link(root: Path, folder: str) -> None:
    elsewhere = root.with_name("elsewhere")
    (root / folder).rename(elsewhere)
    (root / folder).symlink_to(elsewhere)


def _fifo_for(root: Path, pattern: str, *, which: int = 0) -> None:
    path = sorted(root.glob(pattern))[which]
    path.unlink()
    os.mkfifo(path)


@contextmanager
def nested(folder: Path, name: str, levels: int) -> Iterator[None]:
    """Nest this many folders of that name below the folder, each in the one before, with a file in the last
    one.

    At the end `rm` removes them, because Python's own removals call themselves for each folder.
    """
    folder.mkdir(parents=True, exist_ok=True)
    at = os.open(folder, os.O_RDONLY)
    try:
        for _ in range(levels):
            os.mkdir(name, dir_fd=at)
            below = os.open(name, os.O_RDONLY, dir_fd=at)
            os.close(at)
            at = below
        os.close(os.open("file", os.O_CREAT | os.O_WRONLY, dir_fd=at))
        yield
    finally:
        os.close(at)
        subprocess.run(["rm", "-rf", folder / name], check=True)


STRAY_KEYS = (
    "topics/a b/log/x",
    "topics/@eaDir/payments/x",
    "topics/.DS_Store",
    "topics/lost+found/x",
    "topics/deep/er/and/deeper/x",
    "topics/new\nline\x1b[31m/x",
    "topics/percent%2Fslash%00/x",
    "topics/not-utf-8-\udcff\udcfe/x",
    "topics/a file",
    "topics/backup/0/0/x",
    "topics/__mine/0.json",
    "topics/payments/a b/x",
    "topics/payments/.DS_Store",
    "topics/payments/0.json.bak",
    "topics/payments/0/@eaDir/x",
    "topics/payments/0/999/x",
    "topics/payments/0/0/a b/x",
    "topics/payments/0/0/log/.DS_Store",
    "topics/payments/0/0/log/a b",
    "topics/payments/0/0/log/zzz",
    "topics/payments/0/0/log/@eaDir/x",
    "topics/payments/0/0/log/not-utf-8-\udcff",
    "topics/payments/0/0/data/.DS_Store",
    "topics/payments/0/0/data/a b",
    "topics/payments/0/0/snapshots/.DS_Store",
    "topics/payments/0/0/snapshots/a b",
    "topics/payments/0/0/snapshots/copy of 00000000000000000008.parquet",
    "topics/payments/0/0/snapshots/zzz/zzz",
    "topics/payments/0/partitions/x",
    "topics/__transaction_state/0/a b/log/x",
    "topics/__transaction_state/7/0/log/x",
    "topics/__consumer_offsets/0/0/log/a b",
    "producer_ids/a b",
    "producer_ids/.DS_Store",
    "producer_ids/zzz.json",
    "producer_ids/99999999999999999999.json",
    "producer_ids/00009223372036854775.json",
    "topics/payments/0/partitions/99999999999999999999.json",
    "topics/payments/0/changes/x",
    "topics/payments/0/changes/99999999999999999999.json",
    "settings/x",
    "lost+found/x",
    "a b",
)

KINDS: dict[str, Damage] = {
    "topic object, garbage": Damage(
        lambda root: overwrite(root, "topics/payments/0.json"),
        frozenset({"payments"}),
        frozenset({"object-damaged"}),
    ),
    "topic object, empty": Damage(
        lambda root: overwrite(root, "topics/payments/0.json", b""),
        frozenset({"payments"}),
        frozenset({"object-damaged"}),
    ),
    "topic object, cut": Damage(
        lambda root: overwrite(root, "topics/payments/0.json", None),
        frozenset({"payments"}),
        frozenset({"object-damaged"}),
    ),
    "topic object, missing": Damage(
        lambda root: remove(root, "topics/payments/0.json"),
        frozenset({"payments"}),
        frozenset({"object-missing"}),
    ),
    "tombstone, garbage": Damage(
        lambda root: put(root, "topics/payments/1.json", GARBAGE),
        frozenset({"payments"}),
        frozenset({"object-damaged"}),
    ),
    "growth, garbage": Damage(
        lambda root: put(root, f"topics/payments/0/partitions/{0:020d}.json", GARBAGE),
        frozenset({"payments"}),
        frozenset({"object-damaged"}),
    ),
    "topic change, garbage": Damage(
        lambda root: put(root, f"topics/payments/0/changes/{0:020d}.json", GARBAGE),
        frozenset({"payments"}),
        frozenset({"object-damaged"}),
    ),
    "last entry, garbage": Damage(
        lambda root: overwrite(root, "topics/payments/0/0/log/*", which=-1),
        frozenset({"payments-0"}),
        frozenset({"entry-damaged"}),
    ),
    "entry in the middle, cut": Damage(
        lambda root: overwrite(root, "topics/payments/0/0/log/*", None, which=-3),
        frozenset({"payments-0"}),
        frozenset({"entry-damaged"}),
    ),
    "entry in the middle, empty": Damage(
        lambda root: overwrite(root, "topics/payments/0/0/log/*", b"", which=-3),
        frozenset({"payments-0"}),
        frozenset({"entry-damaged"}),
    ),
    "all snapshots garbage, entry missing": Damage(
        lambda root: (
            every(root, "topics/payments/0/0/snapshots/*"),
            remove(root, "topics/payments/0/0/log/*", which=-3),
        )[0],
        frozenset({"payments-0"}),
        frozenset({"entry-missing"}),
    ),
    "coordinator's last entry, garbage": Damage(
        lambda root: overwrite(root, f"topics/{TRANSACTION_STATE_TOPIC}/0/{HURT_HOME}/log/*", which=-1),
        frozenset({COORDINATOR}),
        frozenset({"entry-damaged"}),
    ),
    "coordinator's entry in the middle, empty": Damage(
        lambda root: overwrite(root, f"topics/{TRANSACTION_STATE_TOPIC}/0/{HURT_HOME}/log/*", b"", which=-4),
        frozenset({COORDINATOR}),
        frozenset({"entry-damaged"}),
    ),
    "groups' entry, garbage": Damage(
        lambda root: overwrite(root, f"topics/{CONSUMER_OFFSETS_TOPIC}/0/{HURT_GROUP_HOME}/log/*"),
        frozenset({GROUPS}),
        frozenset({"entry-damaged"}),
    ),
    "a file for the folder of a log": Damage(
        lambda root: _file_for_folder(root, "topics/payments/0/0/log"),
        frozenset({"payments-0"}),
        frozenset({"object-damaged"}),
    ),
    "a file for the folder of the snapshots": Damage(
        lambda root: _file_for_folder(root, "topics/payments/0/0/snapshots"),
        codes=frozenset({"object-damaged"}),
        closed=frozenset({"payments-0"}),
    ),
    "a link for the folder of a topic": Damage(
        lambda root: _moved_behind_a_link(root, "topics/payments"),
        frozenset({"payments"}),
        frozenset({"object-damaged"}),
    ),
    "a FIFO for a topic object": Damage(
        lambda root: _fifo_for(root, "topics/payments/0.json"),
        frozenset({"payments"}),
        frozenset({"object-damaged"}),
    ),
    "a FIFO for an entry in the middle": Damage(
        lambda root: _fifo_for(root, "topics/payments/0/0/log/*", which=-3),
        frozenset({"payments-0"}),
        frozenset({"entry-damaged"}),
    ),
    "a FIFO for a snapshot": Damage(
        lambda root: _fifo_for(root, "topics/payments/0/0/snapshots/*", which=-1),
        codes=frozenset({"snapshot-damaged"}),
    ),
    "newest snapshot, garbage": Damage(
        lambda root: overwrite(root, "topics/payments/0/0/snapshots/*", which=-1),
        codes=frozenset({"snapshot-damaged"}),
    ),
    "all snapshots, empty": Damage(
        lambda root: every(root, "topics/payments/0/0/snapshots/*", b""),
        codes=frozenset({"snapshot-damaged"}),
    ),
    "all stray keys at once": Damage(_put_all, codes=frozenset({"object-foreign"})),
    "block of producer ids, garbage": Damage(
        lambda root: overwrite(root, "producer_ids/*"), codes=frozenset({"object-damaged"})
    ),
}
DAMAGED = TopicPartition("payments", 0)
