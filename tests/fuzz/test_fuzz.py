"""Every run of the tests changes some objects. `make fuzz` and the shard `damage` try many more."""

from __future__ import annotations

import pytest

from tests.fuzz.ledger import Objects, build
from tests.fuzz.running import run
from tests.suite.tiers import in_shard
from tests.support.sealing import resealed


@pytest.fixture(scope="module")
def ledger() -> Objects:
    return build()


def test_the_ledger_is_always_the_same(ledger: Objects) -> None:
    """A case is a seed only as long as the ledger that it changes is always the same."""
    assert build() == ledger


def test_a_resealed_object_is_whole(ledger: Objects) -> None:
    """The harness makes checksums as the engine does, so an object that nobody changed comes back byte for
    byte."""
    for key, data in ledger.items():
        assert resealed(data) == data, key


@pytest.mark.parametrize("cases", in_shard("damage", [10, 24], keep=1))
def test_changed_objects(capsys: pytest.CaptureFixture[str], cases: int) -> None:
    """Whatever is changed in an object, a call succeeds or raises an error that names the object.

    These are the first cases of one seed. `python -m tests.fuzz` tries fresh seeds, in the shard `damage`.
    """
    failed = run("one", cases=cases)
    assert not failed, capsys.readouterr().out
