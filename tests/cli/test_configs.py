"""`configs`: what it prints for people and as JSON, and how it fails."""

from __future__ import annotations

from tests.cli.conftest import Run


def test_a_topics_settings_are_shown_and_altered(run: Run, payments: str) -> None:
    """A change is shown first, with the records that it would drop, and made with --execute."""
    rows = [line.split() for line in run("configs", "describe", "--topic", payments).stdout.splitlines()]
    assert rows[0] == ["Name", "Value", "Default", "Set"]
    assert ["retention.ms", "-1", "-1"] in rows
    change = ("configs", "alter", "--topic", payments, "--config", "retention.ms=604800000")
    shown = run(*change)
    assert shown.code == 0
    assert shown.stdout.splitlines()[1].split() == ["retention.ms", "-1", "604800000"]
    assert "add --execute" in shown.stderr
    assert "`maintain retention` would drop 0 records, 0 bytes" in shown.stderr
    told = run(*change, "--json").json["would_drop"]
    assert told == {"records": 0, "bytes": 0, "unreadable": []}
    assert run(*change, "--execute", "--json").json == {
        "changes": [{"name": "retention.ms", "before": -1, "after": 604_800_000}],
        "topic": payments,
        "version": 1,
        "executed": True,
    }
    assert "it is so already" in run(*change, "--execute").stderr
    found = run("configs", "describe", "--topic", payments, "--json").json
    (row,) = [row for row in found["configs"] if row["name"] == "retention.ms"]
    assert (row["value"], row["default"], row["set"], found["version"]) == (604_800_000, -1, "topic", 1)
    assert run("topics", "describe", payments, "--json").json["configs"]["retention.ms"] == 604_800_000
    assert run("configs", "alter", "--topic", payments, "--reset", "retention.ms", "--execute").code == 0
    assert run("topics", "describe", payments, "--json").json["configs"]["retention.ms"] == -1


def test_the_stores_settings_are_shown_and_altered(run: Run, payments: str) -> None:
    """`configs describe` says which settings are fixed, and `doctor` shows the limit."""
    assert run("configs", "alter", "--config", "transaction.max.timeout.ms=3600000", "--execute").code == 0
    shown = {line.split()[0]: line.split()[1:] for line in run("configs", "describe").stdout.splitlines()}
    assert shown["transaction.max.timeout.ms"] == ["3600000", "900000", "store"]
    assert shown["offsets.topic.num.partitions"] == ["50", "50", "fixed"]
    assert "transactions up to 3600 s" in run("doctor").stdout


def test_wrong_calls(run: Run, payments: str) -> None:
    """An error of the engine has exit code 1, a usage error has 2."""
    refused = run("configs", "alter", "--topic", payments, "--config", "retention.m=1", "--execute")
    assert (refused.code, refused.error_code) == (1, "INVALID_CONFIG")
    no_segments = run("configs", "alter", "--topic", payments, "--config", "segment.ms=1")
    assert (no_segments.code, no_segments.error_code) == (1, "INVALID_CONFIG")
    unknown = run("configs", "describe", "--topic", "nowhere")
    assert (unknown.code, unknown.error_code) == (1, "UNKNOWN_TOPIC_OR_PARTITION")
    for wrong in (
        ("--config", "retention.ms"),
        (),
        ("--config", "a=1", "--reset", "a"),
        ("--config", "a=1", "--execute", "--dry-run"),
    ):
        assert run("configs", "alter", "--topic", payments, *wrong).code == 2


def test_settings_of_a_new_store(run: Run) -> None:
    """The numbers of internal partitions are fixed when the store is set up."""
    begin = ("topics", "create", "t", "--store-config", "transaction.state.log.num.partitions=8")
    assert run(*begin).code == 0
    shown = {line.split()[0]: line.split()[1:] for line in run("configs", "describe").stdout.splitlines()}
    assert shown["transaction.state.log.num.partitions"] == ["8", "50", "fixed"]
    again = run("topics", "create", "u", "--store-config", "transaction.state.log.num.partitions=9")
    assert (again.code, again.error_code) == (1, "INVALID_CONFIG")
    assert run("topics", "create", "u", "--store-config", "nothing").code == 2
