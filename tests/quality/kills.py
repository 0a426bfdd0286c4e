"""SIGKILL for a load, a consumer and provers: at a counted write of each, or at random while all of them run at once.

    python -m tests.quality.kills --rounds 50 --seed 1

`besiege` runs a load, a consumer and two provers at once. A round is a few kills at random moments, after which the
load pauses and no process is killed until the chain has another proof. So each round ends, however slow the machine
is. `kill_at_writes` runs one process at a time and kills it at a write that the seed chooses, so that the same seed
kills at the same writes on every machine.

At the end of both the chain of proofs has to be whole, every proof in it has to be a success, a proof of everything has
to agree with it, and `verify` has to find nothing. Then one link is removed, and the next proof has to report it. The
command runs `besiege`; its exit code is 1 if any of this does not hold.
"""

from __future__ import annotations

import argparse
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
from rich.console import Console
from rich.table import Table

import txn_engine
from storage import open_store
from tests.support.kills import REPOSITORY, Death, run_until_killed
from tests.support.waiting import wait_for
from txn_engine import Engine, OffsetAndMetadata
from txn_engine.errors import OutcomeUnknownError, RequestTimedOutError
from txn_engine.log.objects import Objects
from txn_engine.quality import Declaration, Output, QualityResult, SameRows, check_exactly_once
from txn_engine.quality.proof import ProofShelf

SCHEMA = pa.schema([("id", pa.int64()), ("account", pa.int64())])
CHECK = Declaration(
    "payments",
    ("id",),
    (Output("copies", SameRows({"id": "id", "account": "account"})),),
    group_id="copier",
    up_to_position=True,
)
BATCH = 200
ROLES = ("load", "copy", "prove", "prove")
KILLS_A_ROUND_MAX = 4
TRANSACTIONS_MAX = 200
CALM_S, RAGE_S = 0.2, 4.0
PROOF_LIMIT_S = 200.0
"""A prover that nobody kills has this long for one proof; on a quiet machine it needs seconds."""
TRANSACTIONS_A_STEP = 2
WRITES_MAX = {"load": 18, "copy": 11, "prove": 2}
"""The highest write at which `kill_at_writes` kills. Each process makes at least as many writes before it ends."""
PAUSE = "pause"
"""While the siege's folder has a file of this name, the load begins no transaction."""


def set_up(engine: Engine) -> None:
    """Create the topic and its copy."""
    for topic in ("payments", "copies"):
        engine.admin.create_topic(topic, partitions=2, schema=SCHEMA, key="account")


def load(engine: Engine, folder: Path, *, once: bool = False) -> None:
    """Commit transactions of 200 ids each and abort every fifth try. Goes on after the last one that was
    committed.

    once: return after a few transactions.
    """
    with engine.producer(transactional_id="loader") as producer:
        producer.init_transactions()
        last = producer.last_committed_run_id
        number = 0 if last is None else int(last) + 1
        end = number + TRANSACTIONS_A_STEP if once else TRANSACTIONS_MAX
        while number < end:
            while (folder.parent / PAUSE).exists():
                time.sleep(CALM_S)
            ids = pa.array(range(number * BATCH, (number + 1) * BATCH), pa.int64())
            table = pa.table([ids, pa.array([n % 7 for n in range(BATCH)], pa.int64())], schema=SCHEMA)
            if number % 5 == 0:
                producer.begin_transaction()
                producer.produce("payments", table)
                producer.flush()
                producer.abort_transaction()
            with producer.transaction(str(number)):
                producer.produce("payments", table)
            number += 1
            if not once:
                time.sleep(CALM_S)
        while not once:
            time.sleep(CALM_S)  # until it is killed


def copy(engine: Engine, _: Path, *, once: bool = False) -> None:
    """Copy each record into `copies`, with the group's offsets in the same transaction.

    once: return when everything is copied.
    """
    with (
        engine.producer(transactional_id="copier") as producer,
        engine.consumer(group_id="copier") as consumer,
    ):
        producer.init_transactions()
        consumer.subscribe(["payments"])
        while True:
            batch = consumer.poll(max_records=1_000, timeout_ms=0 if once else 1_000)
            if batch is None:
                if once:
                    return
                continue
            positions = {
                place: OffsetAndMetadata(consumer.position(place)) for place in consumer.assignment()
            }
            with producer.transaction():
                producer.produce("copies", batch.select(SCHEMA.names))
                producer.send_offsets_to_transaction(positions, consumer.group_metadata())


