"""The commands of the table in docs/BUCKETS.md, as people type them, and what each of them did to a bucket."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from click.testing import CliRunner

from tests.buckets.places import Place, backups_are_whole, erased_is_held, logs_are_sound, rows_of
from txn_engine.cli.main import cli

SCHEMA_TEXT = "account_id:int64,amount:int64"


@dataclass(frozen=True)
class Seen:
    """What a command answered. code and reason: those of its error. checks: what `doctor` found not to be fine, and
    "!" behind the names of warnings."""

    exit_code: int
    code: str = ""
    reason: str = ""
    checks: tuple[str, ...] = ()


@dataclass(frozen=True)
class CommandCase:
    """A command of the table. words: its command line. is_right: whether the server has what a command promises that
    ends with exit code 0, by a look with all rights."""

    title: str
    words: Callable[[Place], list[str]]
    is_right: Callable[[Place], bool] = lambda place: True


def _in_store(*words: str) -> Callable[[Place], list[str]]:
    return lambda place: [*words, "--url", place.store]


COMMANDS = {
    "doctor": CommandCase("`doctor`", _in_store("doctor")),
    "doctor_backups": CommandCase("`doctor`, backups", lambda place: ["doctor", "--url", place.backups]),
    "topic": CommandCase(
        "`topics create`",
        _in_store("topics", "create", "more", "--schema", SCHEMA_TEXT),
        lambda place: rows_of(place, "more") == 0,
    ),
    "load": CommandCase(
        "`produce`",
        lambda place: [
            *_in_store("produce", "payments")(place),
            str(place.file),
            "--transactional-id",
            "nightly",
        ],
        lambda place: rows_of(place, "payments") == 5,
    ),
    "consume": CommandCase("`consume`", _in_store("consume", "payments", "--format", "jsonl")),
    "group": CommandCase(
        "`consume --group`", _in_store("consume", "payments", "--group", "g", "--format", "jsonl")
    ),
    "cut": CommandCase("`cuts create`", _in_store("cuts", "create")),
    "verify": CommandCase("`verify`", _in_store("verify")),
    "backup": CommandCase(
        "`backup`", lambda place: ["backup", "--url", place.store, "--to", place.backups], backups_are_whole
    ),
    "backup_verify": CommandCase(
        "`backup verify`", lambda place: ["backup", "verify", place.backups], backups_are_whole
    ),
    "prune": CommandCase(
        "`backup prune`",
        lambda place: ["backup", "prune", place.backups, "--keep", "1", "--execute"],
        backups_are_whole,
    ),
    "restore": CommandCase(
        "`restore`",
        lambda place: ["restore", "--from", place.backups, "--url", place.restored],
        lambda place: rows_of(place, "payments", place.restored) >= 3,
    ),
    "erase": CommandCase(
        "`erase`",
        lambda place: [
            *_in_store("erase", "--topic", "payments")(place),
            "--where",
            "account_id = 1",
            "--execute",
        ],
        lambda place: not erased_is_held(place),
    ),
    "clean": CommandCase(
        "`maintain clean`", _in_store("maintain", "clean", "--orphan-days", "0"), logs_are_sound
    ),
}


HAVE_NO_JSON = ("consume", "group")
"""Commands without --json, whose errors show a code but no reason."""


def run(command: str, place: Place) -> tuple[Seen, str]:
    """Call the command with the place's environment; what was seen, and all that it wrote."""
    words = [*COMMANDS[command].words(place), *([] if command in HAVE_NO_JSON else ["--json"])]
    place.asked = place.injected = 0
    result = CliRunner().invoke(
        cli, words, prog_name="txn-engine", env=dict(place.env), catch_exceptions=False
    )
    return _seen(command, result.exit_code, result.stdout, result.stderr), result.stdout + result.stderr


def _seen(command: str, exit_code: int, stdout: str, stderr: str) -> Seen:
    assert "Traceback" not in stderr, stderr
    if command in ("doctor", "doctor_backups"):
        return Seen(exit_code, checks=tuple(_not_fine(json.loads(stdout)["checks"])))
    code, reason = "", ""
    for line in stderr.splitlines():
        if line.startswith("{"):
            error = json.loads(line)["error"]
            code, reason = error["code"], error["reason"] or ""
        elif line.startswith("error: "):
            code = line.rpartition("[")[2].rstrip("]")
    return Seen(exit_code, code, reason)


_MACHINE = frozenset({"python", "java", "spark", "versions", "airflow pools"})


def _not_fine(checks: list[dict[str, str]]) -> Iterator[str]:
    for check in checks:
        if check["status"] != "ok" and check["check"] not in _MACHINE:
            yield check["check"] + ("!" if check["status"] == "warning" else "")
