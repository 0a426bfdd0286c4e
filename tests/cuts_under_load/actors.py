"""The bank's processes. Each repeats its work until it is killed, or asked to stop."""

from __future__ import annotations

import logging
import os
import random
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

import txn_engine
from tests.cuts_under_load.bank import TIMEOUT_MS, FastClock, Seen, pay, read_since, transfer
from tests.torture.journal import Journal
from txn_engine import Engine
from txn_engine.errors import CorruptObjectError, InvalidRequestError, TxnEngineError
from txn_engine.log.cut_format import Cut
from txn_engine.maintain import MaintenancePolicy
from txn_engine.producer import Producer

_HOUR_MS: Final = 3_600_000
_KEPT_MS: Final = (6 * _HOUR_MS, 24 * _HOUR_MS, 24 * _HOUR_MS, None)
_LATEST_EVERY: Final = 10
_AGAIN_EVERY: Final = 50
_WHOLE_EVERY: Final = 500
_EAGER: Final = MaintenancePolicy(
    orphan_age_ms=_HOUR_MS, entries_age_ms=_HOUR_MS, trim_step=1, min_files=2, min_dirty_ratio=0
)
_JOBS: Final = ("compact", "compact", "retain", "seal", "clean", "snapshot", "expire_producers")


@dataclass(frozen=True, slots=True)
class Post:
    """The role and place of a process. `life` distinguishes it from the earlier processes in its place."""

    role: str
    slot: int
    life: int
    url: str
    journals: Path
    clock: FastClock
    seed: int


class Actor:
    """A process at its post."""

    def __init__(self, post: Post) -> None:
        self.post = post
        self.chance = random.Random(f"{post.seed}/{post.role}/{post.slot}/{post.life}")
        self.journal = Journal(post.journals, f"{post.role}-{post.slot}-{post.life}")
        self.engine: Engine = txn_engine.connect(post.url, clock=post.clock)
        self.is_asked_to_stop = False
        signal.signal(signal.SIGTERM, self._stop)
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the supervisor

    def _stop(self, *_: object) -> None:
        self.is_asked_to_stop = True

    def note_error(self, doing: str, error: TxnEngineError) -> None:
        """Record an error. Most follow from a killed process or from another one that won, but damage never
        does."""
        self.journal.write(
            "damage" if isinstance(error, CorruptObjectError) else "error", doing, says=str(error)
        )


def act(post: Post) -> None:
    """The entry point of the process."""
    logging.getLogger().addHandler(logging.NullHandler())
    actor = Actor(post)
    _ROLES[post.role](actor)
    with suppress(TxnEngineError):
        actor.engine.close()
    os._exit(0)


# --- those who write ----------------------------------------------------------------------------------------------


def _producing(work: Callable[[Actor, Producer], bool]) -> Callable[[Actor], None]:
    """Run one transaction after the other. After any error a new producer continues."""

    def over_and_over(actor: Actor) -> None:
        producer: Producer | None = None
        while not actor.is_asked_to_stop:
            try:
                if producer is None:
                    producer = actor.engine.producer(
                        transactional_id=f"{actor.post.role}-{actor.post.slot}",
                        transaction_timeout_ms=TIMEOUT_MS,
                        markers=actor.chance.choice(("inline", "deferred")),
                    )
                    producer.init_transactions()
                if work(actor, producer):
                    actor.journal.write("committed", actor.post.role)
                time.sleep(actor.chance.uniform(0.0, 0.2))  # the machine is for who cuts
            except TxnEngineError as error:
                actor.note_error(actor.post.role, error)
                producer = None

    return over_and_over


def _transfer(actor: Actor, producer: Producer) -> bool:
    producer.begin_transaction()
    transfer(producer, actor.post.slot, actor.chance)
    if actor.chance.random() < 0.1:
        producer.abort_transaction()
        return False
    producer.commit_transaction()
    return True


def _pay(actor: Actor, producer: Producer) -> bool:
    return pay(actor.engine, producer, actor.chance)


# --- those who cut ------------------------------------------------------------------------------------------------


def _cut(actor: Actor) -> None:
    """Make cuts, and read each on top of the last one. Some are read whole, and some older ones are read
    again."""
    seen, made, mine = Seen(), 0, list[Cut]()
    while not actor.is_asked_to_stop:
        try:
            cut = actor.engine.cut(keep_ms=actor.chance.choice(_KEPT_MS))
        except TxnEngineError as error:
            actor.note_error("cut", error)
            continue
        made += 1
        mine = [*mine[-200:], cut]
        if made % _WHOLE_EVERY == 0:
            seen = Seen()
        _read(actor, "read", cut, seen, latest=made % _LATEST_EVERY == 0)
        if made % _AGAIN_EVERY == 0:
            _read(actor, "again", actor.chance.choice(mine), Seen())
        if actor.chance.random() < 0.02:
            with suppress(TxnEngineError):
                actor.engine.delete_cut(actor.chance.choice(mine))


def _read(actor: Actor, how: str, cut: Cut, seen: Seen, *, latest: bool = True) -> None:
    before = asdict(seen)
    try:
        found = read_since(actor.engine, cut, seen, latest=latest)
    except InvalidRequestError as error:  # somebody has deleted it, or it has expired
        seen.offsets, seen.positions, seen.last = before["offsets"], before["positions"], before["last"]
        actor.note_error("read", error)
    except TxnEngineError as error:
        actor.journal.write("damage", "read", says=f"cut {cut.number}: {error}")
    else:
        is_whole = not any(map(any, before["offsets"].values()))
        actor.journal.write(how, str(cut.number), rows=found.rows, torn=found.torn, whole=is_whole)


# --- those who keep order -----------------------------------------------------------------------------------------


def _keep(actor: Actor) -> None:
    while not actor.is_asked_to_stop:
        job = actor.chance.choice(_JOBS)
        try:
            if job == "snapshot":
                actor.engine.admin.snapshot()
            elif job in ("seal", "expire_producers"):
                _note_done(actor, job, getattr(actor.engine.maintenance, job)())
            else:
                _note_done(actor, job, getattr(actor.engine.maintenance, job)(policy=_EAGER))
        except TxnEngineError as error:
            actor.note_error(job, error)
        time.sleep(actor.chance.uniform(0.0, 1.0))


def _note_done(actor: Actor, job: str, report) -> None:  # type: ignore[no-untyped-def]
    for failure in report.failures:
        if "CORRUPT" in failure.message:
            actor.journal.write("damage", job, says=str(failure))
    if report.partitions:
        actor.journal.write("kept", job, partitions=len(report.partitions))


def _sweep(actor: Actor) -> None:
    while not actor.is_asked_to_stop:
        try:
            actor.engine.coordinator.write_pending_markers()
            actor.engine.coordinator.abort_timed_out_transactions()
        except TxnEngineError as error:
            actor.note_error("sweep", error)
        time.sleep(actor.chance.uniform(0.0, 1.0))


_ROLES: Final[dict[str, Callable[[Actor], None]]] = {
    "teller": _producing(_transfer),
    "payer": _producing(_pay),
    "cutter": _cut,
    "keeper": _keep,
    "sweeper": _sweep,
}
