"""Commands that remove something for good, or that move a group, show what they would do until `--execute` is there."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from storage import ObjectStore, open_store
from tests.cli.conftest import Run
from txn_engine import Engine
from txn_engine.cli.main import cli
from txn_engine.cli.output import PREVIEWED as PREVIEW_NOTE

PREVIEWED = {
    "erase": ("erase", "--topic", "payments", "--where", "id = 1"),
    "backup prune": ("backup", "prune", "{backups}", "--keep", "1"),
    "groups reset-offsets": ("groups", "reset-offsets", "audit", "--all-topics", "--to-earliest"),
    "groups delete": ("groups", "delete", "audit"),
    "groups expire-offsets": ("groups", "expire-offsets", "--retention-minutes", "0"),
    "tables unpublish": ("tables", "unpublish", "payments"),
    "cuts delete": ("cuts", "delete", "0"),
    "new-store-id": ("new-store-id", "--watch", "0"),
    "topics delete": ("topics", "delete", "payments"),
}
"""Each command with a call that has something to do."""
AT_ONCE = ("maintain compact", "maintain retention", "maintain clean", "transactions abort")
"""These do what the settings or the coordinator's rules ask for, and have `--dry-run`."""


def commands(group: click.Group, path: str = "") -> Iterator[tuple[str, click.Command]]:
    """Every command below a group, by its whole name."""
    for name, command in group.commands.items():
        if isinstance(command, click.Group):
            yield from commands(command, f"{path}{name} ")
        yield f"{path}{name}", command


def objects(*stores: ObjectStore) -> dict[tuple[str, str], bytes]:
    """Every object of these stores."""
    return {
        (store.url, found.key): bytes(store.get(found.key)) for store in stores for found in store.list("")
    }


def test_one_spelling() -> None:
    """All commands that remove or move have `--execute` and `--dry-run`, and no other command removes at once."""
    options = {
        name: {option for parameter in command.params for option in parameter.opts}
        for name, command in commands(cli)
    }
    for name in PREVIEWED:
        assert {"--execute", "--dry-run"} <= options[name], name
    for name in AT_ONCE:
        assert options[name] & {"--execute", "--dry-run"} == {"--dry-run"}, name
    verbs = {"new-store-id", "delete", "prune", "unpublish", "erase", "reset-offsets", "expire-offsets"}
    assert {name for name in options if name.split()[-1] in verbs} == set(PREVIEWED)


@pytest.fixture
def filled(run: Run, engine: Engine, payments: str, good: Path, tmp_path: Path) -> str:
    """A store in which each of the commands has something to do, and where its backups are."""
    assert run("produce", payments, str(good), "--partition", "0").code == 0
    assert run("consume", payments, "--group", "audit", "--format", "jsonl").code == 0
    engine.tables.publish(payments, "delta")
    backups = f"file://{tmp_path}/backups"
    for _ in range(2):
        engine.backup(backups)
    return backups


@pytest.mark.parametrize("name", PREVIEWED)
def test_shown_then_done(run: Run, engine: Engine, filled: str, name: str) -> None:
    """Without `--execute`, and with `--dry-run`, the command writes nothing; with `--execute` it does."""
    call = [word.format(backups=filled) for word in PREVIEWED[name]]
    store = "" if name.startswith("backup") else None
    stores = (engine.store, open_store(filled))
    before = objects(*stores)
    for preview in ((), ("--dry-run",)):
        shown = run(*call, *preview, store=store)
        assert (shown.code, shown.stderr.splitlines()[-1]) == (0, PREVIEW_NOTE), shown.stderr
        assert run(*call, *preview, "--json", store=store).json["executed"] is False
        assert objects(*stores) == before
    assert run(*call, "--execute", "--dry-run", store=store).code == 2
    done = run(*call, "--execute", "--json", store=store)
    assert (done.code, done.json["executed"]) == (0, True), done.stderr
    assert objects(*stores) != before