def prove(engine: Engine, folder: Path, *, once: bool = False) -> None:
    """Make one proof after another. Try again if the consumer was not at rest or another prover was faster.

    once: return after the first proof, and raise any error.
    """
    while True:
        try:
            _proof(engine, folder)
        except (
            RequestTimedOutError,
            OutcomeUnknownError,
        ):  # the consumer was not at rest, the other prover was faster
            if once:
                raise
        if once:
            return


@dataclass(slots=True)
class Siege:
    """The processes, and how often each was killed."""

    url: str
    folder: Path
    rng: random.Random
    running: list[subprocess.Popen[bytes]] = field(default_factory=list)
    kills: Counter[str] = field(default_factory=Counter)

    def run(self, rounds: int) -> None:
        """Kill some processes, wait for a proof, and repeat. In the end kill all."""
        self.running = [self._started(place) for place in range(len(ROLES))]
        try:
            for _ in range(rounds):
                for _ in range(self.rng.randint(1, KILLS_A_ROUND_MAX)):
                    time.sleep(self.rng.uniform(CALM_S, RAGE_S))
                    self._kill_and_restart(self.rng.randrange(len(ROLES)))
                self._await_another_proof()
        finally:
            for place in range(len(self.running)):
                self._kill(place)

    def _kill_and_restart(self, place: int) -> None:
        self._expect_running(place)
        self._kill(place)
        self.kills[ROLES[place]] += 1
        self.running[place] = self._started(place)

    def _await_another_proof(self) -> None:
        (self.folder / PAUSE).touch()
        proofs = self._proofs()
        wait_for(
            lambda: self._proofs() != proofs,
            what="another proof",
            limit_s=PROOF_LIMIT_S,
            every_s=CALM_S,
            meanwhile=self._expect_all_running,
            seen=lambda: self._said(ROLES.index("prove")),
        )
        (self.folder / PAUSE).unlink()

    def _expect_all_running(self) -> None:
        for place in range(len(ROLES)):
            self._expect_running(place)

    def _expect_running(self, place: int) -> None:
        if self.running[place].poll() is not None:
            raise RuntimeError(f"{ROLES[place]} ended by itself: {self._said(place)}")

    def _proofs(self) -> int:
        return len(list((self.folder / "store" / "proofs").glob("*/*/*.json")))

    def _started(self, place: int) -> subprocess.Popen[bytes]:
        with (self.folder / f"{place}.log").open("wb") as stream:
            return subprocess.Popen(
                [sys.executable, "-m", *_arguments(ROLES[place], self.url, self.folder / f"{place}")],
                cwd=REPOSITORY,
                stdout=stream,
                stderr=stream,
            )

    def _kill(self, place: int) -> None:
        self.running[place].kill()
        self.running[place].wait()

    def _said(self, place: int) -> str:
        return (self.folder / f"{place}.log").read_text(errors="replace")[-2_000:]


def besiege(folder: Path, rounds: int, seed: int) -> dict[str, object]:
    """Run everything and return what was seen, by name. Raises `AssertionError` if the chain does not
    hold."""
    store = folder / "store"
    with txn_engine.connect(store.as_uri()) as engine:
        set_up(engine)
    siege = Siege(store.as_uri(), folder, random.Random(seed))
    siege.run(rounds)
    with txn_engine.connect(store.as_uri()) as engine:
        _succeed_the_copier(engine)
        return {"kills": dict(siege.kills), **_judged(engine, folder)}


def kill_at_writes(folder: Path, rounds: int, seed: int) -> dict[str, object]:
    """Kill a load, a consumer and a prover, one after another, each at a write that the seed chooses.

    Their successors finish the work before the next round. Returns and raises what `besiege` does.
    """
    url, rng, killed_at = (folder / "store").as_uri(), random.Random(seed), []
    with txn_engine.connect(url) as engine:
        set_up(engine)
        for _ in range(rounds):
            for role, successor in (("load", load), ("copy", copy), ("prove", prove)):
                write = rng.randint(1, WRITES_MAX[role])
                _killed_at(role, url, folder / role, write)
                killed_at.append((role, write))
                successor(engine, folder / "successor", once=True)
        return {"kills": killed_at, **_judged(engine, folder)}


