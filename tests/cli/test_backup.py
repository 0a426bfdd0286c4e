"""`backup` and `restore`: what they print for people and as JSON, and how they fail."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.conftest import Run
from txn_engine import connect


@pytest.fixture
def backed_up(run: Run, payments: str, good: Path, tmp_path: Path) -> str:
    """The URL of a place with one backup of three payments."""
    url = f"file://{tmp_path}/backups"
    assert run("produce", payments, str(good), "--partition", "0").code == 0
    made = run("backup", "--to", url)
    assert made.code == 0, made.stderr
    assert made.stdout.startswith("made backup 0 at cut 0: 1 new data files of 1, ")
    return url


def test_a_store_is_backed_up_listed_verified_and_restored(run: Run, backed_up: str, tmp_path: Path) -> None:
    """`backup`, `backup list`, `backup verify` and `restore` work together, for people and as JSON."""
    again = run("backup", "--to", backed_up, "--json").json
    assert (again["backup"], again["new_files"], again["files"]) == (1, 0, 1)
    lines = [line.split() for line in run("backup", "list", backed_up, store="").stdout.splitlines()]
    assert lines[0] == ["BACKUP", "CREATED", "CUT", "TOPICS", "FILES", "BYTES", "NEW-FILES", "NEW-BYTES"]
    assert [line[0] for line in lines[1:]] == ["0", "1"]
    found = run("backup", "list", backed_up, "--json", store="").json
    assert [each["topics"] for each in found["backups"]] == [["payments"], ["payments"]]
    ends = run("cuts", "create", "--json").json["number"]
    assert found["backups"][1]["offsets"] == run("cuts", "describe", str(ends), "--json").json["offsets"]
    assert found["damaged"] == []
    read = run("backup", "verify", backed_up, "--number", "0", store="")
    assert (read.code, read.stdout.split(",")[0]) == (0, "all 3 objects are whole")
    target = f"file://{tmp_path}/restored"
    made = run("restore", "--from", backed_up, "--json", store=target).json
    assert (made["backup"], made["url"], made["topics"]) == (1, target, ["payments"])
    assert run("verify", store=target).code == 0
    assert "restored from cut 1 of store" in run("doctor", store=target).stdout
    records = run("consume", "payments", "--from-beginning", "--format", "jsonl", store=target)
    assert len(records.stdout.splitlines()) == 3


def test_the_doctor_knows_a_place_of_backups(run: Run, backed_up: str) -> None:
    """The doctor says which backups a place has, and fails if the newest lacks an object or a manifest is damaged."""
    sound = run("doctor", "--json", store=backed_up)
    found = {check["check"]: check for check in sound.json["checks"]}
    assert (sound.code, found["backups"]["status"], found["put-if-absent"]["status"]) == (0, "ok", "ok")
    assert "ledger" not in found
    place = Path(backed_up.removeprefix("file://"))
    for kind, damage in (
        ("**/*.parquet", lambda path: path.unlink()),
        ("backups/*.json", lambda path: path.write_bytes(b"garbage")),
    ):
        for path in sorted(place.glob(kind)):
            whole = path.read_bytes()
            path.chmod(0o600)
            damage(path)
            answer = run("doctor", "--json", store=backed_up)
            (check,) = [each for each in answer.json["checks"] if each["check"] == "backups"]
            assert (answer.code, check["status"]) == (1, "failed")
            assert path.name in check["seen"]
            path.write_bytes(whole)
    assert run("doctor", store=backed_up).code == 0


def test_old_backups_are_removed(run: Run, payments: str, good: Path, backed_up: str) -> None:
    """`prune` tells what it would remove, and removes it with --execute."""
    assert run("produce", payments, str(good), "--partition", "0").code == 0
    assert run("backup", "--to", backed_up).code == 0
    told = run("backup", "prune", backed_up, "--keep", "1", store="")
    assert (told.code, told.stdout.split(";")[1].strip()) == (0, "backup 1 stays")
    assert told.stdout.startswith("would remove backup 0 and 1 objects, ")
    assert "add --execute" in told.stderr
    assert run("backup", "prune", backed_up, "--older-than", "1", "--json", store="").json["removed"] == []
    done = run("backup", "prune", backed_up, "--older-than", "0", "--execute", "--json", store="").json
    assert (done["executed"], done["removed"], done["kept"], done["objects"]) == (True, [0], [1], 1)
    assert [
        each["backup"] for each in run("backup", "list", backed_up, "--json", store="").json["backups"]
    ] == [1]
    again = run("backup", "prune", backed_up, "--keep", "1", "--execute", store="")
    assert again.stdout == "removed no backup and 0 objects, 0 bytes; backup 1 stays\n"
    gone = run("backup", "verify", backed_up, "--number", "0", "--json", store="")
    assert gone.error_reason == "backup_not_found"
    for wrong in ((), ("--keep", "0"), ("--older-than", "-1")):
        assert run("backup", "prune", backed_up, *wrong, store="").code == 2


def test_damage_is_named(run: Run, backed_up: str, tmp_path: Path) -> None:
    """The damaged object is named by `verify`, `restore` and `list`, and a half restored store cannot be opened."""
    (file,) = (tmp_path / "backups").rglob("data/*.parquet")
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    file.chmod(0o600)
    file.write_bytes(data)
    read = run("backup", "verify", backed_up, store="")
    assert read.code == 1
    assert file.name in read.stderr
    assert read.stdout.startswith("1 of 3 objects is damaged")
    (named,) = run("backup", "verify", backed_up, "--json", store="").json["damaged"]
    assert file.name in named
    refused = run("restore", "--from", backed_up, store=f"file://{tmp_path}/restored")
    assert (refused.code, file.name in refused.error) == (1, True)
    opened = run("topics", "list", "--json", store=f"file://{tmp_path}/restored")
    assert opened.error_reason == "restore_unfinished"
    half = run("doctor", store=f"file://{tmp_path}/restored")
    assert (half.code, "whose restore was cut off" in half.stdout) == (1, True)
    (manifest,) = (tmp_path / "backups" / "backups").iterdir()
    manifest.chmod(0o600)
    manifest.write_bytes(b"{}")
    listed = run("backup", "list", backed_up, store="")
    assert (listed.code, manifest.name in listed.error) == (1, True)


def test_wrong_calls(run: Run, backed_up: str, tmp_path: Path) -> None:
    """Each wrong call fails with one line, with a code and, as JSON, a reason."""
    nowhere = f"file://{tmp_path}/nowhere"
    assert run("backup").code == 2
    assert run("backup", "--to", backed_up, "--cut", "9", "--json").error_reason == "cut_not_found"
    missing = "STORE_NOT_FOUND"
    assert run("backup", "list", nowhere, store="").error_code == missing
    assert run("restore", "--from", nowhere, store=f"file://{tmp_path}/new").error_code == missing
    unknown = run("backup", "verify", backed_up, "--number", "7", store="")
    assert "there is no backup 7" in unknown.error
    assert unknown.error_code == "INVALID_REQUEST"
    assert run("restore", store=f"file://{tmp_path}/new").code == 2
    for place in (backed_up, f"{backed_up}/below"):
        full = run("restore", "--from", backed_up, "--json", store=place)
        assert full.error_reason == "places_overlap"
    assert run("backup", "everything").code == 2


def test_a_place_in_the_store_is_refused_and_leaves_nothing(run: Run, backed_up: str, tmp_path: Path) -> None:
    """A backup inside its store and a store inside its backups are refused, and no folder is created."""
    backups, store = tmp_path / "backups", tmp_path / "places" / "ledger"
    store.parent.mkdir()
    with connect(f"file://{store}") as engine:
        engine.admin.create_topic("payments")
    for place in (f"file://{store}/inside", str(store / "inside"), str(store.parent)):
        refused = run("backup", "--to", place, "--json", store=str(store))
        assert refused.error_reason == "places_overlap"
    before = sorted(backups.iterdir())
    below = run("restore", "--from", backed_up, "--json", store=f"{backed_up}/below")
    assert below.error_reason == "places_overlap"
    assert sorted(backups.iterdir()) == before
    assert not (store / "inside").exists()


def test_the_endpoint_of_backups(monkeypatch: pytest.MonkeyPatch) -> None:
    """The option decides first, then the variable for backups, then the store's endpoint if both are of one
    kind, then the kind's variable."""
    from storage import BucketStore
    from txn_engine.cli.backup import open_backups
    from txn_engine.cli.command import Place

    def server(url: str, endpoint: str | None, place: Place | None) -> str | None:
        settings = {"AZURE_STORAGE_ACCOUNT_NAME": "ledger", "TXN_ENGINE_AZURE_ENDPOINT": "http://azure"}
        for name, value in settings.items():
            monkeypatch.setenv(name, value)
        store = open_backups(url, endpoint, place, create=False)
        assert isinstance(store, BucketStore)
        return store.server

    place = Place("s3://ledger", "http://store")
    monkeypatch.setenv("TXN_ENGINE_S3_ENDPOINT", "http://environment")
    assert server("s3://backups", None, None) == "http://environment"
    assert server("s3a://backups", None, place) == "http://store"
    assert server("az://backups", None, place) == "http://azure"
    monkeypatch.setenv("TXN_ENGINE_BACKUP_S3_ENDPOINT", "http://backups")
    assert server("s3://backups", None, place) == "http://backups"
    assert server("az://backups", None, place) == "http://azure"
    assert server("s3://backups", "http://option", place) == "http://option"
