"""The engine and Apache Kafka 4.4 run the same programs, and the tests fail if they differ without a
review."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.differential.comparison import Comparison
from tests.differential.laboratory import Laboratory, shrink
from tests.differential.programs import KINDS, Kind, generate
from tests.differential.records import RecordBatch, crc32c, decode_batches, encode_batch
from tests.differential.report import Tally, trace
from tests.differential.reviewed import page_table
from tests.suite.tiers import in_shard
from tests.support.kafka_server import kafka_jars
from tests.support.servers import REPOSITORY
from txn_engine.coordinator import groups
from txn_engine.protocol import producers
from txn_engine.protocol.offset_commits import OffsetKey
from txn_engine.protocol.partition import PartitionState

PROGRAMS = 60
RARE: tuple[tuple[int, Kind | None], ...] = (
    (8, "epochs"),
    (9, "epochs"),
    (13, "epochs"),
    (20, "epochs"),
    (204, "epochs"),
    (1, "topics"),
    (9, "topics"),
    (102, None),
)
"""Programs that meet what hardly any other does: most of them near the end of an id's epochs."""
FEW: tuple[tuple[int, Kind | None], ...] = (
    *((seed, None) for seed in (3, 39, 40, 45, 60)),
    *((seed, "topics") for seed in (1, 9)),
    (1, "partition"),
    (1, "expiry"),
    (8, "epochs"),
    (1, "client"),
    (1, "loop"),
)
"""The programs that `make test` runs, at least one of every kind. The shard `protocol` runs all programs."""
MANY: tuple[tuple[int, Kind | None], ...] = (*((seed, None) for seed in range(1, PROGRAMS + 1)), *RARE)
THREADS = 6
SHOWN = 3
MUTANT_SEEDS = range(1, 60)
MUTANT_STEPS_MAX = 6


@dataclass(frozen=True)
class Run:
    """Fixed programs that were run. Their broker still runs."""

    laboratory: Laboratory
    tally: Tally


@pytest.fixture(scope="module")
def jars() -> Path:
    """Kafka's jars. Where they are missing the tests fail in CI, and are skipped elsewhere."""
    found = kafka_jars()
    if found is None:
        how = "no Kafka to compare with: run .ci/setup-kafka, or set TXN_ENGINE_KAFKA_JARS to a folder with its jars"
        if os.environ.get("CI"):
            pytest.fail(how)
        pytest.skip(how)
    return found


@contextmanager
def _run(jars: Path, chosen: Sequence[tuple[int, Kind | None]]) -> Iterator[Run]:
    with Laboratory(jars, [generate(seed, kind) for seed, kind in chosen]) as laboratory:
        tally = Tally()
        laboratory.run_all(tally.add, THREADS)
        yield Run(laboratory, tally)


@pytest.fixture(scope="module")
def few(jars: Path) -> Iterator[Run]:
    """The programs of `make test`, after they ran on both sides."""
    with _run(jars, FEW) as run:
        yield run


@pytest.fixture(scope="module")
def many(jars: Path) -> Iterator[Run]:
    """All fixed programs, after they ran on both sides."""
    with _run(jars, MANY) as run:
        yield run


def _check(run: Run, kinds: Collection[Kind], capsys: pytest.CaptureFixture[str]) -> None:
    """The programs are of these kinds and agree, call by call, except for the reviewed differences."""
    with capsys.disabled():
        print("\n" + "\n".join(run.tally.lines()))
    differing = [shrink(run.laboratory, each) for each in run.tally.differing[:SHOWN]]
    assert not differing, "\n\n".join(map(trace, differing))
    assert run.tally.programs.keys() == set(kinds)
    assert not run.tally.is_cut_too_much, f"{run.tally.cut} steps were cut behind reviewed differences"


@pytest.mark.slow
@pytest.mark.kafka
@pytest.mark.together("kafka")
@pytest.mark.timeout(900)
def test_the_engine_does_what_kafka_does(few: Run, capsys: pytest.CaptureFixture[str]) -> None:
    """A few programs of every kind agree with Apache Kafka 4.4."""
    _check(few, KINDS, capsys)
    assert few.tally.programs.total() == len(FEW)