def _killed_at(role: str, url: str, folder: Path, write: int) -> None:
    """Run a process that kills itself right before this write, counted from 1."""
    run_until_killed(*_arguments(role, url, folder), "--die-at", str(write))


def _arguments(role: str, url: str, folder: Path) -> list[str]:
    return ["tests.quality.kills", "--role", role, "--url", url, "--folder", str(folder)]


def _dying_engine(url: str, write: int) -> Engine:
    """An engine whose process is killed right before this write, counted from 1."""
    return Engine(Death("killed", write - 1, operations=("put_if_absent",)).of(open_store(url)))


def _judged(engine: Engine, folder: Path) -> dict[str, object]:
    """Judge the chain, remove a link and judge it again. Nothing else runs meanwhile."""
    shelf = ProofShelf(Objects(engine.store), "payments", 0)
    numbers = shelf.numbers()
    going_on = _check_chain(shelf, numbers)
    whole = _proof(engine, folder, whole=True)
    assert whole.success, whole.failed + whole.errored
    assert whole.proof is not None
    assert whole.proof.first == 0, whole.proof.began
    report = engine.admin.verify()
    assert report.ok, report.findings
    removed = numbers[len(numbers) // 2]
    engine.store.delete(f"proofs/payments/0/{removed:020d}.json")
    after = _proof(engine, folder)
    assert after.proof is not None
    assert after.proof.began.startswith(f"proof {removed} "), after.proof.began
    return {
        "proofs": len(numbers),
        "of them incremental": going_on,
        "records proved": sum(each.digest.rows for each in whole.proof.ranges),
        "link removed": f"proof {removed}: the next proof says {after.proof.began!r}",
    }


def _succeed_the_copier(engine: Engine) -> None:
    """End the transaction in which the last copier was killed, as its next run does, because a group with a
    pending commit cannot be proved."""
    with engine.producer(transactional_id="copier") as producer:
        producer.init_transactions()


def _proof(engine: Engine, folder: Path, *, whole: bool = False) -> QualityResult:
    return check_exactly_once(engine, CHECK, report_folder=folder / "report", record=True, whole=whole)


def _check_chain(shelf: ProofShelf, numbers: list[int]) -> int:
    """Check that there is one proof for each number, and that each is a success whose parent is the proof
    before it. Returns how many of them go on from an earlier proof."""
    assert numbers == list(range(len(numbers))), numbers
    before, going_on = "", 0
    for number in numbers:
        proof, found = shelf.read(number)
        assert proof.parent == before, f"proof {number} does not follow proof {number - 1}"
        assert proof.success, [check for check in proof.checks if check.status != "passed"]
        going_on += not proof.is_whole
        before = found
    return going_on


def main() -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.quality.kills", description=__doc__)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--seed", type=int, default=time.time_ns() % 1_000_000)
    parser.add_argument("--role", choices=sorted(set(ROLES)), help=argparse.SUPPRESS)
    parser.add_argument("--url", help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--die-at", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.role:
        run = {"load": load, "copy": copy, "prove": prove}[options.role]
        if options.die_at:
            with _dying_engine(options.url, options.die_at) as engine:
                run(engine, options.folder, once=True)
            return 0
        with txn_engine.connect(options.url) as engine:
            run(engine, options.folder)
    console = Console()
    console.print(f"seed {options.seed}")
    with tempfile.TemporaryDirectory(prefix="txn-engine-kills-") as folder:
        try:
            seen = besiege(Path(folder), options.rounds, options.seed)
        except AssertionError as error:
            console.print(f"[red]the chain did not hold:[/red] {error}")
            return 1
    table = Table(show_header=False)
    for name, value in seen.items():
        table.add_row(name, str(value))
    console.print(table)
    return 0


if __name__ == "__main__":
    sys.exit(main())
