"""The checks of `doctor`, each with what was seen and what to do about it."""

from __future__ import annotations

import os
import platform
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from importlib import import_module, metadata
from importlib.util import find_spec
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from txn_engine.cli.failures import one_line
from txn_engine.extras import EXTRAS

if TYPE_CHECKING:
    from storage import Finding, ObjectStore
    from txn_engine.cli.command import Place
    from txn_engine.engine import Engine
    from txn_engine.verify.store_keys import KeySurvey

Status = Literal["ok", "warning", "failed"]
SKEW_MS_MAX = 5_000
_DAMAGED_MAX = 10
_CUTS_LOOKED_AT = 100
_FOLDERS_OF_A_STORE = ("topics", "cuts", "producer_ids", "settings", "restored")
KEYS_MAX = 100_000  # 100 requests to a bucket
_MARKS = {"ok": "✓", "warning": "!", "failed": "✗"}


@dataclass(frozen=True, slots=True)
class Check:
    """One line of the doctor's: what was looked at, how it is, and the remedy where it is not fine."""

    name: str
    status: Status
    seen: str
    remedy: str = ""

    @classmethod
    def of(cls, found: Finding) -> Check:
        """What a store found of itself."""
        return cls(found.name, found.status, found.seen, found.remedy)

    @property
    def failed(self) -> bool:
        """Whether the store cannot be used for this."""
        return self.status == "failed"

    @property
    def mark(self) -> str:
        """✓, ! or ✗."""
        return _MARKS[self.status]

    def to_dict(self) -> dict[str, str]:
        """The check as JSON values."""
        return {"check": self.name, "status": self.status, "seen": self.seen, "remedy": self.remedy}


# --- the store --------------------------------------------------------------------------------------------


def check_store(place: Place) -> list[Check]:
    """Everything about the store, up to the first thing without which the rest cannot be asked."""
    from storage import PERSON_PATIENCE, StorageError, open_store

    checks: list[Check] = []
    try:
        missing = _missing_folder(place.required())
        if missing is not None:
            return missing
        store = open_store(place.required(), endpoint=place.endpoint, create=False, patience=PERSON_PATIENCE)
        for check in _store_checks(store):
            checks.append(check)
            if check.failed:
                break
    except StorageError as error:
        checks.append(_failure("reachable", error))
    return checks


def _failure(name: str, error: Exception) -> Check:
    """A check that an error answered; its parts become what was seen and the remedy."""
    seen = str(getattr(error, "seen", error))
    where = getattr(error, "place", "")
    expected = getattr(error, "expected", "")
    told = f"{seen}{f' at {where}' if where else ''}{f'; expected {expected}' if expected else ''}"
    return Check(name, "failed", one_line(told), one_line(getattr(error, "action", "") or ""))


def _missing_folder(url: str) -> list[Check] | None:
    """For a local store whose folder is not there: whether it can be made."""
    from txn_engine.cli.command import local_folder

    folder = local_folder(url)
    if folder is None or url != url.strip() or folder.exists():
        return None
    kind = Check("store", "ok", f"local folder {folder}")
    in_the_way = _why_not_made(folder.parent)
    if in_the_way is not None:
        return [
            kind,
            Check("reachable", "failed", f"the folder is not there, {in_the_way[0]}", in_the_way[1]),
        ]
    made = "`topics create` or `demo` makes it"
    return [kind, Check("reachable", "warning", "the folder is not there yet", made)]


def _why_not_made(parent: Path) -> tuple[str, str] | None:
    """Why no folder can be made in that one, and what to do; None where one can be."""
    if not parent.is_dir():
        return f"nor is the folder {parent}", "make that folder, or correct the URL"
    disk = os.statvfs(parent)
    if disk.f_flag & os.ST_RDONLY:
        return f"and {parent} is on a read-only file system", "have it mounted with the right to write"
    if not os.access(parent, os.W_OK):
        return f"and this user may not write in {parent}", "grant the user that right, or correct the URL"
    if disk.f_bavail == 0 or (disk.f_files and disk.f_favail == 0):
        return f"and there is no space left on the disk of {parent}", "make room on the disk"
    return None


