"""Every long check records what it counted if it finished, and `python -m tests.numbers` shows the
records."""

from __future__ import annotations

import json
import shlex
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests import numbers
from tests.differential import __main__ as differential
from tests.numbers import PARTS, Run, last_runs
from tests.simulator import __main__ as simulator
from tests.simulator.explore import __main__ as explore
from tests.simulator.mutants import __main__ as mutants
from tests.support.servers import REPOSITORY
from tests.torture import __main__ as torture
from txn_engine.bench.measure import Measured


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder of records for each test."""
    monkeypatch.setattr(numbers, "FOLDER", tmp_path / "numbers")
    return tmp_path / "numbers"


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A git repository with one commit."""
    root = tmp_path / "repository"
    root.mkdir()
    monkeypatch.setattr(numbers, "ROOT", root)
    (root / "code.py").write_text("1\n")
    for command in (
        "init -q",
        "add .",
        "-c user.name=a -c user.email=a@example.org -c commit.gpgsign=false commit -qm one",
    ):
        subprocess.run(["git", *shlex.split(command)], cwd=root, check=True)
    return root


def shown(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    capsys.readouterr()
    assert numbers.main(arguments) == 0
    return capsys.readouterr().out


# --- records ----------------------------------------------------------------------------------------------


def test_a_record_names_the_code_that_ran(repository: Path) -> None:
    """The record has the run's commit, and whether the tree was unchanged from the start of the run to its
    end."""
    head = subprocess.run(
        ["git", "rev-parse", "HEAD"], cwd=repository, check=True, capture_output=True, text=True
    ).stdout.strip()
    run = Run("torture", ["--rounds", "2"])
    made = run.record({"kills": 7})
    assert (made.commit, made.clean, made.figures) == (head, True, {"kills": 7})
    assert made.command == "python -m tests.torture --rounds 2"
    assert last_runs("torture") == [made]
    (repository / "code.py").write_text("2\n")  # while the run is under way
    changed = run.record({"kills": 8})
    assert (changed.commit, changed.clean) == (head, False)
    assert Run("torture", []).record({}).clean is False


def test_without_git_there_is_no_commit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The record claims nothing about the code."""
    monkeypatch.setattr(numbers, "ROOT", tmp_path)
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    made = Run("mutants", []).record({})
    assert (made.commit, made.clean) == (None, False)


def test_a_run_that_does_not_finish_leaves_the_last_one(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A run that was only begun does not replace the last record."""
    made = Run("mutants", []).record({"mutants found": 3})
    Run("mutants", [])
    assert last_runs("mutants") == [made]
    assert [path.name for path in folder.iterdir()] == ["mutants.json"]


def test_a_file_that_is_not_a_record(folder: Path) -> None:
    """The error names the file."""
    Run("mutants", []).record({})
    (folder / "mutants.json").write_text('{"part": "mutants"}')
    with pytest.raises(SystemExit, match=r"mutants\.json is no record of a run .*: delete it"):
        numbers.main([])


# --- shown ------------------------------------------------------------------------------------------------


def test_without_records_the_targets_are_shown(capsys: pytest.CaptureFixture[str]) -> None:
    """Each part has one line, with a target that the Makefile has."""
    text = shown(capsys)
    makefile = (REPOSITORY / "Makefile").read_text()
    for name, part in PARTS.items():
        assert f"│ {name} " in text
        assert f"never run: {part.make}" in text
        assert f"\n{part.make.split()[1]}: " in makefile
    never = json.loads(shown(capsys, "--json"))
    assert never == {name: {"make": part.make, "records": []} for name, part in PARTS.items()}


def test_figures_are_shown(capsys: pytest.CaptureFixture[str]) -> None:
    """Each figure with its time and command. The other parts are shown as never run."""
    made = Run("simulator", ["run", "--workload", "[x]"]).record(
        {
            "operations": 1_234_567,
            "a second": 1.5,
            "kinds": {"lost": 2_000, "late": 3},
            "missed": [],
            "all": True,
        }
    )
    lines = [" ".join(line.strip("│ ").split()) for line in shown(capsys).splitlines()]
    for line in (
        "operations │ 1,234,567",
        "a second │ 1.50",
        "kinds │ lost 2,000, late 3",
        "missed │ none",
        "all │ yes",
        "│ python -m tests.simulator run --workload '[x]'",
    ):
        assert line.strip("│ ") in lines
    assert any(made.finished in line and str(made.commit)[:8] in line for line in lines)
    assert sum("never run" in line for line in lines) == len(PARTS) - 1
    (found,) = json.loads(shown(capsys, "--json"))["simulator"]["records"]
    assert found["figures"] == made.figures
    assert found["arguments"] == ["run", "--workload", "[x]"]


# --- the parts --------------------------------------------------------------------------------------------


Main = Callable[[Sequence[str]], int]


def figures_of(part: str, main: Main, *arguments: str) -> dict[str, Any]:
    """Run the part's command and return the figures that it records."""
    assert main(arguments) == 0
    (made,) = last_runs(part)
    assert made.arguments == list(arguments)
    return made.figures


@pytest.mark.shard("machine")
def test_the_simulator_leaves_its_figures(capsys: pytest.CaptureFixture[str]) -> None:
    """The record has operations, faults and audited transactions. A replay counts the same and records
    nothing."""
    arguments = ["run", "--seeds", "1", "--from", "33", "--jobs", "1"]
    found = figures_of("simulator", simulator.main, *arguments)
    made = last_runs("simulator")
    assert simulator.main(["replay", "backups", "33"]) == 0
    replayed = capsys.readouterr().out
    assert f"backups 33: {found['store operations']} operations, {found['faults']} faults" in replayed
    assert f"{found['crashes']} crashes, transactions {{" in replayed
    assert (found["runs"], found["runs with findings"]) == (1, 0)
    assert found["transactions audited"] == sum(found["transactions by state"].values()) > 0
    assert found["store operations a second"] > 0
    assert found["judged"]["restored stores"] > 0
    assert last_runs("simulator") == made


@pytest.mark.shard("simulator")
def test_the_hunt_leaves_its_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    """The record has the number of hunted mutants, and the number of found ones."""
    bugs = [mutant for mutant in mutants.MUTANTS if mutant.name == "no-epoch-check"]
    monkeypatch.setattr(mutants, "MUTANTS", bugs)
    found = figures_of("mutants", mutants.main, "--from", "1000", "--jobs", "1")
    assert (found["mutants hunted"], found["mutants found"], found["not found"]) == (1, 1, [])
    assert found["runs"] > 0


@pytest.mark.shard("simulator")
def test_the_search_leaves_its_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each configuration has a record of its own, and so has the hunt for mutants."""
    assert explore.main(["--config", "a", "--limit-states", "50"]) == 0
    assert explore.main(["--config", "d", "--config", "a", "--limit-states", "60"]) == 0
    a, d = last_runs("explore")
    assert (a.title, d.title) == ("explore a", "explore d")
    assert min(a.figures["states"], d.figures["states"]) >= 60, (
        "the second run's, which ends behind a whole step"
    )
    assert (a.figures["all seen"], a.figures["findings"]) == (False, 0)
    monkeypatch.setattr(explore, "WHERE", {"no-epoch-check": "a"})
    hunted = figures_of("explore-mutants", explore.main, "--mutants")
    assert (hunted["mutants hunted"], hunted["mutants found"]) == (1, 1)
    assert last_runs("explore") == [a, d]


def test_the_comparison_leaves_its_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    """The record has the number of compared programs, which is 0 without a broker."""
    monkeypatch.setattr(differential, "kafka_jars", list)
    found = figures_of("differential", differential.main, "--programs", "0")
    assert (found["programs compared"], found["calls compared"]) == (0, 0)


def test_the_torture_leaves_its_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    """The record has the survived kills and power cuts, under the names of the table."""
    monkeypatch.setattr(
        signal, "signal", lambda *_: None
    )  # a command's own handlers are not for this process
    monkeypatch.setattr(torture, "STORES", ("local",))
    found = figures_of("torture", torture.main, "--rounds", "0", "--seed", "5")
    assert {"rounds", "kills", "stops", "power cuts survived", "objects audited", "findings"} <= found.keys()
    assert found["seed"] == "5"


def test_minutes_that_are_over_end_a_run_at_a_clean_point(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each check says that it stopped, and its result. A partial hunt for mutants records nothing."""
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    monkeypatch.setattr(torture, "STORES", ("local",))
    monkeypatch.setattr(differential, "kafka_jars", list)
    for main, arguments, said in (
        (torture.main, [], "torture: seed"),
        (differential.main, [], "stopped between two brokers"),
        (mutants.main, [], f"stopped between two hunts, 0 minutes over: {len(mutants.MUTANTS)} not hunted"),
        (explore.main, ["--config", "a"], "a: stopped between two states, 0 minutes over: not all seen"),
    ):
        assert main([*arguments, "--minutes", "0"]) == 0
        printed = capsys.readouterr()
        assert said in printed.out + printed.err
    assert last_runs("mutants") == []
    (searched,) = last_runs("explore")
    assert searched.figures["all seen"] is False
    (tortured,) = last_runs("torture")
    assert tortured.figures["rounds"] == 0


def test_a_chosen_piece_is_not_the_part(monkeypatch: pytest.MonkeyPatch) -> None:
    """A run of one workload, store, kind or mutant does not replace the record of the whole part."""
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    monkeypatch.setattr(differential, "kafka_jars", list)
    monkeypatch.setattr(mutants, "hunt_all", lambda *_, **__: [])
    monkeypatch.setattr(explore, "hunt_all", lambda *_, **__: [])
    for main, arguments in (
        (simulator.main, ["run", "--seeds", "0", "--workload", "bank"]),
        (torture.main, ["--rounds", "0", "--store", "local"]),
        (differential.main, ["--programs", "0", "--kind", "client"]),
        (mutants.main, ["--name", "no-epoch-check"]),
        (explore.main, ["--name", "no-epoch-check"]),
    ):
        assert main(arguments) == 0
    assert [part for part in PARTS if last_runs(part)] == []


def test_the_bench_is_recorded(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """The record has each number with its bare limit, and the table that the bench prints."""
    number = Measured("append", "ms", 5.0, 4.0, 1.25, "at most 1.3", met=True, rounds=9, note="100 records")
    report = {"store": "file:///ledger", "quick": True, "numbers": [number.to_dict()]}
    says = f"import sys, json; assert sys.argv[1:] == ['--quick']; print({json.dumps(json.dumps(report))})"
    monkeypatch.setattr(numbers, "BENCH", (sys.executable, "-c", says))
    assert numbers.main(["bench", "--quick"]) == 0
    printed = capsys.readouterr().out
    assert "5.00 ms" in printed
    assert "append: 100 records; 9 rounds" in printed
    (made,) = last_runs("bench")
    assert (made.figures["quick"], made.command) == (True, "txn-engine bench --quick")
    assert "ours 5.00, bare 4.00, unit ms, ratio 1.25, aim at most 1.3, met yes" in shown(capsys)


def test_a_bench_that_failed_is_not_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    """The bench's exit code is passed on, and nothing is recorded."""
    monkeypatch.setattr(numbers, "BENCH", (sys.executable, "-c", "raise SystemExit(3)"))
    assert numbers.main(["bench"]) == 3
    assert last_runs("bench") == []


@pytest.mark.parametrize(
    ("report", "shown_as"),
    [
        (
            {
                "bench": "rounds",
                "call_ms": 60.0,
                "rows": [
                    {
                        "name": "append",
                        "returned": {"rounds": 2, "time": 2.1},
                        "visible": None,
                        "complete": None,
                        "objects": 2,
                        "least": {"why": "file; entry", "returned": 2},
                    }
                ],
            },
            {"call_ms": 60.0, "append": {"returned": {"rounds": 2, "time": 2.1}, "objects": 2}},
        ),
        (
            {
                "bench": "kafka",
                "store": "file:///ledger",
                "peer": "confluent-kafka 2",
                "quick": True,
                "rows": [
                    {
                        "name": "to visible",
                        "ours_p50": 2.0,
                        "ours_p99": 2.0,
                        "kafka_p50": 2.0,
                        "kafka_p99": 2.0,
                        "ratio": 2.0,
                    }
                ],
            },
            {"peer": "confluent-kafka 2", "to visible": {"ours_p50": 2.0, "kafka_p99": 2.0, "ratio": 2.0}},
        ),
        (
            {
                "bench": "growth",
                "store": "file:///ledger",
                "sizes": {"appends": 2},
                **{name: [{"first": 1}, {"last": 2}] for name in ("appends", "writers", "files", "ids")},
            },
            {"appends, the last": {"last": 2}, "ids, the last": {"last": 2}},
        ),
    ],
    ids=lambda value: value.get("bench", "") if isinstance(value, dict) else "",
)
def test_each_part_of_the_bench_has_a_record_of_its_own(
    report: dict[str, Any], shown_as: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The record is next to the usual one, with the figures of the bench's document."""
    says = f"print({json.dumps(json.dumps(report))})"
    monkeypatch.setattr(numbers, "BENCH", (sys.executable, "-c", says))
    assert numbers.main(["bench", "--json"]) == 0
    (made,) = last_runs("bench")
    assert (made.of, made.title) == (report["bench"], f"bench {report['bench']}")
    assert {name: _within(value, made.figures[name]) for name, value in shown_as.items()} == shown_as


def _within(wanted: Any, found: Any) -> Any:
    """The part of `found` that `wanted` names."""
    return {name: found[name] for name in wanted} if isinstance(wanted, dict) else found
