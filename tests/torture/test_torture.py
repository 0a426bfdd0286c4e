"""The tests run a few rounds of the torture, in the shard `protocol`. `make torture` runs many."""

from __future__ import annotations

import pytest

from tests.torture.run import torture
from tests.torture.storm import Toll


def check(toll: Toll) -> None:
    """Check that there are no findings, and that something survived."""
    assert toll.findings == []
    assert toll.counts["kills"] >= 3
    assert toll.counts["stops"] >= 2
    assert toll.done["committed"] >= 3
    assert toll.done["promises kept"] >= 3
    assert toll.counts["objects audited"] >= toll.counts["objects kept"] > 0


@pytest.mark.shard("protocol")
def test_processes_that_die_on_a_local_store() -> None:
    """Workers are killed and stopped at random. Every acknowledged commit is there once, and nothing refused is."""
    check(torture(["local"], rounds=1, seconds=4, seed=11))


@pytest.mark.usefixtures("minio_program")
@pytest.mark.minio
@pytest.mark.slow
@pytest.mark.shard("protocol")
@pytest.mark.parametrize("rounds", [1, 2])
def test_processes_that_die_on_minio_that_dies_behind_a_proxy_that_lies(rounds: int) -> None:
    """The same holds with a server that is killed under load, dropped connections and changed answers."""
    toll = torture(["minio"], rounds=rounds, seconds=2 * rounds, seed=12)
    check(toll)
    assert toll.counts["server restarts"] == rounds
    assert toll.counts["connections dropped"] > 0
    assert toll.counts["answers changed"] > 0
