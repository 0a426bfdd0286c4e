"""The uses of a changed store: every decoder by itself, and the engine's public calls."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any

from click.testing import CliRunner

from storage import LogKeys
from tests.fuzz.ledger import Objects, open_ledger, payments
from txn_engine import Engine
from txn_engine.cli.main import cli
from txn_engine.errors import CorruptObjectError, TxnEngineError, UnsupportedFormatError
from txn_engine.log.entry_format import decode_entry
from txn_engine.log.logs import _kind
from txn_engine.log.snapshot_format import decode_snapshot
from txn_engine.testing import ManualClock
from txn_engine.verify.dump import DumpedEntry, LogDump
from txn_engine_airflow.pages import records

NOW_MS = 1_702_800_000_000
_OBJECT = re.compile(r"[0-9]{20}[^ ]*\.(parquet|json)|store\.json|/[0-9]+\.json")
TOPICS = ("payments", "events")
IDS = ("load", "copy", "left", "nobody")
GROUPS = ("readers", "copiers", "nobody")


class Unnamed(Exception):
    """An error of the engine that does not name the damaged object."""


def use(random: Random, objects: Objects, key: str) -> list[tuple[str, str]]:
    """Decode the object, and call a few of the uses of the store. Returns each use and its result."""
    told = [("decode", _ended(lambda: _decode(objects[key], key)))]
    chosen = random.sample(sorted(USES), 3)
    if "__" in key and "scan" not in chosen:
        chosen.append(random.choice(["transactions", "groups", "sweep"]))
    if random.random() < 0.05:
        told += _command_line(random, objects)
    told.append(("all", _ended(lambda: told.extend(_used(chosen, objects)))))
    return told


def _used(chosen: list[str], objects: Objects) -> list[tuple[str, str]]:
    with open_ledger(objects, ManualClock(NOW_MS)) as engine:
        return [(name, _ended(lambda name=name: USES[name](engine))) for name in chosen]  # type: ignore[misc]


def _ended(run: Callable[[], object]) -> str:
    """`ok`, or the class of the engine's error. Any other exception is a finding."""
    try:
        run()
    except (CorruptObjectError, UnsupportedFormatError) as error:
        if _OBJECT.search(str(error)) is None:
            raise Unnamed(str(error)) from error
        return type(error).__name__
    except TxnEngineError as error:
        str(error).encode()
        return type(error).__name__
    return "ok"


def _decode(data: bytes, key: str) -> None:
    match = re.fullmatch(r"(topics/([^/]+)/\d+/\d+)/(log|snapshots)/(\d{20})\.parquet", key)
    if match is None:
        return
    if match[3] == "log":
        decode_entry(_kind(match[2]), data, key=key, base_offset=LogKeys(match[1]).parse_entry(key))
    else:
        decode_snapshot(data, key=key)


# --- the engine's calls ---------------------------------------------------------------------------------------


def _topics(engine: Engine) -> None:
    for name in engine.admin.list_topics():
        engine.admin.describe_topic(name)


def _offsets(engine: Engine) -> None:
    for name in TOPICS:
        count = engine.admin.describe_topic(name).partitions
        engine.admin.list_offsets(name)
        for number in range(min(count, 3)):
            engine.admin.describe_producers(name, number)


def _scan(engine: Engine) -> None:
    for level in ("read_committed", "read_uncommitted"):
        for name in TOPICS:
            scan = engine.scan(name, isolation_level=level)  # type: ignore[arg-type]
            scan.files()
            for batch in scan.to_batches():
                batch.validate(full=True)
                batch.to_pylist()


def _poll(engine: Engine) -> None:
    for group in GROUPS:
        with engine.consumer(group_id=group) as consumer:
            consumer.subscribe(["payments", "events"])
            for _ in range(3):
                consumer.poll(5)
            consumer.lag()
            consumer.offsets_for_times(dict.fromkeys(consumer.assignment()[:3], NOW_MS))
            consumer.commit()


