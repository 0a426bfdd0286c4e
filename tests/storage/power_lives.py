"""Random lives of a local store in which the power is cut, and the checks on every disk that a cut may
leave."""

from __future__ import annotations

import contextlib
import os
import random
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from storage import LocalStore, ObjectNotFoundError
from tests.support.faults import keys_of
from tests.support.power import (
    MachineOffError,
    Promises,
    Recorder,
    Survey,
    Tree,
    disks_in_memory,
    litter_of,
    objects_of,
    promising,
    recording,
    survey,
    write_tree,
)

_TWO_DAYS_S = 48 * 3600


def random_life(recorder: Recorder, base: Path, chance: random.Random, *, operations: int = 30) -> None:
    """Operations of three processes in turn. One of them is stopped now and then, and another comes in its place."""
    processes = [promising(recorder, base) for _ in range(3)]
    for number in range(operations):
        turn = chance.randrange(3)
        process, key = processes[turn], f"{chance.choice('ab')}/{chance.choice('xyz')}/{chance.randrange(3)}"
        data = f"{number} ".encode() * chance.choice((1, 50))
        if chance.random() < 0.2:
            recorder.dies_at = recorder.calls + chance.randrange(10)
        with contextlib.suppress(MachineOffError, ObjectNotFoundError):
            match chance.choice(("create", "create", "create", "put", "get", "get", "delete")):
                case "create":
                    process.put_if_absent(key, data)
                case "put":
                    process.put(key, data)
                case "get":
                    process.get(key)
                case _:
                    process.delete(key)
        if recorder.dies_at is not None:
            recorder.dies_at = None
            processes[turn] = promising(recorder, base)


def look_into(disks: Path) -> Callable[[Tree, Promises], None]:
    """Check on every disk that the store opens, shows exactly these objects, takes new ones and sweeps old
    temporary files."""

    def inspect(tree: Tree, _: Promises) -> None:
        root = write_tree(tree, disks / "cut")
        store = LocalStore(root)
        expected = objects_of(tree)
        assert keys_of(store.list("")) == sorted(expected)
        assert all(store.get(key) == data for key, data in expected.items())
        assert store.put_if_absent("after/the/cut", b"x")
        for key in expected:
            assert not store.put_if_absent(key, b"a second writer")
        for name in litter_of(tree):
            long_ago = time.time() - _TWO_DAYS_S
            os.utime(root / ".tmp" / name, (long_ago, long_ago))
        LocalStore(root)
        assert os.listdir(root / ".tmp") == []

    return inspect


def cut_random_life(seed: int, disks: Path) -> Survey:
    """Record one random life, and look into every disk that a cut leaves."""
    with tempfile.TemporaryDirectory() as folder:
        with recording(Path(folder)) as recorder:
            random_life(recorder, Path(folder), random.Random(seed))
        return survey(recorder.tape, look_into(disks), seed=seed)


def cut_random_lives(count: int, seed: int, progress: Callable[[Survey], None] = lambda _: None) -> Survey:
    """Cut many random lives. Returns the totals."""
    total = Survey()
    with disks_in_memory() as disks:
        for number in range(count):
            one = cut_random_life(seed + number, disks)
            total.cuts += one.cuts
            total.disks += one.disks
            total.broken += [f"seed {seed + number}: {line}" for line in one.broken]
            progress(total)
    return total
