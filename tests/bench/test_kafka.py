"""`txn-engine bench --kafka` measures our transactions and those of a real Kafka broker. Speed is not tested."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Self

import pytest
from click.testing import CliRunner
from rich.console import Console

from tests import numbers
from tests.conftest import missing_server
from tests.support.kafka_server import KafkaServer, kafka_jars
from tests.support.servers import free_port
from txn_engine.bench import print_report
from txn_engine.bench.kafka import Size, kafka_report
from txn_engine.cli.main import cli
from txn_engine.errors import StoreUnavailableError

NAMES = [
    "to the commit's return",
    "to visible",
    "to complete",
    "back to back, each",
    "processor time, each",
]
TINY = Size(warm_up=1, rounds=2, blocks=1, block=2)


def silent(_what: str, _done: int, _total: int) -> None:
    """Report no progress."""


@pytest.fixture
def jars() -> Path:
    found = kafka_jars()
    if found is None:
        missing_server("no Kafka to measure beside: run .ci/setup-kafka")
    return found


@pytest.mark.kafka
@pytest.mark.slow
def test_beside_a_broker(jars: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Both sides have figures in a plausible order. Kafka's transactions are not visible before the commit
    returns, and ours are not complete before they are visible."""
    pytest.importorskip("confluent_kafka")
    with KafkaServer(jars, verification=True) as server:
        at = f"127.0.0.1:{server.port}"
        report = kafka_report(f"file://{tmp_path}/ledger", at, "beside", size=TINY, progress=silent)
    rows = report["rows"]
    assert [row["name"] for row in rows] == NAMES
    for side in ("ours", "kafka"):
        assert all(0 < row[f"{side}_p50"] <= row[f"{side}_p99"] for row in rows)
    assert (
        rows[1]["kafka_p50"] >= rows[0]["kafka_p50"]
    )  # Kafka's commit returns before its markers are written
    assert rows[2]["ours_p50"] >= rows[1]["ours_p50"]
    assert report["objects"] >= 15
    print_report(Console(width=100), json.loads(json.dumps(report)))
    printed = capsys.readouterr().out
    assert "to visible" in printed
    assert f"in {report['objects']} objects" in printed


def test_without_the_client(monkeypatch: pytest.MonkeyPatch) -> None:
    """One line says what to install, and nothing is created."""
    monkeypatch.setitem(sys.modules, "confluent_kafka", None)
    answer = CliRunner().invoke(cli, ["bench", "--kafka", "127.0.0.1:9092", "--url", "file:///nowhere/x"])
    assert answer.exit_code == 1
    assert "pip install confluent-kafka" in answer.stderr
    assert "Traceback" not in answer.stderr


def test_without_a_broker(tmp_path: Path) -> None:
    """The error names the address where no broker answers, and no store is created."""
    pytest.importorskip("confluent_kafka")
    at = f"127.0.0.1:{free_port()}"
    with pytest.raises(StoreUnavailableError) as refused:
        kafka_report(f"file://{tmp_path}/ledger", at, "beside", size=TINY, progress=silent, answer_s=1.0)
    assert (refused.value.actor, refused.value.place) == ("bench", at)
    assert not (tmp_path / "ledger").exists()


def test_make_bench_brings_a_broker(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """`--kafka` without an address gets the address of a broker that is started for it. A given address is kept."""

    class Server:
        port = 1234

        def __init__(self, *_: object, **__: object) -> None:
            pass

        def __enter__(self) -> Self:
            return self

        def __exit__(self, *_: object) -> None:
            pass

    asked = tmp_path / "asked"
    says = f"import sys; open({str(asked)!r}, 'w').write(' '.join(sys.argv[1:])); raise SystemExit(3)"
    monkeypatch.setattr(numbers, "BENCH", (sys.executable, "-c", says))
    monkeypatch.setattr("tests.support.kafka_server.KafkaServer", Server)
    monkeypatch.setattr("tests.support.kafka_server.kafka_jars", lambda: tmp_path)
    for given, handed_on in (
        (["--kafka"], "--kafka 127.0.0.1:1234"),
        (["--kafka", "--quick"], "--kafka 127.0.0.1:1234 --quick"),
        (["--kafka", "h:9092", "--quick"], "--kafka h:9092 --quick"),
    ):
        assert numbers.main(["bench", *given]) == 3
        assert asked.read_text() == handed_on