def _store_checks(store: ObjectStore) -> Iterator[Check]:
    from storage import BucketStore
    from txn_engine.verify.restored_root import store_within

    if isinstance(store, BucketStore):
        yield Check("store", "ok", store.described())
        yield Check.of(store.credentials_found())
        yield from map(Check.of, store.inspected())
    elif store.url.startswith("file:"):
        yield Check("store", "ok", f"local folder {store.url}")
        yield Check("reachable", "ok", "the folder can be read")
    else:
        yield Check("store", "ok", store.url)
    if (of_backups := _backups(store)) is not None:
        yield of_backups
        yield from _proof(store, writing_needed=False)
        return
    is_set_up, facts = _facts(store)
    yield facts
    yield from _proof(store, writing_needed=not is_set_up)
    if is_set_up:
        yield _keys(store_within(store))
        yield from _contents(store)


def _backups(store: ObjectStore) -> Check | None:
    """Of a place of backups: whether the newest has all its objects, by listings and a byte of each log; else None."""
    from txn_engine.backup import look_at_backups
    from txn_engine.errors import TxnEngineError

    try:
        seen = look_at_backups(store)
    except TxnEngineError as error:
        return _failure("backups", error)
    if seen is None:
        return None
    whose = f"of store {seen.store_id[:8]}"
    if seen.missing is not None:
        return _failure("backups", seen.missing)
    if seen.damaged:
        return _failure("backups", seen.damaged[-1])
    if seen.newest is None:
        return Check(
            "backups", "warning", f"none that is finished, {whose}", "run `txn-engine backup`: it goes on"
        )
    newest = seen.newest
    return Check(
        "backups",
        "ok",
        f"{seen.count} {whose}; the newest, {newest.number}, is as of cut {newest.cut} of {_instant(newest.cut_ms)}; "
        f"its {newest.counts.files:,} data files are there (`backup verify` reads them)",
    )


def _facts(store: ObjectStore) -> tuple[bool, Check]:
    """What store.json says, and the limits since it was changed."""
    from storage.envelope import FORMAT
    from txn_engine.engine import Engine
    from txn_engine.errors import TxnEngineError
    from txn_engine.log.objects import Objects
    from txn_engine.log.store_config import is_restored, read_store_config

    try:
        config = read_store_config(Objects(store))
        is_whole = config is None or config.restored is None or is_restored(Objects(store), config)
    except TxnEngineError as error:
        return False, _failure("ledger", error)
    if config is None and (left := _left_of_a_store(store)):
        seen = f"store.json is missing, and there is {left}: nobody can open the store, and none may be set up here"
        remedy = "restore store.json from a copy of the store, or `restore` a backup of it into another place"
        return False, Check("ledger", "failed", seen, remedy)
    if config is None:
        remedy = "`topics create` sets up a new one; `restore` makes one that was lost again from a backup"
        return False, Check("ledger", "warning", "the store is reachable and holds none yet", remedy)
    if not is_whole:
        seen = "a store that is being restored, or whose restore was cut off"
        return False, Check("ledger", "failed", seen, "run the `txn-engine restore` again: it goes on")
    try:
        limits = Engine(store).limits
    except TxnEngineError as error:
        return True, _failure("ledger", error)
    restored = config.restored
    origin = (
        "" if restored is None else f"restored from cut {restored.cut} of store {restored.store_id[:8]}; "
    )
    seen = (
        f"format {FORMAT}, id {config.store_id[:8]}, since {_instant(config.created_ms)}; {origin}"
        f"transactions up to {limits.max_transaction_timeout_ms // 1_000} s, "
        f"idle ids kept {limits.transactional_id_expiration_ms // 86_400_000} days"
    )
    return True, Check("ledger", "ok", seen)


def _left_of_a_store(store: ObjectStore) -> str:
    """Which folders of a store there are; "": none."""
    folders = store.list_folders("")
    return ", ".join(f"{each}/" for each in _FOLDERS_OF_A_STORE if each in folders)