def _transactions(engine: Engine) -> None:
    engine.admin.list_transactions()
    for name in IDS:
        _refused(lambda name=name: engine.admin.describe_transaction(name))  # type: ignore[misc]
        engine.coordinator.current(name)
    engine.admin.find_hanging_transactions()


def _refused(run: Callable[[], object]) -> None:
    """Run the call and pass on damage. An unknown id or group is a normal answer."""
    try:
        run()
    except (CorruptObjectError, UnsupportedFormatError):
        raise
    except TxnEngineError:
        pass


def _groups(engine: Engine) -> None:
    for name in (*engine.admin.list_groups(), "nobody"):
        _refused(lambda name=name: engine.admin.describe_group(name))  # type: ignore[misc]
    engine.admin.expire_group_offsets(retention_ms=1, dry_run=True)


def _sweep(engine: Engine) -> None:
    engine.coordinator.abort_timed_out_transactions()
    engine.coordinator.write_pending_markers()
    engine.coordinator.expire_transactional_ids()


def _produce(engine: Engine) -> None:
    with engine.producer(transactional_id="load") as producer:
        producer.init_transactions()
        with producer.transaction():
            producer.produce("payments", payments(1, 2, 3)).result()
    with engine.producer() as plain:
        plain.produce("payments", payments(7)).result()


def _maintain(engine: Engine) -> None:
    upkeep = engine.maintenance
    for job in (upkeep.compact, upkeep.retain, upkeep.seal, upkeep.clean, upkeep.expire_producers):
        repr(job())
    upkeep.remove_deleted_topics()


def _snapshot(engine: Engine) -> None:
    engine.admin.snapshot()


def _verify(engine: Engine) -> None:
    for finding in engine.admin.verify().findings:
        str(finding).encode()


def _dump(engine: Engine) -> None:
    for name, partition in (("payments", 0), ("payments", 2), ("events", 0)):
        with LogDump(engine.store, name, partition) as dump:
            for slot in dump.slots():
                for batch in slot.batches if isinstance(slot, DumpedEntry) else ():
                    if batch.data_path and dump.file_problem(batch) is None:
                        sum(len(part) for part in dump.records(batch))


def _page(engine: Engine) -> None:
    for name in TOPICS:
        for uncommitted in (False, True):
            found = engine.partition(name, 0)
            records.sample(engine, name, 0, offset=found.log_start_offset, count=50, uncommitted=uncommitted)


def _look(engine: Engine) -> None:
    """Look as the pages and the doctor do. The answer names damage."""
    engine.look_at_everything()


USES: dict[str, Callable[[Engine], None]] = {
    "topics": _topics,
    "offsets": _offsets,
    "scan": _scan,
    "poll": _poll,
    "transactions": _transactions,
    "groups": _groups,
    "look": _look,
    "sweep": _sweep,
    "produce": _produce,
    "maintain": _maintain,
    "snapshot": _snapshot,
    "verify": _verify,
    "dump": _dump,
    "records page": _page,
}

# --- the command line -----------------------------------------------------------------------------------------

COMMANDS = (
    ("topics", "list"), ("topics", "describe", "payments"), ("consume", "payments", "--max-records", "20"),
    ("consume", "events", "--format", "jsonl"), ("dump-log", "payments", "0"), ("verify",), ("groups", "list"),
    ("groups", "describe", "readers"), ("transactions", "list"), ("transactions", "find-hanging"), ("doctor",),
)  # fmt: skip


def _command_line(random: Random, objects: Objects) -> Iterator[tuple[str, str]]:
    with tempfile.TemporaryDirectory() as folder:
        for key, data in objects.items():
            path = Path(folder, key)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
        for words in random.sample(COMMANDS, 2):
            done: Any = CliRunner().invoke(cli, [*words, "--url", f"file://{folder}"])
            if done.exception is not None and not isinstance(done.exception, SystemExit):
                raise done.exception
            yield f"cli {words[0]}", f"exit {done.exit_code}"
