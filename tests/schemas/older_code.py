"""`python -m tests.schemas.older_code COMMIT`: check what the code of that commit does with a store that was
changed since.

The code is checked out into a scratch folder and writes a store (`before/write_store.py`). The present code
changes a copy of that store for each claim of docs/SCHEMAS.md, CONFIGS.md and ERASURE.md about older
programs. The older code then reads, writes, compacts and audits it in processes of its own. The exit code is
1 if a claim does not hold.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Callable
from io import BytesIO
from pathlib import Path
from typing import Any

import txn_engine
from tests.schemas.before.write_store import payments
from txn_engine import Engine, RenameColumn

_HERE = Path(__file__).parent
_GATE = "format '3'"
Seen = dict[str, Any]


class OlderCode:
    """The tree of a commit, and processes that run with it."""

    def __init__(self, commit: str, folder: Path) -> None:
        self.tree = folder / "tree"
        packed = subprocess.run(
            ["git", "archive", commit], cwd=_HERE.parents[1], check=True, capture_output=True
        ).stdout
        with tarfile.open(fileobj=BytesIO(packed)) as held:
            held.extractall(self.tree, filter="data")
        self._environment = os.environ | {"PYTHONPATH": str(self.tree)}

    def write_store(self, folder: Path) -> None:
        """A store that this code writes."""
        command = [sys.executable, str(_HERE / "before" / "write_store.py"), str(folder)]
        subprocess.run(command, env=self._environment, cwd=self.tree, check=True, stdout=subprocess.DEVNULL)

    def begun(self, what: str, url: str) -> subprocess.Popen[str]:
        """Begin a process of `older_side`."""
        return subprocess.Popen(
            [sys.executable, str(_HERE / "older_side.py"), what, url],
            env=self._environment,
            cwd=self.tree,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def seen(self, process: subprocess.Popen[str], told: str = "") -> Seen:
        """What the process prints at its end."""
        out, _ = process.communicate(told, timeout=300)
        if process.returncode:
            raise RuntimeError(f"exit code {process.returncode} by the code of {self.tree}")
        found: Seen = json.loads(out.splitlines()[-1])
        if not Path(found.pop("code")).is_relative_to(self.tree):
            raise RuntimeError("another code than that of the commit ran")
        return found


class Claims:
    """Each claim, whether it holds, and what was seen."""

    def __init__(self) -> None:
        self.broken = 0

    def tell(self, claim: str, holds: bool, seen: object) -> None:
        """Print one line or two."""
        self.broken += not holds
        print(f"{'holds ' if holds else 'BROKEN'}  {claim}\n        seen: {seen}", flush=True)


def is_refused(said: object) -> bool:
    """Whether the error is the gate's, in one line."""
    return isinstance(said, str) and _GATE in said and "\n" not in said


def is_as_ever(seen: Seen) -> bool:
    """Whether everything was done as with a store without changes."""
    done = seen["written"] == "written" and seen["compacted"] == "done"
    return done and isinstance(seen["read"], list) and seen["consumed"] == seen["read"]


def unchanged(claims: Claims, seen: Seen) -> None:
    """Check a store that the present code has only written to."""
    for topic in ("payments", "untouched"):
        claims.tell(
            f"{topic}: never changed, read and written as before", is_as_ever(seen[topic]), seen[topic]
        )
    claims.tell("its audit is sound", seen["audit"]["ok"], seen["audit"])


def settings(claims: Claims, seen: Seen) -> None:
    """docs/CONFIGS.md: an older program does not know the objects, and uses the settings that the topic was
    created with."""
    claims.tell(
        "a topic whose settings changed is read and written", is_as_ever(seen["payments"]), seen["payments"]
    )
    claims.tell(
        "it goes by what the topic was made with, retention.ms 10**15",
        seen["retention_ms"] == 10**15,
        seen["retention_ms"],
    )


