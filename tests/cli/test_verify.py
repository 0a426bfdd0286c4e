"""`verify` has exit code 1 if it has findings, each with the key of its object."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.conftest import Run


@pytest.fixture
def ledger(run: Run, tmp_path: Path, good: Path) -> str:
    """A ledger on disk with a committed load and snapshots."""
    store = f"file://{tmp_path}/ledger"
    schema = "id:int64,account_id:int64,day:date32,amount:decimal(18,2),note:string?"
    assert run("topics", "create", "payments", "--schema", schema, store=store).code == 0
    assert run("produce", "payments", str(good), "--transactional-id", "load", store=store).code == 0
    assert run("coordinator", "snapshot", store=store).code == 0
    return store


def test_a_sound_ledger(run: Run, ledger: str) -> None:
    """A sound ledger has exit code 0, and `verify` shows the numbers of what was read."""
    answer = run("verify", store=ledger)
    assert answer.code == 0
    assert answer.stdout.startswith(f"no errors in {ledger}: ")
    assert "3 committed records" in answer.stdout
    report = run("verify", "--json", store=ledger).json
    assert (report["ok"], report["findings"]) == (True, [])
    assert report["stats"]["transactions"] == {"CompleteCommit": 1}


@pytest.mark.parametrize(
    ("arguments", "topics", "contents"),
    [((), None, True), (("--topic", "payments"), ["payments"], True), (("--no-data",), None, False)],
)
def test_what_was_looked_at(
    run: Run, ledger: str, arguments: tuple[str, ...], topics: list[str] | None, contents: bool
) -> None:
    """A report about a part of the store does not read as one about the whole store."""
    text = run("verify", *arguments, store=ledger).stdout
    assert text.startswith(f"no errors in {ledger}: ") == (not arguments)
    looked_at = run("verify", *arguments, "--json", store=ledger).json["looked_at"]
    assert looked_at == {"topics": topics, "contents_of_data_files": contents}


@pytest.mark.parametrize("kind", ["log", "data", "snapshots"])
def test_one_changed_byte_is_found(run: Run, ledger: str, tmp_path: Path, kind: str) -> None:
    """One changed byte in an entry, a data file or a snapshot is a finding with the key of the object."""
    path = min((tmp_path / "ledger" / "topics" / "payments" / "0" / "0" / kind).glob("*.parquet"))
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    key = str(path.relative_to(tmp_path / "ledger"))
    answer = run("verify", store=ledger)
    assert answer.code == 1
    assert answer.stderr == ""
    assert key in answer.stdout
    report = run("verify", "--json", store=ledger)
    assert report.code == 1
    assert key in {finding["object"] for finding in report.json["findings"]}


def test_a_damaged_data_file_stops_its_reader(run: Run, ledger: str, tmp_path: Path) -> None:
    """The error names the object, no record is printed, and the group does not move."""
    (path,) = (tmp_path / "ledger" / "topics" / "payments" / "0" / "0" / "data").glob("*.parquet")
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    answer = run("consume", "payments", "--group", "g", "--format", "jsonl", store=ledger)
    assert (answer.code, answer.stdout) == (1, "")
    assert answer.error_code == "CORRUPT_MESSAGE"
    assert path.name in answer.error
    assert run("groups", "list", "--json", store=ledger).json == {"groups": []}


def test_a_place_without_a_ledger_fails(run: Run, tmp_path: Path) -> None:
    """`verify` fails on an empty folder and on a missing one."""
    (tmp_path / "empty").mkdir()
    assert run("verify", store=f"file://{tmp_path}/empty").code == 1
    assert run("verify", store=f"file://{tmp_path}/none").code == 1


def test_only_some_topics(run: Run, ledger: str) -> None:
    """`verify --topic` reads the named topic, and an unknown topic is an error."""
    assert run("verify", "--topic", "payments", "--no-data", store=ledger).code == 0
    assert run("verify", "--topic", "nope", store=ledger).error_code == "UNKNOWN_TOPIC_OR_PARTITION"


def test_a_finding_says_everything(run: Run, ledger: str, tmp_path: Path) -> None:
    """A finding has the object, offsets, owner, time, what was seen and expected, and what to do. In JSON
    they have fixed names."""
    folder = tmp_path / "ledger" / "topics" / "payments" / "0" / "0" / "log"
    first, marker = sorted(folder.glob("*.parquet"))
    marker.with_name(f"{int(marker.stem) + 1:020d}.parquet").write_bytes(first.read_bytes())
    (finding,) = run("verify", "--json", store=ledger).json["findings"]
    assert finding["code"] == "entry-misnamed"
    assert finding["offsets"] == [4, 4]
    assert list(finding) == [
        "code",
        "severity",
        "object",
        "topic",
        "partition",
        "offsets",
        "producer_id",
        "transactional_id",
        "since_ms",
        "since",
        "seen",
        "expected",
        "action",
    ]


def test_explain(run: Run) -> None:
    """`verify --explain` has the meaning of every finding, or of the named one, and needs no store."""
    every = run("verify", "--explain", "--json", store="")
    assert every.code == 0
    codes = {row["code"] for row in every.json["findings"]}
    assert {"entry-missing", "seal-illegal", "transaction-pending"} <= codes
    one = run("verify", "--explain", "entry-missing", store="")
    assert "A slot of the log is empty" in one.stdout
    assert "entry-damaged" not in one.stdout
    unknown = run("verify", "--explain", "entry-lost", store="")
    assert (unknown.code, "entry-missing" in unknown.error) == (2, True)


def test_the_next_audit_reads_what_is_new(run: Run, ledger: str, tmp_path: Path) -> None:
    """It reports how many objects are unchanged. `--whole` reads everything."""
    folder = str(tmp_path / "audit")
    first = run("verify", "--state", folder, store=ledger)
    assert first.code == 0
    assert "everything was read: there was no audit before" in first.stdout
    kept = run("verify", "--state", folder, "--json", store=ledger).json["stats"]
    whole = run("verify", "--state", folder, "--whole", "--json", store=ledger).json["stats"]
    assert kept["objects"] < whole["objects"]
    assert (whole["unchanged"], whole["whole_for"]) == (0, "that was asked for")
    assert kept["unchanged"] > 0
    assert (
        "further objects are as the last audit read them"
        in run("verify", "--state", folder, store=ledger).stdout
    )


def test_damage_since_the_last_audit_is_found(run: Run, ledger: str, tmp_path: Path) -> None:
    """A data file that has changed since the last audit is read again."""
    folder = str(tmp_path / "audit")
    assert run("verify", "--state", folder, store=ledger).code == 0
    (path,) = (tmp_path / "ledger" / "topics" / "payments" / "0" / "0" / "data").glob("*.parquet")
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    answer = run("verify", "--state", folder, store=ledger)
    assert answer.code == 1
    assert "data-file-damaged" in answer.stdout


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        (["--whole"], "--whole says what to do with what is kept: it needs --state FOLDER"),
        (["--state", "{}", "--no-data"], "not with --topic or --no-data"),
        (["--state", "{}", "--topic", "payments"], "not with --topic or --no-data"),
        (["--processes", "-1"], "-1 is not in the range"),
    ],
)
def test_what_cannot_be_asked_together(
    run: Run, ledger: str, tmp_path: Path, asked: list[str], told: str
) -> None:
    """Options that exclude each other are a usage error, and nothing is audited."""
    answer = run("verify", *(each.replace("{}", str(tmp_path / "audit")) for each in asked), store=ledger)
    assert (answer.code, answer.stdout) == (2, "")
    assert told in answer.error
    assert not (tmp_path / "audit").exists()


def test_a_folder_that_others_can_write_to_is_refused(run: Run, ledger: str, tmp_path: Path) -> None:
    """The audit refuses the folder, because it would believe its contents."""
    folder = tmp_path / "audit"
    folder.mkdir()
    folder.chmod(0o777)
    answer = run("verify", "--state", str(folder), store=ledger)
    assert (answer.code, answer.stdout) == (1, "")
    assert answer.error_code == "INVALID_REQUEST"