def _keys(store: ObjectStore) -> Check:
    """Whether all objects of the store, or the first 100,000 of them, have keys of the format."""
    from txn_engine.names import printable
    from txn_engine.verify.store_keys import survey_keys

    survey = survey_keys(store, most=KEYS_MAX)
    looked_at = f"{'' if survey.complete else 'the first '}{survey.objects:,} objects"
    if survey.refused:
        remedy = "list with credentials that may, or move away the folder that cannot be read"
        refused = f"not all may be listed: {printable(survey.refused[0])}"
        return Check("keys", "warning", _named(survey, refused), remedy)
    if survey.foreign:
        remedy = "nothing reads it; look at who put it there before you move it away: it may stand in another's place"
        return Check("keys", "warning", _named(survey, f"of {looked_at}"), remedy)
    return Check("keys", "ok", f"{looked_at}, all at keys of the format")


def _named(survey: KeySurvey, prefix: str) -> str:
    from txn_engine.names import printable

    if not survey.foreign:
        return prefix
    names = ", ".join(printable(key) for key in sorted(survey.foreign))
    more = f"; and {survey.not_named:,} more objects" if survey.not_named else ""
    return f"{prefix}, {survey.foreign_objects:,} are not the store's: {names}{more}"


def _contents(store: ObjectStore) -> Iterator[Check]:
    """Whether every topic and every log can be read to its end, every data file that a log names is there, the oldest
    of each log can be read, and nothing is missing that a cut or a table reads.
    """
    from txn_engine.engine import Engine
    from txn_engine.errors import TxnEngineError
    from txn_engine.log.missing_files import missing_entries, missing_files, refused_files
    from txn_engine.names import printable

    try:
        engine = Engine(store)
        survey, looked = engine.look_at_everything()
        claims = engine.unreadable_producer_ids(looked)
        lost = engine.lost_topics()
        missing = missing_files(engine.logs, looked.states) or refused_files(engine.logs, looked.states)
        cuts = engine.cuts()
        held = [*missing_entries(engine.logs, looked.states)]
        held += [*cuts.unreadable, *engine.missing_of_cuts(cuts), *engine.tables.status().unreadable]
    except TxnEngineError as error:
        yield _failure("contents", error)
        return
    damaged = [*survey.unreadable, *lost, *looked.unreadable, *claims, *missing, *held]
    if damaged:
        errors = "; ".join(printable(str(each)) for each in damaged[:_DAMAGED_MAX])
        more = f"; and {len(damaged) - _DAMAGED_MAX} more" if len(damaged) > _DAMAGED_MAX else ""
        remedy = "all else goes on; `txn-engine verify` says what is damaged, docs/operations.md what to do"
        yield Check("contents", "failed", f"damaged, cannot be read ({len(damaged)}): {errors}{more}", remedy)
    elif (unsettled := _unsettled_cuts(engine)) is not None:
        yield Check("contents", "warning", *unsettled)
    else:
        files = sum(len(state.live) + len(state.undecided) for state in looked.states.values())
        readable = (
            f"{len(survey.topics)} topics, {len(looked.states)} logs and the oldest file of each can be read"
        )
        seen = f"{readable}, {files:,} data files are there"
        yield Check("contents", "ok", seen)


def _unsettled_cuts(engine: Engine) -> tuple[str, str] | None:
    """What to say of numbers of the newest cuts that were claimed over an hour ago, and have no cut; None: of none."""
    from txn_engine.log.cuts import CLAIM_MS

    now_ms = engine.clock()
    numbers = [
        each.number
        for each in islice(engine.newest_cuts(), _CUTS_LOOKED_AT)
        if each.is_open and each.claimed_ms <= now_ms - CLAIM_MS
    ]
    if not numbers:
        return None
    seen = f"an hour after cut {numbers[0]} was begun there is no such cut: its maker died, or its object was lost"
    return seen, "restore cut.json from a copy, or run `txn-engine maintain clean`, which gives the number up"


def _instant(time_ms: int) -> str:
    import datetime as dt

    return dt.datetime.fromtimestamp(time_ms / 1_000, dt.UTC).strftime("%Y-%m-%d %H:%MZ")


