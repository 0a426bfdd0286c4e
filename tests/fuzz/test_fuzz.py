"""Twenty seconds of changed objects in every run of the tests; `make fuzz`, a long run of its own, runs longer."""

from __future__ import annotations

import os

import pytest

from tests.fuzz.ledger import Objects, build
from tests.fuzz.running import run
from tests.fuzz.sealing import resealed


@pytest.fixture(scope="module")
def ledger() -> Objects:
    return build()


def test_the_ledger_is_always_the_same(ledger: Objects) -> None:
    """A case is a seed: that holds only as long as what is changed does not."""
    assert build() == ledger


def test_a_resealed_object_is_whole(ledger: Objects) -> None:
    """The harness makes checksums as the engine does: an object that nobody changed comes back byte for byte."""
    for key, data in ledger.items():
        assert resealed(data) == data, key


def test_changed_objects_for_twenty_seconds(capsys: pytest.CaptureFixture[str]) -> None:
    """Whatever is changed: success, or an error of the engine's that names the object, within the limits of memory."""
    failed = run(f"minute-{os.environ.get('CI_SHARD', '0')}", minutes=1 / 3)
    assert not failed, capsys.readouterr().out
