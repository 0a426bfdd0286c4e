"""Every command on a bucket of every setting, on a real MinIO, does what docs/BUCKETS.md says."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from tests.buckets.commands import COMMANDS, HAVE_NO_JSON, Seen, run
from tests.buckets.expected import EXPECTED, NOTES, note_of
from tests.buckets.places import Place, backups_are_whole, logs_are_sound
from tests.buckets.settings import SETTINGS
from tests.suite.tiers import in_shard
from tests.support.servers import MinioServer

pytestmark = pytest.mark.minio

_IN_MAKE_TEST = ("plain", "compliance", "quota", "read_only", "no_delete", "no_list", "unknown_ca")


@pytest.fixture(autouse=True)
def bare_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """The commands see no store, no keys and no proxy but those of the row."""
    for name in list(os.environ):
        if name.startswith(("AWS_", "TXN_ENGINE_S3", "TXN_ENGINE_URL", "TXN_ENGINE_BACKUP", "SSL_CERT")):
            monkeypatch.delenv(name)
        if name.lower() in ("http_proxy", "https_proxy", "all_proxy", "no_proxy"):
            monkeypatch.delenv(name)


@pytest.mark.parametrize("setting", in_shard("engines", SETTINGS, keep=_IN_MAKE_TEST))
def test_a_row(minio_server: MinioServer, tmp_path: Path, setting: str) -> None:
    """Each command works, warns or is refused as the row says. What worked is there. In the end the log is
    sound, and the newest backup whole."""
    place = Place(minio_server, tmp_path)
    wrong = {}
    with SETTINGS[setting].made(place):
        for command, case in COMMANDS.items():
            seen, written = run(command, place)
            note = note_of(setting, command)
            if seen != _expected(note, command):
                wrong[command] = (seen, written)
            elif seen.exit_code == 0 and not case.is_right(place):
                wrong[command] = ("exit code 0, but what it promises is not there", written)
            elif bool(place.injected) != (note in (SETTINGS[setting].injects or ())):
                wrong[command] = (f"{place.injected} answers were injected", written)
        assert wrong == {}
    assert logs_are_sound(place)
    assert backups_are_whole(place)


def _expected(note: str | None, command: str) -> Seen:
    seen = Seen(0) if note is None else NOTES[note].seen
    return replace(seen, reason="") if command in HAVE_NO_JSON else seen


def test_every_note_is_used() -> None:
    """The table names settings, commands and notes that exist, and every note."""
    used = {note for row in EXPECTED.values() for note in row.values()}
    assert (used, EXPECTED.keys() - SETTINGS.keys()) == (set(NOTES), set())
    assert {command for row in EXPECTED.values() for command in row} <= COMMANDS.keys()