def _proof(store: ObjectStore, *, writing_needed: bool) -> Iterator[Check]:
    """Put-if-absent once more, and by a fresh object's time the store's clock."""
    from storage import AccessDeniedError, StorageError, StoreNotWritableError, prove_put_if_absent
    from storage.reasons import StoreReason

    try:
        proof = prove_put_if_absent(store)
        yield Check(
            "put-if-absent",
            "ok",
            f"a taken key is refused, its bytes kept; {proof.race_winners} winner of {proof.racers} racing writers; "
            f"{proof.latency_ms:.1f} ms a put",
        )
        yield from _skew(store)
    except (AccessDeniedError, StoreNotWritableError) as error:
        if writing_needed or error.reason not in (None, StoreReason.READ_ONLY):
            yield _failure("put-if-absent", error)
            return
        is_mount = error.reason is StoreReason.READ_ONLY
        yield Check(
            "put-if-absent",
            "warning",
            f"not tried: nothing {'can' if is_mount else 'may'} be written here ({error.seen}); reading works",
            f"if this machine is to write: {error.action}",
        )
    except StorageError as error:
        yield _failure("put-if-absent", error)


def _skew(store: ObjectStore) -> Iterator[Check]:
    """The store's clock, by the time of a fresh object; and whether such objects can be removed again."""
    from storage import read_store_clock
    from txn_engine.clock import system_clock
    from txn_engine.ids import new_write_id
    from txn_engine.log.store_time import CLOCK_LIMIT_MS

    reading = read_store_clock(store, system_clock, f"probes/clock-{new_write_id()}")
    if reading.not_removed is not None:
        yield Check(
            "probes",
            "warning",
            f"what was tried stays below probes/, a few bytes: {reading.not_removed.seen}",
            "fine for who only writes; a maintainer needs the right to delete",
        )
    skew_ms = reading.skew_ms
    if abs(skew_ms) <= SKEW_MS_MAX:
        yield Check("clock", "ok", f"within {max(1, round(abs(skew_ms) / 1_000))} s of the store's")
        return
    way = "ahead of" if skew_ms > 0 else "behind"
    yield Check(
        "clock",
        "warning",
        f"this machine is {abs(skew_ms) / 1_000:.0f} s {way} the store",
        "set this machine's clock (NTP): time-outs and timestamps are off by as much; maintenance refuses to run"
        f" beyond {CLOCK_LIMIT_MS // 60_000} minutes",
    )


# --- this machine -----------------------------------------------------------------------------------------


def check_machine() -> list[Check]:
    """Java and the versions of what is installed; nothing here makes a store unusable."""
    checks = [
        _java(),
        Check("python", "ok", f"{platform.python_version()} ({platform.system()} {platform.machine()})"),
    ]
    checks += [_version(package) for package in ("txn-engine", "pyarrow", "obstore", "minio")]
    checks += [_extra(name, packages) for name, packages in EXTRAS.items()]
    pools = _airflow_pools()
    return checks if pools is None else [*checks, pools]


def _airflow_pools() -> Check | None:
    """Whether the Airflow that this environment configures has the pools of the DAGs; None where it configures none."""
    if find_spec("txn_engine_airflow") is None:
        return None
    found = import_module("txn_engine_airflow.pools").look()
    return None if found is None else Check("airflow pools", *found)


def _extra(name: str, packages: Iterable[str]) -> Check:
    """One extra, with the version of each of its packages."""
    versions: dict[str, str | None] = {}
    for package in packages:
        try:
            versions[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            versions[package] = None
    seen = ", ".join(f"{package} {version or 'is not installed'}" for package, version in versions.items())
    if None not in versions.values():
        return Check(f"extra {name}", "ok", seen)
    return Check(
        f"extra {name}", "warning", seen, f"pip install 'txn-engine[{name}]' on machines that use it"
    )


def _version(package: str) -> Check:
    try:
        return Check(package, "ok", metadata.version(package))
    except metadata.PackageNotFoundError:
        if package == "txn-engine":
            return Check(
                package, "warning", "not installed: running from its source", "`make setup` installs it"
            )
        return Check(package, "warning", "not installed", f"pip install {package}")


def _java() -> Check:
    from txn_engine.errors import TxnEngineError
    from txn_engine.spark.java import find_java_home

    try:
        home = find_java_home()
    except TxnEngineError as error:
        return Check("java", "warning", error.seen, error.action or "")
    return Check("java", "ok", str(home))
