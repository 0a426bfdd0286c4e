"""obstore in forked children, whatever the parent was doing."""

from __future__ import annotations

import gc
import os
import threading
from collections.abc import Iterator

import pytest

from storage import runtime
from tests.storage.bucket_conformance import in_forked_child


class Tells:
    """An object in a cycle, which says that it is freed."""

    def __init__(self, freed: list[int]) -> None:
        self._freed = freed
        self.itself = self

    def __del__(self) -> None:
        self._freed.append(os.getpid())


@pytest.fixture
def collects() -> Iterator[None]:
    """Nothing is collected unless the test asks for it. Afterwards the collector works as before."""
    thresholds = gc.get_threshold()
    gc.set_threshold(0)
    yield
    gc.set_threshold(*thresholds)
    gc.enable()


@pytest.mark.usefixtures("collects")
@pytest.mark.parametrize("is_on", [True, False], ids=["on", "off"])
def test_a_child_frees_no_garbage_of_its_parent(*, is_on: bool) -> None:
    """A collection in a forked child frees what the child made and nothing that its parent had. The collector is on or
    off in both as it was before.
    """
    freed: list[int] = []
    runtime.obstore_of_this_process()
    gc.disable()
    Tells(freed)
    if is_on:
        gc.enable()

    def child() -> bytes:
        state = gc.isenabled()
        gc.collect()
        of_the_parent = len(freed)
        Tells(freed)
        gc.collect()
        return b"%d %d %d" % (state, of_the_parent, len(freed))

    assert in_forked_child(child) == b"%d 0 1" % is_on
    assert gc.isenabled() == is_on
    gc.collect()
    assert freed == [os.getpid()]


@pytest.mark.usefixtures("collects")
def test_threads_that_fork_leave_the_collector_on() -> None:
    """Several threads fork at once. Afterwards the collector works, in each child and in the parent."""
    answers: list[bytes] = []
    threads = [
        threading.Thread(target=lambda: answers.append(in_forked_child(lambda: b"%d" % gc.isenabled())))
        for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert answers == [b"1"] * 8
    assert gc.isenabled()