def columns(claims: Claims, seen: Seen) -> None:
    """docs/SCHEMAS.md: the topic is refused as a whole in one line, and all other topics work as before."""
    held = seen["payments"]
    for what in ("read", "consumed", "written"):
        claims.tell(
            f"a topic whose columns changed: {what}: refused in one line", is_refused(held[what]), held[what]
        )
    claims.tell("its maintenance refuses it too", _GATE in str(held["compacted"]), held["compacted"])
    claims.tell("its audit names the gate", not seen["audit"]["ok"], seen["audit"])
    claims.tell("all other topics as before", is_as_ever(seen["untouched"]), seen["untouched"])


def erased(claims: Claims, seen: Seen) -> None:
    """docs/ERASURE.md: the log stops at an `erase` row, and all other topics work as before."""
    held = seen["payments"]
    for what in ("read", "consumed", "written"):
        claims.tell(
            f"a partition with an erase row: {what}: refused in one line",
            isinstance(held[what], str) and "erase" in held[what] and "\n" not in held[what],
            held[what],
        )
    claims.tell("its audit names the row", not seen["audit"]["ok"], seen["audit"])
    claims.tell("all other topics as before", is_as_ever(seen["untouched"]), seen["untouched"])


def write_on(engine: Engine) -> None:
    """Let the present code write to a store that it leaves readable."""
    engine.coordinator.write_pending_markers()
    with engine.producer(transactional_id="load-5") as producer:
        producer.init_transactions()
        with producer.transaction():
            for topic in ("payments", "untouched"):
                producer.produce(topic, payments(60, 61), partition=0)
    engine.admin.snapshot()
    engine.cut()


def alter_settings(engine: Engine) -> None:
    engine.admin.alter_configs({"retention.ms": 10**14}, topic="payments")
    engine.admin.alter_configs({"transaction.max.timeout.ms": 1_800_000})


def alter_columns(engine: Engine) -> None:
    engine.admin.alter_topic("payments", RenameColumn("amount", "value"))


def erase(engine: Engine) -> None:
    engine.erase("payments", "account = 12", execute=True)


SIDES: list[tuple[str, Callable[[Engine], None], Callable[[Claims, Seen], None]]] = [
    ("a store that the present code wrote to", write_on, unchanged),
    ("settings of a topic and of the store were altered", alter_settings, settings),
    ("columns of a topic were altered", alter_columns, columns),
    ("records were erased", erase, erased),
]


def run(commit: str, scratch: Path) -> int:
    """Check every claim. Returns how many do not hold."""
    older, claims, store = OlderCode(commit, scratch), Claims(), scratch / "store"
    older.write_store(store)
    print(f"a store written by the code of {commit}")
    for title, change, judge in SIDES:
        place = scratch / title.replace(" ", "-")
        shutil.copytree(store, place)
        with txn_engine.connect(place.as_uri()) as engine:
            change(engine)
        print(f"\n{title}", flush=True)
        judge(claims, older.seen(older.begun("everything", place.as_uri())))
    print("\na process of the older code that has the topic open while its columns are altered", flush=True)
    process = older.begun("await_refusal", store.as_uri())
    assert process.stdout is not None
    process.stdout.readline()
    with txn_engine.connect(store.as_uri()) as engine:
        alter_columns(engine)
        seen = older.seen(process, "altered\n")
        claims.tell(
            "it is refused within five seconds", is_refused(seen["said"]) and seen["seconds"] <= 6, seen
        )
        engine.coordinator.write_pending_markers()
        rows = engine.scan("payments").to_table().num_rows
        known = len(engine.scan("payments", schema_version=0).to_table()["account"])
        report = engine.admin.verify()
        claims.tell(
            "what it wrote until then is read by the present code, by the present columns",
            report.ok and rows == known == 14 + 1 + seen["written"],
            {"records": rows, "audit": report.ok},
        )
    return claims.broken


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])  # type: ignore[union-attr]
    parser.add_argument("commit", help="of before topics and settings could change, as 53cf40d")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="older-code-") as scratch:
        broken = run(arguments.commit, Path(scratch))
    print(f"\n{'every claim holds' if not broken else f'{broken} claims do not hold'}")
    sys.exit(1 if broken else 0)


if __name__ == "__main__":
    main()
