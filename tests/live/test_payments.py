"""The payments of `make airflow`: each day is loaded once, whenever the process was killed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.suite.tiers import in_shard
from tests.support.internal import FEW_INTERNAL
from txn_engine import Engine, connect
from txn_engine.demo.payments import PAYMENTS, read_payments, split_into_days
from txn_engine.demo.sample import write_sample
from txn_engine_airflow.standalone.payments import UNLUCKY, Payments, branch_of, make_topics

DAYS = 16


@pytest.fixture(scope="module")
def sample(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("sample") / "payments.csv"
    write_sample(path)
    return path


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Engine]:
    with connect(f"file://{tmp_path}/ledger", configs=FEW_INTERNAL) as engine:
        make_topics(engine)
        make_topics(engine)
        yield engine


def payments(engine: Engine, sample: Path) -> Payments:
    """A process that loads payments, right after its start."""
    table = read_payments(sample, days_min=1)
    found = Payments(engine, table, split_into_days(table))
    found.resume()
    return found


def loaded(engine: Engine) -> list[int]:
    return sorted(engine.scan(PAYMENTS).to_table(columns=["trans_id"])["trans_id"].to_pylist())


def ids(of: Payments, numbers: range) -> list[int]:
    return sorted(trans_id for number in numbers for trans_id in of.rows(number)["trans_id"].to_pylist())


def test_a_lost_day_is_open_and_loaded_again_later(engine: Engine, sample: Path) -> None:
    trickle = payments(engine, sample)
    while UNLUCKY not in (branch_of(trickle.next_number - 1)[0] if trickle.next_number else ""):
        trickle.step()
    states = {listing.transactional_id: listing.state for listing in engine.admin.list_transactions()}
    assert states[UNLUCKY] == "Ongoing"
    while trickle.lost:
        trickle.step()
    engine.coordinator.write_pending_markers()
    assert loaded(engine) == ids(trickle, range(trickle.next_number))


@pytest.mark.parametrize("killed_after", in_shard("airflow", [1, 3, 12, 13], keep=[3, 13]))
def test_killed_and_started_again_each_day_is_there_once(
    engine: Engine, sample: Path, killed_after: int
) -> None:
    """If the process is killed, its successor learns from the log what was committed and what was lost, and
    loads each day once."""
    first = payments(engine, sample)
    for _ in range(killed_after):
        first.step()
    second = payments(engine, sample)
    while second.next_number < DAYS or second.lost:
        second.step()
    engine.coordinator.write_pending_markers()
    assert loaded(engine) == ids(second, range(second.next_number))


def test_the_days_come_round_with_ids_of_their_own(engine: Engine, sample: Path) -> None:
    trickle = payments(engine, sample)
    days = len(trickle.days)
    first, again = (set(trickle.rows(number)["trans_id"].to_pylist()) for number in (0, days))
    assert len(first) == len(again)
    assert not first & again
