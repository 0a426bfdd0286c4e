"""The closing table judges the run: it defines what the story must be like for exit code 0."""

from __future__ import annotations

import io
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from txn_engine.demo.balances import BalancesReport
from txn_engine.demo.closing import Closing
from txn_engine.demo.load import KILLED, LoadReport
from txn_engine.demo.payments import PAYMENTS
from txn_engine.demo.proof import ProofReport
from txn_engine.demo.sweep import SweepReport
from txn_engine.demo.tables import TablesReport
from txn_engine.verify import VerifyReport
from txn_engine.verify.report import PartitionStats, VerifyStats


def audit(live: int = 100, aborted: int = 30, transactions: dict[str, int] | None = None) -> VerifyReport:
    partition = PartitionStats(
        PAYMENTS, 0, 0, 0, 0, 0, 0, 0, {"live": live, "aborted": aborted}, 0, 0, 0, judged=True
    )
    states = {"CompleteCommit": 11, "CompleteAbort": 3} if transactions is None else transactions
    return VerifyReport((), VerifyStats(1, 1, 0, "", 1, 1, 130, states, (partition,), 0, 0, 0, 0.1))


def closing() -> Closing:
    """A correct run with 100 rows in days of 10."""
    again = {"base_offset": 3, "last_offset": 5, "is_duplicate": True}
    return Closing(
        rows_in=100,
        load=LoadReport(
            days=10,
            rows=100,
            aborted=[{"rows": 10}],
            fenced=[{"rows": 10, "code": "PRODUCER_FENCED", "who": "load-2 (pid 1)"}],
            duplicates=[{"rows": 10, "again": again}],
            killed=[{"rows": 10}],
        ),
        sweep=SweepReport(timed_out=[KILLED], completed=["load-0", "load-2"], partitions_marked=8, behind=0),
        balances=BalancesReport(
            payments_after_kill=60,
            payments_of_first_batch=60,
            rows=7,
            refused=[{"code": "OFFSETS_MOVED", "who": "balances-overlapping (pid 2)"}],
            third_found_nothing=True,
        ),
        tables=TablesReport(
            cut=0, payments=100, roots={"delta": {"payments": "/p", "balances": "/b"}, "iceberg": {}}
        ),
        proof=ProofReport(passed=19, success=True, report=Path("/tmp/index.html"), audit=audit()),
        seconds={"load": 1.0, "all": 2.0},
    )


def test_a_good_run_is_as_told() -> None:
    """The judgement of a good run misses nothing, and the numbers are the audit's."""
    good = closing()
    assert good.unexpected == []
    assert (good.rows_committed, good.rows_aborted, good.rows_dropped) == (100, 30, 3)
    assert good.document()["ok"] is True


Change = Callable[[Closing], None]


def _audit(**numbers: int | dict[str, int]) -> Change:
    return lambda run: setattr(run.proof, "audit", audit(**numbers))  # type: ignore[arg-type]


LEFT_ALONE = "the killed stream left its first micro-batch alone"


@pytest.mark.parametrize(
    ("change", "missed"),
    [
        (_audit(live=99), "every row is committed once"),
        (_audit(live=101), "every row is committed once"),
        (_audit(aborted=29), "what is aborted is what the producers lost"),
        (lambda run: run.sweep.timed_out.clear(), "one loader was killed and swept"),
        (lambda run: run.load.fenced.clear(), "one loader was fenced"),
        (lambda run: run.load.duplicates[0]["again"].update(is_duplicate=False), "one batch came twice"),
        (lambda run: run.load.aborted.clear(), "one transaction was aborted"),
        (lambda run: run.sweep.completed.clear(), "deferred markers were written"),
        (lambda run: setattr(run.sweep, "behind", 1), "the LSO was at the log end"),
        *(
            (lambda run, held=held: setattr(run.balances, "payments_after_kill", held), LEFT_ALONE)
            for held in (0, 59, 100)
        ),
        (lambda run: setattr(run.balances, "payments_of_first_batch", 100), LEFT_ALONE),
        (lambda run: setattr(run.balances, "rows", 0), "the stream went on"),
        (lambda run: run.balances.refused.clear(), "the overlapping Spark job was refused"),
        (
            lambda run: setattr(run.balances, "third_found_nothing", False),
            "the stream, once more, found nothing to do",
        ),
        (lambda run: setattr(run.tables, "payments", 99), "the table shows every row"),
        (lambda run: run.tables.roots["delta"].clear(), "the table shows every row"),
        (_audit(transactions={"CompleteCommit": 11, "Ongoing": 1}), "all transactions have ended"),
        (lambda run: setattr(run.proof, "success", False), "all checks passed"),
    ],
)
def test_whatever_went_otherwise_is_named(change: Change, missed: str) -> None:
    """The judgement checks each part of the story. A missing part makes the demo fail and is named."""
    run = closing()
    change(run)
    assert missed in run.unexpected
    assert run.document()["ok"] is False


def test_the_table_shows_what_the_issue_asks_for() -> None:
    """The table shows rows, refusals, duplicates, end states, checks and seconds on 80 columns."""
    console = Console(width=80, record=True, file=io.StringIO())
    console.print(closing().table())
    shown = console.export_text()
    for text in (
        "rows in", "100", "aborted", "30", "PRODUCER_FENCED (load-2 (pid 1))", "3 rows in 1 batch",
        "CompleteAbort 3, CompleteCommit 11", "19 of 19", "2.0 in all",
    ):  # fmt: skip
        assert text in shown
    assert replace(closing(), seconds={"all": 3.0}).document()["seconds"] == {"all": 3.0}