@pytest.mark.slow
@pytest.mark.kafka
@pytest.mark.timeout(900)
@pytest.mark.shard("protocol")
def test_the_engine_does_what_kafka_does_in_many_programs(
    many: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    """All fixed programs agree with Apache Kafka 4.4, and half of them are of shipping clients.

    They meet every reviewed difference.
    """
    _check(many, KINDS, capsys)
    assert not many.tally.unused, "reviewed differences that no program meets any more"
    assert many.tally.programs.total() == len(MANY)
    assert many.tally.programs["client"] + many.tally.programs["loop"] >= PROGRAMS / 2


def _plant(bug: str, monkeypatch: pytest.MonkeyPatch) -> Kind:
    """Put a bug into the engine. Returns the kind of programs that meet it."""
    if bug == "window of four":
        monkeypatch.setattr(producers, "BATCHES_TO_RETAIN", 4)
    elif bug == "gaps accepted":
        monkeypatch.setattr(producers, "in_sequence", lambda last, following: following > last)
    elif bug == "offsets outlive their topic":
        monkeypatch.setattr(
            groups, "offset_key", lambda group_id, at: OffsetKey(group_id, at.topic, 0, at.partition)
        )
        return "topics"
    else:
        monkeypatch.setattr(PartitionState, "last_stable_offset", property(lambda it: it.log_end_offset))
    return "coordinator"


def _check_found(laboratory: Laboratory, kind: Kind, steps_max: int) -> None:
    found = next(filter(None, (_differing(laboratory, seed, kind) for seed in MUTANT_SEEDS)), None)
    assert found is not None
    shortest = shrink(laboratory, found)
    assert not shortest.agrees
    assert len(shortest.lines) <= steps_max


@pytest.mark.slow
@pytest.mark.kafka
@pytest.mark.together("kafka")
@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    "bug",
    in_shard("protocol", ["undecided records visible", "gaps accepted"], keep=["undecided records visible"]),
)
def test_a_wrong_engine_is_found(few: Run, bug: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A bug of one line is found by a few programs, and shrunk to a handful of steps."""
    _check_found(few.laboratory, _plant(bug, monkeypatch), MUTANT_STEPS_MAX)


@pytest.mark.slow
@pytest.mark.kafka
@pytest.mark.timeout(300)
@pytest.mark.shard("protocol")
@pytest.mark.parametrize(("bug", "steps_max"), [("window of four", 8), ("offsets outlive their topic", 6)])
def test_a_wrong_engine_is_found_by_more_programs(
    many: Run, bug: str, steps_max: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bugs that fewer programs meet are found and shrunk as well."""
    _check_found(many.laboratory, _plant(bug, monkeypatch), steps_max)


def _differing(laboratory: Laboratory, seed: int, kind: Kind) -> Comparison | None:
    compared = laboratory.compare(generate(seed, kind))
    return None if compared.agrees else compared


def test_the_page_shows_the_list() -> None:
    """docs/DIFFERENTIAL.md has the reviewed differences as they are in the code."""
    page = (REPOSITORY / "docs" / "DIFFERENTIAL.md").read_text()
    assert page_table() in page, f"put this into docs/DIFFERENTIAL.md:\n{page_table()}"


def test_a_seed_is_a_program() -> None:
    """The same seed gives the same program, and another seed gives another program."""
    assert generate(7) == generate(7)
    assert generate(7).steps != generate(8).steps


def test_batches_are_read_as_they_were_written() -> None:
    """A record batch encodes and decodes to itself, and its checksum is Castagnoli's."""
    values = (b"", b"a" * 200, b"c")
    data = encode_batch(
        values,
        producer_id=5,
        producer_epoch=3,
        base_sequence=2**31 - 1,
        is_transactional=True,
        timestamp_ms=1_700_000_000_000,
    )
    assert crc32c(b"123456789") == 0xE3069283
    assert list(decode_batches(data + data[:20])) == [
        RecordBatch(0, 2, 5, 3, 2**31 - 1, True, "none", values)
    ]
