"""`txn-engine erase` works as a person types it."""

from __future__ import annotations

import json
import os
import tempfile
import time
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

import txn_engine
from storage.scratch import ScratchFolder
from tests.erasing.persons import PERSON, SCHEMA, TOPIC, WHERE, objects_with, rows
from txn_engine import RenameColumn
from txn_engine.cli.main import cli


@pytest.fixture
def url(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    url = f"file://{tmp_path}/store"
    monkeypatch.setenv("TXN_ENGINE_URL", url)
    with txn_engine.connect(url) as engine:
        engine.admin.create_topic(TOPIC, partitions=1, schema=SCHEMA)
        with engine.producer() as producer:
            producer.produce(TOPIC, rows(1, PERSON, 2)).result()
            producer.produce(TOPIC, rows(3)).result()
    return url


def run(*arguments: str, stdin: str | None = None) -> Result:
    return CliRunner().invoke(cli, ["erase", *arguments], input=stdin)


def test_shown_then_done(url: str, tmp_path: Path) -> None:
    """The topic may be an option or an argument, and the report may be JSON. A backup that holds some records
    is named, and the exit code shows that."""
    with txn_engine.connect(url) as engine:
        engine.backup(f"file://{tmp_path}/backups")
        store = engine.store
    shown = run("--topic", TOPIC, "--where", WHERE)
    assert (shown.exit_code, "nothing was changed" in shown.output) == (0, True)
    assert f"1 of the 4 records of topic {TOPIC} would be erased" in shown.output
    assert len(objects_with(store)) == 1
    done = run(TOPIC, "--where", "-", "--execute", "--backup", f"file://{tmp_path}/backups", stdin=WHERE)
    assert done.exit_code == 1
    assert "backup 0 in" in done.output
    assert str(PERSON) not in done.output
    assert objects_with(store) == []
    again = json.loads(run("--topic", TOPIC, "--where", WHERE, "--execute", "--json").stdout)
    assert (again["records"], again["erasures"], again["is_complete"]) == (0, [], True)


def test_all_that_goes_with_it_is_told(url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The report names everything that goes too, before and after: a table that cannot be published, the
    earlier topic, and the files of a killed writer."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with txn_engine.connect(url) as engine:
        engine.admin.delete_topic(TOPIC)
        engine.admin.create_topic(TOPIC, partitions=1, schema=SCHEMA)
        engine.partition(TOPIC, 0).append(rows(1, PERSON))
        engine.tables.publish(TOPIC, "delta")
        engine.admin.alter_topic(TOPIC, RenameColumn("name", "full_name"))
    another = ScratchFolder("query", parent=tmp_path)
    (another.path / "rows").write_bytes(b"of another program")
    left = tmp_path / "store" / ".tmp" / "put-0123456789ab-1-1-0"
    left.write_bytes(b"of somebody")
    os.utime(left, (time.time() - 61,) * 2)
    for done, told in (
        ([], ("it would go whole", "would be withdrawn", "killed would go")),
        (["--execute"], ("it is gone whole", "was withdrawn", "killed are gone")),
    ):
        shown = run("--topic", TOPIC, "--where", WHERE, *done)
        assert shown.exit_code == 0
        assert all(words in shown.output for words in told)
        assert "incarnation 0 of the topic, deleted" in shown.output
        assert left.exists() is not bool(done)
        assert (str(another.path) in shown.output) is bool(done), (
            "a preview names no folder of another program"
        )
    another.close()
    again = json.loads(run("--topic", TOPIC, "--where", WHERE, "--execute", "--json").stdout)
    assert (again["former"], again["withdrawn"], again["leftovers"]["gone"]) == ([], {}, 0)


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["--where", WHERE], 2),
        (["--topic", TOPIC, TOPIC, "--where", WHERE], 2),
        (["--topic", TOPIC], 2),
        (["--topic", "nobody", "--where", WHERE], 1),
        (["--topic", TOPIC, "--where", "account_id > 0", "--execute"], 1),
        (["--topic", TOPIC, "--where", WHERE, "--backup", "file:///nowhere"], 1),
        (["--topic", TOPIC, "--where", "account_id = '\udcff'"], 1),
    ],
)
@pytest.mark.usefixtures("url")
def test_bad_calls(arguments: list[str], code: int) -> None:
    """A bad call is a usage error or an error of the engine, and not an internal one."""
    answer = run(*arguments)
    assert answer.exit_code == code
    assert "inside txn-engine" not in answer.output


@pytest.mark.usefixtures("url")
def test_a_condition_on_stdin_that_is_not_utf_8() -> None:
    answer = CliRunner().invoke(cli, ["erase", TOPIC, "--where", "-"], input=b"account_id = '\xff'")
    assert (answer.exit_code, "a condition that is not UTF-8" in answer.output) == (1, True)
