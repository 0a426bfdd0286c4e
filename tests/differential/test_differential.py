"""The engine and Apache Kafka 4.2 take the same programs, and the comparison would see it if they did not."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.differential.comparison import Comparison
from tests.differential.kafka_server import kafka_jars
from tests.differential.laboratory import Laboratory, shrink
from tests.differential.programs import Kind, generate
from tests.differential.records import RecordBatch, crc32c, decode_batches, encode_batch
from tests.differential.report import Tally, trace
from tests.differential.reviewed import page_table
from tests.servers import REPOSITORY
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
THREADS = 6
SHOWN = 3
MUTANT_SEEDS = range(1, 60)
MUTANT_STEPS_MAX = 6


@dataclass(frozen=True)
class Run:
    """The fixed programs, run; the broker is still there."""

    laboratory: Laboratory
    tally: Tally


@pytest.fixture(scope="module")
def jars() -> Path:
    """Kafka's jars; where they are missing CI fails, and a user's run goes without."""
    found = kafka_jars()
    if found is None:
        how = "no Kafka to compare with: run .ci/setup-kafka, or set TXN_ENGINE_KAFKA_JARS to a folder with its jars"
        if os.environ.get("CI"):
            pytest.fail(how)
        pytest.skip(how)
    return found


@pytest.fixture(scope="module")
def run(jars: Path) -> Iterator[Run]:
    """Every fixed program on both sides."""
    programs = [generate(seed) for seed in range(1, PROGRAMS + 1)] + [
        generate(seed, kind) for seed, kind in RARE
    ]
    with Laboratory(jars, programs) as laboratory:
        tally = Tally()
        laboratory.run_all(tally.add, THREADS)
        yield Run(laboratory, tally)


@pytest.mark.slow
@pytest.mark.kafka
@pytest.mark.timeout(900)
def test_the_engine_does_what_kafka_does(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    """The programs agree with Apache Kafka 4.2, call by call, but for the reviewed differences, all of them met;
    half of them are of shipping clients."""
    with capsys.disabled():
        print("\n" + "\n".join(run.tally.lines()))
    differing = [shrink(run.laboratory, each) for each in run.tally.differing[:SHOWN]]
    assert not differing, "\n\n".join(map(trace, differing))
    assert run.tally.programs.total() == PROGRAMS + len(RARE)
    assert run.tally.programs["client"] + run.tally.programs["loop"] >= PROGRAMS / 2
    assert not run.tally.unused, "reviewed differences that no program meets any more"
    assert not run.tally.is_cut_too_much, f"{run.tally.cut} steps were cut behind reviewed differences"


@pytest.mark.slow
@pytest.mark.kafka
@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    "mutant",
    ["window of four", "gaps accepted", "undecided records visible", "offsets outlive their topic"],
)
def test_a_wrong_engine_is_found(run: Run, mutant: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A bug of one line is found by a few programs, and shrunk to a handful of steps."""
    if mutant == "window of four":
        monkeypatch.setattr(producers, "BATCHES_TO_RETAIN", 4)
    elif mutant == "gaps accepted":
        monkeypatch.setattr(producers, "in_sequence", lambda last, following: following > last)
    elif mutant == "offsets outlive their topic":
        monkeypatch.setattr(
            groups, "offset_key", lambda group_id, at: OffsetKey(group_id, at.topic, 0, at.partition)
        )
    else:
        monkeypatch.setattr(PartitionState, "last_stable_offset", property(lambda it: it.log_end_offset))
    kind: Kind = "topics" if mutant == "offsets outlive their topic" else "coordinator"
    found = next(filter(None, (_differing(run.laboratory, seed, kind) for seed in MUTANT_SEEDS)), None)
    assert found is not None
    shortest = shrink(run.laboratory, found)
    assert not shortest.agrees
    assert len(shortest.lines) <= (8 if mutant == "window of four" else MUTANT_STEPS_MAX)


def _differing(laboratory: Laboratory, seed: int, kind: Kind) -> Comparison | None:
    compared = laboratory.compare(generate(seed, kind))
    return None if compared.agrees else compared


def test_the_page_shows_the_list() -> None:
    """docs/DIFFERENTIAL.md has the reviewed differences as they stand in the code."""
    page = (REPOSITORY / "docs" / "DIFFERENTIAL.md").read_text()
    assert page_table() in page, f"put this into docs/DIFFERENTIAL.md:\n{page_table()}"


def test_a_seed_is_a_program() -> None:
    """The same seed gives the same program, and another seed another one."""
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
        timestamp_ms=time.time_ns() // 1_000_000,
    )
    assert crc32c(b"123456789") == 0xE3069283
    assert list(decode_batches(data + data[:20])) == [
        RecordBatch(0, 2, 5, 3, 2**31 - 1, True, "none", values)
    ]
