"""A full disk, and too many open files: what a producer says, and how soon."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from storage import LocalStore
from storage.reasons import StoreReason
from tests.engine.conftest import SCHEMA, payments
from txn_engine import Engine
from txn_engine.backup import prune
from txn_engine.clock import Waiting
from txn_engine.errors import StoreAccessError, StoreFaultError
from txn_engine.producer import Producer
from txn_engine.quality.report_files import write_whole


class Disk:
    """The room of a disk, in objects. `pauses` are those that the engine made."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.objects_left = 1_000
        self.errno = errno.ENOSPC
        self.pauses: list[int] = []
        write = os.write

        def written(descriptor: int, data: bytes) -> int:
            if self.objects_left <= 0:
                raise OSError(self.errno, os.strerror(self.errno))
            self.objects_left -= 1
            return write(descriptor, data)

        monkeypatch.setattr(os, "write", written)


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Disk:
    return Disk(monkeypatch)


@pytest.fixture
def producer(disk: Disk, tmp_path: Path) -> Iterator[Producer]:
    waiting = Waiting(pause_ms=disk.pauses.append)
    with Engine(LocalStore(tmp_path / "store"), waiting=waiting) as engine:
        engine.admin.create_topic("payments", schema=SCHEMA, partitions=2)
        with engine.producer(transactional_id="bank") as producer:
            producer.init_transactions()
            yield producer
            disk.objects_left = 1_000


def no_room(call: Callable[[], object]) -> None:
    with pytest.raises(StoreFaultError) as caught:
        call()
    assert caught.value.reason is StoreReason.NO_ROOM
    assert caught.value.code == "KAFKA_STORAGE_ERROR"
    assert caught.value.retry_helps


@pytest.mark.parametrize("left", [1, 2], ids=["no marker", "no Complete row"])
def test_a_full_disk_ends_an_abort_at_once(producer: Producer, disk: Disk, left: int) -> None:
    """If the last transaction could not be completed because the disk is full, the next one's calls say so at once.
    They do not ask for 30 seconds, and do not report a time-out. With room again the producer goes on.
    """
    producer.begin_transaction()
    producer.produce("payments", payments(1), partition=0).result()
    disk.objects_left = left
    producer.commit_transaction()
    producer.begin_transaction()
    no_room(producer.produce("payments", payments(2), partition=1).result)
    no_room(producer.abort_transaction)
    assert sum(disk.pauses) < 1_000
    disk.objects_left = 1_000
    producer.abort_transaction()
    producer.begin_transaction()
    producer.produce("payments", payments(3), partition=1)
    producer.commit_transaction()


@pytest.mark.parametrize(
    ("number", "reason"),
    [
        (errno.ENOSPC, StoreReason.NO_ROOM),
        (errno.EDQUOT, StoreReason.NO_ROOM),
        (errno.EROFS, StoreReason.READ_ONLY),
    ],
)
def test_a_disk_that_takes_nothing_is_no_refusal(
    producer: Producer, disk: Disk, number: int, reason: StoreReason
) -> None:
    """On a full disk, beyond a quota and on a read-only mount a producer names the disk, and not its own rights."""
    producer.begin_transaction()
    disk.errno, disk.objects_left = number, 0
    with pytest.raises(StoreFaultError) as caught:
        producer.produce("payments", payments(1), partition=0).result()
    assert (caught.value.code, caught.value.reason) == ("KAFKA_STORAGE_ERROR", reason)
    disk.objects_left = 1_000
    producer.abort_transaction()


def test_too_many_open_files_is_no_refusal(
    producer: Producer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process with too many open files gets an error of the machine, and not one of authorization."""
    open_ = os.open

    def opened(path: str, *arguments: int) -> int:
        if str(path).startswith(str(tmp_path)):
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        return open_(path, *arguments)

    producer.begin_transaction()
    with monkeypatch.context() as patch:
        patch.setattr(os, "open", opened)
        with pytest.raises(StoreAccessError) as caught:
            producer.produce("payments", payments(1), partition=0).result()
    assert type(caught.value) is StoreFaultError
    assert caught.value.reason is StoreReason.TOO_MANY_OPEN_FILES
    producer.abort_transaction()


def test_a_clean_up_makes_room_on_a_full_disk(disk: Disk, tmp_path: Path) -> None:
    """It needs none itself: the disk says its time without a probe, and deletes what is not needed."""
    with Engine(LocalStore(tmp_path / "store")) as engine:
        engine.admin.create_topic("payments", schema=SCHEMA)
        for _ in range(4):
            engine.partition("payments", 0).append(payments(1))
            engine.admin.snapshot()
        for old in sorted((tmp_path / "store/topics/payments/0/0/snapshots").iterdir()):
            os.utime(old, (0, 0))
        disk.objects_left = 0
        (cleaned,) = engine.maintenance.clean().partitions
        assert cleaned.snapshots == 1
        no_room(lambda: engine.partition("payments", 0).append(payments(1)))


def test_a_full_disk_that_cannot_take_the_end_of_a_cut(disk: Disk, tmp_path: Path) -> None:
    """A cut that has expired is deleted by an object that says so. Without room for it the rest of the clean-up goes
    on, and at last it says that there is no room.
    """
    with Engine(LocalStore(tmp_path / "store")) as engine:
        engine.admin.create_topic("payments", schema=SCHEMA)
        cut = engine.cut(keep_ms=1)
        made = tmp_path / f"store/cuts/{cut.number:020d}/cut.json"
        os.utime(made, (0, 0))
        for _ in range(4):
            engine.partition("payments", 0).append(payments(1))
            engine.admin.snapshot()
        for old in sorted((tmp_path / "store/topics/payments/0/0/snapshots").iterdir()):
            os.utime(old, (0, 0))
        disk.objects_left = 0
        no_room(engine.maintenance.clean)
        assert len(list((tmp_path / "store/topics/payments/0/0/snapshots").iterdir())) == 3
        disk.objects_left = 1_000
        engine.maintenance.clean()
        assert engine.cuts() == []


def test_a_prune_on_a_full_disk_says_what_to_do(disk: Disk, tmp_path: Path) -> None:
    """It begins with an object that says which backups stay, and removes nothing without it."""
    place = LocalStore(tmp_path / "backups")
    with Engine(LocalStore(tmp_path / "store")) as engine:
        engine.admin.create_topic("payments", schema=SCHEMA)
        for _ in range(2):
            engine.partition("payments", 0).append(payments(1))
            engine.backup(place)
    kept = sorted(each.key for each in place.list(""))
    disk.objects_left = 0
    no_room(lambda: prune(place, keep=1, execute=True))
    assert sorted(each.key for each in place.list("")) == kept
    disk.objects_left = 1_000
    assert prune(place, keep=1, execute=True).removed == (0,)


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
def test_a_report_on_a_full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(Path, "write_text", full)
    no_room(lambda: write_whole(tmp_path / "index.html", "", actor="quality run"))
